"""The frame that the full-screen chat begins with: painted before the chat itself is loaded, which
takes longer than a person waits without a sign.

It is plain text in the terminal's own colours. What is typed meanwhile waits in the terminal and
goes into the chat. Whatever is to be said on the ordinary screen takes the frame away first.
"""

import contextlib
import os
import signal
import sys
from types import FrameType
from typing import Any

WELCOME = (
    "Everything you see here is stored before you see it. Leave at any moment; nothing is lost."
)
ON, OFF = "\x1b[?1049h", "\x1b[?1049l"
"""The terminal's second screen, which leaves the first as it was."""
_BOLD, _FAINT, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[m"

_before: list[Any] | None = None
"""How the terminal was before the frame; None while there is no frame."""


def show(title: str, text: str, doing: str) -> None:
    """Paint it: what stands at the top, below it, and in the last line."""
    import termios
    import tty

    global _before
    try:
        if os.tcgetpgrp(0) != os.getpgrp():
            return  # in the background: the terminal belongs to another program
        before = termios.tcgetattr(0)
        tty.setcbreak(0, termios.TCSANOW)
        silent = termios.tcgetattr(0)
        silent[6][termios.VSUSP] = b"\0"  # a program that is stopped here could not clean up
        termios.tcsetattr(0, termios.TCSANOW, silent)
    except (OSError, termios.error):
        return
    _before = before
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)
    try:
        columns, lines = os.get_terminal_size(1)
        os.write(1, _frame(columns or 80, lines or 24, title, text, doing).encode())
    except OSError:
        withdraw()


def withdraw() -> None:
    """Put the terminal back as it was, if the frame is there."""
    if (before := take_over()) is not None:
        import termios

        with contextlib.suppress(OSError):
            os.write(1, OFF.encode())
        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, before)


def before() -> list[Any] | None:
    """How the terminal was before the frame, while the frame is there."""
    return _before


def take_over() -> list[Any] | None:
    """The frame goes on as the chat's first one: how the terminal was before it; None if there is
    no frame. The terminal is left as it is."""
    global _before
    kept, _before = _before, None
    if kept is not None and signal.getsignal(signal.SIGTERM) is _end:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return kept


def _end(number: int, at: FrameType | None) -> None:
    withdraw()
    os.kill(os.getpid(), number)


def _frame(columns: int, lines: int, title: str, text: str, doing: str) -> str:
    """The lines that the chat has, too, at the places where it has them."""
    folded = (f"  {line}" for line in _folded(text, columns - 4))
    top = [f"{_BOLD} steno{_PLAIN} {_FAINT}{title}{_PLAIN}", "", *folded]
    bottom = [
        f"{_FAINT}{'─' * columns}{_PLAIN}",
        f"{_BOLD} >{_PLAIN}",
        "",
        f"{_FAINT} ○ {doing}{_PLAIN}",
    ]
    painted = [ON, "\x1b[H\x1b[2J"]
    painted += [f"\x1b[{1 + at};1H{line}" for at, line in enumerate(top[: lines - len(bottom)])]
    painted += [f"\x1b[{lines - 3 + at};1H{line}" for at, line in enumerate(bottom)]
    painted.append(f"\x1b[{lines - 2};4H")
    return "".join(painted)


def _folded(text: str, columns: int) -> list[str]:
    folded = [""]
    for word in text.split():
        if folded[-1] and len(folded[-1]) + 1 + len(word) > columns:
            folded.append("")
        folded[-1] = f"{folded[-1]} {word}".strip()
    return folded


def usable() -> bool:
    """Whether there is a terminal on which a full screen can be painted."""
    here = sys.stdin.isatty() and sys.stdout.isatty() and sys.platform != "win32"
    return here and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
