"""Editing what a model is told: forks, rewinds, hidden messages, redactions. All but the last can
be taken back."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_views import complaint
from tests.program.world import World, wait_until

SECRET = "hunter2-wx9Qz"


def words(request: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(message["role"], message["content"]) for message in request["messages"][1:]]


def last_words(server: ModelServer) -> list[tuple[str, Any]]:
    return words(server.requests[-1])


def seqs(world: World, id: str, role: str) -> list[str]:
    return [str(message["seq"]) for message in world.messages(id, role)]


def three_turns(world: World, server: ModelServer) -> str:
    server.replies = [Reply(("one",)), Reply(("two",)), Reply(("three",)), Reply(("more",))]
    for number in ("1", "2", "3"):
        world.steno("run", f"prompt {number}", "--key", "k")
    return world.only_session()


def withdrawal(printed: str) -> str:
    """The seq that a rewind says it can be taken back by."""
    return printed.split("--withdraw ")[1].split()[0]


# --- forks


@pytest.mark.promise(58)
@pytest.mark.parametrize("model", ["openai-chat:test", "anthropic:test"])
@pytest.mark.suite("anthropic:test")
def test_a_fork_repeats_the_requests_of_its_parent_byte_for_byte(
    world: World, server: ModelServer, model: str
) -> None:
    world.environment["STENO_MODEL"] = model
    id = three_turns(world, server)
    fork = world.steno("fork", id, "--at", seqs(world, id, "assistant")[1]).strip()
    world.steno("run", "prompt 3", "--session", fork)
    assert server.bodies[3] == server.bodies[2]  # the parent's third request said the same


@pytest.mark.promise(58)
def test_a_fork_at_a_prompt_is_interrupted_in_every_view_and_the_prompt_can_be_run_again(
    world: World, server: ModelServer
) -> None:
    world.steno("run", "prompt")
    id = world.only_session()
    fork = world.steno("fork", id, "--at", seqs(world, id, "user")[0]).strip()
    [last] = [one["last_turn"] for one in world.sessions() if one["id"] == fork]
    assert [(one["outcome"], one["cause"]) for one in world.show(fork)["turns"]] == [
        ("interrupted", "forked")
    ]
    assert last == "interrupted"
    with world.start("follow", fork) as program:
        assert program.end() == 130
        assert f"steno retry {fork}" in program.errors()
    with world.start("continue", fork) as program:
        assert program.end() == 1
        assert f"steno retry {fork}" in program.errors()
    world.steno("retry", fork)
    assert server.bodies[-1] == server.bodies[0], "what the parent was asked, and the prompt once"
    assert [message["role"] for message in world.messages(fork)] == ["user", "assistant"]


@pytest.mark.promise(57)
@pytest.mark.promise(58)
def test_a_prompt_that_failed_can_be_run_again_in_a_fork(world: World, server: ModelServer) -> None:
    server.replies = [Reply(status=400), Reply(("ok",))]
    world.steno("run", "prompt", expect=1)
    id = world.only_session()
    fork = world.steno("fork", id, "--at", str(world.show(id)["turns"][0]["id"])).strip()
    assert world.steno("retry", fork) == "ok\n"
    assert last_words(server) == [("user", "prompt")]
    assert [message["state"] for message in world.messages(fork)] == [
        "complete",
        "lost",
        "complete",
    ]
    assert [message["state"] for message in world.messages(id)] == ["failed", "lost"]


@pytest.mark.promise(58)
def test_a_fork_has_everything_up_to_its_message_and_nothing_after_it(
    world: World, server: ModelServer
) -> None:
    id = three_turns(world, server)
    before = world.messages(id)
    for role, place, at in (("assistant", 0, 2), ("assistant", 1, 4), ("user", 1, 3)):
        fork = world.steno("fork", id, "--at", seqs(world, id, role)[place]).strip()
        assert fork != id
        assert world.messages(fork) == before[:at]
        world.steno("run", "other", "--session", fork)
        told = last_words(server)
        assert told[:at] == words(server.requests[2])[:at]
        assert told[-1] == ("user", "other")
    assert world.messages(id) == before


@pytest.mark.promise(58)
def test_a_fork_at_an_answer_with_calls_is_valid_and_runs_nothing_again(
    world: World, server: ModelServer
) -> None:
    call = Reply(("I will. ",), tools=(("shell", '{"command": "echo run >> ran.txt"}'),))
    server.replies = [call, Reply(("It ran.",)), Reply(("ok",))]
    world.steno("run", "do it", "--yes")
    id = world.only_session()
    fork = world.steno("fork", id, "--at", seqs(world, id, "assistant")[0]).strip()
    world.steno("run", "what now?", "--session", fork, "--yes")
    roles = [role for role, _ in last_words(server)]
    assert roles[:3] == ["user", "assistant", "tool"]
    assert roles[-1] == "user"
    assert (world.work / "ran.txt").read_text().count("run") == 1


def test_a_fork_is_listed_under_its_parent(world: World, server: ModelServer) -> None:
    id = three_turns(world, server)
    at = seqs(world, id, "assistant")[1]
    fork = world.steno("fork", id, "--at", at).strip()
    second = world.steno("fork", fork, "--at", seqs(world, id, "assistant")[0]).strip()
    listed = {one["id"]: one["forked_from"] for one in world.sessions()}
    assert listed[fork]["session"] == id
    assert listed[second]["session"] == fork
    lines = world.steno("sessions", "--tree").splitlines()
    places = [
        next(i for i, line in enumerate(lines) if f"{one}  " in line) for one in (id, fork, second)
    ]
    assert places == [0, 1, 2]
    indents = [len(line) - len(line.lstrip(" └─")) for line in lines]
    assert indents == sorted(set(indents))
    assert f"fork of {id}" in lines[1]


def test_a_fork_of_a_killed_turn_keeps_what_was_shown(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("half",), then="hang"), Reply(("ok",))]
    with world.start("run", "one") as program:
        program.wait_shown("half")
        program.kill()
    id = world.only_session()
    fork = world.steno("fork", id, "--at", seqs(world, id, "assistant")[0]).strip()
    assert [message["text"] for message in world.messages(fork)] == ["one", "half"]
    world.steno("run", "two", "--session", fork)
    assert [role for role, _ in last_words(server)] == ["user", "assistant", "user"]
    assert "Note from the runtime" not in json.dumps(server.requests[-1])


def test_places_that_are_no_message_are_refused(world: World, server: ModelServer) -> None:
    id = three_turns(world, server)
    before = world.show(id)
    for verb, *option in (
        ("fork", "--at"),
        ("rewind", "--to"),
        ("hide", "--seq"),
        ("redact", "--yes", "--seq"),
    ):
        assert "has no message 9999" in complaint(world, verb, id, *option, "9999", expect=2)
    assert world.show(id) == before
    assert len(world.sessions()) == 1


# --- rewinds


@pytest.mark.promise(57)
def test_a_rewind_leaves_out_what_follows_and_can_be_taken_back(
    world: World, server: ModelServer
) -> None:
    id = three_turns(world, server)
    printed = world.steno("rewind", id, "--to", seqs(world, id, "assistant")[0])
    assert [turn["undone"] for turn in world.show(id)["turns"]] == [False, True, True]
    world.steno("run", "prompt 4", "--key", "k")
    assert last_words(server) == [("user", "prompt 1"), ("assistant", "one"), ("user", "prompt 4")]
    assert len(world.messages(id)) == 8
    world.steno("rewind", id, "--withdraw", withdrawal(printed))
    world.steno("run", "prompt 5", "--key", "k")
    assert [text for _, text in last_words(server)][:6] == [
        "prompt 1",
        "one",
        "prompt 2",
        "two",
        "prompt 3",
        "three",
    ]
    assert "no undo" in complaint(world, "rewind", id, "--withdraw", withdrawal(printed), expect=1)


@pytest.mark.promise(57)
def test_a_rewind_to_a_prompt_that_was_run_again_keeps_the_prompt(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("first",)), Reply(status=400), Reply(("second",)), Reply(("ok",))]
    world.steno("run", "prompt 1", "--key", "k")
    world.steno("run", "prompt 2", "--key", "k", expect=1)
    id = world.only_session()
    world.steno("retry", id)
    world.steno("rewind", id, "--to", seqs(world, id, "user")[1])
    world.steno("run", "prompt 3", "--key", "k")
    said = "\n".join(text for _, text in last_words(server))
    assert [word for word in said.split("\n") if word] == [
        "prompt 1",
        "first",
        "prompt 2",
        "prompt 3",
    ]


FAILURES = {
    "refused": (Reply(status=400),),
    "no_answer": (Reply(then="close"),),
    "broke_off": (Reply(("half",), then="close"),),
    "killed": (Reply(("half",), then="hang"),),
    "killed_silent": (Reply(then="hang"),),
    "killed_tool": (Reply(("half",), tools=(("shell", '{"command": "sleep 60"}'),)),),
    "stopped": (Reply(("half",), then="hang"),),
}


def fail(world: World, server: ModelServer, kind: str) -> str:
    """A session with a good turn and one that failed in some way."""
    world.environment["STENO_LIMITS_ATTEMPTS_MAX"] = "1"
    server.replies = [Reply(("good",)), *FAILURES[kind]]
    world.steno("run", "one", "--key", "k")
    with world.start("run", "two", "--key", "k", "--yes") as program:
        if kind.startswith("killed") or kind == "stopped":
            wait_until(lambda: len(server.requests) == 2, "the request")
            if kind != "killed_silent":
                program.wait_shown("half")
            if kind == "killed_tool":
                wait_until(lambda: _calls(world), "the call")
            if kind == "stopped":
                world.steno("interrupt", world.only_session())
                program.end()
            else:
                program.kill()
        else:
            program.end()
    server.replies = [Reply(("fresh",))]
    server.requests.clear()
    return world.only_session()


def _calls(world: World) -> bool:
    return any(
        message["tool_calls"] for message in world.messages(world.only_session(), "assistant")
    )


@pytest.mark.promise(57)
@pytest.mark.parametrize("kind", list(FAILURES))
@pytest.mark.suite("no_answer", "broke_off", "killed")
def test_undo_works_after_any_kind_of_failed_turn_and_can_be_taken_back(
    world: World, server: ModelServer, kind: str
) -> None:
    id = fail(world, server, kind)
    before = world.messages(id)
    printed = world.steno("undo", id)
    assert world.messages(id) == before
    copy = world.copied("undone")
    copy.steno("run", "three", "--key", "k")
    assert last_words(server) == [("user", "one"), ("assistant", "good"), ("user", "three")]
    world.steno("undo", id, "--withdraw", withdrawal(printed))
    assert [turn["undone"] for turn in world.show(id)["turns"]] == [False, False]
    world.steno("run", "three", "--key", "k")
    told = json.dumps(server.requests[-1])
    assert ("half" in told) == any("half" in message["text"] for message in before)
    assert ("Note from the runtime" in told) == kind.startswith("killed")


@pytest.mark.promise(57)
@pytest.mark.parametrize("kind", list(FAILURES))
@pytest.mark.suite("refused", "killed_tool", "stopped")
def test_retry_works_after_any_kind_of_failed_turn(
    world: World, server: ModelServer, kind: str
) -> None:
    id = fail(world, server, kind)
    assert world.steno("retry", id) == "fresh\n"
    assert world.show(id)["turns"][-1]["outcome"] == "done"
    assert "answered" in complaint(world, "retry", id, expect=1)


@pytest.mark.promise(16, 57)
def test_two_retries_at_once_run_the_prompt_once(world: World, server: ModelServer) -> None:
    id = fail(world, server, "refused")
    server.replies = [Reply(("fresh",), delay_s=0.3)]
    with world.start("retry", id) as one, world.start("retry", id) as other:
        statuses = sorted((one.end(), other.end()))
    assert statuses == [0, 1]
    assert len(server.requests) == 1


@pytest.mark.promise(20, 57)
def test_a_cut_off_turn_that_is_undone_is_not_taken_up(world: World, server: ModelServer) -> None:
    id = fail(world, server, "killed")
    printed = world.steno("undo", id)
    assert "undone" in complaint(world, "continue", id, expect=1)
    world.steno("undo", id, "--withdraw", withdrawal(printed))
    assert world.steno("continue", id) == "fresh\n"
    assert "Take the work up" in json.dumps(server.requests[-1])


# --- hiding


@pytest.mark.promise(45)
@pytest.mark.parametrize(
    ("role", "place"), [("user", 0), ("assistant", 0), ("user", 1), ("assistant", 1)]
)
@pytest.mark.suite("user-0", "assistant-1")
def test_any_message_can_be_hidden_and_put_back(
    world: World, server: ModelServer, role: str, place: int
) -> None:
    id = three_turns(world, server)
    before = world.messages(id)
    seq = seqs(world, id, role)[place]
    text = next(message["text"] for message in before if str(message["seq"]) == seq)
    world.steno("hide", id, "--seq", seq)
    copy = world.copied("hidden")
    copy.steno("run", "prompt 4", "--key", "k")
    assert text not in [said for _, said in last_words(server)]
    assert last_words(server)[-1][1].endswith("prompt 4")
    hidden = [message["seq"] for message in world.messages(id) if message["hidden"]]
    assert hidden == [int(seq)]
    assert [message["text"] for message in world.messages(id)] == [
        message["text"] for message in before
    ]
    assert "already" in world.steno("hide", id, "--seq", seq)
    world.steno("hide", id, "--seq", seq, "--show")
    world.steno("run", "prompt 4", "--key", "k")
    assert words(server.requests[-1])[:6] == [
        (message["role"], message["text"]) for message in before
    ]


@pytest.mark.promise(45)
def test_a_hidden_tool_result_leaves_a_valid_request(world: World, server: ModelServer) -> None:
    call = Reply(tools=(("shell", '{"command": "echo poison"}'),))
    server.replies = [call, Reply(("done",)), Reply(("ok",))]
    world.steno("run", "do it", "--key", "k", "--yes")
    id = world.only_session()
    world.steno("hide", id, "--seq", seqs(world, id, "tool")[0])
    assert world.steno("run", "go on", "--key", "k") == "ok\n"
    assert not any("poison" in text for role, text in last_words(server) if role == "tool")
    assert [role for role, _ in last_words(server)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]


# --- redacting


def files_with(folder: Path, text: str) -> list[str]:
    return [
        path.name
        for path in folder.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    ]


@pytest.mark.promise(60)
@pytest.mark.parametrize("where", ["user", "assistant", "tool", "call"])
def test_a_redacted_secret_is_in_no_file(world: World, server: ModelServer, where: str) -> None:
    command = f"echo {SECRET}" if where == "call" else "cat secret.txt"
    (world.work / "secret.txt").write_text(SECRET if where == "tool" else "nothing")
    call = Reply(
        tools=(("shell", json.dumps({"command": command + " > /dev/null" * (where == "call")})),)
    )
    server.replies = [call, Reply((SECRET if where == "assistant" else "done",)), Reply(("ok",))]
    world.steno("run", f"the word is {SECRET if where == 'user' else 'xyz'}", "--key", "k", "--yes")
    id = world.only_session()
    assert files_with(world.home, SECRET) != []
    role, place = {"call": ("assistant", 0), "assistant": ("assistant", 1)}.get(where, (where, 0))
    printed = world.steno("redact", id, "--yes", "--seq", seqs(world, id, role)[place])
    assert SECRET not in printed
    assert files_with(world.home, SECRET) == []
    assert SECRET not in world.steno("show", id) + world.steno("show", id, "--json") + world.steno(
        "sessions"
    )
    world.steno("run", "go on", "--key", "k")
    assert SECRET not in json.dumps(server.requests[-1])
    assert files_with(world.home, SECRET) == []
    world.steno("verify")


@pytest.mark.promise(60)
def test_a_redacted_secret_of_a_killed_or_a_detached_turn_is_in_no_file(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply((f"the word is {SECRET}",), then="hang")]
    with world.start("run", "say it") as program:
        program.wait_shown(SECRET)
        program.kill()
    id = world.only_session()
    world.steno("redact", id, "--yes", "--seq", seqs(world, id, "assistant")[0])
    assert files_with(world.home, SECRET) == []
    server.replies = [Reply((f"the word is {SECRET}",))]
    accepted = world.steno("run", "say it", "--detach").split()
    world.steno("follow", accepted[0])
    world.steno("redact", accepted[0], "--yes", "--seq", seqs(world, accepted[0], "assistant")[0])
    wait_until(lambda: files_with(world.home, SECRET) == [], "the files to be clean")


def test_a_redaction_asks_first(world: World, server: ModelServer) -> None:
    id = three_turns(world, server)
    before = world.show(id)
    assert "--yes" in complaint(world, "redact", id, "--seq", seqs(world, id, "user")[0], expect=2)
    assert world.show(id) == before
