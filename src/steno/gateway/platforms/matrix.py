"""Matrix, plain and encrypted rooms, by matrix-nio with its own retries turned off.

receive    /sync from the stored token on. A `limited` timeline is filled by /messages. What cannot
           be decrypted yet holds the token back until its key came, or for five minutes
send       the delivery's key is the transaction id: the server gives the same event for the same
           id, for a day. After 23 hours a message is looked for before it is made
edit       m.replace
find       our events carry the transaction id

Rooms are asked about when they are used, not at the start: how many there are costs nothing.
"""

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

import aiohttp
import msgspec
import nio
from markdown_it import MarkdownIt
from nio.crypto import ENCRYPTION_ENABLED

from steno.config import LOOPBACK
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
    Unsure,
    Update,
)
from steno.web import LOST, trusted

LIMITS = Limits(
    text_max=8_000,
    unit="bytes",
    edits=True,
    finds=True,
    client_id_s=23 * 3_600.0,
    chat_per_s=0.2,
    all_per_s=5.0,
    burst=8,
    edit_s=3.0,
)
POLL_S = 25
ANSWER_S = 30.0
TIMELINE = 50
FILL_MAX = 5_000
"""Events of one room that are read back after a gap."""
FIND_MAX = 1_000
JOINS_MAX = 3
EVENT_BYTES_MAX = 40_000
"""Of a message with its formatting: encrypted, it has a third more, and 65,536 is the limit."""
UNREADABLE_S = 300.0
FILES = frozenset(("m.image", "m.file", "m.audio", "m.video"))
KEY = "steno.key"
FIRST = "first "
"""Before the token of the very first sync, until what came with that is stored."""
_USER = re.compile(r"@[\x21-\x39\x3b-\x7e]{1,200}:[A-Za-z0-9.:\[\]-]{1,200}")
_ROOM = re.compile(r"![\x21-\x7e]{1,250}")
_MXC = re.compile(r"mxc://([A-Za-z0-9.:\[\]-]{1,200})/([A-Za-z0-9_-]{1,200})")
_FALLBACK = re.compile(r"\A(?:> [^\n]*\n)+\n?")
_MARKDOWN = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(
    ["strikethrough", "table"]
)
_MARKDOWN.disable("image")
_log = logging.getLogger("steno.channels")


class _Room:
    """What is known of a room while the process runs."""

    def __init__(self) -> None:
        self.members: frozenset[str] | None = None
        self.last = ""
        self.marked = ""


class Matrix(Quiet):
    def __init__(self, setup: ChannelSetup) -> None:
        options = setup.options
        self._user = str(options.get("user", ""))
        if _USER.fullmatch(self._user) is None:
            raise ChannelRefused(
                "options.user must be the account's id: @name:server"
            )
        self._base = _homeserver(setup.config.url)
        self._token = setup.secret
        self._folder = setup.folder
        self._config = setup.config
        self._encryption = bool(options.get("encryption", True)) and bool(
            ENCRYPTION_ENABLED
        )
        self._poll_s = float(str(options.get("poll_s", POLL_S)))
        self._timeline = int(str(options.get("timeline", TIMELINE)))
        self._rooms: dict[str, _Room] = {}
        self._nio: nio.AsyncClient | None = None
        self._unreadable: dict[str, tuple[float, nio.MegolmEvent]] = {}
        self._sending = asyncio.Lock()
        self._joins: dict[str, int] = {}
        self.limits = setup.limits(LIMITS)

    @property
    def account(self) -> str:
        return f"matrix:{self._user}"

    async def open(self) -> None:
        await self.close()
        config = nio.AsyncClientConfig(
            max_limit_exceeded=0,
            max_timeouts=0,
            request_timeout=int(ANSWER_S),
            encryption_enabled=self._encryption,
            store_sync_tokens=False,
        )
        if self._encryption:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        client = nio.AsyncClient(
            self._base,
            self._user,
            store_path=str(self._folder) if self._encryption else "",
            config=config,
            ssl=trusted() if trusted() is not True else None,
        )
        client.access_token = self._token
        self._nio = client
        who = await self._ask(client.whoami())
        if who.user_id != self._user:
            raise ChannelRefused(f"the access token belongs to {who.user_id}")
        if self._encryption:
            client.restore_login(self._user, who.device_id or "steno", self._token)
        else:
            client.user_id, client.device_id = self._user, who.device_id or "steno"

    async def close(self) -> None:
        client, self._nio = self._nio, None
        self._rooms.clear()
        self._unreadable.clear()
        if client is not None:
            await client.close()
            if client.store is not None:
                client.store.database.close()

    # --- what arrives

    async def receive(self, mark: str) -> AsyncIterator[Batch]:
        since = mark
        if mark.startswith(FIRST):
            since = mark.removeprefix(FIRST)
            updates = await self._before(since)
            yield Batch(tuple(updates), "" if self._unreadable else since)
        while True:
            client = self._client()
            told = await self._sync(since)
            reached = client.next_batch
            if not since:
                yield Batch(
                    (), FIRST + reached
                )  # our words after that are no sign of anything
            await self._tend_keys()
            await self._accept(told.rooms.invite)
            updates = []
            for room, info in told.rooms.join.items():
                self._note_members(room, [*info.state, *info.timeline.events])
                events = await self._filled(room, info.timeline, since)
                updates += [
                    one for event in events for one in await self._read(room, event)
                ]
            updates += await self._read_late()
            next_mark = "" if self._unreadable else reached
            if updates or next_mark != since:
                yield Batch(tuple(updates), next_mark)
            since = reached

    async def _before(self, since: str) -> list[Update]:
        """What was said before the very first start, which a kill cut off: in each room, after our
        last word then."""
        found: list[Update] = []
        for room in (await self._ask(self._client().joined_rooms())).rooms:
            events: list[Any] = []
            at, begun = since, None
            while at and begun is None and len(events) < FILL_MAX:
                page = await self._ask(
                    self._client().room_messages(room, at, limit=100)
                )
                events[:0] = reversed(page.chunk)
                begun = self._from_beginning(events, "")
                at = "" if not page.chunk or page.end == at else page.end
            for event in events if begun is None else begun:
                found += await self._read(room, event)
        return [*found, *await self._read_late()]

    async def _sync(self, since: str) -> Any:
        filter = {
            "presence": {"types": []},
            "room": {
                "timeline": {"limit": self._timeline},
                "ephemeral": {"types": []},
                "state": {"lazy_load_members": True},
            },
        }
        wait_ms = 1_000 if self._unreadable else int(self._poll_s * 1_000)
        client = self._client()
        client.next_batch = since
        # A first sync has everything to tell, and is answered at once.
        return await self._ask(
            client.sync(wait_ms, filter, since or None), self._poll_s + ANSWER_S
        )

    async def _tend_keys(self) -> None:
        """What encryption asks of a client beside each sync."""
        client = self._client()
        if client.olm is None:
            return
        if client.should_upload_keys:
            await self._ask(client.keys_upload())
        if client.should_query_keys:
            await self._ask(client.keys_query())
        if client.should_claim_keys:
            await self._ask(client.keys_claim(client.get_users_for_key_claiming()))
        if client.outgoing_to_device_messages:
            await asyncio.wait_for(client.send_to_device_messages(), ANSWER_S)

    async def _accept(self, invitations: dict[str, Any]) -> None:
        """Join where somebody invites us who may talk to us, or may ask to."""
        config = self._config
        for room, info in invitations.items():
            by, direct = "", False
            for event in info.invite_state:
                if (
                    isinstance(event, nio.InviteMemberEvent)
                    and event.state_key == self._user
                ):
                    by, direct = event.sender, bool(event.content.get("is_direct"))
            known = by in config.owners or by in config.allow or room in config.groups
            if known or (direct and config.pairing and not config.allow):
                await self._join(room)

    async def _join(self, room: str) -> None:
        """An invitation is told once: while joining fails, the sync token stays where it is. A room
        that cannot be joined is left after some tries."""
        try:
            await self._ask(self._client().join(room))
        except ChannelLost:
            self._joins[room] = self._joins.get(room, 0) + 1
            if self._joins[room] < JOINS_MAX:
                raise
            _log.warning("channel %s: a room cannot be joined: %s", self._user, room)

    async def _filled(self, room: str, timeline: Any, since: str) -> list[Any]:
        """The events of a timeline, with those that the server left out before them. Of a room
        that we came to since, what was said after we were invited; at the very first start, what
        was said after our last word."""
        events = list(timeline.events)
        found = self._from_beginning(events, since)
        if found is not None:
            return found
        if not timeline.limited and since:
            return events
        at = timeline.prev_batch
        while at and len(events) < FILL_MAX:
            page = await self._ask(
                self._client().room_messages(room, at, since or None, limit=100)
            )
            events[:0] = reversed(page.chunk)
            found = self._from_beginning(events, since)
            if found is not None:
                return found
            if not page.chunk or page.end in (None, at):
                break
            at = page.end
        if len(events) >= FILL_MAX:
            _log.warning(
                "channel %s: more than %d events in a gap", self._user, FILL_MAX
            )
        return events

    def _from_beginning(self, events: Sequence[Any], since: str) -> list[Any] | None:
        """What stands after the event that our part in the room began with; None if that is not
        among them."""
        for at in range(len(events) - 1, -1, -1):
            event = events[at]
            ours = getattr(event, "sender", "") == self._user
            if isinstance(event, nio.RoomMemberEvent):
                if event.state_key == self._user and event.membership == "invite":
                    return list(events[at + 1 :])
            elif ours and not since:
                return list(events[at + 1 :])
        return None

    def _note_members(self, room: str, events: Sequence[Any]) -> None:
        if any(isinstance(event, nio.RoomMemberEvent) for event in events):
            self._room(room).members = None

    async def _members(self, room: str) -> frozenset[str]:
        known = self._room(room)
        if known.members is None:
            told = await self._ask(self._client().joined_members(room))
            known.members = frozenset(one.user_id for one in told.members)
        return known.members

    def _room(self, room: str) -> _Room:
        if len(self._rooms) > 20_000:
            self._rooms.clear()
        return self._rooms.setdefault(room, _Room())

    async def _read(self, room: str, event: Any) -> list[Update]:
        if getattr(event, "sender", self._user) == self._user:
            return []
        if isinstance(event, nio.MegolmEvent):
            event.room_id = room
            if self._client().olm is not None and len(self._unreadable) < FILL_MAX:
                self._unreadable[event.event_id] = (time.monotonic(), event)
            return []
        if isinstance(event, nio.RedactionEvent):
            group = len(await self._members(room)) > 2
            return [Deleted(event.event_id, room, event.redacts, event.sender, group)]
        source = event.source
        if source.get("type") != "m.room.message":
            return []
        group = len(await self._members(room)) > 2
        read = read_message(
            self._user, room, source | {"event_id": event.event_id}, group
        )
        if isinstance(read, Message):
            self._room(room).last = event.event_id
        return [] if read is None else [read]

    async def _read_late(self) -> list[Update]:
        """What can be decrypted by now. What cannot be after five minutes is left, and said so."""
        found: list[Update] = []
        olm = self._client().olm
        for id, (since_s, event) in list(self._unreadable.items()):
            clear = olm._decrypt_megolm_no_error(event) if olm is not None else None
            if clear is not None:
                del self._unreadable[id]
                found += await self._read(event.room_id, clear)
            elif time.monotonic() - since_s > UNREADABLE_S:
                del self._unreadable[id]
                _log.warning(
                    "channel %s: a message cannot be decrypted: %s", self._user, id
                )
        return found

    # --- what goes out

    async def send(self, chat: str, key: str, what: Outgoing) -> Result:
        content = _content(what) | {KEY: key}
        if what.reply_to.startswith("$"):
            content["m.relates_to"] = {"m.in_reply_to": {"event_id": what.reply_to}}
        return await self._put(chat, content, key)

    async def edit(self, chat: str, message: str, what: Outgoing) -> Result:
        new = _content(what)
        content = new | {
            "body": f"* {what.text}"[:1_000],
            "m.new_content": new,
            "m.relates_to": {"rel_type": "m.replace", "event_id": message},
        }
        content.pop("formatted_body", None)
        content.pop("format", None)
        result = await self._put(chat, content, str(uuid4()))
        return Sent(message) if isinstance(result, Sent) else result

    async def _put(self, chat: str, content: dict[str, Any], txn: str) -> Result:
        """What came of sending. Nothing is tried again here."""
        try:
            client = self._client()
            async with self._sending:  # keys of a room are shared once
                await self._prepare(chat)
                sending = client.room_send(chat, "m.room.message", content, txn, True)
                told = await asyncio.wait_for(sending, ANSWER_S)
        except (aiohttp.ClientConnectorError, ChannelError) as error:
            return NotNow(f"unreachable ({type(error).__name__})")
        except (*LOST, TimeoutError) as error:
            return Unsure(f"no answer ({type(error).__name__})")
        except (nio.LocalProtocolError, nio.EncryptionError) as error:
            return NotNow(
                f"the message cannot be encrypted yet ({type(error).__name__})"
            )
        if isinstance(told, nio.RoomSendResponse):
            return Sent(told.event_id)
        return _refusal(told)

    async def _prepare(self, room: str) -> None:
        """Have nio know a room that it was not told of since the start."""
        client = self._client()
        if client.olm is None:
            return
        if room not in client.rooms or not client.rooms[room].members_synced:
            told = await asyncio.wait_for(
                client.room_get_state_event(room, "m.room.encryption"), ANSWER_S
            )
            encrypted = isinstance(told, nio.RoomGetStateEventResponse)
            if not encrypted and getattr(told, "status_code", "") != "M_NOT_FOUND":
                raise ChannelLost("the room's state was not given")
            if room not in client.rooms:
                client.rooms[room] = nio.MatrixRoom(room, self._user, encrypted)
            if encrypted:
                client.rooms[room].encrypted = True
                await self._ask(client.joined_members(room))
        if client.rooms[room].encrypted and client.should_query_keys:
            await self._ask(client.keys_query())

    async def find(self, chat: str, key: str) -> str | None:
        at, seen = "", 0
        while seen < FIND_MAX:
            page = await self._ask(
                self._client().room_messages(chat, at or None, limit=100)
            )
            for event in page.chunk:
                source = event.source
                if source.get("sender") != self._user:
                    continue
                txn = (source.get("unsigned") or {}).get("transaction_id")
                if key in (txn, (source.get("content") or {}).get(KEY)):
                    return str(event.event_id)
            seen += len(page.chunk)
            if not page.chunk or page.end in (None, at):
                return None
            at = page.end
        return None

    async def show_typing(self, chat: str) -> None:
        """What is being answered was read, too."""
        known = self._room(chat)
        with contextlib.suppress(ChannelError):
            await self._ask(self._client().room_typing(chat, True, 8_000))
            if known.last != known.marked:
                known.marked = known.last
                marking = self._client().room_read_markers(
                    chat, known.last, known.last
                )
                await self._ask(marking)

    async def fetch(self, file: RemoteFile, bytes_max: int) -> bytes:
        locked = None
        address = file.id
        if file.id.startswith("{"):
            locked = msgspec.json.decode(file.id, type=dict[str, str])
            address = locked.get("url", "")
        found = _MXC.fullmatch(address)
        if found is None:
            raise ChannelRefused("the file has no address")
        path = f"{quote(found[1])}/{quote(found[2])}"
        body = await self._download(
            f"/_matrix/client/v1/media/download/{path}", bytes_max
        )
        if locked is None:
            return body
        from nio.crypto.attachments import decrypt_attachment

        try:
            return bytes(
                decrypt_attachment(body, locked["k"], locked["sha256"], locked["iv"])
            )
        except (nio.EncryptionError, KeyError, ValueError):
            raise ChannelRefused("the file cannot be decrypted") from None

    async def _download(self, path: str, bytes_max: int) -> bytes:
        headers = {"Authorization": f"Bearer {self._token}"}
        connector = aiohttp.TCPConnector(ssl=trusted())
        async with aiohttp.ClientSession(connector=connector) as http:
            return await download(http, self._base + path, bytes_max, headers)

    def check_id(self, id: str) -> str:
        if _USER.fullmatch(id) or _ROOM.fullmatch(id):
            return ""
        return "an id in Matrix is @name:server of a person, !room of a room; a name is none"

    # --- the wire

    def _client(self) -> nio.AsyncClient:
        if self._nio is None:
            raise ChannelLost("not connected")
        return self._nio

    async def _ask(self, asking: Any, within_s: float = ANSWER_S) -> Any:
        """What a request gives. Raises `ChannelError`."""
        try:
            told = await asyncio.wait_for(asking, within_s)
        except (*LOST, TimeoutError) as error:
            raise ChannelLost(
                f"Matrix cannot be reached: {type(error).__name__}"
            ) from None
        if not isinstance(told, nio.ErrorResponse):
            return told
        said = str(told.message or told.status_code)[:200]
        if told.status_code in (
            "M_UNKNOWN_TOKEN",
            "M_MISSING_TOKEN",
            "M_USER_DEACTIVATED",
        ):
            raise ChannelRefused(f"Matrix does not take the access token: {said}")
        raise ChannelLost(f"Matrix says: {said}", _wait_s(told))


def channel(setup: ChannelSetup) -> Channel:
    return Matrix(setup)


def _homeserver(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme == "https" or (
        parts.scheme == "http" and parts.hostname in LOOPBACK
    ):
        return url.rstrip("/")
    raise ChannelRefused(
        "url must be the homeserver's: https://…, or http on this machine"
    )


def _wait_s(told: Any) -> float | None:
    wait_ms = getattr(told, "retry_after_ms", None)
    return wait_ms / 1_000 if isinstance(wait_ms, int | float) else None


def _refusal(told: Any) -> Result:
    response = told.transport_response
    status = response.status if response is not None else 0
    said = str(told.message or told.status_code or status)[:200]
    if told.status_code == "M_LIMIT_EXCEEDED" or status == 429:
        return NotNow("too many messages", _wait_s(told) or 1.0)
    if told.status_code in ("M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"):
        return NotNow(said)
    if status >= 500 or not status:
        return Unsure(f"status {status}")
    return No(said)


# --- events as ours, and ours as events: no I/O ---------------------------------------------------


def read_message(
    us: str, room: str, source: dict[str, Any], group: bool
) -> Update | None:
    """An m.room.message as ours; None of one that means nothing here. Anybody in a room can write
    an event of any shape: it must not stop those behind it."""
    try:
        return _said(us, room, source, group)
    except (KeyError, TypeError, AttributeError, ValueError):
        return None


def _said(us: str, room: str, source: dict[str, Any], group: bool) -> Update | None:
    content = source.get("content") or {}
    id, sender = str(source.get("event_id", "")), str(source.get("sender", ""))
    relation = content.get("m.relates_to") or {}
    if not isinstance(relation, dict) or not isinstance(content.get("body", ""), str):
        return None
    if relation.get("rel_type") == "m.replace":
        new = content.get("m.new_content") or {}
        text = str(new.get("body", "")) if isinstance(new, dict) else ""
        return Edited(
            id, room, sender, str(relation.get("event_id", "")), text, group
        )
    kind, text = content.get("msgtype"), str(content.get("body", ""))
    files: tuple[RemoteFile, ...] = ()
    if kind in FILES:
        files = _files(content)
        named = str(content.get("filename") or text)
        text = "" if named == text else text
    quoted = ""
    if relation.get("m.in_reply_to") and (found := _FALLBACK.match(text)):
        quoted, text = found[0].strip()[:2_000], text[found.end() :]
    if not id or not sender or (not text and not files):
        return None
    return Message(
        id=id,
        chat=room,
        person=sender,
        text=text,
        message=id,
        group=group,
        bot=kind == "m.notice",
        addressed=not group or _is_addressed(us, content, text),
        quoted=quoted,
        files=files,
    )


def _is_addressed(us: str, content: dict[str, Any], text: str) -> bool:
    mentions = content.get("m.mentions")
    named = mentions.get("user_ids") if isinstance(mentions, dict) else None
    if isinstance(named, list) and us in named:
        return True
    return (
        us in text
        or us in str(content.get("formatted_body", ""))
        or text.startswith("/")
    )


def _files(content: dict[str, Any]) -> tuple[RemoteFile, ...]:
    told = content.get("info")
    info: dict[str, Any] = told if isinstance(told, dict) else {}
    locked = content.get("file")
    id = str(content.get("url", ""))
    if isinstance(locked, dict):
        key, hashes = locked.get("key") or {}, locked.get("hashes") or {}
        parts = {"url": locked.get("url"), "k": key.get("k"), "iv": locked.get("iv")}
        id = msgspec.json.encode(parts | {"sha256": hashes.get("sha256")}).decode()
    if not id or len(id) > 1_000:
        return ()
    size = info.get("size")
    name = str(content.get("filename") or content.get("body") or "file")[:200]
    kind = str(info.get("mimetype") or "application/octet-stream")[:100]
    return (RemoteFile(id, name, kind, size if isinstance(size, int) else None),)


def _content(what: Outgoing) -> dict[str, Any]:
    content: dict[str, Any] = {"msgtype": "m.text", "body": what.text}
    if not what.plain:
        html = to_html(what.text)
        if len(html.encode()) + len(what.text.encode()) < EVENT_BYTES_MAX:
            content |= {"format": "org.matrix.custom.html", "formatted_body": html}
    return content


def to_html(markdown: str) -> str:
    """Markdown as HTML. What looks like HTML is shown as it is written."""
    return str(_MARKDOWN.render(markdown)).strip()
