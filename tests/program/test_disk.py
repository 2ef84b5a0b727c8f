"""A disk that is full, and a store that cannot be written: the submit fails with the reason and no
request goes out."""

import contextlib
import json
import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_views import complaint
from tests.program.test_transfer import large_file
from tests.program.world import World


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "home"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", str(folder)]
    if (
        os.name != "posix"
        or os.geteuid() != 0
        or subprocess.run(mount, capture_output=True).returncode != 0
    ):
        pytest.skip("needs root and tmpfs to make a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], capture_output=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return filler


def make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


@pytest.mark.promise(3)
def test_a_full_disk_refuses_the_prompt_with_the_reason_and_sends_nothing(
    tmp_path: Path, small_disk: Path, server: ModelServer
) -> None:
    world = World(tmp_path, server.url)
    world.steno("run", "kept", "--key", "k")
    sent = len(server.requests)
    filler = fill(small_disk)
    with world.start("run", "x" * 20_000, "--key", "k") as program:
        assert program.end() == 1
        said = program.errors()
        assert "the disk is full" in said
        assert (
            "make room and try again; meanwhile sessions, show, export, verify and backup work"
            in said
        )
    assert len(server.requests) == sent
    filler.unlink()
    server.replies = [Reply(("room again",))]
    assert world.steno("run", "later", "--key", "k") == "room again\n"
    assert [message["text"] for message in world.messages(world.only_session(), "user")] == [
        "kept",
        "later",
    ]


@pytest.mark.promise(3)
def test_a_home_that_is_not_a_folder_is_named(world: World, server: ModelServer) -> None:
    world.home.write_text("in the way")
    with world.start("run", "hi") as program:
        assert program.end() == 2
        assert str(world.home) in program.errors()
    assert server.requests == []


@pytest.mark.promise(50)
def test_a_store_that_is_not_a_database_is_named_and_left_alone(
    world: World, server: ModelServer
) -> None:
    world.home.mkdir()
    (world.home / "store.db").write_bytes(b"not a database, but somebody's file" * 100)
    with world.start("run", "hi") as program:
        assert program.end() == 1
        assert "not a database" in program.errors()
    assert server.requests == []
    assert (world.home / "store.db").read_bytes().startswith(b"not a database")


@pytest.mark.promise(50)
def test_a_damaged_fact_is_reported_by_every_command_and_nothing_is_accepted(
    world: World, server: ModelServer
) -> None:
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
    with contextlib.closing(
        sqlite3.connect(f"file:{world.home / 'store.db'}?immutable=1", uri=True)
    ) as other:
        return int(other.execute("select max(id) from facts").fetchone()[0])


@pytest.mark.promise(3)
def test_a_disk_that_cannot_be_written_refuses_the_prompt_with_the_reason_and_sends_nothing(
    tmp_path: Path, small_disk: Path, server: ModelServer
) -> None:
    world = World(tmp_path, server.url)
    world.steno("run", "kept", "--key", "k")
    make_read_only(small_disk)
    errors = complaint(world, "run", "refused", "--key", "k", expect=1)
    assert "Read-only" in errors
    assert (
        "mend the permissions and try again; meanwhile sessions, show, export, verify and "
        "backup work"
    ) in errors
    assert len(server.requests) == 1
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    world.steno("run", "later", "--key", "k")
    assert [message["text"] for message in world.messages(world.only_session(), "user")] == [
        "kept",
        "later",
    ]


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
    assert (
        "nothing was stored: another process has been writing to the store for too long; try again"
        in errors
    )
    assert len(server.requests) == 1
    world.steno("run", "later", "--key", "k")
    assert [message["text"] for message in world.messages(world.only_session(), "user")] == [
        "kept",
        "later",
    ]


@pytest.mark.parametrize(
    ("before", "then"),
    [("closed", fill), ("closed", make_read_only), ("killed", make_read_only), ("live", fill)],
)
@pytest.mark.suite("closed-fill", "killed-make_read_only", "live-fill")
def test_what_is_stored_can_be_read_from_a_disk_that_cannot_be_written(
    tmp_path: Path,
    small_disk: Path,
    server: ModelServer,
    before: str,
    then: Callable[[Path], object],
) -> None:
    """A store that was closed has no log beside it, a kill leaves one, and a live process goes on
    with its own."""
    world = World(tmp_path, server.url)
    world.steno("run", "kept", "--key", "k")
    server.replies = [Reply(("cut off",), then="hang")]
    with (
        contextlib.nullcontext()
        if before == "closed"
        else world.start("run", "more", "--key", "k") as program
    ):
        if program is not None:
            program.wait_shown("cut off")
        if program is not None and before == "killed":
            program.kill()
        then(small_disk)
        session = world.only_session()
        told = [message["text"] for message in world.messages(session)]
        assert told == (["kept", "ok"] if before == "closed" else ["kept", "ok", "more", "cut off"])
        assert world.sessions()[0]["running"] == (before == "live")
        world.steno("verify")
        world.steno("backup", str(tmp_path / "copy.db"))
        assert f'"{told[-1]}"' in world.steno("export", session)
    assert (tmp_path / "copy.db").stat().st_size


@pytest.mark.promise(3)
@pytest.mark.promise(59)
def test_an_import_for_which_there_is_no_room_leaves_the_store_as_it_was(
    tmp_path: Path, small_disk: Path, server: ModelServer
) -> None:
    world = World(tmp_path, server.url)
    world.steno("run", "kept", "--key", "k")
    before = world.sessions()
    file = large_file(world.work / "large.steno", 4_000, size=1_000)
    said = complaint(world, "import", str(file), expect=1)
    assert "the disk is full" in said
    assert "make room and try again" in said
    assert world.sessions() == before
    subprocess.run(["mount", "-o", "remount,size=60m", str(small_disk)], check=True)
    world.steno("import", str(file))
    assert {one["messages"] for one in world.sessions()} == {2, 4_000}
    assert json.loads(world.steno("verify", "--json"))["damage"] == []
