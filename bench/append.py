"""One durable append to one session, and whether its cost grows with the session."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.baseline import Raw
from bench.building import AsyncWriter, Writer, build, warm
from bench.result import Plan, Result, at_most, unless_busy
from bench.timing import bounded, each_ms, interleaved, is_steady, median_ratio, medians, percentile
from steno.store.sqlite.blocking import BlockingStore
from steno.store.sqlite.store import SqliteStore

NAME = "append"
SYNC_MAX, ASYNC_MAX = 1.45, 2.1
"""For a disk that syncs in 0.1 ms. An append is two pages (facts, index) and 31 µs of work; the transaction it is
measured against is one page and 15 µs. Where a sync takes 0.25 ms, the same work is 1.2 and 1.5 times as much. An async
append adds a hop to the committing thread and back, 55 to 90 µs; the line against a thread has that on both sides."""
THREAD_MAX = 1.2


def run(plan: Plan) -> list[Result]:
    folder = Path(plan.folder)
    return [*_one(plan, folder), _long_session(plan, folder)]


def _one(plan: Plan, folder: Path) -> list[Result]:
    raw = Raw(folder / "raw.db")
    with BlockingStore(folder / "one.db") as store, asyncio.Runner() as runner:
        warm(store)
        writer = Writer(store)
        results = [
            _against(raw, plan, "sync append of an answer", SYNC_MAX, lambda n: each_ms(writer.append, n)),
            _against(raw, plan, "sync admit of an input", SYNC_MAX, lambda n: each_ms(writer.admit, n)),
        ]
        async_writer = runner.run(_async_writer(store))
        results += [
            _against(
                raw, plan, "async append of an answer", ASYNC_MAX, lambda n: runner.run(_each(async_writer.append, n))
            ),
            _against(
                raw, plan, "async admit of an input", ASYNC_MAX, lambda n: runner.run(_each(async_writer.admit, n))
            ),
            _against_a_thread(raw, plan, runner, async_writer),
        ]
    raw.close()
    return results


def _against_a_thread(raw: Raw, plan: Plan, runner: asyncio.Runner, writer: AsyncWriter) -> Result:
    """Against what an event loop gets from sqlite3 at best: the same transaction in a thread that waits for it."""
    rounds, count = plan.pick(15, 7), plan.pick(200, 60)
    with ThreadPoolExecutor(1) as thread:

        async def in_thread(i: int) -> None:
            await asyncio.get_running_loop().run_in_executor(thread, raw.append, i)

        result, base_ms = _ratio(
            "async append against the transaction in a thread, p50",
            THREAD_MAX,
            rounds,
            lambda: runner.run(_each(writer.append, count)),
            lambda: runner.run(_each(in_thread, count)),
        )
    return unless_busy(result, is_steady(base_ms))


async def _async_writer(store: BlockingStore) -> AsyncWriter:
    return AsyncWriter(SqliteStore(store))


async def _each(act: Callable[[int], Awaitable[object]], count: int) -> list[float]:
    took_ms = []
    for i in bounded(count):
        before_s = time.perf_counter()
        await act(i)
        took_ms.append((time.perf_counter() - before_s) * 1000)
    return took_ms


def _against(raw: Raw, plan: Plan, what: str, limit: float, ours: Callable[[int], list[float]]) -> Result:
    rounds, count = plan.pick(15, 7), plan.pick(200, 60)
    ours(count // 4)
    result, base_ms = _ratio(f"{what}, p50", limit, rounds, lambda: ours(count), lambda: each_ms(raw.append, count))
    return unless_busy(result, is_steady(base_ms))


def _ratio(
    what: str, limit: float, rounds: int, ours: Callable[[], list[float]], base: Callable[[], list[float]]
) -> tuple[Result, list[float]]:
    """The median over the rounds of the ratio of medians, and every time of the baseline."""
    all_base_ms: list[float] = []

    def base_p50_ms() -> float:
        took_ms = base()
        all_base_ms.extend(took_ms)
        return percentile(took_ms, 0.5)

    pairs = interleaved(lambda: percentile(ours(), 0.5), base_p50_ms, rounds)
    our_ms, base_ms = medians(pairs)
    detail = f"{our_ms:.3f} / {base_ms:.3f} ms; {rounds} rounds of {len(all_base_ms) // rounds}"
    return at_most(NAME, what, median_ratio(pairs), limit, detail=detail), all_base_ms


def _long_session(plan: Plan, folder: Path) -> Result:
    messages = plan.pick(100_000, 20_000)
    path = folder / "long.db"
    [id] = build(path, 1, messages // 2)
    rounds, count = plan.pick(21, 9), plan.pick(100, 60)
    with BlockingStore(path) as store:
        warm(store)
        long, empty = Writer(store, id), Writer(store)
        what = f"session of {messages:,} messages against an empty one, p50"
        result, base_ms = _ratio(
            what, 1.2, rounds, lambda: each_ms(long.append, count), lambda: each_ms(empty.append, count)
        )
    return unless_busy(result, is_steady(base_ms))
