"""An MCP server as a child process: messages as lines on its standard input and output.

The SDK's own stdio client is not used because it gives neither a process group nor a bound on a
line.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from steno.tools.child import Child

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

Streams = tuple[
    "MemoryObjectReceiveStream[SessionMessage | Exception]",
    "MemoryObjectSendStream[SessionMessage]",
]


@contextlib.asynccontextmanager
async def transport(child: Child) -> AsyncIterator[Streams]:
    """The two streams that the SDK's client talks through. When the server ends, `child.ended` is
    set."""
    import anyio
    from mcp.shared.message import SessionMessage

    to_client, from_server = anyio.create_memory_object_stream[
        "SessionMessage | Exception"
    ](0)
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        try:
            with contextlib.suppress(
                anyio.ClosedResourceError, anyio.BrokenResourceError
            ):
                async for line in child.lines():
                    if (message := _message(line)) is not None:
                        await to_client.send(message)
        finally:
            child.ended.set()
            to_client.close()

    async def write() -> None:
        try:
            with contextlib.suppress(ConnectionError, anyio.ClosedResourceError):
                async for message in from_client:
                    text = message.message.model_dump_json(
                        by_alias=True, exclude_unset=True
                    )
                    await child.send(text.encode("utf-8", "replace") + b"\n")
        finally:
            from_client.close()

    tasks = [asyncio.create_task(read()), asyncio.create_task(write())]
    try:
        yield from_server, to_server
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in (to_client, from_server, to_server, from_client):
            stream.close()


def _message(line: bytes) -> "SessionMessage | None":
    """None for a line that is no message: some servers print to their standard output what is meant
    for a log."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    for read in (bytes, _mended):
        with contextlib.suppress(ValueError, RecursionError):
            return SessionMessage(
                jsonrpc_message_adapter.validate_json(read(line), by_name=False)
            )
    logging.getLogger("steno.tools").debug(
        "a line of an MCP server is no message: %r", line[:200]
    )
    return None


def _mended(line: bytes) -> bytes:
    """The line with a replacement character for each byte or surrogate that is no text."""
    text = json.dumps(json.loads(line.decode("utf-8", "replace")), ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
