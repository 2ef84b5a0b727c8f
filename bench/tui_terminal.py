"""The real program on a terminal of its own: what it writes, and when."""

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

LINES, COLUMNS = 24, 80
LIMIT_S = 30.0
WHO, A_TERMINAL = b"\x1b[c", b"\x1b[?62c"

_OWN_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from steno.cli import main
sys.exit(main(sys.argv[1:]))
"""


class Terminal:
    def __init__(self, home: Path, words: list[str], env: Mapping[str, str] | None = None) -> None:
        self._near, far = pty.openpty()
        fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        plain = {name: value for name, value in os.environ.items() if not name.startswith("STENO_")}
        plain.pop("PYTHONDONTWRITEBYTECODE", None)  # a person's start compiles nothing
        self.started_s = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWN_TERMINAL, *words],
            env=plain | {"STENO_HOME": str(home), "TERM": "xterm-256color"} | dict(env or {}),
            cwd=home,
            stdin=far,
            stdout=far,
            stderr=far,
            start_new_session=True,
        )
        os.close(far)
        self._seen = b""

    def type(self, text: str) -> None:
        os.write(self._near, text.encode())

    def wait(self, text: str) -> float:
        """When a text that was not there before is written; in seconds of `perf_counter`."""
        wanted, end_s = text.encode(), time.perf_counter() + LIMIT_S
        while (at := self._seen.find(wanted)) < 0:
            if time.perf_counter() > end_s:
                raise TimeoutError(f"{text!r} was not written")
            self._read(0.5)
        self._seen = self._seen[at + len(wanted) :]
        return time.perf_counter()

    def drain(self, for_s: float) -> None:
        """Take what is written, and forget it."""
        end_s = time.perf_counter() + for_s
        while time.perf_counter() < end_s:
            self._read(0.01)
        self._seen = b""

    def _read(self, wait_s: float) -> None:
        if select.select([self._near], [], [], wait_s)[0]:
            with contextlib.suppress(OSError):  # nobody is at the other end any more
                came = os.read(self._near, 65_536)
                self._seen += came
                if WHO in came:  # every terminal answers that, and a program waits for it
                    os.write(self._near, A_TERMINAL)

    def hang_up(self) -> None:
        """Close the window."""
        os.close(self._near)
        self._near = os.open(os.devnull, os.O_RDWR)

    def ended_s(self) -> float:
        """When the process has ended, while what it writes is taken; in seconds of
        `perf_counter`."""
        ended: list[float] = []

        def wait() -> None:
            self.process.wait()
            ended.append(time.perf_counter())

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        end_s = time.perf_counter() + LIMIT_S
        while waiting.is_alive():
            if time.perf_counter() > end_s:
                raise TimeoutError("the process did not end")
            self._read(0.001)
            waiting.join(0.001)
        return ended[0]

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        os.close(self._near)


@contextmanager
def terminal(home: Path, *words: str, env: Mapping[str, str] | None = None) -> Iterator[Terminal]:
    opened = Terminal(home, list(words), env)
    try:
        yield opened
    finally:
        opened.close()
