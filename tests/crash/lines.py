"""What happens if the process dies on each line? For code that works with files by itself, without
SQLite.

python -m tests.crash.lines BACKUP STORE N FOLDER dies before line N of a restore, once it has cut
the power of the file system that FOLDER is on. It ends well if there is no line N.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from steno.store.sqlite import backup, database
from tests.crash.powercut import cut

MODULES = {str(module.__file__) for module in (backup, database)}


class Died(BaseException):
    """The process is no more."""


def before_line(n: int, act: Callable[[], None], dying: Callable[[], None]) -> bool:
    """Do something, but die before its n-th line in the modules of interest; whether it came to
    that."""
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_filename not in MODULES:
            return None
        if event == "line":
            if lines == n:
                dying()
            lines += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    except Died:
        return True
    finally:
        sys.settrace(before)
    return False


def main(store: Path, saved: Path, n: int, folder: Path) -> None:
    def dying() -> None:
        cut(folder)
        os.kill(os.getpid(), signal.SIGKILL)

    before_line(n, lambda: backup.restore(saved, store), dying)


if __name__ == "__main__":
    main(Path(sys.argv[2]), Path(sys.argv[1]), int(sys.argv[3]), Path(sys.argv[4]))
