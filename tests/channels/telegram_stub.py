"""A Bot API on loopback that keeps Telegram's rules, as far as a bot can notice them:

- an update is given out until a getUpdates with a higher offset; after 24 hours it is gone
- one poller: a second getUpdates ends the first with 409
- a text has 1 to 4,096 UTF-16 units after its entities are parsed; HTML that is wrong is refused
- an edit that changes nothing is refused as "message is not modified"
- too many messages: 429 with retry_after; a bot that was blocked: 403
- buttons carry 1 to 64 bytes; a query can be answered once
- files are asked for by their id, and fetched by a path

It can also do what networks do: take a request and lose the answer (`lose`), or not answer at all.
"""

import json
import threading
import time
from collections.abc import Callable
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.program.world import wait_until

TOKEN = "4711:secret-of-the-bot"
BOT = 4711
NAME = "steno_test_bot"
KEPT_S = 86_400.0
TAGS = frozenset(("b", "i", "s", "u", "a", "code", "pre"))


class Refused(Exception):
    def __init__(self, status: int, description: str, **parameters: Any) -> None:
        super().__init__(description)
        self.status, self.description, self.parameters = status, description, parameters


class Telegram:
    """`history` is every text that each message of a chat ever had; `calls` is every call that was
    made, by its method."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.chats: dict[str, dict[int, dict[str, Any]]] = {}
        self.history: dict[tuple[str, int], list[str]] = {}
        self.answered: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self.blocked: set[str] = set()
        self.conflicts = 0
        self.lose: Callable[[str, dict[str, Any]], bool] = lambda method, body: False
        self.refuse: Callable[[str, dict[str, Any]], Refused | None] = lambda method, body: None
        self.now_s = time.time
        self._updates: list[tuple[float, dict[str, Any]]] = []
        self._next_update = 100
        self._next_message = 1
        self._poller = 0
        self._lock = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    def __enter__(self) -> "Telegram":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._poller += 1
            self._lock.notify_all()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    # --- what people do

    def say(
        self,
        text: str,
        person: int = 7,
        chat: int | None = None,
        name: str = "Ann",
        quiet: bool = False,
        **fields: Any,
    ) -> dict[str, Any]:
        """A person writes; the message. With `quiet` the update is not delivered yet."""
        group = chat is not None and chat < 0
        message = {
            "message_id": self._message_id(),
            "from": {"id": person, "is_bot": False, "first_name": name},
            "chat": {
                "id": person if chat is None else chat,
                "type": "supergroup" if group else "private",
            },
            "date": int(self.now_s()),
            "text": text,
        } | fields
        if not quiet:
            self.push({"message": message})
        return message

    def change(self, message: dict[str, Any], text: str) -> None:
        self.push({"edited_message": message | {"text": text, "edit_date": int(self.now_s())}})

    def tap(self, chat: int, message: int, label: str, person: int | None = None) -> str:
        """Press a button; the id of the query."""
        shown = self.chats[str(chat)][message]
        rows = shown["reply_markup"]["inline_keyboard"]
        data = next(one["callback_data"] for row in rows for one in row if one["text"] == label)
        return self.tap_data(chat, message, data, person)

    def tap_data(self, chat: int, message: int, data: str, person: int | None = None) -> str:
        id = str(9_000 + len(self.calls) + self._next_update)
        who = {"id": chat if person is None else person, "is_bot": False, "first_name": "Ann"}
        kind = "private" if chat > 0 else "supergroup"
        where = {"message_id": message, "chat": {"id": chat, "type": kind}}
        self.push({"callback_query": {"id": id, "from": who, "data": data, "message": where}})
        return id

    def push(self, update: dict[str, Any], again: bool = False) -> dict[str, Any]:
        """Hand an update to the bot; `again`: one that was handed over before."""
        with self._lock:
            if not again:
                update = {"update_id": self._next_update} | update
                self._next_update += 1
            self._updates.append((self.now_s(), update))
            self._lock.notify_all()
            return update

    # --- what they see

    def texts(self, chat: int) -> list[str]:
        """What stands in a chat from the bot, in order."""
        with self._lock:
            messages = sorted(self.chats.get(str(chat), {}).items())
            return [one["text"] for _, one in messages]

    def wait_text(self, chat: int, text: str) -> int:
        """Until a message of the bot says exactly this; its id."""
        wait_until(lambda: text in self.texts(chat), f"{text!r} in {chat}: {self.texts(chat)}")
        found = [id for id, one in self.chats[str(chat)].items() if one["text"] == text]
        return found[0]

    def wait_like(self, chat: int, part: str) -> int:
        wait_until(lambda: any(part in one for one in self.texts(chat)), f"{part!r} in chat {chat}")
        return next(id for id, one in self.chats[str(chat)].items() if part in one["text"])

    def made(self, method: str) -> list[dict[str, Any]]:
        with self._lock:
            return [body for name, body in self.calls if name == method]

    def pending(self) -> int:
        with self._lock:
            return len(self._updates)

    # --- the methods

    def call(self, method: str, body: dict[str, Any]) -> Any:
        with self._lock:
            self.calls.append((method, body))
        if (refused := self.refuse(method, body)) is not None:
            raise refused
        handler = getattr(self, f"do_{method}", None)
        if handler is None:
            raise Refused(404, "Not Found: method not found")
        return handler(**body)

    def do_getMe(self) -> Any:
        return {"id": BOT, "is_bot": True, "first_name": "steno", "username": NAME}

    def do_getUpdates(
        self, offset: int = 0, timeout: float = 0, limit: int = 100, allowed_updates: Any = ()
    ) -> Any:
        deadline_s = time.monotonic() + timeout
        with self._lock:
            self._poller += 1
            mine = self._poller
            self._lock.notify_all()
            while True:
                if self._poller != mine:
                    self.conflicts += 1
                    raise Refused(409, "Conflict: terminated by other getUpdates request")
                oldest_s = self.now_s() - KEPT_S
                self._updates = [
                    (at, one)
                    for at, one in self._updates
                    if at >= oldest_s and not (offset > 0 and one["update_id"] < offset)
                ]
                if self._updates or time.monotonic() >= deadline_s:
                    return [one for _, one in self._updates][:limit]
                self._lock.wait(max(deadline_s - time.monotonic(), 0.0))

    def do_sendMessage(self, chat_id: str, text: str, **rest: Any) -> Any:
        self._check(chat_id, rest)
        plain = parse(text, rest.get("parse_mode"))
        with self._lock:
            id = self._message_id()
            self.chats.setdefault(str(chat_id), {})[id] = {"text": plain} | rest
            self.history[str(chat_id), id] = [plain]
        return {"message_id": id, "chat": {"id": int(chat_id)}, "text": plain}

    def do_editMessageText(self, chat_id: str, message_id: int, text: str, **rest: Any) -> Any:
        self._check(chat_id, rest)
        plain = parse(text, rest.get("parse_mode"))
        with self._lock:
            shown = self.chats.get(str(chat_id), {}).get(message_id)
            if shown is None:
                raise Refused(400, "Bad Request: message to edit not found")
            if shown == {"text": plain} | rest or (
                shown["text"] == plain and shown.get("reply_markup") == rest.get("reply_markup")
            ):
                raise Refused(
                    400, "Bad Request: message is not modified: specified new message content"
                )
            self.chats[str(chat_id)][message_id] = {"text": plain} | rest
            self.history[str(chat_id), message_id].append(plain)
        return {"message_id": message_id, "text": plain}

    def do_sendChatAction(self, chat_id: str, action: str) -> Any:
        return True

    def do_answerCallbackQuery(self, callback_query_id: str, text: str = "") -> Any:
        with self._lock:
            if callback_query_id in self.answered:
                raise Refused(400, "Bad Request: query is too old")
            self.answered[callback_query_id] = text
        return True

    def do_getFile(self, file_id: str) -> Any:
        if file_id not in self.files:
            raise Refused(400, "Bad Request: invalid file_id")
        return {
            "file_id": file_id,
            "file_path": f"files/{file_id}",
            "file_size": len(self.files[file_id]),
        }

    def _check(self, chat: str, rest: dict[str, Any]) -> None:
        if str(chat) in self.blocked:
            raise Refused(403, "Forbidden: bot was blocked by the user")
        for row in rest.get("reply_markup", {}).get("inline_keyboard", []):
            for button in row:
                if not 1 <= len(button["callback_data"].encode()) <= 64:
                    raise Refused(400, "Bad Request: BUTTON_DATA_INVALID")

    def _message_id(self) -> int:
        with self._lock:
            self._next_message += 1
            return self._next_message


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text, self.open = "", []  # type: ignore[var-annotated]

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in TAGS:
            raise Refused(400, f"Bad Request: can't parse entities: Unsupported start tag {tag!r}")
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            raise Refused(400, "Bad Request: can't parse entities: Unmatched end tag")

    def handle_data(self, data: str) -> None:
        self.text += data


def parse(text: str, mode: str | None) -> str:
    """What a person sees of a text."""
    if mode == "HTML":
        parser = _Parser()
        parser.feed(text)
        parser.close()
        if parser.open:
            raise Refused(400, "Bad Request: can't parse entities: Can't find end tag")
        text = parser.text
    units = len(text.encode("utf-16-le", "surrogatepass")) // 2
    if not text.strip():
        raise Refused(400, "Bad Request: message text is empty")
    if units > 4_096:
        raise Refused(400, "Bad Request: message is too long")
    return text


def _handler(telegram: Telegram) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            prefix = f"/file/bot{TOKEN}/files/"
            body = telegram.files.get(self.path.removeprefix(prefix))
            self._tell(404 if body is None else 200, body or b"")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            token, _, method = self.path.removeprefix("/bot").partition("/")
            if token != TOKEN:
                self._tell(401, b'{"ok":false,"error_code":401,"description":"Unauthorized"}')
                return
            asked = json.loads(body or b"{}")
            try:
                status, told = 200, {"ok": True, "result": telegram.call(method, asked)}
            except Refused as refused:
                status = refused.status
                told = {"ok": False, "error_code": status, "description": refused.description}
                if refused.parameters:
                    told["parameters"] = refused.parameters
            if telegram.lose(method, asked):
                self.close_connection = True
                self.connection.close()
                return
            self._tell(status, json.dumps(told).encode())

        def _tell(self, status: int, body: bytes) -> None:
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                self.close_connection = True

    return Handler
