"""Talking to steno in XMPP: the running program and a real prosody."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from steno.config import ChannelConfig
from steno.gateway.channels.protocol import ChannelSetup, Outgoing, Sent
from steno.gateway.platforms.xmpp import Xmpp, speakable
from tests.channels.contract import OWNER, answered, read, serving
from tests.channels.xmpp_subject import XmppSubject
from tests.gateway.client import Gateway
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World, wait_until

Serve = Callable[..., Gateway]


@pytest.fixture
def xmpp(tmp_path: Path) -> Iterator[XmppSubject]:
    one = XmppSubject(tmp_path)
    one.open()
    try:
        yield one
    finally:
        one.close()


@pytest.fixture
def serve(xmpp: XmppSubject, world: World, tmp_path: Path) -> Iterator[Serve]:
    with serving(xmpp, world, tmp_path) as start:
        yield start


@pytest.mark.promise(9)
@pytest.mark.promise(13)
@pytest.mark.promise(68)
def test_killed_in_mid_answer_the_chat_shows_one_message_and_a_correction_is_told(
    xmpp: XmppSubject, serve: Serve, server: ModelServer, world: World
) -> None:
    server.replies = [
        Reply(("Once upon ", "a time"), held=True),
        Reply((" it", " ended.")),
        Reply(("At six.",)),
    ]
    gateway = serve()
    said = xmpp.say("meet at five")
    xmpp.wait_like("Once upon")
    gateway.kill()
    gateway.start()
    xmpp.wait_like("ended.")
    [text] = xmpp.texts()
    told = world.messages(world.only_session(), "assistant")
    assert text.endswith(told[-1]["text"])
    xmpp.person(OWNER).say(xmpp.jid, "meet at six", corrects=said)
    xmpp.say("when?")
    xmpp.wait("At six.")
    assert "meet at six" in str(server.requests[-1]["messages"])
    assert len(xmpp.texts()) == 2


@pytest.mark.promise(63, 67)
def test_what_was_said_around_a_kill_at_the_very_first_start_is_read_however_we_answered_since(
    xmpp: XmppSubject, tmp_path: Path
) -> None:
    settings = xmpp.settings()
    config = ChannelConfig(kind="xmpp", url=settings["url"], options=settings["options"])
    setup = ChannelSetup("x", config, "test", tmp_path)
    asyncio.run(answered(Xmpp(setup), xmpp.id(OWNER)))  # so that the account is there
    xmpp.say("one")
    first, mark = asyncio.run(read(Xmpp(setup), "", 1))
    xmpp.say("two")
    asyncio.run(answered(Xmpp(setup), xmpp.id(OWNER)))
    assert first == ["one"]
    assert asyncio.run(read(Xmpp(setup), mark, 2))[0] == ["one", "two"]


@pytest.mark.promise(14)
def test_a_message_that_was_sent_is_found_by_its_key(xmpp: XmppSubject, tmp_path: Path) -> None:
    settings = xmpp.settings()
    config = ChannelConfig(kind="xmpp", url=settings["url"], options=settings["options"])

    async def send_and_look() -> tuple[object, str | None, str | None]:
        channel = Xmpp(ChannelSetup("x", config, "test", tmp_path))
        await channel.open()
        try:
            chat = xmpp.id(OWNER)
            sent = await channel.send(chat, "key-0", Outgoing("hello", plain=True))
            return sent, await channel.find(chat, "key-0"), await channel.find(chat, "key-1")
        finally:
            await channel.close()

    xmpp.person(OWNER)
    assert asyncio.run(send_and_look()) == (Sent("key-0"), "key-0", None)
    wait_until(lambda: xmpp.texts() == ["hello"], "the message")


def test_what_xml_cannot_have_is_shown_as_a_replacement() -> None:
    assert speakable("a\x00b\x1b[31m\ud800 🙂\n") == "a\ufffdb\ufffd[31m\ufffd 🙂\n"
