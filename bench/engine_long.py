"""Sessions of 1,000, 10,000 and 100,000 messages with three summaries: what opening one and
building its next request cost, and how that compares with a session of which next to nothing was
compacted away. And sessions that were never summarised: the memory that their first summary
takes."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import child
from bench.building import FAST, MESSAGES_PER_TURN, add_turns, build
from bench.machine import rss_peak_mb
from bench.result import Plan, Result, at_most, noted
from bench.timing import interleaved, median_ratio, medians, percentile, timed_ms
from steno.engine.action import Limits
from steno.engine.request import build as build_request
from steno.journal.facts import Compacted
from steno.models.specs import ModelSettings, make
from steno.runtimes.compact import compact
from steno.runtimes.loop import written
from steno.session.lease import HeldSession
from steno.session.load import Sessions
from steno.store.sqlite.store import BlockingStore, SqliteStore

NAME = "long"
SIZES = (1_000, 10_000, 100_000)
FEW = 60
SUMMARIES = 3
TAIL_TURNS = 20
"""Turns after the last summary, in every session."""
CONTEXT = 32_000
"""Tokens that the model of a first summary takes."""


def run(plan: Plan) -> list[Result]:
    sizes = SIZES[: plan.pick(3, 2)]
    path = Path(plan.folder) / "long.db"
    short = _compacted(path, FEW)
    sessions = {size: _compacted(path, size) for size in sizes}
    results: list[Result] = []
    with BlockingStore(path) as store, asyncio.Runner() as runner:
        shared = runner.run(_shared(store))
        for size, id in sessions.items():
            pairs = interleaved(
                lambda id=id: _opened_ms(runner, shared, id),  # type: ignore[misc]
                lambda: _opened_ms(runner, shared, short),
                plan.pick(25, 9),
            )
            ours_ms, base_ms = medians(pairs)
            what = f"{size:,} messages, three summaries: open and next request, against {FEW}"
            results.append(
                at_most(
                    NAME, what, median_ratio(pairs), 1.2, detail=f"{ours_ms:.1f} / {base_ms:.1f} ms"
                )
            )
    for size, id in sessions.items():
        peak_mb = child.finish(child.start("bench.engine_long", path, id), float, 120.0)
        results.append(
            noted(NAME, f"{size:,} messages, three summaries: peak memory of a run", peak_mb, "MB")
        )
    return [*results, *_first_summaries(path, sizes)]


def _first_summaries(path: Path, sizes: Sequence[int]) -> list[Result]:
    """Once the text is more than memory keeps, a message more costs what its weight does."""
    peaks_mb = []
    for size in sizes:
        [id] = build(path, 1, size // MESSAGES_PER_TURN)
        peaks_mb.append(
            child.finish(child.start("bench.engine_long", path, id, "summarise"), float, 300.0)
        )
    what = "messages, no summary: peak memory of the first"
    results = [
        noted(NAME, f"{size:,} {what}", mb, "MB") for size, mb in zip(sizes, peaks_mb, strict=True)
    ]
    return [
        *results,
        at_most(NAME, f"{sizes[1]:,} {what}, against {sizes[0]:,}", peaks_mb[1] / peaks_mb[0], 1.5),
    ]


async def _shared(store: BlockingStore) -> SqliteStore:
    return SqliteStore(store.core)


def _opened_ms(runner: asyncio.Runner, store: SqliteStore, id: str) -> float:
    took_ms = [timed_ms(lambda: runner.run(_next_request(store, id))) for _ in range(3)]
    return percentile(took_ms, 0.5)


async def _next_request(store: SqliteStore, id: str) -> int:
    """What a turn does before its first request is sent."""
    held = await HeldSession.open(Sessions(store), id, to_run=True)
    model = make("openai-chat:bench", ModelSettings())
    body, _ = written(model, build_request(held.history), {})
    await held.release()
    return len(body)


def _compacted(path: Path, messages: int) -> str:
    """A session with three summaries, each of a third of what was said, and some turns after the
    last."""
    turns = messages // MESSAGES_PER_TURN // SUMMARIES
    [id] = build(path, 1, turns)
    with BlockingStore(path, FAST) as store, asyncio.Runner() as runner:
        shared = runner.run(_shared(store))
        for i in range(SUMMARIES):
            if i:
                add_turns(store, id, turns)
            runner.run(_summarise(shared, id))
        add_turns(store, id, TAIL_TURNS)
    return id


async def _summarise(store: SqliteStore, id: str) -> None:
    held = await HeldSession.open(Sessions(store), id)
    upto = held.state.head
    carries, spent = await held.to_carry(upto)
    await held.record(
        Compacted(upto, "They spoke of many things. " * 20, "bench", carries=carries, spent=spent)
    )
    await held.release()


async def _first_summary(store: SqliteStore, id: str) -> None:
    held = await HeldSession.open(Sessions(store), id)
    model = make("scripted:pieces?n=5&rate=0", ModelSettings())
    if (came := await compact(held, model, Limits(context_max=CONTEXT))).outcome != "done":
        raise RuntimeError(came.detail)
    await held.release()


def _peak(path: str, id: str, what: str = "build") -> None:
    """In a process of its own: open, build or summarise, and say how much memory that took at
    most."""
    child.ready()
    with BlockingStore(Path(path)) as store, asyncio.Runner() as runner:
        shared = runner.run(_shared(store))
        runner.run(_first_summary(shared, id) if what == "summarise" else _next_request(shared, id))
    child.answer(rss_peak_mb())


if __name__ == "__main__":
    _peak(*sys.argv[1:])
