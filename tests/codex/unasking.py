"""Runs steno with a store that takes no question: the disk is full."""

import sys
from collections.abc import Sequence

from steno.cli import main
from steno.journal.facts import ApprovalAsked, TurnFact
from steno.journal.parts import Seq
from steno.store.errors import StoreFull
from steno.store.protocol import Appended, Lease
from steno.store.sqlite.store import SqliteStore

append = SqliteStore.append


async def full(self: SqliteStore, lease: Lease, facts: Sequence[TurnFact], head: Seq) -> Appended:
    if any(isinstance(fact, ApprovalAsked) for fact in facts):
        raise StoreFull("nothing was stored: the disk is full")
    return await append(self, lease, facts, head)


SqliteStore.append = full  # type: ignore[assignment]
sys.exit(main(sys.argv[1:]))
