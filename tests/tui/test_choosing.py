"""What a person chooses in the chat: who answers, with which key, in which colours; and what it
cost."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from steno.providers.keys import Keys
from steno.tui.blocks import Said
from steno.tui.offers import Offers
from steno.tui.painting.palette import DARK
from steno.tui.scroll import Scroll
from steno.tui.terminal import kept_shade
from steno.workspace.commands import Command
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World
from tests.tui.chatting import Person, chat_with, setup_of

KEY = "sk-a-key-that-is-right"


class Listing(BaseHTTPRequestHandler):
    """A provider that has two models, and takes one key."""

    def do_GET(self) -> None:
        right = self.headers.get("authorization") == f"Bearer {KEY}"
        models = [{"id": "large", "context_length": 64_000}, {"id": "small"}]
        body = json.dumps({"data": models} if right else {"error": "no"}).encode()
        self.send_response(200 if right else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Listing) as listing:
        threading.Thread(target=listing.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listing.server_address[1]}/v1"
        listing.shutdown()


@pytest.mark.promise(60)
def test_a_key_is_tried_and_kept_and_forgotten_in_the_chat_and_shown_nowhere(
    world: World, server: ModelServer, provider: str
) -> None:
    address = json.dumps({"work": {"address": provider}})
    world.environment["STENO_PROVIDERS"] = address
    keys = Keys(world.home)

    async def talk(person: Person) -> None:
        await person.say("/login work")
        await person.sees("Key for work")
        await person.press(*"wrong", "enter")
        await person.sees("the key was not kept")
        assert not keys.names()
        await person.say("/login work")
        await person.sees("Key for work")
        await person.press(*KEY)
        assert KEY not in person.screen()
        await person.press("enter")
        await person.sees("the key is kept", "the provider takes it")
        assert keys.get("work") == KEY
        await person.say("/model")
        await person.sees("work:large", "64.0k tokens", "work:small")
        await person.press("escape")
        await person.say("/logout work")
        await person.sees("the key is gone from here")
        await person.say("/logout work")
        await person.sees("no key was kept")

    chat_with(world, talk, size=(100, 34), setup=setup_of(world))
    assert not keys.names()
    assert KEY.encode() not in (world.home / "store.db").read_bytes()


def test_what_a_session_cost_is_in_the_status_line_and_told_by_model(
    world: World, server: ModelServer
) -> None:
    priced = {"openai-chat:test": {"price_in": 100, "price_out": 200}}
    world.environment["STENO_MODELS"] = json.dumps(priced)
    world.environment["STENO_CONTEXTS"] = json.dumps({"openai-chat:test": 100})
    server.replies = [Reply(("one",)), Reply(("two",))]

    async def talk(person: Person) -> None:
        await person.say("hello")
        await person.sees("one")
        await person.until(lambda: "$0.002" in person.status(), "the cost")
        first = person.session
        assert "▰▱▱▱▱▱▱▱ 15%" in person.status()
        await person.say("/cost")
        await person.sees("openai-chat:test: 10 tokens in, 5 out, $0.002, in 1 calls")
        await person.say("again")
        await person.until(lambda: "$0.004" in person.status(), "the cost of both turns")
        await person.say("/new")
        await person.until(lambda: "$" not in person.status(), "a session that cost nothing")
        await person.say(f"/resume {first}")
        await person.until(lambda: "$0.004" in person.status(), "the cost, counted once")

    chat_with(world, talk, size=(120, 24))
    told = json.loads(world.steno("usage", "--by", "model", "--json"))
    assert told["cost_usd"] == 0.004


def test_a_theme_of_ones_own_is_begun_chosen_kept_and_checked(
    world: World, server: ModelServer
) -> None:
    themes = world.home / "themes"

    async def talk(person: Person) -> None:
        await person.say("/theme new mine")
        await person.sees("your theme: edit")
        assert (themes / "mine.toml").is_file()
        assert person.chat.palette == DARK
        (themes / "mine.toml").write_text('like = "light"\naccent = "#ff0000"\n')
        await person.say("/theme mine")
        await person.until(lambda: person.chat.palette.accent == "#ff0000", "the colour")
        assert person.chat.palette.ground == "#fbfbfa"
        (themes / "bad.toml").write_text('accent = "red"\n')
        await person.say("/theme bad")
        await person.sees("accent is a colour such as")
        await person.say("/theme ../x")
        await person.sees("is no name for a theme")
        assert person.chat.shade == "mine"

    chat_with(world, talk, size=(100, 30))
    assert (world.home / "theme").read_text() == "mine\n"
    assert kept_shade(world.home) == "mine"
    (themes / "mine.toml").unlink()
    assert kept_shade(world.home) is None


def test_the_list_of_sessions_shows_the_end_of_the_one_that_is_chosen(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("**Tides** come twice",))]
    world.steno("run", "about the sea")
    server.replies = [Reply(("Stone stays",))]
    world.steno("run", "about the mountains")

    async def talk(person: Person) -> None:
        await person.press("ctrl+o")
        await person.sees("type to find", "1 turn · 2 messages", "Stone stays")
        await person.press("down")
        await person.sees("Tides come twice")
        await person.pilot.resize_terminal(80, 24)
        await person.sees_no_more("Tides come twice")
        await person.sees("about the sea")

    chat_with(world, talk, size=(100, 40))


@pytest.mark.parametrize(
    ("typed", "seen"), [("/clear", "a new session"), ("/tokens", "the next request has")]
)
def test_names_that_other_agents_have_for_commands_work(
    world: World, server: ModelServer, typed: str, seen: str
) -> None:
    async def talk(person: Person) -> None:
        await person.say("hello")
        await person.rests()
        await person.say(typed)
        await person.sees(seen)

    chat_with(world, talk)


def test_a_command_of_the_folder_comes_before_what_others_call_ours() -> None:
    own = Command("clear", "command", "Clear the table.", "clear the table")
    offers = Offers([own])
    assert offers.meant("/clear") == ("clear", "")
    assert offers.meant("/exit now") == ("quit", "now")
    assert [one.does for one in offers.like("/clea")] == ["clear the table"]
    assert [one.name for one in offers.like("/exi")] == ["exit"]


def test_escape_twice_goes_to_what_was_said_last(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("heard one",)), Reply(("heard two",))]

    async def talk(person: Person) -> None:
        for text in ("one", "two"):
            await person.say(text)
            await person.sees(f"heard {text}")
            await person.rests()
        await person.press("escape")
        assert not person.scroll.has_focus
        await person.press("escape")
        await person.sees("r rewind")
        chosen = person.scroll.chosen
        assert isinstance(chosen, Said)
        assert chosen.text == "two"

    chat_with(world, talk)


def test_the_mouse_leaves_keys_to_the_input_and_letters_go_back_to_it(
    world: World, server: ModelServer
) -> None:
    async def talk(person: Person) -> None:
        await person.say("one")
        await person.rests()
        await person.pilot.click(Scroll)
        await person.press("h", "i")
        await person.sees("> hi")
        await person.press("ctrl+u", "tab")
        await person.sees("r rewind")
        await person.press("s", "h")
        await person.sees("> sh", "Enter send")

    chat_with(world, talk)
    assert len(world.messages(world.only_session(), "user")) == 1
