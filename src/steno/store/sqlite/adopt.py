"""Takes a store back that another program has written to.

Plain SQLite knows nothing of the checksums in our pages. It is enough that a person reads the store
with it after a kill: SQLite then copies the log into the database when it leaves, and the copied
pages fail our check although what they hold is right. So every page is looked at when the log is
gone although a process left it behind: one that was killed, or one that closed the store while
another program still had it open. If some pages fail, everything in them is verified by its own
checksums, numbers and links; if all of it is whole, the store is written anew; else it is damage.
"""

import contextlib
from pathlib import Path

import apsw

from steno.store.errors import JournalCorrupt, warn
from steno.store.sqlite import database
from steno.store.sqlite.database import (
    PageDamaged,
    SqliteSettings,
    StoreInUse,
    translated,
)
from steno.store.sqlite.locks import Locks
from steno.store.sqlite.reader import verified


def after_strangers(path: Path, settings: SqliteSettings, locks: Locks) -> None:
    """Look at every page: a process left a log behind and another program has tidied it up."""
    try:
        locks.hold_open(exclusive=True)
    except StoreInUse:
        return  # then a steno tidied it up
    try:
        if not _pages_match(path, settings):
            _write_anew(path, settings)
    finally:
        locks.close()


def adopt(path: Path, settings: SqliteSettings) -> bool:
    """Verify everything, and write the checksums of all pages anew if some are wrong; whether that
    was needed. Refused while a live process has the store open."""
    path = path.absolute()
    locks = Locks(path, "adopt")
    locks.hold_open(exclusive=True)
    try:
        if not _pages_match(path, settings):
            _write_anew(path, settings)
            return True
        with (
            translated(f"cannot read {path}"),
            contextlib.closing(database.connect(path, settings)) as connection,
        ):
            _refuse_damage(path, connection)
        return False
    finally:
        locks.close()


def _write_anew(path: Path, settings: SqliteSettings) -> None:
    """Write the checksums of all pages anew, once everything in the store is known to be right."""
    with (
        translated(f"cannot read {path}"),
        contextlib.closing(
            database.connect(path, settings, check_pages=False)
        ) as connection,
    ):
        _refuse_damage(path, connection)
        connection.execute("vacuum").fetchall()
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    warn(
        "another program has written to %s; everything in it was verified, and it was written anew",
        path,
    )


def _refuse_damage(path: Path, connection: apsw.Connection) -> None:
    if found := verified(connection).damage:
        raise JournalCorrupt(f"{path} is damaged: {found[0].where}: {found[0].what}")


def _pages_match(path: Path, settings: SqliteSettings) -> bool:
    """Whether every page has the checksum it should have; so it is where pages have none.

    SQLite raises at a page that it needs to go on, such as the first, and otherwise says in its
    answer which pages it could not read.
    """
    try:
        with (
            contextlib.closing(database.connect(path, settings)) as connection,
            translated(f"cannot read {path}"),
        ):
            return not database.has_checksums(connection) or (
                connection.execute("pragma quick_check(1)").fetchall() == [("ok",)]
            )
    except PageDamaged:
        return False
