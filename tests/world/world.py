"""Everything between a front end and the outside, in one process and in no time.

A `World` is the memory that stores share, a model and tools that do as they are told, and a clock.
In it run processes: each has a store handle, a service and tasks of its own. To kill one is to drop
its tasks at a boundary: from then on nothing that it does has an effect, and its owner is dead to
the others. So a turn can be killed at every commit, each in some milliseconds.

    async def test(world: World) -> None:
        process = world.process(kill=Kill("after", 7))
        await process.run(say("hello"))
        ...
    play(test)
"""

import asyncio
import contextvars
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, TypeVar, cast
from unittest.mock import patch

from steno.delivery.outbox import Body, Outbox
from steno.engine.action import Limits
from steno.journal.drafts import Draft
from steno.journal.facts import (
    AnyFact,
    ApprovalAsked,
    ApprovalDecided,
    ContextSet,
    DeliveryOwed,
    HelperStarted,
    Record,
    StepStarted,
    ToolStarted,
)
from steno.journal.parts import Seq
from steno.plugins.protocol import NoPlugins
from steno.runtimes.delegated import ChildSessions
from steno.runtimes.dispatch import Dispatch
from steno.runtimes.distil import Distiller, Distilling
from steno.runtimes.loop import Agent, Fallback, Native
from steno.runtimes.protocol import Driver
from steno.service import Service
from steno.service.deliveries import Deliveries, Sending
from steno.service.memory import Memories
from steno.service.visits import Visits
from steno.session.load import Sessions
from steno.store import memory
from steno.store.memory import BlockingMemoryStore
from steno.store.protocol import Admitted, Damage, Event, Piece, Settings, Store
from steno.tools.delegate import Delegate
from steno.tools.protocol import Tool
from tests.chance import chance_of
from tests.world.listeners import Ear, Inbox
from tests.world.loop import SkippingLoop
from tests.world.model import FakeModel, Reply, in_order
from tests.world.store import Dead, Handle, Kill
from tests.world.tools import FakeTool

FIRST = "session-1"
"""The first session that is made in a world."""
BEGAN_MS = 1_700_000_000_000
PLATFORM = "test"
SYSTEM = "Be brief."
ROUNDS_MAX = 30

T = TypeVar("T")
Act = Callable[["Process"], Coroutine[Any, Any, T]]
_process: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("process", default=None)


def play(test: Callable[["World"], Awaitable[T]], *replies: Reply) -> T:
    """Run a test in a world of its own, to its end."""
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(_play(test, replies))


async def _play(test: Callable[["World"], Awaitable[T]], replies: tuple[Reply, ...]) -> T:
    world = World(*replies)
    clocks: dict[str, Any] = {
        "time": lambda: world.now_ms() / 1000,
        "time_ns": lambda: world.now_ms() * 1_000_000,
        "monotonic": asyncio.get_running_loop().time,
    }
    chance = chance_of("waits before a request is tried again")
    with patch.multiple("time", **clocks), patch.multiple("random", uniform=chance.uniform):
        try:
            return await test(world)
        finally:
            await world.close()


class World:
    """`shown` is what its clients were shown, `runs` what its tools did, `commits` what was
    committed. `drive` makes what carries turns out in a process, if it is not our own loop."""

    def __init__(self, *replies: Reply) -> None:
        self.model = FakeModel(in_order(*(replies or (Reply(("ok",)),))))
        self.tools: list[dict[str, Any]] = [{"name": "look"}]
        self.limits = Limits()
        self.fallback: tuple[FakeModel, ...] = ()
        self.drive: Callable[[Process], Driver] | None = None
        self.delegates = False
        self.ear: Ear | None = None
        self.inbox: Inbox | None = None
        self.approval: Literal["allow", "refuse", "ask"] = "allow"
        self.runs: list[str] = []
        self.shift_ms = 0
        """How far the clock was set forward, or back; time itself goes on as ever."""
        self.version = 0
        self.processes: list[Process] = []
        self.troubles: list[dict[str, Any]] = []
        self._loop = asyncio.get_running_loop()
        self.place = memory.Place()
        self._ids = itertools.count(1)
        self._eye = self.open_store()
        self._read: dict[str, Seq] = {}
        self._facts: list[AnyFact] = []
        self.model.before_answer = self._check_recorded
        self._waiting: list[asyncio.Future[None]] = []
        self._loop.set_task_factory(_make_task)
        self._loop.set_exception_handler(self._trouble)

    def process(self, kill: Kill | None = None) -> "Process":
        """A process that starts now, and dies where it is said to."""
        process = Process(self, kill)
        self.processes.append(process)
        return process

    def open_store(self) -> BlockingMemoryStore:
        new_id = (f"session-{n}" for n in self._ids)
        settings = Settings(now_ms=self.now_ms, new_id=lambda: next(new_id))
        return BlockingMemoryStore(self.place, settings)

    def now_ms(self) -> int:
        return BEGAN_MS + self.shift_ms + round(self._loop.time() * 1000)

    def changed(self) -> None:
        self.version += 1
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def newer_than(self, version: int) -> None:
        while self.version <= version:
            one: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(one)
            await one

    # --- what anybody can read

    def sessions(self) -> list[str]:
        return sorted(listed.id for listed in self._eye.list())

    def facts(self, session: str = FIRST) -> list[Record]:
        return list(self._eye.read_all(session))

    def drafts(self, session: str = FIRST) -> list[Draft]:
        return self._eye.drafts(session)

    def verify(self) -> tuple[Damage, ...]:
        return self._eye.verify().damage

    def _check_recorded(self, digest: str) -> None:
        """A request is stored before it is sent."""
        asked = (one for one in self._all_facts() if isinstance(one, StepStarted | HelperStarted))
        assert digest in {fact.digest for fact in asked}, "sent before it was stored"

    def ran(self, what: str) -> None:
        """A tool does it now: that it would is stored."""
        self.runs.append(what)
        started = sum(isinstance(fact, ToolStarted) for fact in self._all_facts())
        assert len(self.runs) <= started, "run before its start was stored"

    def _all_facts(self) -> list[AnyFact]:
        """Of all sessions; what was read once is not read again."""
        for id in self.sessions():
            after = self._read.get(id, 0)
            for record in self._eye.read_all(id, after):
                self._facts.append(record.fact)
                self._read[id] = record.seq
        return self._facts

    async def close(self) -> None:
        for process in self.processes:
            await process.kill()
            for task in process.tasks:
                if not task.cancelled() and getattr(task, "_log_traceback", False):
                    self._trouble(self._loop, {"exception": task.exception()})
        self._eye.close()
        assert self.troubles == []

    def _trouble(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not _is_death(context.get("exception")):
            self.troubles.append(context)


def _is_death(error: Any) -> bool:
    """Whether the end of its process is all that a task ended with."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_death, error.exceptions))
    return isinstance(error, Dead)


def current() -> "Process":
    """The process whose task runs."""
    process = _process.get()
    assert process is not None
    return process


def _make_task(
    loop: asyncio.AbstractEventLoop, coroutine: Any, context: contextvars.Context | None = None
) -> "asyncio.Task[Any]":
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context)
    process = _process.get() if context is None else context.get(_process)
    if process is not None:
        process.tasks.add(task)
    return task


class Process:
    """One steno: what it was shown, what it committed, and whether it lives."""

    def __init__(self, world: World, kill: Kill | None = None) -> None:
        self.world = world
        self.kill_at = kill
        self.dead = False
        self.tasks: set[asyncio.Task[Any]] = set()
        self.commits: list[str] = []
        self.shown: list[Event] = []
        self.on_boundary: Callable[[Kill], None] = lambda _: None
        self.died = asyncio.Event()
        self._blocking = world.open_store()
        self.store = cast(Store, Handle(self, self._blocking))
        tools = [FakeTool(self, **tool) for tool in world.tools]
        self.tools: dict[str, Tool] = {tool.spec.name: tool for tool in tools}
        self.sessions = sessions = Sessions(self.store, plugins=world.ear or NoPlugins())
        driver = Native(self.store, self._agent) if world.drive is None else world.drive(self)
        runtime = Dispatch(sessions, lambda _: driver)
        self._children = ChildSessions(sessions, runtime, world.model.spec)
        self.service = Service(
            sessions,
            runtime,
            PLATFORM,
            Visits(self.store, sessions.plugins, PLATFORM),
            Deliveries(sessions, Sending(self._outbox, lambda: None, world.inbox is not None)),
            Memories(self.store, lambda: Distilling(sessions, lambda _: Distiller(world.model))),
        )

    def _outbox(self, body: Body) -> Outbox:
        return Outbox(self.store, NoPlugins(), lambda _: self.world.inbox, body)

    def _agent(self, _: ContextSet | None) -> Agent:
        specs = tuple(tool.spec for tool in self.tools.values())
        world = self.world
        return Agent(
            ContextSet(world.model.spec, SYSTEM, specs),
            world.model,
            self.tools,
            world.approval,
            world.limits,
            fallback=tuple(Fallback(one, world.limits) for one in world.fallback),
            session_tools=self._tools_of,
        )

    async def _tools_of(self, session: str, _: ContextSet | None) -> dict[str, Tool]:
        own = self.tools
        if self.world.delegates:
            return own | {"delegate": Delegate(self._children, session, 60.0)}
        return own

    async def run(self, act: Act[T]) -> T | None:
        """Do something in this process, to its end or to the process's; None if it was killed."""
        task = self.start(act)
        died = asyncio.ensure_future(self.died.wait())
        await asyncio.wait({task, died}, return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        if not self.died.is_set():
            return task.result()
        await self.kill()
        return None

    def start(self, act: Act[T]) -> "asyncio.Task[T]":
        """Begin something in this process, and go on meanwhile."""
        context = contextvars.copy_context()
        context.run(_process.set, self)
        return asyncio.get_running_loop().create_task(act(self), context=context)

    async def kill(self) -> None:
        """Now. What its tasks still do on their way out has no effect."""
        self.die()
        rounds = 0
        while any(not task.done() for task in self.tasks) and rounds < ROUNDS_MAX:
            for task in self.tasks:
                task.cancel()
            await asyncio.sleep(0)
            rounds += 1
        assert [task for task in self.tasks if not task.done()] == [], "its tasks go on"
        self._blocking.close()
        self.world.changed()

    def die(self) -> None:
        self.dead = True
        self.died.set()

    def check_alive(self) -> None:
        if self.dead:
            raise Dead

    def next_commit(self, verb: str, args: tuple[Any, ...]) -> int:
        self.check_alive()
        self.commits.append(_name(verb, args))
        return len(self.commits)

    async def reached(self, boundary: Kill) -> None:
        """Others may run here, and this process may end."""
        self.check_alive()
        self.on_boundary(boundary)
        if boundary == self.kill_at:
            self.die()
        await asyncio.sleep(0)
        self.check_alive()

    # --- what a client does

    async def say(
        self,
        text: str,
        session: str | None = None,
        mode: Literal["queue", "steer"] = "queue",
        owes: tuple[DeliveryOwed, ...] = (),
    ) -> Admitted:
        """In a session, or in the one that is called k."""
        name = "k" if session is None else None
        model = self.world.model.spec
        return await self.service.admit(text, session, name, None, model, mode, owes=owes)

    async def answer(self, admitted: Admitted) -> list[Event]:
        """Run the turn of an input, or watch it; everything of it that was shown."""
        seen: list[Event] = []
        async for event in self.service.turns.answer(admitted, asyncio.Event()):
            seen.append(event)
            self.shown.append(event)
        return seen

    async def run_all(self, admitted: Admitted) -> None:
        """Run a session until it rests."""
        await self.service.turns.run_pending(admitted.session, asyncio.Event())

    async def run_again(self, how: str, session: str = FIRST) -> None:
        """Continue or retry its last turn."""
        turns = self.service.turns
        loaded = await self.service.views.load(session)
        continues = how == "continue"
        opening = turns.continuation(loaded) if continues else await turns.retry(loaded)
        async for event in turns.resume(session, opening, asyncio.Event()):
            self.shown.append(event)

    async def ask(self, text: str, session: str | None = None) -> str:
        """Say something and read the answer."""
        return spoken(await self.answer(await self.say(text, session)))

    async def wait_for(self, kind: type, times: int = 1, session: str = FIRST) -> Seq:
        """Until a fact of this kind is stored in a session, whoever stores it; where."""
        while not self.world.sessions():
            await self.world.newer_than(self.world.version)
        async for event in self.store.follow(session):
            if isinstance(event, Record) and isinstance(event.fact, kind):
                times -= 1
                if times == 0:
                    return event.seq
        raise AssertionError("a store is followed for ever")

    async def decide(self, decision: Literal["allow", "deny"], session: str = FIRST) -> None:
        """About the first call that is asked about."""
        asked = await self.wait_for(ApprovalAsked, session=session)
        fact = ApprovalDecided(asked, decision, "user")
        await self.store.add(session, [fact], key=f"decided:{asked}")


def _name(verb: str, args: tuple[Any, ...]) -> str:
    facts = [one for arg in args if isinstance(arg, list | tuple) for one in arg]
    names = [type(fact).__name__ for fact in facts]
    return f"{verb} {' '.join(names)}".strip()


def spoken(events: list[Event]) -> str:
    """The text of answers among events."""
    pieces = [one for one in events if isinstance(one, Piece) and one.stream.kind == "text"]
    return "".join(piece.text for piece in pieces)


def turn_of(events: list[Event]) -> Seq:
    return next(event.seq for event in events if isinstance(event, Record))
