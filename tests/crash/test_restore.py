"""A restore dies on each of its lines: there is the old store or the new one, whole, and never a
mixture."""

import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from steno.store.sqlite.backup import restore
from steno.store.sqlite.store import BlockingStore
from tests.chance import SEED
from tests.crash.check import SETTINGS, assert_goes_on, observed
from tests.crash.disk import crashes, put
from tests.crash.lines import Died, before_line
from tests.crash.powercut import NoDisk, power_disk
from tests.crash.processes import Child
from tests.crash.recording import EMPTY, STORE, record
from tests.crash.script import script

BACKUP = "backup.db"
REPLACED = STORE + ".replaced"
WORKS_EACH = 4
BACKED_UP = 60
"""The backup was made after so many verbs of the script. The store went on to the end, and its
process was killed."""

LINES_MAX = 200

Say = Callable[[str], None]


@cache
def files() -> dict[str, bytes]:
    """A store with a part of it in its log, and the backup."""
    with tempfile.TemporaryDirectory() as name:
        made, saved = Path(name) / "made", Path(name) / "saved"
        made.mkdir()
        saved.mkdir()
        ran = record(script(), made / STORE)
        at = [ran.acknowledged[BACKED_UP - 1], ran.acknowledged[-1]]
        (_, early), (_, late) = crashes(ran.ops, EMPTY, "die", at, SEED)
        put(early, saved)
        with BlockingStore(saved / STORE, SETTINGS) as store:
            store.backup(saved / BACKUP)
        return {**late, BACKUP: (saved / BACKUP).read_bytes()}


def die() -> None:
    raise Died


def dies_in_restore(n: int, place: Path) -> bool:
    return before_line(n, lambda: restore(place / BACKUP, place / STORE), die)


def holds(path: Path) -> str:
    """Which of the two a store is; it must be one of them, to the last character."""
    worlds = {"old": script().world, "new": script().worlds[BACKED_UP]}
    with BlockingStore(path, SETTINGS) as store:
        found = observed(store, script())
        assert store.verify().damage == ()
    return next(name for name, world in worlds.items() if world.readable() == found.readable())


def assert_works(path: Path) -> None:
    with BlockingStore(path, SETTINGS) as store:
        assert_goes_on(store, sorted(observed(store, script()).journals))


def deaths(folder: Path) -> list[Path]:
    """The folders that a restore leaves that dies on its first line, on its second, and so on; the
    last one lived."""
    left: list[Path] = []
    for n in range(LINES_MAX):
        place = folder / f"dying-{n}"
        place.mkdir()
        put(files(), place)
        died = dies_in_restore(n, place)
        # A dead process holds no locks. This one lives on, so a copy is looked at, whose locks
        # nobody holds.
        left.append(Path(shutil.copytree(place, folder / f"dead-{n}")))
        if not died:
            return left
    raise AssertionError("a restore has more lines than were tried")


@pytest.mark.promise(51)
def test_a_restore_that_dies_leaves_the_old_store_or_the_new_one(folder: Path) -> None:
    """And it can be run again; what was there before is kept whole, unless the first run had come
    to its end."""
    found = []
    for number, place in enumerate(deaths(folder)):
        found.append(holds(place / STORE))
        ended = (place / REPLACED).exists() and (place / STORE).exists()
        restore(place / BACKUP, place / STORE)
        assert holds(place / STORE) == "new"
        assert holds(place / REPLACED) == ("new" if ended else "old")
        if number % WORKS_EACH == 0:
            assert_works(place / STORE)
    assert found == sorted(found, reverse=True), "once it is new, it stays new"
    assert set(found) == {"old", "new"}


def cut_in_restore(n: int, folder: Path) -> tuple[bool, str]:
    """Cut the power before line n of a restore; whether there is such a line, and what is left."""
    with power_disk(folder) as disk:
        put(files(), disk.folder)
        disk.restart()
        store, saved = disk.folder / STORE, disk.folder / BACKUP
        child = Child("lines", str(saved), str(store), str(n), str(disk.folder))
        died = child.was_killed()
        complaints = child.finish()[1]
        assert died or not complaints, complaints
        disk.restart()
        return died, holds(store)


@pytest.mark.torture
@pytest.mark.promise(51)
def test_a_power_cut_during_a_restore_leaves_the_old_store_or_the_new_one(
    folder: Path, say: Say
) -> None:
    found: list[str] = []
    died = True
    while died:
        try:
            died, what = cut_in_restore(len(found), folder)
        except NoDisk as reason:
            pytest.skip(str(reason))
        found.append(what)
    assert found == sorted(found, reverse=True), "once it is new, it stays new"
    assert set(found) == {"old", "new"}
    say(f"restore: {len(found)} power cuts, the store is new from line {found.index('new')}")
