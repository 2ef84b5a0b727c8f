"""Kills of the running service under several chats and HTTP clients, with duplicate, late and
reordered updates."""

import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from steno.journal.state import KILLED_MAX
from tests.chance import chance_of
from tests.channels.conftest import Serve
from tests.channels.contract import OWNER as OWNER_ID
from tests.channels.contract import serving
from tests.channels.matrix_subject import MatrixSubject
from tests.channels.telegram_stub import Telegram
from tests.gateway.client import Gateway
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World, wait_until

CHATS = tuple(range(7, 27))
BACKLOG = 100
CUT_OFF = "Cut off by a restart."


def asked_for(request: dict[str, Any]) -> str:
    """The last thing that a person said, in a request."""
    said = [one for one in request["messages"] if one["role"] == "user"]
    words = " ".join(json.dumps(one["content"]) for one in said).replace('"', " ").split()
    return next(
        word.strip("\\n[]") for word in reversed(words) if word.strip("\\n[]").startswith("q-")
    )


class Caller:
    """A client over HTTP, with a session of its own: says each thing until it is accepted, twice,
    with the same key."""

    def __init__(self, gateway: Gateway, number: int) -> None:
        self._gateway, self.number = gateway, number
        made = gateway.ask("POST", "/api/sessions", {"name": f"caller {number}"})
        self.session = str(made.json()["id"])
        self._said: list[str] = []
        self._threads: list[threading.Thread] = []

    def say(self, text: str) -> None:
        self._said.append(text)
        thread = threading.Thread(target=self._until_accepted, args=(text,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _until_accepted(self, text: str) -> None:
        accepted = 0
        while accepted < 2:
            try:
                answer = self._gateway.say(self.session, text, key=text)
            except OSError:
                time.sleep(0.05)
                continue
            assert answer.status in (200, 201, 202, 503), answer.body
            accepted += answer.status < 300

    def finish(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "an input was not accepted"

    def answered(self, world: World) -> bool:
        """Whether each input is stored once and its turn is over: answered, or told as cut off."""
        shown = world.show(self.session)
        inputs = [one["text"] for one in shown["messages"] if one["role"] == "user"]
        assert len(inputs) == len(set(inputs)), "an input is stored once"
        ended = [one for one in shown["turns"] if one["outcome"]]
        return sorted(inputs) == sorted(self._said) and len(ended) >= len(inputs)


def answers(world: World, but: set[str]) -> list[str]:
    """What was said to each input of a chat, as it is stored."""
    found: list[str] = []
    for session in world.sessions():
        if session["id"] in but:
            continue
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
@pytest.mark.promise(22)
@pytest.mark.parametrize(
    ("kills", "chats"),
    [
        (10, 4),
        pytest.param(40, 12, marks=pytest.mark.torture),
        pytest.param(200, 20, marks=pytest.mark.torture),
    ],
)
@pytest.mark.timeout(2_400)
def test_every_input_is_answered_once_across_kills(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World, kills: int, chats: int
) -> None:
    """As many HTTP clients as chats. In each round a few of both speak, so that what is asked for
    does not outgrow what two cores answer."""
    chance = chance_of("channel kills", kills)
    server.choose = lambda request: Reply(("answer ", "to ", asked_for(request)), delay_s=0.01)
    world.environment["STENO_STORE_DURABILITY"] = "process"
    gateway = serve(allow=[str(chat) for chat in CHATS])
    callers = [Caller(gateway, number) for number in range(chats)]
    said: list[dict[str, Any]] = []
    for number in range(kills):
        fresh = [
            telegram.say(f"q-{number}-{chat}", chat, quiet=True)
            for chat in chance.sample(CHATS[:chats], min(4, chats))
        ]
        chance.shuffle(fresh)
        said += fresh
        for message in [*fresh, *chance.sample(said, min(3, len(said)))]:
            telegram.push({"message": message})
        for caller in chance.sample(callers, min(4, chats)):
            caller.say(f"q-{number}-http-{caller.number}")
        time.sleep(0.2 + chance.random() * 0.5)
        gateway.kill()
        _forget_the_kills(world)
        if number == kills // 2:
            for extra in range(BACKLOG if kills > 10 else 10):
                message = telegram.say(f"q-late-{extra}", CHATS[extra % chats], quiet=True)
                telegram.push({"message": message})
                said.append(message)
        gateway.start()
    for caller in callers:
        caller.finish()
    everything = len(said)
    with _telling_what_is_missing(telegram, world, said):
        wait_until(lambda: len(_told(telegram)) >= everything, "every answer", 600.0)
        wait_until(lambda: _all_settled(world), "every receipt", 120.0)
        assert len(_told(telegram)) == everything, "something was told that was not asked for"
    for caller in callers:
        wait_until(partial(caller.answered, world), "every answer over HTTP", 120.0)
    by_http = {caller.session for caller in callers}
    stored = answers(world, by_http)
    assert len(stored) == everything, "each input is stored once"
    told = [one for one in _told(telegram) if CUT_OFF not in one]
    assert len(set(told)) == len(told), "no answer stands twice"
    left = [answer for answer in stored if answer not in told]
    assert len(told) + len(left) == everything, left
    if left:
        assert len(left) <= _given_up(world, by_http), f"what was cut off goes on: {left}"
        assert len(left) <= everything / 100, left
    assert world.steno("verify") != ""


@pytest.mark.torture
@pytest.mark.promise(14, 63, 68)
@pytest.mark.parametrize("kills", [60])
@pytest.mark.timeout(2_400)
def test_no_room_of_synapse_has_a_double_or_a_stray_across_kills(
    server: ModelServer, world: World, tmp_path: Path, kills: int
) -> None:
    chance = chance_of("room kills", kills)
    people = [OWNER_ID, *(str(number) for number in range(8, 13))]
    server.choose = lambda request: Reply(("answer ", "to ", asked_for(request)), delay_s=0.01)
    matrix = MatrixSubject(tmp_path)
    said: dict[str, list[str]] = {person: [] for person in people}
    with serving(matrix, world, tmp_path) as start:
        for person in people:
            matrix.room(person)
            matrix.texts(person)  # read from here on: a first look gives a hundred events at most
        gateway = start(allow=people[1:])
        for number in range(kills):
            for person in chance.sample(people, 3):
                said[person].append(f"q-{number}-{person}")
                sent = matrix.say(said[person][-1], person)
                if chance.random() < 0.3:
                    matrix.again(sent)
            time.sleep(0.2 + chance.random() * 0.8)
            gateway.kill()
            _forget_the_kills(world)
            gateway.start()
        try:
            wait_until(
                lambda: all(len(matrix.texts(one)) >= len(said[one]) for one in people),
                "every answer",
                300.0,
            )
            wait_until(lambda: _all_settled(world), "every receipt", 120.0)
        except AssertionError as error:
            told = {text for person in people for text in matrix.texts(person)}
            asked = [text for person in people for text in said[person]]
            missing = [one for one in asked if not any(text.endswith(one) for text in told)]
            lines = [str(error), *map(str, _open(world, missing))]
            lines.append(str(gateway.ask("GET", "/api/channels").json()))
            raise AssertionError("\n".join(lines)) from error
        for person in people:
            texts = matrix.texts(person)
            assert len(texts) == len(said[person]), "one message for each, and no mark beside them"
            whole = [one for one in texts if CUT_OFF not in one]
            asked = [one.rpartition("answer to ")[2] for one in whole]
            assert len(set(asked)) == len(asked), "no answer stands twice"
            assert asked == [one for one in said[person] if one in asked], "in order"
            assert len(texts) - len(whole) <= max(1, kills / 30)
    assert world.steno("verify") != ""


def _given_up(world: World, but: set[str]) -> int:
    """How many turns may have been given up: killed, and at each of the continuations that there
    may be."""
    found = 0
    for session in world.sessions():
        if session["id"] not in but:
            killed = [one["cause"] == "killed" for one in world.show(session["id"])["turns"]]
            in_a_row = (len(list(run)) for was_killed, run in groupby(killed) if was_killed)
            found += sum(length // (KILLED_MAX + 1) for length in in_a_row)
    return found


def _told(telegram: Telegram) -> list[str]:
    """What stands in chats, without the marks of reserved messages."""
    return [one for chat in CHATS for one in telegram.texts(chat) if one != "…"]


@contextmanager
def _telling_what_is_missing(
    telegram: Telegram, world: World, said: list[dict[str, Any]]
) -> Iterator[None]:
    """A failure names what no chat shows, and how far it came in the journal."""
    try:
        yield
    except AssertionError as error:
        lines = [str(error), *_missing(telegram, world, said)]
        raise AssertionError("\n".join(lines)) from error


def _missing(telegram: Telegram, world: World, said: list[dict[str, Any]]) -> Iterator[str]:
    told = Counter(_told(telegram))
    asked = {one["text"]: one["chat"]["id"] for one in said}
    missing = [text for text in asked if not told[f"answer to {text}"]]
    expected = {f"answer to {text}" for text in asked}
    strays = [one for one in told.elements() if one not in expected or told[one] > 1]
    yield f"{len(missing)} of {len(asked)} answers are missing: {missing[:20]}"
    yield f"{len(strays)} texts were not asked for, or stand twice: {strays[:20]}"
    yield f"{telegram.pending()} updates were not acknowledged"
    yield from _open(world, missing)
    for text in missing:
        yield f"{text} of chat {asked[text]}: messages there {telegram.texts(asked[text])[-3:]}"


def _open(world: World, missing: list[str]) -> Iterator[str]:
    """What is not delivered, and how far the sessions came that have something to say."""
    yield f"missing {missing[:20]}"
    for one in json.loads(world.steno("deliveries", "--json")):
        if one["state"] != "delivered":
            yield f"delivery {one}"
    for session in world.sessions():
        shown = world.show(session["id"])
        inputs = [one["text"] for one in shown["messages"] if one["role"] == "user"]
        stuck = [text for text in missing if text in inputs]
        if stuck or session["running"]:
            outcomes = Counter((one["outcome"], one.get("cause")) for one in shown["turns"])
            runs = "runs" if session["running"] else "rests"
            yield f"session {session['id']} {session['name']} {runs}: {len(inputs)} inputs,"
            yield f"  turns {dict(outcomes)}, stuck {stuck[:10]}"


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
