"""Opening and closing under difficulties."""

import tempfile
from functools import cache
from pathlib import Path

import pytest
from msgspec import structs

from steno.journal.facts import InputAdmitted, SessionStarted
from steno.journal.parts import Text
from steno.store.errors import StoreFull
from steno.store.protocol import Admission
from steno.store.sqlite.database import SqliteSettings
from steno.store.sqlite.store import BlockingStore
from tests.chance import SEED
from tests.crash.check import SETTINGS, assert_one_of, observed
from tests.crash.disk import crashes, put
from tests.crash.faulty_vfs import FaultAt, faulty_vfs
from tests.crash.recording import EMPTY, STORE, record
from tests.crash.script import script
from tests.crash.world import Delete

CLOSINGS = 30


@cache
def half_deleted() -> dict[str, bytes]:
    """The files of a process that was killed right after the first commit of a deletion: the rest
    is to be swept."""
    with tempfile.TemporaryDirectory() as name:
        ran = record(script(), Path(name) / STORE)
    begun = ran.acknowledged[_deletion() - 1]
    committed = next(
        n for n in range(begun, len(ran.ops)) if ran.ops[n].kind == "sync" and ran.ops[n - 1].offset
    )
    return next(crashes(ran.ops, EMPTY, "die", [committed + 1], SEED))[1]


def _deletion() -> int:
    return next(k for k, verb in enumerate(script().verbs) if isinstance(verb, Delete))


@pytest.mark.promise(3)
def test_a_full_disk_does_not_keep_a_store_from_being_read(folder: Path) -> None:
    """Not even if there is something left to sweep, for which there is no room. Writing is refused,
    with the reason."""
    put(half_deleted(), folder)
    deleted = script().worlds[_deletion() + 1]
    with faulty_vfs(folder, FaultAt(0, "full")) as vfs:
        with BlockingStore(folder / STORE, structs.replace(SETTINGS, vfs=vfs.name)) as store:
            assert observed(store, script()).journals == deleted.journals
            with pytest.raises(StoreFull, match="the disk is full"):
                store.create(SessionStarted("full"))
            assert observed(store, script()).journals == deleted.journals
        assert vfs.ops != []
    with BlockingStore(folder / STORE, SETTINGS) as store:
        assert_one_of(observed(store, script()), [deleted])
        assert store.verify().damage == ()


def test_a_store_can_be_closed_in_the_middle_of_a_checkpoint(folder: Path) -> None:
    for i in range(CLOSINGS):
        with BlockingStore(folder / STORE, SqliteSettings(checkpoint_pages=5)) as store:
            session = store.create(SessionStarted("closing"))
            for j in range(10):
                said = InputAdmitted((Text("x" * 3000),), "closing", f"{i}-{j}")
                store.admit(Admission(input=said, session=session))
