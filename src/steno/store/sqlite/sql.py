"""Loads the SQL files. A statement is looked up by its name; nothing else in the package holds
SQL."""

import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from apsw import SQLiteValue

_NAMED = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)
_SIZES = (64, 16, 4, 1)


def text(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


_SESSION_ROW = """n, id, name, parent, base, token, owner, expires_ms, touched, listed,
    cast(listing as blob), crc, owes, memory,
    coalesce((select max(seq) from facts where session = n), base)"""

SCHEMA = text("schema.sql")
STATEMENTS = {
    name: body.strip().replace("{session_row}", _SESSION_ROW)
    for name, body in _NAMED.findall(text("statements.sql"))
}


class ManyRows:
    """One statement that writes many rows, prepared in a few sizes.

    A step of SQLite costs a hand-over of Python's lock, so a batch must be few steps, not many.
    """

    def __init__(self, name: str, width: int) -> None:
        row = "(" + ", ".join("?" * width) + ")"
        self._sized = [
            (size, STATEMENTS[name].format(rows=", ".join([row] * size))) for size in _SIZES
        ]
        self.one = self._sized[-1][1]

    def split(
        self, rows: "Sequence[tuple[SQLiteValue, ...]]"
    ) -> "Iterator[tuple[str, Sequence[SQLiteValue]]]":
        if len(rows) == 1:
            yield self.one, rows[0]
            return
        at = 0
        for size, statement in self._sized:
            while len(rows) - at >= size:
                yield statement, list(chain.from_iterable(rows[at : at + size]))
                at += size
