"""A reader that follows a stream, in the writer's process and in another: how much of it arrives in
time.

A piece is in time if the reader has it within 50 ms of the moment it was due to be written.
"""

import asyncio
import sys
import time
from pathlib import Path

from bench import child
from bench.building import AsyncWriter, warm
from bench.pacing import PIECE, paced
from bench.result import Plan, Result, at_least
from bench.timing import percentile
from steno.store.protocol import Piece
from steno.store.sqlite.blocking import BlockingStore
from steno.store.sqlite.store import SqliteStore

NAME = "follow"
PER_SECOND = 500
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
        far = _far(runner, AsyncWriter(shared), seconds * PER_SECOND)
    what = f"{PER_SECOND} pieces/s for {seconds} s, in time for a reader"
    return [
        _judged(f"{what} in the same process", *near),
        _judged(f"{what} in another process", *far),
    ]


async def _open(store: BlockingStore) -> SqliteStore:
    return SqliteStore(store)


def _judged(what: str, start_s: float, count: int, arrivals: list[Arrival]) -> Result:
    lags_s = _lags_s(start_s, count, arrivals)
    in_time = sum(lag_s <= LATE_S for lag_s in lags_s) / count
    p50_ms, p99_ms = percentile(lags_s, 0.5) * 1000, percentile(lags_s, 0.99) * 1000
    detail = (
        f"N={count:,}; due to seen p50 {p50_ms:.1f}, p99 {p99_ms:.1f} ms; {len(arrivals):,} looks "
        "found news"
    )
    return at_least(NAME, what, in_time, 0.98, "of 1", detail)


def _lags_s(start_s: float, count: int, arrivals: list[Arrival]) -> list[float]:
    """How long after its due time each piece was seen; for ever if it never was."""
    lags_s: list[float] = []
    for at_s, end in arrivals:
        while len(lags_s) < min(count, end // len(PIECE)):
            lags_s.append(at_s - start_s - len(lags_s) / PER_SECOND)
    return lags_s + [float("inf")] * (count - len(lags_s))


async def _near(writer: AsyncWriter, count: int) -> tuple[float, int, list[Arrival]]:
    following = asyncio.create_task(_follow(writer.store, writer.session, count))
    await asyncio.sleep(0.2)
    start_s = await _write(writer, count)
    return start_s, count, await following


def _far(
    runner: asyncio.Runner, writer: AsyncWriter, count: int
) -> tuple[float, int, list[Arrival]]:
    process = child.start("bench.follow", writer.store.blocking.path, writer.session, count)
    start_s = runner.run(_write(writer, count))
    return start_s, count, child.finish(process, list[Arrival], PATIENCE_S)


async def _write(writer: AsyncWriter, count: int) -> float:
    """Write pieces at the given pace; when the first was due."""
    start_s = time.monotonic() + 0.1
    await paced(writer, start_s, count, PER_SECOND)
    return start_s


async def _follow(store: SqliteStore, session: str, count: int) -> list[Arrival]:
    arrivals: list[Arrival] = []
    async with asyncio.timeout(count / PER_SECOND + PATIENCE_S):
        async for event in store.follow(session):
            if isinstance(event, Piece):
                end = event.offset + len(event.text)
                arrivals.append((time.monotonic(), end))
                if end >= count * len(PIECE):
                    break
    return arrivals


# --- the other process


def main(path: str, session: str, count: int) -> None:
    child.answer(asyncio.run(_follow_alone(Path(path), session, count)))


async def _follow_alone(path: Path, session: str, count: int) -> list[Arrival]:
    async with await SqliteStore.open(path) as store:
        await store.read(session)
        child.ready()
        return await _follow(store, session, count)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
