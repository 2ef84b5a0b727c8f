"""The feed of changes of a store in a file: through restarts, restores, migrations, kills, and with
many processes that write."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from steno.journal.facts import InputAdmitted, Record, SessionStarted
from steno.journal.parts import Seq, Text
from steno.store.errors import UnknownMark
from steno.store.protocol import Change, FactAdded, FeedMark, StoreRestored
from steno.store.sqlite import database
from steno.store.sqlite.backup import restore
from steno.store.sqlite.database import SqliteSettings
from steno.store.sqlite.store import BlockingStore
from tests.store import version_1
from tests.store.index import assert_tells_all, indexed, told
from tests.store.test_processes import Crowd
from tests.store.worker import admitted, worker


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


def test_marks_only_grow_through_deletion_sweep_restart_and_vacuum(path: Path) -> None:
    last: FeedMark = 0
    for _ in range(3):
        with BlockingStore(path) as store:
            session = store.create(SessionStarted("test"))
            admitted(store, session, "hello")
            marks = [change.mark for change in told(store, last)]
            assert marks == sorted(marks)
            assert marks[0] > last
            store.delete(session)
            store.vacuum()
            last = store.changes(None).mark
            assert last > marks[-1]
            assert store.verify().damage == ()


@pytest.mark.promise(51)
def test_after_a_restore_all_is_told_anew_above_every_mark_that_was_given(
    path: Path, tmp_path: Path
) -> None:
    backup = tmp_path / "copy.db"
    with BlockingStore(path) as store:
        kept = store.create(SessionStarted("test"))
        store.backup(backup)
        before = indexed(store)
        admitted(store, kept, "not in the backup")
        store.create(SessionStarted("test"))
        indexed(store, before)
    for _ in range(2):
        restore(backup, path)
        with BlockingStore(path) as store:
            first, *rest = told(store, before.mark)
            assert isinstance(first, StoreRestored)
            assert first.mark > before.mark
            assert [one.session for one in rest if isinstance(one, FactAdded)] == [kept]
            assert_tells_all(store, before)
            assert_tells_all(store)
            admitted(store, kept, "after it")
            assert_tells_all(store, before)


def test_a_mark_of_a_later_state_is_refused_by_an_older_copy(path: Path, tmp_path: Path) -> None:
    with BlockingStore(path) as store:
        session = store.create(SessionStarted("test"))
        store.backup(tmp_path / "copy.db")
        admitted(store, session, "hello")
        mark = store.changes(None).mark
    with BlockingStore(tmp_path / "copy.db") as copy, pytest.raises(UnknownMark):
        copy.changes(mark)


@pytest.mark.promise(54)
def test_a_store_of_the_first_version_tells_all_that_is_in_it(path: Path) -> None:
    for ending, body in version_1.files(path.parent).items():
        path.with_name(path.name + ending).write_bytes(body)
    with BlockingStore(path) as store:
        assert_tells_all(store)
        assert sum(isinstance(one, FactAdded) for one in told(store)) > 10


def test_sessions_that_were_imported_before_there_was_a_feed_are_told_after_what_was_there(
    path: Path,
) -> None:
    with BlockingStore(path) as store:
        here = store.create(SessionStarted("test"))
        store.bring("moved", 0, [Record(1, 1, SessionStarted("test")), said(2), said(3)])
        admitted(store, "moved", "and more")
        admitted(store, here, "and here")
    as_of_version_4(path)
    with BlockingStore(path) as store:
        kinds = [type(one).__name__ for one in told(store)]
        assert kinds == ["FactAdded"] * 3 + ["SessionImported"]
        assert store.verify().damage == ()


def said(seq: Seq) -> Record:
    return Record(seq, seq, InputAdmitted((Text("hello"),), "test"))


def as_of_version_4(path: Path) -> None:
    with closing(database.connect(path, SqliteSettings())) as connection:
        connection.execute(
            "drop table changes; alter table lists drop column given; "
            "alter table lists drop column journal; pragma user_version = 4"
        ).fetchall()


@pytest.mark.promise(50)
@pytest.mark.parametrize(
    "damage",
    [
        "update changes set seq = seq + 1",
        "update changes set kind = 'of no kind'",
        "delete from changes where kind = 'imported'",
        "update changes set id = (select id from facts limit 1)",
        "update lists set given = 0; delete from facts where id > 2",
    ],
)
def test_a_damaged_feed_is_reported(path: Path, damage: str) -> None:
    with BlockingStore(path) as store:
        session = store.create(SessionStarted("test"))
        store.bring("moved", 0, [Record(1, 1, SessionStarted("test")), said(2)])
        admitted(store, session, "hello")
        assert store.verify().damage == ()
        store.backend.connection.execute(damage).fetchall()
        assert store.verify().damage != ()


# --- many processes -------------------------------------------------------------------------------


def follow(path: Path, seen: list[Change], stop: Callable[[], bool]) -> None:
    with BlockingStore(path, SqliteSettings(lock_wait_ms=60_000)) as store:
        for change in store.follow_changes():
            seen.append(change)
            if stop():
                return


def wait_for(seen: list[Change], count: int) -> None:
    deadline = time.monotonic() + 60
    while len(seen) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.promise(47, 48)
def test_with_many_writers_and_random_kills_every_change_is_told_once_in_order(path: Path) -> None:
    with BlockingStore(path) as store:
        sessions = [store.create(SessionStarted("test")) for _ in range(5)]
    seen: list[Change] = []
    ended = False
    following = Thread(target=follow, args=(path, seen, lambda: ended), daemon=True)
    following.start()
    crowd = Crowd(path.parent, str(path), sessions, 4)
    try:
        for i in range(12):
            wait_for(seen, len(seen) + 25)
            crowd.replace(i % 4)
    finally:
        crowd.end()
    with BlockingStore(path) as store:
        ended = True
        last = admitted(store, sessions[0], "the last word")
        following.join(20)
        assert not following.is_alive()
        expected = told(store, limit=777)
        assert seen == expected[: len(seen)]
        assert isinstance(seen[-1], FactAdded)
        assert_tells_all(store)
        assert store.verify().damage == ()
    facts = {(one.session, one.record.seq) for one in expected if isinstance(one, FactAdded)}
    assert (sessions[0], last) in facts
    for life in crowd.acknowledged():
        for what, session, at, _ in life:
            assert what == "shown" or (session, int(at)) in facts


@pytest.mark.promise(48)
def test_a_writer_that_dies_after_its_commit_has_told(path: Path) -> None:
    with BlockingStore(path) as store:
        session = store.create(SessionStarted("test"))
        changes = store.follow_changes(store.changes(None).mark)
        for seq in (2, 3):
            got: list[Change] = []
            waiting = Thread(target=lambda got=got: got.append(next(changes)))
            waiting.start()
            time.sleep(0.3)
            with worker("die_after", path, session, "admit") as dying:
                assert dying.line() == str(seq)
                dying.wait()
            waiting.join(5)
            assert [one.record.seq for one in got if isinstance(one, FactAdded)] == [seq]
