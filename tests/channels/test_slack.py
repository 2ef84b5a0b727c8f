"""Talking to steno in Slack: the running program, and a stub that keeps Slack's rules."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.channels.contract import OWNER, serving
from tests.channels.slack_stub import BOT, SlackSubject
from tests.gateway.client import Gateway
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World, wait_until

Serve = Callable[..., Gateway]
TOOL = Reply(tools=(("shell", '{"command": "echo run >> ran.txt"}'),))


@pytest.fixture
def slack(tmp_path: Path) -> Iterator[SlackSubject]:
    one = SlackSubject(tmp_path)
    one.open()
    try:
        yield one
    finally:
        one.close()


@pytest.fixture
def serve(slack: SlackSubject, world: World, tmp_path: Path) -> Iterator[Serve]:
    with serving(slack, world, tmp_path) as start:
        yield start


@pytest.mark.promise(67)
def test_an_envelope_is_acknowledged_and_one_that_was_not_gives_one_input(
    slack: SlackSubject, serve: Serve, server: ModelServer
) -> None:
    gateway = serve()
    said = slack.say("hello")
    slack.wait("ok")
    wait_until(lambda: not slack.stub.pending, "the acknowledgement")
    gateway.kill()
    slack.stub.pending["again"] = {
        "envelope_id": "again",
        "type": "events_api",
        "payload": {"event": said},
    }
    gateway.start()
    slack.say("more")
    wait_until(lambda: slack.texts() == ["ok", "ok"], "the second answer")
    wait_until(lambda: not slack.stub.pending, "all to be acknowledged")
    assert len(server.requests) == 2


@pytest.mark.promise(63)
def test_what_was_said_in_an_old_thread_while_steno_was_away_is_answered(
    slack: SlackSubject, serve: Serve, server: ModelServer
) -> None:
    server.choose = lambda request: Reply((f"answer {len(request['messages'])}",))
    gateway = serve()
    first = slack.say("hello")
    slack.wait("answer 2")
    gateway.kill()
    slack.stub.say(f"D{OWNER}", slack.id(OWNER), "in the thread", thread_ts=first["ts"])
    slack.say("beside it")
    gateway.start()
    wait_until(lambda: len(slack.texts()) == 3, "both answers")
    asked = [str(request["messages"][-1]["content"]) for request in server.requests]
    assert ["thread" in one for one in asked] == [False, True, False]


@pytest.mark.promise(14)
def test_a_message_whose_answer_was_lost_is_found_and_a_limit_is_waited_for(
    slack: SlackSubject, serve: Serve, server: ModelServer
) -> None:
    lost: list[str] = []

    def lose(method: str) -> bool:
        if method == "chat.postMessage" and not lost:
            lost.append(method)
            return True
        return False

    server.replies = [Reply(("one",)), Reply(("two",))]
    slack.stub.lose = lose
    serve(stream="final")
    slack.say("hello")
    slack.wait("one")
    limited: list[float] = []

    def refuse(method: str) -> dict[str, Any] | None:
        if method == "chat.postMessage" and not limited:
            limited.append(time.monotonic())
            return {"ok": False, "error": "ratelimited"}
        return None

    slack.stub.refuse = refuse
    slack.say("more")
    slack.wait("two")
    assert time.monotonic() - limited[0] >= 1.0
    assert lost
    assert slack.texts() == ["one", "two"]


@pytest.mark.promise(70)
def test_a_button_of_the_owner_decides_and_a_group_is_answered_when_it_names_us(
    slack: SlackSubject, serve: Serve, server: ModelServer, world: World
) -> None:
    server.replies = [TOOL, Reply(("Done.",)), Reply(("Here.",))]
    serve(groups=["CROOM"])
    slack.say("do it")
    wait_until(lambda: any("May I run" in text for text in slack.texts()), "the question")

    def tokens() -> list[str]:
        blocks = [block for one in slack.made() for block in one["blocks"]]
        return [block["elements"][0]["value"] for block in blocks if block["type"] == "actions"]

    tap = {
        "actions": [{"value": tokens()[-1], "action_ts": "1.5"}],
        "channel": {"id": f"D{OWNER}"},
        "user": {"id": slack.id(OWNER)},
    }
    slack.stub.give({"type": "interactive", "payload": tap})
    slack.wait("Done.")
    slack.stub.say("CROOM", slack.id(OWNER), "nobody is meant")
    slack.stub.say("CROOM", slack.id(OWNER), f"<@{BOT}> are you there?")
    room = slack.stub.messages["CROOM"]
    wait_until(lambda: any(one["text"] == "Here." for one in room.values()), "the answer")
    assert "nobody is meant" not in str(server.requests[-1])
