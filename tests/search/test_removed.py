"""What was removed is in no file of the index when the command has returned, and not found."""

from pathlib import Path

import pytest

from steno.journal.facts import InputAdmitted, MessageHidden, SessionStarted
from steno.journal.parts import Text
from steno.search.keeper import Search
from steno.store.protocol import Admission, Settings
from steno.store.sqlite.store import BlockingStore
from tests.search.oracle import find, scan

SECRET = "Ꭺᏻᏺꮞꭰ"  # a script that nothing else here uses
FILLED = 50


def files_with(folder: Path, text: str) -> list[str]:
    """The files of the index that have a letter of a text, in any folded form."""
    letters = {letter.encode() for one in (text, text.casefold(), text.upper()) for letter in one}
    return [
        file.name
        for file in folder.glob("*-search*")
        if any(letter in file.read_bytes() for letter in letters)
    ]


def said(store: BlockingStore, text: str, session: str | None = None) -> tuple[str, int]:
    create = None if session else SessionStarted("cli")
    admission = Admission(
        input=InputAdmitted((Text(text),), "test"), session=session, create=create
    )
    admitted = store.admit(admission)
    return admitted.session, admitted.seq


@pytest.fixture
def store(tmp_path: Path) -> BlockingStore:
    return BlockingStore(tmp_path / "s.db", Settings(durability="process"))


def filled(store: BlockingStore, tmp_path: Path) -> tuple[Search, str, int]:
    session, seq = said(store, f"the secret is {SECRET} here")
    for i in range(FILLED):
        said(store, f"other {i}", session if i % 2 else None)
    search = Search(store, tmp_path / "s.db-search", part_texts=20)
    store.core.copies.append(search.clear)
    search.build(lambda _: None, lambda: False)
    assert files_with(tmp_path, SECRET)
    assert find(search, SECRET) == {(session, seq)}
    return search, session, seq


@pytest.mark.promise(60)
def test_a_redacted_text_is_in_no_file_of_the_index(store: BlockingStore, tmp_path: Path) -> None:
    search, session, seq = filled(store, tmp_path)
    store.redact(session, seq)
    assert files_with(tmp_path, SECRET) == []
    assert find(search, SECRET) == set()
    assert find(search, "other") == scan(store, "other") != set()
    assert search.build(lambda _: None, lambda: False).share == 1.0
    assert files_with(tmp_path, SECRET) == []
    search.close()
    store.close()


@pytest.mark.promise(55)
def test_a_deleted_session_is_in_no_file_of_the_index(store: BlockingStore, tmp_path: Path) -> None:
    search, session, _ = filled(store, tmp_path)
    store.delete(session)
    assert files_with(tmp_path, SECRET) == []
    assert find(search, SECRET) == set()
    assert find(search, "other") == scan(store, "other") != set()
    search.close()
    store.close()


def test_another_process_that_fills_the_index_brings_nothing_back(
    store: BlockingStore, tmp_path: Path
) -> None:
    search, session, seq = filled(store, tmp_path)
    other = Search(store, tmp_path / "s.db-search", part_texts=20)
    said(store, f"again {SECRET}", session)
    other.step(idle=True)
    store.redact(session, seq)
    _, last = max(find(search, SECRET))
    other.step(idle=True)
    store.redact(session, last)
    while other.step(idle=True):
        pass
    assert files_with(tmp_path, SECRET) == []
    other.close()
    search.close()
    store.close()


def test_what_is_hidden_is_not_found_and_counted(store: BlockingStore, tmp_path: Path) -> None:
    search, session, seq = filled(store, tmp_path)
    for hidden in (True, False):
        store.add(session, [MessageHidden(seq, hidden)])
        assert find(search, SECRET) == (set() if hidden else {(session, seq)})
        search.build(lambda _: None, lambda: False)
        assert find(search, SECRET) == (set() if hidden else {(session, seq)})
    search.close()
    store.close()


@pytest.mark.promise(53)
def test_the_same_payload_is_in_the_index_once(store: BlockingStore, tmp_path: Path) -> None:
    from tests.chance import chance_of
    from tests.search.story import Story

    words = " ".join(f"word{i:05}" for i in range(15_000))
    story = Story(store, chance_of("payload"), (words,))
    search = Search(store, tmp_path / "s.db-search")
    sizes: list[int] = []
    for _ in range(2):
        for _ in range(10):
            story.texts = ("a question",)
            story.say()
            story.texts = (words,)
            story.answer()
        search.build(lambda _: None, lambda: False)
        sizes.append((tmp_path / "s.db-search").stat().st_size)
    assert sizes[1] - sizes[0] < len(words)
    search.close()
    store.close()
