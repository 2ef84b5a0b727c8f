"""The terminal itself: what is asked of it before the chat starts, and writing to one that may stop
reading or go away.

A terminal that takes no more output must not keep a turn from going on. So what it does not take in
time is dropped, and painted again when it takes output again.
"""

import contextlib
import os
import re
import select
import termios
import threading
import time
import tty
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

from steno.frontend import first_frame
from steno.tui.painting.palette import BadTheme, Shade, palette_of

STALL_S = 0.5
CHUNK = 512
"""Bytes at once: a terminal that says it takes output takes so many without blocking."""
ANSWER_S = 0.1
HANG_UP_LOOK_MS = 250

_ANSWERS = re.compile(r"\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b\[[0-?]*[ -/]*[@-~]")
_LAST_ANSWER = re.compile(rb"\x1b\[\?[0-9;]*c")

_RESTORE = (
    "\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1004l\x1b[?2004l"
    "\x1b[<u\x1b[?7h"
)


class Output:
    """Writes to a terminal, as a file. Never raises, and never waits for long."""

    def __init__(self, number: int, again: Callable[[], None]) -> None:
        self.lost = False
        self.framed = False
        """Whether the terminal shows its second screen before it is asked to: what asks for it
        would clear it."""
        self._number = number
        self._again = again
        self._stalled = False

    def write(self, text: str) -> int:
        if self.framed and first_frame.ON in text:
            text, self.framed = text.replace(first_frame.ON, "", 1), False
        data = memoryview(text.encode("utf-8", "replace"))
        while data and not self.lost:
            if not self._ready():
                return len(text)
            try:
                data = data[os.write(self._number, data[:CHUNK]) :]
            except OSError:
                self.lost = True
        return len(text)

    def _ready(self) -> bool:
        """Whether it takes output. After it once did not, everything is dropped until it does."""
        if self._stalled or self.lost:
            return False
        if not self._takes_output(STALL_S):
            self._stalled = True
            threading.Thread(
                target=self._wait_until_ready, name="terminal-stalled", daemon=True
            ).start()
        return not self._stalled

    def _wait_until_ready(self) -> None:
        """What was dropped must be painted again, even if nothing else is ever painted."""
        while not self.lost and not self._takes_output(STALL_S):
            pass
        self._stalled = False
        self._again()

    def _takes_output(self, wait_s: float) -> bool:
        try:
            return bool(select.select([], [self._number], [], wait_s)[1])
        except (OSError, ValueError):
            self.lost = True
            return False

    def flush(self) -> None:
        pass

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return True


class Terminal(LinuxDriver):
    """Textual's driver on standard output, which tells the app when the terminal is gone."""

    def __init__(self, app: App[Any], **settings: Any) -> None:
        super().__init__(app, **settings)
        self._output = Output(1, self._paint_again)
        self._file = self._output  # type: ignore[assignment]
        threading.Thread(
            target=self._watch_for_hang_up, name="terminal-hang-up", daemon=True
        ).start()

    def _get_terminal_size(self) -> tuple[int, int]:
        """What the terminal says now, not what a variable said when the program was started."""
        try:
            size = os.get_terminal_size(1)
        except OSError:
            return super()._get_terminal_size()
        return size.columns or 80, size.lines or 24

    def start_application_mode(self) -> None:
        """The first time, in the place of the frame that stands there, which stays until it is
        painted over."""
        before = first_frame.take_over()
        self._output.framed = before is not None
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if before is not None:
            self.attrs_before = before

    def run_input_thread(self) -> None:
        try:
            super().run_input_thread()
        except OSError:
            self._gone()

    def _watch_for_hang_up(self) -> None:
        poll = select.poll()
        poll.register(0, 0)  # nothing but what cannot be left out: that it hung up, or failed
        while not self._app._exit:
            if poll.poll(HANG_UP_LOOK_MS):
                self._gone()
                return

    def give_mouse(self, away: bool) -> None:
        """Let the terminal have the mouse for its own selection, or take it back."""
        (self._disable_mouse_support if away else self._enable_mouse_support)()

    def _gone(self) -> None:
        self._tell("terminal_gone")

    def _paint_again(self) -> None:
        self._tell("paint_again")

    def _tell(self, what: str) -> None:
        """From a thread that must not wait for the app."""
        loop = self._app._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(getattr(self._app, what))


class Restorer:
    """Puts the terminal back as it was, from anywhere, also when nothing else answers any more."""

    def __init__(self) -> None:
        self.done = False
        """Whether that has been done already: a second time would put the cursor where it was at
        the start."""
        self._before = first_frame.before()
        if self._before is None:
            with contextlib.suppress(termios.error):
                self._before = termios.tcgetattr(0)

    def restore(self) -> None:
        if self.done:
            return
        Output(1, lambda: None).write(_RESTORE)
        if self._before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(0, termios.TCSANOW, self._before)


class Answer(Struct, frozen=True):
    """What a terminal said, and what had been typed by then."""

    shade: Shade
    typed: str


def keep_shade(home: Path, shade: Shade) -> None:
    """Begin with these colours from now on."""
    with contextlib.suppress(OSError):
        (home / "theme").write_text(f"{shade}\n", encoding="utf-8")


def kept_shade(home: Path) -> Shade | None:
    """The theme that was chosen, if it can still be used."""
    with contextlib.suppress(OSError, UnicodeDecodeError, BadTheme):
        said = (home / "theme").read_text(encoding="utf-8").strip()
        palette_of(said, home)
        return said
    return None


def ask(colours: str) -> Answer:
    """Whether the terminal is dark or light: it is asked; if it does not say, by what the
    environment says."""
    found = _ask_ground().decode("utf-8", "replace")
    light = _lightness(found)
    said: Shade = "light" if colours.rpartition(";")[2] in ("7", "15") else "dark"
    if light is not None:
        said = "dark" if light < 0.5 else "light"
    typed = "".join(char for char in _ANSWERS.sub("", found) if char.isprintable() or char == "\n")
    return Answer(said, typed)


def _ask_ground() -> bytes:
    """All that comes in while the terminal answers. The question is followed by one that every
    terminal answers, so that we wait no longer than needed where it does not know the first."""
    try:
        before = termios.tcgetattr(0)
        tty.setcbreak(0, termios.TCSANOW)
    except termios.error:
        return b""
    found = b""
    try:
        os.write(1, b"\x1b]11;?\x1b\\\x1b[c")
        deadline_s = time.monotonic() + ANSWER_S
        while not _LAST_ANSWER.search(found):
            ready, _, _ = select.select([0], [], [], max(deadline_s - time.monotonic(), 0))
            if not ready or not (piece := os.read(0, 4_096)):
                break
            found += piece
    except OSError:
        pass
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, before)
    return found


def _lightness(answer: str) -> float | None:
    found = re.search(r"\]11;rgba?:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+)", answer)
    if found is None:
        return None
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups())
    return float(0.2126 * red + 0.7152 * green + 0.0722 * blue)
