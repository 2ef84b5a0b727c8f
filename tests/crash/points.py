"""Which of all crash points a test visits.

The long run visits all. The suite visits every eightieth, and begins at another one each day, so
that in eighty days it has been everywhere. `STENO_CRASH_SEED=n` repeats the choice, and the
chances, of another day.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime

SEED = int(os.environ.get("STENO_CRASH_SEED") or datetime.now(UTC).toordinal())
SHARE = 80


def sampled(points: Sequence[int], share: int = SHARE) -> Sequence[int]:
    return points[SEED % share :: share]


def part(points: Sequence[int], i: int, parts: int) -> Sequence[int]:
    """The i-th of so many parts of equal length, each a run of neighbours."""
    return points[len(points) * i // parts : len(points) * (i + 1) // parts]


def where(what: str, n: int) -> str:
    return f"{what} at operation {n} (repeat with STENO_CRASH_SEED={SEED})"
