"""Programs that push what they say, on the running service."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from steno.gateway.platforms.hook import sign
from tests.gateway.client import Answer, Gateway
from tests.program.model_server import ModelServer
from tests.program.world import World, wait_until

SECRET = "a-secret-of-many-letters"


@pytest.fixture
def gateway(world: World, tmp_path: Path) -> Iterator[Gateway]:
    world.environment["HOOK_SECRET"] = SECRET
    channel = {"kind": "hook", "token_env": "HOOK_SECRET", "allow": ["ci"]}
    world.environment["STENO_CHANNELS"] = json.dumps({"builds": channel})
    one = Gateway(world, tmp_path)
    try:
        wait_until(lambda: push(one, "", key="probe").status != 503, "the hook")
        yield one
    finally:
        one.close()


def push(
    gateway: Gateway, text: str, key: str = "k1", secret: str = SECRET, person: str = "ci"
) -> Answer:
    body = json.dumps({"text": text, "person": person}).encode()
    now = str(int(time.time()))
    headers = {
        "Idempotency-Key": key,
        "X-Steno-Timestamp": now,
        "X-Steno-Signature": sign(secret.encode(), now, key, body),
    }
    return gateway.ask("POST", "/hooks/builds", body, headers, token=None)


@pytest.mark.promise(16)
@pytest.mark.promise(67)
def test_what_is_pushed_is_stored_before_it_is_acknowledged_and_once_for_ever(
    gateway: Gateway, server: ModelServer, world: World
) -> None:
    assert push(gateway, "the build failed").status == 202
    [session] = world.sessions()
    assert push(gateway, "the build failed").status == 202
    gateway.kill()
    gateway.start()
    wait_until(lambda: push(gateway, "the build failed").status == 202, "the hook again")
    said = [one["text"] for one in world.messages(session["id"], "user")]
    assert said == ["the build failed"]
    # A turn that the kill cut off is taken up again: a second request, and no second input.
    wait_until(lambda: world.messages(session["id"], "assistant") != [], "the answer")
    assert len(server.requests) in (1, 2)
    assert len(world.messages(session["id"], "user")) == 1


@pytest.mark.promise(64)
def test_who_has_no_secret_or_is_not_listed_gets_nowhere(
    gateway: Gateway, server: ModelServer, world: World
) -> None:
    assert push(gateway, "x", secret="another-secret-here").status == 401
    assert push(gateway, "x", secret="").status == 401
    assert gateway.ask("POST", "/hooks/builds", {"text": "x"}, token=None).status == 401
    assert gateway.ask("POST", "/hooks/none", {"text": "x"}, token=None).status == 401
    assert gateway.ask("POST", f"/hooks/builds?token={gateway.token}", {}, token=None).status == 401
    assert push(gateway, "x", person="eve").status == 202  # taken, and refused without a word
    assert world.sessions() == []
    assert server.requests == []


def test_a_token_from_a_url_opens_nothing(gateway: Gateway) -> None:
    """The attack: a link that carries a token makes the service act, or takes it elsewhere."""
    for path in ("/api/sessions", "/api/channels", "/api/events", "/metrics"):
        for query in (
            f"token={gateway.token}",
            f"access_token={gateway.token}",
            "gatewayUrl=http://evil",
        ):
            assert gateway.ask("GET", f"{path}?{query}", token=None).status == 401
