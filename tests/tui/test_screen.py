"""The screen itself: commands, completion, help, copying, colours, sizes, and what a first-time
user is told."""

import asyncio
import json
import os
import select
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Callable

import pytest
from textual import events

from steno.tui import terminal
from steno.tui.composer import Composer
from tests.program.model_server import ModelServer, Reply
from tests.program.test_attach import png
from tests.program.world import World
from tests.tui.chatting import Person, chat_with, chatting, setup_of

PNG = png()


def test_commands_are_completed_and_tab_takes_the_chosen_one(
    world: World, server: ModelServer
) -> None:
    async def talk(person: Person) -> None:
        await person.type("/re")
        await person.sees("/resume [ID]", "/retry", "/rename TITLE")
        await person.press("down", "tab")
        await person.sees("> /retry")
        assert "/rename TITLE" not in person.screen()
        await person.pilot.resize_terminal(40, 16)
        person.chat.query_one(Composer).replace_text("/attach")
        await person.sees("/attach PATH         send a file or…")

    chat_with(world, talk)


def test_enter_counts_for_what_is_typed_however_late_the_list_of_completions_is(
    world: World, server: ModelServer
) -> None:
    async def talk(person: Person) -> None:
        await person.say("hello")
        await person.rests()
        await person.type("/rename")
        await person.sees("▸ /rename TITLE")
        composer = person.chat.query_one(Composer)
        composer.insert(" a name of its own")
        await composer.on_key(events.Key("enter", None))  # before anything has heard of the change
        await person.sees("steno a name of its own")

    chat_with(world, talk)


@pytest.mark.promise(42)
def test_what_follows_steer_is_said_as_it_was_typed(world: World, server: ModelServer) -> None:
    async def talk(person: Person) -> None:
        await person.say("/steer\n  if x:\n    y()\n")
        await person.sees("▌   if x:", "ok")
        await person.rests()

    chat_with(world, talk)
    assert [one["text"] for one in world.messages(world.only_session(), "user")] == [
        "  if x:\n    y()\n"
    ]


def test_a_command_that_does_not_exist_is_not_said(world: World, server: ModelServer) -> None:
    async def talk(person: Person) -> None:
        await person.say("/hlep")
        await person.sees("there is no command /hlep", "did you mean /help?")
        assert person.chat.query_one(Composer).text == "/hlep"
        person.chat.query_one(Composer).text = ""
        await person.say("/etc/hosts is what?")
        await person.sees("▌ /etc/hosts is what?")

    chat_with(world, talk)
    assert [message["text"] for message in world.messages(world.only_session(), "user")] == [
        "/etc/hosts is what?"
    ]


def test_help_names_every_key_and_command(world: World, server: ModelServer) -> None:
    async def talk(person: Person) -> None:
        await person.press("f1")
        await person.sees("Keys and commands", "Ctrl-J")
        await person.press("end")
        await person.sees("/quit")
        await person.press("escape")
        await person.sees_no_more("Keys and commands")

    chat_with(world, talk)


def test_what_was_said_comes_back_with_the_up_key(world: World, server: ModelServer) -> None:
    async def talk(person: Person) -> None:
        await person.say("first")
        await person.rests()
        await person.say("second")
        await person.rests()
        await person.press("up", "up")
        await person.sees("> first")
        await person.press("down")
        await person.sees("> second")
        await person.press("down")
        assert person.chat.query_one(Composer).text == ""

    chat_with(world, talk)


def test_a_copy_goes_to_the_clipboard_of_the_terminal(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("*the* answer",))]

    async def talk(person: Person) -> None:
        await person.say("go")
        await person.rests()
        await person.say("/copy")
        await person.until(lambda: person.chat.clipboard == "*the* answer", "the copy")
        await person.sees("12 characters copied")
        line, typing, _, status = person.screen().splitlines()[-4:]
        assert (set(line), typing.strip(), status.strip()[:11]) == (
            {"─"},
            ">",
            "ask ○ ready",
        )  # nothing lies over them
        await person.press("tab", "up", "c")
        await person.until(lambda: person.chat.clipboard == "go", "the copy of a message")

    chat_with(world, talk)


def test_plain_text_has_nothing_that_a_copy_must_be_cleaned_of(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("*the* answer",))]

    async def talk(person: Person) -> None:
        await person.say("go")
        await person.sees("  the answer")
        await person.press("f8")
        await person.sees("*the* answer")
        assert "*the* answer" in person.screen().splitlines()
        await person.press("f8")
        await person.sees("  the answer")

    chat_with(world, talk)


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (200, 60)])
def test_the_screen_is_whole_in_any_size(
    world: World, server: ModelServer, size: tuple[int, int]
) -> None:
    server.replies = [
        Reply(("| a | b |\n|---|---|\n| one long cell of a table | two |\n\n" + "word " * 60,)),
        Reply(("It.",), tools=(("shell", json.dumps({"command": "echo " + "x" * 300})),)),
        Reply(("End.",)),
    ]

    async def talk(person: Person) -> None:
        await person.say("show")
        await person.sees("word word")
        await person.rests()
        await person.say("run")
        await person.allow("shell")
        await person.sees("End.")
        assert all(len(line) <= size[0] for line in person.screen().splitlines())

    chat_with(world, talk, size=size)


def test_a_resize_lays_everything_out_anew_and_keeps_the_end(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply((" ".join(f"word{i}" for i in range(200)),))]

    async def talk(person: Person) -> None:
        await person.say("go")
        await person.sees("word199")
        for width, height in ((50, 20), (120, 40), (80, 24)):
            await person.pilot.resize_terminal(width, height)
            await person.sees("word199", "ready")
            assert person.chat.size == (width, height)

    chat_with(world, talk)


def test_a_first_time_user_is_told_about_the_local_model_and_keys(
    world: World, server: ModelServer
) -> None:
    for name in ("STENO_MODEL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        world.environment.pop(name)

    async def talk(person: Person) -> None:
        await person.sees("tiny demo model", "/login takes a key")
        assert "local:smollm2" in person.status()

    chat_with(world, talk, size=(100, 30))


def test_an_ephemeral_session_says_so_all_the_time(world: World, server: ModelServer) -> None:
    setup = setup_of(world)
    setup.ephemeral = True

    async def talk(person: Person) -> None:
        await person.sees("promises 1, 2, 5 and 37")
        assert (
            "is killed\n" not in person.screen()
        )  # where it is broken into lines, the screen says
        await person.say("go")
        await person.sees("ok", "ephemeral: nothing is kept", "in memory")

    chat_with(world, talk, setup=setup, size=(100, 30))
    assert world.sessions() == []


def test_files_and_images_go_with_the_next_input(world: World, server: ModelServer) -> None:
    (world.work / "note.txt").write_text("remember the milk")
    (world.work / "a picture.png").write_bytes(PNG)

    async def talk(person: Person) -> None:
        await person.say(f"/attach {world.work / 'note.txt'}")
        await person.say(
            f"/attach {world.work}/a\\ picture.png"
        )  # as a terminal writes a file that is dropped on it
        await person.say(f"/attach {(world.work / 'note.txt').as_uri()}")
        await person.sees(f"+ attached a picture.png ({len(PNG)} B)\n + attached note.txt (17 B)")
        await person.say("/detach")
        await person.say("/detach")
        await person.say(f"/attach '{world.work / 'a picture.png'}'")
        await person.sees("+ attached note.txt (17 B)", f"+ attached a picture.png ({len(PNG)} B)")
        await person.say("what is in it?")
        await person.sees("▌ + note.txt (17 B)", f"▌ + a picture.png ({len(PNG)} B)", "ok")
        await person.rests()
        assert "+ attached" not in person.screen()
        await person.say("and now?")
        await person.sees("▌ and now?")
        await person.rests()

    chat_with(world, talk)
    for request in server.requests:  # what was attached is told with every later request
        told = json.dumps(request["messages"])
        assert "remember the milk" in told
        assert f"data:image/png;base64,{b64encode(PNG).decode()}" in told
    (first, second) = world.messages(world.only_session(), "user")
    assert [(one["name"], one["type"]) for one in first["attachments"]] == [
        ("note.txt", "file"),
        ("a picture.png", "image"),
    ]
    assert second["attachments"] == []


def test_what_cannot_be_attached_is_said_and_nothing_that_was_typed_is_lost(
    world: World, server: ModelServer
) -> None:
    missing = world.work / "missing.png"

    async def talk(person: Person) -> None:
        await person.say(f"/attach {missing}")
        await person.sees(
            "missing.png cannot be read: No such file or directory; nothing was stored"
        )
        assert person.chat.query_one(Composer).text == f"/attach {missing}"
        missing.write_bytes(PNG)
        await person.press("enter")
        await person.sees("+ attached missing.png")
        await person.say("look")
        await person.sees("▌ + missing.png")
        await person.until(lambda: bool(server.requests), "the request")

    chat_with(world, talk, size=(110, 30))
    assert b64encode(PNG).decode() in json.dumps(server.requests[-1]["messages"])


def test_an_input_that_is_taken_back_says_which_files_it_had(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("first",), then="hang")]
    (world.work / "note.txt").write_text("remember the milk")

    async def talk(person: Person) -> None:
        await person.say("go")
        await person.sees("first")
        await person.say(f"/attach {world.work / 'note.txt'}")
        await person.sees("+ attached note.txt")
        await person.say("and this")
        await person.sees("queued  and this")
        await person.press("up")
        await person.sees("> and this", "taken back without note.txt (17 B)")

    chat_with(world, talk)


def test_what_goes_on_while_the_screen_is_taken_down_does_no_harm(
    world: World, server: ModelServer
) -> None:
    async def whole() -> None:
        gone = asyncio.Event()

        async def late(act: Callable[[], object]) -> None:
            await gone.wait()
            act()

        async with chatting(world) as person:
            chat = person.chat
            acts = (
                chat.begin,
                chat.welcome,
                chat._paint,
                chat._tick,
                lambda: chat.restyle("light"),
            )
            tasks = [chat.do(late(act)) for act in acts] + [
                chat.do(late(lambda: chat.failed("too late")))
            ]
        gone.set()
        await asyncio.gather(*tasks)
        assert [note.text for note, _ in chat._notes if "something went wrong" in note.text] == []
        chat.action_interrupt()
        assert chat.left == 0

    asyncio.run(whole())


def test_the_status_line_says_model_tokens_context_and_durability(
    world: World, server: ModelServer
) -> None:
    setup = setup_of(world, model={"context_tokens": 100})

    async def talk(person: Person) -> None:
        await person.say("go")
        await person.rests()
        await person.sees("ask ○ ready", "openai-chat:test · work · 15 tokens")
        await person.sees("context ▰▱▱▱▱▱▱▱ 15% · power-safe")

    chat_with(world, talk, setup=setup, size=(100, 24))


def test_light_and_dark_are_both_readable(world: World, server: ModelServer) -> None:
    """The contrast of what carries meaning is that of WCAG AA, 4.5 to 1; that of what stands beside
    it, 3 to 1."""
    from steno.tui.painting.palette import PALETTES

    for palette in PALETTES.values():
        for ground in (palette.ground, palette.raised, palette.chosen):
            for colour in (
                palette.text,
                palette.heading,
                palette.accent,
                palette.good,
                palette.warn,
                palette.bad,
            ):
                assert contrast(colour, ground) >= 4.5, (colour, ground)
            for colour in (
                palette.soft,
                palette.comment,
                palette.keyword,
                palette.string,
                palette.number,
            ):
                assert contrast(colour, ground) >= 3, (colour, ground)


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(
    ("answer", "shade"),
    [
        ("\x1b]11;rgb:ffff/ffff/ffff\x1b\\\x1b[?62c", 1.0),
        ("\x1b]11;rgb:00/00/00\x07\x1b[?62c", 0.0),
        ("\x1b[?62c", None),
    ],
)
def test_the_terminal_says_whether_it_is_light(answer: str, shade: float | None) -> None:
    assert terminal._lightness(answer) == pytest.approx(shade)


def test_the_mouse_unfolds_a_card_and_scrolls(world: World, server: ModelServer) -> None:
    server.replies = [Reply(tools=(("shell", '{"command": "seq 1 40"}'),)), Reply(("End.",))]

    async def talk(person: Person) -> None:
        await person.say("count")
        await person.allow("shell")
        await person.sees("End.", "lines more")
        row = next(i for i, line in enumerate(person.screen().splitlines()) if "lines more" in line)
        await person.pilot.click(offset=(10, row))
        await person.until(lambda: "lines more" not in person.screen(), "the whole output")
        await person.sees("40")
        person.scroll.scroll_up(animate=False, immediate=True)
        await person.until(lambda: not person.scroll.following, "that it stops to follow")

    chat_with(world, talk)


def test_memory_says_what_the_session_is_told_of_earlier_ones(
    world: World, server: ModelServer
) -> None:
    async def talk(person: Person) -> None:
        await person.say("/memory")
        await person.sees("there is no session yet")
        await person.say("go")
        await person.rests()
        await person.say("/memory")
        await person.sees("told nothing of earlier ones")
        await person.say("/goal learn about the sea")
        await person.sees("the goal of this session: learn about the sea")

    chat_with(world, talk)
    assert "learn about the sea" in world.steno("goal", world.only_session())


def test_what_a_terminal_did_not_take_is_painted_again_when_it_does() -> None:
    read, write = os.pipe()
    painted = threading.Event()
    out = terminal.Output(write, painted.set)
    try:
        for _ in range(200):
            out.write("x" * 4_096)  # nobody reads: the rest is dropped, and nobody waits for long
        assert not painted.is_set()
        while select.select([read], [], [], 0)[0]:
            os.read(read, 65_536)
        assert painted.wait(5)
        out.write("again")
        assert os.read(read, 100) == b"again"
    finally:
        os.close(read)
        os.close(write)


def test_a_terminal_that_is_gone_is_written_to_without_an_error() -> None:
    read, write = os.pipe()
    os.close(read)
    out = terminal.Output(write, lambda: None)
    out.write("to nobody")
    os.close(write)
    assert out.lost


def test_nothing_loads_the_screen_before_the_chat_starts() -> None:
    script = (
        "import sys, steno, steno.cli.commands; print([m for m in ('textual', 'rich') if m in "
        "sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert told.stdout.strip() == "[]"
