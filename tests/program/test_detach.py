"""Turns without a terminal: accepted, carried by a process of their own, watched by whoever
likes."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_approvals_elsewhere import ASKS, pending, ran, wait_pending
from tests.program.test_cli_views import complaint
from tests.program.world import World, wait_until

PIECES = tuple(f"piece {number} " for number in range(12))


@pytest.fixture
def processes() -> Iterator[list[int]]:
    """Detached processes that a test began; those that still live are ended by their number."""
    begun: list[int] = []
    yield begun
    for process in begun:
        if alive(process):
            os.kill(process, signal.SIGKILL)


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def detach(world: World, processes: list[int], *words: str) -> tuple[str, int, int]:
    """Session, input, process."""
    lines = [
        json.loads(line)
        for line in world.steno("run", *words, "--detach", "--output", "ndjson").splitlines()
    ]
    assert [line["type"] for line in lines] == ["session", "accepted"]
    processes.append(lines[1]["process"])
    return lines[0]["id"], lines[1]["seq"], lines[1]["process"]


def follow(world: World, id: str, *words: str, expect: int = 0) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in world.steno(
            "follow", id, "--output", "ndjson", *words, expect=expect
        ).splitlines()
    ]


def text_of(lines: list[dict[str, Any]]) -> str:
    """Every piece once and in order, or this fails."""
    text = ""
    for line in lines:
        if line["type"] == "text":
            assert line["offset"] == len(text)
            text += line["text"]
    return text


def turns(world: World, id: str) -> list[tuple[str, str]]:
    return [(turn["outcome"], turn["cause"]) for turn in world.show(id)["turns"]]


@pytest.mark.promise(2, 22)
def test_a_detached_run_returns_when_the_input_is_stored(
    world: World, server: ModelServer, processes: list[int]
) -> None:
    server.replies = [Reply(("never",), then="hang")]
    began_s = time.monotonic()
    id, input, process = detach(world, processes, "hi")
    assert time.monotonic() - began_s < 10
    (said,) = world.messages(id, "user")
    assert (said["seq"], said["text"]) == (input, "hi")
    wait_until(lambda: len(server.requests) == 1, "the turn to be carried")
    assert os.getsid(process) == process
    assert os.getsid(process) != os.getsid(0)


@pytest.mark.promise(36)
def test_a_client_that_leaves_does_not_stop_the_turn_and_misses_nothing(
    world: World, server: ModelServer, processes: list[int]
) -> None:
    server.replies = [Reply(PIECES, held=True)]
    id, _, process = detach(world, processes, "hi")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with world.start("follow", id, "--output", "ndjson") as watching:
            watching.wait_shown("piece 1 ")
            watching.signal(number)
            watching.end()
        assert alive(process)
    with world.start("follow", id) as watching:
        watching.wait_shown("piece 2 ")
        assert watching.process.stdout is not None
        watching.process.stdout.close()
        assert world.show(id)["turns"][0]["outcome"] is None
        server.go_on()
        watching.process.wait(30)
        assert watching.process.returncode == 1
    lines = follow(world, id)
    assert text_of(lines) == "".join(PIECES)
    assert lines[-1]["outcome"] == "done"
    assert [message["text"] for message in world.messages(id, "assistant")] == ["".join(PIECES)]
    assert turns(world, id) == [("done", "")]
    assert text_of(follow(world, id)) == "".join(PIECES)  # also when it is over


@pytest.mark.promise(38)
def test_the_end_of_a_killed_detached_turn_is_recorded_once_and_can_be_taken_up(
    world: World, server: ModelServer, processes: list[int]
) -> None:
    server.replies = [Reply(("half",), then="hang"), Reply((" and the rest",))]
    id, _, process = detach(world, processes, "hi")
    with world.start("follow", id) as watching:
        watching.wait_shown("half")
        os.kill(process, signal.SIGKILL)
        assert watching.end() == 130
        assert watching.shown() == "half\n"
        assert f"steno continue {id}" in watching.errors()
    for _ in range(2):
        assert turns(world, id) == [("interrupted", "killed")]
        assert follow(world, id, expect=130)[-1]["cause"] == "killed"
    assert world.steno("continue", id) == " and the rest\n"
    assert turns(world, id) == [("interrupted", "killed"), ("done", "")]
    assert "nothing to continue" in complaint(world, "continue", id, expect=1)
    assert turns(world, id) == [("interrupted", "killed"), ("done", "")]


@pytest.mark.promise(22, 38)
def test_an_input_whose_process_died_before_it_began_waits_and_is_run_by_continue(
    world: World, server: ModelServer, processes: list[int]
) -> None:
    server.replies = [Reply(("one",), then="hang"), Reply(("two",)), Reply(("three",))]
    with world.start("run", "one", "--key", "k") as holding:
        holding.wait_shown("one")
        id, input, process = detach(world, processes, "two", "--key", "k")
        os.kill(process, signal.SIGKILL)
        wait_until(lambda: not alive(process), "the end of the process")
        world.steno("interrupt", id)
        holding.end()
    assert [message["state"] for message in world.messages(id, "user")][-1] == "pending"
    assert world.steno("continue", id) == "two\n"
    assert turns(world, id) == [("interrupted", "user"), ("done", "")]
    assert follow(world, id, "--input", str(input))[-1]["outcome"] == "done"


@pytest.mark.promise(36)
def test_a_detached_turn_is_stopped_by_a_persons_word(
    world: World, server: ModelServer, processes: list[int]
) -> None:
    server.replies = [Reply(("half",), then="hang")]
    id, _, process = detach(world, processes, "hi")
    with world.start("follow", id) as watching:
        watching.wait_shown("half")
        world.steno("interrupt", id)
        assert watching.end() == 130
    assert turns(world, id) == [("interrupted", "user")]
    wait_until(lambda: not alive(process), "the end of the process")


@pytest.mark.promise(37)
def test_a_detached_turn_waits_for_approval(
    world: World, server: ModelServer, processes: list[int]
) -> None:
    server.replies = [ASKS, Reply(("It ran.",))]
    id, _, _ = detach(world, processes, "do it")
    (one,) = wait_pending(world)
    with world.start("follow", id) as watching:
        wait_until(lambda: "I will." in watching.shown(), "the turn to be watched")
        world.steno("approve", id, str(one["seq"]))
        assert watching.end() == 0
        assert watching.shown() == "I will. It ran.\n"
    assert ran(world) == 1
    assert pending(world) == []


@pytest.mark.promise(37)
def test_an_approval_outlives_its_detached_process(
    world: World, server: ModelServer, processes: list[int]
) -> None:
    server.replies = [ASKS, Reply(("It ran.",))]
    id, _, process = detach(world, processes, "do it")
    (one,) = wait_pending(world)
    os.kill(process, signal.SIGKILL)
    wait_until(lambda: not alive(process), "the end of the process")
    with world.start("follow", id) as watching:
        assert watching.end() == 130
        assert "waits for approval" in watching.errors()
    assert pending(world) == [one]
    world.steno("approve", id)
    assert world.steno("continue", id) == "I will. It ran.\n"
    assert ran(world) == 1


@pytest.mark.promise(16)
def test_the_same_input_id_is_answered_once(
    world: World, server: ModelServer, processes: list[int]
) -> None:
    words = ("hi", "--input-id", "m1")
    first, second = detach(world, processes, *words), detach(world, processes, *words)
    assert first[:2] == second[:2]
    assert text_of(follow(world, first[0])) == "ok"
    wait_until(lambda: not any(map(alive, processes)), "the end of both processes")
    assert len(server.requests) == 1


def test_a_detached_run_leaves_no_log_if_all_is_well(
    world: World, server: ModelServer, processes: list[int]
) -> None:
    session, input = world.steno("run", "hi", "--detach").split()
    assert text_of(follow(world, session, "--input", input)) == "ok"
    wait_until(
        lambda: list((world.home / "detached").iterdir()) == [], "the empty log to be removed"
    )
    assert (world.home / "detached").stat().st_mode & 0o077 == 0


def test_there_is_nothing_to_follow_where_nothing_was_said(
    world: World, server: ModelServer
) -> None:
    world.steno("run", "hi")
    id = world.only_session()
    assert text_of(follow(world, id)) == "ok"
    assert "no input 9999" in complaint(world, "follow", id, "--input", "9999", expect=2)
    complaint(world, "follow", "nosuchsession", expect=2)
