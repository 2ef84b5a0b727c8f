"""What is around sessions, on the running program: providers by name, keys, configuration, usage,
upkeep, and words that were mistyped."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.program import forking
from tests.program.model_server import ModelServer, Reply
from tests.program.world import WAIT_S, World

KEY = "sk-the-right-one"


class Listing(ThreadingHTTPServer):
    """A server that lists two models to who has the key."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Listing

    def do_GET(self) -> None:
        self.server.seen.append({key.lower(): value for key, value in self.headers.items()})
        right = self.headers.get("authorization") == f"Bearer {KEY}"
        models = [{"id": "gpt-5-mini"}, {"id": "own", "context_length": 777}]
        body = json.dumps({"data": models}).encode() if right else b"{}"
        self.send_response(200 if right else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def listing() -> Iterator[Listing]:
    with Listing() as serving:
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        yield serving
        serving.shutdown()


def configured(world: World, text: str) -> None:
    world.home.mkdir(exist_ok=True)
    (world.home / "config.toml").write_text(text)


def run(world: World, *words: str) -> tuple[int, str, str]:
    status, out, err = forking.run(words, world.environment, world.work, WAIT_S)
    return status, out.decode(), err.decode()


def test_providers_stand_side_by_side_and_one_takes_over_from_another(
    world: World, server: ModelServer
) -> None:
    with ModelServer(Reply(status=400, complaint="no")) as broken:
        configured(
            world,
            f'[model]\nfallback = ["second:b"]\n'
            f'[providers.first]\naddress = "{broken.url}"\nkey_env = "FIRST_KEY"\n'
            f'[providers.second]\naddress = "{server.url}"\nformat = "anthropic"\nkey = "k"\n'
            f'[models."second:b"]\ntemperature = 0.5\n',
        )
        assert world.steno("run", "hi", "--model", "first:a") == "ok\n"
        assert [one["model"] for one in broken.requests] == ["a"]
    assert (server.requests[0]["model"], server.requests[0]["temperature"]) == ("b", 0.5)


def test_a_request_goes_by_the_proxy_that_is_named(world: World, server: ModelServer) -> None:
    """The address does not exist: only the proxy can have answered."""
    configured(world, '[providers.far]\naddress = "http://nowhere.invalid/v1"\nkey = "k"\n')
    world.environment |= {"http_proxy": server.url.removesuffix("/v1"), "NO_PROXY": "elsewhere"}
    assert world.steno("run", "hi", "--model", "far:m") == "ok\n"
    world.environment["NO_PROXY"] = "nowhere.invalid"
    world.environment["STENO_LIMITS_ATTEMPTS_MAX"] = "1"
    world.steno("run", "hi", "--model", "far:m", expect=1)


def test_models_are_listed_with_what_is_known_favourites_first(
    world: World, listing: Listing
) -> None:
    configured(
        world,
        f'[model]\nfavourites = ["work:own"]\n[providers.work]\naddress = "{listing.url}"\n'
        f'key = "{KEY}"\nheaders = {{ x-team = "blue" }}\n',
    )
    rows = [json.loads(line) for line in world.steno("models", "work", "--json").splitlines()]
    assert [row["model"] for row in rows] == ["work:own", "work:gpt-5-mini"]
    assert (rows[0]["context_tokens"], rows[0]["favourite"]) == (777, True)
    assert (rows[1]["context_tokens"], rows[1]["price_in"]) == (400_000, 0.25)
    assert listing.seen[0]["x-team"] == "blue"


def test_a_key_is_tried_before_it_is_kept_and_can_be_let_go(world: World, listing: Listing) -> None:
    configured(world, f'[providers.work]\naddress = "{listing.url}"\n')
    world.environment["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
    for key, status, said in (("sk-wrong", 1, "not kept"), (KEY, 0, "takes it")):
        done = subprocess.run(
            (sys.executable, "-m", "steno", "login", "work"),
            input=key,
            env=world.environment,
            cwd=world.work,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert (done.returncode, said in done.stdout + done.stderr) == (status, True), done
        assert key not in done.stdout + done.stderr
    assert (world.home / "keys.json").stat().st_mode & 0o777 == 0o600
    assert len(world.steno("models", "work", "--json").splitlines()) == 2
    assert '"ok":true' in world.steno("doctor", "--json")
    assert KEY not in world.steno("config", "get")
    world.steno("logout", "work")
    world.steno("logout", "work", expect=1)
    assert run(world, "models", "work")[0] == 1


def test_a_key_of_the_configuration_is_read_and_written_and_the_rest_stays(world: World) -> None:
    configured(world, "# mine\n[limits]   # bounds\nsteps_max = 7\n")
    world.steno("config", "set", "limits.steps_max", "9")
    world.steno("config", "set", "model.favourites", "a:b, c:d")
    world.steno("config", "set", 'models."openai:gpt-4.1".effort', "high")
    text = (world.home / "config.toml").read_text()
    assert text.startswith("# mine\n[limits]   # bounds\nsteps_max = 9\n")
    assert world.steno("config", "get", "limits.steps_max") == "9\n"
    assert json.loads(world.steno("config", "get", "model.favourites")) == ["a:b", "c:d"]
    assert world.steno("config", "get", 'models."openai:gpt-4.1".effort') == "high\n"
    status, _, err = run(world, "config", "set", "limits.steps_max", "lots")
    assert (status, err) == (
        2,
        "steno: limits.steps_max = lots cannot be set: it takes a whole number; nothing was "
        "changed\n",
    )
    _, _, err = run(world, "config", "set", "limits.steps_max", "0")
    assert "it takes a whole number >= 1; nothing was changed" in err
    status, _, err = run(world, "config", "set", "limits.step_max", "9")
    assert (status, "did you mean limits.steps_max?" in err) == (2, True)
    assert (world.home / "config.toml").read_text() == text
    world.environment["EDITOR"] = "sh -c 'echo broken >> $0'"
    assert run(world, "config", "edit")[0] == 1
    assert (world.home / "config.toml").read_text() == text
    assert "broken" in (world.home / "config.toml.rejected").read_text()


def test_usage_is_told_by_day_model_and_session(world: World) -> None:
    configured(world, '[models."openai-chat:test"]\nprice_in = 1.0\nprice_out = 1000000.0\n')
    world.steno("run", "one", "--key", "k")
    world.steno("run", "two", "--key", "k", "--model", "anthropic:other")
    rows = [json.loads(line) for line in world.steno("usage", "--by", "model", "--json").split()]
    assert {row["model"]: row["calls"] for row in rows} == {
        "openai-chat:test": 1,
        "anthropic:other": 1,
    }
    (priced,) = [row for row in rows if row["cost_usd"] is not None]
    assert priced["cost_usd"] == pytest.approx(priced["output"] + priced["input"] / 1e6)
    (row,) = world.steno("usage", "--by", "session", "--json").splitlines()
    assert json.loads(row)["session"] == world.only_session()
    assert world.steno("usage").count("\n") == 1
    assert run(world, "usage", "--by", "moon")[0] == 2


def test_old_sessions_are_pruned_when_that_is_said(world: World, tmp_path: Path) -> None:
    world.steno("run", "old")
    assert run(world, "prune", "--older-than", "1d", "--yes")[2].count("nothing was deleted") == 1
    world.only_session()
    status, _, err = run(world, "prune", "--older-than", "1x")
    assert (status, "12h" in err) == (2, True)
    assert world.steno("vacuum").startswith("the store was written anew")
    for _ in range(3):
        world.steno("backup", "--into", str(tmp_path / "b"), "--keep", "2")
    (tmp_path / "b" / "steno-mine.db").touch()
    world.steno("backup", "--into", str(tmp_path / "b"), "--keep", "2")
    names = list((tmp_path / "b").iterdir())
    assert len(names) == 3, "two of ours, and a file of the person's own"
    assert run(world, "backup")[0] == 2


def test_a_message_is_named_after_its_session(world: World) -> None:
    world.steno("run", "hello")
    id = world.only_session()
    seq = world.messages(id, "user")[0]["seq"]
    assert "is out of" in world.steno("hide", id, str(seq))
    assert "is already out of" in world.steno("hide", id, "--seq", str(seq))
    forks = {world.steno("fork", id, str(seq))[:4], world.steno("fork", id, "--at", str(seq))[:4]}
    assert all(forks)
    for words in (("hide", id), ("hide", id, "1", "--seq", "2"), ("rewind", id)):
        assert run(world, *words)[0] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sesions",), "did you mean sessions?"),
        (("zzzzzz",), "steno --help lists them"),
        (("sessions", "--limit", "x"), "a number from 1 to"),
        (("show", "abc"), "no session 'abc'"),
        (("--continue", "--resume", "abcd"), "two sessions"),
        (("hide", "abcd", "x"), "'x' is no number"),
        (("run", "hi", "--model", "openruter:x"), "did you mean openrouter?"),
    ],
)
def test_a_mistake_is_told_in_words(world: World, words: tuple[str, ...], said: str) -> None:
    status, _, err = run(world, *words)
    assert status == 2
    assert said in err
    assert "carry" not in err, "what steno gives itself is not offered"
    assert "_limit" not in err


def test_completion_and_the_manual_say_what_there_is(world: World) -> None:
    for shell in ("bash", "zsh", "tcsh"):
        script = world.steno("completion", shell)
        assert "usage" in script
        assert "carry" not in script
    page = world.steno("man")
    assert page.startswith(".TH STENO 1")
    assert ".SS steno sessions" in page


def test_a_rule_for_a_tool_that_there_is_not_is_told(world: World) -> None:
    configured(world, '[approvals]\nshel = "allow"\nshell = "ask"\n')
    told = json.loads(world.steno("doctor", "--json"))["findings"]
    assert [one["said"] for one in told if one["name"] == "approvals"] == [
        "the rule 'shel' names no tool that there is"
    ]
    _, _, err = run(world, "run", "hi", "--allow", "shel:ls", "--allow", "shell:ls")
    assert err.count("there is no such tool") == 1
    assert "--allow shel:ls" in err


def test_what_is_done_is_logged_as_json_where_asked(world: World, tmp_path: Path) -> None:
    world.environment["STENO_LOG_FILE"] = str(tmp_path / "log")
    world.steno("run", "a secret prompt")
    lines = (tmp_path / "log").read_text().splitlines()
    assert json.loads(lines[0])["from"] == "steno"
    assert "secret prompt" not in "".join(lines)
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
