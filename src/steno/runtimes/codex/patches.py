"""Changes of files as codex's model writes them down, before codex tells of them. Pure.

    *** Begin Patch
    *** Add File: PATH         lines with + follow
    *** Delete File: PATH
    *** Update File: PATH      *** Move to: PATH and changed lines follow
    *** End Patch

A patch comes alone, to codex's own tool for it; or as what is given to a command `apply_patch`,
which codex takes for the same. Whoever reads it otherwise than codex would have the wrong files
approved: what is not plain is no patch here. So codex may take for a patch what is none here, and
the other way round: what a shell would expand in a patch, it would run if codex took it for a
command.
"""

import posixpath
import re

from steno.journal.parts import ToolCall
from steno.runtimes.codex.hooks import Held
from steno.runtimes.codex.wording import patch_call

_COMMAND = re.compile(
    r"""\s*(?:cd\s+(?:'([^']*)'|"([^"$`\\]*)"|([\w./~@+-]+))\s*&&\s*)?apply_?patch\s*<<\s*(['"]?)(\w+)\4[ \t]*\n(.*)""",
    re.DOTALL,
)
_EXPANDED = re.compile(r"[$`\\]")
_GIVEN_SOMETHING = re.compile(r"\bapply_?patch[\s\\]*\d*<<")
_ASSIGNS = re.compile(r"(?:^|\s)\w+=")
_HEADERS = {"*** Add File: ": "add", "*** Delete File: ": "delete", "*** Update File: ": "update"}
_MOVE = "*** Move to: "
_BLANK_HERE_ALONE = re.compile("[\x1c-\x1f]")
"""Python takes these for blanks, and codex takes them for part of a name."""


def is_patch(held: Held) -> bool:
    """Whether codex takes a call for a change of files."""
    given = _given(held.command() or "")
    return held.patch() is not None or (given is not None and _read(given[1], "") is not None)


def may_be_patch(held: Held) -> bool:
    """Whether codex could take a call for a change of files, though it may be none that can be read
    here."""
    if is_patch(held):
        return True
    command = held.command() or ""
    if (found := _GIVEN_SOMETHING.search(command)) is None:
        return False
    before = command[: found.start()].rstrip()
    return not before or before.endswith(("&&", "\\")) or _ASSIGNS.search(before) is not None


def changes_held(held: Held, within: str | None) -> ToolCall | None:
    """A held call as the change of files that it is. None if it is none that can be read, or if
    nobody knows in which folder a command would make it: `within` is the one that was asked for
    with it, "" for the thread's own."""
    patch, folder = held.patch(), held.folder
    if patch is None:
        given = _given(held.command() or "")
        if given is None or within is None:
            return None
        to, patch = given
        folder = posixpath.join(folder, within, to)
    changes = _read(patch, folder)
    return None if changes is None else patch_call(held.call, changes)


def _given(command: str) -> tuple[str, str] | None:
    """The folder that a command goes to first, and the patch that it gives to `apply_patch`, if
    that is all it does. Codex takes the end of it also where more stands before or after the
    mark."""
    if (found := _COMMAND.fullmatch(command)) is None:
        return None
    *to, quote, mark, text = found.groups()
    lines = text.split("\n")
    end = next((at for at, line in enumerate(lines) if line.lstrip().startswith(mark)), None)
    if end is None or lines[end] != mark or any(line.strip() for line in lines[end + 1 :]):
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
        if (header is not None or head.startswith(_MOVE)) and _BLANK_HERE_ALONE.search(
            line
        ) is not None:
            return None
        if header is not None:
            changes.append(_change(folder, head.removeprefix(header), _HEADERS[header]))
        elif updates and head.startswith(_MOVE) and not changes[-1]["diff"]:
            changes.insert(-1, _change(folder, head.removeprefix(_MOVE), "move"))
        elif not changes:
            return None
        else:
            changes[-1]["diff"] += (
                f"{line.removeprefix('+') if changes[-1]['kind'] == 'add' else line}\n"
            )
    return changes or None


def _change(folder: str, path: str, kind: str) -> dict[str, str]:
    return {"path": posixpath.normpath(posixpath.join(folder, path)), "kind": kind, "diff": ""}
