"""Rows to records and back: where a fact lies, and how damage to it is noticed.

Every row carries a CRC over its place, its time and its bytes. A row that does not match is damage,
and so is a gap in the numbering: either raises `JournalCorrupt` and names the session and the seq.
Nothing is skipped.
"""

from collections.abc import Iterable
from struct import Struct as Layout
from zlib import crc32

from steno.journal import codec
from steno.journal.drafts import Draft, Kind, Stream
from steno.journal.facts import Record
from steno.journal.parts import Seq
from steno.store.errors import JournalCorrupt

SEQ_MAX = (1 << 32) - 1

_two_ints = Layout(">qq").pack

FactRow = tuple[int, int, int, bytes]
DraftRow = tuple[int, str, int, int, bytes]


def fact_crc(n: int, seq: Seq, at_ms: int, body: bytes) -> int:
    return crc32(body, crc32(_two_ints(n << 32 | seq, at_ms)))


def draft_crc(n: int, stream: Stream, start: int, text: bytes) -> int:
    return crc32(
        text, crc32(stream.kind.encode(), crc32(_two_ints(n << 32 | stream.started, start)))
    )


def to_records(session: str, n: int, expected: Seq, rows: Iterable[FactRow]) -> list[Record]:
    """Decode rows that must be numbered from `expected` on without a gap."""
    records: list[Record] = []
    decode = codec.decode
    for seq, at_ms, crc, body in rows:
        if seq != expected:
            raise JournalCorrupt(
                f"session {session!r}: fact {expected} is missing (found {seq} in its place)"
            )
        if fact_crc(n, seq, at_ms, body) != crc:
            raise JournalCorrupt(f"session {session!r}: fact {seq} is damaged (checksum differs)")
        try:
            records.append(Record(seq, at_ms, decode(body)))
        except codec.DecodeError as error:
            raise JournalCorrupt(f"session {session!r}: fact {seq}: {error}") from error
        expected = seq + 1
    return records


def to_drafts(
    session: str, n: int, rows: Iterable[DraftRow], starts: dict[Stream, int] | None = None
) -> list[Draft]:
    """Join the rows of each stream, in order, from its beginning or from where `starts` says that
    they begin."""
    streams: dict[Stream, list[str]] = {}
    ends: dict[Stream, int] = dict(starts or {})
    for started, kind, start, crc, raw in rows:
        stream = Stream(started, as_kind(kind))
        if start != ends.get(stream, 0) or draft_crc(n, stream, start, raw) != crc:
            raise JournalCorrupt(
                f"session {session!r}: the draft of fact {started} is damaged at offset {start}"
            )
        text = codec.unescape(raw.decode())
        streams.setdefault(stream, []).append(text)
        ends[stream] = start + len(text)
    return [Draft(stream, "".join(pieces)) for stream, pieces in streams.items()]


def as_kind(kind: str) -> Kind:
    match kind:
        case "text" | "reasoning" | "output":
            return kind
        case _:
            raise JournalCorrupt(f"unknown kind of draft {kind!r}")
