"""Output that is too long for a request: stored once, told in part, read back in full."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.world import World, wait_until

SIZE = 177_000
STEPS = 50


def some_text(size: int) -> str:
    """Lines that do not compress."""
    return "".join(random.Random(53).choices("abcdefghijklmnopqrstuvwxyz 0123456789\n", k=size))


def results(request: dict[str, Any]) -> list[str]:
    return [message["content"] for message in request["messages"] if message["role"] == "tool"]


def store_size(world: World) -> int:
    return sum(file.stat().st_size for file in world.home.rglob("*") if file.is_file())


def shell(command: str) -> Reply:
    return Reply(tools=(("shell", json.dumps({"command": command})),))


def hash_in(told: str) -> str:
    return told.split('read_output with output "')[1].split('"')[0]


def grown(world: World, server: ModelServer, command: str, calls: int) -> int:
    """How much the store grows by running a command many times."""
    world.steno("run", "first", "--yes")
    before = store_size(world)
    for _ in range(calls // STEPS):
        server.requests.clear()
        server.bodies.clear()
        server.replies = [*[shell(command)] * STEPS, Reply(("done",))]
        assert world.steno("run", "go", "--yes") == "done\n"
        assert len(server.requests) == STEPS + 1
    return store_size(world) - before


@pytest.mark.promise(53)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("calls", [40, pytest.param(1_000, marks=pytest.mark.torture)])
def test_the_same_output_many_times_grows_the_store_by_less_than_twice_its_size(
    tmp_path: Path, server: ModelServer, calls: int
) -> None:
    """What the calls themselves take is not counted: the same calls with a short output are the
    measure. It was 307,200 bytes more for a thousand calls."""
    long, short = World(tmp_path / "long", server.url), World(tmp_path / "short", server.url)
    for world, size in ((long, SIZE), (short, 4)):
        (world.work / "output").write_text(some_text(size))
        world.environment["STENO_LIMITS_STEPS_MAX"] = str(STEPS + 1)
    more = grown(long, server, "cat output", calls) - grown(short, server, "cat output", calls)
    assert more < 2 * SIZE


@pytest.mark.promise(53)
def test_long_output_is_told_in_part_and_read_back_in_full(
    world: World, server: ModelServer
) -> None:
    text = some_text(SIZE)
    (world.work / "output").write_text(text)
    server.replies = [shell("cat output; exit 3"), Reply(("done",))]
    world.steno("run", "look", "--yes", "--key", "k")
    (told,) = results(server.requests[1])
    assert len(told) < 12_000
    assert text.startswith(told[:5_000])
    assert text[-3_000:] in told
    assert "[exit status 3]" in told
    (tool,) = world.messages(world.only_session(), "tool")
    assert tool["text"].removesuffix("\n[exit status 3]") == text
    read = ""
    while len(read) < SIZE:
        asked = json.dumps({"output": hash_in(told), "offset": len(read)})
        server.replies = [Reply(tools=(("read_output", asked),)), Reply(("done",))]
        server.requests.clear()
        world.steno("run", "more", "--key", "k")
        part = results(server.requests[1])[-1]
        read += part.rpartition("[characters ")[0].removesuffix("\n")[: SIZE - len(read)]
        if not text.startswith(read):
            read += "\n"
        assert text.startswith(read)
    assert read == text


@pytest.mark.promise(60)
def test_outputs_of_other_sessions_cannot_be_read(world: World, server: ModelServer) -> None:
    (world.work / "output").write_text(some_text(SIZE))
    server.replies = [shell("cat output"), Reply(("done",))]
    world.steno("run", "look", "--yes", "--key", "one")
    asked = json.dumps({"output": hash_in(results(server.requests[1])[0])})
    server.replies = [Reply(tools=(("read_output", asked),)), Reply(("done",))]
    server.requests.clear()
    world.steno("run", "read it", "--key", "two")
    (refused,) = results(server.requests[1])
    assert "this session has no output" in refused


@pytest.mark.promise(40)
def test_a_request_with_long_output_is_the_same_in_every_process(
    world: World, server: ModelServer
) -> None:
    (world.work / "output").write_text(some_text(SIZE))
    server.replies = [shell("cat output"), Reply(("done",))]
    world.steno("run", "look", "--yes", "--key", "k")
    world.steno("run", "again", "--key", "k")
    before, after = server.requests[1]["messages"], server.requests[2]["messages"]
    assert after[: len(before)] == before


@pytest.mark.promise(5)
def test_what_was_shown_of_long_output_survives_a_kill(world: World, server: ModelServer) -> None:
    text = some_text(SIZE)
    (world.work / "output").write_text(text)
    server.replies = [shell("cat output; touch said; sleep 60"), Reply(("done",))]
    with world.start("run", "look", "--yes", "--key", "k") as program:
        wait_until(lambda: (world.work / "said").exists(), "the output")
        program.kill()
    (tool,) = world.messages(world.only_session(), "tool")
    assert tool["state"] == "interrupted"
    assert text.startswith(tool["text"])
    assert len(tool["text"]) == 30_000


@pytest.mark.promise(60)
def test_a_redacted_output_is_gone_from_every_file(world: World, server: ModelServer) -> None:
    secret = "the-secret-of-the-output"
    (world.work / "output").write_text(some_text(60_000) + secret)
    server.replies = [shell("cat output"), Reply(("done",))]
    world.steno("run", "look", "--yes", "--key", "k")
    assert any(
        secret.encode() in file.read_bytes() for file in world.home.rglob("*") if file.is_file()
    )
    id = world.only_session()
    (tool,) = world.messages(id, "tool")
    world.steno("redact", id, "--seq", str(tool["seq"]), "--yes")
    assert not any(
        secret.encode() in file.read_bytes() for file in world.home.rglob("*") if file.is_file()
    )
