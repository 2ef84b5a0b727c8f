"""What goes wrong with codex ends as a stored turn and a sentence that says what to do; the next
turn works."""

import asyncio
import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from steno.runtimes.codex.process import CodexServer, Patience, Unstartable
from steno.tools.child import Command
from tests.codex.world import CONFIG, LONG, CodexWorld, real_codex
from tests.program.test_cli_views import complaint


def failed(world: CodexWorld, prompt: str, *words: str) -> str:
    """Run a turn that fails; what was said about it."""
    with world.start("run", prompt, "--key", "k", *words) as program:
        assert program.end() == 1
        return program.errors()


def check_next_turn(world: CodexWorld) -> None:
    assert world.run("and") == "And so on.\n"
    assert len(world.threads()) == 1


@pytest.mark.promise(10, 11)
@pytest.mark.parametrize(
    ("prompt", "cause", "told"),
    [
        ("500", "server_error", "steno retry"),
        ("429", "rate_limited", "steno retry"),
        ("401", "no_key", "codex login"),
    ],
)
@pytest.mark.suite("500-server_error-steno retry", "401-no_key-codex login")
def test_an_error_of_the_provider(world: CodexWorld, prompt: str, cause: str, told: str) -> None:
    said = failed(world, prompt)
    assert told in said
    assert "set the key of its provider" not in said, (
        "codex has keys of its own, and says so itself"
    )
    [turn] = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ("failed", cause)
    assert world.said() == [("user", prompt, "failed"), ("assistant", "", "lost")]
    check_next_turn(world)


@pytest.mark.promise(9, 10)
def test_a_stream_that_breaks_off_is_stored_as_incomplete(world: CodexWorld) -> None:
    with world.start("run", "broken stream", "--key", "k") as program:
        assert program.end() == 1
        shown = program.shown().rstrip("\n")
    [turn] = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ("failed", "dropped")
    _, (role, text, state) = world.said()
    assert (role, text, state) == ("assistant", shown, "incomplete")
    assert text
    assert LONG.startswith(text)
    check_next_turn(world)
    told = "".join(str(message["content"]) for message in world.requests("and")[-1])
    assert f"{text}\n[This answer broke off before it was finished.]" in told


def test_a_codex_that_cannot_be_found_is_said_before_anything_is_stored(world: CodexWorld) -> None:
    world.environment["STENO_CODEX_PATH"] = str(world.work / "no-such-codex")
    with world.start("run", "hello") as program:
        assert program.end() == 2
        assert "pip install 'steno-agent[codex]'" in program.errors()
    assert world.sessions() == []


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 'no login here' >&2; exit 3", "ended by itself: no login here"),
        ("exec sleep 60", "did not answer to initialize in time"),
        ("echo nonsense; exec cat", "did not answer to initialize in time"),
    ],
)
def test_a_codex_that_does_not_start_fails_the_turn(
    world: CodexWorld, script: str, told: str
) -> None:
    program = world.work / "codex"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    world.environment |= {"STENO_CODEX_PATH": str(program), "STENO_CODEX_START_S": "1"}
    said = failed(world, "hello")
    assert told in said
    assert "path under [codex]" in said
    [turn] = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ("failed", "codex")
    world.wait_codex_gone()
    del world.environment["STENO_CODEX_PATH"], world.environment["STENO_CODEX_START_S"]
    assert world.steno("retry", world.only_session()) == "Hello there.\n"


def test_a_codex_that_ends_while_it_is_being_greeted_is_told_of_once(tmp_path: Path) -> None:
    """And not a second time by asyncio, which complains of an error that nobody came for."""
    heard: list[str] = []
    leaves = Command(("sh", "-c", "exec 1>&-; sleep 0.1; exit 3"), dict(os.environ), tmp_path)
    unread = (
        "x" * 300_000
    )  # more than a pipe holds: it is being sent when nothing is to be answered any more

    async def greet() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, told: heard.append(told["message"])
        )
        with pytest.raises(Unstartable, match="ended by itself"):
            await CodexServer.start(leaves, Patience(), unread)
        gc.collect()

    asyncio.run(greet())
    assert heard == []


def test_what_codex_complained_about_when_it_started_is_not_why_it_ended(world: CodexWorld) -> None:
    program = world.work / "codex"
    program.write_text(f'#!/bin/sh\necho "bubblewrap is missing" >&2\nexec {real_codex()} "$@"\n')
    program.chmod(0o755)
    world.environment["STENO_CODEX_PATH"] = str(program)
    with world.start("run", "slow", "--key", "k") as running:
        running.wait_shown("word5 ")
        world.kill_codex()
        assert running.end() == 1
        said = running.errors()
    assert "codex ended by itself; the prompt" in said
    assert "bubblewrap" not in said


def test_a_thread_that_is_lost_is_said_so_and_begun_anew_only_on_request(world: CodexWorld) -> None:
    world.run("hello")
    for folder in (world.codex_home / "sessions", *world.codex_home.glob("*.sqlite*")):
        shutil.rmtree(folder) if folder.is_dir() else Path(folder).unlink()
    said = failed(world, "and")
    assert "cannot resume thread" in said
    assert "--new-thread" in said
    session = world.only_session()
    assert world.show(session)["turns"][-1]["cause"] == "thread_lost"
    assert world.steno("retry", session, "--new-thread") == "And so on.\n"
    assert len(world.threads()) == 2
    request = [(one["role"], one["content"]) for one in world.requests("and")[-1]]
    assert ("user", "hello") in request
    assert ("assistant", "Hello there.") in request, (
        "the new thread knows what was said in the old one"
    )


def test_a_key_that_is_missing_is_named(world: CodexWorld) -> None:
    del world.environment["FAKE_KEY"]
    said = failed(world, "hello")
    assert "FAKE_KEY" in said
    world.environment["FAKE_KEY"] = "key"
    assert world.steno("retry", world.only_session()) == "Taken up.\n"
    request = [
        str(one["content"])
        for one in world.server.requests()[-1]["body"]["messages"]
        if one["role"] == "user"
    ]
    assert request.count("hello") == 1, "codex has the prompt already; it is not said again"


def test_a_login_that_is_missing_is_said(world: CodexWorld) -> None:
    """Codex's own provider, and nobody signed in. Codex itself would try again for as long as it
    takes."""
    own = CONFIG.format(url="").partition("[features]")[2]
    world.codex_home.joinpath("config.toml").write_text(
        f'openai_base_url = "http://127.0.0.1:9/v1"\n[features]{own}'
    )
    said = failed(world, "hello")
    assert "codex is not signed in" in said
    called = f"CODEX_HOME={world.codex_home} {real_codex()} login signs in"
    assert called in said, "this codex is not on PATH, and its home is known to steno alone"
    [turn] = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ("failed", "no_key")
    assert world.said() == [("user", "hello", "failed"), ("assistant", "", "lost")]
    world.codex_home.joinpath("config.toml").write_text(CONFIG.format(url=world.server.url))
    check_next_turn(world)


@pytest.mark.promise(10)
def test_a_provider_that_cannot_be_reached_fails_the_turn(world: CodexWorld) -> None:
    """Codex itself would wait for the network without end, and say nothing."""
    world.codex_home.joinpath("config.toml").write_text(CONFIG.format(url="http://127.0.0.1:9"))
    said = failed(world, "hello")
    assert "cannot be reached" in said
    assert "steno retry" in said
    [turn] = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ("failed", "unreachable")
    world.codex_home.joinpath("config.toml").write_text(CONFIG.format(url=world.server.url))
    check_next_turn(world)


def test_a_sandbox_that_does_not_work_here_is_said(world: CodexWorld) -> None:
    """Codex takes it for a command that failed, and goes on."""
    program = world.work / "codex"
    no_namespaces = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    program.write_text(
        f"#!/bin/sh\nexec unshare -Ur sh -c '{no_namespaces}' sh {real_codex()} \"$@\"\n"
    )
    program.chmod(0o755)
    world.environment |= {
        "STENO_CODEX_PATH": str(program),
        "STENO_CODEX_SANDBOX": "workspace-write",
    }
    with world.start("run", "echo", "--key", "k", "--yes") as running:
        assert running.end() == 0
        assert running.errors().count("sandbox under [codex]") == 1
    [call] = world.messages(world.only_session(), "tool")
    assert (call["state"], "bwrap: " in call["text"]) == ("failed", True)
    assert not (world.work / "ran").exists()
    del world.environment["STENO_CODEX_PATH"]
    check_next_turn(world)


@pytest.mark.parametrize("home", ["a file", "unreadable"])
@pytest.mark.suite("a file")
def test_a_home_of_codex_that_it_cannot_use_is_said_in_its_own_words(
    world: CodexWorld, home: str
) -> None:
    kept = world.codex_home.rename(world.work.parent / "kept")
    if home == "a file":
        world.codex_home.touch()
        wanted = "that path is not a directory"
    else:
        world.codex_home.mkdir()
        (world.codex_home / "config.toml").write_text("no toml [")
        wanted = "cannot read its configuration: "
    said = failed(world, "hello")
    assert wanted in said
    assert "<unknown>" not in said
    [turn] = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ("failed", "codex")
    world.codex_home.rename(world.work.parent / "unusable")
    kept.rename(world.codex_home)
    check_next_turn(world)


def test_a_prompt_that_is_too_long_for_codex_says_what_to_do(world: CodexWorld) -> None:
    words = [sys.executable, "-m", "steno", "run", "-", "--key", "k"]
    long = b"and " * 300_000
    ran = subprocess.run(
        words, env=world.environment, cwd=world.work, input=long, capture_output=True, check=False
    )
    assert b"put the text into a file" in ran.stderr
    [turn] = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ("failed", "input_too_long")
    assert world.run("and") == "And so on.\n"


def test_a_path_at_which_there_is_no_codex_is_named(world: CodexWorld) -> None:
    """To install one would not help: what is configured comes first."""
    world.environment |= {
        "STENO_CODEX_PATH": "/none/codex",
        "STENO_MODEL_FALLBACK": "scripted:echo",
    }
    said = complaint(world, "run", "hello", expect=2)
    assert "/none/codex" in said
    assert "STENO_CODEX_PATH" in said
    assert "take it out" in said
    told = world.steno("doctor").splitlines()
    assert "model      codex:default" in told, "nobody takes over from codex"
    [codex] = [line for line in told if line.startswith("codex ")]
    assert "none at /none/codex" in codex
