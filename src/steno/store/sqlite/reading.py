"""The read side: pure queries on one connection, each in one snapshot. Writes nothing."""

import contextlib
from collections.abc import Iterator
from hashlib import sha256
from typing import Any
from zlib import crc32

import apsw
import msgspec
from msgspec import Struct

from steno.journal import codec
from steno.journal.drafts import Draft, Stream, sealed_by, streams_of
from steno.journal.facts import Record
from steno.journal.listing import ListingRow
from steno.journal.parts import Hash, Seq
from steno.journal.redaction import redact as without_text
from steno.store.errors import JournalCorrupt, NotAllowed, UnknownPayload, UnknownSession
from steno.store.protocol import Cursor, Event, Keyed, Listed, Piece
from steno.store.sqlite.database import translated
from steno.store.sqlite.rows import SEQ_MAX, as_kind, to_drafts, to_records
from steno.store.sqlite.sql import STATEMENTS
from steno.store.values import expect

PAGE = 1_000
_heads = msgspec.json.Decoder(dict[str, tuple[Seq, int | None]])


class SessionRow(Struct):
    """A row of `sessions`."""

    n: int
    id: str
    name: str | None
    parent: int | None
    base: Seq
    token: int
    owner: str | None
    expires_ms: int
    touched: int
    listing_raw: bytes
    listed: Seq
    crc: int = 0
    owes: int = 0
    memory: int = 0
    head: Seq = 0
    """Of the facts, not of the row."""

    def sum(self) -> int:
        """The checksum that the row should have."""
        plain = (
            f"{self.n} {self.id} {self.name} {self.parent} {self.base} {self.listed} {self.token} "
            f"{self.owner}"
        )
        marks = f"{self.expires_ms} {self.touched} {self.owes} {self.memory}"
        return crc32(self.listing_raw, crc32(f"{plain} {marks}".encode()))

    def listing(self) -> ListingRow:
        try:
            return codec.decode_listing(self.listing_raw)
        except codec.DecodeError as error:
            raise JournalCorrupt(
                f"session {self.id!r}: its row for lists is damaged: {error}"
            ) from error


DUE, KEPT = 1, 2


def memory_mark(listing: ListingRow) -> int:
    """Whether a distillate is due, and whether there is something to remember."""
    return DUE * listing.due() + KEPT * bool(listing.memory.at)


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
            if connection.in_transaction:  # SQLite ends it by itself where the disk fails
                connection.execute("rollback")


def session(connection: apsw.Connection, id: str) -> SessionRow:
    expect(str, session=id)
    row = connection.execute(STATEMENTS["session_by_id"], (codec.escape(id),)).fetchone()
    if row is None:
        if (
            connection.execute(STATEMENTS["session_without_index"], (codec.escape(id),)).fetchone()
            is not None
        ):
            raise JournalCorrupt(
                f"session {id!r} is there, but the index that should find it is damaged"
            )
        raise UnknownSession(id)
    return checked(row)


def checked(row: tuple[Any, ...]) -> SessionRow:
    """A row as it was written, or an error that says that it is damaged."""
    found = SessionRow(*row)
    if not isinstance(row[9], bytes) or found.sum() != found.crc:
        raise JournalCorrupt(f"session {found.id!r}: its row is damaged (checksum differs)")
    if found.head < found.listed:
        raise JournalCorrupt(f"session {found.id!r}: fact {found.head + 1} is missing")
    return found


def segments(connection: apsw.Connection, row: SessionRow) -> list[Segment]:
    """Where the facts of a session lie, oldest first."""
    found = [Segment(row.n, row.base + 1, row.head)]
    while row.parent is not None:
        upto = row.base
        above = connection.execute(STATEMENTS["session_by_n"], (row.parent,)).fetchone()
        if above is None:
            raise JournalCorrupt(f"session {row.id!r}: its parent is missing")
        row = checked(above)
        found.append(Segment(row.n, row.base + 1, upto))
    return found[::-1]


def records(connection: apsw.Connection, row: SessionRow, after: Seq, limit: int) -> list[Record]:
    """Facts after a seq, through the parents of a fork. A gap or a damaged row is an error. Rows
    are fetched whole: who keeps an error must not keep a statement half read, and its connection in
    the past."""
    found: list[Record] = []
    pieces = (
        [Segment(row.n, row.base + 1, row.head)] if after >= row.base else segments(connection, row)
    )
    for piece in pieces:
        if piece.last <= after or len(found) >= limit:
            continue
        start = max(after, piece.first - 1)
        rows = connection.execute(
            STATEMENTS["facts_between"],
            (piece.n, start, piece.last, min(limit - len(found), SEQ_MAX)),
        )
        part = to_records(row.id, piece.n, start + 1, list(rows))
        if len(part) < min(piece.last - start, limit - len(found)):
            missing = start + 1 + len(part)
            raise JournalCorrupt(f"session {row.id!r}: fact {missing} is missing")
        found += part
    return found


def holder(connection: apsw.Connection, row: SessionRow, seq: Seq) -> SessionRow:
    """The session whose own a fact is: the one it is read in, or one that it was forked from."""
    while row.parent is not None and seq <= row.base:
        above = connection.execute(STATEMENTS["session_by_n"], (row.parent,)).fetchone()
        if above is None:
            raise JournalCorrupt(f"session {row.id!r}: its parent is missing")
        row = checked(above)
    return row


def redactable(connection: apsw.Connection, row: SessionRow, target: Seq) -> tuple[str, Seq]:
    """The session and seq of the fact that holds the text of the message at `target`: that one, or
    its sealing fact."""
    row = holder(connection, row, target)
    after = target - 1
    while 0 <= after < row.head:
        page = records(connection, row, after, PAGE)
        for record in page:
            if (record.seq == target or sealed_by(record.fact) == target) and without_text(
                record.fact
            ) is not None:
                return row.id, record.seq
        after = page[-1].seq
    raise NotAllowed(f"session {row.id!r} has no finished message at {target}")


def drafts(connection: apsw.Connection, row: SessionRow) -> list[Draft]:
    return to_drafts(row.id, row.n, connection.execute(STATEMENTS["drafts_of"], (row.n,)))


def since(
    connection: apsw.Connection, id: str, cursor: Cursor, limit: int, with_drafts: bool = True
) -> tuple[list[Event], Cursor]:
    """What a follower at `cursor` has not seen yet, each piece of text once and before the fact
    that seals it."""
    with snapshot(connection):
        row = session(connection, id)
        new = records(connection, row, cursor.seq, limit)
        offsets = dict(cursor.offsets)
        caught_up = with_drafts and (new[-1].seq if new else cursor.seq) == row.head
        pieces = _draft_tails(connection, row, offsets) if caught_up else []
    events = [event for record in new for event in events_of(record, offsets, with_drafts)]
    for piece in pieces:
        offsets[piece.stream] = piece.offset + len(piece.text)
    events += pieces
    return events, Cursor(new[-1].seq if new else cursor.seq, tuple(offsets.items()))


def events_of(record: Record, offsets: dict[Stream, int], with_drafts: bool) -> list[Event]:
    """A fact as a follower sees it: what it lacks of a text that the fact seals, then the fact. Its
    place in a stream that is sealed is forgotten."""
    events: list[Event] = []
    for whole in streams_of(record.fact) if with_drafts else ():
        events += _tail(whole, offsets.get(whole.stream, 0))
    sealed = sealed_by(record.fact)
    for stream in [stream for stream in offsets if stream.started == sealed]:
        del offsets[stream]
    return [*events, record]


def _draft_tails(
    connection: apsw.Connection, row: SessionRow, offsets: dict[Stream, int]
) -> list[Piece]:
    """What open streams hold beyond the offsets; the cost is that of what is new, not of the whole
    streams."""
    found: list[Piece] = []
    at: tuple[int, str] = (0, "")
    while following := connection.execute(STATEMENTS["stream_after"], (row.n, *at)).fetchone():
        at = (int(following[0]), str(following[1]))
        stream = Stream(at[0], as_kind(at[1]))
        seen = offsets.get(stream, 0)
        rows = list(connection.execute(STATEMENTS["draft_from"], (row.n, *at, seen)))
        first: int = rows[0][2]
        for draft in to_drafts(row.id, row.n, rows, {stream: first}):
            found += [Piece(stream, seen, rest)] if (rest := draft.text[seen - first :]) else []
    return found


def heads(connection: apsw.Connection, ids: list[str]) -> dict[str, tuple[Seq, int | None]]:
    """The heads of some sessions, and the tokens of those that are not free. In one row: each row
    hands Python's lock over."""
    row = connection.execute(
        STATEMENTS["heads_of"], (msgspec.json.encode(ids).decode(),)
    ).fetchone()
    return _heads.decode(row[0])  # type: ignore[index]


def _tail(draft: Draft, seen: int) -> list[Piece]:
    rest = draft.text[seen:]
    return [Piece(draft.stream, seen, rest)] if rest else []


def listed(connection: apsw.Connection, limit: int, before: int | None) -> list[Listed]:
    """Sessions, the most recently changed first: those with facts that are in no list row yet, then
    by their rows."""
    mark = (1 << 62) if before is None else before
    upto = connection.execute(STATEMENTS["tops"]).fetchone()[1]  # type: ignore[index]
    fresh: dict[str, int] = dict(connection.execute(STATEMENTS["sessions_since"], (upto,)))
    order = sorted(((top, id) for id, top in fresh.items() if top < mark), reverse=True)[:limit]
    found = [_listed(connection, session(connection, id), top) for top, id in order]
    rows = connection.execute(STATEMENTS["sessions_before"], (mark, limit + len(fresh)))
    while len(found) < limit and (raw := rows.fetchone()) is not None:
        row = checked(raw)
        if row.id in fresh:
            continue
        if row.touched >= mark:
            raise JournalCorrupt(f"session {row.id!r}: the index of lists is damaged")
        mark = row.touched
        found.append(_listed(connection, row, row.touched))
    return found


def owing(connection: apsw.Connection, limit: int, after: int) -> list[Listed]:
    """Sessions that owe something, by number: of those that are marked and those with facts that no
    row has yet."""
    found: list[Listed] = []
    while len(found) < limit and (rows := _may_owe(connection, limit, after)):
        listed = (_listed(connection, row, row.n) for row in rows)
        found += [one for one in listed if one.row.owes()]
        after = rows[-1].n
    return found[:limit]


def _may_owe(connection: apsw.Connection, limit: int, after: int) -> list[SessionRow]:
    upto = connection.execute(STATEMENTS["tops"]).fetchone()[1]  # type: ignore[index]
    marked = [
        checked(raw) for raw in connection.execute(STATEMENTS["sessions_owing"], (after, limit))
    ]
    fresh = connection.execute(STATEMENTS["owing_since"], (upto, after, limit)).fetchall()
    known = {row.n for row in marked}
    marked += [session(connection, str(id)) for n, id in fresh if n not in known]
    return sorted(marked, key=lambda row: row.n)[:limit]


def due(connection: apsw.Connection, limit: int) -> list[Listed]:
    """Sessions that should be distilled, the most recently changed first."""
    found = _by_memory(connection, "sessions_due", limit, None)
    return [one for one in found if one.row.due()][:limit]


def remembered(connection: apsw.Connection, limit: int, before: int | None) -> list[Listed]:
    """Sessions with something to remember, the most recently changed first."""
    found = _by_memory(connection, "sessions_remembered", limit, before)
    return [one for one in found if one.row.memory.at][:limit]


def _by_memory(
    connection: apsw.Connection, name: str, limit: int, before: int | None
) -> list[Listed]:
    """Those that are marked, and those with facts that no row has yet: in order, and at least
    `limit` of the marked."""
    mark = (1 << 62) if before is None else before
    upto = connection.execute(STATEMENTS["tops"]).fetchone()[1]  # type: ignore[index]
    fresh: dict[str, int] = dict(connection.execute(STATEMENTS["sessions_since"], (upto,)))
    found = [
        _listed(connection, session(connection, id), top) for id, top in fresh.items() if top < mark
    ]
    for raw in connection.execute(STATEMENTS[name], (mark, limit + len(fresh))):
        row = checked(raw)
        if row.id not in fresh:
            found.append(_listed(connection, row, row.touched))
    return sorted(found, key=lambda one: one.mark, reverse=True)


def told(connection: apsw.Connection, source: str) -> list[str]:
    """Sessions that may have been told something that another one has to remember."""
    upto = connection.execute(STATEMENTS["tops"]).fetchone()[1]  # type: ignore[index]
    fresh = [str(id) for id, _ in connection.execute(STATEMENTS["sessions_since"], (upto,))]
    quoted = msgspec.json.encode(codec.escape(source)).decode()
    return sorted(
        {*fresh, *(str(id) for (id,) in connection.execute(STATEMENTS["sessions_told"], (quoted,)))}
    )


def of_type(connection: apsw.Connection, row: SessionRow, tag: str) -> list[Record]:
    """A session's own facts of one type."""
    seqs = [int(seq) for (seq,) in connection.execute(STATEMENTS["facts_of_type"], (row.n, tag))]
    return [records(connection, row, seq - 1, 1)[0] for seq in seqs]


def edits(connection: apsw.Connection, row: SessionRow, after: Seq) -> list[Record]:
    """A session's own facts after a seq that hide a message or take turns back, or put them
    back."""
    seqs = [int(seq) for (seq,) in connection.execute(STATEMENTS["edits_since"], (row.n, after))]
    return [records(connection, row, seq - 1, 1)[0] for seq in seqs]


def _listed(connection: apsw.Connection, row: SessionRow, touched: int) -> Listed:
    return Listed(row.id, row.head, touched, row.owner, listing(connection, row))


def listing(connection: apsw.Connection, row: SessionRow) -> ListingRow:
    """The row for lists as it is now: what is stored of it, and the facts since."""
    found = row.listing()
    for record in records(connection, row, row.listed, SEQ_MAX):
        found.apply(record)
    return found


def payload(connection: apsw.Connection, hash: Hash) -> bytes:
    expect(str, payload=hash)
    row = connection.execute(STATEMENTS["payload"], (codec.escape(hash),)).fetchone()
    if (
        row is None
        and connection.execute(STATEMENTS["payload_owned"], (codec.escape(hash),)).fetchone()
    ):
        raise JournalCorrupt(f"payload {hash} is missing")
    if row is None:
        raise UnknownPayload(f"no payload {hash}")
    body: bytes = row[0]
    if type(row[0]) is not bytes or sha256(body).hexdigest() != hash:
        raise JournalCorrupt(f"payload {hash} is damaged")
    return body


def stream_end(connection: apsw.Connection, row: SessionRow, stream: Stream) -> int:
    """How long a stream is so far, in code points."""
    tail = connection.execute(
        STATEMENTS["draft_tail"], (row.n, stream.started, stream.kind)
    ).fetchone()
    if tail is None:
        return 0
    start, raw = tail[2], tail[4]
    return int(start) + len(codec.unescape(raw.decode()))


def bound(connection: apsw.Connection, name: str) -> str | None:
    """The session that an external name is bound to."""
    expect(str, name=name)
    row = connection.execute(STATEMENTS["session_by_name"], (codec.escape(name),)).fetchone()
    return None if row is None else str(row[0])


def was_deleted(connection: apsw.Connection, id: str) -> bool:
    return connection.execute(STATEMENTS["deletion"], (codec.escape(id),)).fetchone() is not None


def unswept(connection: apsw.Connection) -> list[str]:
    """Deleted sessions of which something may be left."""
    return [str(id) for (id,) in connection.execute(STATEMENTS["deleted_unswept"])]


def arriving(connection: apsw.Connection) -> list[tuple[int, int, str]]:
    """Imports that are not done: number, since when, by whom; by nobody if they failed."""
    return [
        (int(n), int(at_ms), str(owner))
        for n, at_ms, owner in connection.execute(STATEMENTS["imports_open"])
    ]


def imported(connection: apsw.Connection, row: SessionRow) -> Seq:
    """Up to which seq the facts of a session came from another store."""
    found = connection.execute(STATEMENTS["imported"], (codec.escape(row.id),)).fetchone()
    return 0 if found is None else int(found[0])


def keys_added(connection: apsw.Connection, row: SessionRow, source: str) -> list[Keyed]:
    found = connection.execute(STATEMENTS["keys_added"], (row.n, codec.escape(source)))
    return [Keyed(int(seq), codec.unescape(str(key)), int(count)) for key, seq, count in found]


def family(connection: apsw.Connection, row: SessionRow, seq: Seq) -> list[SessionRow]:
    """A session and all forks that have its fact `seq`."""
    found = [row]
    for member in found:
        children = connection.execute(STATEMENTS["children_of"], (member.n,)).fetchall()
        found += [
            heir for (child,) in children if (heir := session(connection, str(child))).base >= seq
        ]
    return found
