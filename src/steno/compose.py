"""The composition root: opens a store and puts everything on it together, from the configuration.

Setup      what a process can do without a store: look, adopt, restore, open
Program    an open store, and all that the sessions in it share
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from steno.agents import Agents, Models, Parts, model_settings
from steno.config import Config, Place
from steno.model_choice import Terms
from steno.plugins.discovery import find
from steno.plugins.protocol import NoPlugins
from steno.runtimes.dispatch import Dispatch
from steno.runtimes.distil import Distilling
from steno.runtimes.recall import Recall
from steno.runtimes.toolbox import Toolbox, ToolboxSettings
from steno.service import Service
from steno.service.deliveries import Deliveries, Sending
from steno.service.memory import Memories
from steno.service.visits import Visits
from steno.session.load import Sessions
from steno.store import memory
from steno.store.errors import NotAllowed
from steno.store.facade import AsyncStore
from steno.store.memory import MemoryStore
from steno.store.sqlite.database import SqliteSettings
from steno.store.sqlite.store import SqliteStore
from steno.tools.groups import end_all

if TYPE_CHECKING:
    from steno.delivery.outbox import Body, Outbox
    from steno.plugins.hosts import Hosts
    from steno.search.keeper import Search
    from steno.tools.mcp import ServerSettings

CLOSE_S = 0.4
"""For servers of tools and connections to models to close. What hangs longer is ended."""


class Setup:
    """A home and its configuration. `ephemeral`: the store is in the memory of this process."""

    def __init__(self, config: Config, where: Place, ephemeral: bool = False) -> None:
        self.config = config
        self.where = where
        self.ephemeral = ephemeral
        self._models = Models(model_settings(config))

    def agents(self, terms: Terms, parts: Parts | None = None) -> Agents:
        return Agents(self.config, self.where, self._models, terms, parts, self.ephemeral)

    def has_store(self) -> bool:
        """Whether there is a store, or what is left of one. Opening makes one where there is
        none."""
        name = self.where.store.name
        return any(
            self.where.store.with_name(name + ending).exists()
            for ending in ("", "-locks", ".restoring")
        )

    def adopt(self) -> bool:
        """Take the store back from another program that wrote to it; whether that was needed."""
        from steno.store.sqlite.adopt import adopt

        return adopt(self.where.store, self._store_settings())

    def restore(self, backup: Path) -> None:
        from steno.store.sqlite.backup import restore

        restore(backup, self.where.store)
        from steno.search.index_file import remove
        from steno.search.keeper import beside

        remove(beside(self.where.store))  # it knows what the store that is gone said

    @asynccontextmanager
    async def open(
        self, visiting: bool = True, only_reads: bool = False
    ) -> "AsyncIterator[Program]":
        """`visiting`: sessions are opened in it, and plugins hear of that. `only_reads`: nothing is
        written, so a store that cannot be written will do."""
        settings = replace(self._store_settings(), only_reads=only_reads)
        store: AsyncStore = (
            await MemoryStore.open(memory.Place(), settings)
            if self.ephemeral
            else await SqliteStore.open(self.where.store, settings)
        )
        plugins = self._hosted(visiting)
        sessions = Sessions(store, settings.lease_ms, plugins or NoPlugins())
        searching = Searching(store, None if self.ephemeral else self.where.store)
        toolbox = Toolbox(sessions, self._toolbox_settings(), searching.search)
        program = Program(self, sessions, toolbox, searching.search)
        try:
            yield program
        finally:
            await program.leave()
            await asyncio.to_thread(searching.close)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    closing = (model.close() for model in self._models.all())
                    await asyncio.gather(toolbox.close(), *closing)
            end_all()
            if plugins is not None:
                await plugins.close()
            await store.close()

    def _hosted(self, visiting: bool) -> "Hosts | None":
        """The plugins that hear of what is done here, started; None if there are none."""
        found = () if self.ephemeral or not visiting else find(self.where.home)
        if not found:
            return None
        from steno.plugins.hosts import Hosts

        hosts = Hosts(found, self.where.home / "plugins.log")
        hosts.start()
        return hosts

    def _toolbox_settings(self) -> ToolboxSettings:
        tools = self.config.tools
        return ToolboxSettings(
            servers=self._servers() if self.config.mcp else {},
            search=tools.search,
            delegate=tools.delegate,
            delegate_limit_s=tools.delegate_limit_s,
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
            durability=self.config.store.durability, lock_wait_ms=self.config.store.lock_wait_ms
        )


class Searching:
    """The search of an open store, made when something asks for it. What is removed from the store
    is taken out of its index, too. `path` is the store's file, if it is one."""

    def __init__(self, store: AsyncStore, path: Path | None) -> None:
        self._store = store
        self._path = path
        self._search: Search | None = None
        if path is not None:
            store.core.copies.append(self._clear)

    def search(self) -> "Search":
        from steno.search.keeper import Search, beside  # many commands never search

        if self._search is None:
            index = None if self._path is None else beside(self._path)
            self._search = Search(self._store.blocking, index)
        return self._search

    def _clear(self) -> None:
        if self._path is not None and self._path.with_name(self._path.name + "-search").exists():
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
        toolbox: Toolbox,
        search: "Callable[[], Search]",
    ) -> None:
        memory = setup.config.memory
        recall = Recall(sessions.store, memory.items_max, memory.chars_max)
        self._setup = setup
        self._sessions = sessions
        self._search = search
        self._parts = Parts(sessions, toolbox, recall)
        self._deliveries = Deliveries(sessions, self._sending())
        self._visits: dict[str, Visits] = {}

    def agents(self, terms: Terms) -> Agents:
        return self._setup.agents(terms, self._parts)

    def service(self, platform: str, terms: Terms) -> Service:
        """What can be done with sessions from a platform, those that run on these terms."""
        agents = self.agents(terms)
        store = self._sessions.store
        return Service(
            self._sessions,
            Dispatch(self._sessions, agents.drivers(store)),
            platform,
            self._visits_from(platform),
            self._deliveries,
            Memories(store, Distilling(self._sessions, agents.distiller)),
            self._setup.ephemeral,
            self._search,
        )

    async def backup(self, to: Path) -> None:
        """A copy of the store in a file, where the store is one."""
        store = self._sessions.store
        if not isinstance(store, SqliteStore):
            raise NotAllowed("only a store in a file has a backup in a file")
        await store.backup(to)

    async def leave(self) -> None:
        """End the visits that are open."""
        await asyncio.gather(*(visits.leave() for visits in self._visits.values()))

    def _visits_from(self, platform: str) -> Visits:
        if platform not in self._visits:
            plugins = self._sessions.plugins
            self._visits[platform] = Visits(self._sessions.store, plugins, platform)
        return self._visits[platform]

    def _sending(self) -> Sending:
        """How what is owed to places outside goes out; loaded when something is."""
        config, plugins, store = self._setup.config, self._sessions.plugins, self._sessions.store

        @cache
        def outbox(body: "Body") -> "Outbox":
            from steno.delivery.channels import channel
            from steno.delivery.outbox import Outbox

            return Outbox(store, plugins, lambda name: channel(config, name), body)

        def load() -> None:
            import steno.delivery.webhook  # noqa: F401

        chats = frozenset(name for name, one in config.channels.items() if one.is_chat)
        return Sending(outbox, load, len(chats) < len(config.channels), chats)
