"""A call that waits for approval keeps waiting when its process dies, is told to leave, or loses
its terminal.

A terminal is needed to be asked: the program runs behind a real one (a pty).
"""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.world import WAIT_S, World, wait_until

ASKS = Reply(("I will. ",), tools=(("shell", '{"command": "echo run >> ran.txt"}'),))


class Terminal:
    """The program with a person in front of it."""

    def __init__(self, world: World, *words: str) -> None:
        self._own, theirs = pty.openpty()
        os.set_blocking(self._own, False)
        self.process = subprocess.Popen(
            (sys.executable, "-m", "steno", *words),
            env=world.environment,
            cwd=world.work,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._shown = ""

    def wait_shown(self, text: str) -> None:
        wait_until(lambda: text in self.shown(), f"{text!r}; the terminal shows {self._shown!r}")

    def shown(self) -> str:
        try:
            while data := os.read(self._own, 65_536):
                self._shown += data.decode(errors="replace")
        except (BlockingIOError, OSError):
            pass
        return self._shown

    def type(self, line: str) -> None:
        os.write(self._own, line.encode() + b"\n")

    def end(self) -> int:
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None and time.monotonic() < deadline:
            self.shown()
            time.sleep(0.01)
        return self.process.wait(1)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT_S)
        os.close(self._own)


@contextmanager
def terminal(world: World, *words: str) -> Iterator[Terminal]:
    opened = Terminal(world, *words)
    try:
        yield opened
    finally:
        opened.close()


def ran(world: World) -> int:
    log = world.work / "ran.txt"
    return log.read_text().count("run") if log.exists() else 0


@pytest.mark.promise(37)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_pending_approval_is_neither_granted_nor_refused_by_the_end_of_its_process(
    world: World, server: ModelServer, number: signal.Signals
) -> None:
    server.replies = [ASKS, Reply(("It could not run.",)), Reply(("And this is new.",))]
    with terminal(world, "run", "do it", "--key", "k") as person:
        person.wait_shown("[y/n/a]")
        person.process.send_signal(number)
        person.end()
    id = world.only_session()
    assert world.messages(id, "tool") == []
    assert world.show(id)["turns"][-1]["outcome"] is None
    world.steno("run", "and now?", "--key", "k")
    (tool,) = world.messages(id, "tool")
    assert "nobody to ask" in tool["text"]
    assert ran(world) == 0
    assert [turn["outcome"] for turn in world.show(id)["turns"]] == ["done", "done"]


@pytest.mark.promise(37)
def test_a_run_that_approves_tools_runs_the_call_that_waited_once(
    world: World, server: ModelServer
) -> None:
    server.replies = [ASKS, Reply(("It ran.",)), Reply(("And this is new.",))]
    with terminal(world, "run", "do it", "--key", "k") as person:
        person.wait_shown("[y/n/a]")
        person.process.kill()
        person.end()
    assert world.steno("run", "and now?", "--key", "k", "--yes") == "And this is new.\n"
    assert ran(world) == 1
    assert [message["state"] for message in world.messages(world.only_session(), "tool")] == [
        "complete"
    ]


@pytest.mark.promise(23, 37)
def test_a_persons_stop_refuses_what_waits(world: World, server: ModelServer) -> None:
    server.replies = [ASKS, Reply(("ok",))]
    with terminal(world, "run", "do it", "--key", "k") as person:
        person.wait_shown("[y/n/a]")
        person.process.kill()
        person.end()
    id = world.only_session()
    world.steno("interrupt", id)
    assert world.show(id)["turns"][-1]["outcome"] == "interrupted"
    assert world.steno("run", "and now?", "--key", "k", "--yes") == "ok\n"
    assert ran(world) == 0
