"""Several processes on one store, real ones, stopped and killed at any moment."""

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from steno.engine.recover import recover
from steno.journal.drafts import Draft, Stream
from steno.journal.facts import (
    AnyFact,
    InputAdmitted,
    Record,
    SessionStarted,
    StepSealed,
    TurnEnded,
)
from steno.journal.parts import Text, text_of
from steno.journal.state import State
from steno.store.errors import SessionBusy
from steno.store.protocol import Event, Lease, Piece
from steno.store.sqlite.database import SqliteSettings
from steno.store.sqlite.store import BlockingStore, SqliteStore
from tests import postgres
from tests.store import worker as script
from tests.store.worker import worker

WAIT_S = 30


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
def session(path: Path) -> str:
    with BlockingStore(path) as store:
        return store.create(SessionStarted("test"))


def eventually(attempt: Callable[[], Lease]) -> Lease:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return attempt()
        except SessionBusy:
            assert time.monotonic() < deadline
            time.sleep(0.01)


# --- one kill -------------------------------------------------------------------------------------


@pytest.mark.promise(2)
@pytest.mark.parametrize("verb", ["admit", "add", "append", "draft", "seal", "put", "create"])
def test_what_was_acknowledged_survives_a_kill_in_the_same_moment(
    path: Path, session: str, verb: str
) -> None:
    with worker("die_after", path, session, verb) as victim:
        acknowledged = victim.line()
        assert victim.wait() == -signal.SIGKILL
    with BlockingStore(path) as store:
        assert store.verify().damage == ()
        facts = store.read(session)
        match verb:
            case "draft":
                assert store.drafts(session) == [Draft(Stream(facts[-1].seq, "text"), "shown")]
            case "put":
                assert store.get(acknowledged) == b"payload"
            case "create":
                assert len(store.read(acknowledged)) == 1
            case _:
                assert facts[int(acknowledged) - 1].seq == int(acknowledged)


def test_the_session_of_a_killed_owner_is_free_at_once(path: Path, session: str) -> None:
    with BlockingStore(path) as store, worker("run_and_wait", path, session, 3_600_000) as owner:
        name = owner.line().removeprefix("running ")
        with pytest.raises(SessionBusy, match=name):
            store.acquire(session)
        owner.kill()
        assert store.running(session) is None
        assert store.list()[0].owner is None
        lease = store.acquire(session)
        assert (lease.token, lease.owner) == (2, store.owner)


@pytest.mark.promise(34)
def test_what_a_killed_owner_left_open_is_closed_once(path: Path, session: str) -> None:
    with worker("run_and_wait", path, session) as owner:
        owner.line()
        owner.kill()
    with BlockingStore(path) as store:
        lease = store.acquire(session)
        state = folded(store, session)
        closing = recover(state, store.drafts(session))
        assert closing == (
            StepSealed(4, (Text("shown"),), "interrupted"),
            TurnEnded(3, "interrupted", "killed"),
        )
        store.append(lease, closing, state.head)
        assert recover(folded(store, session), store.drafts(session)) == ()
        assert store.verify().damage == ()


def folded(store: BlockingStore, session: str) -> State:
    state = State()
    for record in store.read_all(session):
        state.apply(record)
    return state


# --- stopped, not killed --------------------------------------------------------------------------


@pytest.mark.promise(18)
def test_an_owner_that_wakes_after_its_lease_was_taken_is_fenced_out(
    path: Path, session: str
) -> None:
    several_hosts = SqliteSettings(lease_ms=300, allow_network_file_system=True)
    with (
        BlockingStore(path, several_hosts) as store,
        worker("run_and_wait", path, session, 300, "yes") as owner,
    ):
        assert owner.line().startswith("running")
        owner.signal(signal.SIGSTOP)
        eventually(lambda: store.acquire(session))
        facts = store.read(session)
        owner.signal(signal.SIGCONT)
        owner.tell()
        assert [owner.line() for _ in range(3)] == ["LeaseLost"] * 3
        assert store.read(session) == facts
        assert [draft.text for draft in store.drafts(session)] == ["shown"]


def test_an_owner_on_this_host_that_only_sleeps_keeps_its_session(path: Path, session: str) -> None:
    with (
        BlockingStore(path, SqliteSettings(lease_ms=1)) as store,
        worker("run_and_wait", path, session, 1) as owner,
    ):
        assert owner.line().startswith("running")
        owner.signal(signal.SIGSTOP)
        with pytest.raises(SessionBusy):
            store.acquire(session)
        owner.signal(signal.SIGCONT)
        owner.tell()
        assert owner.line() == "stored"


# --- following ------------------------------------------------------------------------------------


@pytest.mark.promise(36)
def test_a_follower_hears_another_process_word_by_word(path: Path, session: str) -> None:
    async def listen() -> list[Event]:
        async with await SqliteStore.open(path) as store:
            events: list[Event] = []
            with worker("stream", path, session, 100) as speaker:
                stream = store.follow(session)
                async for event in stream:
                    if not events:
                        speaker.tell()
                    events.append(event)
                    if isinstance(event, Record) and isinstance(event.fact, TurnEnded):
                        break
            return events

    events = asyncio.run(asyncio.wait_for(listen(), WAIT_S))
    pieces = [event for event in events if isinstance(event, Piece)]
    assert "".join(piece.text for piece in pieces) == "".join(f"word{i} " for i in range(100))
    assert [piece.offset for piece in pieces] == [
        sum(len(p.text) for p in pieces[:i]) for i in range(len(pieces))
    ]
    with BlockingStore(path) as store:
        assert [event for event in events if isinstance(event, Record)] == store.read(session)


def test_a_blocking_follower_hears_another_process_too(path: Path, session: str) -> None:
    with BlockingStore(path) as store, worker("stream", path, session, 20) as speaker:
        speaker.tell()
        text = ""
        for event in store.follow(session):
            if isinstance(event, Piece):
                assert event.offset == len(text)
                text += event.text
            elif isinstance(event.fact, TurnEnded):
                break
        assert text == "".join(f"word{i} " for i in range(20))


# --- many at once ---------------------------------------------------------------------------------


class Crowd:
    """Processes that write to one store, each with a file of its own for what was acknowledged."""

    def __init__(self, folder: Path, where: str, sessions: list[str], size: int) -> None:
        self.folder = folder
        self.where = where
        self.sessions = sessions
        self.chance = Random(48)
        self.started = 0
        self.killed = 0
        self.files: list[Path] = []
        self.members = [self._start() for _ in range(size)]

    def _start(self) -> subprocess.Popen[bytes]:
        name = f"w{self.started}"
        self.started += 1
        self.files.append(self.folder / f"{name}.acknowledged")
        command = [
            sys.executable,
            script.__file__,
            "write_for_ever",
            self.where,
            name,
            name,
            *self.sessions,
        ]
        with self.files[-1].open("wb") as acknowledged:
            return subprocess.Popen(command, stdout=acknowledged)

    def rage(self, seconds: float) -> None:
        """Kill one after the other, each in the middle of whatever it does, and start another in
        its place."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(self.chance.uniform(0.05, 0.5))
            self.replace(self.chance.randrange(len(self.members)))

    def replace(self, i: int) -> None:
        self._kill(self.members[i])
        self.members[i] = self._start()

    def end(self) -> None:
        for member in self.members:
            self._kill(member)

    def _kill(self, member: subprocess.Popen[bytes]) -> None:
        member.kill()
        assert member.wait() == -signal.SIGKILL, "it had ended by itself"
        self.killed += 1

    def acknowledged(self) -> list[list[list[str]]]:
        """Whole lines, as words, of each process."""
        return [
            [
                line.decode().split()
                for line in file.read_bytes().splitlines(keepends=True)
                if line.endswith(b"\n")
            ]
            for file in self.files
        ]


def rage(folder: Path, where: str, seconds: float, size: int = 8) -> None:
    with script.opened(where) as store:
        sessions = [store.create(SessionStarted("test")) for _ in range(5)]
    crowd = Crowd(folder, where, sessions, size)
    deadline = time.monotonic() + 60
    try:
        crowd.rage(seconds)
        while sum(map(len, crowd.acknowledged())) <= 10 * size and time.monotonic() < deadline:
            crowd.rage(1)
    finally:
        crowd.end()
    with script.opened(where) as store:
        assert store.verify().damage == ()
        facts = {
            session: {record.seq: record.fact for record in store.read_all(session)}
            for session in sessions
        }
        shown = {
            (session, draft.stream.started): draft.text
            for session in sessions
            for draft in store.drafts(session)
        }
    shown |= {
        (session, fact.step): text_of(fact.parts)
        for session in sessions
        for fact in facts[session].values()
        if isinstance(fact, StepSealed)
    }
    keys = Counter(
        fact.key
        for session in sessions
        for fact in facts[session].values()
        if isinstance(fact, InputAdmitted)
    )
    assert set(keys.values()) == {1}
    lives = crowd.acknowledged()
    for life in lives:
        check_life(life, facts, shown)
    assert sum(map(len, lives)) > 10 * size
    assert len(keys) <= sum(line[0] == "said" for life in lives for line in life) + crowd.killed


def check_life(
    life: list[list[str]], facts: dict[str, dict[int, AnyFact]], shown: dict[tuple[str, int], str]
) -> None:
    """Everything a process was told is stored, where it was told, in the order it was told."""
    last: dict[str, int] = {}
    for what, session, at, text in life:
        seq = int(at)
        match what:
            case "said":
                assert facts[session][seq] == InputAdmitted(
                    (Text(f"text of {text}"),), "worker", text
                )
            case "sealed":
                fact = facts[session][seq]
                assert isinstance(fact, StepSealed)
                assert text_of(fact.parts) == text
            case "shown":
                assert shown[session, seq].startswith(text)
                continue
        assert seq > last.get(session, 0)
        last[session] = seq


@pytest.mark.promise(5, 48)
def test_eight_processes_with_random_kills_lose_nothing_acknowledged(path: Path) -> None:
    rage(path.parent, str(path), 5)


@pytest.mark.torture
@pytest.mark.promise(5, 48)
def test_eight_processes_with_random_kills_for_three_minutes_lose_nothing_acknowledged(
    path: Path,
) -> None:
    rage(path.parent, str(path), 180)


@pytest.mark.torture
@pytest.mark.promise(2, 5, 48)
def test_eight_processes_with_random_kills_lose_nothing_acknowledged_in_postgresql(
    tmp_path: Path,
) -> None:
    rage(tmp_path, postgres.server().new_store(), 60)
