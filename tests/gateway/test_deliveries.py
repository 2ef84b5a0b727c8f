"""A person tries a delivery again that failed, and gives one up that is owed, from the page."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.client import Answer, Gateway, wait_until
from tests.program.model_server import ModelServer, Reply
from tests.program.receiver import Receiver, configure, states
from tests.program.world import World

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


@pytest.fixture
def gateway(
    world: World, server: ModelServer, receiver: Receiver, tmp_path: Path
) -> Iterator[Gateway]:
    """It knows a channel."""
    configure(world, receiver)
    server.replies = [Reply(("an ", "answer"))]
    running = Gateway(world, tmp_path)
    try:
        yield running
    finally:
        running.close()


def shown(gateway: Gateway) -> tuple[str, list[str]]:
    """The page, and what can be done on it."""
    page = gateway.ask("GET", "/deliveries").body.decode()
    return page, re.findall(r'action="(/deliveries/[^"]+)"', page)


def do(gateway: Gateway, act: str) -> Answer:
    own = {"Origin": f"http://127.0.0.1:{gateway.port}"}
    return gateway.ask("POST", act, b"", FORM | own)


@pytest.mark.promise(14)
def test_what_failed_is_sent_again_once_with_the_same_text_under_the_same_key(
    gateway: Gateway, world: World, receiver: Receiver
) -> None:
    receiver.acts = [400, 200]
    world.steno("run", "hi", "--deliver", "phone", expect=0)
    wait_until(lambda: [state for state, _ in states(world)] == ["refused"], "the refusal")
    page, [again] = shown(gateway)
    assert "Try again" in page
    assert do(gateway, again).status == 303
    wait_until(lambda: ("delivered", "") in states(world), "the second try")
    assert do(gateway, again).status == 303, "a second click"
    assert [state for state, _ in states(world)] == ["delivered", "refused"]
    assert len(receiver.sent) == 2
    assert receiver.sent[0].told == receiver.sent[1].told
    assert receiver.sent[1].told["text"] == "an answer"
    assert receiver.keys() == {receiver.sent[0].key: 2}
    delivered = [one for one in shown(gateway)[1] if one != again]
    assert delivered == [], "what arrived is not tried again"
    counted = gateway.ask("GET", "/metrics").body.decode().splitlines()
    assert 'steno_deliveries_total{outcome="delivered"} 1.0' in counted, "by this process"


@pytest.mark.promise(14)
def test_what_is_given_up_is_not_tried_any_more_and_may_be_tried_again(
    gateway: Gateway, world: World, receiver: Receiver
) -> None:
    receiver.acts = [503, 503, 503, 503, 200]
    world.steno("run", "hi", "--deliver", "phone", expect=0)
    wait_until(lambda: any(cause for _, cause in states(world)), "a first try")
    page, [give_up] = shown(gateway)
    assert "Give up" in page
    wait_until(lambda: do(gateway, give_up).status == 303, "no try to be under way")
    assert states(world) == [("expired", "given up")]
    assert do(gateway, give_up).status == 409
    gateway.kill()
    gateway.start()
    tried = len(receiver.sent)
    _, [again] = shown(gateway)
    receiver.acts = [200]
    assert do(gateway, again).status == 303
    wait_until(lambda: ("delivered", "") in states(world), "it to arrive")
    assert len(receiver.sent) == tried + 1


def test_a_delivery_that_is_none_is_refused_in_words(gateway: Gateway) -> None:
    session = gateway.make()
    for act in ("again", "give-up"):
        answer = do(gateway, f"/deliveries/{session}/1/{act}")
        assert answer.status == 409
        assert b"delivery 1 of session" in answer.body
    assert do(gateway, f"/deliveries/{session}/1/forget").status == 404
