"""Whatever a platform gives out, a channel reads it or leaves it out: an update that cannot be read
never stops the ones behind it."""

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import patch
from xml.etree.ElementTree import Element, SubElement

import slixmpp
from hypothesis import given
from hypothesis import strategies as st

from steno.config import ChannelConfig
from steno.gateway.channels.protocol import ChannelSetup, Deleted, Edited, Message, Tapped
from steno.gateway.platforms.discord import Discord
from steno.gateway.platforms.mail import Mail
from steno.gateway.platforms.matrix import read_message
from steno.gateway.platforms.slack import Slack
from steno.gateway.platforms.slack import _later as later
from steno.gateway.platforms.xmpp import Archived, Xmpp

UPDATES = (Message, Edited, Deleted, Tapped)
KEYS = [
    "action_id",
    "action_ts",
    "actions",
    "app_id",
    "attachments",
    "author",
    "body",
    "bot",
    "bot_id",
    "channel",
    "channel_id",
    "channel_type",
    "component_type",
    "content",
    "content_type",
    "custom_id",
    "data",
    "deleted_ts",
    "edited",
    "edited_timestamp",
    "event",
    "event_id",
    "event_ts",
    "file",
    "filename",
    "files",
    "formatted_body",
    "global_name",
    "guild_id",
    "hashes",
    "id",
    "info",
    "iv",
    "k",
    "key",
    "latest_reply",
    "m.in_reply_to",
    "m.mentions",
    "m.new_content",
    "m.relates_to",
    "member",
    "mentions",
    "message",
    "message_ts",
    "mimetype",
    "mimetype",
    "msgtype",
    "name",
    "payload",
    "previous_message",
    "referenced_message",
    "rel_type",
    "sender",
    "sha256",
    "size",
    "subtype",
    "text",
    "thread_ts",
    "token",
    "ts",
    "type",
    "url",
    "user",
    "user_id",
    "user_ids",
    "username",
    "value",
    "webhook_id",
]
WORDS = [
    "message",
    "app_mention",
    "block_actions",
    "message_changed",
    "message_deleted",
    "file_share",
    "interactive",
    "events_api",
    "im",
    "C1",
    "D1",
    "U1",
    "17.1",
    "m.replace",
    "m.image",
    "m.text",
    "m.notice",
    "m.file",
    "!room:x",
    "$event",
    "@ann:x",
]
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
VALUES = st.recursive(
    PLAIN | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=25,
)
OBJECTS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8)


def setup(kind: str, secret: str, **options: Any) -> ChannelSetup:
    url = "" if kind == "xmpp" else "imap://127.0.0.1:1"
    config = ChannelConfig(kind=kind, url=url, options=options)
    return ChannelSetup("ch", config, secret, Path())


def is_update(read: object) -> bool:
    return read is None or isinstance(read, UPDATES)


CONTENT = st.dictionaries(
    st.sampled_from(["body", "msgtype", "file", "info", "url", "m.relates_to", "m.mentions"]),
    VALUES | st.sampled_from(["m.image", "m.text"]),
)


@given(OBJECTS, CONTENT | VALUES, st.booleans())
def test_matrix(source: dict[str, Any], content: Any, group: bool) -> None:
    source = {"event_id": "$e", "sender": "@ann:x"} | source | {"content": content}
    assert is_update(read_message("@steno:x", "!room:x", source, group))


@given(st.sampled_from(("message", "app_mention")), OBJECTS, st.booleans())
def test_slack(kind: str, event: dict[str, Any], tapped: bool) -> None:
    slack = Slack(setup("slack", "xapp-1,xoxb-1", team="T1234567", user="U1234567"))
    envelope = {"type": "interactive", "payload": event}
    if not tapped:
        envelope = {"type": "events_api", "payload": {"event": {"type": kind} | event}}
    assert is_update(slack._read(envelope))
    usual = {"type": kind, "user": "U1", "channel": "D1", "ts": "1.2", "text": "x"}
    assert is_update(slack._read({"type": "events_api", "payload": {"event": usual | event}}))


NAMES = ("MESSAGE_CREATE", "MESSAGE_UPDATE", "MESSAGE_DELETE", "INTERACTION_CREATE")


@given(st.sampled_from(NAMES), OBJECTS)
def test_discord(name: str, data: dict[str, Any]) -> None:
    discord = Discord(setup("discord", "MTIzNDU2Nzg5MDEyMzQ1Njc4.x.y"))
    usual = {"id": "1", "channel_id": "2", "author": {"id": "3"}, "content": "x"}
    assert is_update(discord._read(name, data))
    assert is_update(discord._read(name, usual | data))


@given(st.lists(OBJECTS, max_size=3))
def test_history_of_slack_and_discord(raws: list[dict[str, Any]]) -> None:
    """What is read after a start goes through the same reading."""
    asyncio.run(_read_histories(raws))


async def _read_histories(raws: list[dict[str, Any]]) -> None:
    slack = Slack(setup("slack", "xapp-1,xoxb-1", team="T1234567", user="U1234567"))
    discord = Discord(setup("discord", "MTIzNDU2Nzg5MDEyMzQ1Njc4.x.y"))

    async def told(method: str, body: Any = None, token: str = "") -> dict[str, Any]:
        channels = [{"id": "D1", "is_im": True}]
        return {"channels": channels} if "users" in method else {"messages": raws}

    async def history(chat: str, after: str) -> list[dict[str, Any]]:
        return [dict(one) for one in raws]

    with patch.object(slack, "_ask", told), patch.object(discord, "_history", history):
        found = await slack._missed(0.0)
        later("1.0", found)
        marks = {"12345": "1"}
        found += await discord._missed(marks)
    assert all(is_update(one) for one in found)
    assert marks["12345"].isdecimal()


XMPP = slixmpp.ClientXMPP("steno@example.org/here", "secret")
for plugin in ("xep_0030", "xep_0308", "xep_0313", "xep_0359"):
    XMPP.register_plugin(plugin)
JIDS = st.sampled_from(["ann@example.org/x", "@@", "", "a b@c", "steno@example.org"])
ABOUT = st.sampled_from(["replace", "retract", "body", "origin-id"])


@given(
    st.dictionaries(st.sampled_from(["from", "to"]), JIDS),
    st.dictionaries(st.sampled_from(["type", "id"]), st.sampled_from(["chat", "error", "i", ""])),
    st.lists(
        st.tuples(ABOUT, st.sampled_from(["id", "x"]), st.sampled_from(["", "7"])), max_size=4
    ),
)
def test_xmpp(
    jids: dict[str, str], more: dict[str, str], children: list[tuple[str, str, str]]
) -> None:
    stanza = Element("{jabber:client}message", jids | more)
    for name, attribute, value in children:
        space = {"replace": "urn:xmpp:message-correct:0", "retract": "urn:xmpp:message-retract:1"}
        named = f"{{{space.get(name, 'jabber:client')}}}{name}"
        SubElement(stanza, named, {attribute: value}).text = value
    outer = Element("{jabber:client}message")
    result = SubElement(outer, "{urn:xmpp:mam:2}result", {"id": "41"})
    SubElement(result, "{urn:xmpp:forward:0}forwarded").append(stanza)
    made: Any = slixmpp.Message
    one = Archived(made(stream=XMPP, xml=outer))
    assert one.id == "41"
    channel = Xmpp(setup("xmpp", "secret", jid="steno@example.org"))
    assert all(is_update(read) for read in channel._unanswered([one]))
    assert is_update(channel._change(one, "40"))


HEADERS = [
    "From",
    "To",
    "Subject",
    "Message-ID",
    "References",
    "In-Reply-To",
    "Date",
    "Content-Type",
    "Content-Transfer-Encoding",
    "Content-Disposition",
    "Authentication-Results",
    "Auto-Submitted",
    "MIME-Version",
    "Return-Path",
]
TOLD = st.sampled_from(
    [
        "ann@example.org",
        '"Ann" <ann@example.org>',
        "mx.test; dmarc=pass header.from=example.org",
        'text/html; charset="undefined"',
        "text/plain; charset=idna",
        "multipart/mixed; boundary=x",
        "multipart/report",
        "message/rfc822",
        "attachment; filename*=utf-8''%ff/..",
        "base64",
        "quoted-printable",
        "x-uuencode",
        "=?utf-8?b?////?=",
        "=?bogus?q?=ZZ?=",
        "<a@b>",
        "<",
    ]
) | st.text(max_size=20)
MAILS = st.tuples(
    st.lists(st.tuples(st.sampled_from(HEADERS), TOLD), max_size=10),
    st.sampled_from(["", "hello", "--x\r\n\r\nhi\r\n--x--", "begin 666 x\n\x00", "=ff=zz", "<b>"]),
    st.binary(max_size=20),
)


@given(MAILS)
def test_email(mail: tuple[list[tuple[str, str]], str, bytes]) -> None:
    channel = Mail(
        setup(
            "email",
            "secret",
            address="steno@example.org",
            authserv_id="mx.test",
            smtp="smtp://127.0.0.1:1",
        )
    )
    vouched = "Authentication-Results: mx.test; dmarc=pass header.from=example.org\r\n"
    fields, body, more = mail
    head = "".join(f"{name}: {told}\r\n" for name, told in fields)
    raw = f"{vouched}From: ann@example.org\r\n{head}\r\n{body}".encode("utf-8", "surrogatepass")
    assert is_update(channel._read("1", "7", raw + more))
    assert is_update(channel._read("1", "7", more + raw))
