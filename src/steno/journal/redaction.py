"""What is left of a fact when its text is taken away: its place, its kind and how long it was."""

from msgspec.structs import replace

from steno.journal.facts import (
    AnyFact,
    Compacted,
    ContextSet,
    InputAdmitted,
    SessionRenamed,
    StepLost,
    StepSealed,
    ToolSettled,
    TurnEnded,
)
from steno.journal.parts import GONE, Content, Outcome, Reasoning, Redacted, Refused, Text, ToolCall


def redact(fact: AnyFact) -> AnyFact | None:
    """The fact without its text; None if it holds no text that a person, a model or a tool wrote."""
    match fact:
        case InputAdmitted():
            return replace(fact, parts=_without(fact.parts))
        case StepSealed():
            shown = None if fact.shown is None else _without(fact.shown)
            return replace(fact, parts=_without(fact.parts), shown=shown)
        case ToolSettled():
            return replace(fact, outcome=_settled_without(fact.outcome))
        case SessionRenamed():
            return replace(fact, title=GONE)
        case Compacted():
            return replace(fact, summary=GONE)
        case TurnEnded() | StepLost():
            return replace(fact, detail=GONE) if fact.detail else None
        case ContextSet():
            return replace(fact, system=GONE, memories=())
        case _:
            return None


def _without(parts: tuple[Content, ...]) -> tuple[Content, ...]:
    return tuple(_gone(part) for part in parts)


def _gone(part: Content) -> Content:
    """A tool call keeps its id and name: its outcome still has to be paired with it."""
    match part:
        case Text() | Reasoning():
            return Redacted(len(part.text))
        case ToolCall():
            return ToolCall(part.id, part.name, "{}")
        case Redacted():
            return part
        case _:
            return Redacted(part.size)


def _settled_without(outcome: Outcome) -> Outcome:
    match outcome:
        case Refused():
            return Refused(GONE)
        case _:
            return replace(outcome, parts=_without(outcome.parts))
