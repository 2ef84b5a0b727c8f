"""Recovery: the facts that close whatever the last writer left open.

Pure, so that a reader can apply it in memory to show what a runner will store. Applied to a session that was
already recovered it yields nothing, so the correction is stored once.
"""

from collections.abc import Iterable

from steno.journal.drafts import Draft, Stream
from steno.journal.facts import StepLost, StepSealed, ToolSettled, TurnEnded, TurnFact
from steno.journal.parts import Content, Reasoning, Refused, Seq, Text, Unknown
from steno.journal.state import OpenCall, State

NEVER_RAN = "not run: the turn was cut off before this call started"


def recover(state: State, drafts: Iterable[Draft]) -> tuple[TurnFact, ...]:
    """Close the open turn: seal what was shown, settle what had started, end as interrupted with the cause."""
    turn = state.turn
    if turn is None:
        return ()
    shown = {draft.stream: draft.text for draft in drafts}
    facts: list[TurnFact] = []
    if turn.step is not None:
        facts.append(_close_step(turn.step, shown))
    facts += [_settle(call, shown) for call in turn.calls.values()]
    cause = "killed" if turn.interrupted is None else "user"
    facts.append(TurnEnded(turn.seq, "interrupted", cause))
    return tuple(facts)


def _close_step(step: Seq, shown: dict[Stream, str]) -> StepSealed | StepLost:
    parts: list[Content] = []
    if reasoning := shown.get(Stream(step, "reasoning")):
        parts.append(Reasoning(reasoning))
    if text := shown.get(Stream(step, "text")):
        parts.append(Text(text))
    if not parts:
        return StepLost(step, "killed", sent="unknown")
    return StepSealed(step, tuple(parts), "interrupted")


def _settle(call: OpenCall, shown: dict[Stream, str]) -> ToolSettled:
    if call.started is None:
        return ToolSettled(call.step, call.call.id, Refused(NEVER_RAN))
    output = shown.get(Stream(call.started, "output"), "")
    parts: tuple[Content, ...] = (Text(output),) if output else ()
    return ToolSettled(call.step, call.call.id, Unknown(parts), call.started)
