"""The background process that distils sessions which are due: there is one at a time, started when
a front end begins and when it has let go of its sessions."""

import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from steno.agents import Agents
from steno.config import Place
from steno.service import Service
from steno.store.errors import StoreError

if sys.platform == "win32":

    def _locked(handle: int) -> bool:
        return True  # several may be at work: the session's lease keeps them apart

else:
    import fcntl

    def _locked(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextlib.asynccontextmanager
async def beside(wiring: Agents, service: Service) -> AsyncIterator[None]:
    """A front end, from before it begins until it has let go of its sessions."""
    await start_if_due(wiring, service)
    try:
        yield
    finally:
        await start_if_due(wiring, service)


async def start_if_due(wiring: Agents, service: Service) -> int | None:
    """Start the process if a session is due and none is at work; its id if it was started. If it
    cannot be, the session stays due."""
    with contextlib.suppress(StoreError, OSError):
        if wiring.distils_unasked() and await service.memories.due(wiring.distils):
            return _start_worker(wiring.where)
    return None


def _start_worker(where: Place) -> int | None:
    """It holds the lock from its start on. It logs errors and prints nothing."""
    lock = take_lock(where)
    if lock is None:
        return None
    try:
        return start_detached(["remember", str(lock)], Path(os.devnull), (lock,))
    finally:
        os.close(lock)


def take_lock(where: Place) -> int | None:
    """The handle of the lock; None if another process has it."""
    handle = os.open(folder(where) / "memory.lock", os.O_RDWR | os.O_CREAT, 0o600)
    if _locked(handle):
        return handle
    os.close(handle)
    return None


def log(where: Place, line: str) -> None:
    """Add a line to the log of the worker."""
    with contextlib.suppress(OSError):
        handle = os.open(
            folder(where) / "memory.log",
            os.O_WRONLY | os.O_CREAT | os.O_APPEND,
            0o600,
        )
        with os.fdopen(
            handle, "a", encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(f"{line}\n")


def folder(where: Place) -> Path:
    """Where background processes keep their logs and their lock."""
    found = where.home / "detached"
    found.mkdir(mode=0o700, exist_ok=True)
    return found


def start_detached(words: list[str], log: Path, handles: tuple[int, ...] = ()) -> int:
    """Start steno in a session of its own, so that no terminal ends it; the id of the process."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "steno", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=handle,
            start_new_session=True,
            pass_fds=handles,
        )
    finally:
        os.close(handle)
    process.returncode = 0  # it outlives this process, which does not wait for it
    return process.pid
