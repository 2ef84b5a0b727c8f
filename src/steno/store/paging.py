"""Reads whole sessions and whole lists page by page, so that no answer of a store is unbounded."""

import types
from collections.abc import AsyncIterator, Generator
from typing import Protocol

from steno.journal.facts import Record
from steno.journal.parts import Seq
from steno.store.protocol import Listed

PAGE = 1_000


class Reads(Protocol):
    async def read(self, session: str, after: Seq = 0, limit: int = PAGE) -> list[Record]: ...


class Lists(Protocol):
    async def list(self, limit: int = PAGE, before: int | None = None) -> list[Listed]: ...


async def read_all(
    store: Reads, session: str, after: Seq = 0, upto: Seq | None = None, page: int = PAGE
) -> AsyncIterator[Record]:
    """The facts of a session in order, from the one after `after` to the one at `upto`, or to the
    last. Between two pages other tasks get their turn."""
    while upto is None or after < upto:
        limit = page if upto is None else min(page, upto - after)
        records = await store.read(session, after, limit)
        for record in records:
            yield record
        if len(records) < limit:
            return
        after = records[-1].seq
        await give_way()


async def list_all(store: Lists, page: int = PAGE) -> AsyncIterator[Listed]:
    """All sessions, the latest first."""
    found = await store.list(page)
    while found:
        for listed in found:
            yield listed
        found = await store.list(page, before=found[-1].mark)


@types.coroutine
def give_way() -> Generator[None, None, None]:
    """Let other tasks of an event loop run. A caller that has none goes on."""
    yield
