"""Reads what a runner needs of a session: everything, or what the last summary carries over and
what came after it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from msgspec import Struct

from steno.journal.budget import Spent
from steno.journal.carry_over import Carry, needs_everything
from steno.journal.facts import Compacted, Record, SpentSoFar
from steno.journal.history import Entry, Weighed, restored
from steno.journal.parts import Seq
from steno.journal.state import State
from steno.store.protocol import Store

PAGE = 1_000
BATCH = 64
"""Entries whose text is read again at once."""

T = TypeVar("T")


async def everything(
    store: Store, id: str, after: Seq = 0, upto: Seq | None = None
) -> AsyncIterator[Record]:
    while upto is None or after < upto:
        page = await store.read(id, after, PAGE if upto is None else min(PAGE, upto - after))
        if not page:
            return
        for record in page:
            yield record
        after = page[-1].seq
        await asyncio.sleep(0)


class Begin(Struct, frozen=True):
    """Where a runner begins: with what a summary carries over its seq, and with what the session
    had spent by then. `made` is the place of the summary."""

    made: Seq = 0
    upto: Seq = 0
    carries: tuple[Seq, ...] = ()
    spent: SpentSoFar = SpentSoFar(0, 0, 0)


async def last_summary(store: Store, id: str) -> Begin:
    """The last summary that can be begun from; the beginning if there is none."""
    at = (await store.glance(id)).row.compacted
    if not at:
        return Begin()
    [record] = await store.read(id, at - 1, 1)
    fact = record.fact
    if not isinstance(fact, Compacted) or fact.carries is None or fact.spent is None:
        return Begin()
    return Begin(at, fact.upto, fact.carries, fact.spent)


async def to_run(store: Store, id: str) -> tuple[Begin, list[Record]]:
    """Where to begin, and the first page of what follows. Everything, where something brings back
    what was before."""
    begin = await last_summary(store, id)
    page = await store.read(id, begin.upto, PAGE)
    carried = frozenset(begin.carries)
    more = page
    while more and begin.upto:
        if any(needs_everything(record, begin.upto, carried, begin.made) for record in more):
            return Begin(), await store.read(id, 0, PAGE)
        more = await store.read(id, more[-1].seq, PAGE) if len(more) == PAGE else []
    return begin, page


async def carried(store: Store, id: str, seqs: Sequence[Seq]) -> AsyncIterator[Record]:
    """Single facts, in as few reads as their places allow."""
    runs: list[list[Seq]] = []
    for seq in seqs:
        if runs and seq == runs[-1][-1] + 1:
            runs[-1].append(seq)
        else:
            runs.append([seq])
    for run in runs:
        for record in await store.read(id, run[0] - 1, len(run)):
            yield record


async def with_text(
    store: Store, id: str, entries: Sequence[Weighed | T]
) -> AsyncIterator[Entry | T]:
    """Entries one by one, with the text that was let go, a few in memory at a time."""
    for start in range(0, len(entries), BATCH):
        batch = entries[start : start + BATCH]
        wanted = {entry.fact: entry for entry in batch if isinstance(entry, Weighed)}
        found: dict[Seq, Entry] = {}
        if wanted:
            async for record in everything(store, id, min(wanted) - 1, max(wanted)):
                if record.seq in wanted:
                    found[record.seq] = restored(wanted[record.seq], record.fact)
        for entry in batch:
            yield found[entry.fact] if isinstance(entry, Weighed) else entry


async def state(store: Store, id: str) -> State:
    """What a runner would decide from, for somebody who does not run the session."""
    begin, _ = await to_run(store, id)
    folded = State()
    async for record in carried(store, id, begin.carries):
        folded.apply(record)
    async for record in everything(store, id, begin.upto):
        folded.apply(record)
    return folded


async def to_carry(store: Store, id: str, upto: Seq) -> tuple[tuple[Seq, ...] | None, SpentSoFar]:
    """What a summary up to a seq carries over it. Reads only what came since the summary before
    it."""
    before, _ = await to_run(store, id)
    before = before if before.upto <= upto else Begin()
    carry, spent, after = Carry(), spent_from(before.spent), before.upto
    async for record in carried(store, id, before.carries):
        carry.apply(record)
    async for record in everything(store, id, after, upto):
        carry.apply(record)
        spent.apply(record)
    return carry.seqs(), SpentSoFar(spent.steps, spent.tokens, spent.worked_ms)


def spent_from(so_far: SpentSoFar) -> Spent:
    return Spent(steps=so_far.steps, tokens=so_far.tokens, worked_ms=so_far.worked_ms)
