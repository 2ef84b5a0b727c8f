"""A store that was looked at with plain SQLite, which knows nothing of checksums in its pages."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.program.world import World

MODEL = ("--model", "scripted:echo")
SAID = ("the first thing", "the second thing", "the third thing")


def use_in_order(world: World) -> None:
    """Several runs, each of which ended in order: so the store's file is whole, and all of its
    pages have their checksums."""
    for said in SAID:
        world.steno("run", said, *MODEL)


def kill_before_write(world: World, n: int) -> None:
    with world.start_dying("before", n, "run", "the last thing", *MODEL) as program:
        assert program.end() == -9
    assert log_of(world).stat().st_size > 0


def log_of(world: World) -> Path:
    return world.home / "store.db-wal"


def look_with_plain_sqlite(world: World) -> None:
    """As a curious person does. SQLite copies the log into the database when it leaves."""
    code = (
        "import sqlite3, sys; "
        "print(sqlite3.connect(sys.argv[1]).execute('select count(*) from journal').fetchone())"
    )
    subprocess.run([sys.executable, "-c", code, world.home / "store.db"], check=True)
    assert not log_of(world).exists()


def damage(world: World) -> None:
    """A few letters of what was said, on the disk."""
    store = world.home / "store.db"
    whole = store.read_bytes()
    assert whole.count(b"the second thing") > 0
    store.write_bytes(whole.replace(b"the second thing", b"the second ring!"))


def titles(world: World) -> set[str]:
    return {session["title"] for session in world.sessions()}


@pytest.mark.promise(2, 50)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_after_a_kill_and_a_look_with_plain_sqlite_every_command_works(
    world: World, n: int
) -> None:
    use_in_order(world)
    kill_before_write(world, n)
    look_with_plain_sqlite(world)
    assert titles(world) == {*SAID, "the last thing"}
    assert "no damage" in world.steno("verify")
    assert "nothing to do" in world.steno("verify", "--adopt")
    world.steno("run", "one more thing", *MODEL)
    assert titles(world) == {*SAID, "the last thing", "one more thing"}


@pytest.mark.promise(50)
@pytest.mark.parametrize("n", [1, 4])
def test_damage_beside_such_a_look_is_still_damage(world: World, n: int) -> None:
    use_in_order(world)
    kill_before_write(world, n)
    look_with_plain_sqlite(world)
    damage(world)
    before = (world.home / "store.db").read_bytes()
    for words in (("sessions",), ("verify",), ("verify", "--adopt"), ("run", "more", *MODEL)):
        with world.start(*words) as program:
            assert program.end() == 1
            assert "damage" in (program.shown() + program.errors()).lower()
    assert (world.home / "store.db").read_bytes() == before


@pytest.mark.promise(50)
def test_damage_that_no_other_program_made_is_not_adopted(world: World) -> None:
    use_in_order(world)
    damage(world)
    with world.start("verify", "--adopt") as program:
        assert program.end() == 1
        assert "damaged" in program.errors()
    with world.start("sessions") as program:
        assert program.end() == 1


def test_a_program_that_looks_longer_than_the_last_steno_runs_does_no_harm(world: World) -> None:
    use_in_order(world)
    with closing(sqlite3.connect(world.home / "store.db")) as stranger:
        assert stranger.execute("select count(*) from sessions").fetchone() == (3,)
        world.steno("run", "the last thing", *MODEL)
        assert log_of(world).exists()
    assert not log_of(world).exists()
    assert titles(world) == {*SAID, "the last thing"}
    assert "no damage" in world.steno("verify")
