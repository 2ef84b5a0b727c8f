"""Discord, by a client of our own for the few routes that are needed: no repeats below us.

receive    events from the gateway's socket. Discord acknowledges nothing and forgets what nobody
           heard: so at each start every known conversation is read on after its last stored message
send       a message with a nonce, under which Discord makes no second one for some minutes
edit       PATCH

The mark is the last message of each conversation.
"""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from steno.gateway.channels.download import download
from steno.gateway.channels.protocol import (
    Batch,
    Channel,
    ChannelError,
    ChannelLost,
    ChannelRefused,
    ChannelSetup,
    Deleted,
    Edited,
    Limits,
    Message,
    No,
    NotNow,
    Outgoing,
    Quiet,
    RemoteFile,
    Result,
    Sent,
    Tapped,
    Unsure,
    Update,
)
from steno.web import LOST, trusted

API = "https://discord.com/api/v10"
FILES = ("https://cdn.discordapp.com/", "https://media.discordapp.net/")
LIMITS = Limits(
    text_max=2_000,
    edits=True,
    client_id_s=120.0,
    chat_per_s=1.0,
    all_per_s=40.0,
    burst=4,
    edit_s=1.5,
    buttons=True,
)
INTENTS = 1 | 1 << 9 | 1 << 12 | 1 << 15
"""Guilds, messages in them, direct messages, and what they say."""
ANSWER_S = 20.0
CHANNELS_MAX = 2_000
PAGES_MAX = 50
NOWHERE = "0"
_ID = re.compile(r"[1-9][0-9]{4,24}")
Marks = dict[str, str]


class _Absent(ChannelLost):
    """There is no such thing, or not for us. To ask again would change nothing."""


class Discord(Quiet):
    def __init__(self, setup: ChannelSetup) -> None:
        self._token = setup.secret
        self._user = _user_of(setup.secret)
        if _ID.fullmatch(self._user) is None:
            raise ChannelRefused("the secret is not the token of a Discord bot")
        self._base = setup.config.url.rstrip("/") or API
        self._config = setup.config
        self._http: aiohttp.ClientSession | None = None
        self.limits = setup.limits(LIMITS)

    @property
    def account(self) -> str:
        return f"discord:{self._user}"

    async def open(self) -> None:
        await self.close()
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trusted()),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        await self._ask("GET", "/users/@me")

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    # --- what arrives

    async def receive(self, mark: str) -> AsyncIterator[Batch]:
        marks = _marks(mark)
        address = str((await self._ask("GET", "/gateway/bot")).get("url", ""))
        try:
            async with self._session().ws_connect(
                f"{address}/?v=10&encoding=json", max_msg_size=4 << 20
            ) as socket:
                beating = asyncio.create_task(
                    _beat(socket, await self._greet(socket))
                )
                try:
                    # What happens from here on comes by the socket; what happened before does not.
                    await self._stand(marks)
                    yield Batch(
                        (), _mark(marks)
                    )  # our words after that are no sign of anything
                    missed = await self._missed(marks)
                    yield Batch(tuple(missed), _mark(marks))
                    async for name, data in _events(socket):
                        update = self._read(name, data)
                        if update is not None:
                            _advance(marks, update)
                            yield Batch((update,), _mark(marks))
                finally:
                    beating.cancel()
                    await asyncio.gather(beating, return_exceptions=True)
        except (*LOST, TimeoutError, ConnectionError) as error:
            raise ChannelLost(
                f"Discord cannot be reached: {type(error).__name__}"
            ) from None
        raise ChannelLost("Discord ended the connection")

    async def _greet(self, socket: aiohttp.ClientWebSocketResponse) -> float:
        """Say who we are; how many seconds there are between two heartbeats."""
        hello = await socket.receive_json(timeout=ANSWER_S)
        properties = {"os": "linux", "browser": "steno", "device": "steno"}
        told = {"token": self._token, "intents": INTENTS, "properties": properties}
        await socket.send_json({"op": 2, "d": told})
        while True:
            frame = await socket.receive(ANSWER_S)
            if frame.type != aiohttp.WSMsgType.TEXT:
                if socket.close_code in (4004, 4013, 4014):
                    raise ChannelRefused(
                        "Discord does not take the token, or the bot may not read messages"
                    )
                raise ChannelLost("Discord ended the connection")
            if json.loads(frame.data).get("t") == "READY":
                return float(hello["d"]["heartbeat_interval"]) / 1_000

    async def _stand(self, marks: Marks) -> None:
        """Where to read on in conversations of which nothing is stored: after our last word, or
        else a page back."""
        for person in (*self._config.owners, *self._config.allow):
            with contextlib.suppress(_Absent):
                made = await self._ask(
                    "POST", "/users/@me/channels", {"recipient_id": person}
                )
                marks.setdefault(str(made["id"]), NOWHERE)
        for group in self._config.groups:
            marks.setdefault(group, NOWHERE)
        for chat in [one for one, last in marks.items() if last == NOWHERE]:
            with contextlib.suppress(_Absent):
                raws = await self._ask("GET", f"/channels/{chat}/messages?limit=100")
                by = {int(raw["id"]): str(raw["author"]["id"]) for raw in raws}
                ours = [id for id, person in by.items() if person == self._user]
                marks[chat] = str(max(ours, default=min(by, default=2) - 1))

    async def _missed(self, marks: Marks) -> list[Update]:
        """What was said in each conversation after what is stored."""
        found: list[Update] = []
        for chat in list(marks):
            with contextlib.suppress(_Absent):
                for raw in await self._history(chat, marks[chat]):
                    raw.setdefault(
                        "guild_id", "" if chat not in self._config.groups else "1"
                    )
                    if (read := self._read("MESSAGE_CREATE", raw)) is not None:
                        found.append(read)
                        _advance(marks, read)
        return found

    async def _history(self, chat: str, after: str) -> list[dict[str, Any]]:
        """Oldest first."""
        found: list[dict[str, Any]] = []
        for _ in range(PAGES_MAX):
            page = await self._ask(
                "GET", f"/channels/{chat}/messages?limit=100&after={after}"
            )
            found += sorted(page, key=lambda raw: int(raw["id"]))
            if len(page) < 100:
                break
            after = found[-1]["id"]
        return found

    def _read(self, name: str, data: dict[str, Any]) -> Update | None:
        try:
            match name:
                case "MESSAGE_CREATE":
                    return self._message(data)
                case "MESSAGE_UPDATE":
                    return self._edited(data)
                case "MESSAGE_DELETE":
                    chat, id = str(data["channel_id"]), str(data["id"])
                    return Deleted(f"d{id}", chat, id, "", bool(data.get("guild_id")))
                case "INTERACTION_CREATE":
                    return _tapped(data)
        except (KeyError, TypeError, AttributeError, ValueError):
            return None
        return None

    def _message(self, raw: dict[str, Any]) -> Message | None:
        author, text, files = (
            raw["author"],
            str(raw.get("content") or ""),
            _files(raw),
        )
        if (
            str(author["id"]) == self._user
            or raw.get("webhook_id")
            or not (text or files)
        ):
            return None
        if raw.get("type", 0) not in (0, 19) or _ID.fullmatch(str(raw["id"])) is None:
            return None
        group = bool(raw.get("guild_id"))
        replied = raw.get("referenced_message") or {}
        ours = str((replied.get("author") or {}).get("id", "")) == self._user
        named = any(
            str(one.get("id")) == self._user for one in raw.get("mentions") or []
        )
        return Message(
            id=str(raw["id"]),
            chat=str(raw["channel_id"]),
            person=str(author["id"]),
            text=re.sub(rf"<@!?{self._user}>", "", text).strip() if group else text,
            message=str(raw["id"]),
            name=str(author.get("global_name") or author.get("username") or ""),
            group=group,
            bot=bool(author.get("bot")),
            addressed=not group or named or ours,
            quoted=str(replied.get("content") or "")[:2_000],
            files=files,
        )

    def _edited(self, raw: dict[str, Any]) -> Edited | None:
        person, when = str(raw["author"]["id"]), raw.get("edited_timestamp")
        if person == self._user or not when:
            return None
        chat, id, text = (
            str(raw["channel_id"]),
            str(raw["id"]),
            str(raw.get("content") or ""),
        )
        return Edited(
            f"e{id}:{when}"[:100], chat, person, id, text, bool(raw.get("guild_id"))
        )

    # --- what goes out

    async def send(self, chat: str, key: str, what: Outgoing) -> Result:
        nonce = hashlib.sha256(key.encode()).hexdigest()[:25]
        body = _body(what) | {"nonce": nonce, "enforce_nonce": True}
        if _ID.fullmatch(what.reply_to):
            body["message_reference"] = {
                "message_id": what.reply_to,
                "fail_if_not_exists": False,
            }
        return await self._act("POST", chat, "/messages", body)

    async def edit(self, chat: str, message: str, what: Outgoing) -> Result:
        if _ID.fullmatch(message) is None:
            return No("there is no such message")
        return await self._act("PATCH", chat, f"/messages/{message}", _body(what))

    async def show_typing(self, chat: str) -> None:
        await self._act("POST", chat, "/typing", {})

    async def answer_tap(self, tap: str, text: str) -> None:
        told = {"type": 4, "data": {"content": text[:1_000] or "…", "flags": 64}}
        with contextlib.suppress(ChannelError):
            await self._ask("POST", f"/interactions/{tap}/callback", told)

    async def fetch(self, file: RemoteFile, bytes_max: int) -> bytes:
        chat, message, id = (*file.id.split("/"), "", "")[:3]
        if not (_ID.fullmatch(chat) and _ID.fullmatch(message)):
            raise ChannelRefused("the file has no message")
        raw = await self._ask("GET", f"/channels/{chat}/messages/{message}")
        found = [
            one for one in raw.get("attachments") or [] if str(one.get("id")) == id
        ]
        address = str(found[0].get("url", "")) if found else ""
        if not address.startswith((*FILES, f"{self._base}/")):
            raise ChannelRefused("the file has no address at Discord")
        return await download(self._session(), address, bytes_max)

    def check_id(self, id: str) -> str:
        return (
            "" if _ID.fullmatch(id) else "an id in Discord is a number, never a name"
        )

    # --- the wire

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            raise ChannelLost("not connected")
        return self._http

    async def _call(self, method: str, path: str, body: object) -> tuple[int, Any]:
        headers = {
            "Authorization": f"Bot {self._token}",
            "User-Agent": "DiscordBot (steno, 1)",
        }
        async with (
            asyncio.timeout(ANSWER_S),
            self._session().request(
                method, self._base + path, json=body, headers=headers
            ) as response,
        ):
            raw = await response.read()
            try:
                return response.status, json.loads(raw or b"{}")
            except ValueError:
                return response.status, {}

    async def _ask(self, method: str, path: str, body: object = None) -> Any:
        """What a route gives. Raises `ChannelError`."""
        try:
            status, told = await self._call(method, path, body)
        except (*LOST, TimeoutError) as error:
            raise ChannelLost(
                f"Discord cannot be reached: {type(error).__name__}"
            ) from None
        if status == 401:
            raise ChannelRefused("Discord does not take the token")
        if status in (400, 403, 404):
            raise _Absent(f"Discord says {status}")
        if status >= 300:
            raise ChannelLost(f"Discord says {status}", _retry_after(told))
        return told

    async def _act(self, method: str, chat: str, path: str, body: object) -> Result:
        """What came of sending. Nothing is tried again here."""
        if _ID.fullmatch(chat) is None:
            return No("there is no such channel")
        try:
            status, told = await self._call(method, f"/channels/{chat}{path}", body)
        except (aiohttp.ClientConnectorError, ChannelLost) as error:
            return NotNow(f"unreachable ({type(error).__name__})")
        except (*LOST, TimeoutError) as error:
            return Unsure(f"no answer ({type(error).__name__})")
        if status < 300:
            return Sent(str(told.get("id", "")) if isinstance(told, dict) else "")
        if status == 429:
            return NotNow("too many messages", _retry_after(told) or 1.0)
        if status >= 500:
            return Unsure(f"status {status}")
        said = str(told.get("message", ""))[:200] if isinstance(told, dict) else ""
        return No(said or f"status {status}")


def channel(setup: ChannelSetup) -> Channel:
    return Discord(setup)


async def _beat(socket: aiohttp.ClientWebSocketResponse, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        await socket.send_json({"op": 1, "d": None})


async def _events(
    socket: aiohttp.ClientWebSocketResponse,
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Each heartbeat is answered: a socket that is silent for longer is dead."""
    while True:
        frame = await socket.receive(120.0)
        if frame.type != aiohttp.WSMsgType.TEXT:
            return
        told = json.loads(frame.data)
        if told.get("op") in (7, 9):
            return  # it asks us to come again
        if told.get("op") == 0 and isinstance(told.get("d"), dict):
            yield str(told.get("t")), told["d"]


def _user_of(token: str) -> str:
    """A token begins with the id of its bot."""
    first = token.partition(".")[0]
    try:
        return base64.b64decode(first + "=" * (-len(first) % 4)).decode("ascii")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""


def _marks(mark: str) -> Marks:
    try:
        read = json.loads(mark or "{}")
    except ValueError:
        return {}
    return (
        {str(chat): str(last) for chat, last in read.items()}
        if isinstance(read, dict)
        else {}
    )


def _mark(marks: Marks) -> str:
    return json.dumps(marks, separators=(",", ":"))


def _advance(marks: Marks, update: Update) -> None:
    """The conversations that were written in last are kept."""
    if isinstance(update, Message):
        last = max(int(marks.pop(update.chat, "0")), int(update.id))
        while len(marks) >= CHANNELS_MAX:
            del marks[next(iter(marks))]
        marks[update.chat] = str(last)


def _tapped(data: dict[str, Any]) -> Tapped:
    who = data.get("user") or data["member"]["user"]
    id = str(data["id"])
    return Tapped(
        f"t{id}",
        str(data["channel_id"]),
        str(who["id"]),
        str(data["data"]["custom_id"]),
        f"{id}/{re.sub(r'[^A-Za-z0-9_.-]', '', str(data['token']))}",
        str(who.get("username", "")),
        bool(data.get("guild_id")),
    )


def _files(raw: dict[str, Any]) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(
            f"{raw['channel_id']}/{raw['id']}/{one['id']}",
            str(one.get("filename") or "file")[:200],
            str(one.get("content_type") or "application/octet-stream")[:100],
            one.get("size") if isinstance(one.get("size"), int) else None,
        )
        for one in (raw.get("attachments") or [])[:50]
    )


def _body(what: Outgoing) -> dict[str, Any]:
    """Discord shows Markdown. Nobody is called by what a model writes."""
    buttons = [
        {"type": 2, "style": 2, "label": one.label, "custom_id": one.token}
        for one in what.buttons
    ]
    return {
        "content": what.text,
        "allowed_mentions": {"parse": []},
        "components": [{"type": 1, "components": buttons}] if buttons else [],
    }


def _retry_after(told: Any) -> float | None:
    wait = told.get("retry_after") if isinstance(told, dict) else None
    return float(wait) if isinstance(wait, int | float) else None
