"""What is left of a fact when its text is taken away: its place, its kind and how long it was.

Nothing that points at the fact breaks: a call keeps its id and name, an input its key, an approval
its decision. A sequence of facts, and what a redaction of the answer at 5 leaves of them:

    3 input.admitted "what is the PIN?" · 4 turn.started · 5 step.started
    6 step.sealed (5, "It is 1234", call c1 shell {"command": "echo 1234"})
                       becomes  6 step.sealed (5, redacted 10, call c1 shell {})
    7 tool.started (5, c1) · 8 tool.settled (5, c1, "1234")
                       is another message: it is redacted by itself, at 7
    9 message.redacted (5)      says that it was done; a summary of 5 no longer stands in a history

A decision never reads text that can be redacted: what a later process must know is a field that
stays.
"""

from collections.abc import Callable
from typing import assert_never

from msgspec.structs import replace

from steno.journal import facts as f
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
from steno.journal.readers import masked


def redact(fact: f.AnyFact) -> f.AnyFact | None:
    """The fact without its text; None if it holds no text that a person, a model or a tool
    wrote."""
    match fact:
        case f.InputAdmitted():
            instructions = fact.instructions and GONE
            quoted = fact.quoted and GONE
            emptied = replace(
                fact, parts=_without(fact.parts), quoted=quoted, labels=()
            )
            emptied = replace(emptied, awaits=())
            return replace(emptied, instructions=instructions)
        case f.MessageGiven():
            return replace(fact, parts=_without(fact.parts))
        case f.AttachmentSettled():
            return replace(fact, parts=_without(fact.parts)) if fact.parts else None
        case f.InputEdited() | f.Posted():
            return replace(fact, text=GONE)
        case f.StepSealed():
            shown = None if fact.shown is None else _without(fact.shown)
            return replace(fact, parts=_without(fact.parts), shown=shown)
        case f.ToolSettled():
            shown = None if fact.shown is None else _without(fact.shown)
            return replace(fact, outcome=_settled_without(fact.outcome), shown=shown)
        case f.OutputLate():
            return replace(fact, text=GONE)
        case f.PlanUpdated():
            return replace(
                fact,
                steps=tuple(replace(step, step=GONE) for step in fact.steps),
                explanation=GONE,
            )
        case f.SessionRenamed() | f.SessionTitled():
            return replace(fact, title=GONE)
        case f.Compacted():
            return replace(fact, summary=GONE)
        case f.TurnEnded() | f.StepLost() | f.HelperEnded():
            return replace(fact, detail=GONE) if fact.detail else None
        case f.ApprovalAsked() | f.ApprovalDecided():
            return replace(fact, reason=GONE) if fact.reason else None
        case f.ContextSet():
            return _unsaid(fact)
        case f.Distilled():
            return replace(
                fact,
                title=GONE if fact.title else "",
                summary=GONE if fact.summary else "",
                items=tuple(replace(item, text=GONE) for item in fact.items),
            )
        case f.GoalSet():
            return replace(fact, goal=GONE)
        case f.RuleSet():
            return replace(fact, rule=GONE)
        case f.ItemKept():
            return replace(fact, json=masked(fact) or f'"{GONE}"', payloads=())
        case f.FileKept():
            return replace(fact, file=_forgotten(fact.file))
        case f.FilesPutBack():
            return replace(fact, files=tuple(map(_forgotten, fact.files)))
        case f.ModeSet() | f.FolderSet() | f.FilesSettled() | f.ItemsWithdrawn():
            return None
        case (
            f.SessionStarted()
            | f.InputWithdrawn()
            | f.InputDeleted()
            | f.TurnStarted()
        ):
            return None
        case (
            f.InterruptAsked() | f.StepStarted() | f.UsageReported() | f.ToolStarted()
        ):
            return None
        case f.HelperStarted():
            return None
        case (
            f.MemoryRemoved() | f.MessageHidden() | f.MessageRedacted() | f.Rewound()
        ):
            return None
        case (
            f.RewindWithdrawn()
            | f.ThreadBound()
            | f.ThreadCompacted()
            | f.OutsideFact()
        ):
            return None
        case unreachable:
            assert_never(unreachable)


def _unsaid(context: f.ContextSet) -> f.ContextSet:
    return replace(
        context,
        system=GONE,
        memories=(),
        recalled=(),
        goal="",
        instructions="",
        guidance=GONE if context.guidance else "",
        surroundings=GONE if context.surroundings else "",
    )


def _forgotten(file: f.FileVersions) -> f.FileVersions:
    """What the file held is gone, so it cannot be put back any more."""
    return replace(file, before=None, after=None)


def forget(context: f.ContextSet, gone: Callable[[f.ItemAt], bool]) -> f.ContextSet:
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
