"""The command that has a session summarised: what it prints, and how it ends."""

import json

from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_views import complaint
from tests.program.world import World

LONG = "many words that say little, " * 600


def long_session(world: World, server: ModelServer, then: Reply) -> str:
    server.replies = [*(Reply((f"{number} {LONG}",)) for number in range(4)), then]
    world.environment["STENO_MODEL_CONTEXT_TOKENS"] = "40000"
    for number in range(4):
        world.steno("run", f"prompt {number}", "--key", "k")
    return world.only_session()


def test_a_session_is_summarised_and_the_sizes_are_told(world: World, server: ModelServer) -> None:
    id = long_session(world, server, Reply(("A SUMMARY OF IT",)))
    before = world.messages(id)
    printed = world.steno("compact", id)
    assert "tokens before" in printed
    assert world.messages(id) == before
    world.steno("run", "and now?", "--key", "k")
    told = json.dumps(server.requests[-1])
    assert "A SUMMARY OF IT" in told
    assert "prompt 0" not in told


def test_a_short_session_has_nothing_to_be_summarised(world: World, server: ModelServer) -> None:
    world.steno("run", "hi")
    requests = len(server.requests)
    assert "nothing was changed" in world.steno("compact", world.only_session())
    assert len(server.requests) == requests


def test_a_summary_that_fails_leaves_the_session_as_it_was(
    world: World, server: ModelServer
) -> None:
    id = long_session(world, server, Reply(status=400))
    before = world.messages(id)
    said = complaint(world, "compact", id, expect=1)
    assert "the session is as it was" in said
    assert world.messages(id) == before
    world.steno("run", "and now?", "--key", "k", expect=1)
    assert "prompt 0" in json.dumps(server.requests[-1])


def test_a_running_session_is_not_summarised(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("going",), then="hang")]
    with world.start("run", "hi") as program:
        program.wait_shown("going")
        assert "running in" in complaint(world, "compact", world.only_session(), expect=1)


def test_a_session_that_waits_for_approval_keeps_waiting(world: World, server: ModelServer) -> None:
    server.replies = [Reply(tools=(("shell", '{"command": "touch made"}'),)), Reply(("ok",))]
    with world.start("run", "hi", "--ask", "wait") as program:
        while not json.loads(world.steno("approvals", "--json")):
            pass
        program.kill()
    id = world.only_session()
    assert "waits for approval" in complaint(world, "compact", id, expect=1)
    assert len(json.loads(world.steno("approvals", "--json"))) == 1
    complaint(world, "compact", "nosuchsession", expect=2)
