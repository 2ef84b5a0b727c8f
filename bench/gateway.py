"""The service under load: the program in a process of its own, a model server in another, and this
process as all its clients, on the same cores.

A piece's time runs from the moment the model server sends it to the moment a client has it, so two
sockets, the parser, a commit and the event are in it. The readers share the cores with the service:
they note when bytes came, and look at them when all is over.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from bench import child
from bench.building import warm
from bench.engine_crowd import serving
from bench.gateway_home import fill
from bench.result import Plan, Result, at_least, at_most, noted
from bench.timing import percentile
from steno.gateway.tokens import Tokens
from steno.journal.facts import InputAdmitted, SessionStarted
from steno.journal.parts import Text
from steno.store.protocol import Admission
from steno.store.sqlite.store import BlockingStore, SqliteStore

T = TypeVar("T")

NAME = "gateway"
TURNS, READERS, PER_SECOND = 100, 5, 50
IDLE = 1_000
START_S = 60.0
_SENT = re.compile(rb"(\d+\.\d{6}) ")
_TEXT = re.compile(rb'"type":"text"[^\n]*')


def run(plan: Plan) -> list[Result]:
    folder = Path(plan.folder)
    return [
        *_load(folder / "load", plan.pick(10, 4)),
        *_one_piece(folder / "one", plan.pick(400, 150)),
        *_inputs(folder / "inputs", plan.pick(40, 15)),
        *_idle(folder / "idle", plan.pick(20, 8)),
        *_start(folder / "start", plan.pick(10_000, 2_000)),
    ]


# --- the program ----------------------------------------------------------------------------------


class Service:
    """The running program, and a token for it."""

    def __init__(
        self,
        home: Path,
        url: str = "",
        model: str = "openai-chat:bench",
        more: Mapping[str, str] | None = None,
    ) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("STENO_")}
        self.environment = kept | {
            "STENO_HOME": str(home),
            "STENO_MODEL": model,
            "STENO_MEMORY_DISTILL": "off",
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "bench",
            **(more or {}),
        }
        home.mkdir(parents=True, exist_ok=True)
        self._home = home
        tokens = Tokens(home / "tokens.json")
        self.tokens = [tokens.add(f"t{i}", "admin") for i in range(40)]
        self.port = 0

    def start(self) -> float:
        """Seconds until it says that it is ready."""
        port_file = self._home / "port"
        port_file.unlink(missing_ok=True)
        words = [sys.executable, "-m", "steno", "gateway", "--listen", "127.0.0.1:0"]
        before_s = time.perf_counter()
        self.process = subprocess.Popen(
            [*words, "--port-file", str(port_file)],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=(self._home / "log").open("ab"),
        )
        if self.process.stdout is None or b"listens" not in self.process.stdout.readline():
            raise subprocess.SubprocessError("the gateway did not start")
        self.port = int(port_file.read_text())
        return time.perf_counter() - before_s

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


@contextmanager
def running(home: Path, url: str = "", model: str = "openai-chat:bench") -> Iterator[Service]:
    service = Service(home, url, model)
    service.start()
    try:
        yield service
    finally:
        service.stop()


# --- clients --------------------------------------------------------------------------------------


def _request(port: int, token: str, method: str, path: str, data: bytes) -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


class Client:
    """One connection that asks one thing after the other."""

    def __init__(self, service: Service, token: str) -> None:
        self._service, self._token = service, token

    async def __aenter__(self) -> "Client":
        self.reader, self._writer = await asyncio.open_connection("127.0.0.1", self._service.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def send(self, method: str, path: str, body: object = None) -> None:
        data = b"" if body is None else msgspec.json.encode(body)
        self._writer.write(_request(self._service.port, self._token, method, path, data))

    async def ask(self, method: str, path: str, body: object = None) -> bytes:
        self.send(method, path, body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head.lower())
        answer = await self.reader.readexactly(int(found[1]) if found else 0)
        if not head.startswith(b"HTTP/1.1 2"):
            raise subprocess.SubprocessError(f"{path}: {head[:40]!r} {answer[:200]!r}")
        return answer

    async def make(self) -> str:
        return str(msgspec.json.decode(await self.ask("POST", "/api/sessions", {}))["id"])


def _same(protocol: T) -> T:
    return protocol


@asynccontextmanager
async def streams(service: Service, sessions: list[str]) -> AsyncIterator[list["Reader"]]:
    """A stream of each session, open."""
    readers: list[Reader] = []
    loop = asyncio.get_running_loop()
    try:
        for i, session in enumerate(sessions):
            token = service.tokens[i % len(service.tokens)]
            request = _request(
                service.port, token, "GET", f"/api/sessions/{session}/events?after=now", b""
            )
            reader = Reader(request)
            readers.append(reader)
            await loop.create_connection(partial(_same, reader), "127.0.0.1", service.port)
            await reader.open.wait()
            if reader.was_refused():
                raise subprocess.SubprocessError("a stream was refused")
        yield readers
    finally:
        for reader in readers:
            reader.close()


class Reader(asyncio.Protocol):
    """One stream, from its request on: what came, and when."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._came: list[tuple[float, bytes]] = []
        self.open, self.over = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._came.append((time.monotonic(), data))
        self.open.set()
        if b"turn_ended" in data:
            self.over.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open.set()
        self.over.set()

    def close(self) -> None:
        self._transport.close()

    def was_refused(self) -> bool:
        return not self._came or not self._came[0][1].startswith(b"HTTP/1.1 200")

    def lags_ms(self) -> Iterator[float]:
        """How late each piece came. A piece is there with the end of its event."""
        rest = b""
        for at_s, data in self._came:
            whole, _, rest = (rest + data).rpartition(b"\n\n")
            for line in _TEXT.findall(whole):
                for sent in _SENT.findall(line):
                    yield (at_s - float(sent)) * 1000


# --- rows -----------------------------------------------------------------------------------------


def _load(home: Path, seconds: int) -> list[Result]:
    with serving(seconds * PER_SECOND, PER_SECOND) as url, running(home, url) as service:
        lags_ms, waits_ms = asyncio.run(_under_load(service, seconds))
        memory_mb, cpu_s = service.memory_mb(), service.cpu_s()
    wanted = TURNS * READERS * seconds * PER_SECOND
    what = f"{TURNS * READERS} streams, {TURNS} turns × {PER_SECOND} pieces/s for {seconds} s"
    spread = (
        f"p50 {percentile(lags_ms, 0.5):.0f}, p90 {percentile(lags_ms, 0.9):.0f}, max "
        f"{max(lags_ms):.0f} ms; {len(lags_ms):,} of {wanted:,} pieces; "
        f"{cpu_s / len(lags_ms) * 1e6:.0f} µs of the service a piece and reader"
    )
    admitted = f"p50 {percentile(waits_ms, 0.5):.1f}, max {max(waits_ms):.0f} ms; N={len(waits_ms)}"
    p99_ms = percentile(lags_ms, 0.99)
    return [
        at_most(NAME, f"{what}: p99 from model to client", p99_ms, 150, "ms", spread),
        at_most(NAME, f"{what}: memory", memory_mb, 400, "MB"),
        at_most(
            NAME,
            "admission by HTTP under that load: p99",
            percentile(waits_ms, 0.99),
            50,
            "ms",
            admitted,
        ),
    ]


async def _under_load(service: Service, seconds: int) -> tuple[list[float], list[float]]:
    async with Client(service, service.tokens[0]) as client:
        sessions = [await client.make() for _ in range(TURNS)]
        quiet = await client.make()
        async with streams(service, sessions * READERS) as readers:
            for session in sessions:
                await client.ask("POST", f"/api/sessions/{session}/inputs", {"text": "go"})
            waits_ms = await _admissions(client, quiet, seconds)
            await asyncio.wait_for(asyncio.gather(*(one.over.wait() for one in readers)), 120)
    return [lag for one in readers for lag in one.lags_ms()], waits_ms


async def _admissions(client: Client, session: str, seconds: float) -> list[float]:
    """How long inputs take to be accepted, ten a second; they all wait behind one turn."""
    waits_ms = []
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        before_s = time.perf_counter()
        await client.ask("POST", f"/api/sessions/{session}/inputs", {"text": "another one"})
        waits_ms.append((time.perf_counter() - before_s) * 1000)
        await asyncio.sleep(0.1)
    return waits_ms


def _one_piece(home: Path, pieces: int) -> list[Result]:
    with BlockingStore(home.with_suffix(".db")) as store:
        warm(store)
        commit_ms = asyncio.run(_commits(store, 200))
    with serving(pieces, 40) as url, running(home, url) as service:
        lags_ms: list[float] = []

        async def read() -> None:
            async with Client(service, service.tokens[0]) as client:
                session = await client.make()
                async with streams(service, [session]) as [stream]:
                    await client.ask("POST", f"/api/sessions/{session}/inputs", {"text": "go"})
                    await stream.over.wait()
                    lags_ms.extend(stream.lags_ms())

        asyncio.run(read())
    own, base = percentile(lags_ms, 0.5), percentile(commit_ms, 0.5)
    detail = f"{own:.2f} ms in all, a commit {base:.2f} ms; N={len(lags_ms)}"
    return [
        at_most(
            NAME, "one piece, model to client, beyond a commit: p50", own - base, 3, "ms", detail
        )
    ]


async def _commits(store: BlockingStore, count: int) -> list[float]:
    shared = SqliteStore(store.core)
    session = await shared.create(SessionStarted("bench", "bench"))
    waits_ms = []
    for _ in range(count):
        before_s = time.perf_counter()
        await shared.admit(_admission(session))
        waits_ms.append((time.perf_counter() - before_s) * 1000)
        await asyncio.sleep(0.005)
    return waits_ms


def _admission(session: str) -> Admission:
    return Admission(input=InputAdmitted((Text("another one"),), "bench", None), session=session)


def _inputs(home: Path, each: int) -> list[Result]:
    with BlockingStore(home.with_suffix(".db")) as store:
        warm(store)
        base = asyncio.run(_store_rate(store, each))
    library = asyncio.run(_library_rate(each))
    with serving(1 << 30, 0.001) as url, running(home, url) as service:
        cpu_s = service.cpu_s()
        ours = asyncio.run(_http_rate(service, each))
        cpu_s = service.cpu_s() - cpu_s
    what = f"{TURNS} clients posting inputs: inputs/s"
    each_us = cpu_s / (TURNS * each) * 1e6
    best = 1 / (1 / library + 1 / base)
    detail = (
        f"{ours:,.0f}/s; {best:,.0f}/s if {library:,.0f}/s of aiohttp answering a constant and "
        f"{base:,.0f}/s of the store took turns; {each_us:.0f} µs of CPU an input; {TURNS} × {each}"
    )
    return [
        at_least(NAME, f"{what}, of what its two parts can do", ours / best, 0.5, detail=detail),
        noted(NAME, f"{what}, of the store's own", ours / base),
    ]


async def _library_rate(each: int) -> float:
    process = child.start("bench.gateway_constant")
    try:
        port = int(process.stdout.readline()) if process.stdout is not None else 0
        path = "/api/sessions/aaaaaaaaaaaaa/inputs"
        return await _posted(port, [_post(port, "t" * 43, path)] * TURNS, each)
    finally:
        process.kill()
        process.communicate()


def _post(port: int, token: str, path: str) -> bytes:
    return _request(port, token, "POST", path, b'{"text":"another one"}')


async def _store_rate(store: BlockingStore, each: int) -> float:
    shared = SqliteStore(store.core)
    sessions = [await shared.create(SessionStarted("bench", "bench")) for _ in range(TURNS)]

    async def some(session: str) -> None:
        for _ in range(each):
            await shared.admit(_admission(session))

    before_s = time.perf_counter()
    await asyncio.gather(*map(some, sessions))
    return TURNS * each / (time.perf_counter() - before_s)


class Poster(asyncio.Protocol):
    """Says the same so many times, each when the last was accepted."""

    def __init__(self, request: bytes, each: int) -> None:
        self._request, self._left = request, each
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def post(self) -> None:
        self._transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if not data.startswith(b"HTTP/1.1 202") or not data.endswith(b"}"):
            self.over.set_exception(subprocess.SubprocessError(f"not accepted: {data[:200]!r}"))
        self._left -= 1
        if self._left:
            self.post()
        elif not self.over.done():
            self.over.set_result(None)


async def _http_rate(service: Service, each: int) -> float:
    clients = [Client(service, service.tokens[0]) for _ in range(TURNS)]
    sessions = []
    for client in clients:
        await client.__aenter__()
        sessions.append(await client.make())
    await asyncio.gather(
        *(
            client.ask("POST", f"/api/sessions/{session}/inputs", {"text": "go"})
            for client, session in zip(clients, sessions, strict=True)
        )
    )
    await asyncio.sleep(1.0)  # their turns have begun, and hang
    paths = [f"/api/sessions/{session}/inputs" for session in sessions]
    requests = [_post(service.port, service.tokens[0], path) for path in paths]
    rate = await _posted(service.port, requests, each)
    for client in clients:
        await client.__aexit__()
    return rate


async def _posted(port: int, requests: list[bytes], each: int) -> float:
    """How many a second are accepted; each client says its request again and again."""
    posters = [Poster(request, each) for request in requests]
    for poster in posters:
        make = partial(_same, poster)
        await asyncio.get_running_loop().create_connection(make, "127.0.0.1", port)
    before_s = time.perf_counter()
    for poster in posters:
        poster.post()
    await asyncio.gather(*(poster.over for poster in posters))
    return len(posters) * each / (time.perf_counter() - before_s)


def _idle(home: Path, seconds: int) -> list[Result]:
    with running(home, model="scripted:echo") as service:
        before_mb, after_mb, cpu = asyncio.run(_idling(service, seconds))
    each_kb = (after_mb - before_mb) * 1024 / IDLE
    return [
        at_most(NAME, f"{IDLE} idle streams: of a core", cpu * 100, 1, "%", f"over {seconds} s"),
        at_most(NAME, f"{IDLE} idle streams: memory each", each_kb, 30, "KB"),
    ]


async def _idling(service: Service, seconds: int) -> tuple[float, float, float]:
    async with Client(service, service.tokens[0]) as client:
        sessions = [await client.make() for _ in range(100)]
        async with streams(service, sessions[:1]):
            before_mb = service.memory_mb()
        async with streams(service, (sessions * (IDLE // 100))[: IDLE - 1]):
            await asyncio.sleep(2)
            began_s, cpu_s = time.perf_counter(), service.cpu_s()
            await asyncio.sleep(seconds)
            cpu = (service.cpu_s() - cpu_s) / (time.perf_counter() - began_s)
            return before_mb, service.memory_mb(), cpu


def _start(home: Path, sessions: int) -> list[Result]:
    home.mkdir(parents=True)
    fill(home / "store.db", sessions, 100)
    with serving(1, 0) as url:
        service = Service(home, url)
        took_s = service.start()
        service.stop()
    what = f"start to ready, {sessions:,} sessions, 100 unfinished turns"
    return [at_most(NAME, what, took_s, 3, "s")]
