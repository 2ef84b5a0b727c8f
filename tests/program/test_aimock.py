"""The running program against a model server that none of us wrote, in all three formats: streamed
answers, tools, cut streams, errors, silence, and models that are changed in the middle. What it was
sent is read back from its own journal, which tells every format in the same words."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.models.aimock import Aimock, aimock
from tests.program.world import World

KINDS = ("openai-chat", "anthropic", "openai-responses")
PATHS = dict(zip(KINDS, ("/v1/chat/completions", "/v1/messages", "/v1/responses"), strict=True))
FACES = "Grüße, 世界 🙂🙂🙂 and 🙃🙃"
LONG = "one two three four five six seven eight nine ten"
CALLS = [
    {"name": "shell", "arguments": '{"command":"echo hello"}', "id": "c0"},
    {"name": "shell", "arguments": '{"command":"exit 3"}', "id": "c1"},
]


def every_turn() -> list[dict[str, Any]]:
    return [
        {
            "match": {"userMessage": "tools", "hasToolResult": True},
            "response": {"content": "Seen."},
        },
        {"match": {"userMessage": "plain"}, "response": {"content": FACES}},
        {
            "match": {"userMessage": "tools"},
            "response": {"content": "I look. ", "toolCalls": CALLS},
        },
        {"match": {"userMessage": "broke off"}, "response": {"content": " and the rest"}},
        {
            "match": {"userMessage": "cut"},
            "response": {"content": LONG},
            "latency": 10,
            "truncateAfterChunks": 8,
        },
        {
            "match": {"userMessage": "fail"},
            "response": {"error": {"message": "Oops", "type": "api_error"}, "status": 500},
        },
        {"match": {"userMessage": "silence"}, "response": {"content": LONG}, "latency": 60_000},
    ]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aimock]:
    with aimock(every_turn(), tmp_path_factory.mktemp("aimock")) as running:
        yield running


def world_at(tmp_path: Path, model: Aimock, kind: str) -> World:
    world = World(tmp_path, f"{model.url}/v1", f"{kind}:test")
    world.environment |= {"STENO_LIMITS_IDLE_S": "1.5", "STENO_LIMITS_ATTEMPTS_MAX": "2"}
    return world


def received(model: Aimock, since: int) -> list[dict[str, Any]]:
    """The requests since then, as the server understood them."""
    return [entry | {"messages": entry["body"]["messages"]} for entry in model.requests()[since:]]


def check_told(messages: list[dict[str, Any]]) -> None:
    """Calls are paired with results, nobody says nothing, and the last word is not the model's."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            assert message["content"].strip()
            continue
        calls = [call["id"] for call in message.get("tool_calls") or ()]
        assert not waiting or message["role"] == "assistant", (
            "calls are settled before anything else is said"
        )
        assert calls or message["content"].strip()
        waiting += calls
    assert waiting == []
    assert messages[-1]["role"] in ("user", "tool")


def spoken(messages: list[dict[str, Any]]) -> str:
    return json.dumps([message["content"] for message in messages], ensure_ascii=False)


@pytest.mark.promise(8, 9, 10, 35)
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.suite("openai-responses")
def test_whatever_the_server_does_is_stored_as_it_was_and_the_next_request_is_valid(
    tmp_path: Path, model: Aimock, kind: str
) -> None:
    world = world_at(tmp_path, model, kind)
    since = len(model.requests())
    said = {}
    for prompt, status in (
        ("plain", 0),
        ("tools", 0),
        ("cut", 0),
        ("fail", 1),
        ("silence", 1),
        ("plain again", 0),
    ):
        said[prompt] = world.steno("run", prompt, "--key", "k", "--yes", expect=status)
    assert said["plain"] == said["plain again"] == FACES + "\n"
    assert said["tools"] == "I look. Seen.\n"
    assert said["cut"].endswith(" and the rest\n")
    assert LONG.startswith(said["cut"].removesuffix(" and the rest\n"))
    assert said["fail"] == said["silence"] == ""
    shown = world.show(world.only_session())
    assert [(turn["outcome"], turn["cause"]) for turn in shown["turns"]] == [
        ("done", ""),
        ("done", ""),
        ("done", ""),
        ("failed", "server_error"),
        ("failed", "timeout"),
        ("done", ""),
    ]
    stored = "".join(
        message["text"] for message in shown["messages"] if message["role"] == "assistant"
    )
    assert stored == "".join(text.removesuffix("\n") for text in said.values())
    outcomes = {
        message["text"]: message["state"]
        for message in shown["messages"]
        if message["role"] == "tool"
    }
    assert outcomes["hello\n"] == "complete"
    requests = received(model, since)
    assert {entry["path"] for entry in requests} == {PATHS[kind]}
    assert len(requests) == shown["usage"]["calls"], (
        "every call that arrived is recorded, and no other"
    )
    for entry in requests:
        check_told(entry["messages"])
    last = spoken(requests[-1]["messages"])
    assert "fail" not in last, "a prompt that came to nothing is not told"
    assert "silence" not in last
    for text in (FACES, "I look. ", "hello", "Seen.", "broke off"):
        assert text in last


@pytest.mark.promise(35, 41)
def test_models_can_be_changed_in_every_direction(tmp_path: Path, model: Aimock) -> None:
    """Each ordered pair of formats, with calls of each in the history; the scripted model between
    two of them."""
    a, b, c = KINDS
    order = [a, b, a, c, b, c, a]
    assert len(set(pairwise(order))) == 6
    world = world_at(tmp_path, model, a)
    since = len(model.requests())
    for n, kind in enumerate(order):
        out = world.steno(
            "run", f"tools, time {n}", "--key", "k", "--yes", "--model", f"{kind}:test"
        )
        assert out == "I look. Seen.\n"
        echoed = world.steno("run", f"echo {n}", "--key", "k", "--model", "scripted:echo")
        assert echoed == f"echo {n}\n"
    requests = received(model, since)
    assert [entry["path"] for entry in requests] == [
        PATHS[kind] for kind in order for _ in range(2)
    ]
    for entry in requests:
        check_told(entry["messages"])
    for n in range(len(order)):
        last = spoken(requests[-1]["messages"])
        assert last.count(f"tools, time {n}") == 1
        assert last.count(f"echo {n}") == (2 if n < len(order) - 1 else 0)
    shown = world.show(world.only_session())
    assert {turn["outcome"] for turn in shown["turns"]} == {"done"}
