"""What to do next, decided from the state alone. A reader learns the engine here.

no turn is open      begin the oldest pending input, or rest
a stop was asked     finish as interrupted
calls are open       run them; nothing is asked while one has no outcome
an attempt was lost  ask again if that is worth it, after the wait that the provider asked for; else
                     have the next fallback answer, if another model may mend it; else finish as
                     failed
an answer broke off  ask the model to go on, a bounded number of times; then the next fallback
answered             take the inputs that steer, or finish as done

Before anything is asked: a request that has become too long is made shorter by a summary; if none
can be made, the next fallback has one made; or the turn ends and says so.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from steno.journal.budget import Spent
from steno.journal.facts import CUT_OFF, ToolSettled, TurnEnded, TurnFact, TurnOutcome
from steno.journal.parts import Outcome, Refused, Seq, Unknown
from steno.journal.state import OpenCall, OpenTurn, State

RETRIED = frozenset(
    (
        "rate_limited",
        "overloaded",
        "server_error",
        "unreachable",
        "dropped",
        "timeout",
    )
)
"""Causes of a lost attempt that another attempt may mend."""

MENDED_BY_ANOTHER = RETRIED | {
    "refused",
    "not_trusted",
    "no_key",
    "no_model",
    "unknown_model",
}
"""Causes that another model may mend. What is too long is made shorter, by another model where this
one cannot."""

WAIT_MS_MAX = 120_000
"""A provider that asks for a longer wait than a person sits through fails the turn, and the person
is told how long."""


COMPACT_AT = 0.8
"""The part of a model's context that may be filled before a summary is made."""


class Limits(Struct, frozen=True):
    attempts_max: int = 4
    broken_max: int = 2
    steps_max: int = 200
    context_max: int = 0
    """Tokens that the model takes; 0 if that is not known."""
    summary_s: float = 60.0
    """For all calls of one compaction together."""
    turn_s: float = 0.0
    turn_tokens_max: int = 0
    session_steps_max: int = 0
    session_s: float = 0.0
    session_tokens_max: int = 0
    """Budgets beside `steps_max`; 0 where there is none. The runner keeps the time of a turn."""
    fallback: tuple[str, ...] = ()
    """Models that may answer in the place of the session's own, each once in a turn, in this
    order."""


class Begin(Struct, frozen=True):
    input: Seq


class Ask(Struct, frozen=True):
    """`takes` are steering inputs for this request; `goes_on` if the last answer broke off;
    `wait_ms` is what the provider asked for when it did not answer the last attempt."""

    takes: tuple[Seq, ...] = ()
    attempt: int = 1
    goes_on: bool = False
    acknowledges: str | None = None
    wait_ms: int | None = None


class FallBack(Struct, frozen=True):
    """The rest of the turn is answered by this model."""

    model: str


class Compact(Struct, frozen=True):
    """A summary of the older part of the session is to be made before anything is asked."""


class RunTools(Struct, frozen=True):
    calls: tuple[OpenCall, ...]


class Finish(Struct, frozen=True):
    """`facts` end the turn; calls that were never run are settled with it."""

    facts: tuple[TurnFact, ...]


class Rest(Struct, frozen=True):
    pass


class Room(Struct, frozen=True):
    """How many tokens the next request has, about, and whether a summary could stand for some of
    it."""

    tokens: int
    compactable: bool


Action = Begin | Ask | FallBack | Compact | RunTools | Finish | Rest


def next_action(
    state: State,
    limits: Limits,
    room: Callable[[], Room] | None = None,
    spent: Spent | None = None,
) -> Action:
    """`room` is only looked at before something is asked: it takes a look at the whole history."""
    action = _next(state, limits)
    if (
        isinstance(action, Ask)
        and state.turn is not None
        and (reached := _reached(spent or Spent(), limits))
    ):
        return finish(state.turn, "failed", "budget", reached)
    if state.turn is None or state.turn.interrupted is not None or room is None:
        return action
    if isinstance(action, Ask) and limits.context_max:
        return _fitting(state.turn, action, room(), limits)
    if isinstance(action, Finish) and _found_too_long(state.turn):
        return _shortened(state.turn, limits, room) or action
    return action


def _found_too_long(turn: OpenTurn) -> bool:
    return turn.last_lost is not None and turn.last_lost.cause == "too_long"


def _shortened(
    turn: OpenTurn, limits: Limits, room: Callable[[], Room]
) -> Compact | FallBack | None:
    """What may still make a request short enough: a summary; if none could be made, one by the next
    model."""
    if turn.compaction is None:
        return Compact() if room().compactable else None
    left = _fallbacks_left(turn, limits) if turn.compaction == "failed" else ()
    return FallBack(left[0]) if left else None


def _fitting(turn: OpenTurn, ask: Ask, room: Room, limits: Limits) -> Action:
    context_max = limits.context_max
    if room.tokens <= context_max * COMPACT_AT or (
        turn.compaction is not None and room.tokens <= context_max
    ):
        return ask
    if turn.compaction is None and room.compactable:
        return Compact()
    if room.tokens <= context_max:
        return ask
    if shortened := _shortened(turn, limits, lambda: room):
        return shortened
    tried = {
        "done": "; a summary did not make it short enough",
        "failed": "; a summary could not be made",
        None: "",
    }
    detail = (
        f"the request has about {room.tokens} tokens and the model takes "
        f"{context_max}{tried[turn.compaction]}"
    )
    return finish(turn, "failed", "too_long", detail)


def _next(state: State, limits: Limits) -> Action:
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


def finish(
    turn: OpenTurn, outcome: TurnOutcome, cause: str = "", detail: str = ""
) -> Finish:
    """Every call has an outcome before its turn ends."""
    settled = (
        ToolSettled(call.step, call.call.id, _unrun(call), call.started)
        for call in turn.calls.values()
    )
    return Finish((*settled, TurnEnded(turn.seq, outcome, cause, detail)))


def _unrun(call: OpenCall) -> Outcome:
    return (
        Refused("not run: the turn was stopped first")
        if call.started is None
        else Unknown()
    )


def _after_loss(state: State, turn: OpenTurn, limits: Limits) -> Action:
    """Of a fallback that has just taken over, and since a summary was made, no attempt was lost
    yet. That a process was killed beside a question to a person says nothing against another
    attempt."""
    lost = turn.last_lost
    if lost is None or not turn.lost or lost.cause in CUT_OFF:
        return _ask(state, turn, goes_on=turn.broken > 0)
    worth_it = lost.cause in RETRIED and (lost.wait_ms or 0) <= WAIT_MS_MAX
    if not worth_it or turn.lost >= limits.attempts_max:
        left = (
            _fallbacks_left(turn, limits) if lost.cause in MENDED_BY_ANOTHER else ()
        )
        return (
            FallBack(left[0])
            if left
            else finish(turn, "failed", lost.cause, lost.detail)
        )
    again = _ask(state, turn, attempt=turn.lost + 1, goes_on=turn.broken > 0)
    return replace(again, wait_ms=lost.wait_ms)


def _after_answer(state: State, turn: OpenTurn, limits: Limits) -> Action:
    if turn.broken > limits.broken_max:
        if left := _fallbacks_left(turn, limits):
            return FallBack(left[0])
        return finish(
            turn, "failed", "incomplete", "the model's answer broke off repeatedly"
        )
    if turn.broken:
        return _ask(state, turn, goes_on=True)
    if not turn.settled and not _steering(state):
        return finish(turn, "done")
    if turn.steps >= limits.steps_max:
        return finish(
            turn,
            "failed",
            "budget",
            _of_turn(f"{limits.steps_max} steps", "steps_max"),
        )
    return _ask(state, turn)


def _fallbacks_left(turn: OpenTurn, limits: Limits) -> tuple[str, ...]:
    return tuple(model for model in limits.fallback if model not in turn.fallen)


def _reached(spent: Spent, limits: Limits) -> str:
    """Which budget is spent; "" if none."""
    if 0 < limits.turn_tokens_max <= spent.turn_tokens:
        return _of_turn(f"{limits.turn_tokens_max} tokens", "turn_tokens_max")
    if 0 < limits.session_steps_max <= spent.steps:
        return _of_session(f"{limits.session_steps_max} steps", "session_steps_max")
    if 0 < limits.session_tokens_max <= spent.tokens:
        return _of_session(
            f"{limits.session_tokens_max} tokens", "session_tokens_max"
        )
    if 0 < limits.session_s * 1000 <= spent.worked_ms:
        return _of_session(f"{limits.session_s:g} s of work", "session_s")
    return ""


def out_of_time(turn: OpenTurn, limits: Limits) -> Finish:
    return finish(
        turn, "failed", "budget", _of_turn(f"{limits.turn_s:g} s", "turn_s")
    )


def _of_turn(budget: str, key: str) -> str:
    return f"the turn reached its budget of {budget} (limits.{key})"


def _of_session(budget: str, key: str) -> str:
    return f"the session reached its budget of {budget} (limits.{key})"


def _ask(
    state: State, turn: OpenTurn, attempt: int = 1, goes_on: bool = False
) -> Ask:
    return Ask(_steering(state), attempt, goes_on, due_continuation(state))


def _steering(state: State) -> tuple[Seq, ...]:
    return tuple(seq for seq, said in state.pending.items() if said.mode == "steer")


def due_continuation(state: State) -> str | None:
    """The key of a cut-off turn that no request has taken up yet. A turn that takes it up says so
    in each attempt. One that is not continued any more because it was killed too often is taken up
    by what a person says next."""
    cut, turn = state.cut_off, state.turn
    if cut is None or cut.acknowledged_by is not None or cut.undone_by:
        return None
    again = turn is not None and turn.seq in cut.withdrawn
    return cut.key if again or not cut.came_to_nothing() else None
