"""What can happen to a store between the index and the journal: a result is of the journal as it
is."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from steno.journal.facts import AnyFact, InputAdmitted, Record, SessionStarted
from steno.journal.parts import Text
from steno.search.keeper import Search
from steno.search.query import literal
from steno.store import memory
from steno.store.facade import BlockingStore
from steno.store.protocol import Admission, Settings
from steno.store.sqlite.backup import restore
from steno.store.sqlite.store import BlockingStore as SqliteStore
from tests.search.oracle import ask, find, scan


@pytest.fixture
def store() -> BlockingStore:
    return memory.BlockingMemoryStore(memory.Place())


def said(store: BlockingStore, text: str) -> tuple[str, int]:
    admission = Admission(
        input=InputAdmitted((Text(text),), "test"), create=SessionStarted("cli", "m")
    )
    admitted = store.admit(admission)
    return admitted.session, admitted.seq


def indexed(store: Any, path: Path) -> Search:
    search = Search(store, path, part_texts=20)
    assert search.build(lambda _: None, lambda: False).share == 1.0
    return search


@pytest.mark.promise(56)
@pytest.mark.parametrize("words", [150_000, pytest.param(1_000_000, marks=pytest.mark.torture)])
def test_a_line_of_megabytes_is_found_by_its_end_and_by_two_thousand_letters(
    store: BlockingStore, tmp_path: Path, words: int
) -> None:
    line = "word " * words + "needle"
    place, other = said(store, line), said(store, "word needles")
    search = indexed(store, tmp_path / "index")
    assert find(search, "d needle") == {place, other}
    assert find(search, line[-2_000:]) == {place}
    search.close()


def test_a_query_that_is_longer_than_every_text_finds_nothing(
    store: BlockingStore, tmp_path: Path
) -> None:
    for n in range(30):
        said(store, f"text {n}")
    search = indexed(store, tmp_path / "index")
    assert find(search, "text 7") != set()
    assert find(search, "text 7 " * 500) == set()
    search.close()


@pytest.mark.promise(55)
def test_a_session_that_is_deleted_while_a_search_reads_is_not_found(
    store: BlockingStore, tmp_path: Path
) -> None:
    """It is in the index when the search begins, and gone when its text is read."""
    places = {said(store, f"a plum {n}") for n in range(5)}
    doomed = min(places)

    class Deleting:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def facts_at(self, places: Any) -> Any:
            if doomed[0] in {one.id for one in store.list()}:
                store.delete(doomed[0])
            return store.facts_at(places)

    search = indexed(Deleting(), tmp_path / "index")
    assert find(search, "plum") == places - {doomed}
    search.close()


@pytest.mark.promise(56)
def test_the_clock_was_set_back_and_dates_find_what_was_said_then(
    store: BlockingStore, tmp_path: Path
) -> None:
    """Parts are in the order of the feed; their times go up and down."""
    times = [10_000 - 97 * n % 5_000 for n in range(60)]
    facts: list[AnyFact] = [SessionStarted("cli", "m")]
    facts += [InputAdmitted((Text(f"a pear {n}"),), "test") for n in range(len(times) - 1)]
    records = [
        Record(seq, at, fact)
        for seq, (at, fact) in enumerate(zip(times, facts, strict=True), start=1)
    ]
    store.bring("back", 0, records)
    search = indexed(store, tmp_path / "index")
    for after, before in ((6_000, 8_000), (9_900, 10_001), (0, 5_100)):
        query = replace(literal("pear"), after_ms=after, before_ms=before)
        expected = {("back", one.seq) for one in records[1:] if after <= one.at_ms < before}
        assert ask(search, query) == expected != set()
    search.close()


@pytest.mark.promise(56)
def test_what_was_half_imported_is_not_found(store: BlockingStore, tmp_path: Path) -> None:
    said(store, "a fig")

    class Killed(Exception):
        pass

    def half() -> Any:
        yield Record(1, 1, SessionStarted("cli", "m"))
        for seq in range(2, 2_000):
            yield Record(seq, 1, InputAdmitted((Text(f"a fig {seq}"),), "test"))
        raise Killed

    with pytest.raises(Killed):
        store.bring("half", 0, half())
    search = indexed(store, tmp_path / "index")
    assert len(find(search, "fig")) == 1
    search.close()


@pytest.mark.promise(49, 56)
def test_after_a_backup_was_restored_its_text_is_found_and_what_came_later_is_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.db"
    with SqliteStore(path, Settings(durability="process")) as store:
        kept = said(store, "a quince that was redacted later")
        store.backup(tmp_path / "copy.db")
        store.redact(*kept)
        said(store, "a quince that came later")
        search = indexed(store, tmp_path / "s.db-search")
        assert len(find(search, "quince")) == 1
        search.close()
    restore(tmp_path / "copy.db", path)
    with SqliteStore(path, Settings(durability="process")) as store:
        search = Search(store, tmp_path / "s.db-search", part_texts=20)
        assert find(search, "quince") == {kept}
        assert search.build(lambda _: None, lambda: False).share == 1.0
        assert find(search, "quince") == {kept} == scan(store, "quince")
        search.close()
