"""Streamed pieces of a hundred sessions at a given pace, and the memory that takes; and one session
at full speed."""

import asyncio
import sys
import time
from collections import deque
from pathlib import Path
from statistics import median

from msgspec import Struct

from bench import child, machine
from bench.building import AsyncWriter, warm
from bench.pacing import PIECE, paced
from bench.result import Plan, Result, at_least, at_most, noted
from bench.timing import bounded, percentile
from steno.store.sqlite.store import BlockingStore, SqliteStore

NAME = "stream"
SESSIONS = 100
PER_SECOND = 100
IN_FLIGHT_MAX = 2_000
GRACE_S = 0.1


class Streamed(Struct):
    """What the child found; `sustained` is the part of the pieces that were durable when the time
    was up."""

    sustained: float
    waits_ms: list[float]
    seal_ms: float
    rss_before_mb: float
    rss_peak_mb: float


def run(plan: Plan) -> list[Result]:
    return [*_hundred(plan), *_one(plan)]


def _hundred(plan: Plan) -> list[Result]:
    seconds = plan.pick(20, 3)
    with BlockingStore(Path(plan.folder) / "hundred.db") as store:
        warm(store)
        process = child.start("bench.stream", store.path, seconds)
        found = child.finish(process, Streamed, seconds * 3 + 60)
    what = f"{SESSIONS} sessions × {PER_SECOND} pieces/s for {seconds} s"
    waits = found.waits_ms
    spread = (
        f"p50 {percentile(waits, 0.5):.1f}, p90 {percentile(waits, 0.9):.1f}, max "
        f"{max(waits):.0f} ms"
    )
    memory = f"{found.rss_before_mb:.0f} MB before the first piece"
    return [
        at_least(
            NAME, f"{what}: achieved of asked", found.sustained, 0.98, "of 1", f"N={len(waits):,}"
        ),
        at_most(
            NAME, f"{what}: p99 from due to durable", percentile(waits, 0.99), 30, "ms", spread
        ),
        noted(
            NAME,
            f"sealing an answer of {seconds * PER_SECOND:,} pieces",
            found.seal_ms,
            "ms",
            "median of 100",
        ),
        at_most("memory", f"{what}: peak RSS", found.rss_peak_mb, 150, "MB", memory),
    ]


# --- the child: a hundred sessions


def main(path: str, seconds: int) -> None:
    child.ready()
    child.answer(asyncio.run(_stream_hundred(Path(path), seconds)))


async def _stream_hundred(path: Path, seconds: int) -> Streamed:
    async with await SqliteStore.open(path) as store:
        writers = [AsyncWriter(store) for _ in range(SESSIONS)]
        before_mb = machine.rss_mb()
        start_s = time.monotonic() + 0.1
        gap_s = 1 / PER_SECOND / SESSIONS
        count = seconds * PER_SECOND
        streams = (
            paced(writer, start_s + i * gap_s, count, PER_SECOND)
            for i, writer in enumerate(writers)
        )
        waits = [wait for stream in await asyncio.gather(*streams) for wait in stream]
        in_time = sum(done_s <= start_s + seconds + GRACE_S for _, done_s in waits)
        seal_ms = [await _sealed_ms(writer, count) for writer in writers]
        waits_ms = [(done_s - due_s) * 1000 for due_s, done_s in waits]
        return Streamed(
            in_time / len(waits), waits_ms, median(seal_ms), before_mb, machine.rss_peak_mb()
        )


async def _sealed_ms(writer: AsyncWriter, pieces: int) -> float:
    before_s = time.perf_counter()
    await writer.seal(PIECE * pieces)
    return (time.perf_counter() - before_s) * 1000


# --- one session, as fast as it goes


def _one(plan: Plan) -> list[Result]:
    count, rounds = plan.pick(100_000, 30_000), 3
    with BlockingStore(Path(plan.folder) / "fast.db") as store, asyncio.Runner() as runner:
        warm(store)
        shared = runner.run(_open(store))
        rates = [runner.run(_flood(shared, count)) for _ in range(rounds)]
    detail = (
        f"{rounds} runs of {count:,}: {', '.join(f'{rate:,.0f}' for rate in rates)}; "
        f"{IN_FLIGHT_MAX:,} in flight"
    )
    return [
        at_least(NAME, "one session as fast as it goes", median(rates), 20_000, "pieces/s", detail)
    ]


async def _open(store: BlockingStore) -> SqliteStore:
    return SqliteStore(store.core)


async def _flood(store: SqliteStore, count: int) -> float:
    """Pieces a second, all of them durable. The answer to a piece is where the stream ends with
    it."""
    writer = AsyncWriter(store)
    flying: deque[asyncio.Task[int]] = deque()
    before_s = time.perf_counter()
    end = 0
    for _ in bounded(count):
        if len(flying) >= IN_FLIGHT_MAX:
            end = await flying.popleft()
        flying.append(asyncio.create_task(writer.draft(PIECE)))
    while flying:
        end = await flying.popleft()
    took_s = time.perf_counter() - before_s
    [draft] = store.blocking.drafts(writer.session)
    if end != count * len(PIECE) or draft.text != PIECE * count:
        raise TimeoutError("the stream is shorter than what was written to it")
    await writer.seal(draft.text)
    return count / took_s


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
