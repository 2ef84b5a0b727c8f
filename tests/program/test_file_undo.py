"""What an edit replaced is kept before it is made, and can be put back: after a kill at any write,
and never over something that nobody kept."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.world import World

OLD = "first\nsecond\n"
NEW = "first\nchanged\n"
MADE = "made\n"


def edits() -> list[Reply]:
    change = json.dumps({"path": "a.txt", "old": "second", "new": "changed"})
    make = json.dumps({"path": "sub/b.txt", "content": MADE})
    return [Reply(tools=(("edit_file", change),)), Reply(tools=(("write_file", make),)), Reply()]


def files(world: World) -> tuple[str | None, str | None]:
    found = [world.work / "a.txt", world.work / "sub" / "b.txt"]
    a, b = (file.read_text() if file.exists() else None for file in found)
    return a, b


def edited(world: World, server: ModelServer) -> str:
    (world.work / "a.txt").write_text(OLD)
    server.replies = edits()
    world.steno("run", "edit", "--mode", "edits")
    assert files(world) == (NEW, MADE)
    return world.only_session()


def die(world: World, when: str, n: int, *words: str) -> None:
    script = str(Path(__file__).with_name("dying_at_files.py"))
    subprocess.run(
        [sys.executable, script, when, str(n), *words],
        env=world.environment,
        cwd=world.work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )


@pytest.mark.promise(78)
def test_files_are_put_back_and_that_is_taken_back(world: World, server: ModelServer) -> None:
    session = edited(world, server)
    assert "put back a.txt" in world.steno("undo", session, "--files")
    assert files(world) == (OLD, None)
    world.steno("undo", session, "--redo-files")
    assert files(world) == (NEW, MADE)
    assert "nothing was done" not in world.steno("undo", session, "--files")
    assert files(world) == (OLD, None)


@pytest.mark.promise(78)
def test_what_changed_since_is_not_overwritten(world: World, server: ModelServer) -> None:
    session = edited(world, server)
    (world.work / "a.txt").write_text("mine\n")
    world.steno("undo", session, "--files", expect=1)
    assert files(world) == ("mine\n", None)
    (world.work / "sub" / "b.txt").write_text("mine too\n")
    world.steno("undo", session, "--redo-files", expect=1)
    assert files(world) == ("mine\n", "mine too\n")


def test_the_talk_can_be_undone_with_the_files(world: World, server: ModelServer) -> None:
    session = edited(world, server)
    world.steno("undo", session, "--both")
    assert files(world) == (OLD, None)
    server.requests.clear()
    server.replies = [Reply(("ok",))]
    world.steno("run", "again", "--session", session)
    assert "edit" not in [m["content"] for m in server.requests[0]["messages"]]


def test_a_session_says_how_it_changed_the_files(world: World, server: ModelServer) -> None:
    session = edited(world, server)
    said = world.steno("diff", session)
    assert "-second\n+changed\n" in said
    assert "--- /dev/null\n+++ b/sub/b.txt\n" in said


WRITES = 14


@pytest.mark.promise(78)
@pytest.mark.suite("before-6", "after-6", "before-7", "after-7", "after-12")
@pytest.mark.parametrize("n", range(1, WRITES + 1))
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_edit_that_was_killed_at_any_write_can_be_undone(
    world: World, server: ModelServer, when: str, n: int
) -> None:
    (world.work / "a.txt").write_text(OLD)
    server.replies = edits()
    die(world, when, n, "run", "edit", "--yes")
    a, b = files(world)
    assert a in (OLD, NEW)
    assert b in (None, MADE)
    if world.sessions() and (a, b) != (OLD, None):
        world.steno("undo", world.only_session(), "--files")
    assert files(world) == (OLD, None)
    assert not list(world.work.glob("**/.steno-*")) or when == "before"


@pytest.mark.promise(78)
@pytest.mark.suite("before-2", "after-2", "before-3", "after-3", "before-4")
@pytest.mark.parametrize("n", range(1, 6))
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_undo_that_was_killed_at_any_write_is_finished(
    world: World, server: ModelServer, when: str, n: int
) -> None:
    session = edited(world, server)
    die(world, when, n, "undo", session, "--files")
    a, b = files(world)
    assert a in (OLD, NEW)
    assert b in (None, MADE)
    world.steno("undo", session, "--files")
    assert files(world) == (OLD, None)
    world.steno("undo", session, "--redo-files")
    assert files(world) == (NEW, MADE)
