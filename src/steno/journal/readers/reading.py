"""What a reader gives, and what all of them need to look into JSON of unknown shape."""

import json
from typing import Any, Literal

from msgspec import Struct

from steno.journal.parts import GONE, Content, Opaque, Text

Json = dict[str, Any]
Role = Literal["user", "assistant", "tool", "item"]

SHOWN_CHARS_MAX = 500
"""Of a text inside something that no reader knows: an image may be a megabyte of letters."""


class Reading(Struct, frozen=True, gc=False):
    """One thing that an item says. `call` is the call that a tool's result is of. `whole` is False
    for an answer that broke off, `failed` is True for a tool that reports an error."""

    role: Role
    parts: tuple[Content, ...]
    call: str | None = None
    failed: bool = False
    whole: bool = True


def unread(format: str, kind: str, item: object) -> Reading:
    """What no reader knows, as the item that it is."""
    return Reading("item", (opaque(format, kind, item),))


def opaque(format: str, kind: str, item: object) -> Opaque:
    return Opaque(format, kind or "unknown", as_json(_short(item)))


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def text_at(value: object, *path: str) -> str:
    """The string at a path of keys; "" if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def list_at(value: object, *path: str) -> list[Any]:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, list) else []


def said(text: object) -> tuple[Content, ...]:
    return (Text(text),) if isinstance(text, str) and text else ()


def result(value: object) -> tuple[Content, ...]:
    """What a tool gave: its text, or the JSON that it is."""
    if value is None:
        return ()
    return said(value if isinstance(value, str) else as_json(value))


def arguments(value: object) -> str:
    """Of a call: JSON text as it was written, or made of the value."""
    return (
        value if isinstance(value, str) else as_json({} if value is None else value)
    )


def _short(value: object, depth: int = 0) -> object:
    if isinstance(value, str) and len(value) > SHOWN_CHARS_MAX:
        return f"{value[:SHOWN_CHARS_MAX]}… ({len(value)} characters)"
    if isinstance(value, dict | list) and depth == DEPTH_MAX:
        return "…"
    if isinstance(value, dict):
        return {key: _short(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        return [_short(one, depth + 1) for one in value]
    return value


# --- redaction ------------------------------------------------------------------------------------

DEPTH_MAX = 32
_WORDS = frozenset(
    ("type", "role", "kind", "part_kind", "part-kind", "status", "state", "author")
)
"""What says of an item what it is: kept where it is a short word."""
_IDS = frozenset(
    ("id", "call_id", "tool_call_id", "tool_use_id", "uuid", "name", "tool_name")
)
"""What pairs a call with its result, and which tool it was."""
_INSIDE = frozenset(
    (
        "content",
        "parts",
        "message",
        "messages",
        "data",
        "kwargs",
        "summary",
        "tool_calls",
        "function",
        "function_call",
        "functionCall",
        "function_response",
        "functionResponse",
    )
)
"""What is looked into."""
_TEXTS = frozenset(
    (
        "text",
        "refusal",
        "output",
        "error",
        "thinking",
        "reasoning",
        "response",
        "result",
    )
)
_FLAGS = frozenset(
    (
        "isMeta",
        "isSidechain",
        "isCompactSummary",
        "isVisibleInTranscriptOnly",
        "is_error",
        "partial",
        "thought",
        "lc",
    )
)
_CALLED = frozenset(("arguments", "input", "args"))
ID_CHARS_MAX = 128


def mask(value: Any, depth: int = 0) -> Any:
    """JSON without what was said in it: its shape, its kinds and the ids that pair calls stay. A
    key that no reader looks at goes with its value, since either may be what must be removed."""
    if depth > DEPTH_MAX:
        return GONE
    if isinstance(value, list):
        return [mask(one, depth + 1) for one in value]
    if isinstance(value, dict):
        return {
            key: left
            for key, one in value.items()
            if (left := _left(key, one, depth)) != ()
        }
    return value if value is None or value == "" else GONE


def _left(key: str, value: Any, depth: int) -> Any:
    """What stays under a key; () if nothing does."""
    if key in _WORDS or key in _IDS:
        named = value[-1:] if isinstance(value, list) else [value]
        return (
            value
            if all(isinstance(one, str) and len(one) <= ID_CHARS_MAX for one in named)
            else ()
        )
    if key in _FLAGS:
        return value if isinstance(value, bool) or value == 1 else ()
    if key in _CALLED:
        return "{}" if isinstance(value, str) else {}
    if key in _INSIDE:
        return mask(value, depth + 1)
    if key in _TEXTS:
        return value if value is None or value == "" else GONE
    return ()
