"""Which program wrote a file, and the talks in it. A folder is searched for files of every kind.

A file is recognised by what is in it, not by its name alone. One of no known kind is left out of a
folder and refused if it was named.
"""

import json
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from steno.transfer.agents import (
    aider,
    claude_code,
    codex,
    databases,
    pi,
    web_exports,
)
from steno.transfer.agents.reading import Unreadable, objects, short
from steno.transfer.agents.talk import Talk

FILES_MAX = 200_000
FIRST_BYTES = 1 << 20
DATABASES = {"state.db", "opencode.db", "logs.db"}
SQLITE = b"SQLite format 3\0"

HOMES: dict[str, tuple[str, ...]] = {
    "claude-code": (".claude/projects",),
    "codex": (".codex/sessions", ".codex/archived_sessions"),
    "hermes": (".hermes/state.db",),
    "opencode": (".local/share/opencode/opencode.db",),
    "pi": (".pi/agent/sessions",),
    "llm": (".config/io.datasette.llm/logs.db",),
}
"""Where each program keeps its talks, below the home folder."""


class Source(Struct, frozen=True):
    """A file of a known kind."""

    path: Path
    program: str
    read: Callable[[Path], Iterator[Talk]]

    def talks(self) -> Iterator[Talk]:
        yield from self.read(self.path)


def paths_of(name: str, home: Path) -> list[Path]:
    """Where a program keeps its talks, for those who named the program and not a path."""
    return [home / place for place in HOMES.get(name, ()) if (home / place).exists()]


def files_at(path: Path) -> Iterator[Path]:
    """A file itself; of a folder, the files of known kinds in it."""
    if not path.is_dir():
        yield path
        return
    for file in _below(path):
        try:
            recognise(file)
        except (Unreadable, OSError):
            continue
        yield file


def _below(folder: Path) -> Iterator[Path]:
    seen = 0
    for here, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            seen += 1
            if seen > FILES_MAX:
                raise Unreadable(str(folder), f"it has more than {FILES_MAX} files")
            if name.endswith(
                (".jsonl", ".jsonl.zst", ".jsonl.gz", ".zip", ".md", ".json", ".db")
            ):
                yield Path(here, name)


def recognise(path: Path) -> Source:
    if path.name == aider.NAME:
        return Source(path, aider.PROGRAM, aider.talks)
    if path.name.endswith((".jsonl.zst", ".jsonl.gz")):
        return _lines(path, _first_line(path))
    with path.open("rb") as file:
        head = file.read(16)
    if head.startswith(SQLITE):
        if program := databases.program_of(path):
            return Source(path, program, databases.talks)
        raise Unreadable(
            short(path), "this database is of no program that steno knows"
        )
    if path.suffix == ".zip" and zipfile.is_zipfile(path):
        return Source(path, _zipped(path), web_exports.talks)
    if path.suffix == ".json":
        with path.open("rb") as file:
            first = next(objects(file, short(path)), {})
        if program := web_exports.recognised(first):
            return Source(path, program, web_exports.talks)
        raise Unreadable(short(path), "this JSON is of no program that steno knows")
    return _lines(path, _first_line(path))


def _lines(path: Path, first: dict[str, Any]) -> Source:
    if codex.recognised(first):
        return Source(path, codex.PROGRAM, codex.talks)
    if pi.recognised(first):
        return Source(path, pi.PROGRAM, pi.talks)
    if claude_code.recognised(first):
        return Source(path, claude_code.PROGRAM, claude_code.talks)
    raise Unreadable(
        short(path),
        "it is not a session that steno exported, nor a file of another agent that it knows",
    )


def _first_line(path: Path) -> dict[str, Any]:
    """The first object of the file that says what it is."""
    with codex.open_rollout(path) as file:
        for _ in range(5):
            try:
                value = json.loads(file.readline(FIRST_BYTES))
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                return value
    return {}


def _zipped(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            leaf = name.rsplit("/", 1)[-1]
            if leaf.startswith("conversations") and leaf.endswith(".json"):
                with archive.open(name) as file:
                    first = next(objects(file, short(path)), {})  # type: ignore[arg-type]
                if program := web_exports.recognised(first):
                    return program
    raise Unreadable(short(path), "there are no conversations in it")
