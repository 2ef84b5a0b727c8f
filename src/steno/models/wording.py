"""The fixed sentences that stand in a request where no person and no model spoke.

They are derived from facts and never stored. A word changed here changes the bytes of every later
request.
"""

from typing import assert_never

from steno.journal.facts import StepEnding
from steno.journal.history import Closed
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
    "[Summary of the earlier conversation, written by the runtime. The original is not shown.]"
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


def closing(closed: Closed) -> str:
    if closed.outcome == "interrupted" and closed.cause == "user":
        return "[This turn was stopped by the user.]"
    ended = "failed" if closed.outcome == "failed" else "was interrupted"
    return f"[This turn {ended}: {closed.cause}.]" if closed.cause else f"[This turn {ended}.]"


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
