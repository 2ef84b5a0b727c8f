"""In a generated store of a million messages, random pieces are found where a scan finds them.

    up to 2,000 messages have the piece     all of them are asked for
    more                                    the newest 64 below the end of each part of the index

A piece such as one letter is in most messages: to ask for all of them, a thousand times a third of
the store, would take days and go over the same rows. A window in each part asks every part for it.
"""

import os
import time
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from itertools import count
from pathlib import Path

import pytest

from bench.search_corpus import build, texts
from steno.journal.parts import Seq
from steno.search import beside
from steno.search.documents import SPEECH, documents
from steno.search.feed import told
from steno.search.folding import forms
from steno.search.index_file import SEQ_END, IndexFile, Place
from steno.search.indexer import START
from steno.search.keeper import Search
from steno.search.query import literal
from steno.search.searching import Asked
from steno.store.protocol import Settings
from steno.store.sqlite.store import BlockingStore
from tests.chance import SEED, chance_of
from tests.search.tricky import cut

MESSAGES = int(os.environ.get("STENO_TESTS_MESSAGES") or 1_000_000)
PIECES = 2_000
WHOLE_MAX = 2_000
WINDOW = 64


class Scanned:
    """All speech of a store in the order of the feed, and in which of it each piece is."""

    def __init__(self, store: BlockingStore, pieces: Iterable[str]) -> None:
        self.places: list[Place] = []
        self.messages: list[tuple[str, Seq]] = []
        folded = [forms(piece) for piece in pieces]
        self.found = [array("I") for _ in folded]
        firsts = [(n, first) for n, (first, _) in enumerate(folded)]
        seconds = [(n, second) for n, (first, second) in enumerate(folded) if first != second]
        for batch in told(store, START, (store.changes(None).mark, SEQ_END)):
            for one in batch:
                for document in documents(one.record):
                    if document.role in SPEECH:
                        first, second = forms(document.text)
                        has = {n for n, piece in firsts if piece in first}
                        other = seconds if first == second else enumerate(s for _, s in folded)
                        has |= {n for n, piece in other if piece in second}
                        self._note(one.place, (one.session, document.address), has)

    def _note(self, place: Place, message: tuple[str, Seq], has: set[int]) -> None:
        for n in has:
            self.found[n].append(len(self.messages))
        self.places.append(place)
        self.messages.append(message)

    def newest(self, n: int, below: Place, limit: int) -> list[tuple[str, Seq]]:
        """The newest messages that have a piece, of those told before a place."""
        found = self.found[n]
        upper = bisect_left(found, bisect_left(self.places, below))
        return [self.messages[at] for at in reversed(found[max(upper - limit, 0) : upper])]


def asked_for(search: Search, piece: str, below: Place, limit: int) -> list[tuple[str, Seq]]:
    asked = Asked(
        query=literal(piece),
        limit=limit,
        all=True,
        order="newest",
        before=f"{below[0]}.{below[1]}.0",
        now_ms=time.time_ns() // 1_000_000,
        time_limit_s=600,
    )
    return [(hit.session, hit.seq) for hit in search.find(asked).hits]


def check_every_piece(path: Path) -> tuple[int, int]:
    """How many pieces were asked for whole, and how many windows of the others."""
    whole = windows = 0
    chance = chance_of("million")
    with BlockingStore(path, Settings(durability="process")) as store:
        search = Search(store, beside(path))
        assert search.build(lambda _: None, lambda: False).share == 1.0
        index = IndexFile(beside(path))
        ends = [part.end for part in index.parts()]
        index.close()
        pieces = [cut(chance, text) for text in texts(store, PIECES, SEED)]
        scanned = Scanned(store, pieces)
        for n, piece in zip(count(), pieces, strict=False):
            many = len(scanned.found[n]) > WHOLE_MAX
            limit = WINDOW if many else WHOLE_MAX + 1
            for below in ends if many else ends[-1:]:
                expected = scanned.newest(n, below, limit)
                assert asked_for(search, piece, below, limit) == expected, ascii(piece)
            whole, windows = whole + (not many), windows + many * len(ends)
        search.close()
    return whole, windows


@pytest.mark.torture
@pytest.mark.timeout(14_400)
@pytest.mark.promise(56)
def test_every_piece_of_a_million_messages_is_found_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    build(path, MESSAGES)
    whole, windows = check_every_piece(path)
    assert whole > PIECES // 2
    assert windows
