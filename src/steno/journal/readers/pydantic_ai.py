"""Messages of pydantic-ai: a request has parts of the user and results of tools, a response has
those of the model. What the system said, and what it told the model to mend, is not speech.
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
    result,
    said,
    text_at,
    unread,
)

FORMAT = "pydantic-ai.message"


def read(item: Json) -> Iterator[Reading]:
    """A message, or an entry of a conversation with one in it."""
    inside = item.get("message")
    message = (
        inside
        if text_at(item, "kind") == "message" and isinstance(inside, dict)
        else item
    )
    kind, parts = text_at(message, "kind"), list_at(message, "parts")
    if kind == "request":
        for part in parts:
            yield _requested(part)
    elif kind == "response":
        told = tuple(one for part in parts for one in _responded(part))
        whole = text_at(message, "state") not in ("interrupted", "suspended")
        yield Reading("assistant", told, whole=whole)
    else:
        yield unread(FORMAT, kind, message)


def _requested(part: Any) -> Reading:
    match text_at(part, "part_kind"):
        case "user-prompt":
            return Reading("user", _content(part.get("content")))
        case "tool-return" if text_at(part, "tool_call_id"):
            failed = text_at(part, "outcome") in ("failed", "denied", "retried")
            return Reading(
                "tool", result(part.get("content")), part["tool_call_id"], failed
            )
        case "retry-prompt" if text_at(part, "tool_call_id") and text_at(
            part, "tool_name"
        ):
            return Reading(
                "tool", result(part.get("content")), part["tool_call_id"], True
            )
        case kind:
            return unread(FORMAT, kind, part)


def _responded(part: Any) -> tuple[Content, ...]:
    match text_at(part, "part_kind"):
        case "text":
            return said(part.get("content"))
        case "thinking":
            thought = text_at(part, "content")
            return (Reasoning(thought),) if thought else ()
        case "tool-call" if text_at(part, "tool_call_id"):
            written = arguments(part.get("args"))
            return (
                ToolCall(part["tool_call_id"], text_at(part, "tool_name"), written),
            )
        case kind:
            return (opaque(FORMAT, kind, part),)


def _content(value: object) -> tuple[Content, ...]:
    if isinstance(value, str):
        return said(value)
    parts: list[Content] = []
    for block in value if isinstance(value, list) else []:
        if isinstance(block, str):
            parts.append(Text(block))
        elif text_at(block, "kind") == "text" and text_at(block, "content"):
            parts.append(Text(block["content"]))
        else:
            parts.append(opaque(FORMAT, text_at(block, "kind"), block))
    return tuple(parts)
