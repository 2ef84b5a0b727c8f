"""The model looks for what was said in other sessions."""

import json
from typing import Any

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.world import World


def results(request: dict[str, Any]) -> list[str]:
    return [message["content"] for message in request["messages"] if message["role"] == "tool"]


@pytest.mark.promise(29, 43)
def test_the_model_finds_what_was_said_and_neither_notes_nor_output(
    world: World, server: ModelServer
) -> None:
    server.replies = [
        Reply(
            ("Sure, the zebra is noted. ",), tools=(("shell", '{"command": "echo zebra output"}'),)
        ),
        Reply(("ok",)),
    ]
    world.steno("run", "remember the zebra", "--yes")
    earlier = world.only_session()
    server.requests.clear()
    asked = json.dumps({"query": "ZEBRA", "all": True})
    server.replies = [Reply(tools=(("search_sessions", asked),)), Reply(("found",))]
    world.steno("run", "what did I say?")
    (found,) = results(server.requests[1])
    assert f"{earlier} message" in found
    assert "remember the zebra" in found
    assert "Sure, the zebra is noted." in found
    assert "zebra output" not in found
    assert found.endswith("[2 messages with 'ZEBRA' in 1 sessions]")


def test_the_tool_can_be_turned_off(world: World, server: ModelServer) -> None:
    world.environment |= {"STENO_TOOLS_SEARCH": "false", "STENO_TOOLS_DELEGATE": "false"}
    world.steno("run", "hi")
    names = [tool["function"]["name"] for tool in server.requests[0]["tools"]]
    assert {"shell", "read_output"} <= set(names)
    assert not {"search_sessions", "delegate"} & set(names)
