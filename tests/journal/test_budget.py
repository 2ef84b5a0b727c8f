"""What budgets are measured against."""

import pytest

from steno.journal import facts as f
from steno.journal.budget import Spent
from steno.journal.parts import Returned, Unknown


def spent(*timed: tuple[int, f.AnyFact]) -> Spent:
    total = Spent()
    for seq, (at_ms, fact) in enumerate(timed, start=1):
        total.apply(f.Record(seq, at_ms, fact))
    return total


def test_steps_and_tokens_are_added_up_and_a_turn_begins_at_zero() -> None:
    before = spent(
        (0, f.TurnStarted(f.Takes(9))),
        (0, f.StepStarted("m")),
        (0, f.StepSealed(2, (), usage=f.Usage(10, 5))),
        (0, f.HelperEnded(8, "done", usage=f.Usage(input=7))),
        (0, f.TurnStarted(f.Takes(10))),
        (0, f.StepStarted("m")),
        (0, f.StepSealed(6, (), usage=f.Usage(output=1))),
        (0, f.StepSealed(6, ())),
    )
    assert (before.steps, before.tokens, before.turn_tokens) == (2, 23, 1)


def test_models_and_tools_take_time_and_people_do_not() -> None:
    assert (
        spent(
            (1_000, f.StepStarted("m")),
            (3_000, f.StepSealed(1, ())),
            (9_000, f.ApprovalAsked(1, "a")),
            (50_000, f.ToolStarted(1, "a")),
            (50_500, f.ToolSettled(1, "a", Returned(()), 4)),
        ).worked_ms
        == 2_500
    )


@pytest.mark.parametrize(
    ("began", "ended"),
    [
        (f.StepStarted("m"), f.StepLost(1, "killed", "unknown")),
        (f.StepStarted("m"), f.StepSealed(1, (), "interrupted")),
        (f.ToolStarted(9, "a"), f.ToolSettled(9, "a", Unknown(), 1)),
    ],
)
def test_nobody_knows_how_long_a_killed_process_worked(began: f.AnyFact, ended: f.AnyFact) -> None:
    assert spent((1_000, began), (9_000_000, ended)).worked_ms == 0


def test_a_clock_that_is_set_back_takes_nothing_away() -> None:
    assert spent((9_000, f.StepStarted("m")), (1_000, f.StepSealed(1, ()))).worked_ms == 0


def test_a_fork_begins_anew() -> None:
    assert spent((0, f.StepStarted("m")), (5, f.SessionStarted("cli"))) == Spent()
