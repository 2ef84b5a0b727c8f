"""What `run` prints and how it ends: exact text, notes on stderr, ndjson, steering, a session that
is deleted."""

import json
import signal

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_views import complaint
from tests.program.test_run import said
from tests.program.world import World, wait_until

SHELL = (("shell", '{"command": "echo out"}'),)


@pytest.mark.promise(9)
def test_stdout_is_the_stored_text_and_one_newline_however_many_steps_there_were(
    world: World, server: ModelServer
) -> None:
    server.replies = [
        Reply(("Looking.",), tools=SHELL),
        Reply(("half an ans",), then="close"),
        Reply(("wer",), tools=SHELL),
        Reply(("the end",)),
    ]
    out = world.steno("run", "hi", "--yes")
    stored = "".join(
        message["text"] for message in world.messages(world.only_session(), "assistant")
    )
    assert out == stored + "\n" == "Looking.half an answerthe end\n"


@pytest.mark.promise(9)
@pytest.mark.parametrize("text", ["Once upon ", "a line\n"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.suite("SIGINT-Once upon ", "SIGTERM-a line\\n")
def test_a_stopped_turn_adds_at_most_one_newline(
    world: World, server: ModelServer, text: str, number: signal.Signals
) -> None:
    server.replies = [Reply((text,), then="hang")]
    with world.start("run", "a story") as program:
        program.wait_shown(text)
        program.signal(number)
        assert program.end() == 130
        assert program.shown() == text.rstrip("\n") + "\n"


@pytest.mark.promise(10)
def test_a_break_is_told_and_going_on_is_told_only_when_it_happens(
    world: World, server: ModelServer
) -> None:
    server.replies = [
        Reply(("a",), then="close"),
        Reply(("b",), then="close"),
        Reply(("c",), then="close"),
    ]
    errors = complaint(world, "run", "hi", expect=1)
    assert errors.count("the answer broke off") == 3
    assert errors.count("asking the model to go on") == 2
    assert "the turn failed: the model's answer broke off repeatedly" in errors


def test_an_answer_that_was_cut_at_its_length_is_told(world: World) -> None:
    (world.work / "script.json").write_text('[{"text": "as far as it", "then": "length"}]')
    assert "length limit" in complaint(
        world, "run", "hi", "--model", "scripted:script.json", expect=0
    )


def test_a_lost_attempt_is_told_with_its_address_and_so_is_the_next_one(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(status=500), Reply(("at last",))]
    errors = complaint(world, "run", "hi", expect=0)
    assert f"no answer from {server.url} (server_error)" in errors
    assert "attempt 2" in errors


def test_ndjson_says_which_tool_starts_and_with_what(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("Looking.",), tools=SHELL), Reply(("done",))]
    lines = [
        json.loads(line)
        for line in world.steno("run", "hi", "--yes", "--output", "ndjson").splitlines()
    ]
    (started,) = [line for line in lines if line["type"] == "tool_started"]
    assert (started["name"], json.loads(started["arguments"])) == ("shell", {"command": "echo out"})
    (settled,) = [line for line in lines if line["type"] == "tool_settled"]
    assert (settled["call"], settled["outcome"]) == (started["call"], "returned")


@pytest.mark.promise(55)
@pytest.mark.parametrize("doing", ["streaming", "a tool", "waiting"])
def test_deleting_a_session_stops_its_running_turn_and_the_runner_says_so(
    world: World, server: ModelServer, doing: str
) -> None:
    marker = world.work / "ran"
    tool = (("shell", json.dumps({"command": f"sleep 3; touch {marker}"})),)
    server.replies = [
        Reply(("going",), tools=tool) if doing == "a tool" else Reply(("going",), then="hang")
    ]
    with world.start("run", "one", "--key", "k", "--yes") as program:
        program.wait_shown("going")
        if doing == "a tool":
            wait_until(lambda: len(server.requests) == 1 and _tool_runs(world), "the tool")
        with world.start("run", "two", "--key", "k") as waiting:
            if doing == "waiting":
                wait_until(
                    lambda: len(world.messages(world.only_session(), "user")) == 2,
                    "the second input",
                )
            else:
                waiting.kill()
            id = world.only_session()
            assert world.steno("delete", id, "--yes") == "deleted 1 session\n"
            for runner in [program, *([waiting] if doing == "waiting" else [])]:
                assert runner.end() == 130
                errors = runner.errors()
                assert f"session {id} was deleted" in errors
                assert "Traceback" not in errors
    assert world.sessions() == []
    assert not marker.exists()
    assert "no session" in complaint(world, "delete", id, "--yes", expect=2)


def _tool_runs(world: World) -> bool:
    found = world.messages(world.only_session())
    return bool(found) and bool(found[-1]["tool_calls"] or found[-1]["role"] == "tool")


@pytest.mark.promise(55)
@pytest.mark.parametrize("sample", range(3))
def test_a_session_deleted_between_two_pieces_is_told_like_any_other(
    world: World, sample: int
) -> None:
    with world.start(
        "run", "count", "--model", "scripted:pieces?n=1000000&size=4&rate=2000"
    ) as program:
        program.wait_shown("99")
        id = world.only_session()
        world.steno("delete", id, "--yes")
        assert program.end() == 130
        assert f"session {id} was deleted" in program.errors()


def test_ndjson_of_a_deleted_session_ends_with_turn_ended(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("going",), then="hang")]
    with world.start("run", "one", "--output", "ndjson") as program:
        program.wait_shown("going")
        world.steno("delete", world.only_session(), "--yes")
        assert program.end() == 130
        last = json.loads(program.shown().splitlines()[-1])
    assert (last["type"], last["outcome"], last["cause"]) == (
        "turn_ended",
        "interrupted",
        "deleted",
    )


@pytest.mark.promise(21)
def test_an_input_that_steers_is_carried_by_the_next_request_of_the_running_turn(
    world: World, server: ModelServer
) -> None:
    gate = world.work / "go"
    wait = (
        ("shell", json.dumps({"command": f"while [ ! -e {gate} ]; do sleep 0.05; done; echo out"})),
    )
    server.replies = [Reply(("Looking.",), tools=wait), Reply(("Both done.",))]
    with world.start("run", "first", "--key", "k", "--yes") as first:
        first.wait_shown("Looking.")
        with world.start("run", "and this too", "--key", "k", "--steer") as second:
            wait_until(
                lambda: len(world.messages(world.only_session(), "user")) == 2, "the second input"
            )
            gate.touch()
            assert first.end() == 0
            assert second.end() == 0
            assert second.shown() == "Both done.\n"
    assert len(server.requests) == 2
    assert said(server.requests[1]) == ["first", "and this too"]
    shown = world.show(world.only_session())
    assert len(shown["turns"]) == 1
    assert [message["turn"] for message in shown["messages"] if message["role"] == "user"] == [
        shown["turns"][0]["id"]
    ] * 2


def test_an_input_that_steers_a_session_at_rest_begins_a_turn(world: World) -> None:
    assert world.steno("run", "hello", "--key", "k", "--steer") == "ok\n"


@pytest.mark.promise(16)
def test_a_steering_input_given_again_gives_the_answer_from_where_it_was_taken(
    world: World, server: ModelServer
) -> None:
    gate = world.work / "go"
    wait = (
        ("shell", json.dumps({"command": f"while [ ! -e {gate} ]; do sleep 0.05; done; echo out"})),
    )
    server.replies = [Reply(("Looking.",), tools=wait), Reply(("Both done.",))]
    words = ("run", "and this too", "--key", "k", "--steer", "--input-id", "s1")
    with world.start("run", "first", "--key", "k", "--yes") as first:
        first.wait_shown("Looking.")
        with world.start(*words) as second:
            wait_until(
                lambda: len(world.messages(world.only_session(), "user")) == 2, "the second input"
            )
            gate.touch()
            assert second.end() == 0
        assert first.end() == 0
    assert world.steno(*words) == "Both done.\n"
    assert len(server.requests) == 2


def test_a_signal_to_one_that_follows_another_process_lets_it_leave(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("going",), then="hang")]
    words = ("run", "one", "--key", "k", "--input-id", "m1")
    with world.start(*words) as runner:
        runner.wait_shown("going")
        with world.start(*words) as follower:
            follower.wait_shown("going")
            follower.signal(signal.SIGTERM)
            assert follower.end() == 130
            assert "elsewhere" in follower.errors()
        assert runner.process.poll() is None
        assert world.sessions()[0]["running"]
