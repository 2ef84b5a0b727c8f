"""The service over HTTP, on the running program: inputs, streams that resume, kills, stops."""

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.gateway.client import Gateway, eventually, text_of, wait_until
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World

DRAIN_S = 20.0
"""What running turns get when the service stops."""
ANSWER = "".join(chr(0x3B1 + i % 20) if i % 3 else "🙂é\n"[i % 4 % 3] for i in range(300))


@pytest.mark.promise(1, 2)
def test_an_input_is_answered_when_it_is_stored_and_survives_a_kill_at_once(
    gateway: Gateway, server: ModelServer, world: World
) -> None:
    server.replies = [Reply(then="hang")]
    session = gateway.make(title="one")
    answer = gateway.say(session, "hello", "key-1")
    gateway.kill()
    assert (answer.status, answer.json()["first"]) == (202, True)
    (said,) = world.messages(session, "user")
    assert said["text"] == "hello"


@pytest.mark.promise(16)
def test_the_same_key_gives_the_same_answer_after_a_restart_and_one_turn(
    gateway: Gateway, server: ModelServer
) -> None:
    server.replies = [Reply(("once",))]
    session = gateway.make()
    first = gateway.say(session, "hello", "key-1", wait=10)
    assert first.json()["text"] == "once"
    assert gateway.stop() == 0
    gateway.start()
    again = gateway.say(session, "hello", "key-1", wait=10)
    assert (again.status, again.json()["seq"]) == (200, first.json()["seq"])
    assert (again.json()["first"], again.json()["text"]) == (False, "once")
    assert gateway.say(session, "other text", "key-1").status == 409
    assert gateway.say(gateway.make(), "hello", "key-1").status == 409
    assert len(server.requests) == 1


@pytest.mark.promise(9, 36, 46)
def test_a_client_that_leaves_stops_nothing_and_reads_on_where_it_was(
    gateway: Gateway, server: ModelServer, world: World
) -> None:
    server.replies = [Reply(("Hel", "lo ", "world", "!"), held=True)]
    session = gateway.make()
    gateway.say(session, "hi")
    seen = []
    for event in gateway.events(session):
        seen.append(event)
        if text_of(seen) == "Hello world":
            break
    server.go_on()
    rest = gateway.until_end(session, seen[-1].id)
    assert text_of(seen) == "Hello world"
    assert [one.data["text"] for one in rest if one.name == "text"] == ["!"]
    assert rest[-1].data["outcome"] == "done"
    shown = gateway.ask("GET", f"/api/sessions/{session}").json()
    assert shown["messages"] == world.show(session)["messages"]


@pytest.mark.promise(5, 62)
def test_a_stream_resumes_at_every_code_point_after_a_kill(
    gateway: Gateway, server: ModelServer, world: World
) -> None:
    pieces = tuple(ANSWER[i : i + 7] for i in range(0, len(ANSWER), 7))
    server.replies = [Reply(pieces, then="hang")]
    session = gateway.make()
    gateway.say(session, "tell me")
    seen = []
    for event in gateway.events(session):
        seen.append(event)
        if text_of(seen) == ANSWER:
            break
    gateway.kill()
    stored = world.messages(session, "assistant")
    assert [(one["text"], one["state"]) for one in stored] == [(ANSWER, "interrupted")]
    gateway.start()
    started = next(one.data["seq"] for one in seen if one.name == "text")
    before = started - 1

    def rest_of(offset: int) -> str:
        rest = ""
        for event in gateway.events(session, f"{before}~{started}t{offset}"):
            if event.name == "text":
                assert event.data["offset"] == offset + len(rest)
                rest += event.data["text"]
            if event.name == "turn_ended":
                break
        return rest

    with ThreadPoolExecutor(8) as readers:
        for offset, rest in enumerate(readers.map(rest_of, range(len(ANSWER) + 1))):
            assert ANSWER[:offset] + rest == ANSWER


@pytest.mark.promise(17, 21, 22)
def test_inputs_during_a_turn_are_kept_in_order_and_run_after_a_kill(
    gateway: Gateway, server: ModelServer, world: World
) -> None:
    server.replies = [Reply(("first",), then="hang"), *(Reply((f"{i}",)) for i in range(10))]
    session = gateway.make()
    gateway.say(session, "zero")
    wait_until(lambda: len(server.requests) == 1, "the first request")
    for i in range(1, 4):
        assert gateway.say(session, f"input {i}", f"key-{i}").status == 202
    gateway.kill()
    gateway.start()
    wait_until(lambda: len(world.messages(session, "assistant")) == 4, "all answers")
    said = [one["text"] for one in world.messages(session, "user")]
    assert said == ["zero", "input 1", "input 2", "input 3"]


@pytest.mark.promise(23, 24)
def test_a_stop_names_its_turn_and_cannot_stop_the_next(
    gateway: Gateway, server: ModelServer, world: World
) -> None:
    server.replies = [Reply(("part",), then="hang"), Reply(("second",))]
    session = gateway.make()
    gateway.say(session, "one")
    seen = []
    for event in gateway.events(session):
        seen.append(event)
        if text_of(seen) == "part":
            break
    turn = world.show(session)["turns"][-1]["id"]
    stopped = gateway.ask("POST", f"/api/sessions/{session}/interrupt", {"turn": turn})
    assert (stopped.status, stopped.json()["turn"]) == (202, turn)
    assert gateway.until_end(session, seen[-1].id)[-1].data["cause"] == "user"
    gateway.ask("POST", f"/api/sessions/{session}/interrupt", {"turn": turn})
    assert gateway.say(session, "two", wait=10).json()["turn"]["outcome"] == "done"


@pytest.mark.promise(37, 70)
def test_an_approval_survives_a_kill_and_is_decided_once_with_a_reason(
    gateway: Gateway, server: ModelServer, world: World
) -> None:
    call = ("shell", '{"command": "echo ran"}')
    server.replies = [Reply(tools=(call,)), Reply(("understood",))]
    session = gateway.make()
    gateway.say(session, "run it")

    def waiting() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = gateway.ask("GET", "/api/approvals").json()["approvals"]
        return found

    wait_until(lambda: len(waiting()) == 1, "the question")
    gateway.kill()
    gateway.start()
    (asked,) = waiting()
    path = f"/api/approvals/{session}/{asked['seq']}"
    assert gateway.ask("POST", path, {"decision": "deny", "reason": "not today"}).status == 200
    assert gateway.ask("POST", path, {"decision": "allow"}).status == 409
    wait_until(
        lambda: world.messages(session, "assistant")[-1]["text"] == "understood", "an answer"
    )
    (outcome,) = world.messages(session, "tool")
    assert "not today" in outcome["text"]


@pytest.mark.promise(37, 46)
def test_a_turn_that_waits_for_a_person_holds_up_no_stop_and_its_question_stays(
    gateway: Gateway, server: ModelServer, world: World
) -> None:
    """It would wait for longer than any stop may take."""
    call = ("shell", '{"command": "echo ran"}')
    server.replies = [Reply(("I will.",), tools=(call,)), Reply(("understood",))]
    session = gateway.make()
    gateway.say(session, "run it")

    def waiting() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = gateway.ask("GET", "/api/approvals").json()["approvals"]
        return found

    wait_until(lambda: len(waiting()) == 1, "the question")
    began_s = time.monotonic()
    gateway.stop()
    assert time.monotonic() - began_s < DRAIN_S / 2
    (turn,) = world.show(session)["turns"]
    assert turn["outcome"] is None
    gateway.start()
    (asked,) = waiting()
    path = f"/api/approvals/{session}/{asked['seq']}"
    assert gateway.ask("POST", path, {"decision": "deny"}).status == 200
    wait_until(
        lambda: world.messages(session, "assistant")[-1]["text"] == "understood", "an answer"
    )


@pytest.mark.promise(61)
def test_a_turn_of_another_process_is_seen_live(gateway: Gateway, server: ModelServer) -> None:
    server.replies = [Reply(("from ", "the ", "terminal", "."), held=True)]
    session = gateway.make()
    seen: list[Any] = []

    def read() -> None:
        for event in gateway.events(session):
            seen.append(event)
            if event.name == "turn_ended":
                return

    reader = threading.Thread(target=read)
    reader.start()
    with gateway.world.start("run", "hello", "--session", session) as elsewhere:
        wait_until(lambda: text_of(seen) == "from the terminal", "the text")
        server.go_on()
        reader.join(20)
        assert elsewhere.end() == 0
    assert text_of(seen) == "from the terminal."
    assert [one.data["message"]["role"] for one in seen if one.name == "message"] == [
        "user",
        "assistant",
    ]


@pytest.mark.promise(63)
def test_a_stop_in_order_accepts_inputs_says_bye_and_the_next_start_goes_on(
    gateway: Gateway, server: ModelServer, world: World
) -> None:
    world.environment["STENO_GATEWAY_DRAIN_S"] = "0.2"
    gateway.stop()
    gateway.start()
    server.replies = [Reply(("part",), then="hang"), Reply(("whole",))]
    session = gateway.make()
    gateway.say(session, "one")
    seen = []
    for event in gateway.events(session):
        seen.append(event)
        if text_of(seen) == "part":
            gateway.program.signal(signal.SIGTERM)
        if event.name == "bye":
            break
    assert gateway.program.process.wait(20) == 0
    assert world.show(session)["turns"][-1]["outcome"] == "interrupted"
    gateway.start()
    assert eventually(gateway, "/ready", 200).status == 200


@pytest.mark.promise(55)
def test_a_deleted_session_is_gone_for_every_route(gateway: Gateway) -> None:
    session = gateway.make()
    assert gateway.ask("DELETE", f"/api/sessions/{session}").status == 200
    assert gateway.ask("GET", f"/api/sessions/{session}").status == 404
    assert gateway.ask("GET", f"/api/sessions/{session}/events").status == 404
    assert gateway.say(session, "hello").status == 404
