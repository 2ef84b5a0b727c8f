"""What an engine decides from: what is open, pending and owed."""

import pytest

from steno.journal import facts as f
from steno.journal.debts import OwedHook
from steno.journal.parts import Refused, Returned, Text, ToolCall
from steno.journal.redaction import redact
from steno.journal.state import OpenCall
from tests.journal.folding import said, state

A, B = ToolCall("a", "shell", "{}"), ToolCall("b", "shell", "{}")
BEGUN: list[f.AnyFact] = [said("hello"), f.TurnStarted(f.Takes(1)), f.StepStarted("model")]
CALLED = [*BEGUN, f.StepSealed(3, (A, B))]


def open_calls(*sequence: f.Fact) -> dict[str, OpenCall]:
    turn = state(*sequence).turn
    assert turn is not None
    return turn.calls


def test_an_input_is_pending_until_a_turn_or_a_step_takes_it() -> None:
    assert list(state(said("a"), said("b"), said("c", "steer")).pending) == [1, 2, 3]
    taken = [said("a"), said("b"), said("c", "steer"), f.TurnStarted(f.Takes(1))]
    assert list(state(*taken).pending) == [2, 3]
    assert list(state(*taken, f.StepStarted("model", takes=(3,))).pending) == [2]


def test_an_input_that_was_taken_back_is_not_pending() -> None:
    assert list(state(said("a"), said("b"), f.InputWithdrawn(1)).pending) == [2]


def test_a_step_is_open_until_it_is_sealed_or_lost() -> None:
    def open_step(*sequence: f.Fact) -> int | None:
        turn = state(*sequence).turn
        assert turn is not None
        return turn.step

    assert open_step(*BEGUN) == 3
    assert open_step(*BEGUN, f.StepSealed(3, ())) is None
    assert open_step(*BEGUN, f.StepLost(3, "dropped", "no")) is None


def test_a_call_is_open_until_it_is_settled() -> None:
    assert open_calls(*CALLED) == {"a": OpenCall(A, 3), "b": OpenCall(B, 3)}
    started = [*CALLED, f.ToolStarted(3, "a", group=77, repeat="safe")]
    assert open_calls(*started)["a"] == OpenCall(A, 3, started=5, group=77, repeat="safe")
    assert list(open_calls(*started, f.ToolSettled(3, "a", Returned(), 5))) == ["b"]
    assert list(open_calls(*CALLED, f.ToolSettled(3, "b", Refused("no")))) == ["a"]


@pytest.mark.parametrize("ended", ["length", "incomplete", "interrupted"])
def test_calls_of_an_answer_that_broke_off_are_not_open(ended: f.StepEnding) -> None:
    assert open_calls(*BEGUN, f.StepSealed(3, (A,), ended)) == {}


def test_an_approval_is_what_was_decided_first_and_nothing_until_then() -> None:
    asked = [*CALLED, f.ApprovalAsked(3, "a"), f.ApprovalAsked(3, "b")]
    decisions = {id: (call.asked, call.decision) for id, call in open_calls(*asked).items()}
    assert decisions == {"a": ((5,), None), "b": ((6,), None)}
    decided = [*asked, f.ApprovalDecided(6, "deny", "user"), f.ApprovalDecided(6, "allow", "user")]
    decisions = {id: (call.asked, call.decision) for id, call in open_calls(*decided).items()}
    assert decisions == {"a": ((5,), None), "b": ((6,), "deny")}


def test_an_approval_covers_leaving_only_if_every_question_about_the_call_did() -> None:
    def covers(*leaves: bool) -> bool:
        asked = [f.ApprovalAsked(3, "a", leaves=one) for one in leaves]
        return open_calls(*CALLED, *asked)["a"].leaves

    assert [covers(), covers(False), covers(True)] == [False, False, True]
    assert [covers(True, True), covers(True, False), covers(False, True)] == [True, False, False]


@pytest.mark.promise(4)
def test_a_redacted_question_covers_what_it_covered() -> None:
    for leaves in (False, True):
        asked = redact(f.ApprovalAsked(3, "a", "it stays in the sandbox", leaves))
        assert isinstance(asked, f.ApprovalAsked)
        assert open_calls(*CALLED, asked)["a"].leaves == leaves


@pytest.mark.promise(23)
def test_a_stop_meant_for_one_turn_does_not_stop_the_next() -> None:
    late = [
        *BEGUN,
        f.StepSealed(3, ()),
        f.TurnEnded(2, "done"),
        said("more"),
        f.TurnStarted(f.Takes(6)),
    ]
    stopped = state(*late, f.InterruptAsked(2)).turn
    assert stopped is not None
    assert stopped.interrupted is None
    stopped = state(*late, f.InterruptAsked(7, by="ann")).turn
    assert stopped is not None
    assert stopped.interrupted == f.InterruptAsked(7, by="ann")


def test_only_the_ending_that_names_the_open_turn_ends_it() -> None:
    assert state(*BEGUN, f.TurnEnded(1, "done")).turn is not None
    ended = state(*BEGUN, f.TurnEnded(2, "failed", "budget"))
    assert ended.turn is None
    assert ended.last_turn is not None
    assert (ended.last_turn.turn.seq, ended.last_turn.ending) == (
        2,
        f.TurnEnded(2, "failed", "budget"),
    )


def test_a_delivery_is_owed_until_it_arrived_expired_or_failed_for_good() -> None:
    owed = f.DeliveryOwed(3, "chat", "ann", "k")
    tried: list[f.AnyFact] = [
        owed,
        f.DeliveryAttempted(1),
        f.DeliverySettled(1, f.DeliveryRefused("busy")),
    ]
    assert state(*tried).deliveries == {1: owed}
    for outcome in (f.Delivered("r"), f.DeliveryExpired(), f.DeliveryRefused("gone", final=True)):
        assert state(*tried, f.DeliverySettled(1, outcome)).deliveries == {}


def test_a_hook_is_owed_until_it_is_done() -> None:
    owed = f.HookOwed("session_end", "k")
    assert state(owed).hooks == {1: OwedHook()}
    assert state(owed, f.HookDone(1)).hooks == {}


def test_each_plugin_that_was_told_is_struck_and_the_last_one_closes_the_hook() -> None:
    owed = f.HookOwed("session_end", "k", plugins=("a", "b"), by="one")
    assert state(owed, f.HookDone(1, "a")).hooks == {1: OwedHook("one", ("b",))}
    assert state(owed, f.HookDone(1, "a"), f.HookAttempted(1, "two")).hooks == {
        1: OwedHook("two", ("b",), 1)
    }
    assert state(owed, f.HookDone(1, "a"), f.HookDone(1, "b", "ValueError")).hooks == {}
    assert state(owed, f.HookDone(1)).hooks == {}


# --- visits ---------------------------------------------------------------------------------------

ONE, TWO = f.SessionAttended("one", "cli"), f.SessionAttended("two", "chat")


def told(attended: int) -> f.HookOwed:
    return f.HookOwed("on_session_end", f"ended:{attended}", plugins=("a",), attended=attended)


@pytest.mark.promise(39)
def test_the_last_visit_to_end_is_the_end_of_the_session_and_only_then_plugins_are_told() -> None:
    first, second = f.SessionEnded("left", attended=1), f.SessionEnded("signal", attended=2)
    left = state(ONE, TWO, first, told(1))
    assert (left.ended, left.attending, left.hooks) == (None, {2: "two"}, {})
    over = state(ONE, TWO, first, told(1), second, told(2))
    assert (over.ended, over.attending, list(over.hooks)) == (second, {}, [6])


@pytest.mark.promise(39)
def test_a_visit_ends_once() -> None:
    ended = f.SessionEnded("left", attended=1)
    again = state(ONE, ended, told(1), f.HookDone(3, "a"), f.SessionEnded("killed", attended=1))
    assert (again.ended, again.hooks) == (ended, {})
    assert state(f.SessionEnded("left", attended=7)).ended is None


def test_whoever_visits_resumes_a_session_and_owed_hooks_stay_owed() -> None:
    resumed = state(ONE, f.SessionEnded("left", attended=1), told(1), TWO)
    assert (resumed.ended, resumed.attending, list(resumed.hooks)) == (None, {4: "two"}, [3])


def test_a_fork_has_none_of_its_parents_visits() -> None:
    fork = state(ONE, f.SessionStarted("cli", forked_from=f.ForkPoint("parent", 1)))
    assert (fork.attending, fork.owed.anything()) == ({}, False)


def test_compaction_leaves_model_threads_and_pending_inputs_alone() -> None:
    before: list[f.AnyFact] = [f.ContextSet("large"), f.ThreadBound("codex", "t1"), said("hello")]
    compacted = state(*before, f.Compacted(1, "s"))
    assert (compacted.context, compacted.threads) == (f.ContextSet("large"), {"codex": "t1"})
    assert list(compacted.pending) == [3]
    assert compacted.compacted == 4


def test_whoever_left_is_back_with_the_next_input_or_turn() -> None:
    assert state(f.SessionEnded("quit")).ended == f.SessionEnded("quit")
    assert state(f.SessionEnded("quit"), said("hello")).ended is None


OUT = f.ToolSettled(3, "a", Returned((Text("out"),)))
UNSEEN = [
    *BEGUN,
    f.StepSealed(3, (A,)),
    OUT,
    f.TurnEnded(2, "interrupted", "killed"),
]
"""A turn at 2 that was killed with a result that no request told of."""


def prompt(at: int, acknowledges: str, *came: f.AnyFact) -> list[f.AnyFact]:
    """A prompt at a seq, whose request takes up what was cut off, and which is killed then."""
    step = f.StepStarted("model", acknowledges=acknowledges)
    ended = f.TurnEnded(at + 1, "interrupted", "killed")
    return [said("next"), f.TurnStarted(f.Takes(at)), step, *came, ended]


def results(*sequence: f.AnyFact) -> tuple[f.ToolSettled, ...]:
    cut = state(*sequence).cut_off
    assert cut is not None
    return cut.results()


@pytest.mark.promise(20)
def test_results_that_a_prompt_told_of_are_unseen_if_nothing_came_back() -> None:
    took_up = prompt(7, "2:3.a", f.StepLost(9, "killed", "unknown"))
    assert results(*UNSEEN, *took_up) == (OUT,)
    shown = f.StepSealed(9, (Text("half"),), "interrupted")
    assert results(*UNSEEN, *prompt(7, "2:3.a", shown)) == ()
    never_asked: list[f.AnyFact] = [said("next"), f.TurnStarted(f.Takes(7)), took_up[-1]]
    assert results(*UNSEEN, *never_asked) == (OUT,)


@pytest.mark.promise(20)
def test_results_that_nothing_comes_back_to_are_told_in_four_turns() -> None:
    sequence, key = list(UNSEEN), "2:3.a"
    for told in range(1, 6):
        at = len(sequence) + 1
        sequence += prompt(at, key, f.StepLost(at + 2, "killed", "unknown"))
        key = str(at + 1)
        assert results(*sequence) == ((OUT,) if told < 4 else ())


def test_results_that_a_rewind_took_out_of_view_are_not_told_of() -> None:
    took_up = prompt(8, "2:3.a", f.StepLost(10, "killed", "unknown"))
    assert results(*UNSEEN, f.Rewound(2), *took_up) == ()


CUT = (
    *BEGUN,
    f.StepLost(3, "killed", "unknown"),
    said("waits"),
    f.TurnEnded(2, "interrupted", "killed"),
)
"""A turn at 2, cut off at 6, while the input at 5 waited."""


@pytest.mark.parametrize(("to", "waits"), [(1, False), (2, False), (3, False), (5, True)])
def test_a_rewind_into_a_turn_that_was_cut_off_suspends_it(to: int, waits: bool) -> None:
    cut = state(*CUT, f.Rewound(to)).cut_off
    assert cut is not None
    assert cut.waits() is waits
    back = state(*CUT, f.Rewound(to), f.RewindWithdrawn(7)).cut_off
    assert back is not None
    assert back.waits()


def test_what_two_rewinds_suspend_is_due_when_both_are_taken_back() -> None:
    undone = (*CUT, f.Rewound(2), f.Rewound(1))
    one = state(*undone, f.RewindWithdrawn(7)).cut_off
    both = state(*undone, f.RewindWithdrawn(7), f.RewindWithdrawn(8)).cut_off
    assert one is not None
    assert not one.waits()
    assert both is not None
    assert both.waits()


def test_an_answer_after_an_undo_puts_what_was_cut_off_behind_us() -> None:
    turn = (f.TurnStarted(f.Takes(5)), f.StepStarted("model"), f.StepSealed(9, ()))
    assert state(*CUT, f.Rewound(2), *turn, f.TurnEnded(8, "failed", "refused")).cut_off is not None
    assert (
        state(*CUT, f.Rewound(2), *turn, f.TurnEnded(8, "done"), f.RewindWithdrawn(7)).cut_off
        is None
    )
