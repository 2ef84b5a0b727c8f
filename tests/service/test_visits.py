"""Coming and leaving: each case of a session's end, with a real store and plugins that answer as
they are told."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from steno.compose import Setup
from steno.config import Config, Place
from steno.journal.facts import (
    FreeFact,
    HookDone,
    HookOwed,
    InputAdmitted,
    SessionEnded,
    SessionStarted,
    Takes,
    TurnEnded,
    TurnOutcome,
    TurnStarted,
)
from steno.journal.parts import Text
from steno.model_choice import Terms
from steno.plugins.protocol import NoPlugins, Told, Untold
from steno.service import Service
from steno.service.visits import Visits
from steno.store.errors import StoreError, StoreFull
from steno.store.protocol import Admission, Appended, Glance
from steno.store.sqlite.store import SqliteStore


class Listener(NoPlugins):
    """One plugin, called `ear`."""

    names: tuple[str, ...] = ("ear",)

    def __init__(self, answer: Told | Untold | None = None) -> None:
        self.heard: list[Mapping[str, object]] = []
        self.answer = answer or Told()

    def having(self, hook: str) -> tuple[str, ...]:
        return self.names

    async def ready(self, name: str) -> bool:
        return name in self.names

    async def call(
        self, name: str, hook: str, arguments: Mapping[str, object], limit_s: float
    ) -> Told | Untold:
        self.heard.append(arguments)
        return self.answer


class Full(SqliteStore):
    """The disk has no room for an end."""

    async def add(
        self, session: str, facts: Sequence[FreeFact], key: str | None = None
    ) -> Appended:
        if any(isinstance(fact, SessionEnded) for fact in facts):
            raise StoreFull("nothing was stored: the disk is full")
        return await super().add(session, facts, key)


class Unreadable(SqliteStore):
    """The disk fails when somebody leaves."""

    failing = False

    async def glance(self, session: str) -> Glance:
        if self.failing:
            raise StoreError("the disk does not answer")
        return await super().glance(session)


@asynccontextmanager
async def opened(folder: Path, kind: type[SqliteStore] = SqliteStore) -> AsyncIterator[SqliteStore]:
    store = await kind.open(folder / "store.db")
    try:
        yield store
    finally:
        await store.close()


def visits(store: SqliteStore, ear: Listener | None = None) -> Visits:

    return Visits(store, ear or Listener(), "test")


async def said(
    store: SqliteStore, by: Visits | None = None, outcome: TurnOutcome | None = "done"
) -> str:
    """A session in which something was said and a turn ended; with `by`, as the first input of a
    visit."""
    visit = None if by is None else await by.opening()
    said = InputAdmitted((Text("hi"),), "test")
    admitted = await store.admit(Admission(input=said, create=SessionStarted("test"), visit=visit))
    if by is not None:
        by.began(admitted.session, admitted.visit)
    if outcome is not None:
        lease = await store.acquire(admitted.session)
        turn = await store.append(lease, [TurnStarted(Takes(admitted.seq))], admitted.seq)
        ended = await store.append(lease, [TurnEnded(turn.first, outcome)], turn.last)
        await store.release(lease, ended.last)
    return admitted.session


async def facts(store: SqliteStore, id: str, *kinds: type) -> list[object]:
    return [record.fact for record in await store.read(id) if isinstance(record.fact, kinds)]


def run(test: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test, 30)

    asyncio.run(bounded())


def case(test: Callable[[Path], Awaitable[None]]) -> Callable[[Path], None]:
    def wrapped(tmp_path: Path) -> None:
        run(test(tmp_path))

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


@pytest.mark.promise(39)
@case
async def test_an_end_is_recorded_with_its_reason_and_told_once(tmp_path: Path) -> None:
    ear = Listener()
    async with opened(tmp_path) as store:
        here = visits(store, ear)
        id = await said(store, here)
        assert await here.leave("idle") == []
        assert await facts(store, id, SessionEnded) == [SessionEnded("idle", "done", 2)]
        assert [type(fact) for fact in await facts(store, id, HookOwed, HookDone)] == [
            HookOwed,
            HookDone,
        ]
        assert [one["reason"] for one in ear.heard] == ["idle"]


@case
async def test_leaving_what_was_never_opened_or_twice_does_nothing(tmp_path: Path) -> None:
    ear = Listener()
    async with opened(tmp_path) as store:
        here = visits(store, ear)
        assert await here.leave() == []
        id = await said(store, here)
        await here.leave()
        before = await store.read(id)
        assert await here.leave() == []
        assert await here.leave("signal", id) == []
        assert await store.read(id) == before
        assert len(ear.heard) == 1


@case
async def test_an_empty_session_has_nothing_to_end(tmp_path: Path) -> None:
    ear = Listener()
    async with opened(tmp_path) as store:
        here = visits(store, ear)
        id = await store.create(SessionStarted("test"))
        await here.attend(id)
        assert await here.leave() == []
        assert len(await store.read(id)) == 1
        assert ear.heard == []


@case
async def test_a_session_whose_runtime_never_started_has_no_end_to_tell_of(tmp_path: Path) -> None:
    ear = Listener()
    async with opened(tmp_path) as store:
        here = visits(store, ear)
        id = await said(store, here, outcome=None)
        assert await here.leave() == []
        assert await facts(store, id, SessionEnded, HookOwed) == [SessionEnded("left", "none", 2)]
        assert (await store.glance(id)).row.pending, "what was accepted waits as before"
        assert await store.list(100, after=0, where="owes") == []
    assert ear.heard == []


@pytest.mark.promise(39)
@case
async def test_who_was_killed_before_the_runtime_started_is_told_of_when_a_turn_has_run(
    tmp_path: Path,
) -> None:
    ear = Listener()
    async with opened(tmp_path) as store:
        id = await said(store, visits(store, ear), outcome=None)
    async with opened(tmp_path) as store:
        here = visits(store, ear)
        await here.look()
        assert await facts(store, id, SessionEnded, HookOwed) == [SessionEnded("killed", "none", 2)]
        assert await store.list(100, after=0, where="owes") == []
        assert ear.heard == []
        await here.attend(id)
        [input] = (await store.glance(id)).row.pending
        lease = await store.acquire(id)
        await store.append(lease, [TurnStarted(Takes(input))], (await store.glance(id)).head)
        await store.abandon(lease)
        await here.leave()
    (heard,) = ear.heard
    assert (heard["completed"], heard["interrupted"]) == (False, True)


@pytest.mark.promise(39)
@case
async def test_a_store_that_fails_at_the_end_keeps_nobody_from_being_told(tmp_path: Path) -> None:
    ear = Listener()
    async with opened(tmp_path, Full) as store:
        here = visits(store, ear)
        id = await said(store, here)
        (problem,) = await here.leave()
        assert "the disk is full" in problem
        assert [one["reason"] for one in ear.heard] == ["left"]
    async with opened(tmp_path) as store:
        await visits(store, ear).look()
        assert await facts(store, id, SessionEnded) == [SessionEnded("killed", "done", 2)]
        assert [one["reason"] for one in ear.heard] == ["left", "killed"]
        assert len({one["key"] for one in ear.heard}) == 1


@pytest.mark.promise(39)
@case
async def test_a_store_that_cannot_even_be_read_keeps_nobody_from_being_told(
    tmp_path: Path,
) -> None:
    ear = Listener()
    async with opened(tmp_path, Unreadable) as store:
        here = visits(store, ear)
        id = await said(store, here)
        assert isinstance(store, Unreadable)
        store.failing = True
        (problem,) = await here.leave("signal")
        assert "the disk does not answer" in problem
        assert [(one["session_id"], one["reason"]) for one in ear.heard] == [(id, "signal")]


@pytest.mark.promise(39)
@case
async def test_what_a_plugin_raises_is_recorded_and_it_is_not_told_again(tmp_path: Path) -> None:
    ear = Listener(Told("ValueError: no"))
    async with opened(tmp_path) as store:
        here = visits(store, ear)
        id = await said(store, here)
        await here.leave()
        assert await facts(store, id, HookDone) == [HookDone(7, "ear", "ValueError: no")]
        await visits(store, ear).look()
    async with opened(tmp_path) as store:
        await visits(store, ear).look()
    assert len(ear.heard) == 1


@pytest.mark.promise(39)
@case
async def test_a_plugin_that_never_answers_is_given_up_after_a_bounded_number_of_starts(
    tmp_path: Path,
) -> None:
    ear = Listener(Untold("no answer"))  # as whoever leaves before the plugin has had its time
    async with opened(tmp_path) as store:
        here = visits(store, ear)
        id = await said(store, here)
        await here.leave()
    for _ in range(6):
        async with opened(tmp_path) as store:
            await visits(store, ear).look()
    async with opened(tmp_path) as store:
        assert len(ear.heard) == 4, "when it left, and at three starts"
        (done,) = await facts(store, id, HookDone)
        assert isinstance(done, HookDone)
        assert "not told" in done.error
        assert await store.list(100, after=0, where="owes") == []


@case
async def test_what_is_owed_to_a_plugin_that_is_not_here_waits_for_one_who_has_it(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as store:
        here = visits(store, Listener(Untold("gone")))
        id = await said(store, here)
        await here.leave()
    for _ in range(5):
        async with opened(tmp_path) as store:
            await Visits(store, NoPlugins(), "test").look()
    ear = Listener()
    async with opened(tmp_path) as store:
        await visits(store, ear).look()
        assert [one["session_id"] for one in ear.heard] == [id]
        assert await store.list(100, after=0, where="owes") == []


@pytest.mark.promise(39)
@case
async def test_of_many_that_look_at_once_one_ends_a_dead_visit_and_tells_of_it(
    tmp_path: Path,
) -> None:
    ear = Listener()
    async with opened(tmp_path) as store:
        id = await said(store, visits(store, ear))
    stores = [await SqliteStore.open(tmp_path / "store.db") for _ in range(6)]
    try:
        await asyncio.gather(*(visits(store, ear).look() for store in stores))
        assert await facts(stores[0], id, SessionEnded) == [SessionEnded("killed", "done", 2)]
        assert len(ear.heard) == 1
    finally:
        for store in stores:
            await store.close()


@case
async def test_a_visitor_who_lives_is_left_alone(tmp_path: Path) -> None:
    ear = Listener()
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        here = visits(store, ear)
        id = await said(store, here)
        await visits(other, ear).look()
        assert await facts(store, id, SessionEnded) == []
        await here.leave("replaced")
        assert [one["reason"] for one in ear.heard] == ["replaced"]


@case
async def test_a_session_that_was_deleted_has_no_end(tmp_path: Path) -> None:
    ear = Listener()
    async with opened(tmp_path) as store:
        here = visits(store, ear)
        await store.delete(await said(store, here))
        assert await here.leave() == []
        assert ear.heard == []


@case
async def test_a_front_end_opens_a_session_once(tmp_path: Path) -> None:
    async with Setup(Config(), Place(tmp_path, tmp_path)).open() as program:
        service = program.service("test", Terms("scripted:echo"))
        assert isinstance(service, Service)
        first = await service.admit("one", None, None, None, "scripted:echo")
        await service.visits.attend(first.session)
        second = await service.admit("two", first.session, None, None, "scripted:echo")
        assert (first.visit, second.visit) == (2, None)
        assert service.visits.attending(first.session)
