"""Moves committed pages from the log into the database, off the commit path.

A thread copies in bulk while commits go on; only the few pages that came meanwhile are copied with
commits held up, so that the log can start again from its beginning and does not grow for ever under
steady writing.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import apsw

from steno.store.errors import StoreError, StoreLocked, warn
from steno.store.sqlite.database import (
    SqliteSettings,
    connect,
    patience,
    sync_file,
    translated,
)

T = TypeVar("T")

_PAUSE_S = 0.01
_AGAIN_S = 1.0


class Exclusively(Protocol):
    """Runs something while nothing is being committed, by no process."""

    def __call__(self, act: Callable[[], T]) -> T: ...


class Checkpointer:
    def __init__(
        self,
        path: Path,
        settings: SqliteSettings,
        writer: apsw.Connection,
        exclusively: Exclusively,
    ) -> None:
        self._path = path
        self._settings = settings
        self._writer = writer
        self._exclusively = exclusively
        self._due = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._lingering = False
        writer.set_wal_hook(self._committed)

    def _committed(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        if pages >= self._settings.checkpoint_pages and not self._due.is_set():
            self._wake()
        return apsw.SQLITE_OK

    def _wake(self) -> None:
        self._due.set()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._serve, name="steno-checkpoint", daemon=True
            )
            self._thread.start()

    def _serve(self) -> None:
        while not self._is_closed():
            self._due.wait(_AGAIN_S if self._lingering else None)
            if self._is_closed():
                return
            # A full or busy disk, or a store that is being closed: the log keeps everything, try
            # again later.
            with contextlib.suppress(apsw.Error, StoreError):
                if self._lingering:
                    self._lingering = not self._exclusively(self._truncate)
                else:
                    self._checkpoint()
            self._due.clear()

    def _is_closed(self) -> bool:
        """Looked at again after each clear: a close that came before it must not be waited for."""
        return self._closed

    def _checkpoint(self) -> None:
        with contextlib.closing(connect(self._path, self._settings)) as connection:
            if _copy(connection) > self._settings.checkpoint_pages // 10:
                _copy(connection)
        self._exclusively(lambda: _copy(self._writer))

    def scrub(self) -> None:
        """Leave nothing of what was redacted or deleted in any file.

        SQLite clears the rows it removes, but not the bytes that moved rows leave behind in their
        old pages. Writing the database anew clears those. That holds writers up, so a large store
        is left to `vacuum`: a warning says so.
        """
        if self._path.stat().st_size <= self._settings.scrub_bytes_max:
            self.vacuum()
        else:
            warn(
                "bytes of removed text may be left in unused parts of the store's pages until it "
                "is vacuumed"
            )
            self.empty_log()

    def vacuum(self) -> None:
        with translated(
            "the store was not written anew; the removal itself is stored"
        ):
            self._exclusively(lambda: self._writer.execute("vacuum").fetchall())
        self.empty_log()

    def empty_log(self) -> None:
        """Leave nothing of the past in the log's file.

        A reader that still looks at the past keeps it there. Then this is tried again in the
        background until it works, and a warning says so.
        """
        deadline = time.monotonic() + self._settings.lock_wait_ms / 1000
        while not self._exclusively(self._truncate):
            if time.monotonic() > deadline:
                warn(
                    "removed text stays in the log until every reader of the store has moved on"
                )
                self._lingering = True
                self._wake()
                return
            time.sleep(_PAUSE_S)
        self._lingering = False

    def _truncate(self) -> bool:
        """One try, without waiting: to wait here would hold up every writer.

        SQLite does not sync the log it has emptied; until that is done, a power cut brings the old
        one back.
        """
        self._writer.set_busy_handler(None)
        try:
            with translated("cannot empty the log"):
                self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except StoreLocked:
            return False
        finally:
            self._writer.set_busy_handler(patience(self._settings.lock_wait_ms))
        sync_file(self._path.with_name(self._path.name + "-wal"))
        return True

    def close(self) -> None:
        self._closed = True
        self._due.set()
        if self._thread is not None:
            self._thread.join()


def _copy(connection: apsw.Connection) -> int:
    """How many pages of the log are not in the database yet, after copying what can be copied."""
    logged, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    return logged - copied
