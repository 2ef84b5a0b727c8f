"""The writer of a session: its lease, what it keeps in memory, and the one way to add turn facts.

What must be true:

- A fact is taken into memory after it is committed, and after what others had stored before it. So
  memory is the fold of the journal, and can be thrown away at any moment.
- The lease is ours from before the first read until after the last write. Only what closes a turn
  that was left open is read before, and stored with the lease if it is still as it was read.

Nothing here needs an event loop: over a store whose verbs never suspend, nothing suspends.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any

from steno.engine.recover import close, recover
from steno.journal.drafts import Stream
from steno.journal.facts import Record, TurnFact
from steno.journal.parts import Seq
from steno.journal.state import State
from steno.session.load import Folds, Sessions
from steno.store.errors import LeftOpen, StoreError
from steno.store.protocol import Closing, Glance, Lease, Left, Store, read_all


def _nothing(_: Record) -> None:
    return


class Writer:
    """`taken_in` is called with each fact, ours and those of others, after memory has it."""

    def __init__(
        self,
        sessions: Sessions,
        lease: Lease,
        folds: Folds,
        taken_in: Callable[[Record], None] = _nothing,
    ) -> None:
        self.id = lease.session
        self.state = folds.state
        self._sessions = sessions
        self._store = sessions.store
        self._lease = lease
        self._folds = folds
        self._taken_in = taken_in
        self._left = False
        self._cut_off: Left | None = None

    @classmethod
    async def open(
        cls, sessions: Sessions, id: str, to_run: bool = False
    ) -> "Writer":
        """Take the lease, fold, and close what the last writer left open. Without `to_run` a turn
        that waits for approval is ended, too."""
        lease = await take_lease(sessions, id, to_run)
        writer = cls(sessions, lease, await folded(sessions, lease))
        try:
            await writer.append(await writer.left_open(to_run))
        except BaseException:
            await writer.give_up()
            raise
        return writer

    async def append(
        self, facts: Sequence[TurnFact], telling: Callable[[Record], None] = _nothing
    ) -> Seq:
        """Store facts, then take them in, each after `telling` heard of it. The seq of the
        first."""
        if not facts:
            return self.state.head
        added = await self._store.append(self._lease, facts, self.state.head)
        for record in added.foreign:
            self._take_in(record)
        for seq, fact in enumerate(facts, start=added.first):
            record = Record(seq, added.at_ms, fact)
            telling(record)
            self._take_in(record)
        return added.first

    async def record(self, *facts: TurnFact) -> Seq:
        return await self.append(facts)

    def draft(self, stream: Stream, text: str) -> Coroutine[Any, Any, int]:
        """Make text durable; it may be shown when that is awaited. The new end of the stream."""
        return self._store.draft(self._lease, stream, text)

    async def catch_up(self) -> None:
        """Take in what others added."""
        async for record in read_all(self._store, self.id, self.state.head):
            self._take_in(record)

    async def left_open(self, to_run: bool) -> tuple[TurnFact, ...]:
        """The facts that close what the last writer left open. Without `to_run` a turn that waits
        for approval is ended, too."""
        if self.state.turn is None and not self.state.helpers:
            return ()
        return _to_close(self.state, await self._store.glance(self.id), to_run)

    async def renew(self) -> None:
        await self._store.renew(self._lease)

    async def release(self) -> bool:
        """Let go, unless something came that we have not seen: then it is taken in."""
        answer = await self._store.release(self._lease, self.state.head)
        for record in answer.foreign:
            self._take_in(record)
        if answer.released:
            await self.leave()
        return answer.released

    async def close(self) -> None:
        """Let go, whatever came meanwhile."""
        while not await self.release():
            pass

    async def leave(self) -> None:
        """Give the session up. Without a release, the next writer recovers it."""
        if not self._left:
            self._left = True
            self._sessions.give_back(self.id, self._folds)
            await self._store.abandon(self._lease, self._cut_off)

    async def give_up(self) -> None:
        """Release the session as it is, if that can be done."""
        await _release(self._store, self._lease)
        await self.leave()

    def cut_off_by(self, cause: str) -> None:
        """The end of the running turn cannot be stored. The next writer stores it, with this
        cause."""
        if self.state.turn is not None:
            self._cut_off = Left(self.state.turn.seq, cause)

    def _take_in(self, record: Record) -> None:
        self._folds.apply(record)
        self._taken_in(record)


@contextlib.asynccontextmanager
async def held_briefly(
    sessions: Sessions, id: str, to_run: bool = True
) -> AsyncIterator[Writer]:
    """The session, recovered, for a fact or two. Nothing looks after the lease meanwhile."""
    writer = await Writer.open(sessions, id, to_run)
    try:
        yield writer
    finally:
        await writer.leave()


async def take_lease(
    sessions: Sessions,
    id: str,
    to_run: bool,
    end_calls: Callable[[State], Awaitable[None]] | None = None,
) -> Lease:
    """A turn that the last writer left open is closed by the commit that takes the lease: whoever
    reads sees it interrupted before, and interrupted after. `end_calls` is given what was open
    before that is stored."""
    closing = Closing()
    while True:
        try:
            return await sessions.store.acquire(id, closing)
        except LeftOpen:
            glance, state = await sessions.peek(id)
            facts = _to_close(state, glance, to_run) if glance.owner is None else ()
            if facts and end_calls is not None:
                await end_calls(state)
            closing = Closing(glance.head, facts)


def _to_close(state: State, glance: Glance, to_run: bool) -> tuple[TurnFact, ...]:
    cause = glance.cause(None if state.turn is None else state.turn.seq)
    return (recover if to_run else close)(state, glance.drafts, cause)


async def folded(sessions: Sessions, lease: Lease) -> Folds:
    """What a writer keeps in memory. The lease is released if the session cannot be read."""
    try:
        return await sessions.take(lease.session)
    except BaseException:
        await _release(sessions.store, lease)
        await sessions.store.abandon(lease)
        raise


async def _release(store: Store, lease: Lease) -> None:
    with contextlib.suppress(StoreError):
        await store.release(lease, (await store.glance(lease.session)).head)
