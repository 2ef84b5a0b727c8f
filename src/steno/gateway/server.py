"""The HTTP server: the only module that knows aiohttp. It lets a request in or refuses it, finds
its route, and writes the answer.

Every request passes the same gate, in this order, before a handler sees it:

    0  header          whole within its time, and short; else the connection is closed, or 431
    1  Host            ours, or 421: another name that points at this address is not served
    2  forwarded       headers of a proxy count from a listed one alone
    3  Origin          absent or ours; Sec-Fetch-Site same-origin or none; else 403. No CORS, ever
    4  token           a bearer token or the page's cookie, else 401; too many wrong ones, 429
    5  route           404, 405; then the scope of the token, and the session that it is bound to
    6  body            JSON where JSON is expected, within its size and its time
"""

import asyncio
import contextlib
import logging
import re
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import lru_cache
from ipaddress import ip_address
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import web
from msgspec import Struct
from multidict import CIMultiDict, istr

from steno.gateway.routes import (
    Answer,
    Call,
    Content,
    Json,
    Problem,
    Route,
    Stream,
    refusal,
)
from steno.gateway.tokens import BadToken, Token, TokenError, Tokens

_log = logging.getLogger("steno.gateway")

COOKIE = "steno"
BAD_LINK = "bad_link"
"""The kind of a refused login: it counts as a wrong token."""
SAFE_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
FORWARDED = tuple(
    map(
        istr,
        (
            "Forwarded",
            "X-Forwarded-For",
            "X-Forwarded-Host",
            "X-Forwarded-Proto",
            "X-Real-IP",
        ),
    )
)
"""What a proxy says about where a request comes from."""
_PARTS = {
    "seq": r"\d{1,10}",
    "turn": r"\d{1,10}",
    "hash": r"[0-9a-f]{64}",
    "model": r"[!-~]{1,200}",
}
_PART = r"[A-Za-z0-9_.:-]{1,128}"
_BEGUN = web.RequestKey("begun", web.StreamResponse)
"""Of a request: the stream that answers it, once its status is sent."""
_FORM = "application/x-www-form-urlencoded"
_FORM_IN_PARTS = "multipart/form-data"


class Bounds(Struct, frozen=True):
    """How much one caller may take."""

    header_s: float = 10.0
    header_bytes_max: int = 8 << 10
    body_s: float = 30.0
    streams_per_token: int = 32
    streams_max: int = 1_000
    wrong_tries_max: int = 10
    wrong_tries_s: float = 60.0
    addresses_max: int = 10_000
    revoked_look_s: float = 0.5
    ping_s: float = 15.0
    linger_s: float = 2.0
    """For a client to stop sending a body that was refused."""


class Place(Struct, frozen=True):
    """Where we are reached: `names` are other names of ours, `proxies` may forward to us."""

    port: int
    names: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()


class WrongTries:
    """How often an address came with a wrong token of late. Only so many addresses are kept."""

    def __init__(
        self, bounds: Bounds, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._bounds = bounds
        self._now_s = now_s
        self._tries: OrderedDict[str, deque[float]] = OrderedDict()

    def is_locked(self, address: str) -> bool:
        tries = self._tries.get(address)
        if tries is None:
            return False
        while tries and tries[0] < self._now_s() - self._bounds.wrong_tries_s:
            tries.popleft()
        return len(tries) >= self._bounds.wrong_tries_max

    def add(self, address: str) -> None:
        tries = self._tries.setdefault(
            address, deque(maxlen=self._bounds.wrong_tries_max)
        )
        tries.append(self._now_s())
        self._tries.move_to_end(address)
        if len(self._tries) > self._bounds.addresses_max:
            self._tries.popitem(last=False)


class _Table:
    """Finds the route of a path."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._rows: dict[
            tuple[int, str], list[tuple[re.Pattern[str], Route, str]]
        ] = {}
        """By how many parts a path has, and its last one; "" if that is a parameter. Under 0, those
        with a part that takes slashes in."""
        for route in routes:
            last = route.path.rpartition("/")[2]
            key = route.path.count("/"), "" if "{" in last else last
            row = re.compile(_pattern(route.path)), route, route.name()
            self._rows.setdefault(
                (0, "") if "{model}" in route.path else key, []
            ).append(row)

    def find(
        self, method: str, path: str
    ) -> tuple[Route | None, str, dict[str, str], list[str]]:
        """The route and its name; and which other methods this path has."""
        others: list[str] = []
        parts, last = path.count("/"), path.rpartition("/")[2]
        keys = dict.fromkeys(((parts, last), (parts, ""), (0, "")))
        for pattern, route, name in chain.from_iterable(
            self._rows.get(key, ()) for key in keys
        ):
            found = pattern.fullmatch(path)
            if found is None:
                continue
            if route.method == method:
                return route, name, found.groupdict(), []
            others.append(route.method)
        return None, "", {}, others


class _Open(Struct, eq=False):
    """A stream that is open. `busy`: something is being written to it."""

    token: Token
    answer: Stream
    response: web.StreamResponse | None = None
    written_s: float = 0.0
    busy: bool = False

    async def write(self, data: bytes) -> None:
        if self.response is not None:
            self.busy = True
            await self.response.write(data)
            self.busy, self.written_s = False, time.monotonic()


class Server:
    """Serves a table of routes. `state` is handed to every handler. `seen` hears of each answer:
    route, status, seconds. `explain` makes a refusal of an error that a handler raises;
    `refusal_page`, what a person in a browser reads of one."""

    def __init__(
        self,
        routes: Sequence[Route],
        state: Any,
        tokens: Tokens,
        bounds: Bounds | None = None,
        seen: Callable[[str, int, float], None] = lambda route, status, seconds: None,
        explain: Callable[[Exception], Problem | None] = lambda error: None,
        refusal_page: Callable[[Problem], bytes] = lambda problem: (
            problem.detail.encode()
        ),
    ) -> None:
        self._table = _Table(routes)
        self._state = state
        self._tokens = tokens
        self._bounds = bounds or Bounds()
        self._seen = seen
        self._explain = explain
        self._refusal_page = refusal_page
        self._wrong = WrongTries(self._bounds)
        self._streams: dict[asyncio.Task[Any], _Open] = {}
        self._ending = False
        self._place = Place(0)
        self._runner: web.ServerRunner | None = None
        self._connections = web.Server(
            self._serve,
            handler_cancellation=True,
            keepalive_timeout=self._bounds.header_s,
            lingering_time=self._bounds.linger_s,
            max_line_size=self._bounds.header_bytes_max,
            max_field_size=self._bounds.header_bytes_max,
            access_log=None,
        )
        self._watching: asyncio.Task[None] | None = None

    # --- coming and going

    async def start(
        self, addresses: Sequence[str], place: Place, reuse_port: bool = True
    ) -> int:
        """Listen; the port."""
        self._runner = web.ServerRunner(self._connections, handle_signals=False)
        await self._runner.setup()
        port = place.port
        for address in addresses:
            site = web.TCPSite(
                self._runner, address, port, reuse_port=reuse_port, backlog=1024
            )
            await site.start()
            if port == 0:
                port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        self._place = msgspec.structs.replace(place, port=port)
        self._watching = asyncio.create_task(self._watch())
        return port

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        for task in list(self._streams):
            task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    async def end_streams(self) -> None:
        """Say to each stream that it is over: its reader comes back with its cursor."""
        self._ending = True
        for task, stream in list(self._streams.items()):
            if stream.answer.bye and stream.response is not None:
                if not stream.busy:
                    with contextlib.suppress(OSError, RuntimeError):
                        await stream.write(stream.answer.bye)
                        await stream.response.write_eof()
                task.cancel()

    def streams(self) -> int:
        return len(self._streams)

    async def _watch(self) -> None:
        """End the streams of tokens that were revoked, and keep those alive in which nothing
        happens: one clock for all."""
        while True:
            await asyncio.sleep(self._bounds.revoked_look_s)
            streams = list(self._streams.items())
            tokens = {stream.token for _, stream in streams}
            ended = {token for token in tokens if not self._is_good(token)}
            quiet_s = time.monotonic() - self._bounds.ping_s
            for task, stream in streams:
                if stream.token in ended:
                    task.cancel()
                elif (
                    stream.answer.ping
                    and not stream.busy
                    and stream.written_s < quiet_s
                ):
                    with contextlib.suppress(
                        OSError, RuntimeError
                    ):  # its own task notices
                        await stream.write(stream.answer.ping)

    def _is_good(self, token: Token) -> bool:
        try:
            return self._tokens.is_good(token)
        except OSError:
            return False

    # --- one request

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        began_s = time.monotonic()
        name = ""
        try:
            self._check_place(request)
            route, name, parameters, others = self._table.find(
                request.method, request.path
            )
            route, call = await self._let_in(request, route, parameters, others)
            answer = await route.handler(self._state, call)
            response = await self._write(request, answer, call.token)
        except Problem as problem:
            response = self._refuse(request, problem)
        except Exception as error:  # noqa: BLE001 - a bug of ours must be an answer, too
            response = self._refuse(request, self._explain(error) or _bug(error))
        self._seen(name, response.status, time.monotonic() - began_s)
        return response

    def _check_place(self, request: web.BaseRequest) -> None:
        size = sum(map(len, chain.from_iterable(request.raw_headers)))
        if size > self._bounds.header_bytes_max:
            raise Problem(
                431, "long_header", "The header of the request is too long."
            )
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1 or not _answers_to(self._place, hosts[0]):
            raise Problem(
                421, "wrong_host", "This service does not answer under that name."
            )
        self._check_forwarded(request)
        if request.method == "OPTIONS":
            raise Problem(
                403, "no_cors", "This service does not answer other origins."
            )
        site = request.headers.get("Sec-Fetch-Site", "none")
        if site not in ("none", "same-origin"):
            raise Problem(
                403, "other_origin", "A page of another origin may not call this."
            )
        origin = request.headers.get("Origin")
        if origin is not None and not self._is_our_origin(origin):
            raise Problem(
                403, "other_origin", "A page of another origin may not call this."
            )

    def _scheme(self, request: web.BaseRequest) -> str:
        if _peer(request) in self._place.proxies:
            return request.headers.get("X-Forwarded-Proto", request.scheme)
        return request.scheme

    def _is_our_origin(self, origin: str) -> bool:
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        if (
            parts.scheme not in ("http", "https")
            or not parts.netloc
            or "@" in parts.netloc
        ):
            return False
        return _answers_to(self._place, parts.netloc)

    def _check_forwarded(self, request: web.BaseRequest) -> None:
        headers = request.headers
        for name in FORWARDED:
            if name in headers and _peer(request) not in self._place.proxies:
                raise Problem(
                    403,
                    "unknown_proxy",
                    "A proxy that is not listed under [gateway] proxies.",
                )

    async def _let_in(
        self,
        request: web.BaseRequest,
        route: Route | None,
        parameters: dict[str, str],
        others: list[str],
    ) -> tuple[Route, Call]:
        if route is not None and route.scope is None:
            self._check_tries(request)
            token, by_cookie = ANYONE, False
        else:
            token, by_cookie = self._identify(request)
        if route is None:
            if others:
                allowed = {"Allow": ", ".join(others)}
                said = "This path does not take that method."
                raise Problem(405, "wrong_method", said, allowed)
            raise Problem(404, "no_route", "There is nothing at this path.")
        if route.scope is not None and not token.allows(route.scope):
            raise Problem(
                403, "scope", f"This needs a token with the scope {route.scope}."
            )
        bound = token.session
        if bound is not None and route.binds and parameters.get("id") != bound:
            raise Problem(403, "bound", "This token is for one session.")
        if by_cookie and request.method != "GET" and "Origin" not in request.headers:
            raise Problem(
                403, "no_origin", "A browser must say where the request comes from."
            )
        body = await self._body(request, route)
        return route, Call(
            request.method,
            request.path,
            parameters,
            request.query if request.query_string else {},
            request.headers,
            body,
            token,
            by_cookie,
            self._cookie_name(request),
        )

    def _check_tries(self, request: web.BaseRequest) -> str:
        """The address of the caller, unless it tried too many wrong tokens."""
        address = self._caller(request)
        if self._wrong.is_locked(address):
            raise Problem(
                429,
                "wrong_tries",
                "Too many wrong tokens; wait a minute.",
                {"Retry-After": "60"},
            )
        return address

    def _identify(self, request: web.BaseRequest) -> tuple[Token, bool]:
        address = self._check_tries(request)
        said = request.headers.get("Authorization", "")
        kind, _, secret = said.partition(" ")
        by_cookie = not said
        if by_cookie:
            secret = request.cookies.get(self._cookie_name(request), "")
        elif kind.lower() != "bearer":
            secret = ""
        try:
            return self._tokens.find(secret.strip()), by_cookie
        except BadToken:
            if secret:
                self._wrong.add(address)
            raise Problem(
                401,
                "no_token",
                "This needs a token: Authorization: Bearer st_…",
                {"WWW-Authenticate": "Bearer"},
            ) from None

    def _cookie_name(self, request: web.BaseRequest) -> str:
        """Cookies know no ports: the name keeps two services of one host apart."""
        if self._scheme(request) == "https":
            return f"__Host-{COOKIE}"
        return f"{COOKIE}-{self._place.port}"

    def _caller(self, request: web.BaseRequest) -> str:
        """Where a request comes from: what a listed proxy says, else the other end."""
        peer = _peer(request)
        forwarded = request.headers.get("X-Forwarded-For", "")
        if peer in self._place.proxies and forwarded:
            said = forwarded.rpartition(",")[2].strip()
            with contextlib.suppress(ValueError):
                return str(ip_address(said))
        return peer

    async def _body(self, request: web.BaseRequest, route: Route) -> bytes:
        if request.method == "GET" or not request.can_read_body:
            return b""
        wanted = _FORM if route.form else "application/json"
        in_parts = route.files and request.content_type == _FORM_IN_PARTS
        if request.content_type != wanted and not in_parts:
            raise Problem(415, "wrong_type", f"The body must be {wanted}.")
        size = request.content_length
        if size is not None and size > route.body_bytes_max:
            raise _too_large(route)
        if request.content.is_eof():  # it came with the header
            body = request.content.read_nowait()
            if len(body) > route.body_bytes_max:
                raise _too_large(route)
            return body
        chunks: list[bytes] = []
        left = route.body_bytes_max
        try:
            async with asyncio.timeout(self._bounds.body_s):
                async for chunk in request.content.iter_any():
                    left -= len(chunk)
                    if left < 0:
                        raise _too_large(route)
                    chunks.append(chunk)
        except TimeoutError:
            raise Problem(408, "slow_body", "The body took too long.") from None
        return b"".join(chunks)

    # --- answers

    async def _write(
        self, request: web.BaseRequest, answer: Answer, token: Token
    ) -> web.StreamResponse:
        match answer:
            case Json():
                return _response(
                    msgspec.json.encode(answer.value),
                    answer.status,
                    "application/json",
                    answer.headers,
                )
            case Content():
                return _response(
                    answer.body, answer.status, answer.media_type, answer.headers
                )
            case Stream():
                return await self._stream(request, answer, token)

    async def _stream(
        self, request: web.BaseRequest, answer: Stream, token: Token
    ) -> web.StreamResponse:
        """Write pieces as they come. A reader that is slow holds up nothing but its own stream: the
        next piece is read from the journal when the socket takes more."""
        own = sum(one.token == token for one in self._streams.values())
        if (
            own >= self._bounds.streams_per_token
            or len(self._streams) >= self._bounds.streams_max
        ):
            raise Problem(429, "too_many_streams", "Too many streams are open.")
        task = asyncio.current_task() or asyncio.create_task(asyncio.sleep(0))
        stream = self._streams[task] = _Open(token, answer)
        try:
            async with contextlib.aclosing(_begun(answer.pieces)) as pieces:
                first = await anext(pieces, b"")
                response = web.StreamResponse(
                    headers=SAFE_HEADERS
                    | {"Content-Type": answer.media_type, "X-Accel-Buffering": "no"}
                    | dict(answer.headers)
                )
                await response.prepare(request)
                stream.response = request[_BEGUN] = response
                await stream.write(first)
                if self._ending and answer.bye:
                    await stream.write(answer.bye)
                else:
                    async for piece in pieces:
                        await stream.write(piece)
                await response.write_eof()
                return response
        finally:
            del self._streams[task]

    def _refuse(
        self, request: web.BaseRequest, problem: Problem
    ) -> web.StreamResponse:
        """A stream that has begun has told its status: cut off is all that it can be."""
        begun: web.StreamResponse | None = request.get(_BEGUN)
        if begun is not None:
            if request.transport is not None:
                request.transport.abort()
            return begun
        if problem.kind == BAD_LINK:
            self._wrong.add(self._caller(request))
        by_person = request.method == "GET" or request.content_type in (
            _FORM,
            _FORM_IN_PARTS,
        )
        if by_person and "text/html" in request.headers.get("Accept", ""):
            if problem.status == 401 and problem.kind != BAD_LINK:
                return web.Response(
                    status=303, headers=SAFE_HEADERS | {"Location": "/login"}
                )
            page = self._refusal_page(problem)
            return _response(
                page, problem.status, "text/html; charset=utf-8", problem.headers
            )
        status, media_type, body = refusal(request.path, problem)
        return _response(
            msgspec.json.encode(body), status, media_type, problem.headers
        )


ANYONE = Token("", "", "read", 0)
"""Who calls a route that is open to everyone."""


async def _begun(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    async for piece in pieces:
        yield piece


def _response(
    body: bytes, status: int, media_type: str, headers: Any
) -> web.Response:
    sent = _headers_of(media_type)
    if headers:
        sent = CIMultiDict(sent)
        sent.update(headers)
    return web.Response(body=body, status=status, headers=sent)


@lru_cache(maxsize=64)
def _headers_of(media_type: str) -> CIMultiDict[str]:
    """What every answer of this type has. It is copied into each."""
    return CIMultiDict(SAFE_HEADERS | {"Content-Type": media_type})


def _bug(error: Exception) -> Problem:
    """The log says where it happened, and nothing of what was said."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = "" if at is None else f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"
    _log.error("unexpected %s at %s", type(error).__name__, where)
    return Problem(
        500, "internal", "Something went wrong in the service. Its log says where."
    )


def _too_large(route: Route) -> Problem:
    return Problem(
        413, "too_large", f"The body may have {route.body_bytes_max} bytes at most."
    )


@lru_cache(maxsize=256)
def _answers_to(place: Place, host: str) -> bool:
    """Whether a service at this place is meant by this name."""
    name, _, port = (
        host.rpartition(":") if re.search(r":\d+$", host) else (host, "", "")
    )
    name = name.strip("[]").lower().rstrip(".")
    if name in place.names or host.lower() in place.names:
        return True
    return name in ("127.0.0.1", "localhost", "::1") and port == str(place.port)


def _peer(request: web.BaseRequest) -> str:
    return request.remote or ""


def _pattern(path: str) -> str:
    def part(found: re.Match[str]) -> str:
        return f"(?P<{found[1]}>{_PARTS.get(found[1], _PART)})"

    return re.sub(r"\\\{(\w+)\\\}", part, re.escape(path))


def cookie(name: str, secret: str, keep_s: int) -> str:
    """The header that gives a browser its token."""
    ending = "; Secure" if name.startswith("__Host-") else ""
    return f"{name}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={keep_s}{ending}"


__all__ = ["Bounds", "Place", "Server", "TokenError", "cookie"]
