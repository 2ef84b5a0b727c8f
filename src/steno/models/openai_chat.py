"""Chat Completions, as OpenAI, Ollama, vLLM, llama.cpp, OpenRouter and many more speak it.

Out: inputs stay messages of their own; what the model and the runtime say in its place is joined to
one message. In: a finish_reason is the end marker, with or without [DONE]. Usage may be missing;
then it is unknown.

Some servers demand back what they sent beside a call: DeepSeek and Kimi their reasoning, Gemini a
signature. Both are kept as blobs, so that they go back there and nowhere else.
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
    FromModel,
    FromTools,
    FromUser,
    Message,
    Picture,
    Plain,
    Shown,
    Thought,
    Words,
    conversation,
    shown_text,
)
from steno.models.failures import reported, unreadable
from steno.models.protocol import Endpoint
from steno.models.providers import ModelTuning
from steno.models.wire import decode, encode, is_object, schema

PATH = "/chat/completions"
CALL_ID = re.compile(r"[\x21-\x7e]{1,40}")
CUT_SHORT = frozenset(("length", "max_tokens"))
NO_END = frozenset(
    ("error", "abort", "network_error", "insufficient_system_resource")
)


def endpoint(base_url: str) -> Endpoint:
    return Endpoint(base_url.rstrip("/") + PATH)


def format(name: str, provider: str, tuning: ModelTuning) -> "ChatFormat":
    return ChatFormat(name, provider, tuning)


class ChatFormat(Struct, frozen=True):
    model: str
    provider: str
    tuning: ModelTuning = ModelTuning()

    def to_wire(self, request: Request, payloads: Mapping[Hash, bytes]) -> bytes:
        body: dict[str, Any] = {
            "model": self.model,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        body |= self._tuned()
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        told = conversation(request, payloads, self.provider, CALL_ID)
        body["messages"] = _messages(request.system, told.messages())
        return encode(body)

    def _tuned(self) -> dict[str, Any]:
        """What is set for this model. OpenAI has a name of its own for the most tokens."""
        own, tuned = "@" not in self.provider, dict[str, Any]()
        if self.tuning.effort:
            tuned["reasoning_effort"] = self.tuning.effort
        if self.tuning.temperature is not None:
            tuned["temperature"] = self.tuning.temperature
        if self.tuning.max_tokens:
            tuned["max_completion_tokens" if own else "max_tokens"] = (
                self.tuning.max_tokens
            )
        return tuned

    def reader(self) -> "ChatReader":
        return ChatReader(self.provider)


class _ChatMessage(Struct, gc=False):
    """A message of one text. A session has thousands of them, and this is quicker to make and to
    write than a dict."""

    role: str
    content: str


def _messages(system: str, messages: list[Message]) -> list[Any]:
    wire: list[Any] = [_ChatMessage("system", system)] if system.strip() else []
    answering = False
    for message in messages:
        match message:
            case Plain(speaker="user"):
                wire.append(_ChatMessage("user", message.text))
            case FromUser():
                wire.append({"role": "user", "content": _user_content(message.shown)})
            case FromTools():
                wire.extend(
                    {
                        "role": "tool",
                        "tool_call_id": result.call,
                        "content": shown_text(result.shown),
                    }
                    for result in message.results
                )
            case Plain() | FromModel():
                said = _assistant(message)
                if answering:
                    said = _joined(wire.pop(), said)
                wire.append(said)
                answering = True
                continue
            case unreachable:
                assert_never(unreachable)
        answering = False
    return wire


def _user_content(shown: Shown) -> str | list[dict[str, Any]]:
    """A plain string where one will do: not every server takes a list."""
    if not any(isinstance(block, Picture) for block in shown):
        return shown_text(shown)
    return [
        {"type": "text", "text": block.text}
        if isinstance(block, Words)
        else {
            "type": "image_url",
            "image_url": {"url": f"data:{block.media_type};base64,{block.base64}"},
        }
        for block in shown
    ]


def _assistant(message: Plain | FromModel) -> "_ChatMessage | dict[str, Any]":
    if isinstance(message, Plain):
        return _ChatMessage("assistant", message.text)
    words = [block.text for block in message.blocks if isinstance(block, Words)]
    said: dict[str, Any] = {
        "role": "assistant",
        "content": "\n\n".join(words) if words else None,
    }
    if not any(isinstance(block, Call) for block in message.blocks):
        return said
    calls: list[dict[str, Any]] = []
    extra: dict[str, Any] = {}
    for block in message.blocks:
        if isinstance(block, Thought):
            beside = _beside(block)
            if beside.field:
                said[beside.field] = said.get(beside.field, "") + block.text
            elif beside.extra_content is not None:
                extra = {"extra_content": beside.extra_content}
        elif isinstance(block, Call):
            function = {"name": block.name, "arguments": block.arguments}
            calls.append(
                {"id": block.id, "type": "function", "function": function, **extra}
            )
            extra = {}
    return {**said, "tool_calls": calls}


def _beside(thought: Thought) -> "_Beside":
    try:
        return _besides.decode(thought.data)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return _Beside()


def _joined(
    last: "_ChatMessage | dict[str, Any]", said: "_ChatMessage | dict[str, Any]"
) -> dict[str, Any]:
    """Two answers in a row (the first broke off) are one message; no answer follows one that has
    calls."""
    first, second = msgspec.to_builtins(last), msgspec.to_builtins(said)
    texts = [text for text in (first["content"], second["content"]) if text]
    return {**first, **second, "content": "\n\n".join(texts) if texts else None}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": schema(tool),
    }
    return {"type": "function", "function": function}


# --- what comes back ------------------------------------------------------------------------------


class _Beside(Struct, omit_defaults=True):
    """The data of a blob: the field that its text came in, or what was sent beside the call after
    it."""

    field: str = ""
    extra_content: Any = None


_besides = msgspec.json.Decoder(_Beside)
"""Made here: msgspec crashes when two threads first meet a type at once, and requests are written
in threads."""


class _Function(Struct):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: Any = None


class _ChatDelta(Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_CallDelta] | None = None


class _Choice(Struct):
    index: int = 0
    delta: _ChatDelta | None = None
    finish_reason: str | None = None


class _PromptDetails(Struct):
    cached_tokens: int | None = None


class _CompletionDetails(Struct):
    reasoning_tokens: int | None = None


class _ChatUsage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _Chunk(Struct):
    id: str | None = None
    choices: list[_Choice] | None = None
    usage: _ChatUsage | None = None
    error: Any = None


_chunks: msgspec.json.Decoder[_Chunk] = msgspec.json.Decoder(_Chunk)


class ChatReader:
    def __init__(self, provider: str) -> None:
        self.answer = Answer()
        self.ended: StepEnding | None = None
        self.usage: Usage | None = None
        self._provider = provider
        self._id = ""
        self._calls: dict[int, CallInProgress] = {}

    def read(self, data: str) -> list[Delta]:
        if data == "[DONE]":
            return []
        try:
            chunk = decode(_chunks, data)
        except msgspec.DecodeError as error:
            raise unreadable(error) from error
        if chunk.error is not None:
            raise reported(chunk.error)
        self._id = self._id or chunk.id or ""
        if chunk.usage is not None:
            self.usage = _usage(chunk.usage)
        deltas: list[Delta] = []
        for choice in chunk.choices or ():
            if choice.index == 0:
                deltas += self._choice(choice)
        return deltas

    def parts(self, ended: StepEnding) -> tuple[Content, ...]:
        return self.answer.parts(ended, self._id)

    def _choice(self, choice: _Choice) -> list[Delta]:
        deltas = [] if choice.delta is None else self._delta(choice.delta)
        if choice.finish_reason and choice.finish_reason not in NO_END:
            self.ended = "length" if choice.finish_reason in CUT_SHORT else "complete"
        return deltas

    def _delta(self, delta: _ChatDelta) -> list[Delta]:
        deltas: list[Delta] = []
        if delta.reasoning_content or delta.reasoning:
            field = "reasoning_content" if delta.reasoning_content else "reasoning"
            deltas += self.answer.think(
                delta.reasoning_content or delta.reasoning or "",
                self._blob(_Beside(field=field)),
            )
        deltas += self.answer.say(delta.content or "")
        deltas += self.answer.say(delta.refusal or "")
        for call in delta.tool_calls or ():
            self._call(call)
        return deltas

    def _call(self, delta: _CallDelta) -> None:
        function = delta.function or _Function()
        index = (
            delta.index if delta.index is not None else max(self._calls, default=0)
        )
        call = self._calls.get(index)
        if call is None or _is_another(call, delta.id or "", function.name or ""):
            call = self._calls[index] = self.answer.call(
                delta.id or "", function.name or ""
            )
        call.id = call.id or delta.id or ""
        call.name = call.name or function.name or ""
        if function.arguments:
            call.pieces.append(function.arguments)
        if delta.extra_content is not None:
            call.blob = self._blob(_Beside(extra_content=delta.extra_content))

    def _blob(self, beside: _Beside) -> Blob:
        return Blob(self._provider, msgspec.json.encode(beside).decode())


def _is_another(call: CallInProgress, id: str, name: str) -> bool:
    """Whether a delta begins a call although its index is taken: some servers give every call the
    same index."""
    if id and call.id:
        return id != call.id
    return bool(name) and bool(call.name) and is_object(call.arguments())


def _usage(usage: _ChatUsage) -> Usage:
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        usage.prompt_tokens,
        usage.completion_tokens,
        None if prompt is None else prompt.cached_tokens,
        None if completion is None else completion.reasoning_tokens,
    )
