"""One model behind HTTP: our bytes out, server-sent events back. Nothing here retries.

What is known of a request that got no answer:

    no connection                        unreachable     not sent
    connected, then nothing came back    dropped         unknown whether it arrived
    nothing came back for `idle_s`       timeout         unknown; sent if the answer had begun
    an HTTP status                       by status       sent
    the stream ended or broke off        dropped         sent

A stream that broke off after something was shown is no error: it is `Finished` as incomplete, with what was shown.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Protocol

import httpx2
from msgspec import Struct

from steno.engine.request import Request
from steno.journal.parts import Hash
from steno.models import failures
from steno.models.answer import Delta, Reader, finished
from steno.models.protocol import ModelError, ModelEvent

EVENT_BYTES_MAX = 32 * 1024 * 1024
ERROR_BYTES_MAX = 64 * 1024
ERROR_BODY_S = 5.0
SENT_WITH_ALL = {
    "content-type": "application/json",
    "accept": "text/event-stream",
    "accept-encoding": "identity",
    "user-agent": "steno",
}
TAIL_S = 1.0
"""How long to wait, once the answer is whole, for what servers send after it (usage) and for the end of the body."""


class Format(Protocol):
    """A wire format. Pure."""

    @property
    def provider(self) -> str: ...

    def to_wire(self, request: Request, payloads: Mapping[Hash, bytes]) -> bytes: ...

    def reader(self) -> Reader: ...


class Endpoint(Struct, frozen=True):
    """Where a model is and how to reach it. `key_header` is sent with `key_prefix` and the key, if there is one."""

    url: str
    key: str = ""
    key_needed: bool = False
    key_header: str = "authorization"
    key_prefix: str = "Bearer "
    headers: tuple[tuple[str, str], ...] = ()
    proxy: str = ""
    connect_s: float = 10.0
    idle_s: float = 120.0

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"


class HttpModel:
    def __init__(self, spec: str, format: Format, endpoint: Endpoint) -> None:
        self.spec, self.provider = spec, format.provider
        self._format, self._endpoint = format, endpoint
        self._client: httpx2.AsyncClient | None = None
        self._opening = asyncio.Lock()

    def to_wire(self, request: Request, payloads: Mapping[Hash, bytes]) -> bytes:
        return self._format.to_wire(request, payloads)

    async def stream(self, body: bytes) -> AsyncGenerator[ModelEvent, None]:
        reader = self._format.reader()
        broken: ModelError | None = None
        try:
            async with aclosing(self._deltas(body, reader)) as deltas:
                async for delta in deltas:
                    yield delta
        except ModelError as error:
            broken = self._without_key(error)
        for delta in reader.answer.rest():
            yield delta
        yield finished(reader, broken)

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    async def _deltas(self, body: bytes, reader: Reader) -> AsyncGenerator[Delta, None]:
        client = await self._open()
        response: httpx2.Response | None = None
        try:
            async with client.stream("POST", self._endpoint.url, content=body, headers=self._headers()) as response:
                await _accept(response)
                async with aclosing(events_of(response)) as events:
                    async for data in events:
                        for delta in reader.read(data):
                            yield delta
                        if reader.ended is not None:
                            break
                    for delta in await _tail(events, reader):
                        yield delta
        except httpx2.RequestError as error:
            raise _lost(error, answered=response is not None, idle_s=self._endpoint.idle_s) from error

    async def _open(self) -> httpx2.AsyncClient:
        """Making a client loads certificates, which takes long enough to keep other sessions waiting."""
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(_client, self._endpoint)
            return self._client

    def _headers(self) -> dict[str, str]:
        to, key = self._endpoint, self._endpoint.key
        headers = {**SENT_WITH_ALL, **dict(to.headers)}
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise ModelError("no_key", "the API key has characters that no key has", "no")
        if key:
            headers[to.key_header] = to.key_prefix + key
        elif to.key_needed:
            raise ModelError("no_key", f"there is no API key for {self.provider}", "no")
        return headers

    def _without_key(self, error: ModelError) -> ModelError:
        key = self._endpoint.key
        if not key or key not in error.detail:
            return error
        return ModelError(error.cause, error.detail.replace(key, "[key]"), error.sent, error.retry_after_s)


def _client(to: Endpoint) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(to.idle_s, connect=to.connect_s),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=30.0),
        proxy=to.proxy or None,
        trust_env=False,
        follow_redirects=False,
    )


async def _accept(response: httpx2.Response) -> None:
    """Raise unless the body is a stream of events. A server that does not say what it sends is believed."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.status_code == 200 and kind not in ("application/json", "text/html"):
        response.headers["content-type"] = "text/event-stream"
        return
    error = failures.of_status(response.status_code, response.headers, await _error_body(response))
    if response.status_code != 200:
        raise error
    raise ModelError("server_error", failures.bounded(f"not an event stream: {error.detail}"), "yes")


async def _error_body(response: httpx2.Response) -> bytes:
    """As much of it as comes soon: the status alone says enough."""
    body = b""
    try:
        async with asyncio.timeout(ERROR_BODY_S), aclosing(response.aiter_raw()) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) >= ERROR_BYTES_MAX:
                    break
    except (TimeoutError, httpx2.RequestError):
        pass
    return body[:ERROR_BYTES_MAX]


async def events_of(response: httpx2.Response) -> AsyncGenerator[str, None]:
    async for event in httpx2.EventSource(response, max_event_size=EVENT_BYTES_MAX):
        if event.data:
            yield event.data


async def _tail(events: AsyncGenerator[str, None], reader: Reader) -> list[Delta]:
    """What comes after the end marker. Reading the body to its end lets the connection be used again."""
    late: list[Delta] = []
    try:
        async with asyncio.timeout(TAIL_S):
            async for data in events:
                late += reader.read(data)
    except (TimeoutError, httpx2.RequestError, ModelError):
        pass
    return late


def _lost(error: httpx2.RequestError, answered: bool, idle_s: float) -> ModelError:
    reason = failures.bounded(str(error) or type(error).__name__)
    match error:
        case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.PoolTimeout() | httpx2.ProxyError():
            return ModelError("unreachable", reason, "no")
        case httpx2.UnsupportedProtocol() | httpx2.LocalProtocolError():
            return ModelError("refused", reason, "yes" if answered else "no")
        case httpx2.TimeoutException():
            return ModelError("timeout", f"nothing came back for {idle_s:g} s", "yes" if answered else "unknown")
        case _:
            return ModelError("dropped", reason, "yes" if answered else "unknown")
