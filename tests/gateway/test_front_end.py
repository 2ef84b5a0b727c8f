"""A front end of OpenAI's API that others wrote, from the package index: `llm`, installed apart.
It knows nothing of steno but an address, a token and the name of a model."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.gateway.client import Gateway
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World

RELEASE = "llm==0.36"
FOLDER = Path(sys.prefix) / "front-end"
LIMIT_S = 300

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif(bool(os.environ.get("STENO_TESTS_OFFLINE")), reason="no package index"),
]


@pytest.fixture(scope="module")
def llm() -> str:
    """Where it is installed, once."""
    there = FOLDER / "bin" / "llm"
    if not there.exists():
        venv.create(FOLDER, clear=True, with_pip=True)
        install = [str(FOLDER / "bin" / "python"), "-m", "pip", "install", "--quiet", RELEASE]
        subprocess.run(install, check=True, capture_output=True, timeout=LIMIT_S)
    return str(there)


def test_a_chat_with_it_is_streamed_goes_on_and_is_kept(
    gateway: Gateway, server: ModelServer, world: World, tmp_path: Path, llm: str
) -> None:
    server.replies = [Reply(("Paris", ", of course.")), Reply(("About two million.",))]
    (tmp_path / "extra-openai-models.yaml").write_text(
        "- model_id: steno\n  model_name: steno\n  api_key_name: steno\n"
        f"  api_base: http://127.0.0.1:{gateway.port}/v1\n"
    )

    def ask(*words: str) -> str:
        environment = os.environ | {"LLM_USER_PATH": str(tmp_path)}
        given = [llm, "-m", "steno", "--key", gateway.token, *words]
        done = subprocess.run(
            given, capture_output=True, text=True, timeout=60, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert ask("Capital of France?") == "Paris, of course."
    assert ask("--continue", "--no-stream", "How many live there?") == "About two million."
    told = [one["content"] for one in server.requests[1]["messages"][1:]]
    assert told == ["Capital of France?", "Paris, of course.", "How many live there?"]
    kept = gateway.ask("GET", "/api/sessions?platform=http-once").json()["sessions"]
    assert [one["messages"] for one in kept] == [4, 2]
    said = [(one["role"], one["text"], one["state"]) for one in world.messages(kept[0]["id"])]
    assert said[:2] == [
        ("user", "Capital of France?", "given"),
        ("assistant", "Paris, of course.", "given"),
    ]
    assert said[-1] == ("assistant", "About two million.", "complete")
