"""Killed at every fact boundary and at random instants, stopped by every signal, with a full disk
and a silent model: what was shown is stored, nothing is doubled, no tool runs twice, the next
request is valid for two providers, and the session goes on."""

import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chance import chance_of
from tests.models.rules import check
from tests.program.model_server import ModelServer, Reply
from tests.program.test_disk import small_disk as small_disk
from tests.program.test_run import said
from tests.program.world import World, wait_until

KINDS = ("openai-chat", "anthropic")
PROMPT = "do three things"
SCRIPT = "step 0 going step 1 going step 2 going all done"
TOOLS = 3


def turn_with_three_tools(log: Path) -> list[Reply]:
    """Two pieces and a tool, three times; then two pieces. Each tool leaves a line that says which
    it was."""
    commands = [json.dumps({"command": f"echo run {i} >> {log}; echo out"}) for i in range(TOOLS)]
    steps = [
        Reply((f"step {i} ", "going "), tools=(("shell", commands[i]),), delay_s=0.02)
        for i in range(TOOLS)
    ]
    return [*steps, Reply(("all ", "done"), delay_s=0.02)]


@contextlib.contextmanager
def three_tools(tmp_path: Path, kind: str) -> Iterator[tuple[World, ModelServer]]:
    with ModelServer(*turn_with_three_tools(tmp_path / "ran.txt")) as server:
        yield World(tmp_path, server.url, f"{kind}:test"), server


def runs(world: World) -> list[str]:
    log = world.home.parent / "ran.txt"
    return log.read_text().splitlines() if log.exists() else []


def check_after(world: World, server: ModelServer, shown: str) -> None:
    """One more turn, in both wire formats, each from the same bytes on disk."""
    found = world.sessions()
    if not found:
        assert shown == ""
        return  # stopped before the input was accepted: nothing was promised
    (session,) = found
    before = world.show(str(session["id"]))
    stored = "".join(
        message["text"] for message in before["messages"] if message["role"] == "assistant"
    )
    assert stored.startswith(shown.replace("\n", "")), (stored, shown)
    assert SCRIPT.startswith(stored), (
        "exactly the finished prefix: nothing doubled, nothing made up"
    )
    assert [message["text"] for message in before["messages"] if message["role"] == "user"] == [
        PROMPT
    ]
    assert all(turn["outcome"] in ("done", "interrupted", "failed") for turn in before["turns"])
    calls = sum(len(message["tool_calls"]) for message in before["messages"])
    outcomes = [message["state"] for message in before["messages"] if message["role"] == "tool"]
    assert len(outcomes) == calls, "every call has one outcome"
    ran = runs(world)
    assert len(set(ran)) == len(ran), "no tool ran twice"
    assert len(ran) <= calls, "no tool ran before its call was stored"
    assert outcomes.count("complete") <= len(ran)
    assert json.loads(world.steno("verify", "--json"))["damage"] == []
    assert len(server.requests) <= before["usage"]["calls"], "every call that arrived is recorded"
    last = server.requests[-1] if server.requests else None
    for kind in KINDS:
        one_more_turn(world.copied(kind), server, kind, before)
        if stored and last is not None and world.environment["STENO_MODEL"] == f"{kind}:test":
            assert repeats(server.requests[-1], last), (
                "the request after it repeats the last one before it"
            )
    assert runs(world) == ran, "what had begun is not run again"


def repeats(request: dict[str, Any], earlier: dict[str, Any]) -> bool:
    """Whether a request begins with what an earlier one said, without the marks for a provider's
    cache."""
    told = [
        json.dumps(
            json.loads(json.dumps(one["messages"]), object_hook=_unmarked), ensure_ascii=False
        )
        for one in (request, earlier)
    ]
    same = all(request.get(name) == earlier.get(name) for name in ("system", "tools"))
    return same and told[0].startswith(
        told[1].removesuffix("]").removesuffix("}").removesuffix("]")
    )


def _unmarked(value: dict[str, Any]) -> dict[str, Any]:
    value.pop("cache_control", None)
    return value


def one_more_turn(world: World, server: ModelServer, kind: str, before: dict[str, Any]) -> None:
    server.replies = [Reply(("after it",))]
    id = str(before["id"])
    assert (
        world.steno("run", "and now?", "--session", id, "--model", f"{kind}:test") == "after it\n"
    )
    check(kind, server.requests[-1])
    assert json.dumps(server.requests[-1]).count("and now?") == 1
    after = world.show(id)
    texts = [(message["role"], message["text"]) for message in before["messages"]]
    assert [(message["role"], message["text"]) for message in after["messages"]][
        : len(texts)
    ] == texts
    waiting = [message for message in before["messages"] if message["state"] == "pending"]
    answered_first = ["after it" for _ in waiting]
    assert [message["text"] for message in after["messages"]][len(texts) :] == [
        *answered_first,
        "and now?",
        "after it",
    ]
    assert after["turns"][: len(before["turns"])] == before["turns"], (
        "the correction is stored once, as it was shown"
    )
    assert len(after["turns"]) == len(before["turns"]) + len(waiting) + 1


# --- SIGKILL --------------------------------------------------------------------------------------


def stop_at_random(
    tmp_path: Path, sample: int, kind: str, number: signal.Signals = signal.SIGKILL
) -> None:
    chance = chance_of(number.name, kind, sample)
    with three_tools(tmp_path, kind) as (world, server):
        with world.start_anew("run", PROMPT, "--yes") as program:
            wait_until(
                lambda: len(server.requests) >= 1 or program.process.poll() is not None,
                "the first request",
            )
            time.sleep(chance.uniform(0, 0.8))
            program.signal(number)
            program.end()
            shown = program.shown()
        check_after(world, server, shown)


@pytest.mark.promise(2)
@pytest.mark.promise(5)
@pytest.mark.promise(19)
@pytest.mark.promise(34)
@pytest.mark.promise(35)
@pytest.mark.parametrize("sample", range(215))
@pytest.mark.suite("0", "1", "2", "3", "4")
def test_a_kill_at_a_random_instant_loses_nothing_shown_and_doubles_nothing(
    tmp_path: Path, sample: int
) -> None:
    stop_at_random(tmp_path, sample, KINDS[sample % 2])


BOUNDARIES = [(when, n) for when in ("before", "after") for n in range(1, 32)]
"""Every fact and every piece of such a turn, and a few more: commits may join pieces, so their
number varies."""


def kill_at(tmp_path: Path, kind: str, when: str, n: int) -> None:
    with three_tools(tmp_path, kind) as (world, server):
        with world.start_dying(when, n, "run", PROMPT, "--yes") as program:
            status = program.end()
            shown = program.shown()
        assert status == -signal.SIGKILL if n <= 17 else status in (0, -signal.SIGKILL)
        check_after(world, server, shown)


@pytest.mark.promise(4)
@pytest.mark.promise(34)
@pytest.mark.promise(35)
@pytest.mark.parametrize(("when", "n"), BOUNDARIES)
@pytest.mark.suite("before-1", "after-3", "before-5", "after-6", "before-8", "after-17")
def test_a_kill_at_any_boundary_leaves_exactly_the_finished_prefix(
    tmp_path: Path, when: str, n: int
) -> None:
    kill_at(tmp_path, KINDS[(n + (when == "after")) % 2], when, n)


# --- the other ways to end ------------------------------------------------------------------------


@pytest.mark.promise(6)
@pytest.mark.promise(35)
@pytest.mark.parametrize("sample", range(22))
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.suite("SIGINT-0", "SIGTERM-1", "SIGHUP-2")
def test_a_signal_at_a_random_instant_leaves_the_same_history_as_a_kill(
    tmp_path: Path, number: signal.Signals, sample: int
) -> None:
    stop_at_random(tmp_path, sample, KINDS[sample % 2], number)


@pytest.mark.promise(6)
@pytest.mark.promise(12)
@pytest.mark.promise(35)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.suite(
    "SIGINT-openai-chat", "SIGTERM-anthropic", "SIGHUP-openai-chat", "SIGKILL-anthropic"
)
def test_a_model_that_falls_silent_in_the_third_step_is_stopped_with_everything_kept(
    tmp_path: Path, kind: str, number: signal.Signals
) -> None:
    with three_tools(tmp_path, kind) as (world, server):
        server.replies[2] = Reply(("step 2 ", "going "), then="hang")
        with world.start("run", PROMPT, "--yes") as program:
            program.wait_shown("step 2 going ")
            program.signal(number)
            assert program.end() == (-signal.SIGKILL if number == signal.SIGKILL else 130)
            shown = program.shown()
        assert runs(world) == ["run 0", "run 1"]
        assert world.sessions()[0]["last_turn"] != "done"
        check_after(world, server, shown)


@pytest.mark.promise(3)
@pytest.mark.promise(6)
@pytest.mark.promise(35)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.suite("anthropic")
def test_a_disk_that_fills_up_in_the_middle_of_a_turn_loses_nothing_shown(
    tmp_path: Path, small_disk: Path, kind: str
) -> None:
    filler = small_disk / "filler"
    with three_tools(tmp_path, kind) as (world, server):
        server.replies[1] = Reply(tuple("words " * 10 for _ in range(400)), delay_s=0.002)
        with world.start("run", PROMPT, "--yes") as program:
            program.wait_shown("words words")
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * 4096)
            status = program.end()
            shown = program.shown()
            errors = program.errors()
        filler.unlink()
        assert status == 1, "a disk without room for the text fails the turn"
        assert "the disk is full" in errors
        (session,) = world.sessions()
        stored = "".join(
            message["text"] for message in world.messages(str(session["id"]), "assistant")
        )
        assert stored.startswith(shown.replace("\n", ""))
        for other in KINDS:
            one_more_turn(world.copied(other), server, other, world.show(str(session["id"])))


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
    server.replies = [
        Reply(("going",), then="hang"),
        Reply(("answer to two",)),
        Reply(("answer to three",)),
    ]
    with world.start("run", "one", "--key", "k") as first:
        first.wait_shown("going")
        with world.start("run", "two", "--key", "k") as second:
            wait_until(
                lambda: len(world.messages(world.only_session(), "user")) == 2, "the second input"
            )
            second.kill()
        first.kill()
    id = world.only_session()
    assert [message["state"] for message in world.messages(id, "user")] == ["complete", "pending"]
    assert world.steno("run", "three", "--key", "k") == "answer to three\n"
    assert [text.split("\n")[0] for text in said(server.requests[1])][:2] == ["one", "two"]
