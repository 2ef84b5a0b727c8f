"""Where a removal must reach beyond the fact it names: what was distilled from it, and what other
sessions were told of that.

A distillate may repeat anything that it was made of, whatever it points at. So a redaction empties
every distillate whose range has the message, and the contexts of sessions that were told its items
lose those. A context or a distillate that is being written at that moment is refused, in the
transaction that would store it.

    A   2 input "my cup is blue"    7 distilled(after 0, upto 6, items: "a blue cup")
    B   forked from A at 6          9 distilled(after 0, upto 8, items: "cups")
    C   3 context.set(memories "a blue cup", "tea"; recalled A 7, D 5)

    redact(A, 2), in this order, each line a commit of its own:

    C 3    context.set(memories "tea"; recalled D 5)                    `forget_memories`
    A 2    input [redacted]     A 7, B 9 distilled without text         the redaction itself, with
    A 8    message.redacted(2)                                          their titles in lists
    E      looked for again: a session that was told "a blue cup" while the first two ran

Contexts come first: a kill after the second commit would leave a copy in C that no distillate leads
to any more. They come again at the end for a session that took the memory up in between; from the
second commit on, `check` refuses it.
"""

from collections.abc import Callable, Iterable, Sequence

from steno.journal.facts import (
    ContextSet,
    Distilled,
    ItemAt,
    MessageRedacted,
    Record,
    SessionTitled,
)
from steno.journal.parts import GONE, Seq
from steno.journal.redaction import forget, redact
from steno.store import queries
from steno.store.backend import SessionRow, Snapshot
from steno.store.errors import NotAllowed
from steno.store.transaction import Session, Transaction, Written

Gone = Callable[[ItemAt], bool]


def covering(view: Snapshot, row: SessionRow, seq: Seq) -> list[Record]:
    """A session's own distillates that are of a fact, or were made of it."""
    return [
        record
        for record in queries.own(view, row, "distilled")
        if isinstance(record.fact, Distilled)
        and (record.seq == seq or record.fact.after < seq <= record.fact.upto)
    ]


def _titles(view: Snapshot, row: SessionRow, seq: Seq) -> list[Record]:
    return [
        record
        for record in queries.own(view, row, "session.titled")
        if isinstance(record.fact, SessionTitled) and seq <= record.fact.upto
    ]


def empty_distillates(tx: Transaction, family: Iterable[Session], seq: Seq) -> None:
    for session in family:
        made_of_it = covering(tx.writer, session.row, seq) + _titles(
            tx.writer, session.row, seq
        )
        for record in made_of_it:
            emptied = redact(record.fact)
            if emptied is not None:
                tx.replace(session, record, emptied)


def forget_memories(tx: Transaction, id: str, gone: Gone) -> None:
    """Take memories whose source is gone out of the contexts of a session."""
    if not tx.exists(id):
        return
    session = tx.session(id)
    left: ContextSet | None = None
    for record in queries.own(tx.writer, session.row, "context.set"):
        if isinstance(record.fact, ContextSet):
            left = forget(record.fact, gone)
            if left != record.fact:
                tx.replace(session, record, left)
    if left is not None:
        session.listing.memory.from_sessions = tuple(
            sorted({at.session for at in left.recalled})
        )
    tx.save(session)


def has_memories(view: Snapshot, row: SessionRow, gone: Gone) -> bool:
    contexts = (record.fact for record in queries.own(view, row, "context.set"))
    return any(
        gone(at)
        for context in contexts
        if isinstance(context, ContextSet)
        for at in context.recalled
    )


def check(
    tx: Transaction, id: str, facts: Sequence[Written], foreign: Sequence[Record]
) -> None:
    """Refuse what was made of text that has been removed since."""
    for fact, _, _ in facts:
        if isinstance(fact, Distilled | SessionTitled):
            if any(isinstance(record.fact, MessageRedacted) for record in foreign):
                raise NotAllowed(
                    "a message was redacted since this was asked for; nothing was stored"
                )
        elif isinstance(fact, ContextSet):
            for text, at in zip(fact.memories, fact.recalled, strict=False):
                if text == GONE or (
                    text != _item(tx, at) and not _came_along(tx, id, at)
                ):
                    raise NotAllowed(
                        f"what session {at.session!r} had to remember is gone; nothing was stored"
                    )


def _came_along(tx: Transaction, id: str, at: ItemAt) -> bool:
    """Whether a session that was imported was told of one that never was in this store: nothing was
    removed here."""
    if tx.exists(at.session) or tx.writer.deleted(at.session):
        return False
    return tx.writer.imported(id) is not None


def _item(tx: Transaction, at: ItemAt) -> str | None:
    if not tx.exists(at.session):
        return None
    found = queries.record(tx.writer, tx.session(at.session).row, at.seq)
    fact = None if found is None else found.fact
    if not isinstance(fact, Distilled) or not 0 <= at.item < len(fact.items):
        return None
    return fact.items[at.item].text
