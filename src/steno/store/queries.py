"""What is asked of a snapshot, in the words of the store: sessions through the parents of a fork,
what a follower has not seen, and lists of sessions whose rows may be behind. Writes nothing.

Lists lag. A session's row for lists is stored when its lease changes, and by the writer that finds
too many facts in no row; else it would cost more than the fact. So a list is made of two parts:

    rows      1: up to fact 12     2: up to fact 7      3: up to fact 9
    facts     ... 2: fact 8    1: fact 13    1: fact 14                  in no row yet
    the list  1 (row and facts 13, 14), 2 (row and fact 8), then 3 by its row
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from typing import assert_never

from msgspec.structs import replace

from steno.journal import codec
from steno.journal.drafts import Draft, Stream, sealed_by, streams_of
from steno.journal.facts import Record
from steno.journal.listing import ListingRow
from steno.journal.parts import Seq
from steno.journal.redaction import redact as without_text
from steno.store.backend import (
    SEQ_MAX,
    Behind,
    ChangeRow,
    SessionRow,
    Snapshot,
    marks_of,
)
from steno.store.errors import JournalCorrupt, NotAllowed, UnknownMark, UnknownSession
from steno.store.protocol import (
    Change,
    ChangePage,
    Cursor,
    Event,
    FactAdded,
    FeedMark,
    Listed,
    Mark,
    Piece,
    SessionDeleted,
    SessionImported,
    Shares,
    StoreRestored,
    TextRemoved,
)
from steno.store.values import expect

PAGE = 1_000
_REMEMBER_FROM = 16
"""Fewer facts are folded again: that takes no longer than to remember."""
_REMEMBERED_MAX = 1_000
_FIRST = 1 << 62
_DEBTS = ("session.attended", "hook.owed", "delivery.owed")
"""The tags of facts after which something may be owed that was not."""


# --- one session ----------------------------------------------------------------------------------


def session(view: Snapshot, id: str) -> SessionRow:
    if type(id) is not str:
        expect(str, session=id)
    row = view.session(id)
    if row is None:
        raise UnknownSession(id)
    return row


def _parent(view: Snapshot, row: SessionRow) -> SessionRow:
    above = None if row.parent is None else view.session(row.parent)
    if above is None:
        raise JournalCorrupt(f"session {row.id!r}: its parent is missing")
    return above


def _segments(view: Snapshot, row: SessionRow) -> list[tuple[int, Seq, Seq]]:
    """Where the facts of a session lie, oldest first: under which number, after and up to which
    seq."""
    found = [(row.n, row.base, row.head)]
    while row.parent is not None:
        upto = row.base
        row = _parent(view, row)
        found.append((row.n, row.base, upto))
    return found[::-1]


def records(
    view: Snapshot, row: SessionRow, after: Seq, limit: int, kinds: Sequence[str] = ()
) -> list[Record]:
    """Facts after a seq, through the parents of a fork."""
    if after >= row.head:
        return []
    if after >= row.base:
        return view.facts(row, row.n, after, row.head, kinds, limit)
    found: list[Record] = []
    for n, base, upto in _segments(view, row):
        if upto > after and len(found) < limit:
            found += view.facts(
                row, n, max(after, base), upto, kinds, limit - len(found)
            )
    return found


def record(view: Snapshot, row: SessionRow, seq: Seq) -> Record | None:
    """One fact, if there is one at this seq."""
    return records(view, row, seq - 1, 1)[0] if 0 < seq <= row.head else None


def own(view: Snapshot, row: SessionRow, kind: str) -> list[Record]:
    """A session's own facts with a tag."""
    return view.facts(row, row.n, row.base, row.head, (kind,), SEQ_MAX)


def listing(view: Snapshot, row: SessionRow) -> ListingRow:
    """The row for lists as it is now: what is stored of it, and the facts since."""
    found = row.listing()
    for record in records(view, row, row.listed, SEQ_MAX):
        found.apply(record)
    return found


class Remembered:
    """Rows for lists as they were folded last. What is remembered of a session holds as long as its
    row is the same but for its head: then only facts after that are read.

        row up to fact 3, facts 4 … 400     4 … 400 are folded, and the result is remembered
        fact 401                            401 is folded
        a redaction, or a new row           the row is another one: all are folded
    """

    def __init__(self) -> None:
        self._rows: dict[str, tuple[SessionRow, bytes]] = {}

    def listing(self, view: Snapshot, row: SessionRow) -> ListingRow:
        after, found = row.listed, None
        known, folded = self._rows.get(row.id, (None, b""))
        if (
            known is not None
            and known.head <= row.head
            and replace(known, head=row.head) == row
        ):
            after, found = known.head, codec.decode_listing(folded)
        found = found or row.listing()
        new = records(view, row, after, SEQ_MAX)
        for record in new:
            found.apply(record)
        if len(new) > _REMEMBER_FROM:
            if len(self._rows) >= _REMEMBERED_MAX:
                self._rows.clear()
            self._rows[row.id] = (row, codec.encode(found))
        return found


def drafts(
    view: Snapshot, row: SessionRow, started: Seq | None = None
) -> list[Draft]:
    """What is being streamed; with `started`, by that fact."""
    return [
        Draft(piece.stream, piece.text) for piece in view.drafts(row, {}, started)
    ]


def holder(view: Snapshot, row: SessionRow, seq: Seq) -> SessionRow:
    """The session whose own a fact is: the one it is read in, or one that it was forked from."""
    while row.parent is not None and seq <= row.base:
        row = _parent(view, row)
    return row


def family(view: Snapshot, row: SessionRow, seq: Seq = 0) -> list[SessionRow]:
    """A session and all forks that have its fact `seq`, however indirectly; parents first."""
    found = [row]
    for member in found:
        found += [fork for fork in view.forks(member.n) if fork.base >= seq]
    return found


def redactable(view: Snapshot, row: SessionRow, target: Seq) -> tuple[str, Seq]:
    """The session and seq of the fact that holds the text of the message at `target`: that one, or
    its sealing fact."""
    row = holder(view, row, target)
    after = target - 1
    while 0 <= after < row.head:
        page = records(view, row, after, PAGE)
        for record in page:
            begins = record.seq == target or sealed_by(record.fact) == target
            if begins and without_text(record.fact) is not None:
                return row.id, record.seq
        after = page[-1].seq
    raise NotAllowed(f"session {row.id!r} has no finished message at {target}")


# --- what a follower has not seen -----------------------------------------------------------------


def since(
    view: Snapshot, id: str, cursor: Cursor, limit: int, with_drafts: bool = True
) -> tuple[list[Event], Cursor]:
    """What a follower at `cursor` has not seen yet, each piece of text once and before the fact
    that seals it."""
    row = session(view, id)
    new = records(view, row, cursor.seq, limit)
    offsets = dict(cursor.offsets)
    caught_up = with_drafts and (new[-1].seq if new else cursor.seq) == row.head
    pieces = view.drafts(row, offsets) if caught_up else []
    events = [
        event for record in new for event in events_of(record, offsets, with_drafts)
    ]
    for piece in pieces:
        offsets[piece.stream] = piece.offset + len(piece.text)
    events += pieces
    return events, Cursor(new[-1].seq if new else cursor.seq, tuple(offsets.items()))


def events_of(
    record: Record, offsets: dict[Stream, int], with_drafts: bool
) -> list[Event]:
    """A fact as a follower sees it: what it lacks of a text that the fact seals, then the fact. Its
    place in a stream that is sealed is forgotten."""
    events: list[Event] = []
    for whole in streams_of(record.fact) if with_drafts else ():
        events += _rest(whole, offsets.get(whole.stream, 0))
    sealed = sealed_by(record.fact)
    for stream in [stream for stream in offsets if stream.started == sealed]:
        del offsets[stream]
    return [*events, record]


def _rest(whole: Draft, seen: int) -> list[Piece]:
    text = whole.text[seen:]
    return [Piece(whole.stream, seen, text)] if text else []


# --- changes of all sessions ----------------------------------------------------------------------


def changes(
    view: Snapshot,
    restored: FeedMark,
    after: FeedMark | None,
    limit: int,
    facts: bool = True,
) -> ChangePage:
    """A page of the feed. A mark is a place in the order of changes, above all marks that were
    given before the last restore.

    restored 0       places 1 2 3 4     marks 1 2 3 4          the backup is of this moment
                     places 5 6         marks 5 6              a reader stands at 6
    restored 1000    places 1 2 3 4     marks 1001 ... 1004    it is told: restored (1000), 1001 ...
    """
    top = restored + view.last_place()
    if after is None:
        return ChangePage((), top)
    expect(int, after=after, limit=limit)
    if limit < 1:
        raise NotAllowed("a page has at least one change")
    if not 0 <= after <= top:
        raise UnknownMark(
            f"this store has given no mark {after}; the last one is {top}"
        )
    if after < restored:
        return ChangePage((StoreRestored(restored),), restored)
    rows = view.changes(after - restored, limit, facts)
    found = tuple(
        change for row in rows if (change := _change(restored, row)) is not None
    )
    return ChangePage(found, restored + rows[-1].place if len(rows) == limit else top)


def _change(restored: FeedMark, row: ChangeRow) -> Change | None:
    mark, session = restored + row.place, row.session
    if session is None:
        return None
    match row.kind:
        case "added":
            return (
                None if row.record is None else FactAdded(mark, session, row.record)
            )
        case "redacted":
            return TextRemoved(mark, session, row.seq)
        case "imported":
            return SessionImported(mark, session, row.seq)
        case "deleted":
            return SessionDeleted(mark, session)
        case unreachable:
            assert_never(unreachable)


# --- lists ----------------------------------------------------------------------------------------


def by_change(
    view: Snapshot, mark: Mark | None, limit: int, before: int | None
) -> list[Listed]:
    """Sessions, those changed last first: by their rows, and those with facts that are in no row by
    the last of these."""
    below = _FIRST if before is None else before
    behind = {one.id: one.touched for one in view.behind()}
    rows = view.rows(mark, limit + len(behind), before=below)
    by_row = ((row.touched, row) for row in rows if row.id not in behind)
    by_fact = sorted(
        ((at, id) for id, at in behind.items() if at < below), reverse=True
    )
    found: list[Listed] = []
    in_order: Iterator[tuple[int, str | SessionRow]] = merge(
        by_fact, by_row, key=lambda one: one[0], reverse=True
    )
    for at, one in in_order:
        if len(found) >= limit:
            break
        found += _kept(
            view, session(view, one) if isinstance(one, str) else one, at, mark
        )
    return found


def by_number(
    view: Snapshot, mark: Mark | None, limit: int, after: int
) -> list[Listed]:
    """Sessions in the order in which they were made: what changes meanwhile keeps its place."""
    behind = view.behind(_DEBTS if mark == "owes" else ())
    found: list[Listed] = []
    while len(found) < limit and (
        rows := _next_rows(view, mark, limit, after, behind)
    ):
        for row in rows:
            found += _kept(view, row, row.n, mark)
        after = rows[-1].n
    return found[:limit]


def _next_rows(
    view: Snapshot, mark: Mark | None, limit: int, after: int, behind: list[Behind]
) -> list[SessionRow]:
    """The next that are marked, and those whose marks are not known."""
    rows = {row.n: row for row in view.rows(mark, limit, after=after)}
    beyond = [one for one in behind if one.n > after and one.n not in rows]
    for one in sorted(beyond, key=lambda one: one.n)[:limit]:
        rows[one.n] = session(view, one.id)
    return sorted(rows.values(), key=lambda row: row.n)[:limit]


def _kept(
    view: Snapshot, row: SessionRow, place: int, mark: Mark | None
) -> Iterable[Listed]:
    """A session as it is listed, if it still is what is looked for."""
    found = listing(view, row)
    if mark is None or mark in marks_of(found):
        yield Listed(row.id, row.head, place, row.owner, found)


def named(view: Snapshot, prefix: str, after: str, limit: int) -> list[Listed]:
    """Sessions by the beginning of their names, in the order of the names. Their marks are in the
    order of their last changes."""
    rows = [session(view, id) for id in view.named(prefix, after, max(limit, 0))]
    last = {one.n: one.touched for one in view.behind()} if rows else {}
    return [
        Listed(
            row.id,
            row.head,
            last.get(row.n, row.touched),
            row.owner,
            listing(view, row),
        )
        for row in rows
    ]


def sharing(
    view: Snapshot, shares: Shares, limit: int, after: int | None
) -> list[Listed]:
    """The session that a fact was added to, and all forks that have it."""
    rows = family(
        view, holder(view, session(view, shares.session), shares.seq), shares.seq
    )
    rows = [row for row in rows if after is None or row.n > after][: max(limit, 0)]
    return [
        Listed(row.id, row.head, row.n, row.owner, listing(view, row)) for row in rows
    ]


def told(view: Snapshot, source: str) -> list[str]:
    """Sessions that may have been told something that another one has to remember."""
    return sorted({*view.told(source), *(one.id for one in view.behind())})


def pages(view: Snapshot, row: SessionRow, after: Seq = 0) -> Iterator[list[Record]]:
    while page := records(view, row, after, PAGE):
        yield page
        after = page[-1].seq


def ends(view: Snapshot, row: SessionRow) -> dict[Stream, int]:
    """How long each open stream is so far, in code points."""
    return {piece.stream: len(piece.text) for piece in view.drafts(row, {})}
