"""The checks. Each has one sentence that says what must hold, and is a function that returns what
broke it: nothing, if it holds.

    Bench        where a check works: one store, one seed, fresh folders, processes that can be
                 killed
    CHECKS       all of them, by name
    Unreachable  the check could not be carried out with this store
"""

import json
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from crashkit.child import batch_of, find
from crashkit.forks import Forks, Process

LIMIT_S = 60.0
DISK_BYTES = 400_000
DISK_BATCHES = 120
DISK_PAD = 2_000
PIECES = 2_000
KILL_WITHIN_S = 0.004


class Unreachable(Exception):
    """What the check is about did not happen."""


@dataclass
class Read:
    """What a fresh process read: texts, or the error that it was told."""

    values: list[str]
    error: str = ""


class Bench:
    def __init__(self, forks: Forks, seed: int, rounds: int, scratch: Path) -> None:
        self._forks = forks
        self.rounds = rounds
        self.random = Random(seed)
        self._scratch = scratch

    def folder(self) -> Path:
        """A fresh one."""
        return Path(tempfile.mkdtemp(dir=self._scratch))

    def start(self, folder: Path, job: str, **arguments: Any) -> Process:
        return self._forks.start(folder, job, arguments)

    def run(self, folder: Path, job: str, **arguments: Any) -> list[str]:
        """A job to its end; what it said."""
        process = self.start(folder, job, **arguments)
        limit = threading.Timer(LIMIT_S, process.kill)
        limit.start()
        lines = process.rest(limit.cancel)
        if not lines or not lines[-1].startswith(("done", "error")):
            lines.append(f"error Died {' '.join(lines[-3:])[-300:]}")
        return lines

    def killed(self, folder: Path, job: str, after: int, word: str, **arguments: Any) -> list[str]:
        """A job that is killed after it said a word so often, and before it would say it once more
        at its pace: on a slow disk a moment that is too short always falls into the same write.
        All that it said."""
        process = self.start(folder, job, **arguments)
        said: list[str] = []
        count = 0
        heard = time.monotonic()
        pace = KILL_WITHIN_S
        for line in process.stdout:
            said.append(line.rstrip("\n"))
            if line.startswith(word):
                count += 1
                pace, heard = time.monotonic() - heard, time.monotonic()
            if count >= after or line.startswith(("done", "error")):
                break
        time.sleep(self.random.uniform(0, min(max(pace, KILL_WITHIN_S), 1.0)))
        process.kill()
        return said + process.rest()

    def wait_for(self, process: Process, word: str) -> None:
        """Until a job says a word, or ends."""
        while (line := process.stdout.readline()) and not line.startswith((word, "error")):
            pass

    def read(self, folder: Path, job: str = "read") -> Read:
        for line in self.run(folder, job):
            if line.startswith("values "):
                return Read(json.loads(line[len("values ") :]))
            if line.startswith("error "):
                return Read([], line[len("error ") :])
        return Read([], "it said nothing")

    def made(self, folder: Path, batches: int = 4, writer: str = "a") -> list[str]:
        """A store with something in it."""
        said = self.run(folder, "append", writer=writer, size=2, times=batches)
        if numbers(said, "ack") != list(range(batches)):
            raise Unreachable(f"it does not work at all: {said[-1]}")
        return [one for number in range(batches) for one in batch_of(writer, number, 2)]


def numbers(said: list[str], word: str) -> list[int]:
    return [int(line.split()[1]) for line in said if line.startswith(f"{word} ")]


# --- bronze ---------------------------------------------------------------------------------------


def kill_single(bench: Bench) -> str:
    """A text whose append returned is there after a kill."""
    for _ in range(bench.rounds):
        folder = bench.folder()
        after = bench.random.randint(1, 30)
        said = bench.killed(folder, "append", after, "ack", writer="a", size=1, times=100_000)
        acknowledged = [batch_of("a", number, 1)[0] for number in numbers(said, "ack")]
        if not acknowledged:
            raise Unreachable(f"nothing was acknowledged: {said[-1:]}")
        found = bench.read(folder)
        if found.error:
            return f"after a kill it cannot be read: {found.error}"
        if found.values[: len(acknowledged)] != acknowledged:
            lost = len(set(acknowledged) - set(found.values))
            return f"{lost} of {len(acknowledged)} acknowledged texts lost, or out of order"
    return ""


# --- silver ---------------------------------------------------------------------------------------


def kill_batch(bench: Bench) -> str:
    """After a kill, a batch is there whole or not at all."""
    torn = 0
    for _ in range(bench.rounds):
        folder = bench.folder()
        after = bench.random.randint(2, 12)
        said = bench.killed(folder, "append", after, "begin", writer="a", size=5, times=100_000)
        begun = numbers(said, "begin")
        found = bench.read(folder)
        if found.error:
            return f"after a kill it cannot be read: {found.error}"
        whole = [one for number in begun for one in batch_of("a", number, 5)]
        later = batch_of("a", len(begun), 5)  # begun, and killed before that was heard
        torn += len(found.values) % 5 != 0 or found.values != (whole + later)[: len(found.values)]
    return f"{torn} of {bench.rounds} kills left a torn batch" if torn else ""


def two_writers(bench: Bench) -> str:
    """Of two processes that append at once, no acknowledged text is lost, doubled or out of its
    batch."""
    for _ in range(max(1, bench.rounds // 4)):
        folder = bench.folder()
        bench.made(folder, 1, "z")
        gate = bench.folder() / "open"
        batches = {"size": 3, "times": 40, "gate": str(gate)}
        writers = {name: bench.start(folder, "append", writer=name, **batches) for name in "ab"}
        for process in writers.values():
            bench.wait_for(process, "open")
        gate.touch()
        said = {name: process.rest() for name, process in writers.items()}
        found = bench.read(folder)
        if found.error:
            return f"after two writers it cannot be read: {found.error}"
        places = {one: at for at, one in enumerate(found.values)}
        if len(places) != len(found.values):
            return f"{len(found.values) - len(places)} texts are there twice"
        lost = apart = 0
        for name, lines in said.items():
            for number in numbers(lines, "ack"):
                at = [places.get(one) for one in batch_of(name, number, 3)]
                lost += None in at
                apart += None not in at and at != [at[0], (at[0] or 0) + 1, (at[0] or 0) + 2]
        if lost or apart:
            return f"{lost} acknowledged batches lost, {apart} torn apart"
        if not any(numbers(lines, "ack") for lines in said.values()):
            raise Unreachable("neither of two writers could append")
    return ""


def disk_full(bench: Bench) -> str:
    """On a full disk an append fails aloud, and everything acknowledged can be read."""
    folder = bench.folder()
    before = bench.made(folder)
    sizes = {"size": 2, "times": DISK_BATCHES, "pad": DISK_PAD}
    said = bench.run(folder, "fill", bytes_max=DISK_BYTES, writer="f", **sizes)
    acknowledged = [
        one for number in numbers(said, "ack") for one in batch_of("f", number, 2, DISK_PAD)
    ]
    found = bench.read(folder)
    if found.error:
        return f"{len(acknowledged)} texts acknowledged, then unreadable: {found.error}"
    expected = before + acknowledged
    if found.values[: len(expected)] != expected:
        lost = len(set(expected) - set(found.values))
        return f"{lost} of {len(expected)} acknowledged texts lost, or out of order"
    if not said[-1].startswith("error"):
        raise Unreachable("no file of it became long enough for the limit")
    return ""


# --- gold -----------------------------------------------------------------------------------------


def retried_append(bench: Bench) -> str:
    """An append that is repeated with its key, by a later process, is stored once."""
    folder = bench.folder()
    before = bench.made(folder)
    values = ["<retried.1>", "<retried.2>"]
    for _ in range(3):
        said = bench.run(folder, "once", values=values, key="k1")
        if said[-1] != "done":
            return f"a repeated append fails: {said[-1]}"
    found = bench.read(folder)
    if found.error or found.values != before + values:
        times = found.values.count(values[0])
        return found.error or f"stored {times} times"
    return ""


def damaged_bytes(bench: Bench) -> str:
    """A changed byte in its files is reported; it never changes what is read in silence."""
    silent = 0
    for number in range(bench.rounds):
        folder = bench.folder()
        before = bench.made(folder)
        if not _damage(bench, folder, before if number % 2 == 0 else []):
            raise Unreachable("it has no files here")
        found = bench.read(folder)
        silent += not found.error and found.values != before
    return f"{silent} of {bench.rounds} damages served in silence" if silent else ""


def _damage(bench: Bench, folder: Path, values: list[str]) -> bool:
    """Change one byte: in a text that is stored, where it can be found, else anywhere."""
    files = sorted(one for one in folder.rglob("*") if one.is_file() and one.stat().st_size)
    places = [
        (file, at + 1 + bench.random.randrange(len(one) - 2))
        for file in files
        for one in values
        if (at := file.read_bytes().find(one.encode())) >= 0
    ]
    if not places:
        places = [(file, bench.random.randrange(file.stat().st_size)) for file in files]
    if not places:
        return False
    file, at = bench.random.choice(places)
    data = bytearray(file.read_bytes())
    data[at] ^= 1 << bench.random.randrange(3)
    file.write_bytes(data)
    return True


def stale_writer(bench: Bench) -> str:
    """A writer that expects an older state is refused, and nothing of it is stored."""
    folder = bench.folder()
    before = bench.made(folder)
    fresh = bench.run(folder, "once", values=["<fresh.1>", "<fresh.2>"], expect=len(before))
    if fresh[-1] != "done":
        return f"a writer with the right expectation is refused: {fresh[-1]}"
    stale = bench.run(folder, "once", values=["<stale.1>", "<stale.2>"], expect=len(before))
    found = bench.read(folder)
    if found.error:
        return found.error
    if "ack" in stale or "<stale.1>" in found.values:
        return "a stale writer was let through"
    return ""


# --- platinum -------------------------------------------------------------------------------------


def shown_text(bench: Bench) -> str:
    """Every character that was shown of an answer is stored after a kill in the middle of it."""
    for _ in range(bench.rounds):
        folder = bench.folder()
        after = bench.random.randint(1, 60)
        said = bench.killed(folder, "stream", after, "shown", pieces=PIECES)
        shown = "".join(f"{number} " for number in numbers(said, "shown"))
        if not shown:
            raise Unreachable(f"nothing was shown: {said[-1:]}")
        found = bench.read(folder, "read_shown")
        if found.error:
            return f"after a kill it cannot be read: {found.error}"
        if not found.values[0].startswith(shown):
            return f"{len(shown)} characters shown, {len(found.values[0])} stored"
    return ""


@dataclass(frozen=True)
class Check:
    """`needs` is what a store must offer for it."""

    name: str
    level: str
    run: Callable[[Bench], str]
    needs: str = ""

    @property
    def sentence(self) -> str:
        return " ".join((self.run.__doc__ or "").split())


LEVELS = ("bronze", "silver", "gold", "platinum")
_ALL = (
    Check("kill_single", "bronze", kill_single),
    Check("kill_batch", "silver", kill_batch),
    Check("two_writers", "silver", two_writers),
    Check("disk_full", "silver", disk_full),
    Check("retried_append", "gold", retried_append, "keys"),
    Check("damaged_bytes", "gold", damaged_bytes),
    Check("stale_writer", "gold", stale_writer, "expect"),
    Check("shown_text", "platinum", shown_text, "stream"),
)
CHECKS = {check.name: check for check in _ALL}


@dataclass(frozen=True)
class Outcome:
    """`verdict`: passed, failed, not offered, or unreachable."""

    check: str
    verdict: str
    detail: str = ""
    took_s: float = 0.0


def run_check(check: Check, forks: Forks, seed: int, rounds: int) -> Outcome:
    target = forks.target
    if check.needs and check.needs not in getattr(find(target), "offers", ()):
        return Outcome(check.name, "not offered", f"it has no {check.needs}")
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="crashkit-") as scratch:
        try:
            broken = check.run(Bench(forks, seed, rounds, Path(scratch)))
        except Unreachable as error:
            return Outcome(check.name, "unreachable", str(error))
    took_s = round(time.monotonic() - began_s, 2)
    return Outcome(check.name, "failed" if broken else "passed", broken, took_s)
