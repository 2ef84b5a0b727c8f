"""The three standard handles: the only place that reads or writes them.

OutputLost   stdout is closed, full or left by its reader; go on without it, and say so
"""

import argparse
import contextlib
import io
import os
import select
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal, TextIO

from steno.frontend import first_frame
from steno.frontend.sanitize import sanitize

READ_BYTES = 65_536
PIPED_BYTES_MAX = 20_000_000
TERMINAL_LINE_BYTES_MAX = 4_095
"""What a terminal keeps of a line. It drops the rest in silence."""


HELD_CHARS_MAX = 200_000
"""What is held back while a question is open. If there is more, it is written, and the question is
asked again below it."""

_in_line = False
"""Whether stdout ends in the middle of a line, and nothing was noted since."""
_question: str | None = None
"""The question whose line is open on the terminal: nothing else is written there."""
_held: list[tuple[int, str]] = []
"""What waits until that line has ended: a handle, and text for it."""


class OutputLost(Exception):
    pass


def prepare() -> None:
    """Put something in the place of handles that are closed, so that no file of ours gets their
    numbers.

    What takes the place of stdout cannot be written, so that output is not lost in silence.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, mode)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
    sys.stdin = sys.stdin or _text(0, "r")
    sys.stdout = sys.stdout or _text(1, "w")
    sys.stderr = sys.stderr or _text(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _text(number: int, mode: Literal["r", "w"]) -> TextIO:
    return open(number, mode, encoding="utf-8", closefd=False)


def show(text: str, end: str = "\n") -> None:
    """Write to stdout, now; on a terminal with an open question, once that is answered."""
    if _question is not None and sys.stdout.isatty():
        _hold(1, text + end)
        return
    _write(_for(sys.stdout, text + end))


def tell(options: argparse.Namespace, text: str, **done: object) -> None:
    """Say what was done: in words, or as an object for a program."""
    if options.json:
        from steno.service.objects import (
            to_json,
        )  # loads facts, and so behind the parser

        text = to_json(done)
    show(text)


def show_painted(text: str) -> None:
    """Write what was painted for a terminal, of text that is safe for it."""
    _write(text + "\n")


def _write(said: str) -> None:
    global _in_line
    first_frame.withdraw()
    try:
        sys.stdout.write(said)
        sys.stdout.flush()
        _in_line = not said.endswith("\n") if said else _in_line
    except OSError as error:
        _give_up(1)
        raise OutputLost(error.strerror or "closed") from error


def _for(stream: TextIO, text: str) -> str:
    """A terminal is not given what would act on it. A pipe or a file gets every character."""
    return sanitize(text) if stream.isatty() else text


def pour(data: bytes) -> None:
    """Write bytes to stdout, as they are unless it is a terminal."""
    first_frame.withdraw()
    if sys.stdout.isatty():
        show(data.decode("utf-8", "backslashreplace"), end="")
        return
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        _give_up(1)
        raise OutputLost(error.strerror or "closed") from error


def note(text: str, end: str = "\n") -> None:
    """Write to stderr, if it is read; on a terminal with an open question, once that is
    answered."""
    global _in_line
    if _question is not None:
        _hold(2, text + end)
        return
    first_frame.withdraw()
    with contextlib.suppress(OSError):
        sys.stderr.write(_for(sys.stderr, text + end))
        sys.stderr.flush()
    _in_line = False


def _ask(question: str) -> None:
    """Put a question on a line of its own, and hold back everything else until it is over."""
    global _question
    note(f"{fresh_line()}{question}", end="")
    _question = question


def end_question(answered: bool = False) -> bool:
    """Write what was held back. The line of a question that was `answered` was ended by the person;
    else it is ended here. False if there is no question."""
    global _question
    if _question is None:
        return False
    _question = None
    if not answered:
        note("")
    held = _held.copy()
    _held.clear()
    for number, text in held:
        with contextlib.suppress(
            OutputLost
        ):  # the next thing that is shown finds out, too
            (show if number == 1 else note)(text, end="")
    return True


def _hold(number: int, text: str) -> None:
    _held.append((number, text))
    question = _question
    if question is not None and sum(len(text) for _, text in _held) > HELD_CHARS_MAX:
        end_question()
        _ask(question)


def fresh_line() -> str:
    """What a note begins with to stand on a line of its own, where stdout and stderr are one
    screen; never a byte on stdout."""
    return "\n" if _in_line and sys.stdout.isatty() else ""


def complain(text: str) -> None:
    note(f"steno: {text}")


def finish() -> None:
    """What cannot be written is not tried again when the interpreter ends."""
    first_frame.withdraw()
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            _give_up(number)


def _give_up(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def person_present() -> bool:
    """Whether a person can be asked: they see stderr and type on stdin."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def read_all() -> str:
    """Standard input to its end, byte for byte."""
    return sys.stdin.buffer.read().decode("utf-8", "surrogateescape")


def read_piped() -> bytes:
    """What a pipe or a file at standard input holds, to its end; nothing of a terminal or a
    device."""
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return b""
    if not stat.S_ISFIFO(kind) and not stat.S_ISREG(kind):
        return b""
    return sys.stdin.buffer.read(PIPED_BYTES_MAX)


@contextlib.contextmanager
def source(name: str) -> Iterator[BinaryIO]:
    """A file to read from; - is standard input."""
    if name == "-":
        yield sys.stdin.buffer
        return
    with Path(name).open("rb") as file:
        yield file


class Lines:
    """Standard input line by line, without keeping the loop from its work."""

    def __init__(self) -> None:
        self.gone = False
        """Whether the terminal was closed."""
        self._terminal = os.isatty(0)
        self._held = b""

    async def next(self) -> str | None:
        """A line without its end; None at the end of the input."""
        while b"\n" not in self._held:
            piece = await _read()
            if not piece:
                self.gone = piece is None or (self._terminal and not os.isatty(0))
                line, self._held = self._held, b""
                return _decoded(line) if line else None
            self._held += piece
        line, _, self._held = self._held.partition(b"\n")
        return _decoded(line.removesuffix(b"\r"))

    async def answer(self, question: str) -> str | None:
        """Ask, and take a line that is typed from then on. One that was typed before the question
        is no answer to it: it stays, to be taken as what it was meant for."""
        ahead, self._held = self._held + _there(), b""
        _ask(question)
        line = None
        try:
            line = await self.next()
            return line
        finally:
            end_question(answered=line is not None)
            self._held = ahead + self._held

    def drop(self) -> None:
        """Forget what was typed and not taken."""
        self._held = b""


def cut_by_terminal(line: str) -> bool:
    """Whether a terminal may have dropped the end of a line."""
    return (
        sys.stdin.isatty()
        and len(line.encode("utf-8", "surrogateescape")) >= TERMINAL_LINE_BYTES_MAX
    )


def _decoded(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


def _there() -> bytes:
    """What can be read without waiting."""
    found = b""
    with contextlib.suppress(OSError, ValueError):
        while select.select([0], [], [], 0)[0] and (piece := os.read(0, READ_BYTES)):
            found += piece
    return found


async def _read() -> bytes | None:
    """What is there; nothing at the end, None if it has no source."""
    import asyncio  # behind the parser, so that --help stays quick

    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(0, ready.set)
    except PermissionError:
        return os.read(0, READ_BYTES)  # a file, which is always ready
    try:
        await ready.wait()
    finally:
        loop.remove_reader(0)
    try:
        return os.read(0, READ_BYTES)
    except OSError:
        return None
