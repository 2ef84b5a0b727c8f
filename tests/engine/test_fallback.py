"""When another model answers in the place of the session's own, by equality."""

import pytest

import steno.journal.facts as f
from steno.engine.action import (
    WAIT_MS_MAX,
    Action,
    Ask,
    Compact,
    FallBack,
    Finish,
    Limits,
    Room,
    next_action,
)
from steno.engine.recover import recover
from steno.journal.listing import ListingRow
from steno.journal.parts import Returned, Text, ToolCall
from steno.journal.state import State
from tests.journal.folding import fold, in_place

LIMITS = Limits(attempts_max=2, broken_max=1, fallback=("b", "c"))
BEGUN: tuple[f.AnyFact, ...] = (
    f.InputAdmitted((Text("hi"),), "cli"),
    f.TurnStarted(f.Takes(1)),
    f.ContextSet("a"),
)
TO_B, TO_C = f.ContextSet("b", instead_of="a"), f.ContextSet("c", instead_of="a")


def after(*facts: f.AnyFact, limits: Limits = LIMITS) -> Action:
    return next_action(fold(State(), in_place([*BEGUN, *facts])), limits)


def lost(
    at: int, model: str, cause: str = "overloaded", wait_ms: int | None = None
) -> tuple[f.AnyFact, ...]:
    return f.StepStarted(model), f.StepLost(at, cause, "yes", "why", wait_ms)


def failed(cause: str, detail: str) -> Finish:
    return Finish((f.TurnEnded(2, "failed", cause, detail),))


def test_a_fallback_takes_over_when_the_attempts_are_used_up_and_begins_anew() -> None:
    once, twice = lost(4, "a"), (*lost(4, "a"), *lost(6, "a"))
    assert after(*once) == Ask(attempt=2)
    assert after(*twice) == FallBack("b")
    assert after(*twice, limits=Limits(attempts_max=2)) == failed("overloaded", "why")
    assert after(*twice, TO_B) == Ask()
    assert after(*twice, TO_B, *lost(9, "b")) == Ask(attempt=2)


def test_each_fallback_takes_over_once_in_their_order_and_then_the_turn_fails() -> None:
    to_b = (*lost(4, "a"), *lost(6, "a"), TO_B)
    to_c = (*to_b, *lost(9, "b"), *lost(11, "b"), TO_C)
    assert after(*to_c[:-1]) == FallBack("c")
    assert after(*to_c, *lost(14, "c"), *lost(16, "c")) == failed("overloaded", "why")


@pytest.mark.parametrize("cause", ["refused", "no_key", "no_model", "unknown_model"])
def test_what_another_attempt_cannot_mend_and_another_model_may_is_passed_on_at_once(
    cause: str,
) -> None:
    assert after(*lost(4, "a", cause)) == FallBack("b")


def test_a_wait_that_nobody_sits_through_is_passed_on_and_what_is_too_long_is_not() -> None:
    assert after(*lost(4, "a", "rate_limited", WAIT_MS_MAX + 1)) == FallBack("b")
    assert after(*lost(4, "a", "too_long")) == failed("too_long", "why")


def test_a_fallback_goes_on_with_what_broke_off_and_may_break_off_as_often() -> None:
    broken = (f.StepStarted("a"), f.StepSealed(4, (Text("ha"),), "incomplete"))
    passed_on = (*broken, *lost(6, "a"), *lost(8, "a"))
    assert after(*passed_on) == FallBack("b")
    assert after(*passed_on, TO_B) == Ask(goes_on=True)
    again = (*broken, f.StepStarted("a"), f.StepSealed(6, (Text("lf"),), "incomplete"))
    assert after(*again) == FallBack("b")
    assert after(*again, TO_B) == Ask(goes_on=True)
    assert after(
        *again, TO_B, f.StepStarted("b"), f.StepSealed(9, (Text("!"),), "incomplete")
    ) == FallBack("c")


def test_a_fallback_stays_for_the_turn_and_an_input_that_steered_is_not_forgotten() -> None:
    steer = f.InputAdmitted((Text("also"),), "cli", mode="steer")
    answered = (
        f.StepStarted("a"),
        steer,
        f.StepSealed(4, (Text("yo"),)),
        f.StepStarted("a", takes=(5,)),
    )
    facts = (*answered, f.StepLost(7, "no_key", "yes"))
    assert after(*facts) == FallBack("b")
    assert after(*facts, TO_B) == Ask()
    call = ToolCall("t", "shell", "{}")
    worked = (
        *facts,
        TO_B,
        f.StepStarted("b"),
        f.StepSealed(10, (call,)),
        f.ToolSettled(10, "t", Returned()),
    )
    assert after(*worked) == Ask()
    assert fold(State(), in_place([*BEGUN, *worked])).turn.fallen == ["b"]  # type: ignore[union-attr]


def test_a_new_goal_does_not_give_a_fallback_its_attempts_again() -> None:
    told = f.ContextSet("b", goal="win", instead_of="a")
    facts = (*lost(4, "a", "no_key"), TO_B, *lost(7, "b"), told, *lost(10, "b"))
    assert after(*facts) == FallBack("c")


def test_a_stop_ends_the_turn_before_anybody_takes_over() -> None:
    assert after(*lost(4, "a", "no_key"), f.InterruptAsked(2)) == Finish(
        (f.TurnEnded(2, "interrupted", "user"),)
    )


def test_a_fallback_that_takes_less_may_have_a_summary_made_once_more() -> None:
    tried: tuple[f.AnyFact, ...] = (f.HelperStarted("summary", "a"), f.HelperEnded(4, "failed"))
    state = fold(State(), in_place([*BEGUN, *tried, *lost(6, "a", "no_key"), TO_B]))
    smaller = Limits(fallback=("b",), context_max=100)
    assert next_action(state, smaller, lambda: Room(90, compactable=True)) == Compact()


@pytest.mark.promise(32)
def test_the_chosen_model_stays_the_sessions_own_and_the_next_turn_begins_with_it() -> None:
    facts = [*BEGUN, *lost(4, "a", "no_key"), TO_B]
    row = fold(ListingRow(), in_place(facts))
    assert (row.model, row.fallback) == ("a", "b")
    state = fold(State(), in_place(facts))
    closed = [
        *facts,
        *recover(state, ()),
        f.InputAdmitted((Text("on"),), "cli"),
        f.TurnStarted(f.Takes(8)),
    ]
    state = fold(State(), in_place(closed))
    assert state.context is not None
    assert state.context.own_model == "a"
    assert state.turn is not None
    assert state.turn.fallen == []
    assert fold(ListingRow(), in_place([*closed, f.ContextSet("a")])).fallback == ""
