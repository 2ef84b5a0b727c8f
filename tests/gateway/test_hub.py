"""What the hub takes up, over a store that names everything unfinished at once."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from steno.compose import Program
from steno.config import GatewayConfig
from steno.gateway.hub import TAKING_UP_MAX, Hub
from steno.journal.listing import ListingRow
from steno.store.errors import StoreUnwritable
from steno.store.protocol import Listed

SESSIONS = [f"session{i}" for i in range(TAKING_UP_MAX + 8)]


class Store:
    """Sessions with an input that waits; a run of one takes until `ended` is set."""

    def __init__(self) -> None:
        self.left = dict.fromkeys(SESSIONS, 1)
        self.listed = self.running = self.most = 0
        self.ended, self.empty = asyncio.Event(), asyncio.Event()
        self.away = False
        """Whether nothing can be written."""
        self.refusals = 0
        """How many claims fail from here on."""
        self.put: list[str] = []

    async def claim(self, limit: int, full: list[str], anew: bool) -> list[Listed]:
        self.listed += 1
        await asyncio.sleep(0)
        if self.refusals:
            self.refusals -= 1
            raise StoreUnwritable("another process writes")
        assert self.listed < 100, "it looks again and again"
        for session in self.left:  # each goes on growing meanwhile
            self.left[session] += 1
        return [Listed(one, head, 0, None, ListingRow()) for one, head in self.left.items()]

    async def load(self, session: str) -> Any:
        input = SimpleNamespace(source="http")
        state = SimpleNamespace(cut_off=None, pending={1: input}, turn=None)
        return SimpleNamespace(owner=None, state=state, closing=False)

    async def glance(self, session: str) -> Any:
        return SimpleNamespace(row=ListingRow())

    async def run_pending(self, session: str, *until: object) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.ended.wait()
        self.running -= 1
        self.left.pop(session, None)
        if not self.left:
            self.empty.set()

    async def put_back(self, session: str, waits_for: str | None = None) -> None:
        if self.away:
            raise StoreUnwritable("the database is away")
        self.put.append(session)

    async def others(self, row: ListingRow) -> list[str]:
        return []


def hub(store: Store, folder: Path, sessions_max: int = 1_000) -> Hub:
    async def pause(seconds: float) -> None:
        await asyncio.sleep(0.001)

    async def leave(session: str) -> list[str]:
        return []

    service = SimpleNamespace(views=store, turns=store, visits=store)
    program = SimpleNamespace(
        service=lambda platform, terms: service,
        pause=pause,
        leave_session=leave,
        attended=list,
    )
    config = GatewayConfig(folder=str(folder), sessions_max=sessions_max)
    return Hub(cast(Program, program), config, folder)


def test_sessions_that_run_here_are_not_looked_for_again_and_again(tmp_path: Path) -> None:
    async def main() -> None:
        store = Store()
        service = hub(store, tmp_path)
        assert await service.find_work() == len(SESSIONS)
        listed = store.listed
        assert await service.find_work(at_start=False) == 0
        assert store.listed == listed + 1
        store.ended.set()
        await service.drain(1)
        assert not store.left

    asyncio.run(main())


def test_no_more_sessions_run_at_once_than_there_is_room_for(tmp_path: Path) -> None:
    async def main() -> None:
        store = Store()
        service = hub(store, tmp_path, sessions_max=3)
        assert await service.find_work() == 3
        tending = asyncio.create_task(service.tend())
        store.ended.set()
        await asyncio.wait_for(store.empty.wait(), 10)
        assert store.most == 3
        await service.drain(1)
        await tending

    asyncio.run(main())


@pytest.mark.parametrize("count", [TAKING_UP_MAX - 1, TAKING_UP_MAX, len(SESSIONS)])
def test_everything_that_was_left_is_taken_up_at_a_start(tmp_path: Path, count: int) -> None:
    async def main() -> None:
        store = Store()
        store.left = dict.fromkeys(SESSIONS[:count], 1)
        service = hub(store, tmp_path)
        assert await service.find_work() == count
        store.ended.set()
        await service.drain(1)
        assert not store.left

    asyncio.run(main())


@pytest.mark.promise(63)
def test_a_start_with_a_store_that_cannot_be_asked_takes_up_what_was_left_when_it_can(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        store = Store()
        service = hub(store, tmp_path)
        store.refusals = 3
        store.ended.set()
        await service.take_up()
        await service.drain(1)
        assert (store.refusals, store.left) == (0, {})

    asyncio.run(main())


@pytest.mark.promise(72)
def test_what_could_not_be_put_back_is_put_back_with_a_later_look(tmp_path: Path) -> None:
    async def main() -> None:
        store = Store()
        store.left = dict.fromkeys(SESSIONS[:2], 1)
        service = hub(store, tmp_path)
        assert await service.find_work() == 2
        store.away = True
        store.ended.set()
        await asyncio.wait_for(store.empty.wait(), 10)
        with pytest.raises(StoreUnwritable):
            await service.find_work(at_start=False)
        assert store.put == []
        store.away = False
        await service.find_work(at_start=False)
        assert sorted(store.put) == SESSIONS[:2]
        await service.drain(1)

    asyncio.run(main())
