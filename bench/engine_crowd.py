"""A hundred turns at once through a real HTTP stream: how long after it was sent a piece is shown.

The server is a process of its own, on the same cores. A piece's time runs from the moment the
server sends it, so what the sockets and the parser take is counted too.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import child
from bench.building import warm
from bench.engine_turns import Shown, admitted, turn
from bench.result import Plan, Result, at_most, noted
from bench.timing import percentile
from steno.models.specs import Access, ModelSettings, make
from steno.store.sqlite.store import BlockingStore, SqliteStore

NAME = "turns"
TURNS = 100
PER_SECOND = 50


def run(plan: Plan) -> list[Result]:
    seconds = plan.pick(15, 4)
    with (
        BlockingStore(Path(plan.folder) / "turns.db") as store,
        serving(seconds * PER_SECOND, PER_SECOND) as url,
    ):
        warm(store)
        cpu_s = sum(os.times()[:2])
        shown = asyncio.run(_turns(store, url))
        cpu_s = sum(os.times()[:2]) - cpu_s
    lags_ms = [lag for one in shown for lag in _lags_ms(one)]
    if len(lags_ms) != TURNS * seconds * PER_SECOND:
        raise TimeoutError(f"{len(lags_ms)} pieces were shown of {TURNS * seconds * PER_SECOND}")
    spread = (
        f"p50 {percentile(lags_ms, 0.5):.1f}, p90 {percentile(lags_ms, 0.9):.1f}, max "
        f"{max(lags_ms):.0f} ms"
    )
    what = f"{TURNS} turns × {PER_SECOND} pieces/s for {seconds} s"
    return [
        at_most(
            NAME, f"{what}: p99 from sent to shown", percentile(lags_ms, 0.99), 50, "ms", spread
        ),
        noted(
            NAME,
            f"{what}: processor time a piece",
            cpu_s / len(lags_ms) * 1e6,
            "µs",
            "ours, without the server's",
        ),
    ]


@contextmanager
def serving(pieces: int, per_second: float) -> Iterator[str]:
    """A server's address, while it runs."""
    process = child.start("bench.engine_server", pieces, per_second)
    try:
        port = int(process.stdout.readline()) if process.stdout is not None else 0
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.communicate()


async def _turns(store: BlockingStore, url: str) -> list[list[Shown]]:
    shared = SqliteStore(store.core)
    model = make("openai-chat:bench", ModelSettings({"openai": Access(base_url=url)}))
    try:
        said = [await admitted(shared) for _ in range(TURNS)]
        return await asyncio.gather(
            *(turn(shared, model, session, input) for session, input in said)
        )
    finally:
        await model.close()


def _lags_ms(shown: list[Shown]) -> Iterator[float]:
    for piece in shown:
        for sent_s in piece.text.split():
            yield (piece.at_s - float(sent_s)) * 1000
