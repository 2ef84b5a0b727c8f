"""Clocks, percentiles, and loops that end."""

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median

STEADY_MAX = 4


def bounded(count: int, limit_s: float = 120.0) -> Iterator[int]:
    """Count up; a loop that takes too long is an error, not a number."""
    end_s = time.perf_counter() + limit_s
    for i in range(count):
        yield i
        if time.perf_counter() > end_s:
            raise TimeoutError(f"{i + 1} of {count} rounds took more than {limit_s:g} s")


def percentile(values: Sequence[float], part: float) -> float:
    """The value that `part` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def timed_ms(act: Callable[[], object]) -> float:
    before_s = time.perf_counter()
    act()
    return (time.perf_counter() - before_s) * 1000


def each_ms(act: Callable[[int], object], count: int) -> list[float]:
    """How long each of `count` calls took."""
    return [timed_ms(lambda i=i: act(i)) for i in bounded(count)]  # type: ignore[misc]


def interleaved(
    ours: Callable[[], float], base: Callable[[], float], rounds: int
) -> list[tuple[float, float]]:
    """Measure both by turns, each one first every other time, so that a drifting disk weighs on
    both alike."""
    pairs = []
    for i in bounded(rounds, 600.0):
        if i % 2:
            late = base()
            pairs.append((ours(), late))
        else:
            early = ours()
            pairs.append((early, base()))
    return pairs


def median_ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """The middle of the ratios, each within one round."""
    return median(ours / base for ours, base in pairs)


def medians(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return median(ours for ours, _ in pairs), median(base for _, base in pairs)


def is_steady(base_ms: Sequence[float]) -> bool:
    """Whether the baseline was measured in peace. On a busy machine a sync waits for the scheduler,
    most of them many times as long as the quickest; that hides what we add, and a ratio near 1
    means nothing."""
    return percentile(base_ms, 0.5) <= STEADY_MAX * percentile(base_ms, 0.05)
