"""What a backend implements: where the rows of a store lie, and how they are read and written.

All rules are above it, in `verbs`, `transaction`, `queries`, `redact_cascade`, `import_session` and
`core`; they are the same for every backend. A backend knows nothing of facts but their bytes.

    Backend    one open store: its owner, snapshots, the writer, who else is alive
    Snapshot   questions about one moment
    Writer     the same questions inside a transaction, and what may be written in it

A verb asks first and writes after. Until it has written anything it may be refused, or run again
from its beginning: a backend that lies behind a network can run it once to learn what it asks for,
fetch all of that in one round trip, and run it again. What a verb writes is collected, and has to
be there at `flush`, or when it is asked for.

Everything a backend raises is an error of `store/errors.py`, or one that `Writer.explain` knows.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import compress, product
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from steno.journal import codec
from steno.journal.drafts import Stream
from steno.journal.facts import Record
from steno.journal.listing import ListingRow
from steno.journal.parts import Hash, Seq
from steno.store.errors import JournalCorrupt, StoreError
from steno.store.protocol import Damage, Keyed, Left, Mark, Piece

if TYPE_CHECKING:
    from steno.store.transaction import Changes

MARKS: tuple[Mark, ...] = ("owes", "unfinished", "due", "remembers")

SEQ_MAX = (1 << 32) - 1

_NAMED = re.compile(
    r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL
)


def sql_text(beside: str, name: str) -> str:
    """A file of SQL that lies beside a module."""
    return Path(beside).with_name(name).read_text(encoding="utf-8")


def named_statements(text: str) -> dict[str, str]:
    """The statements of a file, each under the name above it."""
    return {name: body.strip() for name, body in _NAMED.findall(text)}


class Needs(Struct, frozen=True):
    """What a verb will ask for, as far as its arguments tell: a backend behind a network fetches
    that with the beginning of the transaction. To need too little only costs time."""

    session: str | None = None
    key: tuple[str, str] | None = None
    name: str | None = None
    makes: bool = False
    """It may make a session."""
    also: "tuple[Needs, ...]" = ()
    """Of a verb that is about several sessions: those of the others."""


class LookFirst(Exception):
    """Raised by a writer that was begun without a look: a verb asked for something that is not
    known. It has written nothing yet, and is run again in a transaction that looks."""


class TryAgain(Exception):
    """Nothing was stored, since others were quicker: run the verbs again."""


Begun = Literal["same", "changed", "trusted"]
"""Whether what is remembered of sessions still holds: no other has written; others may have, so
look at each before it is used; use it as it is, it is compared when it is written."""


class SessionRow(Struct):
    """What is stored of a session beside its facts."""

    n: int
    """Its number: grows, and is never used twice."""
    id: str
    name: str | None
    parent: int | None
    """The number of the session that it was forked from."""
    base: Seq
    """Facts up to here are the parent's."""
    token: int
    """Of its last lease."""
    owner: str | None
    """Who holds the lease, if anyone; whether that owner is alive is another question."""
    expires_ms: int
    touched: int
    """Its place in the order of changes, as of `listed`."""
    listed: Seq
    """Facts up to here are in `list_row`: it may be behind."""
    list_row: bytes
    marks: frozenset[Mark]
    """As of `listed`."""
    head: Seq
    """The seq of its last fact: of the facts, not of the row."""

    def listing(self) -> ListingRow:
        try:
            return codec.decode_listing(self.list_row)
        except codec.DecodeError as error:
            raise JournalCorrupt(
                f"session {self.id!r}: its row for lists is damaged: {error}"
            ) from error


def marks_of(listing: ListingRow) -> frozenset[Mark]:
    return _MARKS[
        listing.owes(), listing.unfinished(), listing.due(), bool(listing.memory.at)
    ]


_MARKS: dict[tuple[bool, ...], frozenset[Mark]] = {
    has: frozenset(compress(MARKS, has))
    for has in product((False, True), repeat=len(MARKS))
}
ALL_MARKS = tuple(_MARKS.values())


Noted = Literal["redacted", "imported", "deleted"]
"""What changes a session without a new fact: a fact lost its text, the session came from another
store, it was deleted."""


def new_row(
    n: int,
    id: str,
    name: str | None,
    parent: int | None,
    base: Seq,
    touched: int,
    head: Seq | None = None,
) -> SessionRow:
    """A session that was just made: with no facts of its own but those up to `head`, free, and with
    nothing in its list row."""
    last = base if head is None else head
    return SessionRow(
        n, id, name, parent, base, 0, None, 0, touched, base, _EMPTY, _NONE, last
    )


_EMPTY = codec.encode(ListingRow())
_NONE: frozenset[Mark] = frozenset()


class KeyRow(Struct, frozen=True):
    """What was stored under a key: `count` facts of a session, from `seq` on."""

    session: str
    seq: Seq
    count: int


class Behind(Struct, frozen=True):
    """A session with facts that its list row does not have, and its place by the last of them."""

    n: int
    id: str
    touched: int


class ImportRow(Struct, frozen=True):
    """A session that arrives; `owner` brings it, and is "" if the import failed."""

    n: int
    at_ms: int
    owner: str


class ChangeRow(Struct, frozen=True, gc=False):
    """A change at its place in the order of all changes: a fact, or what was noted.

    `session` is None where no session is told of it: for the facts of one that arrives or was
    deleted, and for those that came with an imported session.
    """

    place: int
    session: str | None
    kind: Literal["added"] | Noted
    seq: Seq
    """Of the fact; of the last one of an imported session."""
    record: Record | None = None


class Snapshot(Protocol):
    """Questions about one moment."""

    def session(self, of: str | int) -> SessionRow | None:
        """By id, or by number."""
        ...

    def forks(self, n: int) -> list[SessionRow]:
        """The sessions that were forked from this one, not their own forks."""
        ...

    def bound(self, name: str) -> str | None:
        """The id of the session with an external name."""
        ...

    def named(self, prefix: str, after: str, limit: int) -> list[str]:
        """The ids of the sessions whose names begin with a prefix and come after a name, in the
        order of the code points of their names."""
        ...

    def facts(
        self,
        row: SessionRow,
        n: int,
        after: Seq,
        upto: Seq,
        kinds: Sequence[str],
        limit: int,
    ) -> list[Record]:
        """Facts stored under a number, in order, up to `limit`; with `kinds`, only those whose tag
        is one of them. Numbers run without a gap: one that is missing, or whose bytes are not what
        was written, is `JournalCorrupt`. `row` is the session in which they are read."""
        ...

    def facts_at(
        self, places: Mapping[str, Sequence[Seq]]
    ) -> dict[tuple[str, Seq], Record]:
        """Facts by the id of their session and their seq, as far as they are there: a session's
        own, none of its parents'."""
        ...

    def drafts(
        self, row: SessionRow, seen: Mapping[Stream, int], started: Seq | None = None
    ) -> list[Piece]:
        """What the streams of a session hold beyond what was seen of each: one piece for each
        stream that has more. With `started`, the streams of that fact only."""
        ...

    def streaming(self) -> list[str]:
        """The ids of the sessions that have drafts."""
        ...

    def key(self, source: str, key: str) -> KeyRow | None:
        """What was stored under a key by a session that is there."""
        ...

    def keys(self, n: int, source: str) -> list[Keyed]:
        """The keys of a session from one source, in order of seq."""
        ...

    def payload(self, hash: Hash, length: int | None = None) -> bytes | None:
        """All of a payload, checked against its hash; or its first bytes: with 0, whether it is
        there."""
        ...

    def rows(
        self, mark: Mark | None, limit: int, before: int | None = None, after: int = 0
    ) -> Iterator[SessionRow]:
        """Sessions by their rows: those changed last first, from below a place on; without one, in
        order of number, from above one on."""
        ...

    def behind(self, kinds: Sequence[str] = ()) -> list[Behind]:
        """The sessions whose list rows lack facts; with `kinds`, only those that lack a fact with
        one of these tags."""
        ...

    def changes(self, after: int, limit: int, facts: bool = True) -> list[ChangeRow]:
        """The next changes after a place, with those that no session is told of; without `facts`,
        only those that are no new fact."""
        ...

    def last_place(self) -> int:
        """The last place that was given; later ones are above it."""
        ...

    def told(self, source: str) -> list[str]:
        """The sessions whose list rows say that they were told what another has to remember."""
        ...

    def deleted(self, id: str) -> bool:
        """Whether a session with this id was deleted."""
        ...

    def imported(self, id: str) -> Seq | None:
        """Up to which seq the facts of a session came from another store; None if it began here."""
        ...

    def unfinished(self) -> tuple[list[str], list[ImportRow]]:
        """The deleted sessions of which something may be left; and those that are arriving, or
        whose import failed and is not swept."""
        ...


class Saved(Struct, frozen=True):
    """A session's row as it should be stored, with its list row up to the head. `touched` is its
    new place in the order of changes; None leaves it."""

    row: SessionRow
    listing: ListingRow
    touched: int | None


class Writer(Snapshot, Protocol):
    """One transaction after another. What is asked in one is of that transaction's moment, with
    what was written in it so far."""

    # --- the frame

    def begin(self, needs: Iterable[Needs] = (), look: bool = False) -> Begun:
        """Begin a transaction. A writer to which a look costs much may begin without one, unless it
        is told to `look`: then it raises `LookFirst` when it is asked for what it does not know."""
        ...

    def flush(self) -> None:
        """Hand over what was collected. A failure here means that nothing was stored."""
        ...

    def commit(self) -> None:
        """Make it durable. `OutcomeUnknown` if that cannot be told; `TryAgain` if others were
        quicker, so that nothing was stored. So may `flush`."""
        ...

    def rollback(self) -> None:
        """Forget everything since `begin`. Also where none was begun, or the commit failed."""
        ...

    def explain(self, error: Exception) -> tuple[StoreError, bool] | None:
        """An error of the transaction in the store's words, and whether the verbs of a batch should
        be tried one by one, so that the guilty one fails alone. None: it is the caller's own."""
        ...

    # --- rows

    def make(
        self, id: str, name: str | None, parent: int | None, base: Seq
    ) -> SessionRow:
        """A new session, with the number that is next."""
        ...

    def save(self, saved: Sequence[Saved]) -> None:
        """Store rows; each `row` is afterwards as it is stored."""
        ...

    def overdue(self, limit: int) -> list[Behind]:
        """Those that are `behind`, if it is time to save their rows: if more than `limit` facts are
        in no list row, where a reader of lists would have to take those in. They count as saved
        from here on."""
        ...

    def add(self, n: int, facts: Sequence[tuple[Seq, int, bytes]]) -> None:
        """Add facts under a number: seq, time and bytes. Their order, over all sessions, is the
        order of changes: each gets the next place in it, and no place is given twice, whatever
        becomes of what had it."""
        ...

    def note(self, n: int, kind: Noted, seq: Seq) -> None:
        """Give the next place in the order of changes to one that is no new fact. Of a session that
        is deleted nothing else stays noted."""
        ...

    def replace(self, n: int, seq: Seq, at_ms: int, body: bytes) -> None:
        """Put other bytes in the place of a fact's."""
        ...

    def draft(self, n: int, stream: Stream, start: int, text: str) -> None:
        """Add text to a stream, at its end."""
        ...

    def undraft(self, n: int, started: Seq) -> None:
        """Remove the streams of a fact."""
        ...

    def put_payload(self, hash: Hash, body: bytes) -> None:
        """Store bytes, once."""
        ...

    def own_payload(self, hash: Hash, n: int, names: int) -> None:
        """A session owns a payload; `names` more of its facts name it. Where that falls to none, it
        is not owned any more, and a payload without an owner goes."""
        ...

    def put_key(self, source: str, key: str, n: int, seq: Seq, count: int) -> None:
        """Remember what was stored under a key; in the place of what was."""
        ...

    # --- removing and importing

    def delete(self, row: SessionRow, at_ms: int) -> None:
        """Take a session and its drafts out; its facts, payloads and keys are swept later."""
        ...

    def sweep(self) -> bool:
        """Remove a bounded part of what deleted sessions and failed imports left; whether there may
        be more."""
        ...

    def begin_import(self, id: str, at_ms: int, owner: str) -> int:
        """A number for a session that arrives. What is stored under it belongs to no session."""
        ...

    def import_of(self, n: int) -> tuple[str | None, int]:
        """Who brings it, and how many keys it has."""
        ...

    def end_import(
        self, n: int, id: str, name: str | None, head: Seq, place: int
    ) -> SessionRow:
        """What was stored under the number is a session now, as if just made, at this place in
        lists, or at the nearest below it that no other session has; its list row is saved after
        this."""
        ...

    def fail_import(self, n: int) -> None:
        """What was stored under the number is to be swept, unless it is a session already."""
        ...


class Watch(Protocol):
    """Tells when other processes may have committed something; or, where all that they did is known
    here, hands that over."""

    def add(
        self,
        tell: Callable[[], None],
        hand: "Callable[[Changes], None] | None" = None,
    ) -> None: ...
    def discard(self, tell: Callable[[], None]) -> None: ...


class Paused(Protocol):
    """Holds up the commits of one open store. `TimeoutError` if one goes on for longer."""

    def __call__(self, wait_s: float = -1) -> AbstractContextManager[None]: ...


class Backend(Protocol):
    """One open store."""

    remote: bool
    """A look takes a round trip: no event loop should wait for it."""
    restored: int
    """Above all places that were given before a backup took the place of the store; 0 if none
    did."""

    @property
    def owner(self) -> str:
        """The name of this open store to others; never used twice."""
        ...

    @property
    def watch(self) -> Watch: ...

    def writer(self) -> Writer:
        """The one writer of this open store."""
        ...

    def snapshot(self, patient: bool = False) -> AbstractContextManager[Snapshot]:
        """One moment. From any thread, several at a time. `patient`: a backend that is away for a
        while is waited for."""
        ...

    def alive(self, owner: str) -> bool | None:
        """Whether the process behind an owner runs; None where that cannot be told, and the term of
        a lease has to decide."""
        ...

    def heads(self, ids: Sequence[str]) -> dict[str, tuple[Seq, int | None]]:
        """The heads of some sessions, and the tokens of those whose lease is taken."""
        ...

    def claim(self, limit: int, full: Sequence[str], anew: bool) -> list[str] | None:
        """See `Store.claim`: ids. None where there is no queue, and the rows of sessions say it."""
        ...

    def held(self) -> list[tuple[str, int | None]]:
        """Sessions that are in this owner's hands by what is stored, each with the token of its
        lease, if this owner has that, too. It may not know of one: the answer was lost."""
        ...

    def put_back(self, session: str, waits_for: str | None) -> None:
        """See `Store.put_back`."""
        ...

    def leave(self, session: str, left: Left | None) -> None:
        """Keep a word about a session where the store cannot be written, or (None) drop it. Lost
        where not even that can be done."""
        ...

    def left(self, session: str) -> Left | None:
        """The word that was kept about a session."""
        ...

    def now_ms(self) -> int:
        """The clock that stamps facts and ends leases."""
        ...

    def erase(self) -> None:
        """Leave nothing of what was removed anywhere, as far as the backend promises it."""
        ...

    def sessions(self) -> Iterator[str]:
        """Every session's id, some at a time."""
        ...

    def damage(self) -> Iterator[Damage]:
        """What is not as it was written, beyond what reading a session shows."""
        ...

    def start(self, paused: Paused) -> None:
        """Begin what the backend does by itself. While it holds `paused`, this open store commits
        nothing."""
        ...

    def stop(self) -> None:
        """End what the backend does by itself; what is queued may still be committed."""
        ...

    def close(self) -> None:
        """Let go of everything; the owner is not alive afterwards."""
        ...
