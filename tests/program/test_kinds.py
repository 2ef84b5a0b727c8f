"""What the runtime says, and what went wrong, has a kind of its own in every process, and is never
anybody's speech."""

import json

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.world import World

TYPED = ["one", "two", "three", "four", "five", "six"]
ANSWERS = ["Looking. ", "It was refused.", "half an ", "answer", "cut", "well", "fine"]
OURS = (
    "Note from the runtime",
    "broke off",
    "cut off",
    "[This turn",
    "[This answer",
    "[No outcome",
    "Go on exactly",
)


@pytest.mark.promise(43)
@pytest.mark.promise(29)
@pytest.mark.parametrize("kind", ["openai-chat", "anthropic"])
@pytest.mark.suite("anthropic")
def test_errors_nudges_notes_and_placeholders_are_never_stored_as_speech(
    world: World, server: ModelServer, kind: str
) -> None:
    world.environment["STENO_MODEL"] = f"{kind}:test"
    everything_that_goes_wrong(world, server)
    sent = json.dumps(server.requests)
    for sentence in OURS[:5]:
        assert sentence in sent, "the model was told"
    stored = world.show(world.only_session())
    speech = [message for message in stored["messages"] if message["role"] != "tool"]
    assert [message["text"] for message in speech if message["role"] == "user"] == TYPED
    assert [
        message["text"] for message in speech if message["role"] == "assistant" and message["text"]
    ] == ANSWERS
    assert {message["text"] for message in speech if message["state"] == "lost"} == {""}
    assert [message["state"] for message in speech if message["role"] == "assistant"] == [
        "complete",
        "complete",
        "incomplete",
        "complete",
        "interrupted",
        "lost",
        "complete",
        "lost",
        "complete",
    ]
    (refused,) = [message for message in stored["messages"] if message["role"] == "tool"]
    assert (refused["state"], refused["text"][:7]) == ("failed", "not run")
    assert [(turn["outcome"], turn["cause"]) for turn in stored["turns"]] == [
        ("done", ""),
        ("done", ""),
        ("interrupted", "killed"),
        ("done", ""),
        ("failed", "refused"),
        ("done", ""),
    ]
    for file in sorted(world.home.rglob("*")):
        if file.is_file():
            data = file.read_bytes()
            assert not [sentence for sentence in OURS if sentence.encode() in data], file


def everything_that_goes_wrong(world: World, server: ModelServer) -> None:
    """A refused call, an answer that breaks off, a kill, a lost attempt, a failed turn, each in a
    new process."""
    server.replies = [
        Reply(("Looking. ",), tools=(("shell", '{"command": "true"}'),)),
        Reply(("It was refused.",)),
        Reply(("half an ",), then="close"),
        Reply(("answer",)),
        Reply(("cut",), then="hang"),
        Reply(status=500),
        Reply(("well",)),
        Reply(status=400),
        Reply(("fine",)),
    ]
    world.steno("run", "one", "--key", "k")
    world.steno("run", "two", "--key", "k")
    with world.start("run", "three", "--key", "k") as program:
        program.wait_shown("cut")
        program.kill()
    world.steno("run", "four", "--key", "k")
    world.steno("run", "five", "--key", "k", expect=1)
    world.steno("run", "six", "--key", "k")
