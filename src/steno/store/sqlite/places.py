"""Where a database lies: in a file that processes share, or in the memory of this process alone.

The tables, the verbs and the checks are the same. What differs is who else may have it open, and what a removal leaves
behind. A database in memory has no file of any kind, not even for a moment: no log, no lock, no page on its way to a
disk. It lives as long as a connection to it.
"""

import itertools
from pathlib import Path
from typing import Protocol

import apsw
from msgspec.structs import replace

from steno.store.protocol import Settings
from steno.store.sqlite import database, migrate
from steno.store.sqlite.checkpoint import Checkpointer
from steno.store.sqlite.database import translated
from steno.store.sqlite.locks import Locks
from steno.store.sqlite.pipeline import Pipeline
from steno.store.sqlite.turnstile import Turns


class Owners(Protocol):
    """Who has the database open. `owner` is we."""

    owner: str

    def alive(self, owner: str) -> bool: ...
    def close(self) -> None: ...
    def forget(self) -> None: ...


class Remains(Protocol):
    """What changes and removals leave behind, and how it goes."""

    def scrub(self) -> None: ...
    def vacuum(self) -> None: ...
    def close(self) -> None: ...


class OnDisk:
    def __init__(self, path: Path, settings: Settings, owner: str) -> None:
        self.path = path
        self._settings = settings
        self._locks = Locks(path, owner, settings.lock_wait_ms)
        self.owners: Owners = self._locks
        self.turns: Turns = self._locks.turnstile

    def open(self) -> apsw.Connection:
        """Make or migrate the file and hold it open; the connection to write with."""
        try:
            migrate.open_path(self.path, self._settings, self._locks)
            self._locks.hold_owner()
            return database.connect(self.path, self._settings)
        except BaseException:
            self._locks.close()
            raise

    def reader(self) -> apsw.Connection:
        return database.connect(self.path, self._settings, query_only=True)

    def remains(self, writer: apsw.Connection, pipeline: Pipeline) -> Remains:
        return Checkpointer(self.path, self._settings, writer, pipeline)


_numbers = itertools.count(1)
_living: set[str] = set()
"""The owners of all databases in memory: they are of this process, and live until they are closed."""


class Memory:
    """Names a database in the memory of this process. Two stores that are opened with one name share it."""

    def __init__(self) -> None:
        self.path = Path(f"/steno-{next(_numbers)}")  # where the name begins with a slash, connections share it


class InMemory:
    def __init__(self, memory: Memory, settings: Settings, owner: str) -> None:
        self.path = memory.path
        self._settings = replace(settings, vfs="memdb", durability="process")
        self.owners: Owners = _MemoryOwners(owner)
        self.turns: Turns = _OneProcess()

    def open(self) -> apsw.Connection:
        writer = database.connect(self.path, self._settings, make=True)
        with translated("cannot keep a session in memory"):
            database.make_tables(writer)
        _living.add(self.owners.owner)
        return writer

    def reader(self) -> apsw.Connection:
        return database.connect(self.path, self._settings, query_only=True)

    def remains(self, writer: apsw.Connection, pipeline: Pipeline) -> Remains:
        return _FreeMemory(writer, pipeline)


class _MemoryOwners:
    def __init__(self, owner: str) -> None:
        self.owner = owner

    def alive(self, owner: str) -> bool:
        return owner in _living

    def close(self) -> None:
        _living.discard(self.owner)

    def forget(self) -> None:
        """A forked child has a copy of everything, and may not use it."""


class _OneProcess:
    """No other process writes; between the stores of this one, SQLite's own lock decides."""

    def enter(self) -> None: ...

    def leave(self) -> None: ...


class _FreeMemory:
    def __init__(self, writer: apsw.Connection, pipeline: Pipeline) -> None:
        self._writer = writer
        self._pipeline = pipeline

    def scrub(self) -> None:
        self.vacuum()

    def vacuum(self) -> None:
        with translated("the memory was not written anew; the removal itself is done"):
            self._pipeline.exclusively(lambda: self._writer.execute("vacuum").fetchall())

    def close(self) -> None: ...
