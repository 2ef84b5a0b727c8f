"""Whatever happened, and in whatever state the index is: search finds what a scan finds."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steno.search.documents import ROLES, SPEECH
from steno.search.index_file import IndexFile, Unusable
from steno.search.indexer import LIVE, Indexer
from steno.search.keeper import Search
from steno.store import memory
from steno.store.facade import BlockingStore
from steno.store.postgres.store import BlockingPostgresStore
from steno.store.protocol import Settings
from steno.store.sqlite.store import BlockingStore as SqliteStore
from tests import postgres
from tests.chance import chance_of
from tests.search.oracle import find, scan
from tests.search.story import Story
from tests.search.tricky import FAMILIES, SAMPLES, TEXTS, cut

PART_TEXTS = 20
ALL = frozenset(ROLES)

STORES: dict[str, Callable[[Path], BlockingStore]] = {
    "sqlite": lambda folder: SqliteStore(folder / "s.db", Settings(durability="process")),
    "memory": lambda folder: memory.BlockingMemoryStore(memory.Place()),
    "postgresql": lambda folder: BlockingPostgresStore(postgres.server().new_store()),
}


def check(store: BlockingStore, search: Search, chance: Random, pieces: int) -> None:
    for _ in range(pieces):
        piece = cut(chance, chance.choice(SAMPLES))
        roles = chance.choice((SPEECH, ALL))
        assert find(search, piece, roles) == scan(store, piece, roles), ascii(piece)


def change_index(search: Search, chance: Random, path: Path) -> None:
    """The index is filled a little, wholly, not at all, loses a part, or is gone."""
    match chance.randrange(6):
        case 0 | 1:
            for _ in range(chance.randrange(4)):
                search.step(idle=False)
        case 2:
            search.build(lambda _: None, lambda: False)
        case 3 if path.exists():
            file = IndexFile(path)
            parts = file.parts()
            if parts:
                with file.writing():
                    file.drop_part(chance.choice(parts).n)
            file.close()
        case 4:
            for ending in ("", "-wal", "-shm"):
                path.with_name(path.name + ending).unlink(missing_ok=True)
        case _:
            pass


@pytest.mark.promise(26, 56)
@pytest.mark.parametrize("kind", ["sqlite", "memory"])
@settings(max_examples=settings().max_examples // 3 + 1)
@given(number=st.integers(0, 1 << 32))
def test_search_finds_what_a_scan_finds(
    kind: str, number: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    go_through(kind, number, tmp_path_factory)


@pytest.mark.promise(56, 71)
@settings(max_examples=settings().max_examples // 25 + 1)
@given(number=st.integers(0, 1 << 32))
def test_search_finds_what_a_scan_finds_on_postgresql(
    number: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The same; each of its facts is a round trip, so fewer of them."""
    go_through("postgresql", number, tmp_path_factory)


def go_through(kind: str, number: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    chance, folder = Random(number), tmp_path_factory.mktemp("search")
    store, path = STORES[kind](folder), folder / "index"
    search = Search(store, path, part_texts=PART_TEXTS)
    story = Story(store, chance, SAMPLES)
    for _ in range(5):
        story.go_on(8)
        change_index(search, chance, path)
        check(store, search, chance, 3)
    search.build(lambda _: None, lambda: False)
    assert search.progress().share == 1.0
    check(store, search, chance, 5)
    search.close()
    store.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_piece_of_every_difficult_text_is_found(family: str, tmp_path: Path) -> None:
    """Each piece of 1 to 6 code points, and longer ones, by the index and by the scan."""
    store = STORES["memory"](tmp_path)
    story = Story(store, chance_of("family", family), TEXTS)
    for text in TEXTS:
        story.texts = (text,)
        story.say()
    search = Search(store, tmp_path / "index", part_texts=PART_TEXTS)
    search.build(lambda _: None, lambda: False)
    chance = chance_of("pieces", family)
    pieces = {
        text[start : start + length]
        for text in FAMILIES[family]
        for length in (1, 2, 3, 4, 6, 12)
        for start in range(min(len(text), 60) - length + 1)
    }
    for piece in chance.sample(sorted(pieces), min(len(pieces), 60)):
        found = find(search, piece)
        assert found, ascii(piece)
        assert found == scan(store, piece), ascii(piece)
    assert find(search, "xneedle") == scan(store, "xneedle") != set()
    search.close()
    store.close()


def test_an_index_that_was_folded_otherwise_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = STORES["sqlite"](tmp_path)
    Story(store, chance_of("folding"), SAMPLES).go_on(20)
    search = Search(store, tmp_path / "index")
    search.build(lambda _: None, lambda: False)
    search.close()
    monkeypatch.setattr("steno.search.folding.VERSION", "another")
    with pytest.raises(Unusable):
        IndexFile(tmp_path / "index")
    search = Search(store, tmp_path / "index")
    assert find(search, "a") == scan(store, "a")
    assert search.build(lambda _: None, lambda: False).share == 1.0
    search.close()
    store.close()


def test_two_that_fill_the_index_do_not_harm_it(tmp_path: Path) -> None:
    store = STORES["sqlite"](tmp_path)
    story = Story(store, chance_of("two"), SAMPLES)
    files = [IndexFile(tmp_path / "index") for _ in range(2)]
    fillers = [Indexer(store, file, PART_TEXTS) for file in files]
    for _ in range(10):
        story.go_on(4)
        for filler in fillers:
            filler.step(LIVE)
    for file in files:
        file.close()
    search = Search(store, tmp_path / "index", part_texts=PART_TEXTS)
    check(store, search, chance_of("two pieces"), 10)
    search.close()
    store.close()
