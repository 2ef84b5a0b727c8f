"""One model behind HTTP: our bytes out, server-sent events back. Nothing here retries.

What is known of a request that got no answer:

    no connection                        unreachable     not sent
    its certificate is not trusted       not_trusted     not sent
    connected, then nothing came back    dropped         unknown whether it arrived
    nothing came back for `idle_s`       timeout         unknown; sent if the answer had begun
    an HTTP status                       by status       sent
    the stream ended or broke off        dropped         sent

A stream that broke off after something was shown is no error: it is `Finished` as incomplete, with
what was shown.
"""

import asyncio
import io
from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Protocol

import aiohttp

from steno.engine.request import Request
from steno.journal.parts import Hash
from steno.models import failures
from steno.models.answer import AnswerReader, Delta, finished
from steno.models.protocol import Endpoint, ModelError, ModelEvent
from steno.web import LOST, trusted

ERROR_BYTES_MAX = 64 * 1024
EVENT_BYTES_MAX = 32 * 1024 * 1024
HEADER_BYTES_MAX = 64 * 1024
CONNECT_S = 10.0
ERROR_BODY_S = 5.0
UPLOAD_BYTES_PER_S_MIN = 100_000
SENT_WITH_ALL = {
    "content-type": "application/json",
    "accept": "text/event-stream",
    "accept-encoding": "identity",
    "user-agent": "steno",
}
TAIL_S = 1.0
"""How long to wait, once the answer is whole, for what servers send after it (usage) and for the
end of the body."""


class Format(Protocol):
    """A wire format. Pure."""

    @property
    def provider(self) -> str: ...

    def to_wire(self, request: Request, payloads: Mapping[Hash, bytes]) -> bytes: ...

    def reader(self) -> AnswerReader: ...


class HttpModel:
    def __init__(self, spec: str, format: Format, endpoint: Endpoint) -> None:
        self.spec, self.provider = spec, format.provider
        self._format, self._endpoint = format, endpoint
        self._client: aiohttp.ClientSession | None = None

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
            await client.close()

    async def _deltas(
        self, body: bytes, reader: AnswerReader
    ) -> AsyncGenerator[Delta, None]:
        async with await self._answer_to(body) as response:
            try:
                await _accept(response)
                with _ended_by_its_connection(response):
                    async with aclosing(
                        events_of(response.content.iter_any())
                    ) as events:
                        async for data in events:
                            for delta in reader.read(data):
                                yield delta
                            if reader.ended is not None:
                                break
                        for delta in await _tail(events, reader):
                            yield delta
            except LOST as error:
                raise _lost(error, True, self._endpoint.idle_s) from error

    async def _answer_to(self, body: bytes) -> aiohttp.ClientResponse:
        """The answer as soon as it begins. A server that does not take the request in is given up,
        too."""
        to, headers = self._endpoint, self._headers()
        if self._client is None:
            self._client = _client(to)
        try:
            async with asyncio.timeout(
                CONNECT_S + to.idle_s + len(body) / UPLOAD_BYTES_PER_S_MIN
            ):
                return await self._client.post(
                    to.url,
                    data=io.BytesIO(body),
                    headers=headers,
                    allow_redirects=False,
                    proxy=to.proxy or None,
                )
        except (*LOST, TimeoutError, ValueError) as error:
            raise _lost(error, False, to.idle_s) from error

    def _headers(self) -> dict[str, str]:
        to, key = self._endpoint, self._endpoint.key
        headers = {**SENT_WITH_ALL, **dict(to.headers)}
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise ModelError(
                "no_key", "the API key has characters that no key has", "no"
            )
        if key:
            headers[to.key_header] = to.key_prefix + key
        elif to.key_needed:
            raise ModelError(
                "no_key", f"there is no API key for {self.provider}", "no"
            )
        return headers

    def _without_key(self, error: ModelError) -> ModelError:
        key = self._endpoint.key
        if not key or key not in error.detail:
            return error
        return ModelError(
            error.cause,
            error.detail.replace(key, "[key]"),
            error.sent,
            error.retry_after_s,
        )


def _client(to: Endpoint) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=0, keepalive_timeout=30.0, ssl=trusted()
        ),
        timeout=aiohttp.ClientTimeout(
            total=None, connect=CONNECT_S, sock_read=to.idle_s
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        max_line_size=HEADER_BYTES_MAX,
        max_field_size=HEADER_BYTES_MAX,
    )


@contextmanager
def _ended_by_its_connection(response: aiohttp.ClientResponse) -> Iterator[None]:
    """Of bytes that are no HTTP in the middle of an answer, aiohttp does not tell the reader: it
    closes the connection, and with it the time limit is gone."""
    body, connection = response.content, response.connection
    closed = (
        None
        if connection is None or connection.protocol is None
        else connection.protocol.closed
    )

    def end(closed: asyncio.Future[None] | None) -> None:
        if closed is not None and not closed.cancelled():
            closed.exception()  # seen, so that asyncio does not complain
        if not body.is_eof() and body.exception() is None:
            body.set_exception(aiohttp.ClientPayloadError("what came in is no HTTP"))

    if closed is None:
        end(closed)
        yield
        return
    closed.add_done_callback(end)
    try:
        yield
    finally:
        closed.remove_done_callback(end)


async def _accept(response: aiohttp.ClientResponse) -> None:
    """Raise unless the body is a stream of events. A server that does not say what it sends is
    believed."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.status == 200 and kind not in ("application/json", "text/html"):
        return
    error = failures.of_status(
        response.status, response.headers, await _error_body(response)
    )
    if response.status != 200:
        raise error
    raise ModelError(
        "server_error",
        failures.bounded(f"not an event stream: {error.detail}"),
        "yes",
    )


async def _error_body(response: aiohttp.ClientResponse) -> bytes:
    """As much of it as comes soon: the status alone says enough."""
    body = b""
    try:
        async with asyncio.timeout(ERROR_BODY_S):
            async for piece in response.content.iter_any():
                body += piece
                if len(body) >= ERROR_BYTES_MAX:
                    break
    except (TimeoutError, *LOST):
        pass
    return body[:ERROR_BYTES_MAX]


class Events:
    """Server-sent events, out of bytes that may be cut anywhere. Pure.

    A line ends with a line feed, a carriage return or both; an empty line ends an event. Only
    data lines count. An event that has not ended when the stream is over is none."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._pending_bytes = 0
        self._returned = False

    def feed(self, piece: bytes) -> list[str]:
        """The data of each event that ends in this piece."""
        if not piece:
            return []
        if self._returned:
            piece = piece.removeprefix(b"\n")
        self._returned = piece.endswith(b"\r")
        *lines, rest = (piece + b".").splitlines()
        if lines:
            lines[0] = b"".join((*self._line, lines[0]))
            self._line.clear()
        self._line.append(rest[:-1])
        self._pending_bytes += len(piece)
        ended: list[str] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line:
                ended += self._end()
                self._pending_bytes = len(rest)
        if self._pending_bytes > EVENT_BYTES_MAX:
            raise ModelError(
                "dropped",
                f"an event has more than {EVENT_BYTES_MAX >> 20} MiB",
                "yes",
            )
        return ended

    def _end(self) -> list[str]:
        data = b"\n".join(self._data).decode("utf-8", "replace")
        self._data.clear()
        return [data] if data else []


async def events_of(body: AsyncIterable[bytes]) -> AsyncGenerator[str, None]:
    events = Events()
    async for piece in body:
        for data in events.feed(piece):
            yield data


async def _tail(
    events: AsyncGenerator[str, None], reader: AnswerReader
) -> list[Delta]:
    """What comes after the end marker. Reading the body to its end lets the connection be used
    again."""
    late: list[Delta] = []
    try:
        async with asyncio.timeout(TAIL_S):
            async for data in events:
                late += reader.read(data)
    except (TimeoutError, *LOST, ModelError):
        pass
    return late


def _lost(error: Exception, answered: bool, idle_s: float) -> ModelError:
    reason = failures.bounded(str(error) or type(error).__name__)
    match error:
        case aiohttp.ClientConnectorCertificateError():
            why = getattr(error.certificate_error, "verify_message", "") or str(
                error.certificate_error
            )
            return ModelError("not_trusted", failures.bounded(why), "no")
        case aiohttp.ClientHttpProxyError():
            return ModelError(
                "unreachable", f"the proxy refused: {error.status}", "no"
            )
        case aiohttp.ClientProxyConnectionError():  # its address may hold a password
            return ModelError("unreachable", "the proxy cannot be reached", "no")
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return ModelError("unreachable", reason, "no")
        case (
            aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError()
        ):  # it may hold a password
            return ModelError(
                "refused", "the address is none that can be asked", "no"
            )
        case ValueError():
            return ModelError("refused", reason, "no")
        case TimeoutError():
            return ModelError(
                "timeout",
                f"nothing came back for {idle_s:g} s",
                "yes" if answered else "unknown",
            )
        case _:
            return ModelError("dropped", reason, "yes" if answered else "unknown")
