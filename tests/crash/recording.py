"""A run of the script with everything it did to its files, and when each verb was acknowledged.

A program that dies does nothing afterwards, so one recording holds every crash: cut it anywhere,
and what stands before the cut is what a dead program would have done.
"""

from bisect import bisect_right
from pathlib import Path

from msgspec import Struct

from steno.store.errors import StoreError
from steno.store.protocol import Durability
from steno.store.sqlite.database import SqliteSettings
from tests.crash.caller import Caller
from tests.crash.faulty_vfs import FaultAt, Op, faulty_vfs
from tests.crash.world import Hands, Script

STORE = "store.db"
LOG = STORE + "-wal"
EMPTY = {STORE: b""}
"""What SQLite finds when a store is made: the store makes the file, so that its name is durable."""

NO_CHECKPOINTS = 1 << 30
"""So many pages that the store's own thread never wakes up: the script says when to checkpoint."""


class Recording(Struct, frozen=True):
    """`acknowledged[k]` is how many operations had been done when verb k was acknowledged."""

    ops: list[Op]
    acknowledged: list[int]
    unknown: int
    refused: int

    def done(self, n: int) -> int:
        """How many verbs were acknowledged before operation n."""
        return bisect_right(self.acknowledged, n)

    def commits(self) -> list[int]:
        """The syncs that end a commit: each follows the write of a page to the log. The store is
        open by then."""
        return [
            n
            for n in range(self.acknowledged[0], len(self.ops))
            if self.ops[n].kind == "sync"
            and self.ops[n - 1].kind == "write"
            and self.ops[n].file == LOG
            if self.ops[n - 1].file == LOG and self.ops[n - 1].offset > 0
        ]


def record(
    script: Script, path: Path, fault: FaultAt | None = None, durability: Durability = "power"
) -> Recording:
    with faulty_vfs(path.parent, fault) as vfs:
        hands = Hands(
            path,
            SqliteSettings(vfs=vfs.name, checkpoint_pages=NO_CHECKPOINTS, durability=durability),
        )
        acknowledged: list[int] = []

        def acknowledge(_: int) -> None:
            assert not vfs.dead
            acknowledged.append(len(vfs.ops))

        caller = Caller(script, hands, acknowledge)
        try:
            caller.run()
        except (StoreError, AssertionError):
            if not vfs.dead:
                raise
        finally:
            hands.close()
        return Recording(vfs.ops, acknowledged, caller.unknown, caller.refused)
