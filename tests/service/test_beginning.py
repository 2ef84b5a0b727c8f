"""Whether a turn is due is looked at again under the lease: since the caller looked, somebody may
have run it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from steno.compose import Setup
from steno.config import Config, Place
from steno.journal.facts import Continues, Rewound, Takes, TurnEnded, TurnFact, TurnStarted
from steno.model_choice import Terms
from steno.service import Service
from steno.session.lease import HeldSession
from steno.session.load import Sessions
from steno.store.errors import NotAllowed
from steno.store.protocol import Settings
from steno.store.sqlite.store import SqliteStore


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[Service, SqliteStore]]:
    async with Setup(Config(), Place(folder, folder)).open() as program:
        service = program.service("cli", Terms("scripted:echo"))
        beside = await SqliteStore.open(folder / "store.db", Settings())
        try:
            yield service, beside
        finally:
            await beside.close()


async def record(store: SqliteStore, id: str, *facts: TurnFact) -> None:
    held = await HeldSession.open(Sessions(store), id)
    for fact in facts:
        await held.record(fact)
    while not await held.release():
        pass


async def retry(service: Service, id: str) -> TurnStarted:
    return await service.turns.retry(await service.views.load(id))


async def begin(service: Service, id: str, opening: TurnStarted) -> list[str]:
    events = service.turns.resume(id, opening, asyncio.Event())
    return [type(getattr(event, "fact", None)).__name__ async for event in events]


def run(test: Callable[[Service, SqliteStore, str], Awaitable[None]], folder: Path) -> None:
    """With a session whose only input is at 2."""

    async def whole() -> None:
        async with serving(folder) as (service, store):
            admitted = await service.admit("hi", None, None, None, "scripted:echo", visit=False)
            assert admitted.seq == 2
            await test(service, store, admitted.session)

    asyncio.run(whole())


@pytest.mark.promise(16, 57)
def test_a_prompt_that_was_answered_meanwhile_is_not_run_again(tmp_path: Path) -> None:
    async def test(service: Service, store: SqliteStore, id: str) -> None:
        await record(store, id, TurnStarted(Takes(2)), TurnEnded(3, "failed", "refused"))
        one, other = await retry(service, id), await retry(service, id)
        assert (await begin(service, id, one))[-1] == "TurnEnded"
        with pytest.raises(NotAllowed, match="answered"):
            await begin(service, id, other)

    run(test, tmp_path)


def test_a_prompt_is_not_run_again_after_another_turn(tmp_path: Path) -> None:
    async def test(service: Service, store: SqliteStore, id: str) -> None:
        await record(store, id, TurnStarted(Takes(2)), TurnEnded(3, "failed", "refused"))
        again = await retry(service, id)
        admitted = await service.admit("more", id, None, None, "scripted:echo")
        turn = TurnStarted(Takes(admitted.seq))
        await record(store, id, turn, TurnEnded(admitted.seq + 1, "failed", "refused"))
        with pytest.raises(NotAllowed, match="another turn"):
            await begin(service, id, again)

    run(test, tmp_path)


def test_an_input_that_waits_is_not_run_as_a_retry(tmp_path: Path) -> None:
    async def test(service: Service, store: SqliteStore, id: str) -> None:
        with pytest.raises(NotAllowed, match="still waits"):
            await begin(service, id, TurnStarted(Takes(2)))

    run(test, tmp_path)


@pytest.mark.promise(20)
def test_a_turn_that_was_undone_meanwhile_is_not_continued(tmp_path: Path) -> None:
    async def test(service: Service, store: SqliteStore, id: str) -> None:
        await record(store, id, TurnStarted(Takes(2)), TurnEnded(3, "interrupted", "killed"))
        due = service.turns.continuation(await service.views.load(id))
        assert due == TurnStarted(Continues(3))
        await record(store, id, Rewound(3))
        with pytest.raises(NotAllowed, match="not waiting"):
            await begin(service, id, due)

    run(test, tmp_path)
