"""Finding in the chat: sessions by what was said in them, and messages of the one that is shown."""

import json

from tests.program.model_server import ModelServer, Reply
from tests.program.world import World
from tests.tui.chatting import Person, chat_with
from tests.tui.test_sessions import said


def test_the_list_finds_a_session_by_what_was_said_in_it(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("The Straße is closed.",))]
    said(world, "about the weather")
    server.replies = [Reply(("ok",))]
    said(world, "about the sea")

    async def talk(person: Person) -> None:
        await person.press("ctrl+o")
        await person.sees("type to find", "Sessions", "about the weather", "about the sea")
        await person.press(*"strasse")
        await person.sees("The Straße is closed.")
        await person.sees_no_more("about the sea")
        await person.press("enter")
        await person.sees("about the weather", "The Straße is closed.")

    chat_with(world, talk)


def test_the_list_opens_a_session_at_the_message_that_was_found(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("\n\n".join(f"line {i}" for i in range(60)),))]
    said(world, "first words", "with the needle in it", "and at last")

    async def talk(person: Person) -> None:
        await person.press("ctrl+o")
        await person.sees("Sessions")
        await person.press(*"needle")
        await person.sees("with the needle in it")
        await person.press("enter")
        await person.sees_no_more("type to find")
        await person.sees("with the needle in it", "line 0")

    chat_with(world, talk)


def test_a_message_of_the_session_is_found_and_shown(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("\n\n".join(f"line {i}" for i in range(60)),))]
    id = said(world, "first words", "with the needle in it", "and at last")

    async def talk(person: Person) -> None:
        await person.sees("line 59")
        await person.press("ctrl+f", *"needle")
        await person.sees("Find in this session", "with the needle in it")
        await person.press("enter")
        await person.sees_no_more("Find in this session")
        await person.sees("with the needle in it")

    chat_with(world, talk, id)


def test_a_chat_is_opened_at_the_message_that_was_found(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("\n\n".join(f"line {i}" for i in range(60)),))]
    id = said(world, "first words", "with the needle in it", "and at last")
    [hit] = json.loads(world.steno("search", "needle", "--json"))["hits"]
    assert hit["open"] == f"steno --resume {id} --at {hit['seq']}"

    async def talk(person: Person) -> None:
        await person.sees("with the needle in it")

    chat_with(world, talk, id, at=hit["seq"])
