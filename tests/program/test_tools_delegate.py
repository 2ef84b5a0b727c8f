"""A helper with a session of its own: bounded, linked, its end reported once, also after a kill."""

import json
from typing import Any

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.world import World, wait_until

DELEGATES = Reply(tools=(("delegate", '{"prompt": "count the files"}'),))


def results(request: dict[str, Any]) -> list[str]:
    return [message["content"] for message in request["messages"] if message["role"] == "tool"]


def names(request: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in request.get("tools", [])]


def child_in(text: str) -> str:
    return text.split("[delegated to session ")[1].split("]")[0]


def parent_of(world: World) -> str:
    (id,) = [found["id"] for found in world.sessions() if found["title"] == "do it"]
    return str(id)


@pytest.mark.promise(38)
def test_a_helper_that_finishes_is_reported_once(world: World, server: ModelServer) -> None:
    server.replies = [DELEGATES, Reply(("There are 3.",)), Reply(("It says 3.",))]
    assert world.steno("run", "do it", "--yes", "--key", "k") == "It says 3.\n"
    parent, helper, after = server.requests
    assert "delegate" in names(parent)
    assert "delegate" not in names(helper)
    assert "shell" in names(helper)
    assert [message["content"] for message in helper["messages"] if message["role"] == "user"] == [
        "count the files"
    ]
    (reported,) = results(after)
    child = child_in(reported)
    assert reported == f"[delegated to session {child}]\nThere are 3."
    assert [(m["role"], m["text"]) for m in world.messages(child)] == [
        ("user", "count the files"),
        ("assistant", "There are 3."),
    ]
    parent_id = parent_of(world)
    assert (world.show(child)["delegated_by"], world.show(parent_id)["delegated_by"]) == (
        parent_id,
        None,
    )
    assert f"helper of session {parent_id}" in world.steno("show", child)
    assert len(world.messages(parent_id, "tool")) == 1
    world.steno("run", "and?", "--key", "k")
    assert len(results(server.requests[-1])) == 1


@pytest.mark.promise(38)
def test_a_helper_that_fails_is_reported_as_failed(world: World, server: ModelServer) -> None:
    world.environment["STENO_LIMITS_ATTEMPTS_MAX"] = "1"
    server.replies = [DELEGATES, Reply(status=500), Reply(("It failed.",))]
    assert world.steno("run", "do it", "--yes") == "It failed.\n"
    (reported,) = results(server.requests[2])
    assert "the helper's turn did not end well: failed: server_error" in reported


@pytest.mark.promise(38, 19)
def test_a_helper_that_we_die_with_is_reported_as_lost_once_and_not_begun_again(
    world: World, server: ModelServer
) -> None:
    server.replies = [
        DELEGATES,
        Reply(("Partly ",), then="hang"),
        Reply(("I see.",)),
        Reply(("Yes.",)),
    ]
    with world.start("run", "do it", "--yes", "--key", "k") as program:
        wait_until(lambda: len(server.requests) == 2, "the helper's request")
        wait_until(
            lambda: any("Partly" in str(world.messages(s["id"])) for s in world.sessions()),
            "the helper's words",
        )
        program.kill()
    assert world.steno("run", "what now?", "--key", "k", "--yes") == "I see.\n"
    (reported,) = results(server.requests[2])
    child = child_in(reported)
    assert "The outcome of this call is unknown" in reported
    assert [turn["outcome"] for turn in world.show(child)["turns"]] == ["interrupted"]
    assert world.messages(child, "assistant")[0]["text"] == "Partly "
    assert len(world.sessions()) == 2
    world.steno("run", "and?", "--key", "k")
    assert len(results(server.requests[3])) == 1
    assert len(server.requests) == 4


def test_a_stop_of_the_parent_stops_the_helper(world: World, server: ModelServer) -> None:
    server.replies = [DELEGATES, Reply(("Partly ",), then="hang")]
    with world.start("run", "do it", "--yes") as program:
        wait_until(lambda: len(server.requests) == 2, "the helper's request")
        world.steno("interrupt", parent_of(world))
        assert program.end() == 130
    outcomes = {
        found["title"]: world.show(found["id"])["turns"][-1]["outcome"]
        for found in world.sessions()
    }
    assert outcomes == {"do it": "interrupted", "count the files": "interrupted"}


def test_a_helper_has_little_time_and_few_steps(world: World, server: ModelServer) -> None:
    world.environment["STENO_TOOLS_DELEGATE_LIMIT_S"] = "1"
    server.replies = [DELEGATES, Reply(then="hang"), Reply(("It took too long.",))]
    assert world.steno("run", "do it", "--yes") == "It took too long.\n"
    assert "the time limit of 1 s was reached" in results(server.requests[2])[0]
    world.environment |= {
        "STENO_TOOLS_DELEGATE_LIMIT_S": "60",
        "STENO_TOOLS_DELEGATE_STEPS_MAX": "2",
    }
    again = Reply(tools=(("read_file", '{"path": "x"}'),))
    server.requests.clear()
    server.replies = [DELEGATES, again, again, Reply(("It was cut short.",))]
    assert world.steno("run", "do it", "--yes") == "It was cut short.\n"
    assert "failed: budget" in results(server.requests[3])[0]


def test_few_helpers_work_at_once_and_a_stop_reaches_those_that_wait(
    world: World, server: ModelServer
) -> None:
    def choose(request: dict[str, Any]) -> Reply:
        last = request["messages"][-1]
        if last["content"] == "count the files":
            return Reply(("There are ", "3."), held=True)
        return Reply(("done",)) if last["role"] == "tool" else Reply(tools=(*DELEGATES.tools * 9,))

    server.choose = choose
    with world.start("run", "do it", "--yes", "--key", "k") as program:
        wait_until(lambda: len(server.requests) == 5, "four helpers")
        assert len(world.sessions()) == 5
        world.steno("interrupt", parent_of(world))
        assert program.end() == 130
    assert len(server.requests) == 5, "those that waited never began"
    assert [m["state"] for m in world.messages(parent_of(world), "tool")] == ["interrupted"] * 9
    server.go_on()
    server.requests.clear()
    assert world.steno("run", "again", "--yes") == "done\n"
    assert sum("There are 3." in text for text in results(server.requests[-1])) == 9
    assert server.most_in_flight <= 5


def test_a_helper_cannot_ask_anybody(world: World, server: ModelServer) -> None:
    server.replies = [
        DELEGATES,
        Reply(tools=(("shell", json.dumps({"command": "touch ran"})),)),
        Reply(("I may not.",)),
        Reply(("done",)),
    ]
    assert world.steno("run", "do it", "--allow", "delegate") == "done\n"
    assert "nobody to ask" in results(server.requests[2])[0]
    assert not (world.work / "ran").exists()
