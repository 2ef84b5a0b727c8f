"""Runs the sessions that have something to run: one task a session, however often it is woken.

Turns belong to the service, never to a client. A session is woken by an input, a decision, a retry,
or at the start because something in it waits; it is run until it rests. What the process leaves
undone is a fact, so the next start finds it.
"""

import asyncio
import contextlib
import logging
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from weakref import WeakValueDictionary

from msgspec import Struct

from steno.compose import Program
from steno.config import ConfigError, GatewayConfig
from steno.gateway.streams import Echo
from steno.journal.facts import TurnStarted
from steno.journal.parts import Seq
from steno.journal.state import State
from steno.model_choice import Terms
from steno.race import first_of
from steno.service import Misused, Service
from steno.session.errors import Refusal
from steno.store.errors import SessionBusy, StoreError, UnknownSession
from steno.store.protocol import Listed, tenant_of

PLATFORM = "http"
LOOK_AGAIN_S = 1.0
"""How often the hub looks for what another gateway has left."""
IDLE_S = 900.0
"""After so long without a turn the gateway leaves a session: plugins are told that it ended."""
LOOK_WAITING_S = 0.25
"""While the service stops, how often the hub looks which turns only wait for a person."""
END_S = 5.0
"""For turns that are ended in order when the service stops."""
TAKING_UP_MAX = 32
"""So many sessions are looked at together."""

_log = logging.getLogger("steno.gateway")


EVERY_INPUT: Seq = sys.maxsize


class Prepared(Struct, frozen=True):
    """`opening`: the turn to begin with, if one was cut off that somebody waits for. `ready_to`:
    the files of inputs up to there were fetched, as far as they can be."""

    opening: TurnStarted | None = None
    ready_to: Seq = EVERY_INPUT


Prepare = Callable[[str], Awaitable[Prepared]]
"""What must be done before a session runs."""


async def _nothing(session: str) -> Prepared:
    return Prepared()


async def _no_memories() -> None:
    return None


class Hub:
    """`home` is where a session without a folder of its own gets one. `remember` has sessions
    distilled that are due."""

    def __init__(
        self,
        program: Program,
        config: GatewayConfig,
        home: Path,
        remember: Callable[[], Awaitable[None]] = _no_memories,
    ) -> None:
        self.program = program
        self._remember = remember
        self._rested = True
        """Whether a session came to rest since it was looked which are to be distilled."""
        self.draining = asyncio.Event()
        """Set when no new turn begins here."""
        self.leaving = asyncio.Event()
        """Set when running turns are to end."""
        self._config = config
        self._home = home
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._letting_go: dict[str, asyncio.Event] = {}
        """Of each session that runs, what has its turn let go of."""
        self._woken: set[str] = set()
        self._openings: dict[str, TurnStarted] = {}
        self._looked_at: dict[str, int] = {}
        self._claimed: dict[str, str] = {}
        """Sessions that were taken from the queue, with their tenants."""
        self._waits = False
        """Whether there was no room for a session."""
        self._freed = asyncio.Event()
        self._rested_s: dict[str, float] = {}
        self._later: set[asyncio.Task[None]] = set()
        self._service = program.service(PLATFORM, self.terms(None))
        self.prepare: Prepare = _nothing
        self.echoes: WeakValueDictionary[str, Echo] = WeakValueDictionary()
        """Of the sessions that are read now."""
        self.failures = 0

    def service(self, session: str | None = None) -> Service:
        """What can be done with sessions from here, on the terms that the configuration gives. To
        run one it must be named: it has a folder of its own."""
        if session is None:
            return self._service
        return self.program.service(PLATFORM, self.terms(session))

    def terms(self, session: str | None) -> Terms:
        if session is None:
            return Terms(approval=self._config.approval)
        return Terms(approval=self._config.approval, folder=self._folder(session))

    def _folder(self, session: str) -> Path:
        if self._config.folder:
            return Path(self._config.folder).expanduser()
        folder = self._home / "workspaces" / session
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def runs(self, session: str) -> bool:
        return session in self._tasks

    def running(self) -> int:
        return len(self._tasks)

    # --- running

    def wake(self, session: str, opening: TurnStarted | None = None) -> None:
        """Have a session run. What is stored already is found; wakes coalesce."""
        if opening is not None:
            self._openings[session] = opening
        self._woken.add(session)
        if session not in self._tasks and not self.draining.is_set():
            task = asyncio.create_task(self._run(session), name=f"session {session}")
            self._tasks[session] = task
            task.add_done_callback(lambda _: self._done(session))

    def _done(self, session: str) -> None:
        task = self._tasks.pop(session)
        self._letting_go.pop(session, None)
        self._rested_s[session] = time.monotonic()
        self._rested = True
        if session in self._claimed and session not in self._woken:
            self.later(self._given_back(session))
        if self._waits:
            self._waits = False
            self._freed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures += 1
            _log.error("session %s: %s: %s", session, type(error).__name__, error)
        if session in self._woken and not self.draining.is_set():
            self.wake(session)

    async def _run(self, session: str) -> None:
        while session in self._woken and not self.draining.is_set():
            self._woken.discard(session)
            service = self.service(session)
            opening = self._openings.pop(session, None)
            self._letting_go[session] = asyncio.Event()
            try:
                ready = (
                    Prepared(opening, 0) if opening else await self.prepare(session)
                )
                opening = ready.opening
                await self._turns(service, session, ready)
            except UnknownSession:
                return  # deleted meanwhile
            except SessionBusy:
                if opening is not None:
                    self._openings.setdefault(session, opening)
                await asyncio.sleep(LOOK_AGAIN_S)
                self._woken.add(session)
            except (StoreError, ConfigError, Misused) as error:
                self.failures += 1
                _log.warning("session %s was not run: %s", session, error)
                return

    async def _turns(self, service: Service, session: str, ready: Prepared) -> None:
        """Run what waits; first the turn to begin with, if it is still due. If it is not, because
        it began meanwhile, say, what waits is run all the same. An input that came with files since
        is prepared before its turn."""
        go = self._letting_go[session]

        def enough(state: State) -> bool:
            next = min(state.pending, default=0)
            if next <= ready.ready_to or not state.pending[next].awaits:
                return self.draining.is_set()
            self._woken.add(session)
            return True

        if ready.opening is not None:
            try:
                await service.turns.run_again(
                    session, ready.opening, go, self.draining, enough
                )
            except Refusal as refused:
                _log.info("session %s: %s", session, refused)
            else:
                return
        await service.turns.run_pending(session, go, self.draining, enough)

    def later(self, work: Coroutine[None, None, None]) -> None:
        """Do something that whoever asked for it does not wait for."""
        task = asyncio.create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _given_back(self, session: str) -> None:
        with contextlib.suppress(StoreError):  # the next look does it
            await self._put_back(session)

    # --- what others left

    async def look_after(self, session: str) -> None:
        """Have what an earlier process left in a session taken up now."""
        glance = await self.service().views.glance(session)
        if session not in self._tasks and glance.row.unfinished():
            await self._take_up(
                Listed(session, glance.head, 0, glance.owner, glance.row), True
            )

    async def take_up(self) -> None:
        """What an earlier process left, at the start. If the store cannot be asked, that is no
        reason not to start: it is looked again until it can."""
        while not self.draining.is_set():
            try:
                await self.find_work()
            except StoreError as error:
                _log.warning("what was left is looked for again: %s", error)
                await self.program.pause(LOOK_AGAIN_S)
            else:
                return

    async def find_work(self, at_start: bool = True, anew: bool = True) -> int:
        """Wake what others left: inputs that wait, turns that are open, turns that were cut off
        after tool results; how many sessions. Later than at the start, only what came over HTTP:
        other processes run their own."""
        views, woken = self.service().views, 0
        for session in [one for one in self._claimed if one not in self._tasks]:
            await self._put_back(session)
        looked: set[str] = set()
        while (room := min(self._room(), TAKING_UP_MAX)) > 0:
            found = await views.claim(room, self._full(), anew)
            for listed in found:
                self._claimed[listed.id] = tenant_of(listed.row)
            new = [
                one for one in found if one.id not in looked and self._is_left(one)
            ]
            looked.update(one.id for one in new)
            woken += await self._take_up_all(new, at_start)
            if len(found) < room or not new:
                break
        return woken

    def _is_left(self, listed: Listed) -> bool:
        """Whether it is not run here, and has changed since it was last looked at."""
        return (
            listed.id not in self._tasks
            and self._looked_at.get(listed.id) != listed.head
        )

    def _room(self) -> int:
        return self._config.sessions_max - len(self._tasks)

    def _full(self) -> list[str]:
        running = Counter(self._claimed.values())
        return [
            one for one, n in running.items() if n >= self._config.sessions_per_tenant
        ]

    async def _take_up_all(self, found: list[Listed], at_start: bool) -> int:
        """As many together as there is room for; how many run. The rest waits for room."""
        woken, rest = 0, found
        while rest and (room := min(self._room(), TAKING_UP_MAX)) > 0:
            some, rest = rest[:room], rest[room:]
            woken += sum(
                await asyncio.gather(*(self._take_up(one, at_start) for one in some))
            )
        self._waits = self._waits or bool(rest)
        return woken

    async def _take_up(self, listed: Listed, at_start: bool) -> bool:
        session = listed.id
        service = self.service(session)
        with contextlib.suppress(StoreError):
            loaded = await service.views.load(session)
            if (others := await self._in_hand(listed, loaded.owner)) is not None:
                await self._put_back(session, others)
                return False
            state, cut = loaded.state, loaded.state.cut_off
            ours = all(one.source == PLATFORM for one in state.pending.values())
            if not at_start and not ours:
                await self._put_back(session, "")
                return False
            if (
                cut is not None
                and cut.waits()
                and cut.results()
                and not state.pending
            ):
                self.wake(session, service.turns.continuation(loaded))
            elif state.pending or state.turn is not None or loaded.closing:
                self.wake(session)
            else:
                self._looked_at[session] = listed.head
                await self._put_back(session, "")
                return False
            return True
        return False

    async def _in_hand(self, listed: Listed, runner: str | None) -> str | None:
        """Another process that runs a session, or will. A gateway on the same queue leaves it to
        who claims it."""
        if runner is not None:
            return runner
        for other in await self.service().visits.others(listed.row):
            if not await self.program.shares_work(other):
                return other
        return None

    async def _put_back(self, session: str, waits_for: str | None = None) -> None:
        """If the store cannot be written, it is still in our hands: the next look does it."""
        tenant = self._claimed.pop(session, None)
        if tenant is None:
            return
        try:
            await self.service().views.put_back(session, waits_for)
        except StoreError:
            self._claimed.setdefault(session, tenant)
            raise

    async def tend(self) -> None:
        """Beside everything else: run what another gateway accepted and left, or what found no room
        here; and leave sessions in which nothing happens."""
        looked_s = time.monotonic()
        while not self.draining.is_set():
            await self._until_work(LOOK_AGAIN_S)
            anew = time.monotonic() - looked_s >= LOOK_AGAIN_S
            looked_s = time.monotonic() if anew else looked_s
            with contextlib.suppress(StoreError):  # the next look finds it
                await self.find_work(at_start=False, anew=anew)
            if anew and self._rested:
                self._rested = False
                await self._remember()
            rested = time.monotonic() - IDLE_S
            for session, since_s in list(self._rested_s.items()):
                if since_s < rested:
                    await self._leave(session)

    async def _until_work(self, limit_s: float) -> None:
        """Others left something, a session that rests made room for one that waits, or the time is
        up."""
        await first_of(self.program.pause(limit_s), self._freed)
        self._freed.clear()

    async def _leave(self, session: str) -> None:
        self._rested_s.pop(session, None)
        if session not in self._tasks:
            for problem in await self.program.leave_session(session):
                _log.warning("%s", problem)

    # --- going

    async def admitted(self, session: str) -> None:
        """An input was stored: run it; or leave it to a process that has room, or that comes after
        this one."""
        if session in self._tasks or self._room() > 0:
            self.wake(session)
        else:
            self._waits = True
            await self.program.offer_work()
        if self.draining.is_set():
            await self._leave(session)

    async def drain(self, drain_s: float) -> None:
        """Begin no turn any more; give those that run some time, then end them in order. Sessions
        that rest are left at once, so that another gateway can run what comes for them; and so are
        turns that only wait for a person: their question stays."""
        self.draining.set()
        idle = [one for one in self.program.attended() if one not in self._tasks]
        leaving = [asyncio.create_task(self._leave(one)) for one in idle]
        running = set(self._tasks.values())
        deadline_s = time.monotonic() + drain_s
        while running and (left_s := deadline_s - time.monotonic()) > 0:
            await self._let_go_of_waiting()
            wait_s = min(left_s, LOOK_WAITING_S)
            await asyncio.wait(
                running, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
            )
            for session in [one for one in self._rested_s if one not in self._tasks]:
                await self._leave(session)
            running = set(self._tasks.values())
        self.leaving.set()
        for go in self._letting_go.values():
            go.set()
        if self._tasks:
            await asyncio.wait(set(self._tasks.values()), timeout=END_S)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), *leaving, return_exceptions=True)

    async def _let_go_of_waiting(self) -> None:
        service = self.service()
        for session, go in list(self._letting_go.items()):
            with contextlib.suppress(StoreError):
                asks = (await service.views.glance(session)).row.asked
                if (
                    asks
                    and not go.is_set()
                    and await service.turns.only_waits(session)
                ):
                    go.set()
