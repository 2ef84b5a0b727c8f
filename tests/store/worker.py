"""A process of its own, to be watched, stopped and killed: `python worker.py COMMAND PATH …`.

Each command prints a line when something has come to pass; where it has to wait, it waits for a
line to read.
"""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from threading import Thread

import apsw

from steno.engine.recover import recover
from steno.journal.drafts import Stream
from steno.journal.facts import (
    InputAdmitted,
    Record,
    SessionRenamed,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    TurnEnded,
    TurnFact,
    TurnStarted,
)
from steno.journal.parts import Seq, Text
from steno.journal.state import State
from steno.store import facade
from steno.store.errors import SessionBusy, StoreError
from steno.store.postgres.database import PostgresSettings, is_address
from steno.store.postgres.store import BlockingPostgresStore
from steno.store.protocol import Admission, Cursor, Lease
from steno.store.sqlite import backup, migrate
from steno.store.sqlite.database import SqliteSettings, checked_pages
from steno.store.sqlite.store import BlockingStore, SqliteStore

# --- in the test ----------------------------------------------------------------------------------


class Worker:
    """A worker as its parent sees it."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """What it says next; nothing once it is dead."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def lines(self) -> list[str]:
        """All that it has still to say, until it ends."""
        assert self.process.stdout is not None
        return self.process.stdout.read().splitlines()

    def tell(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def wait(self) -> int:
        return self.process.wait()

    def close(self) -> None:
        self.kill()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


@contextmanager
def worker(*arguments: object) -> Iterator[Worker]:
    started = Worker(*arguments)
    try:
        yield started
    finally:
        started.close()


# --- in the worker --------------------------------------------------------------------------------


def say(*words: object) -> None:
    """One write to the pipe: a kill leaves a whole line or none."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def hear() -> str:
    return sys.stdin.readline().strip()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def admitted(store: facade.BlockingStore, session: str, text: str, key: str | None = None) -> Seq:
    said = InputAdmitted((Text(text),), "worker", key)
    return store.admit(Admission(input=said, session=session)).seq


class Turn:
    """What a runner does, in few words."""

    def __init__(self, store: facade.BlockingStore, session: str) -> None:
        self.store = store
        self.lease: Lease = store.acquire(session)
        self.state = State()
        for record in store.read_all(session):
            self.state.apply(record)
        self.turn: Seq = 0
        self.step: Seq = 0
        if closing := recover(self.state, store.drafts(session)):
            self.head = store.append(self.lease, closing, self.state.head).last
        else:
            self.head = self.state.head

    def begin(self) -> None:
        self.turn = self._record(TurnStarted(Takes(min(self.state.pending))))
        self.step = self._record(StepStarted("model"))

    def write(self, text: str) -> int:
        return self.store.draft(self.lease, Stream(self.step, "text"), text)

    def end(self, text: str) -> Seq:
        """Seal the answer; its seq."""
        return self._record(StepSealed(self.step, (Text(text),)), TurnEnded(self.turn, "done"))

    def _record(self, *facts: TurnFact) -> Seq:
        appended = self.store.append(self.lease, facts, self.head)
        self.head = appended.last
        return appended.first

    def release(self) -> None:
        while not (answer := self.store.release(self.lease, self.head)).released:
            self.head = answer.foreign[-1].seq


def begun(store: BlockingStore, session: str) -> Turn:
    admitted(store, session, "hello")
    turn = Turn(store, session)
    turn.begin()
    return turn


def open_and_wait(path: str) -> None:
    """Keep a store open until told otherwise."""
    try:
        store = BlockingStore(Path(path))
    except StoreError as error:
        say(type(error).__name__)
        return
    say("open")
    hear()
    store.close()


def die_after(path: str, session: str, verb: str) -> None:
    """Do one thing, say so, and die before anything else can happen."""
    store = BlockingStore(Path(path))
    match verb:
        case "admit":
            say(admitted(store, session, "hello"))
        case "add":
            say(store.add(session, [SessionRenamed("title")]).last)
        case "append":
            say(begun(store, session).step)
        case "draft":
            say(begun(store, session).write("shown"))
        case "seal":
            turn = begun(store, session)
            turn.write("shown")
            say(turn.end("shown, and more"))
        case "put":
            say(store.put(session, b"payload"))
        case "create":
            say(store.create(SessionStarted("worker")))
    die()


def run_and_wait(
    path: str, session: str, lease_ms: str = "3600000", several_hosts: str = ""
) -> None:
    """Run a session; at a word, try to go on."""
    settings = SqliteSettings(lease_ms=int(lease_ms), allow_network_file_system=bool(several_hosts))
    store = BlockingStore(Path(path), settings)
    turn = begun(store, session)
    turn.write("shown")
    say("running", turn.lease.owner)
    hear()
    for go_on in (
        lambda: turn.write(" more"),
        lambda: turn.end("shown"),
        lambda: store.renew(turn.lease),
    ):
        try:
            go_on()
        except StoreError as error:
            say(type(error).__name__)
        else:
            say("stored")


def stream(path: str, session: str, words: str) -> None:
    """A whole turn, word by word, begun at a word."""
    store = BlockingStore(Path(path))
    hear()
    turn = begun(store, session)
    for i in range(int(words)):
        turn.write(f"word{i} ")
    turn.end("".join(f"word{i} " for i in range(int(words))))
    say(turn.head)
    hear()


def wait_for_news(path: str, followers: str, seconds: str, *sessions: str) -> None:
    """Follow sessions that rest, and say how often a second any thread of this process woke."""
    asyncio.run(_wait_for_news(Path(path), int(followers), float(seconds), sessions))


async def _wait_for_news(
    path: Path, followers: int, seconds: float, sessions: tuple[str, ...]
) -> None:
    async with await SqliteStore.open(path) as store:
        waiting = []
        for session in sessions:
            head = Cursor((await store.glance(session)).head)
            for _ in range(followers):
                waiting.append(asyncio.ensure_future(anext(store.follow(session, head))))
                waits = partial(next, store.blocking.follow(session, head))
                Thread(target=waits, daemon=True).start()
        await asyncio.sleep(1)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        await asyncio.sleep(seconds)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        say((after - before - 1) / seconds)  # one of them is the end of this sleep
        os._exit(0)


def follow_times(path: str, session: str) -> None:
    """Follow a session, and say when (monotonic, which all processes share) each fact was seen."""
    asyncio.run(_follow_times(Path(path), session))


async def _follow_times(path: Path, session: str) -> None:
    async with await SqliteStore.open(path) as store:
        async for event in store.follow(session):
            if isinstance(event, Record):
                say(event.seq, time.monotonic())


def speak_and_leave(path: str, session: str, text: str) -> None:
    """One input, and the store closed in order."""
    with BlockingStore(Path(path)) as store:
        say(admitted(store, session, text))


def fork_and_leave(path: str, session: str) -> None:
    """A program that forks while it runs a session; its child leaves through every `finally` on its
    way."""
    with BlockingStore(Path(path)) as store:
        turn = begun(store, session)
        child = os.fork()
        if child == 0:
            for verb in (
                lambda: store.read(session),
                lambda: turn.write("from the child"),
                lambda: store.list(),
                lambda: store.verify(),
            ):
                try:
                    verb()
                    say("done")
                except StoreError as error:
                    say(type(error).__name__)
            sys.exit()
        os.waitpid(child, 0)
        turn.write("from the parent")
        say("running")
        hear()


def unprivileged(path: str) -> None:
    """Try to use a store as somebody who may not write it."""
    checked_pages()  # what is loaded later may be in a folder that only root can read
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    try:
        store = BlockingStore(Path(path))
        store.create(SessionStarted("worker"))
        say("stored")
    except StoreError as error:
        say(type(error).__name__, error)


def write_and_die(path: str, count: str) -> None:
    """Write, say in which session, and die with the log as it is."""
    store = BlockingStore(Path(path))
    session = store.create(SessionStarted("worker"))
    for i in range(int(count)):
        admitted(store, session, f"said {i} " * 50, f"key {i}")
    say(session)
    die()


def migrate_and_die(path: str, *scripts: str) -> None:
    """Open a store with migrations to do; in them, `die()` is a function of SQL."""
    apsw.connection_hooks.append(lambda connection: connection.create_scalar_function("die", die))  # type: ignore[arg-type]
    newest = migrate.STEPS[-1].version
    migrate.STEPS += tuple(
        migrate.Migration(i, script) for i, script in enumerate(scripts, start=newest + 1)
    )
    open_and_wait(path)


def restore_and_die(saved: str, path: str, at: str) -> None:
    """Restore a backup, and die when the folder is made durable for the n-th time."""
    left = int(at)

    def sync_folder(_: Path) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            die()

    backup.sync_folder = sync_folder  # type: ignore[attr-defined,assignment]
    backup.restore(Path(saved), Path(path))
    say("restored")


# --- many at once ---------------------------------------------------------------------------------


def opened(where: str) -> facade.BlockingStore:
    """A store in a file, or in PostgreSQL."""
    if is_address(where):
        return BlockingPostgresStore(where, PostgresSettings(lock_wait_ms=60_000))
    return BlockingStore(Path(where), SqliteSettings(lock_wait_ms=60_000))


def write_for_ever(where: str, name: str, seed: str, *sessions: str) -> None:
    """Say and answer things until killed. What was stored is written down only after the store said
    so.

    Lines: `said SESSION SEQ KEY`, `shown SESSION STEP TEXT` (the whole text so far), `sealed
    SESSION SEQ TEXT`.
    """
    chance = Random(seed)
    store = opened(where)
    for i in range(1_000_000):
        session = chance.choice(sessions)
        key = f"{name}-{i}"
        say("said", session, admitted(store, session, f"text of {key}", key), key)
        if chance.random() < 0.5:
            try:
                _answer(store, session, key, chance)
            except SessionBusy:
                continue


def _answer(store: facade.BlockingStore, session: str, key: str, chance: Random) -> None:
    turn = Turn(store, session)
    if not turn.state.pending:
        turn.release()
        return
    turn.begin()
    text = ""
    for i in range(chance.randrange(1, 6)):
        turn.write(f"{key}.{i};")
        text += f"{key}.{i};"
        say("shown", session, turn.step, text)
    say("sealed", session, turn.end(text), text)
    turn.release()


COMMANDS: dict[str, Callable[..., None]] = {
    command.__name__: command
    for command in (
        open_and_wait,
        die_after,
        run_and_wait,
        stream,
        wait_for_news,
        follow_times,
        speak_and_leave,
        fork_and_leave,
        unprivileged,
        migrate_and_die,
        write_and_die,
        restore_and_die,
        write_for_ever,
    )
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
