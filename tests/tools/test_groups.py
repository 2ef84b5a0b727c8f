"""Ending what a dead process of ours left, and nothing else."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from steno.tools import groups
from steno.tools.builtin import builtin
from steno.tools.groups import MARK, end_group, mark, signal_group, until
from steno.tools.protocol import Workspace
from tests.tools.calls import (
    Pieces,
    alive,
    call,
    needs_proc,
    numbers_in,
    run_and_kill,
    said,
    written,
)

pytestmark = needs_proc


def end(group: int) -> str:
    return asyncio.run(end_group(group))


def dead_owner() -> str:
    """How a mark names a process that has ended."""
    code = "from steno.tools.groups import mark; print(mark(None))"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


@contextmanager
def group_marked(number: str, owner: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own; `number` may use $$ for the group's own."""
    script = f'{MARK}="{number}{owner}"; export {MARK}; exec sleep 60'
    process = subprocess.Popen(["/bin/sh", "-c", script], start_new_session=True)
    try:
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(b"sleep"):
            pass
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.promise(19)
def test_killed_during_run_its_group_is_ended_by_another_process(workspace: Workspace) -> None:
    pids = workspace.folder / "pids"
    run_and_kill(
        """
async def main():
    left = "sh -c 'sleep 60' & sleep 60 & echo $$ $! > pids; wait"
    call = await prepared(f"trap '' PIPE TERM; {left}")
    (folder / "group").write_text(str(call.group))
    await call.run(ignore)

asyncio.run(main())
""",
        workspace.folder,
        ready=lambda: written(pids),
    )
    (group,) = numbers_in(workspace.folder / "group", 1)
    assert all(alive(pid) for pid in numbers_in(pids, 2))
    assert end(group) == "ended"
    assert not [pid for pid in numbers_in(pids, 2) if alive(pid)]
    assert end(group) == "gone"


def test_a_group_without_its_first_process_is_still_known(workspace: Workspace) -> None:
    """The first process is dead, and of the two left one has emptied its environment."""
    script = (
        f'{MARK}="$${dead_owner()}"; export {MARK};'
        "sh -c 'echo $$ >> pids; exec sleep 60' & env -i sh -c 'echo $$ >> pids; exec sleep 60' &"
    )
    process = subprocess.Popen(
        ["/bin/sh", "-c", script], start_new_session=True, cwd=workspace.folder
    )
    process.wait()
    pids = numbers_in(workspace.folder / "pids", 2)
    assert all(alive(pid) for pid in pids)
    assert end(process.pid) == "ended"
    assert not [pid for pid in pids if alive(pid)]


def test_a_command_that_still_waits_is_known_by_leading_its_group() -> None:
    with group_marked("", dead_owner()) as process:
        assert end(process.pid) == "ended"
        assert process.wait() == -15


@pytest.mark.parametrize(
    "number",
    ["1", "$$0", "x", "9" * 5000],
    ids=["other", "longer", "not a number", "too long a number"],
)
def test_a_strangers_group_with_the_same_number_is_spared(number: str) -> None:
    with group_marked(number, dead_owner()) as process:
        assert end(process.pid) == "foreign"
        assert process.poll() is None


def test_a_group_with_no_mark_is_spared() -> None:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        assert end(process.pid) == "foreign"
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_the_call_of_a_live_process_that_got_the_same_number_is_spared() -> None:
    with group_marked("$$", mark(None)) as process:
        assert end(process.pid) == "owned"
        assert process.poll() is None


def test_a_process_that_got_the_number_of_a_dead_owner_is_not_taken_for_it() -> None:
    with group_marked("$$", f":{os.getpid()}:1") as process:
        assert end(process.pid) == "ended"


def test_a_call_in_progress_is_spared(workspace: Workspace) -> None:
    async def run() -> tuple[str, str]:
        prepared = await builtin(workspace)["shell"].prepare(
            json.dumps({"command": "echo up; sleep 0.3; echo done"})
        )
        assert prepared.group is not None
        pieces = Pieces()
        running = asyncio.create_task(prepared.run(pieces))
        await until(lambda: bool(pieces), 5)
        ending = await end_group(prepared.group)
        return ending, said(await running)

    assert asyncio.run(run()) == ("owned", "up\ndone\n")


def test_the_mark_names_the_group(workspace: Workspace) -> None:
    group, value = said(call(workspace, "shell", command=f'echo "$$ ${MARK}"')).split()
    assert value == mark(int(group))


@pytest.mark.parametrize("group", [-1, 0, 1])
def test_numbers_that_mean_everybody_are_refused(group: int) -> None:
    assert end(group) == "foreign"
    with pytest.raises(ValueError, match="not a process group"):
        signal_group(group, signal.SIGTERM)


def test_our_own_group_is_spared() -> None:
    assert end(os.getpgrp()) == "foreign"


def test_where_nothing_can_be_verified_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with group_marked("$$", dead_owner()) as process:
        monkeypatch.setattr(groups, "_HAS_PROC", False)
        assert end(process.pid) == "unverified"
        assert process.poll() is None
