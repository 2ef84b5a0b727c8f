"""What a store of a framework does with what it is given, for each store of `crash_stores`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.library import Library

Store = Callable[[Path], Any]

ODD = (
    "",
    "\x00 and \x1b[31m",
    "é e\u0301 \u202eabc 中文 🐈\u200d⬛ \U0010ffff",
    "\ufdd0d800 and \ufdd0",
    '"\\ \u2028 \r\n\t </s> {"a": [1]}',
    "x" * 1_000_000,
)
WRONG = {"half a character": "\ud800", "no JSON": object()}


def comes_back(store: Store, folder: Path) -> None:
    store(folder).append(ODD)
    assert store(folder).read() == list(ODD)


def is_refused_whole(store: Store, folder: Path, wrong: Any, kept: Any) -> None:
    """Refused with all that came with it, or kept."""
    opened = store(folder)
    opened.append(["before"])
    refused = False
    try:
        opened.append(["with it", wrong])
    except Exception:  # noqa: BLE001 - each framework has errors of its own
        refused = True
    again = store(folder)
    assert again.read() == (["before"] if refused else ["before", "with it", kept])
    again.append(["after"])
    assert store(folder).read()[-1] == "after"


def keeps_order(store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of twelve processes has a clock that is behind the one before."""
    times = iter(range(10_000_000, 0, -1_000))
    opened = steno.open

    def backwards(path: Any, settings: Any = None) -> Library:
        return opened(path, steno.Settings(now_ms=lambda: next(times)))

    monkeypatch.setattr(steno, "open", backwards)
    said = [f"{n}" for n in range(12)]
    for text in said:
        store(folder).append([text])
    assert store(folder).read() == said
