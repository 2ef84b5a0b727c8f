"""A store in memory with a scripted model, and a count of how often each fact is folded."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Never

from steno.journal.facts import ContextSet, Record, SessionStarted, TurnFact
from steno.journal.state import State
from steno.models.protocol import Model
from steno.models.specs import ModelSettings, make
from steno.runtimes.dispatch import Dispatch
from steno.runtimes.distil import Distiller, Distilling
from steno.runtimes.loop import Agent, Native
from steno.runtimes.protocol import Runtime
from steno.service import Service
from steno.service.deliveries import Deliveries, Sending
from steno.service.memory import Memories
from steno.service.visits import Visits
from steno.session.lease import hold
from steno.session.load import Sessions
from steno.store import memory
from steno.store.facade import AsyncStore
from steno.store.memory import MemoryStore


def _no_outbox(_: object) -> Never:
    raise AssertionError("nothing is owed in these tests")


def service_on(sessions: Sessions, runtime: Runtime, platform: str, model: Model) -> Service:
    """A service without channels. `model` distils."""
    return Service(
        sessions,
        runtime,
        platform,
        Visits(sessions.store, sessions.plugins, platform),
        Deliveries(sessions, Sending(_no_outbox, lambda: None, False)),
        Memories(sessions.store, lambda: Distilling(sessions, lambda _: Distiller(model))),
    )


class Room:
    """Everything between a front end and a store, in one process."""

    def __init__(self, store: AsyncStore, model: str = "scripted:echo") -> None:
        self.store = store
        self.sessions = Sessions(store)
        answers = make(model, ModelSettings())
        native = Native(store, lambda _: Agent(ContextSet(answers.spec), answers, {}))
        self.runtime = Dispatch(self.sessions, lambda _: native)
        self.service = service_on(self.sessions, self.runtime, "test", answers)

    async def say(self, text: str, session: str | None = None) -> str:
        """Say something and have it answered; the session."""
        admitted = await self.service.admit(text, session, None, None, "scripted:echo")
        async for _ in self.service.turns.answer(admitted, asyncio.Event()):
            pass
        return admitted.session

    async def store_turn(self, session: str, *facts: TurnFact) -> None:
        async with hold(Sessions(self.store), session) as held:
            for fact in facts:
                await held.record(fact)
            await held.close()

    async def begin(self) -> str:
        return await self.store.create(SessionStarted("test"))


@asynccontextmanager
async def room(model: str = "scripted:echo") -> AsyncIterator[Room]:
    async with await MemoryStore.open(memory.Place()) as store:
        yield Room(store, model)


@contextmanager
def folds_counted() -> Iterator[Counter[int]]:
    """How often each fact was taken into a `State`, by seq."""
    counted: Counter[int] = Counter()
    apply = State.apply

    def counting(self: State, record: Record) -> None:
        counted[record.seq] += 1
        apply(self, record)

    State.apply = counting  # type: ignore[method-assign]
    try:
        yield counted
    finally:
        State.apply = apply  # type: ignore[method-assign]
