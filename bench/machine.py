"""What the figures were measured on. Names no host."""

import os
import platform
import sqlite3
import sys
from pathlib import Path

import apsw
from msgspec import Struct

from bench.timing import bounded, each_ms, percentile
from steno.store.sqlite.database import file_system_of

_IN_MEMORY = frozenset(("tmpfs", "ramfs"))
_BLOCK = b"x" * 4096


class Machine(Struct, frozen=True):
    cores: int
    load_before: float
    system: str
    python: str
    sqlite_of_python: str
    sqlite_of_apsw: str
    file_system: str
    fdatasync_p50_ms: float


def describe(folder: Path) -> Machine:
    return Machine(
        cores=os.cpu_count() or 0,
        load_before=round(os.getloadavg()[0], 2),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        sqlite_of_python=sqlite3.sqlite_version,
        sqlite_of_apsw=apsw.sqlite_lib_version(),
        file_system=file_system(folder),
        fdatasync_p50_ms=fdatasync_p50_ms(folder),
    )


def file_system(folder: Path) -> str:
    mounts = Path("/proc/self/mounts")
    return (
        file_system_of(folder.resolve(), mounts.read_text(errors="replace"))
        if mounts.exists()
        else "unknown"
    )


def in_memory(folder: Path) -> bool:
    return file_system(folder) in _IN_MEMORY


def fdatasync_p50_ms(folder: Path) -> float:
    """Write one page over an old one and have it on the disk."""
    sync = getattr(os, "fdatasync", os.fsync)
    handle = os.open(folder / "sync", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        for _ in bounded(256):
            os.write(handle, _BLOCK)
        os.fsync(handle)
        return round(
            percentile(
                each_ms(lambda i: (os.pwrite(handle, _BLOCK, i * 4096), sync(handle)), 256), 0.5
            ),
            3,
        )
    finally:
        os.close(handle)


def rss_mb() -> float:
    return _status_mb("VmRSS")


def rss_peak_mb() -> float:
    """Of this process alone: `ru_maxrss` would count what it was started from, too."""
    return _status_mb("VmHWM")


def _status_mb(field: str) -> float:
    if sys.platform != "linux":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    return 0.0
