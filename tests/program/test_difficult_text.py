"""Text that breaks other stores: from a person, a model and a tool it is stored exactly, or in a
marked escape, and the session goes on."""

import json
import subprocess
import sys

import pytest

from tests.models.rules import check
from tests.program.model_server import ModelServer, Reply
from tests.program.world import WAIT_S, World

KINDS = ("openai-chat", "anthropic")
SHORT = (
    "lone a \ud800 b \udfff c",
    "nul a \x00 b \x1b[31m \x7f \u2028 c",
    "مرحبا שלום 世界 हिन्दी 🏳️‍🌈 e\u0301 \u202eabc\u202c \ufeff",
    "like our own escapes \ue000 \ufffd \\u0000 \\ud800 %00",
)
LONG = ("x" * 5_000_000,)


def say(world: World, text: bytes) -> None:
    """A prompt from standard input: an argument holds neither NUL nor 5 MB."""
    words = [sys.executable, "-m", "steno", "run", "-", "--key", "k", "--yes"]
    done = subprocess.run(
        words,
        input=text,
        env=world.environment,
        cwd=world.work,
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert b"Traceback" not in done.stderr


def stored(world: World, role: str) -> list[str]:
    return [message["text"] for message in world.messages(world.only_session(), role)]


@pytest.mark.promise(7)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("texts", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.suite("short-anthropic", "long-openai-chat")
def test_what_a_model_says_is_stored_exactly_and_the_session_goes_on(
    world: World, server: ModelServer, kind: str, texts: tuple[str, ...]
) -> None:
    world.environment["STENO_MODEL"] = f"{kind}:test"
    server.replies = [
        *(Reply((text[: len(text) // 2], text[len(text) // 2 :])) for text in texts),
        Reply(("fine",)),
    ]
    for turn in range(len(texts) + 1):
        world.steno("run", f"prompt {turn}", "--key", "k")
    assert stored(world, "assistant") == [*texts, "fine"]
    check(kind, server.requests[-1])
    assert json.loads(world.steno("verify", "--json"))["damage"] == []


@pytest.mark.promise(7)
@pytest.mark.promise(42)
@pytest.mark.parametrize("texts", [SHORT, LONG], ids=["short", "long"])
def test_what_a_person_says_is_stored_exactly_and_the_session_goes_on(
    world: World, server: ModelServer, texts: tuple[str, ...]
) -> None:
    said = [text.encode("utf-8", "surrogatepass") for text in texts]
    for data in said:
        say(world, data)
    world.steno("run", "and now?", "--key", "k")
    kept = [text.encode("utf-8", "surrogateescape") for text in stored(world, "user")]
    assert kept == [*said, b"and now?"]
    check("openai-chat", server.requests[-1])


@pytest.mark.promise(7)
@pytest.mark.parametrize("texts", [SHORT, LONG], ids=["short", "long"])
def test_what_a_tool_says_is_stored_exactly_or_marked_and_the_session_goes_on(
    world: World, server: ModelServer, texts: tuple[str, ...]
) -> None:
    said = [text.encode("utf-8", "surrogatepass") for text in texts]
    for n, data in enumerate(said):
        (world.work / f"said{n}").write_bytes(data)
    calls = tuple(("shell", json.dumps({"command": f"cat said{n}"})) for n in range(len(said)))
    server.replies = [Reply(tools=calls), Reply(("seen",)), Reply(("fine",))]
    world.steno("run", "look", "--key", "k", "--yes")
    world.steno("run", "and now?", "--key", "k")
    tools = world.messages(world.only_session(), "tool")
    assert {tool["state"] for tool in tools} == {"complete"}
    marked = [data.decode("utf-8", "replace") for data in said]
    assert sorted(tool["text"] for tool in tools) == sorted(marked), (
        "what is not UTF-8 is U+FFFD, the rest is exact"
    )
    assert stored(world, "assistant")[1:] == ["seen", "fine"]
    check("openai-chat", server.requests[-1])
