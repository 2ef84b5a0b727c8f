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
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from steno.frontend import first_frame
from steno.tui.painting.palette import BadTheme, Shade, palette_of

STALL_S = 0.5
CHUNK = 512
"""Bytes at once: a terminal that says it takes output takes so many without blocking."""
HANG_UP_LOOK_MS = 250
LOOK_S = 0.1
READ_BYTES = 4_096

ANSWERS = re.compile(rb"\x1b\]11;[^\x07\x1b]*(\x07|\x1b\\)|\x1b\[\?[0-9;]*c")
"""What a terminal says of its ground, and what it is."""
_BEGUN_ANSWER = re.compile(
    rb"\x1b(\](1(1(;[^\x07\x1b]*\x1b?)?)?)?|\[\?[0-9;]*|\[)?\Z"
)
LATE_S = 5.0
"""How long an answer may take over a slow line until it would be taken for keys."""

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
        """As Textual does it, with the keys first that were pressed before there was a chat."""
        keys = KeyReader(getattr(self._app, "answer_is_late", False))
        try:
            self._press(keys, first_frame.take_typed())
            while not self.exit_event.is_set():
                ready = select.select([0], [], [], LOOK_S)[0]
                typed = os.read(0, READ_BYTES) if ready else b""
                self._press(keys, typed)
                if ready and not typed:
                    raise OSError("the terminal is gone")
        except (OSError, ValueError):
            self._gone()

    def _press(self, keys: "KeyReader", typed: bytes) -> None:
        for event in keys.of(typed):
            self.process_message(event)

    def _watch_for_hang_up(self) -> None:
        poll = select.poll()
        poll.register(
            0, 0
        )  # nothing but what cannot be left out: that it hung up, or failed
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


class KeyReader:
    """What comes from a terminal, as what was pressed. `late`: its answers may stand among that."""

    def __init__(self, late: bool) -> None:
        self._parser = XTermParser()
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._held = b""
        self._late_until_s = time.monotonic() + LATE_S if late else 0.0

    def of(self, typed: bytes) -> Iterable[Message]:
        """Nothing is typed when there was none for a while: then what was held back are keys."""
        typed, self._held, nothing = self._held + typed, b"", not typed
        if time.monotonic() < self._late_until_s:
            typed = ANSWERS.sub(b"", typed)
            if not nothing and (begun := _BEGUN_ANSWER.search(typed)) is not None:
                typed, self._held = typed[: begun.start()], typed[begun.start() :]
        if text := self._decode(typed):
            yield from self._parser.feed(text)
        yield from self._parser.tick()


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


class Colours(Struct, frozen=True):
    """What a terminal said of its colours; `late` if it has not said all of it yet."""

    shade: Shade
    late: bool


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


def ask(colours: str) -> Colours:
    """Whether the terminal is dark or light: it is asked, as a rule before the chat was loaded; if
    it does not say, by what the environment says."""
    found = _ask_ground()
    light = _lightness(found.decode("utf-8", "replace"))
    said: Shade = "light" if colours.rpartition(";")[2] in ("7", "15") else "dark"
    if light is not None:
        said = "dark" if light < 0.5 else "light"
    first_frame.keep(ANSWERS.sub(b"", found))
    return Colours(said, late=not first_frame.LAST_ANSWER.search(found))


def _ask_ground() -> bytes:
    """All that comes in while the terminal answers."""
    framed = first_frame.before() is not None
    try:
        before = termios.tcgetattr(0)
        if not framed:
            first_frame.silence()
    except termios.error:
        return b""
    try:
        first_frame.ask()
        until_s = (first_frame.asked_s() or 0.0) + first_frame.ANSWER_S
        return first_frame.heard(until_s, first_frame.LAST_ANSWER)
    finally:
        if not framed:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(0, termios.TCSANOW, before)


def _lightness(answer: str) -> float | None:
    found = re.search(
        r"\]11;rgba?:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+)", answer
    )
    if found is None:
        return None
    red, green, blue = (
        int(part, 16) / (16 ** len(part) - 1) for part in found.groups()
    )
    return float(0.2126 * red + 0.7152 * green + 0.0722 * blue)
