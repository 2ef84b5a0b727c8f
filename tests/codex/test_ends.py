"""How sessions end that codex runs: told to plugins as for our own loop, and quickly."""

import signal
import time

import pytest

from tests.codex.world import CodexWorld
from tests.program.diary import install, told
from tests.program.distilling import answer
from tests.program.model_server import ModelServer, Reply
from tests.program.world import WAIT_S
from tests.tui.terminals import full_screen


@pytest.mark.promise(39)
def test_plugins_hear_of_the_end_with_model_and_platform(world: CodexWorld) -> None:
    install(world)
    world.run("hello")
    [end] = told(world)
    assert (end["session_id"], end["model"], end["platform"]) == (
        world.only_session(),
        "codex:fake-model",
        "cli",
    )
    assert (end["completed"], end["interrupted"], end["reason"]) == (True, False, "left")


@pytest.mark.promise(39)
def test_plugins_hear_of_a_kill_at_the_next_start(world: CodexWorld) -> None:
    install(world)
    with world.start("run", "slow", "--key", "k") as program:
        program.wait_shown("word2")
        program.kill()
    world.wait_codex_gone()
    assert told(world) == []
    session = world.only_session()
    world.steno("run", "and")
    [killed] = [one for one in told(world) if one["session_id"] == session]
    assert (killed["reason"], killed["completed"], killed["interrupted"]) == ("killed", False, True)
    assert (killed["model"], killed["platform"]) == ("codex:fake-model", "cli")


@pytest.mark.promise(6)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.suite("SIGHUP")
def test_a_signal_ends_it_soon(world: CodexWorld, number: signal.Signals) -> None:
    with world.start("run", "slow", "--key", "k") as program:
        program.wait_shown("word2")
        began_s = time.monotonic()
        program.signal(number)
        program.end()
        assert time.monotonic() - began_s < 4.0
    world.wait_codex_gone()


@pytest.mark.promise(33)
def test_a_session_is_distilled_and_the_next_one_is_told_whoever_runs_it(world: CodexWorld) -> None:
    world.run("hello")
    first, sails = world.only_session(), "The user sails."
    with ModelServer(Reply((answer(sails),))) as native:
        world.environment["OPENAI_BASE_URL"] = native.url
        world.steno("distill", first, "--model", "openai-chat:test")
        assert "Hello there." in str(native.requests[-1])
        assert sails in world.steno("memory")
        world.run("and")
        assert len(world.threads()) == 1, "the session goes on in its thread"
        world.steno("run", "think", "--key", "other")
        assert str(world.requests("think")[-1]).count(sails) == 1
        world.steno(
            "run", "two", "--key", "other", "--runtime", "native", "--model", "openai-chat:test"
        )
        assert sails in str(native.requests[-1]["messages"][0])


@pytest.mark.promise(6, 34)
def test_a_chat_whose_terminal_is_closed_ends_its_turn_itself(world: CodexWorld) -> None:
    """Nobody killed it. A command that codex runs does not hold it up for longer than a chat has to
    leave."""
    with full_screen(world, "--yes") as chat:
        chat.wait_seen("ready")
        chat.type("count\r")
        chat.wait_seen("line5")
        chat.hang_up()
        chat.process.wait(WAIT_S)
    [ended] = [fact for fact in world.facts() if fact["type"] == "turn.ended"]
    assert (ended["outcome"], ended["cause"]) == ("interrupted", "terminated")
    world.wait_codex_gone()
