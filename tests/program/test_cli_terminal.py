"""The plain chat, on a terminal and on a pipe, and the questions that a terminal is asked."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import apsw
import pytest

from steno.store.sqlite.database import checked_pages
from tests.program import forking
from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_views import complaint
from tests.program.world import WAIT_S, World, wait_until

CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, world: World, *words: str, size: tuple[int, int] = (80, 24)) -> None:
        self._near, far = pty.openpty()
        fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        os.set_blocking(self._near, False)
        self._seen = b""
        self.process = forking.start_on(far, words, world.environment, world.work)
        os.close(far)

    def seen(self) -> str:
        try:
            while chunk := os.read(self._near, 65_536):
                self._seen += chunk
        except (BlockingIOError, OSError):
            pass
        return self._seen.decode("utf-8", "replace")

    def wait_seen(self, text: str, times: int = 1) -> None:
        try:
            wait_until(lambda: self.seen().count(text) >= times, f"{text!r}")
        except AssertionError:
            raise AssertionError(f"{text!r} was not seen in {self.seen()!r}") from None

    def type(self, text: str) -> None:
        os.write(self._near, text.encode())

    def end(self) -> int:
        def over() -> bool:
            self.seen()
            return self.process.poll() is not None

        wait_until(over, f"the end; seen: {self.seen()!r}")
        assert "Traceback" not in self.seen()
        return self.process.wait(1)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT_S)
        os.close(self._near)


@contextmanager
def terminal(world: World, *words: str) -> Iterator[Terminal]:
    opened = Terminal(world, *words)
    try:
        yield opened
    finally:
        opened.close()


def test_ctrl_c_at_the_prompt_forgets_the_line_and_a_second_one_leaves(
    world: World, server: ModelServer
) -> None:
    with terminal(world, "--plain") as chat:
        chat.wait_seen("you> ")
        chat.type("half a thou")
        chat.type(CTRL_C)
        chat.wait_seen("Ctrl-D")
        chat.wait_seen("you> ", 2)
        time.sleep(2.1)
        chat.type("hello\n")
        chat.wait_seen("ok")
        chat.wait_seen("you> ", 3)
        chat.type(CTRL_C)
        chat.wait_seen("you> ", 4)
        chat.type(CTRL_C)
        assert chat.end() == 0
        assert "kept: steno --resume" in chat.seen()
    assert [message["text"] for message in world.messages(world.only_session(), "user")] == [
        "hello"
    ]


@pytest.mark.promise(6, 12)
def test_a_second_ctrl_c_leaves_also_when_the_answer_has_stopped_by_then(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("going",), then="hang")]
    with terminal(world, "--plain") as chat:
        for number in range(1, 6):
            chat.wait_seen("you> ", number)
            chat.type("one\n")
            chat.wait_seen("going", number)
            first_s = time.monotonic()
            chat.type(CTRL_C)
            chat.wait_seen("you> ", number + 1)
            chat.type(CTRL_C)
            if time.monotonic() - first_s < 1.5:
                break  # else the machine was too slow for the two to belong together
            time.sleep(2.1)
        assert chat.end() == 0
    shown = world.show(world.only_session())
    assert {(turn["outcome"], turn["cause"]) for turn in shown["turns"]} == {
        ("interrupted", "user")
    }
    assert shown["ended"] == "signal"


@pytest.mark.parametrize("unlocked", [False, True])
def test_ctrl_c_while_the_store_takes_an_input_in_leaves_in_time_and_says_what_became_of_it(
    world: World, server: ModelServer, unlocked: bool
) -> None:
    """Another program has the store locked."""
    world.steno("sessions")
    file = str(world.home / "store.db")
    with (
        closing(apsw.Connection(file, vfs=checked_pages())) as other,
        terminal(world, "--plain") as program,
    ):
        program.wait_seen("you> ")
        other.execute("begin immediate")
        program.type("hello\n")
        program.wait_seen("hello\r\n")
        time.sleep(0.3)
        began_s = time.monotonic()
        program.type(CTRL_C)
        if unlocked:
            program.wait_seen("^C")
            other.execute("rollback")
        program.process.wait(WAIT_S)
        assert time.monotonic() - began_s < 2.0
        seen = program.seen()
    assert server.requests == []
    if unlocked:
        assert "the input waits there" in seen
        assert [message["text"] for message in world.messages(world.only_session())] == ["hello"]
        assert world.sessions()[0]["ended"] == "signal"
    else:
        assert "left before the store had taken the input" in seen


def test_ctrl_c_during_an_answer_stops_it_and_the_chat_goes_on(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("going",), then="hang"), Reply(("second",))]
    with terminal(world, "--plain") as chat:
        chat.wait_seen("you> ")
        chat.type("one\n")
        chat.wait_seen("going")
        chat.type(CTRL_C)
        chat.wait_seen("you> ", 2)
        chat.type("two\n")
        chat.wait_seen("second")
        chat.wait_seen("you> ", 3)
        chat.type(CTRL_D)
        assert chat.end() == 0
    causes = [turn["cause"] for turn in world.show(world.only_session())["turns"]]
    assert causes == ["user", ""]


@pytest.mark.parametrize("words", [("run", "make it"), ("--plain",)])
def test_ctrl_c_at_a_question_stops_the_turn(
    world: World, server: ModelServer, words: tuple[str, ...]
) -> None:
    server.replies = [Reply(tools=(("shell", '{"command": "touch made"}'),)), Reply(("never",))]
    with terminal(world, *words) as asked:
        if words[0] != "run":
            asked.wait_seen("you> ")
            asked.type("make it\n")
        asked.wait_seen("? [y/n/a]")
        asked.type(CTRL_C)
        if words[0] != "run":
            asked.wait_seen("you> ", 2)
            asked.type(CTRL_D)
        assert asked.end() == (130 if words[0] == "run" else 0)
    assert not (world.work / "made").exists()
    (turn,) = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ("interrupted", "user")


@pytest.mark.parametrize(("answer", "made"), [("y\n", True), ("n\n", False), (CTRL_D, False)])
def test_a_question_shows_the_whole_call_and_only_y_allows_it(
    world: World, server: ModelServer, answer: str, made: bool
) -> None:
    command = f"touch made # {'x' * 500} end"
    server.replies = [Reply(tools=(("shell", json.dumps({"command": command})),)), Reply(("done",))]
    with terminal(world, "run", "make it") as asked:
        asked.wait_seen("? [y/n/a]")
        assert command in asked.seen().replace("\r\n", "")
        asked.type(answer)
        assert asked.end() == 0
    assert (world.work / "made").exists() == made


def test_a_line_that_was_typed_before_a_question_is_no_answer_to_it_and_is_said_afterwards(
    world: World, server: ModelServer
) -> None:
    server.replies = [
        Reply(("let me look",), tools=(("shell", '{"command": "echo ran"}'),), held=True),
        Reply(("done",)),
    ]
    with terminal(world, "--plain") as program:
        program.wait_seen("you> ")
        program.type("go\n")
        wait_until(lambda: len(server.requests) == 1, "the request")
        program.type("and then this\ny\n")
        program.wait_seen("y\r\n")
        server.go_on()
        program.wait_seen("[y/n/a]")
        program.type("y\n")
        wait_until(lambda: len(server.requests) == 4, "an answer to each line")
        program.wait_seen("you> ", 4)
        program.type(CTRL_D)
        assert program.end() == 0
    said = [(one["role"], one["text"]) for one in world.messages(world.only_session())]
    assert [text for role, text in said if role == "user"] == ["go", "and then this", "y"]
    assert ("tool", "ran\n") in said


def test_calls_side_by_side_are_asked_about_one_after_the_other(
    world: World, server: ModelServer
) -> None:
    calls = tuple(("shell", json.dumps({"command": f"touch {name}"})) for name in ("one", "two"))
    server.replies = [Reply(tools=calls), Reply(("done",))]
    with terminal(world, "run", "make them") as asked:
        asked.wait_seen("? [y/n/a]")
        time.sleep(0.3)
        assert asked.seen().count("? [y/n/a]") == 1
        asked.type("y\n")
        asked.wait_seen("? [y/n/a]", 2)
        asked.type("n\n")
        assert asked.end() == 0
    assert sorted(path.name for path in world.work.iterdir()) == ["one"]


def test_a_question_that_another_terminal_answered_is_over(
    world: World, server: ModelServer
) -> None:
    steps = [
        Reply(tools=(("shell", json.dumps({"command": f"touch {name}"})),))
        for name in ("one", "two")
    ]
    server.replies = [*steps, Reply(("done",))]
    words = ("run", "make them", "--input-id", "m1")
    with terminal(world, *words) as first, terminal(world, *words) as second:
        first.wait_seen("? [y/n/a]")
        second.wait_seen("? [y/n/a]")
        first.type("y\n")
        second.wait_seen("? [y/n/a]", 2)
        second.type("y\n")
        assert first.end() == 0
        assert second.end() == 0
    assert sorted(path.name for path in world.work.iterdir()) == ["one", "two"]


def test_ctrl_c_at_the_question_of_delete_deletes_nothing(world: World) -> None:
    world.steno("run", "hi")
    with terminal(world, "delete", world.only_session()) as asked:
        asked.wait_seen("for good? [y/N]")
        asked.type(CTRL_C)
        assert asked.end() == 130
    assert len(world.sessions()) == 1


def test_a_word_with_a_slash_that_is_no_command_is_not_said(
    world: World, server: ModelServer
) -> None:
    with terminal(world, "--plain") as chat:
        chat.wait_seen("you> ")
        for line in ("/typo\n", "/model x\n", "/\n"):
            chat.type(line)
        chat.wait_seen("there is no command", 3)
        chat.wait_seen("/help, /show, /quit", 4)
        chat.type("/etc/hosts is what?\n")
        chat.wait_seen("ok")
        chat.type(" /typo\n")
        chat.wait_seen("you> ", 6)
        chat.type("/quit\n")
        assert chat.end() == 0
    said = [message["text"] for message in world.messages(world.only_session(), "user")]
    assert said == ["/etc/hosts is what?", " /typo"]


def test_a_line_that_the_terminal_cut_is_not_said(world: World, server: ModelServer) -> None:
    with terminal(world, "--plain") as chat:
        chat.wait_seen("you> ")
        chat.type("x" * 3000)
        time.sleep(0.2)
        chat.type("x" * 3000 + "\n")
        chat.wait_seen("4,095")
        chat.type(CTRL_D)
        assert chat.end() == 0
    assert server.requests == []
    assert world.sessions() == []


def test_lines_of_a_pipe_are_answered_as_they_come(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("first answer",)), Reply(("second answer",)), Reply(("third answer",))]
    process = subprocess.Popen(
        [sys.executable, "-m", "steno"],
        env=world.environment,
        cwd=world.work,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    try:
        process.stdin.write(b"one\ntwo\r\n")
        process.stdin.flush()
        wait_until(
            lambda: len(server.requests) == 2, "the second line to be said while the pipe is open"
        )
        out, _ = process.communicate(b"three without an end", timeout=WAIT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert b"third answer" in out
    said = [message["text"] for message in world.messages(world.only_session(), "user")]
    assert said == ["one", "two", "three without an end"]


def test_ctrl_c_while_a_prompt_is_read_leaves(world: World) -> None:
    with terminal(world, "run", "-") as reading:
        reading.type("some text\n")
        time.sleep(1.0)
        reading.type(CTRL_C)
        assert reading.end() == 130
    assert world.sessions() == []


def test_a_terminal_that_is_closed_ends_the_turn_in_order(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("going",), then="hang")]
    with terminal(world, "run", "hi") as program:
        program.wait_seen("going")
        program.process.send_signal(signal.SIGHUP)
        assert program.end() == 130
    (turn,) = world.show(world.only_session())["turns"]
    assert turn["cause"] == "terminated"


@pytest.mark.promise(37)
@pytest.mark.promise(46)
def test_a_turn_that_waits_for_approval_is_shown_as_waiting_in_every_view(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("I will. ",), tools=(("shell", '{"command": "touch made"}'),))]
    with terminal(world, "run", "make it") as asked:
        asked.wait_seen("? [y/n/a]")
        asked.process.send_signal(signal.SIGTERM)
        assert asked.end() == 130
        assert "waits for approval" in asked.seen()
    (listed,) = world.sessions()
    id = listed["id"]
    assert (listed["running"], listed["waiting"]) == (False, True)
    assert listed["messages"] == len(world.messages(id)) == 2
    assert "waiting" in world.steno("sessions")
    assert "waits for approval" in world.steno("show", id)
    for verb in ("retry", "continue"):
        assert "waits for approval" in complaint(world, verb, id, expect=1)
    complaint(world, "undo", id, "--withdraw", "1", expect=1)
    assert world.sessions() == [listed]
