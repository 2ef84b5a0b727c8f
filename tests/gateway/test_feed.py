"""The list, approvals, deliveries and one session in one stream, on the running program."""

import http.client
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tests.gateway.client import WAIT_S, Event, Gateway, parse, text_of
from tests.program.model_server import ModelServer, Reply


def feed(gateway: Gateway, session: str | None = None, after: str = "now") -> Iterator[Event]:
    path = f"/api/events?after={after}" + (f"&session={session}" if session else "")
    wire = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=WAIT_S)
    with closing(wire):
        wire.request("GET", path, headers={"Authorization": f"Bearer {gateway.token}"})
        answer = wire.getresponse()
        assert answer.status == 200, answer.read()
        yield from parse(answer)


def until(events: Iterator[Event], true: Callable[[list[Event]], bool]) -> list[Event]:
    seen: list[Event] = []
    for event in events:
        seen.append(event)
        if true(seen):
            return seen
    raise AssertionError("the stream ended")


def named(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event.name == name]


@pytest.mark.promise(36, 62)
def test_one_stream_has_the_list_and_a_session_and_resumes_both_after_a_kill(
    gateway: Gateway, server: ModelServer
) -> None:
    server.replies = [Reply(("Hel", "lo ", "world", "!"), held=True)]
    session, other = gateway.make(title="mine"), gateway.make()
    stream = feed(gateway, session)
    assert next(stream).data["session"] == session
    gateway.say(session, "hi")
    seen = until(stream, lambda seen: text_of(seen) == "Hello world")
    gateway.kill()
    gateway.start()
    gateway.ask("PATCH", f"/api/sessions/{other}", {"title": "renamed meanwhile"})
    rest = until(
        feed(gateway, session, seen[-1].id),
        lambda seen: (
            bool(named(seen, "turn_ended"))
            and {one.data["session"]["id"] for one in named(seen, "session")} >= {session, other}
        ),
    )
    assert text_of(rest) == ""
    assert named(rest, "turn_ended")[0].data["cause"] == "killed"
    titles = [one.data["session"]["title"] for one in named(rest, "session")]
    assert "renamed meanwhile" in titles
    again = until(feed(gateway, session, f"0~~{rest[0].id.partition('~~')[2]}"), bool)
    assert again[0].name == "hello"


def test_the_list_is_told_what_runs_waits_and_is_gone(
    gateway: Gateway, server: ModelServer
) -> None:
    server.replies = [Reply(tools=(("shell", '{"command": "true"}'),)), Reply(("done",))]
    stream = feed(gateway)
    assert next(stream).name == "hello"
    session = gateway.make()
    gateway.say(session, "run it")
    asked = until(stream, lambda seen: bool(seen[-1].data.get("approvals")))[-1].data
    assert (asked["session"], asked["approvals"][0]["tool"]) == (session, "shell")
    path = f"/api/approvals/{session}/{asked['approvals'][0]['seq']}"
    assert gateway.ask("POST", path, {"decision": "deny"}).status == 200
    ended = until(
        stream,
        lambda seen: (
            bool(named(seen, "approvals"))
            and named(seen, "approvals")[-1].data["approvals"] == []
            and named(seen, "session")[-1].data["session"]["last_turn"] == "done"
        ),
    )
    row = named(ended, "session")[-1].data["session"]
    assert (row["running"], row["waiting"], row["id"]) == (False, False, session)
    gateway.ask("DELETE", f"/api/sessions/{session}")
    gone = until(stream, lambda seen: seen[-1].name == "session_deleted")[-1]
    assert gone.data["session"] == session


@pytest.mark.parametrize(
    ("after", "status"),
    [("x", 400), ("1~~2", 400), ("-1", 400), ("9" * 30, 400), ("999999999", 409)],
)
def test_a_place_that_is_none_of_ours_is_refused(gateway: Gateway, after: str, status: int) -> None:
    assert gateway.ask("GET", f"/api/events?after={after}").status == status
