"""Every way to end a turn leaves the same stored history up to the last commit, and a session that
goes on."""

import json
import os
import signal
from collections.abc import Callable

import pytest

from tests.models.rules import check
from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_terminal import CTRL_C, Terminal, terminal
from tests.program.test_cli_views import complaint
from tests.program.world import Program, World, wait_until

TOOL = (("shell", '{"command": "echo out"}'),)
LEFT = [("user", "go"), ("assistant", "one two "), ("tool", "out\n"), ("assistant", "three ")]
SHOWN = "one two three "


def script(*after: Reply) -> list[Reply]:
    return [Reply(("one ", "two "), tools=TOOL), Reply(("three ",), then="hang"), *after]


def history(world: World) -> list[tuple[str, str]]:
    """What was said, without attempts of which nothing came."""
    messages = world.messages(world.only_session())
    return [
        (message["role"], message["text"]) for message in messages if message["state"] != "lost"
    ]


def by_signals(*numbers: signal.Signals) -> Callable[[World, Program], None]:
    def send(_: World, program: Program) -> None:
        for number in numbers:
            program.signal(number)

    return send


def by_word(world: World, _: Program) -> None:
    world.steno("interrupt", world.only_session())


WAYS: dict[str, tuple[Callable[[World, Program], None], tuple[str, str]]] = {
    "stop": (by_word, ("interrupted", "user")),
    "ctrl-c": (by_signals(signal.SIGINT), ("interrupted", "user")),
    "hangup": (by_signals(signal.SIGHUP), ("interrupted", "terminated")),
    "term": (by_signals(signal.SIGTERM), ("interrupted", "terminated")),
    "kill": (by_signals(signal.SIGKILL), ("interrupted", "killed")),
    "budget": (lambda _, __: None, ("failed", "budget")),
    "provider": (lambda _, __: None, ("failed", "refused")),
}


@pytest.mark.promise(6)
@pytest.mark.promise(9)
@pytest.mark.parametrize("way", list(WAYS))
def test_every_way_to_end_leaves_the_same_stored_history(
    world: World, server: ModelServer, way: str
) -> None:
    end, ended = WAYS[way]
    server.replies = script(Reply(status=400), Reply(("fine",)))
    if way == "provider":
        server.replies[1] = Reply(("three ",), then="close")
    if way == "budget":
        world.environment["STENO_LIMITS_TURN_S"] = "4"
    with world.start("run", "go", "--key", "k", "--yes") as program:
        program.wait_shown(SHOWN)
        end(world, program)
        program.end()
        shown = program.shown()
    assert shown.rstrip("\n") == SHOWN
    assert history(world) == LEFT
    (turn,) = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ended
    _goes_on(world, server)


@pytest.mark.promise(6)
def test_a_second_ctrl_c_leaves_at_once_and_loses_nothing(
    world: World, server: ModelServer
) -> None:
    """The first one asks for an end that does not come: the tool is deaf, and its end takes a
    while."""
    deaf = (
        (
            "shell",
            json.dumps({"command": "trap '' TERM INT; echo out; while :; do sleep 0.1; done"}),
        ),
    )
    server.replies = [Reply(("one ", "two "), tools=deaf), Reply(("fine",))]
    with terminal(world, "run", "go", "--key", "k", "--yes") as program:
        program.wait_seen("one two ")
        wait_until(lambda: ("tool", "out\n") in history(world), "the output of the tool")
        program.type(CTRL_C)
        program.wait_seen("again leaves at once")
        program.type(CTRL_C)
        assert program.end() == 130
    assert history(world) == LEFT[:3]
    (turn,) = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ("interrupted", "user")
    _goes_on(world, server)


@pytest.mark.promise(6)
def test_a_terminal_that_goes_away_leaves_the_same_stored_history(
    world: World, server: ModelServer
) -> None:
    server.replies = script(Reply(("fine",)))
    with terminal(world, "run", "go", "--key", "k", "--yes") as program:
        program.wait_seen("three ")
        _close(program)
        assert program.process.wait(30) == 130
        assert history(world) == LEFT
    (turn,) = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ("interrupted", "terminated")
    _goes_on(world, server)


def _close(program: Terminal) -> None:
    """Close the terminal's own end, as a window does; the far end then hangs up."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, program._near)
    os.close(null)


def _goes_on(world: World, server: ModelServer) -> None:
    before = history(world)
    server.replies = [Reply(("fine",))]
    world.environment.pop("STENO_LIMITS_TURN_S", None)
    assert world.steno("run", "and now?", "--key", "k") == "fine\n"
    assert history(world) == [*before, ("user", "and now?"), ("assistant", "fine")]
    check("openai-chat", server.requests[-1])
    sent = json.dumps(server.requests[-1])
    for _, text in before:
        assert text.strip() in sent


# --- what a turn's text is made of ----------------------------------------------------------------


@pytest.mark.promise(11)
def test_an_answer_without_text_is_no_placeholder_and_no_other_turns_text(
    world: World, server: ModelServer
) -> None:
    """The answer of the first turn is not the answer of the second, and nobody says "no
    response"."""
    server.replies = [Reply(("the first answer",)), Reply(), Reply(("the last",))]
    assert world.steno("run", "one", "--key", "k") == "the first answer\n"
    with world.start("run", "two", "--key", "k") as program:
        assert program.end() == 0
        assert program.shown() == ""
        assert "without a word" in program.errors()
    assert world.steno("run", "three", "--key", "k") == "the last\n"
    said = [message["text"] for message in world.messages(world.only_session(), "assistant")]
    assert said == ["the first answer", "", "the last"]
    check("openai-chat", server.requests[-1])


@pytest.mark.promise(11)
@pytest.mark.parametrize("kind", ["openai-chat", "anthropic"])
@pytest.mark.suite("anthropic")
def test_text_before_a_tool_stays_when_the_last_answer_is_empty(
    world: World, server: ModelServer, kind: str
) -> None:
    world.environment["STENO_MODEL"] = f"{kind}:test"
    server.replies = [Reply(("All of the answer.",), tools=TOOL), Reply(), Reply(("later",))]
    assert world.steno("run", "one", "--key", "k", "--yes") == "All of the answer.\n"
    world.steno("run", "two", "--key", "k")
    said = [message["text"] for message in world.messages(world.only_session(), "assistant")]
    assert said == ["All of the answer.", "", "later"]
    check(kind, server.requests[-1])
    assert json.dumps(server.requests[-1]).count("All of the answer.") == 1


# --- calls in a stream that breaks ----------------------------------------------------------------


@pytest.mark.promise(10)
@pytest.mark.parametrize("kind", ["openai-chat", "anthropic"])
@pytest.mark.parametrize("then", ["close", "eof"])
@pytest.mark.parametrize("pieces", [(), ("I will. ",)])
@pytest.mark.suite("pieces0-close-openai-chat", "pieces1-eof-anthropic")
def test_a_call_in_a_stream_without_its_end_marker_is_not_run(
    world: World, server: ModelServer, kind: str, then: str, pieces: tuple[str, ...]
) -> None:
    world.environment["STENO_MODEL"] = f"{kind}:test"
    touch = (("shell", '{"command": "touch ran"}'),)
    server.replies = [Reply(pieces, tools=touch, then=then), Reply(("whole",))]  # type: ignore[arg-type]
    assert world.steno("run", "go", "--yes").endswith("whole\n")
    assert not (world.work / "ran").exists()
    states = [
        (message["text"], message["state"])
        for message in world.messages(world.only_session(), "assistant")
    ]
    assert states[0] == (("I will. ", "incomplete") if pieces else ("", "lost"))
    assert world.messages(world.only_session(), "tool") == []
    check(kind, server.requests[1])


# --- prompts that were not answered ---------------------------------------------------------------


@pytest.mark.promise(24)
@pytest.mark.parametrize("kind", ["openai-chat", "anthropic"])
@pytest.mark.suite("openai-chat")
def test_the_prompt_of_a_failed_turn_with_a_sealed_step_stays_and_is_closed_by_a_marker(
    world: World, server: ModelServer, kind: str
) -> None:
    world.environment["STENO_MODEL"] = f"{kind}:test"
    server.replies = [
        Reply(("I look. ",), tools=TOOL),
        Reply(status=400),
        Reply(("fine",)),
        Reply(("again",)),
    ]
    complaint(world, "run", "the failing one", "--key", "k", "--yes", expect=1)
    assert world.messages(world.only_session(), "user")[0]["state"] == "failed"
    world.steno("run", "the next one", "--key", "k")
    sent = json.dumps(server.requests[2]["messages"])
    assert [sent.count(text) for text in ("the failing one", "I look. ", "the next one")] == [
        1,
        1,
        1,
    ]
    assert "[This turn failed: refused.]" in sent
    last = server.requests[2]["messages"][-1]
    assert "the failing one" not in json.dumps(last), "it is no part of the new instruction"
    check(kind, server.requests[2])
    world.steno("run", "and another", "--key", "k")
    assert json.dumps(server.requests[3]["messages"]).count("[This turn failed: refused.]") == 1
