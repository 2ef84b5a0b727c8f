"""The messages of codex's app-server, as far as we read or write them: JSON, one a line, without
`jsonrpc`. And what our hooks tell us, which codex runs for the gate.

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
from steno.runtimes.codex.items import (
    NOTHING,
    AgentMessage,
    Item,
    Read,
    UserMessage,
    item,
)

VERSIONS = "0.163 to 0.169"
"""Those that were tried. Another one is used all the same, and a log says so."""
INPUT_TOO_LARGE = "input_too_large"


# --- notifications --------------------------------------------------------------------------------


class OfTurn(Read, frozen=True, kw_only=True):
    """Base of what is said about one turn."""

    turn_id: str = ""


class ItemStarted(Struct, frozen=True):
    turn_id: str
    item: Item


class ItemCompleted(Struct, frozen=True):
    turn_id: str
    item: Item


class _ItemNote(OfTurn, frozen=True):
    item: Raw


class _Delta(OfTurn, frozen=True):
    item_id: str
    delta: str


class AgentDelta(_Delta, frozen=True):
    pass


class PlanDelta(_Delta, frozen=True):
    pass


class ThoughtDelta(_Delta, frozen=True):
    pass


class OutputDelta(_Delta, frozen=True):
    pass


class ThoughtPart(OfTurn, frozen=True):
    """Another part of the summary of its reasoning begins."""

    item_id: str
    summary_index: int = 0


class StdinTyped(OfTurn, frozen=True):
    """What codex typed into a command that runs; "" if it only looked at it."""

    item_id: str
    stdin: str = ""


class Failure(Read, frozen=True):
    """`codex_error_info` is a word, or an object with one key."""

    message: str = ""
    codex_error_info: Raw = NOTHING
    additional_details: str | None = None

    def reason(self) -> str:
        """Where codex tries again, `message` only says how often."""
        return self.additional_details or self.message


class ErrorNote(OfTurn, frozen=True):
    error: Failure
    will_retry: bool = False


class TurnInfo(Read, frozen=True):
    id: str
    status: str = ""
    error: Failure | None = None


class TurnStartedNote(Read, frozen=True):
    turn: TurnInfo


class TurnCompleted(Read, frozen=True):
    turn: TurnInfo


class ThreadStatus(Read, frozen=True):
    active_flags: tuple[str, ...] = ()


class StatusChanged(Read, frozen=True):
    status: ThreadStatus

    def waits(self) -> bool:
        """True if codex waits for the answer to a question."""
        return "waitingOnApproval" in self.status.active_flags


class Tokens(Read, frozen=True):
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0


class TokenUsage(Read, frozen=True):
    last: Tokens


class UsageUpdated(OfTurn, frozen=True):
    token_usage: TokenUsage


class PlannedStep(Read, frozen=True):
    step: str
    status: str


class PlanUpdatedNote(OfTurn, frozen=True):
    plan: tuple[PlannedStep, ...]
    explanation: str | None = None


class HookRun(Read, frozen=True):
    """`source` says whose hook it is; the id ends with the call that it stands before or after."""

    id: str
    source: str = ""
    event_name: str = ""


class HookStarted(Read, frozen=True):
    run: HookRun


class HookCompleted(Read, frozen=True):
    run: HookRun


class CommandOver(Struct, frozen=True):
    """Our hook says that a command is over, and what it said."""

    call: str = msgspec.field(name="tool_use_id")
    turn_id: str
    response: Raw = msgspec.field(name="tool_response")

    def said(self) -> str:
        said = msgspec.json.decode(self.response)
        return (
            said
            if isinstance(said, str)
            else bytes(self.response).decode("utf-8", "replace")
        )


class Quiet(Struct, frozen=True):
    """A notification that we know and need nothing of."""


class Skipped(Struct, frozen=True):
    """A notification that we do not know."""

    method: str


HookNote = HookStarted | HookCompleted
"""About the hooks of the gate: these are no part of a turn."""
Notification = (
    ItemStarted
    | ItemCompleted
    | AgentDelta
    | PlanDelta
    | ThoughtDelta
    | ThoughtPart
    | OutputDelta
    | StdinTyped
    | ErrorNote
    | TurnStartedNote
    | TurnCompleted
    | StatusChanged
    | UsageUpdated
    | PlanUpdatedNote
    | CommandOver
    | Quiet
    | Skipped
)

_NOTES: Mapping[str, type[Any]] = {
    "item/agentMessage/delta": AgentDelta,
    "item/plan/delta": PlanDelta,
    "item/reasoning/summaryTextDelta": ThoughtDelta,
    "item/reasoning/textDelta": ThoughtDelta,
    "item/reasoning/summaryPartAdded": ThoughtPart,
    "item/commandExecution/outputDelta": OutputDelta,
    "item/fileChange/outputDelta": OutputDelta,
    "item/commandExecution/terminalInteraction": StdinTyped,
    "error": ErrorNote,
    "turn/started": TurnStartedNote,
    "turn/completed": TurnCompleted,
    "thread/status/changed": StatusChanged,
    "thread/tokenUsage/updated": UsageUpdated,
    "turn/plan/updated": PlanUpdatedNote,
    "hook/started": HookStarted,
    "hook/completed": HookCompleted,
}
_QUIET = frozenset(
    [
        "account/rateLimits/updated",
        "account/updated",
        "app/list/updated",
        "configWarning",
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
        "warning",
    ]
)


_note_decoders = {
    method: msgspec.json.Decoder(kind) for method, kind in _NOTES.items()
}
_item_notes = msgspec.json.Decoder(_ItemNote)
_command_overs = msgspec.json.Decoder(CommandOver)


def notification(method: str, params: Raw) -> Notification | HookNote:
    if method in ("item/started", "item/completed"):
        note = _item_notes.decode(params)
        kind = ItemStarted if method == "item/started" else ItemCompleted
        return kind(note.turn_id, item(note.item))
    if method in _QUIET:
        return Quiet()
    if (known := _note_decoders.get(method)) is None:
        return Skipped(method)
    try:
        read: Notification | HookNote = known.decode(params)
    except msgspec.ValidationError:
        return _ended(params) if method == "turn/completed" else Skipped(method)
    return read


def command_over(written: bytes) -> CommandOver:
    """Raises msgspec.DecodeError for what is none, or not whole yet."""
    return _command_overs.decode(written)


def turn_of(note: Notification) -> str:
    """The turn that a notification is about; "" if it does not say."""
    if isinstance(note, TurnStartedNote | TurnCompleted):
        return note.turn.id
    return str(getattr(note, "turn_id", ""))


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
    why = Failure("it ended in a way that steno cannot read")
    return TurnCompleted(TurnInfo(turn.id, turn.status, why))


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


class _ApprovalMeta(Read, frozen=True):
    codex_approval_kind: str = msgspec.field(default="", name="codex_approval_kind")


class Elicited(Read, frozen=True):
    """An MCP server wants something from a person; or codex itself asks whether one of its tools
    may run."""

    server_name: str
    meta: _ApprovalMeta | None = msgspec.field(default=None, name="_meta")

    def approves(self) -> bool:
        return (
            self.meta is not None and self.meta.codex_approval_kind == "mcp_tool_call"
        )


class _CommandInput(Struct, frozen=True):
    command: str


class WaitingCall(Struct, frozen=True):
    """A call that waits at our gate: codex has not told of it yet. `tool` and `input` are codex's
    words for it. `path` is the file that it keeps of the thread."""

    call: str = msgspec.field(name="tool_use_id")
    turn: str = msgspec.field(name="turn_id")
    tool: str = msgspec.field(name="tool_name")
    input: Raw = msgspec.field(name="tool_input")
    folder: str = msgspec.field(default="", name="cwd")
    path: str | None = msgspec.field(default=None, name="transcript_path")

    def command(self) -> str | None:
        """None if it is no command."""
        return (
            _command_inputs.decode(self.input).command
            if self.tool == "Bash"
            else None
        )

    def patch(self) -> str | None:
        """None if it is no call of codex's own tool for changes."""
        return (
            _command_inputs.decode(self.input).command
            if self.tool == "apply_patch"
            else None
        )


class Unserved(Struct, frozen=True):
    """A request that we have no answer to."""

    method: str


Asked = (
    CommandApproval | FileApproval | ToolCallAsked | Elicited | WaitingCall | Unserved
)

_ASKED: Mapping[str, type[Any]] = {
    "item/commandExecution/requestApproval": CommandApproval,
    "item/fileChange/requestApproval": FileApproval,
    "item/tool/call": ToolCallAsked,
    "mcpServer/elicitation/request": Elicited,
}


class ServerRequest(Struct, frozen=True):
    id: int | str
    asked: Asked


_asked_decoders = {
    method: msgspec.json.Decoder(kind) for method, kind in _ASKED.items()
}
_waiting_calls = msgspec.json.Decoder(WaitingCall)
_command_inputs = msgspec.json.Decoder(_CommandInput)


def server_request(id: int | str, method: str, params: Raw) -> ServerRequest:
    decoder = _asked_decoders.get(method)
    try:
        asked: Asked = Unserved(method) if decoder is None else decoder.decode(params)
    except msgspec.ValidationError:
        asked = Unserved(method)
    return ServerRequest(id, asked)


def waiting_call(line: bytes) -> WaitingCall:
    """Raises msgspec.DecodeError for what is none."""
    read = _waiting_calls.decode(line)
    read.command(), read.patch()
    return read


# --- lines ----------------------------------------------------------------------------------------


class RpcError(Struct, frozen=True):
    """The server said no to a request of ours."""

    code: int = 0
    message: str = ""
    data: Any = None

    def is_too_long(self) -> bool:
        """True if what was said is longer than codex takes in one message."""
        return (
            isinstance(self.data, dict)
            and self.data.get("input_error_code") == INPUT_TOO_LARGE
        )

    def is_in_use(self) -> bool:
        """True if another process has the thread open. Codex has no code for this, so its own
        sentence is read here, and nowhere else."""
        return self.message.endswith("already has an active writer")


class RpcAnswer(Struct, frozen=True):
    id: int | str
    result: Raw
    error: RpcError | None = None


class _RpcLine(Struct, frozen=True):
    id: int | str | None = None
    method: str | None = None
    params: Raw = Raw(b"{}")
    result: Raw = Raw(b"{}")
    error: RpcError | None = None


Line = RpcAnswer | ServerRequest | Notification | HookNote

_lines = msgspec.json.Decoder(_RpcLine)


def line(data: bytes) -> Line:
    """Raises msgspec.DecodeError for what is no message. What UTF-8 cannot hold is replaced."""
    try:
        return _message(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as strict:
        try:
            loose = json.loads(data.decode("utf-8", "replace"))
        except ValueError:
            raise msgspec.DecodeError(str(strict)) from strict
        return _message(encode(loose))


def _message(data: bytes) -> Line:
    read = _lines.decode(data)
    if read.method is None:
        return RpcAnswer(-1 if read.id is None else read.id, read.result, read.error)
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
    turn: TurnInfo


class _ListedItem(Read, frozen=True):
    item: Raw


class ItemsListed(Read, frozen=True):
    data: tuple[_ListedItem, ...] = ()
    next_cursor: str | None = None

    def said(self) -> frozenset[str]:
        """The ids that came with what was said."""
        items = (item(listed.item) for listed in self.data)
        return frozenset(
            one.client_id
            for one in items
            if isinstance(one, UserMessage) and one.client_id
        )

    def answer(self) -> str:
        """The first answer that is listed."""
        items = (item(listed.item) for listed in self.data)
        return next((one.text for one in items if isinstance(one, AgentMessage)), "")


class Hook(Read, frozen=True):
    key: str
    current_hash: str
    event_name: str = ""
    command: str | None = None
    enabled: bool = True


class HooksError(Read, frozen=True):
    message: str = ""


class HooksOfFolder(Read, frozen=True):
    hooks: tuple[Hook, ...] = ()
    errors: tuple[HooksError, ...] = ()


class HooksListed(Read, frozen=True):
    data: tuple[HooksOfFolder, ...] = ()

    def hooks(self) -> tuple[Hook, ...]:
        return tuple(hook for folder in self.data for hook in folder.hooks)

    def wrong(self) -> str:
        """Why codex knows of none, if it says so."""
        return next(
            (error.message for folder in self.data for error in folder.errors), ""
        )
