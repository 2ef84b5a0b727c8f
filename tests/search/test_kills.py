"""A kill of the indexer, at any write to its file: the next one goes on, and finds what a scan
finds."""

import contextlib
from pathlib import Path

import apsw
import pytest

from steno.search.index_file import IndexFile, Unusable
from steno.search.indexer import LIVE, Indexer
from steno.search.keeper import Search
from steno.store import memory
from steno.store.facade import BlockingStore
from tests.chance import chance_of
from tests.crash.faulty_vfs import FaultAt, faulty_vfs
from tests.search.oracle import find, scan
from tests.search.story import Story
from tests.search.tricky import SAMPLES, cut

PART_TEXTS = 12
SUITE_EVERY = 60
"""`make test` kills at every sixtieth write, `make torture` at every one."""


def fill(store: BlockingStore, folder: Path, fault: FaultAt | None) -> int:
    """Fill an index of a store whose files fail from some write on; how many writes there were."""
    with faulty_vfs(folder, fault) as vfs:
        with contextlib.suppress(Unusable, apsw.Error):
            file = IndexFile(folder / "index", vfs=vfs.name)
            indexer = Indexer(store, file, PART_TEXTS)
            with contextlib.suppress(Unusable, apsw.Error):
                while indexer.step(LIVE):
                    pass
            with contextlib.suppress(apsw.Error):
                file.close()
        return len(vfs.ops)


def story() -> tuple[BlockingStore, Story]:
    store = memory.BlockingMemoryStore(memory.Place())
    told = Story(store, chance_of("kills"), SAMPLES)
    told.go_on(60)
    return store, told


def check(store: BlockingStore, path: Path) -> None:
    search = Search(store, path, part_texts=PART_TEXTS)
    chance = chance_of("kills", "pieces")
    for _ in range(3):
        piece = cut(chance, chance.choice(SAMPLES))
        assert find(search, piece) == scan(store, piece), ascii(piece)
    assert search.build(lambda _: None, lambda: False).share == 1.0
    piece = cut(chance, chance.choice(SAMPLES))
    assert find(search, piece) == scan(store, piece), ascii(piece)
    search.close()


def kill_at_every(step: int, tmp_path: Path) -> None:
    store, told = story()
    whole = tmp_path / "whole"
    whole.mkdir()
    writes = fill(store, whole, None)
    assert writes > 100
    for n in range(0, writes, step):
        folder = tmp_path / str(n)
        folder.mkdir()
        fill(store, folder, FaultAt(n, "die"))
        check(store, folder / "index")
    told.redact()
    check(store, whole / "index")
    store.close()


@pytest.mark.promise(49)
def test_a_kill_of_the_indexer_costs_no_hit(tmp_path: Path) -> None:
    kill_at_every(SUITE_EVERY, tmp_path)


@pytest.mark.torture
@pytest.mark.timeout(3_600)
def test_a_kill_of_the_indexer_at_every_write_costs_no_hit(tmp_path: Path) -> None:
    kill_at_every(1, tmp_path)


@pytest.mark.promise(49)
def test_a_damaged_index_is_thrown_away_and_costs_no_hit(tmp_path: Path) -> None:
    store, _ = story()
    path = tmp_path / "index"
    chance = chance_of("damage")
    for _ in range(6):
        search = Search(store, path, part_texts=PART_TEXTS)
        search.build(lambda _: None, lambda: False)
        search.close()
        body = bytearray(path.read_bytes())
        for _ in range(20):
            at = chance.randrange(len(body))
            body[at] ^= 1 << chance.randrange(8)
        path.write_bytes(bytes(body))
        check(store, path)
    store.close()
