"""How many examples hypothesis tries (`torture` through HYPOTHESIS_PROFILE=torture), and how many tests run at once."""

import os

from hypothesis import settings

AT_ONCE_MAX = 8

settings.register_profile("suite", deadline=None, derandomize=False, print_blob=True, max_examples=30)
settings.register_profile("torture", settings.get_profile("suite"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


def pytest_xdist_auto_num_workers() -> int:
    """Two for each core, up to a bound: half of the time a test waits for a process, a disk or a pause."""
    cores = os.cpu_count() or 1
    return max(cores, min(2 * cores, AT_ONCE_MAX))
