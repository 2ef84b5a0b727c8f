"""The read side: pure queries on one connection, each in one snapshot. Writes nothing."""

import contextlib
from collections.abc import Iterator
from hashlib import sha256

import apsw
from msgspec import Struct

from steno.journal import codec
from steno.journal.drafts import Draft, Stream, streams_of
from steno.journal.facts import Record
from steno.journal.listing import ListingRow
from steno.journal.parts import Hash, Seq
from steno.store.errors import JournalCorrupt, UnknownPayload, UnknownSession
from steno.store.protocol import Cursor, Event, Listed, Piece
from steno.store.sqlite.database import translated
from steno.store.sqlite.rows import place, to_drafts, to_records
from steno.store.sqlite.sql import STATEMENTS

PAGE = 1_000


class SessionRow(Struct):
    """A row of `sessions`."""

    n: int
    id: str
    name: str | None
    parent: int | None
    base: Seq
    head: Seq
    token: int
    owner: str | None
    expires_ms: int
    touched: int
    listing_raw: bytes

    def listing(self) -> ListingRow:
        try:
            return codec.decode_listing(self.listing_raw)
        except codec.DecodeError as error:
            raise JournalCorrupt(f"session {self.id!r}: its row for lists is damaged: {error}") from error


class Segment(Struct):
    """A run of facts under one n: a session's own, or what a fork has of its parent."""

    n: int
    first: Seq
    last: Seq


@contextlib.contextmanager
def snapshot(connection: apsw.Connection) -> Iterator[None]:
    """Everything read inside is of one moment."""
    with translated("cannot read the store"):
        connection.execute("begin")
        try:
            yield
        finally:
            connection.execute("rollback")


def session(connection: apsw.Connection, id: str) -> SessionRow:
    row = connection.execute(STATEMENTS["session_by_id"], (id,)).fetchone()
    if row is None:
        raise UnknownSession(id)
    return SessionRow(*row)


def segments(connection: apsw.Connection, row: SessionRow) -> list[Segment]:
    """Where the facts of a session lie, oldest first."""
    found = [Segment(row.n, row.base + 1, row.head)]
    while row.parent is not None:
        upto = row.base
        above = connection.execute(STATEMENTS["session_by_n"], (row.parent,)).fetchone()
        if above is None:
            raise JournalCorrupt(f"session {row.id!r}: its parent is missing")
        row = SessionRow(*above)
        found.append(Segment(row.n, row.base + 1, upto))
    return found[::-1]


def records(connection: apsw.Connection, row: SessionRow, after: Seq, limit: int) -> list[Record]:
    """Facts after a seq, through the parents of a fork. A gap or a damaged row is an error."""
    found: list[Record] = []
    pieces = [Segment(row.n, row.base + 1, row.head)] if after >= row.base else segments(connection, row)
    for piece in pieces:
        if piece.last <= after or len(found) >= limit:
            continue
        start = max(after, piece.first - 1)
        rows = connection.execute(
            STATEMENTS["facts_between"], (place(piece.n, start), place(piece.n, piece.last), limit - len(found))
        )
        part = to_records(row.id, start + 1, rows)
        if len(part) < min(piece.last - start, limit - len(found)):
            missing = start + 1 + len(part)
            raise JournalCorrupt(f"session {row.id!r}: fact {missing} is missing")
        found += part
    return found


def drafts(connection: apsw.Connection, row: SessionRow) -> list[Draft]:
    return to_drafts(row.id, row.n, connection.execute(STATEMENTS["drafts_of"], (row.n,)))


def since(connection: apsw.Connection, id: str, cursor: Cursor, limit: int) -> tuple[list[Event], Cursor]:
    """What a follower at `cursor` has not seen yet, each piece of text once and before the fact that seals it."""
    with snapshot(connection):
        row = session(connection, id)
        new = records(connection, row, cursor.seq, limit)
        open_drafts = drafts(connection, row) if cursor.seq + len(new) == row.head else []
    offsets = dict(cursor.offsets)
    events: list[Event] = []
    for record in new:
        for whole in streams_of(record.fact):
            events += _tail(whole, offsets.pop(whole.stream, 0))
        events.append(record)
    for draft in open_drafts:
        events += _tail(draft, offsets.get(draft.stream, 0))
        offsets[draft.stream] = len(draft.text)
    return events, Cursor(new[-1].seq if new else cursor.seq, tuple(offsets.items()))


def _tail(draft: Draft, seen: int) -> list[Piece]:
    rest = draft.text[seen:]
    return [Piece(draft.stream, seen, rest)] if rest else []


def listed(connection: apsw.Connection, limit: int, before: int | None) -> list[Listed]:
    """Sessions, the most recently changed first."""
    mark = (1 << 62) if before is None else before
    found: list[Listed] = []
    for _, id, head, touched, owner, raw in connection.execute(STATEMENTS["sessions_before"], (mark, limit)):
        try:
            row = codec.decode_listing(raw)
        except codec.DecodeError as error:
            raise JournalCorrupt(f"session {id!r}: its row for lists is damaged: {error}") from error
        found.append(Listed(id, head, touched, owner, row))
    return found


def payload(connection: apsw.Connection, hash: Hash) -> bytes:
    row = connection.execute(STATEMENTS["payload"], (hash,)).fetchone()
    if row is None:
        raise UnknownPayload(f"no payload {hash}")
    body: bytes = row[0]
    if sha256(body).hexdigest() != hash:
        raise JournalCorrupt(f"payload {hash} is damaged")
    return body


def stream_end(connection: apsw.Connection, row: SessionRow, stream: Stream) -> int:
    """How long a stream is so far, in code points."""
    tail = connection.execute(STATEMENTS["draft_tail"], (row.n, stream.started, stream.kind)).fetchone()
    if tail is None:
        return 0
    start, raw = tail[2], tail[4]
    return int(start) + len(codec.unescape(raw.decode()))


def bound(connection: apsw.Connection, name: str) -> str | None:
    """The session that an external name is bound to."""
    row = connection.execute(STATEMENTS["session_by_name"], (name,)).fetchone()
    return None if row is None else str(row[0])


def unswept(connection: apsw.Connection) -> bool:
    return connection.execute(STATEMENTS["deletions_unswept"]).fetchone() is not None
