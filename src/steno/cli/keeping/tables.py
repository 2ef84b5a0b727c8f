"""Tables, bars and progress for people. Where the output is no terminal, a table is plain text in
columns and progress is silent: scripts read the same bytes wherever they run."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unicodedata import east_asian_width

from steno.cli.stdio import show, show_painted
from steno.frontend.sanitize import sanitize

PROGRESS_AFTER_S = 0.5
PROGRESS_EVERY_S = 0.1
WAITING_AFTER_S = 1.0
_BLOCKS = " ▏▎▍▌▋▊▉█"


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()
) -> None:
    """Columns as wide as what is in them; heads only for people."""
    for line in lines(heads if sys.stdout.isatty() else (), rows, right):
        show(line)


def head(text: str) -> None:
    """What stands over a part of what is shown: bold for people."""
    if sys.stdout.isatty():
        show_painted(f"\x1b[1m{sanitize(text)}\x1b[m")
    else:
        show(text)


def body(text: str) -> None:
    """Text as it is; for people without the empty lines at its end."""
    if not sys.stdout.isatty() or (text := text.rstrip("\n")):
        show(text)


def lines(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()
) -> list[str]:
    clean = [
        [sanitize(cell) for cell in row]
        for row in ([heads] if heads else []) + list(rows)
    ]
    widths = [max(map(width, column)) for column in zip(*clean, strict=True)]
    return [
        "  ".join(
            padded(cell, widths[at], at in right) for at, cell in enumerate(row)
        ).rstrip()
        for row in clean
    ]


def width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def padded(text: str, to: int, right: bool = False) -> str:
    gap = " " * max(0, to - width(text))
    return gap + text if right else text + gap


def bar(part: float, columns: int) -> str:
    """A bar for a number from 0 to 1, to an eighth of a column."""
    eighths = round(max(0.0, min(1.0, part)) * columns * 8)
    return "█" * (eighths // 8) + (_BLOCKS[eighths % 8] if eighths % 8 else "")


class Progress:
    """One line on a terminal's stderr, rewritten; nothing for what is quick, and nothing where
    no person looks."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._begun = self._told = time.monotonic()
        self._shown = False
        self._seen = sys.stderr.isatty()

    def at(self, done: int, total: int) -> None:
        now = time.monotonic()
        late = (
            now - self._begun >= PROGRESS_AFTER_S
            and now - self._told >= PROGRESS_EVERY_S
        )
        if not self._seen or not late:
            return
        self._told, self._shown = now, True
        part = done / total if total else 0.0
        said = f"{done:,}" + (f" of {total:,}" if total else "")
        line = f"{self._doing} {bar(part, 24):<24} {part:4.0%}  {said}"
        os.write(2, f"\r\x1b[2K{line}".encode(errors="replace"))

    def end(self) -> None:
        """Take the line away; it comes again with what is told next."""
        if self._shown:
            os.write(2, b"\r\x1b[2K")
            self._shown = False

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@contextlib.contextmanager
def waiting(doing: str) -> Iterator[Callable[[], None]]:
    """Say on a terminal how long something takes of which it is not known how far it is. What is
    given says that it is over."""
    over = threading.Event()

    def tell() -> None:
        begun, shown = time.monotonic(), False
        while not over.wait(PROGRESS_EVERY_S):
            if (took_s := time.monotonic() - begun) >= WAITING_AFTER_S:
                shown = True
                os.write(
                    2, f"\r\x1b[2K{doing} … {took_s:.0f} s".encode(errors="replace")
                )
        if shown:
            os.write(2, b"\r\x1b[2K")

    teller = (
        threading.Thread(target=tell, daemon=True) if sys.stderr.isatty() else None
    )

    def end() -> None:
        over.set()
        if teller is not None:
            teller.join()

    if teller is not None:
        teller.start()
    try:
        yield end
    finally:
        end()


def markdown(text: str, home: Path) -> None:
    """Show Markdown as it is meant on a terminal, and as it is elsewhere."""
    if not sys.stdout.isatty() or not text.strip():
        body(text)
        return
    from rich.console import Console
    from rich.segment import Segment, Segments

    from steno.tui.painting.markdown import Painter
    from steno.tui.painting.palette import palette_of
    from steno.tui.terminal import kept_shade

    console = Console()
    painter = Painter(
        palette_of(kept_shade(home) or "dark", home), min(console.width, 100)
    )
    lines = painter.lines(text)
    with console.capture() as painted:
        console.print(
            Segments([part for line in lines for part in (*line, Segment.line())])
        )
    show_painted(painted.get().removesuffix("\n"))
