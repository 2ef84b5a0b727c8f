"""XMPP, by slixmpp: direct chats, read from the server's archive.

receive    the archive (XEP-0313) after the last id that was stored. A message that arrives live is
           only a reason to look there: one source, one order, exact ids, and no gap
send       a message with an id of ours (XEP-0359), then a ping: the server answers in order, so its
           answer says that it has the message. Without one, the archive is looked into
edit       a correction (XEP-0308); what a person takes back is a retraction (XEP-0424)
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4
from xml.etree.ElementTree import Element

import slixmpp
from slixmpp.exceptions import IqError, IqTimeout

from steno.config import LOOPBACK
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
    Result,
    Sent,
    Unsure,
    Update,
)

LIMITS = Limits(
    text_max=10_000,
    edits=True,
    finds=True,
    chat_per_s=2.0,
    all_per_s=20.0,
    burst=5,
    edit_s=3.0,
)
ANSWER_S = 30.0
LOOK_S = 60.0
"""So often the archive is read although nothing arrived; that finds a dead connection, too."""
PAGE = 50
FIRST_MAX = 5_000
FIND_MAX = 500
IDS_MAX = 10_000
FIRST = "first "
"""Before the last id at the very first start, until what stands up to it is stored."""
_JID = re.compile(r"[^\s@/<>&\"':]{1,200}@[a-z0-9.-]{1,200}")
_ORIGIN = "{urn:xmpp:sid:0}origin-id"
_REPLACE = "{urn:xmpp:message-correct:0}replace"
_RETRACT = "{urn:xmpp:message-retract:1}retract"


class Archived:
    """A message as the archive has it. Of one that cannot be read there is the id alone: it means
    nothing, and must not stop those behind it."""

    def __init__(self, result: Any) -> None:
        self.id = str(result["mam_result"]["id"])
        self.sender = self.to = self.type = self.body = self.corrects = (
            self.retracts
        ) = ""
        self.ids: set[str] = set()
        with contextlib.suppress(KeyError, TypeError, AttributeError, ValueError):
            self._read(result["mam_result"]["forwarded"]["stanza"])
        self.about = self.retracts or self.corrects

    def _read(self, stanza: Any) -> None:
        origin = stanza.xml.find(_ORIGIN)
        corrected, retracted = stanza.xml.find(_REPLACE), stanza.xml.find(_RETRACT)
        self.sender = str(stanza["from"].bare).lower()
        self.to = str(stanza["to"].bare).lower()
        self.type = str(stanza["type"])
        self.ids = {
            str(stanza["id"]),
            "" if origin is None else origin.get("id", ""),
        } - {""}
        self.corrects = "" if corrected is None else str(corrected.get("id", ""))
        self.retracts = "" if retracted is None else str(retracted.get("id", ""))
        self.body = str(stanza["body"])


class Xmpp(Quiet):
    def __init__(self, setup: ChannelSetup) -> None:
        options = setup.options
        self._jid = str(options.get("jid", "")).lower()
        if _JID.fullmatch(self._jid) is None:
            raise ChannelRefused(
                "options.jid must be the account's address: steno@example.org"
            )
        self._secret = setup.secret
        self._server = _server(setup.config.url)
        self._client: slixmpp.ClientXMPP | None = None
        self._news = asyncio.Event()
        self._gone = asyncio.Event()
        self._errors: dict[str, str] = {}
        self._archive_ids: dict[tuple[str, str], str] = {}
        self.limits = setup.limits(LIMITS)

    @property
    def account(self) -> str:
        return f"xmpp:{self._jid}"

    async def open(self) -> None:
        await self.close()
        resource = f"steno-{uuid4().hex[:8]}"
        client: Any = slixmpp.ClientXMPP(f"{self._jid}/{resource}", self._secret)
        for plugin in ("xep_0030", "xep_0199", "xep_0308", "xep_0313", "xep_0359"):
            client.register_plugin(plugin)
        self._news, self._gone = asyncio.Event(), asyncio.Event()
        began: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def settle(how: str) -> None:
            if not began.done():
                began.set_result(how)

        client.add_event_handler("session_start", lambda _: settle(""))
        client.add_event_handler("failed_all_auth", lambda _: settle("auth"))
        client.add_event_handler("connection_failed", lambda _: settle("unreachable"))
        client.add_event_handler("disconnected", lambda _: settle("lost"))
        client.add_event_handler(
            "disconnected", lambda _, gone=self._gone: gone.set()
        )
        client.add_event_handler("message", lambda _: self._news.set())
        client.add_event_handler("message_error", self._note_error)
        self._client = client
        host, port, plain = self._server
        if plain:
            client.enable_plaintext, client.enable_starttls = True, False
            client.enable_direct_tls = False
            client.plugin["feature_mechanisms"].unencrypted_plain = True
        client.connect(host or None, port or None)
        try:
            how = await asyncio.wait_for(began, ANSWER_S)
        except TimeoutError:
            how = "no answer"
        if how == "auth":
            raise ChannelRefused("the XMPP server does not take the password")
        if how:
            raise ChannelLost(f"the XMPP server cannot be used: {how}")
        client.send_presence()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    client.disconnect(wait=0.0, ignore_send_queue=True), 2.0
                )
            client.cancel_connection_attempt()

    def _note_error(self, stanza: Any) -> None:
        if len(self._errors) >= IDS_MAX:
            self._errors.clear()
        self._errors[str(stanza["id"])] = str(stanza["error"]["condition"])

    # --- what arrives

    async def receive(self, mark: str) -> AsyncIterator[Batch]:
        if not mark or mark.startswith(FIRST):
            found = await self._first(mark.removeprefix(FIRST))
            last = found[-1].id if found else ""
            if found:
                if not mark:
                    yield Batch(
                        (), FIRST + last
                    )  # our words after that are no sign of anything
                yield Batch(tuple(self._unanswered(found)), last)
            mark = last
        while True:
            self._news.clear()
            page, complete = await self._page(after=mark)
            if page:
                updates = [
                    update
                    for one in page
                    if (update := await self._read(one)) is not None
                ]
                mark = page[-1].id
                yield Batch(tuple(updates), mark)
            if complete:
                await self._wait()

    async def _wait(self) -> None:
        """Until something may have arrived."""
        waiting = [
            asyncio.ensure_future(event.wait()) for event in (self._news, self._gone)
        ]
        try:
            await asyncio.wait(
                waiting, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for one in waiting:
                one.cancel()
        if self._gone.is_set():
            raise ChannelLost("the XMPP server ended the connection")

    async def _first(self, up_to: str) -> list[Archived]:
        """All that the archive has, or had when it was first read: where we stand is not known
        yet."""
        found: list[Archived] = []
        complete = False
        while not complete and len(found) < FIRST_MAX:
            page, complete = await self._page(after=found[-1].id if found else "")
            found += page
            complete = complete or not page
        ids = [one.id for one in found]
        return found[: ids.index(up_to) + 1] if up_to in ids else found

    def _unanswered(self, found: list[Archived]) -> list[Update]:
        """What was said to us after our last word to whoever said it."""
        waiting: dict[str, list[Update]] = {}
        for one in found:
            if one.sender == self._jid:
                waiting.pop(one.to, None)
            elif (
                read := self._message(one) or self._change(one, self._known(one))
            ) is not None:
                waiting.setdefault(one.sender, []).append(read)
        return [update for updates in waiting.values() for update in updates]

    async def _read(self, one: Archived) -> Update | None:
        if not one.about or one.sender == self._jid:
            return self._message(one)
        of = self._known(one) or await self._archived_as(
            one.sender, one.sender, one.about
        )
        return self._change(one, of)

    def _known(self, one: Archived) -> str | None:
        """The archive's id of what a message changes, if it was seen since the start."""
        return self._archive_ids.get((one.sender, one.about))

    def _change(self, one: Archived, of: str | None) -> Update | None:
        if of is None or one.sender == self._jid:
            return None
        if one.retracts:
            return Deleted(one.id, one.sender, of, one.sender)
        return (
            Edited(one.id, one.sender, one.sender, of, one.body) if one.body else None
        )

    def _message(self, one: Archived) -> Message | None:
        if (
            one.sender == self._jid
            or one.type not in ("chat", "normal")
            or not one.body
        ):
            return None
        if one.about:
            return None
        while len(self._archive_ids) >= IDS_MAX:
            del self._archive_ids[next(iter(self._archive_ids))]
        for id in one.ids:
            self._archive_ids[one.sender, id] = one.id
        return Message(one.id, one.sender, one.sender, one.body, message=one.id)

    async def _page(
        self, after: str = "", before: str | None = None, peer: str = ""
    ) -> tuple[list[Archived], bool]:
        """A page of the archive, and whether it was the last one."""
        rsm: dict[str, Any] = {"max": PAGE}
        if after:
            rsm["after"] = after
        if before is not None:
            rsm["before"] = before
        client = self._connected()
        with_jid = slixmpp.JID(peer) if peer else None
        archive = client.plugin["xep_0313"]
        asking = archive.retrieve(rsm=rsm, with_jid=with_jid, timeout=int(ANSWER_S))
        try:
            told: Any = await asyncio.wait_for(asking, ANSWER_S + 5)
        except IqError as error:
            if error.condition == "item-not-found" and after:
                return await self._page(peer=peer)  # what it had is known by its id
            if error.condition in ("feature-not-implemented", "service-unavailable"):
                raise ChannelRefused(
                    "the XMPP server keeps no archive (XEP-0313)"
                ) from None
            raise ChannelLost(f"the XMPP server says: {error.condition}") from None
        except (IqTimeout, TimeoutError):
            raise ChannelLost("the XMPP server does not answer") from None
        complete = str(told["mam_fin"]["complete"]).lower() in ("true", "1")
        return [Archived(one) for one in told["mam"]["results"]], complete

    async def _archived_as(self, peer: str, sender: str, id: str) -> str | None:
        """The archive's id of a message, by the id that its sender gave it."""
        before, seen = "", 0
        while seen < FIND_MAX:
            page, complete = await self._page(before=before, peer=peer)
            for one in reversed(page):
                if one.sender == sender and id in one.ids and not one.corrects:
                    return one.id
            if complete or not page:
                return None
            before, seen = page[0].id, seen + len(page)
        return None

    # --- what goes out

    async def send(self, chat: str, key: str, what: Outgoing) -> Result:
        result = await self._put(chat, key, what.text, "")
        return Sent(key) if isinstance(result, Sent) else result

    async def edit(self, chat: str, message: str, what: Outgoing) -> Result:
        result = await self._put(chat, uuid4().hex, what.text, message)
        return Sent(message) if isinstance(result, Sent) else result

    async def _put(self, chat: str, id: str, text: str, corrects: str) -> Result:
        if _JID.fullmatch(chat) is None:
            return No("there is no address to send to")
        client = self._client
        if client is None or self._gone.is_set():
            return NotNow("not connected")
        stanza: Any = client.make_message(
            slixmpp.JID(chat), speakable(text), mtype="chat"
        )
        stanza["id"] = id
        for left in stanza.xml.findall(_ORIGIN):
            stanza.xml.remove(left)
        stanza.xml.append(Element(_ORIGIN, {"id": id}))
        if corrects:
            stanza.xml.append(Element(_REPLACE, {"id": corrects}))
        stanza.send()
        try:
            server = slixmpp.JID(client.boundjid.host)
            await client.plugin["xep_0199"].send_ping(server, timeout=ANSWER_S)
        except IqError:
            pass  # it answers, in order: that is all we need
        except (IqTimeout, TimeoutError):
            return Unsure("no answer")
        if (condition := self._errors.pop(id, "")) != "":
            return No(f"the XMPP server says: {condition}")
        return Sent(id)

    async def find(self, chat: str, key: str) -> str | None:
        return (
            key if await self._archived_as(chat, self._jid, key) is not None else None
        )

    async def show_typing(self, chat: str) -> None:
        client = self._client
        if client is None or self._gone.is_set() or _JID.fullmatch(chat) is None:
            return
        stanza: Any = client.make_message(slixmpp.JID(chat), mtype="chat")
        stanza.xml.append(Element("{http://jabber.org/protocol/chatstates}composing"))
        stanza.xml.append(Element("{urn:xmpp:hints}no-store"))
        stanza.send()

    def check_id(self, id: str) -> str:
        return (
            ""
            if _JID.fullmatch(id)
            else "an id is an address without a resource: ann@example.org"
        )

    def _connected(self) -> Any:
        if self._client is None or self._gone.is_set():
            raise ChannelLost("not connected")
        return self._client


def channel(setup: ChannelSetup) -> Channel:
    return Xmpp(setup)


def speakable(text: str) -> str:
    """Text without the characters that XML cannot have: each is shown as a replacement."""
    return re.sub(
        "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text
    )


def _server(url: str) -> tuple[str, int, bool]:
    """Host, port, and whether it is spoken to in the clear; ("", 0) if DNS says where it is."""
    if not url:
        return "", 0, False
    parts = urlsplit(url)
    if parts.scheme != "xmpp" or not parts.hostname or "@" in parts.netloc:
        raise ChannelRefused("url must be xmpp://HOST:PORT, or be left out")
    return parts.hostname, parts.port or 5222, parts.hostname in LOOPBACK
