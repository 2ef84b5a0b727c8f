"""A provider that answers with the items it is told: for what aimock cannot make codex's model
do."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Item = dict[str, Any]
Answer = list[Item] | Callable[[str], list[Item]]


class Responses:
    """`answers` are the items of each answer, in order; the last one is repeated. One that is a
    function is given what the last call returned."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.over = threading.Event()
        self.url = ""

    def next_items(self, request: dict[str, Any]) -> list[Item]:
        self.requests.append(request)
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        return answer if isinstance(answer, list) else answer(json.dumps(request["input"][-1]))


def message(text: str) -> Item:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": f"msg_{text[:8]}", "role": "assistant", "content": content}


def thought(*pieces: str, after_s: float = 0.0) -> Item:
    """It thinks this aloud, and does not come to an end."""
    return {"type": "reasoning", "id": "rs", "summary": [], "pieces": pieces, "after_s": after_s}


def call(name: str, id: str, namespace: str = "", **arguments: Any) -> Item:
    within = {"namespace": namespace} if namespace else {}
    return {
        "type": "function_call",
        "call_id": id,
        "name": name,
        "arguments": json.dumps(arguments),
        **within,
    }


@contextmanager
def responses(*answers: Answer) -> Iterator[Responses]:
    told = Responses(*answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self._say("response.created", response={"id": "r"})
            for item in told.next_items(request):
                self._say("response.output_item.added", item=item)
                time.sleep(item.get("after_s", 0.0))
                for piece in item.get("pieces", ()):
                    at = {"item_id": item["id"], "output_index": 0, "summary_index": 0}
                    self._say("response.reasoning_summary_text.delta", **at, delta=piece)
                if "pieces" in item:
                    told.over.wait()
                self._say("response.output_item.done", item=item)
            usage = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
            self._say("response.completed", response={"id": "r", "usage": usage})

        def _say(self, kind: str, **fields: Any) -> None:
            self.wfile.write(
                f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
            )

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield told
    finally:
        told.over.set()
        server.shutdown()
        server.server_close()
