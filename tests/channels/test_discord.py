"""Talking to steno in Discord: the running program, and a stub that keeps Discord's rules."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.channels.discord_stub import BOT, DiscordSubject
from tests.gateway.client import Gateway
from tests.program.model_server import ModelServer
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
    running: list[Gateway] = []

    def start(**settings: Any) -> Gateway:
        discord.configure(world, **settings)
        running.append(Gateway(world, tmp_path))
        return running[-1]

    try:
        yield start
    finally:
        for one in running:
            one.close()


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

    discord.stub.lose = lose
    serve(stream="final")
    discord.say("hello")
    wait_until(lambda: bool(lost), "the lost answer")
    discord.say("more")
    wait_until(lambda: len(discord.texts()) == 2, "the second answer")
    assert discord.texts() == ["ok", "ok"]
    assert len(server.requests) == 2


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
