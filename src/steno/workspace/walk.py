"""The files under a folder, as a person would look for them: what git ignores, and folders of other
programs, are left out. No symlink is followed."""

import fnmatch
import os
import re
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

WALKED_MAX = 200_000
TIME_LIMIT_S = 10.0
SKIPPED = frozenset(
    (
        ".git",
        ".hg",
        ".svn",
        "node_modules",
        "__pycache__",
        ".venv",
        ".mypy_cache",
        ".tox",
    )
)
"""Folders that a search does not go into unless it is told their path."""


@lru_cache(maxsize=64)
def as_expression(pattern: str) -> "re.Pattern[str]":
    """A pattern of paths as an expression: `*` stops at a slash, `**` does not."""
    whole = ""
    for part in re.split(
        r"(\*\*/|/\*\*|\*\*|\*|\?|\[[^\]/]+\])", pattern.removeprefix("./")
    ):
        match part:
            case "**/":
                whole += "(?:.*/)?"
            case "/**":
                whole += "/.*"
            case "**":
                whole += ".*"
            case "*":
                whole += "[^/]*"
            case "?":
                whole += "[^/]"
            case _ if part.startswith("[") and part.endswith("]"):
                whole += (
                    fnmatch.translate(part).removeprefix("(?s:").removesuffix(r")\Z")
                )
            case _:
                whole += re.escape(part)
    try:
        return re.compile(whole)
    except re.error as error:
        raise ValueError(f"`pattern` cannot be used: {error}") from error


class Walk:
    """The files under a folder, in order of their names; bounded."""

    def __init__(self, folder: Path, hidden: list[Path]) -> None:
        self._folder = folder
        self._hidden = set(hidden)
        self._ignored = Ignored(folder)
        self._until_s = time.monotonic() + TIME_LIMIT_S
        self._seen = 0
        self._cut = False

    def files(self) -> Iterator[Path]:
        if self._folder.is_file():
            yield self._folder
            return
        waiting = [self._folder]
        while waiting:
            folder = waiting.pop()
            try:
                with os.scandir(folder) as entries:
                    found = sorted(entries, key=lambda entry: entry.name)
            except OSError:  # gone, or not ours to read
                continue
            deeper = []
            for entry in found:
                self._seen += 1
                path = folder / entry.name
                if self._seen > WALKED_MAX or time.monotonic() > self._until_s:
                    self._cut = True
                    return
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED and path not in self._hidden:
                        deeper += [] if self._ignored.has(path, True) else [path]
                elif entry.is_file(follow_symlinks=False) and not self._ignored.has(
                    path, False
                ):
                    yield path
            waiting += reversed(deeper)

    def left_out(self) -> str:
        return (
            "\n[there were too many files; the rest was not looked at]"
            if self._cut
            else ""
        )


class Ignored:
    """What the .gitignore files say, from the top of the repository down. The common forms: names,
    paths, `*`, `**`, a folder's slash, and `!`."""

    def __init__(self, folder: Path) -> None:
        self._rules: dict[Path, list[tuple[re.Pattern[str], bool, bool]]] = {}
        tops = [folder, *folder.parents]
        self._top = next((one for one in tops if (one / ".git").exists()), folder)

    def has(self, path: Path, is_folder: bool) -> bool:
        ignored = False
        above = [path.parent, *path.parent.parents]
        for folder in reversed(
            [one for one in above if one.is_relative_to(self._top)]
        ):
            name = path.relative_to(folder).as_posix()
            for rule, folders_only, put_back in self._of(folder):
                if (is_folder or not folders_only) and rule.fullmatch(name):
                    ignored = not put_back
        return ignored

    def _of(self, folder: Path) -> list[tuple["re.Pattern[str]", bool, bool]]:
        if folder not in self._rules:
            try:
                with (folder / ".gitignore").open(
                    encoding="utf-8", errors="replace"
                ) as file:
                    lines = file.read(100_000).splitlines()
            except OSError:
                lines = []
            self._rules[folder] = [
                rule for line in lines if (rule := _ignore_rule(line))
            ]
        return self._rules[folder]


def _ignore_rule(line: str) -> tuple["re.Pattern[str]", bool, bool] | None:
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    put_back, text = text.startswith("!"), text.removeprefix("!")
    folders_only, text = text.endswith("/"), text.rstrip("/")
    anchored = "/" in text
    pattern = text.lstrip("/") if anchored else f"**/{text}"
    try:
        return as_expression(pattern), folders_only, put_back
    except ValueError:
        return None
