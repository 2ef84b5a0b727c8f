"""Waiting for what other processes commit: it costs next to nothing, and nothing is missed."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from threading import Thread

import pytest

from steno.journal.facts import Record, SessionStarted
from steno.journal.parts import Seq
from steno.store.errors import StoreClosed
from steno.store.protocol import Cursor, Event
from steno.store.sqlite import watch
from steno.store.sqlite.store import BlockingStore, SqliteStore
from tests.store.worker import admitted, worker

WAKEUPS_MAX = 5
FROM_REST_S = 0.1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
def session(path: Path) -> str:
    with BlockingStore(path) as store:
        return store.create(SessionStarted("test"))


def test_waiting_wakes_a_process_a_few_times_a_second_however_many_wait(path: Path) -> None:
    with BlockingStore(path) as store:
        sessions = [store.create(SessionStarted("test")) for _ in range(3)]
    with worker("wait_for_news", path, 5, 3, *sessions) as waiting:
        assert float(waiting.line()) <= WAKEUPS_MAX


def test_what_another_process_writes_is_seen_soon_after_a_rest(path: Path, session: str) -> None:
    with worker("follow_times", path, session) as following, BlockingStore(path) as store:
        assert following.line().split()[0] == "1"
        late_s = []
        for _ in range(9):
            time.sleep(0.4)
            seq, written_s = admitted(store, session, "hello"), time.monotonic()
            seen, at_s = following.line().split()
            assert int(seen) == seq
            late_s.append(float(at_s) - written_s)
        assert median(late_s) < FROM_REST_S / 2  # looks of four a second would take twice as long


@pytest.mark.promise(36)
def test_nothing_is_missed_while_writers_come_die_and_leave(path: Path, session: str) -> None:
    """The log is left behind by a kill, taken up by the next process, and emptied by one that
    leaves in order; the followers stay."""

    async def follow(seen: list[Seq], upto: Seq) -> None:
        async with await SqliteStore.open(path) as store:
            async for event in store.follow(session):
                assert isinstance(event, Record)
                seen.append(event.seq)
                if event.seq == upto:
                    return

    def block(seen: list[Seq], upto: Seq) -> None:
        with BlockingStore(path) as store:
            for record in facts(store.follow(session)):
                seen.append(record.seq)
                if record.seq == upto:
                    return

    async def all_at_once() -> tuple[list[Seq], list[Seq]]:
        lives, each = 6, 2
        upto = 1 + lives * each
        loop, thread = list[Seq](), list[Seq]()
        blocking = Thread(target=block, args=(thread, upto))
        blocking.start()
        following = asyncio.create_task(follow(loop, upto))
        for _ in range(lives):
            await asyncio.to_thread(come_and_go, path, session)
        await asyncio.wait_for(following, 20)
        await asyncio.to_thread(blocking.join, 20)
        return loop, thread

    loop, thread = asyncio.run(all_at_once())
    assert loop == thread == list(range(1, 14))


def come_and_go(path: Path, session: str) -> None:
    with worker("die_after", path, session, "admit") as dying:
        assert dying.line()
        dying.wait()
    with worker("speak_and_leave", path, session, "hello") as leaving:
        assert leaving.line()
        assert leaving.wait() == 0


def facts(events: Iterator[Event]) -> Iterator[Record]:
    return (event for event in events if isinstance(event, Record))


def test_a_follower_that_begins_without_a_log_sees_the_first_that_is_written(
    path: Path, session: str
) -> None:
    assert not path.with_name("chats.db-wal").exists()
    with BlockingStore(path) as store:
        events = store.follow(session)
        assert next(facts(events)).seq == 1
        seen: list[Seq] = []
        waiting = Thread(target=lambda: seen.append(next(facts(events)).seq))
        waiting.start()
        time.sleep(0.5)
        with worker("speak_and_leave", path, session, "hello") as leaving:
            assert leaving.line() == "2"
        waiting.join(5)
        assert seen == [2]


def test_where_the_system_cannot_say_that_a_file_was_written_it_is_seen_all_the_same(
    path: Path, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_ALARMS", {})
    with BlockingStore(path) as store:
        seen: list[Seq] = []
        events = store.follow(session, Cursor(1))
        waiting = Thread(target=lambda: seen.extend(next(facts(events)).seq for _ in range(2)))
        waiting.start()
        for text in ("from rest", "and from rest again"):
            time.sleep(2 * watch.BUSY_S)
            with worker("speak_and_leave", path, session, text) as leaving:
                assert leaving.line()
        waiting.join(5)
        assert seen == [2, 3]


def test_closing_the_store_ends_who_waits_in_a_thread(path: Path, session: str) -> None:
    store = BlockingStore(path)
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            next(store.follow(session, Cursor(1)))
        except StoreClosed as error:
            ended.append(error)

    waiting = Thread(target=wait)
    waiting.start()
    time.sleep(0.2)
    store.close()
    waiting.join(5)
    assert len(ended) == 1
    assert not path.with_name("chats.db-wal").exists()
