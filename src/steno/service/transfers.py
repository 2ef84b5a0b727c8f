"""Sessions that leave for a file, and sessions that come from one."""

from collections.abc import AsyncIterator, Callable
from typing import BinaryIO

from msgspec import Struct

from steno.journal.parts import Seq
from steno.service.views import Views
from steno.store.errors import UnknownSession
from steno.store.protocol import Store, give_way
from steno.transfer.export import export
from steno.transfer.incoming import Incoming, facts_since, permitting_nothing
from steno.transfer.markdown import to_markdown

PIECES_AT_ONCE = 50
"""Of a text for people, before others have a turn."""


class Brought(Struct, frozen=True):
    """`first` is False if the session was there already: then nothing was stored, and it has
    `since` facts more than the file."""

    session: str
    first: bool
    since: Seq = 0


class Transfers:
    def __init__(self, store: Store, views: Views) -> None:
        self._store = store
        self._views = views

    def export(self, session: str) -> AsyncIterator[bytes]:
        """The bytes of a file that can be imported."""
        return export(self._store, session)

    async def markdown(
        self, session: str, clean: Callable[[str], str] = str
    ) -> AsyncIterator[bytes]:
        """The bytes of a file for people. `clean` takes out what should not be shared."""
        _, shown = await self._views.shown(session)
        pieces = to_markdown(session, shown.transcript, shown.turns.undone())
        for at, piece in enumerate(pieces):
            yield clean(piece).encode("utf-8", "backslashreplace")
            if at % PIECES_AT_ONCE == 0:
                await give_way()

    async def bring(self, file: BinaryIO, trust: bool) -> Brought:
        """Store the session of a file, whole or not at all. Without `trust`, one that lets calls
        run unasked is refused."""
        incoming = Incoming(file)
        header = incoming.header
        try:
            await self._store.glance(header.session)
        except UnknownSession:
            carried = (
                incoming.carried()
                if trust
                else permitting_nothing(incoming.carried())
            )
            await self._store.bring(header.session, header.base, carried)
            return Brought(header.session, True)
        return Brought(
            header.session, False, await facts_since(self._store, incoming)
        )
