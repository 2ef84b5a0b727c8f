"""The tools `list_folder` and `find_files`: which files there are.

What must be true:

- Nothing outside the workspace is looked at, and steno's own folder is not. No symlink is followed.
- What git ignores, and folders of other programs (`.git`, `node_modules`), are left out of a
  search, as people would; a list shows what is there.
- A walk is bounded in files and time, and says what it left out.
"""

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Generic, Literal, TypeVar

from msgspec import Meta, Struct

from steno.journal.facts import ToolSpec
from steno.tools.builtin import FIND_SPEC, LIST_SPEC
from steno.tools.protocol import (
    BadArguments,
    Prepared,
    Reading,
    Unusable,
    Workspace,
    decode_arguments,
)
from steno.workspace.walk import Walk, as_expression

LISTED_MAX = 1_000


class ListArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: str = "."


class FindArguments(Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[str, Meta(min_length=1, max_length=500)]
    path: str = "."


Asked = TypeVar("Asked", bound=ListArguments | FindArguments)


class FolderTool(Generic[Asked]):
    approval: Literal["none", "ask"] = "none"

    def __init__(
        self,
        spec: ToolSpec,
        arguments: type[Asked],
        look: Callable[[Workspace, Asked], str],
        workspace: Workspace,
    ) -> None:
        self.spec = spec
        self._arguments = arguments
        self._look = look
        self._workspace = workspace

    async def prepare(self, arguments: str) -> Prepared:
        asked = decode_arguments(arguments, self._arguments)
        inside(self._workspace, asked.path)

        async def look() -> str:
            try:
                return await asyncio.to_thread(self._look, self._workspace, asked)
            except OSError as error:
                raise Unusable(f"{asked.path}: {error.strerror or error}") from error
            except ValueError as error:
                raise Unusable(str(error)) from error

        return Reading(look)


def list_folder(workspace: Workspace) -> FolderTool[ListArguments]:
    return FolderTool(LIST_SPEC, ListArguments, _listed, workspace)


def find_files(workspace: Workspace) -> FolderTool[FindArguments]:
    return FolderTool(FIND_SPEC, FindArguments, _found, workspace)


def inside(workspace: Workspace, path: str) -> Path:
    """A folder or a file of the workspace, with no symlink left in its path."""
    if "\0" in path:
        raise BadArguments("`path` contains a NUL character")
    root = Path(os.path.realpath(workspace.folder))
    meant = Path(os.path.realpath(root / path))
    if not meant.is_relative_to(root):
        raise BadArguments(f"`path` is outside the workspace: {path}")
    if any(meant.is_relative_to(hidden) for hidden in _hidden(workspace)):
        raise BadArguments(
            f"{path} is in the folder of steno itself, which no tool reads"
        )
    return meant


def _hidden(workspace: Workspace) -> list[Path]:
    return [Path(os.path.realpath(one)) for one in workspace.sandbox.hidden]


def _listed(workspace: Workspace, asked: ListArguments) -> str:
    folder = inside(workspace, asked.path)
    hidden = set(_hidden(workspace))
    folders, files = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if folder / entry.name in hidden:
                continue
            about = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(about.st_mode):
                folders.append(f"{entry.name}/")
            elif stat.S_ISLNK(about.st_mode):
                files.append(f"{entry.name} -> {Path(entry.path).readlink()}")
            else:
                files.append(f"{entry.name}  {about.st_size} bytes")
    rows = [*sorted(folders), *sorted(files)]
    if not rows:
        return "[the folder is empty]"
    return _cut(rows, LISTED_MAX, workspace.output_chars_max)


def _found(workspace: Workspace, asked: FindArguments) -> str:
    root, folder = (
        Path(os.path.realpath(workspace.folder)),
        inside(workspace, asked.path),
    )
    matches = as_expression(asked.pattern)
    walk = Walk(folder, _hidden(workspace))
    rows = []
    for file in walk.files():
        name = file.relative_to(folder).as_posix()
        if matches.fullmatch(name) or (
            "/" not in asked.pattern and matches.fullmatch(file.name)
        ):
            rows.append((file.lstat().st_mtime_ns, file.relative_to(root).as_posix()))
    rows.sort(key=lambda row: (-row[0], row[1]))
    if not rows:
        return "[no file matches]" + walk.left_out()
    return _cut(
        [name for _, name in rows], LISTED_MAX, workspace.output_chars_max
    ) + (walk.left_out())


def _cut(rows: list[str], most: int, chars_max: int) -> str:
    shown: list[str] = []
    room = chars_max
    for row in rows[:most]:
        room -= len(row) + 1
        if room < 0:
            break
        shown.append(row)
    left = len(rows) - len(shown)
    return "\n".join(shown) + (f"\n[{left} more are left out]" if left else "")
