"""Talking to steno in Matrix: the running program and a real Synapse."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nio
import pytest
from msgspec import structs

from steno.config import ChannelConfig
from steno.gateway.channels.protocol import ChannelSetup, Edited, Message
from steno.gateway.platforms.matrix import Matrix, read_message, to_html
from tests.channels.contract import OWNER, answered, read, serving
from tests.channels.lossy import Lossy
from tests.channels.matrix_subject import MatrixSubject, User
from tests.channels.servers import port_of
from tests.gateway.client import Gateway
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World, wait_until

Serve = Callable[..., Gateway]


@pytest.fixture
def matrix(tmp_path: Path) -> MatrixSubject:
    return MatrixSubject(tmp_path)


@pytest.fixture
def serve(matrix: MatrixSubject, world: World, tmp_path: Path) -> Iterator[Serve]:
    with serving(matrix, world, tmp_path) as start:
        yield start


def made(matrix: MatrixSubject, person: str = OWNER) -> list[dict[str, Any]]:
    """The messages that steno made in a person's room, edits apart."""
    events = matrix.person(person).events(matrix.room(person))
    return [
        event
        for event in events
        if event["sender"] == matrix.bot.id
        and event["type"] == "m.room.message"
        and "m.new_content" not in event["content"]
    ]


@pytest.mark.promise(9)
@pytest.mark.promise(14)
@pytest.mark.promise(63)
@pytest.mark.promise(68)
def test_killed_in_mid_answer_the_room_shows_one_message_with_the_stored_text(
    matrix: MatrixSubject, serve: Serve, server: ModelServer, world: World
) -> None:
    server.replies = [Reply(("Once upon ", "a time"), held=True), Reply((" it", " ended."))]
    gateway = serve()
    matrix.say("tell me a story")
    matrix.wait_like("Once upon")
    gateway.kill()
    gateway.start()
    matrix.wait_like("ended.")
    [text] = matrix.texts()
    [message] = world.messages(world.only_session(), "assistant")[-1:]
    assert text.endswith(message["text"])
    assert len(made(matrix)) == 1


@pytest.mark.promise(14)
def test_a_message_whose_answer_was_lost_is_not_there_twice(
    matrix: MatrixSubject, serve: Serve, server: ModelServer
) -> None:
    server.replies = [Reply(("one",)), Reply(("two",))]
    with Lossy(port_of("synapse")) as way:
        # aiohttp itself repeats a PUT once where a connection was used before.
        way.lose = lambda method, path: "/send/" in path and way.lost < 3
        serve(url=way.url, stream="final")
        matrix.say("hello")
        matrix.wait("one")
        matrix.say("again")
        matrix.wait("two")
        assert way.lost == 3
        assert [event["content"]["body"] for event in made(matrix)] == ["one", "two"]


@pytest.mark.promise(67)
def test_an_invitation_of_the_owner_is_accepted_and_what_was_said_before_is_answered(
    matrix: MatrixSubject, serve: Serve, server: ModelServer, world: World
) -> None:
    serve()
    owner = matrix.person(OWNER)
    asked = {"invite": [matrix.bot.id], "is_direct": True, "preset": "trusted_private_chat"}
    room = owner.ask("POST", "/createRoom", asked)["room_id"]
    matrix.rooms[OWNER] = room
    _, event = owner.say(room, "are you there?")
    matrix.wait("ok")
    edit: dict[str, Any] = {
        "m.new_content": {"msgtype": "m.text", "body": "is it you?"},
        "m.relates_to": {"rel_type": "m.replace", "event_id": event},
    }
    owner.say(room, "* is it you?", **edit)
    owner.ask("PUT", f"/rooms/{quote(room)}/redact/{quote(event)}/r1", {})
    owner.say(room, "well?")
    wait_until(lambda: matrix.texts() == ["ok", "ok"], "the second answer")
    asked_next = str(server.requests[-1]["messages"])
    assert "is it you?" in asked_next
    assert len(server.requests) == 2


@pytest.mark.promise(63, 67)
def test_what_was_said_around_a_kill_at_the_very_first_start_is_read_however_we_answered_since(
    matrix: MatrixSubject, tmp_path: Path
) -> None:
    settings = matrix.settings()
    config = ChannelConfig(kind="matrix", url=settings["url"], options=settings["options"])
    told = {"owners": (matrix.id(OWNER),)}
    setup = ChannelSetup("m", structs.replace(config, **told), matrix.secret, tmp_path / "m")
    room = matrix.room(OWNER)
    matrix.say("one")

    first, mark = asyncio.run(read(Matrix(setup), "", 1))
    matrix.say("two")
    asyncio.run(answered(Matrix(setup), room))
    assert first == ["one"]
    assert asyncio.run(read(Matrix(setup), mark, 2))[0] == ["one", "two"]


@pytest.mark.torture
def test_a_stranger_is_not_joined_when_there_is_a_list(
    matrix: MatrixSubject, serve: Serve, server: ModelServer
) -> None:
    stranger = User("stranger")
    asked = {"invite": [matrix.bot.id], "is_direct": True}
    room = stranger.ask("POST", "/createRoom", asked)["room_id"]
    serve(allow=["8"])
    matrix.say("hello")
    matrix.wait("ok")
    joined = stranger.ask("GET", f"/rooms/{quote(room)}/joined_members")["joined"]
    assert list(joined) == [stranger.id]


async def _talk_encrypted(owner: User, bot: str, folder: Path) -> list[str]:
    """Make an encrypted room, say two things, and read what is answered."""
    config = nio.AsyncClientConfig(encryption_enabled=True, store_sync_tokens=False)
    base = f"http://127.0.0.1:{port_of('synapse')}"
    client = nio.AsyncClient(base, owner.id, store_path=str(folder), config=config)
    client.restore_login(owner.id, owner.device, owner.token)
    shown: dict[str, str] = {}

    async def turn_over() -> None:
        told = await client.sync(500)
        assert isinstance(told, nio.SyncResponse)
        if client.should_upload_keys:
            await client.keys_upload()
        if client.should_query_keys:
            await client.keys_query()
        for info in told.rooms.join.values():
            for event in info.timeline.events:
                content = event.source.get("content", {})
                if event.sender == bot and "body" in content:
                    relation = content.get("m.relates_to", {})
                    new = content.get("m.new_content", content)
                    shown[relation.get("event_id", event.event_id)] = new["body"]

    try:
        await turn_over()
        locked = {
            "type": "m.room.encryption",
            "state_key": "",
            "content": {"algorithm": "m.megolm.v1.aes-sha2"},
        }
        made = await client.room_create(
            is_direct=True,
            invite=[bot],
            initial_state=[locked],
            preset=nio.RoomPreset.trusted_private_chat,
        )
        room = made.room_id
        while bot not in (client.rooms[room].users if room in client.rooms else ()):
            await turn_over()
        while not client.device_store[bot]:
            await turn_over()
        for number in range(2):
            text = {"msgtype": "m.text", "body": f"secret {number}"}
            await client.room_send(room, "m.room.message", text, ignore_unverified_devices=True)
            while list(shown.values()) != ["ok"] * (number + 1):
                await turn_over()
    finally:
        await client.close()
        client.store.database.close()
    return list(shown.values())


@pytest.mark.promise(1)
def test_an_encrypted_room_is_read_and_answered_and_the_server_sees_no_text(
    matrix: MatrixSubject, serve: Serve, server: ModelServer, tmp_path: Path
) -> None:
    serve()
    owner = matrix.person(OWNER)
    keys = tmp_path / "keys"
    keys.mkdir()
    talk = asyncio.wait_for(_talk_encrypted(owner, matrix.bot.id, keys), 90)
    assert asyncio.run(talk) == ["ok", "ok"]
    assert "secret 1" in str(server.requests[-1]["messages"][-1])
    [room] = owner.ask("GET", "/joined_rooms")["joined_rooms"]
    assert "m.room.message" not in [event["type"] for event in owner.events(room)]


# --- events as ours: no I/O -----------------------------------------------------------------------


def event(**content: Any) -> dict[str, Any]:
    return {"event_id": "$1", "sender": "@ann:test", "content": content}


def test_in_a_room_of_many_only_what_names_us_is_addressed() -> None:
    def addressed(**content: Any) -> bool:
        read = read_message("@steno:test", "!r", event(msgtype="m.text", **content), True)
        assert isinstance(read, Message)
        return read.addressed

    assert not addressed(body="hello")
    assert addressed(body="hello @steno:test")
    assert addressed(body="hello", **{"m.mentions": {"user_ids": ["@steno:test"]}})
    assert not addressed(body="hello", **{"m.mentions": {"user_ids": "@steno:test"}})


def test_a_quote_is_told_apart_from_what_is_said_and_a_notice_is_a_bots() -> None:
    reply = {"m.in_reply_to": {"event_id": "$0"}}
    content = {"msgtype": "m.notice", "body": "> <@b:test> old\n\nnew", "m.relates_to": reply}
    read = read_message("@steno:test", "!r", event(**content), False)
    assert isinstance(read, Message)
    assert (read.quoted, read.text, read.bot) == ("> <@b:test> old", "new", True)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"body": 5},
        {"body": "a", "m.relates_to": ["b"]},
        {"msgtype": "m.image", "body": ""},
        {"msgtype": "m.text", "body": ""},
    ],
)
def test_what_is_no_message_is_left_alone(content: dict[str, Any]) -> None:
    assert read_message("@steno:test", "!r", event(**content), False) is None


def test_an_edit_names_what_it_changes() -> None:
    replaces = {"rel_type": "m.replace", "event_id": "$0"}
    new = {"body": "six", "msgtype": "m.text"}
    content = {"msgtype": "m.text", "body": "* six", "m.new_content": new, "m.relates_to": replaces}
    read = read_message("@steno:test", "!r", event(**content), False)
    assert read == Edited("$1", "!r", "@ann:test", "$0", "six", False)


def test_markdown_becomes_html_in_which_nothing_of_others_runs() -> None:
    assert to_html("**a** `b`") == "<p><strong>a</strong> <code>b</code></p>"
    assert "<script" not in to_html("<script>alert(1)</script>")
    assert "href" not in to_html("[x](javascript:alert(1))")
    assert "<img" not in to_html("![x](https://example.org/x.png)")
