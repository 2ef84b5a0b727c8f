"""The verbs that write, each a function of a transaction: check everything, then add.

Nothing here knows about threads, futures, commits or a backend; the commit queue runs many of these
in one transaction. A session's family, its leases and its keys are guarded here, in the transaction
that writes.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from steno.journal.drafts import Draft, Stream, keeps, sealed_by
from steno.journal.facts import (
    AnyFact,
    ForkPoint,
    InputAdmitted,
    InputWithdrawn,
    ItemKept,
    MessageGiven,
    MessageRedacted,
    Record,
    SessionRenamed,
    SessionStarted,
    SessionTitled,
    ToolSettled,
    payloads_of,
    taken_by,
)
from steno.journal.listing import ListingRow, title_of, titles
from steno.journal.parts import (
    GONE,
    File,
    Hash,
    Redacted,
    Seq,
    hash_of,
    outcome_parts,
)
from steno.journal.redaction import redact as without_text
from steno.store import queries, redact_cascade
from steno.store.backend import KeyRow
from steno.store.errors import (
    ForksRemain,
    KeyReused,
    LeftOpen,
    NotAllowed,
    NotPending,
    ShownTextDropped,
    Stale,
)
from steno.store.protocol import (
    Admission,
    Admitted,
    Appended,
    Keeping,
    Kept,
    Lease,
    Release,
)
from steno.store.transaction import Session, Transaction, Written, written
from steno.store.values import KEY_LEN_MAX, check_new_id

RESERVED_SOURCE = "steno/add/"
ANYWHERE_SOURCE = "steno/items"
"""Of the keys of items that are found without their session."""


class Moment(Struct, frozen=True, gc=False):
    """Time and fresh ids, from outside."""

    now_ms: int
    new_id: Callable[[], str]


# --- inputs and other facts that need no lease ----------------------------------------------------


def admit(
    tx: Transaction, admission: Admission, ready: Sequence[Written], moment: Moment
) -> Admitted:
    """`ready` are the messages that were given, the visit, if one begins, and the input, as they
    will be stored."""
    said = admission.input
    if said.source.startswith(RESERVED_SOURCE) or len(said.source) > KEY_LEN_MAX:
        raise NotAllowed(f"{said.source!r} cannot be the source of an input")
    if admission.create is not None and admission.create.forked_from is not None:
        raise NotAllowed("a fork is made by fork")
    before = _by_key(tx, said.source, said.key)
    if before is not None:
        return _admitted_before(tx, before, said)
    id, started = _target(tx, admission, moment)
    if admission.given and started is None:
        raise NotAllowed(
            f"session {id!r} has begun: it cannot be given what was said before it"
        )
    brought = {hash_of(body): body for body in admission.payloads}
    at = (1 if started is not None else tx.session(id).row.head) + len(ready)
    facts = [*ready, *written(replace(owed, target=at) for owed in admission.owes)]
    tx.check_payloads(facts, brought)
    session = (
        tx.session(id) if started is None else _make(tx, id, started, moment.now_ms)
    )
    for hash, body in brought.items():
        put(tx, id, hash, body)
    first = tx.insert(session, facts, moment.now_ms)
    if said.key is not None:
        tx.writer.put_key(said.source, said.key, session.row.n, at, 1)
    visit = None if admission.visit is None else first + len(admission.given)
    return Admitted(id, at, True, visit)


def admitted(tx: Transaction, source: str, key: str) -> Admitted | None:
    before = _by_key(tx, source, key)
    return None if before is None else Admitted(before.session, before.seq, False)


def _target(
    tx: Transaction, admission: Admission | Keeping, moment: Moment
) -> tuple[str, SessionStarted | None]:
    """The session an input goes to, and how to start it if it does not exist."""
    create = admission.create
    if admission.session is not None:
        if create is None or tx.exists(admission.session):
            tx.session(admission.session)
            return admission.session, None
        if create.name is not None and bound(tx, create.name) is not None:
            raise KeyReused(f"the name {create.name!r} is bound to another session")
        return check_new_id(admission.session), create
    if create is None:
        raise NotAllowed("it needs a session, or how to create one")
    named = None if create.name is None else bound(tx, create.name)
    return (moment.new_id(), create) if named is None else (named, None)


def bound(tx: Transaction, name: str) -> str | None:
    if len(name) > KEY_LEN_MAX:
        raise NotAllowed(f"a name has {KEY_LEN_MAX} characters at most")
    return tx.writer.bound(name)


def _admitted_before(
    tx: Transaction, before: KeyRow, said: InputAdmitted
) -> Admitted:
    stored = _record(tx, before.session, before.seq).fact
    same = isinstance(stored, InputAdmitted) and (
        stored.parts == said.parts
        or any(isinstance(part, Redacted) for part in stored.parts)
    )
    if not same:
        raise KeyReused(
            f"{said.source!r} sent {said.key!r} before, with other content; nothing was stored"
        )
    return Admitted(before.session, before.seq, False)


def create(
    tx: Transaction, started: SessionStarted, id: str | None, moment: Moment
) -> str:
    id = moment.new_id() if id is None else check_new_id(id)
    if started.forked_from is not None:
        raise NotAllowed("a fork is made by fork")
    if tx.exists(id) or (
        started.name is not None and bound(tx, started.name) is not None
    ):
        raise KeyReused(
            f"there is a session {id!r} or one named {started.name!r} already"
        )
    _make(tx, id, started, moment.now_ms)
    return id


def ensure(tx: Transaction, started: SessionStarted, moment: Moment) -> str:
    if started.name is None:
        raise NotAllowed("only a session with an external name can be found again")
    found = bound(tx, started.name)
    return create(tx, started, None, moment) if found is None else found


def _make(tx: Transaction, id: str, started: SessionStarted, at_ms: int) -> Session:
    session = tx.make(id, started.name, None, 0, ListingRow())
    tx.insert(session, written([started]), at_ms)
    return session


def fork(
    tx: Transaction,
    parent: str,
    at: Seq,
    started: SessionStarted,
    listing: ListingRow,
    moment: Moment,
) -> str:
    """`listing` is the parent's row as it was at `at`: it is folded before the transaction, where
    that holds up no other verb."""
    row = tx.session(parent).row
    if not 1 <= at <= row.head:
        raise NotAllowed(f"session {parent!r} has no fact {at}")
    if started.name is not None:
        raise NotAllowed("a fork has no external name: that stays with its parent")
    holder = queries.holder(tx.writer, row, at)
    if listing.titled:  # a redaction may have come since the fold
        titled = ListingRow()
        titled.apply(_record(tx, parent, listing.titled))
        listing.title = titled.title
    origin = SessionStarted(
        started.platform, started.model, None, ForkPoint(parent, at)
    )
    id = moment.new_id()
    session = tx.make(id, None, holder.n, at, listing)
    tx.insert(session, written([origin]), moment.now_ms)
    return id


def add(
    tx: Transaction,
    id: str,
    facts: Sequence[Written],
    key: str | None,
    moment: Moment,
) -> Appended:
    session = tx.session(id)
    source = RESERVED_SOURCE + id
    before = _by_key(tx, source, key)
    if before is not None:
        stored = [_record(tx, id, before.seq + i) for i in range(before.count)]
        if [record.fact for record in stored] != [fact for fact, _, _ in facts]:
            raise KeyReused(
                f"key {key!r} was used before in {id!r}, with other facts; nothing was stored"
            )
        return Appended(before.seq, before.seq + len(facts) - 1, (), stored[0].at_ms)
    for fact, _, _ in facts:
        if isinstance(fact, InputWithdrawn) and not session.listing.waits(fact.input):
            raise NotPending(
                f"input {fact.input} of session {id!r} does not wait any more; nothing was changed"
            )
    tx.check_payloads(facts)
    first = tx.insert(session, facts, moment.now_ms)
    if key is not None:
        tx.writer.put_key(source, key, session.row.n, first, len(facts))
    return Appended(first, session.row.head, (), moment.now_ms)


def item_source(id: str, anywhere: bool) -> str:
    return ANYWHERE_SOURCE if anywhere else RESERVED_SOURCE + id


def item_key(format: str, key: str) -> str:
    """Under what an item is found in its session: beside the keys of other facts."""
    return f"item:{format}:{key}"


class _Plan(Struct, frozen=True):
    """A keeping that was found good: what of it is new, and what came before under its keys."""

    id: str
    started: SessionStarted | None
    items: tuple[ItemKept, ...]
    before: dict[int, Seq]
    new: list[int]
    facts: list[Written]
    brought: dict[Hash, bytes]
    last: Seq
    source: str


def keep(
    tx: Transaction, keeping: Keeping, ready: Sequence[Written], moment: Moment
) -> Kept:
    """`ready` are the items, and then the fact that withdraws others, as they will be stored."""
    return _carry_out(tx, _planned(tx, keeping, ready, moment), moment)


def keep_all(
    tx: Transaction,
    keepings: Sequence[tuple[Keeping, Sequence[Written]]],
    moment: Moment,
) -> tuple[Kept, ...]:
    """Every one is looked at before the first is carried out."""
    plans = [_planned(tx, keeping, ready, moment) for keeping, ready in keepings]
    if len({plan.id for plan in plans}) < len(plans):
        raise NotAllowed("two of them are about one session; nothing was stored")
    return tuple(_carry_out(tx, plan, moment) for plan in plans)


def _planned(
    tx: Transaction, keeping: Keeping, ready: Sequence[Written], moment: Moment
) -> _Plan:
    id, started = _target(tx, keeping, moment)
    source, items = item_source(id, keeping.anywhere), keeping.items
    before = {
        at: row
        for at, item in enumerate(items)
        if item.key is not None
        and (row := _by_key(tx, source, item_key(item.format, item.key))) is not None
    }
    for at, row in before.items():
        if row.session != id:
            raise KeyReused(
                f"the item {items[at].key!r} is in another session; nothing was stored"
            )
        _check_same_item(tx, row, items[at], keeping.same)
    known = {at: row.seq for at, row in before.items()}
    last = 0 if started is not None else tx.session(id).listing.items
    if items and len(before) == len(items):
        return _Plan(id, started, items, known, [], [], {}, last, source)
    if keeping.expect is not None and keeping.expect != last:
        raise Stale(id, keeping.expect, last)
    head = 0 if started is not None else tx.session(id).row.head
    for first, upto in keeping.withdraw:
        if not 1 <= first <= upto <= head:
            raise NotAllowed(
                f"session {id!r} has no items {first} to {upto}; nothing was stored"
            )
    keys = [(item.format, item.key) for item in items if item.key is not None]
    if len(set(keys)) < len(keys):
        raise KeyReused("two of the items have the same key; nothing was stored")
    new = [at for at in range(len(ready)) if at not in before]
    brought = {hash_of(body): body for body in keeping.payloads}
    facts = [ready[at] for at in new]
    tx.check_payloads(facts, brought)
    return _Plan(id, started, items, known, new, facts, brought, last, source)


def _carry_out(tx: Transaction, plan: _Plan, moment: Moment) -> Kept:
    id, items, places = plan.id, plan.items, dict(plan.before)
    if not plan.new:
        return Kept(id, tuple(places[at] for at in range(len(items))), plan.last)
    started = plan.started
    session = (
        tx.session(id) if started is None else _make(tx, id, started, moment.now_ms)
    )
    for hash, body in plan.brought.items():
        put(tx, id, hash, body)
    first = tx.insert(session, plan.facts, moment.now_ms)
    places |= {at: first + i for i, at in enumerate(plan.new)}
    for at, item in enumerate(items):
        if item.key is not None and at not in plan.before:
            key = item_key(item.format, item.key)
            tx.writer.put_key(plan.source, key, session.row.n, places[at], 1)
    return Kept(id, tuple(places[at] for at in range(len(items))), session.row.head)


def _check_same_item(
    tx: Transaction, before: KeyRow, item: ItemKept, same: Literal["refuse", "first"]
) -> None:
    stored = _record(tx, before.session, before.seq).fact
    if same == "first" or stored == item or stored == without_text(item):
        return
    raise KeyReused(
        f"the item {item.key!r} was kept before, with other content; nothing was stored"
    )


def _by_key(tx: Transaction, source: str, key: str | None) -> KeyRow | None:
    if key is None:
        return None
    if not key or len(key) > KEY_LEN_MAX:
        raise NotAllowed(f"a key has 1 to {KEY_LEN_MAX} characters")
    return tx.writer.key(source, key)


def _record(tx: Transaction, id: str, seq: Seq) -> Record:
    return queries.records(tx.writer, tx.session(id).row, seq - 1, 1)[0]


# --- leases and what they allow -------------------------------------------------------------------


def acquire(
    tx: Transaction,
    id: str,
    owner: str,
    token: int | None,
    expires_ms: int,
    closing: tuple[Seq, Sequence[Written]] | None,
    moment: Moment,
) -> Lease | None:
    """Take the lease if it is free, or if its token is still that of an owner who was found
    gone; None if another caller was quicker. `closing` closes a turn that is open at that seq."""
    session = tx.session(id)
    row = session.row
    if row.owner is not None if token is None else row.token != token:
        tx.must_look()
        return None
    facts: Sequence[Written] = ()
    if closing is not None and session.listing.open:
        head, facts = closing
        if row.head != head:
            tx.must_look()
            raise LeftOpen(id, row.head)
    sealed = _sealable_by(tx, session, facts)
    row.token, row.owner, row.expires_ms = row.token + 1, owner, expires_ms
    tx.save(session)
    if facts:
        _add_sealing(tx, session, facts, sealed, moment)
    return Lease(id, row.token, owner, expires_ms)


def renew(tx: Transaction, lease: Lease, expires_ms: int) -> Lease:
    session = tx.owned(lease)
    session.row.expires_ms = expires_ms
    tx.save(session)
    return replace(lease, expires_ms=expires_ms)


def release(tx: Transaction, lease: Lease, head: Seq) -> Release:
    session = tx.owned(lease)
    foreign = tx.since(session, head)
    if foreign:
        return Release(False, foreign)
    session.row.owner, session.row.expires_ms = None, 0
    tx.save(session)
    return Release(True, ())


def append(
    tx: Transaction, lease: Lease, facts: Sequence[Written], head: Seq, moment: Moment
) -> Appended:
    session = tx.owned(lease)
    sealed = _sealable_by(tx, session, facts)
    foreign = tx.since(session, head)
    _refuse_withdrawn(session.row.id, facts, foreign)
    redact_cascade.check(tx, session.row.id, facts, foreign)
    first = _add_sealing(tx, session, facts, sealed, moment)
    return Appended(first, session.row.head, foreign, moment.now_ms)


def _sealable_by(
    tx: Transaction, session: Session, facts: Sequence[Written]
) -> list[Seq]:
    tx.check_payloads(facts)
    return [
        _sealable(tx, session, fact, at)
        for fact, _, _ in facts
        if (at := sealed_by(fact)) is not None
    ]


def _add_sealing(
    tx: Transaction,
    session: Session,
    facts: Sequence[Written],
    sealed: list[Seq],
    moment: Moment,
) -> Seq:
    for started in sealed:
        tx.seal(session, started)
    return tx.insert(session, facts, moment.now_ms)


def _refuse_withdrawn(
    id: str, facts: Sequence[Written], foreign: Sequence[Record]
) -> None:
    """A runner that has not seen yet that an input was taken back may not take it."""
    if not foreign:
        return
    taken = {seq for fact, _, _ in facts for seq in taken_by(fact)}
    withdrawn = {
        record.fact.input
        for record in foreign
        if isinstance(record.fact, InputWithdrawn)
    }
    if taken & withdrawn:
        raise NotPending(
            f"input {min(taken & withdrawn)} of session {id!r} was taken back; nothing was stored"
        )


def _sealable(tx: Transaction, session: Session, fact: AnyFact, started: Seq) -> Seq:
    """The seq whose drafts a fact seals, once it is sure that it keeps every character of them."""
    for draft in tx.drafts_at(session, started):
        if not keeps(fact, draft) and not _in_payload(tx, fact, draft):
            raise ShownTextDropped(
                f"session {session.row.id!r}: sealing fact {started} would drop "
                f"{draft.stream.kind} that was shown"
            )
    return started


def _in_payload(tx: Transaction, fact: AnyFact, draft: Draft) -> bool:
    """Whether a payload that stands for a tool's whole output begins with all that was shown of
    it."""
    if not isinstance(fact, ToolSettled) or draft.stream.kind != "output":
        return False
    shown = draft.text.encode("utf-8", "surrogatepass")
    files = [
        part.hash for part in outcome_parts(fact.outcome) if isinstance(part, File)
    ]
    return any(tx.writer.payload(hash, len(shown)) == shown for hash in files)


def draft(tx: Transaction, lease: Lease, stream: Stream, text: str) -> int:
    return tx.draft(tx.owned(lease), stream, text)


# --- payloads -------------------------------------------------------------------------------------


def put(tx: Transaction, id: str, hash: Hash, body: bytes) -> Hash:
    session = tx.session(id)
    tx.writer.put_payload(hash, body)
    tx.writer.own_payload(hash, session.row.n, 0)
    return hash


# --- removing -------------------------------------------------------------------------------------


def redact(
    tx: Transaction,
    id: str,
    target: Seq,
    at: tuple[str, Seq],
    by: str,
    moment: Moment,
) -> Seq:
    """Take the text of one message out of the journal; the seq of the fact that says so.

    `at` is the session and seq of the fact that holds the text, found before the transaction, where
    looking holds up no other verb.
    """
    said = written([MessageRedacted(target, by)])
    session, holder = tx.session(id), tx.session(at[0])
    source, key = RESERVED_SOURCE + id, f"redacted:{at[1]}"
    before = _by_key(tx, source, key)
    if before is not None:
        return before.seq
    record = _record(tx, at[0], at[1])
    emptied = without_text(record.fact)
    if emptied is None:
        raise NotAllowed(f"session {id!r} has no text to redact at {target}")
    tx.replace(holder, record, emptied)
    for hash in payloads_of(record.fact):
        tx.writer.own_payload(hash, holder.row.n, -1)
    family = [
        tx.session(row.id)
        for row in queries.family(tx.writer, holder.row, record.seq)
    ]
    redact_cascade.empty_distillates(tx, family, record.seq)
    for heir in family:
        _retitle(tx, heir, record.seq, emptied)
    seq = tx.insert(session, said, moment.now_ms)
    tx.writer.put_key(source, key, session.row.n, seq, 1)
    return seq


def _retitle(tx: Transaction, session: Session, seq: Seq, emptied: AnyFact) -> None:
    """A title that was taken from the redacted text goes with it, as folding the facts again would
    have it."""
    listing = session.listing
    if isinstance(emptied, (InputAdmitted, MessageGiven, ItemKept)):
        gone = title_of(titles(emptied)) == GONE
        lost = not listing.named and seq <= (listing.titled or seq) and gone
    else:
        given = isinstance(emptied, SessionRenamed | SessionTitled)
        lost = given and seq == listing.titled
    if listing.proposed and (seq <= listing.proposed or lost):
        listing.title, listing.proposed = (
            GONE,
            0,
        )  # another one may be made of what is left
    elif lost and listing.title != GONE:
        listing.title, listing.titled = GONE, seq
    # In any case: the row as it is stored may be behind, with the text as its title.
    tx.save(session)


def delete(tx: Transaction, id: str, with_forks: bool, moment: Moment) -> int:
    """Take sessions out of the world in one step; how many. Their facts are swept afterwards."""
    doomed = [
        tx.session(row.id).row
        for row in queries.family(tx.writer, tx.session(id).row)
    ]
    if len(doomed) > 1 and not with_forks:
        names = ", ".join(repr(fork.id) for fork in doomed[1:])
        raise ForksRemain(
            f"session {id!r} has forks that refer to it: {names}; delete them with it, or keep it"
        )
    for row in reversed(doomed):
        tx.writer.delete(row, moment.now_ms)
        tx.writer.note(row.n, "deleted", 0)
        tx.forget(row.id)
    return len(doomed)


def sweep(tx: Transaction) -> bool:
    """Remove a bounded part of what deleted sessions, or imports that failed, left; whether there
    is more."""
    return tx.writer.sweep()
