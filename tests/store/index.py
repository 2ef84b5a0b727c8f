"""What lives on the feed of changes: a copy of all sessions, kept by what the feed says alone."""

from collections.abc import Callable
from typing import assert_never

from steno.journal.facts import AnyFact, Record
from steno.journal.parts import Seq
from steno.store.errors import UnknownSession
from steno.store.protocol import (
    Change,
    FactAdded,
    FeedMark,
    SessionDeleted,
    SessionImported,
    StoreRestored,
    TextRemoved,
)
from steno.store.sqlite.store import BlockingStore

Read = Callable[[str, Seq, int], list[Record]]
"""As `read` of a store: session, after, limit; nothing of a session that is gone."""


class Index:
    """Each session's own facts by seq. A session that is gone by the time its change is applied is
    left out: that it was deleted comes later."""

    def __init__(self) -> None:
        self.facts: dict[str, dict[Seq, AnyFact]] = {}
        self.mark: FeedMark = 0

    def apply(self, change: Change, read: Read) -> None:
        assert change.mark > self.mark
        self.mark = change.mark
        match change:
            case FactAdded(session=session, record=record):
                own = self.facts.setdefault(session, {})
                assert not own or record.seq == max(own) + 1, "a fact was told twice, or left out"
                own[record.seq] = record.fact
            case TextRemoved(session=session, seq=seq):
                found = read(session, seq - 1, 1)
                if found and seq in self.facts.get(session, {}):
                    self.facts[session][seq] = found[0].fact
            case SessionImported(session=session, head=head):
                assert session not in self.facts
                self.facts[session] = {one.seq: one.fact for one in read(session, 0, head)}
            case SessionDeleted(session=session):
                self.facts.pop(session, None)
            case StoreRestored():
                self.facts.clear()
            case unreachable:
                assert_never(unreachable)


def told(store: BlockingStore, after: FeedMark = 0, limit: int = 1_000) -> list[Change]:
    found: list[Change] = []
    while True:
        page = store.changes(after, limit)
        found += page.changes
        if page.mark == after:
            return found
        after = page.mark


def read_of(store: BlockingStore) -> Callable[[str, Seq, int], list[Record]]:
    def read(session: str, after: Seq, limit: int) -> list[Record]:
        try:
            return store.read(session, after, limit)
        except UnknownSession:
            return []

    return read


def indexed(store: BlockingStore, index: Index | None = None) -> Index:
    """What the feed says from where an index stands, taken in."""
    index = index or Index()
    for change in told(store, index.mark):
        index.apply(change, read_of(store))
    return index


def contents(store: BlockingStore) -> Index:
    expected = Index()
    for listed in store.list(10_000):
        parent = listed.row.forked_from
        base = 0 if parent is None or store.glance(listed.id).imported else parent.seq
        own = (one for one in store.read_all(listed.id) if one.seq > base)
        expected.facts[listed.id] = {one.seq: one.fact for one in own}
    return expected


def assert_tells_all(store: BlockingStore, index: Index | None = None) -> None:
    assert indexed(store, index).facts == contents(store).facts
