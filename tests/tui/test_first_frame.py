"""The frame that stands on the screen while the chat is loaded: what is typed meanwhile, and every
way in which the start can end there."""

import os
import signal
import termios
from pathlib import Path

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_terminal import CTRL_C, CTRL_D
from tests.program.world import World, wait_until
from tests.tui.terminals import FullScreen, full_screen

SECOND_SCREEN, FIRST_SCREEN = "\x1b[?1049h", "\x1b[?1049l"


def is_silent(chat: FullScreen) -> bool:
    """Whether the terminal shows nothing of what is typed, as a program wants it."""
    return not termios.tcgetattr(chat._near)[3] & termios.ECHO


def test_the_frame_stands_until_the_chat_is_painted_over_it(world: World) -> None:
    with full_screen(world) as chat:
        chat.wait_seen("○ ready")
        written = chat.everything()
        assert written.count(SECOND_SCREEN) == 1, "a second time would clear the screen"
        assert written.index("○ starting") < written.index("ready")
        assert "○ starting" not in chat.seen()
        chat.type(CTRL_D)
        assert chat.end() == 0
        assert not is_silent(chat)
        assert chat.everything().count(FIRST_SCREEN) == 1


def test_what_is_typed_before_the_chat_is_there_goes_into_it(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("So it is.",))]
    with full_screen(world) as chat:
        wait_until(lambda: "starting" in chat.everything(), "the frame")
        chat.type("typed early")
        chat.wait_seen("○ ready")
        chat.wait_seen("> typed early")
        chat.type("\r")
        chat.wait_seen("So it is.")
    assert world.messages(world.only_session(), "user")[0]["text"] == "typed early"


@pytest.mark.parametrize("way", ["term", "ctrl-c"])
def test_a_start_that_is_ended_leaves_the_terminal_as_it_was(world: World, way: str) -> None:
    with full_screen(world) as chat:
        wait_until(lambda: "starting" in chat.everything(), "the frame")
        assert is_silent(chat)
        if way == "term":
            os.kill(chat.process.pid, signal.SIGTERM)
        else:
            chat.type(CTRL_C)
            wait_until(lambda: chat.process.poll() is not None or "ready" in chat.seen(), "either")
            chat.type(CTRL_C + CTRL_C)
        chat.end()
        assert not is_silent(chat)
        written = chat.everything()
        assert written.rindex(FIRST_SCREEN) > written.rindex(SECOND_SCREEN)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--resume", "nosuch"), "nosuch"),
        (("--model", "nosuch:model"), "nosuch"),
    ],
)
def test_a_start_that_fails_says_so_on_the_ordinary_screen(
    world: World, words: tuple[str, ...], said: str
) -> None:
    with full_screen(world, *words) as chat:
        assert chat.end() != 0
        before, after = chat.everything().split(FIRST_SCREEN)
        assert SECOND_SCREEN in before
        assert said not in before
        assert said in after
        assert not is_silent(chat)


def test_a_broken_configuration_is_told_on_the_ordinary_screen(world: World) -> None:
    world.home.mkdir()
    Path(world.home, "config.toml").write_text("model = [")
    with full_screen(world) as chat:
        assert chat.end() == 2
        assert "config.toml" in chat.everything().split(FIRST_SCREEN)[1]
