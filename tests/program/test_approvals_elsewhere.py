"""A call that waits is decided from another process, whoever lives or dies meanwhile."""

import json
import signal
from typing import Any

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_views import complaint
from tests.program.world import World, wait_until

ASKS = Reply(("I will. ",), tools=(("shell", '{"command": "echo run >> ran.txt"}'),))
WAITING = ("run", "do it", "--key", "k", "--ask", "wait")


def pending(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(world.steno("approvals", "--json"))
    return found


def wait_pending(world: World, count: int = 1) -> list[dict[str, Any]]:
    wait_until(lambda: len(pending(world)) == count, f"{count} pending approvals")
    return pending(world)


def ran(world: World) -> int:
    log = world.work / "ran.txt"
    return log.read_text().count("run") if log.exists() else 0


def killed_while_waiting(world: World, number: int = signal.SIGKILL) -> dict[str, Any]:
    """A process asked and was killed; what waits."""
    with world.start(*WAITING) as program:
        (one,) = wait_pending(world)
        program.signal(number)
        program.process.wait(30)
    assert pending(world) == [one]
    return one


@pytest.mark.promise(37)
def test_a_pending_approval_is_listed_with_what_it_is_about(
    world: World, server: ModelServer
) -> None:
    server.replies = [ASKS, Reply(("It ran.",))]
    one = killed_while_waiting(world)
    id = world.only_session()
    assert (one["session"], one["tool"], one["call"]) == (id, "shell", "call_0")
    assert json.loads(one["arguments"]) == {"command": "echo run >> ran.txt"}
    assert one["since_ms"] > 1_600_000_000_000
    told = world.steno("approvals")
    assert f"steno approve {id} {one['seq']}" in told
    assert "echo run >> ran.txt" in told
    (shown,) = world.show(id)["approvals"]
    assert (shown["seq"], shown["decision"]) == (one["seq"], None)


@pytest.mark.promise(37)
def test_an_approval_given_while_nobody_runs_the_session_is_carried_out_once(
    world: World, server: ModelServer
) -> None:
    server.replies = [ASKS, Reply(("It ran.",))]
    one = killed_while_waiting(world)
    id = one["session"]
    assert f"steno continue {id}" in world.steno("approve", id)
    assert pending(world) == []
    assert ran(world) == 0
    assert world.steno("continue", id) == "I will. It ran.\n"
    assert ran(world) == 1
    assert [turn["outcome"] for turn in world.show(id)["turns"]] == ["done"]
    complaint(world, "continue", id, expect=1)
    assert ran(world) == 1


@pytest.mark.promise(37)
def test_a_denial_reaches_the_model_with_its_reason(world: World, server: ModelServer) -> None:
    server.replies = [ASKS, Reply(("Then not.",))]
    one = killed_while_waiting(world)
    world.steno("deny", one["session"], str(one["seq"]), "--reason", "the disk is full")
    assert world.steno("run", "and now?", "--key", "k") == "Then not.\n"
    told = [
        message["content"]
        for message in server.requests[1]["messages"]
        if message["role"] == "tool"
    ]
    assert len(told) == 1
    assert "denied it: the disk is full" in told[0]
    assert ran(world) == 0


@pytest.mark.promise(37)
@pytest.mark.parametrize(("verb", "times"), [("approve", 1), ("deny", 0)])
def test_a_process_that_waits_hears_the_decision_of_another(
    world: World, server: ModelServer, verb: str, times: int
) -> None:
    server.replies = [ASKS, Reply(("So be it.",))]
    with world.start(*WAITING) as program:
        (one,) = wait_pending(world)
        assert "goes on by itself" in world.steno(verb, one["session"])
        assert program.end() == 0
        assert f"steno approve {one['session']} {one['seq']}" in program.errors()
    assert ran(world) == times
    assert pending(world) == []


@pytest.mark.promise(37)
def test_an_approval_that_waits_outlives_three_processes(world: World, server: ModelServer) -> None:
    server.replies = [ASKS, Reply(("It ran.",))]
    one = killed_while_waiting(world)
    id = one["session"]
    for number in (signal.SIGTERM, signal.SIGKILL):
        with world.start("continue", id, "--ask", "wait") as program:
            wait_until(lambda: world.sessions()[0]["running"], "the session to be taken up")
            program.signal(number)
            program.process.wait(30)
        assert pending(world) == [one]
    world.steno("approve", id, str(one["seq"]))
    assert world.steno("continue", id) == "I will. It ran.\n"
    assert ran(world) == 1


def test_continue_refuses_nothing_that_waits(world: World, server: ModelServer) -> None:
    server.replies = [ASKS, Reply(("So be it.",))]
    one = killed_while_waiting(world)
    said = complaint(world, "continue", one["session"], expect=1)
    assert f"steno approve {one['session']}" in said
    assert pending(world) == [one]
    assert world.steno("continue", one["session"], "--ask", "refuse") == "I will. So be it.\n"
    assert ran(world) == 0


def test_the_first_decision_stands(world: World, server: ModelServer) -> None:
    server.replies = [ASKS, Reply(("So be it.",))]
    one = killed_while_waiting(world)
    id = one["session"]
    world.steno("deny", id)
    assert "nothing in session" in complaint(world, "approve", id, expect=1)
    assert "nothing in session" in complaint(world, "approve", id, str(one["seq"]), expect=1)
    (shown,) = world.show(id)["approvals"]
    assert shown["decision"] == "deny"


def test_of_two_that_wait_one_must_be_named(world: World, server: ModelServer) -> None:
    calls = tuple(("shell", json.dumps({"command": f"touch {name}"})) for name in ("one", "two"))
    server.replies = [Reply(tools=calls), Reply(("done",))]
    with world.start(*WAITING) as program:
        first, second = wait_pending(world, 2)
        id = first["session"]
        assert "say which" in complaint(world, "approve", id, expect=1)
        assert str(first["seq"]) in complaint(world, "approve", id, "9999", expect=1)
        world.steno("approve", id, str(second["seq"]))
        world.steno("deny", id, str(first["seq"]))
        assert program.end() == 0
    made = {"one", "two"} & {path.name for path in world.work.iterdir()}
    assert made == {json.loads(second["arguments"])["command"].removeprefix("touch ")}


def test_nothing_waits_in_an_empty_store(world: World) -> None:
    assert "nothing waits" in world.steno("approvals")
    assert pending(world) == []


def test_a_stop_takes_the_question_away(world: World, server: ModelServer) -> None:
    server.replies = [ASKS]
    with world.start(*WAITING) as program:
        (one,) = wait_pending(world)
        world.steno("interrupt", one["session"])
        assert program.end() == 130
    assert pending(world) == []
    complaint(world, "approve", one["session"], expect=1)
