"""Runs steno and kills it, with a real SIGKILL, before or after its n-th free fact: python …
before|after N …

At the end of a visit those are its end with what it owes, and then a record for each plugin that
was told.
"""

import os
import signal
import sys
from collections.abc import Sequence

from steno.cli import main
from steno.journal.facts import FreeFact
from steno.store.protocol import Appended
from steno.store.sqlite.store import SqliteStore

when, n, words = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
count = 0
add = SqliteStore.add


async def add_or_die(
    self: SqliteStore, session: str, facts: Sequence[FreeFact], key: str | None = None
) -> Appended:
    global count
    count += 1
    mine = count
    if mine == n and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    added = await add(self, session, facts, key)
    if mine == n and when == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return added


SqliteStore.add = add_or_die  # type: ignore[assignment]
sys.exit(main(words))
