"""A process is killed at a random instant: what it had acknowledged is there."""

import time
from pathlib import Path
from random import Random

import pytest

from steno.store.sqlite.store import BlockingStore
from tests.chance import chance_of
from tests.crash.acks import Shown, Stored, assert_kept, parse
from tests.crash.check import assert_goes_on, assert_recovers, check
from tests.crash.points import where
from tests.crash.processes import Child
from tests.crash.recording import STORE
from tests.crash.script import script

SUITE_PARTS, SUITE_KILLS = 3, 5
PARTS, KILLS = 10, 20
WRITERS = 8
FEW_PAGES = 30
"""So few that the store's own thread makes checkpoints all the time."""
PAUSE_S_MAX = 0.001


def kill_sweep(chance: Random, kills: int, folder: Path) -> None:
    for i in range(kills):
        place = folder / str(i)
        place.mkdir()
        lines, pause_s = chance.randint(1, len(script().verbs)), chance.uniform(0, PAUSE_S_MAX)
        done = killed_after(lines, pause_s, place / STORE)
        try:
            check(place / STORE, script(), done)
        except BaseException as error:
            error.add_note(where(f"killed with {done} verbs acknowledged,", i))
            raise


def killed_after(lines: int, pause_s: float, path: Path) -> int:
    """How many verbs a process had acknowledged when it was killed, a moment after it had said so
    many lines."""
    child = Child("run_script", str(path), str(FEW_PAGES))
    child.hear(lines)
    child.assert_runs()
    wait(pause_s)
    said = child.kill()
    numbers = [line for line in said[: said.rfind(b"\n") + 1].splitlines() if line.isdigit()]
    return int(numbers[-1]) if numbers else 0


def wait(pause_s: float) -> None:
    """Choose the instant. A sleep would be too coarse."""
    until = time.perf_counter() + pause_s
    while time.perf_counter() < until:
        pass


@pytest.mark.promise(2, 5)
@pytest.mark.parametrize("i", range(SUITE_PARTS))
def test_what_a_killed_process_acknowledged_is_there(i: int, folder: Path) -> None:
    kill_sweep(chance_of("kill", i), SUITE_KILLS, folder)


@pytest.mark.torture
@pytest.mark.promise(2, 5)
@pytest.mark.parametrize("i", range(PARTS))
def test_what_a_process_killed_at_any_time_acknowledged_is_there(i: int, folder: Path) -> None:
    kill_sweep(chance_of("kill", i), KILLS, folder)


def kill_among_eight(rounds: int, chance: Random, path: Path) -> None:
    """Eight processes write to one store; in each round one of them is killed and another takes its
    place."""
    children = [
        Child("writer", str(path), str(chance.choice((FEW_PAGES, 1000))), "power")
        for _ in range(WRITERS)
    ]
    acks: list[Stored | Shown] = []
    try:
        for _ in range(rounds):
            victim = chance.randrange(WRITERS)
            children[victim].hear(chance.randint(1, 400))
            wait(chance.uniform(0, PAUSE_S_MAX))
            children[victim].assert_runs()
            acks += parse(children[victim].kill())
            children[victim] = Child("writer", str(path), str(FEW_PAGES), "power")
        for child in children:
            child.hear(20)
    finally:
        acks += [ack for child in children for ack in parse(child.kill())]
    with BlockingStore(path) as store:
        assert_kept(store, acks)
        assert store.verify().damage == ()
        for session in {ack.session for ack in acks}:
            assert_recovers(store, session)
        assert_goes_on(store, [acks[0].session])
        assert_kept(store, acks)


@pytest.mark.promise(48)
def test_eight_processes_with_random_kills_lose_nothing_acknowledged(folder: Path) -> None:
    kill_among_eight(4, chance_of("eight"), folder / STORE)


@pytest.mark.torture
@pytest.mark.promise(48)
@pytest.mark.parametrize("i", range(5))
def test_eight_processes_with_many_random_kills_lose_nothing_acknowledged(
    i: int, folder: Path
) -> None:
    kill_among_eight(40, chance_of("eight", i), folder / STORE)
