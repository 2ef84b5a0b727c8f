"""The store in PostgreSQL, against a bare one-row transaction on the same server and against the
store in a file on the same disk. The server is made for it, and syncs."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psycopg

from bench import child
from bench.building import AsyncWriter, Writer, add_turns
from bench.postgres_child import opened
from bench.result import Plan, Result, at_least, at_most
from bench.timing import each_ms, interleaved, median_ratio, medians, percentile, timed_ms
from bench.words import TEXTS
from steno.journal.drafts import Stream
from steno.journal.facts import InputAdmitted, SessionStarted
from steno.journal.parts import Text
from steno.journal.state import State
from steno.store.facade import AsyncStore, BlockingStore
from steno.store.postgres.database import PostgresSettings, address
from steno.store.postgres.store import BlockingPostgresStore
from steno.store.protocol import Admission
from steno.store.sqlite.store import BlockingStore as SqliteStore
from tests.postgres import Server

NAME = "postgres"
SESSIONS = 100
MESSAGES = 10_000
SHORT_MS = 1_000


def run(plan: Plan) -> list[Result]:
    with _server() as server, SqliteStore(Path(plan.folder) / "beside.db") as beside:
        url = server.new_store()
        with BlockingPostgresStore(url) as store, closing(Raw(url)) as raw:
            Writer(store)
            return [
                *_verbs(plan, store, raw),
                _far_away(plan, server),
                _crowd(plan, store, beside),
                *_streamed(plan, server),
                _processes(plan, server),
                _fold(plan, store, beside),
                _bytes(server),
                _followed(plan, url, store),
                _with_listeners(plan, server),
                *_work(plan, server),
                _taken_over(plan, url),
                _with_old_snapshot(plan, url, store),
            ]


@contextmanager
def _server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="steno-bench-"))
    folder.chmod(0o755)
    server = Server(folder / "server")
    server.make()
    server.start("-c fsync=on")
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


class Raw:
    """One row a transaction."""

    def __init__(self, url: str, table: str = "raw") -> None:
        self._connection = psycopg.connect(address(url).url, autocommit=True, prepare_threshold=1)
        self._connection.execute(
            f"create table {table} (id bigserial primary key, body text)".encode()
        )
        self._insert = f"insert into {table} (body) values (%s)".encode()

    def append(self, i: int) -> None:
        self._connection.execute(self._insert, (TEXTS[i % len(TEXTS)],))

    def close(self) -> None:
        self._connection.close()


# --- one verb after another


def _verbs(plan: Plan, store: BlockingPostgresStore, raw: Raw) -> Iterator[Result]:
    writer = Writer(store)
    drafting = Writer(store)
    stream = Stream(drafting.step, "text")
    session = store.create(SessionStarted("bench"))

    def admit(i: int) -> None:
        said = InputAdmitted((Text(TEXTS[i % len(TEXTS)]),), "bench", f"{time.monotonic_ns()}-{i}")
        store.admit(Admission(input=said, session=writer.session))

    def lease(_: int) -> None:
        store.release(store.acquire(session), 1)

    acts: list[tuple[str, Callable[[int], object], float, int]] = [
        ("append of an answer under a lease", writer.append, 2.0, 1),
        (
            "a piece of text under a lease",
            lambda _: store.draft(drafting.lease, stream, "x"),
            2.0,
            1,
        ),
        ("admit of an input with a key", admit, 3.2, 1),
        ("acquire or release", lease, 3.2, 2),
    ]
    rounds, each = plan.pick(9, 5), plan.pick(200, 60)
    for what, act, limit, verbs in acts:
        pairs = interleaved(
            lambda act=act, verbs=verbs: percentile(each_ms(act, each), 0.5) / verbs,  # type: ignore[misc]
            lambda: percentile(each_ms(raw.append, each), 0.5),
            rounds,
        )
        ours, base = medians(pairs)
        detail = f"p50 {ours:.2f} / {base:.2f} ms; {rounds} rounds of {each}"
        yield at_most(
            NAME, f"{what}, × a bare transaction", median_ratio(pairs), limit, detail=detail
        )


def _far_away(plan: Plan, server: Server) -> Result:
    """With half a millisecond between worker and database, by a proxy that delays."""
    folder = server.folder.parent / "far"
    proxy = child.start("bench.postgres_child", "delay", folder, server.folder, 500)
    url = server.new_store().replace(str(server.folder), str(folder))
    try:
        with BlockingPostgresStore(url) as store, closing(Raw(url, "far")) as raw:
            writer, rounds, each = Writer(store), plan.pick(5, 3), plan.pick(100, 40)
            pairs = interleaved(
                lambda: percentile(each_ms(writer.append, each), 0.5),
                lambda: percentile(each_ms(raw.append, each), 0.5),
                rounds,
            )
    finally:
        proxy.kill()
        proxy.communicate()
    ours, base = medians(pairs)
    detail = f"p50 {ours:.2f} / {base:.2f} ms; {rounds} rounds of {each}"
    what = "append with 0.5 ms of network, × a bare transaction"
    return at_most(NAME, what, median_ratio(pairs), 1.4, detail=detail)


# --- many at once


def _streamed(plan: Plan, server: Server) -> list[Result]:
    seconds = plan.pick(20, 3)
    process = child.start("bench.postgres_child", "stream", server.new_store(), seconds)
    child.go(process)
    sustained, waits = child.finish(process, tuple[float, list[float]], seconds * 3 + 60)
    what = f"{SESSIONS} sessions × 100 pieces/s for {seconds} s"
    spread = f"p50 {percentile(waits, 0.5):.1f}, p90 {percentile(waits, 0.9):.1f} ms"
    return [
        at_least(NAME, f"{what}: in time", sustained, 0.98, "of 1", f"N={len(waits):,}"),
        at_most(NAME, f"{what}: p99", percentile(waits, 0.99), 30, "ms", spread),
    ]


def _appends(where: str, count: int) -> float:
    """Facts a second of eight processes."""
    children = [child.start("bench.postgres_child", "append", where, count) for _ in range(8)]
    for process in children:
        child.go(process)
    spans = [child.finish(process, tuple[float, float], 120) for process in children]
    return 8 * count / (max(end for _, end in spans) - min(began for began, _ in spans))


def _processes(plan: Plan, server: Server) -> Result:
    count, rounds = plan.pick(400, 100), plan.pick(3, 1)
    file, url = Path(plan.folder) / "eight.db", server.new_store()
    for where in (file, url):
        opened(str(where)).close()
    pairs = interleaved(lambda: _appends(url, count), lambda: _appends(str(file), count), rounds)
    ours, base = medians(pairs)
    detail = f"{ours:,.0f}/s against {base:,.0f}/s in a file; {rounds} rounds"
    return at_least(
        NAME, "eight processes, facts/s, × a file", median_ratio(pairs), 1.5, detail=detail
    )


def _crowd(plan: Plan, store: BlockingPostgresStore, beside: SqliteStore) -> Result:
    rounds, each = plan.pick(7, 3), plan.pick(50, 20)
    with asyncio.Runner() as runner:
        here = runner.run(_writers(store))
        there = runner.run(_writers(beside))
        runner.run(_all(here, 5))
        runner.run(_all(there, 5))
        pairs = interleaved(
            lambda: SESSIONS * each / timed_ms(lambda: runner.run(_all(here, each))),
            lambda: SESSIONS * each / timed_ms(lambda: runner.run(_all(there, each))),
            rounds,
        )
    ours, base = medians(pairs)
    detail = f"{ours * 1000:,.0f}/s against {base * 1000:,.0f}/s in a file; {rounds} rounds"
    return at_least(
        NAME, f"{SESSIONS} sessions at once, facts/s", median_ratio(pairs), 0.8, detail=detail
    )


async def _writers(store: BlockingStore) -> list[AsyncWriter]:
    shared = AsyncStore(store.core)
    return [AsyncWriter(shared) for _ in range(SESSIONS)]  # type: ignore[arg-type]


async def _all(writers: list[AsyncWriter], each: int) -> None:
    async def some(writer: AsyncWriter) -> None:
        for i in range(each):
            await writer.append(i)

    await asyncio.gather(*map(some, writers))


# --- reading


def _fold(plan: Plan, store: BlockingPostgresStore, beside: SqliteStore) -> Result:
    ids: list[str] = []
    for one in (store, beside):
        ids.append(one.create(SessionStarted("bench")))
        add_turns(one, ids[-1], MESSAGES // 2)  # type: ignore[arg-type]
    rounds = plan.pick(9, 5)
    pairs = interleaved(
        lambda: timed_ms(lambda: _folded(store, ids[0])),
        lambda: timed_ms(lambda: _folded(beside, ids[1])),
        rounds,
    )
    ours, base = medians(pairs)
    detail = f"{ours:.0f} / {base:.0f} ms; {rounds} rounds"
    what = f"read and fold {MESSAGES:,} messages, × the store in a file"
    return at_most(NAME, what, median_ratio(pairs), 1.5, detail=detail)


def _folded(store: BlockingStore, id: str) -> None:
    state = State()
    for record in store.read_all(id):
        state.apply(record)


def _bytes(server: Server) -> Result:
    """Of messages of 500 characters, with their turns and indexes."""
    url = server.new_store()
    messages = 4_000
    with BlockingPostgresStore(url) as store:
        before = _size(url)
        for _ in range(4):
            session = store.create(SessionStarted("bench"))
            add_turns(store, session, messages // 8)  # type: ignore[arg-type]
    detail = f"{messages:,} messages, tables and indexes"
    value = (_size(url) - before) / messages
    return at_most(NAME, "bytes a message of 500 characters", value, 1_200, "B", detail)


def _size(url: str) -> int:
    where = address(url)
    with closing(psycopg.connect(where.url, autocommit=True)) as connection:
        for table in ("facts", "heads", "sessions"):
            connection.execute(f"vacuum full {where.schema}.{table}".encode())
        row = connection.execute(
            "select sum(pg_total_relation_size(c.oid)) from pg_class c join pg_namespace n "
            "on n.oid = c.relnamespace where n.nspname = %s and c.relkind = 'r'",
            (where.schema,),
        ).fetchone()
    return int(row[0]) if row else 0


def _followed(plan: Plan, url: str, store: BlockingPostgresStore) -> Result:
    """Another process follows, as a gateway does: how long after its commit it sees a piece."""
    writer, pieces = Writer(store), plan.pick(300, 100)
    stream = Stream(writer.step, "text")
    process = child.start("bench.postgres_child", "follow", url, writer.session, pieces)
    time.sleep(0.5)
    stored: list[float] = []
    for _ in range(pieces):
        store.draft(writer.lease, stream, "x")
        stored.append(time.monotonic())
        time.sleep(0.01)
    seen = child.finish(process, list[float], 60)
    late_ms = [max(0.0, (b - a) * 1000) for a, b in zip(stored, seen, strict=False)]
    detail = f"p95 {percentile(late_ms, 0.95):.1f} ms; N={len(late_ms)}"
    what = "a piece seen by another process, after its commit, p50"
    return at_most(NAME, what, percentile(late_ms, 0.5), 2, "ms", detail)


def _with_listeners(plan: Plan, server: Server) -> Result:
    """Four stores listen, and wake for each commit of eight that write."""
    count, rounds = plan.pick(300, 100), plan.pick(3, 1)
    url = server.new_store()
    BlockingPostgresStore(url).close()

    def listened() -> float:
        with ExitStack() as stack:
            for _ in range(4):
                other = stack.enter_context(BlockingPostgresStore(url))
                other.backend.watch.add(lambda: None)
            return _appends(url, count)

    pairs = interleaved(listened, lambda: _appends(url, count), rounds)
    ours, base = medians(pairs)
    detail = f"{ours:,.0f} / {base:,.0f} facts/s of eight processes; {rounds} rounds"
    return at_least(
        NAME, "commit rate with listeners, of without", median_ratio(pairs), 0.75, detail=detail
    )


# --- work


def _work(plan: Plan, server: Server) -> list[Result]:
    small, large = plan.pick(100_000, 10_000), plan.pick(1_000_000, 100_000)
    urls = [_with_work(server, count) for count in (large, small)]
    pairs = interleaved(
        lambda: percentile(_claims(urls[0], 1, 400)[1], 0.5),
        lambda: percentile(_claims(urls[1], 1, 400)[1], 0.5),
        plan.pick(5, 3),
    )
    ours, base = medians(pairs)
    detail = f"ten at a time, p50 {ours:.2f} / {base:.2f} ms; of {large:,} and {small:,} sessions"
    rate, took = _claims(urls[0], 8, plan.pick(2_000, 400))
    of_eight = f"p50 {percentile(took, 0.5):.1f}, p99 {percentile(took, 0.99):.1f} ms"
    with closing(psycopg.connect(address(urls[0]).url)) as held:
        held.execute("set transaction isolation level repeatable read")
        held.execute("select count(*) from pg_class")
        _claims(urls[0], 8, plan.pick(6_000, 400))
        late = percentile(_claims(urls[0], 1, 400)[1], 0.5)
    return [
        at_most(NAME, "claim, × a tenth of the sessions", median_ratio(pairs), 1.5, detail=detail),
        at_least(NAME, f"sessions/s claimed by 8 of {large:,}", rate, 2_500, "/s", of_eight),
        at_most(
            NAME,
            "claim while an old snapshot is held",
            late / ours,
            1.5,
            detail=f"p50 {late:.2f} / {ours:.2f} ms, after {plan.pick(48_000, 3_200):,} claims",
        ),
    ]


def _claims(url: str, workers: int, count: int) -> tuple[float, list[float]]:
    """Sessions a second, and how long each claim took."""
    children = [child.start("bench.postgres_child", "claim", url, count) for _ in range(workers)]
    for process in children:
        child.go(process)
    found = [child.finish(one, tuple[float, float, int, list[float]], 300) for one in children]
    took_s = max(end for _, end, _, _ in found) - min(began for began, _, _, _ in found)
    took = [ms for *_, some in found for ms in some]
    return sum(claimed for _, _, claimed, _ in found) / took_s, took


def _with_work(server: Server, sessions: int) -> str:
    url = server.new_store()
    with BlockingPostgresStore(url) as store:
        first = store.create(SessionStarted("bench"))
        store.admit(Admission(input=InputAdmitted((Text("x"),), "bench"), session=first))
    _multiply(url, sessions)
    return url


def _multiply(url: str, sessions: int) -> None:
    """Rows like the first session's; a tenth of them has something to run."""
    where = address(url)
    with closing(psycopg.connect(where.url, autocommit=True)) as connection:
        connection.execute(f"set search_path = {where.schema}".encode())
        connection.execute(
            "insert into sessions (n, id, base, touched, listing, listed, crc, owes, memory) "
            "select n + i, id || i, base, touched + i, listing, listed, crc, "
            "case when i %% 10 = 0 then owes else 0 end, memory "
            "from sessions, generate_series(1000, %s) i",
            (sessions + 999,),
        )
        connection.execute(
            "insert into heads select s.n, 2, 0, null, 0, s.touched from sessions s where s.n > 999"
        )
        connection.execute(
            "insert into work (n, tenant, rank) select s.n, 'tenant ' || (s.n % 1000), s.n / 1000 "
            "from sessions s where s.n > 999 and s.owes = 2"
        )
        connection.execute("analyze sessions, heads, work")


def _taken_over(plan: Plan, url: str) -> Result:
    settings = PostgresSettings(short_ms=SHORT_MS)
    times: list[float] = []
    with BlockingPostgresStore(url, settings) as watching:
        time.sleep(SHORT_MS / 1000)
        for _ in range(plan.pick(5, 2)):
            going = BlockingPostgresStore(url, settings)
            writer = Writer(going)
            going.backend.forget()
            since = time.perf_counter()
            while watching.running(writer.session) is not None:
                time.sleep(0.01)
            watching.acquire(writer.session)
            times.append(time.perf_counter() - since)
    limit = SHORT_MS / 1000 + 0.2
    detail = f"short term {SHORT_MS} ms; the slowest of {len(times)}"
    return at_most(NAME, "from a worker's death to another's lease", max(times), limit, "s", detail)


def _with_old_snapshot(plan: Plan, url: str, store: BlockingPostgresStore) -> Result:
    """As a dump or a forgotten transaction holds one: dead rows stay."""
    writer, count = Writer(store), plan.pick(4_000, 800)
    before = percentile(each_ms(writer.append, count), 0.5)
    with closing(psycopg.connect(address(url).url)) as held:
        held.execute("set transaction isolation level repeatable read")
        held.execute("select count(*) from pg_class")
        each_ms(writer.append, count)
        after = percentile(each_ms(writer.append, count), 0.5)
    detail = f"p50 {after:.2f} / {before:.2f} ms, after {2 * count:,} appends"
    return at_most(NAME, "append while an old snapshot is held", after / before, 1.5, detail=detail)
