"""Codex in the full-screen chat: the same screen as with our own loop."""

import asyncio

import pytest

from tests.codex.world import LONG, CodexWorld
from tests.tui.chatting import Person, chat_with


@pytest.fixture
def world(world: CodexWorld, monkeypatch: pytest.MonkeyPatch) -> CodexWorld:
    """The chat runs in this process: codex gets what it needs from our own environment."""
    for name in ("FAKE_KEY", "HOME"):
        monkeypatch.setenv(name, world.environment[name])
    return world


@pytest.mark.promise(9)
@pytest.mark.promise(46)
def test_a_command_of_codex_is_asked_about_with_one_key_and_is_a_card_with_its_output(world: CodexWorld) -> None:
    async def talk(person: Person) -> None:
        assert "codex:default" in person.status()
        await person.say("echo")
        await person.sees("I look.", "Allow shell? echo ran >> ran; echo hi", "waits for you")
        assert not (world.work / "ran").exists()
        await person.pilot.pause(0.5)
        await person.press("y")
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
        await asyncio.to_thread(world.steno, "run", "slow too", "--session", person.session, "--steer", "--detach")
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
