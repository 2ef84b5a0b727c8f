"""Handles that are closed or full, a reader that leaves, a folder that is gone: no traceback, and
the turn goes on."""

import os
import subprocess
import sys

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.world import WAIT_S, World, wait_until


def shell(world: World, script: str) -> tuple[int, str, str]:
    """Run a line of shell in which `$steno` is the program; its status, stdout and stderr."""
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {script}"],
        env=world.environment | {"steno": f"{sys.executable} -m steno"},
        cwd=world.work,
        capture_output=True,
        timeout=WAIT_S,
    )
    errors = done.stderr.decode()
    assert "Traceback" not in errors, errors
    assert "Exception ignored" not in errors, errors
    return done.returncode, done.stdout.decode(), errors


def outcome(world: World) -> tuple[str, str]:
    (turn,) = world.show(world.only_session())["turns"]
    return turn["outcome"], turn["cause"]


@pytest.mark.parametrize("redirect", ["<&-", "2>&-", "<&- 2>&-"])
def test_with_stdin_or_stderr_closed_a_turn_runs(world: World, redirect: str) -> None:
    assert shell(world, f"$steno run hi {redirect}")[:2] == (0, "ok\n")
    assert outcome(world) == ("done", "")
    assert '"damage":[]' in world.steno("verify", "--json")


@pytest.mark.promise(36)
@pytest.mark.parametrize("redirect", [">&-", "> /dev/full", "<&- >&- 2>&-"])
@pytest.mark.parametrize("style", ["text", "ndjson"])
@pytest.mark.suite("text->&-", "ndjson-> /dev/full", "text-<&- >&- 2>&-")
def test_with_stdout_closed_or_full_the_turn_goes_on_and_the_loss_is_told(
    world: World, redirect: str, style: str
) -> None:
    status, _, errors = shell(world, f"$steno run hi --output {style} {redirect}")
    assert status == 1
    assert outcome(world) == ("done", "")
    assert "2>&-" in redirect or world.only_session() in errors
    assert '"damage":[]' in world.steno("verify", "--json")


@pytest.mark.parametrize("redirect", [">&-", "> /dev/full"])
@pytest.mark.parametrize("words", ["sessions", "sessions --json", "--version"])
@pytest.mark.suite("sessions->&-", "sessions --json-> /dev/full", "--version->&-")
def test_a_command_whose_output_cannot_be_written_fails_and_says_why(
    world: World, words: str, redirect: str
) -> None:
    status, _, errors = shell(world, f"$steno {words} {redirect}")
    assert status == 1
    assert "output" in errors


@pytest.mark.promise(36)
def test_a_reader_that_leaves_does_not_stop_the_turn(world: World, server: ModelServer) -> None:
    server.replies = [
        Reply(("line one\n", "line two\n", "line three\n", "line four\n"), delay_s=0.3)
    ]
    _, out, errors = shell(world, "$steno run hi | head -1")
    assert out == "line one\n"
    wait_until(lambda: outcome(world)[0] is not None, "the end of the turn")
    assert outcome(world) == ("done", "")
    (answer,) = world.messages(world.only_session(), "assistant")
    assert answer["text"].endswith("line four\n")
    assert "goes on" in errors


def test_a_reader_that_leaves_a_list_is_no_traceback(world: World) -> None:
    world.steno("run", "hi\n" * 40_000)
    _, out, errors = shell(world, f"$steno show {world.only_session()} | head -1")
    assert out.startswith(world.only_session())
    assert errors == ""


def test_a_folder_that_was_removed_is_named_where_it_matters_only(
    world: World, server: ModelServer
) -> None:
    world.steno("run", "hi")
    script = "mkdir gone && cd gone && rmdir ../gone && {}"
    steno = f"{sys.executable} -P -m steno" if sys.version_info >= (3, 11) else "$steno"
    assert shell(world, script.format(f"{steno} sessions"))[0] == 0
    status, _, errors = shell(world, script.format(f"{steno} run more"))
    assert status == 2
    assert "folder" in errors
    assert len(server.requests) == 1
    assert len(world.sessions()) == 1


@pytest.mark.promise(42)
def test_a_prompt_from_standard_input_is_kept_byte_for_byte(world: World) -> None:
    prompt = b"  a line\r\nand \xff another \xc3\xa9\n"
    done = subprocess.run(
        [sys.executable, "-m", "steno", "run", "-"],
        env=world.environment | {"PYTHONIOENCODING": "utf-8:strict"},
        cwd=world.work,
        input=prompt,
        capture_output=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    (said,) = world.messages(world.only_session(), "user")
    assert os.fsencode(said["text"]) == prompt
