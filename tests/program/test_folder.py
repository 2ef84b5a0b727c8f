"""A session belongs to a folder: lists, what the model is told of it, modes, what is piped."""

import json
import subprocess
import sys
from copy import copy
from pathlib import Path

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.world import World


def in_folder(world: World, name: str) -> World:
    other = copy(world)
    other.work = world.work.parent / name
    other.work.mkdir(exist_ok=True)
    return other


def system_of(request: dict[str, object]) -> str:
    messages = request["messages"]
    assert isinstance(messages, list)
    return str(messages[0]["content"])


def test_lists_and_continue_are_of_this_folder_unless_told(
    world: World, server: ModelServer
) -> None:
    other = in_folder(world, "other")
    world.steno("run", "here")
    other.steno("run", "there")
    assert [one["title"] for one in json.loads(world.steno("sessions", "--json"))] == ["here"]
    (one,) = json.loads(other.steno("sessions", "--json"))
    assert one["folder"] == str(other.work)
    assert [one["title"] for one in world.sessions()] == ["there", "here"]


def test_a_session_of_another_folder_works_there_until_it_is_moved(
    world: World, server: ModelServer
) -> None:
    other = in_folder(world, "other")
    call = (("shell", json.dumps({"command": "pwd"})),)
    server.replies = [Reply(tools=call), Reply(("ok",)), Reply(tools=call), Reply(("ok",))]
    world.steno("run", "where?", "--yes")
    (session,) = [one["id"] for one in world.sessions()]
    server.requests.clear()
    server.replies = [Reply(tools=call), Reply(("ok",))] * 2
    other.steno("run", "where?", "--yes", "--session", session)
    other.steno("run", "where?", "--yes", "--session", session, "--here")
    told = [message["text"].strip() for message in world.messages(session, "tool")]
    assert told == [str(world.work), str(world.work), str(other.work)]
    assert [one["id"] for one in other.sessions()] == [session]


def test_a_folder_that_is_gone_is_said_before_anything_runs(
    world: World, server: ModelServer
) -> None:
    other = in_folder(world, "other")
    other.steno("run", "there")
    (session,) = [one["id"] for one in other.sessions()]
    other.work.rmdir()
    world.steno("run", "again", "--session", session, expect=2)
    assert len(server.requests) == 1
    world.steno("continue", session, "--here")
    assert len(server.requests) == 2


@pytest.mark.promise(40)
def test_the_model_is_told_of_the_folder_and_requests_repeat_byte_for_byte(
    world: World, server: ModelServer
) -> None:
    (world.work / "AGENTS.md").write_text("Use tabs.")
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=world.work, check=True)
    server.replies = [Reply(("one",)), Reply(("two ",), then="hang"), Reply(("three",))]
    world.steno("run", "first", "--key", "k")
    told = system_of(server.requests[0])
    assert "Use tabs." in told
    assert f"Working folder: {world.work}" in told
    assert "Git branch: main" in told
    (world.work / "new").write_text("git sees another state")
    with world.start("run", "second", "--key", "k") as program:
        program.wait_shown("two ")
        program.kill()
    world.steno("run", "third", "--key", "k")
    first, second, third = (json.loads(body)["messages"] for body in server.bodies[:3])
    assert second[: len(first)] == first
    assert third[: len(second)] == second
    contexts = [line for line in _facts(world) if line["type"] == "context.set"]
    assert len(contexts) == 1


def test_a_changed_file_of_instructions_is_told_with_the_next_input(
    world: World, server: ModelServer
) -> None:
    world.steno("run", "first", "--key", "k")
    (world.work / "AGENTS.md").write_text("Use tabs.")
    world.steno("run", "second", "--key", "k")
    assert ["Use tabs." in system_of(request) for request in server.requests] == [False, True]


def _facts(world: World) -> list[dict[str, object]]:
    exported = world.steno("export", world.only_session())
    lines = [json.loads(line) for line in exported.splitlines()]
    return [line.get("body", line.get("fact", line)) for line in lines if line["type"] == "fact"]


EDIT = ("write_file", json.dumps({"path": "a.txt", "content": "x"}))
SHELL = ("shell", json.dumps({"command": "echo ran > b.txt"}))
READ = ("read_file", json.dumps({"path": "there.txt"}))


@pytest.mark.parametrize(
    ("mode", "ran"),
    [
        ("ask", ["read_file"]),
        ("edits", ["read_file", "write_file"]),
        ("plan", ["read_file"]),
        ("everything", ["read_file", "write_file", "shell"]),
    ],
)
def test_a_mode_says_what_runs_without_asking(
    world: World, server: ModelServer, mode: str, ran: list[str]
) -> None:
    (world.work / "there.txt").write_text("there")
    server.replies = [Reply(tools=(READ, EDIT, SHELL)), Reply(("done",))]
    world.steno("run", "go", "--mode", mode)
    done = {"read_file": READ, "write_file": EDIT, "shell": SHELL}
    made = [name for name in ("write_file", "shell") if name in ran]
    files = {"write_file": "a.txt", "shell": "b.txt"}
    for name, file in files.items():
        assert (world.work / file).exists() == (name in made)
    notes = server.requests[0]["messages"][-1]["content"]
    assert ("plan mode" in str(notes)) == (mode == "plan")
    assert set(ran) <= set(done)


def test_what_is_piped_goes_along(world: World, server: ModelServer) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "steno", "run", "review"],
        input=b"diff --git a b\n+new line\n",
        env=world.environment,
        cwd=world.work,
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"ok\n"
    assert "+new line" in json.dumps(server.requests[0]["messages"][-1])
    (message, _) = world.messages(world.only_session())
    assert message["text"] == "review"


def test_arguments_that_cannot_be_used_are_refused_before_anybody_is_asked(
    world: World, server: ModelServer
) -> None:
    bad = (("edit_file", json.dumps({"path": "../x", "old": "a", "new": "b"})), ("shell", "{}"))
    server.replies = [Reply(tools=bad), Reply(("done",))]
    world.steno("run", "go", "--ask", "wait")
    tags = [fact["type"] for fact in _facts(world)]
    assert "approval.asked" not in tags
    told = [message["text"] for message in world.messages(world.only_session(), "tool")]
    assert "outside the workspace" in told[0]
    assert "cannot be used" in told[1]


def test_a_skill_of_the_folder_can_be_read(world: World, server: ModelServer) -> None:
    skill = world.work / ".steno" / "skills" / "forms.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\ndescription: fill in forms\n---\nUse qpdf.")
    asked = (("read_skill", json.dumps({"name": "forms"})),)
    server.replies = [Reply(tools=asked), Reply(("done",))]
    world.steno("run", "go")
    tools = {tool["function"]["name"]: tool["function"] for tool in server.requests[0]["tools"]}
    assert "forms: fill in forms" in tools["read_skill"]["description"]
    assert [m["text"] for m in world.messages(world.only_session(), "tool")] == ["Use qpdf."]


@pytest.mark.parametrize(
    ("rule", "ran"),
    [
        ("allow", True),
        ({"verdict": "allow", "until": "2199-01-01"}, True),
        ({"verdict": "allow", "until": "2026-01-01"}, False),
    ],
    ids=["by-hand", "lasts", "ended"],
)
def test_always_in_this_folder_holds_for_new_sessions_until_it_ends(
    world: World, server: ModelServer, rule: object, ran: bool
) -> None:
    world.home.mkdir(exist_ok=True)
    rules = {str(world.work): {"shell:echo *": rule}}
    (world.home / "folders.json").write_text(json.dumps(rules))
    call = (("shell", json.dumps({"command": "echo hi"})),)
    server.replies = [Reply(tools=call), Reply(("done",))]
    world.steno("run", "go")
    [told] = [m["text"] for m in world.messages(world.only_session(), "tool")]
    assert (told == "hi\n") == ran
    assert Path(world.home / "folders.json").exists()
