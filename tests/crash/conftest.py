"""Where the crash tests put their files, and how they say how much they did."""

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: thousands of stores are made and thrown away."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="steno-crash-") as name:
        yield Path(name)


@pytest.fixture
def say(capfd: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print past the capture, also from a worker process."""

    def out(text: str) -> None:
        with capfd.disabled():
            print(text, file=sys.stderr, flush=True)

    return out
