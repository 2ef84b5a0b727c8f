"""What a summary would stand for, and what the summariser is given."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine import tokens
from steno.engine.action import Ask, Compact, FallBack, Finish, Limits, Room, next_action
from steno.engine.compaction import (
    CALLS_MAX,
    LeftOut,
    Plan,
    Portion,
    ask,
    plan,
    portions,
    tell,
    weigh,
)
from steno.engine.recover import recover
from steno.journal.facts import (
    Compacted,
    ContextSet,
    Fact,
    HelperEnded,
    HelperStarted,
    InputAdmitted,
    InterruptAsked,
    MessageHidden,
    StepLost,
    StepSealed,
    StepStarted,
    Takes,
    ToolSettled,
    TurnEnded,
    TurnStarted,
    Usage,
)
from steno.journal.history import (
    Answered,
    Entry,
    History,
    Said,
    Settled,
    Standing,
    Summarised,
    Weighed,
)
from steno.journal.parts import Returned, Text, ToolCall
from steno.journal.state import State
from tests.journal.folding import fold, in_place

LIMITS = Limits(context_max=1_000)


def said(text: str) -> InputAdmitted:
    return InputAdmitted((Text(text),), "test")


def answered(step: int, text: str, *calls: str) -> StepSealed:
    return StepSealed(step, (Text(text), *(ToolCall(call, "tool", "{}") for call in calls)))


def state(*facts: Fact) -> State:
    return fold(State(), in_place(facts))


def placed(*facts: Fact) -> list[tuple[int, Standing]]:
    return fold(History(), in_place(facts)).placed()


def text_of(portion: Portion, whole: dict[int, Entry] | None = None) -> str:
    """A portion as the summariser reads it; `whole` are entries whose text was let go, by their
    facts."""
    lines: list[Entry | LeftOut] = [
        (whole or {})[entry.fact] if isinstance(entry, Weighed) else entry
        for entry in portion.entries
    ]
    return "\n".join(tell(line, portion.entry_chars) for line in lines)


LONG = "x" * 400
TURN_WITH_CALLS = (
    said("do it " + LONG),
    TurnStarted(Takes(1)),
    StepStarted("m"),
    answered(3, "first " + LONG, "a", "b"),
    ToolSettled(3, "a", Returned((Text("A " + LONG),))),
    ToolSettled(3, "b", Returned((Text("B " + LONG),))),
    StepStarted("m"),
    answered(7, "second " + LONG, "c"),
    ToolSettled(7, "c", Returned((Text("C " + LONG),))),
)


@pytest.mark.promise(30)
@pytest.mark.parametrize("keep", range(0, 800, 25))
def test_a_call_is_never_separated_from_its_outcome(keep: int) -> None:
    made = plan(placed(*TURN_WITH_CALLS), keep)
    if made is None:
        return
    after = placed(*TURN_WITH_CALLS, Compacted(made.upto, "so far"))
    for entries in (made.entries, [entry for _, entry in after]):
        calls = {
            part.id
            for entry in entries
            if isinstance(entry, Answered)
            for part in entry.parts
            if isinstance(part, ToolCall)
        }
        assert calls == {entry.call for entry in entries if isinstance(entry, Settled)}


@pytest.mark.promise(29)
@pytest.mark.parametrize("keep", range(0, 800, 25))
def test_what_an_open_turn_answers_stays_word_for_word(keep: int) -> None:
    made = plan(placed(*TURN_WITH_CALLS), keep)
    if made is not None:
        entries = [entry for _, entry in placed(*TURN_WITH_CALLS, Compacted(made.upto, "so far"))]
        assert entries[0] == Summarised(10, made.upto, "so far")
        assert entries[1] == Said(1, (Text("do it " + LONG),))


def test_what_was_pinned_stays_when_later_turns_come() -> None:
    """The beginning of a request does not change from turn to turn."""
    story = [
        *TURN_WITH_CALLS,
        Compacted(7, "so far"),
        StepStarted("m"),
        answered(11, "done"),
        TurnEnded(2, "done"),
    ]
    later = [said("and now?"), TurnStarted(Takes(14))]
    before = [entry for _, entry in placed(*story)]
    assert [entry for _, entry in placed(*story, *later)][: len(before)] == before


@pytest.mark.promise(29)
def test_an_earlier_summary_is_given_as_what_it_is_and_never_as_dialogue() -> None:
    facts = [
        *(
            said("one " + LONG),
            TurnStarted(Takes(1)),
            StepStarted("m"),
            answered(3, "1 " + LONG),
            TurnEnded(2, "done"),
        ),
        Compacted(5, "They counted to one."),
        *(
            said("two " + LONG),
            TurnStarted(Takes(7)),
            StepStarted("m"),
            answered(9, "2 " + LONG),
            TurnEnded(8, "done"),
        ),
        *(said("three"), TurnStarted(Takes(12))),
    ]
    made = plan(placed(*facts), 10)
    assert made is not None
    assert made.before == "They counted to one."
    assert [type(entry) for entry in made.entries] == [Said, Answered]
    [text] = map(text_of, portions(made, 10_000))
    assert "They counted" not in text
    request = ask("m", text, made.before)
    assert request.tools == ()
    [told] = request.entries
    assert isinstance(told, Said)
    assert "Summary of what came before:\nThey counted to one." in told.parts[0].text  # type: ignore[union-attr]


def test_nothing_is_planned_where_nothing_would_go() -> None:
    assert plan([], 100) is None
    assert plan(placed(said("hello"), TurnStarted(Takes(1))), 0) is None
    assert plan(placed(*TURN_WITH_CALLS), 100_000) is None


@given(st.lists(st.integers(1, 30_000), min_size=1, max_size=60), st.integers(200, 20_000))
def test_the_summariser_is_asked_a_bounded_number_of_times(
    lengths: list[int], chars_max: int
) -> None:
    entries = tuple(
        Said(i, (Text(f"m{i} " + "y" * length),)) for i, length in enumerate(lengths, start=1)
    )
    made = [*map(text_of, portions(Plan(len(entries), entries), chars_max))]
    assert 1 <= len(made) <= CALLS_MAX
    assert sum(map(len, made)) <= chars_max * CALLS_MAX + 200
    whole = "\n".join(made)
    assert "m1 " in whole or "left out" in whole


def test_ten_thousand_messages_are_shortened_and_say_so() -> None:
    entries = tuple(Said(i, (Text(f"message {i} " + "z" * 3_000),)) for i in range(1, 10_001))
    made = [*map(text_of, portions(Plan(10_000, entries), 100_000))]
    assert len(made) <= CALLS_MAX
    assert "message 1 " in made[0]
    assert "message 10000 " in made[-1]
    assert "left out" in "".join(made)


@given(st.lists(st.integers(1, 9_000), min_size=1, max_size=60), st.integers(200, 20_000))
def test_a_summariser_is_told_the_same_whether_or_not_memory_has_the_text(
    lengths: list[int], chars_max: int
) -> None:
    entries = tuple(
        Said(i, (Text(f"m{i} " + "y" * length),)) for i, length in enumerate(lengths, start=1)
    )
    weighed = tuple(Weighed(entry.seq, Said, entry.seq, (), *weigh(entry)) for entry in entries)
    whole: dict[int, Entry] = {entry.seq: entry for entry in entries}
    expected = [*map(text_of, portions(Plan(len(entries), entries), chars_max))]
    assert [
        text_of(one, whole) for one in portions(Plan(len(entries), weighed), chars_max)
    ] == expected
    assert tokens.of_entries(weighed) == tokens.of_entries(entries)


# --- when -----------------------------------------------------------------------------------------

OPEN = (ContextSet("m"), said("hello"), TurnStarted(Takes(2)))


def room(size: int, compactable: bool = True) -> Room:
    return Room(size, compactable)


def test_a_request_that_has_become_long_is_preceded_by_a_summary() -> None:
    assert isinstance(next_action(state(*OPEN), LIMITS, lambda: room(800)), Ask)
    assert next_action(state(*OPEN), LIMITS, lambda: room(801)) == Compact()
    assert isinstance(next_action(state(*OPEN), LIMITS, lambda: room(801, compactable=False)), Ask)
    assert isinstance(next_action(state(*OPEN), Limits(), lambda: room(10**9)), Ask)


@pytest.mark.promise(28)
def test_an_interrupt_that_was_asked_for_before_prevents_it() -> None:
    too_long = (StepStarted("m"), StepLost(4, "too_long", "yes"))
    for before in ((), too_long):
        action = next_action(state(*OPEN, *before, InterruptAsked(3)), LIMITS, lambda: room(900))
        assert action == Finish((TurnEnded(3, "interrupted", "user"),))


@pytest.mark.promise(31)
def test_a_summary_that_does_not_help_ends_the_turn_and_says_so() -> None:
    helped = (*OPEN, HelperStarted("summary", "m"), HelperEnded(4, "done"), Compacted(1, "s"))
    assert isinstance(next_action(state(*helped), LIMITS, lambda: room(950)), Ask)
    action = next_action(state(*helped), LIMITS, lambda: room(1_001))
    assert isinstance(action, Finish)
    [ended] = action.facts
    assert isinstance(ended, TurnEnded)
    assert (ended.outcome, ended.cause) == ("failed", "too_long")
    assert "did not make it short enough" in ended.detail


@pytest.mark.promise(31)
@pytest.mark.parametrize("outcome", ["failed", "unknown"])
def test_a_summary_that_failed_is_not_tried_again_before_the_next_answer(outcome: str) -> None:
    tried = (*OPEN, HelperStarted("summary", "m"), HelperEnded(4, outcome))  # type: ignore[arg-type]
    assert isinstance(next_action(state(*tried), LIMITS, lambda: room(950)), Ask)
    action = next_action(state(*tried), LIMITS, lambda: room(1_001))
    assert isinstance(action, Finish)
    assert "could not be made" in str(action.facts)
    onward = (
        *tried,
        StepStarted("m"),
        answered(6, "calling", "c"),
        ToolSettled(6, "c", Returned()),
    )
    assert next_action(state(*onward), LIMITS, lambda: room(1_001)) == Compact()


@pytest.mark.promise(31)
def test_where_no_summary_can_be_made_the_next_model_makes_one() -> None:
    limits = Limits(context_max=1_000, fallback=("b",))
    tried = (*OPEN, HelperStarted("summary", "m"), HelperEnded(4, "failed"))
    fallen = (*tried, ContextSet("b", instead_of="m"))
    assert isinstance(next_action(state(*tried), limits, lambda: room(950)), Ask)
    assert next_action(state(*tried), limits, lambda: room(1_001)) == FallBack("b")
    assert next_action(state(*fallen), limits, lambda: room(1_001)) == Compact()
    again = (*fallen, HelperStarted("summary", "b"), HelperEnded(7, "failed"))
    assert isinstance(next_action(state(*again), limits, lambda: room(1_001)), Finish)
    refused = (
        *OPEN,
        StepStarted("m"),
        StepLost(4, "too_long", "yes"),
        HelperStarted("summary", "m"),
    )
    assert next_action(
        state(*refused, HelperEnded(6, "failed")), limits, lambda: room(10)
    ) == FallBack("b")
    helped = (
        *refused,
        HelperEnded(6, "done"),
        Compacted(1, "s"),
        StepStarted("m"),
        StepLost(9, "too_long", "yes"),
    )
    assert isinstance(next_action(state(*helped), limits, lambda: room(10)), Finish)


def test_a_provider_that_finds_the_request_too_long_is_believed() -> None:
    lost = (*OPEN, StepStarted("m"), StepLost(4, "too_long", "yes"))
    assert next_action(state(*lost), LIMITS, lambda: room(10)) == Compact()
    assert isinstance(
        next_action(state(*lost), LIMITS, lambda: room(10, compactable=False)), Finish
    )
    shorter = (*lost, HelperStarted("summary", "m"), HelperEnded(6, "done"), Compacted(1, "s"))
    assert next_action(state(*shorter), LIMITS, lambda: room(10)) == Ask()


@pytest.mark.promise(8, 28)
def test_a_kill_during_a_summary_keeps_the_old_context_and_the_call_is_uncertain() -> None:
    facts = (*OPEN, HelperStarted("summary", "m"))
    assert recover(state(*facts), ()) == (
        HelperEnded(4, "unknown", sent="unknown"),
        TurnEnded(3, "interrupted", "killed"),
    )
    between_turns = (said("hello"), HelperStarted("summary", "m"))
    assert recover(state(*between_turns), ()) == (HelperEnded(2, "unknown", sent="unknown"),)


# --- how long -------------------------------------------------------------------------------------


def test_what_the_provider_counted_is_not_estimated() -> None:
    counted = StepSealed(4, (Text("hi"),), usage=Usage(input=500, output=20))
    facts = [*OPEN, StepStarted("m"), counted]
    assert tokens.of_request(fold(History(), in_place(facts))) == 520
    more = [*facts, TurnEnded(3, "done"), said("x" * 40), TurnStarted(Takes(7))]
    assert tokens.of_request(fold(History(), in_place(more))) == 520 + tokens.PER_ENTRY + 10
    hidden = [*more, MessageHidden(2)]
    assert tokens.of_request(fold(History(), in_place(hidden))) < 100


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("abcd", 1), ("abcde", 2), ("日本語", 3), ("añoé", 1)]
)
def test_an_estimate_knows_scripts(text: str, count: int) -> None:
    assert tokens.estimate(text) == count
