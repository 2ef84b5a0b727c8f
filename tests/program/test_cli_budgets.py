"""Budgets end a turn in order, and what was spent can be seen."""

import json
import time

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_views import complaint
from tests.program.world import World, wait_until

CALL = Reply(tools=(("shell", '{"command": "echo run >> ran.txt"}'),))


def budget(world: World, **limits: object) -> None:
    world.environment |= {
        f"STENO_LIMITS_{name.upper()}": str(value) for name, value in limits.items()
    }


def last_turn(world: World, id: str) -> tuple[str, str]:
    turn = world.show(id)["turns"][-1]
    return turn["outcome"], turn["cause"]


@pytest.mark.promise(6)
@pytest.mark.parametrize(
    ("limits", "requests", "said"),
    [
        ({"steps_max": 3}, 3, "3 steps"),
        ({"turn_tokens_max": 40}, 3, "40 tokens"),
        ({"session_steps_max": 2}, 2, "2 steps"),
        ({"session_tokens_max": 16}, 2, "16 tokens"),
    ],
)
@pytest.mark.suite("limits0-3-3 steps", "limits3-2-16 tokens")
def test_a_budget_ends_the_turn_and_says_which_and_what_to_do(
    world: World, server: ModelServer, limits: dict[str, object], requests: int, said: str
) -> None:
    server.replies = [CALL]
    budget(world, **limits)
    errors = complaint(world, "run", "go", "--yes", expect=1)
    assert said in errors
    assert next(iter(limits)) in errors
    id = world.only_session()
    assert last_turn(world, id) == ("failed", "budget")
    assert len(server.requests) == requests
    assert (world.work / "ran.txt").read_text().count("run") == requests
    assert [message["state"] for message in world.messages(id, "tool")] == ["complete"] * requests


def test_a_budget_of_a_turn_is_new_with_each_turn_and_that_of_a_session_is_not(
    world: World, server: ModelServer
) -> None:
    budget(world, turn_tokens_max=15, session_tokens_max=30)
    world.steno("run", "one", "--key", "k")
    world.steno("run", "two", "--key", "k")
    assert "the session reached" in complaint(world, "run", "three", "--key", "k", expect=1)
    assert len(server.requests) == 2
    id = world.only_session()
    assert [message["state"] for message in world.messages(id, "user")] == [
        "complete",
        "complete",
        "failed",
    ]
    fork = world.steno("fork", id, "--at", str(world.messages(id, "assistant")[0]["seq"])).strip()
    assert world.steno("run", "three", "--session", fork) == "ok\n"


@pytest.mark.promise(6, 9)
@pytest.mark.parametrize("hangs", ["stream", "silence", "tool"])
def test_a_turn_that_has_had_its_time_ends_and_keeps_what_was_shown(
    world: World, server: ModelServer, hangs: str
) -> None:
    sleep = Reply(("half",), tools=(("shell", '{"command": "sleep 60"}'),))
    replies = {
        "stream": Reply(("half",), then="hang"),
        "silence": Reply(then="hang"),
        "tool": sleep,
    }
    server.replies = [replies[hangs], Reply(("ok",))]
    budget(world, turn_s=1.5)
    began_s = time.monotonic()
    with world.start("run", "go", "--key", "k", "--yes") as program:
        assert program.end() == 1
        assert "1.5 s" in program.errors()
        shown = program.shown()
    assert time.monotonic() - began_s < 20
    id = world.only_session()
    assert last_turn(world, id) == ("failed", "budget")
    assert shown == ("" if hangs == "silence" else "half\n")
    assert "".join(message["text"] for message in world.messages(id, "assistant")) == shown.strip()
    assert world.steno("run", "go on", "--key", "k") == "ok\n"


def test_the_time_of_a_session_is_that_of_its_models_and_tools(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("slow",), delay_s=0.6), Reply(("ok",))]
    budget(world, session_s=0.5)
    assert world.steno("run", "one", "--key", "k") == "slow\n"
    assert "0.5 s of work" in complaint(world, "run", "two", "--key", "k", expect=1)
    assert len(server.requests) == 1


def test_waiting_for_approval_takes_no_time_of_the_turn(world: World, server: ModelServer) -> None:
    server.replies = [CALL, Reply(("ok",))]
    budget(world, turn_s=1.0)
    with world.start("run", "go", "--ask", "wait") as program:
        wait_until(lambda: "[]" not in world.steno("approvals", "--json"), "the question")
        time.sleep(1.5)
        world.steno("approve", world.only_session())
        assert program.end() == 0, program.errors()
        assert program.shown() == "ok\n"


@pytest.mark.promise(8)
def test_usage_and_context_are_shown_and_unknown_is_not_zero(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("one",)), Reply(("two",), usage=False), Reply(("three",))]
    world.environment["STENO_MODEL_CONTEXT_TOKENS"] = "5000"
    usage = {
        "calls": 1,
        "unreported": 0,
        "input": 10,
        "output": 5,
        "cached": None,
        "reasoning": None,
    }
    world.steno("run", "one", "--key", "k")
    id = world.only_session()
    assert (world.show(id)["usage"], world.sessions()[0]["usage"]) == (usage, usage)
    assert world.show(id)["context"] == {"tokens": 15, "max": 5000}
    assert world.sessions()[0]["context_tokens"] == 15
    world.steno("run", "two", "--key", "k")
    assert world.show(id)["usage"] == usage | {"calls": 2, "unreported": 1}
    assert world.sessions()[0]["usage"] == world.show(id)["usage"]
    assert world.sessions()[0]["context_tokens"] is None
    assert "1 without a count" in world.steno("show", id)
    assert "?" in world.steno("sessions")
    world.steno("verify")


def test_a_session_that_nobody_answered_has_unknown_usage(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("one",), usage=False)]
    world.steno("run", "one")
    assert world.sessions()[0]["usage"]["input"] is None
    assert world.show(world.only_session())["usage"]["output"] is None
    assert "tokens used: unknown" in world.steno("show", world.only_session())


def test_the_context_of_a_single_model_can_be_set(world: World, server: ModelServer) -> None:
    world.home.mkdir(exist_ok=True)
    (world.home / "config.toml").write_text(
        '[model]\ncontext_tokens = 7\n[contexts]\n"openai-chat:test" = 40000\n'
    )
    world.steno("run", "one")
    assert world.show(world.only_session())["context"]["max"] == 40_000


def test_a_budget_that_means_nothing_is_refused(world: World) -> None:
    budget(world, turn_tokens_max=-1)
    assert "STENO_LIMITS_TURN_TOKENS_MAX" in complaint(world, "run", "hi", expect=2)
    assert json.loads(world.steno("sessions", "--json", expect=2) or "[]") == []
