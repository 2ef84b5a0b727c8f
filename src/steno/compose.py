"""The composition root: opens a store and puts everything on it together, from the configuration.

Setup      what a process can do without a store: look, adopt, restore, open
Program    an open store, and all that the sessions in it share

What runs sessions is loaded when something is run: most commands only look.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from steno.config import Config, Place
from steno.service import Service
from steno.service.views import Views
from steno.session.load import Sessions
from steno.store.errors import NotAllowed, StoreUnopenable
from steno.store.facade import AsyncStore, AtOnce
from steno.store.protocol import Store
from steno.store.sqlite.database import SqliteSettings
from steno.store.sqlite.store import BlockingStore, SqliteStore

if TYPE_CHECKING:
    from steno.agents import Agents, Models, Parts
    from steno.delivery.outbox import Body, Outbox
    from steno.model_choice import Terms
    from steno.plugins.hosts import Hosts
    from steno.runtimes.distil import Distilling
    from steno.runtimes.toolbox import Toolbox, ToolboxSettings
    from steno.search.keeper import Search
    from steno.service.deliveries import Deliveries, Sending
    from steno.service.visits import Visits
    from steno.store.postgres.backend import Database
    from steno.store.postgres.database import PostgresSettings
    from steno.store.postgres.owners import Worker
    from steno.store.postgres.store import PostgresStore
    from steno.store.transaction import Changes
    from steno.tools.mcp import ServerSettings

IN_FOLDERS = ("chat", "cli", "acp")
"""Platforms whose people are in a folder."""
GATEWAY = "gateway"
"""The role of the service: where jobs run."""

CLOSE_S = 0.4
"""For servers of tools and connections to models to close. What hangs longer is ended."""


def postgres_store(address: str) -> "type[PostgresStore]":
    """Loaded only where it is used; its driver comes with an extra."""
    from importlib.util import find_spec

    if not address.startswith(("postgresql://", "postgres://")):
        raise StoreUnopenable("the address of a store begins with postgresql://")
    if find_spec("psycopg") is None:
        raise StoreUnopenable(
            "the driver for PostgreSQL is missing: pip install 'steno-agent[postgres]'"
        )
    from steno.store.postgres.store import PostgresStore

    return PostgresStore


def _check_there(file: Path) -> None:
    if not file.exists():
        raise StoreUnopenable(f"there is no store {file}")


class Setup:
    """A home and its configuration. `ephemeral`: the store is in the memory of this process."""

    def __init__(self, config: Config, where: Place, ephemeral: bool = False) -> None:
        self.config = config
        self.where = where
        self.ephemeral = ephemeral

    @cached_property
    def models(self) -> "Models":
        from steno.agents import Models, model_settings

        return Models(model_settings(self.config, self.where))

    def agents(
        self, terms: "Terms", parts: "Callable[[], Parts] | None" = None
    ) -> "Agents":
        from steno.agents import Agents

        return Agents(
            self.config, self.where, self.models, terms, parts, self.ephemeral
        )

    def in_file(self) -> bool:
        """Whether the store is in a file of this home."""
        return not self.ephemeral and not self.config.store.address

    def has_store(self) -> bool:
        """Whether there is a store, or what is left of one. Opening makes one where there is
        none."""
        if self.config.store.address:
            return True
        name = self.where.store.name
        return any(
            self.where.store.with_name(name + ending).exists()
            for ending in ("", "-locks", ".restoring")
        )

    @contextmanager
    def looking(self) -> Iterator[Views]:
        """What a store in a file says, for `now`: without an event loop, and with nothing loaded
        that runs sessions."""
        settings = replace(self._store_settings(), only_reads=True)
        with BlockingStore(self.where.store, settings) as store:
            yield Views(Sessions(cast(Store, AtOnce(store))))

    def adopt(self) -> bool:
        """Take the store back from another program that wrote to it; whether that was needed."""
        from steno.store.sqlite.adopt import adopt

        self._check_file("adopted: the server guards its own pages")
        return adopt(self.where.store, self._store_settings())

    def restore(self, backup: Path) -> None:
        from steno.store.sqlite.backup import restore

        self._check_file("restored from a file: use pg_restore")
        restore(backup, self.where.store)
        from steno.search import beside
        from steno.search.index_file import remove

        remove(beside(self.where.store))  # it knows what the store that is gone said

    def _check_file(self, otherwise: str) -> None:
        if self.config.store.address:
            raise NotAllowed(f"a store in PostgreSQL is not {otherwise}")

    @asynccontextmanager
    async def store_at(self, address: str, make: bool = True) -> AsyncIterator[Store]:
        """The store in a file or in PostgreSQL, whatever the configuration says; made where there
        is none, or refused."""
        if "://" in address:
            settings = self._postgres_settings(only_reads=False, role="")
            store: AsyncStore = await postgres_store(address).open(address, settings)
        else:
            if not make:
                from asyncio import to_thread

                await to_thread(_check_there, Path(address))
            store = await SqliteStore.open(Path(address), self._store_settings())
        try:
            yield store
        finally:
            await store.close()

    async def _opened(self, only_reads: bool, role: str) -> AsyncStore:
        """The store of this home: in memory, in PostgreSQL, or in a file."""
        settings = replace(self._store_settings(), only_reads=only_reads)
        config = self.config.store
        if self.ephemeral:
            from steno.store.memory import MemoryStore, Place

            return await MemoryStore.open(Place(), settings)
        if not config.address:
            return await SqliteStore.open(self.where.store, settings)
        return await postgres_store(config.address).open(
            config.address, self._postgres_settings(only_reads, role)
        )

    def _postgres_settings(self, only_reads: bool, role: str) -> "PostgresSettings":
        from steno.store.postgres.database import PostgresSettings

        config = self.config.store
        return PostgresSettings(
            durability=config.durability,
            lock_wait_ms=config.lock_wait_ms,
            synchronous_commit=config.synchronous_commit,
            pooled=config.pooled,
            direct=config.direct,
            only_reads=only_reads,
            role=role,
        )

    @asynccontextmanager
    async def open(
        self,
        visiting: bool = True,
        only_reads: bool = False,
        role: str = "",
        committed: "Callable[[Changes, float], None] | None" = None,
    ) -> "AsyncIterator[Program]":
        """`visiting`: sessions are opened in it, and plugins hear of that. `only_reads`: nothing is
        written, so a store that cannot be written will do. `role` is what other workers see it
        as. `committed` hears of each commit of this process, from another thread: what it changed,
        and how many seconds it took."""
        store = await self._opened(only_reads, role)
        if committed is not None:
            core, seen = store.core, committed
            core.listen(lambda changes: seen(changes, core.queue.took_s))
        from asyncio import to_thread

        from steno.plugins.protocol import NoPlugins

        plugins = self._hosted(visiting)
        sessions = Sessions(store, store.settings.lease_ms, plugins or NoPlugins())
        searching = Searching(store, self._index())
        program = Program(self, sessions, role, searching.search)
        try:
            yield program
        finally:
            await program.close()
            await to_thread(searching.close)
            if plugins is not None:
                await plugins.close()
            await store.close()

    def _index(self) -> Path | None:
        """Where what is said in the store is indexed: beside a file; for a store that is elsewhere,
        here at home, each host for itself."""
        if self.ephemeral:
            return None
        from steno.search import beside, within

        address = self.config.store.address
        return (
            within(self.where.home, address) if address else beside(self.where.store)
        )

    def _hosted(self, visiting: bool) -> "Hosts | None":
        """The plugins that hear of what is done here, started; None if there are none."""
        if self.ephemeral or not visiting:
            return None
        from steno.plugins.discovery import find

        found = find(self.where.home)
        if not found:
            return None
        from steno.plugins.hosts import Hosts

        hosts = Hosts(found, self.where.home / "plugins.log")
        hosts.start()
        return hosts

    def toolbox_settings(self, role: str) -> "ToolboxSettings":
        from steno.runtimes.toolbox import ToolboxSettings

        tools = self.config.tools
        return ToolboxSettings(
            servers=self._servers() if self.config.mcp else {},
            home=self.where.home,
            search=tools.search,
            delegate=tools.delegate,
            delegate_limit_s=tools.delegate_limit_s,
            jobs=tools.jobs and role == GATEWAY,
        )

    def _servers(self) -> "dict[str, ServerSettings]":
        from steno.tools.mcp import ServerSettings

        return {
            name: ServerSettings(
                command=mcp.command,
                args=mcp.args,
                env=mcp.env,
                pass_env=mcp.pass_env,
                url=mcp.url,
                headers=mcp.headers,
                safe=frozenset(mcp.safe),
                only=frozenset(mcp.only),
                start_limit_s=mcp.start_limit_s,
                time_limit_s=mcp.time_limit_s,
            )
            for name, mcp in self.config.mcp.items()
        }

    def _store_settings(self) -> SqliteSettings:
        return SqliteSettings(
            durability=self.config.store.durability,
            lock_wait_ms=self.config.store.lock_wait_ms,
        )


class Searching:
    """The search of an open store, made when something asks for it. What is removed from the store
    is taken out of its index, too. `index` is where that lies, if there is one."""

    def __init__(self, store: AsyncStore, index: Path | None) -> None:
        self._store = store
        self._index = index
        self._search: Search | None = None
        if index is not None:
            store.core.copies.append(self._clear)

    def search(self) -> "Search":
        from steno.search.keeper import Search  # many commands never search

        if self._search is None:
            self._search = Search(self._store.blocking, self._index)
        return self._search

    def _clear(self) -> None:
        if self._index is not None and self._index.exists():
            self.search().clear()

    def close(self) -> None:
        if self._search is not None:
            self._search.close()


class Program:
    """An open store, and what all sessions in it share, on whatever terms they are run."""

    def __init__(
        self,
        setup: Setup,
        sessions: Sessions,
        role: str,
        search: "Callable[[], Search]",
    ) -> None:
        self._setup = setup
        self._sessions = sessions
        self._role = role
        self._search = search
        self._toolbox: Toolbox | None = None
        self._visits: dict[str, Visits] = {}

    def agents(self, terms: "Terms") -> "Agents":
        return self._setup.agents(terms, lambda: self._parts)

    @cached_property
    def _parts(self) -> "Parts":
        from steno.agents import Parts
        from steno.runtimes.recall import Recall
        from steno.runtimes.toolbox import Toolbox

        memory = self._setup.config.memory
        settings = self._setup.toolbox_settings(self._role)
        self._toolbox = Toolbox(self._sessions, settings, self._search)
        recall = Recall(self._sessions.store, memory.items_max, memory.chars_max)
        return Parts(self._sessions, self._toolbox, recall)

    @cached_property
    def _deliveries(self) -> "Deliveries":
        from steno.service.deliveries import Deliveries

        return Deliveries(self._sessions, self._sending())

    def service(self, platform: str, terms: "Terms") -> Service:
        """What can be done with sessions from a platform, those that run on these terms."""
        from steno.runtimes.dispatch import Dispatch
        from steno.service.memory import Memories

        agents = self.agents(terms)
        store = self._sessions.store
        return Service(
            self._sessions,
            Dispatch(self._sessions, agents.drivers(store)),
            platform,
            self._visits_from(platform),
            self._deliveries,
            Memories(store, partial(self._distilling, agents)),
            self._setup.ephemeral,
            self._search,
            self._folder_of(platform, terms),
            agents.workspace,
        )

    def _distilling(self, agents: "Agents") -> "Distilling":
        from steno.runtimes.distil import Distilling

        return Distilling(self._sessions, agents.distiller)

    async def backup(self, to: Path) -> None:
        """A copy of the store in a file, where the store is one."""
        store = self._sessions.store
        if not isinstance(store, SqliteStore):
            raise NotAllowed("only a store in a file has a backup in a file")
        await store.backup(to)

    async def vacuum(self) -> None:
        """Write the store anew, where it is a file."""
        store = self._sessions.store
        if not isinstance(store, SqliteStore):
            raise NotAllowed("a store in PostgreSQL is vacuumed by its server")
        await store.vacuum()

    async def pause(self, seconds: float) -> None:
        """Sleep, but not beyond the moment in which another worker leaves work to others."""
        import asyncio

        work: asyncio.Event | None = getattr(self._sessions.store, "work", None)
        if work is None:
            await asyncio.sleep(seconds)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(work.wait(), seconds)
        work.clear()

    async def offer_work(self) -> None:
        """Tell other workers that there is more than can be run here."""
        store = self._sessions.store
        if isinstance(store, AsyncStore) and hasattr(store, "offer"):
            store.offer()

    async def shares_work(self, owner: str) -> bool:
        """Whether a process is a gateway that takes its work from the same queue as this one."""
        workers = getattr(self._sessions.store, "workers", None)
        if workers is None:
            return False
        return any(
            one.owner == owner and one.role == GATEWAY for one in await workers()
        )

    async def workers(self) -> "list[Worker]":
        """The processes that have the store open, where it can be asked."""
        store = self._sessions.store
        workers = getattr(store, "workers", None)
        if workers is None:
            raise NotAllowed("only a store in PostgreSQL knows its workers")
        return await workers()  # type: ignore[no-any-return]

    async def database(self) -> "Database | None":
        """What the server behind the store says of itself; None where it is a file."""
        about = getattr(self._sessions.store, "database", None)
        return None if about is None else await about()

    def attended(self) -> list[str]:
        """The sessions in which visits are open, from whatever platform."""
        return [one for visits in self._visits.values() for one in visits.attended()]

    async def leave_session(self, session: str) -> list[str]:
        """End the visits that are open in a session; what went wrong."""
        left = [one for one in self._visits.values() if one.attending(session)]
        return [
            said for visits in left for said in await visits.leave("left", session)
        ]

    def _folder_of(self, platform: str, terms: "Terms") -> str:
        """The folder that a new session belongs to: only a person at a terminal or in an editor is
        in one."""
        folder = terms.folder or self._setup.where.folder
        return str(folder) if platform in IN_FOLDERS and folder is not None else ""

    async def close(self) -> None:
        """End the visits that are open, and what talks to models and servers of tools."""
        import asyncio

        from steno.tools.groups import end_all

        await asyncio.gather(*(visits.leave() for visits in self._visits.values()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                closing = [model.close() for model in self._setup.models.all()]
                closing += [] if self._toolbox is None else [self._toolbox.close()]
                await asyncio.gather(*closing)
        end_all()

    def _visits_from(self, platform: str) -> "Visits":
        from steno.service.visits import Visits

        if platform not in self._visits:
            plugins = self._sessions.plugins
            self._visits[platform] = Visits(self._sessions.store, plugins, platform)
        return self._visits[platform]

    def _sending(self) -> "Sending":
        """How what is owed to places outside goes out; loaded when something is."""
        from steno.service.deliveries import Sending

        config, plugins, store = (
            self._setup.config,
            self._sessions.plugins,
            self._sessions.store,
        )

        @cache
        def outbox(body: "Body") -> "Outbox":
            from steno.delivery.channels import channel
            from steno.delivery.outbox import Outbox

            return Outbox(store, plugins, lambda name: channel(config, name), body)

        def load() -> None:
            import steno.delivery.webhook  # noqa: F401

        chats = frozenset(
            name for name, one in config.channels.items() if one.is_chat
        )
        return Sending(outbox, load, len(chats) < len(config.channels), chats)
