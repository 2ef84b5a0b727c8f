"""The tool `search_files`: lines of files that match an expression. Ripgrep does it where it is
installed; else Python does, with the same answers for common expressions."""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from steno.journal.facts import ToolSpec
from steno.tools.builtin import GREP_SPEC
from steno.tools.looking.folders import inside
from steno.tools.protocol import (
    BadArguments,
    Prepared,
    Reading,
    Workspace,
    decode_arguments,
)
from steno.workspace.walk import SKIPPED, TIME_LIMIT_S, Walk, as_expression

MATCHES_MAX = 500
LINE_CHARS_MAX = 500
FILE_BYTES_MAX = 5_000_000
_FOUND = re.compile(r"(.*?):(\d+):(.*)", re.DOTALL)


class GrepArguments(Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[str, Meta(min_length=1, max_length=1_000)]
    path: str = "."
    files: str = ""
    ignore_case: bool = False
    around: Annotated[int, Meta(ge=0, le=20)] = 0


class SearchFiles:
    spec: ToolSpec = GREP_SPEC
    approval: Literal["none", "ask"] = "none"

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def prepare(self, arguments: str) -> Prepared:
        asked = decode_arguments(arguments, GrepArguments)
        where = inside(self._workspace, asked.path)
        try:
            re.compile(asked.pattern)
            as_expression(asked.files)
        except (re.error, ValueError) as error:
            raise BadArguments(
                f"`pattern` is no regular expression: {error}"
            ) from error

        command = _ripgrep(self._workspace, where, asked)
        return Reading(lambda: asyncio.to_thread(self._search, command, where, asked))

    def _search(
        self, command: list[str] | None, where: Path, asked: GrepArguments
    ) -> str:
        """In a process of its own, which can be ended: an expression can take for ever. -P: no
        module is looked for in the workspace."""
        root, hidden = str(self._workspace.folder), self._workspace.sandbox.hidden
        wanted = Scan(root, str(where), asked, tuple(map(str, hidden)))
        found = FoundLines(self._workspace.output_chars_max)
        with subprocess.Popen(  # noqa: S603 - words of ours; what is asked follows --
            command or [sys.executable, "-P", "-m", __name__],
            cwd=os.path.realpath(self._workspace.folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.PIPE,
            env=self._workspace.scrub.clean(os.environ),
            start_new_session=True,
        ) as process:
            ender = threading.Timer(TIME_LIMIT_S, found.end, (process,))
            ender.start()
            try:
                with contextlib.suppress(BrokenPipeError):
                    _give(process, b"" if command else msgspec.json.encode(wanted))
                for line in _given(process):
                    if not found.add(line):
                        break
            finally:
                ender.cancel()
                process.kill()
        return found.told()


class FoundLines:
    """Lines that were found, as many as there is room for."""

    def __init__(self, chars_max: int) -> None:
        self._lines: list[str] = []
        self._room = chars_max
        self._matches = 0
        self._cut = ""

    def add(self, line: str) -> bool:
        """False when there is no more room."""
        match = _FOUND.match(line)
        shown = line if match is None else f"{match[1]}:{match[2]}: {match[3]}"
        text = (
            shown if len(shown) <= LINE_CHARS_MAX else shown[:LINE_CHARS_MAX] + " […]"
        )
        self._room -= len(text) + 1
        self._matches += match is not None
        if self._room < 0 or self._matches > MATCHES_MAX:
            self._cut = "there are more matches; look for something more exact"
            return False
        self._lines.append(text)
        return True

    def end(self, process: "subprocess.Popen[bytes]") -> None:
        self._cut = "it took too long; the rest was not looked at"
        process.kill()

    def told(self) -> str:
        text = "\n".join(self._lines) or "[nothing matches]"
        return f"{text}\n[{self._cut}]" if self._cut else text


def _give(process: "subprocess.Popen[bytes]", data: bytes) -> None:
    if process.stdin is not None:
        process.stdin.write(data)
        process.stdin.close()


def _given(process: "subprocess.Popen[bytes]") -> Iterator[str]:
    for raw in process.stdout or ():
        yield raw.decode("utf-8", "replace").rstrip("\r\n").removeprefix("./")


def _ripgrep(
    workspace: Workspace, where: Path, asked: GrepArguments
) -> list[str] | None:
    """The command that searches; None where ripgrep is not installed."""
    from shutil import which

    program = which("rg")
    if program is None:
        return None
    root = Path(os.path.realpath(workspace.folder))
    words = [
        program,
        "--no-config",
        "--line-number",
        "--no-heading",
        "--color=never",
        "--hidden",
    ]
    words += [
        "--with-filename",
        "--sort=path",
        "--max-columns=4096",
        f"--context={asked.around}",
    ]
    words += ["--ignore-case"] if asked.ignore_case else []
    words += [f"--glob={asked.files}"] if asked.files else []
    words += [f"--glob=!{name}/" for name in sorted(SKIPPED)]
    for hidden in workspace.sandbox.hidden:
        with contextlib.suppress(ValueError):
            below = Path(os.path.realpath(hidden)).relative_to(root)
            words.append(f"--glob=!/{below.as_posix()}/")
    return [
        *words,
        "--regexp",
        asked.pattern,
        "--",
        f"./{where.relative_to(root).as_posix()}",
    ]


# --- without ripgrep, in a process of its own -----------------------------------------------------


class Scan(Struct, frozen=True):
    root: str
    where: str
    asked: GrepArguments
    hidden: tuple[str, ...]


def scan(search: Scan) -> Iterator[str]:
    """The lines that match, as ripgrep prints them."""
    asked, root = search.asked, Path(os.path.realpath(search.root))
    wanted = re.compile(asked.pattern, re.IGNORECASE if asked.ignore_case else 0)
    only = as_expression(asked.files) if asked.files else None
    walk = Walk(
        Path(search.where), [Path(os.path.realpath(one)) for one in search.hidden]
    )
    for file in walk.files():
        name = file.relative_to(root).as_posix()
        if only is not None and not (
            only.fullmatch(file.name) or only.fullmatch(name)
        ):
            continue
        lines = _lines(file)
        hits = {number for number, line in enumerate(lines) if wanted.search(line)}
        shown = {
            number
            for hit in hits
            for number in range(hit - asked.around, hit + asked.around + 1)
            if 0 <= number < len(lines)
        }
        for number in sorted(shown):
            sign = ":" if number in hits else "-"
            yield f"{name}{sign}{number + 1}{sign}{lines[number]}"


def _lines(file: Path) -> list[str]:
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            return []
        data = file.read_bytes()
    except OSError:
        return []
    return (
        [] if b"\0" in data[:8_000] else data.decode("utf-8", "replace").splitlines()
    )


if __name__ == "__main__":
    for found_line in scan(msgspec.json.decode(sys.stdin.buffer.read(), type=Scan)):
        print(found_line, flush=True)
