"""The fixed sentences that stand in a request where no person and no model spoke.

They are derived from facts and never stored. A word changed here changes the bytes of every later
request.
"""

import json
from typing import assert_never

from steno.journal.facts import StepEnding
from steno.journal.history import Closed, Noted, Said
from steno.journal.parts import (
    GONE,
    Failed,
    File,
    Image,
    Interrupted,
    Opaque,
    Outcome,
    Refused,
    Returned,
    Unknown,
)

REDACTED = GONE
EMPTY_MESSAGE = "[empty message]"
NO_OUTPUT = "[no output]"
EARLIER = "[What was said before this is not shown.]"
GO_ON = "[Note from the runtime, not from the user] Go on."
SUMMARY = (
    "[Summary of the earlier conversation, written by the runtime. "
    "The original is not shown.]"
)
NO_OUTCOME = "[No outcome was recorded for this call.]"
CALL_FAILED = "[The tool reports an error.]"
CALL_INTERRUPTED = "[Stopped while it ran. It may have had effects.]"
CALL_UNKNOWN = (
    "[The outcome of this call is unknown: its process ended first. "
    "It may or may not have had effects, and it was not run again.]"
)


def ending(ended: StepEnding) -> str:
    """What follows the text of an answer that is not whole; empty for one that is."""
    match ended:
        case "complete":
            return ""
        case "length":
            return "[This answer was cut off at its length limit.]"
        case "incomplete":
            return "[This answer broke off before it was finished.]"
        case "interrupted":
            return "[This answer was stopped before it was finished.]"
        case unreachable:
            assert_never(unreachable)


def beside(said: Said) -> str:
    """What stands before a message that came from a chat: who wrote it, and what it refers to.
    Both are words of others, so they are told as data that cannot end its own frame."""
    lines = [f"[Message from {as_data(said.author, 200)}]"] if said.author else []
    if said.quoted:
        lines.append(f"[It refers to: {as_data(said.quoted, 2_000)}]")
    lines += [
        f"[It came with {as_data(one.name, 200)}, not fetched]" for one in said.awaits
    ]
    return "".join(f"{line}\n" for line in lines)


def as_data(text: str, chars_max: int) -> str:
    """Text of others as one JSON string: no line of its own, no control character, and nothing
    that a chat template reads as a mark of its own."""
    kept = "".join(
        one if one.isprintable() or one == "\n" else "\ufffd" for one in text
    )
    cut = kept if len(kept) <= chars_max else f"{kept[:chars_max]}…"
    escaped = json.dumps(cut, ensure_ascii=False)
    return (
        escaped.replace("<|", "<\u200b|")
        .replace("|>", "|\u200b>")
        .replace("[", "(")
        .replace("]", ")")
    )


def noted(note: Noted) -> str:
    """Something that happened in a chat, told at the next turn."""
    text = as_data(note.text, 4_000)
    match note.what:
        case "edited":
            return f"[An earlier message was edited in the chat. It says there now: {text}]"
        case "deleted":
            return "[An earlier message was deleted in the chat by its author.]"
        case "posted":
            return f"[Posted in the chat by a job since, not by you: {text}]"
        case unreachable:
            assert_never(unreachable)


def closing(closed: Closed) -> str:
    if closed.outcome == "interrupted" and closed.cause == "user":
        return "[This turn was stopped by the user.]"
    ended = "failed" if closed.outcome == "failed" else "was interrupted"
    return (
        f"[This turn {ended}: {closed.cause}.]"
        if closed.cause
        else f"[This turn {ended}.]"
    )


def verdict(outcome: Outcome) -> str:
    """What is said of an outcome beside the output of the tool; empty if that speaks for itself."""
    match outcome:
        case Returned():
            return ""
        case Failed():
            return CALL_FAILED
        case Refused():
            reason = outcome.reason
            return reason if reason.startswith("not run") else f"not run: {reason}"
        case Interrupted():
            return CALL_INTERRUPTED
        case Unknown():
            return CALL_UNKNOWN
        case unreachable:
            assert_never(unreachable)


def stub(part: Image | File) -> str:
    """Stands for bytes that are not shown."""
    kind = "image" if isinstance(part, Image) else "file"
    name = f" {part.name}" if part.name else ""
    return f"[{kind}{name}, {part.media_type}, {part.size} bytes, not shown]"


def opaque(part: Opaque) -> str:
    """Stands for what another runtime said there and only that one understands."""
    return f"[{part.runtime} {part.kind}, not shown]"


def file_text(part: File, text: str) -> str:
    return f"[file {part.name or part.media_type}]\n{text}\n[end of file]"
