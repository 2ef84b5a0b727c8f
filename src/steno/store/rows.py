"""Rows of tables to values and back: where a fact lies, and how damage to it is noticed.

Every row carries a CRC over its place, its time and its bytes. A row that does not match is damage,
and so is a gap in the numbering: either raises `JournalCorrupt` and names the session and the seq.
Nothing is skipped.
"""

from collections.abc import Iterable
from itertools import count
from struct import Struct as Layout
from typing import Any
from zlib import crc32

from steno.journal import codec
from steno.journal.drafts import Draft, Kind, Stream
from steno.journal.facts import Record
from steno.journal.parts import Seq
from steno.store.backend import ALL_MARKS, ChangeRow, Noted, SessionRow
from steno.store.errors import JournalCorrupt
from steno.store.protocol import Mark

_two_ints = Layout(">qq").pack

FactRow = tuple[int, int, int, bytes]
DraftRow = tuple[int, str, int, int, bytes]


OWES, UNFINISHED = 1, 2
"""The bits of the column `owes`."""
DUE, REMEMBERS = 1, 2
"""The bits of the column `memory`."""
_COLUMNS: dict[frozenset[Mark], tuple[int, int]] = {
    marks: (
        OWES * ("owes" in marks) + UNFINISHED * ("unfinished" in marks),
        DUE * ("due" in marks) + REMEMBERS * ("remembers" in marks),
    )
    for marks in ALL_MARKS
}
_MARKS = {columns: marks for marks, columns in _COLUMNS.items()}


def columns_of(marks: frozenset[Mark]) -> tuple[int, int]:
    """Marks as the columns `owes` and `memory`."""
    return _COLUMNS[marks]


def marks_in(owes: int, memory: int) -> frozenset[Mark] | None:
    """Marks from their columns; None if those say nothing that there is."""
    return _MARKS.get((owes, memory))


def session_crc(row: SessionRow) -> int:
    owes, memory = columns_of(row.marks)
    name = None if row.name is None else codec.escape(row.name)
    plain = (
        f"{row.n} {row.id} {name} {row.parent} {row.base} {row.listed} {row.token} {row.owner} "
        f"{row.expires_ms} {row.touched} {owes} {memory}"
    )
    return crc32(row.list_row, crc32(plain.encode()))


def to_session(raw: tuple[Any, ...]) -> SessionRow:
    """A session's row as it was written, or an error that says that it is damaged."""
    plain: list[Any] = list(raw[:11])
    crc, owes, memory, head = raw[11:]
    id, name, listed, list_row = raw[1], raw[2], raw[9], raw[10]
    marks = marks_in(owes, memory)
    if marks is not None and isinstance(list_row, bytes):
        plain[2] = None if name is None else codec.unescape(name)
        plain += (marks, head)
        row = SessionRow(*plain)
        if session_crc(row) == crc:
            if head < listed:
                raise JournalCorrupt(f"session {id!r}: fact {head + 1} is missing")
            return row
    raise JournalCorrupt(f"session {id!r}: its row is damaged (checksum differs)")


def fact_crc(n: int, seq: Seq, at_ms: int, body: bytes) -> int:
    return crc32(body, crc32(_two_ints(n << 32 | seq, at_ms)))


def draft_crc(n: int, stream: Stream, start: int, text: bytes) -> int:
    return crc32(
        text,
        crc32(
            stream.kind.encode(), crc32(_two_ints(n << 32 | stream.started, start))
        ),
    )


def change_crc(id: int, n: int, kind: str, seq: Seq) -> int:
    return crc32(f"{id} {n} {kind} {seq}".encode())


def to_change(row: tuple[Any, ...]) -> ChangeRow:
    """A row of `changes`, with the id that its session has or had."""
    id, n, kind, seq, crc, session = row
    if change_crc(id, n, kind, seq) != crc or session is None:
        raise JournalCorrupt(f"change {id} is damaged")
    return ChangeRow(id, session, _noted(id, kind), seq)


def _noted(id: int, kind: str) -> Noted:
    match kind:
        case "redacted" | "imported" | "deleted":
            return kind
        case _:
            raise JournalCorrupt(f"change {id} is of no known kind: {kind!r}")


def to_added(row: tuple[Any, ...]) -> ChangeRow:
    """A fact in the feed. One that no session is told of comes without its body."""
    id, n, seq, at_ms, crc, session, body = row
    if body is None:
        return ChangeRow(id, None, "added", seq)
    [record] = to_records(session, n, [(seq, at_ms, crc, body)])
    return ChangeRow(id, session, "added", seq, record)


def to_records(
    session: str, n: int, rows: Iterable[FactRow], first: Seq | None = None
) -> list[Record]:
    """Decode rows; with `first`, they must be numbered from there on without a gap."""
    records: list[Record] = []
    decode = codec.decode
    for expected, (seq, at_ms, crc, body) in zip(
        count(first or 0), rows, strict=False
    ):
        if first is not None and seq != expected:
            raise JournalCorrupt(
                f"session {session!r}: fact {expected} is missing (found {seq} in its place)"
            )
        if fact_crc(n, seq, at_ms, body) != crc:
            raise JournalCorrupt(
                f"session {session!r}: fact {seq} is damaged (checksum differs)"
            )
        try:
            records.append(Record(seq, at_ms, decode(body)))
        except codec.DecodeError as error:
            raise JournalCorrupt(
                f"session {session!r}: fact {seq}: {error}"
            ) from error
    return records


def to_drafts(
    session: str,
    n: int,
    rows: Iterable[DraftRow],
    starts: dict[Stream, int] | None = None,
) -> list[Draft]:
    """Join the rows of each stream, in order, from its beginning or from where `starts` says that
    they begin."""
    streams: dict[Stream, list[str]] = {}
    ends: dict[Stream, int] = dict(starts or {})
    for started, kind, start, crc, raw in rows:
        stream = Stream(started, as_kind(kind))
        if start != ends.get(stream, 0) or draft_crc(n, stream, start, raw) != crc:
            raise JournalCorrupt(
                f"session {session!r}: the draft of fact {started} is damaged at offset {start}"
            )
        text = codec.unescape(raw.decode())
        streams.setdefault(stream, []).append(text)
        ends[stream] = start + len(text)
    return [Draft(stream, "".join(pieces)) for stream, pieces in streams.items()]


def as_kind(kind: str) -> Kind:
    match kind:
        case "text" | "reasoning" | "output":
            return kind
        case _:
            raise JournalCorrupt(f"unknown kind of draft {kind!r}")
