"""Reads a session from its end, page by page, so that the last screen does not cost a
reading of all of it.

A page is whole turns in a row. It begins with a turn that takes an input which was said after the
turn before had begun. Inputs are taken in order, so everything that waits where a page begins was
said since that input; and a prompt that is run again, or a turn that is taken up, stands in one
page with what it repeats.
"""

from collections.abc import Sequence

from msgspec import Struct

from steno.journal.drafts import Draft
from steno.journal.facts import (
    InputAdmitted,
    InputWithdrawn,
    ItemsWithdrawn,
    MessageHidden,
    Record,
    RewindWithdrawn,
    Rewound,
    Takes,
    TurnStarted,
    taken_by,
)
from steno.journal.listing import ListingRow
from steno.journal.parts import Seq
from steno.session.load import closing_of, folded
from steno.store.protocol import Reads, Store, read_all

REACHING = ("message.hidden", "rewound", "rewind.withdrawn", "items.withdrawn")
"""The tags of facts that may change what is shown of earlier messages."""
FACTS = 200
"""A page has so many facts at least, if there are so many."""


class Page(Struct, frozen=True):
    """`waited` are the inputs that waited when its first turn began, and what hid them; fold them
    before its `records`."""

    first: Seq
    waited: tuple[Record, ...]
    records: tuple[Record, ...]

    def reaching(self) -> tuple[Record, ...]:
        """Facts that change what is shown of earlier messages: to be folded after an earlier
        page."""
        return tuple(record for record in self.records if reaches(record, self.first))


class Tail(Struct, frozen=True):
    """The end of a session, of one moment: its last page, the text being streamed, its row for
    lists and who runs it. `closing` is what will close a turn that a dead process left open: it is
    shown, and stored by the next runner."""

    page: Page
    head: Seq
    drafts: tuple[Draft, ...]
    row: ListingRow
    owner: str | None
    closing: tuple[Record, ...]


async def end(store: Store, session: str, facts_min: int = FACTS) -> Tail:
    """The end of a session as it stands. What is before it is read with `before`."""
    glance = await store.glance(session)
    last = await page(store, session, glance.head, facts_min)
    closing = closing_of(glance, folded([*last.waited, *last.records]))
    return Tail(last, glance.head, glance.drafts, glance.row, glance.owner, closing)


async def before(
    store: Store, session: str, later: Page, facts_min: int = FACTS
) -> Page | None:
    """The page before a page; None if that is the first."""
    if later.first <= 1:
        return None
    return await page(store, session, later.first - 1, facts_min)


async def page(store: Reads, session: str, upto: Seq, facts_min: int = FACTS) -> Page:
    """The last page that ends with the fact at `upto`."""
    length = facts_min
    while True:
        after = max(upto - length, 0)
        records = [record async for record in read_all(store, session, after, upto)]
        at = _edge(records, facts_min)
        if at is not None:
            return Page(
                records[at].seq,
                _waiting(records[:at], records[at]),
                tuple(records[at:]),
            )
        if after == 0:
            return Page(1, (), tuple(records))
        length *= 4


def _edge(records: Sequence[Record], facts_min: int) -> int | None:
    """Where a page of at least so many facts can begin, as near to the end as possible."""
    turn: int | None = None
    for at in reversed(range(len(records))):
        fact = records[at].fact
        if not isinstance(fact, TurnStarted):
            continue
        if (
            turn is not None
            and len(records) - turn >= facts_min
            and _begins(records[turn], records[at])
        ):
            return turn
        turn = at
    return None


def _begins(turn: Record, before: Record) -> bool:
    origin = turn.fact.origin if isinstance(turn.fact, TurnStarted) else None
    return isinstance(origin, Takes) and origin.input > before.seq


def _waiting(before: Sequence[Record], turn: Record) -> tuple[Record, ...]:
    (first,) = taken_by(turn.fact)
    since = [record for record in before if record.seq >= first]
    gone = {seq for record in since for seq in taken_by(record.fact)}
    gone |= {
        record.fact.input
        for record in since
        if isinstance(record.fact, InputWithdrawn)
    }
    waiting = {
        record.seq for record in since if isinstance(record.fact, InputAdmitted)
    } - gone
    return tuple(
        record for record in since if record.seq in waiting or _hides(record, waiting)
    )


def _hides(record: Record, messages: set[Seq]) -> bool:
    return isinstance(record.fact, MessageHidden) and record.fact.target in messages


def reaches(record: Record, first: Seq) -> bool:
    """Whether a fact changes what is shown of messages before one."""
    fact = record.fact
    if isinstance(fact, MessageHidden):
        return fact.target < first
    if isinstance(fact, Rewound):
        return fact.to < first
    if isinstance(fact, ItemsWithdrawn):
        return any(begin < first for begin, _ in fact.runs)
    return isinstance(fact, RewindWithdrawn)
