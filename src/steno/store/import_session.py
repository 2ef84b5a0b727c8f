"""A session that comes from another store: whole, or not at all.

    begin    reserves a number; from here on what is stored under it belongs to no session
    stage    one step after another, each small, so that no other verb waits long
    finish   one commit makes it a session
    fail     what was staged is to be swept; of a process that was killed, the next one does that
    extend   what came to it since where it is from, in one commit, if nothing came to it here

Nothing that comes is trusted. `Arrival` refuses what no store could have held: a gap, a payload
that is missing, text that is streamed to nothing that is open.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from steno.journal.drafts import Draft, Stream, sealed_by
from steno.journal.facts import (
    InputAdmitted,
    Record,
    SessionStarted,
    StepStarted,
    ToolStarted,
    payloads_of,
)
from steno.journal.listing import ListingRow
from steno.journal.parts import Hash, Seq, hash_of
from steno.store.backend import SEQ_MAX
from steno.store.errors import KeyReused, NotAllowed
from steno.store.protocol import Carried, Keyed, Payload
from steno.store.transaction import Transaction, written
from steno.store.values import (
    KEY_LEN_MAX,
    STREAM_CHARS_MAX,
    check_new_id,
    check_stream,
    encoded,
    expect,
)
from steno.store.verbs import ANYWHERE_SOURCE, RESERVED_SOURCE, Moment, bound, put

ANYWHERE = "steno/anywhere:"
"""Begins a key of the whole store where the keys of a session are listed."""
STEP_FACTS = 500
STEP_BYTES = 1 << 20
PLACES_BELOW = 1 << 53
PLACES_PER_MS = 1 << 10


class Batch(Struct):
    """What is stored with one step. A key is source, key, first seq, count."""

    facts: list[tuple[Record, bytes, tuple[Hash, ...]]] = []
    drafts: list[Draft] = []
    payloads: dict[Hash, bytes] = {}
    keys: list[tuple[str, str, Seq, int]] = []
    size: int = 0

    def is_full(self) -> bool:
        return (
            len(self.facts) + len(self.keys) >= STEP_FACTS or self.size >= STEP_BYTES
        )


class Arrival:
    """A session as far as it has come. Facts up to `base` are those of the sessions that it was
    forked from."""

    def __init__(self, id: str, base: Seq, payload_bytes_max: int) -> None:
        self.id, self.base = id, base
        self.head: Seq = 0
        self.keys = 0
        self.listing = ListingRow()
        self._payload_bytes_max = payload_bytes_max
        self._brought: set[Hash] = set()
        self._open: dict[Seq, bool] = {}
        """Steps and tools that are not sealed; whether it is a tool."""
        self._streams: set[Stream] = set()
        self._started: Seq = 0
        self._after_facts = False

    def batches(self, carried: Iterable[Carried]) -> Iterator[Batch]:
        batch = Batch()
        for one in carried:
            self._take(one, batch)
            if batch.is_full():
                yield batch
                batch = Batch()
        if self._started != self.base + 1:
            raise NotAllowed(
                f"session {self.id!r} should begin with fact {self.base + 1}; nothing was stored"
            )
        yield batch

    def _take(self, one: Carried, batch: Batch) -> None:
        match one:
            case Payload(body=body):
                self._payload(body, batch)
            case Record():
                self._fact(one, batch)
            case Draft():
                self._after_facts = True
                self._draft(one, batch)
            case Keyed():
                self._after_facts = True
                if str(one.key).startswith(ANYWHERE):
                    one = replace(one, key=one.key.removeprefix(ANYWHERE))
                    self._key(ANYWHERE_SOURCE, one, batch)
                else:
                    self._key(RESERVED_SOURCE + self.id, one, batch)
            case _:  # a caller that no type checker has seen
                raise NotAllowed(
                    f"{type(one).__name__} is no part of a session; nothing was stored"
                )

    def _payload(self, body: bytes, batch: Batch) -> None:
        expect(bytes, payload=body)
        if len(body) > self._payload_bytes_max:
            raise NotAllowed(
                f"a payload may have {self._payload_bytes_max} bytes at most; nothing was stored"
            )
        hash = hash_of(body)
        self._brought.add(hash)
        batch.payloads[hash] = body
        batch.size += len(body)

    def _fact(self, record: Record, batch: Batch) -> None:
        fact = record.fact
        expect(int, seq=record.seq, at_ms=record.at_ms)
        if self._after_facts or record.seq != self.head + 1 or record.seq > SEQ_MAX:
            raise NotAllowed(
                f"fact {record.seq} does not follow fact {self.head}; nothing was stored"
            )
        body, hashes = encoded(fact), payloads_of(fact)
        missing = [hash for hash in hashes if hash not in self._brought]
        if missing:
            raise NotAllowed(
                f"fact {record.seq} names payload {missing[0]}, which did not come; nothing was "
                "stored"
            )
        self.head = record.seq
        self._note(record)
        self.listing.apply(record)
        batch.facts.append((record, body, hashes))
        batch.size += len(body)
        if (
            isinstance(fact, InputAdmitted)
            and fact.key is not None
            and record.seq > self.base
        ):
            self._key(fact.source, Keyed(record.seq, fact.key, 1), batch)

    def _note(self, record: Record) -> None:
        """What begins here, and which streams are open after it."""
        fact = record.fact
        if isinstance(fact, SessionStarted):
            parent = fact.forked_from
            if record.seq != (1 if parent is None else parent.seq + 1):
                raise NotAllowed(
                    f"no session can begin with fact {record.seq}; nothing was stored"
                )
            self._started = record.seq
            self._open.clear()
        elif self.head == 1:
            raise NotAllowed(
                "the first fact does not begin a session; nothing was stored"
            )
        elif isinstance(fact, StepStarted | ToolStarted):
            self._open[record.seq] = isinstance(fact, ToolStarted)
        elif (sealed := sealed_by(fact)) is not None:
            self._open.pop(sealed, None)

    def _draft(self, draft: Draft, batch: Batch) -> None:
        check_stream(draft.stream)
        expect(str, text=draft.text)
        started = draft.stream.started
        if self._open.get(started) != (draft.stream.kind == "output"):
            raise NotAllowed(
                f"no {draft.stream.kind} is open at fact {started}; nothing was stored"
            )
        if (
            not 0 < len(draft.text) <= STREAM_CHARS_MAX
            or draft.stream in self._streams
        ):
            raise NotAllowed(
                f"the {draft.stream.kind} of fact {started} cannot be stored; nothing was stored"
            )
        self._streams.add(draft.stream)
        batch.drafts.append(draft)
        batch.size += len(draft.text)

    def _key(self, source: str, keyed: Keyed, batch: Batch) -> None:
        expect(int, seq=keyed.seq, count=keyed.count)
        expect(str, key=keyed.key)
        own = (
            self.base < keyed.seq
            and keyed.count >= 1
            and keyed.seq + keyed.count - 1 <= self.head
        )
        fits = 0 < len(keyed.key) <= KEY_LEN_MAX and len(source) <= KEY_LEN_MAX + len(
            RESERVED_SOURCE
        )
        if not own or not fits:
            raise NotAllowed(
                f"the key of fact {keyed.seq} cannot be stored; nothing was stored"
            )
        self.keys += 1
        batch.keys.append((source, keyed.key, keyed.seq, keyed.count))


def begin(tx: Transaction, id: str, owner: str, moment: Moment) -> int:
    """The number under which a session arrives. It is never given again."""
    check_new_id(id)
    if tx.exists(id):
        raise KeyReused(f"there is a session {id!r} already; nothing was changed")
    return tx.writer.begin_import(id, moment.now_ms, owner)


def stage(tx: Transaction, n: int, owner: str, batch: Batch) -> None:
    """Store a step of it."""
    _check(tx, n, owner)
    for source, key, seq, _ in batch.keys:
        if (taken := tx.writer.key(source, key)) is not None:
            raise KeyReused(
                f"fact {seq} has the key {key!r} of {source!r}, which session {taken.session!r} "
                "has used here; nothing was stored"
            )
    for hash, body in batch.payloads.items():
        tx.writer.put_payload(hash, body)
        tx.writer.own_payload(hash, n, 0)
    for source, key, seq, count in batch.keys:
        tx.writer.put_key(source, key, n, seq, count)
    for draft in batch.drafts:
        tx.writer.draft(n, draft.stream, 0, draft.text)
    tx.writer.add(
        n, [(record.seq, record.at_ms, body) for record, body, _ in batch.facts]
    )
    for _, _, hashes in batch.facts:
        for hash in hashes:
            tx.writer.own_payload(hash, n, 1)


def finish(tx: Transaction, n: int, owner: str, arrival: Arrival) -> None:
    """Make it a session. A key that was used here meanwhile is not its own any more, so they are
    counted."""
    _check(tx, n, owner)
    name = arrival.listing.name
    if tx.exists(arrival.id):
        raise KeyReused(
            f"there is a session {arrival.id!r} already; nothing was changed"
        )
    if name is not None and (other := bound(tx, name)) is not None:
        raise KeyReused(
            f"the name {name!r} is bound to session {other!r} here; nothing was stored"
        )
    if tx.writer.import_of(n)[1] != arrival.keys:
        raise KeyReused(
            f"a key of session {arrival.id!r} is used twice, or was used here meanwhile; nothing "
            "was stored"
        )
    row = tx.writer.end_import(
        n, arrival.id, name, arrival.head, _place(arrival.listing)
    )
    tx.arrived(row, arrival.listing)
    tx.writer.note(n, "imported", arrival.head)


def _place(listing: ListingRow) -> int:
    """Where it stands in lists until something is added to it here: behind the sessions of this
    store, whose places are above 0, and among those that came by the time it was last changed. A
    number that JavaScript holds exactly."""
    return min(listing.updated_ms * PLACES_PER_MS - PLACES_BELOW, -1)


def extend(
    tx: Transaction,
    id: str,
    head: Seq,
    records: Sequence[Record],
    payloads: Sequence[bytes],
) -> None:
    """Add facts to a session as they are elsewhere, with their own times."""
    session = tx.session(id)
    if session.row.head != head:
        raise NotAllowed(f"session {id!r} has gone on here; nothing was stored")
    if session.row.owner is not None:
        raise NotAllowed(f"session {id!r} is being run; nothing was stored")
    if [record.seq for record in records] != list(
        range(head + 1, head + 1 + len(records))
    ):
        raise NotAllowed(f"the facts do not follow fact {head}; nothing was stored")
    facts = written(record.fact for record in records)
    brought = {hash_of(body): body for body in payloads}
    tx.check_payloads(facts, brought)
    for hash, body in brought.items():
        put(tx, id, hash, body)
    for record, fact in zip(records, facts, strict=True):
        tx.insert(session, [fact], record.at_ms)


def fail(tx: Transaction, n: int) -> None:
    """Have everything swept that was staged, unless it is a session by now."""
    tx.writer.fail_import(n)


def _check(tx: Transaction, n: int, owner: str) -> None:
    if tx.writer.import_of(n)[0] != owner:
        raise NotAllowed(
            "the import was given up by another process; nothing was stored"
        )
