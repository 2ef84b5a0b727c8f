"""The real program on a real terminal: stopped, left, hung up, ended and killed, at several moments
of a turn.

Whatever happens, what was on the screen is stored, the turn has an ending, and no process of a tool
is left.
"""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import time

import pytest

from steno.tui.composer import GUARD_S
from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_terminal import CTRL_C, CTRL_D
from tests.program.world import World, wait_until
from tests.tui.terminals import FullScreen, full_screen

LEAVE_S = 1.0
DEADLINE_S = 0.9
"""Whoever takes longer was ended by the deadline, and may not have been able to say why it left."""
SLOW_MACHINE_S = 3.0
"""What the end of a process takes on top where many tests run at once."""

COMMAND = "echo $$ > group; (sleep 3600) & printf 'under%s\\n' -way; sleep 3600"
DEAF = COMMAND.replace("sleep", "trap '' TERM; sleep", 1)
MOMENTS = ("waiting", "streaming", "question", "tool")
WAYS = ("stop", "twice", "term", "hup", "closed", "kill")


def replies(moment: str, way: str) -> list[Reply]:
    """What is deaf to being asked to end is ended two seconds later; after a kill -9, by the next
    process."""
    command = COMMAND if way == "kill" else DEAF
    call = Reply(("I will. ",), tools=(("shell", json.dumps({"command": command})),))
    match moment:
        case "waiting":
            return [Reply(then="hang"), Reply(("next",))]
        case "streaming":
            return [Reply(("Some of ", "the answer"), then="hang"), Reply(("next",))]
        case _:
            return [call, Reply(("next",))]


def reach(moment: str, chat: FullScreen, server: ModelServer) -> str:
    """Bring a turn to a moment; the text of the answer that is on the screen by then."""
    chat.wait_seen("○ ready")
    chat.type("go\r")
    match moment:
        case "waiting":
            wait_until(lambda: len(server.requests) == 1, "the request")
            return ""
        case "streaming":
            chat.wait_seen("Some of the answer")
            return "Some of the answer"
        case "question":
            chat.wait_seen("Allow shell?")
        case "tool":
            chat.wait_seen("Allow shell?")
            time.sleep(GUARD_S)
            chat.type("y\r")
            chat.wait_seen("under-way")
    return "I will. "


def group_of(world: World) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int((world.work / "group").read_text())
    return None


def is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def leave(way: str, chat: FullScreen) -> None:
    signals = {"term": signal.SIGTERM, "hup": signal.SIGHUP, "kill": signal.SIGKILL}
    match way:
        case "twice":
            chat.type(CTRL_C)
            time.sleep(0.05)
            chat.type(CTRL_C)
        case "closed":
            chat.hang_up()
        case _:
            chat.process.send_signal(signals[way])


ENDS = {
    "stop": "left",
    "twice": "left",
    "term": "signal",
    "hup": "closed_terminal",
    "closed": "closed_terminal",
    "kill": "killed",
}


def outcome(way: str, moment: str) -> tuple[str | None, str]:
    """How the turn ends: a call that waits for an answer goes on waiting unless a person stopped
    the turn."""
    if way in ("stop", "twice"):
        return "interrupted", "user"
    if moment == "question":
        return None, ""
    return "interrupted", "killed" if way == "kill" else "terminated"


@pytest.mark.promise(5)
@pytest.mark.promise(6)
@pytest.mark.promise(9)
@pytest.mark.promise(34)
@pytest.mark.parametrize(("moment", "way"), [(moment, way) for moment in MOMENTS for way in WAYS])
@pytest.mark.suite(
    "waiting-stop", "streaming-twice", "question-term", "tool-hup", "streaming-closed", "tool-kill"
)
def test_however_a_chat_is_left_what_was_shown_is_stored_and_no_tool_is_left(
    world: World, server: ModelServer, moment: str, way: str
) -> None:
    server.replies = replies(moment, way)
    with full_screen(world) as chat:
        shown, took_s = reach(moment, chat, server), 0.0
        if way == "stop":
            chat.type(CTRL_C)
            chat.wait_seen("stopped by you")
            chat.wait_seen("○ ready")
            chat.type(CTRL_D)
            assert chat.end() == 0
        else:
            left_s = time.monotonic()
            leave(way, chat)
            status = chat.process.wait(10)
            took_s = time.monotonic() - left_s
            assert took_s < LEAVE_S + SLOW_MACHINE_S
            assert status == {"twice": 0, "kill": -signal.SIGKILL}.get(way, 130)
    check(world, moment, way, shown, in_time=took_s < DEADLINE_S)


def check(world: World, moment: str, way: str, shown: str, in_time: bool) -> None:
    id = world.sessions()[-1]["id"]
    (turn,) = world.show(id)["turns"]
    said = "".join(message["text"] for message in world.messages(id, "assistant"))
    assert said == shown
    assert (turn["outcome"], turn["cause"]) == outcome(way, moment)
    if (
        way == "kill" or not in_time
    ):  # nobody was left to say so: the next one to open a session does
        world.steno("run", "another session", "--model", "scripted:echo")
    assert world.show(id)["ended"] in (ENDS[way], "killed" if not in_time else ENDS[way])
    group = group_of(world)
    if moment == "tool":
        assert group is not None
        wait_until(lambda: is_gone(group), "the end of the tool's process group")
    else:
        assert group is None


def test_ctrl_d_leaves_when_nothing_is_typed_and_nothing_runs(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("going",), then="hang")]
    with full_screen(world) as chat:
        chat.wait_seen("○ ready")
        chat.type("x" + CTRL_D)
        chat.wait_seen("> x")
        chat.type("\x7fhello\r")
        chat.wait_seen("going")
        chat.type(CTRL_D)
        chat.wait_seen("a turn runs here")
        chat.type(CTRL_C)
        chat.wait_seen("stopped by you")
        chat.wait_seen("○ ready")
        chat.type(CTRL_D)
        assert chat.end() == 0
        assert "kept: steno --resume" in chat.seen()


@pytest.mark.promise(2)
def test_what_is_sent_and_left_at_once_is_stored_and_what_is_not_sent_is_shown(
    world: World, server: ModelServer
) -> None:
    """All of it is there before the chat has looked at the first key."""
    server.replies = [Reply(("going",), then="hang")]
    with full_screen(world) as chat:
        chat.wait_seen("○ ready")
        chat.type("hello\r" + CTRL_D + "half a")
        chat.wait_seen("a turn runs here")
        chat.wait_seen("going")
        chat.type(" line" + CTRL_C + CTRL_C)
        assert chat.end() == 0
        assert "not sent: half a line" in chat.seen()
    with full_screen(world, "--continue") as chat:
        chat.wait_seen("○ ready")
        chat.type("and more\r" + CTRL_C + CTRL_C)
        assert chat.end() == 0
        assert "1 input is not answered yet" in chat.seen()
    said = world.messages(world.only_session(), "user")
    assert [message["text"] for message in said] == ["hello", "and more"]
    assert len(server.requests) == 1


def test_the_terminal_is_as_it_was_after_leaving(world: World) -> None:
    with full_screen(world) as chat:
        chat.wait_seen("○ ready")
        chat.type("/quit\r")
        assert chat.end() == 0
        written = chat.everything()
    for on, off in (
        ("?1049h", "?1049l"),
        ("?25l", "?25h"),
        ("?2004h", "?2004l"),
        ("?1000h", "?1000l"),
    ):
        assert written.rindex(off) > written.rindex(on)


def test_a_terminal_that_stops_reading_does_not_stop_the_turn(
    world: World, server: ModelServer
) -> None:
    server.replies = [
        Reply(
            tuple(
                f"line {i} of many, so that there is much to be painted\n\n" for i in range(3_000)
            )
        )
    ]
    with full_screen(world) as chat:
        chat.wait_seen("○ ready")
        chat.type("go\r")
        wait_until(
            lambda: len(server.requests) == 1, "the request"
        )  # and nothing is read from here on
        id = world.only_session()
        wait_until(lambda: world.show(id)["turns"][0]["outcome"] == "done", "the end of the turn")
        chat.wait_seen("line 2999")
        chat.wait_seen("○ ready")


def test_the_line_printed_at_leaving_works_where_steno_is_no_command(
    world: World, server: ModelServer
) -> None:
    world.environment["PATH"] = os.defpath
    with full_screen(world, "hello there") as chat:
        chat.wait_seen("ok")
        chat.wait_seen("○ ready")
        chat.type(CTRL_D)
        assert chat.end() == 0
        (line,) = re.findall(r"kept: (.* --resume \w+)", chat.everything())
    words = [*shlex.split(line), "--plain"]
    again = subprocess.run(
        words, cwd=world.work, env=world.environment, input="", capture_output=True, text=True
    )
    assert again.returncode == 0, again.stderr
    assert "hello there" in again.stdout
