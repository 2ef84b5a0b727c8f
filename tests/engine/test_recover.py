"""Recovery, by equality: every shape that a killed writer can leave open, and the facts that close
it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.action import Ask, Limits, RunTools, next_action
from steno.engine.recover import NEVER_RAN, close, recover, waits_for_approval
from steno.journal import facts as f
from steno.journal.drafts import Draft, Stream, keeps, sealed_by
from steno.journal.parts import Reasoning, Refused, Returned, Text, ToolCall, Unknown
from steno.journal.state import OpenCall, State
from steno.journal.transcript import Transcript
from tests.journal.author import Journal, journals
from tests.journal.folding import fold, in_place, said, state, transcript
from tests.journal.strategies import any_records, near_seqs

ASKED: list[f.AnyFact] = [said("hello"), f.TurnStarted(f.Takes(1)), f.StepStarted("model")]
A, B = ToolCall("a", "shell", "{}"), ToolCall("b", "shell", "{}")
CALLED: list[f.AnyFact] = [*ASKED, f.StepSealed(3, (A, B))]
KILLED = f.TurnEnded(2, "interrupted", "killed")
TEXT, REASONING = Stream(3, "text"), Stream(3, "reasoning")


@pytest.mark.parametrize(
    "sequence",
    [
        [],
        [f.SessionStarted("cli")],
        [said("hello")],
        [*ASKED, f.StepSealed(3, ()), f.TurnEnded(2, "done")],
        [*CALLED, f.SessionStarted("cli", forked_from=f.ForkPoint("parent", 4))],
    ],
    ids=["empty", "started", "pending", "ended", "forked"],
)
def test_where_nothing_is_open_there_is_nothing_to_close(sequence: list[f.AnyFact]) -> None:
    assert recover(state(*sequence), []) == ()


@pytest.mark.promise(34)
def test_a_turn_that_had_not_asked_yet_is_ended() -> None:
    assert recover(state(*ASKED[:2]), []) == (KILLED,)


@pytest.mark.promise(8)
def test_a_request_of_which_nothing_came_back_is_lost_and_nobody_knows_whether_it_was_sent() -> (
    None
):
    lost = f.StepLost(3, "killed", sent="unknown")
    assert recover(state(*ASKED), []) == (lost, KILLED)
    assert recover(state(*ASKED), [Draft(TEXT, "")]) == (lost, KILLED)


@pytest.mark.promise(34)
def test_a_turn_ends_with_the_cause_that_its_runner_could_still_tell() -> None:
    lost = f.StepLost(3, "store_full", sent="unknown")
    full = f.TurnEnded(2, "interrupted", "store_full")
    assert recover(state(*ASKED), [], "store_full") == (lost, full)
    assert close(state(*ASKED), [], "store_full") == (lost, full)
    stopped = state(*ASKED, f.InterruptAsked(2))
    assert recover(stopped, [], "store_full")[-1] == f.TurnEnded(2, "interrupted", "user")


def test_text_that_was_shown_is_sealed_as_interrupted() -> None:
    sealed = f.StepSealed(3, (Text("hi th"),), "interrupted")
    assert recover(state(*ASKED), [Draft(TEXT, "hi th")]) == (sealed, KILLED)


def test_reasoning_that_was_shown_is_sealed_before_the_text() -> None:
    thought, both = Draft(REASONING, "hm"), [Draft(TEXT, "hi"), Draft(REASONING, "hm")]
    assert recover(state(*ASKED), [thought])[0] == f.StepSealed(
        3, (Reasoning("hm"),), "interrupted"
    )
    assert recover(state(*ASKED), both)[0] == f.StepSealed(
        3, (Reasoning("hm"), Text("hi")), "interrupted"
    )


@pytest.mark.promise(19)
def test_a_tool_that_had_started_is_unknown_and_one_that_had_not_never_ran() -> None:
    started = [*CALLED, f.ToolStarted(3, "b")]
    assert recover(state(*started), []) == (
        f.ToolSettled(3, "a", Refused(NEVER_RAN)),
        f.ToolSettled(3, "b", Unknown(), 5),
        KILLED,
    )


@pytest.mark.promise(19)
def test_what_a_tool_had_printed_is_kept() -> None:
    started = [
        *CALLED,
        f.ToolStarted(3, "a"),
        f.ToolStarted(3, "b"),
        f.ToolSettled(3, "a", Returned(), 5),
    ]
    printed = [Draft(Stream(6, "output"), "half")]
    assert recover(state(*started), printed) == (
        f.ToolSettled(3, "b", Unknown((Text("half"),)), 6),
        KILLED,
    )


def test_a_tool_that_was_settled_is_not_settled_again() -> None:
    settled: list[f.AnyFact] = [
        f.ToolSettled(3, "a", Returned()),
        f.ToolSettled(3, "b", Refused("no")),
    ]
    assert recover(state(*CALLED, *settled), []) == (KILLED,)


def test_the_cause_is_a_persons_stop_whoever_asked_and_otherwise_that_it_was_killed() -> None:
    stopped = recover(state(*ASKED, f.InterruptAsked(2, by="ann")), [])
    assert stopped[-1] == f.TurnEnded(2, "interrupted", "user")
    for_another_turn = recover(state(*ASKED, f.InterruptAsked(1, by="ann")), [])
    assert for_another_turn[-1] == KILLED


def test_a_lost_attempt_is_not_lost_twice() -> None:
    assert recover(state(*ASKED, f.StepLost(3, "dropped", "yes")), []) == (KILLED,)


@pytest.mark.promise(34)
def test_every_view_shows_the_turn_as_interrupted_with_its_cause() -> None:
    closing = recover(state(*ASKED), [Draft(TEXT, "hi")])
    view = transcript(*ASKED, *closing)
    assert [(turn.outcome, turn.cause) for turn in view.turns] == [("interrupted", "killed")]
    assert [(message.text, message.state) for message in view.messages] == [
        ("hello", "complete"),
        ("hi", "interrupted"),
    ]


# --- for every journal ----------------------------------------------------------------------------


def closing_records(journal: Journal) -> list[f.Record]:
    before = fold(State(), journal.records)
    return in_place(recover(before, journal.drafts), first=before.head + 1)


@pytest.mark.promise(34)
@given(journals(tidy=False))
def test_recovery_is_done_once(journal: Journal) -> None:
    after = fold(State(), journal.records + closing_records(journal))
    assert after.turn is None or waits_for_approval(after.turn)
    left = [draft for draft in journal.drafts if is_open(after, draft)]
    assert recover(after, left) == ()


def is_open(state: State, draft: Draft) -> bool:
    """Whether nothing has sealed it: a seal takes the place of its drafts."""
    calls = [] if state.turn is None else state.turn.calls.values()
    return draft.stream.started in [call.started for call in calls]


@given(journals(tidy=False))
def test_every_draft_is_sealed_once_by_a_fact_that_keeps_it(journal: Journal) -> None:
    closing = [record.fact for record in closing_records(journal)]
    for draft in journal.drafts:
        sealing = [fact for fact in closing if sealed_by(fact) == draft.stream.started]
        assert [keeps(fact, draft) for fact in sealing] == [True]


@given(journals(tidy=False))
def test_recovery_leaves_no_call_and_no_turn_without_an_outcome(journal: Journal) -> None:
    view = fold(Transcript(), journal.records + closing_records(journal))
    forks = [record.seq for record in journal.records if isinstance(record.fact, f.SessionStarted)]
    turn = fold(State(), journal.records + closing_records(journal)).turn
    if turn is not None:
        assert all(call.started is None for call in turn.calls.values())
        return  # it waits for a person
    assert [turn.seq for turn in view.turns if turn.outcome is None and turn.seq > max(forks)] == []
    calls = [
        call.id
        for m in view.messages
        if m.seq > max(forks) and m.state == "complete"
        for call in m.tool_calls
    ]
    settled = [message.tool_call_id for message in view.messages if message.role == "tool"]
    never_ran = [
        part.id
        for record in journal.records
        if isinstance(record.fact, f.StepSealed) and record.fact.ended == "length"
        for part in record.fact.parts
        if isinstance(part, ToolCall)
    ]
    assert sorted(set(calls) - set(settled)) == sorted(set(calls) & set(never_ran))


streams = st.builds(Stream, near_seqs, st.sampled_from(["text", "reasoning", "output"]))


@given(any_records(), st.lists(st.builds(Draft, streams, st.text(max_size=3)), max_size=5))
def test_recovery_closes_the_turn_after_any_sequence_of_facts(
    records: list[f.Record], drafts: list[Draft]
) -> None:
    after = fold(State(), records + closing_records(Journal(records, drafts)))
    assert after.turn is None or waits_for_approval(after.turn)
    if after.turn is not None:
        closing = in_place(close(after, []), first=after.head + 1)
        assert fold(after, closing).turn is None


# --- approvals ------------------------------------------------------------------------------------

WAITING: list[f.AnyFact] = [*CALLED, f.ApprovalAsked(3, "a")]


@pytest.mark.promise(37)
def test_a_call_that_waits_for_approval_is_neither_granted_nor_refused() -> None:
    assert recover(state(*WAITING), []) == ()
    assert next_action(state(*WAITING), Limits()) == RunTools(tuple(open_calls(*WAITING)))


@pytest.mark.promise(19)
@pytest.mark.promise(37)
def test_beside_a_call_that_waits_what_had_started_is_unknown_and_the_rest_stays_open() -> None:
    started = [*WAITING, f.ToolStarted(3, "b")]
    closing = recover(state(*started), [Draft(Stream(6, "output"), "half")])
    assert closing == (f.ToolSettled(3, "b", Unknown((Text("half"),)), 6),)
    assert recover(state(*started, *closing), []) == ()
    assert [call.call for call in open_calls(*started, *closing)] == [A]


@pytest.mark.promise(37)
@pytest.mark.parametrize("shown", ["", "half"])
def test_an_answer_beside_a_call_that_waits_is_closed_and_the_question_stays(shown: str) -> None:
    """Codex asks while its model goes on speaking."""
    speaking = [*WAITING, f.StepStarted("model")]
    closing = recover(state(*speaking), [Draft(Stream(6, "text"), shown)] if shown else [])
    assert closing == (
        (f.StepSealed(6, (Text("half"),), "interrupted"),)
        if shown
        else (f.StepLost(6, "killed", sent="unknown"),)
    )
    assert recover(state(*speaking, *closing), []) == ()
    assert [call.call for call in open_calls(*speaking, *closing)] == [A, B]
    denied = [f.ToolSettled(3, call.id, Refused("no")) for call in (A, B)]
    assert isinstance(next_action(state(*speaking, *closing, *denied), Limits()), Ask), (
        "the turn goes on"
    )


@pytest.mark.promise(37)
def test_a_decision_that_came_while_nobody_ran_the_session_still_counts() -> None:
    decided = [*WAITING, f.ApprovalDecided(5, "allow", "user")]
    assert recover(state(*decided), []) == ()
    assert [call.decision for call in open_calls(*decided)] == ["allow", None]


@pytest.mark.promise(37)
def test_the_answer_to_the_question_of_a_dead_process_counts_after_it_was_asked_again() -> None:
    again = [*WAITING, f.ApprovalAsked(3, "a")]
    for asked in (5, 6):
        decided = [*again, f.ApprovalDecided(asked, "deny", "user")]
        assert [call.decision for call in open_calls(*decided)] == ["deny", None]


def test_a_call_that_was_approved_and_started_waits_no_more() -> None:
    started = [*WAITING, f.ApprovalDecided(5, "allow", "user"), f.ToolStarted(3, "a")]
    assert recover(state(*started), []) == (
        f.ToolSettled(3, "a", Unknown(), 7),
        f.ToolSettled(3, "b", Refused(NEVER_RAN)),
        KILLED,
    )


@pytest.mark.promise(37)
def test_a_persons_stop_ends_a_turn_that_waits() -> None:
    assert recover(state(*WAITING, f.InterruptAsked(2)), [])[-1] == f.TurnEnded(
        2, "interrupted", "user"
    )


def open_calls(*facts: f.AnyFact) -> list[OpenCall]:
    turn = state(*facts).turn
    assert turn is not None
    return list(turn.calls.values())
