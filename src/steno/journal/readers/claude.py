"""Lines of a Claude transcript: an entry of type user or assistant has a message of Anthropic's API
in it. Results of calls come in user entries, several in one. Everything else (summaries, snapshots
of files, what the program tells itself, what a helper said) is an item.
"""

from collections.abc import Iterator

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

FORMAT = "claude.transcript"
_NOT_SAID = ("isMeta", "isSidechain", "isCompactSummary", "isVisibleInTranscriptOnly")


def read(entry: Json) -> Iterator[Reading]:
    kind, message = text_at(entry, "type"), entry.get("message")
    beside = any(entry.get(flag) is True for flag in _NOT_SAID)
    if kind not in ("user", "assistant") or beside or not isinstance(message, dict):
        yield unread(FORMAT, kind, entry)
        return
    if kind == "assistant":
        yield Reading("assistant", blocks(message.get("content"), FORMAT))
        return
    spoken = message.get("content")
    for block in list_at(message, "content"):
        if text_at(block, "type") == "tool_result":
            parts = blocks(block.get("content"), FORMAT)
            failed = block.get("is_error") is True
            yield Reading("tool", parts, text_at(block, "tool_use_id"), failed)
    if isinstance(spoken, list):
        spoken = [one for one in spoken if text_at(one, "type") != "tool_result"]
    if spoken:
        yield Reading("user", blocks(spoken, FORMAT))


def blocks(value: object, format: str) -> tuple[Content, ...]:
    """Content as Anthropic's messages have it, but for the results of calls."""
    if isinstance(value, str):
        return said(value)
    parts: list[Content] = []
    for block in value if isinstance(value, list) else []:
        kind = text_at(block, "type")
        if kind == "text":
            parts += [Text(block["text"])] if text_at(block, "text") else []
        elif kind == "thinking":
            parts += (
                [Reasoning(block["thinking"])] if text_at(block, "thinking") else []
            )
        elif kind == "tool_use" and text_at(block, "id"):
            called = arguments(block.get("input"))
            parts.append(ToolCall(block["id"], text_at(block, "name"), called))
        else:
            parts.append(opaque(format, kind, block))
    return tuple(parts)
