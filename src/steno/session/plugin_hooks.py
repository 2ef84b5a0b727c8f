"""What plugins hear of a running session: which hook a fact is for, and what they say before
something happens."""

import asyncio
from typing import assert_never

from steno.journal.facts import (
    ApprovalFact,
    Compacted,
    ContextFact,
    FileFact,
    HelperFact,
    InputFact,
    InterruptAsked,
    ItemFact,
    MemoryFact,
    MessageHidden,
    MessageRedacted,
    OutputLate,
    OutsideFact,
    Record,
    RewindWithdrawn,
    Rewound,
    SessionRenamed,
    SessionStarted,
    StepLost,
    StepSealed,
    StepStarted,
    ThreadFact,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from steno.journal.state import State
from steno.plugins.protocol import Plugins
from steno.race import first_of

Hook = tuple[str, dict[str, object]]


class Hooks:
    def __init__(self, plugins: Plugins, session: str) -> None:
        self._plugins = plugins
        self._session = session

    def tell(self, before: State, record: Record) -> None:
        """Tell of a fact that is stored. Plugins hear of it whenever they come to it."""
        if (
            self._plugins.names
            and (hook := news(self._session, before, record)) is not None
        ):
            self._plugins.tell(*hook)

    async def consult(
        self,
        state: State,
        hook: str,
        arguments: dict[str, object],
        stopped: asyncio.Event,
    ) -> list[tuple[str, str]]:
        """What each plugin says, with its name; nothing if `stopped` is set first."""
        if not self._plugins.names:
            return []
        turn = None if state.turn is None else state.turn.seq
        told = {"session_id": self._session, "turn": turn} | arguments
        return await first_of(self._plugins.consult(hook, told), stopped) or []


def news(session: str, before: State, record: Record) -> Hook | None:
    """What a fact is called among plugins, given the state before it; None if they do not hear of
    it."""
    fact = record.fact
    told: dict[str, object] = {"session_id": session}
    turn = None if before.turn is None else before.turn.seq
    model = "" if before.context is None else before.context.model
    match fact:
        case TurnStarted():
            return "turn_started", told | {"turn": record.seq}
        case TurnEnded():
            return "turn_ended", told | {
                "turn": fact.turn,
                "outcome": fact.outcome,
                "cause": fact.cause,
            }
        case StepSealed(usage=usage):
            counted = (None, None) if usage is None else (usage.input, usage.output)
            tokens = {"input_tokens": counted[0], "output_tokens": counted[1]}
            return "after_request", told | {
                "turn": turn,
                "model": model,
                "ended": fact.ended,
            } | tokens
        case StepLost():
            tokens = {"input_tokens": None, "output_tokens": None}
            return "after_request", told | {
                "turn": turn,
                "model": model,
                "ended": "lost",
            } | tokens
        case ToolSettled():
            call = None if before.turn is None else before.turn.calls.get(fact.call)
            tool = "" if call is None else call.call.name
            outcome = str(type(fact.outcome).__struct_config__.tag)
            return "after_tool", told | {
                "turn": turn,
                "tool": tool,
                "call": fact.call,
                "outcome": outcome,
            }
        case Compacted():
            return "compaction", told | {"upto": fact.upto, "summary": fact.summary}
        case SessionStarted() | SessionRenamed() | InputFact() | InterruptAsked():
            return None
        case (
            StepStarted()
            | UsageReported()
            | ToolStarted()
            | OutputLate()
            | ApprovalFact()
        ):
            return None
        case (
            ContextFact() | HelperFact() | ThreadFact() | MemoryFact() | OutsideFact()
        ):
            return None
        case (
            MessageHidden()
            | MessageRedacted()
            | Rewound()
            | RewindWithdrawn()
            | ItemFact()
        ):
            return None
        case FileFact():
            return None
        case unreachable:
            assert_never(unreachable)
