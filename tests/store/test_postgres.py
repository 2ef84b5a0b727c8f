"""What only PostgreSQL can do to a store: answers that are lost, workers that are declared dead, a
server that goes away and comes back, and copies of the store elsewhere."""

import asyncio
import gc
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import psycopg
import pytest

from steno.journal.drafts import Stream
from steno.journal.facts import (
    InputAdmitted,
    InputWithdrawn,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    TurnStarted,
)
from steno.journal.parts import File, Text
from steno.store.errors import (
    KeyReused,
    LeaseLost,
    OutcomeUnknown,
    SessionBusy,
    StoreLocked,
    StoreTooNew,
    StoreUnopenable,
)
from steno.store.postgres.database import (
    Connector,
    PostgresSettings,
    StoreUnreachable,
    address,
)
from steno.store.postgres.lone import Lone
from steno.store.postgres.store import BlockingPostgresStore, PostgresStore
from steno.store.protocol import Admission, Admitted, Piece, StoreRestored
from steno.store.sqlite.store import SqliteStore
from steno.transfer.copy import copy
from tests import postgres

STARTED = SessionStarted("test")
QUICK = PostgresSettings(short_ms=300, long_ms=900, give_up_ms=8_000)


@pytest.fixture
def url() -> str:
    return postgres.server().new_store()


@pytest.fixture
def store(url: str) -> Iterator[BlockingPostgresStore]:
    with BlockingPostgresStore(url) as opened:
        yield opened


def said(text: str, key: str | None = None) -> InputAdmitted:
    return InputAdmitted((Text(text),), "test", key)


def admit(
    store: BlockingPostgresStore, text: str, session: str, key: str | None = None
) -> Admitted:
    return store.admit(Admission(input=said(text, key), session=session))


def sql(url: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """`@` is the store's schema."""
    with closing(postgres.connect(url)) as connection:
        cursor = connection.execute(
            statement.replace("@", postgres.schema_of(url) + ".").encode(), values
        )
        return [] if cursor.description is None else cursor.fetchall()


class Losing:
    """A connection that is lost at its next commit: before the server has it, or after."""

    def __init__(self, connection: Any, when: str) -> None:
        self._connection, self._when = connection, when

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    @property
    def pgconn(self) -> Any:
        """What is asked for to send the commit of one session."""
        if self._when == "before":
            raise self._lost()
        return self._connection.pgconn

    def wait(self, sent: Any) -> NoReturn:
        self._connection.wait(sent)
        raise self._lost()

    def execute(self, query: bytes, *rest: Any, **named: Any) -> Any:
        commits = query == b"commit" or (b"commit_batch" in query and not self.in_transaction())
        if not commits:
            return self._connection.execute(query, *rest, **named)
        if self._when == "after":
            self._connection.execute(query, *rest, **named)
            if self._pipelined():
                self._connection._pipeline.sync()
        raise self._lost()

    def _lost(self) -> psycopg.Error:
        self._connection.close()
        return psycopg.OperationalError("the connection was lost")

    def _pipelined(self) -> bool:
        return self._connection._pipeline is not None

    def in_transaction(self) -> bool:
        return self._pipelined()


def lose_next(store: BlockingPostgresStore, when: str) -> None:
    writer = store.backend.writer()
    losing: Any = Losing(writer.connection, when)
    writer._lone = Lone(writer.connection, store.backend.where.schema)
    writer._connection = writer._lone.connection = losing


def begin(store: BlockingPostgresStore) -> tuple[Any, int]:
    """A session with a step under way: its lease, and the step's seq."""
    admitted = store.admit(Admission(input=said("hello"), create=STARTED))
    lease = store.acquire(admitted.session)
    facts = (TurnStarted(Takes(admitted.seq)), StepStarted("model"))
    return lease, store.append(lease, facts, admitted.seq).last


# --- lost answers ---------------------------------------------------------------------------------


@pytest.mark.promise(73)
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_input_whose_answer_was_lost_is_stored_once(
    store: BlockingPostgresStore, when: str
) -> None:
    session = store.create(STARTED)
    lose_next(store, when)
    first = admit(store, "hello", session, "key")
    assert (first.seq, first.first) == (2, True), "it is known that it was stored by this call"
    assert admit(store, "hello", session, "key") == Admitted(session, 2, False)
    assert len(store.read(session)) == 2
    assert store.verify().damage == ()


@pytest.mark.promise(5, 73)
@pytest.mark.parametrize("when", ["before", "after"])
def test_text_whose_answer_was_lost_is_streamed_once(
    store: BlockingPostgresStore, when: str
) -> None:
    lease, step = begin(store)
    text = Stream(step, "text")
    assert store.draft(lease, text, "Hel") == 3
    lose_next(store, when)
    assert store.draft(lease, text, "lo") == 5
    assert [one.text for one in store.drafts(lease.session)] == ["Hello"]
    lose_next(store, when)
    store.append(lease, [StepSealed(step, (Text("Hello"),))], step)
    assert store.drafts(lease.session) == []
    assert len(store.read(lease.session)) == step + 1
    assert store.verify().damage == ()


@pytest.mark.promise(73)
def test_a_commit_that_cannot_be_settled_says_so(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with BlockingPostgresStore(url, PostgresSettings(give_up_ms=100)) as store:
        session = store.create(STARTED)
        with monkeypatch.context() as away:
            away.setattr(store.backend.owners, "settle", lambda _: None)
            lose_next(store, "after")
            with pytest.raises(OutcomeUnknown, match="same key"):
                admit(store, "hello", session, "key")
        assert admit(store, "hello", session, "key") == Admitted(session, 2, False)


@pytest.mark.promise(73)
def test_a_number_that_was_burnt_can_never_be_stored(store: BlockingPostgresStore) -> None:
    """The server may still be at work on a batch whose connection was lost."""
    session = store.create(STARTED)
    writer, owners = store.backend.writer(), store.backend.owners
    late = writer._k + 1
    assert owners.settle(late) is False
    with pytest.raises(psycopg.errors.UniqueViolation):
        writer.connection.execute(
            store.backend.connector.statements["insert_batch"], (store.owner, late)
        )
    admitted = admit(store, "hello", session)
    assert admitted.seq == 2, "the next batch takes another number"


# --- workers --------------------------------------------------------------------------------------


def freeze(url: str, store: BlockingPostgresStore) -> None:
    """Its beat has stopped for longer than any term."""
    store.backend.owners._stop.set()
    sql(url, "update @owners set beat = beat - interval '1 hour' where owner = %s", store.owner)


@pytest.mark.promise(18, 72)
def test_a_worker_that_was_declared_dead_adds_nothing_and_goes_on_under_another_name(
    url: str, store: BlockingPostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    with BlockingPostgresStore(url) as other:
        lease, step = begin(store)
        name = store.owner
        with pytest.raises(SessionBusy):
            other.acquire(lease.session)
        freeze(url, store)
        taken = other.acquire(lease.session)
        assert taken.token > lease.token
        with pytest.raises(LeaseLost):
            store.draft(lease, Stream(step, "text"), "too late")
        with pytest.raises(LeaseLost):
            store.append(lease, [StepSealed(step, ())], step)
        assert "declared dead" in caplog.text
        assert store.owner != name
        assert admit(store, "again", lease.session).seq == step + 1, "it may still say things"
        assert other.drafts(lease.session) == []


@pytest.mark.promise(72)
def test_what_a_dead_worker_sends_after_its_burial_is_refused_even_if_nobody_took_the_session(
    url: str, store: BlockingPostgresStore
) -> None:
    with BlockingPostgresStore(url) as other:
        lease, step = begin(store)
        freeze(url, store)
        assert not other.alive(store.owner)
        with pytest.raises(LeaseLost):
            store.append(lease, [StepSealed(step, ())], step)
        assert len(other.read(lease.session)) == step


@pytest.mark.promise(72)
def test_a_worker_whose_connections_are_gone_is_dead_after_the_short_term(url: str) -> None:
    watching = BlockingPostgresStore(url, QUICK)
    going = BlockingPostgresStore(url, QUICK)
    with closing(watching):
        lease, _ = begin(going)
        going.backend.forget()
        since_s = time.monotonic()
        while watching.running(lease.session) is not None:
            assert time.monotonic() - since_s < 20
            time.sleep(0.01)
        assert watching.acquire(lease.session).token == lease.token + 1
        assert [one.dead for one in watching.workers()].count(True) == 1


def test_a_worker_that_is_connected_outlives_the_short_term(url: str) -> None:
    patient = PostgresSettings(short_ms=100, long_ms=60_000)
    with BlockingPostgresStore(url, patient) as store, BlockingPostgresStore(url, patient) as other:
        lease, _ = begin(store)
        store.backend.owners._stop.set()
        time.sleep(5 * patient.short_ms / 1000)
        assert other.running(lease.session) == store.owner


def test_sessions_of_a_worker_are_one_beat_however_many_they_are(
    url: str, store: BlockingPostgresStore
) -> None:
    for _ in range(5):
        begin(store)
    [worker] = store.workers()
    assert (worker.owner, worker.sessions, worker.dead) == (store.owner, 5, False)
    assert sql(url, "select count(*) from @owners") == [(1,)]


# --- round trips ---------------------------------------------------------------------------------


def test_what_streams_goes_out_in_one_statement(
    store: BlockingPostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, step = begin(store)
    store.draft(lease, Stream(step, "text"), "Hel")
    sent = spied(store, monkeypatch)
    store.draft(lease, Stream(step, "text"), "lo")
    store.append(lease, [StepSealed(step, (Text("Hello"),))], step)
    assert sent == [b"commit_one", b"commit_one"], "no look, no seal apart"


def test_what_the_driver_made_the_server_forget_is_prepared_again(
    store: BlockingPostgresStore,
) -> None:
    """After a rollback the driver drops every statement of its connection, ours too."""
    lease, step = begin(store)
    store.draft(lease, Stream(step, "text"), "Hel")
    store.backend.writer().connection.execute(b"deallocate all")
    store.draft(lease, Stream(step, "text"), "lo")
    assert store.append(lease, [StepSealed(step, (Text("Hello"),))], step).last == step + 1


def test_a_session_that_others_wrote_to_is_looked_at_again(
    url: str, store: BlockingPostgresStore
) -> None:
    lease, step = begin(store)
    with BlockingPostgresStore(url) as other:
        admit(other, "meanwhile", lease.session)
    appended = store.append(lease, [StepSealed(step, ())], step)
    assert [record.seq for record in appended.foreign] == [step + 1]
    assert appended.first == step + 2


def spied(store: BlockingPostgresStore, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    sent: list[bytes] = []
    connection = store.backend.writer().connection
    real = connection.execute

    def execute(query: bytes, *rest: Any, **named: Any) -> Any:
        sent.append(query)
        return real(query, *rest, **named)

    alone = Lone.commit

    def commit(lone: Lone, *rest: Any) -> None:
        sent.append(b"commit_one")
        alone(lone, *rest)

    monkeypatch.setattr(connection, "execute", execute)
    monkeypatch.setattr(Lone, "commit", commit)
    return sent


# --- the feed, with many writers -----------------------------------------------------------------


@pytest.mark.promise(16, 72)
@pytest.mark.timeout(20)
def test_a_lease_that_others_had_since_we_looked_is_taken(
    url: str, store: BlockingPostgresStore
) -> None:
    """What is remembered of a session may say that another has it, or an older token."""
    with BlockingPostgresStore(url) as other:
        session = store.create(STARTED)
        for _ in range(2):
            theirs = other.acquire(session)
            admit(store, "remembered as theirs", session)
            head = other.glance(session).head
            other.release(theirs, head)
            other.release(other.acquire(session), head)
            ours = store.acquire(session)
            assert ours.token == theirs.token + 2
            store.release(ours, head)


@pytest.mark.promise(16, 72)
def test_a_lease_that_another_was_quicker_to_take_is_not_counted_as_ours(
    url: str, store: BlockingPostgresStore
) -> None:
    with BlockingPostgresStore(url) as other:
        session = store.create(STARTED)
        store.release(store.acquire(session), 1)
        theirs = other.acquire(session)
        with pytest.raises(SessionBusy):
            store.acquire(session)
        assert not store.core.holds(session, theirs.token)
        assert store.running(session) == other.owner


def test_a_refusal_by_what_is_remembered_counts_after_a_look(
    url: str, store: BlockingPostgresStore
) -> None:
    with BlockingPostgresStore(url) as other:
        session = store.create(STARTED)
        first = admit(store, "first", session)
        theirs = admit(other, "second", session)
        assert (
            store.add(session, [InputWithdrawn(theirs.seq, "user")]).last > theirs.seq > first.seq
        )


@pytest.mark.promise(47)
def test_a_change_that_commits_late_is_not_missed(url: str, store: BlockingPostgresStore) -> None:
    """A place is given before its commit: one that is given first may be committed last."""
    early, late = store.create(STARTED), store.create(STARTED)
    mark = store.changes(None).mark
    schema = postgres.schema_of(url)
    with closing(psycopg.connect(address(url).url)) as slow:
        n = sql(url, "select n from @sessions where id = %s", late)[0][0]
        slow.execute(f"select n from {schema}.heads where n = %s for update".encode(), (n,))
        slow.execute(f"update {schema}.heads set stamp = stamp where n = %s".encode(), (n,))
        slow.execute(f"select nextval('{schema}.places')".encode())
        admit(store, "quick", early)
        pages: list[Any] = []
        asking = threading.Thread(target=lambda: pages.append(store.changes(mark)))
        asking.start()
        asking.join(0.3)
        assert pages == [], "what was given before has to be settled first"
        slow.rollback()
        asking.join(20)
    [page] = pages
    assert [change.session for change in page.changes] == [early]


# --- the server -----------------------------------------------------------------------------------


@pytest.mark.promise(3)
def test_an_address_where_nothing_answers_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachable, match="cannot reach"):
        BlockingPostgresStore(f"postgresql://nobody@/x?host={tmp_path}")


def test_memory_does_not_grow_with_the_tries_to_reach_a_database_that_is_away(
    tmp_path: Path,
) -> None:
    where = address(f"postgresql://nobody@/x?host={tmp_path}")
    away = Connector(where, PostgresSettings(), "owner")
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            with pytest.raises(StoreUnreachable):
                away.connect()
        assert gc.collect() < 50, "each leaves a circle of objects"
    finally:
        gc.enable()


def test_a_session_that_is_locked_for_too_long_is_said_to_be(url: str) -> None:
    with BlockingPostgresStore(url, PostgresSettings(lock_wait_ms=100)) as store:
        session = store.create(STARTED)
        schema = postgres.schema_of(url)
        with closing(psycopg.connect(address(url).url)) as other:
            other.execute(f"select 1 from {schema}.heads for update".encode())
            with pytest.raises(StoreLocked, match="too long"):
                admit(store, "hello", session)
        assert admit(store, "hello", session).seq == 2


@pytest.mark.parametrize("schema", ["", "Up", "a b", 'x"; drop', "x" * 41, "1a"])
def test_a_schema_is_a_plain_word(schema: str) -> None:
    with pytest.raises(StoreUnopenable):
        address(f"postgresql://h/d?schema={schema}")


def test_the_address_that_is_shown_has_no_password() -> None:
    where = address("postgresql://me:secret@h:5/d?schema=a&sslmode=require")
    assert where.shown == "postgresql://h:5/d?schema=a"
    assert "schema" not in where.url


def test_a_newer_store_is_refused(url: str, store: BlockingPostgresStore) -> None:
    sql(url, "update @store set version = 99")
    with pytest.raises(StoreTooNew, match="99"):
        BlockingPostgresStore(url)
    sql(url, "update @store set version = 1, journal = 99")
    with pytest.raises(StoreTooNew, match="99"):
        BlockingPostgresStore(url)
    sql(url, "update @store set journal = 1")


def test_several_stores_share_a_database(url: str, store: BlockingPostgresStore) -> None:
    session = store.create(STARTED)
    with BlockingPostgresStore(postgres.server().new_store()) as other:
        assert other.list() == []
        assert other.changes().changes == ()
    assert [one.id for one in store.list()] == [session]


@pytest.mark.promise(51)
def test_a_copy_of_the_store_elsewhere_tells_all_anew(url: str) -> None:
    """As after pg_restore: it has the places of the moment of its dump."""
    with BlockingPostgresStore(url) as store:
        session = store.create(STARTED)
        mark = store.changes(None).mark
    sql(url, "update @store set identity = 'another server'")
    with BlockingPostgresStore(url) as store:
        page = store.changes(mark)
        assert isinstance(page.changes[0], StoreRestored)
        assert [one.session for one in store.changes(page.mark).changes] == [session]  # type: ignore[union-attr]


@pytest.mark.promise(51)
def test_a_dump_is_restored_by_the_servers_own_tools(url: str, tmp_path: Path) -> None:
    with BlockingPostgresStore(url) as store:
        lease, step = begin(store)
        store.draft(lease, Stream(step, "text"), "under way")
        before = store.read(lease.session)
        dump(url, tmp_path / "dump")
    with BlockingPostgresStore(restored(url, tmp_path / "dump")) as store:
        assert store.read(lease.session) == before
        assert [one.text for one in store.drafts(lease.session)] == ["under way"]
        assert store.verify().damage == ()
        assert isinstance(store.changes(1).changes[0], StoreRestored)
        admit(store, "it goes on", lease.session)


def dump(url: str, to: Path) -> None:
    where = address(url)
    words = [str(postgres.BIN / "pg_dump"), "-Fc", "-n", where.schema, "-f", str(to), where.url]
    subprocess.run(words, check=True)


def restored(url: str, dumped: Path) -> str:
    """In a database of its own."""
    name = f"restored_{postgres.schema_of(url)}"
    with closing(postgres.connect(url)) as connection:
        connection.execute(f"create database {name}".encode())
    other = address(url).url.replace("/postgres?", f"/{name}?")
    words = [str(postgres.BIN / "pg_restore"), "-d", other, str(dumped)]
    subprocess.run(words, check=True)
    return f"{other}&schema={postgres.schema_of(url)}"


@pytest.mark.promise(53)
def test_a_large_payload_is_kept_in_chunks_and_comes_back(
    url: str, store: BlockingPostgresStore
) -> None:
    session = store.create(STARTED)
    body = bytes(range(256)) * 10_000
    hash = store.put(session, body)
    assert store.get(hash) == body
    assert sql(url, "select count(*) from @chunks") == [(3,)]
    store.delete(session)
    assert sql(url, "select count(*) from @chunks") == [(0,)]


@pytest.mark.promise(59, 71)
@pytest.mark.parametrize("way", ["to a file", "from a file"])
def test_a_whole_store_is_copied_and_goes_on_where_it_was_cut_off(
    url: str, tmp_path: Path, way: str
) -> None:
    async def both() -> None:
        there = await PostgresStore.open(url)
        here = await SqliteStore.open(tmp_path / "chats.db")
        async with there, here:
            source, target = (there, here) if way == "to a file" else (here, there)
            ids = [await source.create(STARTED) for _ in range(3)]
            for id in ids:
                await source.admit(Admission(input=said(f"in {id}", f"key {id}"), session=id))
            hash = await source.put(ids[0], b"payload")
            photo = InputAdmitted((File(hash, "text/plain", 7),), "test")
            await source.admit(Admission(input=photo, session=ids[0]))
            assert (await copy(source, target, lambda _: None)).copied == 3
            await source.admit(Admission(input=said("more"), session=ids[1]))
            again = await copy(source, target, lambda _: None)
            assert (again.copied, again.extended, again.equal) == (0, 1, 2)
            for id in ids:
                assert await target.read(id) == await source.read(id)
            assert await target.get(hash) == b"payload"
            repeated = Admission(input=said(f"in {ids[2]}", f"key {ids[2]}"), session=ids[2])
            assert not (await target.admit(repeated)).first, "keys came along"
            await target.admit(Admission(input=said("apart"), session=ids[2]))
            await source.admit(Admission(input=said("ways"), session=ids[2]))
            assert (await copy(source, target, lambda _: None)).different == [ids[2]]
            assert (await target.verify()).damage == ()

    asyncio.run(both())


@pytest.mark.promise(50)
def test_damage_is_named_and_nothing_is_skipped(url: str, store: BlockingPostgresStore) -> None:
    session = store.create(STARTED)
    for n in range(3):
        admit(store, f"text {n}", session)
    sql(url, "update @facts set body = replace(body, 'text 1', 'text 9')")
    [found] = store.verify().damage
    assert (session in found.where, "fact 3" in found.what) == (True, True)
    sql(url, "delete from @facts where seq = 3")
    assert any("fact 3 is missing" in one.what for one in store.verify().damage)
    sql(url, "delete from @facts")
    sql(url, "delete from @heads")
    sql(url, "delete from @sessions")


# --- what workers tell each other -----------------------------------------------------------------


def looks(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is read from the store for those who follow."""
    found: list[str] = []
    real = store.core.since

    def since(session: str, *rest: Any, **named: Any) -> Any:
        found.append(session)
        return real(session, *rest, **named)

    monkeypatch.setattr(store.core, "since", since)
    return found


async def until_text(store: PostgresStore, session: str, text: str) -> str:
    seen = ""
    async for event in store.follow(session):
        if isinstance(event, Piece):
            assert event.offset == len(seen)
            seen += event.text
        if seen == text:
            return seen
    return seen


@pytest.mark.promise(5, 36)
async def test_text_of_another_worker_is_handed_over_without_a_look(
    url: str, store: BlockingPostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, step = begin(store)
    async with await PostgresStore.open(url) as other:
        looked = looks(other, monkeypatch)
        whole = "".join(f"piece {n}, " for n in range(50)) + "\0 and the end"
        following = asyncio.create_task(until_text(other, lease.session, whole))
        while not looked:  # noqa: ASYNC110 - the store has no event for it
            await asyncio.sleep(0.01)
        for n in range(50):
            await asyncio.to_thread(store.draft, lease, Stream(step, "text"), f"piece {n}, ")
        await asyncio.to_thread(store.draft, lease, Stream(step, "text"), "\0 and the end")
        assert await asyncio.wait_for(following, 20) == whole
        assert len(looked) < 25, "it read what was there, and was handed most of the rest"


@pytest.mark.promise(5)
async def test_text_that_no_worker_has_stored_is_shown_to_nobody(
    url: str, store: BlockingPostgresStore
) -> None:
    """Whoever can connect to the database can notify."""
    lease, step = begin(store)
    async with await PostgresStore.open(url) as other:
        following = asyncio.create_task(until_text(other, lease.session, "true"))
        await asyncio.sleep(0.2)
        forged = f'stranger\n{"0" * 32}\n[["{lease.session}",[[{step},"text",0,"forged"]]]]'
        for said_by_strangers in (forged, "stranger\n\n[]", "x\n" * 500, ""):
            sql(
                url, f"select pg_notify('{other.backend.connector.channel}', %s)", said_by_strangers
            )
        await asyncio.to_thread(store.draft, lease, Stream(step, "text"), "true")
        assert await asyncio.wait_for(following, 20) == "true"


@pytest.mark.promise(16)
def test_an_input_is_stored_in_one_statement_and_a_key_that_others_used_is_found(
    url: str, store: BlockingPostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = store.create(STARTED)
    with BlockingPostgresStore(url) as other:
        assert admit(store, "one", session, "key-1").seq == 2
        with monkeypatch.context() as looking:
            looking.setattr(store.backend.writer(), "_look", lambda *_: pytest.fail("it looked"))
            assert admit(store, "two", session, "key-2").seq == 3
        elsewhere = other.create(STARTED)
        assert admit(other, "three", elsewhere, "key-3").first
        assert admit(store, "three", session, "key-3") == Admitted(elsewhere, 2, False)
        with pytest.raises(KeyReused):
            admit(store, "another three", session, "key-3")
        assert store.admitted("test", "key-9") is None
        assert store.admitted("test", "key-3") == Admitted(elsewhere, 2, False)
        assert len(store.read(session)) == 3
