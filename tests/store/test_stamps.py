"""A fact has one time: that of its commit. Both faces of a store give it to the caller, so that a
fold in memory is the fold of what is stored."""

import asyncio
from itertools import count
from pathlib import Path

from steno.journal.facts import (
    Record,
    SessionRenamed,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    TurnEnded,
    TurnStarted,
)
from steno.journal.listing import ListingRow
from steno.journal.parts import Text
from steno.session.load import Sessions
from steno.session.writer import Writer, folded
from steno.store.protocol import Admission, Settings
from steno.store.sqlite.store import BlockingStore, SqliteStore
from tests.store.contract import STARTED, Clock, Place, admit, begin, read_all, said


async def test_a_fact_is_stamped_when_it_is_committed(tmp_path: Path) -> None:
    clock = Clock()
    async with await SqliteStore.open(tmp_path / "chats.db", Settings(now_ms=clock)) as store:
        running = await begin(store)
        with store.core.queue.paused():
            appending = asyncio.create_task(
                store.append(running.lease, [TurnEnded(3, "done")], running.head)
            )
            adding = asyncio.create_task(store.add(running.session, [SessionRenamed("later")]))
            admitting = asyncio.create_task(admit(store, "more", running.session))
            await asyncio.sleep(0.05)
            clock.now_ms += 7_000
        appended, added = await appending, await adding
        await admitting
        stored = await store.read(running.session, running.head)
        assert [record.at_ms for record in stored] == [clock.now_ms] * 3
        assert appended.at_ms == added.at_ms == clock.now_ms


async def test_the_same_key_gives_the_first_stamp(place: Place) -> None:
    clock = Clock()
    async with place.open(Settings(now_ms=clock)) as store:
        id = await store.create(STARTED)
        first = await store.add(id, [SessionRenamed("a")], key="k")
        clock.now_ms += 1
        again = await store.add(id, [SessionRenamed("a")], key="k")
        assert first == again
        assert again.at_ms == clock.now_ms - 1


def test_what_is_folded_in_memory_is_the_fold_of_what_is_stored(tmp_path: Path) -> None:
    """A clock that moves with each look shows any second look at it."""
    ticks = count(1_000, 1_000)
    with BlockingStore(tmp_path / "chats.db", Settings(now_ms=lambda: next(ticks))) as store:
        id = store.admit(Admission(input=said("hello"), create=SessionStarted("test"))).session
        lease, folded, head = store.acquire(id), ListingRow(), 2
        for record in store.read_all(id):
            folded.apply(record)
        for fact in (
            TurnStarted(Takes(2)),
            StepStarted("m"),
            StepSealed(4, (Text("hi"),)),
            TurnEnded(3, "done"),
        ):
            added = store.append(lease, [fact], head)
            folded.apply(Record(added.first, added.at_ms, fact))
            head = added.last
        assert folded == store.glance(id).row


async def test_a_runners_memory_is_the_fold_of_what_is_stored(place: Place) -> None:
    ticks = count(1_000, 1_000)
    async with place.open(Settings(now_ms=lambda: next(ticks))) as store:
        admitted = await admit(store, "hello")
        sessions, taken = Sessions(store), list[Record]()
        lease = await store.acquire(admitted.session)
        writer = Writer(sessions, lease, await folded(sessions, lease), taken.append)
        await writer.append([TurnStarted(Takes(admitted.seq))])
        await writer.append([StepStarted("m")])
        await admit(store, "and this", admitted.session)
        await writer.append([StepSealed(4, (Text("hi"),)), TurnEnded(3, "done")])
        await writer.leave()
        assert taken == (await read_all(store, admitted.session))[admitted.seq :]
