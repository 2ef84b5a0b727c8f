"""What a store can do. Every implementation passes the same contract suite
(tests/store/contract.py).

Three rules hold for every verb: when it returns, what it did is durable; when it raises, nothing of
it is stored (but for `OutcomeUnknown`, which says so); and it never holds up another session.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from steno.journal.drafts import Draft, Stream
from steno.journal.facts import (
    DeliveryOwed,
    FreeFact,
    InputAdmitted,
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
    """How a store behaves. Time, ids and chance come from here, so that tests can fake them."""

    durability: Durability = "power"
    lease_ms: int = 30_000
    lock_wait_ms: int = 5_000
    queue_bytes_max: int = 8 << 20
    checkpoint_pages: int = 1_000
    payload_bytes_max: int = 32 << 20
    scrub_bytes_max: int = 64 << 20
    allow_network_file_system: bool = False
    only_reads: bool = False
    now_ms: Callable[[], int] | None = None
    new_id: Callable[[], str] | None = None
    vfs: str | None = None


class Admission(Struct, frozen=True, kw_only=True):
    """An input and where it goes: to `session`, or to the session bound to `create.name`, made if
    absent. With `visit`, the visit begins in the same commit, before the input. With `owes`, so do
    the debts of its answer, after it: their `target` is the input, whatever they say."""

    input: InputAdmitted
    session: str | None = None
    create: SessionStarted | None = None
    payloads: tuple[bytes, ...] = ()
    visit: SessionAttended | None = None
    owes: tuple[DeliveryOwed, ...] = ()


class Admitted(Struct, frozen=True):
    """`first` is False if this key had been admitted before: then nothing was stored again, no
    visit began, and nothing more is owed."""

    session: str
    seq: Seq
    first: bool
    visit: Seq | None = None


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


Mark = Literal["owes", "due", "remembers"]
"""What sessions can be found by without looking at all of them: something is owed to someone
outside, a distillate is due, there is something to remember."""


class Shares(Struct, frozen=True):
    """Has this fact of this session: the session that it was added to, then the forks of that."""

    session: str
    seq: Seq


Where = Mark | Shares


class Listed(Struct, frozen=True):
    """One session in a list. `mark` is the place to ask the next page from; `owner` is set while it
    runs."""

    id: str
    head: Seq
    mark: int
    owner: str | None
    row: ListingRow


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
        return self.left.cause if self.left is not None and self.left.turn == turn else "killed"


FeedMark = int
"""The place of a change among all changes of a store, in the order of their commits. Marks only
grow: through deletion, restart, restore and migration none is given twice. 0 is before the
first."""


class FactAdded(Struct, frozen=True):
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

    async def admit(self, admission: Admission) -> Admitted: ...
    async def create(self, started: SessionStarted, session: str | None = None) -> str: ...
    async def ensure(self, started: SessionStarted) -> str: ...
    async def fork(self, session: str, at: Seq, started: SessionStarted) -> str: ...
    async def add(
        self, session: str, facts: Sequence[FreeFact], key: str | None = None
    ) -> Appended: ...

    async def acquire(self, session: str) -> Lease: ...
    async def abandon(self, lease: Lease, left: Left | None = None) -> None:
        """Give the lease up without storing that, because the store cannot be written. `left` is
        kept beside the store, if that can be done: see `Glance`."""
        ...

    async def running(self, session: str) -> str | None: ...
    async def renew(self, lease: Lease) -> Lease: ...
    async def release(self, lease: Lease, head: Seq) -> Release: ...
    async def append(self, lease: Lease, facts: Sequence[TurnFact], head: Seq) -> Appended: ...
    async def draft(self, lease: Lease, stream: Stream, text: str) -> int: ...

    async def read(
        self, session: str, after: Seq = 0, limit: int = 1_000, kinds: Sequence[str] = ()
    ) -> list[Record]:
        """Facts after a seq, in order, through the parents of a fork; with `kinds`, only those
        whose tag is one of them."""
        ...

    async def drafts(self, session: str) -> list[Draft]: ...
    async def glance(self, session: str) -> Glance: ...
    def follow(
        self, session: str, cursor: Cursor | None = None, drafts: bool = True
    ) -> AsyncGenerator[Event, None]: ...
    async def changes(self, after: FeedMark | None = 0, limit: int = 1_000) -> ChangePage:
        """What changed in any session after a mark; without one, nothing but the mark of now.

        Every change that was committed is told once, in the order of the commits, to each who goes
        on from the last mark. A page may end in the middle of a commit. Text that is being streamed
        and leases are not in it. What is gone is not told again: facts of a deleted session are
        left out, and those whose text was removed come without it. A mark that this store has not
        given yet is refused with `UnknownMark`: begin again at 0.
        """
        ...

    def follow_changes(self, after: FeedMark = 0) -> AsyncGenerator[Change, None]:
        """The same, and then what comes, for ever. Close the iterator to leave."""
        ...

    async def find(self, name: str) -> str | None: ...
    async def alive(self, owner: str) -> bool: ...
    async def keys(self, session: str) -> list[Keyed]: ...
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

    async def put(self, session: str, payload: bytes) -> Hash: ...
    async def get(self, payload: Hash) -> bytes: ...

    async def bring(self, session: str, base: Seq, carried: Iterable[Carried]) -> None: ...

    async def redact(self, session: str, target: Seq, by: str = "user") -> Seq: ...
    async def delete(self, session: str, with_forks: bool = False) -> int: ...
    async def verify(self) -> Report: ...
    async def backup(self, to: Path) -> None: ...
    async def close(self) -> None: ...
