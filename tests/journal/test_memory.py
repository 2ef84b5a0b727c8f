"""What a session has to remember it by, as part of its row for lists: bounded, and the same after a
redaction."""

from steno.journal.facts import (
    AnyFact,
    ContextSet,
    Distilled,
    ForkPoint,
    HelperStarted,
    InputAdmitted,
    Item,
    ItemAt,
    MemoryRemoved,
    MessageHidden,
    RewindWithdrawn,
    Rewound,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    TurnEnded,
    TurnStarted,
)
from steno.journal.history import History
from steno.journal.listing import ListingRow
from steno.journal.memory import DISTILLATES_MAX, TRIES_MAX, TURNS_DUE, SessionMemory
from steno.journal.parts import Text
from steno.journal.redaction import forget, redact
from steno.journal.transcript import Transcript
from tests.journal.folding import fold, in_place

STARTED = SessionStarted("chat")
ITEMS = (Item("fact", "tea", (2,)), Item("decision", "port 8080", (2,)))
ASKED = HelperStarted("distillation", "m")


def turn(at: int, outcome: str = "done") -> list[AnyFact]:
    """Five facts, the first at seq `at`."""
    return [
        InputAdmitted((Text("hi"),), "chat"),
        TurnStarted(Takes(at)),
        StepStarted("m"),
        StepSealed(at + 2, (Text("ok"),)),
        TurnEnded(at + 1, outcome),  # type: ignore[arg-type]
    ]


def turns(count: int, outcome: str = "done") -> list[AnyFact]:
    return [fact for number in range(count) for fact in turn(2 + 5 * number, outcome)]


def row(*facts: AnyFact) -> ListingRow:
    return fold(ListingRow(), in_place(facts))


def test_a_distillate_is_due_after_enough_answered_turns() -> None:
    assert not row(STARTED, *turns(TURNS_DUE - 1)).due()
    assert row(STARTED, *turns(TURNS_DUE)).due()
    assert not row(STARTED, *turns(TURNS_DUE, "failed")).due()


def test_whoever_had_the_session_it_is_due_but_for_helpers() -> None:
    due = [
        row(SessionStarted(platform), *turns(TURNS_DUE)).due()
        for platform in ("chat", "cli", "library")
    ]
    assert due == [True, True, True]
    assert not row(SessionStarted("delegate"), *turns(TURNS_DUE)).due()


def test_a_distillate_takes_what_is_due_and_the_next_is_due_after_as_much_again() -> None:
    before = [STARTED, *turns(TURNS_DUE)]
    made = Distilled(0, len(before), items=ITEMS)
    assert not row(*before, ASKED, made).due()
    assert row(*before, ASKED, made).memory == SessionMemory(
        upto=len(before), at={len(before) + 2: [0, 1]}
    )
    assert row(*before, ASKED, made, *turns(TURNS_DUE)).due()


def test_requests_for_one_distillate_are_bounded_until_something_more_is_said() -> None:
    before = [STARTED, *turns(TURNS_DUE), *TRIES_MAX * [ASKED]]
    assert not row(*before).due()
    assert row(*before[:-1]).due()
    assert row(*before, *turn(len(before) + 1)).due()


def test_an_item_that_was_removed_does_not_stand_and_a_distillate_without_any_is_dropped() -> None:
    made = Distilled(0, 1, items=ITEMS)
    assert row(STARTED, made, MemoryRemoved(2, 0)).memory.at == {2: [1]}
    assert row(STARTED, made, MemoryRemoved(2, 0), MemoryRemoved(2, 1)).memory.at == {}
    assert row(STARTED, made, MemoryRemoved(2, 7), MemoryRemoved(9, 0)).memory.at == {2: [0, 1]}


def test_only_the_latest_distillates_are_in_the_row() -> None:
    many = [Distilled(0, 1, items=ITEMS)] * (DISTILLATES_MAX + 3)
    assert list(row(STARTED, *many).memory.at) == list(range(5, 5 + DISTILLATES_MAX))


def test_a_fork_remembers_nothing_of_its_parent_and_begins_at_its_own_start() -> None:
    forked = SessionStarted("chat", forked_from=ForkPoint("p", 2))
    assert row(STARTED, Distilled(0, 1, items=ITEMS), forked).memory == SessionMemory(upto=3)


def test_a_redaction_does_not_change_the_row() -> None:
    made = Distilled(0, 1, "title", "summary", ITEMS)
    emptied = redact(made)
    assert emptied is not None
    assert row(STARTED, made) == row(STARTED, emptied)


def test_a_row_knows_which_sessions_it_was_told_of() -> None:
    told = ContextSet(
        "m",
        memories=("a", "b", "c"),
        recalled=(ItemAt("y", 3, 0), ItemAt("x", 3, 1), ItemAt("y", 9, 0)),
    )
    assert row(STARTED, told).memory.from_sessions == ("x", "y")
    left = forget(told, lambda at: at.session == "y")
    assert (left.memories, left.recalled) == (("b",), (ItemAt("x", 3, 1),))
    assert row(STARTED, left).memory.from_sessions == ("x",)


def test_a_distillate_is_no_message_and_no_model_is_told_of_it() -> None:
    facts = [STARTED, *turns(1), ASKED, Distilled(0, 6, "t", "s", ITEMS), MemoryRemoved(8, 0)]
    assert fold(Transcript(), in_place(facts)) == fold(Transcript(), in_place(facts[:6]))
    assert (
        fold(History(), in_place(facts)).entries() == fold(History(), in_place(facts[:6])).entries()
    )


def test_a_row_says_whether_anything_was_ever_hidden_or_taken_back() -> None:
    """Only then is it worth looking for what that was."""
    assert not row(STARTED, MessageHidden(1, False)).memory.edited
    assert row(STARTED, MessageHidden(1)).memory.edited
    assert row(STARTED, Rewound(1), RewindWithdrawn(2)).memory.edited
