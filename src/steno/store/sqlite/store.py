"""Stores in a SQLite file: `SqliteStore` for callers that await, `BlockingStore` for those that
block."""

from pathlib import Path
from typing import cast

from steno.store import facade
from steno.store.core import Core
from steno.store.protocol import Settings
from steno.store.sqlite.backend import SqliteBackend
from steno.store.sqlite.database import SqliteSettings
from steno.store.values import new_owner


def _opened(where: Path, settings: Settings | None) -> Core:
    known = SqliteSettings.of(settings)
    core = Core(SqliteBackend(where, known, new_owner()), known)
    core.open()
    return core


class _Sqlite:
    """What only a store of SQLite has."""

    core: Core

    @property
    def backend(self) -> SqliteBackend:
        return cast(SqliteBackend, self.core.backend)

    @property
    def path(self) -> Path:
        return self.backend.path


class BlockingStore(_Sqlite, facade.BlockingStore):
    def __init__(self, where: Path, settings: Settings | None = None) -> None:
        super().__init__(_opened(where, settings))

    def backup(self, to: Path) -> None:
        """A copy of this moment, with everything acknowledged before the call, to a file that does
        not exist yet."""
        self.backend.backup(to)

    def vacuum(self) -> None:
        """Write the store anew, without the room that removed facts left. Holds writers up
        meanwhile."""
        self.backend.remains.vacuum()


class SqliteStore(_Sqlite, facade.AsyncStore):
    @classmethod
    async def open(
        cls, where: Path, settings: Settings | None = None
    ) -> "SqliteStore":
        from asyncio import to_thread

        return cls(await to_thread(_opened, where, settings))

    async def backup(self, to: Path) -> None:
        """A copy of this moment, with everything acknowledged before the call, to a file that does
        not exist yet."""
        await self.to_thread(self.backend.backup, to)

    async def vacuum(self) -> None:
        """Write the store anew, without the room that removed facts left. Holds writers up
        meanwhile."""
        await self.to_thread(self.backend.remains.vacuum)
