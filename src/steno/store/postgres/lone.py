"""The commit of a batch that changes one session: what streams, and a single input. A function that
joins no arrays, called by a statement that is prepared once a connection and sent with values that
are ready for the wire: the driver's own way there costs as much as the statement.

A commit of many sessions is `commit_batch`: see `writer`. So is every one behind a pooler, where no
statement stays prepared and plans are pinned by the function.
"""

from collections.abc import Sequence
from itertools import count
from struct import pack
from typing import NamedTuple

from psycopg import errors, generators
from psycopg.pq import ExecStatus, Format

from steno.store.postgres.arrays import Ints, Texts
from steno.store.postgres.batch import Batch, State, columns, saved_row
from steno.store.postgres.database import Connected

_TEXT, _NUMBER, _NUMBERS, _TEXTS = 25, 20, 1016, 1009
TYPES = (
    *(_TEXT, *[_NUMBER] * 8, _TEXT),
    *(_NUMBERS, _NUMBERS, _TEXTS),
    *(_NUMBERS, _TEXTS, _NUMBERS, _NUMBERS, _TEXTS),
    *(_NUMBERS,),
    *(_TEXT, *[_NUMBER] * 4, _TEXT),
    *(_TEXTS, _TEXTS, _NUMBERS, _NUMBERS),
)
FORMATS = [Format.BINARY] * len(TYPES)
_names = count()

Key = tuple[str, str, int, int, int]
"""Of an input: source, key, session, seq, count."""


class Change(NamedTuple):
    """What becomes of one session."""

    n: int
    was: State
    now: State
    batch: Batch
    keys: Sequence[Key]


class Lone:
    """`commit_one`, as one connection has it prepared."""

    def __init__(self, connection: Connected, schema: str) -> None:
        self.connection = connection
        self._name = f"steno_{next(_names)}".encode()
        self._call = call(schema)
        self._prepare()

    def commit(self, me: str, k: int, change: Change) -> None:
        sent = arguments(me, k, change)
        try:
            self._run(sent)
        except (
            errors.InvalidSqlStatementName
        ):  # after a rollback the driver drops every statement
            self._prepare()
            self._run(sent)

    def _prepare(self) -> None:
        self.connection.pgconn.send_prepare(self._name, self._call, TYPES)
        self._finish()

    def _run(self, sent: list[bytes | None]) -> None:
        self.connection.pgconn.send_query_prepared(
            self._name, sent, FORMATS, Format.BINARY
        )
        self._finish()

    def _finish(self) -> None:
        for result in self.connection.wait(
            generators.execute(self.connection.pgconn)
        ):
            if result.status == ExecStatus.FATAL_ERROR:
                raise errors.error_from_result(result)


def call(schema: str) -> bytes:
    marks = ", ".join(f"${i}" for i in range(1, len(TYPES) + 1))
    return f"select {schema}.commit_one({marks})".encode()


def arguments(me: str, k: int, change: Change) -> list[bytes | None]:
    n, was, now, batch, keys = change
    facts = [(at_ms, crc, body) for _, _, at_ms, crc, body in batch.facts]
    pieces = [row[1:] for row in batch.pieces()]
    return [
        me.encode(),
        *_numbers(
            k, n, was.head, was.token, was.stamp, now.head, now.token, now.stamp
        ),
        None if now.owner is None else now.owner.encode(),
        *columns(facts, "nnt"),
        *columns(pieces, "ntnnt"),
        Ints.of([started for _, started in batch.undrafts]),
        *_row(n, batch),
        Texts.of([source for source, *_ in keys]),
        Texts.of([key for _, key, *_ in keys]),
        Ints.of([seq for *_, seq, _ in keys]),
        Ints.of([many for *_, many in keys]),
    ]


def _row(n: int, batch: Batch) -> list[bytes | None]:
    """The session's row, if it is to be stored."""
    saved = batch.rows.get(n)
    if saved is None:
        return [None] * 6
    _, listing, listed, crc, owes, memory, tenant = saved_row(saved)
    return [listing.encode(), *_numbers(listed, crc, owes, memory), tenant.encode()]


def _numbers(*values: int) -> list[bytes]:
    return [pack(">q", value) for value in values]
