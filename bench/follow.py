"""A reader that follows a stream, in the writer's process and in another: how much of it arrives in
time.

A piece is in time if the reader has it within 50 ms of the moment it was due to be written. Beside
that: how soon after its commit a piece is seen in another process, while text streams and from
rest; and how often a process wakes that waits and gets nothing.
"""

import asyncio
import resource
import sys
import time
from pathlib import Path

from bench import child
from bench.building import AsyncWriter, warm
from bench.pacing import PIECE, Wait, paced
from bench.result import Plan, Result, at_least, at_most
from bench.timing import percentile
from steno.store.protocol import Cursor, Piece
from steno.store.sqlite.store import BlockingStore, SqliteStore

NAME = "follow"
PER_SECOND = 500
STREAM_PER_SECOND, STREAM_MS = 50, 20
REST_PER_SECOND, REST_MS = 2, 100
WAITERS, WAKEUPS_MAX = 100, 5
LATE_S = 0.05
PATIENCE_S = 60

Arrival = tuple[float, int]
"""When (monotonic, which all processes of a machine share), and the offset the reader had got
to."""


def run(plan: Plan) -> list[Result]:
    seconds = plan.pick(20, 3)
    with BlockingStore(Path(plan.folder) / "follow.db") as store, asyncio.Runner() as runner:
        warm(store)
        shared = runner.run(_open(store))
        near = runner.run(_near(AsyncWriter(shared), seconds * PER_SECOND))
        far = _far(runner, AsyncWriter(shared), seconds * PER_SECOND, PER_SECOND)
        stream = _far(runner, AsyncWriter(shared), seconds * STREAM_PER_SECOND, STREAM_PER_SECOND)
        rest = _far(runner, AsyncWriter(shared), seconds * REST_PER_SECOND, REST_PER_SECOND)
        wakeups = _wakeups(AsyncWriter(shared), seconds)
    what = f"{PER_SECOND} pieces/s for {seconds} s, in time for a reader"
    seen = "from commit to a reader in another process, p95"
    return [
        _judged(f"{what} in the same process", *near),
        _judged(f"{what} in another process", *far),
        _prompt(f"{STREAM_PER_SECOND} pieces/s, {seen}", stream, STREAM_MS),
        _prompt(f"a piece each {1 / REST_PER_SECOND:g} s, {seen}", rest, REST_MS),
        at_most(
            NAME, f"wake-ups of {WAITERS} followers that wait", wakeups, WAKEUPS_MAX, "a second"
        ),
    ]


async def _open(store: BlockingStore) -> SqliteStore:
    return SqliteStore(store.core)


def _judged(what: str, waits: list[Wait], arrivals: list[Arrival]) -> Result:
    lags_s = _lags_s([due_s for due_s, _ in waits], arrivals)
    in_time = sum(lag_s <= LATE_S for lag_s in lags_s) / len(waits)
    p50_ms, p99_ms = percentile(lags_s, 0.5) * 1000, percentile(lags_s, 0.99) * 1000
    detail = (
        f"N={len(waits):,}; due to seen p50 {p50_ms:.1f}, p99 {p99_ms:.1f} ms; {len(arrivals):,} "
        "looks found news"
    )
    return at_least(NAME, what, in_time, 0.98, "of 1", detail)


def _prompt(what: str, measured: tuple[list[Wait], list[Arrival]], limit_ms: float) -> Result:
    waits, arrivals = measured
    lags_s = _lags_s(sorted(durable_s for _, durable_s in waits), arrivals)
    p50_ms, p95_ms = percentile(lags_s, 0.5) * 1000, percentile(lags_s, 0.95) * 1000
    return at_most(NAME, what, p95_ms, limit_ms, "ms", f"N={len(waits):,}; p50 {p50_ms:.1f} ms")


def _lags_s(since_s: list[float], arrivals: list[Arrival]) -> list[float]:
    """How long after its moment each piece was seen; for ever if it never was."""
    lags_s: list[float] = []
    for at_s, end in arrivals:
        while len(lags_s) < min(len(since_s), end // len(PIECE)):
            lags_s.append(at_s - since_s[len(lags_s)])
    return lags_s + [float("inf")] * (len(since_s) - len(lags_s))


async def _near(writer: AsyncWriter, count: int) -> tuple[list[Wait], list[Arrival]]:
    following = asyncio.create_task(_follow(writer.store, writer.session, count))
    await asyncio.sleep(0.2)
    return await _write(writer, count, PER_SECOND), await following


def _far(
    runner: asyncio.Runner, writer: AsyncWriter, count: int, per_second: int
) -> tuple[list[Wait], list[Arrival]]:
    process = child.start("bench.follow", "pieces", writer.store.path, writer.session, count)
    waits = runner.run(_write(writer, count, per_second))
    return waits, child.finish(process, list[Arrival], PATIENCE_S)


def _wakeups(writer: AsyncWriter, seconds: int) -> float:
    process = child.start("bench.follow", "rest", writer.store.path, writer.session, seconds)
    return child.finish(process, float, seconds + PATIENCE_S)


async def _write(writer: AsyncWriter, count: int, per_second: int) -> list[Wait]:
    """Write pieces at the given pace; when each was due, and when it was durable."""
    return sorted(await paced(writer, time.monotonic() + 0.5, count, per_second))


async def _follow(store: SqliteStore, session: str, count: int) -> list[Arrival]:
    arrivals: list[Arrival] = []
    async with asyncio.timeout(PATIENCE_S + count):
        async for event in store.follow(session):
            if isinstance(event, Piece):
                end = event.offset + len(event.text)
                arrivals.append((time.monotonic(), end))
                if end >= count * len(PIECE):
                    break
    return arrivals


# --- the other process


def main(what: str, path: str, session: str, count: int) -> None:
    follow = {"pieces": _follow_alone, "rest": _rest}[what]
    child.answer(asyncio.run(follow(Path(path), session, count)))


async def _follow_alone(path: Path, session: str, count: int) -> list[Arrival]:
    async with await SqliteStore.open(path) as store:
        await store.read(session)
        child.ready()
        return await _follow(store, session, count)


async def _rest(path: Path, session: str, seconds: int) -> float:
    """How often a second any thread of this process woke."""
    async with await SqliteStore.open(path) as store:
        head = Cursor((await store.glance(session)).head)
        waiting = [
            asyncio.ensure_future(anext(store.follow(session, head))) for _ in range(WAITERS)
        ]
        await asyncio.sleep(1)
        child.ready()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        await asyncio.sleep(seconds)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return (after - before) / seconds


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
