"""Other programs that open a store with plain SQLite, and processes that stand in each other's
way."""

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from steno.journal.facts import InputAdmitted, SessionStarted
from steno.journal.parts import Text
from steno.store.errors import JournalCorrupt, StoreLocked
from steno.store.protocol import Admission
from steno.store.sqlite import adopt, database
from steno.store.sqlite.database import PageDamaged, SqliteSettings
from steno.store.sqlite.store import BlockingStore
from tests.store.worker import worker

COUNT = 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
def killed(path: Path) -> str:
    """The session of a process that wrote and was killed; its log is still there."""
    with worker("write_and_die", path, COUNT) as dying:
        session = dying.line()
        assert dying.wait() == -9
    assert path.with_name("chats.db-wal").stat().st_size > 0
    return session


def read_with_plain_sqlite(path: Path) -> None:
    """As a curious person does. SQLite copies the log into the database when it leaves."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select count(*) from journal").fetchone() == (COUNT + 1,)
    assert not path.with_name("chats.db-wal").exists()


def assert_whole(path: Path, session: str) -> None:
    with BlockingStore(path) as store:
        assert len(store.read(session)) == COUNT + 1
        assert store.verify().damage == ()
        again = Admission(
            input=InputAdmitted((Text("said 3 " * 50),), "worker", "key 3"), session=session
        )
        assert not store.admit(again).first


@pytest.mark.promise(2, 50)
def test_a_store_that_was_read_with_plain_sqlite_after_a_kill_is_whole(
    path: Path, killed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_with_plain_sqlite(path)
    with monkeypatch.context() as without:
        without.setattr(adopt, "after_strangers", lambda *_: None)
        with pytest.raises(PageDamaged), BlockingStore(path) as store:
            store.read(killed)
            store.verify()
    leave_an_owner_behind(path)
    assert_whole(path, killed)
    assert_whole(path, killed)


def leave_an_owner_behind(path: Path) -> None:
    """The open above has swept up what the killed process left; put it back."""
    path.with_name("chats.db-locks").joinpath("host.1.dead").touch()


@pytest.mark.promise(50)
def test_what_was_damaged_besides_is_still_damage(path: Path, killed: str) -> None:
    read_with_plain_sqlite(path)
    whole = path.read_bytes()
    at = whole.index(b"said 7 said 7")
    path.write_bytes(whole[:at] + b"laid" + whole[at + 4 :])
    with pytest.raises(JournalCorrupt, match="damaged"):
        BlockingStore(path)


def test_a_store_that_another_program_wrote_to_can_be_adopted(path: Path, killed: str) -> None:
    BlockingStore(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"pragma user_version = {database.VERSION}")
        connection.execute("update keys set count = count")
        connection.commit()
    with pytest.raises(JournalCorrupt), BlockingStore(path) as store:
        store.admit(Admission(input=InputAdmitted((Text("x"),), "worker", "key 3"), session=killed))
    assert adopt.adopt(path, SqliteSettings())
    assert not adopt.adopt(path, SqliteSettings())
    assert_whole(path, killed)


# --- the queue of writers -------------------------------------------------------------------------


@pytest.fixture
def turn(path: Path) -> Iterator[int]:
    """The file that the writing process holds."""
    BlockingStore(path).close()
    handle = os.open(path.with_name("chats.db-locks") / "turn", os.O_RDWR | os.O_CREAT, 0o600)
    yield handle
    os.close(handle)


@pytest.mark.promise(3)
def test_a_writer_that_does_not_move_on_is_waited_for_only_so_long(path: Path, turn: int) -> None:
    with BlockingStore(path, SqliteSettings(lock_wait_ms=100)) as store:
        fcntl.flock(turn, fcntl.LOCK_EX)
        with pytest.raises(StoreLocked, match="another process"):
            store.create(SessionStarted("test"), "lost")
        fcntl.flock(turn, fcntl.LOCK_UN)
        store.create(SessionStarted("test"), "stored")
        assert [listed.id for listed in store.list()] == ["stored"]
    with BlockingStore(
        path, SqliteSettings(lock_wait_ms=1_000)
    ) as store:  # nobody holds it who had given up
        store.create(SessionStarted("test"), "stored too")


def test_a_writer_that_waits_is_served_when_its_turn_comes(path: Path, turn: int) -> None:
    with BlockingStore(path) as store:
        fcntl.flock(turn, fcntl.LOCK_EX)
        waiting = Thread(target=lambda: store.create(SessionStarted("test"), "stored"))
        waiting.start()
        time.sleep(0.05)
        assert store.list() == []
        fcntl.flock(turn, fcntl.LOCK_UN)
        waiting.join(5)
        assert [listed.id for listed in store.list()] == ["stored"]
        with pytest.raises(
            BlockingIOError
        ):  # while it writes it holds the file; afterwards it does not
            hold_while(store, turn)


def hold_while(store: BlockingStore, turn: int) -> None:
    fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(turn, fcntl.LOCK_UN)
    store.backend.exclusively(lambda: fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB))
