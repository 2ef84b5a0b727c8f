"""How the tests call tools, and look at processes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from steno.journal.parts import Outcome, outcome_parts, text_of
from steno.tools.builtin import builtin
from steno.tools.protocol import Workspace

needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


class Pieces(list[str]):
    """Takes output as a runtime would."""

    async def __call__(self, piece: str) -> None:
        assert piece
        self.append(piece)


async def call_on(
    workspace: Workspace, tool: str, arguments: dict[str, object]
) -> tuple[Outcome, Pieces]:
    """Every call shows that the outcome keeps all that was shown."""
    pieces = Pieces()
    prepared = await builtin(workspace)[tool].prepare(json.dumps(arguments))
    outcome = await prepared.run(pieces)
    assert said(outcome).startswith("".join(pieces))
    return outcome, pieces


def call(workspace: Workspace, tool: str, **arguments: object) -> Outcome:
    return asyncio.run(call_on(workspace, tool, arguments))[0]


def said(outcome: Outcome) -> str:
    return text_of(outcome_parts(outcome))


def alive(pid: int) -> bool:
    """A process that nobody has waited for yet has ended all the same."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def comes_true(condition: Callable[[], object], limit_s: float = 5.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def written(file: Path) -> bool:
    """Whether another process has written a whole line."""
    return file.exists() and file.read_text().endswith("\n")


def numbers_in(file: Path, count: int) -> list[int]:
    """The numbers that other processes write into a file, once all are there."""
    found: list[int] = []

    def complete() -> bool:
        found[:] = [int(word) for word in file.read_text().split()] if file.exists() else []
        return len(found) == count

    assert comes_true(complete), found
    return found


def run_and_kill(script: str, folder: Path, ready: Callable[[], object]) -> None:
    """Runs a Python script in a process of its own, which is killed as soon as `ready`."""
    process = subprocess.Popen([sys.executable, "-c", PREAMBLE + script, str(folder)])
    try:
        assert comes_true(lambda: ready() or process.poll() is not None)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL


PREAMBLE = """
import asyncio, json, os, signal, sys
from pathlib import Path
from steno.tools.builtin import builtin
from steno.tools.protocol import Workspace

folder = Path(sys.argv[1])
shell = builtin(Workspace(folder))["shell"]

async def ignore(piece):
    pass

async def prepared(command):
    return await shell.prepare(json.dumps({"command": command}))
"""
