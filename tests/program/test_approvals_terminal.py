"""Questions on a terminal: about calls of an earlier turn too, and before something is removed for
good."""

import json

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_approvals_elsewhere import ASKS, killed_while_waiting, pending, ran
from tests.program.test_cli_terminal import terminal
from tests.program.world import World, wait_until


@pytest.mark.promise(37)
@pytest.mark.parametrize(("answer", "times"), [("y\n", 1), ("n\n", 0)])
def test_a_prompt_on_a_terminal_asks_first_about_what_waits(
    world: World, server: ModelServer, answer: str, times: int
) -> None:
    server.replies = [ASKS, Reply(("So be it.",)), Reply(("And this is new.",))]
    killed_while_waiting(world)
    with terminal(world, "run", "and now?", "--key", "k") as asked:
        asked.wait_seen("? [y/N]")
        assert "echo run >> ran.txt" in asked.seen()
        asked.type(answer)
        assert asked.end() == 0
        assert "And this is new." in asked.seen()
        assert asked.seen().count("? [y/N]") == 1
    assert ran(world) == times


@pytest.mark.promise(37)
def test_continue_on_a_terminal_asks_about_what_waits(world: World, server: ModelServer) -> None:
    server.replies = [ASKS, Reply(("It ran.",))]
    id = killed_while_waiting(world)["session"]
    with terminal(world, "continue", id) as asked:
        asked.wait_seen("? [y/N]")
        asked.type("y\n")
        assert asked.end() == 0
        assert asked.seen().count("? [y/N]") == 1
    assert ran(world) == 1


def test_nobody_is_asked_on_the_terminal_by_a_run_that_waits_or_by_a_watcher(
    world: World, server: ModelServer
) -> None:
    server.replies = [ASKS, Reply(("It ran.",))]
    with terminal(world, "run", "do it", "--ask", "wait") as waiting:
        waiting.wait_seen("steno approve")
        id = world.only_session()
        with terminal(world, "follow", id) as watching:
            watching.wait_seen("steno approve")
            assert "[y/N]" not in watching.seen() + waiting.seen()
            world.steno("approve", id)
            assert watching.end() == 0
        assert waiting.end() == 0
    assert pending(world) == []


def test_a_rule_that_allows_or_denies_asks_nobody(world: World, server: ModelServer) -> None:
    world.environment["STENO_APPROVALS_SHELL"] = "allow"
    server.replies = [ASKS, Reply(("It ran.",))]
    with terminal(world, "run", "do it") as allowed:
        assert allowed.end() == 0
        assert "[y/N]" not in allowed.seen()
    assert ran(world) == 1


@pytest.mark.promise(60)
@pytest.mark.parametrize(("answer", "stays"), [("y\n", False), ("n\n", True)])
def test_a_redaction_asks_on_a_terminal(
    world: World, server: ModelServer, answer: str, stays: bool
) -> None:
    world.steno("run", "a secret word")
    id = world.only_session()
    with terminal(world, "redact", id, "--seq", str(world.messages(id, "user")[0]["seq"])) as asked:
        asked.wait_seen("for good? [y/N]")
        asked.type(answer)
        assert asked.end() == (1 if stays else 0)
    wait_until(
        lambda: ("a secret word" in json.dumps(world.show(id))) is stays, "the text to stay or go"
    )
