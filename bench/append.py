"""One durable append to one session, and whether its cost grows with the session."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from msgspec import Struct

from bench.baseline import Raw
from bench.building import AsyncWriter, Writer, build, warm
from bench.result import Plan, Result, at_most, noted, unless_busy
from bench.timing import bounded, each_ms, interleaved, is_steady, median_ratio, medians, percentile
from steno.store.sqlite.store import BlockingStore, SqliteStore

NAME = "append"


class Limit(Struct, frozen=True):
    """So many times a one-row transaction; on a disk that is quicker than most, so many
    milliseconds more than one."""

    times: float
    beyond_ms: float

    def over(self, base_ms: float) -> float:
        return max(self.times, 1 + self.beyond_ms / base_ms)


SYNC = Limit(1.2, 0.055)
"""What an append does beyond the bare transaction takes 40 to 50 µs on every disk, so a ratio alone
would ask for less work the quicker the disk is. Where the bare transaction takes 0.28 ms or more,
the ratio holds as it is; below, the milliseconds do. docs/decisions.md has the profile."""
ASYNC_TIMES = 1.6
"""An event loop also pays for the way to a thread and back, which is measured with the bare
transaction."""
THREAD = GROWTH = Limit(1.2, 0)


def run(plan: Plan) -> list[Result]:
    folder = Path(plan.folder)
    return [*_one(plan, folder), _long_session(plan, folder)]


def _one(plan: Plan, folder: Path) -> list[Result]:
    raw = Raw(folder / "raw.db")
    with (
        BlockingStore(folder / "one.db") as store,
        asyncio.Runner() as runner,
        ThreadPoolExecutor(1) as thread,
    ):
        warm(store)
        writer = Writer(store)
        results = [
            _against(
                raw, plan, "sync append of an answer", SYNC, lambda n: each_ms(writer.append, n)
            ),
            _against(raw, plan, "sync admit of an input", SYNC, lambda n: each_ms(writer.admit, n)),
        ]
        ours = runner.run(_async_writer(store))

        async def in_thread(i: int) -> None:
            await asyncio.get_running_loop().run_in_executor(thread, raw.append, i)

        def threaded(count: int) -> list[float]:
            return runner.run(_each(in_thread, count))

        hop_ms = _hop_ms(raw, plan, threaded)
        limit = Limit(ASYNC_TIMES, SYNC.beyond_ms + hop_ms)
        results += [
            _against(
                raw,
                plan,
                "async append of an answer",
                limit,
                lambda n: runner.run(_each(ours.append, n)),
            ),
            _against(
                raw,
                plan,
                "async admit of an input",
                limit,
                lambda n: runner.run(_each(ours.admit, n)),
            ),
            noted(NAME, "the bare transaction in a thread: the way there and back", hop_ms, "ms"),
            _against_a_thread(plan, lambda n: runner.run(_each(ours.append, n)), threaded),
        ]
    raw.close()
    return results


Some = Callable[[int], list[float]]
"""Do it so many times; how long each took."""


def _hop_ms(raw: Raw, plan: Plan, threaded: Some) -> float:
    """What an event loop pays for a transaction of sqlite3 at best: a thread that waits for it."""
    rounds, count = plan.pick(15, 7), plan.pick(200, 60)
    pairs = interleaved(
        lambda: percentile(threaded(count), 0.5),
        lambda: percentile(each_ms(raw.append, count), 0.5),
        rounds,
    )
    return median(there - here for there, here in pairs)


def _against_a_thread(plan: Plan, ours: Some, threaded: Some) -> Result:
    rounds, count = plan.pick(15, 7), plan.pick(200, 60)
    what = "async append against the transaction in a thread, p50"
    result, base_ms = _ratio(what, THREAD, rounds, lambda: ours(count), lambda: threaded(count))
    return unless_busy(result, is_steady(base_ms))


async def _async_writer(store: BlockingStore) -> AsyncWriter:
    return AsyncWriter(SqliteStore(store.core))


async def _each(act: Callable[[int], Awaitable[object]], count: int) -> list[float]:
    took_ms = []
    for i in bounded(count):
        before_s = time.perf_counter()
        await act(i)
        took_ms.append((time.perf_counter() - before_s) * 1000)
    return took_ms


def _against(raw: Raw, plan: Plan, what: str, limit: Limit, ours: Some) -> Result:
    rounds, count = plan.pick(15, 7), plan.pick(200, 60)
    ours(count // 4)
    result, base_ms = _ratio(
        f"{what}, p50", limit, rounds, lambda: ours(count), lambda: each_ms(raw.append, count)
    )
    return unless_busy(result, is_steady(base_ms))


def _ratio(
    what: str,
    limit: Limit,
    rounds: int,
    ours: Callable[[], list[float]],
    base: Callable[[], list[float]],
) -> tuple[Result, list[float]]:
    """The median over the rounds of the ratio of medians, and every time of the baseline."""
    all_base_ms: list[float] = []

    def base_p50_ms() -> float:
        took_ms = base()
        all_base_ms.extend(took_ms)
        return percentile(took_ms, 0.5)

    pairs = interleaved(lambda: percentile(ours(), 0.5), base_p50_ms, rounds)
    our_ms, base_ms = medians(pairs)
    beyond_ms = median(ours - base for ours, base in pairs)
    detail = (
        f"{our_ms:.3f} / {base_ms:.3f} ms, {beyond_ms:.3f} more; {rounds} rounds of "
        f"{len(all_base_ms) // rounds}"
    )
    return at_most(NAME, what, median_ratio(pairs), limit.over(base_ms), detail=detail), all_base_ms


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
            what,
            GROWTH,
            rounds,
            lambda: each_ms(long.append, count),
            lambda: each_ms(empty.append, count),
        )
    return unless_busy(result, is_steady(base_ms))
