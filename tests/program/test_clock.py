"""A clock that is set back or forward: order is commit order, and a key is known for ever."""

import json

import pytest

from tests.models.rules import check
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World

DAY_S = 86_400


def at(world: World, shift_s: float, *words: str) -> str:
    """A command whose clock is moved; what it prints."""
    with world.start_changed("shifted.py", str(shift_s), *words) as program:
        assert program.end() == 0, program.errors()
        return program.shown()


@pytest.mark.promise(47)
@pytest.mark.parametrize("kind", ["openai-chat", "anthropic"])
@pytest.mark.suite("anthropic")
def test_a_clock_that_is_set_back_changes_neither_order_nor_validity(
    world: World, server: ModelServer, kind: str
) -> None:
    world.environment["STENO_MODEL"] = f"{kind}:test"
    shifts_s = [0, -2 * DAY_S, -400 * DAY_S, 3600, -1]
    server.replies = [Reply((f"answer {n}",)) for n in range(len(shifts_s))]
    for n, shift_s in enumerate(shifts_s):
        at(world, shift_s, "run", f"prompt {n}", "--key", "k")
    id = world.only_session()
    said = [text for n in range(len(shifts_s)) for text in (f"prompt {n}", f"answer {n}")]
    shown = json.loads(at(world, -800 * DAY_S, "show", id, "--json"))
    assert [message["text"] for message in shown["messages"]] == said
    assert [message["seq"] for message in shown["messages"]] == sorted(
        message["seq"] for message in shown["messages"]
    )
    check(kind, server.requests[-1])
    spoken = json.dumps(server.requests[-1]["messages"])
    assert [spoken.index(text) for text in said[:-1]] == sorted(
        spoken.index(text) for text in said[:-1]
    )
    assert "no damage" in at(world, -800 * DAY_S, "verify")


@pytest.mark.promise(47)
def test_a_clock_that_is_set_back_changes_nothing_about_a_kill(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("half",), then="hang"), Reply(("whole",))]
    with world.start("run", "one", "--key", "k") as program:
        program.wait_shown("half")
        program.kill()
    assert at(world, -10 * DAY_S, "run", "two", "--key", "k") == "whole\n"
    shown = world.show(world.only_session())
    assert [message["text"] for message in shown["messages"]] == ["one", "half", "two", "whole"]
    assert [turn["outcome"] for turn in shown["turns"]] == ["interrupted", "done"]


@pytest.mark.promise(16)
def test_the_same_input_id_two_days_later_and_for_another_session_gives_the_first_answer(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("first",)), Reply(("second",))]
    words = ("run", "hi", "--input-id", "m1")
    assert world.steno(*words, "--key", "k") == "first\n"
    assert at(world, 2 * DAY_S, *words, "--key", "k") == "first\n"
    assert at(world, -2 * DAY_S, *words, "--key", "another") == "first\n"
    assert len(server.requests) == 1
    assert len(world.messages(world.only_session())) == 2
