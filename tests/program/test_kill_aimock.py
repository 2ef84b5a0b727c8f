"""The same kills against a model server that none of us wrote, in the two formats that it speaks
and a kill must not break: Messages and Responses. It refuses what it cannot read, so an answer says
that the request was valid."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chance import chance_of
from tests.models.aimock import Aimock, aimock
from tests.program.test_kill import runs
from tests.program.world import World

KINDS = ("anthropic", "openai-responses")
TEXT = "I do three things at once, and tell you about each of them. "
DONE = "All three are done."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aimock]:
    calls = [
        {"name": "shell", "arguments": f'{{"command":"echo run {i} >> ../ran.txt"}}', "id": f"c{i}"}
        for i in range(3)
    ]
    fixtures: list[dict[str, Any]] = [
        {"match": {"userMessage": "and now?"}, "response": {"content": "after it"}},
        {"match": {"userMessage": "Note from the runtime"}, "response": {"content": "after it"}},
        {
            "match": {"userMessage": "do three", "hasToolResult": True},
            "response": {"content": DONE},
            "latency": 20,
        },
        {
            "match": {"userMessage": "do three"},
            "response": {"content": TEXT, "toolCalls": calls},
            "latency": 20,
        },
    ]
    with aimock(fixtures, tmp_path_factory.mktemp("aimock")) as running:
        yield running


def kill_once(tmp_path: Path, model: Aimock, kind: str, sample: int) -> None:
    world = World(tmp_path, f"{model.url}/v1", f"{kind}:test")
    with world.start_anew("run", "do three things", "--yes", "--key", "k") as program:
        time.sleep(chance_of("aimock", kind, sample).uniform(0.2, 1.6))
        program.signal(signal.SIGKILL)
        program.end()
        shown = program.shown().replace("\n", "")
    if not world.sessions():
        return
    id = world.only_session()
    stored = "".join(message["text"] for message in world.messages(id, "assistant"))
    assert stored.startswith(shown)
    assert (TEXT + DONE).startswith(stored)
    ran = runs(world)
    assert len(set(ran)) == len(ran) <= 3
    pending = any(message["state"] == "pending" for message in world.messages(id, "user"))
    assert world.steno("run", "and now?", "--key", "k", "--yes") == "after it\n"
    assert pending or runs(world) == ran, "what had begun is not run again"
    assert [message["text"] for message in world.messages(id, "user")] == [
        "do three things",
        "and now?",
    ]


@pytest.mark.promise(4)
@pytest.mark.promise(5)
@pytest.mark.promise(35)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sample", range(28))
@pytest.mark.suite("0-anthropic", "1-openai-responses")
def test_a_kill_at_a_random_instant_leaves_a_session_that_goes_on(
    tmp_path: Path, model: Aimock, kind: str, sample: int
) -> None:
    kill_once(tmp_path, model, kind, sample)
