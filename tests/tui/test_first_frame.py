"""The frame that stands on the screen while the chat is loaded: what is typed meanwhile, and every
way in which the start can end there."""

import os
import signal
import termios
from pathlib import Path

import pytest
from textual import events
from textual.message import Message

from steno.tui.terminal import KeyReader
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
    """At once, when the terminal still has lines of its own; at the frame; and any key."""
    server.replies = [Reply(("So it is.",)), Reply(("And so.",))]
    with full_screen(world, columns=100) as chat:
        chat.type("before the frame\r")
        wait_until(lambda: "starting" in chat.everything(), "the frame")
        chat.type("at the frbme\x1b[D\x1b[D\x7fa\r\x1b[Zand then")
        chat.wait_seen("And so.")
        chat.wait_seen("> and then")
        chat.wait_seen("accept edits ○ ready")
    said = world.messages(world.only_session(), "user")
    assert [one["text"] for one in said] == ["before the frame", "at the frame"]


def test_what_the_terminal_says_late_is_no_key_wherever_it_is_cut() -> None:
    answer = b"\x1b]11;rgb:0000/0000/0000\x1b\\\x1b[?62;22c"
    typed = b"a\x1b[D" + answer + b"\x1b[?2026;2$y\x1bOPb"
    for cut in range(len(typed) + 1):
        keys = KeyReader(late=True)
        pieces = (typed[:cut], typed[cut:], b"")
        found = [event for piece in pieces if piece for event in keys.of(piece)]
        pressed = [event.key for event in found if isinstance(event, events.Key)]
        assert pressed == ["a", "left", "f1", "b"], cut


def test_a_key_that_begins_like_an_answer_is_pressed_in_the_end() -> None:
    keys, pressed = KeyReader(late=True), list[Message]()
    assert list(keys.of(b"\x1b")) == []

    def came() -> bool:
        pressed.extend(keys.of(b""))
        return bool(pressed)

    wait_until(came, "the key")
    assert [event.key for event in pressed if isinstance(event, events.Key)] == ["escape"]


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
