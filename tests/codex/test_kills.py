"""Killed at each message of a turn: steno, codex, or both. What was shown is stored, everything is
stored once, and the next turn works on the same thread."""

import os
import signal
import time

import pytest

from tests.chance import chance_of
from tests.codex.record import between
from tests.codex.world import ECHO, CodexWorld

MESSAGES = 40
"""More than codex sends in this turn: the last ones kill nobody."""
POINTS = [
    (victim, when, n)
    for n in range(1, MESSAGES)
    for victim in ("steno", "codex", "both")
    for when in ("before", "after")
]


def run_dying(world: CodexWorld, victim: str, when: str, n: int) -> str:
    """A turn in which somebody is killed at a message; what was shown of it."""
    between(world, victim, when, n)
    with world.start("run", "echo", "--key", "k", "--yes") as program:
        program.end()
        shown = program.shown()
    del world.environment["STENO_CODEX_PATH"]
    return shown.rstrip("\n")


def check(world: CodexWorld, shown: str) -> None:
    world.wait_codex_gone()
    before = world.said()[2:]
    assert before[0][:2] == ("user", "echo")
    stored = "".join(text for role, text, _ in before if role == "assistant")
    assert stored.startswith(shown), "shown, so it is stored"
    assert "I look.It ran.".startswith(stored), "stored once"
    assert sum(role == "tool" for role, _, _ in before) <= 1
    assert world.run("and") == "And so on.\n"
    after = world.said()
    if before == [("user", "echo", "pending")]:  # killed when it was accepted: it goes first
        before = after[2:-2]
        assert "".join(text for role, text, _ in before if role == "assistant") == "I look.It ran."
    assert after[2:] == [
        *before,
        ("user", "and", "complete"),
        ("assistant", "And so on.", "complete"),
    ]
    assert len(world.threads()) == 1, "the same thread"
    users = [str(one["content"]) for one in world.requests("and")[-1] if one["role"] == "user"]
    assert users.count("echo") <= 1, "codex was told once"
    assert users[-1] == "and"
    told = str(world.requests("and")[-1])
    assert [told.count(text) > 1 for text in ("I look.", "It ran.")] == [False, False], (
        "and what it said is there once"
    )
    ran = (world.work / "ran").read_text() if (world.work / "ran").exists() else ""
    assert ran in ("", "ran\n"), "the command ran at most once"
    session = next(str(one["id"]) for one in world.sessions() if one["name"] == "k")
    world.steno("run", "seek", "--key", "other")
    other = next(str(one["id"]) for one in world.sessions() if one["name"] == "other")
    [found] = world.messages(other, "tool")
    assert session in found["text"], "a search finds the turn"


@pytest.mark.promise(4, 5, 6, 19, 34, 35)
@pytest.mark.parametrize(("victim", "when", "n"), POINTS)
@pytest.mark.suite("steno-after-10", "codex-before-16", "both-after-22")
def test_killed_at_a_message(world: CodexWorld, victim: str, when: str, n: int) -> None:
    world.run("hello")
    shown = run_dying(world, victim, when, n)
    check(world, shown)


@pytest.mark.torture
@pytest.mark.promise(4, 5, 6, 19, 34, 35)
@pytest.mark.parametrize("turn", range(30))
def test_killed_at_a_random_moment(world: CodexWorld, turn: int) -> None:
    chance = chance_of("turn", turn)
    world.run("hello")
    victim = chance.choice(("steno", "codex", "both"))
    with world.start_anew("run", "echo", "--key", "k", "--yes") as program:
        time.sleep(chance.uniform(0, 2.5))
        server = world.app_server()
        if victim != "steno" and server is not None:
            os.kill(server, signal.SIGKILL)
        if victim != "codex" and program.process.poll() is None:
            program.kill()
        program.end()
        shown = program.shown().rstrip("\n")
    if ("user", "echo") not in [one[:2] for one in world.said()]:
        return  # killed before it was accepted
    check(world, shown)


@pytest.mark.torture
def test_the_points_reach_to_the_end_of_the_turn(world: CodexWorld) -> None:
    world.run("hello")
    assert run_dying(world, "both", "after", MESSAGES) == "I look.It ran."
    assert ECHO in str(world.messages(world.only_session()))
