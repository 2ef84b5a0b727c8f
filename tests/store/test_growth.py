"""What an operation costs does not grow with the store: counted in pages read and written, not in
time.

The figures in milliseconds, at a million messages, are in `make bench`.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING

import apsw
import pytest

from bench.building import Writer, build
from steno.journal.facts import DeliveryOwed, Distilled, InputAdmitted, Item, SessionAttended
from steno.journal.parts import Text
from steno.journal.state import State
from steno.store.protocol import Admission
from steno.store.sqlite.database import SqliteSettings, checked_pages
from steno.store.sqlite.store import BlockingStore

if TYPE_CHECKING:
    from typing_extensions import Buffer

STORE = "store.db"
TURNS = 50
FEW, MANY = 10, 400
"""Sessions: 1,000 messages and 40,000."""
SAID = InputAdmitted((Text("hello"),), "test")
DEEPER = 4
"""Pages more that a deeper tree may cost."""


class CountingVFS(apsw.VFS):
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        super().__init__("counting", checked_pages())

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        counts = self.counts

        class File(apsw.VFSFile):
            def xRead(self, amount: int, offset: int) -> bytes:
                counts["read"] += 1
                return super().xRead(amount, offset)

            def xWrite(self, data: "Buffer", offset: int) -> None:
                counts["written"] += 1
                super().xWrite(data, offset)

        return File(checked_pages(), name, flags)


def append(store: BlockingStore, id: str) -> None:
    Writer(store, id).append(1)


def first_read(store: BlockingStore, id: str) -> None:
    assert store.read(id, limit=1)


def lists(store: BlockingStore, id: str) -> None:
    assert len(store.list(10)) == 10


def owing(store: BlockingStore, id: str) -> None:
    store.admit(Admission(input=SAID, session=id, visit=SessionAttended(store.owner, "test")))
    assert [one.id for one in store.list(100, after=0, where="owes")] == [id]


def delivering(store: BlockingStore, id: str) -> None:
    store.admit(
        Admission(input=SAID, session=id, owes=(DeliveryOwed(0, "phone", "example.org", "k"),))
    )
    assert [one.id for one in store.list(100, after=0, where="owes")] == [id]


def due(store: BlockingStore, id: str) -> None:
    assert len(store.list(5, where="due")) == 5


def remembered(store: BlockingStore, id: str) -> None:
    lease = store.acquire(id)
    head = store.glance(id).head
    store.append(lease, [Distilled(0, head, items=(Item("fact", "tea", (2,)),))], head)
    assert [one.id for one in store.list(10, where="remembers")] == [id]


def resume(store: BlockingStore, id: str) -> None:
    state = State()
    for record in store.read_all(id):
        state.apply(record)
    assert state.turn is None


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[Path, list[str]]]:
    """A folder with a store of each size, made once: every test takes a copy."""
    folders = {sessions: tmp_path_factory.mktemp("store") for sessions in (FEW, MANY)}
    return {
        sessions: (folder, build(folder / STORE, sessions, TURNS))
        for sessions, folder in folders.items()
    }


@pytest.mark.promise(52)
@pytest.mark.parametrize(
    "act", [append, first_read, lists, owing, delivering, due, remembered, resume]
)
def test_the_pages_that_an_operation_touches_do_not_grow_with_the_store(
    tmp_path: Path,
    built: dict[int, tuple[Path, list[str]]],
    act: Callable[[BlockingStore, str], None],
) -> None:
    touched = []
    for sessions, (folder, ids) in built.items():
        path = copytree(folder, tmp_path / str(sessions)) / STORE
        vfs = CountingVFS()
        try:
            with BlockingStore(path, SqliteSettings(vfs="counting", durability="process")) as store:
                act(store, ids[sessions // 2])
            touched.append(vfs.counts.total())
        finally:
            vfs.unregister()
    few, many = touched
    assert many <= 2 * few + DEEPER, touched
