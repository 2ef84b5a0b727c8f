"""What all sessions of a library share: the open store, its search index, and a way to wait."""

import time
from collections.abc import Awaitable, Callable
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from steno.journal.facts import SessionStarted
from steno.library.given import a_str, an_int
from steno.store import facade
from steno.store.protocol import Store

if TYPE_CHECKING:
    from steno.search.keeper import Search
    from steno.search.searching import Asked
    from steno.service.edits import Edits
    from steno.session.load import Sessions


T = TypeVar("T")

_loaded: set[str] = set()

SOURCE = "library"
MEMORY = ":memory:"


class Aside(Protocol):
    async def __call__(self, work: Callable[[], T], /) -> T: ...


class Means:
    """What every session of a library uses: the store, its sessions, a way to wait, and one to work
    without keeping an event loop from others."""

    def __init__(
        self, store: Store, pause: Callable[[float], Awaitable[None]], aside: Aside
    ) -> None:
        self.store = store
        self.pause = pause
        self.aside = aside

    async def need(self, *modules: str) -> None:
        """Load what a verb imports. Where there is an event loop a thread does it."""
        await load(self.aside, *modules)

    @cached_property
    def sessions(self) -> "Sessions":
        """Loaded when a session is read: to open a store and to keep items takes none of it."""
        from steno.session.load import Sessions

        return Sessions(self.store)

    async def loaded_sessions(self) -> "Sessions":
        await self.need("steno.session.load")
        return self.sessions

    async def ensure(self, name: str) -> str:
        name = a_str("name", name)
        found = await self.store.find(name)
        return found or await self.store.ensure(SessionStarted(SOURCE, name=name))

    async def known(self, id: str) -> str:
        id = a_str("id", id)
        await self.store.read(id, limit=1)
        return id

    async def edits(self) -> "Edits":
        await self.need("steno.service.edits", "steno.session.writer")
        from steno.service.edits import Edits
        from steno.session.writer import held_briefly

        return Edits(self.sessions, None, SOURCE, held_briefly)


async def load(aside: Aside, *modules: str) -> None:
    """A module that another thread is loading is waited for there, too: to import it here would
    keep the event loop until it is there."""
    missing = [module for module in modules if module not in _loaded]
    if missing:
        await aside(lambda: list(map(import_module, missing)))
        _loaded.update(missing)


async def at_once(work: Callable[[], T], /) -> T:
    return work()


async def sleep(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251 - no loop waits for it


def path_of(store: facade.Verbs) -> Path | None:
    """Where a store is, if it is a file."""
    found: Path | None = getattr(store, "path", None)
    return found


def search_of(store: facade.BlockingStore, path: Path | None) -> "Search":
    from steno.search import beside
    from steno.search.keeper import Search  # many programs never search

    return Search(store, None if path is None else beside(path))


def keep_clear(store: facade.BlockingStore, path: Path | None) -> None:
    """Have what is removed from the store taken out of its index, too, if there is one."""
    if path is None:
        return

    def clear() -> None:
        if path.with_name(path.name + "-search").exists():
            search = search_of(store, path)
            search.clear()
            search.close()

    store.core.copies.append(clear)


def asked(
    query: str, limit: int, all: bool, newest: bool, before: str | None, as_text: bool
) -> "Asked":
    from steno.search.query import literal, parse
    from steno.search.searching import Asked

    now_ms = time.time_ns() // 1_000_000
    text = a_str("query", query)
    return Asked(
        query=literal(text) if as_text else parse(text, now_ms),
        limit=max(an_int("limit", limit), 1),
        all=all,
        order="newest" if newest else "best",
        before=None if before is None else a_str("before", before),
        now_ms=now_ms,
    )
