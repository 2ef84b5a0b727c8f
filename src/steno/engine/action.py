"""What to do next, decided from the state alone. A reader learns the engine here.

no turn is open      begin the oldest pending input, or rest
a stop was asked     finish as interrupted
calls are open       run them; nothing is asked while one has no outcome
an attempt was lost  ask again if that is worth it, else finish as failed
an answer broke off  ask the model to go on, a bounded number of times
answered             take the inputs that steer, or finish as done
"""

from msgspec import Struct

from steno.journal.facts import ToolSettled, TurnEnded, TurnFact, TurnOutcome
from steno.journal.parts import Outcome, Refused, Seq, Unknown
from steno.journal.state import OpenCall, OpenTurn, State

RETRIED = frozenset(("rate_limited", "overloaded", "server_error", "unreachable", "dropped", "timeout"))
"""Causes of a lost attempt that another attempt may mend."""

WITHDRAWALS_MAX = 3


class Limits(Struct, frozen=True):
    attempts_max: int = 4
    broken_max: int = 2
    steps_max: int = 50


class Begin(Struct, frozen=True):
    input: Seq


class Ask(Struct, frozen=True):
    """`takes` are steering inputs for this request; `goes_on` if the last answer broke off."""

    takes: tuple[Seq, ...] = ()
    attempt: int = 1
    goes_on: bool = False
    acknowledges: str | None = None


class RunTools(Struct, frozen=True):
    calls: tuple[OpenCall, ...]


class Finish(Struct, frozen=True):
    """`facts` end the turn; calls that were never run are settled with it."""

    facts: tuple[TurnFact, ...]


class Rest(Struct, frozen=True):
    pass


Action = Begin | Ask | RunTools | Finish | Rest


def next_action(state: State, limits: Limits) -> Action:
    turn = state.turn
    if turn is None:
        return Begin(min(state.pending)) if state.pending else Rest()
    if turn.interrupted is not None:
        return finish(turn, "interrupted", "user")
    if turn.calls:
        return RunTools(tuple(turn.calls.values()))
    if turn.last_lost is not None:
        return _after_loss(state, turn, limits)
    if turn.last is None:
        return _ask(state, turn)
    return _after_answer(state, turn, limits)


def finish(turn: OpenTurn, outcome: TurnOutcome, cause: str = "", detail: str = "") -> Finish:
    """Every call has an outcome before its turn ends."""
    settled = (ToolSettled(call.step, call.call.id, _unrun(call), call.started) for call in turn.calls.values())
    return Finish((*settled, TurnEnded(turn.seq, outcome, cause, detail)))


def _unrun(call: OpenCall) -> Outcome:
    return Refused("not run: the turn was stopped first") if call.started is None else Unknown()


def _after_loss(state: State, turn: OpenTurn, limits: Limits) -> Action:
    lost = turn.last_lost
    if lost is None or (lost.cause in RETRIED and turn.lost < limits.attempts_max):
        return _ask(state, turn, attempt=turn.lost + 1, goes_on=turn.broken > 0)
    return finish(turn, "failed", lost.cause, lost.detail)


def _after_answer(state: State, turn: OpenTurn, limits: Limits) -> Action:
    if turn.broken > limits.broken_max:
        return finish(turn, "failed", "incomplete", "the model's answer broke off repeatedly")
    if turn.broken:
        return _ask(state, turn, goes_on=True)
    if not turn.settled and not _steering(state):
        return finish(turn, "done")
    if turn.steps >= limits.steps_max:
        return finish(turn, "failed", "budget", f"the turn reached its limit of {limits.steps_max} steps")
    return _ask(state, turn)


def _ask(state: State, turn: OpenTurn, attempt: int = 1, goes_on: bool = False) -> Ask:
    return Ask(_steering(state), attempt, goes_on, due_continuation(state))


def _steering(state: State) -> tuple[Seq, ...]:
    return tuple(seq for seq, said in state.pending.items() if said.mode == "steer")


def due_continuation(state: State) -> str | None:
    """The key of a cut-off turn that no request has taken up yet."""
    cut = state.cut_off
    if cut is None or cut.acknowledged_by is not None or cut.withdrawn > WITHDRAWALS_MAX:
        return None
    return cut.key
