"""A way to a server that loses answers: requests get there, and what comes back does not."""

import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Lossy:
    """`lose` says of a method and a path whether the answer is lost; `lost` counts."""

    def __init__(self, port: int) -> None:
        self.lose: Callable[[str, str], bool] = lambda method, path: False
        self.lost = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, port))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "Lossy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(lossy: Lossy, port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length) if length else None
            wire = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            headers = {
                name: self.headers[name]
                for name in ("Authorization", "Content-Type")
                if name in self.headers
            }
            try:
                wire.request(self.command, self.path, body, headers)
                answer = wire.getresponse()
                told = answer.read()
            except OSError:
                self.close_connection = True
                return
            finally:
                wire.close()
            if lossy.lose(self.command, self.path):
                lossy.lost += 1
                self.close_connection = True
                return
            try:
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers.get("Content-Type") or "")
                self.send_header("Content-Length", str(len(told)))
                self.end_headers()
                self.wfile.write(told)
            except OSError:
                self.close_connection = True

        do_GET = do_PUT = do_POST = pass_on

        def log_message(self, *_: object) -> None:
            return

    return Handler
