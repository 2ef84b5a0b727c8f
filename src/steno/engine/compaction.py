"""What a summary would stand for, and how the summariser is asked for it. Pure.

Facts are summarised, never an earlier summary as if it had been said: that is given to the
summariser apart, as what it is. Notes that were for one request only are in no fact, so they cannot
get here.
"""

from collections.abc import Sequence
from typing import assert_never

from msgspec import Struct

from steno.engine import tokens
from steno.engine.request import Request
from steno.journal.history import (
    Answered,
    Closed,
    Entry,
    Noted,
    Said,
    Settled,
    Standing,
    Summarised,
    Weighed,
)
from steno.journal.parts import (
    Content,
    Failed,
    File,
    Image,
    Interrupted,
    Opaque,
    Outcome,
    Reasoning,
    Redacted,
    Refused,
    Returned,
    Seq,
    Text,
    ToolCall,
    Unknown,
    outcome_parts,
)

CALLS_MAX = 8
"""Calls to the summariser for one compaction."""
SUMMARY_CHARS_MAX = 16_000
_ENTRY_CHARS = (8_000, 2_000, 500, 120)
_MARK_CHARS = 100
"""Room for a line that says how many messages are left out."""

SYSTEM = """\
You keep the memory of a long conversation between a user and an assistant that can use tools. \
You are given what was said and done, oldest first, and perhaps the summary of what came before \
it. Write the summary that replaces both, for the assistant to go on from. Keep: what the user \
wants and has decided, facts, names, numbers, paths and identifiers exactly as they were given, \
what was done and what came of it, what is still open. Leave out greetings and what no longer \
matters. Write plain text in the language of the conversation. Answer with the summary alone."""


class Plan(Struct, frozen=True):
    """A summary would stand for `entries`, which lie up to the seq `upto`; `before` is the summary
    they follow."""

    upto: Seq
    entries: tuple[Standing, ...]
    before: str = ""


class LeftOut(Struct, frozen=True):
    """Stands where messages are not told, because there would be too many."""

    messages: int


class Portion(Struct, frozen=True):
    """What the summariser is told in one call, each entry in so many characters at most."""

    entries: tuple[Standing | LeftOut, ...]
    entry_chars: int


def plan(standing: Sequence[tuple[Seq, Standing]], keep_tokens: int) -> Plan | None:
    """Summarise all but the latest entries, as many as fit into `keep_tokens`; None if that leaves
    nothing to do.

    `standing` is what the next request says, each with its place. A call and its outcome have one
    place, so they are never separated. The latest thing the user said stays in the history whatever
    the plan says.
    """
    kept, first = 0, len(standing)
    for i in reversed(range(len(standing))):
        kept += tokens.of_entry(standing[i][1])
        if kept > keep_tokens:
            break
        if i == 0 or standing[i - 1][0] < standing[i][0]:
            first = i
    if first == len(standing):
        first = _last_place(standing)
    gone = standing[:first]
    before = gone[0][1].summary if gone and isinstance(gone[0][1], Summarised) else ""
    entries = tuple(entry for _, entry in gone if not isinstance(entry, Summarised))
    return Plan(gone[-1][0], entries, before) if entries else None


def _last_place(standing: Sequence[tuple[Seq, Standing]]) -> int:
    """Where the last place begins: that much stays even if it is too long by itself."""
    if not standing:
        return 0
    return next(i for i, (at, _) in enumerate(standing) if at == standing[-1][0])


def portions(plan: Plan, chars_max: int) -> list[Portion]:
    """The plan's entries in portions for the summariser, each of about that many characters, at
    most `CALLS_MAX` of them. Decided from how long entries are, so their text need not be here.

    Where it would be more, long entries are shortened, and say so; in the worst case the middle is
    left out, and says so.
    """
    told = [told_chars(entry) for entry in plan.entries]
    entry_chars, lengths = _ENTRY_CHARS[0], told
    for entry_chars in _ENTRY_CHARS:
        lengths = [_shortened(chars, entry_chars) for chars in told]
        if sum(lengths) + len(lengths) <= chars_max * CALLS_MAX:
            break
    i, j = _ends(lengths, chars_max * CALLS_MAX)
    entries: list[Standing | LeftOut] = [*plan.entries]
    if i < j:
        entries[i:j], lengths[i:j] = [LeftOut(j - i)], [_MARK_CHARS]
    return [
        Portion(tuple(some), entry_chars)
        for some in _packed(entries, lengths, chars_max)
    ]


def tell(entry: Entry | LeftOut, chars_max: int) -> str:
    """A line for the summariser."""
    if isinstance(entry, LeftOut):
        return _left_out(entry.messages)
    return shorten(_told(entry), chars_max)


def told_chars(entry: Standing) -> int:
    """How long a line an entry is."""
    return entry.chars if isinstance(entry, Weighed) else len(_told(entry))


def weigh(entry: Entry) -> tuple[int, int]:
    """What is kept of an entry whose text is let go."""
    return tokens.of_entry(entry), told_chars(entry)


def ask(model: str, portion: str, before: str) -> Request:
    """The request to the summariser for one portion, given the summary of what came before it."""
    earlier = f"Summary of what came before:\n{before}\n\n" if before else ""
    text = f"{earlier}What was said and done:\n{portion}\n\nWrite the summary now."
    return Request(model, SYSTEM, (), (Said(0, (Text(text),)),))


def _packed(
    entries: Sequence[Standing | LeftOut], lengths: Sequence[int], chars_max: int
) -> list[list[Standing | LeftOut]]:
    packed: list[list[Standing | LeftOut]] = [[]]
    length = 0
    for entry, chars in zip(entries, lengths, strict=True):
        if packed[-1] and length + chars > chars_max and len(packed) < CALLS_MAX:
            packed.append([])
            length = 0
        packed[-1].append(entry)
        length += chars + 1
    return packed


def without_middle(lines: list[str], chars_max: int) -> list[str]:
    i, j = _ends([len(line) for line in lines], chars_max)
    return lines if i == j else [*lines[:i], _left_out(j - i), *lines[j:]]


def _ends(lengths: Sequence[int], chars_max: int) -> tuple[int, int]:
    """Of lines of these lengths, which are left out so that the rest fits: from the first number to
    before the second. As many are kept of the beginning as of the end."""
    if sum(lengths) + len(lengths) <= chars_max:
        return len(lengths), len(lengths)
    room, i, j = chars_max - _MARK_CHARS, 0, len(lengths)
    while i < j:
        from_start = i <= len(lengths) - j
        room -= lengths[i if from_start else j - 1] + 1
        if room < 0:
            break
        i, j = (i + 1, j) if from_start else (i, j - 1)
    return i, j


def _left_out(messages: int) -> str:
    return f"[{messages} messages are left out here]"


def _shortened(chars: int, chars_max: int) -> int:
    """How long a line of so many characters is when it is shortened."""
    if chars <= chars_max:
        return chars
    left = chars - 2 * (chars_max // 2)
    return chars - left + len(_cut(left))


def shorten(line: str, chars_max: int) -> str:
    if len(line) <= chars_max:
        return line
    half = chars_max // 2
    return f"{line[:half]}{_cut(len(line) - 2 * half)}{line[-half:]}"


def _cut(chars: int) -> str:
    return f" [{chars} characters are left out] "


def _told(entry: Entry) -> str:
    match entry:
        case Said():
            who = f"user {entry.author}" if entry.author else "user"
            return f"{who}: {_text(entry.parts)}"
        case Answered():
            end = "" if entry.ended == "complete" else " [broke off]"
            return f"assistant: {_text(entry.parts)}{end}"
        case Settled():
            return f"outcome of {entry.call}: {_outcome(entry.outcome)}"
        case Closed():
            return f"[the turn ended as {entry.outcome}: {entry.cause}]"
        case Noted():
            return f"[{entry.what} in the chat: {entry.text}]"
        case Summarised():
            return ""
        case unreachable:
            assert_never(unreachable)


def _outcome(outcome: Outcome) -> str:
    said = _text(outcome_parts(outcome))
    match outcome:
        case Returned():
            return said
        case Failed():
            return f"failed: {said}"
        case Refused():
            return f"not run: {outcome.reason}"
        case Interrupted():
            return f"stopped while it ran: {said}"
        case Unknown():
            return f"unknown, its process ended first: {said}"
        case unreachable:
            assert_never(unreachable)


def _text(parts: tuple[Content, ...]) -> str:
    return " ".join(text for part in parts if (text := _part(part)))


def _part(part: Content) -> str:
    match part:
        case Text():
            return part.text
        case ToolCall():
            return f"[calls {part.name} as {part.id}: {part.arguments}]"
        case Image() | File():
            return f"[{part.name or part.media_type}]"
        case Redacted():
            return "[redacted]"
        case Opaque():
            return f"[{part.runtime} item {part.kind}]"
        case Reasoning():
            return ""
        case unreachable:
            assert_never(unreachable)
