"""In a generated store of a million messages, random pieces are found where a scan finds them."""

import os
from pathlib import Path

import pytest

from bench.search_corpus import build, texts
from steno.search.documents import SPEECH, documents
from steno.search.feed import told
from steno.search.folding import forms
from steno.search.index_file import SEQ_END
from steno.search.indexer import START
from steno.search.keeper import Search
from steno.store.protocol import Settings
from steno.store.sqlite.store import BlockingStore
from tests.chance import SEED, chance_of
from tests.search.oracle import find
from tests.search.tricky import cut

MESSAGES = int(os.environ.get("STENO_TESTS_MESSAGES") or 1_000_000)
PIECES = 2_000


@pytest.mark.torture
@pytest.mark.timeout(14_400)
@pytest.mark.promise(56)
def test_every_piece_of_a_million_messages_is_found_wherever_it_is(tmp_path: Path) -> None:
    """One pass over all texts counts in which messages each piece is; then each is searched for."""
    path = tmp_path / "s.db"
    build(path, MESSAGES)
    chance = chance_of("million")
    with BlockingStore(path, Settings(durability="process")) as store:
        pieces = [cut(chance, text) for text in texts(store, PIECES, SEED)]
        folded = [forms(piece) for piece in pieces]
        places: list[set[tuple[str, int]]] = [set() for _ in pieces]
        for batch in told(store, START, (store.changes(None).mark, SEQ_END)):
            for one in batch:
                for document in documents(one.record):
                    if document.role not in SPEECH:
                        continue
                    first, second = forms(document.text)
                    for n, (mine, other) in enumerate(folded):
                        if mine in first or other in second:
                            places[n].add((one.session, document.address))
        search = Search(store, path.with_name("s.db-search"))
        assert search.build(lambda _: None, lambda: False).share == 1.0
        for piece, expected in zip(pieces, places, strict=True):
            assert find(search, piece) == expected, ascii(piece)
        search.close()
