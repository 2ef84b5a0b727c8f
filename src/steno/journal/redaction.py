"""What is left of a fact when its text is taken away: its place, its kind and how long it was."""

from collections.abc import Callable

from msgspec.structs import replace

from steno.journal.facts import (
    AnyFact,
    ApprovalAsked,
    ApprovalDecided,
    Compacted,
    ContextSet,
    Distilled,
    GoalSet,
    HelperEnded,
    InputAdmitted,
    ItemAt,
    OutputLate,
    PlanUpdated,
    RuleSet,
    SessionRenamed,
    StepLost,
    StepSealed,
    ToolSettled,
    TurnEnded,
)
from steno.journal.parts import (
    GONE,
    Content,
    Opaque,
    Outcome,
    Reasoning,
    Redacted,
    Refused,
    Text,
    ToolCall,
)


def redact(fact: AnyFact) -> AnyFact | None:
    """The fact without its text; None if it holds no text that a person, a model or a tool
    wrote."""
    match fact:
        case InputAdmitted():
            return replace(fact, parts=_without(fact.parts))
        case StepSealed():
            shown = None if fact.shown is None else _without(fact.shown)
            return replace(fact, parts=_without(fact.parts), shown=shown)
        case ToolSettled():
            shown = None if fact.shown is None else _without(fact.shown)
            return replace(fact, outcome=_settled_without(fact.outcome), shown=shown)
        case OutputLate():
            return replace(fact, text=GONE)
        case PlanUpdated():
            return replace(
                fact, steps=tuple(replace(step, step=GONE) for step in fact.steps), explanation=GONE
            )
        case SessionRenamed():
            return replace(fact, title=GONE)
        case Compacted():
            return replace(fact, summary=GONE)
        case TurnEnded() | StepLost() | HelperEnded():
            return replace(fact, detail=GONE) if fact.detail else None
        case ApprovalAsked() | ApprovalDecided():
            return replace(fact, reason=GONE) if fact.reason else None
        case ContextSet():
            return replace(fact, system=GONE, memories=(), recalled=(), goal="")
        case Distilled():
            return replace(
                fact,
                title=GONE if fact.title else "",
                summary=GONE if fact.summary else "",
                items=tuple(replace(item, text=GONE) for item in fact.items),
            )
        case GoalSet():
            return replace(fact, goal=GONE)
        case RuleSet():
            return replace(fact, rule=GONE)
        case _:
            return None


def forget(context: ContextSet, gone: Callable[[ItemAt], bool]) -> ContextSet:
    """A context without the memories whose source is gone."""
    kept = [i for i, at in enumerate(context.recalled) if not gone(at)]
    return replace(
        context,
        memories=tuple(context.memories[i] for i in kept),
        recalled=tuple(context.recalled[i] for i in kept),
    )


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
        case Opaque():
            return Redacted(len(part.json))
        case _:
            return Redacted(part.size)


def _settled_without(outcome: Outcome) -> Outcome:
    match outcome:
        case Refused():
            return Refused(GONE)
        case _:
            return replace(outcome, parts=_without(outcome.parts))
