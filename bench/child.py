"""Runs a benchmark's other process: `python -m bench.MODULE ARGS`, which prints one JSON value."""

import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")

_ROOT = Path(__file__).resolve().parent.parent


def start(module: str, *args: object) -> subprocess.Popen[bytes]:
    """Start it and wait until it says that it is ready: one line on its output."""
    command = [sys.executable, "-m", module, *map(str, args)]
    process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if process.stdout is None or process.stdout.readline() != b"ready\n":
        process.kill()
        raise subprocess.SubprocessError(f"{module} did not get ready")
    return process


def go(process: subprocess.Popen[bytes]) -> None:
    """Tell one that waits to begin."""
    if process.stdin is not None:
        process.stdin.write(b"go\n")
        process.stdin.flush()


def finish(process: subprocess.Popen[bytes], kind: type[T], limit_s: float) -> T:
    """Wait for what it found."""
    try:
        found, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    if process.returncode != 0:
        raise subprocess.SubprocessError(f"a child process ended with status {process.returncode}")
    return msgspec.json.decode(found, type=kind)


# --- in the other process


def ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def wait_for_go() -> None:
    sys.stdin.readline()


def answer(found: object) -> None:
    sys.stdout.write(msgspec.json.encode(found).decode())
