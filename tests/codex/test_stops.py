"""Stops, kills and restarts: of steno, of codex, of both. What was shown is kept, once, and the
next turn works on the same thread."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.codex.doings import told
from tests.codex.record import between
from tests.codex.responses_server import call, message
from tests.codex.world import LONG, CodexWorld
from tests.program.world import Program, wait_until


def turn_under_way(world: CodexWorld, prompt: str = "slow", shown: str = "word5 ") -> Program:
    world.run("hello")
    program = world.start("run", prompt, "--key", "k", "--yes")
    program.wait_shown(shown)
    return program


def check_after(world: CodexWorld, shown: str, state: str = "interrupted") -> None:
    """What was shown is stored, once; the next turn works, on the same thread, and its request has
    the partial text."""
    assert [one[:2] for one in world.said()[:3]] == [
        ("user", "hello"),
        ("assistant", "Hello there."),
        ("user", "slow"),
    ]
    [partial] = world.said()[3:]
    assert (partial[0], partial[2]) == ("assistant", state)
    assert partial[1].startswith(shown)
    assert LONG.startswith(partial[1])
    assert world.run("and") == "And so on.\n"
    assert [text for _, text, _ in world.said()] == [
        "hello",
        "Hello there.",
        "slow",
        partial[1],
        "and",
        "And so on.",
    ]
    assert len(world.threads()) == 1
    request = world.requests("and")[-1]
    said = "".join(str(one["content"]) for one in request)
    assert partial[1] in said, "the model is told what was shown"
    assert [str(one["content"]) for one in request].count("slow") == 1, (
        "the prompt is not said twice"
    )


@pytest.mark.promise(6, 12, 23)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.suite("SIGTERM")
def test_a_signal_keeps_what_was_shown_and_ends_codex(world: CodexWorld, number: int) -> None:
    with turn_under_way(world) as program:
        program.signal(number)
        program.end()
        shown = program.shown().rstrip("\n")
    world.wait_codex_gone()
    check_after(world, shown)


@pytest.mark.torture
@pytest.mark.promise(6, 12)
def test_two_ctrl_c_keep_what_was_shown_and_end_codex(world: CodexWorld) -> None:
    with turn_under_way(world) as program:
        program.signal(signal.SIGINT)
        program.signal(signal.SIGINT)
        program.end()
        shown = program.shown().rstrip("\n")
    world.wait_codex_gone()
    check_after(world, shown)


@pytest.mark.promise(6, 12)
def test_a_stop_from_another_process_keeps_what_was_shown(world: CodexWorld) -> None:
    with turn_under_way(world) as program:
        world.steno("interrupt", world.only_session())
        assert program.end() == 130
        shown = program.shown().rstrip("\n")
    assert world.said()[3][1] == shown, "what was shown is what is stored, byte for byte"
    check_after(world, shown)


@pytest.mark.promise(5, 6, 34)
def test_a_killed_steno_takes_codex_with_it_and_loses_nothing_shown(world: CodexWorld) -> None:
    with turn_under_way(world) as program:
        shown = program.kill()
    world.wait_codex_gone()
    ended = world.show(world.only_session())["turns"][-1]
    assert (ended["outcome"], ended["cause"]) == ("interrupted", "killed")
    check_after(world, shown)


@pytest.mark.promise(9, 10)
def test_a_killed_codex_fails_the_turn_and_says_so(world: CodexWorld) -> None:
    with turn_under_way(world) as program:
        world.kill_codex()
        assert program.end() == 1
        shown, errors = program.shown().rstrip("\n"), program.errors()
    assert "codex ended by itself" in errors
    assert "codex ended by itself:" not in errors, "what it said at its start is not why"
    check_after(world, shown, "incomplete")


@pytest.mark.torture
@pytest.mark.promise(5, 34)
def test_both_killed_at_once(world: CodexWorld) -> None:
    with turn_under_way(world) as program:
        server = world.app_server()
        assert server is not None
        os.kill(server, signal.SIGKILL)
        shown = program.kill()
    world.wait_codex_gone()
    partial = world.said()[3]
    assert partial[1].startswith(shown.rstrip("\n"))
    check_after(world, shown.rstrip("\n"), partial[2])


@pytest.mark.promise(19)
def test_a_command_that_was_cut_off_is_not_run_again(world: CodexWorld) -> None:
    world.run("hello")
    with world.start("run", "count", "--key", "k", "--yes", "--output", "ndjson") as program:
        program.wait_shown("line3")
        shown = outputs(program.kill())
    world.wait_codex_gone()
    [ran] = world.messages(world.only_session(), "tool")
    assert ran["state"] == "interrupted"
    assert ran["text"].startswith(shown)
    assert "line3\n" in shown
    world.run("and")
    request = "".join(str(one["content"]) for one in world.requests("and")[-1])
    assert "The outcome of this call is unknown" in request
    assert len([fact for fact in world.facts() if fact["type"] == "tool.started"]) == 1


def test_an_interrupted_command_is_stopped_and_keeps_its_output(world: CodexWorld) -> None:
    world.run("hello")
    with world.start("run", "count", "--key", "k", "--yes", "--output", "ndjson") as program:
        program.wait_shown("line3")
        world.steno("interrupt", world.only_session())
        assert program.end() == 130
        shown = outputs(program.shown())
    world.wait_codex_gone()
    [ran] = world.messages(world.only_session(), "tool")
    assert ran["state"] == "interrupted"
    assert ran["text"] == shown
    assert "line3\n" in shown
    assert "line90" not in ran["text"]
    assert world.run("and") == "And so on.\n"


@pytest.mark.promise(19)
@pytest.mark.parametrize("ended", ["stopped", "killed"])
@pytest.mark.suite("killed")
def test_codex_is_told_of_each_command_that_was_cut_off(world: CodexWorld, ended: str) -> None:
    both = [
        call("exec_command", f"c{n}", cmd=f"sleep 0.5; echo line | tr e {n}; sleep 60")
        for n in (1, 2)
    ]
    with told(world, both, [message("And so on.")]) as provider:
        with world.start("run", "go", "--key", "k", "--yes", "--output", "ndjson") as program:
            program.wait_shown("lin1")
            program.wait_shown("lin2")
            if ended == "killed":
                program.kill()
            else:
                world.steno("interrupt", world.only_session())
                assert program.end() == 130
        world.wait_codex_gone()
        world.run("and")
    note = next(
        text for text in map(json.dumps, provider.requests[-1]["input"]) if "<steno>" in text
    )
    assert [note.count(f"Call c{n}: [") for n in (1, 2)] == [1, 1]
    assert [note.count(f"lin{n}") for n in (1, 2)] == [1, 1], "with what it had said"


@pytest.mark.promise(20, 35)
def test_a_killed_turn_can_be_continued(world: CodexWorld) -> None:
    with turn_under_way(world) as program:
        program.kill()
    world.wait_codex_gone()
    world.steno("continue", world.only_session())
    assert world.said()[-1] == ("assistant", "Taken up.", "complete")
    assert len([one for one in world.said() if one[0] == "user"]) == 2
    assert len(world.threads()) == 1


@pytest.mark.torture
@pytest.mark.promise(21, 22)
def test_inputs_during_a_turn_wait_and_are_answered_in_order(world: CodexWorld) -> None:
    more = [f"and {n}" for n in range(5)]
    with world.start("run", "hold", "--key", "k", "--yes", "--output", "ndjson") as program:
        program.wait_shown("held")
        session = world.only_session()
        for said in more:
            world.steno("run", said, "--session", session, "--detach")
        assert [text for _, text, state in world.said() if state == "pending"] == more
        (world.work / "go").touch()
        program.end()
    wait_until(lambda: len(world.said()) == 4 + 2 * len(more), "all answers")
    assert [text for role, text, _ in world.said() if role == "user"] == ["hold", *more]
    assert [text for role, text, _ in world.said() if role == "assistant"][2:] == [
        "And so on."
    ] * len(more)


@pytest.mark.promise(21)
def test_an_input_that_steers_is_taken_into_the_running_turn(world: CodexWorld) -> None:
    with turn_under_way(world) as program:
        world.steno("run", "and", "--session", world.only_session(), "--steer")
        assert program.end() == 0
    users = [text for role, text, _ in world.said() if role == "user"]
    assert users == ["hello", "slow", "and"]
    assert world.said()[-1] == ("assistant", "And so on.", "complete")
    assert [one["outcome"] for one in world.show(world.only_session())["turns"]] == ["done", "done"]
    assert LONG.startswith(world.said()[3][1])


@pytest.mark.torture
@pytest.mark.promise(22)
def test_an_input_that_steers_survives_a_kill_and_is_said_once(world: CodexWorld) -> None:
    """Whether codex had it when it was killed or not: then it is sent again, or the turn that has
    it is taken up."""
    with turn_under_way(world, shown="word1") as program:
        session = world.only_session()
        with world.start("run", "and", "--session", session, "--steer") as second:
            wait_until(
                lambda: "steer" in [fact.get("mode") for fact in world.facts()],
                "the input to be stored",
            )
            program.kill()
            world.kill_codex()
            second.end()
    if world.show(session)["turns"][-1]["outcome"] == "interrupted":
        world.steno("continue", session)
    assert world.said()[-1][1:] in (("And so on.", "complete"), ("Taken up.", "complete"))
    assert [text for role, text, _ in world.said() if role == "user"] == ["hello", "slow", "and"]
    request = world.server.requests()[-1]["body"]["messages"]
    assert [str(one["content"]) for one in request].count("and") == 1


@pytest.mark.promise(21, 22)
def test_inputs_that_codex_took_and_lost_are_sent_again_once(world: CodexWorld) -> None:
    """While a command runs, codex says yes to an input that steers, and keeps it in memory only."""
    wire = world.work.parent / "wire.jsonl"
    world.run("hello")
    between(world)
    world.environment["STENO_TEST_WIRE"] = str(wire)
    with world.start("run", "hold", "--key", "k", "--yes", "--output", "ndjson") as program:
        program.wait_shown("held")
        session = world.only_session()
        for said in ("and one", "and two"):
            world.steno("run", said, "--session", session, "--steer", "--detach")
        wait_until(lambda: steers_taken(wire) == 2, "codex to say that it has both")
        program.kill()
        world.kill_codex()
    del world.environment["STENO_CODEX_PATH"], world.environment["STENO_TEST_WIRE"]
    wait_until(
        lambda: world.said()[-1] == ("assistant", "And so on.", "complete"),
        "whoever waits to go on",
    )
    assert [text for role, text, _ in world.said() if role == "user"] == [
        "hello",
        "hold",
        "and one",
        "and two",
    ]
    told = [str(one["content"]) for one in world.server.requests()[-1]["body"]["messages"]]
    assert (told.count("and one"), told.count("and two"), told.count("hold")) == (1, 1, 1)
    assert world.run("hello") == "Hello there.\n"
    again = [str(one["content"]) for one in world.requests("hello")[-1]]
    assert (again.count("and one"), again.count("and two")) == (1, 1), (
        "from then on they are in the thread"
    )
    assert len(world.threads()) == 1


def steers_taken(wire: Path) -> int:
    """How many inputs that steer codex has said yes to."""
    entries = [json.loads(line) for line in wire.read_text().splitlines()]
    asked = {entry["msg"]["id"] for entry in entries if entry["msg"].get("method") == "turn/steer"}
    return sum(
        entry["dir"] == "<" and entry["msg"].get("id") in asked and "result" in entry["msg"]
        for entry in entries
    )


def outputs(lines: str) -> str:
    """What was shown of the output of commands. Codex tells it from where it began to listen."""
    events = [json.loads(line) for line in lines.splitlines() if line.endswith("}")]
    return "".join(event["text"] for event in events if event["type"] == "tool_output")
