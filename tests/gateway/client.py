"""A client of the gateway that nobody needs to install: plain sockets and server-sent events."""

import http.client
import json
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.program.world import Program, World, wait_until

WAIT_S = 20.0


class Event:
    def __init__(self, name: str, data: dict[str, Any], id: str) -> None:
        self.name, self.data, self.id = name, data, id


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    def json(self) -> Any:
        return json.loads(self.body)


class Gateway:
    """The running service, and a token of its own."""

    host = "127.0.0.1"

    def __init__(
        self, world: World, folder: Path, scope: str = "admin", name: str = "test"
    ) -> None:
        self.world = world
        self._port_file = folder / "port"
        self.token = world.steno("gateway", "token", "add", name, "--scope", scope).strip()
        self.port = 0
        self.shift_s = 0.0
        """How far its clock is moved, from the next start on."""
        self._programs: list[Program] = []
        self.start()

    def start(self) -> None:
        self._port_file.unlink(missing_ok=True)
        listen = f"{self.host}:{self.port}"
        words = ("gateway", "--listen", listen, "--port-file", str(self._port_file))
        changed = ("shifted.py", str(self.shift_s), *words)
        start = self.world.start_changed if self.shift_s else self.world.start
        self.program = start(*(changed if self.shift_s else words))
        self._programs.append(self.program)
        self.program.wait_shown("listens on")
        self.port = int(self._port_file.read_text())

    def kill(self) -> None:
        self.program.kill()

    def stop(self) -> int:
        self.program.signal(signal.SIGTERM)
        return int(self.program.process.wait(WAIT_S) or 0)

    def close(self) -> None:
        for program in self._programs:
            if program.process.poll() is None:
                program.process.kill()
                program.process.wait(WAIT_S)
            for pipe in (program.process.stdout, program.process.stderr):
                if pipe is not None:
                    pipe.close()

    # --- one request

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
        token: str | None = "",
    ) -> Answer:
        """`token` None: without one; "": our own."""
        sent = {"Content-Type": "application/json"} if body is not None else {}
        if token is not None:
            sent["Authorization"] = f"Bearer {token or self.token}"
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
        with closing(http.client.HTTPConnection(self.host, self.port, timeout=WAIT_S)) as wire:
            wire.request(method, path, data, sent | (headers or {}))
            answer = wire.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())

    def make(self, **fields: object) -> str:
        made = self.ask("POST", "/api/sessions", fields)
        assert made.status == 201, made.body
        return str(made.json()["id"])

    def say(
        self, session: str, text: str, key: str | None = None, wait: int | None = None
    ) -> Answer:
        headers = {} if key is None else {"Idempotency-Key": key}
        query = "" if wait is None else f"?wait={wait}"
        path = f"/api/sessions/{session}/inputs{query}"
        return self.ask("POST", path, {"text": text}, headers)

    # --- streams

    def events(self, session: str, after: str = "0", **headers: str) -> Iterator[Event]:
        """Events as they come, until the other end or the caller closes."""
        path = f"/api/sessions/{session}/events?after={after}"
        wire = http.client.HTTPConnection(self.host, self.port, timeout=WAIT_S)
        with closing(wire):
            sent = {"Authorization": f"Bearer {self.token}"} | headers
            wire.request("GET", path, headers=sent)
            answer = wire.getresponse()
            assert answer.status == 200, answer.read()
            yield from parse(answer)

    def until_end(self, session: str, after: str = "0") -> list[Event]:
        found = []
        for event in self.events(session, after):
            found.append(event)
            if event.name == "turn_ended":
                break
        return found


def parse(answer: http.client.HTTPResponse) -> Iterator[Event]:
    name, data, id = "", "", ""
    for raw in _lines(answer):
        if raw == "":
            if data:
                yield Event(name, json.loads(data), id)
            name, data = "", ""
        field, _, value = raw.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data += value
        elif field == "id":
            id = value


def _lines(answer: http.client.HTTPResponse) -> Iterator[str]:
    try:
        while line := answer.readline():
            yield line.decode().rstrip("\n")
    except (OSError, http.client.HTTPException):
        return


def text_of(events: list[Event]) -> str:
    """What a reader has seen of the answer, checked to come in order and once."""
    seen = ""
    for event in events:
        if event.name == "text":
            assert event.data["offset"] == len(seen), (event.data, seen)
            seen += event.data["text"]
    return seen


def eventually(gateway: Gateway, path: str, status: int) -> Answer:
    """What is answered once the service is there."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        try:
            answer = gateway.ask("GET", path)
        except OSError:
            answer = Answer(0, {}, b"")
        if answer.status == status or time.monotonic() > deadline_s:
            return answer
        time.sleep(0.05)


__all__ = ["Answer", "Event", "Gateway", "eventually", "text_of", "wait_until"]
