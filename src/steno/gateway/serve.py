"""The service from its start to its end.

start     open the store, listen, say so, take up what an earlier process left
SIGTERM   take no new turn; inputs are still accepted, streams are told `bye`; running turns get
          `drain_s`, then are ended in order
SIGKILL   needs nothing: everything that was accepted is a fact
"""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import secrets
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

import msgspec

from steno.compose import GATEWAY, Program, Setup
from steno.config import ConfigError
from steno.frontend.worker import start_if_due
from steno.gateway.api import ROUTES as API
from steno.gateway.channels.http import ROUTES as CHANNELS
from steno.gateway.channels.worker import Channels
from steno.gateway.feed import ROUTES as FEED
from steno.gateway.hub import PLATFORM, Hub
from steno.gateway.jobs.chat import JobsInChat
from steno.gateway.jobs.http import ROUTES as JOBS
from steno.gateway.jobs.scheduler import Scheduler
from steno.gateway.metrics import Metrics
from steno.gateway.openai.routes import ROUTES as OPENAI
from steno.gateway.page.layout import refused
from steno.gateway.page.routes import ROUTES as PAGE
from steno.gateway.page.routes import Pages
from steno.gateway.routes import Answer, Call, Content, Json, Problem, Route, document
from steno.gateway.search import SEARCH
from steno.gateway.server import Place, Server
from steno.gateway.starts import UNCLEAN_MAX, Starts
from steno.gateway.tokens import ADDRESS_FILE, Tokens
from steno.model_choice import Terms
from steno.service import Misused
from steno.session.errors import NoSuch, Refusal
from steno.store import errors

_log = logging.getLogger("steno.gateway")

FILES = 8_192
TAKE_UP_S = 2.0
"""So long a start waits for what an earlier process left; long sessions are taken up beside."""
GARBAGE = (50_000, 20, 50)
"""How many new objects before Python looks for circles among them: at its own number, a service
with hundreds of streams stands still for a tenth of a second every few seconds."""
SWITCH_S = 0.0005
"""A thread that wants to go on waits so long for the one that runs. Each row that SQLite gives
takes such a turn: at Python's 5 ms a busy loop holds up every commit and every read."""
LOOPBACK = ("127.0.0.1", "::1")
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Gateway:
    """What handlers get: the hub, and what the service knows about itself."""

    def __init__(
        self,
        hub: Hub,
        channels: Channels,
        tokens: Tokens,
        metrics: Metrics,
        starts: Starts,
    ) -> None:
        self.hub = hub
        self.channels = channels
        self.starts = starts
        self.tokens = tokens
        self.metrics = metrics
        self.pages = Pages(hub, tokens, channels.health, starts.held_back_until_s)
        self.boot = secrets.token_hex(4)
        self.ready = False

    def may_act(self) -> bool:
        """Whether what acts by itself (channels, jobs) may run: not after unclean starts."""
        return self.starts.held_back_until_s() is None


class Health(msgspec.Struct):
    status: str


class Readiness(msgspec.Struct):
    """`held_back_until_ms`: the service was killed too often of late; what acts by itself, channels
    and jobs, waits until then."""

    status: str
    running: int
    boot: str
    held_back_until_ms: int | None = None


async def health(gateway: Gateway, call: Call) -> Answer:
    return Json(Health("ok"))


async def ready(gateway: Gateway, call: Call) -> Answer:
    if not gateway.ready or gateway.hub.draining.is_set():
        raise Problem(
            503,
            "not_ready",
            "The service is starting or stopping.",
            {"Retry-After": "1"},
        )
    until_s = gateway.starts.held_back_until_s()
    return Json(
        Readiness(
            "ready",
            gateway.hub.running(),
            gateway.boot,
            None if until_s is None else round(until_s * 1000),
        )
    )


async def metrics(gateway: Gateway, call: Call) -> Answer:
    body = gateway.metrics.text(gateway.hub)
    return Content(body, "text/plain; version=0.0.4; charset=utf-8")


async def openapi(gateway: Gateway, call: Call) -> Answer:
    return Json(document(published(), version("steno-agent")))


OWN = (
    Route(
        "GET", "/health", None, "Whether the process answers", health, {200: Health}
    ),
    Route("GET", "/ready", "read", "Whether it takes work", ready, {200: Readiness}),
    Route(
        "GET",
        "/metrics",
        "read",
        "Metrics for Prometheus",
        metrics,
        {200: "text/plain"},
    ),
    Route("GET", "/openapi.json", "read", "This document", openapi, {200: dict}),
)


def _of_hub(route: Route) -> Route:
    """A route whose handler takes the hub alone."""

    async def handler(gateway: Gateway, call: Call) -> Answer:
        return await route.handler(gateway.hub, call)

    return msgspec.structs.replace(route, handler=handler)


def _of_pages(route: Route) -> Route:
    """A route of the page."""

    async def handler(gateway: Gateway, call: Call) -> Answer:
        return await route.handler(gateway.pages, call)

    return msgspec.structs.replace(route, handler=handler)


def published() -> tuple[Route, ...]:
    """The routes for programs. Those of the page change with it."""
    return (
        *OWN,
        *CHANNELS,
        *(_of_hub(route) for route in (*API, *SEARCH, *FEED, *JOBS, *OPENAI)),
    )


def routes() -> tuple[Route, ...]:
    return (*published(), *(_of_pages(route) for route in PAGE))


def address(listen: str) -> tuple[list[str], int]:
    """The addresses and the port of `--listen`: HOST:PORT, :PORT or PORT."""
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(
            f"--listen {listen!r} must be ADDRESS:PORT, such as 127.0.0.1:8765"
        )
    host = host.strip("[]")
    if host in ("", "localhost"):
        return _loopback(), int(port)
    return [host], int(port)


def _loopback() -> list[str]:
    """The loopback addresses that this machine has."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return ["127.0.0.1"]
    return list(LOOPBACK)


async def serve(
    setup: Setup, listen: str, port_file: str | None, say: Callable[[str], None]
) -> int:
    """Serve until a signal; the exit status."""
    config = setup.config.gateway
    addresses, port = address(listen or config.listen)
    tokens = Tokens(setup.where.home / "tokens.json")
    outside = [one for one in addresses if one not in LOOPBACK]
    if outside and not tokens.all():
        raise ConfigError(
            f"To listen on {outside[0]} the service needs a token first: "
            "steno gateway token add NAME --scope write"
        )
    _log_as_json()
    _make_room()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in STOPS:
        loop.add_signal_handler(number, stopping.set)
    counted = Metrics()
    async with setup.open(role=GATEWAY, committed=counted.committed) as program:
        hub = Hub(
            program, config, setup.where.home, _remembering(program, config.approval)
        )
        starts = Starts(setup.where.home)
        channels = Channels.of(
            setup.config, setup.where, hub, {"jobs": JobsInChat(hub)}
        )
        gateway = Gateway(hub, channels, tokens, counted, starts)
        server = Server(
            routes(),
            gateway,
            tokens,
            seen=counted.answered,
            explain=problem,
            refusal_page=lambda one: refused(one.status, one.detail),
        )
        counted.count_streams(server.streams)
        own = tuple(one.lower() for one in outside if not _is_everywhere(one))
        place = Place(port, (*config.names, *own), config.proxies)
        port = await server.start(addresses, place)
        if port_file:
            _write_whole(Path(port_file), str(port))
        service = hub.service()
        starts.begin()
        if not gateway.may_act():
            _log.warning(
                "killed %d times in 5 minutes: channels and jobs wait", UNCLEAN_MAX
            )
        taking_up = asyncio.create_task(hub.take_up())
        for one in (await asyncio.wait({taking_up}, timeout=TAKE_UP_S))[0]:
            one.result()
        service.searches.keep_up()
        async with service.visits.looking(), service.deliveries.tending():
            tending = asyncio.create_task(hub.tend())
            jobs = asyncio.create_task(Scheduler(hub, channels).run(gateway.may_act))
            channels.start(gateway.may_act)
            gateway.ready = True
            _write_whole(
                setup.where.home / ADDRESS_FILE, _url(_reached_at(addresses[0]), port)
            )
            say(f"steno gateway listens on {_url(addresses[0], port)}")
            _notify("READY=1")
            await stopping.wait()
            _notify("STOPPING=1")
            await channels.close()  # another process takes the accounts over at once
            draining = asyncio.create_task(hub.drain(config.drain_s))
            await hub.draining.wait()
            await server.end_streams()
            await draining
            for task in (taking_up, tending, jobs):
                task.cancel()
        await server.close()
        starts.end()
    return 0


def _remembering(
    program: Program, approval: Literal["ask", "refuse", "allow"]
) -> Callable[[], Awaitable[None]]:
    """Has sessions that are due distilled by a process of its own, as every front end does. It is a
    child of this one, which lives long: one that has ended is waited for at the next look."""
    terms, children = Terms(approval=approval), set[int]()

    async def remember() -> None:
        children.difference_update([one for one in children if _has_ended(one)])
        started = await start_if_due(
            program.agents(terms), program.service(PLATFORM, terms)
        )
        if started is not None:
            children.add(started)

    return remember


def _has_ended(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        return True


def _make_room() -> None:
    """A stream is an open file, and the limit of a shell is commonly about as many as we serve."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GARBAGE)
    gc.freeze()  # what is loaded by now stays: no need to look at it again
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _url(address: str, port: int) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}"


def _reached_at(address: str) -> str:
    """Where this machine reaches it."""
    if _is_everywhere(address):
        return LOOPBACK[":" in address]
    return address


def _is_everywhere(address: str) -> bool:
    try:
        return ip_address(address).is_unspecified
    except ValueError:  # a name
        return False


def _write_whole(path: Path, text: str) -> None:
    """Whole or not at all: a reader never sees half a number."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(f"{text}\n")
    beside.replace(path)


def _notify(state: str) -> None:
    """Tell systemd, if it started us."""
    to = os.environ.get("NOTIFY_SOCKET", "")
    if to:
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out,
        ):
            out.connect("\0" + to[1:] if to.startswith("@") else to)
            out.send(state.encode())


class _AsJson(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "name": record.name,
            "message": record.getMessage(),
        }
        return msgspec.json.encode(said).decode()


def _log_as_json() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_AsJson())
    for name in ("steno", "aiohttp"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False


def problem(error: Exception) -> Problem | None:
    """What a client is told of an error of the store or the service; None if it is not its
    business."""
    match error:
        case errors.UnknownSession():
            return Problem(
                404, "unknown_session", f"There is no session {error.session!r}."
            )
        case errors.KeyReused():
            return Problem(409, "key_reused", str(error))
        case errors.NotPending():
            return Problem(409, "not_pending", str(error))
        case errors.SessionBusy():
            return Problem(
                409, "busy", "The session is running; stop the turn first."
            )
        case errors.ForksRemain():
            return Problem(409, "forks_remain", str(error))
        case Refusal():
            return Problem(409, error.why, str(error))
        case errors.NotAllowed():
            return Problem(409, "not_allowed", str(error))
        case errors.StoreUnwritable():
            return Problem(
                503,
                "unwritable",
                f"Nothing was stored: {error}",
                {"Retry-After": "5"},
            )
        case errors.OutcomeUnknown():
            return Problem(503, "outcome_unknown", f"{error}", {"Retry-After": "1"})
        case errors.JournalCorrupt():
            return Problem(500, "damaged", f"{error}")
        case errors.UnknownMark():
            return Problem(
                409, "cursor_ahead", "The cursor is ahead. Begin again at `now`."
            )
        case errors.StoreError():
            return Problem(503, "store", f"{error}")
        case NoSuch():
            return Problem(422, f"no_{error.what}", f"{error}")
        case ConfigError() | Misused():
            return Problem(422, "unusable", f"{error}")
        case _:
            return None
