"""What a model, a tool or a title says does not act on the terminal that shows it; a pipe gets
every byte. Signals that were ignored at the start stay ignored."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_terminal import CTRL_D, terminal
from tests.program.test_cli_views import complaint
from tests.program.world import WAIT_S, World, wait_until

CLIPBOARD = "\x1b]52;c;cm0gLXJmIC8=\x07"
ACTS = f"a{CLIPBOARD}b\x1b[2Jc\x1b]0;owned\x07d\x9b31me\u202ef\x08g\rh"
SHOWN = "a␛]52;c;cm0gLXJmIC8=␇b␛[2Jc␛]0;owned␇d\\x9b31me\\u202ef␈g␍h"


HEAD = re.compile("\x1b\\[1m([^\x1b\n]*)\x1b\\[m")
"""What steno itself shows in bold, and nothing else."""


def assert_harmless(seen: str) -> None:
    seen = HEAD.sub(r"\1", seen)
    assert not {"\x1b", "\x07", "\x08", "\x9b", "\u202e"} & set(seen)
    assert "\r" not in seen.replace("\r\n", "")


@pytest.mark.parametrize("words", [("show",), ("show", "--json"), ("sessions",), ("export",)])
@pytest.mark.suite("words0", "words3")
def test_a_terminal_is_shown_control_characters_as_pictures(
    world: World, server: ModelServer, words: tuple[str, ...]
) -> None:
    server.replies = [Reply((ACTS,))]
    world.steno("run", ACTS)
    id = world.only_session()
    named = (words[0], *(() if words[0] == "sessions" else (id,)), *words[1:])
    with terminal(world, *named) as program:
        assert program.end() == 0
        assert_harmless(program.seen())
        if words == ("show",):
            assert program.seen().count(SHOWN) == 2  # the input, the answer


def test_a_pipe_gets_every_byte(world: World, server: ModelServer) -> None:
    server.replies = [Reply((ACTS,))]
    assert world.steno("run", ACTS) == f"{ACTS}\n"
    assert world.steno("show", world.only_session()).count(ACTS) == 2
    assert CLIPBOARD in world.steno("sessions")


@pytest.mark.parametrize("words", [("run", "go"), ("--plain",)], ids=["run", "plain"])
def test_a_turn_on_a_terminal_shows_answers_calls_and_outcomes_as_pictures(
    world: World, server: ModelServer, words: tuple[str, ...]
) -> None:
    call = ("shell", json.dumps({"command": f"printf '{ACTS}'"}, ensure_ascii=False))
    server.replies = [Reply((ACTS,), tools=(call,)), Reply((f"done {ACTS}",))]
    with terminal(world, *words) as program:
        if words == ("--plain",):
            program.wait_seen("you> ")
            program.type("go\n")
        program.wait_seen("[y/n/a]")
        program.type("y\n")
        program.wait_seen(f"done {SHOWN}")
        if words == ("--plain",):
            program.wait_seen("you> ", 2)
            program.type(CTRL_D)
        assert program.end() == 0
        assert_harmless(program.seen())
        assert "[returned: a" in program.seen()


@contextmanager
def ignoring(world: World, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The program as `nohup` and a shell without job control start it."""
    process = subprocess.Popen(
        ["sh", "-c", 'trap "" HUP INT; exec "$@"', "sh", sys.executable, "-m", "steno", *words],
        env=world.environment,
        cwd=world.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_was_ignored_at_the_start_stays_ignored(
    world: World, server: ModelServer, number: signal.Signals
) -> None:
    server.replies = [Reply(("going", " on"), held=True)]
    with ignoring(world, "run", "hi") as process:
        wait_until(lambda: len(server.requests) == 1, "the request")
        process.send_signal(number)
        process.send_signal(number)
        server.go_on()
        out, _ = process.communicate(timeout=WAIT_S)
        assert (process.returncode, out) == (0, b"going on\n")
    assert world.show(world.only_session())["turns"][0]["outcome"] == "done"


def test_a_signal_that_was_not_ignored_ends_the_turn_also_beside_ignored_ones(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("going",), then="hang")]
    with ignoring(world, "run", "hi") as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 5) == b"going"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 130


@pytest.mark.parametrize("busy", [False, True], ids=["prompt", "answer"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
@pytest.mark.suite(
    "SIGTERM-prompt",
    "SIGHUP-prompt",
    "SIGTERM-answer",
    "SIGQUIT-answer",
)
def test_the_plain_chat_ends_with_130_if_a_signal_ends_it(
    world: World, server: ModelServer, number: signal.Signals, busy: bool
) -> None:
    server.replies = [Reply(("going",), then="hang" if busy else "done")]
    with terminal(world, "--plain") as chat:
        chat.wait_seen("you> ")
        chat.type("hi\n")
        chat.wait_seen("going")
        if not busy:
            chat.wait_seen("you> ", 2)
        chat.process.send_signal(number)
        assert chat.end() == 130


def test_an_export_that_cannot_be_written_names_the_file_that_was_given(world: World) -> None:
    world.steno("run", "hi")
    id = world.only_session()
    said = complaint(world, "export", id, "no/such/folder/out.jsonl", expect=1)
    assert "no/such/folder/out.jsonl" in said
    assert "No such file or directory" in said
    assert "partial" not in said
