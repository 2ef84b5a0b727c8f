"""How often the service was started of late without having stopped in order.

Each process that serves a home holds a file of its own there, locked by the system while it lives
and removed when it stops in order. A file that is left and that no process locks is a start that
did not end well. Three of them within five minutes: something that the service does at its start
may be what kills it. Then HTTP and the page are up and say so, and whatever acts by itself
(channels, jobs) stays down until the five minutes have passed.

No process id is kept: another process may bear that number by now.
"""

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

UNCLEAN_MAX = 3
WITHIN_S = 300.0


class Starts:
    """The starts of the services of one home; this one too, once `begin` was called."""

    def __init__(self, home: Path, now_s: Callable[[], float] = time.time) -> None:
        self._folder = home / "starts"
        self._now_s = now_s
        self._own: tuple[Path, int] | None = None

    def begin(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / secrets.token_hex(8)
        handle = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.utime(path, (self._now_s(), self._now_s()))
        self._own = path, handle

    def end(self) -> None:
        """This process stops in order."""
        if self._own is not None:
            path, handle = self._own
            path.unlink(missing_ok=True)
            os.close(handle)
            self._own = None

    def unclean(self) -> list[float]:
        """When the services that did not stop in order were started, of late. Older files are
        removed."""
        found = []
        for path in self._left():
            with contextlib.suppress(FileNotFoundError):
                at_s = path.stat().st_mtime
                if at_s < self._now_s() - WITHIN_S:
                    path.unlink()
                else:
                    found.append(at_s)
        return sorted(found)

    def held_back_until_s(self) -> float | None:
        """Until when nothing is to act by itself; None if it may."""
        unclean = self.unclean()
        return (
            unclean[-UNCLEAN_MAX] + WITHIN_S if len(unclean) >= UNCLEAN_MAX else None
        )

    def _left(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return [path for path in self._folder.iterdir() if not _is_locked(path)]


def _is_locked(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
