"""Which memories a new session is told: few, short, the newest first, and the same for everybody who looks at the same
store."""

from msgspec import Struct
from msgspec.structs import replace

from steno.journal.distillates import Distilled, Item, ItemAt
from steno.journal.facts import ContextSet
from steno.journal.listing import ListingRow
from steno.journal.parts import GONE, Seq
from steno.runtimes.held import HeldSession
from steno.store.errors import UnknownSession
from steno.store.protocol import Store

SESSIONS_MAX = 20
"""How many sessions are looked at, those that changed last."""
KINDS = frozenset(("fact", "decision"))


class Remembered(Struct, frozen=True):
    """An item, where it is, and the distillate it is part of."""

    at: ItemAt
    item: Item
    made: Distilled
    at_ms: int


async def items_of(store: Store, session: str, row: ListingRow) -> list[Remembered]:
    """What a session has to remember, the newest distillate first."""
    found: list[Remembered] = []
    for seq in sorted(row.memory.at, reverse=True):
        found += await _items_at(store, session, seq, row.memory.at[seq])
    return found


async def _items_at(store: Store, session: str, seq: Seq, standing: list[int]) -> list[Remembered]:
    for record in await store.read(session, seq - 1, 1):
        if isinstance(record.fact, Distilled):
            made = record.fact
            whole = [number for number in standing if number < len(made.items) and made.items[number].text != GONE]
            return [
                Remembered(ItemAt(session, seq, number), made.items[number], made, record.at_ms) for number in whole
            ]
    return []


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
        for listed in await self._store.remembered(SESSIONS_MAX):
            for one in await self._of(listed.id, listed.row):
                text = one.item.text
                if one.item.kind not in KINDS or text.casefold() in known or len(text) > left:
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
        """The context with the memories for a session that has had none yet. One that has keeps what it has."""
        if held.state.context is not None:
            return context
        chosen = await self.choose()
        memories, recalled = tuple(one.item.text for one in chosen), tuple(one.at for one in chosen)
        return replace(context, memories=memories, recalled=recalled)
