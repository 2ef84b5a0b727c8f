"""Telegram, by a client of our own for the few methods of the Bot API that are needed.

receive    getUpdates by long polling. No offset is stored: a start asks without one, what comes
           again is known by its id, and the next request's offset acknowledges what was stored.
           Nothing that waited for us is ever dropped.
send       sendMessage. There is no id that we could give it: an answer that did not arrive leaves
           it unknown whether the message did.
edit       editMessageText. "message is not modified" is a receipt.

The token is in the address of every request, so no address is ever logged or told.
"""

import asyncio
import html
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
from msgspec.structs import replace

from steno.gateway.channels.protocol import (
    Batch,
    Channel,
    ChannelLost,
    ChannelRefused,
    ChannelSetup,
    Edited,
    Limits,
    Message,
    No,
    NotNow,
    Outgoing,
    RemoteFile,
    Result,
    Sent,
    Tapped,
    Unsure,
    Update,
)
from steno.web import LOST, trusted

API = "https://api.telegram.org"
LIMITS = Limits(
    text_max=4_096,
    unit="utf16",
    edits=True,
    chat_per_s=1.0,
    all_per_s=30.0,
    burst=3,
    edit_s=1.5,
    buttons=True,
)
POLL_S = 25
ANSWER_S = 20.0
UPDATES = ("message", "edited_message", "callback_query")
_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{1,100}")
_ID = re.compile(r"-?[1-9][0-9]{0,19}")


class Telegram:
    def __init__(self, setup: ChannelSetup) -> None:
        if _TOKEN.fullmatch(setup.secret) is None:
            raise ChannelRefused(
                "the token is not one that Telegram gives: NUMBER:LETTERS"
            )
        self._token = setup.secret
        self._base = (setup.config.url or API).rstrip("/")
        self._poll_s = int(str(setup.options.get("poll_s", POLL_S)))
        self._bot = setup.secret.partition(":")[0]
        self._name = ""
        self._client: aiohttp.ClientSession | None = None
        rates = {
            name: float(str(setup.options[name]))
            for name in ("chat_per_s", "all_per_s", "edit_s")
            if name in setup.options
        }
        self.limits = replace(LIMITS, **rates)

    @property
    def account(self) -> str:
        return f"telegram:{self._bot}"

    async def open(self) -> None:
        me = await self._ask("getMe", {})
        self._name = str(me.get("username", ""))

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    # --- what arrives

    async def receive(self, mark: str) -> AsyncIterator[Batch]:
        wanted: dict[str, Any] = {
            "timeout": self._poll_s,
            "allowed_updates": list(UPDATES),
        }
        while True:
            found = await self._ask("getUpdates", wanted, self._poll_s + ANSWER_S)
            updates = tuple(
                read for one in found if (read := self._read(one)) is not None
            )
            if updates:
                yield Batch(updates)
            if found:
                wanted["offset"] = max(int(one["update_id"]) for one in found) + 1

    def _read(self, raw: dict[str, Any]) -> Update | None:
        """An update as ours; None of a kind that means nothing here."""
        try:
            id = str(int(raw["update_id"]))
            if "message" in raw:
                return self._message(raw["message"])
            if "edited_message" in raw:
                return self._edited(id, raw["edited_message"])
            if "callback_query" in raw:
                return self._tapped(id, raw["callback_query"])
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        return None

    def _message(self, raw: dict[str, Any]) -> Message | None:
        if "from" not in raw or "chat" not in raw:
            return None
        text = str(raw.get("text") or raw.get("caption") or "")
        files = _files(raw)
        if not text and not files:
            return None
        chat, person = _chat(raw), raw["from"]
        group = raw["chat"].get("type") != "private"
        return Message(
            id=f"{chat}:{int(raw['message_id'])}",
            chat=chat,
            person=str(int(person["id"])),
            text=text,
            message=str(int(raw["message_id"])),
            name=_full_name(person),
            group=group,
            bot=bool(person.get("is_bot")),
            addressed=not group or self._is_addressed(raw, text),
            quoted=_quoted(raw),
            files=files,
        )

    def _is_addressed(self, raw: dict[str, Any], text: str) -> bool:
        replied = raw.get("reply_to_message") or {}
        if str((replied.get("from") or {}).get("id", "")) == self._bot:
            return True
        if not self._name:
            return False
        first = text.split(maxsplit=1)[0] if text.split() else ""
        if first.startswith("/"):
            return (
                "@" not in first
                or first.rpartition("@")[2].lower() == self._name.lower()
            )
        return (
            re.search(rf"(?<!\w)@{re.escape(self._name)}(?!\w)", text, re.IGNORECASE)
            is not None
        )

    def _edited(self, id: str, raw: dict[str, Any]) -> Edited:
        chat = _chat(raw)
        return Edited(
            id=f"u{id}",
            chat=chat,
            person=str(int(raw["from"]["id"])),
            of=f"{chat}:{int(raw['message_id'])}",
            text=str(raw.get("text") or raw.get("caption") or ""),
            group=raw["chat"].get("type") != "private",
        )

    def _tapped(self, id: str, raw: dict[str, Any]) -> Tapped:
        return Tapped(
            id=f"u{id}",
            chat=_chat(raw["message"]),
            person=str(int(raw["from"]["id"])),
            token=str(raw.get("data") or ""),
            tap=str(raw["id"]),
            name=_full_name(raw["from"]),
            group=raw["message"]["chat"].get("type") != "private",
        )

    # --- what goes out

    async def send(self, chat: str, key: str, what: Outgoing) -> Result:
        body = _body(chat, what)
        if what.reply_to.isdecimal():
            body["reply_parameters"] = {
                "message_id": int(what.reply_to),
                "allow_sending_without_reply": True,
            }
        return await self._act("sendMessage", body)

    async def edit(self, chat: str, message: str, what: Outgoing) -> Result:
        result = await self._act(
            "editMessageText", _body(chat, what) | {"message_id": int(message)}
        )
        return Sent(message) if isinstance(result, Sent) else result

    async def find(self, chat: str, key: str) -> str | None:
        return None

    async def show_typing(self, chat: str) -> None:
        await self._act("sendChatAction", {"chat_id": chat, "action": "typing"})

    async def answer_tap(self, tap: str, text: str) -> None:
        await self._act(
            "answerCallbackQuery", {"callback_query_id": tap, "text": text[:200]}
        )

    async def fetch(self, file: RemoteFile, bytes_max: int) -> bytes:
        found = await self._ask("getFile", {"file_id": file.id})
        path = str(found.get("file_path") or "")
        if int(found.get("file_size") or 0) > bytes_max:
            raise ChannelRefused("the file is too large")
        if not re.fullmatch(r"[\w./-]{1,300}", path) or ".." in path:
            raise ChannelRefused("the file has no path")
        address = f"{self._base}/file/bot{self._token}/{path}"
        try:
            async with (
                asyncio.timeout(ANSWER_S * 3),
                self._http().get(address) as response,
            ):
                if response.status != 200:
                    raise ChannelLost(
                        f"the file was not given: status {response.status}"
                    )
                read = await response.content.read(bytes_max + 1)
                while len(read) <= bytes_max and (
                    more := await response.content.read(65_536)
                ):
                    read += more
        except (*LOST, TimeoutError) as error:
            raise ChannelLost(
                f"the file did not arrive: {type(error).__name__}"
            ) from None
        if len(read) > bytes_max:
            raise ChannelRefused("the file is too large")
        return read

    def check_id(self, id: str) -> str:
        if _ID.fullmatch(id):
            return ""
        return "an id in Telegram is a number; a name can be taken by somebody else"

    # --- the wire

    async def _ask(
        self, method: str, body: dict[str, Any], within_s: float = ANSWER_S
    ) -> Any:
        """What a method gives. Raises `ChannelError`."""
        try:
            status, told = await self._post(method, body, within_s)
        except (*LOST, TimeoutError) as error:
            raise ChannelLost(
                f"Telegram cannot be reached: {type(error).__name__}"
            ) from None
        if told.get("ok"):
            return told["result"]
        said = str(told.get("description", ""))[:200]
        if status in (401, 403, 404):
            raise ChannelRefused(
                f"Telegram does not take the token (status {status})"
            )
        if status == 409:
            raise ChannelLost(
                "another program reads this account, or a webhook is set (409)"
            )
        raise ChannelLost(f"Telegram says: {said or status}", _retry_after(told))

    async def _act(self, method: str, body: dict[str, Any]) -> Result:
        """What came of sending. Nothing is tried again here."""
        try:
            status, told = await self._post(method, body, ANSWER_S)
        except (
            aiohttp.ClientConnectorError,
            aiohttp.ConnectionTimeoutError,
        ) as error:
            return NotNow(f"unreachable ({type(error).__name__})")
        except (*LOST, TimeoutError) as error:
            return Unsure(f"no answer ({type(error).__name__})")
        if told.get("ok"):
            made = told.get("result")
            return Sent(str(made["message_id"]) if isinstance(made, dict) else "")
        said = str(told.get("description", ""))
        if status == 400 and "message is not modified" in said:
            return Sent("")
        if status == 429:
            return NotNow("too many messages", _retry_after(told) or 1.0)
        if status >= 500:
            return Unsure(f"status {status}")
        return No(said[:200] or f"status {status}", "can't parse entities" in said)

    async def _post(
        self, method: str, body: dict[str, Any], within_s: float
    ) -> tuple[int, dict[str, Any]]:
        address = f"{self._base}/bot{self._token}/{method}"
        data = msgspec.json.encode(body)
        kind = {"content-type": "application/json"}
        async with (
            asyncio.timeout(within_s),
            self._http().post(address, data=data, headers=kind) as response,
        ):
            raw = await response.content.read(8 << 20)
            while more := await response.content.read(1 << 20):
                raw += more
                if len(raw) > 32 << 20:
                    raise ChannelLost("Telegram's answer is too long")
            try:
                told = msgspec.json.decode(raw)
            except msgspec.DecodeError:
                told = {}
            return response.status, told if isinstance(told, dict) else {}

    def _http(self) -> aiohttp.ClientSession:
        if self._client is None:
            self._client = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=trusted(), limit=64),
                timeout=aiohttp.ClientTimeout(total=None, connect=10.0),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._client


def channel(setup: ChannelSetup) -> Channel:
    return Telegram(setup)


def _body(chat: str, what: Outgoing) -> dict[str, Any]:
    body: dict[str, Any] = {
        "chat_id": chat,
        "link_preview_options": {"is_disabled": True},
    }
    if what.plain:
        body["text"] = what.text
    else:
        body |= {"text": to_html(what.text), "parse_mode": "HTML"}
    rows = [[{"text": one.label, "callback_data": one.token} for one in what.buttons]]
    if what.buttons:
        body["reply_markup"] = {"inline_keyboard": rows}
    return body


def _chat(raw: dict[str, Any]) -> str:
    return str(int(raw["chat"]["id"]))


def _full_name(person: dict[str, Any]) -> str:
    return f"{person.get('first_name', '')} {person.get('last_name', '')}".strip()


def _quoted(raw: dict[str, Any]) -> str:
    replied = raw.get("reply_to_message") or {}
    quote = (
        (raw.get("quote") or {}).get("text")
        or replied.get("text")
        or replied.get("caption")
    )
    origin = raw.get("forward_origin") or {}
    if origin:
        return f"forwarded from {_full_name(origin.get('sender_user') or {}) or 'somebody'}"
    return str(quote or "")[:2_000]


def _files(raw: dict[str, Any]) -> tuple[RemoteFile, ...]:
    found: list[RemoteFile] = []
    if raw.get("photo"):
        largest = max(raw["photo"], key=lambda one: int(one.get("file_size") or 0))
        found.append(_file(largest, "photo.jpg", "image/jpeg"))
    for kind, name, media_type in (
        ("document", "file", "application/octet-stream"),
        ("voice", "voice.ogg", "audio/ogg"),
        ("audio", "audio", "audio/mpeg"),
        ("video", "video.mp4", "video/mp4"),
        ("video_note", "video.mp4", "video/mp4"),
    ):
        if isinstance(raw.get(kind), dict):
            found.append(_file(raw[kind], name, media_type))
    return tuple(found)


def _file(raw: dict[str, Any], name: str, media_type: str) -> RemoteFile:
    size = raw.get("file_size")
    return RemoteFile(
        str(raw["file_id"]),
        str(raw.get("file_name") or name)[:200],
        str(raw.get("mime_type") or media_type)[:100],
        int(size) if size is not None else None,
    )


def _retry_after(told: dict[str, Any]) -> float | None:
    wait = (told.get("parameters") or {}).get("retry_after")
    return float(wait) if isinstance(wait, int | float) else None


# --- Markdown as Telegram's HTML ------------------------------------------------------------------

_FENCED = re.compile(
    r"^```([\w+-]*)[^\n]*\n(.*?)(?:^```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)
_SPANS = (
    (re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*", re.DOTALL), r"<b>\1</b>"),
    (
        re.compile(r"(?<![\w*])\*(?=[^\s*])([^*\n]+?)(?<=[^\s*])\*(?![\w*])"),
        r"<i>\1</i>",
    ),
    (re.compile(r"~~(?=\S)(.+?)(?<=\S)~~"), r"<s>\1</s>"),
    (re.compile(r"^#{1,6} +(.+?)#*$", re.MULTILINE), r"<b>\1</b>"),
    (
        re.compile(r"\[([^\]\n]+)\]\((https?://[^\s()<>\"]+)\)"),
        r'<a href="\2">\1</a>',
    ),
)


def to_html(markdown: str) -> str:
    """Markdown as the HTML that Telegram takes. Every character that is no mark stays; whatever
    looks like HTML is shown as it is written."""
    out, at = [], 0
    for found in _FENCED.finditer(markdown):
        out.append(_inline(markdown[at : found.start()]))
        code = html.escape(found[2].rstrip("\n"), quote=False)
        language = f' class="language-{found[1]}"' if found[1] else ""
        out.append(f"<pre><code{language}>{code}</code></pre>")
        at = found.end()
    out.append(_inline(markdown[at:]))
    return "".join(out)


def _inline(text: str) -> str:
    pieces = re.split(r"(`[^`\n]+`)", text)
    return "".join(
        f"<code>{html.escape(piece[1:-1], quote=False)}</code>"
        if number % 2
        else _spans(piece)
        for number, piece in enumerate(pieces)
    )


def _spans(text: str) -> str:
    escaped = html.escape(text, quote=False)
    for pattern, replacement in _SPANS:
        escaped = pattern.sub(replacement, escaped)
    return escaped
