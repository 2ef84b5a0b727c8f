"""Slack on loopback, as far as a bot can notice its rules:

- a socket gets envelopes; one that is not acknowledged is given out again to the next socket
- what happens while no socket is open is given out by no socket, and stands in the history
- a message has a `ts`, and metadata that only `include_all_metadata` shows
- an answer can be lost, and too many messages be refused with Retry-After
"""

import json
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from tests.channels.contract import OWNER, Subject
from tests.channels.site import Site

BOT, TEAM = "UBOT", "T123"
APP_TOKEN, BOT_TOKEN = "xapp-1-test", "xoxb-test"
Answer = dict[str, Any]


class SlackStub(Site):
    """`messages` is each conversation, by `ts`."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[str, dict[str, dict[str, Any]]] = {}
        self.lose: Callable[[str], bool] = lambda method: False
        self.refuse: Callable[[str], Answer | None] = lambda method: None
        self.pending: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.reactions: list[dict[str, Any]] = []
        self._stamps = count(4_000_000_000)
        self._socket: web.WebSocketResponse | None = None

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_route("*", "/api/{method}", self._api)
        router.add_get("/socket", self._connect)
        router.add_get("/files/{id}", self._file)

    # --- what people do

    def say(self, channel: str, user: str, text: str, **fields: Any) -> dict[str, Any]:
        ts = f"{next(self._stamps)}.000100"
        event = {"type": "message", "channel": channel, "user": user, "text": text, "ts": ts}
        event |= {"channel_type": "im" if channel.startswith("D") else "channel"} | fields
        self.messages.setdefault(channel, {})[ts] = {"user": user, "text": text, "ts": ts} | fields
        self.give({"type": "events_api", "payload": {"event": event}})
        return event

    def give(self, envelope: dict[str, Any]) -> None:
        """Nobody hears it if no socket is open."""
        id = f"e{next(self._stamps)}"

        async def push() -> None:
            if self._socket is not None:
                self.pending[id] = envelope | {"envelope_id": id}
                with suppress(ConnectionError):  # killed a moment ago: it is given again
                    await self._socket.send_json(self.pending[id])

        self.do(push())

    # --- what the bot asks

    async def _connect(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"type": "hello"})
        for envelope in list(self.pending.values()):
            await socket.send_json(envelope | {"retry_attempt": 1})
        self._socket = socket
        async for frame in socket:
            if frame.type == WSMsgType.TEXT:
                self.pending.pop(json.loads(frame.data)["envelope_id"], None)
        if self._socket is socket:
            self._socket = None
        return socket

    async def _file(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {BOT_TOKEN}":
            return web.Response(status=403)
        return web.Response(body=self.files[request.match_info["id"]])

    async def _api(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        body = json.loads(await request.text() or "{}")
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token != (APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN):
            return web.json_response({"ok": False, "error": "invalid_auth"})
        if (refused := self.refuse(method)) is not None:
            return web.json_response(refused, status=429, headers={"Retry-After": "1"})
        told = self._answer(method, body)
        if self.lose(method):
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"ok": "error" not in told} | told)

    def _answer(self, method: str, body: dict[str, Any]) -> Answer:
        match method:
            case "auth.test":
                return {"team_id": TEAM, "user_id": BOT}
            case "apps.connections.open":
                return {"url": f"ws://127.0.0.1:{self.port}/socket"}
            case "users.conversations":
                return {
                    "channels": [
                        {"id": id, "is_im": id.startswith("D")} for id in sorted(self.messages)
                    ]
                }
            case "conversations.history" | "conversations.replies":
                return self._history(body)
            case "files.info":
                return {"file": {"url_private_download": f"{self.url}/files/{body['file']}"}}
            case "reactions.add":
                assert body["timestamp"] in self.messages[body["channel"]]
                self.reactions.append(body)
                return {}
            case "chat.postMessage":
                ts = f"{next(self._stamps)}.000200"
                made: Answer = {"user": BOT, "bot_id": "B1", "ts": ts, "text": _shown(body)}
                made |= {"metadata": body.get("metadata"), "blocks": body["blocks"]}
                self.messages.setdefault(body["channel"], {})[ts] = made
                return {"ts": ts}
            case "chat.update":
                found = self.messages[body["channel"]].get(body["ts"])
                if found is None:
                    return {"error": "message_not_found"}
                found |= {"text": _shown(body), "blocks": body["blocks"]}
                return {"ts": body["ts"]}
            case _:
                return {}

    def _history(self, body: dict[str, Any]) -> Answer:
        """Of a thread the history has the first message alone, and when the last one came."""
        thread = body.get("ts")
        found = []
        for ts, one in sorted(self.messages.get(body["channel"], {}).items(), reverse=True):
            within = one.get("thread_ts", ts) == thread if thread else "thread_ts" not in one
            if within and (ts == thread or float(ts) > float(body.get("oldest", 0))):
                replies = self.messages[body["channel"]].items()
                latest = [at for at, reply in replies if reply.get("thread_ts") == ts]
                shown = one if body.get("include_all_metadata") else one | {"metadata": None}
                found.append(shown | {"latest_reply": max(latest)} if latest else shown)
        start = int(body.get("cursor") or 0)
        page = found[start : start + 8]
        more = len(found) > start + 8
        cursor = str(start + 8) if more else ""
        return {
            "messages": page,
            "has_more": more,
            "response_metadata": {"next_cursor": cursor},
        }


def _shown(body: dict[str, Any]) -> str:
    marked = [one["text"] for one in body["blocks"] if one["type"] == "markdown"]
    text: str = marked[0] if marked else body["text"]
    return text


class SlackSubject(Subject):
    secret = f"{APP_TOKEN},{BOT_TOKEN}"

    def __init__(self, folder: Path) -> None:
        self.stub = SlackStub()

    def open(self) -> None:
        self.stub.__enter__()

    def close(self) -> None:
        self.stub.__exit__()

    def id(self, person: str) -> str:
        return f"UPERSON{person}"

    def settings(self) -> dict[str, Any]:
        return {
            "kind": "slack",
            "url": self.stub.url,
            "options": {
                "team": TEAM,
                "user": BOT,
                "chat_per_s": 1_000,
                "all_per_s": 1_000,
                "edit_s": 0.1,
            },
        }

    def say(self, text: str, person: str = OWNER) -> Any:
        return self.stub.say(f"D{person}", self.id(person), text)

    def again(self, said: Any) -> None:
        self.stub.give({"type": "events_api", "payload": {"event": said}})

    def change(self, said: Any, text: str) -> None:
        new = {"user": said["user"], "text": text, "ts": said["ts"]}
        self._tell("message_changed", said, message=new, previous_message=said)

    def delete(self, said: Any) -> None:
        self._tell("message_deleted", said, deleted_ts=said["ts"], previous_message=said)

    def _tell(self, subtype: str, said: Any, **more: Any) -> None:
        ts = f"{said['ts']}{len(subtype)}"
        event = {"type": "message", "subtype": subtype, "channel": said["channel"], "ts": ts}
        self.stub.give({"type": "events_api", "payload": {"event": event | more}})

    def active(self) -> bool:
        return [one["name"] for one in self.stub.reactions[-1:]] == ["eyes"]

    def attach(self, text: str, name: str, body: bytes) -> None:
        self.stub.files["F1"] = body
        file = {"id": "F1", "name": name, "mimetype": "text/plain", "size": len(body)}
        told = {"subtype": "file_share", "files": [file]}
        self.stub.say(f"D{OWNER}", self.id(OWNER), text, **told)

    def made(self, person: str = OWNER) -> list[dict[str, Any]]:
        found = sorted(self.stub.messages.get(f"D{person}", {}).items())
        return [one for _, one in found if one["user"] == BOT]

    def texts(self, person: str = OWNER) -> list[str]:
        return [one["text"] for one in self.made(person)]
