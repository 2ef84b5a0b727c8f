"""Codex in the full-screen chat: the same screen as with our own loop."""

import asyncio
import shutil

import pytest
from msgspec.structs import replace

from tests.codex.doings import PLANNED, WITH_PLANS, told
from tests.codex.world import LONG, CodexWorld
from tests.program.test_cli_views import complaint
from tests.tui.chatting import ASKING, Person, chat_with

CUT_OFF = "cut off by the next message; what was shown is kept"


@pytest.fixture
def world(world: CodexWorld, monkeypatch: pytest.MonkeyPatch) -> CodexWorld:
    """The chat runs in this process: codex gets what it needs from our own environment."""
    for name in ("FAKE_KEY", "HOME"):
        monkeypatch.setenv(name, world.environment[name])
    return world


@pytest.mark.promise(9)
@pytest.mark.promise(46)
def test_a_command_of_codex_is_asked_about_with_one_key_and_is_a_card_with_its_output(
    world: CodexWorld,
) -> None:
    async def talk(person: Person) -> None:
        assert "codex:default" in person.status()
        await person.say("echo")
        await person.sees("I look.", "Allow shell? echo ran >> ran; echo hi", "waits for you")
        assert not (world.work / "ran").exists()
        await person.allow("shell")
        await person.sees("│ hi", "✓", "It ran.")
        await person.rests()
        assert "codex:fake-model" in person.status()

    chat_with(world, talk)
    assert (world.work / "ran").read_text() == "ran\n"
    assert [(role, text) for role, text, _ in world.said()] == [
        ("user", "echo"),
        ("assistant", "I look."),
        ("tool", "hi\n"),
        ("assistant", "It ran."),
    ]


@pytest.mark.promise(12, 21)
def test_ctrl_c_stops_codex_and_what_was_shown_is_kept(world: CodexWorld) -> None:
    async def talk(person: Person) -> None:
        await person.say("slow")
        await person.sees("word0 word1", "▍")
        await asyncio.to_thread(
            world.steno, "run", "slow too", "--session", person.session, "--steer", "--detach"
        )
        await person.until(lambda: person.screen().count("word3") == 2, "another answer")
        await person.say("and then?")
        await person.sees("queued  and then?")
        await person.press("ctrl+c")
        await person.sees("stopped by you; what was shown is kept", "▌ and then?", "And so on.")
        await person.rests()
        shown = person.screen()
        stopped = world.messages(person.session, "assistant")[1]["text"]
        assert " ".join(stopped.split()) in " ".join(shown.split())

    chat_with(world, talk)
    (_, steered, _, stopped, *rest) = world.said()
    for one in (steered, stopped):
        assert LONG.startswith(one[1])
        assert (one[0], one[2]) == ("assistant", "interrupted")
    assert rest == [("user", "and then?", "complete"), ("assistant", "And so on.", "complete")]
    world.wait_codex_gone()
    told = [str(one["content"]) for one in world.requests("and then?")[-1]]
    assert [told.count(said) for said in ("slow", "slow too", "and then?")] == [1, 1, 1]


@pytest.mark.promise(46)
def test_a_plan_of_codex_is_on_the_screen_where_it_was_made(world: CodexWorld) -> None:
    async def talk(person: Person) -> None:
        await person.say("go")
        await person.sees("I plan.", "plan: two things", "▸ look", "· tell", "Done.")
        await person.rests()

    with told(world, *PLANNED, more=WITH_PLANS):
        chat_with(world, talk)


def test_a_runtime_that_the_chat_was_started_with_gives_way_to_a_model_that_is_chosen_in_it(
    world: CodexWorld,
) -> None:
    world.run("hello", "--model", "scripted:echo")

    async def talk(person: Person) -> None:
        await person.until(lambda: "codex:default" in person.status(), "who will answer")
        await person.say("and")
        await person.sees("And so on.")
        await person.rests()
        await person.say("/model scripted:echo")
        await person.sees("scripted:echo answers from the next request on")
        await person.say("by the script")
        await person.until(lambda: person.screen().count("by the script") == 2, "an answer")
        await person.rests()
        assert "scripted:echo" in person.status()

    chat_with(world, talk, world.only_session(), terms=replace(ASKING, runtime="codex"))
    answers = [one for one in world.messages(world.only_session()) if one["role"] == "assistant"]
    assert [one["model"] for one in answers] == [
        "scripted:echo",
        "codex:fake-model",
        "scripted:echo",
    ]


def test_a_session_of_codex_keeps_its_model_in_a_chat_that_was_started_for_codex(
    world: CodexWorld,
) -> None:
    world.run("hello", "--model", "codex:other")

    async def talk(person: Person) -> None:
        await person.until(lambda: "codex:other" in person.status(), "who will answer")
        await person.say("and")
        await person.sees("And so on.")
        await person.rests()

    chat_with(world, talk, world.only_session(), terms=replace(ASKING, runtime="codex"))
    assert {one["model"] for one in world.messages(world.only_session(), "assistant")} == {
        "codex:other"
    }


def test_a_compaction_is_said_to_be_codex_s_and_counts_nothing(world: CodexWorld) -> None:
    """What codex made of its thread nobody else knows, so no number of tokens is named."""
    world.run("hello")
    session = world.only_session()

    async def talk(person: Person) -> None:
        await person.say("/compact")
        await person.sees("codex made its own thread shorter; you still read everything")
        await person.sees("codex made its own thread shorter; only codex knows what it says")
        assert "summarised" not in person.screen()

    chat_with(world, talk, session)
    world.steno("undo", session)
    assert "tokens" not in world.steno("compact", session)


@pytest.mark.promise(10, 46)
def test_an_answer_that_another_input_cut_off_is_said_to_be_cut_off(world: CodexWorld) -> None:
    with world.start("run", "slow", "--key", "k") as program:
        program.wait_shown("word3")
        world.steno("run", "and", "--key", "k", "--steer")
        assert program.end() == 0
        assert program.errors() == f"[{CUT_OFF}]\n"
    session = world.only_session()
    assert complaint(world, "follow", session, expect=0) == f"[{CUT_OFF}]\n"

    async def talk(person: Person) -> None:
        await person.sees("▌ slow", "word3", CUT_OFF, "▌ and", "And so on.")
        shown = person.screen()
        assert shown.index("word3") < shown.index(CUT_OFF) < shown.index("▌ and")

    chat_with(world, talk, session)


@pytest.mark.promise(46)
def test_a_lost_thread_can_be_left_for_a_new_one_while_the_chat_looks_on(world: CodexWorld) -> None:
    """What the chat says to do about it helps, and is seen there."""
    world.run("hello")
    session = world.only_session()

    async def talk(person: Person) -> None:
        for kept in world.codex_home.glob("*.sqlite*"):
            kept.unlink()
        shutil.rmtree(world.codex_home / "sessions")
        await person.say("and")
        await person.sees("--new-thread", "/retry alone would ask for the same thread")
        assert "/retry runs it again" not in " ".join(person.screen().split())
        await asyncio.to_thread(world.steno, "retry", session, "--new-thread")
        await person.sees("And so on.")
        await person.rests()

    chat_with(world, talk, session, size=(120, 40))
    assert [text for _, text, _ in world.said()] == ["hello", "Hello there.", "and", "And so on."]


@pytest.mark.promise(32)
def test_a_goal_that_is_set_while_the_first_turn_runs_is_told_with_the_next(
    world: CodexWorld,
) -> None:
    """Both are turns of one thread that was just begun, without the goal in its instructions."""

    async def talk(person: Person) -> None:
        await person.say("slow")
        await person.sees("word0 word1")
        await person.say("/goal sail home")
        await person.sees("the goal of this session: sail home")
        await person.say("and now?")
        await person.sees("And so on.")
        await person.rests()

    chat_with(world, talk)
    told = "".join(str(one["content"]) for one in world.requests("and now?")[-1])
    assert told.count("The goal of this session is now: sail home") == 1
    assert len(world.threads()) == 1


def test_the_models_to_choose_from_have_codex_where_it_is_the_default(world: CodexWorld) -> None:
    world.environment["STENO_MODEL"] = "anthropic:one"
    world.run("hello", "--model", "scripted:echo")

    async def talk(person: Person) -> None:
        await person.say("/model")
        await person.sees("Models", "scripted:echo", "codex:default", "anthropic:one")

    chat_with(world, talk, world.only_session())
