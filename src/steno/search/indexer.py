"""Fills the index from the feed of changes, and empties it of what was removed.

Each step is one short transaction on the file of the index; nothing of the journal waits for it. A
part is filled in the order of the feed, merged when it is full, and from then on it is only read or
dropped. A kill leaves whole transactions: the next step goes on from what the file says.

    feed    1 ......... 40 000 ........ 81 000 .... 90 000 (now)
    parts   [ 1: sealed ][ 2: sealed   ][ 3: open ]
    redact  a text of part 2: it is dropped, its pages are overwritten, the log is emptied;
            40 000 to 81 000 are scanned until a later step has filled part 4 with them

Whoever removes a text waits until it is out of the file. Whoever fills reads first and writes
after: so it looks inside its transaction whether anything was removed since, and reads again if so.
"""

from collections.abc import Iterable, Sequence
from typing import assert_never

import apsw
from msgspec import Struct

from steno.journal.parts import Seq
from steno.search.batch import PAYLOAD, Batch, payload_text
from steno.search.feed import Restored, Searched
from steno.search.index_file import SEQ_END, Busy, IndexFile, Part, Place, Unusable
from steno.store.errors import UnknownMark
from steno.store.protocol import (
    FactAdded,
    FeedMark,
    SessionDeleted,
    SessionImported,
    StoreRestored,
    TextRemoved,
)

PART_TEXTS = 32_768
START: Place = (0, SEQ_END)
"""Before the first change."""
_COMMON_SHARE = 0.001
_COUNT_FROM = 1_024


class Pace(Struct, frozen=True):
    """How much goes into one transaction, how long it may keep other threads of its process from
    running, and how many pages the log may have before they are moved."""

    texts: int
    chars: int
    log_pages: int = 1_000
    breath_s: float | None = None
    bulk: bool = False


LIVE = Pace(16, 64_000, 16_000, 0.0002)
IDLE = Pace(128, 128_000, breath_s=0.001)
BULK = Pace(256, 250_000, 8_000, bulk=True)


class Progress(Struct, frozen=True):
    """How far the index is: the marks that its parts cover, of all."""

    covered: int
    marks: int
    texts: int

    @property
    def share(self) -> float:
        return 1.0 if not self.marks else min(self.covered / self.marks, 1.0)


class Indexer:
    """`part_texts` is how many texts fill a part."""

    def __init__(
        self, store: Searched, file: IndexFile, part_texts: int = PART_TEXTS
    ) -> None:
        self._store = store
        self._file = file
        self._part_texts = part_texts
        self._paced = (0, False)

    # --- where it stands

    def top(self) -> Place:
        return self._store.changes(None).mark, SEQ_END

    def progress(self) -> Progress:
        top = self.top()[0]
        parts = self._file.parts()
        bottom = floor(self._store)[0]
        covered = sum(part.upto - part.after for part in parts)
        return Progress(
            covered, max(top - bottom, 0), sum(part.texts for part in parts)
        )

    # --- what was removed

    def clear(self) -> None:
        """Take out what was removed from the journal, also from the log; then it is in no file of
        the index."""
        cleared = int(self._file.one("select cleared from about")) or self._begun()
        try:
            page = self._store.changes(cleared, 1_000, False)
        except UnknownMark as error:
            raise Unusable("the index is ahead of its store") from error
        while page.mark != cleared:
            if page.changes:
                with self._file.writing():
                    for change in page.changes:
                        match change:
                            case TextRemoved(mark=mark, session=session, seq=seq):
                                self._text_removed(mark, session, seq)
                            case SessionDeleted(mark=mark, session=session):
                                self._session_deleted(mark, session)
                            case StoreRestored():
                                raise Unusable("a backup was restored")
                            case FactAdded() | SessionImported():
                                pass
                            case unreachable:
                                assert_never(unreachable)
                    self._cleared(page.mark)
            else:
                if page.mark - cleared > 10_000:
                    with self._file.writing():
                        self._cleared(page.mark)
                break
            cleared = page.mark
            page = self._store.changes(cleared, 1_000, False)
        if self._file.one("select dirty from about"):
            while self._file.sweep():
                pass
            self._file.scrub()

    def _begun(self) -> FeedMark:
        """A file without parts has nothing of what was before the last restore."""
        bottom = floor(self._store)[0]
        if not bottom or self._file.parts():
            return 0
        with self._file.writing():
            self._cleared(bottom)
        return bottom

    def _cleared(self, mark: FeedMark) -> None:
        self._file.connection.execute(
            "update about set cleared = max(cleared, ?)", (mark,)
        )

    def _text_removed(self, mark: FeedMark, session: str, seq: Seq) -> None:
        rows = self._file.rows
        n = self._file.one("select n from sessions where id = ?", session)
        held = {
            part for (part,) in rows("select part from holds where session = ?", n)
        }
        sought = "where session = ? and seq = ?"
        doomed = {
            part for part in held if rows(f"select 1 from d{part} {sought}", n, seq)
        }
        self._drop(mark, doomed | self._carried_in(sought, n, seq))
        rows(f"delete from carries {sought}", n, seq)

    def _session_deleted(self, mark: FeedMark, session: str) -> None:
        rows = self._file.rows
        n = self._file.one("select n from sessions where id = ?", session)
        doomed = {
            part for (part,) in rows("select part from holds where session = ?", n)
        }
        self._drop(mark, doomed | self._carried_in("where session = ?", n))
        rows("delete from carries where session = ?", n)
        rows("delete from hidden where session = ?", n)
        rows(
            "delete from sessions where n = ? and n not in (select session from holds)",
            n,
        )

    def _carried_in(self, sought: str, *values: int) -> set[int]:
        """The parts that have the texts of payloads which some facts name. Whether others still
        name them is not asked: then they are taken in again."""
        carried = f"select payload from carries {sought}"
        found = self._file.rows(
            f"select part from payloads where part notnull and n in ({carried})",
            *values,
        )
        return {part for (part,) in found}

    def _drop(self, mark: FeedMark, parts: Iterable[int]) -> None:
        for part in sorted(parts):
            as_of = self._file.one("select as_of from parts where n = ?", part)
            if as_of is not None and as_of < mark:
                self._file.drop_part(part)

    # --- filling

    def step(self, pace: Pace) -> bool:
        """One transaction; whether there is more to do. Somebody else at it means there is not."""
        try:
            self.clear()
            if self._file.log_pages >= pace.log_pages:
                self._file.settle()
            return (
                self._merge(pace)
                or self._fill(pace)
                or self._adopt_payload()
                or self._count()
            )
        except Busy:
            return False
        except Restored as error:
            raise Unusable("a backup was restored") from error
        except apsw.Error as error:
            raise Unusable(str(error)) from error

    def _merge(self, pace: Pace) -> bool:
        full = next(
            (
                part
                for part in self._file.parts()
                if part.state in ("full", "merging")
            ),
            None,
        )
        if full is None:
            return False
        if full.state == "full":
            more = self._file.merge(full, -64)
            state = "merging" if more else "sealed"
        else:
            state = "merging" if self._file.merge(full, 64) else "sealed"
        if state != full.state:
            with self._file.writing():
                self._file.connection.execute(
                    "update parts set state = ? where n = ?", (state, full.n)
                )
        return True

    def gaps(self) -> list[tuple[Place, Place]]:
        """What no part covers, in order."""
        return gaps(self._file.parts(), floor(self._store), self.top())

    def _fill(self, pace: Pace) -> bool:
        """Take in the next texts of the newest gap."""
        parts = self._file.parts()
        missing = gaps(parts, floor(self._store), self.top())
        if not missing:
            return False
        begin, end = missing[-1]
        part = next(
            (one for one in parts if one.end == begin and one.state == "open"), None
        )
        room = min(pace.texts, self._part_texts - (0 if part is None else part.texts))
        as_of = self._store.changes(None).mark
        batch = Batch(self._store, self._file, pace.breath_s)
        reached = batch.take(begin, end, room, pace.chars)
        with self._file.writing():
            if self._stale(parts):
                return True
            if part is None:
                part = self._file.begin_part(begin, as_of)
            if (part.n, pace.bulk) != self._paced:
                self._file.pace(part, pace.bulk)
                self._paced = (part.n, pace.bulk)
            batch.write(part)
            part.upto, part.upto_seq = reached
            follows = any(one.begin == part.end for one in parts)
            if part.texts >= self._part_texts or follows:
                part.state = "full" if part.texts else "sealed"
            self._file.save_part(part)
        return True

    def _stale(self, before: Sequence[Part]) -> bool:
        """Inside the transaction: whether something was removed since we read, or somebody else
        has been here."""
        cleared = int(self._file.one("select cleared from about"))
        if self._store.changes(cleared, 1, False).changes:
            return True
        return self._file.parts() != list(before)

    def _adopt_payload(self) -> bool:
        """Index a payload whose part was dropped and that other facts still name."""
        rows = self._file.rows(
            "select n, hash from payloads where part is null limit 1"
        )
        parts = [part for part in self._file.parts() if part.state == "open"]
        if not rows or not parts:
            return False
        n, hash = rows[0]
        text = payload_text(self._store, hash)
        with self._file.writing():
            if self._stale(self._file.parts()):
                return True
            part = next(
                (one for one in self._file.parts() if one.n == parts[-1].n), None
            )
            if part is None:
                return True
            if text is None:
                self._file.connection.execute(
                    "delete from carries where payload = ?", (n,)
                )
                self._file.connection.execute(
                    "delete from payloads where n = ?", (n,)
                )
            else:
                batch = Batch(self._store, self._file)
                batch.text(PAYLOAD, text, n, 0, part.upto)
                batch.write(part)
                self._file.connection.execute(
                    "update payloads set part = ? where n = ?", (part.n, n)
                )
                self._file.save_part(part)
        return True

    def _count(self) -> bool:
        """Count which grams are common, when there is much more than the last time."""
        parts = self._file.parts()
        texts = sum(part.texts for part in parts)
        counted = int(self._file.one("select counted from about"))
        if (
            texts < _COUNT_FROM
            or texts < 4 * counted
            or counted > 8 * self._part_texts
        ):
            return False
        part = max(parts, key=lambda part: (part.texts, part.n))
        least = max(int(part.texts * _COMMON_SHARE), 2)
        rows = [
            row
            for wide in (False, True)
            for row in self._file.rows(
                f"select term, doc from {self._file.vocabulary(part.n, wide)} where doc > ?",
                least,
            )
        ]
        with self._file.writing():
            self._file.rows("delete from common")
            shares = [(term, doc / part.texts) for term, doc in rows]
            self._file.connection.executemany(
                "insert into common values (?, ?)", shares
            )
            self._file.rows("update about set counted = ?", texts)
        return True


def floor(store: Searched) -> Place:
    """Where the feed begins: at its start, or at the last restore."""
    first = store.changes(0, 1).changes
    if first and isinstance(first[0], StoreRestored):
        return first[0].mark, SEQ_END
    return START


def gaps(
    parts: Sequence[Part], floor: Place, top: Place
) -> list[tuple[Place, Place]]:
    """What no part covers of a feed, in order."""
    found: list[tuple[Place, Place]] = []
    at = floor
    for part in parts:
        if part.begin > at:
            found.append((at, part.begin))
        at = max(at, part.end)
    if at < top:
        found.append((at, top))
    return found
