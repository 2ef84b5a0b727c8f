"""Recovery: the facts that close whatever the last writer left open.

A turn that waits for a person to approve a call stays open: neither a kill nor a restart may answer
in the person's place. Only what was under way beside the question is closed: an answer, calls that
had started.

Pure, so that a reader can apply it in memory to show what a runner will store. Applied to a session
that was already recovered it yields nothing, so the correction is stored once.

What is open when the process is killed, and what recovery stores:

    3 input · 4 turn · 5 step · draft "Hel"
        6 step.sealed (5, "Hel", interrupted) · 7 turn.ended (4, interrupted, killed)
    3 input · 4 turn · 5 step, of which nothing came back
        6 step.lost (5, killed) · 7 turn.ended (4, interrupted, killed)
    … 6 step.sealed (5, calls a and b) · 7 tool.started (a) · draft "out"
        8 tool.settled (a, unknown, "out") · 9 tool.settled (b, refused: never ran) · 10 turn.ended
    … 7 approval.asked (a) · 8 tool.started (b)
        9 tool.settled (b, unknown); the turn stays open, and the next runner asks about a again

How the turn that was cut off is taken up is in `journal.state.CutOff`.
"""

from collections.abc import Iterable, Mapping

from steno.journal.drafts import Draft, Stream
from steno.journal.facts import (
    HelperEnded,
    StepLost,
    StepSealed,
    ToolSettled,
    TurnEnded,
    TurnFact,
)
from steno.journal.parts import Content, Reasoning, Refused, Seq, Text, Unknown
from steno.journal.state import OpenCall, OpenTurn, State

NEVER_RAN = "not run: the turn was cut off before this call started"


def recover(
    state: State, drafts: Iterable[Draft], cause: str = "killed"
) -> tuple[TurnFact, ...]:
    """For the next runner, and for readers: close the open turn, unless it waits for a person."""
    turn = state.turn
    if turn is None or not waits_for_approval(turn):
        return close(state, drafts, cause)
    shown = {draft.stream: draft.text for draft in drafts}
    said = () if turn.step is None else (_close_step(turn.step, shown, cause),)
    return (
        *said,
        *(
            _settle(call, shown)
            for call in turn.calls.values()
            if call.started is not None
        ),
    )


def waits_for_approval(turn: OpenTurn) -> bool:
    """Whether a person was asked about a call that has not run since, and has not asked for the
    turn to stop. An external runtime may ask in the middle of an answer."""
    if turn.interrupted is not None:
        return False
    return any(call.asked and call.started is None for call in turn.calls.values())


def close(
    state: State, drafts: Iterable[Draft], cause: str = "killed"
) -> tuple[TurnFact, ...]:
    """Close the open turn, whatever it waits for: seal what was shown, settle what had started, end
    as interrupted with the cause. For writers that will not take the turn up."""
    turn = state.turn
    helpers = tuple(
        HelperEnded(seq, "unknown", sent="unknown") for seq in state.helpers
    )
    if turn is None:
        return helpers
    shown = {draft.stream: draft.text for draft in drafts}
    facts: list[TurnFact] = [*helpers]
    if turn.step is not None:
        facts.append(_close_step(turn.step, shown, cause))
    facts += [_settle(call, shown) for call in turn.calls.values()]
    cause = cause if turn.interrupted is None else "user"
    facts.append(TurnEnded(turn.seq, "interrupted", cause))
    return tuple(facts)


def _close_step(
    step: Seq, shown: Mapping[Stream, str], cause: str
) -> StepSealed | StepLost:
    parts: list[Content] = []
    if reasoning := shown.get(Stream(step, "reasoning")):
        parts.append(Reasoning(reasoning))
    if text := shown.get(Stream(step, "text")):
        parts.append(Text(text))
    if not parts:
        return StepLost(step, cause, sent="unknown")
    return StepSealed(step, tuple(parts), "interrupted")


def _settle(call: OpenCall, shown: Mapping[Stream, str]) -> ToolSettled:
    if call.started is None:
        return ToolSettled(call.step, call.call.id, Refused(NEVER_RAN))
    output = shown.get(Stream(call.started, "output"), "")
    parts: tuple[Content, ...] = (Text(output),) if output else ()
    return ToolSettled(call.step, call.call.id, Unknown(parts), call.started)
