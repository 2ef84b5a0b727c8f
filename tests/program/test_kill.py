"""Killed at every fact boundary and at random instants: what was shown is stored, nothing is doubled, the next request
is valid, and the session goes on."""

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_run import said
from tests.program.world import World, wait_until

TOOL = "sh -c 'echo run >> {log}; echo out'"


def turn_with_three_tools(log: Path) -> list[Reply]:
    command = json.dumps({"command": TOOL.format(log=log)})
    steps = [Reply((f"step {i} ", "going "), tools=(("shell", command),), delay_s=0.02) for i in range(3)]
    return [*steps, Reply(("all ", "done"), delay_s=0.02)]


def valid_for_chat(request: dict[str, Any]) -> bool:
    """Every call is followed by its outcome, and nothing is empty."""
    open_calls: list[str] = []
    for message in request["messages"]:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            return False
        open_calls = [call["id"] for call in message.get("tool_calls") or []]
        if not message.get("content") and not open_calls:
            return False
    return not open_calls


def check_after_kill(world: World, server: ModelServer, shown: str, log: Path) -> None:
    found = world.sessions()
    if not found:
        return  # killed before the input was accepted: nothing was promised
    (session,) = found
    id = str(session["id"])
    before = world.show(id)
    stored = "".join(message["text"] for message in before["messages"] if message["role"] == "assistant")
    assert stored.startswith(shown.replace("\n", "")), (stored, shown)
    assert all(turn["outcome"] in ("done", "interrupted") for turn in before["turns"])
    ran = log.read_text().count("run") if log.exists() else 0
    server.replies = [Reply(("after the kill",))]
    assert world.steno("run", "and now?", "--session", id).endswith("after the kill\n")
    assert valid_for_chat(server.requests[-1])
    assert said(server.requests[-1])[-1].startswith("and now?") or "and now?" in said(server.requests[-1])
    assert ran == (log.read_text().count("run") if log.exists() else 0)
    after = world.show(id)
    texts = [message["text"] for message in before["messages"]]
    assert [message["text"] for message in after["messages"]][: len(texts)] == texts
    assert [message["text"] for message in after["messages"]].count("and now?") == 1
    assert json.loads(world.steno("verify", "--json"))["damage"] == []


@pytest.mark.promise(2)
@pytest.mark.promise(5)
@pytest.mark.promise(19)
@pytest.mark.promise(34)
@pytest.mark.promise(35)
@pytest.mark.parametrize("sample", range(15))
def test_a_kill_at_a_random_instant_loses_nothing_shown_and_doubles_nothing(tmp_path: Path, sample: int) -> None:
    kill_at_random(tmp_path)


def kill_at_random(tmp_path: Path) -> None:
    log = tmp_path / "ran.txt"
    seed = int.from_bytes(os.urandom(4), "big")
    with ModelServer(*turn_with_three_tools(log)) as server:
        world = World(tmp_path, server.url)
        with world.start("run", "do three things", "--yes") as program:
            wait_until(lambda: len(server.requests) >= 1 or program.process.poll() is not None, "the first request")
            time.sleep(random.Random(seed).uniform(0, 0.6))
            shown = program.kill()
        check_after_kill(world, server, shown, log)


BOUNDARIES = [(when, n) for when in ("before", "after") for n in range(1, 17)]
SAMPLE = random.Random(int(time.time()) // 86_400).sample(BOUNDARIES, 6)


def kill_at(tmp_path: Path, when: str, n: int) -> None:
    log = tmp_path / "ran.txt"
    with ModelServer(*turn_with_three_tools(log)) as server:
        world = World(tmp_path, server.url)
        with world.start_dying(when, n, "run", "do three things", "--yes") as program:
            status = program.end()
            shown = program.shown()
        assert status in (0, -signal.SIGKILL)
        check_after_kill(world, server, shown, log)


@pytest.mark.promise(4)
@pytest.mark.promise(34)
@pytest.mark.parametrize(("when", "n"), SAMPLE)
def test_a_kill_at_a_fact_boundary_leaves_exactly_the_finished_prefix(tmp_path: Path, when: str, n: int) -> None:
    kill_at(tmp_path, when, n)


@pytest.mark.torture
@pytest.mark.parametrize(("when", "n"), BOUNDARIES)
def test_a_kill_at_any_fact_boundary_leaves_exactly_the_finished_prefix(tmp_path: Path, when: str, n: int) -> None:
    kill_at(tmp_path, when, n)


@pytest.mark.torture
@pytest.mark.parametrize("sample", range(200))
def test_two_hundred_kills_at_random_instants(tmp_path: Path, sample: int) -> None:
    kill_at_random(tmp_path)


@pytest.mark.promise(6)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_leave_what_was_shown(tmp_path: Path, number: signal.Signals) -> None:
    log = tmp_path / "ran.txt"
    with ModelServer(Reply(("some ", "text "), then="hang")) as server:
        world = World(tmp_path, server.url)
        with world.start("run", "tell me") as program:
            program.wait_shown("some text ")
            program.signal(number)
            assert program.end() == 130
            shown = program.shown()
        (session,) = world.sessions()
        assert session["last_turn"] == "interrupted"
        check_after_kill(world, server, shown.rstrip("\n"), log)


@pytest.mark.promise(40)
def test_the_request_after_a_kill_repeats_the_prefix_of_the_last_one_before_it(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("fine",)), Reply(("cut",), then="hang"), Reply(("ok",))]
    world.steno("run", "one", "--key", "k")
    with world.start("run", "two", "--key", "k") as program:
        program.wait_shown("cut")
        program.kill()
    world.steno("run", "three", "--key", "k")
    before, after = (json.dumps(request["messages"])[:-1] for request in server.requests[1:3])
    assert after.startswith(before)


@pytest.mark.promise(20)
def test_a_cut_off_turn_is_continued_once(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("half",), then="hang"), Reply((" and the rest",)), Reply(("later",))]
    with world.start("run", "tell me", "--key", "k") as program:
        program.wait_shown("half")
        program.kill()
    id = world.only_session()
    assert world.steno("continue", id) == " and the rest\n"
    assert "cut off" in json.dumps(server.requests[1]["messages"][-1])
    world.steno("continue", id, expect=1)
    world.steno("run", "next", "--key", "k")
    assert "cut off" not in json.dumps(server.requests[2]["messages"][-1])
    assert not any("cut off" in message["text"] for message in world.messages(id))


@pytest.mark.promise(20)
def test_a_users_stop_is_never_continued(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("half",), then="hang"), Reply(("ok",))]
    with world.start("run", "tell me", "--key", "k") as program:
        program.wait_shown("half")
        program.signal(signal.SIGINT)
        program.end()
    world.steno("continue", world.only_session(), expect=1)
    assert len(server.requests) == 1


@pytest.mark.promise(22)
def test_an_input_that_was_accepted_while_busy_is_still_pending_after_a_kill_and_runs_first(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("going",), then="hang"), Reply(("answer to two",)), Reply(("answer to three",))]
    with world.start("run", "one", "--key", "k") as first:
        first.wait_shown("going")
        with world.start("run", "two", "--key", "k") as second:
            wait_until(lambda: len(world.messages(world.only_session(), "user")) == 2, "the second input")
            second.kill()
        first.kill()
    id = world.only_session()
    assert [message["state"] for message in world.messages(id, "user")] == ["complete", "pending"]
    assert world.steno("run", "three", "--key", "k") == "answer to three\n"
    assert [text.split("\n")[0] for text in said(server.requests[1])][:2] == ["one", "two"]
