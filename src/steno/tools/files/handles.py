"""Files of the workspace, by handle.

What must be true:

- Nothing outside the workspace is read or written. A path is resolved first, symlinks in every
  place included, and must then lie inside. After that it is walked from the workspace's own handle,
  folder by folder, following no symlink: one that is swapped in meanwhile makes the call fail.
- steno's own folder is not touched, also where it lies in the workspace: it holds the store and
  keys.
- Only regular files are touched, so that no call waits at a pipe or a device.
- A file is replaced whole or not at all.
"""

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from steno.tools.protocol import BadArguments, Unusable, Workspace

FILE_BYTES_MAX = 10 * 1024 * 1024


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
def folder_of(
    workspace: Workspace, path: str, make: bool = False
) -> Iterator[tuple[int, str]]:
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
            deeper = os.open(
                folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle
            )
            os.close(handle)
            handle = deeper
            _refuse_hidden(handle, hidden, path)
        yield handle, name
    finally:
        os.close(handle)


def _refuse_hidden(folder: int, hidden: Sequence[os.stat_result], path: str) -> None:
    """By what the folder is, not by its name: a file system may have many names for one."""
    if any(os.path.samestat(os.fstat(folder), one) for one in hidden):
        raise Unusable(
            f"{path} is in the folder of steno itself, which no tool reads or writes"
        )


def content(folder: int, name: str, path: str) -> bytes:
    """All of a file's bytes."""
    with regular(folder, name, path, os.O_RDONLY) as file:
        data = bytearray()
        while chunk := os.read(file, FILE_BYTES_MAX + 1 - len(data)):
            data += chunk
    if len(data) > FILE_BYTES_MAX:
        raise Unusable(
            f"{path} has more than {FILE_BYTES_MAX} bytes; use the shell to look at a part of it"
        )
    return bytes(data)


def text_in(data: bytes, path: str) -> bytes:
    """The bytes of a text file."""
    if b"\0" in data:
        raise Unusable(f"{path} is not a text file: it contains NUL bytes")
    return data


def there_now(workspace: Workspace, path: str) -> bytes | None:
    """What a file holds; None if there is no file. One that could not be replaced is an error."""
    try:
        with folder_of(workspace, path) as (folder, name):
            if replaceable(folder, name, path) is None:
                return None
            return content(folder, name, path)
    except FileNotFoundError:
        return None


def put(
    workspace: Workspace, path: str, before: bytes | None, after: bytes | None
) -> None:
    """Give a file other content, or (None) take it away, if it holds what it held before."""
    with folder_of(workspace, path, make=after is not None) as (folder, name):
        there = replaceable(folder, name, path)
        now = None if there is None else content(folder, name, path)
        if now != before:
            raise Unusable(
                f"{path} was changed by something else meanwhile. Nothing was changed."
            )
        if after is not None:
            replace(folder, name, after, there)
        elif there is not None:
            os.unlink(name, dir_fd=folder)


@contextlib.contextmanager
def regular(folder: int, name: str, path: str, mode: int) -> Iterator[int]:
    """An open regular file. Neither a symlink is followed nor a pipe waited for."""
    file = os.open(name, mode | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Unusable(f"{path} is not a regular file")
        yield file
    finally:
        os.close(file)


def replaceable(folder: int, name: str, path: str) -> os.stat_result | None:
    """What is known of a file that may be replaced: one we could write to. None if there is
    none."""
    try:
        with regular(folder, name, path, os.O_WRONLY) as file:
            return os.fstat(file)
    except FileNotFoundError:
        return None


def replace(
    folder: int, name: str, data: bytes, there: os.stat_result | None
) -> None:
    """Whole or not at all. The mode and owner of a file that was there stay."""
    beside = f".steno-{os.urandom(8).hex()}.tmp"
    file = os.open(
        beside,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW,
        0o666,
        dir_fd=folder,
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
