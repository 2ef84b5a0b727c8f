"""Events of Google's Agent Development Kit: who speaks is the `author`, what is said a content of
Gemini's API. An event without content is a change of state and says nothing. A part of an answer
that is still being streamed is not kept there, and is no message here.
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
    text_at,
    unread,
)

FORMAT = "adk.event"


def read(event: Json) -> Iterator[Reading]:
    content = event.get("content")
    if not isinstance(content, dict):
        if not text_at(event, "author"):
            yield unread(FORMAT, "unknown", event)
        return
    if event.get("partial") is True:
        yield unread(FORMAT, "partial", event)
        return
    rest: list[Content] = []
    for part in list_at(content, "parts"):
        answered = _inside(part, "function_response", "functionResponse")
        if answered is not None:
            given = answered.get("response")
            failed = isinstance(given, dict) and "error" in given
            call = text_at(answered, "id") or text_at(answered, "name")
            yield Reading("tool", _returned(given), call, failed)
        else:
            rest += _part(part)
    if rest:
        yield Reading(
            "user" if text_at(event, "author") == "user" else "assistant", tuple(rest)
        )


def _part(part: Any) -> tuple[Content, ...]:
    called = _inside(part, "function_call", "functionCall")
    if called is not None:
        id = text_at(called, "id") or text_at(called, "name")
        return (ToolCall(id, text_at(called, "name"), arguments(called.get("args"))),)
    text = text_at(part, "text")
    if text:
        return (Reasoning(text) if part.get("thought") is True else Text(text),)
    if not isinstance(part, dict):
        return (opaque(FORMAT, "part", part),)
    shown = {key: one for key, one in part.items() if one is not None}
    return (opaque(FORMAT, next(iter(shown), "part"), shown),) if shown else ()


def _inside(part: Any, *names: str) -> Json | None:
    """Under one of its names: the wire writes them in another way than Python."""
    for name in names:
        found = part.get(name) if isinstance(part, dict) else None
        if isinstance(found, dict):
            return found
    return None


def _returned(given: object) -> tuple[Content, ...]:
    """A tool that returns a plain value has it under `result`."""
    if isinstance(given, dict) and list(given) == ["result"]:
        return result(given["result"])
    return result(given)
