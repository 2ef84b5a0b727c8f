"""Messages, as Anthropic speaks it.

Out: adjacent messages of one role are joined block by block; results of calls are the user's, and
come first because they follow the call at once. Cache markers stand on the system prompt and on the
last block that later requests repeat. In: message_stop is the end marker.

Thinking is signed. The signature goes back as a blob, with the text it signs; redacted thinking is
a blob alone.
"""

import re
from collections.abc import Mapping
from typing import Any, assert_never

import msgspec
from msgspec import Struct

from steno.engine.request import Request
from steno.journal.facts import StepEnding, ToolSpec, Usage
from steno.journal.parts import Blob, Content, Hash
from steno.models.answer import Answer, CallInProgress, Delta
from steno.models.conversation import (
    Call,
    Conversation,
    FromModel,
    FromTools,
    FromUser,
    Plain,
    Result,
    Shown,
    Thought,
    Words,
    conversation,
)
from steno.models.failures import reported, unreadable
from steno.models.protocol import Endpoint, ModelError
from steno.models.providers import ModelTuning
from steno.models.wire import decode, encode, schema

PATH = "/v1/messages"
VERSION = ("anthropic-version", "2023-06-01")
CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CACHED = {"type": "ephemeral"}
THINKING_TOKENS = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
}
"""What a model may think, by effort. It comes on top of the answer, so that that stays as long."""
NO_TOOL = {
    "name": "none_available",
    "description": "No tool is available. Do not call this.",
    "input_schema": {"type": "object", "properties": {}},
}


def endpoint(base_url: str) -> Endpoint:
    url = base_url.rstrip("/").removesuffix("/v1") + PATH
    return Endpoint(url, key_header="x-api-key", key_prefix="", headers=(VERSION,))


def format(name: str, provider: str, tuning: ModelTuning) -> "MessagesFormat":
    return MessagesFormat(name, provider, tuning)


class MessagesFormat(Struct, frozen=True):
    model: str
    provider: str
    tuning: ModelTuning

    def to_wire(self, request: Request, payloads: Mapping[Hash, bytes]) -> bytes:
        told = conversation(request, payloads, self.provider, CALL_ID)
        most = self.tuning.max_tokens
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": most,
            "stream": True,
        }
        if thinking := THINKING_TOKENS.get(self.tuning.effort):
            body["max_tokens"] = most + thinking
            body["thinking"] = {"type": "enabled", "budget_tokens": thinking}
        elif self.tuning.temperature is not None:  # a model that thinks takes none
            body["temperature"] = self.tuning.temperature
        if request.system.strip():
            body["system"] = [
                {"type": "text", "text": request.system, "cache_control": CACHED}
            ]
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        elif any(isinstance(message, FromTools) for message in told.lasting):
            # Calls in the history are refused where no tool is offered.
            body["tools"], body["tool_choice"] = [NO_TOOL], {"type": "none"}
        body["messages"] = _messages(told)
        return encode(body)

    def reader(self) -> "MessagesReader":
        return MessagesReader(self.provider)


class _TextBlock(Struct, gc=False, tag_field="type", tag="text"):
    """A session has thousands of these, and a struct is quicker to make and to write than a
    dict."""

    text: str


class _MessageStart(Struct, gc=False):
    role: str
    content: list[Any]


def _messages(told: Conversation) -> list[_MessageStart]:
    wire: list[_MessageStart] = []
    for message in told.lasting:
        if isinstance(message, Plain):
            _append(wire, message.speaker, [_TextBlock(message.text)])
        else:
            _append(wire, *_blocks(message))
    if wire:
        last = wire[-1].content
        block = last[-1]
        fields = (
            {"type": "text", "text": block.text}
            if isinstance(block, _TextBlock)
            else block
        )
        last[-1] = {**fields, "cache_control": CACHED}
    if told.note is not None:
        _append(wire, "user", [_TextBlock(told.note.text)])
    return wire


def _append(wire: list[_MessageStart], role: str, blocks: list[Any]) -> None:
    if wire and wire[-1].role == role:
        wire[-1].content.extend(blocks)
    else:
        wire.append(_MessageStart(role, blocks))


def _blocks(
    message: FromUser | FromModel | FromTools,
) -> tuple[str, list[dict[str, Any]]]:
    match message:
        case FromUser():
            return "user", _shown(message.shown)
        case FromModel():
            return "assistant", [
                wire
                for block in message.blocks
                if (wire := _block(block)) is not None
            ]
        case FromTools():
            return "user", [_result(result) for result in message.results]
        case unreachable:
            assert_never(unreachable)


def _shown(shown: Shown) -> list[dict[str, Any]]:
    return [
        {"type": "text", "text": block.text}
        if isinstance(block, Words)
        else {
            "type": "image",
            "source": {
                "type": "base64",
                "media_type": block.media_type,
                "data": block.base64,
            },
        }
        for block in shown
    ]


def _block(block: Thought | Words | Call) -> dict[str, Any] | None:
    match block:
        case Words():
            return {"type": "text", "text": block.text}
        case Call():
            arguments = msgspec.Raw(block.arguments.encode())
            return {
                "type": "tool_use",
                "id": block.id,
                "name": block.name,
                "input": arguments,
            }
        case Thought():
            return _thought(block)
        case unreachable:
            assert_never(unreachable)


def _thought(thought: Thought) -> dict[str, Any] | None:
    try:
        seal = _seals.decode(thought.data)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    if seal.redacted:
        return {"type": "redacted_thinking", "data": seal.redacted}
    return (
        {"type": "thinking", "thinking": thought.text, "signature": seal.signature}
        if seal.signature
        else None
    )


def _result(result: Result) -> dict[str, Any]:
    wire = {
        "type": "tool_result",
        "tool_use_id": result.call,
        "content": _shown(result.shown),
    }
    return {**wire, "is_error": True} if result.failed else wire


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": schema(tool),
    }


# --- what comes back ------------------------------------------------------------------------------


class _Seal(Struct, omit_defaults=True):
    """The data of a blob: what signs the text beside it, or a thought that only its provider can
    read."""

    signature: str = ""
    redacted: str = ""


_seals = msgspec.json.Decoder(_Seal)
"""Made here: msgspec crashes when two threads first meet a type at once, and requests are written
in threads."""


class _Counts(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class _Started(Struct):
    usage: _Counts | None = None


class _Block(Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None


class _BlockDelta(Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _MessagesEvent(Struct):
    type: str = ""
    index: int = 0
    message: _Started | None = None
    content_block: _Block | None = None
    delta: _BlockDelta | None = None
    usage: _Counts | None = None
    error: Any = None


_events: msgspec.json.Decoder[_MessagesEvent] = msgspec.json.Decoder(_MessagesEvent)


class MessagesReader:
    def __init__(self, provider: str) -> None:
        self.answer = Answer()
        self.ended: StepEnding | None = None
        self._provider = provider
        self._stop_reason = ""
        self._signature = ""
        self._call: CallInProgress | None = None
        self._asked: _Counts | None = None
        self._counted: _Counts | None = None

    @property
    def usage(self) -> Usage | None:
        """`input` is all of it, `cached` the share that was read from a cache, as in every other
        format. The output is known at the end only: what message_start says of it is a
        beginning."""
        if self._asked is None and self._counted is None:
            return None
        asked, counted = self._asked or _Counts(), self._counted or _Counts()
        fresh = (
            counted.input_tokens
            if counted.input_tokens is not None
            else asked.input_tokens
        )
        read = _latest(counted.cache_read_input_tokens, asked.cache_read_input_tokens)
        made = _latest(
            counted.cache_creation_input_tokens, asked.cache_creation_input_tokens
        )
        whole = None if fresh is None else fresh + (read or 0) + (made or 0)
        return Usage(whole, counted.output_tokens, read)

    def read(self, data: str) -> list[Delta]:
        try:
            event = decode(_events, data)
        except msgspec.DecodeError as error:
            raise unreadable(error) from error
        match event.type:
            case "message_start":
                self._asked = (
                    event.message.usage if event.message is not None else None
                )
            case "content_block_start":
                return self._begin(event.content_block or _Block())
            case "content_block_delta":
                return self._delta(event.delta or _BlockDelta())
            case "content_block_stop":
                self._stop_block()
            case "message_delta":
                self._counted = event.usage or self._counted
                self._stop_reason = (
                    event.delta and event.delta.stop_reason
                ) or self._stop_reason
            case "message_stop":
                self._stop()
            case "error":
                raise reported(event.error)
        return []

    def parts(self, ended: StepEnding) -> tuple[Content, ...]:
        return self.answer.parts(ended)

    def _begin(self, block: _Block) -> list[Delta]:
        self.answer.close_part()
        self._signature, self._call = block.signature or "", None
        match block.type:
            case "text":
                return self.answer.say(block.text or "")
            case "thinking":
                return self.answer.think(block.thinking or "")
            case "redacted_thinking":
                self._bind(_Seal(redacted=block.data or ""))
            case "tool_use":
                self._call = self.answer.call(block.id or "", block.name or "")
                if block.input:
                    self._call.pieces.append(
                        msgspec.json.encode(block.input).decode()
                    )
        return []

    def _delta(self, delta: _BlockDelta) -> list[Delta]:
        match delta.type:
            case "text_delta":
                return self.answer.say(delta.text or "")
            case "thinking_delta":
                return self.answer.think(delta.thinking or "")
            case "signature_delta":
                self._signature += delta.signature or ""
            case "input_json_delta":
                if self._call is not None:
                    self._call.pieces.append(delta.partial_json or "")
        return []

    def _stop_block(self) -> None:
        if self._signature:
            self._bind(_Seal(signature=self._signature))
            self._signature = ""
        self.answer.close_part()

    def _bind(self, seal: _Seal) -> None:
        self.answer.bind(Blob(self._provider, msgspec.json.encode(seal).decode()))

    def _stop(self) -> None:
        match self._stop_reason:
            case "max_tokens" | "model_context_window_exceeded":
                self.ended = "length"
            case "refusal" if not self.answer.visible:
                raise ModelError("refused", "the model declined to answer", "yes")
            case _:
                self.ended = "complete"


def _latest(later: int | None, earlier: int | None) -> int | None:
    return earlier if later is None else later
