"""Which files and folders a person may mean by a few letters of a path."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

from steno.workspace.walk import Walk

FILES_MAX = 20_000
KEPT_S = 5.0


class Files:
    """The paths under a folder, folders with a slash at their end. What was found is kept for some
    seconds."""

    def __init__(self, folder: Path, hidden: tuple[Path, ...] = ()) -> None:
        self._folder = folder
        self._hidden = [Path(os.path.realpath(one)) for one in hidden]
        self._paths: list[str] = []
        self._read_s = -KEPT_S

    def like(self, typed: str, most: int) -> list[str]:
        """The best first."""
        if time.monotonic() - self._read_s > KEPT_S:
            self._paths, self._read_s = self._listed(), time.monotonic()
        return best(typed, self._paths, most)

    def _listed(self) -> list[str]:
        root = Path(os.path.realpath(self._folder))
        found: dict[str, None] = {}
        for file in Walk(root, self._hidden).files():
            path = file.relative_to(root)
            for folder in reversed(path.parents[:-1]):
                found.setdefault(f"{folder.as_posix()}/")
            found.setdefault(path.as_posix())
            if len(found) >= FILES_MAX:
                break
        return list(found)


def best(typed: str, paths: Iterable[str], most: int) -> list[str]:
    """The paths that have the letters typed, in order: in the name before in the folders, together
    before apart, short before long."""
    wanted = typed.lower()
    scored = [
        (score, len(path), path)
        for path in paths
        if (score := _score(wanted, path)) >= 0
    ]
    return [path for _, _, path in sorted(scored)[:most]]


def _score(wanted: str, path: str) -> int:
    """Lower is better; -1 if the letters are not in it."""
    if not wanted:
        return path.rstrip("/").count("/")
    text = path.lower()
    name_at = text.rstrip("/").rfind("/") + 1
    name = text[name_at:]
    if name.startswith(wanted):
        return 0
    if wanted in name:
        return 1
    if text.startswith(wanted):
        return 2
    if wanted in text:
        return 3
    at, gaps, last = 0, 0, -1
    for letter in wanted:
        at = text.find(letter, last + 1)
        if at < 0:
            return -1
        gaps += at - last - 1 if last >= 0 else 0
        last = at
    return 10 + gaps
