"""Where a removal must reach beyond the fact it names: what was distilled from it, and what others
were told of that.

A distillate may repeat anything that it was made of, whatever it points at. So a redaction empties
every distillate whose range has the message, and the contexts of sessions that were told its items
lose those. A context or a distillate that is being written at that moment is refused, in the
transaction that would store it.
"""

from collections.abc import Callable, Iterable, Sequence

import apsw

from steno.journal.codec import encode, escape
from steno.journal.facts import AnyFact, ContextSet, Distilled, ItemAt, MessageRedacted, Record
from steno.journal.parts import GONE, Seq
from steno.journal.redaction import forget, redact
from steno.store.errors import NotAllowed, UnknownSession
from steno.store.sqlite import reading
from steno.store.sqlite.reading import SessionRow
from steno.store.sqlite.rows import fact_crc
from steno.store.sqlite.transaction import Session, Transaction

Gone = Callable[[ItemAt], bool]


def covering(connection: apsw.Connection, row: SessionRow, seq: Seq) -> list[Record]:
    """A session's own distillates that are of a fact, or were made of it."""
    return [
        record
        for record in reading.of_type(connection, row, "distilled")
        if isinstance(record.fact, Distilled)
        and (record.seq == seq or record.fact.after < seq <= record.fact.upto)
    ]


def empty_distillates(tx: Transaction, family: Iterable[Session], seq: Seq) -> None:
    for session in family:
        for record in covering(tx.connection, session.row, seq):
            emptied = redact(record.fact)
            if emptied is not None:
                replace_fact(tx, session, record, emptied)


def forget_memories(tx: Transaction, id: str, gone: Gone) -> None:
    """Take memories whose source is gone out of the contexts of a session."""
    if not tx.exists(id):
        return
    tx.flush()
    session = tx.session(id)
    left: ContextSet | None = None
    for record in reading.of_type(tx.connection, session.row, "context.set"):
        if isinstance(record.fact, ContextSet):
            left = forget(record.fact, gone)
            if left != record.fact:
                replace_fact(tx, session, record, left)
    if left is not None:
        session.listing.memory.from_sessions = tuple(sorted({at.session for at in left.recalled}))
    tx.save(session)


def has_memories(connection: apsw.Connection, row: SessionRow, gone: Gone) -> bool:
    contexts = (record.fact for record in reading.of_type(connection, row, "context.set"))
    return any(
        gone(at)
        for context in contexts
        if isinstance(context, ContextSet)
        for at in context.recalled
    )


def replace_fact(tx: Transaction, session: Session, record: Record, by: AnyFact) -> None:
    body = encode(by)
    n, seq = session.row.n, record.seq
    tx.run("replace_fact", (fact_crc(n, seq, record.at_ms, body), body.decode(), n, seq))


def check(tx: Transaction, id: str, facts: Sequence[AnyFact], foreign: Sequence[Record]) -> None:
    """Refuse what was made of text that has been removed since."""
    for fact in facts:
        redacted = any(isinstance(record.fact, MessageRedacted) for record in foreign)
        if isinstance(fact, Distilled) and redacted:
            raise NotAllowed(
                "a message was redacted since the distillate was asked for; nothing was stored"
            )
        if not isinstance(fact, ContextSet):
            continue
        for text, at in zip(fact.memories, fact.recalled, strict=False):
            if text == GONE or (text != _item(tx, at) and not _came_along(tx, id, at)):
                raise NotAllowed(
                    f"what session {at.session!r} had to remember is gone; nothing was stored"
                )


def _came_along(tx: Transaction, id: str, at: ItemAt) -> bool:
    """Whether a session that was imported was told of one that never was in this store: nothing was
    removed here."""
    if tx.exists(at.session) or reading.was_deleted(tx.connection, at.session):
        return False
    return tx.one("imported", (escape(id),)) is not None


def _item(tx: Transaction, at: ItemAt) -> str | None:
    try:
        session = tx.session(at.session)
    except UnknownSession:
        return None
    tx.flush()
    found = (
        reading.records(tx.connection, session.row, at.seq - 1, 1)
        if 0 < at.seq <= session.row.head
        else []
    )
    fact = found[0].fact if found else None
    if not isinstance(fact, Distilled) or not 0 <= at.item < len(fact.items):
        return None
    return fact.items[at.item].text
