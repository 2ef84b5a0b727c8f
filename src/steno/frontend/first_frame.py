"""The frame that the full-screen chat begins with: painted before the chat itself is loaded, which
takes longer than a person waits without a sign.

It is plain text in the terminal's own colours. Keys that are pressed meanwhile wait in the
terminal and are pressed in the chat. Whatever is to be said on the ordinary screen takes the frame
away first.
"""

import contextlib
import os
import re
import select
import signal
import sys
import time
from types import FrameType
from typing import Any

WELCOME = (
    "Everything you see here is stored before you see it. "
    "Leave at any moment; nothing is lost."
)
ON, OFF = "\x1b[?1049h", "\x1b[?1049l"
"""The terminal's second screen, which leaves the first as it was."""
_BOLD, _FAINT, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[m"

READ_BYTES = 65_536
_QUESTION = b"\x1b]11;?\x1b\\\x1b[c"
"""Which colour the ground has. The second question is one that every terminal answers, so that no
one waits longer than needed where the first is not known."""

LAST_ANSWER = re.compile(rb"\x1b\[\?[0-9;]*c")
ANSWER_S = 0.1
_NEVER = re.compile(rb"(?!)")

_before: list[Any] | None = None
"""How the terminal was before the frame; None while there is no frame."""
_asked_s: float | None = None
_typed = b""
"""What was typed before the chat and had to be taken from the terminal."""
_lines_bytes = 0
"""How much was typed before the frame, while a line still ended with a line feed."""


def show(title: str, text: str, doing: str) -> None:
    """Paint it: what stands at the top, below it, and in the last line."""
    import termios

    global _before
    try:
        if os.tcgetpgrp(0) != os.getpgrp():
            return  # in the background: the terminal belongs to another program
        before = termios.tcgetattr(0)
        silence()
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


def silence() -> None:
    """Have the terminal give every key as the chat reads it, but for Ctrl-C, which ends a start.
    A program that is stopped by a key here could not clean up. Raises `termios.error`."""
    import fcntl
    import termios

    global _lines_bytes
    _, _, _, _, _, _, keys = silent = termios.tcgetattr(0)
    silent[0] &= ~(
        termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR
    )
    silent[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
    keys[termios.VMIN], keys[termios.VTIME] = 1, 0
    keys[termios.VSUSP] = keys[termios.VQUIT] = b"\0"
    termios.tcsetattr(0, termios.TCSANOW, silent)
    with contextlib.suppress(OSError):
        ready = fcntl.ioctl(0, termios.FIONREAD, b"\0" * 4)
        _lines_bytes = int.from_bytes(ready, sys.byteorder)


def ask() -> None:
    """Ask the terminal for its ground while the chat is loaded; it must be silent by then."""
    global _asked_s
    if _asked_s is None:
        with contextlib.suppress(OSError):
            os.write(1, _QUESTION)
            _asked_s = time.monotonic()


def asked_s() -> float | None:
    """When it was asked; None if it was not."""
    return _asked_s


def heard(until_s: float, ended: "re.Pattern[bytes]") -> bytes:
    """What the terminal says until a pattern is found, or until that time: its answer, and the keys
    that were pressed meanwhile."""
    found = b""
    with contextlib.suppress(OSError, ValueError):
        while not ended.search(found):
            wait_s = max(until_s - time.monotonic(), 0)
            if not select.select([0], [], [], wait_s)[0] or not (
                piece := os.read(0, READ_BYTES)
            ):
                break
            found += piece
    return found


def keep(typed: bytes) -> None:
    """Keys that had to be taken from the terminal before the chat is there. A line that was typed
    before the frame was ended with Enter."""
    global _typed, _lines_bytes
    lines, _lines_bytes = _lines_bytes, max(_lines_bytes - len(typed), 0)
    _typed += typed[:lines].replace(b"\n", b"\r") + typed[lines:]


def keep_typed() -> None:
    """Take what was typed until now, so that it is no answer to a question that comes first."""
    if _before is not None:
        keep(heard(0, _NEVER))


def take_typed() -> bytes:
    """What was typed so far, for the chat."""
    global _typed
    keep(heard(0, _NEVER))
    typed, _typed = _typed, b""
    return typed


def withdraw() -> None:
    """Put the terminal back as it was, if the frame is there."""
    if (before := take_over()) is not None:
        import termios

        with contextlib.suppress(OSError):
            os.write(1, OFF.encode())
        if _asked_s is not None:  # its answer is not for the shell
            heard(_asked_s + ANSWER_S, LAST_ANSWER)
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
    painted += [
        f"\x1b[{1 + at};1H{line}"
        for at, line in enumerate(top[: lines - len(bottom)])
    ]
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
