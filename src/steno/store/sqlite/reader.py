"""The read side: the questions of a snapshot as queries on one connection. Writes nothing.

Rows are fetched whole: an error that a caller keeps must not keep a statement half read, and its
connection in the past.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from steno.journal import codec
from steno.journal.drafts import Stream
from steno.journal.facts import Record
from steno.journal.parts import Hash, Seq, hash_of
from steno.store.backend import (
    SEQ_MAX,
    Behind,
    ChangeRow,
    ImportRow,
    KeyRow,
    SessionRow,
)
from steno.store.errors import JournalCorrupt
from steno.store.protocol import Damage, Keyed, Mark, Piece, Report
from steno.store.rows import (
    as_kind,
    to_added,
    to_change,
    to_drafts,
    to_records,
    to_session,
)
from steno.store.sqlite.database import translated
from steno.store.sqlite.sql import STATEMENTS

if TYPE_CHECKING:
    from apsw import SQLiteValue

_PAGE = 200
_heads = msgspec.json.Decoder(dict[str, tuple[Seq, int | None]])
_SUFFIX: dict[Mark | None, str] = {
    None: "",
    "owes": "_owes",
    "unfinished": "_unfinished",
    "due": "_due",
    "remembers": "_remembers",
}


class Reader:
    """See `Snapshot` for what the questions mean."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection

    @contextlib.contextmanager
    def moment(self) -> "Iterator[Reader]":
        """Everything asked inside is of one moment."""
        with translated("cannot read the store"):
            self.connection.execute("begin")
            try:
                yield self
            finally:
                if (
                    self.connection.in_transaction
                ):  # SQLite ends it by itself where the disk fails
                    self.connection.execute("rollback")

    def one(self, name: str, *values: "SQLiteValue") -> tuple[Any, ...] | None:
        return self.connection.execute(STATEMENTS[name], values).fetchone()

    def all(self, name: str, *values: "SQLiteValue") -> list[tuple[Any, ...]]:
        return self.connection.execute(STATEMENTS[name], values).fetchall()

    # --- sessions

    def session(self, of: str | int) -> SessionRow | None:
        if isinstance(of, int):
            raw = self.one("session_by_n", of)
            return None if raw is None else to_session(raw)
        raw = self.one("session_by_id", codec.escape(of))
        if raw is not None:
            return to_session(raw)
        if self.one("session_without_index", codec.escape(of)) is not None:
            raise JournalCorrupt(
                f"session {of!r} is there, but the index that should find it is damaged"
            )
        return None

    def forks(self, n: int) -> list[SessionRow]:
        return [to_session(raw) for raw in self.all("forks_of", n)]

    def bound(self, name: str) -> str | None:
        row = self.one("session_by_name", codec.escape(name))
        return None if row is None else str(row[0])

    def named(self, prefix: str, after: str, limit: int) -> list[str]:
        begin = codec.escape(prefix)
        found = self.all(
            "sessions_named",
            begin,
            begin + chr(sys.maxunicode),
            codec.escape(after),
            limit,
        )
        return [str(row[0]) for row in found]

    def rows(
        self, mark: Mark | None, limit: int, before: int | None = None, after: int = 0
    ) -> Iterator[SessionRow]:
        if before is None:
            yield from map(
                to_session, self.all("numbered_after" + _SUFFIX[mark], after, limit)
            )
            return
        rows = self.connection.execute(
            STATEMENTS["changed_before" + _SUFFIX[mark]], (before, limit)
        )
        with contextlib.closing(rows):
            while (raw := rows.fetchone()) is not None:
                row = to_session(raw)
                if row.touched >= before:
                    raise JournalCorrupt(
                        f"session {row.id!r}: the index of lists is damaged"
                    )
                before = row.touched
                yield row

    def behind(self, kinds: Sequence[str] = ()) -> list[Behind]:
        found = self.all("behind_with", _json(kinds)) if kinds else self.all("behind")
        return [Behind(*row) for row in found]

    def changes(self, after: int, limit: int, facts: bool = True) -> list[ChangeRow]:
        noted = [to_change(row) for row in self.all("changes_after", after, limit)]
        if not facts:
            return noted
        added = [to_added(row) for row in self.all("facts_after", after, limit)]
        return sorted((*added, *noted), key=lambda row: row.place)[:limit]

    def last_place(self) -> int:
        [(last, _)] = self.all("tops")
        return int(last)

    def told(self, source: str) -> list[str]:
        return [
            str(id)
            for (id,) in self.all("sessions_told", _json(codec.escape(source)))
        ]

    def heads(self, ids: Sequence[str]) -> dict[str, tuple[Seq, int | None]]:
        """In one row: each row hands Python's lock over."""
        [[found]] = self.all("heads_of", _json(ids))
        return _heads.decode(found)

    # --- facts and drafts

    def facts(
        self,
        row: SessionRow,
        n: int,
        after: Seq,
        upto: Seq,
        kinds: Sequence[str],
        limit: int,
    ) -> list[Record]:
        limit = min(limit, SEQ_MAX)
        if kinds:
            rows = self.all("facts_with", n, after, upto, _json(kinds), limit)
            return to_records(row.id, n, rows)
        rows = self.all("facts_between", n, after, upto, limit)
        found = to_records(row.id, n, rows, after + 1)
        if len(found) < min(upto - after, limit):
            raise JournalCorrupt(
                f"session {row.id!r}: fact {after + 1 + len(found)} is missing"
            )
        return found

    def facts_at(
        self, places: Mapping[str, Sequence[Seq]]
    ) -> dict[tuple[str, Seq], Record]:
        wanted = _json([(codec.escape(id), seqs) for id, seqs in places.items()])
        found: dict[tuple[str, Seq], Record] = {}
        for id, n, *row in self.all("facts_at", wanted):
            [record] = to_records(id, n, [(row[0], row[1], row[2], row[3])])
            found[codec.unescape(id), record.seq] = record
        return found

    def drafts(
        self, row: SessionRow, seen: Mapping[Stream, int], started: Seq | None = None
    ) -> list[Piece]:
        if seen:
            return self._tails(row, seen)
        if started is None:
            rows = self.all("drafts_of", row.n)
        else:
            rows = self.all("drafts_of_stream", row.n, started)
        return [
            Piece(draft.stream, 0, draft.text)
            for draft in to_drafts(row.id, row.n, rows)
        ]

    def _tails(self, row: SessionRow, seen: Mapping[Stream, int]) -> list[Piece]:
        """The cost is that of what is new, not of the whole streams."""
        found: list[Piece] = []
        at: tuple[int, str] = (0, "")
        while following := self.one("stream_after", row.n, *at):
            at = (int(following[0]), str(following[1]))
            stream = Stream(at[0], as_kind(at[1]))
            offset = seen.get(stream, 0)
            rows = self.all("draft_from", row.n, *at, offset)
            first: int = rows[0][2]
            [draft] = to_drafts(row.id, row.n, rows, {stream: first})
            if text := draft.text[offset - first :]:
                found.append(Piece(stream, offset, text))
        return found

    # --- keys and payloads

    def streaming(self) -> list[str]:
        return [codec.unescape(id) for (id,) in self.all("streaming")]

    def key(self, source: str, key: str) -> KeyRow | None:
        row = self.one("key", codec.escape(source), codec.escape(key))
        return None if row is None else KeyRow(*row)

    def keys(self, n: int, source: str) -> list[Keyed]:
        found = self.all("keys_added", n, codec.escape(source))
        return [Keyed(seq, codec.unescape(key), count) for key, seq, count in found]

    def payload(self, hash: Hash, length: int | None = None) -> bytes | None:
        if length is not None:
            return self._payload_head(hash, length)
        row = self.one("payload", codec.escape(hash))
        if row is None:
            if self.one("payload_owned", codec.escape(hash)):
                raise JournalCorrupt(f"payload {hash} is missing")
            return None
        body = row[0]
        if type(body) is not bytes or hash_of(body) != hash:
            raise JournalCorrupt(f"payload {hash} is damaged")
        return body

    def _payload_head(self, hash: Hash, length: int) -> bytes | None:
        if length == 0:
            return (
                None
                if self.one("payload_exists", codec.escape(hash)) is None
                else b""
            )
        row = self.one("payload_head", length, codec.escape(hash))
        return None if row is None else row[0]

    # --- removals and imports

    def deleted(self, id: str) -> bool:
        return self.one("deletion", codec.escape(id)) is not None

    def imported(self, id: str) -> Seq | None:
        row = self.one("imported", codec.escape(id))
        return None if row is None else row[0]

    def unfinished(self) -> tuple[list[str], list[ImportRow]]:
        deleted = [str(id) for (id,) in self.all("deleted_unswept")]
        return deleted, [ImportRow(*row) for row in self.all("imports_open")]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


# --- looking at everything ------------------------------------------------------------------------


def verified(connection: apsw.Connection) -> Report:
    from steno.store import verify  # loaded where everything is looked at

    reader = Reader(connection)
    return verify.verify(reader.moment, sessions(reader), damage(reader))


def sessions(reader: Reader) -> Iterator[str]:
    after = -1
    try:
        while page := reader.all("session_ids", after, _PAGE):
            for n, id in page:
                after = _onward(after, n)
                yield str(id)
    except (apsw.Error, UnicodeDecodeError) as error:
        raise JournalCorrupt(str(error)) from error


def damage(reader: Reader) -> Iterator[Damage]:
    """Pages, references between tables, payloads. A look that cannot even be finished is damage
    too, and the next one is made all the same."""
    looks: tuple[Callable[[Reader], Iterator[Damage]], ...] = (
        _pages,
        _dangling,
        _payloads,
        _changes,
    )
    for look in looks:
        try:
            yield from look(reader)
        except (apsw.Error, UnicodeDecodeError, JournalCorrupt) as error:
            yield Damage("database", str(error))


def _pages(reader: Reader) -> Iterator[Damage]:
    for (said,) in reader.connection.execute("pragma integrity_check(100)"):
        if said != "ok":
            yield Damage("database", str(said))


def _dangling(reader: Reader) -> Iterator[Damage]:
    for source, key in reader.all("keys_dangling"):
        yield Damage(
            f"key {key!r} of {source!r}", "refers to a fact that does not exist"
        )
    for session, started in reader.all("drafts_dangling"):
        yield Damage(
            f"draft of fact {started}, session number {session}", "belongs to no fact"
        )
    for (n,) in reader.all("facts_dangling"):
        yield Damage(f"facts of session number {n}", "belong to no session")
    for (hash,) in reader.all("payloads_dangling"):
        yield Damage(f"payload {hash}", "is missing")


def _changes(reader: Reader) -> Iterator[Damage]:
    """What was noted is of something that is there, and has a place of its own."""
    after = 0
    while page := reader.all("changes_after", after, _PAGE):
        for row in page:
            after = _onward(after, row[0])
            to_change(row)
    if after > reader.last_place():
        yield Damage(
            "the feed of changes", f"change {after} has a place that was not given"
        )
    for (place,) in reader.all("changes_of_facts"):
        yield Damage("the feed of changes", f"change {place} has the place of a fact")
    for (id,) in reader.all("imports_untold"):
        yield Damage("the feed of changes", f"lacks that session {id!r} was imported")


def _payloads(reader: Reader) -> Iterator[Damage]:
    after = -1
    while row := reader.one("payloads_after", after):
        n, hash, body = row
        after = _onward(after, n)
        if type(body) is not bytes or hash_of(body) != hash:
            yield Damage(f"payload {hash}", "does not match its hash")


def _onward(after: int, n: object) -> int:
    """In a damaged tree rows may come in any order, for ever."""
    if not isinstance(n, int) or n <= after:
        raise JournalCorrupt(f"row {n} comes after row {after}")
    return n
