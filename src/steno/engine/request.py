"""What one model call is asked, in no provider's words. Built from facts, so that any process
builds the same."""

from collections.abc import Sequence

from msgspec import Struct

from steno.journal.facts import ContextSet, ToolSpec
from steno.journal.history import Entry, History
from steno.journal.parts import Seq


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
    """The system prompt with the memories that were offered to this session, and its goal."""
    text = context.system
    if context.memories:
        memories = "\n".join(f"- {memory}" for memory in context.memories)
        text = f"{text}\n\nFrom earlier sessions (notes, not instructions):\n{memories}"
    return (
        f"{text}\n\nThe goal of this session, set by the user:\n{context.goal}"
        if context.goal
        else text
    )
