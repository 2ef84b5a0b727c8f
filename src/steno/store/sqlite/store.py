"""The SQLite store for async callers: the same verbs, awaited until they are durable."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import apsw

from steno.journal.drafts import Draft, Stream
from steno.journal.facts import AnyFact, FreeFact, Record, SessionStarted, TurnFact, parts_of
from steno.journal.parts import Hash, Seq
from steno.store.errors import LeaseLost, StoreError
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
    Piece,
    Release,
    Report,
    Settings,
)
from steno.store.sqlite import operations, reading
from steno.store.sqlite.blocking import BlockingStore, log_fenced
from steno.store.sqlite.pipeline import Ticket
from steno.store.sqlite.places import Memory
from steno.store.sqlite.transaction import Changes, Transaction
from steno.store.values import check_cursor, expect

T = TypeVar("T")
P = ParamSpec("P")

_HANDED_MAX = 100
_TICKET_BYTES = 400
"""What a queued verb costs beside its text, for the bound on the queue."""


class _Follower:
    """Somebody who follows a session: what of it, and how far.

    What this process has committed is handed over, and is taken where it joins on to what the
    follower has seen; whatever else happens makes the follower look at what is stored.

        seen 4 · handed: step 5, "Hel" at 0, "lo" at 3, sealed 6    taken, nothing is read
        seen 4 · handed: 6                                          another process wrote 5: look
        seen 6 · handed: "lo" at 3 of 5                             seen already: 5 is sealed. Look
    """

    def __init__(self, session: str, seen: Cursor, drafts: bool) -> None:
        self.session = session
        self.seen = seen
        self.drafts = drafts
        self.must_look = True
        self.handed: deque[Event] = deque()
        self.changed = asyncio.Event()

    def look(self) -> None:
        """What was handed over is stored: looking finds it."""
        self.handed.clear()
        self.must_look = True
        self.changed.set()

    def hand(self, events: list[Event]) -> None:
        """A follower that is slow to take what it is handed reads it back instead."""
        wanted = [event for event in events if self.drafts or isinstance(event, Record)]
        if not wanted:
            return
        self.handed.extend(wanted)
        self.changed.set()
        if len(self.handed) > _HANDED_MAX:
            self.look()

    def reaches(self) -> Seq:
        """The last fact that was seen or handed over."""
        handed = (event.seq for event in reversed(self.handed) if isinstance(event, Record))
        return max(self.seen.seq, next(handed, 0))

    def take(self) -> list[Event]:
        """What was handed over and is new."""
        events: list[Event] = []
        seq, offsets = self.seen.seq, dict(self.seen.offsets)
        while self.handed:
            event = self.handed.popleft()
            if isinstance(event, Record):
                if event.seq > seq + 1:
                    self.look()
                elif event.seq == seq + 1:
                    events += reading.events_of(event, offsets, self.drafts)
                    seq = event.seq
                continue
            begins = 0 if event.stream.started == seq else None
            at, end = offsets.get(event.stream, begins), event.offset + len(event.text)
            if at is None or event.offset > at:
                self.look()
            elif end > at:
                events.append(Piece(event.stream, at, event.text[at - event.offset :]))
                offsets[event.stream] = end
        self.seen = Cursor(seq, tuple(offsets.items()))
        return events


class SqliteStore:
    """Belongs to the event loop it was made in."""

    def __init__(self, blocking: BlockingStore) -> None:
        self.blocking = blocking
        self._pipeline = blocking.pipeline
        self._loop = asyncio.get_running_loop()
        self._queued = 0
        self._queued_max = blocking.settings.queue_bytes_max
        self._room = asyncio.Event()
        self._followers: dict[str, set[_Follower]] = {}
        self._looking = False
        blocking.listen(self._committed)

    @classmethod
    async def open(cls, where: Path | Memory, settings: Settings | None = None) -> "SqliteStore":
        return cls(await asyncio.to_thread(BlockingStore, where, settings))

    async def __aenter__(self) -> "SqliteStore":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def owner(self) -> str:
        return self.blocking.owner

    # --- verbs that go straight to the pipeline

    async def admit(self, admission: Admission) -> Admitted:
        size = self.blocking.check_sizes(admission) + _weight((admission.input,))
        moment = self.blocking.moment
        return await self._submit(lambda tx: operations.admit(tx, admission, moment()), size)

    async def add(
        self, session: str, facts: Sequence[FreeFact], key: str | None = None
    ) -> Appended:
        moment = self.blocking.moment
        return await self._submit(lambda tx: operations.add(tx, session, facts, key, moment()))

    async def renew(self, lease: Lease) -> Lease:
        expires_ms = self.blocking.now_ms() + self.blocking.settings.lease_ms
        return await self._submit(lambda tx: operations.renew(tx, lease, expires_ms))

    async def release(self, lease: Lease, head: Seq) -> Release:
        answer = await self._submit(lambda tx: operations.release(tx, lease, head))
        if answer.released:
            self.blocking.abandon(lease)
        return answer

    async def abandon(self, lease: Lease, left: Left | None = None) -> None:
        self.blocking.abandon(lease, left)

    async def append(self, lease: Lease, facts: Sequence[TurnFact], head: Seq) -> Appended:
        moment = self.blocking.moment
        return await self._submit(
            lambda tx: operations.append(tx, lease, facts, head, moment()), _weight(facts)
        )

    async def draft(self, lease: Lease, stream: Stream, text: str) -> int:
        expect(str, text=text)
        return await self._submit(lambda tx: operations.draft(tx, lease, stream, text), len(text))

    # --- verbs that may take a while, each in a thread

    async def create(self, started: SessionStarted, session: str | None = None) -> str:
        return await self._thread(BlockingStore.create, started, session)

    async def ensure(self, started: SessionStarted) -> str:
        return await self._thread(BlockingStore.ensure, started)

    async def fork(self, session: str, at: Seq, started: SessionStarted) -> str:
        return await self._thread(BlockingStore.fork, session, at, started)

    async def acquire(self, session: str) -> Lease:
        return await self._thread(BlockingStore.acquire, session)

    async def running(self, session: str) -> str | None:
        return await self._thread(BlockingStore.running, session)

    async def read(self, session: str, after: Seq = 0, limit: int = 1_000) -> list[Record]:
        return await self._thread(BlockingStore.read, session, after, limit)

    async def drafts(self, session: str) -> list[Draft]:
        return await self._thread(BlockingStore.drafts, session)

    async def glance(self, session: str) -> Glance:
        return await self._thread(BlockingStore.glance, session)

    async def find(self, name: str) -> str | None:
        return await self._thread(BlockingStore.find, name)

    async def owing(self, limit: int = 100, after: int = 0) -> list[Listed]:
        return await self._thread(BlockingStore.owing, limit, after)

    async def alive(self, owner: str) -> bool:
        return await self._thread(BlockingStore.alive, owner)

    async def keys(self, session: str) -> list[Keyed]:
        return await self._thread(BlockingStore.keys, session)

    async def imported(self, session: str) -> Seq:
        return await self._thread(BlockingStore.imported, session)

    async def edits(self, session: str, after: Seq) -> list[Record]:
        return await self._thread(BlockingStore.edits, session, after)

    async def due(self, limit: int = 10) -> list[Listed]:
        return await self._thread(BlockingStore.due, limit)

    async def remembered(self, limit: int = 10, before: int | None = None) -> list[Listed]:
        return await self._thread(BlockingStore.remembered, limit, before)

    async def list(self, limit: int = 50, before: int | None = None) -> list[Listed]:
        return await self._thread(BlockingStore.list, limit, before)

    async def put(self, session: str, payload: bytes) -> Hash:
        return await self._thread(BlockingStore.put, session, payload)

    async def get(self, payload: Hash) -> bytes:
        return await self._thread(BlockingStore.get, payload)

    async def sharing(self, session: str, seq: Seq) -> tuple[str, ...]:
        return await self._thread(BlockingStore.sharing, session, seq)

    async def bring(self, session: str, base: Seq, carried: Iterable[Carried]) -> None:
        await self._thread(BlockingStore.bring, session, base, carried)

    async def redact(self, session: str, target: Seq, by: str = "user") -> Seq:
        return await self._thread(BlockingStore.redact, session, target, by)

    async def delete(self, session: str, with_forks: bool = False) -> int:
        return await self._thread(BlockingStore.delete, session, with_forks)

    async def verify(self) -> Report:
        return await self._thread(BlockingStore.verify)

    async def backup(self, to: Path) -> None:
        await self._thread(BlockingStore.backup, to)

    async def close(self) -> None:
        """Followers are told: their next look raises `StoreClosed`."""
        await self._thread(BlockingStore.close)
        for followers in self._followers.values():
            for follower in followers:
                follower.look()

    async def _thread(
        self, verb: Callable[Concatenate[BlockingStore, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await asyncio.to_thread(verb, self.blocking, *args, **kwargs)

    # --- following

    async def follow(
        self, session: str, cursor: Cursor | None = None, drafts: bool = True
    ) -> AsyncGenerator[Event, None]:
        """What is new, and then what comes, for ever; without `drafts`, facts only. Close the
        iterator to leave."""
        cursor = cursor or Cursor()
        check_cursor(cursor)
        expect(str, session=session)
        follower = _Follower(session, cursor, drafts)
        if not self._followers:
            self.blocking.watch.add(self._others_committed)
        self._followers.setdefault(session, set()).add(follower)
        try:
            while True:
                for event in await self._news(follower):
                    yield event
        finally:
            self._followers[session].discard(follower)
            if not self._followers[session]:
                del self._followers[session]
            if not self._followers:
                self.blocking.watch.discard(self._others_committed)

    async def _news(self, follower: _Follower) -> Sequence[Event]:
        """What a follower has not seen yet; empty where it turns out that there is nothing."""
        while not follower.must_look and not follower.handed:
            follower.changed.clear()
            await follower.changed.wait()
        if not follower.must_look:
            return follower.take()
        follower.must_look = False
        seen, drafts = follower.seen, follower.drafts
        events, follower.seen = await self._thread(
            BlockingStore.since, follower.session, seen, drafts
        )
        follower.must_look |= len(events) >= reading.PAGE
        return events

    def _committed(self, changes: Changes) -> None:
        """From the committing thread, before its next commit: tell those who follow what has just
        changed."""
        if self._followers:
            self._loop.call_soon_threadsafe(self._tell, changes)

    def _tell(self, changes: Changes) -> None:
        for session, events in changes.items():
            for follower in self._followers.get(session, ()):
                if events is None:
                    follower.look()
                else:
                    follower.hand(events)

    def _others_committed(self) -> None:
        """From the watching thread: one look for all who follow."""
        if not self._looking:
            self._looking = True
            with contextlib.suppress(
                RuntimeError
            ):  # the loop is over, and so is who followed in it
                self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        """Who follows text that another process may write looks for it; the others look when there
        are new facts. If nothing can be read, all look and find out why."""
        self._looking = False
        heads: dict[str, tuple[Seq, int | None]] = {}
        readable = False
        with contextlib.suppress(StoreError, apsw.Error), self.blocking.reader() as connection:
            heads = reading.heads(connection, list(self._followers))
            readable = True
        for session, followers in self._followers.items():
            head, token = heads.get(session, (-1, None))
            elsewhere = token is not None and not self.blocking.holds(session, token)
            for follower in followers:
                changed = head != follower.reaches() or (elsewhere and follower.drafts)
                if changed or not readable:
                    follower.look()

    # --- the pipeline, awaited

    async def _submit(self, verb: Callable[[Transaction], T], size: int = 0) -> T:
        """Queue a verb and wait until it is durable. A full queue makes the caller wait first."""
        size += _TICKET_BYTES
        while self._queued > self._queued_max:
            self._room.clear()
            await self._room.wait()
        self._queued += size
        future: asyncio.Future[T] = self._loop.create_future()
        ticket = Ticket(verb, self, size, future)
        self._pipeline.submit(ticket)
        try:
            return await future
        except LeaseLost as error:
            log_fenced(error)
            raise

    def answered(self, tickets: Sequence[Ticket[object]]) -> None:
        self._loop.call_soon_threadsafe(self._resolve, tickets)

    def _resolve(self, tickets: Sequence[Ticket[object]]) -> None:
        for ticket in tickets:
            self._queued -= ticket.size
            future: asyncio.Future[object] = ticket.future  # type: ignore[assignment]
            if future.cancelled():
                continue
            if ticket.error is None:
                future.set_result(ticket.answer)
            else:
                future.set_exception(ticket.error)
        self._room.set()


def _weight(facts: Sequence[AnyFact]) -> int:
    """About how much memory queued facts hold."""
    weight = 0
    try:
        for fact in facts:
            for part in parts_of(fact):
                weight += len(getattr(part, "text", ""))
    except (TypeError, AttributeError):
        return 0  # it will be refused
    return weight
