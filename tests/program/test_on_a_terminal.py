"""What commands print where a person looks: laid out, with headings and progress; and the plain
text that scripts get of the same commands."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_terminal import terminal
from tests.program.world import World
from tests.transfer import foreign

ANSWER = "## The sum\n\n| a | b |\n|---|---|\n| one | **two** |\n\n- [x] done\n"
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def on_a_terminal(world: World, *words: str) -> str:
    """Run a command; everything that it wrote to its terminal."""
    with terminal(world, *words) as opened:
        assert opened.end() == 0
        return opened.seen().replace("\r\n", "\n")


@pytest.fixture
def session(world: World, server: ModelServer) -> str:
    server.replies = [Reply((ANSWER,))]
    world.steno("run", "add them")
    return world.only_session()


def test_show_lays_a_talk_out_for_people_and_not_for_scripts(world: World, session: str) -> None:
    seen, piped = on_a_terminal(world, "show", session), world.steno("show", session)
    number = world.messages(session, "user")[0]["seq"]
    assert f"\x1b[1m#{number} user\x1b[m" in seen
    plain = STYLE.sub("", seen)
    assert "## The sum" not in plain
    assert re.search(r"^ *The sum *$", plain, re.MULTILINE)
    assert re.search(r"one +│ two", plain)
    assert "☑ done" in plain
    assert ANSWER in piped
    assert "\x1b" not in piped


def test_what_was_said_cannot_act_on_the_terminal(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("\x1b]0;mine\x07red \x1b[31mtext",))]
    world.steno("run", "\x1b[2Jgone")
    seen = on_a_terminal(world, "show", world.only_session())
    assert "red" in seen
    for harm in ("\x1b]0;", "\x1b[31m", "\x1b[2J"):
        assert harm not in seen


def eagerly(world: World, *words: str) -> tuple[str, str]:
    """Run a command with its stderr on a terminal: what it wrote there, and to stdout."""
    near, far = pty.openpty()
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("eager.py")), *words],
        env=world.environment,
        cwd=world.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=far,
        text=True,
    ) as process:
        os.close(far)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0
    os.set_blocking(near, False)
    told = b""
    try:
        while piece := os.read(near, 65_536):
            told += piece
    except (BlockingIOError, OSError):
        pass
    os.close(near)
    return told.decode(), said


@pytest.mark.parametrize("what", ["verify", "import", "index"])
def test_progress_is_told_on_a_terminal_and_taken_away_at_the_end(
    world: World, session: str, what: str
) -> None:
    file = foreign.jsonl(world.work / f"{foreign.SESSION}.jsonl", foreign.claude_code())
    words = {"verify": ("verify",), "import": ("import", str(file)), "index": ("search", "--build")}
    told, said = eagerly(world, *words[what])
    lines = told.split("\r\x1b[2K")
    assert any(
        re.fullmatch(rf"{what} [█▏▎▍▌▋▊▉ ]{{24}} +\d+%  [\d,]+( of [\d,]+)?", one) for one in lines
    )
    assert lines[-1] == "", "the line is gone at the end"
    assert "█" not in said
