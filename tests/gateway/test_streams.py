"""Streams as their readers meet them: real curl at every place of an answer, one turn to its end,
tools that show their output at the same time, readers that do not read, sessions that go away."""

import http.client
import json
import shutil
import subprocess
from collections import defaultdict
from io import BytesIO
from typing import cast

import pytest

from tests.gateway.client import WAIT_S, Event, Gateway, parse, text_of
from tests.gateway.test_http import ANSWER
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World

CURL = shutil.which("curl")
BETWEEN = "\n=== over\n"


def curl(gateway: Gateway, path: str, *words: str) -> list[str]:
    """What curl is told at each address of a range."""
    assert CURL is not None
    url = f"http://127.0.0.1:{gateway.port}{path}"
    given = ("-sS", "--no-buffer", "--max-time", str(WAIT_S), "-w", BETWEEN)
    token = ("-H", f"Authorization: Bearer {gateway.token}")
    done = subprocess.run(
        [CURL, *given, *token, *words, url], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(BETWEEN)[:-1]


def events_in(told: str) -> list[Event]:
    return list(parse(cast(http.client.HTTPResponse, BytesIO(told.encode()))))


@pytest.mark.skipif(CURL is None, reason="no curl")
@pytest.mark.promise(5, 62)
def test_curl_reads_a_turn_on_at_every_code_point_after_a_kill(
    gateway: Gateway, server: ModelServer
) -> None:
    pieces = tuple(ANSWER[i : i + 7] for i in range(0, len(ANSWER), 7))
    server.replies = [Reply(pieces, then="hang")]
    session = gateway.make()
    gateway.say(session, "tell me")
    seen: list[Event] = []
    for event in gateway.events(session):
        seen.append(event)
        if text_of(seen) == ANSWER:
            break
    gateway.kill()
    gateway.start()
    step = next(one.data["seq"] for one in seen if one.name == "text")
    (turn,) = gateway.ask("GET", f"/api/sessions/{session}").json()["turns"]
    path = f"/api/sessions/{session}/turns/{turn['id']}/events"
    told = curl(gateway, f"{path}?after={step - 1}~{step}t[0-{len(ANSWER)}]")
    assert len(told) == len(ANSWER) + 1
    for offset, one in enumerate(told):
        events = events_in(one)
        texts = [event.data for event in events if event.name == "text"]
        assert ANSWER[:offset] + "".join(text["text"] for text in texts) == ANSWER
        assert not texts or texts[0]["offset"] == offset
        assert (events[-1].name, events[-1].data["cause"]) == ("turn_ended", "killed")
    last = events_in(told[0])[-1].id
    assert curl(gateway, path, "-w", "%{http_code}" + BETWEEN, "-H", f"Last-Event-ID: {last}") == [
        "204"
    ], "it was seen to its end, and a browser is told to stop"


@pytest.mark.promise(5, 62)
def test_two_tools_at_once_are_read_on_after_each_event(
    gateway: Gateway, server: ModelServer, world: World
) -> None:
    world.environment["STENO_GATEWAY_APPROVAL"] = "allow"
    gateway.stop()
    gateway.start()
    lines = 'for i in 1 2 3 4; do echo "$0 üñ🙂 $i"; sleep 0.02; done'
    both = [("shell", json.dumps({"command": f"sh -c '{lines}' {name}"})) for name in ("ab", "cd")]
    server.replies = [Reply(("Both.",), tools=tuple(both)), Reply(("Done.",))]
    session = gateway.make()
    gateway.say(session, "run both")
    seen, cursor = list[Event](), "0"
    while not seen or seen[-1].name != "turn_ended":
        for event in gateway.events(session, cursor):
            if event.id:
                seen.append(event)
                cursor = event.id
                break  # its reader leaves after each event, and comes back
    texts: dict[tuple[str, int], str] = defaultdict(str)
    for event in seen:
        if event.name in ("text", "tool_output"):
            stream = event.name, event.data["seq"]
            assert event.data["offset"] == len(texts[stream])
            texts[stream] += event.data["text"]
    shown = world.messages(session)
    outputs = [text for (kind, _), text in texts.items() if kind == "tool_output"]
    assert sorted(outputs) == sorted(one["text"] for one in shown if one["role"] == "tool")
    assert [text for (kind, _), text in texts.items() if kind == "text"] == ["Both.", "Done."]
    assert len({event.id for event in seen}) == len(seen)


def test_a_reader_is_told_that_its_session_is_gone_and_where_a_cursor_is_wrong(
    gateway: Gateway,
) -> None:
    session = gateway.make()
    path = f"/api/sessions/{session}/events"
    assert gateway.ask("GET", f"{path}?after=x").status == 400
    ahead = gateway.ask("GET", f"{path}?after=0", headers={"Last-Event-ID": "900"})
    assert ahead.status == 409, "what a reader saw goes before where it began"
    assert "whose last fact is" in ahead.json()["detail"]
    stream = gateway.events(session)
    assert next(stream).name == "hello"
    assert gateway.ask("DELETE", f"/api/sessions/{session}").status == 200
    assert [one.name for one in stream if one.name != "ping"][-1:] == ["gone"]
