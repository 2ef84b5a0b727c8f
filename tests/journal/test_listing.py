"""The row for lists, by equality."""

import pytest

from steno.journal.facts import (
    ApprovalAsked,
    ContextSet,
    Fact,
    ForkPoint,
    InputAdmitted,
    InputWithdrawn,
    MessageHidden,
    SessionEnded,
    SessionRenamed,
    SessionStarted,
    StepLost,
    StepSealed,
    StepStarted,
    Takes,
    ToolSettled,
    TurnEnded,
    TurnStarted,
    Usage,
)
from steno.journal.listing import TITLE_LEN_MAX, ListingRow, title_of
from steno.journal.memory import SessionMemory
from steno.journal.parts import GONE, Image, Redacted, Refused, Text
from steno.journal.usage import UsageTotal
from tests.journal.folding import fold, in_place, said


def row(*sequence: Fact) -> ListingRow:
    return fold(ListingRow(), in_place(sequence))


def test_a_row_says_where_a_session_came_from_and_what_happened_to_it() -> None:
    assert row(
        SessionStarted("cli", "small", name="ticket 7"),
        said("hello\nworld"),
        ContextSet("large"),
        TurnStarted(Takes(2)),
        StepStarted("large"),
        StepLost(5, "dropped", "no"),
        StepSealed(5, ()),
        ToolSettled(5, "a", Refused("no")),
        TurnEnded(4, "failed"),
        SessionEnded("quit"),
    ) == ListingRow(
        platform="cli",
        model="large",
        name="ticket 7",
        title="hello",
        titled=2,
        created_ms=1_000,
        updated_ms=10_000,
        messages=4,
        turns=1,
        last_turn="failed",
        ended="quit",
        usage=UsageTotal(calls=1, unreported=1),
    )


def test_a_row_says_which_inputs_wait() -> None:
    waiting = [said("one"), said("two"), said("three", "steer"), said("four")]
    assert row(*waiting).pending == [1, 2, 3, 4]
    assert row(*waiting, InputWithdrawn(2)).pending == [1, 3, 4]
    taken = [*waiting, TurnStarted(Takes(1)), StepStarted("m", takes=(3,))]
    assert row(*taken).pending == [2, 4]
    assert row(*taken, said("five"), said("six")).waiting == [(2, 2), (4, 4), (7, 8)]
    assert row(*taken, InputWithdrawn(1)).pending == [2, 4]
    assert row(*taken, SessionStarted("cli", forked_from=ForkPoint("parent", 6))).pending == []


def test_a_session_that_is_spoken_to_again_has_not_ended() -> None:
    assert row(SessionEnded("quit"), said("hello")).ended is None


def test_a_fork_is_dated_by_its_own_start_and_counts_what_it_inherits() -> None:
    point = ForkPoint("parent", 2)
    fork = row(
        SessionStarted("cli", "m", name="x"),
        said("hello"),
        SessionStarted("web", forked_from=point),
    )
    assert fork == ListingRow(
        platform="web",
        model="m",
        forked_from=point,
        title="hello",
        titled=2,
        created_ms=3_000,
        updated_ms=3_000,
        messages=1,
        usage=UsageTotal(),
        memory=SessionMemory(upto=3),
    )


def test_a_given_title_wins_over_what_was_said() -> None:
    assert row(SessionRenamed("mine"), said("hello")).title == "mine"
    assert row(said("hello"), SessionRenamed("mine")).title == "mine"
    assert row(SessionRenamed(""), said("hello")).title == ""


def test_a_fact_that_changes_no_row_says_so() -> None:
    listed = ListingRow()
    assert [
        listed.apply(record) for record in in_place([said("hello"), MessageHidden(1, False)])
    ] == [True, False]
    assert listed.updated_ms == 1_000


@pytest.mark.parametrize(
    ("parts", "title"),
    [
        ((), ""),
        ((Text(" \n\n  first \n second"),), "first"),
        ((Text("in "), Text("pieces")), "in pieces"),
        ((Image("0" * 64, "image/png", 9),), ""),
        ((Redacted(5),), GONE),
        ((Redacted(5), Text("kept")), "kept"),
        ((Text("x" * TITLE_LEN_MAX),), "x" * TITLE_LEN_MAX),
        ((Text("x" * (TITLE_LEN_MAX + 1)),), "x" * (TITLE_LEN_MAX - 1) + "…"),
    ],
)
def test_a_title_is_the_first_line_that_was_said(parts: tuple[Text, ...], title: str) -> None:
    assert title_of(parts) == title


def test_an_input_without_text_leaves_the_title_to_the_next() -> None:
    assert (
        row(InputAdmitted((Image("0" * 64, "image/png", 9),), "test"), said("what is it?")).titled
        == 2
    )


@pytest.mark.promise(8)
def test_usage_is_that_of_the_session_itself_and_unknown_is_not_zero() -> None:
    begun = (SessionStarted("cli"), said("hi"), TurnStarted(Takes(2)), StepStarted("m"))
    counted = StepSealed(4, (), usage=Usage(input=20, output=3))
    assert row(*begun).context is None
    assert (row(*begun, counted).context, row(*begun, counted).usage) == (
        23,
        UsageTotal(calls=1, input=20, output=3),
    )
    assert row(*begun, counted, StepSealed(4, ())).context is None
    fork = row(*begun, counted, SessionStarted("cli", forked_from=ForkPoint("parent", 5)))
    assert (fork.context, fork.usage) == (None, UsageTotal())
    assert row(*begun[1:], counted).usage is None  # a row that began before usage was counted


def test_a_row_says_whether_a_question_was_asked_in_the_open_turn() -> None:
    asked = (SessionStarted("cli"), said("x"), TurnStarted(Takes(2)), ApprovalAsked(4, "call"))
    assert row(*asked).asked == 4
    assert row(*asked, TurnEnded(3, "interrupted", "user")).asked == 0
