"""Messages of LangChain, as LangGraph keeps them in a channel: as `message_to_dict` writes them
({"type": "human", "data": {...}}), flat, or as `dumpd` does ({"lc": 1, "kwargs": {...}}). A
checkpoint is state and says nothing; only what is in its channel `messages` is read.
"""

from collections.abc import Iterator
from typing import Any

from steno.journal.parts import Content, Reasoning, Text, ToolCall
from steno.journal.readers.reading import (
    Json,
    Reading,
    arguments,
    list_at,
    opaque,
    said,
    text_at,
    unread,
)

FORMAT = "langgraph.message"
_ROLES = {
    "human": "user",
    "HumanMessage": "user",
    "HumanMessageChunk": "user",
    "user": "user",
    "ai": "assistant",
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "assistant": "assistant",
    "tool": "tool",
    "ToolMessage": "tool",
    "ToolMessageChunk": "tool",
}


def read(item: Json) -> Iterator[Reading]:
    kind, message = _message(item)
    role = _ROLES.get(kind)
    if role == "user":
        yield Reading("user", _content(message.get("content")))
    elif role == "assistant":
        calls = [
            _call(one) for one in list_at(message, "tool_calls") if text_at(one, "id")
        ]
        yield Reading(
            "assistant", (*_content(message.get("content"), answered=True), *calls)
        )
    elif role == "tool" and text_at(message, "tool_call_id"):
        failed = text_at(message, "status") == "error"
        yield Reading(
            "tool", _content(message.get("content")), message["tool_call_id"], failed
        )
    else:
        yield unread(FORMAT, kind, item)


def _message(item: Json) -> tuple[str, Json]:
    """Its kind, and what it has."""
    kwargs = item.get("kwargs")
    if item.get("lc") == 1 and isinstance(kwargs, dict):
        names = list_at(item, "id")
        return text_at(kwargs, "type") or (str(names[-1]) if names else ""), kwargs
    data = item.get("data")
    if isinstance(data, dict) and text_at(item, "type"):
        return item["type"], data
    return text_at(item, "type") or text_at(item, "role"), item


def _call(call: Any) -> ToolCall:
    return ToolCall(call["id"], text_at(call, "name"), arguments(call.get("args")))


def _content(value: object, answered: bool = False) -> tuple[Content, ...]:
    """Text, or blocks in the words of several providers. A call among the blocks of an answer
    stands in its `tool_calls`, too."""
    if isinstance(value, str):
        return said(value)
    parts: list[Content] = []
    for block in value if isinstance(value, list) else []:
        kind = text_at(block, "type")
        if isinstance(block, str):
            parts.append(Text(block))
        elif kind in ("text", "output_text", "input_text"):
            parts += [Text(block["text"])] if text_at(block, "text") else []
        elif kind in ("thinking", "reasoning"):
            thought = text_at(block, "thinking") or text_at(block, "reasoning")
            parts += [Reasoning(thought)] if thought else []
        elif not (answered and kind in ("tool_use", "tool_call", "function_call")):
            parts.append(opaque(FORMAT, kind, block))
    return tuple(parts)
