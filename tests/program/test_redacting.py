"""Where a removed text is repeated is said, and can be removed as well: then it is in no file."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_approvals_elsewhere import WAITING, wait_pending
from tests.program.test_compaction import FILLER, Talk, is_summary
from tests.program.test_editing import SECRET, files_with
from tests.program.world import World

NAMED = re.compile(r"steno redact (\w+) (\d+) removes that")


def redact(world: World, id: str, seq: object) -> str:
    """Remove it; what was said about copies."""
    with world.start("redact", id, "--seq", str(seq), "--yes") as program:
        assert program.end() == 0, program.errors()
        return program.errors()


def redact_with_copies(world: World, id: str, seq: int) -> None:
    """Remove it, and do what one is told to do about copies, until nothing more is said."""
    todo, done = [(id, str(seq))], set()
    while todo:
        done.add(one := todo.pop())
        todo += [copy for copy in NAMED.findall(redact(world, *one)) if copy not in done]
    assert len(done) > 1, "there was a copy"


@pytest.mark.promise(60)
def test_the_reason_of_a_denial(world: World, server: ModelServer) -> None:
    server.replies = [Reply(tools=(("shell", '{"command": "true"}'),)), Reply(("ok",))]
    with world.start(*WAITING) as program:
        (one,) = wait_pending(world)
        world.steno("deny", one["session"], "--reason", f"never {SECRET}")
        assert program.end() == 0
    (tool,) = world.messages(one["session"], "tool")
    redact_with_copies(world, one["session"], tool["seq"])
    assert files_with(world.home, SECRET) == []
    world.steno("verify")


@pytest.mark.promise(60)
@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.suite("assistant")
def test_the_words_of_a_provider_that_repeats_the_prompt(
    world: World, server: ModelServer, role: str
) -> None:
    server.replies = [Reply(status=400, complaint=f"cannot handle 'the word is {SECRET}'")]
    world.steno("run", f"the word is {SECRET}", expect=1)
    id = world.only_session()
    assert [message["state"] for message in world.messages(id)] == ["failed", "lost"]
    said = world.messages(id, role)[0]["seq"]
    redact_with_copies(world, id, said)
    if role == "assistant":
        redact(world, id, world.messages(id, "user")[0]["seq"])
    assert files_with(world.home, SECRET) == []
    assert SECRET not in json.dumps(world.show(id)) + world.steno("show", id)


@pytest.mark.promise(60)
def test_a_title_that_repeats_it(world: World, server: ModelServer) -> None:
    world.steno("run", f"the word is {SECRET}")
    id = world.only_session()
    world.steno("rename", id, f"about {SECRET}")
    redact_with_copies(world, id, world.messages(id, "user")[0]["seq"])
    assert files_with(world.home, SECRET) == []


@pytest.mark.promise(60)
@pytest.mark.parametrize("through", ["parent", "fork"])
@pytest.mark.suite("fork")
def test_a_summary_in_a_fork_and_one_in_its_parent(
    world: World, server: ModelServer, through: str
) -> None:
    talk = Talk(world, server)
    talk.summary = Reply((f"They spoke of {SECRET}.",), usage=False)
    world.steno("run", f"the word is {SECRET} {FILLER}")
    talk.id = world.only_session()
    for _ in range(3):
        talk.say()
    fork = world.steno("fork", talk.id, "--at", str(world.messages(talk.id)[-1]["seq"])).strip()
    for id in (talk.id, fork):
        assert "a summary stands" in world.steno("compact", id)
    redact_with_copies(
        world, {"parent": talk.id, "fork": fork}[through], world.messages(fork, "user")[0]["seq"]
    )
    assert files_with(world.home, SECRET) == []
    assert any(map(is_summary, server.requests))


@pytest.mark.promise(60)
def test_the_session_of_a_helper_is_named(
    world: World, server: ModelServer, tmp_path: Path
) -> None:
    def choose(request: dict[str, Any]) -> Reply:
        if "delegate" in json.dumps(request.get("tools")):
            delegates = Reply(tools=(("delegate", json.dumps({"prompt": f"use {SECRET}"})),))
            return Reply(("done",)) if request["messages"][-1]["role"] == "tool" else delegates
        return Reply(("I did.",))

    server.choose = choose
    world.steno("run", "do it", "--yes", "--key", "k")
    (id,) = [one["id"] for one in world.sessions() if one["name"] == "k"]
    (helper,) = [one["id"] for one in world.sessions() if one["name"] != "k"]
    asked, told = world.messages(id, "assistant")[0], world.messages(id, "tool")[0]
    for message in (asked, told):
        assert f"the helper in session {helper}" in redact(world, id, message["seq"])
