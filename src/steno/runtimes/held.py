"""A session while we run it: its lease, its folds, and the one way to add a fact.

Memory here is a fold that can be thrown away: whatever is not in the journal did not happen.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from steno.engine.compaction import weigh
from steno.engine.recover import close, recover, waits_for_approval
from steno.journal.budget import Spent
from steno.journal.drafts import Stream
from steno.journal.facts import (
    ApprovalDecided,
    HelperEnded,
    HelperStarted,
    InputAdmitted,
    InterruptAsked,
    MessageRedacted,
    Record,
    RuleSet,
    SpentSoFar,
    TurnEnded,
    TurnFact,
)
from steno.journal.history import Entry, History, Weighed
from steno.journal.parts import Seq
from steno.journal.state import OpenCall, State
from steno.plugins.protocol import NoPlugins, Plugins
from steno.runtimes import opening
from steno.runtimes.news import news
from steno.store.errors import SessionBusy, StoreError
from steno.store.protocol import Cursor, Lease, Store
from steno.tools.groups import end_group

PAGE = 1_000
TICK_S = 0.25
GIVE_WAY_S = 2.0
GIVE_WAY_PAUSE_S = 0.01
TAIL = 64
"""Where the beginning of a helper call is looked for: little else is added while it runs."""
TEXT_CHARS_MAX = 2_000_000
"""The text of a session that is kept in memory when it is opened, about. More than fits into most
models; of what is older only the weight is kept, and the text is read again where it is needed."""

T = TypeVar("T")


class HeldSession:
    """`stopped` is set as soon as somebody, anywhere, asks for the running turn to stop, and when
    its time is up; `said`, when an input comes. `redacted` says that text was removed from the
    session since we hold it."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self.id = lease.session
        self.state = State()
        self.history = History()
        self.spent = Spent()
        self.stopped = asyncio.Event()
        self.decided = asyncio.Event()
        self.said = asyncio.Event()
        self.redacted = False
        self.lost: StoreError | None = None
        self.leaving = False
        self.overdue = False
        self.plugins: Plugins = NoPlugins()
        self._store = store
        self._lease = lease
        self._recording = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(
        cls, store: Store, id: str, lease_ms: int, to_run: bool = False, insist: bool = True
    ) -> "HeldSession":
        """Take the lease, fold, and close what the last writer left open, once. Whoever does not
        come to run it ends a turn that waits for approval, too: nothing may be edited while a turn
        is open."""
        held = cls(store, await (acquire(store, id) if insist else store.acquire(id)))
        try:
            await held._fold()
            await held._recover(to_run)
        except BaseException:
            await held._drop()
            raise
        held._tasks.append(asyncio.create_task(held._watch()))
        held._tasks.append(asyncio.create_task(held._renew(lease_ms)))
        return held

    async def record(self, *facts: TurnFact) -> Seq:
        """Store facts, then take them in, after whatever others had added before them. The seq of
        the first."""
        async with self._recording:
            added = await self._store.append(self._lease, facts, self.state.head)
            for record in added.foreign:
                self._apply(record)
            for seq, fact in enumerate(facts, start=added.first):
                record = Record(seq, added.at_ms, fact)
                if self.plugins.names and (hook := news(self.id, self.state, record)) is not None:
                    self.plugins.tell(*hook)
                self._apply(record)
            return added.first

    async def draft(self, stream: Stream, text: str) -> int:
        """Make text durable; it may be shown when this returns. The new end of the stream."""
        return await self._store.draft(self._lease, stream, text)

    async def release(self) -> bool:
        """Let go, unless something came that we have not seen: then take it in, and go on."""
        async with self._recording:
            answer = await self._store.release(self._lease, self.state.head)
            for record in answer.foreign:
                self._apply(record)
        if answer.released:
            await self.leave()
        return answer.released

    async def leave(self) -> None:
        """Stop looking after the session. Without a release, the next owner recovers it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self._store.abandon(self._lease)

    async def leave_when(self, leaving: asyncio.Event) -> None:
        await leaving.wait()
        self.leaving = True
        self.stopped.set()

    async def watch_time(self, turn_s: float) -> None:
        """Say when a turn has had its time. While it waits for a person, the clock stands still."""
        turn, spent_s, then_s = None, 0.0, time.monotonic()
        while turn_s:
            await asyncio.sleep(min(TICK_S, turn_s))
            now_s, was = time.monotonic(), turn
            turn = None if self.state.turn is None else self.state.turn.seq
            if turn != was:
                spent_s, self.overdue = 0.0, False
            elif self.state.turn is not None and not waits_for_approval(self.state.turn):
                spent_s += now_s - then_s
            then_s = now_s
            if turn is not None and spent_s >= turn_s:
                self.overdue = True
                self.stopped.set()

    def asked_to_stop(self) -> bool:
        return self.stopped.is_set()

    def letting_go(self) -> bool:
        """Whether it is we who stop, and not a person who wants the turn to stop."""
        return self.leaving or self.lost is not None

    async def catch_up(self) -> None:
        """Take in what others added."""
        async with self._recording:
            while page := await self._store.read(self.id, self.state.head, PAGE):
                for record in page:
                    self._apply(record)

    async def _fold(self) -> None:
        """Take in what still matters: everything, or from the last summary on."""
        begin, page = await opening.to_run(self._store, self.id)
        async for record in opening.carried(self._store, self.id, begin.carries):
            self._apply(record)
        self.spent = opening.spent_from(begin.spent)
        while page:
            for record in page:
                self._apply(record)
            self.history.let_go(TEXT_CHARS_MAX, weigh)
            await asyncio.sleep(0)
            page = await self._store.read(self.id, page[-1].seq, PAGE) if len(page) == PAGE else []

    def with_text(self, entries: Sequence[Weighed | T]) -> AsyncIterator[Entry | T]:
        """Entries with the text that memory has let go, one by one."""
        return opening.with_text(self._store, self.id, entries)

    async def restore(self) -> None:
        """Have all the text of the next request in memory."""
        if missing := self.history.missing():
            entries = [entry async for entry in self.with_text(missing)]
            self.history.restore(
                {one.fact: entry for one, entry in zip(missing, entries, strict=True)}
            )

    async def to_carry(self, upto: Seq) -> tuple[tuple[Seq, ...] | None, SpentSoFar]:
        """What a summary up to a seq must carry over it."""
        return await opening.to_carry(self._store, self.id, upto)

    async def _recover(self, to_run: bool) -> None:
        turn = self.state.turn
        if turn is None and not self.state.helpers:
            return
        drafts = await self._store.drafts(self.id)
        facts = recover(self.state, drafts) if to_run else close(self.state, drafts)
        if facts:
            await _end_groups([] if turn is None else list(turn.calls.values()))
            await self.record(*facts)

    async def _drop(self) -> None:
        with contextlib.suppress(StoreError):
            await self._store.release(self._lease, self.state.head)
        await self.leave()

    def _apply(self, record: Record) -> None:
        self.state.apply(record)
        self.history.apply(record)
        self.spent.apply(record)
        turn = self.state.turn
        asked = self.state.stopping is not None or (
            turn is not None and turn.interrupted is not None
        )
        if isinstance(record.fact, TurnEnded):
            self.overdue = False
        self.redacted |= isinstance(record.fact, MessageRedacted)
        if asked or self.leaving or self.overdue or self.lost is not None:
            self.stopped.set()
        else:
            self.stopped.clear()

    async def _watch(self) -> None:
        """Notice at once what others ask of the running turn; the fact itself is taken in with the
        next record."""
        async for event in self._store.follow(self.id, Cursor(self.state.head), drafts=False):
            if not isinstance(event, Record):
                continue
            if isinstance(event.fact, InterruptAsked):
                turn = None if self.state.turn is None else self.state.turn.seq
                if event.fact.turn == turn or event.fact.turn in self.state.helpers:
                    self.stopped.set()
            elif isinstance(event.fact, ApprovalDecided | RuleSet):
                self.decided.set()
            elif isinstance(event.fact, InputAdmitted):
                self.said.set()

    async def _renew(self, lease_ms: int) -> None:
        """Keep the lease while we live. Losing it stops the turn: nothing more can be stored."""
        while True:
            await asyncio.sleep(lease_ms / 3000)
            try:
                await self._store.renew(self._lease)
            except StoreError as error:
                self.lost = error
                self.stopped.set()
                return


async def acquire(store: Store, id: str) -> Lease:
    """Take the lease. Who only distils the session is asked to give way, and does so at once."""
    deadline_s = time.monotonic() + GIVE_WAY_S
    asked = False
    while True:
        try:
            return await store.acquire(id)
        except SessionBusy:
            asked = asked or await _ask_to_give_way(store, id)
            if not asked or time.monotonic() > deadline_s:
                raise
        await asyncio.sleep(GIVE_WAY_PAUSE_S)


async def _ask_to_give_way(store: Store, id: str) -> bool:
    """Whether what is under way is a distillation: then it is asked to end."""
    head = (await store.glance(id)).head
    open: Seq | None = None
    for record in await store.read(id, max(head - TAIL, 0), TAIL):
        match record.fact:
            case HelperStarted(purpose="distillation"):
                open = record.seq
            case HelperEnded(started=started) if started == open:
                open = None
            case _:
                pass
    if open is None:
        return False
    await store.add(id, [InterruptAsked(open, by="runner")], key=f"interrupt:{open}")
    return True


async def _end_groups(calls: list[OpenCall]) -> None:
    """End what a dead process left running."""
    await asyncio.gather(*(end_group(call.group) for call in calls if call.group is not None))
