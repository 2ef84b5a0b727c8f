"""The write side: what one transaction after another on one connection can do.

What verbs add is collected and written in few statements when the batch is flushed: each step of
SQLite hands Python's lock over, so a batch must be few steps. Sessions are remembered from batch to
batch; when another process has written, which SQLite's data version tells, each is looked at again
before it is used.

A session's row is written when its lease changes and when lists are brought up to date, not with
every fact.

A verb checks first and adds after: once it has added anything it may not refuse. That is what lets
one refused verb stand in a batch beside others.
"""

from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import apsw
from msgspec.structs import replace

from steno.journal import codec
from steno.journal.drafts import Draft, Stream, sealed_by
from steno.journal.facts import AnyFact, Record, StepStarted, ToolStarted, payloads_of
from steno.journal.listing import ListingRow
from steno.journal.parts import Hash, Seq
from steno.store.errors import LeaseLost, NotAllowed, UnknownPayload, UnknownSession
from steno.store.protocol import Event, Lease, Piece
from steno.store.sqlite import reading
from steno.store.sqlite.reading import SessionRow
from steno.store.sqlite.rows import SEQ_MAX, draft_crc, fact_crc, to_drafts
from steno.store.sqlite.sql import STATEMENTS, ManyRows
from steno.store.sqlite.turnstile import Turns
from steno.store.values import STREAM_CHARS_MAX, check_lease, check_stream, encoded, expect

if TYPE_CHECKING:
    from apsw import SQLiteValue

FOREIGN_MAX = 10_000
LISTS_BEHIND_MAX = 512
"""How many facts a reader of a list may have to take in by itself."""
_REMEMBERED_MAX = 10_000

Written = tuple[AnyFact, bytes, tuple[Hash, ...]]
"""A fact, its bytes, and the payloads it names."""

Changes = dict[str, list[Event] | None]
"""The sessions that a commit changed: by the facts and the text that it added, in order, or, where
those do not say all, by None."""

_INSERT_FACTS = ManyRows("insert_facts", 6)
_INSERT_DRAFTS = ManyRows("insert_drafts", 6)
_SAVE_SESSIONS = ManyRows("save_sessions", 12)
_MOVE_SESSIONS = ManyRows("move_sessions", 12)


class Session:
    """A session while it is being written to: its row, and what its facts have made of it."""

    __slots__ = ("ends", "listing", "looked", "moved", "row", "streams")

    def __init__(self, row: SessionRow, looked: int) -> None:
        self.row = row
        self.looked = looked
        self.listing: ListingRow = row.listing()
        self.ends: dict[Stream, int] = {}
        self.streams: set[Seq] | None = None
        """The facts that have drafts; None if nobody has looked."""
        self.moved = False


class Transaction:
    """Begins, collects, flushes, commits; then the same again."""

    def __init__(self, connection: apsw.Connection, turnstile: Turns) -> None:
        self.connection = connection
        self._cursor = (
            connection.cursor()
        )  # for what gives no rows: a cursor for each statement would cost more
        self.turnstile = turnstile
        self.changes: Changes = {}
        self._sessions: dict[str, Session] = {}
        self._dirty: dict[str, Session] = {}
        self._facts: list[tuple[int, int, Seq, int, int, str]] = []
        self._drafts: dict[tuple[int, Stream], tuple[int, list[str]]] = {}
        self._version = -1
        self._look = 0
        self._top = self._upto = 0

    # --- the frame

    def begin(self) -> None:
        self.turnstile.enter()
        self._cursor.execute("begin immediate")
        self.changes = {}
        if len(self._sessions) > _REMEMBERED_MAX:
            self._sessions.clear()
        if self.connection.data_version() != self._version:
            self._look += 1
            tops: tuple[int, int] = self.one("tops")  # type: ignore[assignment]
            self._top, self._upto = max(tops), tops[1]

    def flush(self) -> None:
        """Write what was collected. The transaction can be committed after it, or go on."""
        if self._facts:
            self._flush_facts()
        if self._drafts:
            self._flush_drafts()
        if self._top - self._upto >= LISTS_BEHIND_MAX:
            self._update_lists()
        if self._dirty:
            self._flush_sessions()

    def commit(self) -> None:
        self._cursor.execute("commit")
        self._version = self.connection.data_version()
        self.turnstile.leave()

    def rollback(self) -> None:
        """Forget everything: what was collected, and what was remembered of the rows it changed.
        Whether any of it is stored, only a look can tell."""
        self.changes = dict.fromkeys(self.changes)
        self._version = -1
        self._sessions.clear()
        self._dirty.clear()
        self._facts.clear()
        self._drafts.clear()
        if self.connection.in_transaction:
            self.connection.execute("rollback")
        self.turnstile.leave()

    def run(self, name: str, values: "Sequence[SQLiteValue]" = ()) -> None:
        self.connection.execute(STATEMENTS[name], values).fetchall()

    def one(
        self, name: str, values: "Sequence[SQLiteValue]" = ()
    ) -> "tuple[SQLiteValue, ...] | None":
        return self.connection.execute(STATEMENTS[name], values).fetchone()

    # --- sessions

    def session(self, id: str) -> Session:
        expect(str, session=id)
        found = self._sessions.get(id)
        if found is None or found.looked != self._look:
            found = self._sessions[id] = self._looked_up(id, found)
        return found

    def _looked_up(self, id: str, known: Session | None) -> Session:
        """A session as it is now. What is known of it is kept if its row is as it was; then only
        new facts are read."""
        row = reading.session(self.connection, id)
        if known is not None and replace(known.row, head=row.head) == row:
            after, known.row.head, known.looked = known.row.head, row.head, self._look
        else:
            after, known = row.listed, Session(row, self._look)
        if row.head > after:
            for record in reading.records(self.connection, row, after, SEQ_MAX):
                known.listing.apply(record)
        return known

    def exists(self, id: str) -> bool:
        try:
            return self.session(id) is not None
        except UnknownSession:
            return False

    def owned(self, lease: Lease) -> Session:
        """The session of a lease that is still good."""
        check_lease(lease)
        try:
            found = self.session(lease.session)
        except UnknownSession:
            raise LeaseLost(lease.session, lease.token) from None
        if found.row.token != lease.token or found.row.owner != lease.owner:
            raise LeaseLost(lease.session, lease.token)
        return found

    def make(
        self, id: str, name: str | None, parent: int | None, base: Seq, listing: ListingRow
    ) -> Session:
        bound = None if name is None else codec.escape(name)
        raw = codec.encode(listing)
        touched = self._top + 1  # the id that its first fact will have: no other session has it
        values = (id, bound, parent, base, touched, raw.decode(), base)
        n = self.one("insert_session", values)[0]  # type: ignore[index]
        row = SessionRow(n, id, bound, parent, base, 0, None, 0, touched, raw, base, head=base)  # type: ignore[arg-type]
        made = self._sessions[id] = Session(row, self._look)
        made.streams = set()
        self.save(made)
        return made

    def save(self, session: Session) -> None:
        """Have the row written with the next flush."""
        self._dirty[session.row.id] = session
        self.changes.setdefault(session.row.id, [])

    def forget(self, id: str) -> None:
        self._sessions.pop(id, None)
        self._dirty.pop(id, None)
        self.changes[id] = None

    # --- facts

    def written(self, facts: Iterable[AnyFact], brought: Container[Hash] = ()) -> list[Written]:
        """Facts as they will be stored, once it is sure that they can be."""
        ready = []
        for fact in facts:
            body = encoded(fact)
            hashes = payloads_of(fact)
            for hash in hashes:
                if (
                    hash not in brought
                    and self.one("payload_exists", (codec.escape(hash),)) is None
                ):
                    raise UnknownPayload(f"no payload {hash}; put it before the fact that names it")
            ready.append((fact, body, hashes))
        return ready

    def insert(self, session: Session, facts: Sequence[Written], at_ms: int) -> Seq:
        """Add facts at the head; the seq of the first."""
        row, listing = session.row, session.listing
        first = row.head + 1
        if row.head + len(facts) > SEQ_MAX:
            raise NotAllowed(f"session {row.id!r} is full")
        for fact, body, hashes in facts:
            row.head = seq = row.head + 1
            self._top += 1
            self._facts.append(
                (self._top, row.n, seq, at_ms, fact_crc(row.n, seq, at_ms, body), body.decode())
            )
            record = Record(seq, at_ms, fact)
            listing.apply(record)
            self._tell(row.id, record)
            for hash in hashes:
                self.run("own_payload", (hash, row.n, 1))
        return first

    def _tell(self, id: str, event: Event) -> None:
        added = self.changes.setdefault(id, [])
        if added is not None:
            added.append(event)

    def place(self, n: int, facts: "Iterable[tuple[Record, bytes, tuple[Hash, ...]]]") -> int:
        """Add facts of a session that is not there yet; the id of the last."""
        for record, body, hashes in facts:
            self._top += 1
            crc = fact_crc(n, record.seq, record.at_ms, body)
            self._facts.append((self._top, n, record.seq, record.at_ms, crc, body.decode()))
            for hash in hashes:
                self.run("own_payload", (hash, n, 1))
        return self._top

    def place_draft(self, n: int, draft: Draft) -> None:
        self._drafts[n, draft.stream] = (0, [draft.text])

    def place_session(self, n: int, id: str, head: Seq, touched: int, listing: ListingRow) -> None:
        """Have what was placed under a number belong to a session from now on."""
        bound = None if listing.name is None else codec.escape(listing.name)
        self.run("place_session", (n, id, bound, touched))
        row = SessionRow(
            n, id, bound, None, 0, 0, None, 0, touched, codec.encode(listing), 0, head=head
        )
        placed = self._sessions[id] = Session(row, self._look)
        self.save(placed)
        self.changes[id] = None

    def since(self, session: Session, head: Seq) -> tuple[Record, ...]:
        """What was added after `head`."""
        expect(int, head=head)
        if session.row.head <= head:
            return ()
        if session.row.head - head > FOREIGN_MAX:
            raise NotAllowed(
                f"fact {head} is too far behind the head of session {session.row.id!r}; read first"
            )
        self._flush_facts()
        return tuple(reading.records(self.connection, session.row, head, SEQ_MAX))

    # --- drafts

    def draft(self, session: Session, stream: Stream, text: str) -> int:
        """Add text to a stream; its new end."""
        check_stream(stream)
        expect(str, text=text)
        end = session.ends.get(stream)
        if end is None:
            self._check_open(session, stream)
            end = session.ends[stream] = reading.stream_end(self.connection, session.row, stream)
        if end + len(text) > STREAM_CHARS_MAX:
            raise NotAllowed(
                f"a stream may have {STREAM_CHARS_MAX} characters at most; put large content as a "
                "payload"
            )
        if not text:
            return end
        self._drafts.setdefault((session.row.n, stream), (end, []))[1].append(text)
        if session.streams is not None:
            session.streams.add(stream.started)
        self._tell(session.row.id, Piece(stream, end, text))
        session.ends[stream] = end = end + len(text)
        return end

    def _check_open(self, session: Session, stream: Stream) -> None:
        """A stream belongs to a step or a tool of this session that has started and is not
        sealed."""
        row, started = session.row, stream.started
        if row.base < started <= row.head:
            self._flush_facts()
            first, *later = reading.records(self.connection, row, started - 1, FOREIGN_MAX)
            begins = isinstance(first.fact, ToolStarted if stream.kind == "output" else StepStarted)
            if begins and all(sealed_by(record.fact) != started for record in later):
                return
        raise NotAllowed(f"session {row.id!r} has no open stream at fact {started}")

    def drafts_at(self, session: Session, started: Seq) -> list[Draft]:
        if not session.row.base < started <= session.row.head:
            raise NotAllowed(f"session {session.row.id!r} has no fact {started} of its own to seal")
        if session.streams is None:
            session.streams = {
                int(at)
                for (at,) in self.connection.execute(STATEMENTS["streams_of"], (session.row.n,))
            }
        if started not in session.streams:
            return []
        self._flush_drafts()
        rows = self.connection.execute(STATEMENTS["drafts_of_stream"], (session.row.n, started))
        return to_drafts(session.row.id, session.row.n, list(rows))

    def seal(self, session: Session, started: Seq, drafts: list[Draft]) -> None:
        if drafts:
            self.run("delete_drafts", (session.row.n, started))
        if session.streams is not None:
            session.streams.discard(started)
        if session.ends:
            session.ends = {
                stream: end for stream, end in session.ends.items() if stream.started != started
            }

    # --- flushing

    def _flush_facts(self) -> None:
        facts, self._facts = self._facts, []
        if len(facts) == 1:
            self._cursor.execute(_INSERT_FACTS.one, facts[0])
            return
        for statement, values in _INSERT_FACTS.split(facts):
            self._cursor.execute(statement, values)

    def _flush_drafts(self) -> None:
        if not self._drafts:
            return
        drafts, self._drafts = self._drafts, {}
        rows = []
        for (n, stream), (start, pieces) in drafts.items():
            text = codec.escape("".join(pieces))
            crc = draft_crc(n, stream, start, text.encode())
            rows.append((n, stream.started, stream.kind, start, crc, text))
        for statement, values in _INSERT_DRAFTS.split(rows):
            self._cursor.execute(statement, values)

    def _update_lists(self) -> None:
        """Write every fact that no list row has yet into its session's."""
        fresh: list[tuple[Any, ...]] = self.connection.execute(
            STATEMENTS["sessions_since"], (self._upto,)
        ).fetchall()
        for id, last in fresh:
            session = self._dirty[id] = self.session(id)
            session.row.touched, session.moved = last, True
        self.run("lists_upto", (self._top,))
        self._upto = self._top

    def _flush_sessions(self) -> None:
        dirty, self._dirty = self._dirty, {}
        saved: list[tuple[SQLiteValue, ...]] = []
        moved: list[tuple[SQLiteValue, ...]] = []
        for session in dirty.values():
            row = session.row
            row.listing_raw, row.listed = codec.encode(session.listing), row.head
            row.owes = int(session.listing.owes())
            row.memory = reading.memory_mark(session.listing)
            row.crc = row.sum()
            lease = (row.token, row.owner, row.expires_ms)
            listed = (
                row.touched,
                row.listing_raw.decode(),
                row.listed,
                row.crc,
                row.owes,
                row.memory,
            )
            (moved if session.moved else saved).append((row.n, row.id, row.base, *lease, *listed))
            session.moved = False
        if saved:
            for statement, values in _SAVE_SESSIONS.split(saved):
                self.connection.execute(statement, values)
        if moved:
            for statement, values in _MOVE_SESSIONS.split(moved):
                self.connection.execute(statement, values)
