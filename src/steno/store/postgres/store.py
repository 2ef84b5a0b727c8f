"""Stores in PostgreSQL: `PostgresStore` for callers that await, `BlockingPostgresStore` for those
that block."""

from contextlib import suppress
from typing import TYPE_CHECKING, cast

from steno.store import facade
from steno.store.core import Core
from steno.store.postgres.backend import Database, PostgresBackend
from steno.store.postgres.database import PostgresSettings, address
from steno.store.postgres.owners import Worker
from steno.store.protocol import Settings
from steno.store.values import new_owner

if TYPE_CHECKING:
    from asyncio import Event


def _opened(where: str, settings: Settings | None) -> Core:
    known = PostgresSettings.of(settings)
    backend = PostgresBackend(address(where), known, new_owner())
    core = Core(backend, known)
    core.listen(backend.watch.committed)
    core.open()
    return core


class _Postgres:
    """What only a store in PostgreSQL has."""

    core: Core

    @property
    def backend(self) -> PostgresBackend:
        return cast(PostgresBackend, self.core.backend)


class BlockingPostgresStore(_Postgres, facade.BlockingStore):
    def __init__(self, where: str, settings: Settings | None = None) -> None:
        super().__init__(_opened(where, settings))

    def workers(self) -> list[Worker]:
        return self.backend.workers()


class PostgresStore(_Postgres, facade.AsyncStore):
    work: "Event"
    """Set when a worker has left something to others, in order or by its death."""

    @classmethod
    async def open(
        cls, where: str, settings: Settings | None = None
    ) -> "PostgresStore":
        from asyncio import Event, get_running_loop, to_thread

        store = cls(await to_thread(_opened, where, settings))
        loop = get_running_loop()
        store.work = Event()

        def worked() -> None:
            with suppress(
                RuntimeError
            ):  # the loop is over, and nothing is taken up here
                loop.call_soon_threadsafe(store.work.set)

        if store.backend.settings.role:
            store.backend.watch.on_work(worked)
        return store

    def offer(self) -> None:
        """Tell other workers that there is work for which there is no room here."""
        self.backend.watch.offer()

    async def look_again(self, limit: int) -> None:
        """Let sessions be claimed in which there was nothing to do: this worker may know more."""
        await self.to_thread(self.backend.look_again, limit)

    async def database(self) -> Database:
        """What the server says of itself."""
        return await self.to_thread(self.backend.database)

    async def workers(self) -> list[Worker]:
        """The open stores that have written, this one among them, and those that died of late."""
        return await self.to_thread(self.backend.workers)
