"""What a store can do. Every implementation passes the same contract suite
(tests/store/contract.py).

Three rules hold for every verb: when it returns, what it did is durable; when it raises, nothing of
it is stored (but for `OutcomeUnknown`, which says so); and it never holds up another session.
"""

import types
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Literal, Protocol

from msgspec import Struct

from steno.journal.drafts import Draft, Stream
from steno.journal.facts import (
    DeliveryOwed,
    FreeFact,
    InputAdmitted,
    ItemKept,
    MessageGiven,
    Record,
    SessionAttended,
    SessionStarted,
    TurnFact,
)
from steno.journal.listing import ListingRow
from steno.journal.parts import Hash, Seq

Durability = Literal["power", "process"]
"""power: what is acknowledged survives a power cut. process: it survives a kill of the process, but
a power cut may take back the last seconds of what was acknowledged and shown. Nothing else
differs."""


class Settings(Struct, frozen=True, kw_only=True):
    """How any store behaves. Time, ids and chance come from here, so that tests can fake them. What
    one backend alone can be told is in a struct of its own, derived from this."""

    durability: Durability = "power"
    lease_ms: int = 30_000
    queue_bytes_max: int = 8 << 20
    payload_bytes_max: int = 32 << 20
    now_ms: Callable[[], int] | None = None
    new_id: Callable[[], str] | None = None


class Admission(Struct, frozen=True, kw_only=True):
    """An input and where it goes: to `session`, or to the session bound to `create.name`, made if
    absent. With `visit`, the visit begins in the same commit, before the input. With `owes`, so do
    the debts of its answer, after it: their `target` is the input, whatever they say. `given` are
    messages from elsewhere that a session begins with: only one that this admission makes."""

    input: InputAdmitted
    session: str | None = None
    create: SessionStarted | None = None
    payloads: tuple[bytes, ...] = ()
    visit: SessionAttended | None = None
    owes: tuple[DeliveryOwed, ...] = ()
    given: tuple[MessageGiven, ...] = ()


class Admitted(Struct, frozen=True):
    """`first` is False if this key had been admitted before: then nothing was stored again, no
    visit began, and nothing more is owed."""

    session: str
    seq: Seq
    first: bool
    visit: Seq | None = None


class Keeping(Struct, frozen=True, kw_only=True):
    """Items of another program to add and to withdraw, in `session` or in the one bound to
    `create.name`, made if absent. `withdraw` are runs of seqs. With `expect`, only if that is still
    the last fact about items, 0 before the first. An item whose key was kept before is not kept
    again; with other content it is refused, or with `same="first"` left as it was. With `anywhere`
    the keys are of the whole store: see `kept_anywhere`."""

    session: str | None = None
    create: SessionStarted | None = None
    items: tuple[ItemKept, ...] = ()
    withdraw: tuple[tuple[Seq, Seq], ...] = ()
    expect: Seq | None = None
    payloads: tuple[bytes, ...] = ()
    same: Literal["refuse", "first"] = "refuse"
    anywhere: bool = False


class Kept(Struct, frozen=True):
    """Where each item is, in the order in which they were given, and the last fact about items."""

    session: str
    seqs: tuple[Seq, ...]
    items: Seq


class Lease(Struct, frozen=True):
    """The right to write turn facts. It is good while no one else has taken a higher token."""

    session: str
    token: int
    owner: str
    expires_ms: int


class Appended(Struct, frozen=True):
    """Where the facts went, what others had added since the caller's head, and the time that the
    facts have: with it a fold in memory is the fold of what is stored."""

    first: Seq
    last: Seq
    foreign: tuple[Record, ...]
    at_ms: int


class Release(Struct, frozen=True):
    """`released` is False if others had added facts the caller has not seen: here they are, look
    first."""

    released: bool
    foreign: tuple[Record, ...]


class Piece(Struct, frozen=True):
    """Text of a stream, at an offset in code points."""

    stream: Stream
    offset: int
    text: str


Event = Record | Piece


class Cursor(Struct, frozen=True):
    """Where a follower stands: the last fact it saw, and how far into each open stream."""

    seq: Seq = 0
    offsets: tuple[tuple[Stream, int], ...] = ()


Mark = Literal["owes", "unfinished", "due", "remembers"]
"""What sessions can be found by without looking at all of them: something is owed to someone
outside, there is something to run, a distillate is due, there is something to remember."""


class Shares(Struct, frozen=True):
    """Has this fact of this session: the session that it was added to, then the forks of that."""

    session: str
    seq: Seq


Where = Mark | Shares


class Listed(Struct, frozen=True):
    """One session in a list. `mark` is the place to ask the next page from; `owner` is set while it
    runs. `orphaned`: its last runner is gone and did not give the lease back, so something of it
    may be open."""

    id: str
    head: Seq
    mark: int
    owner: str | None
    row: ListingRow
    orphaned: bool = False


def tenant_of(row: ListingRow) -> str:
    """For whom a session is run: between tenants the ready queue is fair. `alice/42` is alice's, as
    are all sessions whose names begin so; one without such a name is its platform's."""
    return (row.name or "").rpartition("/")[0] or row.platform


class Left(Struct, frozen=True):
    """Why the runner of an open turn let go of it without storing its end."""

    turn: Seq
    cause: str


class Glance(Struct, frozen=True):
    """What is under way in a session: its head, who runs it, the text being streamed, and its row
    for lists, all of one moment. `left` is what the last runner could still say."""

    head: Seq
    owner: str | None
    drafts: tuple[Draft, ...]
    row: ListingRow
    left: Left | None = None
    imported: Seq = 0
    """Facts up to here came from another store; 0 if the session began here."""

    def cause(self, turn: Seq | None) -> str:
        """Why an open turn without a runner ended."""
        return (
            self.left.cause
            if self.left is not None and self.left.turn == turn
            else "killed"
        )


class Closing(Struct, frozen=True):
    """What closes that which a dead owner left open, in a session that stands at `head`."""

    head: Seq = 0
    facts: tuple[TurnFact, ...] = ()


FeedMark = int
"""The place of a change among all changes of a store, in the order of their commits. Marks only
grow: through deletion, restart, restore and migration none is given twice. 0 is before the
first."""


class FactAdded(Struct, frozen=True, gc=False):
    """A session has a new fact. To hide, to rewind and to take either back are facts, too."""

    mark: FeedMark
    session: str
    record: Record


class TextRemoved(Struct, frozen=True):
    """The text of a fact is gone: it was redacted, or made of something that was. The fact is as
    `read` gives it from now on, in the forks that share it, too: `list(where=Shares(...))`."""

    mark: FeedMark
    session: str
    seq: Seq


class SessionImported(Struct, frozen=True):
    """A session of another store is here, with all facts up to `head` at once: `read` gives
    them."""

    mark: FeedMark
    session: str
    head: Seq


class SessionDeleted(Struct, frozen=True):
    mark: FeedMark
    session: str


class StoreRestored(Struct, frozen=True):
    """A backup was put in the place of the store. Forget what you were told before this: all that
    is in the store follows."""

    mark: FeedMark


Change = FactAdded | TextRemoved | SessionImported | SessionDeleted | StoreRestored


class ChangePage(Struct, frozen=True):
    """Some changes in the order of their commits, and the mark to ask for the next page from."""

    changes: tuple[Change, ...]
    mark: FeedMark


class Payload(Struct, frozen=True):
    """Bytes that facts name by their hash."""

    body: bytes


class Keyed(Struct, frozen=True, order=True):
    """Facts that were added together under a key: `count` of them, from `seq` on. An input carries
    its key itself."""

    seq: Seq
    key: str
    count: int


Carried = Payload | Record | Draft | Keyed
"""What a session is made of, on its way to another store: each payload before the first fact that
names it, all facts in order, then what is being streamed and which facts were added under a key."""


class Damage(Struct, frozen=True):
    """Something that is not as it was written."""

    where: str
    what: str


class Report(Struct, frozen=True):
    sessions: int
    facts: int
    damage: tuple[Damage, ...]


class Store(Protocol):
    """The verbs. All of them are safe to call from many tasks at once."""

    @property
    def owner(self) -> str:
        """This open store, to others: its name for leases and visits. Never used twice."""
        ...

    async def admit(self, admission: Admission) -> Admitted:
        """Accept an input, with the payloads that it names; the session is made if `create` says
        how. A key that came before from the same source gives what it gave then; with other content
        it is `KeyReused`. From here on the input is pending in every process."""
        ...

    async def admitted(self, source: str, key: str) -> Admitted | None:
        """What `admit` gives to the second caller with this key; None if there was no first."""
        ...

    async def create(
        self, started: SessionStarted, session: str | None = None
    ) -> str:
        """A new session, with an id of the caller's or a random one; its id. An id or a name that
        is taken is `KeyReused`."""
        ...

    async def ensure(self, started: SessionStarted) -> str:
        """The session bound to `started.name`, made if there is none; its id."""
        ...

    async def fork(self, session: str, at: Seq, started: SessionStarted) -> str:
        """A session that shares the facts of another up to `at`, and goes on with its own; its id.
        It takes platform and model from `started`, and has no name."""
        ...

    async def add(
        self, session: str, facts: Sequence[FreeFact], key: str | None = None
    ) -> Appended:
        """Add facts that need no lease, all or none. A key of this session that came before with
        the same facts gives where they are; with others it is `KeyReused`."""
        ...

    async def acquire(self, session: str, closing: Closing | None = None) -> Lease:
        """Take the lease of a session that is free, or whose owner is dead, with a token above all
        before it; else `SessionBusy`. With `closing`, a turn that is open is closed by the same
        commit, so that nobody sees the session held and the turn still open; if the session does
        not stand there, nothing is stored: `LeftOpen`."""
        ...

    async def abandon(self, lease: Lease, left: Left | None = None) -> None:
        """Give the lease up without storing that, because the store cannot be written. `left` is
        kept beside the store, if that can be done: see `Glance`."""
        ...

    async def claim(
        self, limit: int, full: Sequence[str] = (), anew: bool = False
    ) -> list[Listed]:
        """Sessions in which there is something to run: inputs wait, or a turn is open or was cut
        off after tools gave results.

        Where many workers share a store, from a ready queue: `limit` at most, the tenants (see
        `tenant_of`) in turn but those that are `full`; `anew` from its beginning, which has to be
        done now and then. Each is then in the hands of this owner, until it is run, put back, or
        the owner dies. Elsewhere they are all there are, and who takes the lease first has it.
        """
        ...

    async def put_back(self, session: str, waits_for: str | None = None) -> None:
        """A claimed session was not run. It is ready again; or it waits until the owner that has it
        in hand goes, or ("") until something in it changes."""
        ...

    async def running(self, session: str) -> str | None:
        """Who holds the lease at this moment, if that owner is alive."""
        ...

    async def runner_changes(self, session: str, known: str | None) -> str | None:
        """Wait until another process than `known` runs a session, or none does; which one. A
        release is noticed at once, a death within a second."""
        ...

    async def renew(self, lease: Lease) -> Lease:
        """Put the end of the lease's term off. It counts only where the backend cannot tell whether
        an owner is alive."""
        ...

    async def release(self, lease: Lease, head: Seq) -> Release:
        """Give the lease back, unless others have added facts after `head`, the last that the
        caller has seen."""
        ...

    async def append(
        self, lease: Lease, facts: Sequence[TurnFact], head: Seq
    ) -> Appended:
        """Add turn facts, all or none, after whatever others added since `head`. A fact that seals
        takes the place of its drafts in the same commit; one that would drop a character of them is
        `ShownTextDropped`. With an old token it is `LeaseLost`."""
        ...

    async def draft(self, lease: Lease, stream: Stream, text: str) -> int:
        """Add text to a stream of a step or a tool that is open; its new end, in code points."""
        ...

    async def read(
        self,
        session: str,
        after: Seq = 0,
        limit: int = 1_000,
        kinds: Sequence[str] = (),
    ) -> list[Record]:
        """Facts after a seq, in order, through the parents of a fork; with `kinds`, only those
        whose tag is one of them."""
        ...

    async def facts_at(
        self, places: Mapping[str, Sequence[Seq]]
    ) -> dict[tuple[str, Seq], Record]:
        """Facts by session and seq, many at once. What is not there is left out, and so are the
        facts that a fork shares: they are its parent's."""
        ...

    async def drafts(self, session: str) -> list[Draft]:
        """What is being streamed, or was when its writer died."""
        ...

    async def streaming(self) -> list[str]:
        """The sessions that have drafts."""
        ...

    async def glance(self, session: str) -> Glance:
        """What is under way in a session, all of one moment."""
        ...

    def follow(
        self, session: str, cursor: Cursor | None = None, drafts: bool = True
    ) -> AsyncGenerator[Event, None]:
        """What comes after the cursor, and then what comes, for ever: facts, and without a gap or a
        repetition each piece of text before the fact that seals it. Close the iterator to leave. A
        session that is deleted ends it with `UnknownSession`."""
        ...

    async def changes(
        self, after: FeedMark | None = 0, limit: int = 1_000, facts: bool = True
    ) -> ChangePage:
        """What changed in any session after a mark; without one, nothing but the mark of now.

        Every change that was committed is told once, in the order of the commits, to each who goes
        on from the last mark. A page may end in the middle of a commit. Text that is being streamed
        and leases are not in it. What is gone is not told again: facts of a deleted session are
        left out, and those whose text was removed come without it. A mark that this store has not
        given yet is refused with `UnknownMark`: begin again at 0. Without `facts`, only what
        changes a session without a new fact is told.
        """
        ...

    def follow_changes(self, after: FeedMark = 0) -> AsyncGenerator[Change, None]:
        """The same, and then what comes, for ever. Close the iterator to leave."""
        ...

    async def find(self, name: str) -> str | None:
        """The id of the session that is bound to a name."""
        ...

    async def alive(self, owner: str) -> bool:
        """Whether the process behind an owner runs; also where that cannot be told."""
        ...

    async def keep(self, keeping: Keeping) -> Kept:
        """Add items of another program and withdraw others, in one commit. Raises `Stale` if others
        came first."""
        ...

    async def keep_all(self, keepings: Sequence[Keeping]) -> tuple[Kept, ...]:
        """The same for several sessions in one commit: all of it or nothing."""
        ...

    async def kept(self, session: str, format: str, key: str) -> Seq | None:
        """Where the item with a key is."""
        ...

    async def kept_anywhere(self, format: str, key: str) -> tuple[str, Seq] | None:
        """In which session the item with a key of the whole store is, and where."""
        ...

    async def named(
        self, prefix: str, after: str = "", limit: int = 50
    ) -> list[Listed]:
        """Sessions whose names begin with a prefix, in the order of their names, after one. `mark`
        tells which was changed last."""
        ...

    async def keys(self, session: str) -> list[Keyed]:
        """Which facts were added under keys. An input carries its key itself."""
        ...

    async def list(
        self,
        limit: int = 50,
        before: int | None = None,
        after: int | None = None,
        where: Where | None = None,
    ) -> list[Listed]:
        """Sessions, those changed last first; the next page is `before` the last `mark`. With
        `after`, in the order in which they were made, from there on: what changes meanwhile keeps
        its place. With `where`, those of which that is true."""
        ...

    async def put(self, session: str, payload: bytes) -> Hash:
        """Store bytes, once, for facts of a session to name; their SHA-256."""
        ...

    async def get(self, payload: Hash) -> bytes:
        """All bytes of a payload, checked against its hash."""
        ...

    async def bring(
        self, session: str, base: Seq, carried: Iterable[Carried]
    ) -> None:
        """Store a session of another store under the id that it had, whole or not at all. Facts up
        to `base` are those of the sessions that it was forked from. What is no session, or whose
        id, name or keys are taken, is refused."""
        ...

    async def extend(
        self,
        session: str,
        head: Seq,
        records: Sequence[Record],
        payloads: Sequence[bytes] = (),
    ) -> None:
        """Add facts that came to a session where it was brought from, as they are there, in one
        commit. Refused if the session has another head here by now, or is being run."""
        ...

    async def redact(self, session: str, target: Seq, by: str = "user") -> Seq:
        """Take the text of a message out of the store for good, with what was made of it elsewhere;
        the seq of the fact that says so. A second time it gives the same."""
        ...

    async def delete(self, session: str, with_forks: bool = False) -> int:
        """Remove a session and all that is its own; how many went. One with forks is `ForksRemain`
        unless these go with it."""
        ...

    async def verify(
        self, tell: "Callable[[int, int], None] | None" = None
    ) -> Report:
        """Look at every fact, draft, row and payload, and say what is not as it was written. `tell`
        hears, from another thread, how many sessions were looked at, and of how many."""
        ...

    async def close(self) -> None:
        """Let go of the store. Correctness does not need it."""
        ...


# --- whole sessions and whole lists, page by page, so that no answer is unbounded --------------

PAGE = 1_000


class Reads(Protocol):
    async def read(
        self, session: str, after: Seq = 0, limit: int = PAGE
    ) -> list[Record]: ...


class Lists(Protocol):
    async def list(
        self, limit: int = PAGE, before: int | None = None
    ) -> list[Listed]: ...


async def read_all(
    store: Reads,
    session: str,
    after: Seq = 0,
    upto: Seq | None = None,
    page: int = PAGE,
) -> AsyncIterator[Record]:
    """The facts of a session in order, from the one after `after` to the one at `upto`, or to the
    last. Between two pages other tasks get their turn."""
    while upto is None or after < upto:
        limit = page if upto is None else min(page, upto - after)
        records = await store.read(session, after, limit)
        for record in records:
            yield record
        if len(records) < limit:
            return
        after = records[-1].seq
        await give_way()


async def list_all(store: Lists, page: int = PAGE) -> AsyncIterator[Listed]:
    """All sessions, the latest first."""
    found = await store.list(page)
    while found:
        for listed in found:
            yield listed
        found = await store.list(page, before=found[-1].mark)


@types.coroutine
def give_way() -> Generator[None, None, None]:
    """Let other tasks of an event loop run. A caller that has none goes on."""
    yield
