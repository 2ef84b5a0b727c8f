"""Models whose answers are known beforehand. They need no network and no key, and ship for your own
tests.

    scripted:echo                              says the user's last message back, in small pieces
    scripted:pieces?n=1000&size=4&rate=500     n numbered pieces of `size` characters, `rate` a
                                               second; 0: no waiting
    scripted:PATH.json                         a script, below

A script is a JSON list of replies. Each is an object; every field may be left out:

    {"text": "Hello",                          what the model says
     "reasoning": "Hm.",                       what it thinks first
     "tool_calls": [{"name": "shell", "arguments": {"command": "ls"}}],
     "pieces": 3,                              characters to a piece; without it all is one piece
     "delay_s": 0.01,                          waited before each piece
     "usage": {"input": 10, "output": 2},      without it the usage is unknown
     "then": "complete"}                       or "length", "hang" (for ever), "drop" (break off),
                                               "error:CAUSE" (those of ModelError)

A reply is chosen by the number of answers in the request, so a new process goes on where the last
one stopped. A reply that shows nothing and then hangs, drops or fails leaves no answer in the
history: it is played once in each process, and the next attempt gets the reply after it. A script
that is over refuses.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from steno.engine.request import Request
from steno.journal.codec import MARK, unescape
from steno.journal.facts import StepEnding, Usage
from steno.journal.history import Answered, Said
from steno.journal.parts import Content, Hash, Reasoning, Text, ToolCall, text_of
from steno.models.protocol import (
    Finished,
    ModelError,
    ModelEvent,
    ReasoningDelta,
    TextDelta,
)
from steno.models.specs import ModelSettings
from steno.models.wire import each_text

ECHO_CHARS = 8
_UNSAFE = f"[\ud800-\udfff{MARK}]"


class ScriptedCall(Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}
    id: str = ""


class ScriptedReply(Struct, forbid_unknown_fields=True):
    text: str = ""
    reasoning: str = ""
    tool_calls: list[ScriptedCall] = []
    pieces: int = 0
    delay_s: float = 0.0
    usage: Usage | None = None
    then: str = "complete"

    def shows(self) -> bool:
        return bool(self.text or self.reasoning)

    def loses(self) -> bool:
        """Whether nothing of it reaches the history."""
        return self.then not in ("complete", "length") and not self.shows()


def make(spec: str, name: str, settings: ModelSettings) -> "ScriptedModel":
    return ScriptedModel(spec, name)


class ScriptedModel:
    provider = "scripted"

    def __init__(self, spec: str, name: str) -> None:
        self.spec, self._name = spec, name
        self._script: list[ScriptedReply] | None = None
        self._lost: dict[int, int] = {}

    def to_wire(self, request: Request, payloads: Mapping[Hash, bytes]) -> bytes:
        return _encode(request)

    async def stream(self, body: bytes) -> AsyncGenerator[ModelEvent, None]:
        request = msgspec.json.decode(body, type=Request)
        async with aclosing(self._events(request)) as events:
            async for event in events:
                yield event

    async def close(self) -> None:
        pass

    def _events(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        name, _, query = self._name.partition("?")
        match name:
            case "echo":
                said = next(
                    (
                        entry
                        for entry in reversed(request.entries)
                        if isinstance(entry, Said)
                    ),
                    None,
                )
                text = unescape(text_of(said.parts)) if said is not None else ""
                return _play(
                    ScriptedReply(text or "(nothing was said)", pieces=ECHO_CHARS),
                    "echo",
                )
            case "pieces":
                return _count(_numbers(query))
            case _:
                return self._reply(
                    sum(isinstance(entry, Answered) for entry in request.entries)
                )

    async def _reply(self, answered: int) -> AsyncGenerator[ModelEvent, None]:
        if self._script is None:
            self._script = await asyncio.to_thread(_read, Path(self._name))
        place = _place(self._script, answered) + self._lost.get(answered, 0)
        if place >= len(self._script):
            raise ModelError(
                "refused",
                f"the script {self._name} is over: it has {len(self._script)} replies",
                "no",
            )
        reply = self._script[place]
        if reply.loses():
            self._lost[answered] = self._lost.get(answered, 0) + 1
        async with aclosing(_play(reply, str(place))) as events:
            async for event in events:
                yield event


def _encode(request: Request) -> bytes:
    """JSON in the journal's words. What JSON cannot hold is escaped as in the journal, so that it
    can be echoed."""
    try:
        body = msgspec.json.encode(request)
    except UnicodeEncodeError:
        body = MARK.encode()
    if MARK.encode() not in body:
        return body
    return msgspec.json.encode(each_text(request, _safe))


def _safe(text: str) -> str:
    return text if text.isascii() else re.sub(_UNSAFE, _escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return f"{MARK}{ord(found[0]):04x}"


def _place(script: list[ScriptedReply], answered: int) -> int:
    """Where the replies for this answer begin: the one that gives it, after those that are lost
    before it."""
    place = 0
    for _ in range(answered):
        while place < len(script) and script[place].loses():
            place += 1
        place += 1
    return place


def _read(path: Path) -> list[ScriptedReply]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[ScriptedReply])
    except OSError as error:
        raise ModelError(
            "unknown_model", f"there is no script at {path}: {error.strerror}", "no"
        ) from error
    except msgspec.DecodeError as error:
        raise ModelError(
            "unknown_model", f"{path} is not a script: {error}", "no"
        ) from error


async def _play(reply: ScriptedReply, name: str) -> AsyncGenerator[ModelEvent, None]:
    for piece in _cut(reply.reasoning, reply.pieces):
        await asyncio.sleep(reply.delay_s)
        yield ReasoningDelta(piece)
    for piece in _cut(reply.text, reply.pieces):
        await asyncio.sleep(reply.delay_s)
        yield TextDelta(piece)
    match reply.then.partition(":"):
        case ("complete" | "length") as ended, "", "":
            yield Finished(_parts(reply, name, ended), ended, reply.usage)
        case "hang", "", "":
            await asyncio.Event().wait()
        case "drop", "", "":
            if not reply.shows():
                raise ModelError("dropped", "the script breaks off here", "yes")
            yield Finished(
                _parts(reply, name, "incomplete"), "incomplete", reply.usage
            )
        case "error", ":", cause:
            if not reply.shows():
                raise ModelError(cause, "the script says so", "yes")
            yield Finished(
                _parts(reply, name, "incomplete"), "incomplete", reply.usage
            )
        case _:
            raise ModelError(
                "refused",
                f"the script says {reply.then!r}, which means nothing",
                "no",
            )


def _parts(reply: ScriptedReply, name: str, ended: StepEnding) -> tuple[Content, ...]:
    parts: list[Content] = []
    if reply.reasoning:
        parts.append(Reasoning(reply.reasoning))
    if reply.text:
        parts.append(Text(reply.text))
    if ended == "complete":
        for number, call in enumerate(reply.tool_calls):
            arguments = msgspec.json.encode(call.arguments).decode()
            parts.append(
                ToolCall(call.id or f"call_{name}_{number}", call.name, arguments)
            )
    return tuple(parts)


def _cut(text: str, size: int) -> list[str]:
    if size <= 0:
        return [text] if text else []
    return [text[i : i + size] for i in range(0, len(text), size)]


# --- pieces ---------------------------------------------------------------------------------------


class Pieces(Struct, frozen=True, forbid_unknown_fields=True):
    n: int = 100
    size: int = 4
    rate: float = 0.0


def _numbers(query: str) -> Pieces:
    try:
        return msgspec.convert(dict(parse_qsl(query)), Pieces, strict=False)
    except msgspec.ValidationError as error:
        raise ModelError(
            "unknown_model", f"scripted:pieces?{query} cannot be read: {error}", "no"
        ) from error


async def _count(pieces: Pieces) -> AsyncGenerator[ModelEvent, None]:
    """Each piece ends with its number, as far as that fits, so that a lost or doubled one shows."""
    clock = asyncio.get_running_loop().time
    began, said = clock(), []
    for number in range(pieces.n):
        due = began + number / pieces.rate if pieces.rate > 0 else 0.0
        await asyncio.sleep(max(0.0, due - clock()) if due else 0.0)
        piece = f"{number:>{pieces.size}}"[-pieces.size :] if pieces.size > 0 else ""
        said.append(piece)
        yield TextDelta(piece)
    text = "".join(said)
    yield Finished((Text(text),) if text else (), "complete", Usage(output=pieces.n))
