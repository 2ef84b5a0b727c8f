"""Runs steno with a store that takes no end of a visit: the disk is full."""

import sys
from collections.abc import Sequence

from steno.cli import main
from steno.journal.facts import FreeFact, SessionEnded
from steno.store.errors import StoreFull
from steno.store.protocol import Appended
from steno.store.sqlite.store import SqliteStore

add = SqliteStore.add


async def full(
    self: SqliteStore, session: str, facts: Sequence[FreeFact], key: str | None = None
) -> Appended:
    if any(isinstance(fact, SessionEnded) for fact in facts):
        raise StoreFull("nothing was stored: the disk is full")
    return await add(self, session, facts, key)


SqliteStore.add = full  # type: ignore[assignment]
sys.exit(main(sys.argv[1:]))
