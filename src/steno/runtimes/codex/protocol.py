"""The messages of codex's app-server, as far as we read or write them: JSON, one a line, without
`jsonrpc`.

Reading is lenient in what it skips and strict in what it understands: an unknown field is skipped,
an unknown notification is a `Skipped`, an unknown item is an `UnknownItem` with its JSON. Nothing
is guessed.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from steno.models.wire import encode
from steno.runtimes.codex.hooks import Held, HookRun, Over
from steno.runtimes.codex.items import NOTHING, AgentMessage, Item, Read, UserMessage, item

VERSIONS = "0.163 to 0.169"
"""Those that were tried. Another one is used all the same, and a log says so."""


INPUT_TOO_LARGE = "input_too_large"

# --- notifications --------------------------------------------------------------------------------


class ItemStarted(Struct, frozen=True):
    turn: str
    item: Item


class ItemCompleted(Struct, frozen=True):
    turn: str
    item: Item


class _ItemNote(Read, frozen=True):
    item: Raw
    turn_id: str = ""


class AgentDelta(Read, frozen=True):
    item_id: str
    delta: str
    turn_id: str = ""


class PlanDelta(Read, frozen=True):
    item_id: str
    delta: str
    turn_id: str = ""


class ReasoningDelta(Read, frozen=True):
    item_id: str
    delta: str
    turn_id: str = ""


class ReasoningPart(Read, frozen=True):
    """Another part of the summary begins."""

    item_id: str
    summary_index: int = 0
    turn_id: str = ""


class OutputDelta(Read, frozen=True):
    item_id: str
    delta: str
    turn_id: str = ""


class Typed(Read, frozen=True):
    """What codex typed into a command that runs; "" if it only looked at it."""

    item_id: str
    stdin: str = ""
    turn_id: str = ""


class Failure(Read, frozen=True):
    """`codex_error_info` is a word, or an object with one key."""

    message: str = ""
    codex_error_info: Raw = NOTHING
    additional_details: str | None = None

    def reason(self) -> str:
        """Where it tries again, `message` only says how often."""
        return self.additional_details or self.message


class ErrorNote(Read, frozen=True):
    error: Failure
    will_retry: bool = False
    turn_id: str = ""


class Turn(Read, frozen=True):
    id: str
    status: str = ""
    error: Failure | None = None


class TurnStartedNote(Read, frozen=True):
    turn: Turn


class TurnCompleted(Read, frozen=True):
    turn: Turn


class ThreadStatus(Read, frozen=True):
    type: str = ""
    active_flags: tuple[str, ...] = ()


class StatusChanged(Read, frozen=True):
    status: ThreadStatus


class Tokens(Read, frozen=True):
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0


class TokenUsage(Read, frozen=True):
    last: Tokens


class UsageUpdated(Read, frozen=True):
    token_usage: TokenUsage
    turn_id: str = ""


class PlannedStep(Read, frozen=True):
    step: str
    status: str


class PlanUpdatedNote(Read, frozen=True):
    plan: tuple[PlannedStep, ...]
    explanation: str | None = None
    turn_id: str = ""


class HookStarted(Read, frozen=True):
    run: HookRun


class HookCompleted(Read, frozen=True):
    run: HookRun


class Warned(Read, frozen=True):
    message: str = ""


class Quiet(Struct, frozen=True):
    """A notification that we know and need nothing of."""


class Skipped(Struct, frozen=True):
    """A notification that we do not know."""

    method: str


Notification = (
    ItemStarted
    | ItemCompleted
    | AgentDelta
    | PlanDelta
    | ReasoningDelta
    | ReasoningPart
    | OutputDelta
    | Typed
    | ErrorNote
    | TurnStartedNote
    | TurnCompleted
    | StatusChanged
    | UsageUpdated
    | PlanUpdatedNote
    | HookStarted
    | HookCompleted
    | Over
    | Warned
    | Quiet
    | Skipped
)

_NOTES: Mapping[str, type[Any]] = {
    "item/agentMessage/delta": AgentDelta,
    "item/plan/delta": PlanDelta,
    "item/reasoning/summaryTextDelta": ReasoningDelta,
    "item/reasoning/textDelta": ReasoningDelta,
    "item/reasoning/summaryPartAdded": ReasoningPart,
    "item/commandExecution/outputDelta": OutputDelta,
    "item/fileChange/outputDelta": OutputDelta,
    "item/commandExecution/terminalInteraction": Typed,
    "error": ErrorNote,
    "turn/started": TurnStartedNote,
    "turn/completed": TurnCompleted,
    "thread/status/changed": StatusChanged,
    "thread/tokenUsage/updated": UsageUpdated,
    "turn/plan/updated": PlanUpdatedNote,
    "hook/started": HookStarted,
    "hook/completed": HookCompleted,
    "warning": Warned,
    "configWarning": Warned,
}
_QUIET = frozenset(
    (
        "account/rateLimits/updated",
        "account/updated",
        "app/list/updated",
        "deprecationNotice",
        "item/fileChange/patchUpdated",
        "item/mcpToolCall/progress",
        "mcpServer/startupStatus/updated",
        "remoteControl/status/changed",
        "serverRequest/resolved",
        "skills/changed",
        "thread/archived",
        "thread/closed",
        "thread/compacted",
        "thread/environment/connected",
        "thread/goal/cleared",
        "thread/goal/updated",
        "thread/name/updated",
        "thread/readState/changed",
        "thread/settings/updated",
        "thread/started",
        "turn/diff/updated",
    )
)


_note_decoders = {method: msgspec.json.Decoder(kind) for method, kind in _NOTES.items()}
_item_notes = msgspec.json.Decoder(_ItemNote)


def notification(method: str, params: Raw) -> Notification:
    if method in ("item/started", "item/completed"):
        note = _item_notes.decode(params)
        kind = ItemStarted if method == "item/started" else ItemCompleted
        return kind(note.turn_id, item(note.item))
    if method in _QUIET:
        return Quiet()
    if (known := _note_decoders.get(method)) is None:
        return Skipped(method)
    try:
        read: Notification = known.decode(params)
    except msgspec.ValidationError:
        return _ended(params) if method == "turn/completed" else Skipped(method)
    return read


class _Ended(Read, frozen=True):
    id: str = ""
    status: str = ""


class _EndedNote(Read, frozen=True):
    turn: _Ended = _Ended()


_ended_notes = msgspec.json.Decoder(_EndedNote)


def _ended(params: Raw) -> TurnCompleted:
    """The end of a turn counts even if it says more than we can read, or less. One that does not
    say which turn is over is about the one that runs: a thread has no other."""
    try:
        turn = _ended_notes.decode(params).turn
    except msgspec.ValidationError:
        turn = _Ended()
    return TurnCompleted(
        Turn(turn.id, turn.status, Failure("it ended in a way that steno cannot read"))
    )


# --- requests of the server -----------------------------------------------------------------------


class CommandApproval(Read, frozen=True):
    """`kind` "writeStdin" asks about what is to be typed into a command that runs, and `item_id` is
    that command."""

    item_id: str
    reason: str | None = None
    kind: str = "command"
    command: str | None = None
    approval_id: str | None = None

    def types(self) -> bool:
        return self.kind == "writeStdin"


class FileApproval(Read, frozen=True):
    item_id: str
    reason: str | None = None


class ToolCallAsked(Read, frozen=True):
    call_id: str
    tool: str


class _Approves(Read, frozen=True):
    codex_approval_kind: str = msgspec.field(default="", name="codex_approval_kind")


class Elicited(Read, frozen=True):
    """A server of MCP wants something from a person; or codex itself asks whether one of its tools
    may run."""

    server_name: str
    meta: _Approves | None = msgspec.field(default=None, name="_meta")

    def approves(self) -> bool:
        return self.meta is not None and self.meta.codex_approval_kind == "mcp_tool_call"


class Unserved(Struct, frozen=True):
    """A request that we have no answer to."""

    method: str


Asked = CommandApproval | FileApproval | ToolCallAsked | Elicited | Held | Unserved

_ASKED: Mapping[str, type[Any]] = {
    "item/commandExecution/requestApproval": CommandApproval,
    "item/fileChange/requestApproval": FileApproval,
    "item/tool/call": ToolCallAsked,
    "mcpServer/elicitation/request": Elicited,
}


class ServerRequest(Struct, frozen=True):
    id: int | str
    asked: Asked


_asked_decoders = {method: msgspec.json.Decoder(kind) for method, kind in _ASKED.items()}


def server_request(id: int | str, method: str, params: Raw) -> ServerRequest:
    decoder = _asked_decoders.get(method)
    try:
        asked: Asked = Unserved(method) if decoder is None else decoder.decode(params)
    except msgspec.ValidationError:
        asked = Unserved(method)
    return ServerRequest(id, asked)


# --- lines ----------------------------------------------------------------------------------------


class Refusal(Struct, frozen=True):
    """The server said no to a request of ours."""

    code: int = 0
    message: str = ""
    data: Any = None

    def is_too_long(self) -> bool:
        """True if what was said is longer than codex takes in one message."""
        return isinstance(self.data, dict) and self.data.get("input_error_code") == INPUT_TOO_LARGE

    def is_in_use(self) -> bool:
        """True if another process has the thread open. Codex has no code for this, so its own
        sentence is read here, and nowhere else."""
        return self.message.endswith("already has an active writer")


class Answer(Struct, frozen=True):
    id: int | str
    result: Raw
    error: Refusal | None = None


class _Line(Struct, frozen=True):
    id: int | str | None = None
    method: str | None = None
    params: Raw = Raw(b"{}")
    result: Raw = Raw(b"{}")
    error: Refusal | None = None


_lines = msgspec.json.Decoder(_Line)


def line(data: bytes) -> Answer | ServerRequest | Notification:
    """Raises msgspec.DecodeError for what is no message. What UTF-8 cannot hold is replaced."""
    try:
        return _message(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as strict:
        try:
            loose = json.loads(data.decode("utf-8", "replace"))
        except ValueError:
            raise msgspec.DecodeError(str(strict)) from strict
        return _message(encode(loose))


def _message(data: bytes) -> Answer | ServerRequest | Notification:
    read = _lines.decode(data)
    if read.method is None:
        return Answer(-1 if read.id is None else read.id, read.result, read.error)
    if read.id is not None:
        return server_request(read.id, read.method, read.params)
    return notification(read.method, read.params)


def written(message: dict[str, Any]) -> bytes:
    return encode(message) + b"\n"


# --- answers that we read -------------------------------------------------------------------------


class Initialized(Read, frozen=True):
    user_agent: str = ""


class AccountRead(Read, frozen=True):
    account: Raw = NOTHING
    requires_openai_auth: bool = False

    def missing(self) -> bool:
        return self.requires_openai_auth and self.account == NOTHING


class ThreadInfo(Read, frozen=True):
    """`path` is the file that codex keeps of it."""

    id: str
    path: str | None = None


class ThreadOpened(Read, frozen=True):
    thread: ThreadInfo
    model: str = ""


class TurnAnswer(Read, frozen=True):
    turn: Turn


class _Listed(Read, frozen=True):
    item: Raw


class ItemsListed(Read, frozen=True):
    data: tuple[_Listed, ...] = ()
    next_cursor: str | None = None

    def said(self) -> frozenset[str]:
        """The ids that came with what was said."""
        items = (item(listed.item) for listed in self.data)
        return frozenset(
            one.client_id for one in items if isinstance(one, UserMessage) and one.client_id
        )

    def answer(self) -> str:
        """The first answer that is listed."""
        items = (item(listed.item) for listed in self.data)
        return next((one.text for one in items if isinstance(one, AgentMessage)), "")
