"""The SQLite backend of one open store: its connections, and who else has the database open."""

import contextlib
import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import apsw

from steno.journal.parts import Seq
from steno.store.backend import Paused
from steno.store.protocol import Damage, Left
from steno.store.sqlite import reader
from steno.store.sqlite.database import SqliteSettings, translate, translated
from steno.store.sqlite.location import Owners, Remains, opened
from steno.store.sqlite.reader import Reader
from steno.store.sqlite.watch import Watch
from steno.store.sqlite.writer import SqliteWriter

T = TypeVar("T")

_READING = "cannot read the store"
COMMIT_S = 0.004
"""So long a commit of our own is waited for before it is asked again what others wrote."""

_PLACES_BITS = 40
"""More places than any store has room for: a restore moves all marks up by so many."""


class SqliteBackend:
    """See `Backend` for what the verbs mean. `owner` names it to other processes."""

    remote = False

    def __init__(self, where: Path, settings: SqliteSettings, owner: str) -> None:
        self.settings = settings
        self._place, self.connection = opened(where, settings, owner)
        self.path = self._place.path
        self.locks = self._place.owners
        self.owner = owner
        self.restored = self.locks.restores() << _PLACES_BITS
        self.watch = Watch(self._place.log, self._lent, self._others_wrote)
        self._readers: list[Reader] = []
        self._closed = False
        _close_in_forks(self.locks)

    def start(self, paused: Paused) -> None:
        self._paused = paused
        self.remains: Remains = self._place.remains(self.connection, self.exclusively)

    def exclusively(self, act: Callable[[], T]) -> T:
        """Run something while nothing is being committed, by no process."""
        with self._paused():
            self._place.write_lock.enter()
            try:
                return act()
            finally:
                self._place.write_lock.leave()

    def writer(self) -> SqliteWriter:
        self._writer = SqliteWriter(self.connection, self._place.write_lock)
        return self._writer

    def _others_wrote(self) -> bool | None:
        """Whether another process has committed since the last time this was asked; None while a
        commit of our own goes on."""
        try:
            with self._paused(COMMIT_S):
                return self._writer.others_wrote()
        except TimeoutError:
            return None

    # --- reading

    def snapshot(self, patient: bool = False) -> "_Snapshot":
        return _Snapshot(self)

    @contextlib.contextmanager
    def _reader(self) -> Iterator[Reader]:
        lent = self.lend()
        try:
            yield lent
        finally:
            self.give_back(lent)

    def lend(self) -> Reader:
        """A connection for reading, from those that are idle or a new one."""
        try:
            return self._readers.pop()
        except IndexError:
            return Reader(self._place.reader())

    def give_back(self, lent: Reader) -> None:
        if lent.connection.txn_state() == apsw.SQLITE_TXN_NONE and not self._closed:
            self._readers.append(lent)
        else:
            # An error that a caller keeps holds a statement half read, and with it the past.
            lent.connection.close()

    @contextlib.contextmanager
    def _lent(self) -> Iterator[apsw.Connection]:
        with self._reader() as lent:
            yield lent.connection

    def heads(self, ids: Sequence[str]) -> dict[str, tuple[Seq, int | None]]:
        with self._reader() as lent, translated("cannot read the store"):
            return lent.heads(ids)

    def sessions(self) -> Iterator[str]:
        with self._reader() as lent:
            yield from reader.sessions(lent)

    def damage(self) -> Iterator[Damage]:
        with self._reader() as lent:
            yield from reader.damage(lent)

    # --- the rest

    def alive(self, owner: str) -> bool | None:
        """The OS lock of an owner dies with its process. Where locks cannot be trusted, it cannot
        be told."""
        return (
            None
            if self.settings.allow_network_file_system
            else self.locks.alive(owner)
        )

    def claim(self, limit: int, full: Sequence[str], anew: bool) -> None:
        return None

    def held(self) -> list[tuple[str, int | None]]:
        return []

    def put_back(self, session: str, waits_for: str | None) -> None:
        """Nothing was handed to any worker."""

    def leave(self, session: str, left: Left | None) -> None:
        self.locks.leave(session, "" if left is None else f"{left.turn}@{left.cause}")

    def left(self, session: str) -> Left | None:
        turn, _, cause = self.locks.left(session).partition("@")
        return Left(int(turn), cause) if turn.isdigit() else None

    def now_ms(self) -> int:
        now_ms = self.settings.now_ms
        return time.time_ns() // 1_000_000 if now_ms is None else now_ms()

    def erase(self) -> None:
        self.remains.scrub()

    def backup(self, to: Path) -> None:
        from steno.store.sqlite import backup

        with self._reader() as lent:
            backup.backup(lent.connection, to)

    def stop(self) -> None:
        self.watch.close()
        self.remains.close()

    def close(self) -> None:
        self._closed = True
        while self._readers:
            self._readers.pop().connection.close()
        self.connection.close()
        self.locks.close()


class _Snapshot:
    """One moment on a connection that is lent. A class, since every read pays for it."""

    __slots__ = ("_backend", "_lent")

    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend

    def __enter__(self) -> Reader:
        self._lent = lent = self._backend.lend()
        try:
            lent.connection.execute("begin")
        except apsw.Error as error:
            self._backend.give_back(lent)
            raise translate(error, _READING) from error
        return lent

    def __exit__(
        self, _kind: object, error: BaseException | None, _trace: object
    ) -> None:
        try:
            if (
                self._lent.connection.in_transaction
            ):  # SQLite ends it itself where the disk fails
                self._lent.connection.execute("rollback")
        finally:
            self._backend.give_back(self._lent)
        if isinstance(error, apsw.Error | UnicodeDecodeError):
            with translated(_READING):
                raise error


def _close_in_forks(owners: Owners) -> None:
    if not hasattr(os, "register_at_fork"):
        return
    reference = weakref.ref(owners)

    def forget() -> None:
        held = reference()
        if held is not None:
            held.forget()

    os.register_at_fork(after_in_child=forget)
