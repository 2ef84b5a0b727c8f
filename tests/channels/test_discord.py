"""Talking to steno in Discord: the running program, and a stub that keeps Discord's rules."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from steno.config import ChannelConfig
from steno.gateway.channels.protocol import ChannelSetup
from steno.gateway.platforms.discord import Discord
from tests.channels.contract import OWNER, answered, read, serving
from tests.channels.discord_stub import BOT, DiscordSubject
from tests.gateway.client import Gateway
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World, wait_until

Serve = Callable[..., Gateway]
ROOM = "777777"


@pytest.fixture
def discord(tmp_path: Path) -> Iterator[DiscordSubject]:
    one = DiscordSubject(tmp_path)
    one.open()
    try:
        yield one
    finally:
        one.close()


@pytest.fixture
def serve(discord: DiscordSubject, world: World, tmp_path: Path) -> Iterator[Serve]:
    with serving(discord, world, tmp_path) as start:
        yield start


def open_deliveries(gateway: Gateway) -> int:
    [one] = gateway.ask("GET", "/api/channels").json()["channels"]
    return int(one["open"])


@pytest.mark.promise(14)
@pytest.mark.promise(13)
def test_a_message_whose_answer_was_lost_is_not_there_twice(
    discord: DiscordSubject, serve: Serve, server: ModelServer
) -> None:
    lost: list[str] = []

    def lose(method: str, path: str) -> bool:
        if method == "POST" and path.endswith("/messages") and not lost:
            lost.append(path)
            return True
        return False

    server.replies = [Reply(("one",)), Reply(("two",))]
    discord.stub.lose = lose
    gateway = serve(stream="final")
    discord.say("hello")
    wait_until(lambda: bool(lost), "the lost answer")
    discord.say("more")
    discord.wait("two")
    wait_until(lambda: open_deliveries(gateway) == 0, "all to be settled")
    assert discord.texts() == ["one", "two"]
    assert len(server.requests) == 2


@pytest.mark.promise(63, 67)
def test_what_was_said_around_a_kill_at_the_very_first_start_is_read_however_we_answered_since(
    discord: DiscordSubject, tmp_path: Path
) -> None:
    settings = discord.settings()
    config = ChannelConfig(
        kind="discord",
        url=settings["url"],
        options=settings["options"],
        owners=(discord.id(OWNER),),
    )
    setup = ChannelSetup("d", config, discord.secret, tmp_path)
    discord.say("one")
    first, mark = asyncio.run(read(Discord(setup), "", 1))
    discord.say("two")
    asyncio.run(answered(Discord(setup), discord.chat(OWNER)))
    assert first == ["one"]
    assert asyncio.run(read(Discord(setup), mark, 2))[0] == ["one", "two"]


@pytest.mark.promise(67)
def test_a_group_is_answered_when_it_names_us_and_edits_are_told(
    discord: DiscordSubject, serve: Serve, server: ModelServer
) -> None:
    serve(groups=[ROOM])
    said = discord.say("meet at five")
    discord.wait("ok")
    when = {"edited_timestamp": "2026-01-01T00:00:00+00:00"}
    discord.stub.give("MESSAGE_UPDATE", said | when | {"content": "meet at six"})
    discord.say("when?")
    wait_until(lambda: len(server.requests) == 2, "the second request")
    assert "meet at six" in str(server.requests[-1]["messages"])
    owner = discord.id("7")
    discord.stub.say(ROOM, owner, "nobody is meant", guild_id="5")
    discord.stub.say(ROOM, owner, f"<@{BOT}> you?", guild_id="5", mentions=[{"id": BOT}])
    room = discord.stub.messages[ROOM]
    wait_until(lambda: any(raw["author"]["id"] == BOT for raw in room.values()), "the answer")
    assert "nobody is meant" not in str(server.requests[-1])
