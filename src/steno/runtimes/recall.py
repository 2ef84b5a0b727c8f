"""Which memories a new session is told: few, short, the newest first, and the same for every
process that looks at the same store."""

from msgspec import Struct
from msgspec.structs import replace

from steno.journal.facts import ContextSet, Distilled, Item, ItemAt
from steno.journal.listing import ListingRow
from steno.journal.memory import taken_back
from steno.journal.parts import GONE
from steno.session.lease import HeldSession
from steno.store.errors import UnknownSession
from steno.store.protocol import Store

SESSIONS_MAX = 20
"""How many sessions are looked at, those that changed last."""
KINDS = frozenset(("fact", "decision"))


EDITS = ("message.hidden", "rewound", "rewind.withdrawn")
"""The tags of facts that hide a message or take turns back, or put them back."""


class Remembered(Struct, frozen=True):
    """An item, where it is, and the distillate it is part of."""

    at: ItemAt
    item: Item
    made: Distilled
    at_ms: int


async def items_of(store: Store, session: str, row: ListingRow) -> list[Remembered]:
    """What a session has to remember, the newest distillate first. One that was made of something
    which a person has hidden or taken back since is left out: whatever its items point at, they may
    repeat that."""
    read = [
        await store.read(session, seq - 1, 1)
        for seq in sorted(row.memory.at, reverse=True)
    ]
    made = [
        (record, record.fact)
        for page in read
        for record in page
        if isinstance(record.fact, Distilled)
    ]
    edits = (
        await store.read(session, min(fact.upto for _, fact in made), 1 << 31, EDITS)
        if made and row.memory.edited
        else []
    )
    return [
        Remembered(
            ItemAt(session, record.seq, number),
            fact.items[number],
            fact,
            record.at_ms,
        )
        for record, fact in made
        if not taken_back(fact, edits)
        for number in row.memory.at[record.seq]
        if number < len(fact.items) and fact.items[number].text != GONE
    ]


class Recall:
    """Chooses from a store. `items_max` and `chars_max` bound what a session is told."""

    def __init__(self, store: Store, items_max: int, chars_max: int) -> None:
        self._store = store
        self._items_max = items_max
        self._chars_max = chars_max

    async def choose(self) -> list[Remembered]:
        chosen: list[Remembered] = []
        known: set[str] = set()
        left = self._chars_max
        for listed in await self._store.list(SESSIONS_MAX, where="remembers"):
            for one in await self._of(listed.id, listed.row):
                text = one.item.text
                if (
                    one.item.kind not in KINDS
                    or text.casefold() in known
                    or len(text) > left
                ):
                    continue
                chosen.append(one)
                known.add(text.casefold())
                left -= len(text)
                if len(chosen) == self._items_max:
                    return chosen
        return chosen

    async def _of(self, session: str, row: ListingRow) -> list[Remembered]:
        try:
            return await items_of(self._store, session, row)
        except UnknownSession:
            return []  # deleted since

    async def tell(self, held: HeldSession, context: ContextSet) -> ContextSet:
        """The context with the memories for a session that has had none yet. One that has keeps
        what it has."""
        if held.state.context is not None:
            return context
        chosen = await self.choose()
        memories, recalled = (
            tuple(one.item.text for one in chosen),
            tuple(one.at for one in chosen),
        )
        return replace(context, memories=memories, recalled=recalled)
