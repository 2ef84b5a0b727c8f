"""Slack, in socket mode: no address that Slack would have to reach.

receive    envelopes from a web socket, each acknowledged when it is stored. Slack repeats what was
           not acknowledged, and does not repeat what happened while nobody listened: so at a start
           the history of each conversation is read from a little before the last stored message
send       chat.postMessage with the key in its metadata. slack_sdk's own repeats are off
edit       chat.update
find       the history, by metadata

What is being answered gets a mark of two eyes, if the app may add reactions: bots cannot type.
"""

import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from steno.gateway.channels.download import download
from steno.gateway.channels.protocol import (
    Batch,
    Channel,
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

API = "https://slack.com/api/"
LIMITS = Limits(
    text_max=4_000,
    edits=True,
    finds=True,
    chat_per_s=1.0,
    all_per_s=20.0,
    burst=3,
    edit_s=1.5,
    buttons=True,
)
ANSWER_S = 30.0
OVERLAP_S = 300.0
"""History is read again from so long before the last message: what is known is known by its id."""
QUIET_S = 60.0
"""Slack pings; a socket that is silent for so long is dead."""
PAGE = 200
PAGES_MAX = 25
FRAME_BYTES_MAX = 4 << 20
CHATS_MAX = 10_000
SAID = frozenset((None, "", "file_share", "thread_broadcast", "me_message"))
WRONG_TOKEN = frozenset(
    (
        "invalid_auth",
        "not_authed",
        "token_revoked",
        "token_expired",
        "account_inactive",
    )
)
PERHAPS = frozenset(
    ("internal_error", "fatal_error", "service_unavailable", "request_timeout")
)
_ID = re.compile(r"[A-Z][A-Z0-9]{2,30}")
_TS = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")


class Slack(Quiet):
    def __init__(self, setup: ChannelSetup) -> None:
        options = setup.options
        self._team, self._user = (
            str(options.get("team", "")),
            str(options.get("user", "")),
        )
        if not (_ID.fullmatch(self._team) and _ID.fullmatch(self._user)):
            raise ChannelRefused(
                "options.team (T…) and options.user (U…, the bot's) are needed"
            )
        tokens = setup.secret.split(",")
        app = [one for one in tokens if one.startswith("xapp-")]
        bot = [one for one in tokens if one.startswith("xoxb-")]
        if len(app) != 1 or len(bot) != 1:
            raise ChannelRefused(
                "the secret must be two tokens with a comma between: xapp-…,xoxb-…"
            )
        self._app, self._bot = app[0], bot[0]
        self._base = (
            (setup.config.url.rstrip("/") + "/api/") if setup.config.url else API
        )
        self._web: AsyncWebClient | None = None
        self._http: aiohttp.ClientSession | None = None
        self._unmarked: dict[str, str] = {}
        self.limits = setup.limits(LIMITS)

    @property
    def account(self) -> str:
        return f"slack:{self._team}/{self._user}"

    async def open(self) -> None:
        await self.close()
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trusted())
        )
        self._web = AsyncWebClient(
            self._bot,
            base_url=self._base,
            timeout=int(ANSWER_S),
            session=self._http,
            retry_handlers=[],
        )
        who = await self._ask("auth.test", {})
        if (who.get("team_id"), who.get("user_id")) != (self._team, self._user):
            raise ChannelRefused(
                f"the token is of {who.get('team_id')}/{who.get('user_id')}"
            )

    async def close(self) -> None:
        http, self._http, self._web = self._http, None, None
        if http is not None:
            await http.close()

    # --- what arrives

    async def receive(self, mark: str) -> AsyncIterator[Batch]:
        told = await self._ask("apps.connections.open", {}, self._app)
        mark = mark or f"{time.time():.6f}"
        try:
            async with self._session().ws_connect(
                str(told.get("url", "")), heartbeat=20, max_msg_size=FRAME_BYTES_MAX
            ) as socket:
                # What happens from here on comes by the socket; what happened before, by history.
                missed = await self._missed(float(mark) - OVERLAP_S)
                mark = _later(mark, missed)
                yield Batch(tuple(missed), mark)
                async for envelope in self._envelopes(socket):
                    updates = [
                        one for one in (self._read(envelope),) if one is not None
                    ]
                    mark = _later(mark, updates)
                    if updates:
                        yield Batch(tuple(updates), mark)
                    await socket.send_json({"envelope_id": envelope["envelope_id"]})
        except (*LOST, TimeoutError, ConnectionError) as error:
            raise ChannelLost(
                f"Slack cannot be reached: {type(error).__name__}"
            ) from None
        raise ChannelLost("Slack ended the connection")

    async def _envelopes(
        self, socket: aiohttp.ClientWebSocketResponse
    ) -> AsyncIterator[dict[str, Any]]:
        while True:
            frame = await socket.receive(QUIET_S * 10)
            if frame.type != aiohttp.WSMsgType.TEXT:
                return
            try:
                read = json.loads(frame.data)
            except ValueError:
                continue
            if not isinstance(read, dict) or read.get("type") == "disconnect":
                return
            if isinstance(read.get("envelope_id"), str):
                yield read

    async def _missed(self, since_s: float) -> list[Update]:
        """What was said in each conversation, oldest first; in threads, too, of which the history
        has the first message alone."""
        found: list[Update] = []
        since_s = max(since_s, 0.0)
        for conversation in await self._conversations():
            id = str(conversation.get("id", ""))
            kind = "im" if conversation.get("is_im") else "channel"
            raws = await self._history(id, since_s)
            for raw in raws[:]:
                if _at(raw) and _at(raw, "latest_reply") > since_s:
                    raws += await self._replies(id, str(raw["ts"]), since_s)
            for raw in sorted(raws, key=_at):
                if _at(raw) <= since_s:
                    continue
                event = (
                    {"type": "message"} | raw | {"channel": id, "channel_type": kind}
                )
                read = self._read({"type": "events_api", "payload": {"event": event}})
                if read is not None:
                    found.append(read)
        return found

    async def _conversations(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        wanted = {"types": "im,mpim,private_channel,public_channel", "limit": PAGE}
        for _ in range(PAGES_MAX * 4):
            told = await self._ask("users.conversations", wanted)
            found += told.get("channels") or []
            cursor = (told.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                break
            wanted["cursor"] = cursor
        return found

    async def _history(
        self, channel: str, back_to_s: float = 0.0
    ) -> list[dict[str, Any]]:
        """Newest first, in pages, until one reaches back so far. The first page has what is older,
        too: a thread of it may have gone on since."""
        wanted = {"channel": channel, "include_all_metadata": True}
        return await self._pages("conversations.history", wanted, back_to_s)

    async def _replies(
        self, channel: str, thread: str, since_s: float
    ) -> list[dict[str, Any]]:
        wanted = {"channel": channel, "ts": thread, "oldest": f"{since_s:.6f}"}
        found = await self._pages("conversations.replies", wanted, 0.0)
        return [raw for raw in found if str(raw.get("ts")) != thread]

    async def _pages(
        self, method: str, wanted: dict[str, Any], back_to_s: float
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        wanted["limit"] = PAGE
        for _ in range(PAGES_MAX):
            told = await self._ask(method, wanted)
            page = [
                one for one in told.get("messages") or [] if isinstance(one, dict)
            ]
            found += page
            cursor = (told.get("response_metadata") or {}).get("next_cursor")
            if (
                not told.get("has_more")
                or not cursor
                or (page and _at(page[-1]) <= back_to_s)
            ):
                break
            wanted["cursor"] = cursor
        return found

    def _read(self, envelope: dict[str, Any]) -> Update | None:
        """An envelope as ours; None of a kind that means nothing here."""
        payload = envelope.get("payload") or {}
        try:
            if envelope.get("type") == "interactive":
                return self._tapped(payload)
            event = payload["event"]
            if event["type"] not in ("message", "app_mention"):
                return None
            if event.get("subtype") == "message_changed":
                return self._edited(event)
            if event.get("subtype") == "message_deleted":
                return self._deleted(event)
            return self._message(event)
        except (KeyError, TypeError, AttributeError, IndexError):
            return None

    def _message(self, event: dict[str, Any]) -> Message | None:
        person, chat, ts = (
            str(event.get(name) or "") for name in ("user", "channel", "ts")
        )
        text, files = unescaped(str(event.get("text") or "")), _files(event)
        if not (person and chat) or person == self._user or _TS.fullmatch(ts) is None:
            return None
        if event.get("subtype") not in SAID or (not text and not files):
            return None
        self._note_last(chat, ts)
        group = event.get("channel_type", "channel") != "im" and not chat.startswith(
            "D"
        )
        named = f"<@{self._user}>"
        return Message(
            id=f"{chat}:{ts}",
            chat=chat,
            person=person,
            text=text.replace(named, "").strip() if group else text,
            message=ts,
            group=group,
            bot=bool(event.get("bot_id")),
            addressed=not group or named in text,
            files=files,
        )

    def _note_last(self, chat: str, ts: str) -> None:
        """What was said last in a conversation."""
        while len(self._unmarked) >= CHATS_MAX:
            del self._unmarked[next(iter(self._unmarked))]
        self._unmarked[chat] = ts

    def _edited(self, event: dict[str, Any]) -> Edited | None:
        new, chat = event["message"], str(event["channel"])
        person = str(new.get("user", ""))
        if person in ("", self._user):
            return None
        text = unescaped(str(new.get("text") or ""))
        if text == unescaped(
            str((event.get("previous_message") or {}).get("text") or "")
        ):
            return None  # only a preview was added
        group = not chat.startswith("D")
        return Edited(
            f"{chat}:e{event['ts']}", chat, person, f"{chat}:{new['ts']}", text, group
        )

    def _deleted(self, event: dict[str, Any]) -> Deleted | None:
        chat = str(event["channel"])
        person = str((event.get("previous_message") or {}).get("user", ""))
        if person == self._user:
            return None
        of = f"{chat}:{event['deleted_ts']}"
        return Deleted(
            f"{chat}:d{event['ts']}", chat, of, person, not chat.startswith("D")
        )

    def _tapped(self, payload: dict[str, Any]) -> Tapped | None:
        action, chat = payload["actions"][0], str(payload["channel"]["id"])
        person = str(payload["user"]["id"])
        id = f"{chat}:t{action['action_ts']}:{person}"
        group = not chat.startswith("D")
        return Tapped(
            id,
            chat,
            person,
            str(action.get("value", "")),
            f"{chat} {person}",
            "",
            group,
        )

    # --- what goes out

    async def send(self, chat: str, key: str, what: Outgoing) -> Result:
        told = {"event_type": "steno", "event_payload": {"key": key}}
        return await self._act(
            "chat.postMessage", _body(chat, what) | {"metadata": told}
        )

    async def edit(self, chat: str, message: str, what: Outgoing) -> Result:
        result = await self._act("chat.update", _body(chat, what) | {"ts": message})
        return Sent(message) if isinstance(result, Sent) else result

    async def find(self, chat: str, key: str) -> str | None:
        for raw in await self._history(chat):
            payload = (raw.get("metadata") or {}).get("event_payload") or {}
            if payload.get("key") == key and raw.get("user") in (None, self._user):
                return str(raw["ts"])
        return None

    async def show_typing(self, chat: str) -> None:
        if (ts := self._unmarked.pop(chat, None)) is not None:
            told = {"channel": chat, "timestamp": ts, "name": "eyes"}
            await self._act("reactions.add", told)

    async def answer_tap(self, tap: str, text: str) -> None:
        chat, _, person = tap.partition(" ")
        if text and person:
            body = {"channel": chat, "user": person, "text": text[:1_000]}
            await self._act("chat.postEphemeral", body)

    async def fetch(self, file: RemoteFile, bytes_max: int) -> bytes:
        told = await self._ask("files.info", {"file": file.id})
        address = str((told.get("file") or {}).get("url_private_download") or "")
        allowed = ("https://files.slack.com/", self._base.removesuffix("api/"))
        if not address.startswith(allowed):
            raise ChannelRefused("the file has no address at Slack")
        headers = {"Authorization": f"Bearer {self._bot}"}
        return await download(self._session(), address, bytes_max, headers)

    def check_id(self, id: str) -> str:
        return (
            ""
            if _ID.fullmatch(id)
            else "an id in Slack is U… of a person, C… of a channel"
        )

    # --- the wire

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            raise ChannelLost("not connected")
        return self._http

    async def _call(
        self, method: str, body: dict[str, Any], token: str = ""
    ) -> dict[str, Any]:
        if self._web is None:
            raise ChannelLost("not connected")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        told = await self._web.api_call(method, json=body, headers=headers)
        return told.data if isinstance(told.data, dict) else {}

    async def _ask(
        self, method: str, body: dict[str, Any], token: str = ""
    ) -> dict[str, Any]:
        """What a method gives. Raises `ChannelError`."""
        try:
            return await self._call(method, body, token)
        except SlackApiError as error:
            cause = _cause(error)
            if cause in WRONG_TOKEN:
                raise ChannelRefused(
                    f"Slack does not take the token: {cause}"
                ) from None
            raise ChannelLost(f"Slack says: {cause}", _retry_after(error)) from None
        except (*LOST, TimeoutError) as error:
            raise ChannelLost(
                f"Slack cannot be reached: {type(error).__name__}"
            ) from None

    async def _act(self, method: str, body: dict[str, Any]) -> Result:
        """What came of sending. Nothing is tried again here."""
        try:
            told = await self._call(method, body)
        except (aiohttp.ClientConnectorError, ChannelLost) as error:
            return NotNow(f"unreachable ({type(error).__name__})")
        except (*LOST, TimeoutError) as error:
            return Unsure(f"no answer ({type(error).__name__})")
        except SlackApiError as error:
            cause = _cause(error)
            if cause in ("ratelimited", "rate_limited"):
                return NotNow("too many messages", _retry_after(error) or 1.0)
            if cause in PERHAPS or error.response.status_code >= 500:
                return Unsure(cause)
            return No(cause, cause.startswith("invalid_blocks"))
        return Sent(str(told.get("ts", "")))


def channel(setup: ChannelSetup) -> Channel:
    return Slack(setup)


def _cause(error: SlackApiError) -> str:
    data = error.response.data
    said = data.get("error") if isinstance(data, dict) else None
    return str(said or f"status {error.response.status_code}")[:200]


def _retry_after(error: SlackApiError) -> float | None:
    headers = error.response.headers or {}
    value = next(
        (headers[name] for name in headers if name.lower() == "retry-after"), ""
    )
    return float(value) if str(value).isdecimal() else None


def _at(raw: dict[str, Any], name: str = "ts") -> float:
    """When a message was written, or its thread last; 0 if it does not say."""
    said = str(raw.get(name) or "")
    return float(said) if _TS.fullmatch(said) else 0.0


def _later(mark: str, updates: list[Update]) -> str:
    stamps = [one.message for one in updates if isinstance(one, Message)]
    return max([mark, *stamps], key=float)


def _files(event: dict[str, Any]) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(
            str(one["id"]),
            str(one.get("name") or "file")[:200],
            str(one.get("mimetype") or "application/octet-stream")[:100],
            one.get("size") if isinstance(one.get("size"), int) else None,
        )
        for one in (event.get("files") or [])[:50]
        if isinstance(one, dict) and one.get("id")
    )


def _body(chat: str, what: Outgoing) -> dict[str, Any]:
    """Markdown goes into a block of its own; the text beside it is what notifications show."""
    body: dict[str, Any] = {
        "channel": chat,
        "text": escaped(what.text),
        "mrkdwn": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": [],
    }
    if not what.plain:
        body["blocks"] = [{"type": "markdown", "text": what.text}]
    if what.buttons:
        elements = [
            {
                "type": "button",
                "text": {"type": "plain_text", "text": one.label},
                "value": one.token,
                "action_id": f"steno-{number}",
            }
            for number, one in enumerate(what.buttons)
        ]
        said = [
            {
                "type": "section",
                "text": {"type": "plain_text", "text": what.text[:3_000]},
            }
        ]
        body["blocks"] = [
            *(body["blocks"] or said),
            {"type": "actions", "elements": elements},
        ]
    return body


def escaped(text: str) -> str:
    """Text in which nothing is a link, a mention or a mark."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def unescaped(text: str) -> str:
    """What a person wrote."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
