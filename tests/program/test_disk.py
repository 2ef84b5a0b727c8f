"""A disk that is full, and a store that cannot be written: the submit fails with the reason and no request goes out."""

import contextlib
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_views import complaint
from tests.program.world import World


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "home"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", str(folder)]
    if os.name != "posix" or os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs root and tmpfs to make a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], capture_output=True)


@pytest.mark.promise(3)
def test_a_full_disk_refuses_the_prompt_with_the_reason_and_sends_nothing(
    tmp_path: Path, small_disk: Path, server: ModelServer
) -> None:
    world = World(tmp_path, server.url)
    world.steno("run", "kept", "--key", "k")
    sent = len(server.requests)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    with world.start("run", "x" * 20_000, "--key", "k") as program:
        assert program.end() == 1
        said = program.errors()
        assert "the disk is full" in said
        assert "make room" in said
    assert len(server.requests) == sent
    filler.unlink()
    server.replies = [Reply(("room again",))]
    assert world.steno("run", "later", "--key", "k") == "room again\n"
    assert [message["text"] for message in world.messages(world.only_session(), "user")] == ["kept", "later"]


@pytest.mark.promise(3)
def test_a_home_that_is_not_a_folder_is_named(world: World, server: ModelServer) -> None:
    world.home.write_text("in the way")
    with world.start("run", "hi") as program:
        assert program.end() == 2
        assert str(world.home) in program.errors()
    assert server.requests == []


@pytest.mark.promise(50)
def test_a_store_that_is_not_a_database_is_named_and_left_alone(world: World, server: ModelServer) -> None:
    world.home.mkdir()
    (world.home / "store.db").write_bytes(b"not a database, but somebody's file" * 100)
    with world.start("run", "hi") as program:
        assert program.end() == 1
        assert "not a database" in program.errors()
    assert server.requests == []
    assert (world.home / "store.db").read_bytes().startswith(b"not a database")


@pytest.mark.promise(50)
def test_a_damaged_fact_is_reported_by_every_command_and_nothing_is_accepted(world: World, server: ModelServer) -> None:
    """The damage lies in a page that an input does not touch."""
    for i in range(4):
        world.steno("run", f"prompt {i} " + "x" * 6_000, "--key", "k")
    session, sent, stored = world.only_session(), len(server.requests), last_fact(world)
    store = world.home / "store.db"
    whole = store.read_bytes()
    at = whole.index(b'"text":"prompt 0') + len(b'"text":"')
    store.write_bytes(whole[:at] + b"P" + whole[at + 1 :])
    answer = ("run", "and now?", "--key", "k")
    for command in (answer, (*answer, "--detach"), ("show", session), ("sessions",), ("verify",)):
        with world.start(*command) as program:
            assert program.end() == 1
            assert "damaged" in program.errors() + program.shown()
    assert len(server.requests) == sent
    assert last_fact(world) == stored


def last_fact(world: World) -> int:
    """Of all sessions, as a stranger's SQLite sees it."""
    with contextlib.closing(sqlite3.connect(f"file:{world.home / 'store.db'}?immutable=1", uri=True)) as other:
        return int(other.execute("select max(id) from facts").fetchone()[0])


@pytest.mark.promise(3)
def test_a_disk_that_cannot_be_written_refuses_the_prompt_with_the_reason_and_sends_nothing(
    tmp_path: Path, small_disk: Path, server: ModelServer
) -> None:
    world = World(tmp_path, server.url)
    world.steno("run", "kept", "--key", "k")
    remount = ["mount", "-o", "remount,ro", str(small_disk)]
    subprocess.run(remount, check=True)
    errors = complaint(world, "run", "refused", "--key", "k", expect=1)
    assert "Read-only" in errors
    assert "nothing was changed" in errors
    assert len(server.requests) == 1
    subprocess.run([*remount[:2], "remount,rw", str(small_disk)], check=True)
    world.steno("run", "later", "--key", "k")
    assert [message["text"] for message in world.messages(world.only_session(), "user")] == ["kept", "later"]


@pytest.mark.promise(3)
def test_a_store_that_is_locked_for_too_long_refuses_the_prompt_with_the_reason_and_sends_nothing(
    world: World, server: ModelServer
) -> None:
    world.steno("run", "kept", "--key", "k")
    world.environment["STENO_STORE_LOCK_WAIT_MS"] = "300"
    with closing(sqlite3.connect(world.home / "store.db", isolation_level=None)) as holder:
        holder.execute("begin immediate")
        errors = complaint(world, "run", "refused", "--key", "k", expect=1)
        holder.execute("rollback")
    assert "nothing was stored: another process has been writing to the store for too long; try again" in errors
    assert len(server.requests) == 1
    world.steno("run", "later", "--key", "k")
    assert [message["text"] for message in world.messages(world.only_session(), "user")] == ["kept", "later"]
