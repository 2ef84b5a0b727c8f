"""The SQLite store for callers that may block: scripts, other frameworks' threads. The async store
sits on it."""

import contextlib
import os
import threading
import time
import weakref
from base64 import b32encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import NoneType
from typing import TypeVar

import apsw
from msgspec.structs import replace

from steno.journal.drafts import Draft, Stream
from steno.journal.facts import FreeFact, Record, SessionStarted, TurnFact
from steno.journal.listing import ListingRow
from steno.journal.parts import Hash, Seq
from steno.store import log
from steno.store.errors import (
    LeaseLost,
    NotAllowed,
    OutcomeUnknown,
    SessionBusy,
    StoreClosed,
    StoreError,
    StoreUnwritable,
    UnknownSession,
)
from steno.store.protocol import (
    Admission,
    Admitted,
    Appended,
    Carried,
    Cursor,
    Event,
    Glance,
    Keyed,
    Lease,
    Left,
    Listed,
    Release,
    Report,
    Settings,
)
from steno.store.sqlite import arriving, backup, forgetting, operations, reading, verify
from steno.store.sqlite.operations import Moment
from steno.store.sqlite.pipeline import Pipeline
from steno.store.sqlite.places import Memory, Owners, opened
from steno.store.sqlite.transaction import Changes, Transaction
from steno.store.sqlite.watch import Watch
from steno.store.values import check_lease, expect

T = TypeVar("T")

_IMPORT_MS_MAX = 24 * 3_600_000
"""Where nobody can tell whether a process is alive, an import that takes longer counts as given
up."""


class BlockingStore:
    """Every verb of the store protocol, as a plain method. Safe to use from many threads."""

    def __init__(self, where: Path | Memory, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self._place, self._writer = opened(where, self.settings, _owner())
        self.path = self._place.path
        self.locks = self._place.owners
        self._readers: list[apsw.Connection] = []
        self._listeners: list[Callable[[Changes], None]] = []
        self._leases: set[tuple[str, int]] = set()
        self._closed = False
        self._pid = os.getpid()
        self.pipeline = Pipeline(Transaction(self._writer, self._place.turns), self._committed)
        self.watch = Watch(self._place.log, self.reader)
        self._remains = self._place.remains(self._writer, self.pipeline)
        _close_in_forks(self.locks)
        try:
            with contextlib.suppress(
                StoreUnwritable, OutcomeUnknown
            ):  # a full disk is no reason not to read
                self._sweep()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "BlockingStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def owner(self) -> str:
        return self.locks.owner

    # --- what needs no lease

    def admit(self, admission: Admission) -> Admitted:
        self.check_sizes(admission)
        return self.pipeline.run(lambda tx: operations.admit(tx, admission, self.moment()))

    def create(self, started: SessionStarted, session: str | None = None) -> str:
        return self.pipeline.run(lambda tx: operations.create(tx, started, session, self.moment()))

    def ensure(self, started: SessionStarted) -> str:
        """The session bound to `started.name`, made if there is none."""
        return self.pipeline.run(lambda tx: operations.ensure(tx, started, self.moment()))

    def fork(self, session: str, at: Seq, started: SessionStarted) -> str:
        expect(int, at=at)
        listing = ListingRow()
        for record in self.read_all(session, upto=at):
            listing.apply(record)
        return self.pipeline.run(
            lambda tx: operations.fork(tx, session, at, started, listing, self.moment())
        )

    def add(self, session: str, facts: Sequence[FreeFact], key: str | None = None) -> Appended:
        return self.pipeline.run(lambda tx: operations.add(tx, session, facts, key, self.moment()))

    # --- leases

    def acquire(self, session: str) -> Lease:
        """Take the lease of a session that is free, expired, or whose owner is dead."""
        while True:
            with self.reader() as connection, reading.snapshot(connection):
                row = reading.session(connection, session)
            if self._is_held(row):
                raise SessionBusy(session, str(row.owner))
            lease = self._take(session, row.token)
            if lease is not None:
                return lease

    def _take(self, session: str, token: int) -> Lease | None:
        """The lease is known to be ours before anybody can read that it is taken: else another
        thread of this process, finding an owner that vouches for nothing, would take it from us."""
        expires_ms = self.now_ms() + self.settings.lease_ms

        def verb(tx: Transaction) -> Lease | None:
            lease = operations.acquire(tx, session, self.locks.owner, token, expires_ms)
            if lease is not None:
                self._leases.add((session, lease.token))
            return lease

        try:
            return self.pipeline.run(verb)
        except BaseException:
            self._leases.discard((session, token + 1))
            raise

    def abandon(self, lease: Lease, left: Left | None = None) -> None:
        """Give a lease up without storing that: for when the store cannot be written. The session
        is free again."""
        check_lease(lease)
        if left is not None and self.holds(lease.session, lease.token):
            self.locks.leave(lease.session, f"{left.turn}@{left.cause}")
        self._leases.discard((lease.session, lease.token))

    def holds(self, session: str, token: int) -> bool:
        """Whether this process has that lease: then nobody else adds to the session's streams."""
        return (session, token) in self._leases

    def running(self, session: str) -> str | None:
        """Who runs a session at this moment, if anyone."""
        with self.reader() as connection, reading.snapshot(connection):
            row = reading.session(connection, session)
        return row.owner if self._is_held(row) else None

    def _is_held(self, row: reading.SessionRow) -> bool:
        """The OS lock decides: it dies with its process. Where that cannot be trusted, the lease's
        term does."""
        if row.owner is None:
            return False
        if row.owner == self.locks.owner:
            return self.holds(row.id, row.token)
        if self.settings.allow_network_file_system:
            return row.expires_ms > self.now_ms()
        return self.locks.alive(row.owner)

    def glance(self, session: str) -> Glance:
        """What is under way in a session, of one moment. Facts up to its `head` belong to it."""
        while True:
            row, glance = self._glance(session)
            if row.owner is None or self._is_held(row):
                return glance
            again, _ = self._glance(session)
            if (again.head, again.token, again.owner) == (row.head, row.token, row.owner):
                return replace(glance, owner=None)

    def _left(self, session: str) -> Left | None:
        turn, _, cause = self.locks.left(session).partition("@")
        return Left(int(turn), cause) if turn.isdigit() else None

    def _glance(self, session: str) -> tuple[reading.SessionRow, Glance]:
        with self.reader() as connection, reading.snapshot(connection):
            row = reading.session(connection, session)
            listing = reading.listing(connection, row)
            drafts = reading.drafts(connection, row)
        left = None if row.owner is None else self._left(session)
        return row, Glance(row.head, row.owner, tuple(drafts), listing, left)

    def renew(self, lease: Lease) -> Lease:
        expires_ms = self.now_ms() + self.settings.lease_ms
        return self._fenced(lambda tx: operations.renew(tx, lease, expires_ms))

    def release(self, lease: Lease, head: Seq) -> Release:
        answer = self._fenced(lambda tx: operations.release(tx, lease, head))
        if answer.released:
            self.abandon(lease)
        return answer

    def append(self, lease: Lease, facts: Sequence[TurnFact], head: Seq) -> Appended:
        return self._fenced(lambda tx: operations.append(tx, lease, facts, head, self.moment()))

    def draft(self, lease: Lease, stream: Stream, text: str) -> int:
        return self._fenced(lambda tx: operations.draft(tx, lease, stream, text))

    def _fenced(self, verb: Callable[[Transaction], T]) -> T:
        try:
            return self.pipeline.run(verb)
        except LeaseLost as error:
            log_fenced(error)
            raise

    # --- reading

    def read(self, session: str, after: Seq = 0, limit: int = 1_000) -> list[Record]:
        expect(int, after=after, limit=limit)
        with self.reader() as connection, reading.snapshot(connection):
            return reading.records(connection, reading.session(connection, session), after, limit)

    def read_all(self, session: str, after: Seq = 0, upto: Seq | None = None) -> Iterator[Record]:
        """Every fact in order, page by page."""
        while page := self.read(session, after, reading.PAGE):
            for record in page:
                if upto is not None and record.seq > upto:
                    return
                yield record
            after = page[-1].seq

    def drafts(self, session: str) -> list[Draft]:
        with self.reader() as connection, reading.snapshot(connection):
            return reading.drafts(connection, reading.session(connection, session))

    def since(
        self, session: str, cursor: Cursor, drafts: bool = True
    ) -> tuple[list[Event], Cursor]:
        with self.reader() as connection:
            return reading.since(connection, session, cursor, reading.PAGE, drafts)

    def follow(self, session: str, cursor: Cursor | None = None) -> Iterator[Event]:
        """What is new, and then what comes, for ever. Stop iterating to leave."""
        cursor = cursor or Cursor()
        changed = threading.Event()

        def committed(changes: Changes) -> None:
            if session in changes:
                changed.set()

        self._listeners.append(committed)
        self.watch.add(changed.set)
        try:
            while True:
                changed.clear()
                events, cursor = self.since(session, cursor)
                yield from events
                if not events:
                    changed.wait()
        finally:
            self._listeners.remove(committed)
            self.watch.discard(changed.set)

    def find(self, name: str) -> str | None:
        with self.reader() as connection, reading.snapshot(connection):
            return reading.bound(connection, name)

    def due(self, limit: int = 10) -> list[Listed]:
        """Sessions of which enough was said since their last distillate, the most recently changed
        first."""
        expect(int, limit=limit)
        with self.reader() as connection, reading.snapshot(connection):
            return reading.due(connection, limit)

    def remembered(self, limit: int = 10, before: int | None = None) -> list[Listed]:
        """Sessions that have something to remember, the most recently changed first."""
        expect(int, limit=limit)
        expect((int, NoneType), before=before)
        with self.reader() as connection, reading.snapshot(connection):
            return reading.remembered(connection, limit, before)

    def owing(self, limit: int = 100, after: int = 0) -> list[Listed]:
        """Sessions that owe something to somebody outside them, by number. Ask the next page with
        the last `mark`."""
        expect(int, limit=limit, after=after)
        with self.reader() as connection, reading.snapshot(connection):
            found = reading.owing(connection, limit, after)
        return self._with_runners(found)

    def keys(self, session: str) -> list[Keyed]:
        """What was added to a session under keys."""
        with self.reader() as connection, reading.snapshot(connection):
            row = reading.session(connection, session)
            return reading.keys_added(connection, row, operations.RESERVED_SOURCE + session)

    def imported(self, session: str) -> Seq:
        """Up to which seq the facts of a session came from another store; 0 if it began here."""
        with self.reader() as connection, reading.snapshot(connection):
            return reading.imported(connection, reading.session(connection, session))

    def edits(self, session: str, after: Seq) -> list[Record]:
        """What was hidden or taken back after a seq, or put back; of a fork, there."""
        expect(int, after=after)
        with self.reader() as connection, reading.snapshot(connection):
            return reading.edits(connection, reading.session(connection, session), after)

    def _with_runners(self, found: list[Listed]) -> list[Listed]:
        return [
            one if one.owner is None else replace(one, owner=self.running(one.id)) for one in found
        ]

    def list(self, limit: int = 50, before: int | None = None) -> list[Listed]:
        expect(int, limit=limit)
        expect((int, NoneType), before=before)
        with self.reader() as connection, reading.snapshot(connection):
            found = reading.listed(connection, limit, before)
        return self._with_runners(found)

    def alive(self, owner: str) -> bool:
        """Whether the process behind an owner still runs. Where file locks cannot be trusted,
        nobody can tell, and every owner counts as alive."""
        expect(str, owner=owner)
        return self.settings.allow_network_file_system or self.locks.alive(owner)

    # --- payloads

    def put(self, session: str, payload: bytes) -> Hash:
        self.check_size(payload)
        hash = sha256(payload).hexdigest()
        return self.pipeline.run(lambda tx: operations.put(tx, session, hash, payload))

    def get(self, payload: Hash) -> bytes:
        with self.reader() as connection, reading.snapshot(connection):
            return reading.payload(connection, payload)

    # --- bringing a session from another store

    def bring(self, session: str, base: Seq, carried: Iterable[Carried]) -> None:
        """Store a session of another store, whole or not at all, under the id that it had there.
        Facts up to `base` are those of the sessions that it was forked from. What `carried` raises
        ends it, and nothing is stored."""
        expect(int, base=base)
        expect(Iterable, carried=carried)
        arrival = arriving.Arrival(session, base, self.settings.payload_bytes_max)
        n = self.pipeline.run(lambda tx: arriving.begin(tx, session, self.owner, self.moment()))
        try:
            touched = 0
            for batch in arrival.batches(carried):
                touched = (
                    self.pipeline.run(partial(arriving.stage, n=n, owner=self.owner, batch=batch))
                    or touched
                )
            self.pipeline.run(lambda tx: arriving.finish(tx, n, self.owner, arrival, touched))
        except BaseException:
            with contextlib.suppress(StoreError):  # the next process sweeps it
                self.pipeline.run(partial(arriving.fail, n=n))
                self._sweep()
            raise

    def _abandoned(self, at_ms: int, owner: str) -> bool:
        if owner in ("", self.owner):
            return not owner
        if self.settings.allow_network_file_system:
            return at_ms + _IMPORT_MS_MAX < self.now_ms()
        return not self.locks.alive(owner)

    # --- removing, checking, copying

    def sharing(self, session: str, seq: Seq) -> tuple[str, ...]:
        """All sessions that have a fact of this one: the one that it was added to, and the forks of
        that."""
        expect(int, seq=seq)
        with self.reader() as connection, reading.snapshot(connection):
            own = reading.holder(connection, reading.session(connection, session), seq)
            return tuple(row.id for row in reading.family(connection, own, seq))

    def redact(self, session: str, target: Seq, by: str = "user") -> Seq:
        expect(int, target=target)
        expect(str, by=by)
        with self.reader() as connection, reading.snapshot(connection):
            at = reading.redactable(connection, reading.session(connection, session), target)
        self._forget_text(*at)
        seq = self.pipeline.run(
            lambda tx: operations.redact(tx, session, target, at, by, self.moment())
        )
        self._forget_text(*at)
        self._erase()
        return seq

    def delete(self, session: str, with_forks: bool = False) -> int:
        try:
            count = self.pipeline.run(
                lambda tx: operations.delete(tx, session, with_forks, self.moment())
            )
        except UnknownSession:
            if self._was_deleted(session):
                self._erase()
            raise
        self.locks.leave(session, "")
        log.note("deleted session %r (%d with its forks)", session, count)
        self._erase()
        return count

    def _forget_text(self, holder: str, seq: Seq) -> None:
        """Have other sessions forget what was distilled from a fact. Before it goes, so that a kill
        between the two leaves no copy that nobody looks for; and after, for those who were told
        meanwhile."""
        with self.reader() as connection, reading.snapshot(connection):
            family = reading.family(connection, reading.session(connection, holder), seq)
            doomed = {row.id: forgetting.covering(connection, row, seq) for row in family}
        gone = {(id, record.seq) for id, records in doomed.items() for record in records}
        if gone:
            self._forget(doomed, lambda at: (at.session, at.seq) in gone)

    def _forget(self, sources: Iterable[str], gone: forgetting.Gone) -> None:
        for source in sources:
            with self.reader() as connection, reading.snapshot(connection):
                told = [reading.session(connection, id) for id in reading.told(connection, source)]
                told = [row for row in told if forgetting.has_memories(connection, row, gone)]
            for row in told:
                self.pipeline.run(partial(forgetting.forget_memories, id=row.id, gone=gone))

    def _was_deleted(self, session: str) -> bool:
        with self.reader() as connection, reading.snapshot(connection):
            return reading.was_deleted(connection, session)

    def _erase(self) -> None:
        """Leave nothing of what was removed in any file. If that fails, the same call again goes on
        from here."""
        try:
            self._sweep()
            self._remains.scrub()
        except (StoreUnwritable, OutcomeUnknown, OSError) as error:
            raise OutcomeUnknown(
                f"removed from the journal, but not from every file yet: {error}"
            ) from error

    def vacuum(self) -> None:
        """Write the store anew, without the room that removed facts left. Holds writers up
        meanwhile."""
        self._remains.vacuum()

    def verify(self) -> Report:
        with self.reader() as connection:
            return verify.verify(connection)

    def backup(self, to: Path) -> None:
        expect(Path, to=to)
        with self.reader() as connection:
            backup.backup(connection, to)

    def close(self) -> None:
        """Let go of the store. Correctness does not need it: a kill leaves the same facts."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._pid:
            return  # a forked child: everything here is its parent's
        self.watch.close()
        self._remains.close()
        self.pipeline.close()
        while self._readers:
            self._readers.pop().close()
        self._writer.close()
        self.locks.close()

    # --- shared with the async store

    def now_ms(self) -> int:
        return (
            time.time_ns() // 1_000_000 if self.settings.now_ms is None else self.settings.now_ms()
        )

    def moment(self) -> Moment:
        return Moment(self.now_ms(), self.settings.new_id or new_id)

    @contextlib.contextmanager
    def reader(self) -> Iterator[apsw.Connection]:
        """A connection for reading, from those that are idle or a new one."""
        if self._closed:
            raise StoreClosed("this store was closed")
        if os.getpid() != self._pid:
            raise StoreClosed("this store was opened before a fork; open it again in the child")
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = self._place.reader()
        try:
            yield connection
        finally:
            if connection.txn_state() == apsw.SQLITE_TXN_NONE:
                self._readers.append(connection)
            else:
                # An error that a caller keeps holds a statement half read, and with it the past.
                connection.close()

    def check_size(self, payload: bytes) -> None:
        expect(bytes, payload=payload)
        if len(payload) > self.settings.payload_bytes_max:
            raise NotAllowed(f"a payload may have {self.settings.payload_bytes_max} bytes at most")

    def check_sizes(self, admission: Admission) -> int:
        """How many bytes of payloads come with an input."""
        expect(Admission, admission=admission)
        expect(tuple, payloads=admission.payloads)
        for payload in admission.payloads:
            self.check_size(payload)
        return sum(map(len, admission.payloads))

    def listen(self, listener: Callable[[Changes], None]) -> None:
        """Have a function called, from the committing thread, with what each commit of this process
        changed."""
        self._listeners.append(listener)

    def _committed(self, changes: Changes) -> None:
        for listener in tuple(self._listeners):
            listener(changes)

    def _sweep(self) -> None:
        with self.reader() as connection, reading.snapshot(connection):
            deleted = reading.unswept(connection)
            under_way = reading.arriving(connection)
        abandoned = [n for n, at_ms, owner in under_way if self._abandoned(at_ms, owner)]
        if not deleted and not abandoned:
            return
        self._forget(deleted, lambda at: at.session in deleted)
        for n in abandoned:
            self.pipeline.run(partial(arriving.fail, n=n))
        while self.pipeline.run(operations.sweep):
            pass


def log_fenced(error: LeaseLost) -> None:
    log.warn("refused a write to session %r with the old token %d", error.session, error.token)


def new_id() -> str:
    """13 characters, 65 bits of chance: short enough to type the start of, long enough never to
    meet."""
    return b32encode(os.urandom(9)).decode().lower()[:13]


def _owner() -> str:
    """Names this open store to people and to other processes; never used twice."""
    name = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    host = "".join(letter for letter in name if letter.isalnum() or letter in "-.")[:40] or "host"
    return f"{host}.{os.getpid()}.{os.urandom(4).hex()}"


def _close_in_forks(owners: Owners) -> None:
    if not hasattr(os, "register_at_fork"):
        return
    reference = weakref.ref(owners)

    def forget() -> None:
        held = reference()
        if held is not None:
            held.forget()

    os.register_at_fork(after_in_child=forget)
