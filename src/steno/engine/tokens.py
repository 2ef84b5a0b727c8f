"""How long a request is, in tokens: the provider's own count as far as it goes, an estimate for the
rest."""

from collections.abc import Iterable, Sequence

from steno.journal.facts import ContextSet
from steno.journal.history import (
    Answered,
    Closed,
    History,
    Noted,
    Said,
    Settled,
    Standing,
    Summarised,
    Weighed,
    kind_of,
)
from steno.journal.parts import (
    Content,
    File,
    Image,
    Opaque,
    Reasoning,
    Redacted,
    Refused,
    Text,
    ToolCall,
    outcome_parts,
)

PER_ENTRY = 6
"""What a message costs beside its words."""
PER_IMAGE = 1_200
CHARS_PER_TOKEN = 4
OUTPUT_CHARS_MAX = 10_000
"""What a model is told of a tool's output that is too long to be told whole."""


def estimate(text: str) -> int:
    """About a token for four Latin letters, and one for each character of scripts that have
    many."""
    beyond = 0 if text.isascii() else sum(1 for letter in text if letter > "\u024f")
    return (len(text) - beyond + CHARS_PER_TOKEN - 1) // CHARS_PER_TOKEN + beyond


def of_entry(entry: Standing) -> int:
    match entry:
        case Weighed():
            return entry.tokens
        case Summarised():
            return PER_ENTRY + estimate(entry.summary)
        case Closed():
            return PER_ENTRY + estimate(entry.cause)
        case Noted():
            return PER_ENTRY + estimate(entry.text)
        case Settled():
            reason = (
                entry.outcome.reason if isinstance(entry.outcome, Refused) else ""
            )
            return (
                PER_ENTRY
                + estimate(reason)
                + sum(map(_of_output, outcome_parts(entry.outcome)))
            )
        case Said():
            beside = estimate(entry.author) + estimate(entry.quoted)
            return PER_ENTRY + beside + sum(map(_of_part, entry.parts))
        case Answered():
            return PER_ENTRY + sum(map(_of_part, entry.parts))


def of_entries(entries: Iterable[Standing]) -> int:
    return sum(map(of_entry, entries))


def of_request(history: History) -> int:
    """The next request, about. What the provider has counted is not estimated again."""
    entries = history.outline()
    since = _counted(history, entries)
    if since is None or history.counted is None:
        return of_entries(entries) + of_context(history.context)
    return history.counted[1] + of_entries(entries[since:])


def per_estimated(history: History) -> float:
    """How many tokens the provider counts where we estimate one; 1 where it has counted nothing, or
    fewer than we."""
    entries = history.outline()
    since = _counted(history, entries)
    if since is None or history.counted is None:
        return 1.0
    estimated = of_entries(entries[:since]) + of_context(history.context)
    return max(history.counted[1] / max(estimated, 1), 1.0)


def _counted(history: History, entries: Sequence[Standing]) -> int | None:
    """Where the entries begin that the provider has not counted; None if it has counted none."""
    if history.counted is None:
        return None
    for i in reversed(range(len(entries))):
        if entries[i].seq == history.counted[0] and kind_of(entries[i]) is Answered:
            return i + 1
    return None


def of_context(context: ContextSet | None) -> int:
    """The system prompt, the memories, the goal and the tools."""
    if context is None:
        return 0
    tools = sum(
        estimate(tool.name + tool.description + tool.schema) for tool in context.tools
    )
    return tools + sum(
        map(
            estimate,
            (context.system, context.instructions, context.goal, *context.memories),
        )
    )


def _of_output(part: Content) -> int:
    tokens = _of_part(part)
    return (
        min(tokens, OUTPUT_CHARS_MAX // CHARS_PER_TOKEN)
        if isinstance(part, File)
        else tokens
    )


def _of_part(part: Content) -> int:
    match part:
        case ToolCall():
            return PER_ENTRY + estimate(part.name) + estimate(part.arguments)
        case Image():
            return PER_IMAGE
        case File():
            return part.size // CHARS_PER_TOKEN
        case Redacted():
            return 1
        case Opaque():
            return estimate(part.json)
        case Text() | Reasoning():
            return estimate(part.text)
