"""Opens SQLite connections the way a journal needs them, and puts SQLite's errors into the store's
words. Beyond those of `store/errors.py`:

StoreUnopenable
  UnsafePlace      a network file system loses what it acknowledged; move the store
  StoreInUse       a live process has it open; stop that first
JournalCorrupt
  PageDamaged      a page does not match its checksum; adopt the store if another program wrote it,
                   else restore
"""

import contextlib
import errno
import functools
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
from msgspec.structs import asdict

from steno.journal.codec import JOURNAL_VERSION
from steno.store.errors import (
    JournalCorrupt,
    NotAStore,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreTooNew,
    StoreUnopenable,
    StoreUnwritable,
)
from steno.store.protocol import Settings
from steno.store.sqlite.sql import SCHEMA

APPLICATION_ID = 0x53746E6F  # "Stno", in the header of every store
VERSION = 7
CHECKSUM_BYTES = 8
"""At the end of every page, for `checked_pages`."""

_BUSY_PAUSE_S = (0.0001, 0.0008)
_SYNCHRONOUS = {"power": "full", "process": "normal"}
_NETWORK = frozenset(
    """
    nfs nfs4 cifs smb smb2 smb3 smbfs afpfs webdav 9p afs ceph glusterfs lustre ncpfs beegfs gpfs
    fuse.sshfs fuse.s3fs fuse.rclone fuse.glusterfs fuse.ceph
    """.split()  # noqa: SIM905 - a table reads better than a list of strings
)


class SqliteSettings(Settings, frozen=True, kw_only=True):
    """What only SQLite can be told."""

    lock_wait_ms: int = 5_000
    checkpoint_pages: int = 1_000
    scrub_bytes_max: int = 64 << 20
    allow_network_file_system: bool = False
    only_reads: bool = False
    vfs: str | None = None

    @classmethod
    def of(cls, settings: Settings | None) -> "SqliteSettings":
        """With defaults for what was not said."""
        if isinstance(settings, cls):
            return settings
        return cls() if settings is None else cls(**asdict(settings))


class UnsafePlace(StoreUnopenable):
    pass


class StoreInUse(StoreUnopenable):
    pass


class PageDamaged(JournalCorrupt):
    adoptable = True


def connect(
    path: Path,
    settings: SqliteSettings,
    *,
    query_only: bool = False,
    check_pages: bool = True,
    make: bool = False,
    unwritable: str = "",
) -> apsw.Connection:
    """One connection to an existing store, or to one that this connection makes. `unwritable` is
    SQLite's word for how to read one that cannot be written."""
    if settings.durability not in _SYNCHRONOUS:
        raise StoreUnopenable(
            f"durability is 'power' or 'process', not {settings.durability!r}"
        )
    with translated(f"cannot open {path}"):
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if make else 0)
        name = str(path)
        if unwritable:
            from urllib.parse import quote

            name, flags = (
                f"file:{quote(name)}?{unwritable}=1",
                apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
            )
        connection = apsw.Connection(
            name, flags=flags, vfs=settings.vfs or checked_pages()
        )
        if not check_pages:
            connection.pragma("checksum_verification", False)
        connection.set_busy_handler(patience(settings.lock_wait_ms))
        connection.pragma("synchronous", _SYNCHRONOUS[settings.durability])
        connection.pragma("fullfsync", settings.durability == "power")
        connection.pragma("wal_autocheckpoint", 0)
        connection.pragma("secure_delete", True)
        connection.pragma("temp_store", "memory")
        connection.pragma("trusted_schema", False)
        if query_only:
            connection.pragma("query_only", True)
        return connection


@functools.cache
def checked_pages() -> str:
    """The name of SQLite's file layer that keeps a checksum in every page and refuses one that does
    not match.

    It registers itself as everybody's default; that is put back, since other users of SQLite in
    this process did not ask for it.
    """
    default = apsw.vfs_names()[0]
    loader = apsw.Connection(":memory:")
    try:
        _load_checksums(loader)
    except (apsw.Error, LookupError, OSError) as error:
        raise StoreUnopenable(
            f"this build of apsw lacks the checksum extension ({error}); install apsw's own wheel"
        ) from error
    finally:
        loader.close()
    apsw.set_default_vfs(default)
    return "cksmvfs"


def _load_checksums(connection: apsw.Connection) -> None:
    """From where apsw has it. To ask apsw takes longer than to open a store, so that is done only
    where it lies elsewhere."""
    for file in (Path(apsw.__file__).parent / "sqlite_extra_binaries").glob(
        "cksumvfs.*"
    ):
        connection.enable_load_extension(True)
        connection.load_extension(str(file))
        return
    from apsw import sqlite_extra

    try:
        sqlite_extra.load(connection, "cksumvfs")
    except sqlite_extra.NotAvailable as error:
        raise LookupError(str(error)) from error


def prepare(
    path: Path, settings: SqliteSettings, newest: int = VERSION
) -> tuple[int, bool]:
    """Make the file if there is none, check that it is a store; its version, and whether its pages
    have checksums."""
    if not settings.allow_network_file_system:
        refuse_network(path)
    made = path.with_name(path.name + "-locks") / "made"
    if _make_file(path):
        made.unlink(missing_ok=True)
    elif path.stat().st_size == 0 and made.exists():
        raise NotAStore(
            f"{path} is empty: everything in it is gone; restore a backup, or remove the file to "
            "begin anew"
        )
    connection = connect(path, settings)
    try:
        with translated(f"cannot open {path}"):
            if _is_empty(connection):
                _create(connection, settings.lock_wait_ms)
            if not made.exists():
                made.touch(0o600)
            version = check(path, connection, newest)
            if connection.pragma("journal_mode") != "wal":
                _keep_a_log(connection, settings.lock_wait_ms)
            return version, has_checksums(connection)
    finally:
        connection.close()


def _make_file(path: Path) -> bool:
    """Whether there was none. A new file is ours alone from its first moment, and its name survives
    a power cut."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        sync_folder(path.parent)
    except FileExistsError:
        return False
    except FileNotFoundError as error:
        raise StoreUnopenable(
            f"cannot make {path}: its folder does not exist"
        ) from error
    except OSError as error:
        kind = (
            StoreReadOnly
            if isinstance(error, PermissionError) or error.errno == errno.EROFS
            else StoreUnopenable
        )
        raise kind(f"cannot make {path}: {error.strerror}") from error
    return True


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def restoring(path: Path) -> Path:
    """A complete copy that is about to take the place of the store."""
    return path.with_name(path.name + ".restoring")


def has_log(path: Path) -> bool:
    """Whether there are commits beside the database that may not be in it yet."""
    try:
        return log_of(path).stat().st_size > 0
    except FileNotFoundError:
        return False


def sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_empty(connection: apsw.Connection) -> bool:
    return (
        connection.pragma("user_version") == 0
        and not connection.execute("select 1 from sqlite_schema").get
    )


def _create(connection: apsw.Connection, wait_ms: int) -> None:
    connection.reserve_bytes(reserve=CHECKSUM_BYTES)
    _keep_a_log(connection, wait_ms)
    make_tables(connection)


def _keep_a_log(connection: apsw.Connection, wait_ms: int) -> None:
    """SQLite asks no busy handler about this: while another process does the same, it fails at
    once. Where it cannot keep a log, it says which mode it stays in."""
    busy = patience(wait_ms)
    for tries in itertools.count():
        try:
            if (mode := connection.pragma("journal_mode", "wal")) != "wal":
                raise StoreUnopenable(
                    f"the store cannot keep a log here (SQLite stays in {mode!r})"
                )
            return
        except apsw.BusyError:
            if not busy(tries):
                raise


def make_tables(connection: apsw.Connection) -> None:
    """Unless they are there."""
    connection.execute("begin immediate")
    if _is_empty(connection):
        connection.execute(SCHEMA).fetchall()
        connection.execute("update lists set journal = ?", (JOURNAL_VERSION,))
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", VERSION)
    connection.execute("commit")


def has_checksums(connection: apsw.Connection) -> bool:
    return connection.reserve_bytes() == CHECKSUM_BYTES


def check(path: Path, connection: apsw.Connection, newest: int = VERSION) -> int:
    """Refuse what is not a store of a version up to `newest`; its version."""
    if connection.pragma("application_id") != APPLICATION_ID:
        raise NotAStore(
            f"{path} is a database, but not a steno store; nothing was changed"
        )
    version = int(connection.pragma("user_version"))
    if version > newest:
        raise StoreTooNew(
            f"{path} was written by a newer steno (format {version}, this one knows {newest}); "
            "upgrade steno"
        )
    if version >= VERSION:
        _check_journal(path, connection)
    return version


def _check_journal(path: Path, connection: apsw.Connection) -> None:
    """The facts have a version of their own, apart from that of the tables they lie in."""
    journal = connection.execute("select journal from lists").get
    if journal > JOURNAL_VERSION:
        raise StoreTooNew(
            f"{path} has facts of a newer steno (journal {journal}, this one knows "
            f"{JOURNAL_VERSION}); upgrade steno"
        )


def patience(wait_ms: int) -> Callable[[int], bool]:
    """Short jittered pauses: SQLite's own back-off makes the unlucky wait for more than half a
    second."""
    waiting_since = 0.0

    def busy(tries: int) -> bool:
        nonlocal waiting_since
        now = time.monotonic()
        if tries == 0:
            waiting_since = now
        if (now - waiting_since) * 1000 >= wait_ms:
            return False
        from random import uniform  # few ever wait

        time.sleep(uniform(*_BUSY_PAUSE_S))  # noqa: S311
        return True

    return busy


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise translate(error, doing) from error
    except UnicodeDecodeError as error:
        raise JournalCorrupt(
            f"{doing}: the database is damaged (text that is not text: {error})"
        ) from error


def translate(error: apsw.Error, doing: str) -> StoreError:
    """SQLite's error in our words: what happened, and that nothing was stored."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreLocked(
                f"{doing}: another process has been writing to the store for too long"
            )
        case apsw.FullError():
            return StoreFull(f"{doing}: the disk is full")
        case apsw.IOError() if (
            getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
        ):
            return StoreFull(
                f"{doing}: the disk is full (there is no room for the log's index)"
            )
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.AuthError():
            return StoreReadOnly(f"{doing}: the store is read-only ({error})")
        case apsw.NotADBError():
            return NotAStore(
                f"{doing}: the file is not a database, or its first page is damaged"
            )
        case apsw.CorruptError() | apsw.ConstraintError():
            return JournalCorrupt(f"{doing}: the database is damaged ({error})")
        case apsw.IOError() if (
            getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA
        ):
            return PageDamaged(
                f"{doing}: the database is damaged (a page does not match its checksum)"
            )
        case apsw.CantOpenError():
            return StoreUnopenable(f"{doing}: {error}")
        case _:
            return StoreUnwritable(f"{doing}: {error}")


def refuse_network(path: Path) -> None:
    """WAL needs shared memory, which a network file system does not give to two machines."""
    try:
        mounts = Path("/proc/self/mounts").read_text(
            encoding="utf-8", errors="replace"
        )
    except OSError:
        return
    kind = file_system_of(path.parent.resolve(), mounts)
    if kind in _NETWORK:
        raise UnsafePlace(
            f"{path} is on a network file system ({kind}), where acknowledged facts can be lost; "
            "move the store to a local disk"
        )


def file_system_of(folder: Path, mounts: str) -> str:
    """The type of the file system that a folder is on, from the text of /proc/mounts."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = Path(fields[1].replace("\\040", " "))
        if len(point.parts) >= best and folder.is_relative_to(point):
            best, kind = len(point.parts), fields[2]
    return kind
