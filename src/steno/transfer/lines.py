"""The lines of an exported session, and their bytes. docs/reference/journal-format.md describes
them for other readers.

    header · payloads and facts · drafts · keys · end

A line is one JSON object. The end counts what came and has the SHA-256 of all bytes before it, so a
file that was cut or altered is told from a whole one. The same session gives the same bytes,
whichever store it lies in.
"""

import msgspec
from msgspec import Raw, Struct

from steno.journal import codec
from steno.journal.drafts import Draft, Kind, Stream
from steno.journal.facts import Record
from steno.journal.parts import Hash, Seq
from steno.store.protocol import Keyed

VERSION = 1
LINE_BYTES_MAX = 96 << 20
"""The longest fact and the longest payload that a store takes fit."""


class ExportLine(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all lines: strict when read."""


class HeaderLine(ExportLine, frozen=True, tag="steno.export"):
    """`base`: facts up to here are those of the sessions that this one was forked from."""

    version: int
    session: str
    base: Seq


class PayloadLine(ExportLine, frozen=True, tag="payload"):
    hash: Hash
    data: bytes


class FactLine(ExportLine, frozen=True, tag="fact"):
    seq: Seq
    at_ms: int
    body: Raw


class DraftLine(ExportLine, frozen=True, tag="draft"):
    started: Seq
    kind: Kind
    text: str


class KeyLine(ExportLine, frozen=True, tag="key"):
    seq: Seq
    key: str
    count: int


class EndLine(ExportLine, frozen=True, tag="end"):
    payloads: int
    facts: int
    drafts: int
    keys: int
    sha256: str


AnyLine = HeaderLine | PayloadLine | FactLine | DraftLine | KeyLine | EndLine

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyLine] = msgspec.json.Decoder(AnyLine)


def to_bytes(line: AnyLine) -> bytes:
    return _encoder.encode(line) + b"\n"


def from_bytes(line: bytes) -> AnyLine:
    """`ValueError` if it is no line of ours."""
    return _decoder.decode(line)


def fact_line(record: Record) -> FactLine:
    return FactLine(record.seq, record.at_ms, Raw(codec.encode(record.fact)))


def to_record(line: FactLine) -> Record:
    return Record(line.seq, line.at_ms, codec.decode(bytes(line.body)))


def draft_line(draft: Draft) -> DraftLine:
    return DraftLine(
        draft.stream.started, draft.stream.kind, codec.escape(draft.text)
    )


def to_draft(line: DraftLine) -> Draft:
    return Draft(Stream(line.started, line.kind), codec.unescape(line.text))


def key_line(keyed: Keyed) -> KeyLine:
    return KeyLine(keyed.seq, codec.escape(keyed.key), keyed.count)


def to_keyed(line: KeyLine) -> Keyed:
    return Keyed(line.seq, codec.unescape(line.key), line.count)
