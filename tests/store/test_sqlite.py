"""What the SQLite store does with its files: who may read them, what is refused, what is said when
it cannot store."""

import asyncio
import os
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread, current_thread, main_thread
from typing import Any
from unittest.mock import patch

import apsw
import msgspec
import pytest

from steno.journal.facts import (
    DeliveryOwed,
    HookOwed,
    InputAdmitted,
    Record,
    SessionRenamed,
    SessionStarted,
)
from steno.journal.parts import Text
from steno.store import queries
from steno.store.commit_queue import CommitQueue
from steno.store.core import Core
from steno.store.errors import (
    JournalCorrupt,
    NotAllowed,
    NotAStore,
    OutcomeUnknown,
    SessionBusy,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreTooNew,
    StoreUnopenable,
    StoreUnwritable,
)
from steno.store.protocol import Admission, Cursor, Lease
from steno.store.rows import columns_of, session_crc
from steno.store.sqlite import database, migrate
from steno.store.sqlite.backend import SqliteBackend
from steno.store.sqlite.backup import restore
from steno.store.sqlite.database import SqliteSettings, StoreInUse, UnsafePlace, checked_pages
from steno.store.sqlite.migrate import Migration
from steno.store.sqlite.reader import Reader
from steno.store.sqlite.store import BlockingStore, SqliteStore
from steno.store.transaction import Transaction
from tests.store.worker import worker

STARTED = SessionStarted("test")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
def session(path: Path) -> str:
    """A session with something in it, in a store that is closed."""
    with BlockingStore(path) as store:
        return say(store, store.create(STARTED), "hello")


def say(store: BlockingStore, session: str, text: str, key: str | None = None) -> str:
    return store.admit(
        Admission(input=InputAdmitted((Text(text),), "test", key), session=session)
    ).session


def said(path: Path, session: str) -> list[str]:
    """What a store holds, as found by opening it."""
    with BlockingStore(path) as store:
        assert store.verify().damage == ()
        return texts(store, session)


def texts(store: BlockingStore, session: str) -> list[str]:
    return [
        part.text
        for record in store.read_all(session)
        if isinstance(record.fact, InputAdmitted)
        for part in record.fact.parts
        if isinstance(part, Text)
    ]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- files ----------------------------------------------------------------------------------------


def test_no_one_else_may_read_any_file_of_a_store(path: Path) -> None:
    before = os.umask(0)
    try:
        with BlockingStore(path) as store:
            say(store, store.create(STARTED), "hello")
            store.backup(path.with_name("backup"))
            files = {file.name: mode(file) for file in path.parent.rglob("*") if file.is_file()}
            assert set(files.values()) == {0o600}, files
            assert {"chats.db", "chats.db-wal", "backup", "open", store.owner} <= files.keys()
            assert mode(path.with_name("chats.db-locks")) == 0o700
    finally:
        os.umask(before)


def test_the_lock_files_of_dead_owners_are_swept(path: Path) -> None:
    for _ in range(3):
        with worker("open_and_wait", path) as other:
            assert other.line() == "open"
            other.kill()
    with BlockingStore(path) as store:
        assert {file.name for file in path.with_name("chats.db-locks").iterdir()} == {
            "open",
            "made",
            store.owner,
        }


def test_the_log_does_not_grow_for_ever(path: Path) -> None:
    """A slow disk lets it grow for a while; it starts again from its beginning as soon as it has
    been copied."""
    log = path.with_name("chats.db-wal")
    with BlockingStore(path, SqliteSettings(durability="process", checkpoint_pages=50)) as store:
        session = store.create(STARTED)
        written = 0
        while written < 3 * log.stat().st_size:
            store.add(session, [SessionRenamed("x" * 8_000)] * 10)
            written += 80_000
            assert written < 400 << 20
        assert store.verify().damage == ()


def test_a_store_may_be_closed_at_any_moment_of_a_checkpoint(path: Path) -> None:
    for _ in range(20):
        with BlockingStore(path, SqliteSettings(durability="process", checkpoint_pages=5)) as store:
            store.add(store.create(STARTED), [SessionRenamed("x" * 40_000)])
    with BlockingStore(path) as store:
        assert store.verify().sessions == 20


# --- what is refused ------------------------------------------------------------------------------


def test_what_is_not_a_store_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("a shopping list " * 100)
    before = path.read_bytes()
    with pytest.raises(NotAStore):
        BlockingStore(path)
    assert path.read_bytes() == before


def test_the_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    with apsw.Connection(str(path)) as other:
        other.execute("create table things (name)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(NotAStore, match="not a steno store"):
        BlockingStore(path)
    assert path.read_bytes() == before


def test_a_store_of_a_newer_steno_is_refused(path: Path, session: str) -> None:
    set_version(path, 99)
    with pytest.raises(StoreTooNew, match="99"):
        BlockingStore(path)
    set_version(path, database.VERSION)
    assert said(path, session) == ["hello"]


def test_a_store_with_facts_of_a_newer_journal_is_refused(path: Path, session: str) -> None:
    with closing(database.connect(path, SqliteSettings())) as connection:
        connection.execute("update lists set journal = 7")
    with pytest.raises(StoreTooNew, match="journal 7"):
        BlockingStore(path)
    with closing(database.connect(path, SqliteSettings())) as connection:
        connection.execute("update lists set journal = 1")
    assert said(path, session) == ["hello"]


def set_version(path: Path, version: int) -> None:
    connection = apsw.Connection(str(path), vfs=checked_pages())
    connection.pragma("user_version", version)
    connection.close()


def test_a_place_that_cannot_hold_a_store_is_named(tmp_path: Path) -> None:
    for place in (tmp_path / "nowhere" / "chats.db", tmp_path):
        with pytest.raises(StoreUnopenable, match=str(place)):
            BlockingStore(place)


MOUNTS = """
/dev/sda1 / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/export /srv/share nfs4 rw 0 0
server:/other /srv/my\\040share cifs rw 0 0
/dev/sdb1 /srv/share/local xfs rw 0 0
/dev/sdc1 /mnt ext4 rw 0 0
server:/late /mnt 9p rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/srv", "ext4"),
        ("/srv/share", "nfs4"),
        ("/srv/share/deep/down", "nfs4"),
        ("/srv/sharecropper", "ext4"),
        ("/srv/my share/chats", "cifs"),
        ("/srv/share/local/chats", "xfs"),
        ("/mnt/chats", "9p"),
    ],
)
def test_the_file_system_of_a_folder_is_that_of_the_innermost_mount(folder: str, kind: str) -> None:
    assert database.file_system_of(Path(folder), MOUNTS) == kind


def test_a_network_file_system_is_refused_unless_allowed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "file_system_of", lambda folder, mounts: "nfs4")
    with pytest.raises(UnsafePlace, match="nfs4"):
        BlockingStore(path)
    assert not path.exists()
    BlockingStore(path, SqliteSettings(allow_network_file_system=True)).close()


# --- when nothing can be stored -------------------------------------------------------------------


def test_two_that_make_a_store_at_once_both_have_it(path: Path) -> None:
    path.touch(0o600)
    with closing(apsw.Connection(str(path), vfs=checked_pages())) as other:
        other.execute("begin immediate")
        making = Thread(target=lambda: BlockingStore(path).close())
        making.start()
        making.join(0.2)
        assert making.is_alive()
        other.execute("commit")
        making.join()
    with BlockingStore(path) as store:
        assert store.verify().damage == ()
        assert store.list() == []


@pytest.mark.promise(3)
def test_a_store_that_is_locked_too_long_says_so(path: Path, session: str) -> None:
    other = apsw.Connection(str(path), vfs=checked_pages())
    with BlockingStore(path, SqliteSettings(lock_wait_ms=100)) as store:
        other.execute("begin immediate")
        with pytest.raises(StoreLocked, match="another process"):
            say(store, session, "unheard")
        assert texts(store, session) == ["hello"]
        other.execute("rollback")
        say(store, session, "heard")
        assert texts(store, session) == ["hello", "heard"]
    other.close()


@pytest.mark.promise(3)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "lock_mode", "refusal"),
    [
        (0o777, 0o644, 0o666, "StoreReadOnly nothing was stored: the store is read-only"),
        (0o555, 0o666, 0o666, "StoreReadOnly cannot open"),
        (0o777, 0o666, 0o600, "StoreReadOnly cannot open the lock file"),
        (0o777, 0o600, 0o666, "StoreUnopenable cannot open"),
    ],
)
def test_a_store_that_may_not_be_written_says_so(
    folder_mode: int, file_mode: int, lock_mode: int, refusal: str
) -> None:
    with TemporaryDirectory() as name:
        path = Path(name, "chats.db")
        with BlockingStore(path) as store:
            session = say(store, store.create(STARTED), "hello")
        locks = path.with_name("chats.db-locks")
        for file, wanted in ((path, file_mode), (locks / "open", lock_mode), (locks, folder_mode)):
            file.chmod(wanted)
        path.parent.chmod(folder_mode)
        with worker("unprivileged", path) as stranger:
            assert stranger.line().startswith(refusal)
        assert said(path, session) == ["hello"]


@pytest.mark.promise(3)
def test_a_file_that_turned_read_only_says_so(path: Path, session: str) -> None:
    with BlockingStore(path) as store:
        store.backend.connection.pragma("query_only", True)
        with pytest.raises(StoreReadOnly, match="read-only"):
            say(store, session, "unheard")
        store.backend.connection.pragma("query_only", False)
        say(store, session, "heard")
        assert texts(store, session) == ["hello", "heard"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(store: BlockingStore, session: str, stored: list[str]) -> None:
    """Say things until the disk is full."""
    for i in range(1_000):
        say(store, session, text := f"{i} " * 1_000, str(i))
        stored.append(text)


@pytest.mark.promise(3)
def test_a_full_disk_says_so_and_later_turns_are_stored_when_there_is_room(
    small_disk: Path,
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(500_000))
    path = small_disk / "chats.db"
    with BlockingStore(path) as store:
        session = store.create(STARTED)
        stored: list[str] = []
        with pytest.raises(StoreFull, match="full"):
            fill(store, session, stored)
        assert stored
        assert texts(store, session) == stored
        for _ in range(3):
            with pytest.raises(StoreUnwritable):
                say(store, session, f"{len(stored)} " * 1_000, str(len(stored)))
        ballast.unlink()
        say(store, session, f"{len(stored)} " * 1_000, str(len(stored)))
        say(store, session, "more", "more")
        assert texts(store, session)[len(stored) :] == [f"{len(stored)} " * 1_000, "more"]
    assert said(path, session)[:-2] == stored


@pytest.mark.promise(3)
def test_who_only_reads_opens_a_disk_that_cannot_be_written_and_keeps_others_out_of_what_has_no_log(
    small_disk: Path,
) -> None:
    path, reading = small_disk / "chats.db", SqliteSettings(only_reads=True)
    with BlockingStore(path, reading) as store:  # where it can be written, this changes nothing
        session = store.create(STARTED)
        say(store, session, "kept")
    remount = ["mount", "-o", "remount,ro", str(small_disk)]
    subprocess.run(remount, check=True)
    with pytest.raises(StoreReadOnly, match="Read-only"):
        BlockingStore(path)
    with BlockingStore(path, reading) as store:
        assert texts(store, session) == ["kept"]
        with pytest.raises(StoreReadOnly, match="nothing was stored"):
            say(store, session, "refused")
        subprocess.run([*remount[:2], "remount,rw", str(small_disk)], check=True)
        with pytest.raises(StoreInUse, match="reads it where it cannot be written"):
            BlockingStore(path)
    assert said(path, session) == ["kept"]


@pytest.mark.promise(3)
def test_one_verb_that_does_not_fit_fails_alone(path: Path, session: str) -> None:
    with BlockingStore(path) as store:
        pages = store.backend.connection.pragma("page_count")
        store.backend.connection.pragma("max_page_count", pages + 4)
        with pytest.raises(StoreFull):
            say(store, session, "large" * 10_000)
        say(store, session, "small")
        assert texts(store, session) == ["hello", "small"]


class _Disk(apsw.VFS):
    """A disk that stops reading on command."""

    def __init__(self, name: str) -> None:
        super().__init__(name, checked_pages())
        self.broken = False

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        disk = self

        class File(apsw.VFSFile):
            def xRead(self, amount: int, offset: int) -> bytes:
                if disk.broken:
                    raise apsw.IOError("the head crashed")
                return super().xRead(amount, offset)

        return File(checked_pages(), name, flags)


def test_a_disk_that_cannot_be_read_says_so(path: Path, session: str) -> None:
    disk = _Disk("unreadable")
    with BlockingStore(path, SqliteSettings(vfs="unreadable")) as store:
        disk.broken = True
        with pytest.raises(StoreError) as raised:
            store.read(session)
        disk.broken = False
        assert "rollback" not in str(raised.value)
        assert texts(store, session) == ["hello"]


def test_a_store_is_closed_to_a_forked_child_and_stays_its_parents(
    path: Path, session: str
) -> None:
    with worker("fork_and_leave", path, session) as parent:
        assert [parent.line() for _ in range(5)] == ["StoreClosed"] * 4 + ["running"]
        with BlockingStore(path) as store:
            with pytest.raises(SessionBusy):
                store.acquire(session)
            assert [draft.text for draft in store.drafts(session)] == ["from the parent"]


# --- who comes between ----------------------------------------------------------------------------


async def test_what_another_process_stores_while_a_follower_settles_down_is_heard(
    path: Path, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch over other processes begins after the follower's first look: what is stored between
    is not missed."""
    looked = Event()
    since, reader = Core.since, SqliteBackend._reader

    def look(*arguments: Any) -> Any:
        found = since(*arguments)
        looked.set()
        return found

    with BlockingStore(path) as other:
        async with await SqliteStore.open(path) as store:

            @contextmanager
            def late(backend: SqliteBackend) -> Iterator[Reader]:
                if current_thread() is main_thread() and backend is store.backend:
                    assert looked.wait(20)
                    say(other, session, "between")
                with reader(backend) as lent:
                    yield lent

            monkeypatch.setattr(Core, "since", look)
            monkeypatch.setattr(SqliteBackend, "_reader", late)
            event = await asyncio.wait_for(anext(store.follow(session, Cursor(2))), 20)
            assert isinstance(event, Record)
            assert event.seq == 3


@pytest.mark.promise(60)
def test_a_redaction_while_a_fork_is_being_made_takes_the_forks_title_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BlockingStore(path) as store, BlockingStore(path) as other:
        session = say(store, store.create(STARTED), "secret")
        run = store.core.queue.run

        def late(verb: Any, *needs: Any) -> Any:
            monkeypatch.undo()
            other.redact(session, 2)
            return run(verb, *needs)

        monkeypatch.setattr(store.core.queue, "run", late)
        fork = store.fork(session, 2, STARTED)
        assert {entry.id: entry.row.title for entry in store.list()} == {
            session: "[redacted]",
            fork: "[redacted]",
        }
        assert store.verify().damage == ()


@pytest.mark.promise(55)
def test_text_that_a_reader_kept_in_the_log_goes_when_the_reader_does(
    path: Path, session: str
) -> None:
    reader = apsw.Connection(str(path), vfs=checked_pages())
    with BlockingStore(path, SqliteSettings(lock_wait_ms=200)) as store:
        say(store, session, "swordfish")
        reader.execute("begin; select * from facts")
        with suppress(OutcomeUnknown):
            store.delete(session)
        reader.close()
        deadline = time.monotonic() + 20
        while (
            subprocess.run(["grep", "-rqaF", "swordfish", path.parent], check=False).returncode == 0
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)


# --- backup and restore ---------------------------------------------------------------------------


@pytest.mark.promise(51)
def test_a_backup_under_load_holds_every_fact_acknowledged_before_it(
    path: Path, tmp_path: Path
) -> None:
    backups = [tmp_path / f"backup {i} 100%?#.db" for i in range(3)]
    acknowledged: list[int] = []
    ended = Event()

    def write(store: BlockingStore, session: str) -> None:
        while not ended.is_set():
            acknowledged.append(store.add(session, [HookOwed("end", "x" * 500)]).last)

    with BlockingStore(path) as store:
        session = store.create(STARTED)
        writer = Thread(target=write, args=(store, session))
        writer.start()
        before: list[int] = []
        try:
            for backup in backups:
                while len(acknowledged) < 20 * (len(before) + 1):
                    ended.wait(0.001)
                before.append(len(acknowledged))
                store.backup(backup)
        finally:
            ended.set()
            writer.join()
    for backup, count in zip(backups, before, strict=True):
        restored = tmp_path / "restored.db"
        restore(backup, restored)
        with BlockingStore(restored) as store:
            assert store.verify().damage == ()
            seqs = [record.seq for record in store.read_all(session)]
        assert seqs[: count + 1] == list(range(1, count + 2))
        assert seqs[1:] == acknowledged[: len(seqs) - 1]


@pytest.mark.promise(51)
def test_a_restore_under_a_live_process_is_refused(
    path: Path, session: str, tmp_path: Path
) -> None:
    with BlockingStore(path) as store:
        store.backup(tmp_path / "backup")
    with worker("open_and_wait", path) as other:
        assert other.line() == "open"
        with pytest.raises(StoreInUse):
            restore(tmp_path / "backup", path)
        other.kill()
    restore(tmp_path / "backup", path)
    assert said(path, session) == ["hello"]


def test_a_restore_keeps_what_was_there_before(path: Path, session: str, tmp_path: Path) -> None:
    with BlockingStore(path) as store:
        store.backup(tmp_path / "backup")
        say(store, session, "later")
    restore(tmp_path / "backup", path)
    assert said(path, session) == ["hello"]
    assert said(path.with_name("chats.db.replaced"), session) == ["hello", "later"]


@pytest.mark.promise(51)
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_restore_that_was_cut_off_is_finished_by_the_next_start(
    path: Path, session: str, tmp_path: Path, at: int
) -> None:
    with BlockingStore(path) as store:
        store.backup(tmp_path / "backup")
    with worker("die_after", path, session, "admit") as other:
        assert other.line()
    assert path.with_name("chats.db-wal").stat().st_size
    with worker("restore_and_die", tmp_path / "backup", path, at) as restorer:
        assert restorer.lines() == []
    assert said(path, session) == ["hello"]
    assert said(path, session) == ["hello"]
    assert not path.with_name("chats.db.restoring").exists()
    assert said(path.with_name("chats.db.replaced"), session) == ["hello", "hello"]


def test_a_copy_that_was_cut_off_means_nothing(path: Path, session: str) -> None:
    path.with_name("chats.db.restoring.partial").write_bytes(b"half a ba")
    assert said(path, session) == ["hello"]


@pytest.mark.promise(51)
def test_a_backup_of_a_store_that_does_not_fit_in_the_cache_restores(
    path: Path, tmp_path: Path
) -> None:
    """Each of its pages has its checksum, in whatever order SQLite writes them."""
    with BlockingStore(path, SqliteSettings(durability="process")) as store:
        session = store.create(SessionStarted("test"))
        long = "".join(f"{n:07}" for n in range(600_000))
        say(store, session, long)
        store.backup(tmp_path / "backup")
    restore(tmp_path / "backup", path)
    with BlockingStore(path) as store:
        assert store.verify().damage == ()
        fact = store.read(session)[1].fact
        assert isinstance(fact, InputAdmitted)
        assert fact.parts == (Text(long),)


def test_a_damaged_backup_is_refused_and_nothing_is_changed(
    path: Path, session: str, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    with BlockingStore(path) as store:
        store.backup(backup)
    body = backup.read_bytes()
    backup.write_bytes(body.replace(b"hello", b"jello"))
    with pytest.raises(JournalCorrupt, match="nothing was changed"):
        restore(backup, path)
    backup.write_text("not a backup")
    with pytest.raises(NotAStore):
        restore(backup, path)
    with pytest.raises(StoreUnopenable):
        restore(tmp_path / "missing", path)
    assert said(path, session) == ["hello"]


def test_a_store_with_a_log_is_no_backup(path: Path, session: str, tmp_path: Path) -> None:
    with worker("die_after", path, session, "admit") as other:
        assert other.line()
    with pytest.raises(NotAStore):
        restore(path, tmp_path / "other.db")


def test_a_backup_that_cannot_be_made_leaves_nothing(
    path: Path, session: str, tmp_path: Path
) -> None:
    with BlockingStore(path) as store:
        for place in (tmp_path / "nowhere" / "backup", path):
            with pytest.raises((StoreUnopenable, NotAllowed)):
                store.backup(place)
    assert said(path, session) == ["hello"]
    assert not any("partial" in file.name for file in tmp_path.iterdir())


# --- migration ------------------------------------------------------------------------------------

FIRST = "create table extra (body text) strict; insert into extra select body from facts;"
SECOND = "alter table extra add column more text; update extra set more = upper(body);"
FAILS = "create table doomed (x); insert into doomed values (1); select no_such_function();"
REAL_STEPS = migrate.STEPS
DIES = "create table doomed (x); insert into doomed select id from facts; select die();"


NOW = database.VERSION


def steps(*scripts: str) -> tuple[Migration, ...]:
    """The steps of a steno that is newer than this one."""
    return REAL_STEPS + tuple(
        Migration(i, script) for i, script in enumerate(scripts, start=NOW + 1)
    )


def version(path: Path) -> int:
    connection = apsw.Connection(str(path), vfs=checked_pages())
    try:
        return int(connection.pragma("user_version"))
    finally:
        connection.close()


def tables(path: Path) -> set[str]:
    connection = apsw.Connection(str(path), vfs=checked_pages())
    try:
        return {
            str(name)
            for (name,) in connection.execute("select name from sqlite_schema where type = 'table'")
        }
    finally:
        connection.close()


@pytest.mark.promise(54)
def test_a_migration_that_fails_leaves_the_old_data_and_goes_on_at_the_next_start(
    path: Path, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "STEPS", steps(FIRST, FAILS))
    with pytest.raises(StoreError, match="no_such_function"):
        BlockingStore(path)
    assert (version(path), "extra" in tables(path), "doomed" in tables(path)) == (
        NOW + 1,
        True,
        False,
    )
    monkeypatch.setattr(migrate, "STEPS", steps(FIRST))
    assert said(path, session) == ["hello"]
    monkeypatch.setattr(migrate, "STEPS", steps(FIRST, SECOND))
    assert said(path, session) == ["hello"]
    assert version(path) == NOW + 2


@pytest.mark.promise(54)
@pytest.mark.parametrize(
    ("scripts", "reached"),
    [
        ((DIES, SECOND), 0),
        ((FIRST, DIES), 1),
        ((FIRST, f"select die(); {SECOND}"), 1),
        ((f"{FIRST} select die();",), 0),
    ],
)
def test_a_kill_in_a_migration_leaves_the_old_data_and_it_goes_on_at_the_next_start(
    path: Path,
    session: str,
    scripts: tuple[str, ...],
    reached: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with worker("migrate_and_die", path, *scripts) as migrating:
        assert migrating.lines() == []
        assert migrating.wait() == -9
    assert (version(path), "doomed" in tables(path)) == (NOW + reached, False)
    monkeypatch.setattr(migrate, "STEPS", steps(*(FIRST, SECOND)[:reached]))
    assert said(path, session) == ["hello"]
    monkeypatch.setattr(migrate, "STEPS", steps(FIRST, SECOND))
    assert said(path, session) == ["hello"]
    assert version(path) == NOW + 2


@pytest.mark.promise(14, 54)
def test_what_a_store_of_version_3_has_to_deliver_is_found_after_its_migration(
    path: Path, session: str
) -> None:
    with BlockingStore(path) as store:
        added = store.add(session, [DeliveryOwed(2, "phone", "example.org", "k")])
        listing = store.glance(session).row
    connection = database.connect(path, SqliteSettings())
    reader = Reader(connection)
    row = queries.session(reader, session)
    older = {
        name: value for name, value in msgspec.to_builtins(listing).items() if name != "deliveries"
    }
    row.list_row, row.listed, row.marks = msgspec.json.encode(older), row.head, frozenset()
    values = (row.list_row.decode(), row.listed, session_crc(row), *columns_of(row.marks))
    reader.all("relist", *values, row.n)
    connection.close()
    with BlockingStore(path) as store:
        assert store.list(100, after=0, where="owes") == [], "a row that says nothing of it"
    set_version(path, 3)
    with closing(database.connect(path, SqliteSettings())) as connection:
        connection.execute(
            "drop table imports; drop table changes; alter table lists drop column given; "
            "alter table lists drop column journal"
        ).fetchall()
    with BlockingStore(path) as store:
        (one,) = store.list(100, after=0, where="owes")
        assert (one.id, list(one.row.deliveries.open)) == (session, [added.first])
        assert store.verify().damage == ()
    assert version(path) == NOW


def test_a_migration_is_refused_while_another_process_has_the_store_open(
    path: Path, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with worker("open_and_wait", path) as other:
        assert other.line() == "open"
        monkeypatch.setattr(migrate, "STEPS", steps(FIRST))
        with pytest.raises(StoreInUse):
            BlockingStore(path)
        assert version(path) == NOW
        other.kill()
    assert said(path, session) == ["hello"]
    assert version(path) == NOW + 1


def test_a_migrated_store_is_too_new_for_the_steno_before(
    path: Path, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "STEPS", steps(FIRST, SECOND))
        assert said(path, session) == ["hello"]
    with pytest.raises(StoreTooNew):
        BlockingStore(path)


def test_a_new_store_is_made_and_migrated_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "STEPS", steps(FIRST, SECOND))
    with BlockingStore(path) as store:
        session = say(store, store.create(STARTED), "hello")
    assert said(path, session) == ["hello"]
    assert version(path) == NOW + 2


@pytest.mark.promise(55)
def test_a_title_that_was_replaced_since_goes_with_the_redacted_text(path: Path) -> None:
    """The list row is written before the new title is in it, and would keep the old one."""
    with BlockingStore(path) as store:
        session = store.create(STARTED)
        seq = store.admit(
            Admission(input=InputAdmitted((Text("swordfish"),), "test"), session=session)
        ).seq
        store.release(store.acquire(session), seq)
        store.add(session, [SessionRenamed("harmless")])
        store.redact(session, seq)
        assert store.list()[0].row.title == "harmless"
        assert store.verify().damage == ()
        assert (
            subprocess.run(["grep", "-rqaF", "swordfish", path.parent], check=False).returncode == 1
        )


@pytest.mark.promise(46)
def test_a_list_is_whole_however_often_its_rows_were_brought_up_to_date(path: Path) -> None:
    """Sessions are made right after the rows of all others were written, and in one commit with
    that."""
    with BlockingStore(path, SqliteSettings(durability="process")) as store:
        made = [say(store, store.create(STARTED), f"hello {i}") for i in range(700)]
        assert [listed.id for listed in store.list(1_000)] == made[::-1]
        pages = [store.list(100)]
        while pages[-1]:
            pages.append(store.list(100, before=pages[-1][-1].mark))
        assert [listed.id for page in pages for listed in page] == made[::-1]
        assert store.verify().damage == ()


@pytest.mark.promise(17)
def test_threads_of_one_process_take_a_lease_one_after_the_other(path: Path) -> None:
    """Between a commit and the return of its caller, another thread may look."""
    with BlockingStore(path, SqliteSettings(durability="process")) as store:
        id = store.create(STARTED)
        got: list[Lease] = []
        answered = CommitQueue.run

        def slow(queue: CommitQueue, verb: Callable[[Transaction], object], *needs: Any) -> object:
            answer = answered(queue, verb, *needs)
            time.sleep(0.05)
            return answer

        def acquire() -> None:
            with suppress(SessionBusy):
                got.append(store.acquire(id))

        with patch.object(CommitQueue, "run", slow):
            threads = [Thread(target=acquire) for _ in range(4)]
            for thread in threads:
                thread.start()
                time.sleep(0.02)
            for thread in threads:
                thread.join()
        assert [lease.token for lease in got] == [1]
