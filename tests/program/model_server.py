"""A model server on loopback that records every request and does what it is told: answer, hang,
stream and hang, close the socket, ask for tools, fail. It speaks Chat Completions and Messages."""

import asyncio
import json
import ssl
import threading
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

SIGNED = "signed-by-the-server"
HELD_S = 60.0


class Reply(Struct, frozen=True):
    """What to do with one request: think `thought`, which Messages signs, stream `pieces`, then end
    as `then` says. One that is `held` keeps its last piece back until the server is told to
    `go_on`."""

    pieces: tuple[str, ...] = ()
    tools: tuple[tuple[str, str], ...] = ()
    delay_s: float = 0.0
    held: bool = False
    then: Literal["done", "hang", "close", "eof"] = "done"
    status: int = 200
    usage: bool = True
    input_tokens: int = 10
    retry_after: str = ""
    complaint: str = "told to fail"
    thought: str = ""


class ModelServer:
    """Replies are used in order; the last one is repeated. Where `choose` is given, it picks the
    reply by the request. `on_request` runs before anything is answered. With `tls` it is to be
    reached by https."""

    def __init__(
        self, *replies: Reply, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> None:
        self._tls, self._host = tls, host
        self.replies = list(replies) or [Reply(("ok",))]
        self.requests: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.on_request: Callable[[dict[str, Any]], None] | None = None
        self.choose: Callable[[dict[str, Any]], Reply] | None = None
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._going_on = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.port = 0

    def __enter__(self) -> "ModelServer":
        self._thread.start()
        self._ready.wait(10)
        return self

    def go_on(self) -> None:
        """Let answers that are held end, now and from here on."""
        self._going_on.set()

    def hold_again(self) -> None:
        self._going_on.clear()

    def __exit__(self, *_: object) -> None:
        self.go_on()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    @property
    def url(self) -> str:
        return f"http{'s' * (self._tls is not None)}://{self._host}:{self.port}/v1"

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._handle, self._host, 0, ssl=self._tls)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await self._read(reader):
                path, body = request
                self.in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self.in_flight)
                try:
                    await self._answer(reader, writer, path, body)
                finally:
                    self.in_flight -= 1
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> tuple[str, bytes] | None:
        line = await reader.readline()
        if not line:
            return None
        length = 0
        while (header := await reader.readline()) not in (b"\r\n", b""):
            name, _, value = header.decode().partition(":")
            if name.lower() == "content-length":
                length = int(value)
        return line.decode().split()[1], await reader.readexactly(length)

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes
    ) -> None:
        request = json.loads(body)
        in_order = self.replies[min(len(self.requests), len(self.replies) - 1)]
        reply = in_order if self.choose is None else self.choose(request)
        self.requests.append(request)
        self.bodies.append(body)
        if self.on_request is not None:
            await asyncio.to_thread(self.on_request, request)
        if reply.status != 200:
            answer = json.dumps(
                {"error": {"message": reply.complaint, "type": "server_error"}}
            ).encode()
            writer.write(b"HTTP/1.1 %d Told\r\ncontent-type: application/json\r\n" % reply.status)
            if reply.retry_after:
                writer.write(f"retry-after: {reply.retry_after}\r\n".encode())
            writer.write(b"content-length: %d\r\n\r\n" % len(answer) + answer)
            await writer.drain()
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: "
            b"chunked\r\n\r\n"
        )
        events = anthropic_events(reply) if path.endswith("/messages") else openai_events(reply)
        last = max((i for i, (pause, _) in enumerate(events) if pause), default=-1)
        for i, (pause, event) in enumerate(events):
            if pause and reply.delay_s:
                await asyncio.sleep(reply.delay_s)
            if i == last and reply.held:
                await asyncio.to_thread(self._going_on.wait, HELD_S)
            writer.write(b"%x\r\n" % len(event) + event + b"\r\n")
            await writer.drain()
        match reply.then:
            case "hang":
                await reader.read()  # to the end: the client is gone
            case "close":
                writer.transport.abort()
            case _:
                writer.write(b"0\r\n\r\n")
                await writer.drain()


def openai_events(reply: Reply) -> list[tuple[bool, bytes]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _sse(
            {
                "id": "c",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "m",
                "choices": [choice],
            }
        )

    events = [(False, chunk({"reasoning_content": reply.thought}))] if reply.thought else []
    events += [(True, chunk({"content": piece})) for piece in reply.pieces]
    for index, (name, arguments) in enumerate(reply.tools):
        function = {"name": name, "arguments": arguments}
        events.append(
            (
                False,
                chunk(
                    {"tool_calls": [{"index": index, "id": f"call_{index}", "function": function}]}
                ),
            )
        )
    if reply.then == "done":
        events.append((False, chunk({}, "tool_calls" if reply.tools else "stop")))
        if reply.usage:
            counted = reply.input_tokens
            usage = {"prompt_tokens": counted, "completion_tokens": 5, "total_tokens": counted + 5}
            events.append(
                (
                    False,
                    _sse(
                        {
                            "id": "c",
                            "object": "chat.completion.chunk",
                            "choices": [],
                            "usage": usage,
                        }
                    ),
                )
            )
        events.append((False, b"data: [DONE]\n\n"))
    return events


def anthropic_events(reply: Reply) -> list[tuple[bool, bytes]]:
    def event(kind: str, **fields: Any) -> bytes:
        return f"event: {kind}\n".encode() + _sse({"type": kind, **fields})

    usage = {"input_tokens": reply.input_tokens, "output_tokens": 1}
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "m",
        "usage": usage,
    }
    events = [(False, event("message_start", message=message))]
    index = 0
    if reply.thought:
        thinking = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = (
            {"type": "thinking_delta", "thinking": reply.thought},
            {"type": "signature_delta", "signature": SIGNED},
        )
        events.append((False, event("content_block_start", index=0, content_block=thinking)))
        events += [(False, event("content_block_delta", index=0, delta=delta)) for delta in deltas]
        events.append((False, event("content_block_stop", index=0)))
        index = 1
    if reply.pieces:
        events.append(
            (
                False,
                event(
                    "content_block_start", index=index, content_block={"type": "text", "text": ""}
                ),
            )
        )
        for piece in reply.pieces:
            delta = {"type": "text_delta", "text": piece}
            events.append((True, event("content_block_delta", index=index, delta=delta)))
        events.append((False, event("content_block_stop", index=index)))
        index += 1
    for offset, (name, arguments) in enumerate(reply.tools):
        block = {"type": "tool_use", "id": f"call_{offset}", "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": arguments}
        events.append(
            (False, event("content_block_start", index=index + offset, content_block=block))
        )
        events.append((False, event("content_block_delta", index=index + offset, delta=delta)))
        events.append((False, event("content_block_stop", index=index + offset)))
    if reply.then == "done":
        stop = {"stop_reason": "tool_use" if reply.tools else "end_turn", "stop_sequence": None}
        events.append((False, event("message_delta", delta=stop, usage={"output_tokens": 5})))
        events.append((False, event("message_stop")))
    return events


def _sse(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"
