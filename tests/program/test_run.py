"""`steno run` and the commands around it, on the running program with a model server that records
every request."""

import json
import signal
import time
from typing import Any

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.world import Program, World, wait_until


def said(request: dict[str, Any], role: str = "user") -> list[str]:
    """The texts of one role in a request."""
    return [
        text_of(message["content"]) for message in request["messages"] if message["role"] == role
    ]


def text_of(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


@pytest.mark.promise(1)
def test_a_prompt_can_be_read_elsewhere_when_its_first_request_arrives(
    world: World, server: ModelServer
) -> None:
    seen: list[str] = []

    def look(_: dict[str, Any]) -> None:
        seen.extend(message["text"] for message in world.messages(world.only_session()))

    server.on_request = look
    world.steno("run", "tell me a secret")
    assert seen == ["tell me a secret"]


@pytest.mark.promise(9)
@pytest.mark.promise(15)
def test_three_turns_give_three_messages_a_role_and_stdout_is_what_is_stored(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("One ", "two ", "three. ✓"))]
    shown = [world.steno("run", f"prompt {i}", "--key", "chat") for i in range(3)]
    id = world.only_session()
    assert [message["text"] for message in world.messages(id, "user")] == [
        "prompt 0",
        "prompt 1",
        "prompt 2",
    ]
    assert [message["text"] + "\n" for message in world.messages(id, "assistant")] == shown
    assert world.sessions()[0]["messages"] == len(world.messages(id)) == 6


@pytest.mark.promise(42)
def test_a_prompt_is_stored_byte_for_byte(world: World) -> None:
    prompt = "  two  spaces\ttab\r\nline\u2028 é e\u0301 \U0001f600 'quotes' \\n "
    world.steno("run", prompt)
    assert world.messages(world.only_session(), "user")[0]["text"] == prompt


def test_ndjson_has_the_shapes_of_the_contract(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("Hel", "lo")), Reply(("done",))]
    lines = [
        json.loads(line) for line in world.steno("run", "hi", "--output", "ndjson").splitlines()
    ]
    assert lines[0] == {"type": "session", "id": world.only_session()}
    texts = [line for line in lines if line["type"] == "text"]
    assert "".join(line["text"] for line in texts) == "Hello"
    assert [line["offset"] for line in texts] == [len("Hello"[: line["offset"]]) for line in texts]
    assert lines[-1] | {"detail": ""} == {
        "type": "turn_ended",
        "outcome": "done",
        "cause": "",
        "detail": "",
    }


@pytest.mark.promise(16)
def test_the_same_input_id_gives_one_turn_and_the_first_answer_again(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("first",)), Reply(("second",))]
    answers = [world.steno("run", "hi", "--key", "k", "--input-id", "m1") for _ in range(2)]
    assert answers == ["first\n", "first\n"]
    assert len(server.requests) == 1
    world.steno("run", "other text", "--key", "k", "--input-id", "m1", expect=1)
    assert len(server.requests) == 1


@pytest.mark.promise(4)
def test_a_tool_call_is_stored_before_it_runs_and_its_outcome_before_the_next_request(
    world: World, server: ModelServer
) -> None:
    looks: list[list[tuple[str, str]]] = []

    def look(_: dict[str, Any]) -> None:
        looks.append(
            [
                (message["role"], message["state"])
                for message in world.messages(world.only_session())
            ]
        )

    server.on_request = look
    server.replies = [
        Reply(("Looking.",), tools=(("shell", '{"command": "echo $((6*7))"}'),)),
        Reply(("It is 42.",)),
    ]
    out = world.steno("run", "what is 6*7?", "--yes")
    assert out.endswith("It is 42.\n")
    assert looks[1] == [("user", "complete"), ("assistant", "complete"), ("tool", "complete")]
    results = [message for message in server.requests[1]["messages"] if message["role"] == "tool"]
    assert [text_of(result["content"]) for result in results] == ["42\n"]


def test_without_yes_and_without_a_terminal_a_tool_is_refused_and_that_is_recorded(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(tools=(("shell", '{"command": "touch made"}'),)), Reply(("No.",))]
    world.steno("run", "make it")
    assert not (world.work / "made").exists()
    (tool,) = world.messages(world.only_session(), "tool")
    assert tool["state"] == "failed"
    assert "approval" in tool["text"]


@pytest.mark.promise(10)
def test_a_stream_without_its_end_marker_is_stored_as_incomplete_and_marked_in_the_next_request(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("half an ans",), then="close"), Reply(("wer",))]
    with world.start("run", "hi") as program:
        assert program.end() == 0
        assert "broke off" in program.errors()
        shown = program.shown()
    first, second = world.messages(world.only_session(), "assistant")
    assert (first["text"], first["state"]) == ("half an ans", "incomplete")
    assert second["state"] == "complete"
    assert "half an ans" in shown
    (partial,) = [text for text in said(server.requests[1], "assistant") if "half an ans" in text]
    assert partial != "half an ans"


@pytest.mark.promise(8)
@pytest.mark.promise(10)
def test_attempts_that_got_nothing_are_recorded_as_lost_and_retried_a_bounded_number_of_times(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(then="eof"), Reply(status=500), Reply(("at last",))]
    assert world.steno("run", "hi") == "at last\n"
    states = [message["state"] for message in world.messages(world.only_session(), "assistant")]
    assert states == ["lost", "lost", "complete"]
    assert len(server.requests) == 3


@pytest.mark.promise(24)
def test_a_prompt_whose_turn_failed_is_stored_as_failed_and_absent_from_later_requests(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(status=400), Reply(("fine",))]
    world.steno("run", "the failing one", "--key", "k", expect=1)
    world.steno("run", "the next one", "--key", "k")
    first, second = world.messages(world.only_session(), "user")
    assert (first["state"], second["state"]) == ("failed", "complete")
    assert said(server.requests[1]) == ["the next one"]
    server.replies += [Reply(("retried",))]
    world.steno("run", "break", "--key", "k")


@pytest.mark.promise(24)
def test_retry_runs_a_failed_prompt_again(world: World, server: ModelServer) -> None:
    server.replies = [Reply(status=400), Reply(("now it works",))]
    world.steno("run", "please", "--key", "k", expect=1)
    assert world.steno("retry", world.only_session()) == "now it works\n"
    assert said(server.requests[1]) == ["please"]


@pytest.mark.promise(57)
def test_undo_takes_the_last_turn_out_of_the_requests_and_can_be_taken_back(
    world: World, server: ModelServer
) -> None:
    for prompt in ("one", "two"):
        world.steno("run", prompt, "--key", "k")
    id = world.only_session()
    undone = world.steno("undo", id)
    world.steno("run", "three", "--key", "k")
    assert said(server.requests[-1]) == ["one", "three"]
    world.steno("undo", id, "--withdraw", undone.split()[-4])
    world.steno("run", "four", "--key", "k")
    assert said(server.requests[-1]) == ["one", "two", "three", "four"]


@pytest.mark.promise(12)
@pytest.mark.promise(6)
def test_ctrl_c_keeps_the_partial_text_and_marks_it_in_the_next_request(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("Once ", "upon "), then="hang"), Reply(("ok",))]
    with world.start("run", "a story", "--key", "k") as program:
        program.wait_shown("Once upon ")
        program.signal(signal.SIGINT)
        assert program.end() == 130
        shown = program.shown()
    id = world.only_session()
    (partial,) = world.messages(id, "assistant")
    assert (partial["text"] + "\n", partial["state"]) == (shown, "interrupted")
    (turn,) = world.show(id)["turns"]
    assert (turn["outcome"], turn["cause"]) == ("interrupted", "user")
    world.steno("run", "go on", "--key", "k")
    (before,) = [text for text in said(server.requests[1], "assistant") if "Once upon" in text]
    assert before != "Once upon "


@pytest.mark.promise(23)
def test_interrupt_from_another_process_stops_the_running_turn_only(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("going",), then="hang"), Reply(("next",))]
    with world.start("run", "a story", "--key", "k") as program:
        program.wait_shown("going")
        world.steno("interrupt", world.only_session())
        assert program.end() == 130
    assert "no turn" in world.steno("interrupt", world.only_session())
    assert world.steno("run", "again", "--key", "k") == "next\n"


@pytest.mark.promise(17)
@pytest.mark.promise(21)
def test_two_processes_on_one_session_give_serial_requests_in_order_of_admission(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("first answer",), delay_s=0.5), Reply(("second answer",))]
    with world.start("run", "first", "--key", "k") as one:
        wait_until(lambda: len(server.requests) == 1, "the first request")
        assert world.steno("run", "second", "--key", "k") == "second answer\n"
        assert one.end() == 0
        assert one.shown() == "first answer\n"
    assert server.most_in_flight == 1
    assert said(server.requests[1]) == ["first", "second"]
    assert said(server.requests[1], "assistant") == ["first answer"]


def test_an_unknown_id_names_near_matches_and_loses_nothing(world: World) -> None:
    world.steno("run", "hi")
    id = world.only_session()
    with world.start("show", id[:-1] + ("a" if id[-1] != "a" else "b")) as program:
        assert program.end() == 2
        assert id in program.errors()


def test_an_unreachable_model_fails_the_turn_and_says_what_was_kept(world: World) -> None:
    world.environment |= {
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "STENO_LIMITS_ATTEMPTS_MAX": "2",
    }
    with world.start("run", "hi") as program:
        assert program.end() == 1
        errors = program.errors()
    id = world.only_session()
    assert "unreachable" in errors
    assert id in errors
    assert world.messages(id, "user")[0]["state"] == "failed"


def test_an_empty_id_names_no_session(world: World) -> None:
    world.steno("run", "hi")
    world.steno("delete", "", "--yes", expect=2)
    assert len(world.sessions()) == 1


def test_a_model_that_does_not_exist_is_refused_before_anything_is_stored(world: World) -> None:
    with world.start("run", "hi", "--model", "nonsense:x") as program:
        assert program.end() == 2
        assert "openai-chat" in program.errors()
    assert world.sessions() == []


def test_ctrl_c_while_waiting_for_another_process_leaves_its_turn_alone(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("going",), then="hang"), Reply(("answered",))]
    with world.start("run", "one", "--key", "k") as first:
        first.wait_shown("going")
        with world.start("run", "two", "--key", "k") as second:
            wait_until(
                lambda: len(world.messages(world.only_session(), "user")) == 2, "the second input"
            )
            wait_until(
                lambda: second.process.poll() is not None or _signalled(second),
                "the second to leave",
            )
            assert second.end() == 130
        assert first.process.poll() is None
        first.kill()
    states = [message["state"] for message in world.messages(world.only_session(), "user")]
    assert states == ["complete", "pending"]


def _signalled(program: Program) -> bool:
    """Press Ctrl-C until it listens, never twice within the two seconds that would mean leaving at
    once."""
    program.signal(signal.SIGINT)
    time.sleep(2.5)
    return program.process.poll() is not None


@pytest.mark.promise(16)
def test_the_same_input_id_in_the_same_second_gives_one_turn_and_both_callers_its_answer(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("the ", "answer"), delay_s=0.3), Reply(("another",))]
    words = ("run", "hi", "--key", "k", "--input-id", "m1")
    with world.start(*words) as one, world.start(*words) as two:
        assert (one.end(), two.end()) == (0, 0)
        assert (one.shown(), two.shown()) == ("the answer\n", "the answer\n")
    assert len(server.requests) == 1
    assert len(world.messages(world.only_session())) == 2
