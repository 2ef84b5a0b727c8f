"""What sessions have to remember: made of them, listed, removed."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from steno.journal.facts import ItemAt, MemoryRemoved
from steno.journal.listing import ListingRow
from steno.runtimes.recall import Remembered, items_of
from steno.session.errors import NoSuch
from steno.store.errors import UnknownSession
from steno.store.protocol import Listed, Store

if TYPE_CHECKING:
    from steno.runtimes.distil import Distillation, Distilling

PAGE = 100
LOOKED_MAX = 100


class KeptMemory(Struct, frozen=True):
    """An item, and the session that it comes from."""

    remembered: Remembered
    title: str


class Memories:
    """`distilling` is made when something is to be distilled, which few commands do."""

    def __init__(self, store: Store, distilling: "Callable[[], Distilling]") -> None:
        self._store = store
        self._distilling = distilling

    async def distil(
        self, session: str, leaving: asyncio.Event, if_due: bool = False
    ) -> "Distillation":
        return await self._distilling().distil(session, leaving, if_due)

    async def entitle(self, session: str, leaving: asyncio.Event) -> str:
        """Have a title made; "" if none was."""
        return await self._distilling().entitle(session, leaving)

    async def due(self, wanted: Callable[[ListingRow], bool]) -> list[Listed]:
        """Sessions that should be distilled and that no process runs, the latest first. So many are
        looked at and no more, however many there are."""
        found = [
            one
            for one in await self._store.list(LOOKED_MAX, where="due")
            if wanted(one.row)
        ]
        return [
            one
            for one in found
            if one.owner is None or not await self._store.alive(one.owner)
        ]

    async def all(self, limit: int) -> list[KeptMemory]:
        """What is remembered, the newest first: of the sessions that changed last, until there are
        enough items."""
        found: list[KeptMemory] = []
        page = await self._store.list(PAGE, where="remembers")
        while page and len(found) < limit:
            for listed in page:
                found += await self._kept(listed.id, listed.row)
            page = await self._store.list(
                PAGE, before=page[-1].mark, where="remembers"
            )
        return found[:limit]

    async def of(self, session: str) -> list[KeptMemory]:
        """What a session has to remember."""
        return await self._kept(session, (await self._store.glance(session)).row)

    async def remove(self, at: ItemAt) -> bool:
        """Have an item forgotten. False if it was before."""
        row = (await self._store.glance(at.session)).row
        if at.item in row.memory.at.get(at.seq, []):
            await self._store.add(
                at.session,
                [MemoryRemoved(at.seq, at.item)],
                key=f"forgotten:{at.seq}.{at.item}",
            )
            return True
        for record in (
            await self._store.read(at.session, at.seq - 1, 1) if at.seq > 0 else []
        ):
            if at.item < len(getattr(record.fact, "items", ())):
                return False
        raise NoSuch("memory", name_of(at))

    async def _kept(self, session: str, row: ListingRow) -> list[KeptMemory]:
        try:
            return [
                KeptMemory(one, row.title)
                for one in await items_of(self._store, session, row)
            ]
        except UnknownSession:
            return []  # deleted since


def name_of(at: ItemAt) -> str:
    """How people name an item."""
    return f"{at.session}:{at.seq}.{at.item}"


def item_named(name: str) -> ItemAt:
    session, _, place = name.rpartition(":")
    seq, _, item = place.partition(".")
    if not session or not seq.isdecimal() or not item.isdecimal():
        raise NoSuch("memory", name)
    return ItemAt(session, int(seq), int(item))
