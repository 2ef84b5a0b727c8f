"""What a call of codex would do: which files a patch changes, and whether a command is to leave
codex's sandbox. Pure.

**Patches.** Codex's model writes a change of files down like this:

    *** Begin Patch
    *** Add File: PATH         lines with + follow
    *** Delete File: PATH
    *** Update File: PATH      *** Move to: PATH and changed lines follow
    *** End Patch

It comes alone, to codex's own tool for it; or as the input of a command `apply_patch`, which codex
takes for the same. If steno read a patch differently from codex, the rules would be applied to the
wrong files. So what is not plain is no patch here. Codex may then take for a patch what steno does
not, and the other way round: what a shell would expand in a patch, it would run if codex took it
for a command.

**Leaving.** Codex asks in the same words about a command that it takes for dangerous, one that its
own rules files want to be asked about, and one that is to leave the sandbox. Only the arguments of
the call tell them apart:

    exec_command {cmd: "rm -rf x"}                              stays: the yes at the gate counts
    exec_command {cmd: "ls", sandbox_permissions: "require_…"}  leaves: a question of its own
    a call that codex's file does not have                      may leave: a question of its own
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from steno.journal.parts import ToolCall
from steno.runtimes.codex.protocol import CommandApproval, FileApproval, WaitingCall
from steno.runtimes.codex.translate import patch_call

# --- patches --------------------------------------------------------------------------------------

_COMMAND = re.compile(
    r"""\s*(?:cd\s+(?:'([^']*)'|"([^"$`\\]*)"|([\w./~@+-]+))\s*&&\s*)?"""
    r"""apply_?patch\s*<<\s*(['"]?)(\w+)\4[ \t]*\n(.*)""",
    re.DOTALL,
)
_EXPANDED = re.compile(r"[$`\\]")
_GIVEN_SOMETHING = re.compile(r"\bapply_?patch[\s\\]*\d*<<")
_ASSIGNS = re.compile(r"(?:^|\s)\w+=")
_HEADERS = {
    "*** Add File: ": "add",
    "*** Delete File: ": "delete",
    "*** Update File: ": "update",
}
_MOVE = "*** Move to: "
_BLANK_HERE_ALONE = re.compile("[\x1c-\x1f]")
"""Python takes these for blanks, and codex takes them for part of a name."""


def is_patch(waiting: WaitingCall) -> bool:
    """True if codex takes a call for a change of files."""
    given = _given(waiting.command() or "")
    return waiting.patch() is not None or (
        given is not None and _read(given[1], "") is not None
    )


def may_be_patch(waiting: WaitingCall) -> bool:
    """True if codex could take a call for a change of files, even one that steno cannot read."""
    if is_patch(waiting):
        return True
    command = waiting.command() or ""
    if (found := _GIVEN_SOMETHING.search(command)) is None:
        return False
    before = command[: found.start()].rstrip()
    return (
        not before
        or before.endswith(("&&", "\\"))
        or _ASSIGNS.search(before) is not None
    )


def as_changes(waiting: WaitingCall, within: str | None) -> ToolCall | None:
    """A call at the gate as the change of files that it is. None if it is none that can be read, or
    if the folder of its command is not known: `within` is the one that the model asked for, "" for
    the thread's own."""
    patch, folder = waiting.patch(), waiting.folder
    if patch is None:
        given = _given(waiting.command() or "")
        if given is None or within is None:
            return None
        to, patch = given
        folder = posixpath.join(folder, within, to)
    changes = _read(patch, folder)
    return None if changes is None else patch_call(waiting.call, changes)


def _given(command: str) -> tuple[str, str] | None:
    """The folder that a command goes to first, and the patch that it gives to `apply_patch`, if
    that is all it does. Codex ends the patch at the mark even where more stands around it."""
    if (found := _COMMAND.fullmatch(command)) is None:
        return None
    *to, quote, mark, text = found.groups()
    lines = text.split("\n")
    end = next(
        (at for at, line in enumerate(lines) if line.lstrip().startswith(mark)), None
    )
    if (
        end is None
        or lines[end] != mark
        or any(line.strip() for line in lines[end + 1 :])
    ):
        return None
    if not quote and _EXPANDED.search(text) is not None:
        return None
    return next(filter(None, to), ""), "\n".join(lines[:end])


def _read(patch: str, folder: str) -> list[dict[str, str]] | None:
    """The files of a patch. Codex finds a header also where blanks stand before it, but not among
    changed lines."""
    lines = patch.strip().split("\n")
    if (lines[0].strip(), lines[-1].strip()) != ("*** Begin Patch", "*** End Patch"):
        return None
    changes: list[dict[str, str]] = []
    for line in lines[1:-1]:
        updates = bool(changes) and changes[-1]["kind"] == "update"
        head = line.rstrip() if updates else line.strip()
        header = next((one for one in _HEADERS if head.startswith(one)), None)
        names_file = header is not None or head.startswith(_MOVE)
        if names_file and _BLANK_HERE_ALONE.search(line) is not None:
            return None
        if header is not None:
            changes.append(
                _change(folder, head.removeprefix(header), _HEADERS[header])
            )
        elif updates and head.startswith(_MOVE) and not changes[-1]["diff"]:
            changes.insert(-1, _change(folder, head.removeprefix(_MOVE), "move"))
        elif not changes:
            return None
        else:
            added = line.removeprefix("+") if changes[-1]["kind"] == "add" else line
            changes[-1]["diff"] += f"{added}\n"
    return changes or None


def _change(folder: str, path: str, kind: str) -> dict[str, str]:
    return {
        "path": posixpath.normpath(posixpath.join(folder, path)),
        "kind": kind,
        "diff": "",
    }


# --- leaving the sandbox --------------------------------------------------------------------------

REASON_CHARS_MAX = 2_000
_UNEXPLAINED = "codex asks once more and does not say why: it may leave the sandbox"
_OUTSIDE = "it is to run outside the sandbox"
_PERHAPS = "it may leave the sandbox"
_INSIDE = "it stays in the sandbox"


class Unrun(Enum):
    """What came of a call that codex asks about again. The value is what people and models read."""

    MORE_RIGHTS = "not run: codex asks for more rights first"
    ONCE_MORE = "not run: codex asks once more first"
    STOPPED = "stopped by the sandbox: codex asks to do it outside"


def is_confined(sandbox: str) -> bool:
    """True if there is a sandbox at all."""
    return sandbox != "danger-full-access"


def leaves(calls: Sequence[Mapping[str, Any]]) -> bool | None:
    """True if a command that was called with one of these arguments may want more than the sandbox
    gives it. None if its arguments are not known."""
    given = [
        value
        for arguments in calls
        for name, value in arguments.items()
        if "permission" in name
    ]
    return (
        any(value not in (None, "use_default") for value in given) if calls else None
    )


def unrun(asked: CommandApproval | FileApproval, leaves: bool | None) -> Unrun:
    """What came of a call that was let through the gate. Codex gives a reason for a change of files
    only if it has begun with it."""
    if isinstance(asked, FileApproval):
        return Unrun.MORE_RIGHTS if asked.reason is None else Unrun.STOPPED
    return Unrun.MORE_RIGHTS if leaves else Unrun.ONCE_MORE


def why(
    asked: CommandApproval | FileApproval, leaves: bool | None, confined: bool
) -> str:
    """What a person is told with the question."""
    reason = (asked.reason or "")[:REASON_CHARS_MAX]
    if not confined:
        return reason
    if isinstance(asked, FileApproval):
        return reason or _UNEXPLAINED
    if leaves is None and not reason:
        return _UNEXPLAINED
    where = _PERHAPS if leaves is None else _OUTSIDE if leaves else _INSIDE
    return f"{reason}; {where}" if reason else where


def covers_leaving(
    asked: CommandApproval | FileApproval, leaves: bool | None, confined: bool
) -> bool:
    """True if a yes to this question covers running outside the sandbox. Codex asks about a change
    of files only where it is to leave; of a command that may leave, the question says so."""
    return confined and (isinstance(asked, FileApproval) or leaves is not False)
