"""The verbs that write, each a function of a transaction: check everything, then add.

Nothing here knows about threads, futures or commits; the pipeline runs many of these in one
transaction.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from types import NoneType

from msgspec import Struct
from msgspec.structs import replace

from steno.journal.codec import escape
from steno.journal.drafts import Draft, Stream, keeps, sealed_by
from steno.journal.facts import (
    FREE_FACTS,
    TURN_FACTS,
    AnyFact,
    DeliveryOwed,
    ForkPoint,
    FreeFact,
    InputAdmitted,
    InputWithdrawn,
    MessageRedacted,
    Record,
    SessionAttended,
    SessionRenamed,
    SessionStarted,
    ToolSettled,
    TurnFact,
    payloads_of,
    taken_by,
)
from steno.journal.listing import ListingRow, title_of
from steno.journal.parts import GONE, File, Hash, Redacted, Seq, outcome_parts
from steno.journal.redaction import redact as without_text
from steno.store.errors import ForksRemain, KeyReused, NotAllowed, NotPending, ShownTextDropped
from steno.store.protocol import Admission, Admitted, Appended, Lease, Release
from steno.store.sqlite import forgetting, reading
from steno.store.sqlite.sql import STATEMENTS
from steno.store.sqlite.transaction import Session, Transaction
from steno.store.values import encoded, expect, facts_of

KEY_LEN_MAX = 512
RESERVED_SOURCE = "steno/add/"
SWEEP_FACTS = 2_000
SWEEP_PAYLOADS = 20


class Moment(Struct, frozen=True, gc=False):
    """Time and fresh ids, from outside."""

    now_ms: int
    new_id: Callable[[], str]


# --- inputs and other facts that need no lease ----------------------------------------------------


def admit(tx: Transaction, admission: Admission, moment: Moment) -> Admitted:
    expect(Admission, admission=admission)
    said = admission.input
    expect(InputAdmitted, input=said)
    expect((SessionStarted, NoneType), create=admission.create)
    expect((str, NoneType), session=admission.session)
    expect((SessionAttended, NoneType), visit=admission.visit)
    expect(tuple, payloads=admission.payloads, owes=admission.owes)
    for owed in admission.owes:
        expect(DeliveryOwed, owes=owed)
    for fact in (said, admission.create, admission.visit, *admission.owes):
        if fact is not None:
            encoded(fact)
    if said.source.startswith(RESERVED_SOURCE) or len(said.source) > KEY_LEN_MAX:
        raise NotAllowed(f"{said.source!r} cannot be the source of an input")
    if admission.create is not None and admission.create.forked_from is not None:
        raise NotAllowed("a fork is made by fork")
    before = _by_key(tx, said.source, said.key)
    if before is not None:
        return _admitted_before(tx, before, said)
    id, started = _target(tx, admission, moment)
    brought = (
        {sha256(body).hexdigest(): body for body in admission.payloads}
        if admission.payloads
        else {}
    )
    came = () if admission.visit is None else (admission.visit,)
    at = (1 if started is not None else tx.session(id).row.head) + len(came) + 1
    owes = tuple(replace(owed, target=at) for owed in admission.owes)
    written = tx.written((*came, said, *owes), brought)
    session = tx.session(id) if started is None else _make(tx, id, started, moment.now_ms)
    for hash, body in brought.items():
        tx.run("insert_payload", (hash, body))
        tx.run("own_payload", (hash, session.row.n, 0))
    first = tx.insert(session, written, moment.now_ms)
    if said.key is not None:
        _keep_key(tx, said.source, said.key, session, at, 1)
    return Admitted(id, at, True, first if came else None)


def _target(
    tx: Transaction, admission: Admission, moment: Moment
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
        raise NotAllowed("an input needs a session, or how to create one")
    named = None if create.name is None else bound(tx, create.name)
    return (moment.new_id(), create) if named is None else (named, None)


def bound(tx: Transaction, name: str) -> str | None:
    if len(name) > KEY_LEN_MAX:
        raise NotAllowed(f"a name has {KEY_LEN_MAX} characters at most")
    return reading.bound(tx.connection, name)


def _admitted_before(
    tx: Transaction, before: tuple[str, Seq, int], said: InputAdmitted
) -> Admitted:
    id, seq, _ = before
    stored = _record(tx, tx.session(id), seq).fact
    same = isinstance(stored, InputAdmitted) and (
        stored.parts == said.parts or _is_redacted(stored)
    )
    if not same:
        raise KeyReused(
            f"{said.source!r} sent {said.key!r} before, with other content; nothing was stored"
        )
    return Admitted(id, seq, False)


def _is_redacted(stored: InputAdmitted) -> bool:
    return any(isinstance(part, Redacted) for part in stored.parts)


def create(tx: Transaction, started: SessionStarted, id: str | None, moment: Moment) -> str:
    expect(SessionStarted, started=started)
    encoded(started)
    id = moment.new_id() if id is None else check_new_id(id)
    if started.forked_from is not None:
        raise NotAllowed("a fork is made by fork")
    if tx.exists(id) or (started.name is not None and bound(tx, started.name) is not None):
        raise KeyReused(f"there is a session {id!r} or one named {started.name!r} already")
    _make(tx, id, started, moment.now_ms)
    return id


def ensure(tx: Transaction, started: SessionStarted, moment: Moment) -> str:
    """The session bound to an external name, made if there is none."""
    expect(SessionStarted, started=started)
    encoded(started)
    if started.name is None:
        raise NotAllowed("only a session with an external name can be found again")
    found = bound(tx, started.name)
    return create(tx, started, None, moment) if found is None else found


def check_new_id(id: str) -> str:
    expect(str, session=id)
    if not id or len(id) > KEY_LEN_MAX or not id.isprintable() or "/" in id:
        raise NotAllowed(f"{id!r} cannot be the id of a session")
    return id


def _make(tx: Transaction, id: str, started: SessionStarted, at_ms: int) -> Session:
    written = tx.written([started])
    session = tx.make(id, started.name, None, 0, ListingRow())
    tx.insert(session, written, at_ms)
    return session


def fork(
    tx: Transaction,
    parent: str,
    at: Seq,
    started: SessionStarted,
    listing: ListingRow,
    moment: Moment,
) -> str:
    """`listing` is the parent's row as it was at `at`; it is folded outside, where it holds nobody
    up."""
    expect(SessionStarted, started=started)
    encoded(started)
    row = tx.session(parent).row
    if not 1 <= at <= row.head:
        raise NotAllowed(f"session {parent!r} has no fact {at}")
    if started.name is not None:
        raise NotAllowed("a fork has no external name: that stays with its parent")
    while row.parent is not None and at <= row.base:
        row = reading.checked(tx.one("session_by_n", (row.parent,)) or ())
    if listing.titled:  # a redaction may have come since the fold
        titled = ListingRow()
        titled.apply(_record(tx, tx.session(parent), listing.titled))
        listing.title = titled.title
    origin = SessionStarted(started.platform, started.model, None, ForkPoint(parent, at))
    written = tx.written([origin])
    id = moment.new_id()
    session = tx.make(id, None, row.n, at, listing)
    tx.insert(session, written, moment.now_ms)
    return id


def add(
    tx: Transaction, id: str, facts: Sequence[FreeFact], key: str | None, moment: Moment
) -> Appended:
    facts_of(facts, FREE_FACTS, "needs the session's lease")
    session = tx.session(id)
    written = tx.written(facts)
    source = RESERVED_SOURCE + id
    before = _by_key(tx, source, key)
    if before is not None:
        _, first, count = before
        stored = [_record(tx, session, first + i) for i in range(count)]
        if [record.fact for record in stored] != list(facts):
            raise KeyReused(
                f"key {key!r} was used before in {id!r}, with other facts; nothing was stored"
            )
        return Appended(first, first + len(facts) - 1, (), stored[0].at_ms)
    for fact in facts:
        if isinstance(fact, InputWithdrawn) and not session.listing.waits(fact.input):
            raise NotPending(
                f"input {fact.input} of session {id!r} does not wait any more; nothing was changed"
            )
    first = tx.insert(session, written, moment.now_ms)
    if key is not None:
        _keep_key(tx, source, key, session, first, len(facts))
    return Appended(first, session.row.head, (), moment.now_ms)


def _by_key(tx: Transaction, source: str, key: str | None) -> tuple[str, Seq, int] | None:
    """What was stored under a key: the session, the first fact, how many."""
    expect((str, NoneType), key=key)
    if key is None:
        return None
    if not key or len(key) > KEY_LEN_MAX:
        raise NotAllowed(f"a key has 1 to {KEY_LEN_MAX} characters")
    row = tx.one("key", (escape(source), escape(key)))
    return None if row is None else (str(row[1]), int(row[0]), int(row[2]))  # type: ignore[arg-type]


def _keep_key(
    tx: Transaction, source: str, key: str, session: Session, first: Seq, count: int
) -> None:
    tx.run("insert_key", (escape(source), escape(key), session.row.n, first, count))


def _record(tx: Transaction, session: Session, seq: Seq) -> Record:
    tx.flush()
    return reading.records(tx.connection, session.row, seq - 1, 1)[0]


# --- leases and what they allow -------------------------------------------------------------------


def acquire(tx: Transaction, id: str, owner: str, token: int, expires_ms: int) -> Lease | None:
    """Take the lease if its token is still the one that was found free; None if somebody was
    quicker."""
    session = tx.session(id)
    if session.row.token != token:
        return None
    session.row.token, session.row.owner, session.row.expires_ms = token + 1, owner, expires_ms
    tx.save(session)
    return Lease(id, token + 1, owner, expires_ms)


def renew(tx: Transaction, lease: Lease, expires_ms: int) -> Lease:
    session = tx.owned(lease)
    session.row.expires_ms = expires_ms
    tx.save(session)
    return Lease(lease.session, lease.token, lease.owner, expires_ms)


def release(tx: Transaction, lease: Lease, head: Seq) -> Release:
    session = tx.owned(lease)
    foreign = tx.since(session, head)
    if foreign:
        return Release(False, foreign)
    session.row.owner, session.row.expires_ms = None, 0
    tx.save(session)
    return Release(True, ())


def append(
    tx: Transaction, lease: Lease, facts: Sequence[TurnFact], head: Seq, moment: Moment
) -> Appended:
    session = tx.owned(lease)
    facts_of(facts, TURN_FACTS, "is not a turn fact")
    written = tx.written(facts)
    sealed = [
        _sealable(tx, session, fact, at) for fact in facts if (at := sealed_by(fact)) is not None
    ]
    foreign = tx.since(session, head)
    _refuse_withdrawn(id=session.row.id, facts=facts, foreign=foreign)
    forgetting.check(tx, session.row.id, facts, foreign)
    for started, drafts in sealed:
        tx.seal(session, started, drafts)
    first = tx.insert(session, written, moment.now_ms)
    return Appended(first, session.row.head, foreign, moment.now_ms)


def _refuse_withdrawn(id: str, facts: Sequence[TurnFact], foreign: Sequence[Record]) -> None:
    """A runner that has not seen yet that an input was taken back may not take it."""
    taken = {seq for fact in facts for seq in taken_by(fact)}
    withdrawn = {record.fact.input for record in foreign if isinstance(record.fact, InputWithdrawn)}
    if taken & withdrawn:
        raise NotPending(
            f"input {min(taken & withdrawn)} of session {id!r} was taken back; nothing was stored"
        )


def _sealable(
    tx: Transaction, session: Session, fact: TurnFact, started: Seq
) -> tuple[Seq, list[Draft]]:
    """The drafts that a fact seals, once it is sure that it keeps every character of them."""
    drafts = tx.drafts_at(session, started)
    for draft in drafts:
        if not keeps(fact, draft) and not _in_payload(tx, fact, draft):
            raise ShownTextDropped(
                f"session {session.row.id!r}: sealing fact {started} would drop "
                f"{draft.stream.kind} that was shown"
            )
    return started, drafts


def _in_payload(tx: Transaction, fact: TurnFact, draft: Draft) -> bool:
    """Whether a payload that stands for a tool's whole output begins with all that was shown of
    it."""
    if not isinstance(fact, ToolSettled) or draft.stream.kind != "output":
        return False
    shown = draft.text.encode("utf-8", "surrogatepass")
    files = [part.hash for part in outcome_parts(fact.outcome) if isinstance(part, File)]
    return any(
        (tx.one("payload_head", (len(shown), hash)) or (None,))[0] == shown for hash in files
    )


def draft(tx: Transaction, lease: Lease, stream: Stream, text: str) -> int:
    return tx.draft(tx.owned(lease), stream, text)


# --- payloads -------------------------------------------------------------------------------------


def put(tx: Transaction, id: str, hash: Hash, body: bytes) -> Hash:
    session = tx.session(id)
    tx.run("insert_payload", (hash, body))
    tx.run("own_payload", (hash, session.row.n, 0))
    return hash


# --- removing -------------------------------------------------------------------------------------


def redact(
    tx: Transaction, id: str, target: Seq, at: tuple[str, Seq], by: str, moment: Moment
) -> Seq:
    """Take the text of one message out of the journal; the seq of the fact that says so.

    `at` is the session and seq of the fact that holds the text, found outside, where looking holds
    nobody up.
    """
    redacted = tx.written([MessageRedacted(target, by)])
    session, holder = tx.session(id), tx.session(at[0])
    source, key = RESERVED_SOURCE + id, f"redacted:{at[1]}"
    before = _by_key(tx, source, key)
    if before is not None:
        return before[1]
    record = _record(tx, holder, at[1])
    emptied = without_text(record.fact)
    if emptied is None:
        raise NotAllowed(f"session {id!r} has no text to redact at {target}")
    forgetting.replace_fact(tx, holder, record, emptied)
    for hash in payloads_of(record.fact):
        tx.run("own_payload", (hash, holder.row.n, -1))
        tx.run("disown_payload", (hash, holder.row.n))
        tx.run("delete_payload_unowned", (hash,))
    family = _family(tx, holder, record.seq)
    forgetting.empty_distillates(tx, family, record.seq)
    for heir in family:
        _retitle(tx, heir, record.seq, emptied)
    seq = tx.insert(session, redacted, moment.now_ms)
    _keep_key(tx, source, key, session, seq, 1)
    return seq


def _retitle(tx: Transaction, session: Session, seq: Seq, emptied: AnyFact) -> None:
    """A title that was taken from the redacted text goes with it, as folding the facts again would
    have it."""
    listing = session.listing
    if isinstance(emptied, InputAdmitted):
        lost = (
            not listing.named and seq <= (listing.titled or seq) and title_of(emptied.parts) == GONE
        )
    else:
        lost = isinstance(emptied, SessionRenamed) and seq == listing.titled
    if lost:
        listing.title, listing.titled = GONE, seq
    tx.save(
        session
    )  # in any case: the row as it is stored may be behind, with the text as its title


def _family(tx: Transaction, session: Session, seq: Seq = 0) -> list[Session]:
    """A session and all forks that have its fact `seq`, however indirectly; parents before
    children."""
    family = [session]
    for member in family:
        children = tx.connection.execute(STATEMENTS["children_of"], (member.row.n,)).fetchall()
        family += [
            heir for (child,) in children if (heir := tx.session(str(child))).row.base >= seq
        ]
    return family


def delete(tx: Transaction, id: str, with_forks: bool, moment: Moment) -> int:
    """Take sessions out of the world in one step; how many. Their rows are swept afterwards."""
    doomed = _family(tx, tx.session(id))
    if len(doomed) > 1 and not with_forks:
        names = ", ".join(repr(fork.row.id) for fork in doomed[1:])
        raise ForksRemain(
            f"session {id!r} has forks that refer to it: {names}; delete them with it, or keep it"
        )
    tx.flush()
    for session in reversed(doomed):
        row = session.row
        tx.run("insert_deletion", (row.n, row.id, moment.now_ms, row.base, row.head))
        tx.run("delete_all_drafts", (row.n,))
        tx.run("delete_session", (row.n,))
        tx.forget(row.id)
    return len(doomed)


def sweep(tx: Transaction) -> bool:
    """Remove a bounded part of what deleted sessions, or imports that failed, left; whether there
    is more."""
    found = tx.one("unswept")
    if found is None:
        return False
    n, base, head = (int(value) for value in found)  # type: ignore[arg-type]
    first = tx.connection.execute(STATEMENTS["facts_between"], (n, base, head, 1)).fetchone()
    if first is not None:
        tx.run("delete_facts", (n, first[0], int(first[0]) + SWEEP_FACTS))
        return True
    hashes = [
        str(hash)
        for (hash,) in tx.connection.execute(STATEMENTS["payloads_owned"], (n, SWEEP_PAYLOADS))
    ]
    for hash in hashes:
        tx.run("disown_payload_at_once", (hash, n))
        tx.run("delete_payload_unowned", (hash,))
    tx.run("delete_all_drafts", (n,))
    tx.run("delete_keys", (n, SWEEP_FACTS))
    if hashes or tx.one("key_of", (n,)) is not None:
        return True
    tx.run("deletion_swept", (n,))
    tx.run("import_swept", (n,))
    return True
