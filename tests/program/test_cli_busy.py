"""A session that runs elsewhere: what can be done is done; what cannot says who runs it, and what
to do."""

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_terminal import CTRL_D, terminal
from tests.program.test_cli_views import complaint
from tests.program.test_run import said
from tests.program.world import World


@pytest.mark.parametrize("verb", ["undo", "continue", "retry", "compact"])
def test_what_cannot_be_done_while_a_session_runs_elsewhere_says_so(
    world: World, server: ModelServer, verb: str
) -> None:
    server.replies = [Reply(("going",), then="hang")]
    with world.start("run", "one", "--key", "k") as runner:
        runner.wait_shown("going")
        id = world.only_session()
        before = world.show(id)
        errors = complaint(world, verb, id, expect=1)
        assert f"session '{id}' is running in" in errors
        assert "nothing was changed" in errors
        assert f"steno follow {id}" in errors
        assert f"steno interrupt {id}" in errors
        assert world.show(id) == before
        assert runner.process.poll() is None
    assert len(server.requests) == 1


@pytest.mark.promise(17)
def test_the_chat_and_a_command_on_one_session_take_turns(
    world: World, server: ModelServer
) -> None:
    """Two front ends: the second request holds the outcome of the first, whoever sends it."""
    server.replies = [
        Reply(("zeroth",)),
        Reply(("first ", "answer"), delay_s=0.4),
        Reply(("second answer",)),
    ]
    world.steno("run", "zero", "--key", "k")
    with terminal(world, "--plain", "--resume", world.only_session()) as chat:
        chat.wait_seen("you> ")
        chat.type("one\n")
        chat.wait_seen("first ")
        assert world.steno("run", "two", "--key", "k") == "second answer\n"
        chat.wait_seen("first answer")
        chat.type(CTRL_D)
        assert chat.end() == 0
        assert "second answer" not in chat.seen(), "each front end shows its own turn"
    assert server.most_in_flight == 1
    assert said(server.requests[2]) == ["zero", "one", "two"]
    assert said(server.requests[2], "assistant") == ["zeroth", "first answer"]
