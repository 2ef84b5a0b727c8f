"""Looks at every byte of a store and says what is damaged. Changes nothing, holds up no writer."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from steno.journal.drafts import sealed_by
from steno.journal.facts import InputAdmitted, Record, StepStarted, ToolStarted
from steno.journal.listing import ListingRow
from steno.journal.parts import Seq
from steno.store import queries
from steno.store.backend import SessionRow, Snapshot, marks_of
from steno.store.errors import JournalCorrupt, UnknownSession
from steno.store.protocol import Damage, Report

DAMAGE_MAX = 1_000

Tell = Callable[[int, int], None]
"""Hears how many sessions were looked at, and of how many; 0 if that is not known."""
Moment = Callable[[], AbstractContextManager[Snapshot]]


def counted(sessions: Iterator[str]) -> int:
    try:
        return sum(1 for _ in sessions)
    except JournalCorrupt:
        return 0


def verify(
    moment: Moment,
    sessions: Iterator[str],
    damage: Iterator[Damage],
    tell: Callable[[int], None] = lambda _: None,
) -> Report:
    """Every fact decodes, is numbered without a gap and matches its checksum; every list row
    matches its facts. `damage` is what the backend sees by itself."""
    found = _within("database", damage)
    counts = {"sessions": 0, "facts": 0}
    try:
        for id in sessions:
            tell(counts["sessions"])
            counts["sessions"] += 1
            found += _session(moment, id, counts)
            if len(found) >= DAMAGE_MAX:
                break
    except JournalCorrupt as error:
        found.append(Damage("sessions", str(error)))
    return Report(counts["sessions"], counts["facts"], tuple(found[:DAMAGE_MAX]))


def _within(where: str, damage: Iterator[Damage]) -> list[Damage]:
    """A look that cannot even be finished is damage too."""
    found: list[Damage] = []
    try:
        found.extend(damage)
    except JournalCorrupt as error:
        found.append(Damage(where, str(error)))
    return found


def _session(moment: Moment, id: str, counts: dict[str, int]) -> list[Damage]:
    try:
        with moment() as view:
            return _look(view, queries.session(view, id), counts)
    except JournalCorrupt as error:
        return [Damage(f"session {id!r}", str(error))]
    except UnknownSession:
        return []  # deleted meanwhile


def _look(view: Snapshot, row: SessionRow, counts: dict[str, int]) -> list[Damage]:
    stored = row.listing()
    base = 0 if stored.forked_from is None else stored.forked_from.seq
    listing, open_streams = ListingRow(), set[Seq]()
    damage: list[Damage] = []
    for page in queries.pages(view, row):
        for record in page:
            if record.seq <= row.listed:
                listing.apply(record)
            _note_streams(record, open_streams)
            damage += _key(view, row, record) if record.seq > base else []
        counts["facts"] += sum(record.seq > row.base for record in page)
    damage += _drafts(view, row, open_streams)
    if stored.usage is None:  # an earlier steno began the row, and counted no usage
        listing.usage, listing.context = None, stored.context
    if listing != stored or not marks_hold(row, stored):
        damage.append(
            Damage(f"session {row.id!r}", "its row for lists differs from its facts")
        )
    return damage


def marks_hold(row: SessionRow, listing: ListingRow) -> bool:
    """Whether a row is marked as it should be. An earlier steno marked fewer sessions as due."""
    marks = marks_of(listing)
    return row.marks in (marks, marks - {"due"})


def _key(view: Snapshot, row: SessionRow, record: Record) -> list[Damage]:
    """An input of its own that came with a key is found by it: else the same input would be
    admitted again."""
    said = record.fact
    if not isinstance(said, InputAdmitted) or said.key is None:
        return []
    found = view.key(said.source, said.key)
    if found is not None and (found.session, found.seq) == (row.id, record.seq):
        return []
    return [
        Damage(
            f"session {row.id!r}",
            f"fact {record.seq} is not found by its key {said.key!r}",
        )
    ]


def _note_streams(record: Record, open_streams: set[Seq]) -> None:
    if isinstance(record.fact, StepStarted | ToolStarted):
        open_streams.add(record.seq)
    elif (sealed := sealed_by(record.fact)) is not None:
        open_streams.discard(sealed)


def _drafts(view: Snapshot, row: SessionRow, open_streams: set[Seq]) -> list[Damage]:
    """Every draft belongs to a step or a tool that has not been sealed."""
    stray = {
        draft.stream.started for draft in queries.drafts(view, row)
    } - open_streams
    return [
        Damage(
            f"session {row.id!r}",
            f"has a draft for fact {started}, which is not open",
        )
        for started in stray
    ]
