"""Kills of the running service under several chats, with duplicate, late and reordered updates."""

import json
import shutil
import time
from typing import Any

import pytest

from tests.chance import chance_of
from tests.channels.conftest import Serve
from tests.channels.telegram_stub import Telegram
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World, wait_until

CHATS = (7, 8, 9, 10)


def asked_for(request: dict[str, Any]) -> str:
    """The last thing that a person said, in a request."""
    said = [one for one in request["messages"] if one["role"] == "user"]
    words = " ".join(json.dumps(one["content"]) for one in said).replace('"', " ").split()
    return next(
        word.strip("\\n[]") for word in reversed(words) if word.strip("\\n[]").startswith("q-")
    )


def answers(world: World) -> list[str]:
    """What was said to each input, as it is stored."""
    found: list[str] = []
    for session in world.sessions():
        for message in world.messages(session["id"]):
            if message["role"] == "user":
                found.append("")
            elif message["role"] == "assistant":
                found[-1] += message["text"]
    return found


@pytest.mark.promise(63)
@pytest.mark.promise(68)
@pytest.mark.promise(20)
@pytest.mark.promise(34)
@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.torture)])
@pytest.mark.timeout(1_200)
def test_every_input_is_answered_once_across_kills(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World, kills: int
) -> None:
    chance = chance_of("channel kills", kills)
    server.choose = lambda request: Reply(("answer ", "to ", asked_for(request)), delay_s=0.01)
    world.environment["STENO_STORE_DURABILITY"] = "process"
    gateway = serve(allow=[str(chat) for chat in CHATS])
    said: list[dict[str, Any]] = []
    for number in range(kills):
        fresh = [telegram.say(f"q-{number}-{chat}", chat, quiet=True) for chat in CHATS]
        chance.shuffle(fresh)
        said += fresh
        for message in [*fresh, *chance.sample(said, min(3, len(said)))]:
            telegram.push({"message": message})
        time.sleep(chance.random() * 0.4)
        gateway.kill()
        _forget_the_kills(world)
        gateway.start()
    everything = len(said)
    wait_until(lambda: len(_told(telegram)) == everything, "every answer", 240.0)
    wait_until(lambda: _all_settled(world), "every receipt")
    stored = answers(world)
    assert len(stored) == everything, "each input is stored once"
    told = _told(telegram)
    assert not any("Cut off" in one for one in told), "what was cut off went on"
    for answer in stored:
        assert answer in told, answer
    assert len(set(told)) == len(told), "no answer stands twice"
    assert world.steno("verify") != ""


def _told(telegram: Telegram) -> list[str]:
    """What stands in chats, without the marks of reserved messages."""
    return [one for chat in CHATS for one in telegram.texts(chat) if one != "…"]


def _all_settled(world: World) -> bool:
    told = json.loads(world.steno("deliveries", "--json"))
    return all(one["state"] not in ("owed", "sending") for one in told)


def _forget_the_kills(world: World) -> None:
    """The service waits with its channels after three kills in five minutes; here it must not."""
    shutil.rmtree(world.home / "starts", ignore_errors=True)


@pytest.mark.parametrize("messages", [60, pytest.param(1_000, marks=pytest.mark.torture)])
@pytest.mark.timeout(1_200)
def test_a_flood_in_one_chat_is_kept_in_order_and_answered(
    serve: Serve, telegram: Telegram, server: ModelServer, messages: int
) -> None:
    server.choose = lambda request: Reply((f"answer to {asked_for(request)}",))
    serve(stream="final", options={"poll_s": 2, "chat_per_s": 1_000, "edit_s": 0.1})
    for number in range(messages):
        telegram.say(f"q-{number}-7")
    expected = [f"answer to q-{number}-7" for number in range(messages)]
    wait_until(lambda: len(telegram.texts(7)) == messages, "every answer", 600.0)
    assert telegram.texts(7) == expected
