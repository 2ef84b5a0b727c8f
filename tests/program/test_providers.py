"""A session that goes from one provider to another and back: nothing stored changes, each gets back
what is its own, and what it is told is what it was told before."""

import json
from typing import Any

import pytest

from tests.models.rules import check
from tests.program.model_server import SIGNED, ModelServer, Reply
from tests.program.test_attach import images_in, png
from tests.program.world import World

A_THOUGHT, B_THOUGHT = "thought with a signature", "thought beside the answer"
CALLS = (("shell", '{"command": "echo out"}'), ("shell", '{"command": "exit 3"}'))
KINDS = ("anthropic", "openai-chat")


def bare(request: dict[str, Any]) -> list[Any]:
    """The messages of a request without the marks for a provider's cache, which stand elsewhere in
    every request."""
    found: list[Any] = json.loads(json.dumps(request["messages"]), object_hook=_unmarked)
    return found


def _unmarked(value: dict[str, Any]) -> dict[str, Any]:
    value.pop("cache_control", None)
    return value


def turn(world: World, kind: str, prompt: str) -> None:
    world.steno("run", prompt, "--key", "k", "--yes", "--model", f"{kind}:test")


@pytest.mark.promise(41)
@pytest.mark.promise(44)
@pytest.mark.parametrize("home", KINDS)
def test_there_and_back_again_the_request_is_as_before_and_blobs_went_only_to_their_provider(
    world: World, server: ModelServer, home: str
) -> None:
    away = KINDS[1 - KINDS.index(home)]
    theirs = {home: A_THOUGHT, away: B_THOUGHT}
    server.replies = [
        Reply(("I look. ",), tools=CALLS, thought=theirs[home]),
        Reply(("Done.",), thought=theirs[home]),
        Reply(("I too. ",), tools=CALLS, thought=theirs[away]),
        Reply(("Done too.",), thought=theirs[away]),
        Reply(("Back.",)),
    ]
    turn(world, home, "one")
    stored = world.messages(world.only_session())
    turn(world, away, "two")
    turn(world, home, "three")
    at_home, abroad, back = server.requests[1], server.requests[2], server.requests[4]
    for request, kind in zip(server.requests, (home, home, away, away, home), strict=True):
        check(kind, request)
    assert world.messages(world.only_session())[: len(stored)] == stored, "no stored fact changed"
    assert bare(back)[: len(bare(at_home))] == bare(at_home), "the request is as before"
    assert theirs[home] in json.dumps(at_home), "one's own thoughts come back"
    assert theirs[home] not in json.dumps(abroad), "and go nowhere else"
    assert theirs[away] not in json.dumps(back)
    signed = [SIGNED in json.dumps(request) for request in (at_home, abroad, back)]
    assert signed == ([True, False, True] if home == "anthropic" else [False, False, False])


@pytest.mark.promise(44)
def test_a_signature_comes_back_with_its_thought_in_every_later_request(
    world: World, server: ModelServer
) -> None:
    server.replies = [
        Reply(("I look. ",), tools=CALLS, thought=A_THOUGHT),
        Reply(("Done.",)),
        Reply(("And?",)),
    ]
    turn(world, "anthropic", "one")
    turn(world, "anthropic", "two")
    for request in server.requests[1:]:
        (block,) = [
            part for part in request["messages"][1]["content"] if part["type"] == "thinking"
        ]
        assert (block["thinking"], block["signature"]) == (A_THOUGHT, SIGNED)
    assert A_THOUGHT not in json.dumps(world.messages(world.only_session())), (
        "a thought is no speech"
    )


@pytest.mark.promise(41)
@pytest.mark.parametrize("home", KINDS)
@pytest.mark.suite("anthropic")
def test_a_detour_that_is_undone_leaves_the_request_byte_for_byte_as_if_it_had_not_been(
    world: World, server: ModelServer, home: str
) -> None:
    """With an image, signed thoughts and calls on both sides. What is compared are the bytes that
    were sent."""
    (world.work / "dot.png").write_bytes(png())
    server.replies = [
        Reply(("I look. ",), tools=CALLS, thought=A_THOUGHT),
        Reply(("Done.",), thought=A_THOUGHT),
        Reply(("straight on",)),
        Reply(("I too. ",), tools=CALLS, thought=B_THOUGHT),
        Reply(("Done too.",), thought=B_THOUGHT),
        Reply(("back",)),
    ]
    words = ("--key", "k", "--yes", "--model")
    world.steno("run", "look", "--attach", "dot.png", *words, f"{home}:test")
    other = world.copied("without")
    other.steno("run", "three", *words, f"{home}:test")
    away = KINDS[1 - KINDS.index(home)]
    world.steno("run", "two", *words, f"{away}:test")
    world.steno("undo", world.only_session())
    world.steno("run", "three", *words, f"{home}:test")
    straight, back = server.bodies[2], server.bodies[5]
    assert images_in(json.loads(back)) == images_in(json.loads(server.bodies[0])) != []
    assert (SIGNED.encode() in back) == (home == "anthropic")
    assert back == straight


@pytest.mark.promise(35, 40)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.suite("openai-chat")
def test_calls_that_settle_in_another_order_give_the_same_valid_request_in_every_process(
    world: World, server: ModelServer, kind: str
) -> None:
    """The first call goes on when the second has settled."""
    commands = ("until test -e go; do sleep 0.01; done; echo first", "echo second")
    server.replies = [
        Reply(tools=tuple(("shell", json.dumps({"command": command})) for command in commands)),
        Reply(("done",)),
    ]
    with world.start(
        "run", "both", "--key", "k", "--yes", "--model", f"{kind}:test", "--output", "ndjson"
    ) as program:
        program.wait_shown("tool_settled")
        (world.work / "go").touch()
        assert program.end() == 0
    told = json.dumps(bare(server.requests[1]))
    assert told.rindex("second\\n") < told.rindex("first\\n"), "they settled in the other order"
    turn(world, kind, "and?")
    for request in server.requests:
        check(kind, request)
    asked, again = bare(server.requests[1]), bare(server.requests[2])
    assert again[: len(asked)] == asked, "another process builds the same"
