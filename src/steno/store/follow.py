"""Following sessions: what is there, then what comes, each piece of text once.

What this process commits is handed to its followers, and is taken where it joins on to what a
follower has seen; everything else makes it look at what is stored. What other processes commit is
noticed by the backend's watch: one look for all.

A few followers are told of each commit at once. Where many follow, telling them takes its time, and
as much time is then left to everything else: what is committed meanwhile is joined, so each is
woken less often and told more.

    seen 4 · handed: step 5, "Hel" at 0, "lo" at 3, sealed 6    taken, nothing is read
    seen 4 · handed: 6                                          another process wrote 5: look
    seen 6 · handed: "lo" at 3 of 5                             seen already: 5 is sealed. Look

A process that dies commits nothing. So while any caller waits for the runner of a session to
change, it is looked once a second whether the runners are alive.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from msgspec import Struct

from steno.journal.facts import Record
from steno.journal.parts import Seq
from steno.store.errors import StoreError
from steno.store.protocol import Change, Cursor, Event, FeedMark, Piece
from steno.store.queries import PAGE, events_of
from steno.store.transaction import Changes
from steno.store.values import check_cursor, expect

if TYPE_CHECKING:
    from steno.store.core import Core

T = TypeVar("T")
P = ParamSpec("P")

_HANDED_MAX = 100
_Heads = dict[str, tuple[Seq, int | None]]
ROUND_S_MIN, ROUND_S_MAX = 0.001, 0.04
"""A round of telling that took less is followed at once by the next; no pause is longer."""
TOGETHER = 64
"""So many followers are told before the loop looks around."""
ALIVE_S = 1.0
"""So often it is looked whether the processes that run sessions are alive, while a caller waits for
that."""


class _Follower:
    """One that follows a session: what of it, and how far."""

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
        wanted = [
            event for event in events if self.drafts or isinstance(event, Record)
        ]
        if not wanted:
            return
        self.handed.extend(wanted)
        self.changed.set()
        if len(self.handed) > _HANDED_MAX:
            self.look()

    def reaches(self) -> Seq:
        """The last fact that was seen or handed over."""
        handed = (
            event.seq for event in reversed(self.handed) if isinstance(event, Record)
        )
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
                    events += events_of(event, offsets, self.drafts)
                    seq = event.seq
                continue
            begins = 0 if event.stream.started == seq else None
            at, end = (
                offsets.get(event.stream, begins),
                event.offset + len(event.text),
            )
            if at is None or event.offset > at:
                self.look()
            elif end > at:
                new = event.text[at - event.offset :]
                events.append(
                    event if at == event.offset else Piece(event.stream, at, new)
                )
                offsets[event.stream] = end
        self.seen = Cursor(seq, tuple(offsets.items()))
        return events


class _Waiting(Struct, frozen=True, eq=False):
    """One that waits until another process than `runner`, or none, runs a session. `token` is that
    of its lease; None if no lease was taken."""

    session: str
    runner: str | None
    token: int | None
    changed: asyncio.Event


class Followers:
    """All that follow in one event loop."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._followers: dict[str, set[_Follower]] = {}
        self._feeds: dict[asyncio.Event, FeedMark] = {}
        """Those that follow the changes of all sessions, and how far each is."""
        self._waiting: set[_Waiting] = set()
        self._untold: Changes | None = None
        """What was committed since a round began that is not over; None if none goes on."""
        self._pulse: asyncio.TimerHandle | None = None
        self._looking = False
        self._tasks: set[asyncio.Task[None]] = set()
        core.listen(self._committed)

    async def follow(
        self, session: str, cursor: Cursor | None, drafts: bool
    ) -> AsyncGenerator[Event, None]:
        cursor = cursor or Cursor()
        check_cursor(cursor)
        expect(str, session=session)
        follower = _Follower(session, cursor, drafts)
        self._watch()
        self._followers.setdefault(session, set()).add(follower)
        try:
            while True:
                for event in await self._news(follower):
                    yield event
        finally:
            self._followers[session].discard(follower)
            if not self._followers[session]:
                del self._followers[session]
            self._unwatch()

    async def follow_changes(self, after: FeedMark) -> AsyncGenerator[Change, None]:
        changed = asyncio.Event()
        self._watch()
        self._feeds[changed] = after
        try:
            while True:
                changed.clear()
                page = await asyncio.to_thread(self._core.changes, after)
                for change in page.changes:
                    yield change
                if page.mark == after:
                    await changed.wait()
                self._feeds[changed] = after = page.mark
        finally:
            del self._feeds[changed]
            self._unwatch()

    async def runner_changes(self, session: str, known: str | None) -> str | None:
        while True:
            _, token = (await self._ask(self._core.heads, [session])).get(
                session, (0, None)
            )
            waiting = _Waiting(session, known, token, asyncio.Event())
            self._watch()
            self._waiting.add(waiting)
            try:
                runner = await asyncio.to_thread(self._core.running, session)
                if runner != known:
                    return runner
                self._pulse = self._pulse or self._loop.call_later(
                    ALIVE_S, self._look_alive
                )
                await waiting.changed.wait()
            finally:
                self._waiting.discard(waiting)
                if not self._waiting and self._pulse is not None:
                    self._pulse.cancel()  # else a look begins that no loop may be left to end
                    self._pulse = None
                self._unwatch()

    async def _ask(
        self, question: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Ask the backend something short: in a thread only if it takes a round trip."""
        if self._core.backend.remote:
            return await asyncio.to_thread(question, *args, **kwargs)
        return question(*args, **kwargs)

    def _soon(self, look: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(look)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _look_alive(self) -> None:
        self._pulse = None
        self._soon(self._are_alive())

    async def _are_alive(self) -> None:
        """Those whose runner is dead look, and those for whom only a look can tell."""
        alive: dict[str, bool | None] = {self._core.backend.owner: None}
        runners = {one.runner for one in self._waiting if one.runner is not None}
        for runner in runners - alive.keys():
            with contextlib.suppress(StoreError):
                alive[runner] = await self._ask(self._core.backend.alive, runner)
        for waiting in self._waiting:
            if waiting.runner is not None and not alive.get(waiting.runner, True):
                waiting.changed.set()
        if self._waiting and self._pulse is None:
            self._pulse = self._loop.call_later(ALIVE_S, self._look_alive)

    def _watch(self) -> None:
        if not (self._followers or self._feeds or self._waiting):
            self._core.backend.watch.add(self._others_committed, self._handed)

    def _unwatch(self) -> None:
        if not (self._followers or self._feeds or self._waiting):
            self._core.backend.watch.discard(self._others_committed)

    def look(self) -> None:
        """Have all look again."""
        for followers in self._followers.values():
            for follower in followers:
                follower.look()
        for changed in self._feeds:
            changed.set()
        for waiting in self._waiting:
            waiting.changed.set()

    async def _news(self, follower: _Follower) -> Sequence[Event]:
        """What a follower has not seen yet; empty where it turns out that there is nothing."""
        while not follower.must_look and not follower.handed:
            follower.changed.clear()
            await follower.changed.wait()
        if not follower.must_look:
            return follower.take()
        follower.must_look = False
        events, follower.seen = await asyncio.to_thread(
            self._core.since, follower.session, follower.seen, follower.drafts
        )
        follower.must_look |= len(events) >= PAGE
        return events

    def _committed(self, changes: Changes) -> None:
        """From the committing thread, before its next commit."""
        if self._followers or self._feeds or self._waiting:
            self._loop.call_soon_threadsafe(self.tell, changes)

    def tell(self, changes: Changes) -> None:
        """Tell followers of a commit: now, or with the next round if one goes on."""
        if self._untold is not None:
            join(self._untold, changes)
        else:
            self._round(changes)

    def _round(self, changes: Changes) -> None:
        """Those who are told run before what is called after them: so the time it takes is
        known."""
        self._untold = {}
        if _has_facts(changes):
            self._tell_of_facts(changes)
        self._hand(list(changes.items()), self._loop.time())

    def _hand(
        self, changes: list[tuple[str, list[Event] | None]], began_s: float
    ) -> None:
        """Some followers at a time: between them the loop takes in what else there is to do."""
        handed = 0
        while changes and handed < TOGETHER:
            session, events = changes.pop()
            followers = self._followers.get(session, ())
            handed += len(followers)
            for follower in followers:
                if events is None:
                    follower.look()
                else:
                    follower.hand(events)
        if changes:
            self._loop.call_soon(self._hand, changes, began_s)
        else:
            self._loop.call_soon(self._told, began_s)

    def _told(self, began_s: float) -> None:
        took_s = self._loop.time() - began_s
        if took_s < ROUND_S_MIN:
            self._next_round()
        else:
            self._loop.call_later(min(took_s, ROUND_S_MAX), self._next_round)

    def _next_round(self) -> None:
        changes, self._untold = self._untold, None
        if changes:
            self._round(changes)

    def _tell_of_facts(self, changes: Changes) -> None:
        for changed in self._feeds:
            changed.set()
        for waiting in self._waiting:
            if waiting.session in changes:
                waiting.changed.set()

    def _others_committed(self) -> None:
        """From the watching thread: one look for all that follow."""
        if not self._looking:
            self._looking = True
            with contextlib.suppress(
                RuntimeError
            ):  # the loop is over, and its followers with it
                self._loop.call_soon_threadsafe(self._look)

    def _handed(self, changes: Changes) -> None:
        """From the watching thread: text that others have added."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.tell, changes)

    def _look(self) -> None:
        self._looking = False
        sessions = [
            *{*self._followers, *(waiting.session for waiting in self._waiting)}
        ]
        if self._core.backend.remote:
            self._soon(self._look_there(sessions))
        else:
            self._compare(*self._stand(sessions, bool(self._feeds)))

    async def _look_there(self, sessions: list[str]) -> None:
        self._compare(
            *await asyncio.to_thread(self._stand, sessions, bool(self._feeds))
        )

    def _stand(
        self, sessions: list[str], feeds: bool
    ) -> tuple[_Heads | None, FeedMark | None]:
        """How sessions and the feed stand; None if nothing can be read."""
        with contextlib.suppress(StoreError):
            heads = self._core.heads(sessions) if sessions else {}
            return heads, self._core.changes(None).mark if feeds else None
        return None, None

    def _compare(self, found: _Heads | None, last: FeedMark | None) -> None:
        """One that follows text which another process may write looks for it; the others look when
        there are new facts. If nothing can be read, all look and find out why."""
        readable, heads = found is not None, found or {}
        for changed, mark in self._feeds.items():
            if mark != last:
                changed.set()
        for waiting in self._waiting:
            if waiting.token != heads.get(waiting.session, (0, -1))[1]:
                waiting.changed.set()
        for session, followers in self._followers.items():
            head, token = heads.get(session, (-1, None))
            elsewhere = token is not None and not self._core.holds(session, token)
            for follower in followers:
                new = head != follower.reaches() or (elsewhere and follower.drafts)
                if new or not readable:
                    follower.look()


def follow(
    core: "Core", session: str, cursor: Cursor | None, drafts: bool
) -> Iterator[Event]:
    """The same for a caller that may block: it reads what it is told of."""
    cursor = cursor or Cursor()
    check_cursor(cursor)
    changed = threading.Event()

    def committed(changes: Changes) -> None:
        if session in changes:
            changed.set()

    core.listen(committed)
    core.backend.watch.add(changed.set, committed)
    try:
        while True:
            changed.clear()
            events, cursor = core.since(session, cursor, drafts)
            yield from events
            if not events:
                changed.wait()
    finally:
        core.unlisten(committed)
        core.backend.watch.discard(changed.set)


def follow_changes(core: "Core", after: FeedMark) -> Iterator[Change]:
    changed = threading.Event()

    def committed(changes: Changes) -> None:
        if _has_facts(changes):
            changed.set()

    core.listen(committed)
    core.backend.watch.add(changed.set, committed)
    try:
        while True:
            changed.clear()
            page = core.changes(after)
            yield from page.changes
            if page.mark == after:
                changed.wait()
            after = page.mark
    finally:
        core.unlisten(committed)
        core.backend.watch.discard(changed.set)


def join(untold: Changes, changes: Changes) -> None:
    """Add a commit to what is untold. Text that goes on is one piece."""
    for session, events in changes.items():
        known = untold.setdefault(session, [])
        if known is None or events is None:
            untold[session] = None
            continue
        for event in events:
            last = known[-1] if known else None
            if (
                isinstance(event, Piece)
                and isinstance(last, Piece)
                and last.stream == event.stream
                and last.offset + len(last.text) == event.offset
            ):
                known[-1] = Piece(last.stream, last.offset, last.text + event.text)
            else:
                known.append(event)


def _has_facts(changes: Changes) -> bool:
    """Whether a commit did more than add to streams."""
    return any(
        events is None or any(isinstance(event, Record) for event in events)
        for events in changes.values()
    )
