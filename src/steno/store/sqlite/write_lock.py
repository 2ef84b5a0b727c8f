"""Lets one process write at a time, in the order in which they came.

SQLite lets writers of several processes find out by trying who is next: the unlucky try for long,
and while all of them try, the log never rests and so never starts again from its beginning. Here
they stand in the system's own queue for a file lock, which dies with its process. SQLite's lock
stays what protects the data.
"""

import contextlib
import errno
import os
import sys
import threading
from pathlib import Path
from typing import Protocol

from steno.store.errors import StoreFull, StoreLocked, StoreReadOnly

if sys.platform != "win32":
    import fcntl


class _Wait:
    """One process's place in the queue."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.left = False
        self._decide = threading.Lock()
        self._arrived = threading.Event()

    def stand(self) -> None:
        with contextlib.suppress(OSError):
            fcntl.flock(self.handle, fcntl.LOCK_EX)
        with self._decide:
            self._arrived.set()
            if self.left:
                os.close(self.handle)

    def arrive(self, wait_s: float) -> bool:
        """Whether the lock was ours in time. If not, or on a Ctrl-C, the place is given up."""
        try:
            self._arrived.wait(wait_s)
        finally:
            with self._decide:
                self.left = not self._arrived.is_set()
        return not self.left


class WriteLock(Protocol):
    """Lets one writer in at a time."""

    def enter(self) -> None: ...
    def leave(self) -> None: ...


class FileQueue:
    def __init__(self, file: Path, wait_ms: int) -> None:
        self._file = file
        self._wait_ms = wait_ms
        self._handle = -1
        self._inside = False

    def enter(self) -> None:
        if sys.platform == "win32":
            return  # there SQLite's own lock has to do
        if self._handle < 0:
            self._handle = self._open()
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._queue()
        self._inside = True

    def leave(self) -> None:
        if self._inside:
            self._inside = False
            fcntl.flock(self._handle, fcntl.LOCK_UN)

    def close(self) -> None:
        self._inside = False
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _open(self) -> int:
        try:
            return os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            kind = StoreFull if error.errno == errno.ENOSPC else StoreReadOnly
            word = (
                "the disk is full" if kind is StoreFull else "the store is read-only"
            )
            raise kind(
                f"nothing was stored: {word} ({self._file}: {error.strerror})"
            ) from error

    def _queue(self) -> None:
        place = _Wait(self._handle)
        self._handle = -1  # the thread in the queue owns it; given back on arrival
        threading.Thread(target=place.stand, name="steno-queue", daemon=True).start()
        if not place.arrive(self._wait_ms / 1000):
            raise StoreLocked(
                "nothing was stored: another process has been writing to the store for too long"
            )
        self._handle = place.handle
