"""A crash, a bad disk or a full disk at every single operation on a file: nothing acknowledged is
lost.

die      the process ends before the operation
torn     the process ends in the middle of a write
power    the machine ends: what no sync covered is left in part, in any order
eio      the operation fails, and the program goes on
enospc   the disk is full for one operation, and the program goes on
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from steno.store.protocol import Durability
from steno.store.sqlite.store import BlockingStore
from tests.chance import SEED, chance_of
from tests.crash.check import SETTINGS, check, observed
from tests.crash.disk import Crash, crash_points, crashes, put
from tests.crash.faulty_vfs import Fault, FaultAt
from tests.crash.points import part, sampled, where
from tests.crash.recording import EMPTY, STORE, Recording, record
from tests.crash.script import script
from tests.crash.world import Write

SUITE_PARTS = 4
PARTS = 10
CUTS = 3
"""How often the power is cut at each point, each time with other chances."""

Say = Callable[[str], None]


@cache
def recording(durability: Durability = "power") -> Recording:
    with tempfile.TemporaryDirectory() as name:
        return record(script(), Path(name) / STORE, durability=durability)


def fault_points(fault: Fault) -> list[int]:
    return [n for n, op in enumerate(recording().ops) if FaultAt(n, fault).applies_to(op.kind)]


@contextmanager
def a_place(folder: Path, what: str, n: int) -> Iterator[Path]:
    """A folder for one point; a failure inside says how to repeat it."""
    place = Path(tempfile.mkdtemp(dir=folder))
    try:
        yield place
    except BaseException as error:
        error.add_note(where(what, n))
        raise
    shutil.rmtree(place)


def crash_at(
    points: Sequence[int], how: Crash, folder: Path, ran: Recording | None = None, seed: int = SEED
) -> None:
    ran = ran or recording()
    for n, files in crashes(ran.ops, EMPTY, how, points, seed):
        with a_place(folder, how, n) as place:
            put(files, place)
            check(place / STORE, script(), ran.done(n))


def fail_at(points: Sequence[int], fault: Fault, folder: Path) -> None:
    """One fault at each point, in a run of its own, that ends with everything in its place."""
    for n in points:
        with a_place(folder, fault, n) as place:
            ran = record(script(), place / STORE, FaultAt(n, fault))
            check(place / STORE, script(), len(script().verbs))
            assert ran.ops[n].failed


def fail_then_cut(points: Sequence[int], folder: Path) -> None:
    """A fault at each point, and then, at some later moment, the end of the power."""
    for n in points:
        with a_place(folder, "eio, then power,", n) as place:
            ran = record(script(), place / STORE, FaultAt(n, "eio"))
            later = sorted(chance_of("later", n).choices(range(n + 1, len(ran.ops) + 1), k=CUTS))
            crash_at(later, "power", place, ran, SEED + n)


def test_the_script_is_long_enough_to_mean_something() -> None:
    facts = {
        id(fact)
        for world in script().worlds
        for journal in world.journals.values()
        for fact in journal.facts
    }
    pieces = sum(isinstance(verb, Write) for verb in script().verbs)
    assert (len(facts) >= 100, pieces >= 50, len(recording().ops) >= 1_000) == (True, True, True)


@pytest.mark.promise(2, 5, 48)
@pytest.mark.parametrize("i", range(SUITE_PARTS))
@pytest.mark.parametrize("how", ["die", "torn", "power"])
def test_a_crash_loses_nothing_acknowledged(how: Crash, i: int, folder: Path) -> None:
    crash_at(part(sampled(crash_points(recording().ops, how)), i, SUITE_PARTS), how, folder)


@pytest.mark.torture
@pytest.mark.promise(2, 5, 48)
@pytest.mark.parametrize("i", range(PARTS))
@pytest.mark.parametrize(
    ("how", "chances"), [("die", 0), ("torn", 0), *(("power", i) for i in range(CUTS))]
)
def test_a_crash_at_any_operation_loses_nothing_acknowledged(
    how: Crash, chances: int, i: int, folder: Path, say: Say
) -> None:
    points = crash_points(recording().ops, how)
    mine = part(points, i, PARTS)
    crash_at(mine, how, folder, seed=SEED + chances)
    say(f"{how} ({chances}): {len(mine)} of {len(points)} points held")


@pytest.mark.promise(3)
@pytest.mark.parametrize("i", range(SUITE_PARTS))
@pytest.mark.parametrize("fault", ["eio", "enospc"])
def test_a_fault_is_reported_and_can_be_settled(fault: Fault, i: int, folder: Path) -> None:
    fail_at(part(sampled(fault_points(fault)), i, SUITE_PARTS), fault, folder)


@pytest.mark.torture
@pytest.mark.promise(3)
@pytest.mark.parametrize("i", range(PARTS))
@pytest.mark.parametrize("fault", ["eio", "enospc"])
def test_a_fault_at_any_operation_is_reported_and_can_be_settled(
    fault: Fault, i: int, folder: Path, say: Say
) -> None:
    points = fault_points(fault)
    mine = part(points, i, PARTS)
    fail_at(mine, fault, folder)
    say(f"{fault}: {len(mine)} of {len(points)} points held")


@pytest.mark.promise(2, 5)
def test_a_power_cut_after_a_fault_loses_nothing_acknowledged(folder: Path) -> None:
    fail_then_cut(sampled(fault_points("eio"), 160), folder)


@pytest.mark.torture
@pytest.mark.promise(2, 5)
@pytest.mark.parametrize("i", range(PARTS))
def test_a_power_cut_after_any_fault_loses_nothing_acknowledged(
    i: int, folder: Path, say: Say
) -> None:
    points = fault_points("eio")
    mine = part(points, i, PARTS)
    fail_then_cut(mine, folder)
    say(f"eio, then {CUTS} power cuts: {len(mine)} of {len(points)} points held")


def test_a_failed_sync_is_an_unknown_outcome(folder: Path) -> None:
    for n in sampled(recording().commits()):
        with a_place(folder, "eio", n) as place:
            ran = record(script(), place / STORE, FaultAt(n, "eio"))
            assert (ran.unknown, ran.refused) == (1, 0)


def test_a_process_that_dies_leaves_what_the_recording_says(folder: Path) -> None:
    """One recording stands for all deaths: here are some real ones to compare."""
    for n in sampled(crash_points(recording().ops, "die"), 150)[:-1]:
        with a_place(folder, "die, live,", n) as place:
            ran = record(script(), place / STORE, FaultAt(n, "die"))
            assert len(ran.ops) == n
            assert len(ran.acknowledged) == recording().done(n)
            check(place / STORE, script(), len(ran.acknowledged))


def test_the_weaker_setting_survives_the_death_of_the_process(folder: Path) -> None:
    ran = recording("process")
    crash_at(sampled(range(len(ran.ops) + 1), 40), "die", folder, ran)


def test_the_weaker_setting_may_lose_the_last_of_it_in_a_power_cut_and_nothing_else(
    folder: Path,
) -> None:
    """What is left is the world as it was at some earlier moment. That some are earlier shows that
    these tests can fail."""
    ran = recording("process")
    lost = 0
    for n, files in crashes(ran.ops, EMPTY, "power", sampled(range(len(ran.ops) + 1), 10), SEED):
        with a_place(folder, "power", n) as place:
            put(files, place)
            with BlockingStore(place / STORE, SETTINGS) as store:
                assert store.verify().damage == ()
                found = observed(store, script()).readable()
            worlds = [world.readable() for world in script().worlds[: ran.done(n) + 2]]
            assert found in worlds
            lost += found not in worlds[-2:]
    assert lost > 0
