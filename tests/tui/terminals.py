"""The real program on a terminal of its own, and what stands on its screen."""

import fcntl
import os
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pyte

from tests.program.test_cli_terminal import Terminal
from tests.program.world import World, wait_until

KIND = "xterm-256color"


class FullScreen(Terminal):
    """What `seen` gives is the screen as it stands, not everything that was ever written to it."""

    def __init__(self, world: World, *words: str, columns: int = 80, lines: int = 24) -> None:
        world.environment |= {
            "TERM": KIND,
            "COLUMNS": "80",
            "LINES": "24",
        }  # as a shell may have exported them
        self.display = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.display)
        self._fed = 0
        super().__init__(world, *words, size=(columns, lines))

    def seen(self) -> str:
        super().seen()
        fresh, self._fed = self._seen[self._fed :], len(self._seen)
        self._stream.feed(_known(fresh))
        return "\n".join(line.rstrip() for line in self.display.display)

    def everything(self) -> str:
        """All that was ever written."""
        super().seen()
        return self._seen.decode("utf-8", "replace")

    def wait_gone(self, text: str) -> None:
        wait_until(lambda: text not in self.seen(), f"that {text!r} goes; seen: {self.seen()}")

    def resize(self, columns: int, lines: int) -> None:
        self.display.resize(lines, columns)
        fcntl.ioctl(self._near, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def hang_up(self) -> None:
        """Close the window."""
        self.seen()
        os.close(self._near)
        self._near = os.open(os.devnull, os.O_RDWR)


def _known(data: bytes) -> bytes:
    """Without questions to the terminal that the emulator takes for text."""
    for question in (
        b"\x1b[?2026$p",
        b"\x1b[?2048$p",
        b"\x1b[>25u",
        b"\x1b[<u",
        b"\x1b]11;?\x1b\\",
        b"\x1b[c",
    ):
        data = data.replace(question, b"")
    return data


@contextmanager
def full_screen(
    world: World, *words: str, columns: int = 80, lines: int = 24
) -> Iterator[FullScreen]:
    opened = FullScreen(world, *words, columns=columns, lines=lines)
    try:
        yield opened
    finally:
        opened.close()
