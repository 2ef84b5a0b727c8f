"""The next request of a session of 10,000 messages: building its bytes, and how long the event loop
stands still."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from bench.building import MESSAGES_PER_TURN, build
from bench.engine_crowd import serving
from bench.engine_turns import admitted, turn
from bench.result import Plan, Result, at_most
from bench.timing import percentile, timed_ms
from steno.engine.request import build as build_request
from steno.journal.history import History
from steno.models.protocol import Model
from steno.models.specs import Access, ModelSettings, make
from steno.runtimes.loop import payloads_told, written
from steno.store.sqlite.store import BlockingStore, SqliteStore

NAME = "request"
MESSAGES = 10_000
SPECS = ("openai-chat:bench", "anthropic:bench", "openai-responses:bench")
TICK_S = 0.001


def run(plan: Plan) -> list[Result]:
    path = Path(plan.folder) / "request.db"
    [id] = build(path, 1, MESSAGES // MESSAGES_PER_TURN)
    rounds = plan.pick(25, 9)
    with BlockingStore(path) as store:
        history = History()
        for record in store.read_all(id):
            history.apply(record)
        results = [_built(history, spec, rounds) for spec in SPECS]
        with serving(1, 0) as url, asyncio.Runner() as runner:
            stalls_ms = [runner.run(_stalled_ms(store, id, url)) for _ in range(plan.pick(5, 3))]
    detail = f"of {len(stalls_ms)} turns: {', '.join(f'{stall:.1f}' for stall in stalls_ms)} ms"
    what = f"a turn in {MESSAGES:,} messages (fold, build, send): longest stall of the loop"
    return [*results, at_most(NAME, what, median(stalls_ms), 30, "ms", detail)]


def _model(spec: str, url: str) -> Model:
    return make(
        spec, ModelSettings({"openai": Access(base_url=url), "anthropic": Access(base_url=url)})
    )


def _built(history: History, spec: str, rounds: int) -> Result:
    """All that the runtime does between the fold and the fact that says what is sent."""
    model = _model(spec, "http://127.0.0.1:9/v1")
    sizes: list[int] = []

    def act() -> None:
        request = build_request(history)
        payloads_told(request.entries)
        body, _ = written(model, request, {})
        sizes.append(len(body))

    act()
    took_ms = [timed_ms(act) for _ in range(rounds)]
    detail = f"{sizes[0] / 1e6:.1f} MB; p95 {percentile(took_ms, 0.95):.1f} ms; N={rounds}"
    return at_most(
        NAME,
        f"{MESSAGES:,} messages for {spec.partition(':')[0]}",
        median(took_ms),
        20,
        "ms",
        detail,
    )


async def _stalled_ms(store: BlockingStore, session: str, url: str) -> float:
    shared = SqliteStore(store.core)
    model = _model(SPECS[0], url)
    try:
        _, input = await admitted(shared, session)
        async with _ticking() as gaps_s:
            await turn(shared, model, session, input)
        return max(gaps_s) * 1000
    finally:
        await model.close()


@asynccontextmanager
async def _ticking() -> AsyncIterator[list[float]]:
    """How much later than asked the loop came back, each time."""
    gaps_s = [0.0]

    async def tick() -> None:
        while True:
            before_s = time.perf_counter()
            await asyncio.sleep(TICK_S)
            gaps_s.append(time.perf_counter() - before_s - TICK_S)

    ticker = asyncio.create_task(tick())
    try:
        yield gaps_s
    finally:
        ticker.cancel()
