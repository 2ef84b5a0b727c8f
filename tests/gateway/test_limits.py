"""What one caller may take: halves of requests, long headers, large bodies, many streams. The
server is the real one, in this process, with short times."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from steno.gateway.routes import Answer, Call, Json, Route, Stream
from steno.gateway.server import Bounds, Place, Server, WrongTries, cookie
from steno.gateway.starts import UNCLEAN_MAX, WITHIN_S, Starts
from steno.gateway.tokens import LINK_S, BadToken, Tokens

QUICK = Bounds(header_s=0.3, body_s=0.3, linger_s=0.1, streams_per_token=3, streams_max=5, ping_s=0)
LATE_S = 5.0


async def echo(state: object, call: Call) -> Answer:
    return Json({"size": len(call.body)})


async def forever(state: object, call: Call) -> Answer:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"data: first\n\n"
        await asyncio.sleep(3600)

    return Stream(pieces(), ping=b": ping\n\n", bye=b"event: bye\n\n")


FLOOD, PIECE = 2_000, b"x" * (16 << 10)


async def flood(written: list[int], call: Call) -> Answer:
    """More than sockets hold. `written` are the pieces that were asked for."""

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(FLOOD):
            written.append(number)
            yield PIECE

    return Stream(pieces())


async def breaks(state: object, call: Call) -> Answer:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"data: first\n\n"
        raise OSError("the disk is gone")

    return Stream(pieces())


async def cookie_name(state: object, call: Call) -> Answer:
    return Json({"name": call.cookie_name, "cookie": cookie(call.cookie_name, "st_x", 60)})


ROUTES = (
    Route("GET", "/open", None, "open", echo, {200: dict}),
    Route("GET", "/cookie", "read", "cookie", cookie_name, {200: dict}),
    Route("GET", "/breaks", "read", "breaks", breaks, {200: "text/event-stream"}),
    Route("GET", "/flood", "read", "flood", flood, {200: "text/event-stream"}),
    Route("POST", "/echo", "write", "echo", echo, {200: dict}, dict),
    Route("GET", "/stream", "read", "stream", forever, {200: "text/event-stream"}),
)


class Wire:
    """One connection, in bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def head(self) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), LATE_S)

    async def closed_after_s(self) -> float:
        before_s = time.monotonic()
        while await asyncio.wait_for(self.reader.read(1 << 16), LATE_S):
            pass
        return time.monotonic() - before_s


class Small:
    """The server, two tokens and its port."""

    def __init__(self, server: Server, port: int, tokens: Tokens, written: list[int]) -> None:
        self.server, self.port, self.tokens = server, port, tokens
        self.written = written
        self.secrets = [tokens.add("one", "write"), tokens.add("two", "write")]
        self._wires: list[Wire] = []

    async def send(self, data: bytes) -> Wire:
        wire = Wire(*await asyncio.open_connection("127.0.0.1", self.port))
        self._wires.append(wire)
        wire.writer.write(data)
        return wire

    def request(self, line: str, *headers: str, token: int | None = 0) -> bytes:
        own = [f"Host: 127.0.0.1:{self.port}"]
        own += [] if token is None else [f"Authorization: Bearer {self.secrets[token]}"]
        return "\r\n".join([f"{line} HTTP/1.1", *own, *headers, "", ""]).encode()

    async def status(self, data: bytes) -> int:
        return int((await (await self.send(data)).head()).split()[1])

    def close(self) -> None:
        for wire in self._wires:
            wire.writer.close()


@asynccontextmanager
async def small(folder: Path, place: Place) -> AsyncIterator[Small]:
    tokens, written = Tokens(folder / "tokens.json"), list[int]()
    server = Server(ROUTES, written, tokens, QUICK)
    port = await server.start(["127.0.0.1"], place)
    with closing(Small(server, port, tokens, written)) as made:
        try:
            yield made
        finally:
            await server.close()


def run(
    folder: Path, check: Callable[[Small], Awaitable[None]], place: Place | None = None
) -> None:
    async def main() -> None:
        async with small(folder, place or Place(0)) as service:
            await check(service)

    asyncio.run(main())


@pytest.mark.parametrize("sent", [b"", b"GET /open HT", b"GET /open HTTP/1.1\r\nHost: 127"])
def test_half_a_header_is_closed_in_time(tmp_path: Path, sent: bytes) -> None:
    async def check(service: Small) -> None:
        wire = await service.send(sent)
        assert await wire.closed_after_s() < LATE_S

    run(tmp_path, check)


def test_half_a_header_after_a_whole_request_is_closed_in_time(tmp_path: Path) -> None:
    async def check(service: Small) -> None:
        wire = await service.send(service.request("GET /open", token=None))
        assert b" 200 " in await wire.head()
        wire.writer.write(b"GET /open HTTP/1.1\r\nHos")
        assert await wire.closed_after_s() < LATE_S

    run(tmp_path, check)


def test_half_a_body_is_refused_in_time_and_closed(tmp_path: Path) -> None:
    async def check(service: Small) -> None:
        kind, size = "Content-Type: application/json", "Content-Length: 100"
        wire = await service.send(service.request("POST /echo", kind, size) + b'{"a": ')
        assert b" 408 " in await wire.head()
        assert await wire.closed_after_s() < LATE_S
        chunked = service.request("POST /echo", kind, "Transfer-Encoding: chunked")
        assert b" 408 " in await (await service.send(chunked + b"5\r\n{}")).head()

    run(tmp_path, check)


def test_a_slow_loris_and_many_idle_sockets_delay_nobody(tmp_path: Path) -> None:
    async def check(service: Small) -> None:
        for i in range(300):
            await service.send(b"" if i % 2 else b"GET /open HTTP/1.1\r\nX-A: ")
        before_s = time.monotonic()
        assert await service.status(service.request("GET /open", token=None)) == 200
        assert time.monotonic() - before_s < 1.0

    run(tmp_path, check)


def test_long_headers_large_bodies_and_two_hosts_are_refused(tmp_path: Path) -> None:
    async def check(service: Small) -> None:
        host = f"Host: 127.0.0.1:{service.port}"
        kind = "Content-Type: application/json"
        refused = {
            service.request("GET /open", f"X-Long: {'a' * 9000}"): (400, 431),
            service.request("GET /open", *(f"X-{i}: {'a' * 500}" for i in range(20))): (431,),
            service.request(f"GET /{'a' * 9000}"): (400, 414),
            service.request("GET /open", host): (400,),
            service.request("POST /echo", kind, f"Content-Length: {2 << 20}"): (413,),
            service.request("POST /echo", kind, "Content-Length: 2", "Content-Length: 3"): (400,),
            service.request(
                "POST /echo", kind, "Content-Length: 2", "Transfer-Encoding: chunked"
            ): (400,),
            service.request("GET /open", "Origin: http://["): (403,),
            service.request("GET /open", "Forwarded: for=1.2.3.4"): (403,),
            service.request("GET /open", "X-Forwarded-Proto: https"): (403,),
        }
        for sent, statuses in refused.items():
            assert await service.status(sent) in statuses, sent[:200]

    run(tmp_path, check)


@pytest.mark.promise(65)
def test_streams_are_limited_by_token_and_in_all_and_end_when_it_is_revoked(
    tmp_path: Path,
) -> None:
    async def check(service: Small) -> None:
        wires = [await service.send(service.request("GET /stream")) for _ in range(3)]
        assert {(await wire.head()).split()[1] for wire in wires} == {b"200"}
        assert await service.status(service.request("GET /stream")) == 429
        for _ in range(2):
            assert await service.status(service.request("GET /stream", token=1)) == 200
        assert await service.status(service.request("GET /stream", token=1)) == 429
        assert await service.status(service.request("GET /open", token=None)) == 200
        service.tokens.revoke("one")
        before_s = time.monotonic()
        for wire in wires:
            await wire.closed_after_s()
        assert time.monotonic() - before_s < 1.5
        assert await service.status(service.request("GET /stream", token=1)) == 200

    run(tmp_path, check)


def test_an_idle_stream_is_pinged_and_told_when_the_service_stops(tmp_path: Path) -> None:
    async def check(service: Small) -> None:
        wire = await service.send(service.request("GET /stream"))
        assert b"X-Accel-Buffering: no" in await wire.head()
        assert b"first" in await asyncio.wait_for(wire.reader.readuntil(b"\n\n\r\n"), LATE_S)
        assert b": ping" in await asyncio.wait_for(wire.reader.readuntil(b"\n\n\r\n"), LATE_S)
        await service.server.end_streams()
        rest = b""
        while data := await asyncio.wait_for(wire.reader.read(1 << 16), LATE_S):
            rest += data
        assert b"event: bye" in rest
        late = await service.send(service.request("GET /stream"))
        await late.head()
        assert b"event: bye" in await asyncio.wait_for(late.reader.read(), LATE_S)

    run(tmp_path, check)


def test_a_stream_that_breaks_is_cut_off_and_not_ended_as_if_it_were_whole(tmp_path: Path) -> None:
    async def check(service: Small) -> None:
        wire, told = await service.send(service.request("GET /breaks")), b""
        with contextlib.suppress(ConnectionResetError):
            while data := await asyncio.wait_for(wire.reader.read(1 << 16), LATE_S):
                told += data
        assert (told.count(b"HTTP/1.1"), b"first" in told, told.endswith(b"0\r\n\r\n")) == (
            1,
            True,
            False,
        )
        assert await service.status(service.request("GET /open", token=None)) == 200

    run(tmp_path, check)


@pytest.mark.promise(62)
def test_for_a_reader_that_does_not_read_nothing_is_kept_and_nobody_waits(tmp_path: Path) -> None:
    async def check(service: Small) -> None:
        idle = await service.send(service.request("GET /flood"))
        before = -1
        while len(service.written) != before or not before:
            before = len(service.written)
            await asyncio.sleep(0.05)
        assert before < FLOOD / 2, "no more was asked for than the sockets hold"
        assert await service.status(service.request("GET /open", token=None)) == 200
        await idle.head()
        rest = 0
        while data := await asyncio.wait_for(idle.reader.read(1 << 20), LATE_S):
            rest += data.count(b"x")
        assert rest == FLOOD * len(PIECE)

    run(tmp_path, check)


@pytest.mark.promise(66)
def test_a_cookie_is_bound_to_the_port_or_behind_tls_to_the_host(tmp_path: Path) -> None:
    async def given(service: Small, *headers: str) -> bytes:
        wire = await service.send(service.request("GET /cookie", "Connection: close", *headers))
        return await asyncio.wait_for(wire.reader.read(), LATE_S)

    async def plain(service: Small) -> None:
        found = await given(service)
        assert f'"steno-{service.port}=st_x; Path=/; HttpOnly; SameSite=Strict'.encode() in found
        assert b"Secure" not in found
        assert b" 403 " in await given(service, "X-Forwarded-Proto: https")

    async def behind_tls(service: Small) -> None:
        found = await given(service, "X-Forwarded-Proto: https", "X-Forwarded-For: 1.2.3.4")
        assert b'"__Host-steno=st_x; Path=/; HttpOnly; SameSite=Strict' in found
        assert b"; Secure" in found

    run(tmp_path, plain)
    run(tmp_path / "tls", behind_tls, Place(0, proxies=("127.0.0.1",)))


def test_a_link_to_the_page_works_once_and_for_a_minute(tmp_path: Path) -> None:
    now_s = 1_000.0
    tokens = Tokens(tmp_path / "tokens.json", lambda: now_s)
    code, late = tokens.link(), tokens.link()
    with pytest.raises(BadToken):
        tokens.find(code)  # it is no token by itself
    tokens.find(tokens.redeem(code))
    with pytest.raises(BadToken):
        tokens.redeem(code)
    now_s += LINK_S
    with pytest.raises(BadToken):
        tokens.redeem(late)


def test_an_address_is_locked_for_a_minute_after_ten_wrong_tries() -> None:
    now_s = 100.0
    tries = WrongTries(Bounds(addresses_max=2), lambda: now_s)
    for _ in range(10):
        assert not tries.is_locked("1.2.3.4")
        tries.add("1.2.3.4")
    assert tries.is_locked("1.2.3.4")
    assert not tries.is_locked("1.2.3.5")
    now_s += 61
    assert not tries.is_locked("1.2.3.4")
    for i in range(5):
        tries.add(f"10.0.0.{i}")
    assert len(tries._tries) == 2, "only so many addresses are kept"


def test_three_starts_that_did_not_end_well_hold_back_what_acts_by_itself(tmp_path: Path) -> None:
    now_s = time.time()

    def starts() -> Starts:
        return Starts(tmp_path, lambda: now_s)

    for count in range(UNCLEAN_MAX):
        killed = starts()
        assert killed.held_back_until_s() is None, count
        killed.begin()
        assert killed._own is not None
        os.close(killed._own[1])  # what the system does when a process is killed
    fourth = starts()
    fourth.begin()
    assert fourth.held_back_until_s() == pytest.approx(now_s + WITHIN_S, abs=1)
    now_s += WITHIN_S + 1
    assert fourth.held_back_until_s() is None, "it heals by itself"
    fourth.end()
    assert list((tmp_path / "starts").iterdir()) == [], "and leaves nothing"
