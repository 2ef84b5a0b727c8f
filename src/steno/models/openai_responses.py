"""Responses, as OpenAI speaks it, without state on the server.

Out: a flat list of items, one after another. In: response.completed or response.incomplete is the
end marker.

Reasoning comes encrypted as an item of its own; the item is a blob and goes back whole, before what
it led to.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, assert_never

import msgspec
from msgspec import Struct

from steno.engine.request import Request
from steno.journal.facts import StepEnding, ToolSpec, Usage
from steno.journal.parts import Blob, Content, Hash
from steno.models.answer import Answer, CallInProgress, Delta
from steno.models.conversation import (
    Call,
    FromModel,
    FromTools,
    FromUser,
    Picture,
    Plain,
    Result,
    Shown,
    Thought,
    Words,
    conversation,
    shown_text,
)
from steno.models.failures import reported, unreadable
from steno.models.protocol import Endpoint, ModelError
from steno.models.providers import ModelTuning
from steno.models.wire import decode, encode, schema

PATH = "/responses"
CALL_ID = re.compile(r"[\x21-\x7e]{1,64}")
ENCRYPTED = "reasoning.encrypted_content"
WITHOUT_REASONING = re.compile(r"(.*/)?(gpt-3\.5|gpt-4|chatgpt-4)")
"""Models that refuse a request which asks for encrypted reasoning."""


def endpoint(base_url: str) -> Endpoint:
    return Endpoint(base_url.rstrip("/") + PATH)


def format(name: str, provider: str, tuning: ModelTuning) -> "ResponsesFormat":
    return ResponsesFormat(name, provider, tuning)


class ResponsesFormat(Struct, frozen=True):
    model: str
    provider: str
    tuning: ModelTuning = ModelTuning()

    def to_wire(self, request: Request, payloads: Mapping[Hash, bytes]) -> bytes:
        body: dict[str, Any] = {"model": self.model, "stream": True, "store": False}
        if WITHOUT_REASONING.match(self.model) is None:
            body["include"] = [ENCRYPTED]
        if self.tuning.effort:
            body["reasoning"] = {"effort": self.tuning.effort}
        if self.tuning.temperature is not None:
            body["temperature"] = self.tuning.temperature
        if self.tuning.max_tokens:
            body["max_output_tokens"] = self.tuning.max_tokens
        if request.system.strip():
            body["instructions"] = request.system
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        told = conversation(request, payloads, self.provider, CALL_ID)
        items: list[Any] = []
        for message in told.messages():
            if isinstance(message, Plain):
                items.append(_plain(message))
            else:
                items.extend(_items(message))
        body["input"] = items
        return encode(body)

    def reader(self) -> "ResponsesReader":
        return ResponsesReader(self.provider)


class _InputText(Struct, gc=False, tag_field="type", tag="input_text"):
    """A session has thousands of these, and a struct is quicker to make and to write than a
    dict."""

    text: str


class _InputMessage(Struct, gc=False, tag_field="type", tag="message"):
    role: str
    content: Any


def _plain(message: Plain) -> _InputMessage:
    if message.speaker == "user":
        return _InputMessage("user", (_InputText(message.text),))
    return _InputMessage("assistant", message.text)


def _items(message: FromUser | FromModel | FromTools) -> list[Any]:
    match message:
        case FromUser():
            return [_InputMessage("user", _shown(message.shown))]
        case FromModel():
            return [
                item for block in message.blocks if (item := _item(block)) is not None
            ]
        case FromTools():
            return [
                {
                    "type": "function_call_output",
                    "call_id": result.call,
                    "output": _output(result),
                }
                for result in message.results
            ]
        case unreachable:
            assert_never(unreachable)


def _item(block: Thought | Words | Call) -> Any:
    match block:
        case Words():
            return _InputMessage("assistant", block.text)
        case Call():
            called = {
                "call_id": block.id,
                "name": block.name,
                "arguments": block.arguments,
            }
            return {"type": "function_call", **called}
        case Thought():
            return _thinking(block.data)
        case unreachable:
            assert_never(unreachable)


def _thinking(data: str) -> "_Thinking | None":
    try:
        return _thoughts.decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


def _shown(shown: Shown) -> list[dict[str, Any]]:
    return [
        {"type": "input_text", "text": block.text}
        if isinstance(block, Words)
        else {
            "type": "input_image",
            "detail": "auto",
            "image_url": f"data:{block.media_type};base64,{block.base64}",
        }
        for block in shown
    ]


def _output(result: Result) -> str | list[dict[str, Any]]:
    if any(isinstance(block, Picture) for block in result.shown):
        return _shown(result.shown)
    return shown_text(result.shown)


def _tool(tool: ToolSpec) -> dict[str, Any]:
    described = {
        "name": tool.name,
        "description": tool.description,
        "parameters": schema(tool),
    }
    return {"type": "function", **described, "strict": False}


# --- what comes back ------------------------------------------------------------------------------


class _SummaryText(Struct):
    text: str = ""
    type: str = "summary_text"


class _SaidBefore(Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


class _OutputItem(Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    summary: list[_SummaryText] | None = None
    content: list[_SaidBefore] | None = None
    encrypted_content: str | None = None


class _Thinking(Struct):
    """The data of a blob: a reasoning item, as it goes back."""

    id: str
    summary: list[_SummaryText]
    encrypted_content: str
    type: Literal["reasoning"] = "reasoning"


_thoughts = msgspec.json.Decoder(_Thinking)
"""Made here: msgspec crashes when two threads first meet a type at once, and requests are written
in threads."""


class _InputDetails(Struct):
    cached_tokens: int | None = None


class _OutputDetails(Struct):
    reasoning_tokens: int | None = None


class _ResponsesUsage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Why(Struct):
    reason: str | None = None


class _Response(Struct):
    usage: _ResponsesUsage | None = None
    error: Any = None
    incomplete_details: _Why | None = None


class _ResponsesEvent(Struct):
    type: str = ""
    output_index: int = 0
    delta: str | None = None
    arguments: str | None = None
    item: _OutputItem | None = None
    response: _Response | None = None
    message: str | None = None
    code: str | None = None
    error: Any = None


_events: msgspec.json.Decoder[_ResponsesEvent] = msgspec.json.Decoder(_ResponsesEvent)


class ResponsesReader:
    def __init__(self, provider: str) -> None:
        self.answer = Answer()
        self.ended: StepEnding | None = None
        self.usage: Usage | None = None
        self._provider = provider
        self._calls: dict[int, CallInProgress] = {}
        self._spoken: set[int] = set()

    def read(self, data: str) -> list[Delta]:
        if data == "[DONE]":
            return []
        try:
            event = decode(_events, data)
        except msgspec.DecodeError as error:
            raise unreadable(error) from error
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                self._spoken.add(event.output_index)
                return self.answer.say(event.delta or "")
            case (
                "response.reasoning_summary_text.delta"
                | "response.reasoning_text.delta"
            ):
                self._spoken.add(event.output_index)
                return self.answer.think(event.delta or "")
            case "response.reasoning_summary_part.added":
                return (
                    self.answer.think("\n\n")
                    if event.output_index in self._spoken
                    else []
                )
            case "response.output_item.added":
                self._begin(event.output_index, event.item or _OutputItem())
            case "response.function_call_arguments.delta":
                if event.output_index in self._calls:
                    self._calls[event.output_index].pieces.append(event.delta or "")
            case "response.output_item.done":
                return self._done(event.output_index, event.item or _OutputItem())
            case "response.completed" | "response.incomplete" | "response.failed":
                self._end(event.type, event.response or _Response())
            case "error":
                raise reported(
                    event.error or {"message": event.message, "code": event.code}
                )
        return []

    def parts(self, ended: StepEnding) -> tuple[Content, ...]:
        return self.answer.parts(ended)

    def _begin(self, index: int, item: _OutputItem) -> None:
        self.answer.close_part()
        if item.type == "function_call":
            self._calls[index] = self.answer.call(
                item.call_id or item.id or "", item.name or ""
            )

    def _done(self, index: int, item: _OutputItem) -> list[Delta]:
        """The whole item. Its arguments and its encrypted text are good only here; its text is news
        if none came."""
        match item.type:
            case "function_call":
                if index not in self._calls:
                    self._begin(index, item)
                self._calls[index].pieces = [item.arguments or ""]
            case "message":
                if index not in self._spoken:
                    return self._say_whole(item)
            case "reasoning":
                deltas = self._think_whole(item) if index not in self._spoken else []
                if item.encrypted_content:
                    whole = _Thinking(
                        item.id or "", item.summary or [], item.encrypted_content
                    )
                    self.answer.bind(
                        Blob(self._provider, msgspec.json.encode(whole).decode())
                    )
                return deltas
        self.answer.close_part()
        return []

    def _say_whole(self, item: _OutputItem) -> list[Delta]:
        return self.answer.say(
            "".join(said.text or said.refusal or "" for said in item.content or ())
        )

    def _think_whole(self, item: _OutputItem) -> list[Delta]:
        return self.answer.think(
            "\n\n".join(summary.text for summary in item.summary or ())
        )

    def _end(self, type: str, response: _Response) -> None:
        if response.usage is not None:
            self.usage = _usage(response.usage)
        if type == "response.failed":
            raise reported(response.error or {"message": "the response failed"})
        why = (
            response.incomplete_details.reason
            if response.incomplete_details is not None
            else None
        )
        if type == "response.completed":
            self.ended = "complete"
        elif why == "content_filter" and not self.answer.visible:
            raise ModelError(
                "refused", "the provider's content filter stopped the answer", "yes"
            )
        else:
            self.ended = "complete" if why == "content_filter" else "length"


def _usage(usage: _ResponsesUsage) -> Usage:
    read, thought = usage.input_tokens_details, usage.output_tokens_details
    return Usage(
        usage.input_tokens,
        usage.output_tokens,
        None if read is None else read.cached_tokens,
        None if thought is None else thought.reasoning_tokens,
    )
