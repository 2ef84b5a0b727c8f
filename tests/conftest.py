"""How many examples hypothesis tries (`torture` through HYPOTHESIS_PROFILE=torture), how many tests
run at once, which cases of a test `make test` runs, and what a skipped test means: a line that
counts them, and with CI=true a failure."""

import gc
import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.chance import SEED

AT_ONCE_MAX = 8

pytest.register_assert_rewrite("tests.world")

# Where bytecode is not written, every process compiles steno anew: a start takes twice as long.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Whatever starts the tests in the background ignores these for itself, and so for steno.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(
            number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        )

settings.register_profile(
    "suite", deadline=None, derandomize=True, print_blob=True, max_examples=15
)
settings.register_profile(
    "torture", settings.get_profile("suite"), derandomize=False, max_examples=1000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


def pytest_report_header() -> str:
    return f"seed: {SEED}"


def pytest_xdist_auto_num_workers() -> int:
    """Two for each core, up to a bound: half of the time a test waits for a process, a disk or a
    pause. With three, both cores are busy all the time."""
    cores = os.cpu_count() or 1
    return max(cores, min(2 * cores, AT_ONCE_MAX))


def pytest_make_parametrize_id(val: object) -> str | None:
    return val.name if isinstance(val, signal.Signals) else None


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
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`@pytest.mark.suite("one", "two")` above a test with many cases: `make test` runs these, by
    their ids, and `make torture` runs all."""
    chosen: dict[str, set[str]] = {}
    found: dict[str, set[str]] = defaultdict(set)
    for item in items:
        mark = item.get_closest_marker("suite")
        if mark is None:
            continue
        test, _, case = item.nodeid.partition("[")
        chosen[test] = set(mark.args)
        found[test].add(case.removesuffix("]"))
        if case.removesuffix("]") not in mark.args:
            item.add_marker(pytest.mark.torture)
    if any("[" in argument for argument in config.args):
        return  # one case was asked for, so that the others are not known here
    if absent := {test: ids - found[test] for test, ids in chosen.items() if ids - found[test]}:
        raise pytest.UsageError(f"cases that do not exist are chosen for the suite: {absent}")


def _skipped(config: pytest.Config) -> Counter[str]:
    """How many tests were skipped, by the reason given."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", []) if reporter is not None else []
    return Counter(str(report.longrepr[-1]).removeprefix("Skipped: ") for report in reports)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if os.environ.get("CI") == "true" and _skipped(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if why := _skipped(config):
        reasons = ", ".join(f"{reason} ({count})" for reason, count in why.most_common())
        failure = " CI=true: a skip is a failure." if os.environ.get("CI") == "true" else ""
        terminalreporter.write_line(f"{why.total()} tests skipped: {reasons}.{failure}")
