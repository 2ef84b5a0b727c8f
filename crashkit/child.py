"""What runs in processes that are killed: one job with one store. Each line that it prints is said
after the store has returned; that is what the store is held to."""

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def find(target: str) -> Any:
    """The class that a target names."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def value(writer: str, batch: int, place: int, pad: int = 0) -> str:
    """A text that says which it is. No two are alike, and none is part of another."""
    return f"<{writer}.{batch}.{place}.{'x' * pad}>"


def batch_of(writer: str, number: int, size: int, pad: int = 0) -> list[str]:
    return [value(writer, number, place, pad) for place in range(size)]


def say(*words: object) -> None:
    sys.stdout.write(" ".join(str(word) for word in words) + "\n")
    sys.stdout.flush()


def append(store: Any, writer: str, size: int, times: int, pad: int = 0, gate: str = "") -> None:
    """Append batches, and say each that was acknowledged. With a gate, begin when that file is
    there."""
    say("open")
    while gate and not Path(gate).exists():
        time.sleep(0.001)
    for number in range(times):
        say("begin", number)
        store.append(batch_of(writer, number, size, pad))
        say("ack", number)


def fill(store: Any, bytes_max: int, **batches: Any) -> None:
    """The same on a disk that is full: no file may be longer than so many bytes."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, bytes_max))
    append(store, **batches)


def once(store: Any, values: list[str], **how: Any) -> None:
    store.append(values, **how)
    say("ack")


def stream(store: Any, pieces: int) -> None:
    """Show an answer piece by piece: each is stored, then shown."""
    for number in range(pieces):
        piece = f"{number} "
        store.write(piece)
        say("shown", number)


def read(store: Any) -> None:
    say("values", json.dumps(list(store.read())))


def read_shown(store: Any) -> None:
    say("values", json.dumps([store.shown()]))


JOBS: dict[str, Callable[..., None]] = {
    "append": append,
    "fill": fill,
    "once": once,
    "stream": stream,
    "read": read,
    "read_shown": read_shown,
}
LEAVES_NOTHING = ("read", "read_shown")
"""Their processes end at once. Others end as any does, with what a store does then."""


def perform(target: str, folder: str, job: str, arguments: dict[str, Any]) -> int:
    kind = find(target)
    say("ready")
    try:
        JOBS[job](kind(Path(folder)), **arguments)
    except Exception as error:  # noqa: BLE001 - whatever a store raises is what it says
        say("error", type(error).__name__, str(error)[:300].replace("\n", " "))
        return 1
    say("done")
    return 0
