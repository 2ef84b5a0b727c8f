"""A query against one text: whether it matches, where, and how well."""

import re
from collections.abc import Iterable
from unicodedata import combining

from msgspec import Struct

from steno.search.documents import Role
from steno.search.folding import Mapped, forms
from steno.search.query import Query, Term

AROUND_CHARS = 120
SPANS_MAX = 20
_WINDOW = 400
_LONG = 20_000
_DAY_MS = 86_400_000
_BLANKS = re.compile(r"\s+")
_ROLE_WEIGHT: dict[Role, float] = {
    "title": 1.5,
    "user": 1.0,
    "assistant": 0.8,
    "distillate": 0.8,
    "call": 0.5,
    "tool": 0.5,
    "item": 0.8,
}


class Folded(Struct):
    """A text in all its forms."""

    raw: str
    first: str
    second: str


def folded(text: str) -> Folded:
    return Folded(text, *forms(text))


def matches(query: Query, text: Folded) -> bool:
    return all(
        any(has(term, text) for term in clause) for clause in query.clauses
    ) and not any(has(term, text) for term in query.without)


def has(term: Term, text: Folded) -> bool:
    if term.kind == "text" and term.first:
        return term.first in text.first or term.second in text.second
    return _find(term, text, 0) is not None


def _find(term: Term, text: Folded, after: int) -> tuple[int, int, str] | None:
    """The next place from `after` on, in which form."""
    if term.kind == "regex":
        found = None if term.pattern is None or after else term.pattern.find(text.raw)
        return None if found is None else (*found, "raw")
    if not term.first:  # nothing is left of it when it is folded
        at = text.raw.find(term.text, after)
        return None if at < 0 else (at, at + len(term.text), "raw")
    for form, piece, whole in (
        ("first", term.first, text.first),
        ("second", term.second, text.second),
    ):
        if term.kind == "text":
            at = whole.find(piece, after)
            if at >= 0:
                return at, at + len(piece), form
        elif (at := _word(term.kind, piece, whole, after)) >= 0:
            return at, at + len(piece), form
        if text.first == text.second and term.first == term.second:
            break
    return None


def _word(kind: str, piece: str, whole: str, after: int) -> int:
    """Where a word begins with a piece, or is it whole; -1 if none does."""
    at = whole.find(piece, after)
    while at >= 0:
        end = at + len(piece)
        if not (at and _in_word(whole[at - 1])) and (
            kind == "prefix" or end == len(whole) or not _in_word(whole[end])
        ):
            return at
        at = whole.find(piece, at + 1)
    return -1


def _in_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


# --- how well -------------------------------------------------------------------------------------


def score(query: Query, text: Folded, role: Role, age_ms: int) -> float:
    """Relevance from the text alone: how often, whole words, who said it, how long ago."""
    length = 0.25 + 0.75 * len(text.first) / 500
    values = [
        max(_weight(term, text, length) for term in clause)
        for clause in query.clauses
    ]
    mean = sum(values) / len(values) if values else 1.0
    recent = 0.35 + 0.65 / (1 + max(age_ms, 0) / (60 * _DAY_MS))
    return mean * _ROLE_WEIGHT[role] * recent


def _weight(term: Term, text: Folded, length: float) -> float:
    if not has(term, text):
        return 0.0
    if term.kind != "text" or not term.first:
        return 1 / (1 + 1.2 * length)
    count = text.first.count(term.first) or text.second.count(term.second)
    whole = _word("whole", term.first, text.first, 0) >= 0
    return count / (count + 1.2 * length) * (1.0 if whole else 0.45)


# --- where ----------------------------------------------------------------------------------------


class Snippet(Struct, frozen=True):
    """A stretch of a text with `marks`, which are places in `text`; `places` are the same in the
    stored text."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()
    places: tuple[tuple[int, int], ...] = ()


def snippet(query: Query, text: str, around: int = AROUND_CHARS) -> Snippet:
    """The stretch around the first match of the first term that is there, in the letters that are
    stored. White space in it is made plain."""
    terms = [term for clause in query.clauses for term in clause]
    found = sorted({place for term in terms for place in _places(term, text)})
    merged = _merged(found)[:SPANS_MAX]
    begin = max(merged[0][0] - around, 0) if merged else 0
    end = min(merged[0][1] + around if merged else 2 * around, len(text))
    shown = [(max(a, begin), min(b, end)) for a, b in merged if a < end and b > begin]
    return _plain(text, begin, end, shown, tuple(merged))


def _places(term: Term, text: str) -> list[tuple[int, int]]:
    """Exact places of a term in a text as it is stored."""
    words = term.kind != "text"  # where a window is cut, no word begins or ends
    if len(text) <= (_LONG if words else 2 * _WINDOW):
        return _in_window(term, text, 0)
    overlap = 4 * len(term.text) + 64
    step = max(_WINDOW, overlap)
    for start in range(0, len(text), step):
        window = text[start : start + step + overlap]
        if found := _in_window(term, window, start):
            return found
    return []


def _in_window(term: Term, text: str, offset: int) -> list[tuple[int, int]]:
    whole, found, after = folded(text), list[tuple[int, int]](), 0
    maps: dict[str, Mapped] = {}
    while len(found) < SPANS_MAX and (place := _find(term, whole, after)) is not None:
        start, end, form = place
        if form != "raw":
            if form not in maps:
                maps[form] = Mapped(text, second=form == "second")
            if maps[form].folded != getattr(whole, form):
                return [
                    (offset, offset + len(text))
                ]  # a letter that composes in an odd way
            start, end = maps[form].place(start, end)
            while end < len(text) and combining(text[end]):
                end += 1
        found.append((offset + start, offset + end))
        after = place[1]
        if form == "raw" and term.kind == "regex":
            break
    return found


def _merged(found: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in found:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _plain(
    text: str,
    begin: int,
    end: int,
    shown: list[tuple[int, int]],
    places: tuple[tuple[int, int], ...],
) -> Snippet:
    """The stretch on one line, with marks that are places in it."""
    before = "…" if begin else ""

    def line(upto: int) -> str:
        plain = _BLANKS.sub(" ", text[begin:upto])
        return before + plain if before else plain.lstrip(" ")

    marks = tuple((len(line(a)), len(line(b))) for a, b in shown)
    return Snippet(line(end) + ("…" if end < len(text) else ""), marks, places)
