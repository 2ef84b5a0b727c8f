"""Items of the Responses API. A message is the user's or the assistant's; a call and its output are
items of their own, and so is reasoning. What the system or the developer said is not speech.
"""

from collections.abc import Iterator

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

FORMAT = "openai.responses"
_TEXTS = frozenset(
    ("text", "input_text", "output_text", "summary_text", "reasoning_text")
)


def read(item: Json) -> Iterator[Reading]:
    kind, role = text_at(item, "type"), text_at(item, "role")
    match kind:
        case "" | "message" if role in ("user", "assistant"):
            whole = text_at(item, "status") not in ("incomplete", "in_progress")
            parts = content(item.get("content"), FORMAT)
            yield Reading(
                "user" if role == "user" else "assistant", parts, whole=whole
            )
        case "function_call" | "custom_tool_call" if text_at(item, "call_id"):
            written = item.get("arguments" if kind == "function_call" else "input")
            called = ToolCall(
                item["call_id"], text_at(item, "name"), arguments(written)
            )
            yield Reading("assistant", (called,))
        case "function_call_output" | "custom_tool_call_output" if text_at(
            item, "call_id"
        ):
            output = item.get("output")
            parts = (
                content(output, FORMAT)
                if isinstance(output, list)
                else result(output)
            )
            yield Reading("tool", parts, item["call_id"])
        case "mcp_call" if text_at(item, "id"):
            called = ToolCall(
                item["id"], text_at(item, "name"), arguments(item.get("arguments"))
            )
            yield Reading("assistant", (called,))
            if item.get("output") is not None or item.get("error") is not None:
                failed = item.get("error") is not None
                given = item.get("error") if failed else item.get("output")
                yield Reading("tool", result(given), item["id"], failed)
        case "reasoning":
            thought = [text_at(one, "text") for one in list_at(item, "summary")]
            thought += [text_at(one, "text") for one in list_at(item, "content")]
            yield Reading(
                "assistant", (Reasoning("\n\n".join(filter(None, thought))),)
            )
        case _:
            yield unread(FORMAT, kind or role, item)


def content(value: object, format: str) -> tuple[Content, ...]:
    """The content of a message, as Responses and Chat Completions have it."""
    if isinstance(value, str):
        return said(value)
    parts: list[Content] = []
    for block in value if isinstance(value, list) else []:
        kind = text_at(block, "type")
        if isinstance(block, str):
            parts.append(Text(block))
        elif kind in _TEXTS and text_at(block, "text"):
            parts.append(Text(block["text"]))
        elif kind == "refusal" and text_at(block, "refusal"):
            parts.append(Text(block["refusal"]))
        elif kind not in _TEXTS:
            parts.append(opaque(format, kind, block))
    return tuple(parts)
