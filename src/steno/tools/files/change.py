"""The tools `write_file` and `edit_file`.

What must be true:

- The bytes of a file are exactly those of the text given; nothing is normalised.
- What a change replaces is stored before the file is touched, and the file is touched only if it
  still holds that: so the change can be undone, after a kill too.
- A call this short is not cut: it is stopped before it began, or tells how it went.
"""

import asyncio
from collections.abc import Callable
from typing import Annotated, Generic, Literal, TypeVar

from msgspec import Meta, Struct

from steno.journal.facts import ToolSpec
from steno.journal.parts import Failed, Interrupted, Outcome, Returned, Text
from steno.tools.builtin import EDIT_SPEC, WRITE_SPEC
from steno.tools.files.handles import (
    content,
    folder_of,
    locate,
    put,
    text_in,
    there_now,
)
from steno.tools.protocol import (
    BadArguments,
    Journaled,
    Output,
    Prepared,
    Unusable,
    Workspace,
    decode_arguments,
)


class FileArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: str


class WriteArguments(FileArguments, frozen=True):
    content: str


class EditArguments(FileArguments, frozen=True):
    old: Annotated[str, Meta(min_length=1)]
    new: str
    all: bool = False

    def __post_init__(self) -> None:
        if self.old == self.new:
            raise ValueError("`old` and `new` are the same")


class Change(Struct, frozen=True):
    """What a call would do to a file; `told` is what it says when that is done."""

    path: str
    before: bytes | None
    after: bytes
    told: str


Asked = TypeVar("Asked", bound=FileArguments)


class FileTool(Generic[Asked]):
    approval: Literal["none", "ask"] = "ask"

    def __init__(
        self,
        spec: ToolSpec,
        arguments: type[Asked],
        plan: Callable[[Workspace, Asked], Change],
        workspace: Workspace,
    ) -> None:
        self.spec = spec
        self._arguments = arguments
        self._plan = plan
        self._workspace = workspace

    async def check(self, arguments: str) -> None:
        locate(
            self._workspace.folder, decode_arguments(arguments, self._arguments).path
        )

    async def prepare(self, arguments: str) -> Prepared:
        asked = decode_arguments(arguments, self._arguments)
        locate(self._workspace.folder, asked.path)
        return _ChangeCall(
            self._workspace, asked.path, lambda: self._plan(self._workspace, asked)
        )

    def plan(self, arguments: str) -> Change:
        """What a call would do. Raises `BadArguments`, `Unusable` or `OSError` if nothing."""
        return self._plan(
            self._workspace, decode_arguments(arguments, self._arguments)
        )


def write_file(workspace: Workspace) -> FileTool[WriteArguments]:
    return FileTool(WRITE_SPEC, WriteArguments, _write, workspace)


def edit_file(workspace: Workspace) -> FileTool[EditArguments]:
    return FileTool(EDIT_SPEC, EditArguments, _edit, workspace)


class _ChangeCall:
    def __init__(
        self, workspace: Workspace, path: str, plan: Callable[[], Change]
    ) -> None:
        self.group: int | None = None
        self._workspace = workspace
        self._path = path
        self._plan = plan
        self._stopped = False

    async def run(self, output: Output) -> Outcome:
        if self._stopped:
            return Interrupted()
        try:
            change = await asyncio.to_thread(self._plan)
            _, parts = locate(self._workspace.folder, change.path)
            if isinstance(output, Journaled):
                await output.changes("/".join(parts), change.before, change.after)
            before, after = change.before, change.after
            await asyncio.to_thread(put, self._workspace, change.path, before, after)
            return Returned((Text(change.told),))
        except (Unusable, BadArguments) as error:
            return Failed((Text(str(error)),))
        except OSError as error:
            return Failed((Text(f"{self._path}: {error.strerror or error}"),))

    async def stop(self) -> None:
        self._stopped = True


def _write(workspace: Workspace, asked: WriteArguments) -> Change:
    data = asked.content.encode()
    before = there_now(workspace, asked.path)
    told = (
        f"{'made' if before is None else 'replaced'} {asked.path}: {len(data)} bytes"
    )
    return Change(asked.path, before, data, told)


def _edit(workspace: Workspace, asked: EditArguments) -> Change:
    """On bytes: UTF-8 matches only whole characters, and what is not UTF-8 elsewhere in the file
    stays as it is."""
    old, new = asked.old.encode(), asked.new.encode()
    with folder_of(workspace, asked.path) as (folder, name):
        data = text_in(content(folder, name, asked.path), asked.path)
    first = data.find(old)
    if first < 0:
        mixed = b"\n" in old and b"\r\n" in data and b"\r\n" not in old
        hint = "; its lines end in CR LF" if mixed else ""
        raise Unusable(
            f"`old` does not occur in {asked.path}{hint}. Nothing was changed."
        )
    if not asked.all and data.find(old, first + 1) >= 0:
        raise Unusable(
            f"`old` occurs more than once in {asked.path}; add text around it, or set `all`. "
            "Nothing was changed."
        )
    count = data.count(old)
    told = f"edited {asked.path}: {count} {'place' if count == 1 else 'places'}"
    return Change(asked.path, data, data.replace(old, new), told)
