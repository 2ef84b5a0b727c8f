"""The promises through the door of each framework, as a program sees them: what it gives comes
back as it was, what cannot be kept is refused whole, and what was cut off can be gone on with."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

import steno
from steno.library import Library
from tests.adapters import crash_stores
from tests.adapters.given import WRONG, comes_back, is_refused_whole, keeps_order
from tests.models.rules import check

ADAPTERS: dict[str, type[Any]] = {
    "openai": crash_stores.OpenAIAgents,
    "claude": crash_stores.ClaudeAgent,
    "langgraph": crash_stores.LangGraph,
    "pydantic-ai": crash_stores.PydanticAI,
}


@pytest.fixture(params=ADAPTERS)
def adapter(request: pytest.FixtureRequest) -> type[Any]:
    return ADAPTERS[request.param]


@pytest.mark.promise(76)
@pytest.mark.promise(9)
def test_what_was_given_comes_back_byte_for_byte(adapter: type[Any], tmp_path: Path) -> None:
    comes_back(adapter, tmp_path)


@pytest.mark.promise(75)
@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_kept_is_refused_with_all_that_came_with_it(
    adapter: type[Any], wrong: str, tmp_path: Path
) -> None:
    kept = "?" if adapter is crash_stores.LangGraph else WRONG[wrong]  # its serializer makes it so
    is_refused_whole(adapter, tmp_path, WRONG[wrong], kept)


@pytest.mark.promise(76)
@pytest.mark.promise(47)
def test_a_clock_that_is_set_back_changes_no_order(
    adapter: type[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeps_order(adapter, tmp_path, monkeypatch)


# --- what a kill cut off, gone on with in steno ---------------------------------------------------


Keeps = Callable[[Library, Sequence[Any]], None]


def keep_openai(chats: Library, given: Sequence[Any]) -> None:
    from steno.adapters.openai_agents import StenoSession

    asyncio.run(StenoSession("alice", chats).add_items(list(given)))


def keep_claude(chats: Library, given: Sequence[Any]) -> None:
    from steno.adapters.claude_agent import StenoSessionStore

    key = {"project_key": "home", "session_id": "alice"}
    asyncio.run(StenoSessionStore(chats).append(key, list(given)))


def keep_pydantic(chats: Library, given: Sequence[Any]) -> None:
    from pydantic_ai.conversation import Conversation

    from steno.adapters.pydantic_ai import StenoConversationStore

    whole = Conversation(messages=list(given), conversation_id="alice")
    asyncio.run(StenoConversationStore(chats).save(whole))


CALL = {"at": "fence"}
KEPT: dict[str, tuple[Keeps, list[Any]]] = {
    "openai": (
        keep_openai,
        [
            {"role": "user", "content": "Look."},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "stripes"},
            {"type": "function_call_output", "call_id": "c2", "output": "spots"},
            {"role": "assistant", "content": "A zebra."},
        ],
    ),
    "claude": (
        keep_claude,
        [
            {"type": "user", "message": {"role": "user", "content": "Look."}},
            {
                "type": "assistant",
                "message": {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "I look."},
                        {"type": "tool_use", "id": "c1", "name": "look", "input": CALL},
                        {"type": "tool_use", "id": "c2", "name": "look", "input": CALL},
                    ],
                },
            },
            {
                "type": "user",
                "message": {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "stripes"}],
                },
            },
            {"type": "assistant", "message": {"role": "assistant", "content": "A zebra."}},
        ],
    ),
    "pydantic-ai": (
        keep_pydantic,
        [
            ModelRequest(parts=[UserPromptPart(content="Look.")]),
            ModelResponse(parts=[TextPart("I look."), ToolCallPart("look", CALL, "c1")]),
            ModelRequest(parts=[ToolReturnPart("look", "stripes", "c1")]),
            ModelResponse(parts=[TextPart("A zebra.")]),
        ],
    ),
}
CUT = [(name, end) for name, (_, whole) in KEPT.items() for end in range(1, len(whole) + 1)]


@pytest.mark.promise(76)
@pytest.mark.promise(34)
@pytest.mark.promise(35)
@pytest.mark.parametrize(("name", "end"), CUT)
def test_wherever_a_conversation_was_cut_off_a_request_that_goes_on_is_valid(
    name: str, end: int
) -> None:
    keep, whole = KEPT[name]
    with steno.open(":memory:") as chats:
        keep(chats, whole[:end])
        [listed] = chats.sessions()
        chat = chats.open(listed.id)
        chat.say("And now?")
        with chat.reply("model") as reply:
            reply.write("Nothing.")
        chat.say("Go on.")
        assert [one.text for one in chat.messages()][-3:] == ["And now?", "Nothing.", "Go on."]
        for format, body in bodies(chat).items():
            check(format, body)
            assert "Nothing." in json.dumps(body)


def bodies(chat: steno.Session) -> dict[str, Any]:
    """What a request for an input that comes next would have."""
    chat_next = {"role": "user", "content": "Go on."}
    block_next = {"role": "user", "content": [{"type": "text", "text": "Go on."}]}
    function = {"name": "look", "parameters": {"type": "object"}}
    return {
        "openai-chat": {
            "messages": [*chat.history("openai-chat"), chat_next],
            "tools": [{"type": "function", "function": function}],
            "stream": True,
        },
        "anthropic": {
            "messages": [*chat.history("anthropic"), block_next],
            "tools": [{"name": "look", "input_schema": {"type": "object"}}],
            "max_tokens": 1,
        },
    }
