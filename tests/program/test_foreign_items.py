"""A conversation that another framework keeps, on the running program: shown, found, exported, gone
on with, and read back by the framework with what steno said."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.adapters.openai_agents import StenoSession
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World

BEGUN: list[dict[str, Any]] = [
    {"role": "user", "content": "Which animal is it?"},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":"fence"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "stripes"},
    {"type": "web_search_call", "id": "w1", "status": "completed", "action": {"query": "striped"}},
    {
        "role": "assistant",
        "content": [{"type": "output_text", "text": "A zebra.", "annotations": []}],
    },
]


def keep(world: World, *items: dict[str, Any]) -> None:
    world.home.mkdir(parents=True, exist_ok=True)
    session = StenoSession("alice", world.home / "store.db")
    asyncio.run(session.add_items(list(items)))
    session.close()


def items(world: World, limit: int | None = None) -> list[Any]:
    session = StenoSession("alice", world.home / "store.db")
    found = asyncio.run(session.get_items(limit))
    session.close()
    return found


@pytest.mark.promise(46, 76)
def test_what_a_framework_kept_is_shown_found_and_exported(world: World, tmp_path: Path) -> None:
    keep(world, *BEGUN)
    [listed] = world.sessions()
    assert (listed["title"], listed["messages"]) == ("Which animal is it?", 5)
    shown = [(one["role"], one["text"]) for one in world.messages(listed["id"])]
    assert shown[0] == ("user", "Which animal is it?")
    assert [role for role, _ in shown] == ["user", "assistant", "tool", "notice", "assistant"]
    assert "web_search_call" in shown[3][1]
    assert shown[4] == ("assistant", "A zebra.")
    assert "A zebra." in world.steno("show", listed["id"])
    hits = json.loads(world.steno("search", "zebra", "--json"))["hits"]
    assert [(hit["session"], hit["role"]) for hit in hits] == [(listed["id"], "assistant")]
    told = world.steno("export", listed["id"], "--markdown")
    assert told.index("Which animal") < told.index("stripes") < told.index("A zebra.")
    page = world.steno("export", listed["id"], "--html")
    assert "A zebra." in page
    world.steno("verify")


@pytest.mark.promise(9, 35, 76)
def test_a_conversation_goes_on_in_steno_and_in_the_framework(
    world: World, server: ModelServer
) -> None:
    keep(world, *BEGUN)
    id = world.only_session()
    server.replies = [Reply(("In a zoo, ", "surely."))]
    world.steno("run", "--session", id, "And where?")
    [asked] = server.requests
    said = [(one["role"], one.get("content")) for one in asked["messages"]]
    assert [role for role, _ in said if role != "system"] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert ("assistant", "A zebra.") in said
    assert "web_search_call" not in json.dumps(asked)
    back = items(world)
    assert back[: len(BEGUN)] == BEGUN
    assert back[len(BEGUN) :] == [
        {"role": "user", "content": "And where?"},
        {"role": "assistant", "content": "In a zoo, surely."},
    ]
    assert items(world, 1) == back[-1:]
    keep(world, {"role": "user", "content": "Thank you."})
    assert items(world) == [*back, {"role": "user", "content": "Thank you."}]
    assert [one["text"] for one in world.messages(id)][-3:] == [
        "And where?",
        "In a zoo, surely.",
        "Thank you.",
    ]


def test_what_steno_said_can_be_taken_out_of_the_framework_s_items(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("hello",))]
    world.steno("run", "--key", "openai:alice", "hi")
    assert [one["content"] for one in items(world)] == ["hi", "hello"]

    async def change() -> list[Any]:
        session = StenoSession("alice", world.home / "store.db")
        popped = await session.pop_item()
        left = await session.get_items()
        await session.clear_session()
        empty = await session.get_items()
        await session.add_items([{"role": "user", "content": "again"}])
        after = await session.get_items()
        session.close()
        return [popped, left, empty, after]

    hi, hello = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}
    again = {"role": "user", "content": "again"}
    assert asyncio.run(change()) == [hello, [hi], [], [again]]
    [listed] = world.sessions()
    assert [one["text"] for one in world.messages(listed["id"])] == ["hi", "hello", "again"]


@pytest.mark.promise(60)
def test_a_redacted_item_is_gone_everywhere_and_the_conversation_goes_on(
    world: World, server: ModelServer
) -> None:
    keep(world, {"role": "user", "content": "my PIN is 918273"}, BEGUN[-1])
    id = world.only_session()
    world.steno("redact", id, "2", "--yes")
    assert world.sessions()[0]["title"] == "[redacted]"
    for path in world.home.rglob("*"):
        assert not path.is_file() or b"918273" not in path.read_bytes()
    assert items(world)[0] == {"role": "user", "content": "[redacted]"}
    server.replies = [Reply(("yes",))]
    world.steno("run", "--session", id, "And?")
    assert "918273" not in json.dumps(server.requests[-1])
    world.steno("verify")


def test_a_fork_and_a_copy_have_the_items(world: World) -> None:
    keep(world, *BEGUN)
    id = world.only_session()
    fork = world.steno("fork", id, "2").split()[0]
    assert [one["text"] for one in world.messages(fork)] == ["Which animal is it?"]
    file = world.work / "one.jsonl"
    world.steno("export", id, str(file))
    with steno.open(world.home / "store.db") as chats:
        before = [record.fact for record in chats.store.read(id)]
        assert chats.store.delete(id, with_forks=True) == 2
    world.steno("import", str(file))
    with steno.open(world.home / "store.db") as chats:
        assert [record.fact for record in chats.store.read(id)] == before
    assert items(world) == BEGUN
