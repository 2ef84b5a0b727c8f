"""What every store does with distillates: found without looking at all sessions, gone with what
they were made of."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from steno.journal.facts import (
    ContextSet,
    Distilled,
    HelperStarted,
    Item,
    ItemAt,
    MemoryRemoved,
    MessageRedacted,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    TurnEnded,
    TurnStarted,
)
from steno.journal.memory import TURNS_DUE
from steno.journal.parts import GONE, Text
from steno.store import queries, verbs
from steno.store.errors import NotAllowed
from steno.store.protocol import Admission, Store
from steno.store.rows import columns_of, session_crc
from steno.store.sqlite import database
from steno.store.sqlite.database import SqliteSettings
from steno.store.sqlite.reader import Reader
from steno.store.sqlite.store import SqliteStore
from tests.store.contract import Place, Running, SqlitePlace, read_all, said

SECRET = "the-word-is-swordfish"
OTHER = "the-cup-is-blue"


async def talk(store: Store, *texts: str, platform: str = "chat") -> Running:
    """A session in which something was said and answered, and whose lease we hold."""
    running: Running | None = None
    for text in texts:
        create = SessionStarted(platform) if running is None else None
        session = None if running is None else running.session
        admitted = await store.admit(Admission(input=said(text), session=session, create=create))
        if running is None:
            running = Running(store, await store.acquire(admitted.session), admitted.seq)
        running.head = admitted.seq
        turn = await running.record(TurnStarted(Takes(admitted.seq)))
        step = await running.record(StepStarted("m"))
        await running.record(StepSealed(step, (Text("ok"),)), TurnEnded(turn, "done"))
    assert running is not None
    return running


def made(running: Running, *texts: str) -> Distilled:
    items = tuple(Item("fact", text, (2,)) for text in texts)
    return Distilled(0, running.head, f"title {texts[0]}", f"summary {texts[0]}", items, "m")


async def distilled(store: Store, *texts: str) -> ItemAt:
    """A session that has those texts to remember; where the first of them is."""
    running = await talk(store, texts[0])
    seq = await running.record(made(running, *texts))
    await running.release()
    return ItemAt(running.session, seq, 0)


async def told(store: Store, *memories: tuple[str, ItemAt]) -> str:
    """A session that was told memories; its id."""
    running = await talk(store, "hello")
    texts, places = tuple(text for text, _ in memories), tuple(at for _, at in memories)
    await running.record(ContextSet("m", "system", memories=texts, recalled=places))
    await running.release()
    return running.session


async def contexts(store: Store, session: str) -> list[ContextSet]:
    return [
        record.fact
        for record in await read_all(store, session)
        if isinstance(record.fact, ContextSet)
    ]


async def test_a_session_is_due_when_enough_was_answered_and_no_more_when_it_is_distilled(
    place: Place,
) -> None:
    async with place.open() as store:
        running = await talk(store, *TURNS_DUE * ["hi"])
        few = await talk(store, *(TURNS_DUE - 1) * ["hi"])
        program = await talk(store, *TURNS_DUE * ["hi"], platform="cli")
        helper = await talk(store, *TURNS_DUE * ["hi"], platform="delegate")
        for one in (running, few, program, helper):
            await one.release()
        assert [one.id for one in await store.list(10, where="due")] == [
            program.session,
            running.session,
        ]
        running.lease = await store.acquire(running.session)
        await running.record(HelperStarted("distillation", "m"), made(running, "tea"))
        assert [one.id for one in await store.list(10, where="due")] == [program.session]
        assert [one.id for one in await store.list(10, where="remembers")] == [running.session]


async def test_what_is_due_is_found_after_a_kill_too(place: Place) -> None:
    """Whoever dies without a release leaves a list row that is behind."""
    async with place.open() as store:
        running = await talk(store, *TURNS_DUE * ["hi"])
        await store.abandon(running.lease)
    async with place.open() as store:
        assert [one.id for one in await store.list(10, where="due")] == [running.session]


async def test_a_migration_makes_no_old_session_due(tmp_path: Path) -> None:
    """An earlier steno did not distil sessions of programs: nobody pays for requests about all that
    they ever did."""
    path = tmp_path / "store.db"
    async with await SqliteStore.open(path) as store:
        running = await talk(store, *TURNS_DUE * ["hi"], platform="cli")
        await running.release()
    with contextlib.closing(database.connect(path, SqliteSettings())) as connection:
        reader = Reader(connection)
        row = queries.session(reader, running.session)
        row.marks -= {"due"}
        values = (row.list_row.decode(), row.listed, session_crc(row), *columns_of(row.marks))
        reader.all("relist", *values, row.n)
        connection.execute(
            "update lists set upto = (select max(id) from facts); drop table imports; "
            "drop table changes; alter table lists drop column given; "
            "alter table lists drop column journal"
        ).fetchall()
        connection.pragma("user_version", 3)
    async with await SqliteStore.open(path) as store:
        assert await store.list(10, where="due") == []
        assert (await store.verify()).damage == ()
        running = Running(store, await store.acquire(running.session), running.head)
        await running.record(ContextSet("m"))
        await running.release()
        assert [one.id for one in await store.list(10, where="due")] == [running.session]


async def test_sessions_to_remember_come_newest_first_and_page_by_page(place: Place) -> None:
    async with place.open() as store:
        ids = [(await distilled(store, f"fact {number}")).session for number in range(5)]
        assert [one.id for one in await store.list(10, where="remembers")] == ids[::-1]
        first = await store.list(2, where="remembers")
        assert [one.id for one in first] == [ids[4], ids[3]]
        assert [
            one.id for one in await store.list(2, before=first[-1].mark, where="remembers")
        ] == [
            ids[2],
            ids[1],
        ]


async def test_a_session_whose_items_were_all_removed_is_not_remembered(place: Place) -> None:
    async with place.open() as store:
        at = await distilled(store, "tea", "cups")
        await store.add(at.session, [MemoryRemoved(at.seq, 0)], key="a")
        [left] = await store.list(10, where="remembers")
        assert left.row.memory.at == {at.seq: [1]}
        await store.add(at.session, [MemoryRemoved(at.seq, 1)], key="b")
        assert await store.list(10, where="remembers") == []


@pytest.mark.promise(55, 60)
async def test_a_redaction_empties_what_was_distilled_from_the_message_wherever_it_went(
    place: Place,
) -> None:
    async with place.open() as store:
        at = await distilled(store, SECRET, OTHER)
        innocent = await distilled(store, "tea")
        other = await told(store, (SECRET, at), ("tea", innocent))
        fork = await store.fork(at.session, at.seq, SessionStarted("chat"))
        assert place.holding(SECRET)
        await store.redact(at.session, 2)
        records = await read_all(store, at.session)
        fact = records[at.seq - 1].fact
        assert isinstance(fact, Distilled)
        assert (fact.title, fact.summary) == (GONE, GONE)
        assert [item.text for item in fact.items] == [GONE, GONE]
        [context] = await contexts(store, other)
        assert context == ContextSet("m", "system", memories=("tea",), recalled=(innocent,))
        assert [
            listed.row.memory.from_sessions for listed in await store.list() if listed.id == other
        ] == [(innocent.session,)]
        assert SECRET not in str(await read_all(store, fork))
        assert place.holding(SECRET) == place.holding(OTHER) == []


async def test_a_redaction_of_a_later_message_leaves_an_earlier_distillate(place: Place) -> None:
    async with place.open() as store:
        at = await distilled(store, "tea")
        admitted = await store.admit(Admission(input=said("later"), session=at.session))
        await store.redact(at.session, admitted.seq)
        [record] = await store.read(at.session, at.seq - 1, 1)
        assert isinstance(record.fact, Distilled)
        assert record.fact.items[0].text == "tea"


async def test_a_distillate_of_a_fork_is_emptied_with_its_parents_message(place: Place) -> None:
    async with place.open() as store:
        parent = await talk(store, SECRET)
        await parent.release()
        id = await store.fork(parent.session, parent.head, SessionStarted("chat"))
        fork = Running(store, await store.acquire(id), parent.head + 1)
        await fork.record(made(fork, SECRET))
        await fork.release()
        await store.redact(parent.session, 2)
        assert place.holding(SECRET) == []


@pytest.mark.promise(55)
async def test_a_delete_takes_what_others_were_told(place: Place) -> None:
    async with place.open() as store:
        at = await distilled(store, SECRET)
        other = await told(store, (SECRET, at))
        await store.delete(at.session)
        assert await contexts(store, other) == [ContextSet("m", "system")]
        assert await store.list(10, where="remembers") == []
        assert place.holding(SECRET) == []


async def test_a_distillate_is_refused_if_something_was_redacted_meanwhile(place: Place) -> None:
    async with place.open() as store:
        running = await talk(store, SECRET)
        await store.redact(running.session, 2)
        with pytest.raises(NotAllowed, match="redacted"):
            await running.record(made(running, SECRET))
        assert place.holding(SECRET) == []
        assert isinstance((await read_all(store, running.session))[-1].fact, MessageRedacted)


async def test_a_context_is_refused_if_its_memories_went_meanwhile(place: Place) -> None:
    async with place.open() as store:
        deleted, redacted = await distilled(store, SECRET), await distilled(store, SECRET)
        running = await talk(store, "hello")
        await store.delete(deleted.session)
        await store.redact(redacted.session, 2)
        elsewhere = ItemAt(running.session, 1, 0)
        for at in (
            deleted,
            redacted,
            elsewhere,
            ItemAt(redacted.session, redacted.seq, 7),
            ItemAt("nobody", 1, 0),
        ):
            with pytest.raises(NotAllowed, match="gone"):
                await running.record(ContextSet("m", memories=(SECRET,), recalled=(at,)))
        with pytest.raises(NotAllowed, match="gone"):
            await running.record(ContextSet("m", memories=(GONE,), recalled=(redacted,)))
        assert place.holding(SECRET) == []
        await running.release()


async def test_distillates_and_removals_at_once_leave_nothing(place: Place) -> None:
    """Whatever the order turns out to be."""
    async with place.open() as store:
        for number in range(10):
            secret = f"{SECRET}-{number}"
            at = await distilled(store, secret)

            async def tell(secret: str = secret, at: ItemAt = at) -> None:
                running = await talk(store, "hello")
                with contextlib.suppress(NotAllowed):
                    await running.record(ContextSet("m", memories=(secret,), recalled=(at,)))
                await running.release()

            removal = store.delete(at.session) if number % 2 else store.redact(at.session, 2)
            await asyncio.gather(tell(), removal, tell())
            assert place.holding(secret) == []


async def test_a_kill_in_the_middle_of_a_delete_leaves_no_copy_after_the_next_start(
    tmp_path: Path,
) -> None:
    place = SqlitePlace(tmp_path)
    async with place.open() as store:
        at = await distilled(store, SECRET)
        other = await told(store, (SECRET, at))
        assert isinstance(store, SqliteStore)
        core = store.core
        core.queue.run(lambda tx: verbs.delete(tx, at.session, False, core.moment()))
    async with place.open() as store:
        assert await contexts(store, other) == [ContextSet("m", "system")]
        assert (await store.verify()).damage == ()
