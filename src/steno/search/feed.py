"""The feed of changes as texts: what a range of it tells, in order, each text at its place.

A fact is told by a change of its own; an imported session is told as one change, and its facts are
read. What is gone meanwhile is left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, assert_never

from msgspec import Struct

from steno.journal.drafts import Draft
from steno.journal.facts import Record
from steno.journal.parts import Hash, Seq
from steno.search.index_file import SEQ_END, Place
from steno.store.errors import UnknownSession
from steno.store.protocol import (
    ChangePage,
    FactAdded,
    FeedMark,
    Glance,
    Listed,
    SessionDeleted,
    SessionImported,
    StoreRestored,
    TextRemoved,
)

PAGE = 1_000


class Searched(Protocol):
    """What a search needs of a store: its verbs as plain methods. Every store has them."""

    def read(
        self,
        session: str,
        after: Seq = 0,
        limit: int = 1_000,
        kinds: Sequence[str] = (),
    ) -> list[Record]: ...
    def facts_at(
        self, places: Mapping[str, Sequence[Seq]]
    ) -> dict[tuple[str, Seq], Record]: ...
    def streaming(self) -> list[str]: ...
    def drafts(self, session: str) -> list[Draft]: ...
    def glance(self, session: str) -> Glance: ...
    def changes(
        self, after: FeedMark | None = 0, limit: int = 1_000, facts: bool = True
    ) -> ChangePage: ...
    def get(self, payload: Hash) -> bytes: ...

    # Last: it hides the type of its name.
    def list(self, limit: int = 50, before: int | None = None) -> list[Listed]: ...


class Told(Struct, frozen=True, gc=False):
    """A fact at its place in the feed; `imported` if it was told with a whole session."""

    mark: FeedMark
    session: str
    record: Record
    imported: bool = False

    @property
    def place(self) -> Place:
        return self.mark, self.record.seq

    @property
    def end(self) -> Place:
        """Who has taken in the feed up to here has this fact, and nothing after it."""
        return (self.mark, self.record.seq) if self.imported else (self.mark, SEQ_END)


class Restored(Exception):
    """A backup took the place of the store: nothing that was known of it holds."""


def told(
    store: Searched, begin: Place, end: Place, page: int = PAGE
) -> Iterator[list[Told]]:
    """The facts after `begin` and up to `end`, some at a time, and after each the place that was
    reached is that of its last. A page may be empty."""
    mark, seq = begin
    if seq != SEQ_END:
        [*changes] = store.changes(mark - 1, 1).changes
        if (
            changes
            and isinstance(changes[0], SessionImported)
            and changes[0].mark == mark
        ):
            upto = changes[0].head if mark < end[0] else min(changes[0].head, end[1])
            yield from _of_session(store, changes[0], seq, upto, page)
    while mark < end[0]:
        found = store.changes(mark, page)
        batch: list[Told] = []
        for change in found.changes:
            if change.mark > end[0]:
                break
            match change:
                case FactAdded(session=session, record=record):
                    batch.append(Told(change.mark, session, record))
                case SessionImported():
                    yield batch
                    batch = []
                    upto = (
                        change.head
                        if change.mark < end[0]
                        else min(change.head, end[1])
                    )
                    yield from _of_session(store, change, 0, upto, page)
                case StoreRestored():
                    raise Restored
                case TextRemoved() | SessionDeleted():
                    pass
                case unreachable:
                    assert_never(unreachable)
        yield batch
        if found.mark == mark:
            return
        mark = found.mark


def _of_session(
    store: Searched, change: SessionImported, after: Seq, upto: Seq, page: int
) -> Iterator[list[Told]]:
    while after < upto:
        try:
            records = store.read(change.session, after, min(page, upto - after))
        except UnknownSession:
            return
        if not records:
            return
        yield [Told(change.mark, change.session, record, True) for record in records]
        after = records[-1].seq


def told_backwards(
    store: Searched, begin: Place, end: Place, page: int = PAGE
) -> Iterator[list[Told]]:
    """The same, the newest first: in windows of marks, each read forwards and turned around. An
    imported session that is long is read in windows, too."""
    high = end
    while high > begin:
        low = max(begin, (high[0] - page, SEQ_END)) if high[1] == SEQ_END else begin
        if high[1] != SEQ_END:
            low = max(begin, (high[0] - 1, SEQ_END))
        window = [one for batch in told(store, low, high, page) for one in batch]
        yield window[::-1]
        high = low
