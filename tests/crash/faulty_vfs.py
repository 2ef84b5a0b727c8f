"""A file system for SQLite that writes down what is done to it and fails where it is told to.

Only what changes files is counted: create, write, sync, truncate, delete. Two runs of one script
count alike, so "fail the n-th" means the same operation in each.

    eio      the n-th operation fails once, as a bad disk would fail it; nothing of it happens
    enospc   the n-th operation fails once, as a full disk would fail it; half of a write happens
    full     as enospc, for every write from the n-th on
    die      the n-th operation and all after it fail and change nothing: for the files, the process
             is dead
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from unittest.mock import patch

import apsw
from msgspec import Struct

from steno.store.sqlite.database import checked_pages

if TYPE_CHECKING:
    from typing_extensions import Buffer

Kind = Literal["create", "write", "sync", "truncate", "delete"]
Fault = Literal["eio", "enospc", "full", "die"]

_LOGS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL
_numbers = count()
_EIO: dict[Kind, int] = {
    "create": apsw.SQLITE_CANTOPEN,
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "delete": apsw.SQLITE_IOERR_DELETE,
}
_ENOSPC: dict[Kind, int] = {"create": apsw.SQLITE_CANTOPEN, "write": apsw.SQLITE_FULL}


class Op(Struct, frozen=True, gc=False):
    """One change. `offset` is where a write begins, or the size after a truncate; `folder` says
    that the folder's entries were made durable too (they alone, if there is no `file`); `failed`
    that the caller was told so."""

    kind: Kind
    file: str
    offset: int = 0
    data: bytes = b""
    folder: bool = False
    failed: bool = False


class FaultAt(Struct, frozen=True):
    n: int
    fault: Fault

    def applies_to(self, kind: Kind) -> bool:
        match self.fault:
            case "enospc":
                return kind in _ENOSPC
            case "full":
                return kind == "write"
            case _:
                return True

    def strikes(self, n: int, kind: Kind) -> bool:
        return (n >= self.n if self.fault == "full" else n == self.n) and self.applies_to(kind)


class FaultyVFS(apsw.VFS):
    def __init__(self, fault: FaultAt | None = None) -> None:
        self.name = f"faulty-{next(_numbers)}"
        self.ops: list[Op] = []
        self.dead = False
        self._fault = fault
        super().__init__(self.name, checked_pages())

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        place = name.filename() if isinstance(name, apsw.URIFilename) else name
        if place is None:
            raise apsw.exception_for(
                apsw.SQLITE_CANTOPEN
            )  # a temporary file: the store keeps those in memory
        if flags[0] & apsw.SQLITE_OPEN_CREATE and not Path(place).exists():
            self.note(Op("create", Path(place).name))
        return FaultyFile(self, name, Path(place).name, flags)

    def xDelete(self, name: str, sync_folder: bool) -> None:
        self.note(Op("delete", Path(name).name, folder=sync_folder))
        super().xDelete(name, sync_folder)

    def note(self, op: Op) -> None:
        """Count an operation that is about to happen; raise if it must not."""
        fault = self._fault
        if fault is not None and fault.strikes(len(self.ops), op.kind):
            if fault.fault != "die":
                self.ops.append(_as_failed(op, fault.fault))
                raise apsw.exception_for((_EIO if fault.fault == "eio" else _ENOSPC)[op.kind])
            self.dead = True
        if self.dead:
            raise apsw.exception_for(_EIO[op.kind])
        self.ops.append(op)


def _as_failed(op: Op, fault: Fault) -> Op:
    return Op(
        op.kind,
        op.file,
        op.offset,
        b"" if fault == "eio" else _half(op.data),
        op.folder,
        failed=True,
    )


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]


class FaultyFile(apsw.VFSFile):
    def __init__(
        self, vfs: FaultyVFS, name: str | apsw.URIFilename | None, file: str, flags: list[int]
    ) -> None:
        super().__init__(checked_pages(), name, flags)
        self._vfs = vfs
        self._file = file
        self._folder_due = bool(flags[0] & apsw.SQLITE_OPEN_CREATE) and bool(flags[0] & _LOGS)

    def xWrite(self, data: "Buffer", offset: int) -> None:
        """A page's checksum is put into these very bytes on their way to the disk, so what is noted
        has it."""
        try:
            self._vfs.note(Op("write", self._file, offset, bytes(data)))
        except apsw.FullError:
            super().xWrite(_half(bytes(data)), offset)
            raise
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        """SQLite's own file system syncs the folder with the first sync of a log that it may have
        made."""
        self._vfs.note(Op("sync", self._file, folder=self._folder_due))
        self._folder_due = False
        super().xSync(flags)

    def xTruncate(self, size: int) -> None:
        self._vfs.note(Op("truncate", self._file, size))
        super().xTruncate(size)


class QuietlyClosed(apsw.Connection):
    """SQLite tidies up when a connection is closed, and passes over a failure of that. apsw would
    raise it all the same, but only because this file system is written in Python."""

    def close(self, force: bool = False) -> None:
        with contextlib.suppress(apsw.Error):
            super().close(force)


@contextlib.contextmanager
def faulty_vfs(folder: Path, fault: FaultAt | None = None) -> Iterator[FaultyVFS]:
    """A registered VFS, for the stores that are opened in a folder inside."""
    vfs = FaultyVFS(fault)
    fsync = os.fsync

    def noted(handle: int) -> None:
        """What the store syncs without SQLite counts too."""
        synced = os.fstat(handle)
        names = [file.name for file in folder.iterdir() if os.path.samestat(file.stat(), synced)]
        try:
            vfs.note(Op("sync", names[0]) if names else Op("sync", "", folder=True))
        except apsw.IOError as error:
            raise OSError(errno.EIO, os.strerror(errno.EIO)) from error
        fsync(handle)

    try:
        with patch.object(apsw, "Connection", QuietlyClosed), patch.object(os, "fsync", noted):
            yield vfs
    finally:
        vfs.unregister()
