"""An MCP server at a URL (streamable HTTP). Answers have a bound: the SDK bounds events, this
bounds whole bodies."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from steno.tools.child import LINE_BYTES_MAX

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams


class Address(Struct, frozen=True):
    url: str
    headers: Mapping[str, str]
    connect_limit_s: float
    answer_limit_s: float


@contextlib.asynccontextmanager
async def transport(address: Address) -> "AsyncIterator[TransportStreams]":
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    timeout = httpx2.Timeout(address.connect_limit_s, read=address.answer_limit_s)
    hooks = {"response": [bound]}
    async with (
        httpx2.AsyncClient(
            headers=dict(address.headers),
            timeout=timeout,
            event_hooks=hooks,
            trust_env=False,
        ) as http,
        streamable_http_client(
            address.url, http_client=http, max_sse_event_size=LINE_BYTES_MAX
        ) as streams,
    ):
        yield streams


async def bound(response: "httpx2.Response") -> None:
    """Limit a body that will be read whole. A stream of events goes on for as long as the
    session."""
    import httpx2

    if response.headers.get("content-type", "").startswith("text/event-stream"):
        return
    if not isinstance(response.stream, httpx2.AsyncByteStream):
        return
    stream: httpx2.AsyncByteStream = response.stream

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = LINE_BYTES_MAX
            async for chunk in stream:
                left -= len(chunk)
                if left < 0:
                    raise httpx2.ReadError(
                        f"the answer has more than {LINE_BYTES_MAX} bytes"
                    )
                yield chunk

        async def aclose(self) -> None:
            await stream.aclose()

    response.stream = Bounded()
