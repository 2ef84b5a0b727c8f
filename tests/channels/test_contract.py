"""The contract of every channel, on the running program."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from steno.gateway.channels.commands import NAMES
from tests.channels.contract import GUEST, OWNER, STRANGER, SUBJECTS, Subject, running
from tests.gateway.client import Gateway
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World, wait_until

WALKER, READER = "6", "5"


class Place(NamedTuple):
    """A channel's platform, and the service that is there, for all tests of the channel: each has
    a person of its own. To start them takes longer than most of the tests."""

    subject: Subject
    gateway: Gateway
    server: ModelServer
    world: World


@pytest.fixture(scope="module", params=sorted(SUBJECTS))
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp(request.param)
    with ModelServer() as server, running(request.param, folder) as subject:
        world = World(folder, server.url)
        subject.configure(world, owners=[OWNER, WALKER], allow=[GUEST, READER])
        gateway = Gateway(world, folder)
        try:
            yield Place(subject, gateway, server, world)
        finally:
            gateway.close()


@pytest.fixture
def subject(place: Place) -> Subject:
    return place.subject


@pytest.fixture
def gateway(place: Place) -> Gateway:
    return place.gateway


@pytest.fixture
def world(place: Place) -> World:
    return place.world


@pytest.fixture
def server(place: Place) -> ModelServer:
    """As if nothing had been asked of it."""
    wait_until(lambda: place.server.in_flight == 0, "what was asked before to be over")
    place.server.choose, place.server.replies = None, [Reply(("ok",))]
    place.server.requests.clear()
    return place.server


@pytest.mark.promise(67)
@pytest.mark.promise(16)
@pytest.mark.promise(43)
def test_what_is_said_is_answered_once_however_often_it_arrives(
    subject: Subject, gateway: Gateway, server: ModelServer, world: World
) -> None:
    """Also when it is changed and taken back: that is told with what is said next."""
    server.replies = [Reply(("Hello ", "Ann."))]
    said = subject.say("hello")
    subject.wait("Hello Ann.")
    if subject.changes:
        subject.change(said, "hello and goodbye")
    if subject.deletes:
        subject.delete(said)
    subject.again(said)
    if subject.files:
        subject.attach("look", "notes.txt", b"the notes of Monday")
    else:
        subject.say("look")
    wait_until(lambda: subject.texts() == ["Hello Ann."] * 2, "the second answer")
    gateway.kill()
    subject.again(said)
    gateway.start()
    subject.say("more")
    wait_until(lambda: subject.texts() == ["Hello Ann."] * 3, "the third answer")
    assert len(server.requests) == 3
    told = str(server.requests[1]["messages"])
    assert ("hello and goodbye" in told) is subject.changes
    assert ("deleted in the chat" in told) is subject.deletes
    assert ("the notes of Monday" in told) is subject.files
    [session] = [one["id"] for one in world.sessions() if one["title"] == "hello"]
    inputs = world.messages(session, "user")
    assert [one["text"] for one in inputs] == ["hello", "look", "more"]
    names = [one["name"] for said in inputs for one in said.get("attachments", ())]
    assert names == ["notes.txt"] * subject.files


@pytest.mark.promise(64)
@pytest.mark.suite("email", "folder", "matrix", "telegram")
def test_a_stranger_gets_nothing_when_there_is_a_list(
    subject: Subject, gateway: Gateway, server: ModelServer, world: World
) -> None:
    server.replies = [Reply(("Hello.",))]
    subject.say("let me in", STRANGER)
    subject.say("hello")
    subject.wait("Hello.")
    assert subject.texts(STRANGER) == []
    assert len(server.requests) == 1
    assert "let me in" not in str(world.sessions())


@pytest.mark.promise(63)
@pytest.mark.promise(1)
@pytest.mark.suite("discord", "email", "folder", "matrix", "telegram")
def test_what_was_said_while_the_service_was_away_is_answered(
    subject: Subject, gateway: Gateway, server: ModelServer
) -> None:
    server.choose = lambda request: Reply((f"{len(request['messages'])}",))
    gateway.kill()
    for number in range(12):
        subject.say(f"backlog {number}", GUEST)
    gateway.start()
    wait_until(lambda: len(subject.texts(GUEST)) == 12, "twelve answers")
    asked = [str(request["messages"][-1]["content"]) for request in server.requests]
    assert [one.rpartition("backlog ")[2] for one in asked] == [str(n) for n in range(12)]


@pytest.mark.promise(68)
@pytest.mark.suite("folder", "slack", "telegram", "xmpp")
def test_a_long_answer_comes_in_parts_that_are_the_stored_text(
    subject: Subject, gateway: Gateway, server: ModelServer, world: World
) -> None:
    lines = [f"Line {number} of a long answer, which goes on and on." for number in range(150)]
    server.replies = [Reply(tuple(f"{line}\n\n" for line in lines))]
    subject.say("tell me everything", READER)
    wait_until(lambda: any(lines[-1] in one for one in subject.texts(READER)), "the last part")
    texts = subject.texts(READER)
    assert len(texts) > 1
    assert "\n".join(texts).split() == " ".join(lines).split()


def last_word(request: dict[str, Any]) -> Reply:
    """Answers to the last thing that was asked; a request without one is for a summary."""
    asked = re.findall(r"q-[a-z]+", str(request["messages"]))
    last = asked[-1] if asked else "nothing"
    if last == "q-fails" and not any("again" in str(one) for one in request["messages"]):
        return Reply(status=400, complaint="bad")
    if last == "q-call" and request["messages"][-1]["role"] == "user":
        return Reply(tools=(("shell", '{"command": "echo run >> ran.txt"}'),))
    return Reply(("Once upon",), then="hang") if last == "q-story" else Reply((f"To {last}.",))


class Walk:
    """Says things in a chat, each time several together, and waits for their answers."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.said: set[str] = set()

    def ask(self, *said: tuple[str, str]) -> list[str]:
        """Say each text, one behind the other; the new messages that have the parts."""
        wanted = Counter(part for _, part in said)
        before = {part: len(self._with(part)) for part in wanted}
        for text, _ in said:
            self._subject.say(text, WALKER)
            self.said.add(text.partition(" ")[0])

        def missing() -> list[str]:
            return [one for one in wanted if len(self._with(one)) < before[one] + wanted[one]]

        wait_until(
            lambda: not missing(), f"{said}: {missing()} in {self._subject.texts(WALKER)[-3:]}"
        )
        return [self._with(part)[-1] for _, part in said]

    def _with(self, part: str) -> list[str]:
        return [one for one in self._subject.texts(WALKER) if part in one]


@pytest.mark.promise(17, 23, 24)
def test_every_command_is_answered_and_does_what_it_says(
    subject: Subject, gateway: Gateway, server: ModelServer, world: World
) -> None:
    server.choose = last_word
    walk = Walk(subject)
    walk.ask(
        ("/start", "/compact summarises"),
        ("/help", "/compact summarises"),
        ("/undo", "nothing to undo"),
        ("/retry", "has no turn yet"),
        ("q-one", "To q-one."),
    )
    _, _, _, _, status, link, sessions, *_ = walk.ask(
        ("/retry", "there is nothing to retry"),
        ("/stop", "Nothing is running"),
        ("/approve", "nothing in session"),
        ("/deny 3", "Nothing was changed"),
        ("/status", "resting"),
        ("/link", "/link"),
        ("/sessions", "▸"),
        ("/jobs", "jobs"),
        ("/model", "The model is openai-chat:test"),
        ("/model openai-chat:other", "From the next message on"),
        ("q-two", "To q-two."),
    )
    [first] = re.findall(r"Session (\S+): resting", status)
    assert first in link
    assert first in sessions
    assert server.requests[-1]["model"] == "other"
    walk.ask(("q-call", "May I run shell?"))
    walk.ask(("/approve", "Allowed."), ("q-after", "To q-after."))
    assert [file.read_text() for file in world.home.rglob("ran.txt")] == ["run\n"]
    walk.ask(("q-fails", "/retry runs it again"))
    server.choose = lambda request: Reply(("Better.",))
    walk.ask(("/retry", "Better."))
    server.choose = last_word
    walk.ask(("/undo", "is taken back"), ("q-three", "To q-three."))
    assert "q-fails" not in str(server.requests[-1]["messages"])
    walk.ask(("q-story", "Once upon")) if subject.edits else subject.say("q-story", WALKER)
    wait_until(lambda: server.in_flight == 1, "the turn to run")
    wait_until(subject.active, "a sign that it was read or is answered")
    walk.ask(("/stop", "Stopping."))
    subject.wait_like("Stopped. What was said is kept.", WALKER)
    forked, _ = walk.ask(("/fork", "goes on in a copy"), ("/compact", "is summarised for the"))
    [fork] = re.findall(r"copy, (\w+)", forked)
    walk.ask(("q-four", "To q-four."))
    walk.ask(("/new", "A new session begins"), ("q-five", "To q-five."))
    assert "q-one" not in str(server.requests[-1]["messages"])
    walk.ask(
        (f"/resume {first}", f"goes on with {first}"),
        ("/resume nowhere", "no such session"),
        ("q-six", "To q-six."),
    )
    assert "q-three" in str(server.requests[-1]["messages"])
    assert walk.said >= {f"/{name}" for name in NAMES}
    said = [one["text"] for one in world.messages(first, "user")]
    assert [one.rpartition("q-")[2] for one in said][-3:] == ["three", "story", "six"]
    assert [one["text"] for one in world.messages(fork, "assistant")][-1] == "To q-four."
