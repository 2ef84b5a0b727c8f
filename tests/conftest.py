"""How many examples hypothesis tries (`torture` through HYPOTHESIS_PROFILE=torture), how many tests
run at once, and which cases of slow tests the suite takes."""

import gc
import os
from collections import Counter
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.crash.points import SEED

AT_ONCE_MAX = 8
OF_CASES = 3
SLOW = ("tests/program/", "tests/codex/", "tests/tui/", "tests/store/test_bad_bytes.py")

settings.register_profile(
    "suite", deadline=None, derandomize=False, print_blob=True, max_examples=15
)
settings.register_profile("torture", settings.get_profile("suite"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


def pytest_xdist_auto_num_workers() -> int:
    """Two for each core, up to a bound: half of the time a test waits for a process, a disk or a
    pause."""
    cores = os.cpu_count() or 1
    return max(cores, min(2 * cores, AT_ONCE_MAX))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is loaded and collected stays, so looking through it for garbage, now or later, is work
    for nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the cases of a slow test the suite takes every third one, and others the next day; the
    long run takes all. A test of which one or two are left, because its cases rotate by themselves,
    keeps one."""
    cases = [item for item in items if item.nodeid.startswith(SLOW) and hasattr(item, "callspec")]
    short = [item for item in cases if item.get_closest_marker("torture") is None]
    many, place = Counter(map(_test, short)), Counter[str]()
    day = (
        SEED + SEED // 20
    )  # else lists that rotate with an even step would lose the same cases for ever
    for item in short:
        place[_test(item)] += 1
        if (place[_test(item)] + day) % min(many[_test(item)], OF_CASES):
            item.add_marker(pytest.mark.torture)


def _test(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]
