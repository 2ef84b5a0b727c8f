"""The tools `read_file`, `write_file` and `edit_file`.

What must be true:

- Nothing outside the workspace is read or written. A path is resolved first, symlinks in every
  place included, and must then lie inside. After that it is walked from the workspace's own handle,
  folder by folder, following no symlink: one that is swapped in meanwhile makes the call fail.
- steno's own folder is not touched, also where it lies in the workspace: it holds the store and
  keys.
- Only regular files are touched, so that no call waits at a pipe or a device.
- A file is replaced whole or not at all. Its bytes are exactly those of the text given; nothing is
  normalised.
- A call this short is not cut: it is stopped before it began, or tells how it went.
"""

import asyncio
import contextlib
import io
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Generic, Literal, TypeVar

from msgspec import Meta, Struct

from steno.journal.facts import ToolSpec
from steno.journal.parts import Failed, Interrupted, Outcome, Returned, Text
from steno.tools.protocol import (
    BadArguments,
    Output,
    Prepared,
    Unusable,
    Workspace,
    decode_arguments,
)

REPLACED = "\N{REPLACEMENT CHARACTER}"
FILE_BYTES_MAX = 10 * 1024 * 1024

READ_SPEC = ToolSpec(
    name="read_file",
    description=(
        "Read a text file in the workspace. Long files come in part: the last line in brackets "
        "then says which lines "
        "these are and where to go on."
    ),
    schema=(
        '{"type":"object","properties":{'
        '"path":{"type":"string","description":"Relative to the workspace folder."},'
        '"offset":{"type":"integer","minimum":1,'
        '"description":"The first line to read; 1 if absent."},'
        '"limit":{"type":"integer","minimum":1,"description":"How many lines at most."}'
        '},"required":["path"],"additionalProperties":false}'
    ),
    repeat="safe",
)
WRITE_SPEC = ToolSpec(
    name="write_file",
    description=(
        "Write a text file in the workspace, whole. Replaces what was there and makes missing "
        "folders."
    ),
    schema=(
        '{"type":"object","properties":{'
        '"path":{"type":"string","description":"Relative to the workspace folder."},'
        '"content":{"type":"string","description":"All of the new content."}'
        '},"required":["path","content"],"additionalProperties":false}'
    ),
)
EDIT_SPEC = ToolSpec(
    name="edit_file",
    description=(
        "Replace text in a file of the workspace. The old text must occur exactly once, unless "
        "all is true."
    ),
    schema=(
        '{"type":"object","properties":{'
        '"path":{"type":"string","description":"Relative to the workspace folder."},'
        '"old":{"type":"string","minLength":1,'
        '"description":"The text to replace, exactly as in the file."},'
        '"new":{"type":"string","description":"What stands there afterwards."},'
        '"all":{"type":"boolean","description":"Replace every occurrence; false if absent."}'
        '},"required":["path","old","new"],"additionalProperties":false}'
    ),
)


class FileArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: str


class ReadArguments(FileArguments, frozen=True):
    offset: Annotated[int, Meta(ge=1)] = 1
    limit: Annotated[int, Meta(ge=1)] | None = None


class WriteArguments(FileArguments, frozen=True):
    content: str


class EditArguments(FileArguments, frozen=True):
    old: Annotated[str, Meta(min_length=1)]
    new: str
    all: bool = False

    def __post_init__(self) -> None:
        if self.old == self.new:
            raise ValueError("`old` and `new` are the same")


Asked = TypeVar("Asked", bound=FileArguments)


class FileTool(Generic[Asked]):
    def __init__(
        self,
        spec: ToolSpec,
        approval: Literal["none", "ask"],
        arguments: type[Asked],
        act: Callable[[Workspace, Asked], str],
        workspace: Workspace,
    ) -> None:
        self.spec = spec
        self.approval: Literal["none", "ask"] = approval
        self._arguments = arguments
        self._act = act
        self._workspace = workspace

    async def prepare(self, arguments: str) -> Prepared:
        asked = decode_arguments(arguments, self._arguments)
        locate(self._workspace.folder, asked.path)
        return FileCall(asked.path, lambda: self._act(self._workspace, asked))


def read_file(workspace: Workspace) -> FileTool[ReadArguments]:
    return FileTool(READ_SPEC, "none", ReadArguments, _read, workspace)


def write_file(workspace: Workspace) -> FileTool[WriteArguments]:
    return FileTool(WRITE_SPEC, "ask", WriteArguments, _write, workspace)


def edit_file(workspace: Workspace) -> FileTool[EditArguments]:
    return FileTool(EDIT_SPEC, "ask", EditArguments, _edit, workspace)


class FileCall:
    def __init__(self, path: str, act: Callable[[], str]) -> None:
        self.group: int | None = None
        self._path = path
        self._act = act
        self._stopped = False

    async def run(self, output: Output) -> Outcome:
        if self._stopped:
            return Interrupted()
        return await asyncio.to_thread(self._outcome)

    async def stop(self) -> None:
        self._stopped = True

    def _outcome(self) -> Outcome:
        try:
            return Returned((Text(self._act()),))
        except (Unusable, BadArguments) as error:
            return Failed((Text(str(error)),))
        except OSError as error:
            return Failed((Text(f"{self._path}: {error.strerror or error}"),))


# --- what the tools do ----------------------------------------------------------------------------


def _read(workspace: Workspace, asked: ReadArguments) -> str:
    with _folder_of(workspace, asked.path) as (folder, name):
        data = _content(folder, name, asked.path)
    try:
        return excerpt(data.decode(), asked, workspace.output_chars_max)
    except UnicodeDecodeError:
        replaced = excerpt(data.decode("utf-8", "replace"), asked, workspace.output_chars_max)
        return _noted(replaced, f"[bytes of the file that are not UTF-8 are shown as {REPLACED}]")


def _write(workspace: Workspace, asked: WriteArguments) -> str:
    data = asked.content.encode()
    with _folder_of(workspace, asked.path, make=True) as (folder, name):
        there = _replaceable(folder, name, asked.path)
        _replace(folder, name, data, there)
    return f"{'made' if there is None else 'replaced'} {asked.path}: {len(data)} bytes"


def _edit(workspace: Workspace, asked: EditArguments) -> str:
    """On bytes: UTF-8 matches only whole characters, and what is not UTF-8 elsewhere in the file
    stays as it is."""
    old, new = asked.old.encode(), asked.new.encode()
    with _folder_of(workspace, asked.path) as (folder, name):
        there = _replaceable(folder, name, asked.path)
        data = _content(folder, name, asked.path)
        first = data.find(old)
        if first < 0:
            mixed = b"\n" in old and b"\r\n" in data and b"\r\n" not in old
            hint = "; its lines end in CR LF" if mixed else ""
            raise Unusable(f"`old` does not occur in {asked.path}{hint}. Nothing was changed.")
        if not asked.all and data.find(old, first + 1) >= 0:
            raise Unusable(
                f"`old` occurs more than once in {asked.path}; add text around it, or set `all`. "
                "Nothing was changed."
            )
        _replace(folder, name, data.replace(old, new), there)
    count = data.count(old)
    return f"edited {asked.path}: {count} {'place' if count == 1 else 'places'}"


def excerpt(text: str, asked: ReadArguments, chars_max: int) -> str:
    """The lines that were asked for, as far as they fit, and a last line that says what they are if
    not all."""
    lines = io.StringIO(text, newline="\n").readlines()
    if not lines:
        return "[the file is empty]"
    if asked.offset > len(lines):
        raise Unusable(f"`offset` is {asked.offset}, but the file has {len(lines)} lines")
    wanted = lines[asked.offset - 1 :][: asked.limit]
    if len(wanted[0]) > chars_max:
        note = (
            f"[line {asked.offset} of {len(lines)} has {len(wanted[0])} characters; the first "
            f"{chars_max} are shown]"
        )
        return _noted(wanted[0][:chars_max], note)
    taken: list[str] = []
    room = chars_max
    for line in wanted:
        room -= len(line)
        if room < 0:
            break
        taken.append(line)
    shown = "".join(taken)
    if len(taken) == len(lines):
        return shown
    last = asked.offset + len(taken) - 1
    more = f"; go on with offset {last + 1}" if last < len(lines) else ""
    return _noted(shown, f"[lines {asked.offset} to {last} of {len(lines)}{more}]")


def _noted(text: str, note: str) -> str:
    return text + ("" if text.endswith("\n") else "\n") + note


# --- files, by handle -----------------------------------------------------------------------------


def locate(workspace: Path, path: str) -> tuple[Path, tuple[str, ...]]:
    """The workspace and the names that lead from there to the file, with no symlink left in
    either."""
    if "\0" in path:
        raise BadArguments("`path` contains a NUL character")
    root = Path(os.path.realpath(workspace))
    file = Path(os.path.realpath(root / path))
    if not file.is_relative_to(root):
        raise BadArguments(f"`path` is outside the workspace: {path}")
    if file == root:
        raise BadArguments("`path` is the workspace folder itself, not a file in it")
    return root, file.relative_to(root).parts


@contextlib.contextmanager
def _folder_of(workspace: Workspace, path: str, make: bool = False) -> Iterator[tuple[int, str]]:
    """A handle on the folder that holds a file, and the file's name in it."""
    root, (*folders, name) = locate(workspace.folder, path)
    hidden = [folder.stat() for folder in workspace.sandbox.hidden if folder.exists()]
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _refuse_hidden(handle, hidden, path)
        for folder in folders:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, dir_fd=handle)
            deeper = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = deeper
            _refuse_hidden(handle, hidden, path)
        yield handle, name
    finally:
        os.close(handle)


def _refuse_hidden(folder: int, hidden: Sequence[os.stat_result], path: str) -> None:
    """By what the folder is, not by its name: a file system may have many names for one."""
    if any(os.path.samestat(os.fstat(folder), one) for one in hidden):
        raise Unusable(f"{path} is in the folder of steno itself, which no tool reads or writes")


def _content(folder: int, name: str, path: str) -> bytes:
    with _regular(folder, name, path, os.O_RDONLY) as file:
        data = bytearray()
        while chunk := os.read(file, FILE_BYTES_MAX + 1 - len(data)):
            data += chunk
    if len(data) > FILE_BYTES_MAX:
        raise Unusable(
            f"{path} has more than {FILE_BYTES_MAX} bytes; use the shell to look at a part of it"
        )
    if b"\0" in data:
        raise Unusable(f"{path} is not a text file: it contains NUL bytes")
    return bytes(data)


@contextlib.contextmanager
def _regular(folder: int, name: str, path: str, mode: int) -> Iterator[int]:
    """An open regular file. Neither a symlink is followed nor a pipe waited for."""
    file = os.open(name, mode | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Unusable(f"{path} is not a regular file")
        yield file
    finally:
        os.close(file)


def _replaceable(folder: int, name: str, path: str) -> os.stat_result | None:
    """What is known of a file that may be replaced: one we could write to. None if there is
    none."""
    try:
        with _regular(folder, name, path, os.O_WRONLY) as file:
            return os.fstat(file)
    except FileNotFoundError:
        return None


def _replace(folder: int, name: str, data: bytes, there: os.stat_result | None) -> None:
    """Whole or not at all. The mode and owner of a file that was there stay."""
    beside = f".steno-{secrets.token_hex(8)}.tmp"
    file = os.open(
        beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=folder
    )
    try:
        with os.fdopen(file, "wb") as writing:
            writing.write(data)
            if there is not None:
                with contextlib.suppress(PermissionError):
                    os.fchown(file, there.st_uid, there.st_gid)
                os.fchmod(file, stat.S_IMODE(there.st_mode))
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=folder)
