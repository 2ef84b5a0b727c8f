"""The contract of every channel, on the running program."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.channels.contract import GUEST, STRANGER, SUBJECTS, Subject, running
from tests.gateway.client import Gateway
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World, wait_until


@pytest.fixture(params=sorted(SUBJECTS))
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    with running(request.param, tmp_path) as one:
        yield one


@pytest.fixture
def gateway(subject: Subject, world: World, tmp_path: Path) -> Iterator[Gateway]:
    subject.configure(world, allow=[GUEST])
    one = Gateway(world, tmp_path)
    try:
        yield one
    finally:
        one.close()


@pytest.mark.promise(67)
@pytest.mark.promise(16)
def test_what_is_said_is_answered_once_however_often_it_arrives(
    subject: Subject, gateway: Gateway, server: ModelServer, world: World
) -> None:
    server.replies = [Reply(("Hello ", "Ann."))]
    said = subject.say("hello")
    subject.wait("Hello Ann.")
    subject.again(said)
    gateway.kill()
    subject.again(said)
    gateway.start()
    subject.say("more")
    wait_until(lambda: subject.texts().count("Hello Ann.") == 2, "the second answer")
    assert len(server.requests) == 2
    assert subject.texts() == ["Hello Ann.", "Hello Ann."]


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
    for number in range(20):
        subject.say(f"backlog {number}")
    gateway.start()
    wait_until(lambda: len(subject.texts()) == 20, "twenty answers")
    asked = [str(request["messages"][-1]["content"]) for request in server.requests]
    assert [one.rpartition("backlog ")[2] for one in asked] == [str(n) for n in range(20)]


@pytest.mark.promise(68)
@pytest.mark.suite("folder", "slack", "telegram", "xmpp")
def test_a_long_answer_comes_in_parts_that_are_the_stored_text(
    subject: Subject, gateway: Gateway, server: ModelServer, world: World
) -> None:
    lines = [f"Line {number} of a long answer, which goes on and on." for number in range(150)]
    server.replies = [Reply(tuple(f"{line}\n\n" for line in lines))]
    subject.say("tell me everything")
    wait_until(lambda: any(lines[-1] in one for one in subject.texts()), "the last part")
    texts = subject.texts()
    assert len(texts) > 1
    assert "\n".join(texts).split() == " ".join(lines).split()
