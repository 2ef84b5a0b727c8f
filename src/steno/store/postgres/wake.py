"""Notices what other processes commit, and tells them what this one did.

A notification is sent after a commit, in a transaction of its own: inside, it would make all
commits of the server wait for each other. One that is lost is made up for by a look each second.

    owner                    it has committed: look
    owner · seal · pieces    it has only added this text: those who follow are handed it

Anyone who can connect to the database can notify, so pieces are sealed with a secret of the store.
"""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable
from hashlib import blake2b
from hmac import compare_digest

import msgspec
import psycopg
from psycopg import errors
from psycopg.pq import ExecStatus

from steno.journal.drafts import Kind, Stream
from steno.store.errors import StoreError, warn
from steno.store.follow import join
from steno.store.postgres.database import Connected, Connector
from steno.store.protocol import Piece
from steno.store.transaction import Changes

Tell = Callable[[], None]
Hand = Callable[[Changes], None]

LOOK_S = 1.0
_NOTIFY = b"select pg_notify($1, $2)"
_PAYLOAD_MAX = 7_900
"""Bytes; the server takes 8,000."""
_AGAIN_S = 0.25
_GATHER_S = 0.001
"""What is committed within it is told together: the first of them was told at once."""
_PART = 4
"""So many times as long as telling took is gathered, too: notifications are serial in the whole
server, and where it is busy, more of them would only make all commits wait."""
_GATHER_MAX_S = 0.05


class Wake:
    """`listens` waits for others, `tells` says that this process has committed."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._told: tuple[tuple[Tell, Hand | None], ...] = ()
        self._saying = threading.Lock()
        self._change = threading.Lock()
        self._closed = threading.Event()
        self._due = threading.Event()
        self._untold: Changes = {}
        self._more = False
        """Something was committed that is not told in words."""
        self._secret = b""
        self._offers = False
        self._threads: list[threading.Thread] = []
        self._bell, self._push = socket.socketpair()
        self._worked: Callable[[], None] = lambda: None

    # --- telling

    def committed(self, changes: Changes) -> None:
        """From the committing thread: it waits for nothing."""
        with self._saying:
            if self._more or not _are_pieces(changes):
                self._more = True
            else:
                join(self._untold, changes)
        self._say()

    def _say(self) -> None:
        if not self._due.is_set():
            self._due.set()
            if not any(thread.name == "steno-tell" for thread in self._threads):
                self._start("steno-tell", self._tell_others)

    def offer(self) -> None:
        """Tell others that there is work for which there is no room here."""
        self._offers = True
        self._say()

    def _tell_others(self) -> None:
        connection: Connected | None = None
        while not self._closed.is_set():
            self._due.wait()
            self._due.clear()
            with self._saying:
                changes, self._untold = self._untold, {}
                more, self._more = self._more, False
            try:
                if connection is None:
                    connection = self._connector.connect()
                began_s = time.monotonic()
                if more or changes:
                    said = self._connector.owner if more else self._payload(changes)
                    _notify(connection, self._connector.channel, said)
                if self._offers:
                    self._offers = False
                    _notify(
                        connection,
                        self._connector.work_channel,
                        self._connector.owner,
                    )
                took_s = time.monotonic() - began_s
                self._closed.wait(min(max(_GATHER_S, _PART * took_s), _GATHER_MAX_S))
            except (psycopg.Error, StoreError):
                if connection is not None:
                    connection.close()
                connection = None
                self._closed.wait(_AGAIN_S)
        if connection is not None:
            connection.close()

    def _payload(self, changes: Changes) -> str:
        me = self._connector.owner
        pieces = _pieces(changes)
        if pieces is None:
            return me
        said = f"{me}\n{self._seal(pieces)}\n{pieces}"
        return said if len(said.encode()) <= _PAYLOAD_MAX else me

    def _seal(self, pieces: str) -> str:
        if not self._secret:
            with contextlib.closing(self._connector.connect()) as connection:
                row = connection.execute(
                    self._connector.statements["secret"]
                ).fetchone()
            self._secret = str(row[0]).encode() if row is not None else b""
        return blake2b(pieces.encode(), digest_size=16, key=self._secret).hexdigest()

    # --- listening

    def on_work(self, tell: Callable[[], None]) -> None:
        """Have a function called, from the listening thread, when there may be work to claim."""
        self._worked = tell
        self.add(lambda: None, lambda _: None)

    def add(self, tell: Tell, hand: Hand | None = None) -> None:
        """Have a function called, from the listening thread, when others may have committed
        something since now; where all of it is at hand, it is handed over instead."""
        with self._change:
            self._told += ((tell, hand),)
            if self._closed.is_set():
                tell()
            elif not any(thread.name == "steno-listen" for thread in self._threads):
                self._start("steno-listen", self._listen)

    def discard(self, tell: Tell) -> None:
        with self._change:
            self._told = tuple(each for each in self._told if each[0] != tell)

    def _start(self, name: str, serve: Callable[[], None]) -> None:
        thread = threading.Thread(target=serve, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _tell(self) -> None:
        for tell, _ in self._told:
            tell()

    def _heard(self, payload: str) -> None:
        owner, _, rest = payload.partition("\n")
        if owner == self._connector.owner:
            return
        seal, _, pieces = rest.partition("\n")
        changes = (
            _changes(pieces)
            if seal and compare_digest(seal, self._seal(pieces))
            else None
        )
        for tell, hand in self._told:
            if changes is None or hand is None:
                tell()
            else:
                hand(changes)

    def _listen(self) -> None:
        if not self._connector.listens:
            warn(
                "behind a pooler nothing tells at once what others store, so it is looked for once "
                "a second; name the server's own address: [store] direct"
            )
        while not self._closed.is_set():
            with contextlib.suppress(psycopg.Error, StoreError):
                self._hear()
            self._tell()  # those who look find out themselves what is wrong
            self._closed.wait(_AGAIN_S)

    def _hear(self) -> None:
        with contextlib.closing(self._connector.connect_to_listen()) as connection:
            if self._connector.listens:
                for channel in (
                    self._connector.channel,
                    self._connector.work_channel,
                ):
                    connection.execute(f"listen {channel}".encode())
            self._tell()  # of what came before
            looked_s = time.monotonic()
            while not self._closed.is_set():
                left_s = max(looked_s + LOOK_S - time.monotonic(), 0.0)
                ready, _, _ = select.select(
                    [connection.fileno(), self._bell.fileno()], [], [], left_s
                )
                heard = (
                    list(connection.notifies(timeout=0))
                    if connection.fileno() in ready
                    else []
                )
                if (
                    time.monotonic() >= looked_s + LOOK_S
                ):  # however much is heard meanwhile
                    looked_s = time.monotonic()
                    self._tell()
                for one in heard:
                    if one.channel == self._connector.channel:
                        self._heard(one.payload)
                    else:
                        self._worked()

    def close(self) -> None:
        """Those who wait are told once more, and find the store closed."""
        with self._change:
            self._closed.set()
        self._due.set()
        self._push.close()
        self._tell()

    def join(self) -> None:
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(LOOK_S + 1)
        self._bell.close()


def _notify(connection: Connected, channel: str, payload: str) -> None:
    """Past the driver's way to a statement, which takes longer than this one."""
    said = connection.pgconn.exec_params(
        _NOTIFY, [channel.encode(), payload.encode()]
    )
    if said.status == ExecStatus.FATAL_ERROR:
        raise errors.error_from_result(said)


_Told = list[tuple[str, list[tuple[int, Kind, int, str]]]]
"""Sessions, each with its pieces: stream, kind, offset, text."""


def _are_pieces(changes: Changes) -> bool:
    """Whether a commit only added to streams."""
    return all(
        events and all(isinstance(one, Piece) for one in events)
        for events in changes.values()
    )


def _pieces(changes: Changes) -> str | None:
    """None if there is more to tell than added text, or text that cannot be said."""
    told: _Told = []
    for session, events in changes.items():
        pieces = [one for one in events or () if isinstance(one, Piece)]
        if not events or len(pieces) < len(events):
            return None
        told.append(
            (session, [(*_named(one.stream), one.offset, one.text) for one in pieces])
        )
    try:
        return msgspec.json.encode(told).decode()
    except UnicodeEncodeError:
        return None


def _named(stream: Stream) -> tuple[int, Kind]:
    return stream.started, stream.kind


def _changes(pieces: str) -> Changes | None:
    try:
        told = msgspec.json.decode(pieces, type=_Told)
    except msgspec.DecodeError:
        return None
    return {
        session: [
            Piece(Stream(started, kind), at, text) for started, kind, at, text in some
        ]
        for session, some in told
    }
