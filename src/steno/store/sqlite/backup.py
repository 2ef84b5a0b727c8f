"""A copy of a store while it is in use: of one moment, whole, readable by its owner alone. And how
a copy takes the place of a store:

    x.db.restoring.partial   being copied; means nothing
    x.db.restoring           complete: from here on the next open of the store finishes the restore
    x.db.replaced (+ -wal)   what was there before, kept whole

The old log must be out of the way before the new file takes the name: SQLite would play it into the
new file.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import apsw

from steno.store.errors import JournalCorrupt, NotAllowed, NotAStore, StoreUnopenable
from steno.store.sqlite import database
from steno.store.sqlite.database import sync_file, sync_folder, translated
from steno.store.sqlite.locks import Locks
from steno.store.sqlite.reader import verified

_LOG_FILES = ("-wal", "-shm")


def backup(connection: apsw.Connection, to: Path) -> None:
    """Everything acknowledged before this call is in the copy. The name appears when the copy is
    complete."""
    if to.exists():
        raise NotAllowed(f"{to} exists already; a backup never overwrites")
    partial, bare = _beside(to, ".partial"), _beside(to, ".partial-bare")
    try:
        for file in (partial, bare):
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600))
    except OSError as error:
        raise StoreUnopenable(f"cannot make {partial}: {error.strerror}") from error
    try:
        with translated(f"the backup {to} was not made"):
            with _may_write(connection):
                connection.execute("vacuum into ?", (str(bare),))
            _with_checksums(bare, partial)
        bare.unlink()
        sync_file(partial)
        partial.replace(to)
        sync_folder(to.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            bare.unlink(missing_ok=True)
            partial.unlink()
        raise


@contextlib.contextmanager
def _may_write(connection: apsw.Connection) -> Iterator[None]:
    """`vacuum into` counts as writing, though it writes to another file."""
    connection.pragma("query_only", False)
    try:
        yield
    finally:
        connection.pragma("query_only", True)


def _with_checksums(bare: Path, to: Path) -> None:
    """A file's first page tells the file layer that pages have checksums, and `vacuum into` writes
    that page after most others where a store does not fit in the cache: those have none. So they
    are copied into a file that has its first page already."""
    source = apsw.Connection(str(bare), flags=apsw.SQLITE_OPEN_READONLY)
    copy = apsw.Connection(str(to), vfs=database.checked_pages())
    try:
        copy.reserve_bytes(reserve=database.CHECKSUM_BYTES)
        copy.pragma("synchronous", "off")
        copy.pragma("journal_mode", "off")
        copy.pragma("user_version", 1)  # writes the first page
        with copy.backup("main", source, "main") as pages:
            while not pages.done:
                pages.step(-1)
    finally:
        copy.close()
        source.close()


def restore(backup: Path, path: Path, owner: str = "restore") -> None:
    """Refused while a live process has the store open, and if the backup is damaged."""
    path = path.absolute()
    _check_backup(backup)
    locks = Locks(path, owner)
    locks.hold_open(exclusive=True)
    try:
        locks.count_restore()
        partial = _beside(path, ".restoring.partial")
        from shutil import copyfile

        copyfile(backup, partial)
        partial.chmod(0o600)
        sync_file(partial)
        if (
            not _beside(path, ".restoring").exists()
        ):  # else these are of a restore that was cut off: keep them together
            for old in ("", *_LOG_FILES):
                _beside(path, ".replaced" + old).unlink(missing_ok=True)
        partial.replace(database.restoring(path))
        sync_folder(path.parent)
        _finish(path)
    finally:
        locks.close()


def finish(path: Path, locks: Locks) -> None:
    """Finish a restore that was cut off after its point of no return."""
    if not database.restoring(path).exists():
        return
    locks.hold_open(exclusive=True)
    try:
        if database.restoring(path).exists():
            _finish(path)
    finally:
        locks.close()


def _finish(path: Path) -> None:
    for old in (*_LOG_FILES, ""):
        here = _beside(path, old)
        if here.exists():
            here.replace(_beside(path, ".replaced" + old))
    sync_folder(path.parent)
    database.restoring(path).replace(path)
    sync_folder(path.parent)


def _check_backup(backup: Path) -> None:
    if not backup.is_file():
        raise StoreUnopenable(f"there is no file {backup}")
    if _beside(backup, "-wal").exists():
        raise NotAStore(
            f"{backup} is a store in use, not a backup: part of it is in its log; make a backup "
            "of it first"
        )
    from urllib.parse import quote

    with translated(f"cannot read the backup {backup}"):
        connection = apsw.Connection(
            f"file:{quote(str(backup))}?immutable=1",
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
            vfs=database.checked_pages(),
        )
        try:
            database.check(backup, connection)
            damage = verified(connection).damage
        finally:
            connection.close()
    if damage:
        raise JournalCorrupt(
            f"the backup {backup} is damaged ({damage[0].where}: {damage[0].what}); nothing was "
            "changed"
        )


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
