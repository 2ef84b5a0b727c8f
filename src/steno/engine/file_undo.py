"""Which content files are put back to. Pure.

Each change of a file is stored before it is made, with what it replaces. So a file may hold any
content that was stored of it since, and each of those can be overwritten without a loss; whatever
else it holds was put there by others, and it stays.

    4 turn.started
    6 file.kept a.py (h1 -> h2)      8 file.kept a.py (h2 -> h3)     9 file.kept b.py (none -> h4)
    undo from 4 on     a.py: h3 or h2 -> h1; h1: nothing to do; h9: left as it is
                       b.py: h4 -> no file
    11 files.put_back (a.py h3 -> h1, b.py h4 -> none) · 12 files.settled (11)
    taken back         13 files.put_back (a.py h1 -> h3, b.py none -> h4; takes back 11)
"""

from collections.abc import Mapping

from msgspec import Struct

from steno.journal.facts import (
    FileKept,
    FilesPutBack,
    FileVersions,
    Record,
    TurnStarted,
    versions_of,
)
from steno.journal.parts import Hash, Seq


class UndoTarget(Struct, frozen=True):
    """The content that a file is to have, and those that may be overwritten with it."""

    path: str
    content: Hash | None
    known: frozenset[Hash | None]


class UndoPlan(Struct, frozen=True):
    """`changes` are to be made; the files in `left` hold something that was never kept."""

    changes: tuple[FileVersions, ...]
    left: tuple[str, ...] = ()


class FileHistory(Struct):
    """Fold all facts of a session. `calls` are the changes of calls by where those began."""

    changes: list[tuple[Seq, FileVersions]] = []
    calls: dict[Seq, FileVersions] = {}
    put_back: dict[Seq, FilesPutBack] = {}
    turns: list[Seq] = []

    def apply(self, record: Record) -> None:
        fact = record.fact
        self.changes += [(record.seq, file) for file in versions_of(fact)]
        if isinstance(fact, FileKept):
            self.calls[fact.started] = fact.file
        elif isinstance(fact, FilesPutBack):
            self.put_back[record.seq] = fact
        elif isinstance(fact, TurnStarted):
            self.turns.append(record.seq)

    def since(self, seq: Seq) -> tuple[UndoTarget, ...]:
        """What each file that was changed since held before that."""
        return self._targets([file for at, file in self.changes if at >= seq])

    def before(self, seq: Seq) -> tuple[UndoTarget, ...]:
        """What each file held before a put-back: to take it back."""
        return self._targets(list(self.put_back[seq].files))

    def can_be_taken_back(self) -> Seq | None:
        """The last put-back that was not taken back."""
        taken = {one.takes_back for one in self.put_back.values()}
        open = [
            seq
            for seq, one in self.put_back.items()
            if seq not in taken and not one.takes_back
        ]
        return max(open, default=None)

    def whole(self, now: Mapping[str, Hash | None]) -> tuple[FileVersions, ...]:
        """Each file that was changed: what it held at first, and what it holds now, if that is
        known; else what it was last changed to. A change that was cut off may not have been
        made."""
        first: dict[str, Hash | None] = {}
        last: dict[str, Hash | None] = {}
        for _, file in self.changes:
            first.setdefault(file.path, file.before)
            last[file.path] = file.after
        for one in self.since(0):
            if now[one.path] in one.known:
                last[one.path] = now[one.path]
        return tuple(
            FileVersions(path, first[path], last[path])
            for path in first
            if first[path] != last[path]
        )

    def _targets(self, files: list[FileVersions]) -> tuple[UndoTarget, ...]:
        content: dict[str, Hash | None] = {}
        known: dict[str, set[Hash | None]] = {}
        for file in files:
            content.setdefault(file.path, file.before)
            known.setdefault(file.path, set()).update((file.before, file.after))
        return tuple(
            UndoTarget(path, content[path], frozenset(known[path]))
            for path in content
        )


def plan(targets: tuple[UndoTarget, ...], now: Mapping[str, Hash | None]) -> UndoPlan:
    """What to change, given what the files hold now."""
    changes, left = [], []
    for one in targets:
        if now[one.path] not in one.known:
            left.append(one.path)
        elif now[one.path] != one.content:
            changes.append(FileVersions(one.path, now[one.path], one.content))
    return UndoPlan(tuple(changes), tuple(left))
