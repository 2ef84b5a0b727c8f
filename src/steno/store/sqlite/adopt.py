"""Takes a store back that another program has written to.

Plain SQLite knows nothing of the checksums in our pages. It is enough that somebody reads the store
with it after a kill: SQLite then copies the log into the database when it leaves, and the copied
pages fail our check although what they hold is right. So after a kill whose log is gone, every page
is looked at. If some fail, everything in them is verified by its own checksums, numbers and links;
if all of it is whole, the store is written anew; else it is damage.
"""

import contextlib
from pathlib import Path

import apsw

from steno.store import log
from steno.store.errors import JournalCorrupt, PageDamaged, StoreInUse
from steno.store.protocol import Settings
from steno.store.sqlite import database
from steno.store.sqlite.database import translated
from steno.store.sqlite.locks import Locks
from steno.store.sqlite.verify import verify


def after_strangers(path: Path, settings: Settings, locks: Locks) -> None:
    """Look at every page if a process was killed here and somebody else has tidied up after it."""
    log = path.with_name(path.name + "-wal")
    if path.exists() and not (log.exists() and log.stat().st_size) and locks.left_behind():
        try:
            locks.hold_open(exclusive=True)
        except StoreInUse:
            return  # then it was one of us
        try:
            adopt(path, settings)
        finally:
            locks.close()


def adopt_closed(path: Path, settings: Settings) -> bool:
    """The same on demand; refused while a live process has the store open."""
    locks = Locks(path.absolute(), "adopt")
    locks.hold_open(exclusive=True)
    try:
        return adopt(path.absolute(), settings)
    finally:
        locks.close()


def adopt(path: Path, settings: Settings) -> bool:
    """Write the checksums of all pages anew if some are wrong and everything in the store is right;
    whether it was needed. Only while nobody else has the store open."""
    if _pages_match(path, settings):
        return False
    with (
        translated(f"cannot read {path}"),
        contextlib.closing(database.connect(path, settings, check_pages=False)) as connection,
    ):
        found = verify(connection).damage
        if found:
            raise JournalCorrupt(f"{path} is damaged: {found[0].where}: {found[0].what}")
        connection.execute("vacuum").fetchall()
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    log.warn(
        "another program has written to %s; everything in it was verified, and it was written anew",
        path,
    )
    return True


def _pages_match(path: Path, settings: Settings) -> bool:
    """Whether every page has the checksum it should have; so it is where pages have none."""
    try:
        with (
            contextlib.closing(database.connect(path, settings)) as connection,
            translated(f"cannot read {path}"),
        ):
            return not database.has_checksums(connection) or bool(
                connection.execute("pragma quick_check(1)").get
            )
    except PageDamaged:
        return False
