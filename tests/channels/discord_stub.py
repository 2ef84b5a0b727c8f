"""Discord on loopback, as far as a bot can notice its rules:

- a socket that has identified itself gets events; nothing is acknowledged, and what happens while
  no socket is open is told by none
- the messages of a channel can be read on after an id
- under the same nonce, for some minutes, the same message is given and no second one is made
"""

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from tests.channels.contract import OWNER, Subject
from tests.channels.site import Site

BOT = "100000"
TOKEN = base64.b64encode(BOT.encode()).decode().rstrip("=") + ".x.secret"
Raw = dict[str, Any]


class DiscordStub(Site):
    """`messages` is each channel, by id."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[str, dict[int, Raw]] = {}
        self.lose: Callable[[str, str], bool] = lambda method, path: False
        self.files: dict[str, bytes] = {}
        self.typed = 0
        self._nonces: dict[str, int] = {}
        self._ids = count(200_000)
        self._socket: web.WebSocketResponse | None = None

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/ws/", self._connect)
        router.add_get("/api/files/{id}", self._file)
        router.add_route("*", "/api/{path:.*}", self._api)

    # --- what people do

    def say(self, chat: str, person: str, text: str, **fields: Any) -> Raw:
        id = next(self._ids)
        raw: Raw = {"id": str(id), "channel_id": chat, "content": text, "type": 0}
        raw |= {"author": {"id": person, "username": "ann"}} | fields
        self.messages.setdefault(chat, {})[id] = raw
        self.give("MESSAGE_CREATE", raw)
        return raw

    def give(self, name: str, data: Raw) -> None:
        """Nobody hears it if no socket is open."""

        async def push() -> None:
            if self._socket is not None:
                with suppress(ConnectionError):  # killed a moment ago: it reads the history later
                    await self._socket.send_json({"op": 0, "t": name, "d": data, "s": 1})

        self.do(push())

    # --- what the bot asks

    async def _connect(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"op": 10, "d": {"heartbeat_interval": 41_250}})
        async for frame in socket:
            if frame.type != WSMsgType.TEXT:
                break
            told = json.loads(frame.data)
            if told["op"] == 2 and told["d"]["token"] != TOKEN:
                await socket.close(code=4004)
            elif told["op"] == 2:
                await socket.send_json({"op": 0, "t": "READY", "d": {}, "s": 1})
                self._socket = socket
            elif told["op"] == 1:
                await socket.send_json({"op": 11})
        if self._socket is socket:
            self._socket = None
        return socket

    async def _file(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=self.files[request.match_info["id"]])

    async def _api(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bot {TOKEN}":
            return web.json_response({"message": "401"}, status=401)
        path = request.match_info["path"]
        body = json.loads(await request.text() or "null") or {}
        told = self._answer(request.method, path.split("/"), body, request.query.get("after"))
        if self.lose(request.method, path):
            assert request.transport is not None
            request.transport.close()
        return web.json_response(told)

    def _answer(self, method: str, path: list[str], body: Raw, after: str | None) -> Any:
        match method, path:
            case "GET", ["gateway", "bot"]:
                return {"url": f"ws://127.0.0.1:{self.port}/ws"}
            case "POST", ["users", "@me", "channels"]:
                return {"id": f"9{body['recipient_id']}"}
            case "GET", ["channels", chat, "messages"]:
                found = sorted(self.messages.get(chat, {}).items())
                if after is None:
                    return [raw for _, raw in reversed(found)][:100]
                return [raw for id, raw in found if id > int(after)][:100]
            case "POST", ["channels", _, "typing"]:
                self.typed += 1
                return {}
            case "GET", ["channels", chat, "messages", id]:
                return self.messages[chat][int(id)]
            case "POST", ["channels", chat, "messages"]:
                return self._make(chat, body)
            case "PATCH", ["channels", chat, "messages", id]:
                raw = self.messages[chat][int(id)]
                raw |= {"content": body["content"], "components": body["components"]}
                return raw
            case _:
                return {"id": BOT}

    def _make(self, chat: str, body: Raw) -> Raw:
        assert 0 < len(body["content"]) <= 2_000
        assert len(body["nonce"]) <= 25
        assert body["enforce_nonce"] is True
        made = self.messages.setdefault(chat, {})
        if (known := self._nonces.get(body["nonce"])) is not None:
            return made[known]
        id = self._nonces[body["nonce"]] = next(self._ids)
        made[id] = body | {"id": str(id), "channel_id": chat, "author": {"id": BOT}}
        return made[id]


class DiscordSubject(Subject):
    secret = TOKEN
    client_ids = True

    def __init__(self, folder: Path) -> None:
        self.stub = DiscordStub()

    def open(self) -> None:
        self.stub.__enter__()

    def close(self) -> None:
        self.stub.__exit__()

    def id(self, person: str) -> str:
        return f"30000{person}"

    def chat(self, person: str) -> str:
        return f"9{self.id(person)}"

    def settings(self) -> dict[str, Any]:
        return {
            "kind": "discord",
            "url": f"{self.stub.url}/api",
            "options": {"chat_per_s": 1_000, "all_per_s": 1_000, "edit_s": 0.1},
        }

    def say(self, text: str, person: str = OWNER) -> Any:
        return self.stub.say(self.chat(person), self.id(person), text)

    def again(self, said: Any) -> None:
        self.stub.give("MESSAGE_CREATE", said)

    def change(self, said: Any, text: str) -> None:
        when = {"edited_timestamp": "2026-01-01T00:00:00+00:00"}
        self.stub.give("MESSAGE_UPDATE", said | when | {"content": text})

    def delete(self, said: Any) -> None:
        self.stub.give("MESSAGE_DELETE", {"id": said["id"], "channel_id": said["channel_id"]})

    def active(self) -> bool:
        return self.stub.typed > 0

    def attach(self, text: str, name: str, body: bytes) -> None:
        self.stub.files["77777"] = body
        url = f"{self.stub.url}/api/files/77777"
        file = {"id": "77777", "filename": name, "content_type": "text/plain", "url": url}
        self.stub.say(self.chat(OWNER), self.id(OWNER), text, attachments=[file])

    def texts(self, person: str = OWNER) -> list[str]:
        found = sorted(self.stub.messages.get(self.chat(person), {}).items())
        return [raw["content"] for _, raw in found if raw["author"]["id"] == BOT]
