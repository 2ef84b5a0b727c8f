"""The query language: what a person types, and that nothing is an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.search.folding import STABLE, fold, forms
from steno.search.matching import folded, matches, snippet
from steno.search.query import parse
from steno.search.regex import Refused, compiled
from tests.search.tricky import SAMPLES

NOW_MS = 1_790_000_000_000
DAY_MS = 86_400_000
LETTERS = "".join(sorted({letter for text in SAMPLES for letter in text}))


def found(query: str, *texts: str) -> list[str]:
    parsed = parse(query, NOW_MS)
    return [text for text in texts if matches(parsed, folded(text))]


@pytest.mark.parametrize(
    ("query", "yes", "no"),
    [
        ("disk full", "the FULL disk", "the disk"),
        ('"disk full"', "a Disk\n  full", "full disk"),
        ("disk -full", "the disk", "the full disk"),
        ('disk -"is full"', "full disk", "disk is full"),
        ("one OR two three", "two three", "one two"),
        ("conf*", "a config", "reconfirm"),
        ("=cat", "the cat.", "concat"),
        ("/err(or)?: \\d+/", "ERROR: 12", "error: none"),
        ("don't", "I don't", "dont"),
        ("multi-agent", "a multi-agent", "multi agent"),
        ("20.04", "ubuntu 20.04", "2004"),
        ("http://x.org", "see http://x.org/", "x.org"),
        ("std::vector", "std::vector<int>", "vector"),
        ("12:30", "at 12:30", "12 30"),
        ("strasse", "Straße", "Strase"),
        ("Zoe\u0308", "zoe", "zo"),
        ("и\u0306", "й", "и"),
        ("OR", "black or white", "xyz"),
        ("-", "a-b", "ab"),
        ('"say ""hi"""', 'you say "hi"', "say hi"),
    ],
)
def test_a_query_finds_what_it_says(query: str, yes: str, no: str) -> None:
    assert found(query, yes, no) == [yes]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ('"open', "a quote is not closed"),
        ("before:someday", "means nothing there"),
        ("role:king", "means nothing there"),
        ("/(a+)+b/", "a repeat is inside a repeat"),
        ("/a(/", "not a regular expression"),
        ("/(?<=a)b/", "looks around"),
        ("a OR", "OR at the end"),
    ],
)
def test_what_means_nothing_is_searched_as_text_and_says_so(query: str, why: str) -> None:
    parsed = parse(query, NOW_MS)
    assert any(why in note for note in parsed.notes), parsed.notes
    assert parsed.clauses


@given(st.text(LETTERS))
def test_no_text_is_an_error(text: str) -> None:
    parsed = parse(text, NOW_MS)
    matches(parsed, folded(text))
    snippet(parsed, text)


@pytest.mark.parametrize(
    ("query", "after", "before"),
    [
        ("after:7d", 7, None),
        ("before:1d", None, 1),
        ('after:"2 weeks ago"', 14, None),
        ("on:yesterday", 1, 0),
    ],
)
def test_dates_are_counted_back_from_today(
    query: str, after: int | None, before: int | None
) -> None:
    parsed = parse(query, NOW_MS)
    today = parse("on:today", NOW_MS).after_ms
    assert today is not None
    hour = 3_600_000  # of summer time, at most
    for days, told in ((after, parsed.after_ms), (before, parsed.before_ms)):
        assert (days is None) == (told is None)
        assert told is None or days is None or abs(today - days * DAY_MS - told) <= hour


@given(st.text(LETTERS, min_size=1, max_size=60), st.data())
def test_a_piece_of_a_text_folds_to_a_piece_of_the_folded_text(
    text: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    assert fold(text[start:end]) in fold(text)


def test_letters_that_are_not_looked_up_only_lose_their_case() -> None:
    from steno.search import folding

    ranges = [letter for letter in map(chr, range(0x30000)) if not "\ud800" <= letter <= "\udfff"]
    import re

    stable = re.compile(f"[{STABLE}]")
    wrong = [
        letter
        for letter in ranges
        if stable.match(letter)
        and not letter.isspace()
        and folding._folded(letter) != letter.casefold()
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("Die Straße dort", "strasse", "Straße"),
        ("die ﬁnale", "final", "ﬁnal"),
        ("İstanbul", "istanbul", "İstanbul"),
        ("Zoe\u0308 kam", "zoë", "Zoe\u0308"),
        ("ｶﾞ ", "ガ", "ｶﾞ"),
        ("a\n\n b", '"a b"', "a\n\n b"),
    ],
)
def test_a_snippet_knows_the_exact_place(text: str, query: str, marked: str) -> None:
    shown = snippet(parse(query, NOW_MS), text)
    start, end = shown.places[0]
    assert text[start:end] == marked


def test_a_snippet_of_a_long_text_is_quick_and_right() -> None:
    text = "x " * 200_000 + "Straße" + " y" * 200_000
    shown = snippet(parse("strasse", NOW_MS), text)
    start, end = shown.places[0]
    assert text[start:end] == "Straße"
    assert len(shown.text) < 300


@pytest.mark.parametrize("pattern", ["a+b+c+d+e", "x" * 201, "(ab|a)+", "(a*)*", "a{2,}{3,}"])
def test_a_regular_expression_that_could_take_for_ever_is_refused(pattern: str) -> None:
    with pytest.raises(Refused):
        compiled(pattern)


def test_folded_forms_are_the_same_unless_text_is_not_composed() -> None:
    assert forms("Straße") == ("strasse", "strasse")
    assert forms("Zoe\u0308") == ("zoe\u0308", "zoe")


def test_a_time_ago_needs_no_quotes() -> None:
    assert parse("after:2 weeks ago fox", NOW_MS) == parse('after:"2 weeks ago" fox', NOW_MS)
    assert parse("title:2 weeks ago", NOW_MS).titles == ("2",)


def test_a_folder_is_named_by_its_path() -> None:
    assert parse("folder:/srv/app x", NOW_MS).folders == ("/srv/app",)
    assert not parse("on://x", NOW_MS).folders


def test_what_a_letter_folds_to_stays_when_it_is_folded_again() -> None:
    for start, end in ((0, 0x3000), (0xA640, 0xAC00), (0xF900, 0x10000), (0x1D400, 0x1D800)):
        letters = [chr(point) for point in range(start, end) if not 0xD800 <= point < 0xE000]
        odd = [one for one in letters if fold(fold(one)) != fold(one)]
        assert odd == []
