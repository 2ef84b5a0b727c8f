"""The stores that the contract suite runs over, and the words its tests are written in.

A store joins the suite with one entry in `PLACES`.
"""

import subprocess
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Protocol

import apsw
from msgspec.structs import replace

from steno.journal.drafts import Stream
from steno.journal.facts import (
    InputAdmitted,
    Record,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    ToolStarted,
    TurnFact,
    TurnStarted,
)
from steno.journal.parts import File, Seq, Text, ToolCall
from steno.journal.state import State
from steno.journal.transcript import Transcript
from steno.store import memory
from steno.store.postgres.store import BlockingPostgresStore, PostgresStore
from steno.store.protocol import Admission, Admitted, Cursor, Event, Lease, Piece, Settings, Store
from steno.store.sqlite.database import SqliteSettings, checked_pages
from steno.store.sqlite.store import SqliteStore
from tests import postgres


class Clock:
    """A wall clock that goes where it is put."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


class SqlitePlace:
    """Where one store lives. It can be opened again and again, also several times at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "chats.db"

    @asynccontextmanager
    async def open(self, settings: Settings | None = None) -> AsyncIterator[Store]:
        store = await SqliteStore.open(self.path, settings)
        try:
            yield store
        finally:
            await store.close()

    def kill(self, store: Store) -> None:
        assert isinstance(store, SqliteStore)
        store.backend.locks.forget()

    def holding(self, text: str) -> list[str]:
        """The files that hold some text. Another process looks: to open and close a file here would
        drop the locks that SQLite has on it."""
        looked = subprocess.run(
            ["grep", "-rlaF", "--", text, str(self.folder)], capture_output=True, check=False
        )
        return [Path(line).name for line in looked.stdout.decode().splitlines()]

    def size(self) -> int:
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())

    def rows(self) -> dict[str, int]:
        tables = ("facts", "keys", "payloads", "drafts", "imports")
        with closing(apsw.Connection(str(self.path), vfs=checked_pages())) as connection:
            counts = [connection.execute(f"select count(*) from {table}").get for table in tables]
        return {table: count for table, count in zip(tables, counts, strict=True) if count}

    def expiring(self, clock: Clock, lease_ms: int = 1_000) -> Settings:
        return SqliteSettings(now_ms=clock, lease_ms=lease_ms, allow_network_file_system=True)

    def leave(self) -> None:
        """Its folder goes with the test."""


class MemoryPlace:
    """Memory of this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memory = memory.Place()

    @asynccontextmanager
    async def open(self, settings: Settings | None = None) -> AsyncIterator[Store]:
        store = await memory.MemoryStore.open(self.memory, settings)
        try:
            yield store
        finally:
            await store.close()

    def kill(self, store: Store) -> None:
        self.memory.kill(store.owner)

    def holding(self, text: str) -> list[str]:
        """The places that hold some text: files, of which there are none, and the tables."""
        tables = {name: table for name, table in vars(self.memory).items() if name != "living"}
        found = [name for name, table in tables.items() if text in repr(table)]
        return [file.name for file in self.folder.rglob("*")] + found

    def size(self) -> int:
        bodies = (body for _, body in self.memory.facts.values())
        return sum(map(len, [*bodies, *self.memory.payloads.values()]))

    def rows(self) -> dict[str, int]:
        tables = ("facts", "keys", "payloads", "drafts", "imports")
        return {name: len(vars(self.memory)[name]) for name in tables if vars(self.memory)[name]}

    def expiring(self, clock: Clock, lease_ms: int = 1_000) -> Settings:
        self.memory.tell_alive = False
        return Settings(now_ms=clock, lease_ms=lease_ms)

    def leave(self) -> None:
        """Its folder goes with the test."""


def kill(url: str, store: PostgresStore | BlockingPostgresStore) -> None:
    """As if its process had been killed, and its terms were over."""
    store.backend.forget()
    with closing(postgres.connect(url)) as connection:
        connection.execute(
            f"update {postgres.schema_of(url)}.owners set beat = beat - interval '1 hour' "
            "where owner = %s".encode(),
            (store.owner,),
        )


class PostgresPlace:
    """A schema of one of the run's servers."""

    def __init__(self, folder: Path, version: int = 18) -> None:
        self.folder = folder
        self._server = postgres.server(version)
        self.url = self._server.empty_store()

    @asynccontextmanager
    async def open(self, settings: Settings | None = None) -> AsyncIterator[Store]:
        store = await PostgresStore.open(self.url, settings)
        try:
            yield store
        finally:
            await store.close()

    def kill(self, store: Store) -> None:
        assert isinstance(store, PostgresStore)
        kill(self.url, store)

    def holding(self, text: str) -> list[str]:
        """The tables in which SQL finds some text."""
        found = []
        schema = postgres.schema_of(self.url)
        with closing(postgres.connect(self.url)) as connection:
            tables = connection.execute(
                "select table_name from information_schema.tables where table_schema = %s "
                "and table_type = 'BASE TABLE'",
                (schema,),
            ).fetchall()
            for (table,) in tables:
                asked = (
                    f"select 1 from {schema}.{table} t where position(%s in t::text) > 0 limit 1"
                )
                if connection.execute(asked.encode(), (text,)).fetchone():
                    found.append(str(table))
        return found + [file.name for file in self.folder.rglob("*")]

    def size(self) -> int:
        """Of what is stored; rows and indexes come on top."""
        schema = postgres.schema_of(self.url)
        asked = (
            f"select (select coalesce(sum(octet_length(body)), 0) from {schema}.facts) + "
            f"(select coalesce(sum(octet_length(body)), 0) from {schema}.chunks)"
        )
        with closing(postgres.connect(self.url)) as connection:
            row = connection.execute(asked.encode()).fetchone()
        assert row is not None
        return int(str(row[0]))

    def rows(self) -> dict[str, int]:
        tables = ("facts", "keys", "payloads", "drafts", "imports")
        counts: dict[str, int] = {}
        with closing(postgres.connect(self.url)) as connection:
            for table in tables:
                asked = f"select count(*) from {postgres.schema_of(self.url)}.{table}"
                row = connection.execute(asked.encode()).fetchone()
                counts[table] = int(str(row[0] if row else 0))
        return {table: count for table, count in counts.items() if count}

    def expiring(self, clock: Clock, lease_ms: int = 1_000) -> Settings:
        raise NotImplementedError("here the database's clock says who is alive")

    def leave(self) -> None:
        self._server.give_back(self.url)


class Place(Protocol):
    folder: Path

    def open(self, settings: Settings | None = None) -> AbstractAsyncContextManager[Store]: ...
    def kill(self, store: Store) -> None:
        """As a kill of its process would: nothing is closed, and its locks are gone."""
        ...

    def holding(self, text: str) -> list[str]: ...
    def size(self) -> int: ...
    def rows(self) -> dict[str, int]:
        """How many rows there are, by table; only those that have some."""
        ...

    def expiring(self, clock: Clock, lease_ms: int = 1_000) -> Settings:
        """Where several hosts may share a store, only the term of a lease says whether its owner is
        gone."""
        ...

    def leave(self) -> None:
        """It may be another test's place now."""
        ...


PLACES: dict[str, Callable[[Path], Place]] = {
    "sqlite": SqlitePlace,
    "memory": MemoryPlace,
    "postgres": PostgresPlace,
    "postgres-15": lambda folder: PostgresPlace(folder, 15),
}
"""The newest PostgreSQL; and the oldest that will do, for a few of the tests: `make torture` runs
all of them on it."""
ON_THE_OLDEST = (
    "test_the_same_key_many_times_at_once_is_one_input",
    "test_a_new_lease_fences_out_the_old_holder",
    "test_a_killed_store_leaves_its_sessions_free_and_what_it_had_written",
    "test_many_writers_at_once_get_each_seq_once",
    "test_a_seal_takes_the_place_of_its_streams_only",
    "test_a_fork_of_a_fork_may_start_anywhere_in_it",
    "test_a_deleted_session_is_gone_without_a_trace_of_its_text",
    "test_a_redacted_input_is_gone_from_every_file",
    "test_a_list_counts_what_the_transcript_shows",
    "test_a_live_follower_gets_each_piece_once_as_it_comes",
)


# --- saying things --------------------------------------------------------------------------------


STARTED = SessionStarted("test")


def said(text: str, key: str | None = None, source: str = "test") -> InputAdmitted:
    return InputAdmitted((Text(text),), source, key)


async def admit(
    store: Store,
    text: str,
    session: str | None = None,
    key: str | None = None,
    source: str = "test",
) -> Admitted:
    """Say something in a session, or in a new one."""
    create = STARTED if session is None else None
    return await store.admit(
        Admission(input=said(text, key, source), session=session, create=create)
    )


def file_of(hash: str, size: int) -> File:
    return File(hash, "text/plain", size)


class Running:
    """A session with a turn and a step under way: what a runner knows of it."""

    def __init__(self, store: Store, lease: Lease, head: Seq) -> None:
        self.store = store
        self.lease = lease
        self.head = head
        self.step: Seq = 0

    @property
    def session(self) -> str:
        return self.lease.session

    async def record(self, *facts: TurnFact) -> Seq:
        """Append facts; the seq of the last."""
        self.head = (await self.store.append(self.lease, facts, self.head)).last
        return self.head

    async def write(self, text: str) -> int:
        return await self.store.draft(self.lease, Stream(self.step, "text"), text)

    async def release(self) -> None:
        while not (answer := await self.store.release(self.lease, self.head)).released:
            self.head = answer.foreign[-1].seq


async def begin(store: Store, text: str = "hello", session: str | None = None) -> Running:
    """Admit an input, take the lease, start a turn and a step."""
    admitted = await admit(store, text, session)
    running = Running(store, await store.acquire(admitted.session), admitted.seq)
    await running.record(TurnStarted(Takes(admitted.seq)))
    running.step = await running.record(StepStarted("model"))
    return running


async def begin_tool(store: Store) -> tuple[Running, Seq]:
    """A turn in which a tool has started; the seq at which it did."""
    running = await begin(store)
    await running.record(StepSealed(running.step, (ToolCall("call", "shell", "{}"),)))
    return running, await running.record(ToolStarted(running.step, "call"))


# --- looking --------------------------------------------------------------------------------------


async def read_all(store: Store, session: str, page: int = 1_000) -> list[Record]:
    records: list[Record] = []
    while found := await store.read(session, records[-1].seq if records else 0, page):
        records += found
    return records


async def state_of(store: Store, session: str) -> State:
    state = State()
    for record in await read_all(store, session):
        state.apply(record)
    return state


async def texts(store: Store, session: str) -> list[str]:
    """What a person reads."""
    return [message.text for message in transcript(await read_all(store, session)).messages]


def transcript(records: Iterable[Record]) -> Transcript:
    view = Transcript()
    for record in records:
        view.apply(record)
    return view


async def title_of(store: Store, session: str) -> str:
    return next(listed.row.title for listed in await store.list() if listed.id == session)


async def follow(
    store: Store, session: str, count: int, cursor: Cursor | None = None
) -> tuple[list[Event], Cursor]:
    """The next events, and the cursor of a client that has seen them."""
    cursor = cursor or Cursor()
    events: list[Event] = []
    stream = store.follow(session, cursor)
    try:
        async for event in stream:
            events.append(event)
            cursor = moved(cursor, event)
            if len(events) == count:
                break
    finally:
        await stream.aclose()
    return events, cursor


def moved(cursor: Cursor, event: Event) -> Cursor:
    match event:
        case Record():
            return replace(cursor, seq=event.seq)
        case Piece():
            ends = dict(cursor.offsets) | {event.stream: event.offset + len(event.text)}
            return replace(cursor, offsets=tuple(ends.items()))
