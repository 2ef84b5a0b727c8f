"""Brings an older store up to this version, one step at a time.

A step is a script that runs in one transaction together with the change of the version number: a kill leaves the store
before the step or after it, readable by the steno that knows that version, and the next start goes on from there. Steps
run only while no other process has the store open.
"""

from pathlib import Path

from msgspec import Struct

from steno.store.protocol import Settings
from steno.store.sqlite import database, restore
from steno.store.sqlite.database import translated
from steno.store.sqlite.locks import Locks


class Step(Struct, frozen=True):
    """Leads to `version` from the one before it."""

    version: int
    script: str


STEPS: tuple[Step, ...] = ()
"""In order, without a gap, ending at `database.VERSION`. Empty while there has been one version only."""


def open_path(path: Path, settings: Settings, locks: Locks) -> None:
    """Make or migrate the file and hold it open."""
    restore.finish(path, locks)
    locks.hold_open()
    version = database.prepare(path, settings, STEPS[-1].version if STEPS else database.VERSION)
    due = [step for step in STEPS if step.version > version]
    if due:
        locks.close()
        locks.hold_open(exclusive=True)
        _migrate(path, settings, due)
        locks.close()
        locks.hold_open()


def _migrate(path: Path, settings: Settings, due: list[Step]) -> None:
    connection = database.connect(path, settings)
    try:
        with translated(f"cannot migrate {path}"):
            for step in due:
                connection.execute("begin exclusive")
                if connection.pragma("user_version") == step.version - 1:
                    connection.execute(step.script).fetchall()
                    connection.pragma("user_version", step.version)
                connection.execute("commit")
    finally:
        connection.close()
