"""A store that passes every check, and for each check one that is broken so that it fails exactly
that one. They prove the kit: a check that no broken store fails shows nothing.

They use SQLite because Python has it. The broken ones each change one thing.
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

SCHEMA = (
    "create table if not exists texts (n integer primary key, text text, digest text)",
    "create table if not exists keys (key text primary key)",
    "create table if not exists head (one integer primary key, n integer, digest text)",
    "create table if not exists pieces (n integer primary key, piece text)",
    "insert or ignore into head values (1, 0, '')",
)


class Refused(Exception):
    """The writer expected another state."""


class Damaged(Exception):
    """What is stored is not what was stored."""


class Whole:
    """Keeps everything that it says it keeps."""

    version = "1"
    offers = frozenset(("keys", "expect", "stream"))

    def __init__(self, folder: Path) -> None:
        self.base = sqlite3.connect(folder / "texts.db", timeout=60, isolation_level=None)
        self.base.execute("pragma synchronous = full")
        with self.writing():
            for statement in SCHEMA:
                self.base.execute(statement)

    @contextmanager
    def writing(self) -> Iterator[None]:
        self.base.execute("begin immediate")
        try:
            yield
            self.base.execute("commit")
        except BaseException:
            if self.base.in_transaction:
                self.base.execute("rollback")
            raise

    def append(
        self, values: Sequence[str], key: str | None = None, expect: int | None = None
    ) -> None:
        with self.writing():
            if self.is_new(key):
                self.check(expect)
                self.add(values)

    def is_new(self, key: str | None) -> bool:
        if key is None:
            return True
        done = self.base.execute("insert or ignore into keys values (?)", (key,))
        return done.rowcount == 1

    def check(self, expect: int | None) -> None:
        count, _ = self.head()
        if expect is not None and expect != count:
            raise Refused(f"{count} texts are there, not {expect}")

    def add(self, values: Sequence[str]) -> None:
        count, digest = self.head()
        for value in values:
            count, digest = count + 1, sha256((digest + value).encode()).hexdigest()
            self.base.execute("insert into texts values (?, ?, ?)", (count, value, digest))
        self.base.execute("update head set n = ?, digest = ?", (count, digest))

    def head(self) -> tuple[int, str]:
        found: Any = self.base.execute("select n, digest from head").fetchone()
        if found is None:
            raise Damaged("the head is gone")
        return found[0], found[1]

    def read(self) -> list[str]:
        values, digest = list[str](), ""
        for value, stored in self.base.execute("select text, digest from texts order by n"):
            digest = sha256((digest + value).encode()).hexdigest()
            if digest != stored:
                raise Damaged(f"text {len(values) + 1} is not what was stored")
            values.append(value)
        if (len(values), digest) != self.head():
            raise Damaged("texts are missing")
        return values

    def write(self, piece: str) -> None:
        with self.writing():
            self.base.execute("insert into pieces (piece) values (?)", (piece,))

    def shown(self) -> str:
        return "".join(one for (one,) in self.base.execute("select piece from pieces order by n"))


class SaysItTooEarly(Whole):
    """Fails kill_single: a text alone is acknowledged in memory, and stored with the next."""

    held: Sequence[str] = ()

    def append(
        self, values: Sequence[str], key: str | None = None, expect: int | None = None
    ) -> None:
        if self.held:
            super().append(self.held)
        self.held = values if len(values) == 1 else ()
        if not self.held:
            super().append(values, key, expect)


class OneByOne(Whole):
    """Fails kill_batch: each text of a batch of five is a commit of its own. Others wait."""

    def append(
        self, values: Sequence[str], key: str | None = None, expect: int | None = None
    ) -> None:
        if len(values) < 5:
            super().append(values, key, expect)
            return
        for value in values:
            super().append([value])
            time.sleep(0.003)


class LastOneWins(Whole):
    """Fails two_writers: reads everything, and then writes everything."""

    def add(self, values: Sequence[str]) -> None:
        self.base.execute("rollback")
        there = self.read()
        time.sleep(0.005)
        self.base.execute("begin immediate")
        self.base.execute("delete from texts")
        self.base.execute("update head set n = 0, digest = ''")
        super().add([*there, *values])

    def append(
        self, values: Sequence[str], key: str | None = None, expect: int | None = None
    ) -> None:
        if key is not None or expect is not None or len(values) != 3:
            Whole.append(_plain(self), values, key, expect)
        else:
            super().append(values)


def _plain(store: Whole) -> Whole:
    """The same open file, without what is broken."""
    plain = Whole.__new__(Whole)
    plain.base = store.base
    return plain


class SwallowsErrors(Whole):
    """Fails disk_full: what could not be written is no error to it."""

    def append(
        self, values: Sequence[str], key: str | None = None, expect: int | None = None
    ) -> None:
        try:
            super().append(values, key, expect)
        except sqlite3.Error:
            if self.base.in_transaction:
                self.base.execute("rollback")


class ForgetsKeys(Whole):
    """Fails retried_append: says that it has keys, and does not look at them."""

    def is_new(self, key: str | None) -> bool:
        return True


class TrustsBytes(Whole):
    """Fails damaged_bytes: reads what is there."""

    def read(self) -> list[str]:
        return [one for (one,) in self.base.execute("select text from texts order by n")]


class ExpectsNothing(Whole):
    """Fails stale_writer: says that it refuses, and never does."""

    def check(self, expect: int | None) -> None:
        return None


class StoresLater(Whole):
    """Fails shown_text: stores ten pieces at a time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._held: list[str] = []

    def write(self, piece: str) -> None:
        self._held.append(piece)
        if len(self._held) == 10:
            super().write("".join(self._held))
            self._held = []


CONTROLS = {
    "kill_single": SaysItTooEarly,
    "kill_batch": OneByOne,
    "two_writers": LastOneWins,
    "disk_full": SwallowsErrors,
    "retried_append": ForgetsKeys,
    "damaged_bytes": TrustsBytes,
    "stale_writer": ExpectsNothing,
    "shown_text": StoresLater,
}
