"""The power of a real file system is cut under a running program: nothing acknowledged before the
cut is lost."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from steno.store.errors import UnknownSession
from steno.store.protocol import Durability
from steno.store.sqlite.store import BlockingStore
from tests.chance import chance_of
from tests.crash.acks import Shown, Stored, assert_kept, parse
from tests.crash.check import assert_goes_on, assert_recovers
from tests.crash.powercut import NoDisk, PowerDisk, power_disk
from tests.crash.processes import Child
from tests.crash.recording import STORE

LINES_MAX = 6_000
OPENING_S_MAX = 0.08
CUTS = 16

Cut = Callable[[PowerDisk, Random], list[Stored | Shown]]
Say = Callable[[str], None]


@pytest.fixture
def disk(folder: Path) -> Iterator[PowerDisk]:
    try:
        with power_disk(folder) as disk:
            yield disk
    except NoDisk as reason:
        pytest.skip(str(reason))


def cut_while_writing(
    disk: PowerDisk, chance: Random, durability: Durability = "power"
) -> list[Stored | Shown]:
    """What a writer was told before the power was cut, at some moment after it had begun."""
    child = Child(
        "writer", str(disk.folder / STORE), str(chance.choice((20, 100, 1000))), durability
    )
    child.hear(1 + chance.randint(0, LINES_MAX))
    return _cut(disk, child)


def cut_while_opening(disk: PowerDisk, chance: Random) -> list[Stored | Shown]:
    """The store is being made, or has just been made."""
    child = Child("writer", str(disk.folder / STORE), "20", "power")
    child.hear(1)
    time.sleep(chance.uniform(0, OPENING_S_MAX))
    return _cut(disk, child)


def _cut(disk: PowerDisk, child: Child) -> list[Stored | Shown]:
    child.assert_runs()
    try:
        began_s = disk.cut()
    finally:
        said = child.kill()
    disk.restart()
    return parse(said, before_s=began_s)


def assert_whole(path: Path, acks: list[Stored | Shown]) -> None:
    with BlockingStore(path) as store:
        assert store.verify().damage == ()
        assert_kept(store, acks)
        sessions = [listed.id for listed in store.list(limit=1_000)]
        for session in sessions:
            assert_recovers(store, session)
        assert_goes_on(store, sessions)
        assert_kept(store, acks)


@pytest.mark.promise(2, 5)
@pytest.mark.parametrize("cut", [cut_while_writing, cut_while_opening])
def test_a_power_cut_loses_nothing_acknowledged(cut: Cut, disk: PowerDisk) -> None:
    assert_whole(disk.folder / STORE, cut(disk, chance_of("power")))


@pytest.mark.torture
@pytest.mark.promise(2, 5)
@pytest.mark.parametrize("i", range(CUTS))
@pytest.mark.parametrize("cut", [cut_while_writing, cut_while_opening])
def test_no_power_cut_loses_anything_acknowledged(
    cut: Cut, i: int, disk: PowerDisk, say: Say
) -> None:
    acks = cut(disk, chance_of("power", i))
    assert_whole(disk.folder / STORE, acks)
    say(f"{cut.__name__} {i}: {len(acks)} acknowledgements held")


@pytest.mark.torture
def test_the_weaker_setting_loses_something_in_some_power_cut(disk: PowerDisk) -> None:
    """Else this disk could not tell a store that syncs from one that does not."""
    acks = cut_while_writing(disk, chance_of("weak"), "process")
    with BlockingStore(disk.folder / STORE) as store:
        assert store.verify().damage == ()
        with pytest.raises((AssertionError, UnknownSession), match=r"lost|no session"):
            assert_kept(store, acks)
