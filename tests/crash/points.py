"""Which of all crash points a test visits.

The suite visits every eightieth, the same ones every day; the long run visits all.
"""

from collections.abc import Sequence

from tests.chance import REPEAT

SHARE = 80


def sampled(points: Sequence[int], share: int = SHARE) -> Sequence[int]:
    """One in so many, from the middle of each run of so many."""
    return points[share // 2 :: share]


def part(points: Sequence[int], i: int, parts: int) -> Sequence[int]:
    """The i-th of so many parts of equal length, each a run of neighbours."""
    return points[len(points) * i // parts : len(points) * (i + 1) // parts]


def where(what: str, n: int) -> str:
    return f"{what} at operation {n} ({REPEAT})"
