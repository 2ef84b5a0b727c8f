"""The items of a codex thread, as far as we understand them. Others are kept with their JSON."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

NOTHING = Raw(b"null")


class Read(Struct, frozen=True, rename="camel"):
    """Base of what we read."""


class UserMessage(Read, frozen=True):
    """What was said to it. `client_id` is the id that came with it, if it was ours."""

    id: str
    client_id: str | None = None


class AgentMessage(Read, frozen=True):
    id: str
    text: str = ""


class PlanText(Read, frozen=True):
    id: str
    text: str = ""


class ReasoningItem(Read, frozen=True):
    id: str
    summary: tuple[str, ...] = ()
    content: tuple[str, ...] = ()


class CommandExecution(Read, frozen=True):
    id: str
    command: str
    status: str
    aggregated_output: str | None = None
    exit_code: int | None = None
    process_id: str | None = None


class ChangeKind(Read, frozen=True):
    """`move_path` is where a file goes that is changed and moved."""

    type: str
    move_path: str | None = msgspec.field(default=None, name="move_path")


class Change(Read, frozen=True):
    path: str
    kind: ChangeKind
    diff: str = ""


class FileChange(Read, frozen=True):
    id: str
    changes: tuple[Change, ...]
    status: str


class McpError(Read, frozen=True):
    message: str = ""


class McpContent(Read, frozen=True):
    type: str = ""
    text: str = ""


class McpResult(Read, frozen=True):
    content: tuple[McpContent, ...] = ()


class McpToolCall(Read, frozen=True):
    id: str
    server: str
    tool: str
    status: str
    arguments: Raw = Raw(b"{}")
    result: McpResult | None = None
    error: McpError | None = None


class DynamicToolCall(Read, frozen=True):
    """A call of one of our own tools."""

    id: str
    tool: str
    arguments: Raw = Raw(b"{}")


class WebSearch(Read, frozen=True):
    id: str
    query: str = ""
    action: Raw = NOTHING


class ContextCompaction(Read, frozen=True):
    id: str


class OtherCall(Struct, frozen=True):
    """Something it does that we know of and need not look into: told by its name and its JSON."""

    id: str
    kind: str
    json: str


class UnknownItem(Struct, frozen=True):
    id: str
    kind: str
    json: str


Item = (
    UserMessage
    | AgentMessage
    | PlanText
    | ReasoningItem
    | CommandExecution
    | FileChange
    | McpToolCall
    | DynamicToolCall
    | WebSearch
    | ContextCompaction
    | OtherCall
    | UnknownItem
)

_ITEMS: Mapping[str, type[Any]] = {
    "userMessage": UserMessage,
    "agentMessage": AgentMessage,
    "plan": PlanText,
    "reasoning": ReasoningItem,
    "commandExecution": CommandExecution,
    "fileChange": FileChange,
    "mcpToolCall": McpToolCall,
    "dynamicToolCall": DynamicToolCall,
    "webSearch": WebSearch,
    "contextCompaction": ContextCompaction,
}
_DECODERS = {name: msgspec.json.Decoder(kind) for name, kind in _ITEMS.items()}
"""Made when the module is loaded: msgspec crashes when two threads first meet a type at once."""
_OTHER_CALLS = frozenset(
    ("imageView", "imageGeneration", "sleep", "collabAgentToolCall", "subAgentActivity")
)


class _Header(Read, frozen=True):
    type: str = "nameless"
    id: str = ""


_headers = msgspec.json.Decoder(_Header)


def item(raw: Raw) -> Item:
    try:
        header = _headers.decode(raw)
    except msgspec.ValidationError:
        header = _Header()
    decoder = _DECODERS.get(header.type)
    if decoder is not None:
        try:
            read: Item = decoder.decode(raw)
        except msgspec.ValidationError:
            return UnknownItem(header.id, header.type, _text(raw))
        return read
    unread = OtherCall if header.type in _OTHER_CALLS else UnknownItem
    return unread(header.id, header.type, _text(raw))


def _text(raw: Raw) -> str:
    return bytes(raw).decode("utf-8", "replace")
