"""The items of a codex thread, as far as we understand them. Others are kept with their JSON."""

from typing import Any, get_args

import msgspec
from msgspec import Raw, Struct

NOTHING = Raw(b"null")


class Read(Struct, frozen=True, rename="camel"):
    """Base of what we read."""


class UserMessage(Read, frozen=True, tag="userMessage"):
    """What was said to codex. `client_id` is the id that came with it, if it was ours."""

    id: str
    client_id: str | None = None


class AgentMessage(Read, frozen=True, tag="agentMessage"):
    id: str
    text: str = ""


class PlanText(Read, frozen=True, tag="plan"):
    id: str
    text: str = ""


class ReasoningItem(Read, frozen=True, tag="reasoning"):
    id: str
    summary: tuple[str, ...] = ()
    content: tuple[str, ...] = ()


class CommandExecution(Read, frozen=True, tag="commandExecution"):
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


class FileChange(Read, frozen=True, tag="fileChange"):
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


class McpToolCall(Read, frozen=True, tag="mcpToolCall"):
    id: str
    server: str
    tool: str
    status: str
    arguments: Raw = Raw(b"{}")
    result: McpResult | None = None
    error: McpError | None = None


class DynamicToolCall(Read, frozen=True, tag="dynamicToolCall"):
    """A call of one of our own tools."""

    id: str
    tool: str
    arguments: Raw = Raw(b"{}")


class WebSearch(Read, frozen=True, tag="webSearch"):
    id: str
    query: str = ""
    action: Raw = NOTHING


class ContextCompaction(Read, frozen=True, tag="contextCompaction"):
    id: str


class OtherCall(Struct, frozen=True):
    """A call whose details do not matter here: told by its name and its JSON."""

    id: str
    kind: str
    json: str


class UnknownItem(Struct, frozen=True):
    id: str
    kind: str
    json: str


CallItem = (
    CommandExecution
    | FileChange
    | McpToolCall
    | DynamicToolCall
    | WebSearch
    | OtherCall
)
TextItem = AgentMessage | PlanText
Item = (
    UserMessage
    | TextItem
    | ReasoningItem
    | CallItem
    | ContextCompaction
    | UnknownItem
)

_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    kind.__struct_config__.tag: msgspec.json.Decoder(kind)
    for kind in get_args(Item)
    if kind.__struct_config__.tag is not None
}
"""Made when the module is loaded: msgspec crashes when two threads first meet a type at once."""
_OTHER_CALLS = frozenset(
    (
        "imageView",
        "imageGeneration",
        "sleep",
        "collabAgentToolCall",
        "subAgentActivity",
    )
)


class _ItemHeader(Read, frozen=True):
    type: str = "nameless"
    id: str = ""


_headers = msgspec.json.Decoder(_ItemHeader)


def item(raw: Raw) -> Item:
    try:
        header = _headers.decode(raw)
    except msgspec.ValidationError:
        header = _ItemHeader()
    if (decoder := _DECODERS.get(header.type)) is not None:
        try:
            read: Item = decoder.decode(raw)
        except msgspec.ValidationError:
            return UnknownItem(header.id, header.type, _text(raw))
        return read
    unread = OtherCall if header.type in _OTHER_CALLS else UnknownItem
    return unread(header.id, header.type, _text(raw))


def _text(raw: Raw) -> str:
    return bytes(raw).decode("utf-8", "replace")
