"""The PostgreSQL backend of one open store: its connections, its worker's row, its wake-ups."""

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence

import psycopg
from msgspec import Struct

from steno.journal import codec
from steno.journal.parts import Seq
from steno.store.backend import Paused
from steno.store.errors import StoreError
from steno.store.postgres import reader
from steno.store.postgres.database import (
    Address,
    Connector,
    PostgresSettings,
    prepare,
    translated,
)
from steno.store.postgres.owners import Owners, Worker
from steno.store.postgres.reader import Reader
from steno.store.postgres.wake import Wake
from steno.store.postgres.writer import PostgresWriter
from steno.store.protocol import Damage, Left

_READING = "cannot read the store"
_IDLE_MAX = 8


class Database(Struct, frozen=True):
    """A server, as it says of itself. `weak` are settings with which a power cut loses what was
    acknowledged; `clock_off_ms` is how far its clock is ahead of ours."""

    address: str
    version: str
    clock_off_ms: int
    synchronous_commit: str
    weak: tuple[str, ...]
    standby: bool
    replicas: int
    """Standbys that a commit waits for."""


class PostgresBackend:
    """See `Backend` for what the verbs mean."""

    remote = True

    def __init__(
        self, where: Address, settings: PostgresSettings, owner: str
    ) -> None:
        self.where = where
        self.settings = settings
        self.connector = Connector(where, settings, owner)
        self.restored, connection = prepare(self.connector)
        self.owners = Owners(self.connector, owner)
        self.watch = Wake(self.connector)
        self._writer = PostgresWriter(self.owners, connection)
        self._readers: list[Reader] = []
        self._lending = threading.Lock()
        self._closed = False

    @property
    def owner(self) -> str:
        return self.owners.owner

    def start(self, paused: Paused) -> None:
        if not self.settings.only_reads:
            self._writer.register()

    def writer(self) -> PostgresWriter:
        return self._writer

    # --- reading

    @contextlib.contextmanager
    def snapshot(self, patient: bool = False) -> Iterator[Reader]:
        lent = self._lend(
            self.settings.give_up_ms if patient else self.settings.refuse_ms
        )
        whole = False
        try:
            with translated(_READING):
                yield lent
                lent.end()
            whole = True
        except StoreError as error:
            whole = not isinstance(error.__cause__, psycopg.Error) and self._ended(
                lent
            )
            raise
        finally:
            self._give_back(lent, whole)

    def _ended(self, lent: Reader) -> bool:
        try:
            lent.end()
        except psycopg.Error:
            return False
        return True

    def _lend(self, wait_ms: int) -> Reader:
        with self._lending:
            if self._readers:
                lent = self._readers.pop()
                lent.wait_s = wait_ms / 1000
                return lent
        return Reader(
            self.owners.connect_to_read, self.connector.statements, wait_ms / 1000
        )

    def _give_back(self, lent: Reader, whole: bool) -> None:
        with self._lending:
            if whole and not self._closed and len(self._readers) < _IDLE_MAX:
                self._readers.append(lent)
                return
        lent.connection.close()

    def heads(self, ids: Sequence[str]) -> dict[str, tuple[Seq, int | None]]:
        with self.snapshot() as view:
            found = view.at_once(
                "heads_of", ([codec.escape(id) for id in ids],)
            ).fetchall()
        return {id: (head, token) for id, head, token in found}

    def sessions(self) -> Iterator[str]:
        with self.snapshot() as view:
            yield from reader.sessions(view)

    def damage(self) -> Iterator[Damage]:
        with self.snapshot() as view:
            yield from reader.damage(view)

    # --- the rest

    def alive(self, owner: str) -> bool | None:
        return self.owners.alive(owner)

    def workers(self) -> list[Worker]:
        return self.owners.workers()

    def database(self) -> Database:
        with self.snapshot() as view:
            before_ms = time.time() * 1000
            [row] = view.at_once("server").fetchall()
            after_ms = time.time() * 1000
        version, at_ms, synchronous, fsync, full_pages, standby, replicas = row
        off_ms = at_ms - (before_ms + after_ms) / 2
        weak = tuple(
            name
            for name, value in (("fsync", fsync), ("full_page_writes", full_pages))
            if value != "on"
        )
        return Database(
            self.where.shown,
            version,
            round(off_ms),
            synchronous,
            weak,
            standby,
            replicas,
        )

    def claim(self, limit: int, full: Sequence[str], anew: bool) -> list[str]:
        asked = {
            "me": self.owner,
            "anew": anew,
            "full": [codec.escape(one) for one in full],
            "limit": limit,
        }
        with self.snapshot() as view:
            found = view.at_once("claim", asked).fetchall()
        return [codec.unescape(id) for id, *_ in found]

    def held(self) -> list[tuple[str, int | None]]:
        with self.snapshot() as view:
            found = view.at_once("held", (self.owner,)).fetchall()
        return [(codec.unescape(id), token) for id, token in found]

    def put_back(self, session: str, waits_for: str | None) -> None:
        with self.snapshot() as view:
            view.at_once("put_back", (waits_for, codec.escape(session), self.owner))

    def look_again(self, limit: int) -> None:
        """What nothing was to be done about may be claimed once more."""
        with self.snapshot() as view:
            view.at_once("look_again", (limit,))

    def leave(self, session: str, left: Left | None) -> None:
        """Best effort, and beside the caller: a database that cannot be written keeps no word
        either, and may not even say so."""
        threading.Thread(
            target=self._leave, args=(session, left), daemon=True
        ).start()

    def _leave(self, session: str, left: Left | None) -> None:
        with contextlib.suppress(StoreError), self.snapshot() as view:
            if left is None:
                view.at_once("drop_left", (codec.escape(session),))
            else:
                view.at_once("leave", (codec.escape(session), left.turn, left.cause))

    def left(self, session: str) -> Left | None:
        with self.snapshot() as view:
            row = view.at_once("left", (codec.escape(session),)).fetchone()
        return None if row is None else Left(*row)

    def now_ms(self) -> int:
        now_ms = self.settings.now_ms
        return time.time_ns() // 1_000_000 if now_ms is None else now_ms()

    def erase(self) -> None:
        """What was removed cannot be read by SQL any more. What is left of it in dead rows goes
        when the server vacuums them; its log and its backups have their own time."""

    def stop(self) -> None:
        self.watch.close()

    def close(self) -> None:
        self._let_go()
        self.owners.close()

    def _let_go(self) -> None:
        self._closed = True
        self.watch.join()
        self._writer.close()
        with self._lending:
            while self._readers:
                self._readers.pop().connection.close()

    def forget(self) -> None:
        """As a kill of the process would: nothing is said, and all connections are gone."""
        self.owners.forget()
        self.watch.close()
        self._let_go()
