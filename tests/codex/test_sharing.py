"""Several processes, several inputs, one session, one thread: one at a time, each once."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.codex.world import LONG, CodexWorld, real_codex
from tests.program.world import wait_until


@pytest.mark.promise(1, 2)
def test_a_prompt_is_stored_before_codex_hears_of_it(world: CodexWorld) -> None:
    """The first moment at which codex could have it is its start; the prompt is there before."""
    with world.start("run", "slow", "--key", "k") as program:
        wait_until(lambda: world.app_server() is not None, "codex to start")
        assert "slow" in [text for _, text, _ in world.said()]
        program.kill()
    world.wait_codex_gone()
    assert world.said()[0][:2] == ("user", "slow")


@pytest.mark.promise(16)
def test_the_same_input_id_gives_one_turn_and_the_same_answer(world: CodexWorld) -> None:
    first = world.run("hello", "--input-id", "i1")
    assert world.run("hello", "--input-id", "i1") == first
    assert len(world.said()) == 2
    assert len(world.requests("hello")) >= 1


@pytest.mark.promise(17)
def test_two_processes_on_one_session_take_turns(world: CodexWorld) -> None:
    world.run("hello")
    session = world.only_session()
    with world.start("run", "slow", "--session", session) as one:
        one.wait_shown("word1")
        with world.start("run", "and", "--session", session) as two:
            assert one.end() == 0
            assert two.end() == 0
            assert (one.shown(), two.shown()) == (f"{LONG}\n", "And so on.\n")
    assert [text for _, text, _ in world.said()] == [
        "hello",
        "Hello there.",
        "slow",
        LONG,
        "and",
        "And so on.",
    ]
    told = [str(message["content"]) for message in world.requests("and")[-1]]
    assert LONG in told
    assert len(world.threads()) == 1


def test_a_thread_that_another_program_has_open_is_said_to_be_busy(world: CodexWorld) -> None:
    world.run("hello")
    [thread] = world.threads()
    with holding(world, thread), world.start("run", "and", "--key", "k") as program:
        assert program.end() == 1
        assert f"another program has thread {thread} open" in program.errors()
    assert world.steno("retry", world.only_session()) == "And so on.\n"
    assert world.threads() == [thread]


def asked_of_codex(world: CodexWorld, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """What another codex, which is not ours, answers."""
    with _another(world, (method, params)) as answer:
        return answer


@contextmanager
def holding(world: CodexWorld, thread: str, *more: tuple[str, dict[str, Any]]) -> Iterator[None]:
    """Another codex, which is not ours, has the thread open, and is asked for more."""
    with _another(world, ("thread/resume", {"threadId": thread}), *more):
        yield


@contextmanager
def _another(world: CodexWorld, *more: tuple[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields its last answer."""
    environment = world.environment | {"CODEX_HOME": str(world.codex_home)}
    command = [real_codex(), "app-server"]
    with subprocess.Popen(
        command, env=environment, cwd=world.work, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        try:
            client = {
                "clientInfo": {"name": "other", "version": "0"},
                "capabilities": {"experimentalApi": True},
            }
            answer: dict[str, Any] = {}
            for id, (method, params) in enumerate((("initialize", client), *more)):
                other.stdin.write(
                    json.dumps({"id": id, "method": method, "params": params}).encode() + b"\n"
                )
                other.stdin.flush()
                while answer.get("id") != id:
                    answer = json.loads(other.stdout.readline())
            yield answer.get("result", {})
        finally:
            other.kill()


@pytest.mark.torture
@pytest.mark.promise(15)
def test_many_at_once_are_all_answered_once(world: CodexWorld) -> None:
    world.run("hello")
    session = world.only_session()
    shown: list[str] = []

    def say() -> None:
        shown.append(world.steno("run", "and", "--session", session))

    said = [threading.Thread(target=say) for _ in range(3)]
    for thread in said:
        thread.start()
    for thread in said:
        thread.join()
    assert shown == ["And so on.\n"] * 3
    assert [text for _, text, _ in world.said()][2:] == ["and", "And so on."] * 3


@pytest.mark.promise(36)
def test_a_reader_that_leaves_does_not_stop_the_turn(world: CodexWorld) -> None:
    world.run("hello")
    session = world.only_session()
    world.steno("run", "slow", "--session", session, "--detach")
    with world.start("follow", session) as reader:
        reader.wait_shown("word3")
        reader.signal(signal.SIGINT)
        reader.end()
    assert world.steno("follow", session) == f"{LONG}\n"
    assert world.show(session)["turns"][-1]["outcome"] == "done"


@pytest.mark.promise(18)
def test_a_writer_that_lost_the_session_stores_nothing_more(world: CodexWorld) -> None:
    world.run("hello")
    session = world.only_session()
    with world.start("run", "slow", "--session", session) as program:
        program.wait_shown("word1")
        world.steno("delete", session, "--yes")
        assert program.end() != 0
    world.wait_codex_gone()
    assert world.sessions() == []


@pytest.mark.torture
@pytest.mark.promise(18)
def test_a_writer_that_was_robbed_while_it_slept_adds_nothing_and_the_attempt_is_logged(
    world: CodexWorld,
) -> None:
    """Its codex has the thread as long as it lives, and whoever took the session is told so."""
    world.run("hello")
    session = world.only_session()
    with world.start("run", "slow", "--session", session) as sleeper:
        sleeper.wait_shown("word3")
        sleeper.put_to_sleep()
        for lock in (world.home / "store.db-locks").iterdir():
            lock.unlink()
        with world.start("run", "and", "--session", session) as robber:
            assert robber.end() == 1
            assert "another program has thread" in robber.errors()
        before = world.show(session)
        sleeper.signal(signal.SIGCONT)
        assert sleeper.end() == 130
        assert f"refused a write to session {session!r} with the old token" in sleeper.errors()
        shown = sleeper.shown().strip()
    assert world.show(session) == before
    assert world.said()[3][1].startswith(shown)
    world.wait_codex_gone()
    assert world.steno("retry", session) == "And so on.\n"
    assert len(world.threads()) == 1


@pytest.mark.torture
def test_a_stopped_codex_is_not_waited_for_for_ever(world: CodexWorld) -> None:
    """Codex hangs (here: it is halted). A stop ends the turn in time, with what was shown."""
    world.environment["STENO_CODEX_INTERRUPT_S"] = "1"
    world.run("hello")
    with world.start("run", "slow", "--key", "k", "--output", "ndjson") as program:
        program.wait_shown("word2")
        server = world.app_server()
        assert server is not None
        os.kill(server, signal.SIGSTOP)
        world.steno("interrupt", world.only_session())
        assert program.end() == 130
        shown = "".join(
            e["text"] for e in map(json.loads, program.shown().splitlines()) if e["type"] == "text"
        )
    world.wait_codex_gone()
    assert world.said()[-1] == ("assistant", shown, "interrupted")
