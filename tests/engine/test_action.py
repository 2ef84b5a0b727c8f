"""What to do next, by equality."""

import pytest

import steno.journal.facts as f
from steno.engine.action import (
    WAIT_MS_MAX,
    Action,
    Ask,
    Begin,
    Finish,
    Limits,
    Rest,
    RunTools,
    next_action,
)
from steno.journal.parts import Refused, Returned, Text, ToolCall
from steno.journal.state import State
from tests.journal.folding import fold, in_place

LIMITS = Limits(attempts_max=3, broken_max=1, steps_max=4)
SAID = f.InputAdmitted((Text("hi"),), "cli")
BEGUN = (SAID, f.TurnStarted(f.Takes(1)))
ASKED = (*BEGUN, f.StepStarted("m"))
CALL = ToolCall("c", "shell", "{}")


def after(*facts: f.AnyFact) -> Action:
    return next_action(fold(State(), in_place(list(facts))), LIMITS)


def ended(outcome: f.TurnOutcome, cause: str = "", detail: str = "") -> Finish:
    return Finish((f.TurnEnded(2, outcome, cause, detail),))


def test_a_session_with_nothing_pending_rests() -> None:
    assert after() == Rest()
    assert after(*ASKED, f.StepSealed(3, (Text("yo"),)), f.TurnEnded(2, "done")) == Rest()


def test_the_oldest_pending_input_is_begun() -> None:
    assert after(SAID, SAID) == Begin(1)


def test_a_begun_turn_asks_and_an_answer_without_calls_ends_it() -> None:
    assert after(*BEGUN) == Ask()
    assert after(*ASKED, f.StepSealed(3, (Text("yo"),))) == ended("done")


def test_calls_are_run_and_then_the_model_is_asked_again() -> None:
    answered = (*ASKED, f.StepSealed(3, (CALL,)))
    action = after(*answered)
    assert isinstance(action, RunTools)
    assert [call.call for call in action.calls] == [CALL]
    assert after(*answered, f.ToolSettled(3, "c", Returned())) == Ask()


@pytest.mark.promise(23)
def test_a_stop_ends_the_turn_it_names_and_settles_what_never_ran() -> None:
    stopped = after(*ASKED, f.StepSealed(3, (CALL,)), f.InterruptAsked(2))
    unrun = f.ToolSettled(3, "c", Refused("not run: the turn was stopped first"))
    assert stopped == Finish((unrun, f.TurnEnded(2, "interrupted", "user")))
    assert after(*BEGUN, f.InterruptAsked(1)) == Ask()


def test_a_lost_attempt_is_repeated_a_bounded_number_of_times() -> None:
    def lost(times: int, cause: str) -> tuple[f.AnyFact, ...]:
        return tuple(
            fact
            for i in range(times)
            for fact in (
                f.StepStarted("m", attempt=i + 1),
                f.StepLost(3 + 2 * i, cause, "yes", "why"),
            )
        )

    assert after(*BEGUN, *lost(2, "server_error")) == Ask(attempt=3)
    assert after(*BEGUN, *lost(3, "server_error")) == ended("failed", "server_error", "why")
    assert after(*BEGUN, *lost(1, "refused")) == ended("failed", "refused", "why")


def test_another_attempt_waits_as_the_provider_asked_up_to_a_bound() -> None:
    def asked_to_wait(wait_ms: int | None) -> Action:
        return after(*ASKED, f.StepLost(3, "rate_limited", "yes", "busy", wait_ms))

    assert asked_to_wait(2_500) == Ask(attempt=2, wait_ms=2_500)
    assert asked_to_wait(None) == Ask(attempt=2)
    assert asked_to_wait(WAIT_MS_MAX) == Ask(attempt=2, wait_ms=WAIT_MS_MAX)
    assert asked_to_wait(WAIT_MS_MAX + 1) == ended("failed", "rate_limited", "busy")


def test_an_answer_that_broke_off_goes_on_a_bounded_number_of_times() -> None:
    broken = (*ASKED, f.StepSealed(3, (Text("ha"),), "incomplete"))
    assert after(*broken) == Ask(goes_on=True)
    twice = after(*broken, f.StepStarted("m"), f.StepSealed(5, (Text("lf"),), "incomplete"))
    assert twice == ended("failed", "incomplete", "the model's answer broke off repeatedly")


@pytest.mark.promise(21)
def test_steering_inputs_are_taken_by_the_next_request_in_order() -> None:
    steer = f.InputAdmitted((Text("also"),), "cli", mode="steer")
    assert after(*ASKED, steer, steer, f.StepSealed(3, (Text("yo"),))) == Ask((4, 5))


@pytest.mark.promise(21)
def test_an_input_that_steered_a_request_too_long_is_asked_again_once_there_is_a_summary() -> None:
    steer = f.InputAdmitted((Text("also"),), "cli", mode="steer")
    refused = (f.StepStarted("m", takes=(4,)), f.StepLost(6, "too_long", "yes"))
    assert (
        after(*ASKED, steer, f.StepSealed(3, (Text("yo"),)), *refused, f.Compacted(1, "s")) == Ask()
    )


def test_a_turn_that_reaches_its_limit_of_steps_ends_and_says_so() -> None:
    steps: list[f.AnyFact] = [
        f.StepStarted("m"),
        f.StepSealed(3, (CALL,)),
        f.ToolSettled(3, "c", Returned()),
    ]
    facts: list[f.AnyFact] = [*BEGUN, *steps]
    for _ in range(3):
        at = len(facts) + 1
        facts += [f.StepStarted("m"), f.StepSealed(at, (CALL,)), f.ToolSettled(at, "c", Returned())]
    action = after(*facts)
    assert isinstance(action, Finish)
    ending = action.facts[-1]
    assert isinstance(ending, f.TurnEnded)
    assert (ending.outcome, ending.cause) == ("failed", "budget")


@pytest.mark.promise(20)
def test_a_cut_off_turn_is_acknowledged_by_one_request_unless_that_is_lost() -> None:
    cut = (*ASKED, f.StepLost(3, "killed", "unknown"), f.TurnEnded(2, "interrupted", "killed"))
    taken_up = (*cut, SAID, f.TurnStarted(f.Takes(6)))
    assert after(*taken_up) == Ask(acknowledges="2")
    asked = (*taken_up, f.StepStarted("m", acknowledges="2"))
    assert after(*asked, f.StepLost(8, "server_error", "yes")) == Ask(attempt=2, acknowledges="2")
    sealed = (*asked, f.StepSealed(8, (CALL,)), f.ToolSettled(8, "c", Returned()))
    assert after(*sealed) == Ask()


@pytest.mark.promise(20)
def test_what_was_cut_off_is_taken_up_in_a_bounded_number_of_turns_each_with_all_its_attempts() -> (
    None
):
    facts: list[f.AnyFact] = [
        *ASKED,
        f.StepLost(3, "killed", "unknown"),
        f.TurnEnded(2, "interrupted", "killed"),
    ]
    for _ in range(4):
        turn = len(facts) + 1
        facts.append(f.TurnStarted(f.Continues(2)))
        for attempt in (1, 2):
            assert after(*facts) == Ask(attempt=attempt, acknowledges="2")
            facts.append(f.StepStarted("m", acknowledges="2", attempt=attempt))
            facts.append(f.StepLost(len(facts), "server_error", "yes"))
        facts.append(f.TurnEnded(turn, "interrupted", "killed"))
    facts += [SAID, f.TurnStarted(f.Takes(len(facts) + 1))]
    assert after(*facts) == Ask()


KILLED = f.TurnEnded(2, "interrupted", "killed")


def killed_again(times: int, cause: str = "killed", takes: tuple[int, ...] = ()) -> list[f.AnyFact]:
    """A turn that was killed after it said something, and as many continuations of the one
    before."""
    facts: list[f.AnyFact] = [*ASKED, f.StepSealed(3, (Text("a"),), "interrupted"), KILLED]
    for _ in range(times):
        last = max(at for at, fact in enumerate(facts, start=1) if isinstance(fact, f.TurnStarted))
        turn = len(facts) + 1
        facts += [
            f.TurnStarted(f.Continues(last)),
            f.StepStarted("m", takes=takes, acknowledges=str(last)),
        ]
        facts += [
            f.StepSealed(turn + 1, (Text("b"),), "interrupted"),
            f.TurnEnded(turn, "interrupted", cause),
        ]
    return facts


@pytest.mark.promise(20)
def test_a_row_of_killed_continuations_is_bounded_and_a_signal_is_no_kill() -> None:
    def waits(facts: list[f.AnyFact]) -> bool:
        cut = fold(State(), in_place(facts)).cut_off
        return cut is not None and cut.waits()

    assert waits(killed_again(3))
    assert not waits(killed_again(4))
    assert waits(killed_again(9, "terminated"))
    assert waits(killed_again(9, takes=(1,))), "whoever steers has said something"
    said = [*killed_again(4), SAID]
    begun = [*said, f.TurnStarted(f.Takes(len(said)))]
    key = str(max(at for at, fact in enumerate(said, start=1) if isinstance(fact, f.TurnStarted)))
    assert after(*begun) == Ask(acknowledges=key), "what is said next takes it up"
    asked = [*begun, f.StepStarted("m", acknowledges=key)]
    shown = f.StepSealed(len(asked), (Text("c"),), "interrupted")
    assert waits([*asked, shown, f.TurnEnded(len(begun), "interrupted", "killed")]), (
        "and begins a new row"
    )


@pytest.mark.promise(20)
def test_what_a_person_stopped_is_not_taken_up() -> None:
    stopped = (
        *ASKED,
        f.InterruptAsked(2),
        f.StepLost(3, "stopped", "no"),
        f.TurnEnded(2, "interrupted", "user"),
    )
    assert after(*stopped, SAID, f.TurnStarted(f.Takes(7))) == Ask()
