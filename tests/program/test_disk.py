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

from steno.journal.facts import SessionStarted
from steno.store.sqlite.store import BlockingStore
from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_views import complaint
from tests.program.test_transfer import large_file
from tests.program.world import World, wait_until


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


# --- in the middle of a turn ----------------------------------------------------------------------

LONG = "and much more " * 3_000


def turn_of(world: World, session: str) -> tuple[str, str]:
    turn = world.show(session)["turns"][-1]
    return str(turn["outcome"]), str(turn["cause"])


def check_kept(
    world: World, server: ModelServer, session: str, cause: str, stored: str = "shown "
) -> None:
    """Every view has the cause, and going on answers what was said once."""
    assert turn_of(world, session) == ("interrupted", cause)
    assert [m["text"] for m in world.messages(session)] == ["hi", stored]
    server.replies = [Reply(("the rest",))]
    assert world.steno("continue", session) == "the rest\n"
    shown = world.show(session)
    assert [turn["cause"] for turn in shown["turns"]] == [cause, ""]
    assert [m["text"] for m in shown["messages"] if m["role"] == "user"] == ["hi"]
    assert json.loads(world.steno("verify", "--json"))["damage"] == []


@pytest.mark.promise(3)
@pytest.mark.promise(34)
@pytest.mark.parametrize("output", ["text", "ndjson"])
def test_a_disk_that_fills_up_in_a_turn_is_told_as_the_cause_and_everything_is_kept(
    tmp_path: Path, small_disk: Path, server: ModelServer, output: str
) -> None:
    world = World(tmp_path, server.url)
    server.replies = [Reply(("shown ", LONG), held=True)]
    with world.start("run", "hi", "--key", "k", "--output", output) as program:
        program.wait_shown("shown ")
        filler = fill(small_disk)
        server.go_on()
        assert program.end() == 1
        said = program.errors()
        shown = program.shown()
    session = world.only_session()
    if output == "ndjson":
        last = json.loads(shown.splitlines()[-1])
        assert (last["type"], last["outcome"], last["cause"]) == (
            "turn_ended",
            "interrupted",
            "store_full",
        )
    else:
        assert "the disk is full" in said
        assert f"steno continue {session}" in said
    assert "nothing was stored" not in said
    assert "try again" not in said
    assert turn_of(world, session) == ("interrupted", "store_full"), "while it is full, too"
    filler.unlink()
    check_kept(world, server, session, "store_full")


@pytest.mark.promise(3)
@pytest.mark.promise(34)
def test_a_store_that_is_locked_in_a_turn_is_told_as_the_cause_and_everything_is_kept(
    world: World, server: ModelServer
) -> None:
    world.environment["STENO_STORE_LOCK_WAIT_MS"] = "300"
    server.replies = [Reply(("shown ", LONG), held=True)]
    with world.start("run", "hi", "--key", "k") as program:
        program.wait_shown("shown ")
        with closing(sqlite3.connect(world.home / "store.db", isolation_level=None)) as holder:
            holder.execute("begin immediate")
            server.go_on()
            assert program.end() == 1
            said = program.errors()
            holder.execute("rollback")
    session = world.only_session()
    assert "another process" in said
    assert f"steno continue {session}" in said
    assert "nothing was stored" not in said
    check_kept(world, server, session, "store_locked")


@pytest.mark.promise(3)
@pytest.mark.promise(16)
def test_a_disk_that_fills_up_after_the_prompt_was_stored_says_that_it_waits(
    tmp_path: Path, small_disk: Path, server: ModelServer
) -> None:
    """Another process runs the session meanwhile, and dies."""
    world = World(tmp_path, server.url)
    world.home.mkdir(exist_ok=True)
    with BlockingStore(world.home / "store.db") as store:
        session = store.create(SessionStarted("test", name="k"))
        store.acquire(session)
        with world.start("run", "hi", "--key", "k") as program:
            wait_until(lambda: bool(world.messages(session)), "the prompt to be stored")
            filler = fill(small_disk)
            store.close()
            assert program.end() == 1
            said = program.errors()
    assert "the disk is full" in said
    assert f"is saved in session {session}" in said
    assert f"steno continue {session}" in said
    assert "nothing was stored" not in said
    assert "try again" not in said
    filler.unlink()
    server.replies = [Reply(("here",))]
    assert world.steno("continue", session) == "here\n"
    assert [m["text"] for m in world.messages(session)] == ["hi", "here"]
