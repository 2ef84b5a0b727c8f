"""Process groups of ours, and how to end one without ever touching a stranger's.

A number alone does not name a group: once it is gone, its number is given to others. So each
command carries a mark in its environment, and what it starts inherits it:

    STENO_CALL=<group>:<pid of the process of ours that started it>:<start time of that process>

A group may be ended at recovery if a process in it carries a mark with the group's own number, and
the process that the mark names is dead. While that one lives it looks after its calls itself.
No process can join a group from outside its session, so one marked process vouches for its whole
group.

Marks are read from /proc. Where there is none (macOS), nothing can be verified and nothing is ended
at recovery.
"""

import asyncio
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

MARK = "STENO_CALL"
GRACE_S = 2.0
"""From TERM to KILL."""

_KILL_WAIT_S = 2.0
_POLL_MIN_S, _POLL_MAX_S = 0.001, 0.02
_MARKED = re.compile(rb"(\d{0,10}):(\d{1,10}):(\d{1,20})")
_PROC = Path("/proc")
_HAS_PROC = (_PROC / "self" / "environ").exists()

Ending = Literal["ended", "gone", "foreign", "owned", "unverified"]
"""ended: it was ours and was ended. gone: no process is left in it. foreign: no process in it is
known as ours; spared. owned: a live process of ours looks after it; spared. unverified: this system
cannot tell; spared."""


_running: set[int] = set()
"""The groups of this process that run a command."""


class _Process(NamedTuple):
    """`started` is in ticks since boot; with it, a pid that was given away again is told from the
    first one."""

    pid: int
    started: int


def mark(group: int | None) -> str:
    """What a command of this process carries. `group` is None while it is not spawned."""
    pid = os.getpid()
    return f"{'' if group is None else group}:{pid}:{_start_of(pid)}"


def began(group: int) -> None:
    _running.add(group)


def over(group: int) -> None:
    _running.discard(group)


def end_all() -> None:
    """End what this process runs, at once: when it leaves without waiting."""
    for group in tuple(_running):
        signal_group(group, signal.SIGKILL)


async def end_group(group: int, grace_s: float = GRACE_S) -> Ending:
    """End a group that a dead process of ours left behind: TERM, then KILL after `grace_s`."""
    if group <= 1 or group == os.getpgrp():
        return "foreign"
    if not _HAS_PROC:
        return "unverified"
    found = members(group)
    if not found:
        return "gone"
    owners = {
        owner for process in found if (owner := _owner(process, group)) is not None
    }
    if not owners:
        return "foreign"
    if any(_start_of(owner.pid) == owner.started for owner in owners):
        return "owned"
    await terminate(group, grace_s)
    return "ended"


async def terminate(group: int, grace_s: float = GRACE_S) -> None:
    """TERM, and KILL for what is left after `grace_s`. The caller knows that the group is ours."""
    seen = members(group)

    def over() -> bool:
        """Also if all of it ended between two looks: then the number is another group's."""
        nonlocal seen
        before, seen = seen, members(group)
        if not _HAS_PROC:
            return not _lives(group)
        return not (before & seen) and not any(
            _owner(process, group) for process in seen
        )

    signal_group(group, signal.SIGTERM)
    if not await until(over, grace_s):
        signal_group(group, signal.SIGKILL)
        await until(lambda: not _lives(group), _KILL_WAIT_S)


async def until(condition: Callable[[], bool], limit_s: float) -> bool:
    """Whether it came true in time. Systems share no way to be told that a process has ended, so we
    look."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    pause = _POLL_MIN_S
    while not condition():
        left = deadline - loop.time()
        if left <= 0:
            return False
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, _POLL_MAX_S)
    return True


def signal_group(group: int, number: signal.Signals) -> bool:
    """Whether there was a process to signal. 0 and 1 would mean our own group and all processes:
    refused."""
    if group <= 1:
        raise ValueError(f"{group} is not a process group of ours")
    try:
        os.killpg(group, number)
    except (
        ProcessLookupError,
        PermissionError,
    ):  # macOS says the latter of a group of zombies.
        return False
    return True


def members(group: int) -> frozenset[_Process]:
    """The processes of a group that have not ended yet; none where there is no /proc."""
    if not _HAS_PROC:
        return frozenset()
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    found = [(pid, _start_of(pid)) for pid in pids if _group_of(pid) == group]
    return frozenset(
        _Process(pid, started) for pid, started in found if started is not None
    )


def _lives(group: int) -> bool:
    if _HAS_PROC:
        return bool(members(group))
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _start_of(pid: int) -> int | None:
    """When a process started; None if it has ended, though it may not have been waited for yet."""
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    state, *fields = stat[stat.rindex(b")") + 2 :].split()
    return None if state in (b"Z", b"X") else int(fields[18])


def _owner(process: _Process, group: int) -> _Process | None:
    """The process of ours that started this one as a part of `group`, if its mark says so.

    A command that still waits does not know its group's number: it leads it.
    """
    try:
        variables = (_PROC / str(process.pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = f"{MARK}=".encode()
    marked = next(
        (
            entry.removeprefix(prefix)
            for entry in variables
            if entry.startswith(prefix)
        ),
        b"",
    )
    found = _MARKED.fullmatch(marked)
    if found is None or int(found[1] or process.pid) != group:
        return None
    return _Process(int(found[2]), int(found[3]))
