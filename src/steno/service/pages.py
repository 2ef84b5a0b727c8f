"""Reads a session from its end, page by page, so that nobody has to read all of it to see the last
screen.

A page is whole turns in a row. It begins with a turn that takes an input which was said after the
turn before had begun. Inputs are taken in order, so everything that waits where a page begins was
said since that input; and a prompt that is run again, or a turn that is taken up, stands in one
page with what it repeats.
"""

from collections.abc import Sequence

from msgspec import Struct

from steno.journal.facts import (
    InputAdmitted,
    InputWithdrawn,
    MessageHidden,
    Record,
    RewindWithdrawn,
    Rewound,
    Takes,
    TurnStarted,
    taken_by,
)
from steno.journal.parts import Seq
from steno.store.protocol import Store

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
        return tuple(record for record in self.records if _reaches(record, self.first))


async def page(store: Store, session: str, upto: Seq, facts_min: int = FACTS) -> Page:
    """The last page that ends with the fact at `upto`."""
    length = facts_min
    while True:
        after = max(upto - length, 0)
        records = await _read(store, session, after, upto)
        at = _edge(records, facts_min)
        if at is not None:
            return Page(records[at].seq, _waiting(records[:at], records[at]), tuple(records[at:]))
        if after == 0:
            return Page(1, (), tuple(records))
        length *= 4


async def _read(store: Store, session: str, after: Seq, upto: Seq) -> list[Record]:
    records: list[Record] = []
    while after < upto and (page := await store.read(session, after, min(1_000, upto - after))):
        records += page
        after = page[-1].seq
    return records


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
    gone |= {record.fact.input for record in since if isinstance(record.fact, InputWithdrawn)}
    waiting = {record.seq for record in since if isinstance(record.fact, InputAdmitted)} - gone
    return tuple(record for record in since if record.seq in waiting or _hides(record, waiting))


def _hides(record: Record, messages: set[Seq]) -> bool:
    return isinstance(record.fact, MessageHidden) and record.fact.target in messages


def _reaches(record: Record, first: Seq) -> bool:
    match record.fact:
        case MessageHidden(target=target):
            return target < first
        case Rewound(to=to):
            return to < first
        case RewindWithdrawn():
            return True
        case _:
            return False
