"""Turns of the real codex: every one of them in the journal, exactly once, as it was shown."""

import json

import pytest

from tests.codex.world import LONG, CodexWorld
from tests.program.test_cli_terminal import terminal
from tests.program.test_cli_views import complaint
from tests.program.test_tools_mcp import stdio
from tests.tools.mcp_servers import odd


@pytest.mark.promise(9, 15, 46)
def test_a_turn_is_stored_as_it_was_shown(world: CodexWorld) -> None:
    assert world.run("hello") == "Hello there.\n"
    assert world.said() == [
        ("user", "hello", "complete"),
        ("assistant", "Hello there.", "complete"),
    ]
    assert world.run("and") == "And so on.\n"
    assert [text for _, text, _ in world.said()] == ["hello", "Hello there.", "and", "And so on."]
    assert len(world.threads()) == 1, "the second turn goes on in the thread of the first"
    [listed] = world.sessions()
    assert (listed["messages"], listed["turns"], listed["model"]) == (4, 2, "codex:fake-model")


@pytest.mark.promise(4)
def test_a_command_is_stored_with_its_output(world: CodexWorld) -> None:
    assert world.run("echo", "--yes") == "I look.It ran.\n"
    user, called, ran, answer = world.messages(world.only_session())
    [call] = called["tool_calls"]
    assert (call["name"], json.loads(call["arguments"])) == (
        "shell",
        {"command": "echo ran >> ran; echo hi"},
    )
    assert (ran["role"], ran["text"], ran["state"], ran["tool_call_id"]) == (
        "tool",
        "hi\n",
        "complete",
        call["id"],
    )
    assert (user["text"], answer["text"]) == ("echo", "It ran.")
    assert (world.work / "ran").read_text() == "ran\n"


@pytest.mark.torture
def test_a_command_that_fails_says_so(world: CodexWorld) -> None:
    world.run("fail", "--yes")
    [failed] = [
        message for message in world.messages(world.only_session()) if message["role"] == "tool"
    ]
    assert (failed["text"], failed["state"]) == ("no\n[exit status 3]", "failed")


def test_a_file_change_is_a_call_with_its_diff(world: CodexWorld) -> None:
    world.run("patch", "--yes")
    assert (world.work / "new.txt").read_text() == "made by a patch\n"
    _, called, changed, _ = world.messages(world.only_session())
    [call] = called["tool_calls"]
    [change] = json.loads(call["arguments"])["changes"]
    assert (call["name"], change["kind"], change["diff"]) == (
        "apply_patch",
        "add",
        "made by a patch\n",
    )
    assert changed["text"] == f"add {world.work / 'new.txt'}"


@pytest.mark.torture
def test_commands_side_by_side_have_an_outcome_each(world: CodexWorld) -> None:
    world.run("both", "--yes")
    messages = world.messages(world.only_session())
    calls = {
        call["id"]: json.loads(call["arguments"])["command"]
        for one in messages
        for call in one["tool_calls"]
    }
    outputs = {one["tool_call_id"]: one["text"] for one in messages if one["role"] == "tool"}
    assert {calls[id]: text for id, text in outputs.items()} == {
        "sleep 0.3; echo one": "one\n",
        "sleep 0.3; echo two": "two\n",
    }


@pytest.mark.torture
def test_reasoning_is_kept_apart_from_what_is_said(world: CodexWorld) -> None:
    assert world.run("think") == "Done.\n"
    [sealed] = [fact for fact in world.facts() if fact["type"] == "step.sealed"]
    assert sealed["parts"] == [
        {"type": "reasoning", "text": "Let me think."},
        {"type": "text", "text": "Done."},
    ]


def test_usage_is_what_the_provider_said(world: CodexWorld) -> None:
    world.run("hello")
    [listed] = world.sessions()
    assert (listed["usage"]["input"], listed["usage"]["output"]) == (7, 3)


def test_a_tool_of_ours_is_offered_and_run_by_us(world: CodexWorld) -> None:
    world.run("hello")
    world.steno("run", "find", "--key", "other")
    id = next(one["id"] for one in world.sessions() if one["name"] == "other")
    _, called, found, answer = world.messages(id)
    assert called["tool_calls"][0]["name"] == "search_sessions"
    assert "hello" in found["text"]
    assert answer["text"] == "It ran."


def test_a_server_of_mcp_is_offered_and_its_calls_meet_our_rules(world: CodexWorld) -> None:
    world.home.mkdir(mode=0o700)
    world.home.joinpath("config.toml").write_text(stdio("odd", odd()))
    world.run("tally", "--yes")
    session = world.only_session()
    [counted] = world.messages(session, "tool")
    assert (counted["text"], counted["state"]) == ("count 1", "complete")
    world.steno("rules", session, "--deny", "odd__count")
    world.run("tally", "--yes")
    assert "the rule 'odd__count' denies it" in world.messages(session, "tool")[-1]["text"]
    assert (world.work / "count.txt").read_text() == "run\n"


def test_ten_megabytes_of_output_do_not_hurt(world: CodexWorld) -> None:
    assert world.run("flood", "--yes") == "I look.It ran.\n"
    [flooded] = [
        message for message in world.messages(world.only_session()) if message["role"] == "tool"
    ]
    assert flooded["state"] == "complete"
    assert len(flooded["text"]) > 900_000, "what codex keeps of it"
    assert world.run("hello") == "Hello there.\n"


def test_a_long_answer_streams_in_pieces_and_is_whole(world: CodexWorld) -> None:
    shown = [json.loads(line) for line in world.run("slow", "--output", "ndjson").splitlines()]
    pieces = [event["text"] for event in shown if event["type"] == "text"]
    assert "".join(pieces) == LONG == world.said()[1][1]
    assert len(pieces) > 20


@pytest.mark.promise(32)
def test_the_thread_is_the_same_after_restart_and_compaction(world: CodexWorld) -> None:
    world.run("hello")
    world.steno("compact", world.only_session())
    assert world.run("and") == "And so on.\n"
    assert len(world.threads()) == 1
    stored = [fact["type"] for fact in world.facts()]
    assert [
        stored.count(kind) for kind in ("helper.started", "helper.ended", "thread.compacted")
    ] == [1, 1, 1]


@pytest.mark.torture
def test_nothing_of_codex_is_left_after_a_turn(world: CodexWorld) -> None:
    world.run("echo", "--yes")
    world.wait_codex_gone()


def test_the_plain_chat_goes_on_in_one_thread(world: CodexWorld) -> None:
    with terminal(world, "--plain") as chat:
        chat.wait_seen("you> ")
        chat.type("hello\n")
        chat.wait_seen("Hello there.")
        chat.wait_seen("you> ", 2)
        chat.type("and\n")
        chat.wait_seen("And so on.")
        chat.wait_seen("you> ", 3)
        chat.type("/quit\n")
        assert chat.end() == 0
    assert [text for _, text, _ in world.said()] == ["hello", "Hello there.", "and", "And so on."]
    assert len(world.threads()) == 1


@pytest.mark.promise(6)
def test_a_turn_that_has_had_its_time_ends_and_says_so(world: CodexWorld) -> None:
    world.environment["STENO_LIMITS_TURN_S"] = "2"
    with world.start("run", "count", "--key", "k", "--yes") as program:
        assert program.end() == 1
        assert "budget of 2 s" in program.errors()
    [turn] = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ("failed", "budget")
    world.wait_codex_gone()


def test_codex_as_the_default_of_the_configuration_carries_a_detached_turn(
    world: CodexWorld,
) -> None:
    del world.environment["STENO_RUNTIME"]
    world.home.mkdir(mode=0o700)
    world.home.joinpath("config.toml").write_text('[runtime]\ndefault = "codex"\n')
    world.steno("run", "echo", "--yes", "--detach")
    session = world.only_session()
    assert world.steno("follow", session) == "I look.It ran.\n"
    assert [one["text"] for one in world.messages(session, "tool")] == ["hi\n"]
    assert len(world.threads()) == 1
    world.wait_codex_gone()


@pytest.mark.promise(7, 42)
def test_a_prompt_that_utf8_cannot_hold_is_stored_as_it_is_and_answered(world: CodexWorld) -> None:
    assert world.run("hello \udcff \ud800") == "Hello there.\n"
    assert world.said()[0] == ("user", "hello \udcff \ud800", "complete")
    assert world.run("and") == "And so on.\n"
    assert [str(one["content"]) for one in world.requests("and")[-1]].count(
        "hello \ufffd \ufffd"
    ) == 1
    assert len(world.threads()) == 1


@pytest.mark.torture
def test_with_a_login_of_codex_and_no_key_nobody_speaks_of_the_demo_model(
    world: CodexWorld,
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "STENO_RUNTIME"):
        del world.environment[name]
    assert complaint(world, "run", "hello", "--runtime", "codex", "--key", "k", expect=0) == ""
    assert complaint(world, "run", "and", "--key", "k", expect=0) == ""
    greeting = world.steno("--plain", "--resume", world.only_session())
    assert greeting.startswith("steno · codex:fake-model · session ")
    assert "demo" not in greeting


@pytest.mark.torture
def test_the_plain_chat_names_the_model_that_the_session_has(world: CodexWorld) -> None:
    world.run("hello", "--model", "scripted:echo")
    session = world.only_session()
    assert world.steno("--plain", "--resume", session).startswith(
        "steno · scripted:echo · session "
    )
    begun = world.steno("--plain", "--resume", session, "--runtime", "codex")
    assert begun.startswith("steno · codex:default · session ")
