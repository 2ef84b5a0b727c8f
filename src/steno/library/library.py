"""All sessions of one store."""

from collections.abc import AsyncIterator, Generator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steno.library.given import a_str
from steno.library.means import (
    MEMORY,
    SOURCE,
    Means,
    asked,
    keep_clear,
    load,
    path_of,
    search_of,
)
from steno.library.session import AsyncSession, bring
from steno.store.protocol import Keeping, Kept, Listed, Settings

if TYPE_CHECKING:
    from steno.items import AsyncItems
    from steno.search.keeper import Search
    from steno.search.searching import Found
    from steno.store.facade import AsyncStore


class AsyncLibrary:
    """All sessions of one store."""

    store: "AsyncStore"

    def __init__(self, path: Path, settings: Settings | None = None) -> None:
        self._path = path
        self._settings = settings
        self._search: Search | None = None

    async def _open(self) -> "AsyncLibrary":
        from asyncio import sleep, to_thread

        await load(
            to_thread, "steno.items", "steno.store.sqlite.store", "steno.store.memory"
        )
        if str(self._path) == MEMORY:
            from steno.store.memory import MemoryStore, Place

            self.store = await MemoryStore.open(Place(), self._settings)
        else:
            from steno.store.sqlite.store import SqliteStore

            self.store = await SqliteStore.open(self._path, self._settings)
        self._means = Means(self.store, sleep, to_thread)
        keep_clear(self.store.blocking, path_of(self.store))
        return self

    def __await__(self) -> "Generator[Any, None, AsyncLibrary]":
        return self._open().__await__()

    async def __aenter__(self) -> "AsyncLibrary":
        return await self._open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._search is not None:
            self._search.close()
        await self.store.close()

    async def session(self, name: str) -> "AsyncSession":
        """The session bound to a name of yours (a user, a ticket, a chat), made if there is
        none."""
        return AsyncSession(self._means, await self._means.ensure(name))

    async def open(self, id: str) -> "AsyncSession":
        """The session with this id."""
        return AsyncSession(self._means, await self._means.known(id))

    async def sessions(self) -> AsyncIterator[Listed]:
        """Every session, the most recently used first."""
        page = await self.store.list()
        while page:
            for listed in page:
                yield listed
            page = await self.store.list(before=page[-1].mark)

    def items(self, name: str, format: str, platform: str = SOURCE) -> "AsyncItems":
        """What another program keeps under a name, in a format of its own. Nothing is made until
        something is kept."""
        from steno.items import AsyncItems

        return AsyncItems(
            self.store, a_str("name", name), a_str("format", format), platform
        )

    async def bring(
        self, file: str | PathLike[str], trust: bool = False
    ) -> AsyncSession:
        """Store the session of a file that `export` wrote, whole or not at all. One that is there
        already is left as it is. Without `trust`, one that lets calls run unasked is refused."""
        return await bring(self._means, file, trust)

    async def keep_all(self, changes: Sequence[Keeping]) -> tuple[Kept, ...]:
        """Several changes of items, each of another name, in one commit: see
        `AsyncItems.keeping`."""
        return await self.store.keep_all(changes)

    async def named(self, prefix: str) -> AsyncIterator[Listed]:
        """Every session whose name begins with a prefix, in the order of the names."""
        page = await self.store.named(a_str("prefix", prefix))
        while page:
            for listed in page:
                yield listed
            page = await self.store.named(prefix, page[-1].row.name or "")

    async def search(
        self,
        query: str,
        limit: int = 20,
        all: bool = False,
        newest: bool = False,
        before: str | None = None,
        literal: bool = False,
    ) -> "Found":
        """Messages of all sessions that match, the best of each session; with `all`, every one.
        `before` is the `next` of an earlier answer. With `literal` no sign in the query means
        anything. Docs: reference/search."""
        from asyncio import to_thread

        await load(
            to_thread,
            "steno.search.keeper",
            "steno.search.query",
            "steno.search.searching",
        )
        return await to_thread(
            self._searching().find, asked(query, limit, all, newest, before, literal)
        )

    def _searching(self) -> "Search":
        if self._search is None:
            self._search = search_of(self.store.blocking, path_of(self.store))
        return self._search
