"""A place outside, on loopback: counts what it is sent by key, and answers as it is told."""

import json
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from msgspec import Struct

from tests.ports import free_port
from tests.program.world import World

Act = int | Literal["drop", "hold"]
"""A status to answer with; or read it all and close the connection; or keep the answer, a 200,
until `go_on`."""
HELD_S = 60.0


class Sent(Struct, frozen=True):
    key: str
    told: dict[str, Any]
    headers: dict[str, str]


class Receiver:
    """Acts are used in order; the last one is repeated. `on_receipt` runs before anything is
    answered. With `tls` it is to be reached by https."""

    def __init__(self, *acts: Act, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.acts = list(acts) or [200]
        self.sent: list[Sent] = []
        self.on_receipt: Callable[[Sent], None] | None = None
        self.port = port or free_port()
        self._going_on = threading.Event()
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http{'s' * (self._tls is not None)}://127.0.0.1:{self.port}/hook"

    def go_on(self) -> None:
        self._going_on.set()

    def keys(self) -> dict[str, int]:
        """How often each key came."""
        return dict(Counter(one.key for one in self.sent))

    def told(self) -> dict[str, Any]:
        """What it was told, if that was one thing: each key once, as a receiver that honours keys
        takes it."""
        (one,) = {one.key: one.told for one in reversed(self.sent)}.values()
        return one

    def __enter__(self) -> "Receiver":
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver._take(self)

            def log_message(self, *_: object) -> None:
                return

        class Server(ThreadingHTTPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", self.port), Handler)
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _take(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["content-length"]))
        headers = {name.lower(): value for name, value in request.headers.items()}
        one = Sent(headers["idempotency-key"], json.loads(body), headers)
        act = self.acts[min(len(self.sent), len(self.acts) - 1)]
        self.sent.append(one)
        if self.on_receipt is not None:
            self.on_receipt(one)
        if act == "drop":
            request.connection.shutdown(socket.SHUT_RDWR)
            request.close_connection = True
            return
        if act == "hold":
            self._going_on.wait(HELD_S)
        request.send_response(200 if act == "hold" else int(act))
        request.send_header("location", "/elsewhere")
        request.send_header("content-length", "0")
        request.end_headers()


def configure(world: World, receiver: Receiver, name: str = "phone", **more: object) -> None:
    """Have a channel lead to a receiver."""
    known = json.loads(world.environment.get("STENO_CHANNELS", "{}"))
    world.environment["STENO_CHANNELS"] = json.dumps(known | {name: {"url": receiver.url, **more}})


def deliveries(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(world.steno("deliveries", "--json"))
    return found


def states(world: World) -> list[tuple[str, str]]:
    return [(one["state"], one["cause"]) for one in deliveries(world)]
