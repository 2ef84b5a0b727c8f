"""The real program on real terminals: typed, pasted, resized, two at once, and with parts that
hang."""

import time
from functools import partial

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_terminal import CTRL_C, CTRL_D
from tests.program.world import World, wait_until
from tests.tui.terminals import full_screen

PASTE = "\x1b[200~{}\x1b[201~"


@pytest.mark.promise(9)
@pytest.mark.promise(42)
def test_what_is_typed_and_pasted_is_said_as_it_is(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("So it is.",))]
    with full_screen(world) as chat:
        chat.wait_seen("○ ready")
        chat.type("first line")
        chat.type("\n")  # Ctrl-J
        chat.type(PASTE.format("  pasted\n\ttwice\n"))
        chat.wait_seen("twice")
        assert server.requests == []
        chat.type("\r")
        chat.wait_seen("So it is.")
        chat.type(CTRL_D)
        assert chat.end() == 0
    assert (
        world.messages(world.only_session(), "user")[0]["text"] == "first line\n  pasted\n\ttwice\n"
    )


@pytest.mark.promise(21)
def test_what_is_typed_right_after_enter_is_not_lost(world: World, server: ModelServer) -> None:
    """All of it is there before the chat has looked at the first key."""
    lines = [f"line {number}" for number in range(6)]
    server.choose = lambda request: Reply((f"heard {request['messages'][-1]['content']}",))
    with full_screen(world) as chat:
        chat.wait_seen("○ ready")
        chat.type("".join(f"{line}\r" for line in lines) + "/nosuch\rand then")
        chat.wait_seen("there is no command /nosuch")
        chat.wait_seen("heard line 5")
        chat.wait_seen("> /nosuch\n   and then")
        assert [
            message["text"] for message in world.messages(world.only_session(), "user")
        ] == lines
        chat.wait_seen("○ ready")
        chat.type(CTRL_C + "/new\relsewhere\r")
        chat.wait_seen("heard elsewhere")
    assert [one["title"] for one in world.sessions()] == ["elsewhere", "line 0"]


def test_a_terminal_that_is_resized_shows_everything_in_its_new_size(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply((" ".join(f"word{i}" for i in range(120)),))]
    with full_screen(world, columns=100, lines=30) as chat:
        chat.wait_seen("○ ready")
        chat.type("go\r")
        chat.wait_seen("word119")
        for columns, lines in ((40, 15), (120, 40)):
            chat.resize(columns, lines)
            at_the_bottom = partial(
                lambda last: "ready" in chat.seen().split("\n")[last], lines - 1
            )
            wait_until(at_the_bottom, "the last line")
            chat.wait_seen("word119")


@pytest.mark.promise(36)
def test_a_second_terminal_sees_every_piece_and_takes_over_when_the_first_is_killed(
    world: World, server: ModelServer
) -> None:
    server.replies = [
        Reply(("some ", "of it"), then="hang"),
        Reply(("and the rest",)),
        Reply(("answered",)),
    ]
    with full_screen(world) as first:
        first.wait_seen("○ ready")
        first.type("go\r")
        first.wait_seen("some of it")
        with full_screen(world, "--continue", columns=110) as second:
            second.wait_seen("some of it")
            second.wait_seen(f"process {first.process.pid}")
            second.type("from the second\r")
            first.wait_seen("queued  from the second")
            first.process.kill()
            first.process.wait(10)
            second.wait_seen("the process was killed")
            second.wait_seen("○ ready")
            second.type(CTRL_D)
            assert second.end() == 0
    id = world.only_session()
    said = [message["text"] for message in world.messages(id, "assistant")]
    assert said[0] == "some of it"
    assert len(said) == len(server.requests)


def test_a_plugin_that_hangs_does_not_keep_anybody_from_leaving(
    world: World, server: ModelServer
) -> None:
    plugins = world.home / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "slow.py").write_text(
        "import time\nfrom steno.plugins import hookimpl\n\n@hookimpl\ndef on_session_end(): "
        "time.sleep(60)\n"
    )
    with full_screen(world) as chat:
        chat.wait_seen("○ ready")
        chat.type("go\r")
        chat.wait_seen("  ok")
        chat.wait_seen("○ ready")
        left_s = time.monotonic()
        chat.type(CTRL_C)
        chat.type(CTRL_C)
        assert chat.process.wait(10) == 0
        assert time.monotonic() - left_s < 4
