"""A model that does as it is told, in this process: answers, thinks, asks for tools, hangs, breaks
off, fails. It writes down every request that it was sent."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from steno.engine.request import Request
from steno.journal.facts import Usage
from steno.journal.history import Answered
from steno.journal.parts import Content, Hash, Reasoning, Text, ToolCall
from steno.models.protocol import Finished, ModelError, ModelEvent, ReasoningDelta, TextDelta

USAGE = Usage(input=10, output=5)


class Reply(Struct, frozen=True):
    """What to do with one request: think `thought`, say `pieces`, ask for `tools`, then end."""

    pieces: tuple[str, ...] = ()
    tools: tuple[tuple[str, str], ...] = ()
    thought: str = ""
    pause_s: float = 0.0
    then: Literal["done", "hang", "close"] = "done"
    fails: str = ""
    """The cause of a `ModelError` instead of an answer."""
    retry_after_s: float | None = None
    usage: Usage | None = USAGE


Choose = Callable[[Request], Reply]


def in_order(*replies: Reply) -> Choose:
    """By the number of answers that the request tells of, so that a new process goes on where the
    last one was; the last reply is repeated."""
    return lambda request: replies[min(answers_in(request), len(replies) - 1)]


def answers_in(request: Request) -> int:
    return sum(isinstance(entry, Answered) for entry in request.entries)


def digest(request: Request) -> str:
    """As the fact that says that it is sent names it."""
    return sha256(msgspec.json.encode(request)).hexdigest()[:32]


class FakeModel:
    provider = "fake"

    def __init__(self, choose: Choose, spec: str = "fake:one") -> None:
        self.spec = spec
        self.choose = choose
        self.requests: list[Request] = []
        self.before_answer: Callable[[str], None] = lambda _: None
        self.most_at_once = 0
        self._at_once = 0

    def to_wire(self, request: Request, payloads: Mapping[Hash, bytes]) -> bytes:
        return msgspec.json.encode(request)

    async def stream(self, body: bytes) -> AsyncGenerator[ModelEvent, None]:
        request = msgspec.json.decode(body, type=Request)
        reply = self.choose(request)
        self.requests.append(request)
        self.before_answer(digest(request))
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            async for event in _play(reply, request):
                yield event
        finally:
            self._at_once -= 1

    async def close(self) -> None:
        pass


async def _play(reply: Reply, request: Request) -> AsyncGenerator[ModelEvent, None]:
    if reply.fails:
        raise ModelError(reply.fails, "told to fail", "yes", reply.retry_after_s)
    if reply.thought:
        yield ReasoningDelta(reply.thought)
    for piece in reply.pieces:
        await asyncio.sleep(reply.pause_s)
        yield TextDelta(piece)
        await asyncio.sleep(0)
    if reply.then == "hang":
        await asyncio.Event().wait()
    if reply.then == "close":
        if not reply.pieces:
            raise ModelError("dropped", "told to break off", "yes")
        yield Finished(_parts(replace(reply, tools=()), request), "incomplete", None)
        return
    yield Finished(_parts(reply, request), "complete", reply.usage)


def _parts(reply: Reply, request: Request) -> tuple[Content, ...]:
    parts: list[Content] = [Reasoning(reply.thought)] if reply.thought else []
    if reply.pieces:
        parts.append(Text("".join(reply.pieces)))
    for i, (name, arguments) in enumerate(reply.tools):
        parts.append(ToolCall(f"call-{answers_in(request)}-{i}", name, arguments))
    return tuple(parts)
