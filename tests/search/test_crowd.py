"""Eight writers and two searchers: what was acknowledged before a search began is in its answer,
once, while the index is filled beside them."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from steno.journal.facts import InputAdmitted, SessionStarted
from steno.journal.parts import Text
from steno.search.keeper import Search
from steno.store.errors import StoreError
from steno.store.protocol import Admission, Settings
from steno.store.sqlite.store import BlockingStore
from tests.search.oracle import find, scan

WRITERS, SEARCHERS = 8, 2
QUICK = Settings(durability="process")


def opened(folder: Path) -> BlockingStore:
    return BlockingStore(folder / "s.db", QUICK)


@pytest.mark.promise(49, 56)
def test_what_was_acknowledged_is_found_while_many_write(tmp_path: Path) -> None:
    says = 60
    said = [0] * WRITERS
    failures: list[Exception] = []
    over = threading.Event()

    def write(n: int) -> None:
        with opened(tmp_path) as store:
            session = store.create(SessionStarted("cli"))
            for i in range(says):
                text = InputAdmitted((Text(f"writer{n}x says 第{i}句"),), "test")
                store.admit(Admission(input=text, session=session))
                said[n] = i + 1

    def search(first: int) -> None:
        with opened(tmp_path) as store:
            search = Search(store, tmp_path / "index", part_texts=20)
            turn = first
            while not over.is_set():
                n = turn % WRITERS
                before = said[n]
                found = find(search, f"writer{n}x")  # says itself if one was found twice
                assert before <= len(found) <= says, (n, before, len(found))
                search.step(idle=turn % 2 == 0)
                turn += 1
            search.close()

    def guarded(act: Callable[[int], None], n: int) -> None:
        try:
            act(n)
        except (AssertionError, StoreError) as error:
            failures.append(error)

    opened(tmp_path).close()
    writers = [threading.Thread(target=guarded, args=(write, n)) for n in range(WRITERS)]
    searchers = [threading.Thread(target=guarded, args=(search, n)) for n in range(SEARCHERS)]
    for thread in (*writers, *searchers):
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    for thread in searchers:
        thread.join()
    assert failures == []
    assert said == [says] * WRITERS
    with opened(tmp_path) as store:
        whole = Search(store, tmp_path / "index", part_texts=20)
        whole.build(lambda _: None, lambda: False)
        for piece in ("says", "writer3x", "第7", "句"):
            assert find(whole, piece) == scan(store, piece) != set()
        whole.close()
