"""Loads the SQL files. A statement is looked up by its name; nothing else in the package holds
SQL."""

from itertools import chain
from typing import TYPE_CHECKING

from steno.store.backend import named_statements, sql_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from apsw import SQLiteValue

_SIZES = (64, 16, 4, 1)


def text(name: str) -> str:
    return sql_text(__file__, name)


_SESSION_ROW = """n, id, name, parent, base, token, owner, expires_ms, touched, listed,
    cast(listing as blob), crc, owes, memory,
    coalesce((select max(seq) from facts where session = n), base)"""

SCHEMA = text("schema.sql")
STATEMENTS = {
    name: body.replace("{session_row}", _SESSION_ROW)
    for name, body in named_statements(text("statements.sql")).items()
}


class ManyRows:
    """One statement that writes many rows, prepared in a few sizes.

    A step of SQLite costs a hand-over of Python's lock, so a batch must be few steps, not many.
    """

    def __init__(self, name: str, width: int) -> None:
        row = "(" + ", ".join("?" * width) + ")"
        self._sized = [
            (size, STATEMENTS[name].format(rows=", ".join([row] * size)))
            for size in _SIZES
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
