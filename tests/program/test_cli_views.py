"""Every view tells the same story: lists, transcripts, undone turns, an answer that is asked for
again."""

import json
import shutil
from pathlib import Path

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_run import said
from tests.program.world import World, wait_until


def complaint(world: World, *words: str, expect: int) -> str:
    with world.start(*words) as program:
        status = program.end()
        errors = program.errors()
    assert status == expect, errors
    assert "Traceback" not in errors
    return errors


def facts(world: World) -> int:
    """The number of facts, as the store counts them."""
    return int(json.loads(world.steno("verify", "--json"))["facts"])


@pytest.mark.promise(34)
@pytest.mark.promise(46)
@pytest.mark.parametrize("then", ["text", "tool", "nothing"])
def test_a_killed_turn_is_the_same_in_lists_and_in_the_transcript_and_looking_stores_nothing(
    world: World, server: ModelServer, then: str
) -> None:
    server.replies = {
        "text": [Reply(("fine",)), Reply(("half",), then="hang")],
        "tool": [
            Reply(("fine",)),
            Reply(("half",), tools=(("shell", '{"command": "echo out; sleep 60"}'),)),
        ],
        "nothing": [Reply(("fine",)), Reply(then="hang")],
    }[then]
    world.steno("run", "one", "--key", "k")
    with world.start("run", "two", "--key", "k", "--yes") as program:
        if then == "nothing":
            program_waits(world, 3)
        else:
            program.wait_shown("half")
        if then == "tool":
            program_waits(world, 5)
        running = world.sessions()[0]
        assert running["running"]
        program.kill()
    before = facts(world)
    (listed,) = world.sessions()
    shown = world.show(listed["id"])
    assert (shown["turns"][-1]["outcome"], shown["turns"][-1]["cause"]) == ("interrupted", "killed")
    assert (listed["last_turn"], listed["running"]) == ("interrupted", False)
    assert listed["messages"] == len(shown["messages"])
    assert listed["turns"] == len(shown["turns"]) == 2
    assert "interrupted" in world.steno("sessions")
    assert facts(world) == before
    server.replies = [Reply(("on",))]
    world.steno("run", "three", "--key", "k")
    (after,) = world.sessions()
    assert after["messages"] == len(world.messages(listed["id"])) == listed["messages"] + 2


def program_waits(world: World, messages: int) -> None:
    """Until so many messages are there; while it runs, the list counts what the transcript
    shows."""
    wait_until(lambda: world.sessions()[0]["messages"] == messages, f"{messages} messages")
    (listed,) = world.sessions()
    assert len(world.messages(listed["id"])) == messages


@pytest.mark.promise(34)
def test_a_turn_of_many_facts_that_was_killed_is_found_from_the_end(
    world: World, server: ModelServer
) -> None:
    tool = Reply(tools=(("shell", '{"command": "true"}'),))
    server.replies = [*[tool] * 12, Reply(("half",), then="hang")]
    with world.start("run", "many", "--yes") as program:
        program.wait_shown("half")
        program.kill()
    (listed,) = world.sessions()
    assert listed["last_turn"] == "interrupted"
    assert listed["messages"] == len(world.messages(listed["id"])) == 1 + 12 * 2 + 1


@pytest.mark.promise(57)
def test_a_second_undo_takes_the_turn_before_and_each_can_be_taken_back(
    world: World, server: ModelServer
) -> None:
    for prompt in ("one", "two", "three"):
        world.steno("run", prompt, "--key", "k")
    id = world.only_session()
    undone = [world.steno("undo", id).split("--withdraw ")[1].split()[0] for _ in range(2)]
    assert [turn["undone"] for turn in world.show(id)["turns"]] == [False, True, True]
    assert world.steno("show", id).count("(undone)") == 4
    world.steno("run", "four", "--key", "k")
    assert said(server.requests[-1]) == ["one", "four"]
    world.steno("undo", id, "--withdraw", undone[1])
    assert [turn["undone"] for turn in world.show(id)["turns"]] == [False, False, True, False]
    world.steno("undo", id, "--withdraw", undone[0])
    world.steno("run", "five", "--key", "k")
    assert said(server.requests[-1]) == ["one", "two", "three", "four", "five"]
    assert not any(turn["undone"] for turn in world.show(id)["turns"])


@pytest.mark.promise(57)
def test_an_undo_that_is_none_is_refused_and_those_there_are_are_named(world: World) -> None:
    world.steno("run", "one", "--key", "k")
    id = world.only_session()
    assert "none" in complaint(world, "undo", id, "--withdraw", "3", expect=1)
    seq = world.steno("undo", id).split("--withdraw ")[1].split()[0]
    before = facts(world)
    assert f"are {seq};" in complaint(
        world, "undo", id, "--withdraw", "99999999999999999999", expect=1
    )
    assert facts(world) == before
    assert "no turn to undo" in complaint(world, "undo", id, expect=1)
    world.steno("undo", id, "--withdraw", seq)
    assert "none" in complaint(world, "undo", id, "--withdraw", seq, expect=1)


@pytest.mark.promise(57)
def test_a_turn_that_was_killed_and_undone_is_not_continued_until_the_undo_is_taken_back(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("half",), then="hang"), Reply((" and the rest",))]
    with world.start("run", "tell me", "--key", "k") as program:
        program.wait_shown("half")
        program.kill()
    id = world.only_session()
    seq = world.steno("undo", id).split("--withdraw ")[1].split()[0]
    assert "undone" in complaint(world, "continue", id, expect=1)
    assert len(server.requests) == 1
    world.steno("undo", id, "--withdraw", seq)
    assert world.steno("continue", id) == " and the rest\n"


@pytest.mark.promise(57)
def test_a_turn_that_continues_can_be_retried_when_it_fails(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(then="hang"), Reply(status=400), Reply(("answered",))]
    with world.start("run", "the prompt", "--key", "k") as program:
        wait_until(lambda: len(server.requests) == 1, "the request")
        program.kill()
    id = world.only_session()
    assert "failed" in complaint(world, "continue", id, expect=1)
    assert world.steno("retry", id) == "answered\n"
    assert said(server.requests[-1])[0].startswith("the prompt")
    assert "nothing to retry" in complaint(world, "retry", id, expect=1)


@pytest.mark.promise(16)
def test_the_same_input_id_after_a_failure_and_a_retry_gives_the_answer_of_the_retry(
    world: World, server: ModelServer
) -> None:
    server.replies = [
        Reply(status=400),
        Reply(status=400),
        Reply(("now it works",)),
        Reply(("never",)),
    ]
    words = ("run", "please", "--key", "k", "--input-id", "m1")
    world.steno(*words, expect=1)
    world.steno(*words, expect=1)
    assert len(server.requests) == 1
    id = world.only_session()
    world.steno("retry", id, expect=1)
    world.steno("retry", id)
    world.steno("run", "another one", "--key", "k")
    assert world.steno(*words) == "now it works\n"
    assert len(server.requests) == 4
    lines = [json.loads(line) for line in world.steno(*words, "--output", "ndjson").splitlines()]
    assert [line["type"] for line in lines].count("turn_ended") == 1
    assert lines[-1]["outcome"] == "done"


@pytest.mark.promise(16)
def test_the_same_input_id_after_a_kill_and_a_continuation_gives_the_whole_answer(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("half",), then="hang"), Reply((" and the rest",))]
    words = ("run", "tell me", "--key", "k", "--input-id", "m1")
    with world.start(*words) as program:
        program.wait_shown("half")
        program.kill()
    assert world.steno(*words, expect=130) == "half\n"
    world.steno("continue", world.only_session())
    assert world.steno(*words) == "half and the rest\n"
    assert len(server.requests) == 2


def test_a_long_list_of_sessions_is_bounded(world: World) -> None:
    world.steno("run", "hi")
    for limit in ("0", "-1", "99999999999999999999", "x"):
        assert "--limit" in complaint(world, "sessions", "--limit", limit, expect=2)
    assert len(json.loads(world.steno("sessions", "--json", "--limit", "100000"))) == 1


def test_a_session_is_found_by_its_beginning_and_the_doctor_only_looks(
    world: World, tmp_path: Path
) -> None:
    out = world.steno("doctor")
    assert "none yet" in out
    assert not world.home.exists()
    world.steno("run", "hi")
    id = world.only_session()
    assert world.show(id[:5])["id"] == id
    assert "1 sessions" in world.steno("doctor")
    shutil.rmtree(world.home / "store.db-locks")
    assert "1 sessions" in world.steno("doctor")
