"""A process that lost its session while it slept adds nothing when it wakes, says so, and what came
since stands."""

import signal

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.world import Program, World, wait_until

PIECES = tuple(f"piece{n} " for n in range(200))


def asleep(world: World, server: ModelServer) -> Program:
    """A runner that is stopped in the middle of a stream."""
    server.replies = [Reply(PIECES, delay_s=0.02), Reply(("of the next one",))]
    runner = world.start("run", "one", "--key", "k")
    runner.wait_shown("piece3 ")
    runner.put_to_sleep()
    return runner


@pytest.mark.promise(18)
def test_a_runner_whose_session_was_taken_while_it_slept_adds_nothing_and_the_attempt_is_logged(
    world: World, server: ModelServer
) -> None:
    with asleep(world, server) as runner:
        for lock in (world.home / "store.db-locks").iterdir():
            lock.unlink()  # as something that cleans up does; the sleeper's lock is then gone
        assert world.steno("run", "two", "--key", "k") == "of the next one\n"
        before = world.show(world.only_session())
        runner.signal(signal.SIGCONT)
        status = runner.end()
        errors = runner.errors()
        assert status == 130, errors
        shown = runner.shown()
    id = world.only_session()
    assert f"refused a write to session {id!r} with the old token" in errors
    assert "Traceback" not in errors
    assert world.show(id) == before, "nothing was added, nothing was changed"
    assert before["messages"][1]["text"].startswith(shown.strip())
    assert [(turn["outcome"], turn["cause"]) for turn in before["turns"]] == [
        ("interrupted", "killed"),
        ("done", ""),
    ]
    assert "no damage" in world.steno("verify")


@pytest.mark.promise(18)
@pytest.mark.promise(55)
def test_a_runner_whose_session_was_deleted_while_it_slept_brings_nothing_of_it_back(
    world: World, server: ModelServer
) -> None:
    with asleep(world, server) as runner:
        id = world.only_session()
        world.steno("delete", id, "--yes")
        runner.signal(signal.SIGCONT)
        assert runner.end() == 130
        assert f"session {id} was deleted" in runner.errors()
    assert world.sessions() == []


@pytest.mark.promise(18)
def test_a_runner_that_sleeps_is_not_robbed_and_goes_on(world: World, server: ModelServer) -> None:
    """Its lock says that it lives, however long it sleeps; what comes meanwhile is accepted and
    waits."""
    with asleep(world, server) as runner, world.start("run", "two", "--key", "k") as second:
        wait_until(
            lambda: len(world.messages(world.only_session(), "user")) == 2, "the second input"
        )
        assert len(server.requests) == 1
        runner.signal(signal.SIGCONT)
        assert (runner.end(), second.end()) == (0, 0)
        assert (runner.shown(), second.shown()) == ("".join(PIECES) + "\n", "of the next one\n")
