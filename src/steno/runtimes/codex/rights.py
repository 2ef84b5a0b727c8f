"""Whether a command that codex asks about is to leave its sandbox, and what a person is told of
that. Pure.

Codex asks in the same words about a command that it takes for dangerous, one that its own rules
files want to be asked about, and one that is to leave the sandbox. Only what its model called the
command with tells them apart.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from steno.runtimes.codex.protocol import CommandApproval, FileApproval

REASON_CHARS_MAX = 2_000
UNEXPLAINED = "codex asks once more and does not say why: it may leave the sandbox"
OUTSIDE = "it is to run outside the sandbox"
PERHAPS = "it may leave the sandbox"
INSIDE = "it stays in the sandbox"


class Unrun(Enum):
    """What came of a call that codex asks about again. The value is what people and models read."""

    MORE_RIGHTS = "not run: codex asks for more rights first"
    ONCE_MORE = "not run: codex asks once more first"
    STOPPED = "stopped by the sandbox: codex asks to do it outside"


def leaves(calls: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether a command that was called with one of these may want more than the sandbox gives it.
    None if nobody knows."""
    given = [
        value for arguments in calls for name, value in arguments.items() if "permission" in name
    ]
    return any(value not in (None, "use_default") for value in given) if calls else None


def unrun(asked: CommandApproval | FileApproval, leaves: bool | None) -> Unrun:
    """What came of a call that was let through the gate. Only where codex has begun with a change
    of files it gives a reason for it."""
    if isinstance(asked, FileApproval):
        return Unrun.MORE_RIGHTS if asked.reason is None else Unrun.STOPPED
    return Unrun.MORE_RIGHTS if leaves else Unrun.ONCE_MORE


def why(asked: CommandApproval | FileApproval, leaves: bool | None, confined: bool) -> str:
    """What a person is told with the question."""
    reason = (asked.reason or "")[:REASON_CHARS_MAX]
    if not confined:
        return reason
    if isinstance(asked, FileApproval):
        return reason or UNEXPLAINED
    if leaves is None and not reason:
        return UNEXPLAINED
    where = PERHAPS if leaves is None else OUTSIDE if leaves else INSIDE
    return f"{reason}; {where}" if reason else where


def covers_leaving(
    asked: CommandApproval | FileApproval, leaves: bool | None, confined: bool
) -> bool:
    """True if a yes to this question covers running outside the sandbox. Codex asks about a change
    of files only where it is to leave; of a command that may leave, the question says so."""
    return confined and (isinstance(asked, FileApproval) or leaves is not False)
