"""The OpenAPI document is true: checked by its validator, by a client that was made from it, and by
schemathesis, which asks the running service whatever the document allows and forbids."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openapi_spec_validator import validate

from steno.gateway import shapes
from steno.gateway.routes import document
from steno.gateway.serve import routes
from tests.gateway.client import Gateway, wait_until
from tests.program.model_server import ModelServer, Reply

CONFIG = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "401", "403", "404", "409", "422"]
"""
OF_OPENAI = CONFIG.replace('"401"', '"400", "401"')
"""400 is what OpenAI answers to a body without an input."""
BIN = Path(sys.executable).parent


def test_the_document_is_valid_and_describes_every_route() -> None:
    made = document(routes(), "1")
    validate(made)
    described = {(path, method) for path, item in made["paths"].items() for method in item}
    assert described == {(route.path, route.method.lower()) for route in routes()}


OURS = ("--exclude-path-regex", "^/api.*events|^/v1|^/$", "--include-path-regex")
THEIRS = ("--include-path-regex", "^/v1")
FEW = ("--phases", "fuzzing", "-n", "2")


@pytest.mark.parametrize(
    "more",
    [
        (*OURS, "^/api|^/health|^/ready|^/metrics|^/openapi", *FEW),
        (*OURS, "^/api|^/health|^/ready|^/metrics|^/openapi", "-n", "100"),
        (*THEIRS, "-n", "40"),
    ],
    ids=["few", "many", "openai"],
)
@pytest.mark.suite("few")
def test_schemathesis_finds_nothing_wrong(
    gateway: Gateway, tmp_path: Path, more: tuple[str, ...]
) -> None:
    """Streams do not end by themselves, so those are left to other tests; and so is what a wrong
    token gets, since ten of them lock the address."""
    (tmp_path / "schemathesis.toml").write_text(OF_OPENAI if "^/v1" in more else CONFIG)
    gateway.world.environment["STENO_MODEL"] = "scripted:echo"
    gateway.stop()
    gateway.start()
    gateway.say(gateway.make(name="some"), "hello", wait=10)
    words = [
        *(str(BIN / "schemathesis"), "--config-file", str(tmp_path / "schemathesis.toml")),
        *("run", f"http://127.0.0.1:{gateway.port}/openapi.json"),
        *("-H", f"Authorization: Bearer {gateway.token}", "--checks", "all"),
        *("--exclude-checks", "ignored_auth"),
        *("--generation-deterministic", "--request-timeout", "20", "--no-color", *more),
    ]
    environment = os.environ | {"HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path)}
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:]


def test_a_client_that_is_made_from_the_document_works(
    gateway: Gateway, server: ModelServer, tmp_path: Path
) -> None:
    server.replies = [Reply(("an ", "answer"))]
    (tmp_path / "openapi.json").write_bytes(gateway.ask("GET", "/openapi.json").body)
    (tmp_path / "config.yml").write_text("post_hooks: []\n")
    words = ("--path", "openapi.json", "--output-path", "made_client", "--config", "config.yml")
    generator = str(BIN / "openapi-python-client")
    made = subprocess.run(
        (generator, "generate", *words, "--meta", "none"),
        capture_output=True,
        cwd=tmp_path,
        check=False,
    )
    assert made.returncode == 0, made.stdout
    sys.path.insert(0, str(tmp_path))
    try:
        _use(gateway)
    finally:
        sys.path.remove(str(tmp_path))


def _use(gateway: Gateway) -> None:
    def called(name: str, *words: Any, **fields: Any) -> Any:
        made = importlib.import_module(f"made_client.api.default.{name}")
        return made.sync(*words, client=client, **fields)

    models: Any = importlib.import_module("made_client.models")
    client = importlib.import_module("made_client").AuthenticatedClient(
        base_url=f"http://127.0.0.1:{gateway.port}", token=gateway.token
    )
    with client:
        session = called("post_api_sessions", body=models.NewSession(title="made")).id
        said = models.NewInput(text="hello")
        finished = called("post_api_sessions_id_inputs", session, body=said, wait=10)
        assert (finished.text, finished.turn.outcome) == ("an answer", "done")
        shown = called("get_api_sessions_id", session)
        assert [one.role for one in shown.messages] == ["user", "assistant"]
        listed = called("get_api_sessions", title="MADE")
        assert [one.id for one in listed.sessions] == [session]
        assert called("get_api_sessions", running=True).sessions == []


def test_answers_look_as_the_document_says(gateway: Gateway, server: ModelServer) -> None:
    def strictly(kind: type[Any], path: str) -> Any:
        found = gateway.ask("GET", path).json()
        again = msgspec.to_builtins(msgspec.convert(found, kind))
        pruned = json.loads(json.dumps(found))
        assert _same(pruned, again), path
        return found

    server.replies = [Reply(tools=(("shell", '{"command": "true"}'),)), Reply(("done",))]
    session = gateway.make(title="all")
    gateway.say(session, "run it")
    wait_until(lambda: bool(gateway.ask("GET", "/api/approvals").json()["approvals"]), "a question")
    strictly(shapes.ApprovalList, "/api/approvals")
    strictly(shapes.SessionShown, f"/api/sessions/{session}")
    strictly(shapes.SessionPage, "/api/sessions")
    strictly(shapes.UsagePage, "/api/usage")
    gateway.ask("POST", f"/api/sessions/{session}/interrupt", {})


def _same(found: Any, typed: Any) -> bool:
    """Whether every field that was given is in the type, with its value. What the type has besides
    may be left out."""
    if isinstance(found, dict):
        return all(name in typed and _same(value, typed[name]) for name, value in found.items())
    if isinstance(found, list):
        return len(found) == len(typed) and all(map(_same, found, typed))
    return bool(found == typed)
