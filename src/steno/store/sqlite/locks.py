"""Locks that die with their process, so that a kill costs no waiting.

Beside the store `x.db` lies the folder `x.db-locks` with

- `open`       held shared by every process that has the store open, exclusively by restore and
  migrate;
- `turn`       held exclusively by the process that is writing: see `write_lock`;
- `made`       is there once the store has been made: an empty store is damage from then on;
- `restored`   has a byte for each backup that was put in the place of the store;
- `<owner>`    one file per open store, held exclusively while it lives. A lease whose owner's file
  is not held is free.
- `left@…`     why the last runner of a session let go of an open turn. The file is empty and its
  name says it, so that it takes no block of a disk that is full.

Probing takes a shared lock, so that two who probe a dead owner at once do not mistake each other
for it.
"""

import contextlib
import errno
import os
import re
import sys
import time
from pathlib import Path

from steno.journal.parts import hash_of
from steno.store.errors import StoreError, StoreFull, StoreReadOnly, StoreUnopenable
from steno.store.sqlite.database import StoreInUse, has_log
from steno.store.sqlite.write_lock import FileQueue

if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int, exclusive: bool) -> bool:
        # Windows has no shared byte lock here: probes may collide, and then the owner counts as
        # alive.
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _lock(handle: int, exclusive: bool) -> bool:
        try:
            fcntl.flock(
                handle,
                (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB,
            )
        except BlockingIOError:
            return False
        return True


_FILE_MODE = 0o600
_NOT_OWNERS = ("open", "made", "turn", "restored")
_LEFT = "left@"
_OWNER = re.compile(r"\w[\w.-]{0,59}")
_FOLDER_MODE = 0o700
_OPEN_PATIENCE_S = 1.0
"""Another process may be looking at a store that a killed process left; that is over soon."""
_PROBES = 2
_PROBE_PAUSE_S = 0.002
"""A sweep holds a dead owner's file for a moment; a second look tells it from a live owner."""


class Locks:
    """The locks of one open store. Not shared with a forked child: there they are closed. Where
    nothing can be written, only locks of files that are there can be held; those hold as well."""

    def __init__(
        self, path: Path, owner: str, wait_ms: int = 5_000, can_write: bool = True
    ) -> None:
        self.owner = owner
        self._pid = os.getpid()
        self._path = path
        self._folder = path.with_name(path.name + "-locks")
        self._handles: list[int] = []
        self._flags = os.O_RDWR | os.O_CREAT if can_write else os.O_RDONLY
        self.write_lock = FileQueue(self._folder / "turn", wait_ms)
        try:
            self._folder.mkdir(_FOLDER_MODE, exist_ok=True)
        except OSError as error:
            raise _refusal(
                error, f"cannot make the lock folder {self._folder}"
            ) from error

    def hold_open(self, exclusive: bool = False) -> None:
        """Say that the store is in use, or (exclusively) that no other process may use it."""
        handle = self._open("open")
        deadline = time.monotonic() + (0 if exclusive else _OPEN_PATIENCE_S)
        while not (held := _lock(handle, exclusive)) and time.monotonic() < deadline:
            time.sleep(_PROBE_PAUSE_S)
        if not held:
            os.close(handle)
            raise StoreInUse(
                "another process has this store open; stop it first"
                if exclusive
                else "another process is restoring or migrating this store, or reads it where it "
                "cannot be written; try again in a moment"
            )
        self._handles.append(handle)

    def hold_owner(self) -> None:
        self._sweep()
        while True:
            handle = self._open(self.owner)
            if _lock(handle, exclusive=True) and self._is_at(handle, self.owner):
                self._handles.append(handle)
                return
            os.close(handle)

    def alive(self, owner: str) -> bool:
        """Whether the process behind an owner still runs. One that came with an import may be named
        anything."""
        if owner == self.owner:
            return True
        if _OWNER.fullmatch(owner) is None or owner in _NOT_OWNERS:
            return False
        for probe in range(_PROBES):
            if probe:
                time.sleep(_PROBE_PAUSE_S)
            try:
                handle = os.open(self._folder / owner, os.O_RDONLY)
            except FileNotFoundError:
                return False
            try:
                if _lock(handle, exclusive=False):
                    return False
            finally:
                os.close(handle)
        return True

    def left_behind(self) -> bool:
        """Whether some owner died without closing the store, and none has swept up after it."""
        return any(not self.alive(file.name) for file in self._owners())

    def _owners(self) -> list[Path]:
        return [
            file
            for file in self._folder.iterdir()
            if file.name not in _NOT_OWNERS and not file.name.startswith(_LEFT)
        ]

    def leave(self, session: str, why: str) -> None:
        """Keep a word about a session where the store cannot be written. Where not even that can be
        done (a disk that became read-only), it is lost."""
        with contextlib.suppress(OSError):
            for file in self._folder.glob(f"{_about(session)}*"):
                file.unlink(missing_ok=True)
            if why:
                (self._folder / f"{_about(session)}{why}").touch(_FILE_MODE)

    def left(self, session: str) -> str:
        about = _about(session)
        with os.scandir(self._folder) as files:
            names = (file.name for file in files if file.name.startswith(about))
            return next(names, "").removeprefix(about)

    def restores(self) -> int:
        """How often a backup was put in the place of the store."""
        try:
            return (self._folder / "restored").stat().st_size
        except FileNotFoundError:
            return 0

    def count_restore(self) -> None:
        """Before it happens: to count one that is cut off does no harm."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        handle = os.open(self._folder / "restored", flags, _FILE_MODE)
        try:
            os.write(handle, b".")
            os.fsync(handle)
        finally:
            os.close(handle)

    def close(self) -> None:
        self.write_lock.close()
        mine = os.getpid() == self._pid  # in a forked child, the file is its parent's
        keep = not mine or self._left_to_others()
        while self._handles:
            os.close(self._handles.pop())
        if keep:
            return
        with contextlib.suppress(OSError):
            (self._folder / self.owner).unlink()

    def _left_to_others(self) -> bool:
        """Whether the last steno leaves a log behind: then another program has the store open and
        will tidy it up in its own way. The owner's file stays, and the next open looks at that."""
        return (
            len(self._handles) > 1
            and has_log(self._path)
            and _lock(self._handles[0], exclusive=True)
            and has_log(self._path)
        )

    def forget(self) -> None:
        """After a fork, in the child: the parent keeps its locks."""
        self.write_lock.close()
        while self._handles:
            os.close(self._handles.pop())

    def _open(self, name: str) -> int:
        try:
            return os.open(self._folder / name, self._flags, _FILE_MODE)
        except OSError as error:
            raise _refusal(
                error, f"cannot open the lock file {self._folder / name}"
            ) from error

    def _is_at(self, handle: int, name: str) -> bool:
        """Whether a file opened by name is still the one of that name: a sweep may have come
        between."""
        try:
            return (self._folder / name).stat().st_ino == os.fstat(handle).st_ino
        except FileNotFoundError:
            return False

    def _sweep(self) -> None:
        """Remove the files of owners that are gone, each under its own lock. An owner's name is
        never used again."""
        for file in self._owners():
            with contextlib.suppress(OSError):
                handle = os.open(file, os.O_RDWR)
                try:
                    if _lock(handle, exclusive=True):
                        file.unlink()
                finally:
                    os.close(handle)


def _about(session: str) -> str:
    return f"{_LEFT}{hash_of(session.encode())[:32]}@"


def _refusal(error: OSError, doing: str) -> StoreError:
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            kind: type[StoreError] = StoreFull
        case errno.EROFS | errno.EACCES | errno.EPERM:
            kind = StoreReadOnly
        case _:
            kind = StoreUnopenable
    return kind(f"{doing}: {error.strerror}")
