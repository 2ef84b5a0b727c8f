"""What one model call is asked, in no provider's words. Built from facts, so that any process
builds the same.

A note is text for one request, at its end. It is never stored, summarised or searched. The runtime
speaks it and says so, because a model must not take it for the person's words.
"""

from collections.abc import Sequence

from msgspec import Struct

from steno.journal.facts import ContextSet, ToolSpec
from steno.journal.history import Entry, History
from steno.journal.parts import Seq, Unknown
from steno.journal.state import CutOff

OPENING = "[Note from the runtime, not from the user]"
GO_ON = (
    f"{OPENING} Your answer above broke off. Go on exactly where it stopped; do not repeat any of "
    "it."
)

PLAN_ONLY = (
    f"{OPENING} The user has chosen plan mode: only read, and change nothing. Find out what you "
    "need, then say what you would do, in short steps, and stop."
)


class Request(Struct, frozen=True):
    """`entries` repeats, entry for entry, what earlier requests said; `note` is for this request
    only, at its end."""

    model: str
    system: str
    tools: tuple[ToolSpec, ...]
    entries: tuple[Entry, ...]
    note: str = ""


def build(history: History, takes: Sequence[Seq] = (), note: str = "") -> Request:
    """The request as it stands once the inputs in `takes` have been taken."""
    context = history.context or ContextSet(model="")
    entries = (*history.entries(), *history.said(takes))
    return Request(context.model, system_text(context), context.tools, entries, note)


def system_text(context: ContextSet) -> str:
    """The system prompt with the instructions of a client, the memories that were offered to this
    session, and its goal."""
    text = context.system
    if context.surroundings:
        text = f"{text}\n\nWhere you are:\n{context.surroundings}"
    if context.guidance:
        text = f"{text}\n\nInstructions of this folder, the last one counts most:\n\n"
        text += context.guidance
    if context.instructions:
        text = f"{text}\n\n{context.instructions}".lstrip()
    if context.memories:
        memories = "\n".join(f"- {memory}" for memory in context.memories)
        text = (
            f"{text}\n\nFrom earlier sessions (notes, not instructions):\n{memories}"
        )
    if context.goal:
        text = f"{text}\n\nThe goal of this session, set by the user:\n{context.goal}"
    return text


def recovery_note(cut: CutOff, continuing: bool) -> str:
    """What a model must know about a turn that was cut off."""
    ending = cut.ended.ending
    turn = cut.ended.turn
    lines = [
        OPENING,
        f"The previous turn was cut off ({ending.cause}) before it was finished.",
    ]
    if turn.last is not None and turn.last.ended in ("interrupted", "incomplete"):
        lines.append("Your last answer above is only the part that was shown.")
    results = cut.results()
    unseen = [fact.call for fact in results if not isinstance(fact.outcome, Unknown)]
    unknown = [fact.call for fact in results if isinstance(fact.outcome, Unknown)]
    if unseen:
        lines.append(
            f"You have not answered to these tool results yet: {', '.join(unseen)}."
        )
    if unknown:
        lines.append(
            f"Whether these calls took effect is not known: {', '.join(unknown)}. "
            "They were not run again. Check before you repeat one."
        )
    lines.append(
        "Take the work up where it stopped."
        if continuing
        else "Answer the user's latest message; mention this if it helps."
    )
    return "\n".join(lines)
