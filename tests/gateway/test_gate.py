"""Nobody gets in who does not belong: each check on the running service, the first two made from
the table of routes."""

import json
import re
import signal
import time
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from steno.gateway.routes import Route
from steno.gateway.serve import routes
from tests.gateway.client import Answer, Gateway
from tests.program.model_server import ModelServer, Reply

PLACES = {
    "act": "run",
    "id": "abcdefghijklm",
    "seq": "3",
    "turn": "3",
    "response": "resp_a_3",
    "model": "steno",
    "n": "0",
    "version": "any",
    "file": "app.js",
    "name": "builds",
    "job": "nothing",
}
OPEN = {"/health": 200, "/login": 200, "/page/{version}/{file}": 200, "/hooks/{name}": 401}
"""The routes without a token. A hook wants a signature; a form without an origin is refused at the
login, too."""


def path_of(route: Route) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: PLACES[found[1]], route.path)


@pytest.mark.promise(65)
def test_every_route_but_health_refuses_who_has_no_valid_token(gateway: Gateway) -> None:
    for route in routes():
        expected = OPEN[route.path] if route.scope is None else 401
        expected = 403 if route.path == "/login" and route.method == "POST" else expected
        body: object = {} if route.body is not None else None
        answer = gateway.ask(route.method, path_of(route), body, token=None)
        assert answer.status == expected, route
        assert not any(name.startswith("access-control") for name in answer.headers), route
    assert {route.path for route in routes() if route.scope is None} == OPEN.keys()


@pytest.mark.promise(65)
def test_the_scope_of_a_route_is_that_of_the_stored_token(gateway: Gateway) -> None:
    reader = gateway.world.steno("gateway", "token", "add", "reader", "--scope", "read").strip()
    for route in routes():
        if route.scope not in (None, "read"):
            body: object = {} if route.body is not None else None
            answer = gateway.ask(route.method, path_of(route), body, token=reader)
            said = answer.json()
            kind = said["error"]["code"] if "error" in said else said["title"]
            assert (answer.status, kind) == (403, "scope"), route


@pytest.mark.promise(65)
def test_a_revoked_token_is_refused_at_once_and_its_stream_ends_within_a_second(
    gateway: Gateway,
) -> None:
    session = gateway.make()
    stream = gateway.events(session)
    assert next(stream).name == "hello"
    gateway.world.steno("gateway", "token", "revoke", "test")
    began_s = time.monotonic()
    assert list(stream) == []
    assert time.monotonic() - began_s < 1.5
    assert gateway.ask("GET", "/api/sessions").status == 401


@pytest.mark.promise(66)
def test_another_host_another_origin_and_a_preflight_are_refused(gateway: Gateway) -> None:
    def asked(**headers: str) -> int:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return gateway.ask("GET", "/api/sessions", headers=sent).status

    own = f"127.0.0.1:{gateway.port}"
    assert asked(Host=own) == 200
    assert asked(Host="steno.example") == 421
    assert asked(Host=f"localhost.evil.example:{gateway.port}") == 421
    assert asked(Host="127.0.0.1:1") == 421
    assert asked(Origin=f"http://{own}") == 200
    assert asked(Origin="http://evil.example") == 403
    assert asked(Origin="null") == 403
    assert asked(Sec_Fetch_Site="cross-site") == 403
    assert asked(X_Forwarded_For="1.2.3.4") == 403
    assert gateway.ask("OPTIONS", "/api/sessions").status == 403


def test_wrong_tokens_are_slowed_down(gateway: Gateway) -> None:
    tried = [gateway.ask("GET", "/ready", token=f"st_{i}").status for i in range(12)]
    assert tried == [401] * 10 + [429] * 2


def test_bodies_that_cannot_be_read_or_are_too_large_store_nothing(gateway: Gateway) -> None:
    session = gateway.make()
    path = f"/api/sessions/{session}/inputs"
    assert gateway.ask("POST", path, b"{").status == 400
    assert gateway.ask("POST", path, b'{"text": 5}').status == 400
    assert gateway.ask("POST", path, {"text": "x", "more": 1}).status == 400
    assert gateway.ask("POST", path, {"text": " "}).status == 400
    plain = {"Content-Type": "text/plain"}
    assert gateway.ask("POST", path, b'{"text": "x"}', headers=plain).status == 415
    assert gateway.ask("POST", "/api/sessions", b"{" + b" " * (2 << 20) + b"}").status == 413
    assert gateway.ask("GET", f"/api/sessions/{session}").json()["messages"] == []


@pytest.mark.promise(64)
def test_a_stranger_reaches_no_model_leaves_no_text_and_learns_of_nobody(
    gateway: Gateway, server: ModelServer
) -> None:
    session, words = gateway.make(title="mine"), "let the quokka in"

    def tried(path: str, token: str | None) -> Answer:
        return gateway.ask("POST", path, {"text": words}, token=token)

    for token in (None, "st_wrong"):
        there = tried(f"/api/sessions/{session}/inputs", token)
        nowhere = tried("/api/sessions/aaaaaaaaaaaaa/inputs", token)
        assert (there.status, there.body) == (401, nowhere.body), "as if it were not there"
        assert session.encode() not in there.body
    assert gateway.ask("GET", f"/api/sessions/{session}").json()["messages"] == []
    gateway.stop()
    assert server.requests == []
    assert words not in gateway.program.errors()
    for file in gateway.world.home.rglob("*"):
        assert not file.is_file() or words.encode() not in file.read_bytes(), file


@pytest.mark.promise(65)
def test_no_token_is_in_the_store_the_log_an_error_a_url_or_what_a_tool_sees(
    gateway: Gateway, server: ModelServer
) -> None:
    gateway.world.environment["STENO_GATEWAY_APPROVAL"] = "allow"
    gateway.stop()
    gateway.start()
    looks = json.dumps({"command": "env; cat /proc/$PPID/environ | tr '\\0' '\\n'"})
    server.replies = [Reply(tools=(("shell", looks),)), Reply(("seen",))]
    said = gateway.say(gateway.make(), "look", wait=20).json()
    (seen,) = [one["text"] for one in said["messages"] if one["role"] == "tool"]
    assert "STENO_HOME=" in seen or "PATH=" in seen
    assert gateway.token not in seen
    wrong = gateway.ask("GET", "/api/sessions", token="st_wrong")
    assert b"st_wrong" not in wrong.body
    in_url = f"/api/sessions?token={gateway.token}&access_token={gateway.token}"
    assert gateway.ask("GET", in_url, token=None).status == 401
    gateway.stop()
    assert gateway.token not in gateway.program.errors()
    assert "st_wrong" not in gateway.program.errors()
    secret = gateway.token.encode()
    for file in gateway.world.home.rglob("*"):
        if file.is_file():
            assert secret not in file.read_bytes(), file
    assert (gateway.world.home / "tokens.json").stat().st_mode & 0o777 == 0o600


def test_another_address_needs_a_token_first_and_is_then_a_name_of_ours(gateway: Gateway) -> None:
    gateway.stop()

    def served(listen: str, *hosts: str) -> list[int]:
        """What requests for these hosts get, and what the link of the page gets."""
        with gateway.world.start("gateway", "--listen", f"{listen}:{gateway.port}") as program:
            program.wait_shown("listens on")
            link = gateway.world.steno("gateway", "open", "--no-browser").splitlines()[0]
            found = []
            for host in (*hosts, urlsplit(link).netloc):
                with closing(HTTPConnection(listen, gateway.port, timeout=10)) as wire:
                    wire.request("GET", "/login", headers={"Host": host})
                    found.append(wire.getresponse().status)
            program.signal(signal.SIGTERM)
            program.end()
            return found

    assert served("127.0.0.2", f"127.0.0.2:{gateway.port}", "steno.example") == [200, 421, 200]
    assert served("0.0.0.0", f"0.0.0.0:{gateway.port}") == [421, 200]
    gateway.world.steno("gateway", "token", "revoke", "test")
    said = gateway.world.steno("gateway", "--listen", "0.0.0.0:0", expect=2)
    assert said == ""


def test_wrong_codes_at_the_login_are_slowed_down(gateway: Gateway) -> None:
    own = f"http://127.0.0.1:{gateway.port}"
    headers = {"Origin": own, "Content-Type": "application/x-www-form-urlencoded"}
    tried = [
        gateway.ask("POST", "/login", b"code=st_wrong", headers, token=None).status
        for _ in range(12)
    ]
    assert tried == [401] * 10 + [429] * 2
