"""One turn, from a scripted model to what is shown: what the journal costs a stream, paced and as
fast as it goes."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from statistics import median

from bench.building import AsyncWriter, warm
from bench.engine_turns import admitted, turn
from bench.result import Plan, Result, at_least, at_most
from bench.timing import percentile
from steno.engine.request import Request
from steno.journal.parts import Hash
from steno.models.protocol import Finished, Model, ModelEvent
from steno.models.specs import ModelSettings, make
from steno.store.sqlite.store import BlockingStore, SqliteStore

NAME = "turn"
PER_SECOND = 500
SIZE = 4


def run(plan: Plan) -> list[Result]:
    with BlockingStore(Path(plan.folder) / "turn.db") as store, asyncio.Runner() as runner:
        warm(store)
        return runner.run(_measure(plan, store))


async def _measure(plan: Plan, store: BlockingStore) -> list[Result]:
    shared = SqliteStore(store.core)
    return [await _paced(plan, shared), await _fast(plan, shared), await _first(plan, shared)]


class Noting:
    """A model that notes when it gave its first piece."""

    def __init__(self, pieces: int, rate: int) -> None:
        self.spec = f"scripted:pieces?n={pieces}&size={SIZE}&rate={rate}"
        self._model: Model = make(self.spec, ModelSettings())
        self.provider = self._model.provider
        self.first_s = 0.0

    def to_wire(self, request: Request, payloads: Mapping[Hash, bytes]) -> bytes:
        return self._model.to_wire(request, payloads)

    async def stream(self, body: bytes) -> AsyncGenerator[ModelEvent, None]:
        self.first_s = 0.0
        async for event in self._model.stream(body):
            self.first_s = self.first_s or time.monotonic()
            yield event

    async def close(self) -> None:
        await self._model.close()


async def _paced(plan: Plan, store: SqliteStore) -> Result:
    """The time a stream takes with nobody storing it, over the time from its first piece to the
    last one shown."""
    count = plan.pick(10, 3) * PER_SECOND
    model = Noting(count, PER_SECOND)
    body = model.to_wire(Request(model.spec, "", (), ()), {})
    alone_s = await _drained_s(model, body)
    session, input = await admitted(store)
    shown = await turn(store, model, session, input)
    ours_s = shown[-1].at_s - model.first_s
    detail = (
        f"{alone_s:.3f} s alone, {ours_s:.3f} s stored and shown; N={count:,} in {len(shown):,} "
        "commits"
    )
    return at_least(NAME, f"{PER_SECOND} pieces/s: in time", alone_s / ours_s, 0.98, "of 1", detail)


async def _drained_s(model: Noting, body: bytes) -> float:
    async for event in model.stream(body):
        if isinstance(event, Finished):
            break
    return time.monotonic() - model.first_s


async def _fast(plan: Plan, store: SqliteStore) -> Result:
    count, rounds = plan.pick(200_000, 50_000), 3
    model = Noting(count, 0)
    rates = []
    for _ in range(rounds):
        session, input = await admitted(store)
        shown = await turn(store, model, session, input)
        if sum(len(piece.text) for piece in shown) != count * SIZE:
            raise TimeoutError("what was shown is shorter than what was said")
        rates.append(count / (shown[-1].at_s - model.first_s))
    detail = f"{rounds} runs of {count:,}: {', '.join(f'{rate:,.0f}' for rate in rates)}"
    return at_least(
        NAME, "as fast as it goes, received to shown", median(rates), 20_000, "pieces/s", detail
    )


async def _first(plan: Plan, store: SqliteStore) -> Result:
    """How late the first piece is shown, beyond one commit of the same store: the follower's look
    at it."""
    rounds = plan.pick(60, 20)
    model, writer = Noting(2, 20), AsyncWriter(store)
    late_ms, commits_ms = [], []
    for _ in range(rounds):
        before_s = time.monotonic()
        await writer.draft("word")
        commits_ms.append((time.monotonic() - before_s) * 1000)
        session, input = await admitted(store)
        shown = await turn(store, model, session, input)
        late_ms.append((shown[0].at_s - model.first_s) * 1000)
    commit_ms, beyond_ms = median(commits_ms), median(late_ms) - median(commits_ms)
    spread = f"p50 {median(late_ms):.2f}, p95 {percentile(late_ms, 0.95):.2f} ms"
    detail = f"{spread}; a commit alone takes {commit_ms:.2f} ms; N={rounds}"
    return at_most(
        NAME, "first piece, received to shown, beyond one commit", beyond_ms, 2, "ms", detail
    )
