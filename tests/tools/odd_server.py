"""An MCP server over stdio that does what it is told, also what no server should: python
odd_server.py [HABIT…]

    http:PORT      is reached over HTTP instead
    stubborn       ignores the end of its input, and TERM
    silent         never says hello
    dead           ends at once, with a complaint
    changing       has one more tool after each call, and says so
    chatty         prints lines that are no messages
    flood          answers `big` with a line that is longer than any limit

Tools, in the folder that it runs in: `count` adds a line to count.txt and returns; `die` adds a
line and kills its own process; `hang` adds a line and never answers; `pid`, `env` say what it is
and has; `big` returns `chars` characters; `fail` reports an error; `garbled` says what is no text;
`picture` gives an image, a text called one and a huge one; `weird.näme/x` has a name that no
provider takes.
"""

import json
import os
import signal
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HABITS = set(sys.argv[1:])
NAMES = ["hang", "count", "die", "pid", "env", "big", "fail", "garbled", "picture", "weird.näme/x"]
LOG = Path("count.txt")
PIXEL = b"\x89PNG\r\n\x1a\n pixel"


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text_of(name: str, arguments: dict[str, Any]) -> str | None:
    """What a tool says; None if it never answers."""
    if name in ("count", "die", "hang"):
        with LOG.open("a") as log:
            log.write("run\n")
    match name:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            return None
        case "pid":
            return str(os.getpid())
        case "garbled":
            return "half \ud800 a pair, \0 and \uffff"
        case "env":
            return json.dumps(dict(os.environ))
        case "big":
            return (
                "x" * (40 * 1024 * 1024)
                if "flood" in HABITS
                else "y" * int(arguments.get("chars", 100_000))
            )
    return f"{name} {len(LOG.read_text().split()) if LOG.exists() else 0}"


def image(data: bytes) -> dict[str, Any]:
    return {"type": "image", "mimeType": "image/png", "data": b64encode(data).decode()}


def answer(request: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> None:
    id, method, params = request.get("id"), request.get("method"), request.get("params", {})
    match method:
        case "initialize":
            about = {"name": "odd", "version": "1"}
            capabilities: dict[str, Any] = {"tools": {}}
            version = params["protocolVersion"]
            send(
                {
                    "id": id,
                    "result": {
                        "protocolVersion": version,
                        "capabilities": capabilities,
                        "serverInfo": about,
                    },
                }
            )
        case "tools/list":
            schema = {
                "type": "object",
                "properties": {"chars": {"type": "integer"}, "b": {}, "a": {}},
            }
            tools = [
                {"name": name, "description": f"It does {name}.", "inputSchema": schema}
                for name in NAMES
            ]
            send({"id": id, "result": {"tools": tools}})
        case "tools/call":
            said = text_of(params["name"], params.get("arguments") or {})
            if "changing" in HABITS:
                NAMES.append(f"new{len(NAMES)}")
                send({"method": "notifications/tools/list_changed"})
            if said is not None:
                content = [{"type": "text", "text": said}]
                if params["name"] == "picture":
                    content += [
                        image(data) for data in (PIXEL, b"no picture", PIXEL + bytes(4 * 2**20))
                    ]
                send(
                    {"id": id, "result": {"content": content, "isError": params["name"] == "fail"}}
                )
        case _:
            if id is not None:
                send({"id": id, "error": {"code": -32601, "message": "no such method"}})


class Http(BaseHTTPRequestHandler):
    """A message is answered with its result, or never."""

    def do_POST(self) -> None:
        said: list[dict[str, Any]] = []
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer(request, said.append)
        if not said and "id" in request:
            time.sleep(3600)
        body = b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() for message in said)
        self.send_response(200 if body else 202)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    do_DELETE = do_GET

    def log_message(self, *words: object) -> None:
        pass


def main() -> None:
    for habit in HABITS:
        if habit.startswith("http:"):
            ThreadingHTTPServer(
                ("127.0.0.1", int(habit.removeprefix("http:"))), Http
            ).serve_forever()
    if "dead" in HABITS:
        sys.exit("I cannot go on: no config")
    if "stubborn" in HABITS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "silent" in HABITS:
        time.sleep(3600)
    if "chatty" in HABITS:
        print("Welcome! {not json", flush=True)
    for line in sys.stdin:
        answer(json.loads(line), send)
    while "stubborn" in HABITS:
        time.sleep(1)


main()
