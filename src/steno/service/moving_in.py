"""Conversations of other programs, brought here: what was kept, what was translated, what was
refused, with places.

Each talk is stored whole or not at all, under an id that its own id decides. So an import that was
killed goes on when it is run again, and a second one adds nothing but what came to a talk since.
A talk that went on both here and there is left as it is here, and the report says so.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Literal

from msgspec import Struct

from steno.journal import facts as f
from steno.journal.parts import Opaque
from steno.store.errors import KeyReused, NotAllowed, UnknownSession
from steno.store.protocol import Carried, Payload, Store, read_all
from steno.transfer.agents.reading import Unreadable
from steno.transfer.agents.sources import recognise
from steno.transfer.agents.talk import (
    Talk,
    base_of,
    carried,
    continued,
    entries_in,
    session_id,
)

COMMIT_FACTS = 300
"""A commit of what came to a talk ends with the first turn that ends after so many facts."""

Outcome = Literal["new", "grown", "same", "diverged", "refused", "empty"]


class Moved(Struct, frozen=True):
    """What became of one talk. `kept` counts what is no speech, by kind; `notes` are places that
    could not be read or that a person should look at."""

    program: str
    where: str
    outcome: Outcome
    session: str = ""
    title: str = ""
    messages: int = 0
    kept: dict[str, int] = {}
    notes: tuple[tuple[str, str], ...] = ()
    branch: bool = False


class MovingIn:
    def __init__(self, store: Store, dry: bool = False) -> None:
        self._store, self._dry = store, dry

    async def bring(self, path: Path) -> AsyncIterator[Moved]:
        """Every talk of a file, one after another."""
        try:
            source = await asyncio.to_thread(recognise, path)
        except (Unreadable, OSError) as error:
            yield _refused("", path, error)
            return
        talks = source.talks()
        while True:
            try:
                talk = await asyncio.to_thread(next, talks, None)
                if talk is None:
                    return
                yield await self._talk(talk)
            except (Unreadable, OSError, NotAllowed, KeyReused) as error:
                yield _refused(source.program, source.path, error)
                if not isinstance(error, NotAllowed | KeyReused):
                    return

    async def _talk(self, talk: Talk) -> Moved:
        id = session_id(talk.program, talk.id)
        try:
            glance = await self._store.glance(id)
        except UnknownSession:
            return await self._whole(talk, id)
        stored = [one async for one in read_all(self._store, id, 0, glance.head)]
        theirs = list(takewhile(lambda one: not _ours(one.fact), stored))
        if len(theirs) < len(stored):
            there = await asyncio.to_thread(lambda: sum(1 for _ in talk.entries))
            outcome: Outcome = "diverged" if there > entries_in(theirs) else "same"
            return _moved(talk, id, outcome, Tally())
        return await self._rest(talk, id, stored)

    async def _whole(self, talk: Talk, id: str) -> Moved:
        tally = Tally()
        if self._dry:
            await asyncio.to_thread(
                lambda: sum(1 for _ in tally.counted(carried(talk)))
            )
        else:
            base = await asyncio.to_thread(base_of, talk)
            await self._store.bring(id, base, tally.counted(carried(talk)))
        return _moved(talk, id, "new" if tally.facts else "empty", tally)

    async def _rest(self, talk: Talk, id: str, stored: Sequence[f.Record]) -> Moved:
        tally, head = Tally(), stored[-1].seq
        more = tally.counted(continued(talk, stored))
        while batch := await asyncio.to_thread(_batch, more):
            records = [one for one in batch if isinstance(one, f.Record)]
            payloads = [one.body for one in batch if isinstance(one, Payload)]
            if not self._dry:
                await self._store.extend(id, head, records, payloads)
            head = records[-1].seq
        return _moved(talk, id, "grown" if tally.facts else "same", tally)


class Tally:
    """Counts what goes by."""

    def __init__(self) -> None:
        self.facts = self.messages = 0
        self.kept: Counter[str] = Counter()

    def counted(self, carried: Iterator[Carried]) -> Iterator[Carried]:
        for one in carried:
            self.note(one)
            yield one

    def note(self, one: Carried) -> None:
        if not isinstance(one, f.Record):
            return
        self.facts += 1
        if isinstance(one.fact, f.ItemKept):
            self.kept[_kind_of(one.fact.json)] += 1
        elif isinstance(one.fact, f.InputAdmitted | f.StepSealed | f.ToolSettled):
            self.messages += 1
            unread = [
                part.kind for part in f.parts_of(one.fact) if isinstance(part, Opaque)
            ]
            self.kept.update(unread)


def _kind_of(json: str) -> str:
    """What a kept line calls itself, for the report."""
    head = json[:300]
    for key in ('"type":"', '"type": "'):
        if key in head:
            return head.split(key, 1)[1].split('"', 1)[0][:40]
    return "other"


def _batch(more: Iterator[Carried]) -> list[Carried]:
    """Up to the end of a turn, so that no commit leaves one open."""
    batch: list[Carried] = []
    for one in more:
        batch.append(one)
        ended = isinstance(one, f.Record) and isinstance(one.fact, f.TurnEnded)
        if ended and len(batch) >= COMMIT_FACTS:
            break
    return batch


def _ours(fact: f.AnyFact) -> bool:
    """Whether it was said here, and not where the talk comes from."""
    return isinstance(fact, f.InputAdmitted) and not fact.source.startswith("import:")


def _moved(talk: Talk, id: str, outcome: Outcome, tally: Tally) -> Moved:
    return Moved(
        talk.program,
        talk.where,
        outcome,
        id,
        talk.title,
        tally.messages,
        dict(tally.kept),
        talk.notes,
        talk.branch_of is not None,
    )


def _refused(program: str, path: Path, error: Exception) -> Moved:
    if isinstance(error, Unreadable):
        return Moved(
            program, error.where, "refused", notes=((error.where, error.why),)
        )
    why = getattr(error, "strerror", None) or str(error)
    return Moved(program, str(path), "refused", notes=((str(path), why),))
