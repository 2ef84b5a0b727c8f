"""Looks at every byte of a store and says what is damaged. Changes nothing, holds nobody up."""

from collections.abc import Callable, Iterator
from hashlib import sha256

import apsw

from steno.journal.codec import escape
from steno.journal.drafts import sealed_by
from steno.journal.facts import InputAdmitted, Record, StepStarted, ToolStarted
from steno.journal.listing import ListingRow
from steno.store.errors import JournalCorrupt, UnknownSession
from steno.store.protocol import Damage, Report
from steno.store.sqlite import reading
from steno.store.sqlite.sql import STATEMENTS

DAMAGE_MAX = 1_000
_PAGE = 200


def verify(connection: apsw.Connection) -> Report:
    """Every fact decodes, is numbered without a gap and matches its checksum; every list row
    matches its facts."""
    damage: list[Damage] = []
    counts = {"sessions": 0, "facts": 0}
    for look in (_pages, _dangling, _payloads):
        damage += _survive(look, connection)
    try:
        for id in _sessions(connection):
            counts["sessions"] += 1
            damage += _session(connection, id, counts)
            if len(damage) >= DAMAGE_MAX:
                break
    except (apsw.Error, UnicodeDecodeError, JournalCorrupt) as error:
        damage.append(Damage("sessions", str(error)))
    return Report(counts["sessions"], counts["facts"], tuple(damage[:DAMAGE_MAX]))


def _survive(
    look: Callable[[apsw.Connection], Iterator[Damage]], connection: apsw.Connection
) -> list[Damage]:
    """A look that cannot even be finished is damage too."""
    found: list[Damage] = []
    try:
        found.extend(look(connection))
    except (apsw.Error, UnicodeDecodeError, JournalCorrupt) as error:
        found.append(Damage("database", str(error)))
    return found


def _pages(connection: apsw.Connection) -> Iterator[Damage]:
    for (said,) in connection.execute("pragma integrity_check(100)"):
        if said != "ok":
            yield Damage("database", str(said))


def _dangling(connection: apsw.Connection) -> Iterator[Damage]:
    for source, key in connection.execute(STATEMENTS["keys_dangling"]):
        yield Damage(f"key {key!r} of {source!r}", "refers to a fact that does not exist")
    for session, started in connection.execute(STATEMENTS["drafts_dangling"]):
        yield Damage(f"draft of fact {started}, session number {session}", "belongs to no fact")
    for (n,) in connection.execute(STATEMENTS["facts_dangling"]):
        yield Damage(f"facts of session number {n}", "belong to no session")
    for (hash,) in connection.execute(STATEMENTS["payloads_dangling"]):
        yield Damage(f"payload {hash}", "is missing")


def _payloads(connection: apsw.Connection) -> Iterator[Damage]:
    after = -1
    while row := connection.execute(STATEMENTS["payloads_after"], (after,)).fetchone():
        n, hash, body = row
        after = _onward(after, n)
        if type(body) is not bytes or sha256(body).hexdigest() != hash:
            yield Damage(f"payload {hash}", "does not match its hash")


def _sessions(connection: apsw.Connection) -> Iterator[str]:
    after = -1
    while page := connection.execute(STATEMENTS["session_ids"], (after, _PAGE)).fetchall():
        for n, id in page:
            after = _onward(after, n)
            yield str(id)


def _onward(after: int, n: object) -> int:
    """In a damaged tree rows may come in any order, for ever."""
    if not isinstance(n, int) or n <= after:
        raise JournalCorrupt(f"row {n} comes after row {after}")
    return n


def _session(connection: apsw.Connection, id: str, counts: dict[str, int]) -> list[Damage]:
    try:
        with reading.snapshot(connection):
            row = reading.session(connection, id)
            stored = row.listing()
            base = 0 if stored.forked_from is None else stored.forked_from.seq
            listing, after, open_streams = ListingRow(), 0, set[int]()
            damage: list[Damage] = []
            while page := reading.records(connection, row, after, reading.PAGE):
                for record in page:
                    if record.seq <= row.listed:
                        listing.apply(record)
                    _note_streams(record, open_streams)
                    damage += _key(connection, row, record) if record.seq > base else []
                counts["facts"] += sum(record.seq > row.base for record in page)
                after = page[-1].seq
            damage += _drafts(connection, row, open_streams)
            if stored.usage is None:  # an earlier steno began the row, and counted no usage
                listing.usage, listing.context = None, stored.context
            if listing != stored or not marks_hold(row):
                damage.append(Damage(f"session {id!r}", "its row for lists differs from its facts"))
            return damage
    except JournalCorrupt as error:
        return [Damage(f"session {id!r}", str(error))]
    except UnknownSession:
        return []  # deleted while we looked


def marks_hold(row: reading.SessionRow) -> bool:
    """Whether a row is marked as it should be. An earlier steno marked fewer sessions as due."""
    listing = row.listing()
    memory = reading.memory_mark(listing)
    return row.owes == int(listing.owes()) and row.memory in (memory, memory & ~reading.DUE)


def _key(connection: apsw.Connection, row: reading.SessionRow, record: Record) -> list[Damage]:
    """An input of its own that came with a key is found by it: else the same input would be
    admitted again."""
    said = record.fact
    if not isinstance(said, InputAdmitted) or said.key is None:
        return []
    found = connection.execute(
        STATEMENTS["key"], (escape(said.source), escape(said.key))
    ).fetchone()
    if found is not None and found[:2] == (record.seq, escape(row.id)):
        return []
    return [
        Damage(f"session {row.id!r}", f"fact {record.seq} is not found by its key {said.key!r}")
    ]


def _note_streams(record: Record, open_streams: set[int]) -> None:
    if isinstance(record.fact, StepStarted | ToolStarted):
        open_streams.add(record.seq)
    elif (sealed := sealed_by(record.fact)) is not None:
        open_streams.discard(sealed)


def _drafts(
    connection: apsw.Connection, row: reading.SessionRow, open_streams: set[int]
) -> list[Damage]:
    """Every draft belongs to a step or a tool that has not been sealed."""
    stray = {draft.stream.started for draft in reading.drafts(connection, row)} - open_streams
    return [
        Damage(f"session {row.id!r}", f"has a draft for fact {started}, which is not open")
        for started in stray
    ]
