"""What verbs do in a transaction: look at sessions as they stand, and add to them.

Sessions are remembered from batch to batch; when others have written since, each is looked at again
before it is used. A session's row is stored when its lease changes and when lists are brought up to
date, not with every fact.

A verb checks first and adds after: once it has added anything it may not refuse. That is what lets
one refused verb stand in a batch beside others.
"""

from collections.abc import Container, Iterable, Sequence

from msgspec.structs import replace

from steno.journal.drafts import Draft, Stream, sealed_by
from steno.journal.facts import AnyFact, Record, StepStarted, ToolStarted, payloads_of
from steno.journal.listing import ListingRow
from steno.journal.parts import Hash, Seq
from steno.store import queries
from steno.store.backend import SEQ_MAX, LookFirst, Needs, Saved, SessionRow, Writer
from steno.store.errors import (
    LeaseLost,
    NotAllowed,
    UnknownPayload,
    UnknownSession,
    warn,
)
from steno.store.protocol import Event, Lease, Piece
from steno.store.values import STREAM_CHARS_MAX, encoded

FOREIGN_MAX = 10_000
LISTS_BEHIND_MAX = 512
"""How many facts a reader of a list may have to take in by itself."""
_REMEMBERED_MAX = 10_000

Written = tuple[AnyFact, bytes, tuple[Hash, ...]]
"""A fact, its bytes, and the payloads it names."""

Changes = dict[str, list[Event] | None]
"""The sessions that a commit changed: by the facts and the text that it added, in order, or, where
those do not say all, by None."""


def written(facts: Iterable[AnyFact]) -> list[Written]:
    """Facts as they will be stored, once it is sure that they can be read back."""
    return [(fact, encoded(fact), payloads_of(fact)) for fact in facts]


class Session:
    """A session while it is being written to: its row, and what its facts have made of it."""

    __slots__ = ("ends", "listing", "looked", "row")

    def __init__(self, row: SessionRow, listing: ListingRow, looked: int) -> None:
        self.row = row
        self.listing = listing
        self.looked = looked
        """The look, of those that the transaction counts, in which this was seen."""
        self.ends: dict[Stream, int] | None = None
        """How long each open stream is; None if they were not looked at."""


class Transaction:
    """Begins, collects, flushes, commits; then the same again."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.changes: Changes = {}
        self._sessions: dict[str, Session] = {}
        self._dirty: dict[str, tuple[Session, int | None]] = {}
        """Rows to be stored, each with its new place in the order of changes, if it has one."""
        self._look = 0
        self.trusts = False
        """Whether sessions are used as they are remembered. What is written is compared then;
        what is not written may be out of date."""

    # --- the frame

    def begin(self, needs: Iterable[Needs] = (), look: bool = False) -> None:
        self.changes = {}
        if len(self._sessions) > _REMEMBERED_MAX:
            self._sessions.clear()
        begun = self.writer.begin(needs, look)
        self.trusts = begun == "trusted"
        if begun == "changed":
            self._look += 1

    def must_look(self) -> None:
        """Before an answer that writes nothing, and so would not be compared."""
        if self.trusts:
            raise LookFirst

    def flush(self) -> None:
        """Hand over what was collected."""
        for one in self.writer.overdue(LISTS_BEHIND_MAX):
            self._dirty[one.id] = (self.session(one.id), one.touched)
        if self._dirty:
            dirty, self._dirty = self._dirty, {}
            self.writer.save(
                [Saved(one.row, one.listing, at) for one, at in dirty.values()]
            )
        self.writer.flush()

    def commit(self) -> None:
        self.writer.commit()

    def rollback(self) -> None:
        """Forget everything: what was collected, and what was remembered of the rows it changed.
        Whether any of it is stored, only a look can tell."""
        self.changes = dict.fromkeys(self.changes)
        self._sessions.clear()
        self._dirty.clear()
        self.writer.rollback()

    # --- sessions

    def session(self, id: str) -> Session:
        found = self._sessions.get(id) if type(id) is str else None
        if found is None or (found.looked != self._look and not self.trusts):
            found = self._sessions[id] = self._looked_up(id, found)
        return found

    def _looked_up(self, id: str, known: Session | None) -> Session:
        """A session as it is now. What is known of it is kept if its row is as it was; then only
        new facts are read."""
        row = queries.session(self.writer, id)
        if known is not None and replace(known.row, head=row.head) == row:
            after, known.row.head, known.looked = known.row.head, row.head, self._look
        else:
            after, known = row.listed, Session(row, row.listing(), self._look)
        if row.head > after:
            for record in queries.records(self.writer, row, after, SEQ_MAX):
                known.listing.apply(record)
        return known

    def exists(self, id: str) -> bool:
        try:
            self.session(id)
        except UnknownSession:
            return False
        return True

    def owned(self, lease: Lease) -> Session:
        """The session of a lease that is still good."""
        try:
            found = self.session(lease.session)
            if found.row.token == lease.token and found.row.owner == lease.owner:
                return found
        except UnknownSession:
            pass
        warn(
            "refused a write to session %r with the old token %d",
            lease.session,
            lease.token,
        )
        raise LeaseLost(lease.session, lease.token)

    def make(
        self,
        id: str,
        name: str | None,
        parent: int | None,
        base: Seq,
        listing: ListingRow,
    ) -> Session:
        row = self.writer.make(id, name, parent, base)
        made = self._sessions[id] = Session(row, listing, self._look)
        made.ends = {}
        self.save(made)
        return made

    def arrived(self, row: SessionRow, listing: ListingRow) -> None:
        """A session that was imported is there from now on."""
        placed = self._sessions[row.id] = Session(row, listing, self._look)
        self.save(placed)
        self.changes[row.id] = None

    def save(self, session: Session) -> None:
        """Have the row stored with the next flush."""
        self._dirty.setdefault(session.row.id, (session, None))
        self.changes.setdefault(session.row.id, [])

    def forget(self, id: str) -> None:
        self._sessions.pop(id, None)
        self._dirty.pop(id, None)
        self.changes[id] = None

    # --- facts

    def check_payloads(
        self, facts: Iterable[Written], brought: Container[Hash] = ()
    ) -> None:
        for _, _, hashes in facts:
            for hash in hashes:
                if hash not in brought and self.writer.payload(hash, 0) is None:
                    raise UnknownPayload(
                        f"no payload {hash}; put it before the fact that names it"
                    )

    def insert(self, session: Session, facts: Sequence[Written], at_ms: int) -> Seq:
        """Add facts at the head; the seq of the first."""
        row, listing = session.row, session.listing
        first = row.head + 1
        if row.head + len(facts) > SEQ_MAX:
            raise NotAllowed(f"session {row.id!r} is full")
        self.writer.add(
            row.n,
            [(seq, at_ms, body) for seq, (_, body, _) in enumerate(facts, first)],
        )
        for fact, _, hashes in facts:
            row.head += 1
            record = Record(row.head, at_ms, fact)
            listing.apply(record)
            self._tell(row.id, record)
            for hash in hashes:
                self.writer.own_payload(hash, row.n, 1)
        return first

    def _tell(self, id: str, event: Event) -> None:
        added = self.changes.setdefault(id, [])
        if added is not None:
            added.append(event)

    def replace(self, session: Session, record: Record, by: AnyFact) -> None:
        """Put another fact in the place of one of a session's own."""
        self.writer.replace(session.row.n, record.seq, record.at_ms, encoded(by))
        self.writer.note(session.row.n, "redacted", record.seq)

    def since(self, session: Session, head: Seq) -> tuple[Record, ...]:
        """What was added after `head`."""
        if session.row.head <= head:
            return ()
        if session.row.head - head > FOREIGN_MAX:
            raise NotAllowed(
                f"fact {head} is too far behind the head of session {session.row.id!r}; read first"
            )
        return tuple(queries.records(self.writer, session.row, head, SEQ_MAX))

    # --- drafts

    def _ends(self, session: Session) -> dict[Stream, int]:
        if session.ends is None:
            session.ends = queries.ends(self.writer, session.row)
        return session.ends

    def draft(self, session: Session, stream: Stream, text: str) -> int:
        """Add text to a stream; its new end."""
        ends = self._ends(session)
        end = ends.get(stream)
        if end is None:
            self._check_open(session, stream)
            end = ends[stream] = 0
        if end + len(text) > STREAM_CHARS_MAX:
            raise NotAllowed(
                f"a stream may have {STREAM_CHARS_MAX} characters at most; put large content as a "
                "payload"
            )
        if not text:
            return end
        self.writer.draft(session.row.n, stream, end, text)
        self._tell(session.row.id, Piece(stream, end, text))
        ends[stream] = end = end + len(text)
        return end

    def _check_open(self, session: Session, stream: Stream) -> None:
        """A stream belongs to a step or a tool of this session that has started and is not
        sealed."""
        row, started = session.row, stream.started
        if row.base < started <= row.head:
            first, *later = queries.records(
                self.writer, row, started - 1, FOREIGN_MAX
            )
            begins = isinstance(
                first.fact, ToolStarted if stream.kind == "output" else StepStarted
            )
            if begins and all(sealed_by(record.fact) != started for record in later):
                return
        raise NotAllowed(f"session {row.id!r} has no open stream at fact {started}")

    def drafts_at(self, session: Session, started: Seq) -> list[Draft]:
        """What a fact that seals `started` has to hold."""
        if not session.row.base < started <= session.row.head:
            raise NotAllowed(
                f"session {session.row.id!r} has no fact {started} of its own to seal"
            )
        if not any(stream.started == started for stream in self._ends(session)):
            return []
        return queries.drafts(self.writer, session.row, started)

    def seal(self, session: Session, started: Seq) -> None:
        ends = self._ends(session)
        if any(stream.started == started for stream in ends):
            self.writer.undraft(session.row.n, started)
            session.ends = {
                stream: end
                for stream, end in ends.items()
                if stream.started != started
            }
