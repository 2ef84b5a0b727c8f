"""Moves committed pages from the log into the database, off the commit path.

A thread copies in bulk while commits go on; only the few pages that came meanwhile are copied with commits held up, so
that the log can start again from its beginning and does not grow for ever under steady writing.
"""

import contextlib
import threading
import time
from pathlib import Path

import apsw

from steno.store.errors import StoreLocked
from steno.store.protocol import Settings
from steno.store.sqlite.database import connect
from steno.store.sqlite.pipeline import Pipeline

_PAUSE_S = 0.01


class Checkpointer:
    def __init__(self, path: Path, settings: Settings, writer: apsw.Connection, pipeline: Pipeline) -> None:
        self._path = path
        self._settings = settings
        self._writer = writer
        self._pipeline = pipeline
        self._due = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False
        writer.set_wal_hook(self._committed)

    def _committed(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        if pages >= self._settings.checkpoint_pages and not self._due.is_set():
            self._due.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="steno-checkpoint", daemon=True)
                self._thread.start()
        return apsw.SQLITE_OK

    def _serve(self) -> None:
        connection = connect(self._path, self._settings)
        try:
            while True:
                self._due.wait()
                if self._closed:
                    return
                with contextlib.suppress(apsw.Error):  # a full or busy disk: the log keeps everything, try again later
                    if _copy(connection) > self._settings.checkpoint_pages // 10:
                        _copy(connection)
                    self._pipeline.exclusively(lambda: _copy(self._writer))
                self._due.clear()
        finally:
            connection.close()

    def empty_log(self) -> None:
        """Leave nothing of the past in the log's file: what was redacted or deleted must not linger there."""
        deadline = time.monotonic() + self._settings.lock_wait_ms / 1000
        while not self._pipeline.exclusively(self._truncate):
            if time.monotonic() > deadline:
                raise StoreLocked(
                    "removed from the journal, but a reader keeps an old copy in the log; close it and run this again"
                )
            time.sleep(_PAUSE_S)

    def _truncate(self) -> bool:
        try:
            self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except (apsw.BusyError, apsw.LockedError):
            return False
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
