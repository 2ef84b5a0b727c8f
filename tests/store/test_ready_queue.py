"""The ready queue of a store in PostgreSQL: what is to be run is claimed by one worker, tenant by
tenant, and finding it costs the same however many sessions there are."""

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import psycopg
import pytest
from psycopg.pq import ExecStatus
from psycopg.sql import SQL, Literal

from steno.journal.facts import InputAdmitted, SessionStarted, StepStarted, Takes, TurnStarted
from steno.journal.parts import Text
from steno.store.errors import StoreLocked
from steno.store.postgres.database import PostgresSettings, address
from steno.store.postgres.lone import FORMATS, TYPES, Change, arguments, call
from steno.store.postgres.store import BlockingPostgresStore, PostgresStore
from steno.store.protocol import Admission, tenant_of
from tests import postgres
from tests.store.test_postgres import freeze, sql

STEADY = PostgresSettings(role="gateway")


@pytest.fixture
def url() -> str:
    return postgres.server().new_store()


@pytest.fixture
def stores(url: str) -> Iterator[list[BlockingPostgresStore]]:
    with ExitStack() as stack:
        yield [stack.enter_context(BlockingPostgresStore(url, STEADY)) for _ in range(2)]


def say(store: BlockingPostgresStore, name: str, text: str = "hello") -> str:
    """Into the session of that name."""
    said = InputAdmitted((Text(text),), "test")
    return store.admit(Admission(input=said, create=SessionStarted("http", name=name))).session


def claimed(store: BlockingPostgresStore, limit: int = 10, full: tuple[str, ...] = ()) -> list[str]:
    return [str(one.row.name) for one in store.claim(limit, full, anew=True)]


def test_what_one_has_claimed_no_other_gets(stores: list[BlockingPostgresStore]) -> None:
    for n in range(60):
        say(stores[0], f"tenant-{n % 7}/{n}")
    found: list[list[str]] = [[], []]

    def claim_all(at: int) -> None:
        while some := claimed(stores[at], 3):
            found[at] += some

    threads = [threading.Thread(target=claim_all, args=(at,)) for at in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found[0]) + len(found[1]) == 60
    assert len({*found[0], *found[1]}) == 60


def test_tenants_are_served_in_turn_however_much_one_has_waiting(
    stores: list[BlockingPostgresStore],
) -> None:
    store = stores[0]
    for n in range(20):
        say(store, f"loud/{n}")
    assert claimed(store, 4) == [f"loud/{n}" for n in range(4)]
    say(store, "quiet/1")
    say(store, "quiet/2")
    say(store, "other/1")
    first = claimed(store, 3)
    assert {"quiet/1", "other/1"} <= set(first), first
    assert "quiet/2" in claimed(store, 3)
    assert claimed(store, 3, full=("loud",)) == [], "a tenant that is full waits"
    assert len(claimed(store, 50)) == 20 + 3 - 10


def test_what_is_run_to_its_end_is_not_claimed_and_what_waits_again_is(
    stores: list[BlockingPostgresStore],
) -> None:
    store, other = stores
    session = say(store, "a/1")
    [found] = store.claim(5)
    assert (found.id, tenant_of(found.row)) == (session, "a")
    lease = other.acquire(session)
    assert claimed(store) == claimed(other) == []
    turn = other.append(lease, [TurnStarted(Takes(2))], 2).last
    say(store, "a/1", "while it runs")
    assert claimed(store) == [], "its runner sees it"
    other.release(lease, turn + 1)
    assert claimed(store) == ["a/1"], "released with something left to do"


@pytest.mark.promise(72)
@pytest.mark.parametrize("how", ["killed", "in order"])
def test_what_a_worker_had_in_hand_is_ready_when_it_goes(url: str, how: str) -> None:
    with BlockingPostgresStore(url, STEADY) as left:
        going = BlockingPostgresStore(url, STEADY)
        waits, runs = say(left, "a/waits"), say(left, "b/runs")
        assert len(claimed(going)) == 2
        lease = going.acquire(runs)
        going.append(lease, (TurnStarted(Takes(2)), StepStarted("model")), 2)
        assert claimed(left) == []
        if how == "in order":
            going.close()
        else:
            freeze(url, going)
            assert not left.alive(going.owner)
        assert {one.id for one in left.claim(5)} == {waits, runs}, "without a look from the start"
        if how == "killed":
            going.backend.forget()


def test_what_is_put_back_waits_for_what_it_is_said_to_wait_for(
    url: str, stores: list[BlockingPostgresStore]
) -> None:
    store, other = stores
    session = say(store, "a/1")
    for _ in range(2):
        assert claimed(store) == ["a/1"]
        store.put_back(session)
    assert claimed(store) == ["a/1"]
    store.put_back(session, "")
    assert claimed(store) == [], "there was nothing to do"
    say(other, "a/1", "now there is")
    assert claimed(store) == ["a/1"]
    store.put_back(session, other.owner)
    assert claimed(store) == []
    other.close()
    assert claimed(store) == ["a/1"]


def test_a_session_that_was_let_go_of_without_a_release_is_found_again(
    stores: list[BlockingPostgresStore],
) -> None:
    """As when the database was away while its turn ended."""
    store = stores[0]
    session = say(store, "a/1")
    [_] = store.claim(5)
    lease = store.acquire(session)
    assert claimed(store) == []
    store.abandon(lease)
    assert claimed(store) == ["a/1"]
    store.acquire(session)
    assert claimed(store) == []
    store.core._leases.clear()  # as when the answer to an acquire is lost for good
    assert claimed(store) == ["a/1"]


@pytest.mark.promise(72)
def test_what_was_claimed_without_our_knowing_is_found_again(
    stores: list[BlockingPostgresStore],
) -> None:
    """The answer to a claim was lost, or what it named could not be read then."""
    one, other = stores[:2]
    say(one, "a/1")
    say(one, "b/1")
    assert len(one.backend.claim(1, (), False)) == 1
    [lost] = {"a/1", "b/1"} - set(claimed(other))
    assert claimed(one) == [lost]
    assert claimed(one) == [], "it is known to be in hand"
    [session] = [str(one.find(lost))]
    one.put_back(session)
    assert claimed(other) == [lost]


@pytest.mark.promise(72)
def test_an_input_stored_together_with_a_removal_is_work(
    url: str, stores: list[BlockingPostgresStore]
) -> None:
    """A removal sends what the verbs before it added, to change it: their rows are due all the
    same."""
    one, other = stores[:2]
    busy, told = say(one, "a/1"), say(one, "b/1")
    assert sorted(claimed(one)) == ["a/1", "b/1"]
    for session in (busy, told):
        one.release(one.acquire(session), one.glance(session).head)
    added = [
        threading.Thread(target=say, args=(other, "a/1", "again")),
        threading.Thread(target=other.redact, args=(told, 2)),
    ]
    with other.core.queue.paused():
        for waiting, thread in enumerate(added, 1):
            thread.start()
            while len(other.core.queue._queue) < waiting:
                time.sleep(0.001)
    for thread in added:
        thread.join()
    behind = "select s.id from @sessions s join @heads h on h.n = s.n where s.listed < h.head"
    assert sql(url, behind) == []
    assert "a/1" in claimed(other)


def test_what_is_deleted_is_no_work(url: str, stores: list[BlockingPostgresStore]) -> None:
    store = stores[0]
    store.delete(say(store, "a/1"))
    assert claimed(store) == []
    assert sql(url, "select * from @work") == []


async def test_others_are_told_of_work_for_which_there_is_no_room(url: str) -> None:
    import asyncio

    async with await PostgresStore.open(url, STEADY) as store:
        async with await PostgresStore.open(url, STEADY) as busy:
            await asyncio.sleep(0)
            for _ in range(100):  # until it listens
                busy.offer()
                try:
                    await asyncio.wait_for(store.work.wait(), 0.1)
                except TimeoutError:
                    continue
                break
            assert store.work.is_set()
            store.work.clear()
        await asyncio.wait_for(store.work.wait(), 10)  # and of one that leaves


# --- how much is looked at ------------------------------------------------------------------------


def multiply(url: str, sessions: int, ready: int) -> None:
    """Rows like the first session's; one in `ready` has something to run."""
    where = address(url)
    with closing(psycopg.connect(where.url, autocommit=True)) as connection:
        connection.execute(f"set search_path = {where.schema}".encode())
        for statement in (
            "insert into sessions (n, id, base, touched, listing, listed, crc, owes, memory) "
            "select n + i, id || i, base, touched + i, listing, listed, crc, "
            "case when i %% %s = 0 then 2 else 0 end, memory "
            "from (select * from sessions order by n limit 1) s, generate_series(1000, %s) i",
        ):
            connection.execute(statement, (ready, sessions + 999))
        connection.execute(
            "insert into heads select s.n, 2, 0, null, 0, s.touched from sessions s where s.n > 999"
        )
        connection.execute(
            "insert into facts select s.n, f.seq, nextval('places'), f.at_ms, f.crc, f.body "
            "from sessions s, facts f where s.n > 999 and f.session = (select min(n) from sessions)"
        )
        connection.execute(
            "insert into work (n, tenant, rank) select s.n, 'tenant ' || (s.n % 100), s.n "
            "from sessions s where s.n > 999 and s.owes = 2"
        )
        connection.execute("analyze")


def pages(store: BlockingPostgresStore, name: str, values: Any) -> int:
    """Pages that a statement looks at, by the plan for any values that its connections have."""
    given = values if isinstance(values, dict) else dict(enumerate(values))
    places: dict[Any, str] = {}

    def numbered(found: re.Match[str]) -> str:
        key = found[1] if found[1] is not None else len(places)
        return places.setdefault(key, f"${len(places) + 1}")

    statement = store.backend.connector.statements[name].decode()
    prepared = re.sub(r"%(?:\((\w+)\))?s", numbered, statement)
    row: Any = None
    with closing(store.backend.connector.connect(reads=True)) as connection:
        connection.execute(f"prepare looked as {prepared}".encode(), prepare=False)
        literals = SQL(", ").join(Literal(given[key]) for key in places)
        asked = SQL("explain (analyze, buffers, format json) execute looked ({})")
        for _ in range(2):  # the second time, what belongs to the connection is known
            with connection.transaction(force_rollback=True):
                row = connection.execute(asked.format(literals), prepare=False).fetchone()
    return hit_or_read(row[0])


def hit_or_read(explained: Any) -> int:
    [plan] = explained if isinstance(explained, list) else json.loads(explained)
    return int(plan["Plan"]["Shared Hit Blocks"]) + int(plan["Plan"]["Shared Read Blocks"])


def pages_of_append(store: BlockingPostgresStore, session: str) -> int:
    writer = store.backend.writer()
    n = writer._ids[session]
    writer.add(n, [(3, 0, b'{"type":"turn.started"}')])
    change = Change(n, writer._known[n], writer._states()[n], writer._batch, ())
    asked = b"explain (analyze, buffers, format json) " + call(store.backend.where.schema)
    explained = b""
    with closing(store.backend.connector.connect()) as connection:
        for k in (writer._k + 1, writer._k + 2):
            with connection.transaction(force_rollback=True):
                sent = arguments(store.owner, k, change)
                answer = connection.pgconn.exec_params(asked, sent, TYPES, FORMATS)
                assert answer.status == ExecStatus.TUPLES_OK, answer.error_message
                explained = answer.get_value(0, 0) or b""
    writer.rollback()
    return hit_or_read(explained.decode())


def looked_at(sessions: int) -> dict[str, int]:
    """Pages for a claim of ten, what a worker has in hand, a page of a list, and an append."""
    url = postgres.server().new_store()
    with BlockingPostgresStore(url, STEADY) as store:
        first = say(store, "a/1")
        multiply(url, sessions, ready=10)
        asked = {"me": store.owner, "anew": False, "full": [], "limit": 10}
        lease = store.acquire(first)
        found = {
            "claim": pages(store, "claim", asked),
            "what is in hand": pages(store, "held", (store.owner,)),
            "a worker's death": pages(store, "free_work", ("another",)),
            "list": pages(store, "changed_before", (1 << 60, 50)),
            "append": pages_of_append(store, first),
        }
        assert len(store.backend.claim(10, (), False)) == 10
        store.abandon(lease)
    return found


@pytest.mark.promise(52, 74)
def test_finding_work_listing_and_appending_look_at_as_much_among_many_sessions() -> None:
    few, many = looked_at(1_000), looked_at(30_000)
    assert all(many[what] <= 2 * few[what] for what in few), (few, many)


@pytest.mark.torture
@pytest.mark.promise(74)
def test_finding_work_looks_at_as_much_among_a_million_sessions() -> None:
    few, many = looked_at(1_000), looked_at(1_000_000)
    assert all(many[what] <= 2 * few[what] for what in few), (few, many)


@pytest.mark.promise(74)
def test_an_old_snapshot_does_not_make_claims_look_at_what_was_claimed(url: str) -> None:
    """What was claimed stays in the index while a dump holds its snapshot."""
    with BlockingPostgresStore(url, STEADY) as store:
        say(store, "a/1")
        multiply(url, 3_000, ready=1)
        asked = {"me": store.owner, "anew": False, "full": [], "limit": 10}
        with closing(psycopg.connect(address(url).url)) as held:
            held.execute("set transaction isolation level repeatable read")
            held.execute("select count(*) from pg_class")
            before = pages(store, "claim", asked)
            for _ in range(10):
                assert len(store.backend.claim(200, (), False)) == 200
            after = pages(store, "claim", asked)
    assert after <= 2 * before, (before, after)


# --- from a store without a queue -----------------------------------------------------------------


def shape(url: str) -> list[tuple[Any, ...]]:
    schema = postgres.schema_of(url)
    asked = (
        "select table_name, column_name, data_type, is_nullable from information_schema.columns "
        "where table_schema = %s union all "
        "select tablename, indexname, replace(indexdef, %s, ''), '' from pg_indexes "
        " where schemaname = %s union all select p.proname, "
        "pg_get_function_identity_arguments(p.oid), replace(prosrc, %s, ''), '' from pg_proc p "
        "join pg_namespace s on s.oid = p.pronamespace where s.nspname = %s order by 1, 2, 3"
    )
    return sql(url, asked, schema, f"{schema}.", schema, f"{schema}.", schema)


def older(url: str) -> None:
    for statement in (
        "drop table @work",
        "drop function @commit_one",
        "drop sequence @served",
        "alter table @store drop column secret",
        "update @store set version = 1",
    ):
        sql(url, statement)


@pytest.mark.promise(54)
def test_a_store_without_a_queue_gets_one_with_what_waits_in_it(url: str) -> None:
    with BlockingPostgresStore(url, STEADY) as store:
        say(store, "a/1")
        store.create(SessionStarted("http"))
        fresh = shape(url)
    older(url)
    with BlockingPostgresStore(url, STEADY) as store:
        assert shape(url) == fresh
        assert claimed(store) == ["a/1"]
        assert store.verify().damage == ()


@pytest.mark.promise(54)
def test_a_migration_that_is_cut_off_leaves_the_store_as_it_was(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BlockingPostgresStore(url, STEADY) as store:
        session = say(store, "a/1")
    older(url)
    before = shape(url)
    with monkeypatch.context() as cut:
        cut.setattr(
            "steno.store.postgres.database.Preparing.run_file",
            lambda self, name: (_ for _ in ()).throw(KeyboardInterrupt),
        )
        with pytest.raises(KeyboardInterrupt):
            BlockingPostgresStore(url, STEADY)
    assert shape(url) == before
    with BlockingPostgresStore(url, STEADY) as store:
        assert len(store.read(session)) == 2


def test_a_store_on_which_earlier_workers_run_is_not_migrated(
    url: str, stores: list[BlockingPostgresStore]
) -> None:
    older(url)
    with pytest.raises(StoreLocked, match="stop all workers"):
        BlockingPostgresStore(url, STEADY)
