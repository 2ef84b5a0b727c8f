"""A hundred sessions of one process appending at once: how many facts a second, and how long the
unlucky wait."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.baseline import Raw
from bench.building import AsyncWriter, warm
from bench.result import Plan, Result, at_least, at_most, unless_busy
from bench.timing import (
    bounded,
    each_ms,
    interleaved,
    is_steady,
    median_ratio,
    medians,
    percentile,
    timed_ms,
)
from steno.store.sqlite.store import BlockingStore, SqliteStore

NAME = "crowd"
SESSIONS = 100

Act = Callable[[int], Awaitable[object]]


def run(plan: Plan) -> list[Result]:
    folder = Path(plan.folder)
    raw = Raw(folder / "raw.db")
    with BlockingStore(folder / "crowd.db") as store, asyncio.Runner() as runner:
        warm(store)
        writers = runner.run(_writers(store))
        results = [
            *_crowd(plan, raw, "answers appended", [writer.append for writer in writers], runner),
            *_crowd(plan, raw, "inputs admitted", [writer.admit for writer in writers], runner),
        ]
    raw.close()
    return results


def _crowd(
    plan: Plan, raw: Raw, what: str, acts: list[Act], runner: asyncio.Runner
) -> list[Result]:
    rounds, each, singles = plan.pick(9, 3), plan.pick(50, 30), plan.pick(1_000, 200)
    waits_ms: list[float] = []
    base_ms: list[float] = []
    runner.run(_all(acts, each, []))
    pairs = interleaved(
        lambda: SESSIONS * each / timed_ms(lambda: runner.run(_all(acts, each, waits_ms))),
        lambda: singles / timed_ms(lambda: base_ms.extend(each_ms(raw.append, singles))),
        rounds,
    )
    ours, base = medians(pairs)
    detail = (
        f"{ours * 1000:,.0f}/s against {base * 1000:,.0f}/s; {rounds} rounds of {SESSIONS} × {each}"
    )
    waits = f"p50 {percentile(waits_ms, 0.5):.1f}, max {max(waits_ms):.1f} ms; N={len(waits_ms):,}"
    rate = at_least(
        NAME, f"{SESSIONS} sessions, {what}: facts/s", median_ratio(pairs), 4, detail=detail
    )
    return [
        unless_busy(rate, is_steady(base_ms)),
        at_most(
            NAME, f"{SESSIONS} sessions, {what}: p99", percentile(waits_ms, 0.99), 25, "ms", waits
        ),
    ]


async def _writers(store: BlockingStore) -> list[AsyncWriter]:
    shared = SqliteStore(store.core)
    return [AsyncWriter(shared) for _ in range(SESSIONS)]


async def _all(acts: list[Act], each: int, waits_ms: list[float]) -> None:
    await asyncio.gather(*(_some(act, each, waits_ms) for act in acts))


async def _some(act: Act, count: int, waits_ms: list[float]) -> None:
    for i in bounded(count):
        before_s = time.perf_counter()
        await act(i)
        waits_ms.append((time.perf_counter() - before_s) * 1000)
