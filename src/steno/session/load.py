"""A session as it stands, read and folded once.

    Sessions.load    its head, its row, its state, of one moment
    Sessions.whole   the same, with folds that need every fact: a transcript, the turns, the usage
    Sessions.take    what a runner keeps in memory; `give_back` when it lets go

What a dead process left open is closed in memory, as the next runner will close it. Nothing is
stored by looking.

A process that has folded a session goes on from there: it reads the last fact it knows once more,
and what came after it.

    admit    folds facts 1 to 40 to see that the session can be read, stores input 41
    run      reads 40 and 41; 40 is as it was, so only 41 is folded

If the last fact differs (the session was deleted and imported again), or a text was redacted
meanwhile, memory is thrown away and everything is folded again.
"""

import copy
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from steno.engine.compaction import weigh
from steno.engine.recover import recover, waits_for_approval
from steno.journal.budget import Spent
from steno.journal.carry_over import Carry, needs_everything
from steno.journal.drafts import Draft
from steno.journal.facts import (
    Compacted,
    ContextSet,
    MessageRedacted,
    Record,
    SessionEnded,
    SpentSoFar,
    TurnEnded,
    TurnStarted,
)
from steno.journal.history import Entry, History, Weighed, restored
from steno.journal.listing import ListingRow
from steno.journal.parts import Seq
from steno.journal.state import State
from steno.journal.transcript import Transcript
from steno.plugins.protocol import NoPlugins, Plugins
from steno.store.protocol import PAGE, Glance, Store, read_all

BATCH = 64
"""Entries whose text is read again at once."""
TEXT_CHARS_MAX = 2_000_000
"""The text of a session that is kept in memory when it is loaded, about. More than fits into most
models; of what is older only the weight is kept, and the text is read again where it is needed."""
RECENT_MAX = 4
"""Sessions that stay folded in memory while this process does not run them."""
READ_MAX = 10_000
"""Sessions of which this process remembers how much it has read."""
TAIL = 16
NO_PLUGINS = NoPlugins()

T = TypeVar("T")


class Fold(Protocol):
    def apply(self, record: Record) -> object: ...


class Loaded(Struct, frozen=True):
    """A session as it stands. `head`, `row`, `owner` and `drafts` are of one moment, as they are
    stored; `closing` is what will close an open turn and the visits of dead processes, and `state`
    has taken it in."""

    id: str
    head: Seq
    row: ListingRow
    owner: str | None
    drafts: tuple[Draft, ...]
    state: State
    closing: tuple[Record, ...]

    @property
    def context(self) -> ContextSet | None:
        return context_of(self.state)

    def waits(self) -> bool:
        """Whether a person must decide about a call before the open turn goes on."""
        return self.state.turn is not None and waits_for_approval(self.state.turn)


def context_of(state: State) -> ContextSet | None:
    """What shaped the last request, in the folder that the session belongs to; before the first
    one, the model that the session was begun with."""
    if state.context is not None:
        return replace(state.context, folder=state.folder)
    if state.started is None:
        return None
    return ContextSet(state.started.model, folder=state.folder)


class ReadFrom(Struct, frozen=True):
    """Where a runner begins to read: with what a summary carries over its seq, and with what the
    session had spent by then. `made` is the place of the summary."""

    made: Seq = 0
    upto: Seq = 0
    carries: tuple[Seq, ...] = ()
    spent: SpentSoFar = SpentSoFar(0, 0, 0)

    def misses(self, record: Record) -> bool:
        """Whether a fact brings back what was said before the summary."""
        return bool(self.upto) and needs_everything(
            record, self.upto, frozenset(self.carries), self.made
        )


class Folds:
    """What the process that runs a session keeps of it in memory: everything, or from the last
    summary on. `last` is the last fact that was taken in."""

    def __init__(self, begin: ReadFrom) -> None:
        self.state = State()
        self.history = History()
        self.spent = _spent_from(begin.spent)
        self.last: Record | None = None
        self._begin = begin

    def apply(self, record: Record) -> None:
        self.carry(record)
        self.spent.apply(record)

    def carry(self, record: Record) -> None:
        """Take in a fact that a summary carries over: what it cost is counted already."""
        self.state.apply(record)
        self.history.apply(record)
        self.last = record

    def goes_on(self, records: Sequence[Record]) -> bool:
        """Whether these facts, the first of which is the last one here, can be taken in: folding
        everything anew would give the same."""
        if not records or self.last is None or records[0] != self.last:
            return False
        return not any(
            isinstance(record.fact, MessageRedacted) or self._begin.misses(record)
            for record in records[1:]
        )


class Sessions:
    """The sessions of a store, as this process knows them. A lease is kept by renewing it before
    `lease_ms` have passed; `plugins` hear of the turns that run here."""

    def __init__(
        self, store: Store, lease_ms: int = 30_000, plugins: Plugins = NO_PLUGINS
    ) -> None:
        self.store = store
        self.lease_ms = lease_ms
        self.plugins = plugins
        self._recent: OrderedDict[str, Folds] = OrderedDict()
        self._taken: set[str] = set()
        self._read: dict[str, Seq] = {}

    async def load(self, id: str) -> Loaded:
        glance, killed = await look(self.store, id)
        folds = await self._folded(id, glance)
        self._keep(id, folds)
        return _loaded(id, glance, killed, copy.deepcopy(folds.state))

    async def peek(self, id: str) -> tuple[Glance, State]:
        """What a runner will find: its state is not closed, and is of use until the next await."""
        glance = await self.store.glance(id)
        folds = await self._folded(id, glance)
        self._keep(id, folds)
        return glance, folds.state

    async def whole(self, id: str, *folds: Fold) -> Loaded:
        """As it stands; `folds` take in every fact and what will close what is open, and a
        transcript shows the text that is being streamed."""
        glance, killed = await look(self.store, id)
        state = State()
        async for record in read_all(self.store, id, 0, glance.head):
            for fold in (state, *folds):
                fold.apply(record)
        loaded = _loaded(id, glance, killed, state)
        for fold in folds:
            for record in loaded.closing:
                fold.apply(record)
            if isinstance(fold, Transcript) and glance.owner is not None:
                fold.show_drafts(glance.drafts)
        return loaded

    async def check(self, id: str) -> None:
        """Raises what reading raises, of all that a runner of the session would read. What this
        process has read it does not read again."""
        if id in self._taken:
            return
        upto = self._read.get(id)
        if upto is None:
            folds = await self._folded(id, await self.store.glance(id))
            self._keep(id, folds)
            return
        async for record in read_all(self.store, id, upto):
            self._read[id] = record.seq

    async def take(self, id: str) -> Folds:
        """The session folded, to its last fact, for who holds its lease."""
        folds = await self._folded(id)
        self._taken.add(id)
        return folds

    def give_back(self, id: str, folds: Folds) -> None:
        self._taken.discard(id)
        self._keep(id, folds)

    def forget(self, id: str) -> None:
        """Keep nothing of a session in memory."""
        self._recent.pop(id, None)
        self._read.pop(id, None)

    def _keep(self, id: str, folds: Folds) -> None:
        if len(self._read) >= READ_MAX:
            self._read.clear()
        self._read[id] = folds.state.head
        self._recent[id] = folds
        self._recent.move_to_end(id)
        if len(self._recent) > RECENT_MAX:
            self._recent.popitem(last=False)

    async def _folded(self, id: str, glance: Glance | None = None) -> Folds:
        """From memory and what is new, or from what is stored; up to the glance, if there is
        one."""
        folds = self._recent.pop(id, None)
        upto = None if glance is None else glance.head
        if folds is not None and await _catch_up(self.store, id, folds, upto):
            return folds
        return await _fold_anew(self.store, id, glance)


async def look(store: Store, id: str) -> tuple[Glance, tuple[SessionEnded, ...]]:
    """What is under way, and the ends that the next start will store for the visits of dead
    processes. If a fact came while those were looked for, one of them may have left in order."""
    while True:
        glance = await store.glance(id)
        attending = glance.row.owed.attending
        dead = [
            seq
            for seq, by in attending.items()
            if by != store.owner and not await store.alive(by)
        ]
        if not dead or (await store.glance(id)).head == glance.head:
            return glance, tuple(SessionEnded("killed", attended=seq) for seq in dead)


def closing_of(
    glance: Glance, state: State, killed: Sequence[SessionEnded] = ()
) -> tuple[Record, ...]:
    """What the next runner will store to close what a dead process left open."""
    turn = None if state.turn is None else state.turn.seq
    closes = (
        recover(state, glance.drafts, glance.cause(turn))
        if glance.owner is None
        else ()
    )
    facts = enumerate((*closes, *killed), start=glance.head + 1)
    return tuple(Record(seq, 0, fact) for seq, fact in facts)


def _loaded(
    id: str, glance: Glance, killed: Sequence[SessionEnded], state: State
) -> Loaded:
    closing = closing_of(glance, state, killed)
    for record in closing:
        state.apply(record)
    return Loaded(
        id, glance.head, glance.row, glance.owner, glance.drafts, state, closing
    )


# --- what a runner reads --------------------------------------------------------------------------


async def _catch_up(store: Store, id: str, folds: Folds, upto: Seq | None) -> bool:
    """Take in what is new. False if memory cannot be gone on with."""
    known = [
        record async for record in read_all(store, id, folds.state.head - 1, upto)
    ]
    if not folds.goes_on(known):
        return False
    for record in known[1:]:
        folds.apply(record)
    folds.history.let_go(TEXT_CHARS_MAX, weigh)
    return True


async def _fold_anew(store: Store, id: str, glance: Glance | None) -> Folds:
    """From the last summary on, unless something brings back what was before it."""
    row = (glance or await store.glance(id)).row
    upto = None if glance is None else glance.head
    folds = await _fold_from(store, id, await _last_summary(store, id, row), upto)
    return folds or await _fold_from(store, id, ReadFrom(), upto) or Folds(ReadFrom())


async def _fold_from(
    store: Store, id: str, begin: ReadFrom, upto: Seq | None
) -> Folds | None:
    """None if something brings back what was before the summary."""
    folds, read = Folds(begin), 0
    async for record in _carried(store, id, begin.carries):
        folds.carry(record)
    async for record in read_all(store, id, begin.upto, upto):
        if begin.misses(record):
            return None
        folds.apply(record)
        read += 1
        if read % PAGE == 0:
            folds.history.let_go(TEXT_CHARS_MAX, weigh)
    folds.history.let_go(TEXT_CHARS_MAX, weigh)
    return folds


async def _last_summary(store: Store, id: str, row: ListingRow) -> ReadFrom:
    """The last summary that can be begun from; the beginning if there is none."""
    if not row.compacted:
        return ReadFrom()
    [record] = await store.read(id, row.compacted - 1, 1)
    fact = record.fact
    if not isinstance(fact, Compacted) or fact.carries is None or fact.spent is None:
        return ReadFrom()
    return ReadFrom(record.seq, fact.upto, fact.carries, fact.spent)


async def _carried(
    store: Store, id: str, seqs: Sequence[Seq]
) -> AsyncIterator[Record]:
    """Single facts, in as few reads as their places allow."""
    runs: list[list[Seq]] = []
    for seq in seqs:
        if runs and seq == runs[-1][-1] + 1:
            runs[-1].append(seq)
        else:
            runs.append([seq])
    for run in runs:
        for record in await store.read(id, run[0] - 1, len(run)):
            yield record


async def with_text(
    store: Store, id: str, entries: Sequence[Weighed | T]
) -> AsyncIterator[Entry | T]:
    """Entries one by one, with the text that was let go, a few in memory at a time."""
    for start in range(0, len(entries), BATCH):
        batch = entries[start : start + BATCH]
        wanted = {entry.fact: entry for entry in batch if isinstance(entry, Weighed)}
        found: dict[Seq, Entry] = {}
        if wanted:
            async for record in read_all(store, id, min(wanted) - 1, max(wanted)):
                if record.seq in wanted:
                    found[record.seq] = restored(wanted[record.seq], record.fact)
        for entry in batch:
            yield found[entry.fact] if isinstance(entry, Weighed) else entry


async def to_carry(
    store: Store, id: str, upto: Seq
) -> tuple[tuple[Seq, ...] | None, SpentSoFar]:
    """What a summary up to a seq carries over it. Reads only what came since the summary before
    it."""
    before = await _last_summary(store, id, (await store.glance(id)).row)
    carried = (
        await _carried_from(store, id, before, upto) if before.upto <= upto else None
    )
    carry, spent = (
        carried
        or await _carried_from(store, id, ReadFrom(), upto)
        or (Carry(), Spent())
    )
    return carry.seqs(), SpentSoFar(spent.steps, spent.tokens, spent.worked_ms)


async def _carried_from(
    store: Store, id: str, begin: ReadFrom, upto: Seq
) -> tuple[Carry, Spent] | None:
    """None if something brings back what was before the summary."""
    carry, spent = Carry(), _spent_from(begin.spent)
    async for record in _carried(store, id, begin.carries):
        carry.apply(record)
    async for record in read_all(store, id, begin.upto):
        if begin.misses(record):
            return None
        if record.seq <= upto:
            carry.apply(record)
            spent.apply(record)
    return carry, spent


def _spent_from(so_far: SpentSoFar) -> Spent:
    return Spent(steps=so_far.steps, tokens=so_far.tokens, worked_ms=so_far.worked_ms)


# --- only the end ---------------------------------------------------------------------------------


async def tail(store: Store, id: str, upto: Seq) -> State:
    """What is open at a fact, folded from the last fact up to it that began or ended a turn."""
    return folded(await tail_records(store, id, upto))


async def tail_records(store: Store, id: str, upto: Seq) -> list[Record]:
    length = TAIL
    while True:
        after = max(upto - length, 0)
        records = [record async for record in read_all(store, id, after, upto)]
        for at in reversed(range(len(records))):
            if isinstance(records[at].fact, TurnStarted | TurnEnded):
                return records[at:]
        if after == 0:
            return records
        length *= 8


async def now(store: Store, id: str) -> State:
    """What is open in a session as it stands, without reading all of it."""
    glance = await store.glance(id)
    return _loaded(id, glance, (), await tail(store, id, glance.head)).state


def folded(records: Sequence[Record]) -> State:
    state = State()
    for record in records:
        state.apply(record)
    return state
