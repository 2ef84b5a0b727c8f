"""The read side: the questions of a snapshot as queries on one connection. Writes nothing.

A snapshot begins with its first question: one that is never asked costs nothing.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import psycopg

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
from steno.store.errors import JournalCorrupt, StoreLocked
from steno.store.postgres.database import Connected, is_lost
from steno.store.protocol import Damage, Keyed, Mark, Piece
from steno.store.rows import (
    FactRow,
    as_kind,
    marks_in,
    session_crc,
    to_added,
    to_change,
    to_drafts,
    to_records,
)

CHUNK = 1 << 20
_PAGE = 200

Values = Sequence[Any] | Mapping[str, Any]
_SETTLE_S = 10.0
_SETTLE_PAUSE_S = 0.002
_SUFFIX: dict[Mark | None, str] = {
    None: "",
    "owes": "_owes",
    "unfinished": "_unfinished",
    "due": "_due",
    "remembers": "_remembers",
}


class Stamped(SessionRow):
    """`stamp` grows when anything of a session is changed but the end of its facts."""

    stamp: int = 0


def to_row(raw: tuple[Any, ...]) -> Stamped:
    """A session's row as it was written, or an error that says that it is damaged."""
    n, id, name, parent, base, token, owner, touched, listed, listing, crc, *rest = (
        raw
    )
    owes, memory, head, stamp = rest
    marks = marks_in(owes, memory)
    if marks is not None:
        bound = None if name is None else codec.unescape(name)
        row = Stamped(
            n,
            id,
            bound,
            parent,
            base,
            0,
            None,
            0,
            0,
            listed,
            listing.encode(),
            marks,
            head,
            stamp,
        )
        if session_crc(row) == crc:
            if head < listed:
                raise JournalCorrupt(f"session {id!r}: fact {head + 1} is missing")
            row.token, row.owner, row.touched = token, owner, touched
            return row
    raise JournalCorrupt(f"session {id!r}: its row is damaged (checksum differs)")


def fact_rows(raw: Sequence[tuple[Any, ...]]) -> list[FactRow]:
    return [(seq, at_ms, crc, body.encode()) for seq, at_ms, crc, body in raw]


class Horizon:
    """Up to which place every change is settled.

    A place is given before its commit, so of two the later may be seen first. What was given at
    some moment is settled once every transaction that had begun by then has ended.

        given 7 · transactions up to 120 have begun      places up to 7 are settled when
        none below 120 runs any more                     <- this is seen
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque(maxlen=1_000)
        self.place = 0

    def note(self, given: int, begun: int) -> None:
        self._seen.append((given, begun))

    def reach(self, oldest: int) -> int:
        while self._seen and self._seen[0][1] <= oldest:
            self.place = max(self.place, self._seen.popleft()[0])
        return self.place


class Reader:
    """See `Snapshot` for what the questions mean."""

    begins = b"begin isolation level repeatable read, read only"

    def __init__(
        self,
        connect: Callable[[float], Connected],
        statements: Mapping[str, bytes],
        wait_s: float,
    ) -> None:
        self.connection = connect(wait_s)
        self.statements = statements
        self._connect, self.wait_s = connect, wait_s
        self.begun = False
        self._horizon = Horizon()

    def one(self, name: str, *values: object) -> tuple[Any, ...] | None:
        return self._ask(name, values).fetchone()

    def all(self, name: str, *values: object) -> list[tuple[Any, ...]]:
        return self._ask(name, values).fetchall()

    def _ask(self, name: str, values: Values) -> "psycopg.Cursor[tuple[Any, ...]]":
        if self.begun:
            return self._run(name, values)
        try:
            return self._begin_with(name, values)
        except psycopg.Error as error:
            self._reconnect(error)
            return self._begin_with(name, values)

    def _begin_with(
        self, name: str, values: Values
    ) -> "psycopg.Cursor[tuple[Any, ...]]":
        with self.connection.pipeline():
            self.connection.execute(self.begins)
            cursor = self._run(name, values)
        self.begun = True
        return cursor

    def at_once(
        self, name: str, values: Values = ()
    ) -> "psycopg.Cursor[tuple[Any, ...]]":
        """Outside of any transaction, if none was begun."""
        try:
            return self._run(name, values)
        except psycopg.Error as error:
            self._reconnect(error)
            return self._run(name, values)

    def _run(self, name: str, values: Values) -> "psycopg.Cursor[tuple[Any, ...]]":
        return self.connection.execute(self.statements[name], values)

    def _reconnect(self, error: psycopg.Error) -> None:
        """A server that was restarted has forgotten us: nothing was asked yet, so ask anew."""
        if self.begun or not is_lost(error):
            raise error
        self.connection.close()
        self.connection = self._connect(self.wait_s)

    def end(self) -> None:
        if self.begun:
            self.begun = False
            self.connection.execute("rollback")

    # --- sessions

    def session(self, of: str | int) -> SessionRow | None:
        if isinstance(of, int):
            raw = self.one("session_by_n", of)
        else:
            raw = self.one("session_by_id", codec.escape(of))
        return None if raw is None else to_row(raw)

    def forks(self, n: int) -> list[SessionRow]:
        return [to_row(raw) for raw in self.all("forks_of", n)]

    def bound(self, name: str) -> str | None:
        row = self.one("session_by_name", codec.escape(name))
        return None if row is None else str(row[0])

    def named(self, prefix: str, after: str, limit: int) -> list[str]:
        begin, above = codec.escape(prefix), codec.escape(after)
        return [
            str(row[0]) for row in self.all("sessions_named", begin, above, limit)
        ]

    def rows(
        self, mark: Mark | None, limit: int, before: int | None = None, after: int = 0
    ) -> Iterator[SessionRow]:
        limit = max(limit, 0)
        if before is None:
            found = self.all("numbered_after" + _SUFFIX[mark], after, limit)
        else:
            found = self.all("changed_before" + _SUFFIX[mark], before, limit)
        yield from map(to_row, found)

    def behind(self, kinds: Sequence[str] = ()) -> list[Behind]:
        found = self.all("behind_with", list(kinds)) if kinds else self.all("behind")
        return [Behind(*row) for row in found]

    # --- the feed

    def changes(self, after: int, limit: int, facts: bool = True) -> list[ChangeRow]:
        upto = self._horizon.place
        noted = [
            to_change(row) for row in self.all("changes_after", after, upto, limit)
        ]
        if not facts:
            return noted
        added = [
            to_added((*row[:-1], None if row[-1] is None else row[-1].encode()))
            for row in self.all("facts_after", after, upto, limit)
        ]
        return sorted((*added, *noted), key=lambda row: row.place)[:limit]

    def last_place(self) -> int:
        """As the first question of a snapshot it waits until all that was given is settled."""
        if self.begun:
            return self._horizon.place
        until = time.monotonic() + _SETTLE_S
        given: int | None = None
        while time.monotonic() < until:
            [(now,)] = self.at_once("given").fetchall()
            given = now if given is None else given
            [(oldest, begun)] = self.all("snapshot")
            self._horizon.note(now, begun)
            if self._horizon.reach(oldest) >= given:
                return self._horizon.place
            self.end()
            time.sleep(_SETTLE_PAUSE_S)
        raise StoreLocked(
            "a transaction on the database server has been writing for too long"
        )

    def told(self, source: str) -> list[str]:
        said = msgspec.json.encode(codec.escape(source)).decode()
        return [str(id) for (id,) in self.all("sessions_told", said)]

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
        limit = max(min(limit, SEQ_MAX), 0)
        if kinds:
            found = self.all("facts_with", n, after, upto, list(kinds), limit)
            return to_records(row.id, n, fact_rows(found))
        rows = self.all("facts_between", n, after, upto, limit)
        records = to_records(row.id, n, fact_rows(rows), after + 1)
        if len(records) < min(upto - after, limit):
            raise JournalCorrupt(
                f"session {row.id!r}: fact {after + 1 + len(records)} is missing"
            )
        return records

    def facts_at(
        self, places: Mapping[str, Sequence[Seq]]
    ) -> dict[tuple[str, Seq], Record]:
        wanted = [
            (codec.escape(id), seq) for id, seqs in places.items() for seq in seqs
        ]
        ids, seqs = [id for id, _ in wanted], [seq for _, seq in wanted]
        found: dict[tuple[str, Seq], Record] = {}
        for id, n, *row in self.all("facts_at", ids, seqs):
            [record] = to_records(id, n, fact_rows([tuple(row)]))
            found[codec.unescape(id), record.seq] = record
        return found

    def streaming(self) -> list[str]:
        return [codec.unescape(id) for (id,) in self.all("streaming")]

    def drafts(
        self, row: SessionRow, seen: Mapping[Stream, int], started: Seq | None = None
    ) -> list[Piece]:
        if seen:
            return self._tails(row, seen)
        if started is None:
            rows = self.all("drafts_of", row.n)
        else:
            rows = self.all("drafts_of_stream", row.n, started)
        return [Piece(draft.stream, 0, draft.text) for draft in _drafts(row, rows)]

    def _tails(self, row: SessionRow, seen: Mapping[Stream, int]) -> list[Piece]:
        """The cost is that of what is new, not of the whole streams."""
        found: list[Piece] = []
        for started, kind in self.all("streams_of", row.n):
            stream = Stream(started, as_kind(kind))
            offset = seen.get(stream, 0)
            asked = {"n": row.n, "started": started, "kind": kind, "offset": offset}
            rows = self._ask("draft_from", asked).fetchall()
            first: int = rows[0][2]
            [draft] = _drafts(row, rows, {stream: first})
            if text := draft.text[offset - first :]:
                found.append(Piece(stream, offset, text))
        return found

    # --- keys and payloads

    def key(self, source: str, key: str) -> KeyRow | None:
        row = self.one("key", codec.escape(source), codec.escape(key))
        return None if row is None else KeyRow(*row)

    def keys(self, n: int, source: str) -> list[Keyed]:
        found = self.all("keys_added", n, codec.escape(source))
        return [Keyed(seq, codec.unescape(key), count) for key, seq, count in found]

    def payload(self, hash: Hash, length: int | None = None) -> bytes | None:
        named = codec.escape(hash)
        size = self.one("payload_size", named)
        if size is None:
            if length is None and self.one("payload_owned", named):
                raise JournalCorrupt(f"payload {hash} is missing")
            return None
        wanted = size[0] if length is None else min(length, size[0])
        pieces = self.all("chunks", named, -(-wanted // CHUNK)) if wanted else []
        body = b"".join(piece for (piece,) in pieces)
        if length is not None:
            return body[:length]
        if hash_of(body) != hash:
            raise JournalCorrupt(f"payload {hash} is damaged")
        return body

    # --- removals and imports

    def deleted(self, id: str) -> bool:
        return self.one("deletion", codec.escape(id)) is not None

    def imported(self, id: str) -> Seq | None:
        row = self.one("imported", codec.escape(id))
        return None if row is None else row[0]

    def unfinished(self) -> tuple[list[str], list[ImportRow]]:
        deleted = [str(id) for (id,) in self.all("deleted_unswept")]
        return deleted, [ImportRow(*row) for row in self.all("imports_open")]


def _drafts(
    row: SessionRow,
    rows: Sequence[tuple[Any, ...]],
    starts: dict[Stream, int] | None = None,
) -> list[Any]:
    encoded = [
        (started, kind, at, crc, text.encode())
        for started, kind, at, crc, text in rows
    ]
    return to_drafts(row.id, row.n, encoded, starts)


# --- looking at everything ------------------------------------------------------------------------


def sessions(reader: Reader) -> Iterator[str]:
    after = -1
    while page := reader.all("session_ids", after, _PAGE):
        for n, id in page:
            after = n
            yield str(id)


def damage(reader: Reader) -> Iterator[Damage]:
    """References between tables, payloads, the feed. A look that cannot even be finished is damage
    too, and the next one is made all the same."""
    looks: tuple[Callable[[Reader], Iterator[Damage]], ...] = (
        _dangling,
        _payloads,
        _changes,
    )
    for look in looks:
        try:
            yield from look(reader)
        except JournalCorrupt as error:
            yield Damage("database", str(error))


def _dangling(reader: Reader) -> Iterator[Damage]:
    for source, key in reader.all("keys_dangling"):
        yield Damage(
            f"key {key!r} of {source!r}", "refers to a fact that does not exist"
        )
    for session, started in reader.all("drafts_dangling"):
        yield Damage(
            f"draft of fact {started}, session number {session}", "belongs to no fact"
        )
    for (n,) in (*reader.all("facts_dangling"), *reader.all("heads_dangling")):
        yield Damage(f"facts of session number {n}", "belong to no session")
    for (n,) in reader.all("work_dangling"):
        yield Damage(f"work in session number {n}", "belongs to no session")
    for (id,) in reader.all("work_missing"):
        yield Damage(
            f"session {id!r}", "has something to run, but is not in the ready queue"
        )
    for (id,) in reader.all("heads_wrong"):
        yield Damage(
            f"session {id!r}",
            "its last fact is not the one that is noted as its head",
        )


def _changes(reader: Reader) -> Iterator[Damage]:
    """What was noted is of something that is there, and has a place of its own."""
    after = 0
    while page := reader.all("changes_after", after, 1 << 62, _PAGE):
        for row in page:
            after = row[0]
            to_change(row)
    for (place,) in reader.all("changes_of_facts"):
        yield Damage("the feed of changes", f"change {place} has the place of a fact")
    for (id,) in reader.all("imports_untold"):
        yield Damage("the feed of changes", f"lacks that session {id!r} was imported")


def _payloads(reader: Reader) -> Iterator[Damage]:
    after = -1
    while row := reader.one("payloads_after", after):
        after, hash = row
        try:
            reader.payload(hash)
        except JournalCorrupt:
            yield Damage(f"payload {hash}", "does not match its hash")
