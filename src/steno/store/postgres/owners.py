"""Who has the store open. One row for each open store that has written, with a beat by the
database's clock; all that it writes is fenced by that row, however many sessions it runs.

    dead if   the beat is older than the short term, and no connection of its name is there
    or        the beat is older than the long term
    buried    its connections are ended, its row is locked and marked: nothing of it is stored after
"""

import contextlib
import threading
import time
from collections.abc import Sequence
from typing import Any

import psycopg
from msgspec import Struct

from steno.journal import codec
from steno.store.backend import Needs
from steno.store.errors import StoreError, note, warn
from steno.store.postgres.database import (
    Connected,
    Connector,
    StoreUnreachable,
    application_name,
    host,
    is_lost,
    translated,
)
from steno.store.values import new_owner

_PAUSE_S = 0.05
_LONG_DEAD = 3
"""Long terms after which a worker is dead, however long it was watched."""
_SILENT_S = 5.0
"""A database that says nothing for so long counts as gone."""


class Worker(Struct, frozen=True):
    """An open store, as others see it. Times are in seconds, by the database's clock."""

    owner: str
    host: str
    pid: int
    role: str
    since_s: float
    beat_s: float
    dead: bool
    sessions: int


class Owners:
    """This open store among the others. `owner` is its name, until it is declared dead; then it
    has another one."""

    def __init__(self, connector: Connector, owner: str) -> None:
        self.connector = connector
        self.owner = owner
        self.former: set[str] = set()
        self.registered = False
        self.doubt = False
        """The server said that what it acknowledged may not be on its replicas."""
        self._settings = connector.settings
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._asking = threading.Lock()
        self._connection: Connected | None = None
        self._k = 0
        self._since = 0.0
        """When we began to see the others' beats."""
        self.down_since: float | None = None

    # --- connections

    def connect_to_read(self, patience_s: float) -> Connected:
        return self.connect(patience_s, reads=True)

    def connect(self, patience_s: float, reads: bool = False) -> Connected:
        """A connection, to write with unless it `reads`. A database that does not answer is waited
        for."""
        until = time.monotonic() + patience_s
        while True:
            try:
                connection = self.connector.connect(reads)
            except StoreUnreachable:
                self.down_since = self.down_since or time.monotonic()
                if self._stop.is_set() or time.monotonic() >= until:
                    raise
                time.sleep(_PAUSE_S)
            else:
                self.down_since = None
                return self.noticing(connection)

    def noticing(self, connection: Connected) -> Connected:
        connection.add_notice_handler(self._noticed)
        return connection

    def _noticed(self, said: psycopg.errors.Diagnostic) -> None:
        if said.sqlstate == "01000" and "replicated" in (said.message_detail or ""):
            self.doubt = True

    def patience_s(self, needs: Sequence[Needs]) -> float:
        """What is under way waits for a database that is away; a new input alone does not."""
        new = all(
            one.key is not None or one.makes or one.name is not None for one in needs
        )
        wait_ms = (
            self._settings.refuse_ms if new and needs else self._settings.give_up_ms
        )
        return wait_ms / 1000

    # --- our row

    def register(self, connection: Connected) -> None:
        if self.registered:
            return
        where, pid = host()
        values = (
            self.owner,
            where,
            pid,
            self._settings.role,
            not self._settings.pooled,
        )
        connection.execute(self.connector.statements["register"], values)
        self.registered = True
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._serve, name="steno-beat", daemon=True
            )
            self._thread.start()

    def become_another(self) -> None:
        self.former.add(self.owner)
        self.owner = new_owner()
        self.connector.owner = self.owner
        self.registered = False
        self._k = 0

    def written(self, k: int) -> None:
        self._k = k

    def settle(self, k: int) -> bool | None:
        """Whether a batch was stored; if not, it never will be. None: the database is away."""
        until = time.monotonic() + self._settings.give_up_ms / 1000
        while True:
            with contextlib.suppress(psycopg.Error, StoreUnreachable):
                connection = self.connect(max(until - time.monotonic(), 0.0))
                with contextlib.closing(connection):
                    self.doubt = False
                    row = connection.execute(
                        self.connector.statements["settle"], (self.owner, k)
                    ).fetchone()
                    if row is not None and not self.doubt:
                        return not row[0]
            if time.monotonic() >= until or self._stop.is_set():
                return None
            time.sleep(_PAUSE_S)

    # --- others

    def alive(self, owner: str) -> bool:
        """Whether an owner is alive; one that is not is buried first, so that it stays so."""
        if owner == self.owner:
            return True
        owner = codec.escape(owner)
        name = application_name(owner)
        row = self._one("pulse", name, owner)
        if row is None or row[0]:
            return False
        _, beat_s, gone = row
        term_s = (self._settings.short_ms if gone else self._settings.long_ms) / 1000
        if beat_s <= term_s:
            return True
        # Who has just connected cannot tell a dead worker from one that could not reach the
        # database either.
        watched_s = time.monotonic() - self._since
        if watched_s < term_s and beat_s < _LONG_DEAD * self._settings.long_ms / 1000:
            return True
        return not self._bury(owner, term_s)

    def _bury(self, owner: str, term_s: float) -> bool:
        """Whether it is dead now. A frozen worker may hold its row: its connections go first."""
        self._one("end_connections", application_name(owner))
        if self._together(("bury", (owner, term_s)), *self._free(owner)):
            note("worker %s is dead; what it ran goes on elsewhere", owner)
            return True
        row = self._one("pulse", application_name(owner), owner)
        return row is None or bool(row[0])

    def _free(self, owner: str) -> list[tuple[str, Sequence[object]]]:
        """What it had in hand is ready, and all are told."""
        return [
            ("free_work", (owner,)),
            ("notify", (self.connector.work_channel, self.owner)),
        ]

    def workers(self) -> list[Worker]:
        return [Worker(*row) for row in self._all("owners")]

    def _together(self, *asked: tuple[str, Sequence[object]]) -> bool:
        """In one transaction; whether the first of them changed anything, without which the others
        are not done."""
        statements = self.connector.statements
        with self._asking, translated("cannot declare a worker dead"):
            connection = self._ours()
            try:
                with connection.transaction():
                    for at, (name, values) in enumerate(asked):
                        if (
                            not connection.execute(statements[name], values).rowcount
                            and at == 0
                        ):
                            return False
            except psycopg.Error:
                self._drop()
                raise
        return True

    def _one(self, name: str, *values: object) -> tuple[Any, ...] | None:
        found = self._all(name, *values)
        return found[0] if found else None

    def _all(self, name: str, *values: object) -> list[tuple[Any, ...]]:
        with self._asking, translated("cannot ask the database who is alive"):
            try:
                return self._asked(name, values)
            except psycopg.Error as error:
                self._drop()
                if not is_lost(error):
                    raise
                return self._asked(name, values)

    def _asked(self, name: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        cursor = self._ours().execute(self.connector.statements[name], values)
        return [] if cursor.description is None else cursor.fetchall()

    def _ours(self) -> Connected:
        if self._connection is None:
            self._connection = self.connector.connect()
            self._since = time.monotonic()
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- the beat

    def _serve(self) -> None:
        while not self._stop.wait(self._settings.short_ms / 5000):
            with contextlib.suppress(StoreError):
                self._beat()

    def _beat(self) -> None:
        if not self.registered:
            return
        if self._one("beat", self.owner) is None and not self._stop.is_set():
            warn("%s was declared dead by another worker", self.owner)
            return
        self._all("forget_batches", self.owner, self._k - 1)
        for (other,) in self._all(
            "others", self.owner, self._settings.short_ms / 1000
        ):
            self.alive(other)

    def close(self) -> None:
        """Leave in order: what we hold is free at once."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self.registered:
            me = (self.owner,)
            with contextlib.suppress(StoreError):
                self._together(
                    ("sign_off", me), ("forget_owner", me), *self._free(self.owner)
                )
        self._drop()

    def forget(self) -> None:
        """As a kill would: nothing is said, and the connections are gone."""
        self._stop.set()
        self.registered = False
        if self._thread is not None:
            self._thread.join()
        self._drop()
