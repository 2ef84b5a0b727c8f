"""Where a database lies: in a file that processes share, or in one that cannot be written."""

from pathlib import Path
from typing import Protocol

import apsw

from steno.store.errors import (
    StoreFull,
    StoreReadOnly,
    StoreUnopenable,
    StoreUnwritable,
)
from steno.store.sqlite import database, migrate
from steno.store.sqlite.checkpoint import Checkpointer, Exclusively
from steno.store.sqlite.database import SqliteSettings, StoreInUse, translated
from steno.store.sqlite.locks import Locks
from steno.store.sqlite.write_lock import WriteLock


class Owners(Protocol):
    """Who has the database open, and how often it was replaced by a backup. `owner` is we."""

    owner: str

    def restores(self) -> int: ...

    def alive(self, owner: str) -> bool: ...
    def leave(self, session: str, why: str) -> None: ...
    def left(self, session: str) -> str: ...
    def close(self) -> None: ...
    def forget(self) -> None: ...


class Remains(Protocol):
    """What changes and removals leave behind, and how it goes."""

    def scrub(self) -> None: ...
    def vacuum(self) -> None: ...
    def close(self) -> None: ...


class OnDisk:
    def __init__(self, path: Path, settings: SqliteSettings, owner: str) -> None:
        self.path = path
        self.log = (
            None if settings.allow_network_file_system else database.log_of(path)
        )
        self._settings = settings
        self._locks = Locks(path, owner, settings.lock_wait_ms)
        self.owners: Owners = self._locks
        self.write_lock: WriteLock = self._locks.write_lock

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

    def remains(self, writer: apsw.Connection, exclusively: Exclusively) -> Remains:
        return Checkpointer(self.path, self._settings, writer, exclusively)


class Unwritable:
    """A file that cannot be written: the disk is full, or it is read-only. Nothing is written here,
    not even a lock.

    Where there is a log, SQLite reads it with an index in its own memory, or with the one that a
    live process keeps (`readonly_shm`). Where there is none, the file alone is the store
    (`immutable`): that holds while none writes, so others are kept out for as long as it is open.
    """

    def __init__(
        self, path: Path, settings: SqliteSettings, owner: str, why: StoreUnwritable
    ) -> None:
        self.path = path
        self.log = database.log_of(path)
        self._settings = settings
        self._locks = Locks(path, owner, can_write=False)
        self._way = ""
        self.owners: Owners = self._locks
        self.write_lock: WriteLock = _Refusal(why)
        self._why = why

    def open(self) -> apsw.Connection:
        """A connection to read with. A store that has to be written before it can be read is
        refused."""
        try:
            self._way = self._hold()
            connection = self.reader()
            with translated(f"cannot open {self.path} to read"):
                if database.check(
                    self.path, connection
                ) < database.VERSION or not database.has_checksums(connection):
                    raise StoreReadOnly(
                        f"{self._why}; an older steno wrote this store, so it cannot be read either"
                    )
            return connection
        except BaseException:
            self._locks.close()
            raise

    def _hold(self) -> str:
        if self.path.with_name(self.path.name + ".restoring").exists():
            raise StoreUnopenable(
                f"{self._why}; a restore was cut off, and goes on when the store can be written"
            )
        try:
            self._locks.hold_open(exclusive=True)
            if not database.has_log(self.path):
                return "immutable"
            self._locks.close()
        except StoreInUse:
            pass
        self._locks.hold_open()
        if not self.path.with_name(self.path.name + "-shm").exists():
            name = self.path.name
            raise StoreUnopenable(
                f"{self._why}; to read it, copy {name} and {name}-wal to where they can be written"
            )
        return "readonly_shm"

    def reader(self) -> apsw.Connection:
        return database.connect(
            self.path, self._settings, query_only=True, unwritable=self._way
        )

    def remains(self, _writer: apsw.Connection, _exclusively: Exclusively) -> Remains:
        return _Refusal(self._why)


class _Refusal:
    def __init__(self, why: StoreUnwritable) -> None:
        self._error = type(why)(f"nothing was stored: {why}")

    def enter(self) -> None:
        raise self._error

    def scrub(self) -> None:
        raise self._error

    def vacuum(self) -> None:
        raise self._error

    def leave(self) -> None: ...

    def close(self) -> None: ...


Location = OnDisk | Unwritable


def opened(
    where: Path, settings: SqliteSettings, owner: str
) -> tuple[Location, apsw.Connection]:
    """Where the database lies, and the connection to write with. One that cannot be written is
    opened all the same for a caller that only reads."""
    path = where.absolute()
    try:
        disk = OnDisk(path, settings, owner)
        return disk, disk.open()
    except (StoreFull, StoreReadOnly) as error:
        if not settings.only_reads or not path.exists():
            raise
        unwritable = Unwritable(path, settings, owner, error)
        return unwritable, unwritable.open()
