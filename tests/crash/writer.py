"""A process that writes to a store as fast as it goes, to be killed: python -m tests.crash.writer
PATH PAGES DURABILITY

Several sessions at once, through the async store. It says "ready" before it opens the store and,
from then on, a line for each thing that it was told is stored (see acks.py). PAGES is how long the
log gets before a checkpoint.
"""

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from steno.journal.drafts import Stream
from steno.journal.facts import (
    InputAdmitted,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnFact,
    TurnStarted,
)
from steno.journal.parts import Reasoning, Returned, Seq, Text, ToolCall
from steno.store.protocol import Admission, Lease, Settings
from steno.store.sqlite.store import SqliteStore
from tests.crash.acks import tell_shown, tell_stored

SESSIONS = 6
PIECES = 8


async def write(path: Path, settings: Settings) -> None:
    store = await SqliteStore.open(path, settings)
    async with asyncio.TaskGroup() as group:
        for i in range(SESSIONS):
            group.create_task(_talk(store, f"{os.getpid()}-{i}"))


async def _talk(store: SqliteStore, session: str) -> None:
    started = SessionStarted("writer")
    await store.create(started, session)
    tell_stored(session, 1, [started])
    n = 0
    while True:
        said = InputAdmitted(
            (Text(f"question {n} " + "?" * (n * 37 % 5000)),), "writer", f"{session}-{n}"
        )
        admitted = await store.admit(Admission(session=session, input=said))
        tell_stored(session, admitted.seq, [said])
        await Turn(store, await store.acquire(session), admitted.seq).run(n)
        n += 1


class Turn:
    """One turn with reasoning, text and the output of a tool, each shown piece by piece."""

    def __init__(self, store: SqliteStore, lease: Lease, head: Seq) -> None:
        self._store = store
        self._lease = lease
        self._head = head

    async def run(self, n: int) -> None:
        turn = await self._record(TurnStarted(Takes(self._head)))
        step = await self._record(StepStarted("model"))
        thought, text = await asyncio.gather(
            self._show(Stream(step, "reasoning"), n), self._show(Stream(step, "text"), n)
        )
        call = ToolCall("call", "shell", "{}")
        await self._record(StepSealed(step, (Reasoning(thought), Text(text), call)))
        tool = await self._record(ToolStarted(step, "call"))
        output = await self._show(Stream(tool, "output"), n)
        await self._record(
            ToolSettled(step, "call", Returned((Text(output),)), tool), TurnEnded(turn, "done")
        )
        await self._store.release(self._lease, self._head)

    async def _record(self, *facts: TurnFact) -> Seq:
        added = await self._store.append(self._lease, facts, self._head)
        tell_stored(self._lease.session, added.first, facts)
        self._head = added.last
        return added.first

    async def _show(self, stream: Stream, n: int) -> str:
        pieces = [f"{stream.kind} {n}.{i} " + "." * (n * i % 300) for i in range(PIECES)]
        for piece in pieces:
            end = await self._store.draft(self._lease, stream, piece)
            tell_shown(self._lease.session, stream, end, piece)
        return "".join(pieces)


if __name__ == "__main__":
    place, pages, durability = sys.argv[1:]
    os.write(1, b"ready\n")
    asyncio.run(
        write(
            Path(place),
            msgspec.convert({"checkpoint_pages": int(pages), "durability": durability}, Settings),
        )
    )
