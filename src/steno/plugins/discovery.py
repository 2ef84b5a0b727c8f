"""Which plugins there are, found without loading any: most people have none, and theirs must be the
quickest start.

    entry points   group `steno.plugins` of an installed distribution: NAME = package.module
    folder         $STENO_HOME/plugins/NAME.py

Installed distributions are looked through once; the answer is kept beside the folder, with the
times at which the places they lie in were last changed.
"""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

GROUP = "steno.plugins"
SEEN = "plugins.seen"


class FoundPlugin(Struct, frozen=True):
    name: str
    kind: Literal["file", "entry"]
    target: str


def find(home: Path) -> tuple[FoundPlugin, ...]:
    """By name. A file wins over an installed plugin of its name."""
    entries = {
        name: FoundPlugin(name, "entry", target)
        for name, target in _installed(home).items()
    }
    files = {
        file.stem: FoundPlugin(file.stem, "file", str(file))
        for file in sorted((home / "plugins").glob("[!._]*.py"))
    }
    return tuple(found for _, found in sorted((entries | files).items()))


def module_of(found: FoundPlugin) -> Any:
    """A plugin, loaded into this process: what its file or its entry point is."""
    if found.kind == "entry":
        from importlib.metadata import EntryPoint

        return EntryPoint(found.name, found.target, GROUP).load()
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(f"steno_plugin_{found.name}", found.target)
    if spec is None or spec.loader is None:
        raise ImportError(f"{found.target} is no module")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _installed(home: Path) -> dict[str, str]:
    places = _places()
    seen = home / SEEN
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        known = msgspec.json.decode(seen.read_bytes())
        if known["places"] == places:
            return {
                str(name): str(target) for name, target in known["entries"].items()
            }
    entries = _entries(list(places))
    with contextlib.suppress(OSError):
        fresh = seen.with_name(f"{SEEN}.{os.getpid()}")
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as opened:
            opened.write(msgspec.json.encode({"places": places, "entries": entries}))
        fresh.replace(seen)
    return entries


def _places() -> dict[str, int]:
    """Where distributions may lie, and when something was last put there or taken away. Not the
    folder we are in: that changes with every file, and nothing is installed there."""
    found = {}
    here = ""
    with contextlib.suppress(FileNotFoundError):  # it was removed
        here = os.getcwd()  # noqa: PTH109 - quicker than Path, as below
    places = (os.path.join(here, place) for place in sys.path if place)  # noqa: PTH118
    for place in dict.fromkeys(places):
        with contextlib.suppress(OSError):
            if place != here:
                found[place] = os.stat(place).st_mtime_ns  # noqa: PTH116
    return found


def _entries(places: list[str]) -> dict[str, str]:
    if not any(map(_may_have_some, places)):
        return {}
    from importlib.metadata import distributions

    groups = (
        distribution.entry_points.select(group=GROUP)
        for distribution in distributions(path=places)
    )
    return {entry.name: entry.value for group in groups for entry in group}


def _may_have_some(place: str) -> bool:
    """Whether a distribution that lies here may name our group. To load what reads them takes five
    times as long as to look for the name, and most people have no plugin. What is no folder of
    files is left to the one that reads."""
    try:
        with os.scandir(place) as lying:
            names = [
                one.name
                for one in lying
                if one.name.lower().endswith((".dist-info", "egg-info"))
            ]
    except OSError:
        return True
    return any(_names_us(f"{place}/{name}/entry_points.txt") for name in names)


def _names_us(file: str) -> bool:
    try:
        with open(file, "rb") as opened:  # noqa: PTH123 - quicker than Path
            return GROUP.encode() in opened.read()
    except OSError:  # most have no such file
        return False
