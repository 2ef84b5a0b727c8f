"""A migration is cut off at every operation: the old data is readable, and the next start goes
on."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from unittest.mock import patch

import apsw
import pytest
from msgspec import structs

from steno.store.errors import StoreError, StoreTooNew
from steno.store.sqlite import database, migrate
from steno.store.sqlite.migrate import Migration
from steno.store.sqlite.store import BlockingStore
from tests.chance import SEED
from tests.crash.check import SETTINGS, assert_goes_on
from tests.crash.disk import Crash, crash_points, crashes, put
from tests.crash.faulty_vfs import Fault, FaultAt, Op, faulty_vfs
from tests.crash.points import sampled, where
from tests.crash.recording import STORE
from tests.store import version_1

SHARE_OF_STEPS = 15
OLD = 1
NEW = database.VERSION + 2
STEPS = (
    *migrate.STEPS,
    Migration(
        NEW - 1,
        "alter table sessions add column colour text; "
        "create table copies (id integer primary key, body text not null) strict; "
        "insert into copies select id, body from facts;",
    ),
    Migration(
        NEW, "update sessions set colour = 'tea'; create index copies_by_body on copies (body);"
    ),
)


@contextmanager
def steno_that_knows(version: int) -> Iterator[None]:
    with patch.object(migrate, "STEPS", tuple(step for step in STEPS if step.version <= version)):
        yield


@cache
def old_store() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        return {STORE + ending: body for ending, body in version_1.files(Path(name)).items()}


@cache
def migration() -> list[Op]:
    with tempfile.TemporaryDirectory() as name:
        return migrate_at(Path(name))


def migrate_at(place: Path, fault: FaultAt | None = None) -> list[Op]:
    """Open an old store with the new steno; twice if it must be. What that did to the files."""
    put(old_store(), place)
    with steno_that_knows(NEW), faulty_vfs(place, fault) as vfs:
        settings = structs.replace(SETTINGS, vfs=vfs.name)
        try:
            BlockingStore(place / STORE, settings).close()
        except StoreError:
            assert fault is not None
            BlockingStore(place / STORE, settings).close()
        return vfs.ops


def assert_holds_everything(place: Path, version: int) -> None:
    """Everything is there for a steno of some version, which leaves the store at that version."""
    with steno_that_knows(version), BlockingStore(place / STORE, SETTINGS) as store:
        version_1.assert_holds_the_same(store)
    assert version_of(place) == version


def version_of(place: Path) -> int:
    with closing(apsw.Connection(str(place / STORE), vfs=database.checked_pages())) as connection:
        return int(connection.pragma("user_version"))


def assert_migrated(place: Path) -> None:
    assert_holds_everything(place, NEW)
    with steno_that_knows(NEW), BlockingStore(place / STORE, SETTINGS) as store:
        assert_goes_on(store, sorted(listed.id for listed in store.list()))
    with closing(apsw.Connection(str(place / STORE), vfs=database.checked_pages())) as connection:
        assert connection.execute("select distinct colour from sessions").fetchall() == [("tea",)]
        assert connection.execute("select count(*) from copies").get > 100


def assert_readable_by_its_version(place: Path) -> None:
    version = max(
        version_of(place), database.VERSION
    )  # the steno of version 1 is not here any more to be asked
    assert_holds_everything(place, version)
    if version > database.VERSION:
        with steno_that_knows(version - 1), pytest.raises(StoreTooNew):
            BlockingStore(place / STORE, SETTINGS)


def cut_off_at(points: Sequence[int], how: Crash, folder: Path) -> None:
    for n, files in crashes(migration(), old_store(), how, points, SEED):
        seen, continued = folder / f"{n}-seen", folder / f"{n}-continued"
        for place in (seen, continued):
            place.mkdir()
            put(files, place)
        try:
            assert_readable_by_its_version(seen)
            assert_migrated(continued)
        except BaseException as error:
            error.add_note(where(how, n))
            raise


def fail_at(points: Sequence[int], fault: Fault, folder: Path) -> None:
    for n in points:
        place = folder / str(n)
        place.mkdir()
        try:
            migrate_at(place, FaultAt(n, fault))
            assert_migrated(place)
        except BaseException as error:
            error.add_note(where(fault, n))
            raise


def fault_points(fault: Fault) -> list[int]:
    return [n for n, op in enumerate(migration()) if FaultAt(n, fault).applies_to(op.kind)]


@pytest.mark.promise(54)
@pytest.mark.parametrize("how", ["die", "torn", "power"])
def test_a_migration_that_is_cut_off_goes_on_at_the_next_start(how: Crash, folder: Path) -> None:
    cut_off_at(sampled(crash_points(migration(), how), SHARE_OF_STEPS), how, folder)


@pytest.mark.torture
@pytest.mark.promise(54)
@pytest.mark.parametrize("how", ["die", "torn", "power"])
def test_a_migration_cut_off_at_any_operation_goes_on_at_the_next_start(
    how: Crash, folder: Path
) -> None:
    cut_off_at(crash_points(migration(), how), how, folder)


@pytest.mark.promise(54)
@pytest.mark.parametrize("fault", ["eio", "enospc"])
def test_a_migration_that_fails_can_be_tried_again(fault: Fault, folder: Path) -> None:
    fail_at(sampled(fault_points(fault), SHARE_OF_STEPS), fault, folder)


@pytest.mark.torture
@pytest.mark.promise(54)
@pytest.mark.parametrize("fault", ["eio", "enospc"])
def test_a_migration_that_fails_anywhere_can_be_tried_again(fault: Fault, folder: Path) -> None:
    fail_at(fault_points(fault), fault, folder)
