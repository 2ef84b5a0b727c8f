"""A server on loopback that does exactly what a test says with the bytes of its answer."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from steno.models.protocol import Model, ModelEvent
from steno.models.specs import make
from tests.models.samples import settings_at

Act = Callable[["Caller"], Awaitable[None]]


class Caller:
    """One request, and the means to answer it byte by byte."""

    def __init__(
        self, head: bytes, body: bytes, writer: asyncio.StreamWriter, gone: asyncio.Event
    ) -> None:
        self.head, self.body, self.gone = head.decode("latin-1"), body, gone
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self, status: int, body: bytes, *headers: str) -> None:
        lines = [f"HTTP/1.1 {status} Status", f"content-length: {len(body)}", *headers]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def begin(self, kind: str = "text/event-stream") -> None:
        headers = f"content-type: {kind}\r\ntransfer-encoding: chunked"
        await self.send(f"HTTP/1.1 200 OK\r\n{headers}\r\n\r\n".encode())

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def event(self, *events: Any) -> None:
        for event in events:
            data = event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)
            await self.chunk(f"data: {data}\n\n".encode())

    async def end(self) -> None:
        await self.chunk(b"")

    def cut(self) -> None:
        """Close the socket with no goodbye of HTTP."""
        self._writer.transport.abort()


class Server:
    def __init__(self, act: Act) -> None:
        self._act = act
        self.callers: list[Caller] = []
        self.connections = 0
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def model(self, spec: str, idle_s: float = 0.4, key: str | None = None) -> Model:
        return make(spec, settings_at(f"http://127.0.0.1:{self.port}/v1", idle_s, key))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head))
                caller = Caller(head, body, writer, asyncio.Event())
                self.callers.append(caller)
                watch = asyncio.create_task(_watch(reader, caller))
                await self._act(caller)
                watch.cancel()
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _watch(reader: asyncio.StreamReader, caller: Caller) -> None:
    """The stream has no event for its end, and reading it would take the first byte of the next
    request."""
    while not reader.at_eof():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    caller.gone.set()


def _length(head: bytes) -> int:
    for line in head.decode("latin-1").lower().splitlines():
        if line.startswith("content-length:"):
            return int(line.partition(":")[2])
    return 0


@asynccontextmanager
async def serving(act: Act) -> AsyncIterator[Server]:
    server = Server(act)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await server.stop()
        await listening.wait_closed()


async def events_of(model: Model, body: bytes = b"{}") -> list[ModelEvent]:
    try:
        return [event async for event in model.stream(body)]
    finally:
        await model.close()
