"""What the providers demand of a request: their own SDK's types, and the rules that types do not
say."""

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from anthropic.types import MessageParam, TextBlockParam, ThinkingConfigParam, ToolParam
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam
from openai.types.responses import FunctionToolParam, ResponseInputItemParam
from pydantic import TypeAdapter

_chat_message: TypeAdapter[Any] = TypeAdapter(ChatCompletionMessageParam)
_chat_tool: TypeAdapter[Any] = TypeAdapter(ChatCompletionFunctionToolParam)
_message: TypeAdapter[Any] = TypeAdapter(MessageParam)
_system: TypeAdapter[Any] = TypeAdapter(TextBlockParam)
_tool: TypeAdapter[Any] = TypeAdapter(ToolParam)
_thinking: TypeAdapter[Any] = TypeAdapter(ThinkingConfigParam)
_item: TypeAdapter[Any] = TypeAdapter(ResponseInputItemParam)
_function: TypeAdapter[Any] = TypeAdapter(FunctionToolParam)


def _typed(adapter: TypeAdapter[Any], values: Iterable[Any]) -> None:
    for value in values:
        _exhaust(adapter.validate_python(value))


def _exhaust(value: Any) -> None:
    """pydantic validates an `Iterable` only when it is read."""
    if isinstance(value, dict):
        for item in value.values():
            _exhaust(item)
    elif not isinstance(value, str) and isinstance(value, Iterable):
        for item in value:
            _exhaust(item)


def check(kind: str, body: dict[str, Any]) -> None:
    {"openai-chat": check_chat, "openai-responses": check_responses, "anthropic": check_messages}[
        kind
    ](body)


def check_chat(body: dict[str, Any]) -> None:
    messages = body["messages"]
    _typed(_chat_message, messages)
    _typed(_chat_tool, body.get("tools", []))
    assert body["stream"] is True
    assert all(message["role"] != "system" for message in messages[1:])
    spoken = [message for message in messages if message["role"] != "system"]
    assert spoken[0]["role"] == "user"
    assert spoken[-1]["role"] in ("user", "tool")
    waiting: list[str] = []
    seen: set[str] = set()
    for message in spoken:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
        else:
            assert waiting == [], "calls are settled before anything else is said"
        calls = message.get("tool_calls", [])
        waiting = waiting + [call["id"] for call in calls]
        assert seen.isdisjoint(waiting) or message["role"] == "tool"
        seen.update(waiting)
        assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in calls)
        assert all(0 < len(call["id"]) <= 40 for call in calls)
        _not_blank(message["content"] if message["content"] is not None or not calls else "calls")
    assert waiting == []
    roles = [message["role"] for message in spoken]
    assert not any(pair == ("assistant", "assistant") for pair in pairwise(roles))


def check_messages(body: dict[str, Any]) -> None:
    messages = body["messages"]
    _typed(_message, messages)
    _typed(_system, body.get("system", []))
    _typed(_tool, body.get("tools", []))
    _typed(_thinking, [body["thinking"]] if "thinking" in body else [])
    assert body["max_tokens"] > 0
    roles = [message["role"] for message in messages]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"], (
        "roles alternate and end with the user"
    )
    ids: list[str] = []
    for before, message in zip([{"content": []}, *messages], messages, strict=False):
        called = [block["id"] for block in before["content"] if block["type"] == "tool_use"]
        results = [
            block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"
        ]
        assert sorted(called) == sorted(results)
        first = [block["type"] for block in message["content"][: len(results)]]
        assert first == ["tool_result"] * len(results), (
            "results come before what else the user says"
        )
        ids += called
        assert message["content"]
        assert message["content"][-1]["type"] not in ("thinking", "redacted_thinking")
        for block in message["content"]:
            _check_block(block)
    assert len(ids) == len(set(ids))
    assert not ids or body["tools"], "calls need tools"
    assert json.dumps(body).count('"cache_control"') <= 4


def _check_block(block: dict[str, Any]) -> None:
    match block["type"]:
        case "text":
            _not_blank(block["text"])
        case "tool_result":
            assert block["content"]
            for inner in block["content"]:
                _check_block(inner)
        case "tool_use":
            assert (
                block["id"].replace("-", "_").isidentifier()
                or block["id"].replace("-", "_").isalnum()
            )
            assert block["id"].isascii()


def check_responses(body: dict[str, Any]) -> None:
    items = body["input"]
    _typed(_item, items)
    _typed(_function, body.get("tools", []))
    assert body["store"] is False
    assert items[0]["role"] == "user"
    assert items[-1].get("role", items[-1]["type"]) in ("user", "function_call_output")
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    assert len(calls) == len(set(calls))
    waiting: list[str] = []
    for item, after in zip(items, [*items[1:], {"type": "end"}], strict=True):
        match item["type"]:
            case "function_call":
                assert 0 < len(item["call_id"]) <= 64
                assert isinstance(json.loads(item["arguments"]), dict)
                waiting.append(item["call_id"])
            case "function_call_output":
                waiting.remove(item["call_id"])
                _not_blank(item["output"])
            case "message":
                assert item["role"] == "assistant" or waiting == []
                _not_blank(item["content"])
            case "reasoning":
                assert after["type"] in ("message", "function_call", "reasoning")
                assert after.get("role") != "user"
    assert waiting == []


def _not_blank(content: Any) -> None:
    if isinstance(content, str):
        assert content.strip()
        return
    assert content
    for part in content:
        assert part["type"] not in ("text", "input_text") or part["text"].strip()
