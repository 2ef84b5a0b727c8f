"""What a writer process was told is stored, and whether it is.

An acknowledgement is one line of JSON: the moment it came, and either a fact in its place or a
piece of a stream that may now be shown. A line that was cut off was never said.
"""

import os
import time
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from steno.journal import codec
from steno.journal.drafts import Kind, Stream, streams_of
from steno.journal.facts import AnyFact
from steno.journal.parts import Seq
from steno.store.sqlite.store import BlockingStore


class Stored(Struct, frozen=True, tag="stored"):
    session: str
    seq: Seq
    body: str


class Shown(Struct, frozen=True, tag="shown"):
    """`text` ends at `end` in its stream."""

    session: str
    started: Seq
    kind: Kind
    end: int
    text: str


class Ack(Struct, frozen=True):
    at_s: float
    what: Stored | Shown


_decoder = msgspec.json.Decoder(Ack)


def tell_stored(session: str, first: Seq, facts: Sequence[AnyFact]) -> None:
    for seq, fact in enumerate(facts, start=first):
        _tell(Stored(session, seq, codec.encode(fact).decode()))


def tell_shown(session: str, stream: Stream, end: int, text: str) -> None:
    _tell(Shown(session, stream.started, stream.kind, end, text))


def _tell(what: Stored | Shown) -> None:
    """The moment is taken first: what was said before a power cut was stored before it."""
    os.write(1, msgspec.json.encode(Ack(time.monotonic(), what)) + b"\n")


def parse(output: bytes, before_s: float = float("inf")) -> list[Stored | Shown]:
    """The acknowledgements in what a process printed, as far as it got, up to a moment."""
    whole = output[: output.rfind(b"\n") + 1].splitlines()
    acks = [_decoder.decode(line) for line in whole if line.startswith(b"{")]
    return [ack.what for ack in acks if ack.at_s < before_s]


def assert_kept(store: BlockingStore, acks: Iterable[Stored | Shown]) -> None:
    """Every fact is in its place, byte for byte, and every shown character in its stream or in what
    sealed it."""
    journals = {id: Reader(store, id) for id in {ack.session for ack in acks}}
    for ack in acks:
        journal = journals[ack.session]
        match ack:
            case Stored():
                assert journal.bodies.get(ack.seq) == ack.body, f"lost: {ack}"
            case Shown():
                text = journal.streams.get(Stream(ack.started, ack.kind), "")
                assert text[ack.end - len(ack.text) : ack.end] == ack.text, f"lost: {ack}"


class Reader:
    """One session: its facts as bytes, and its streams, open or sealed."""

    def __init__(self, store: BlockingStore, session: str) -> None:
        records = list(store.read_all(session))
        self.bodies = {record.seq: codec.encode(record.fact).decode() for record in records}
        sealed = [whole for record in records for whole in streams_of(record.fact)]
        self.streams = {draft.stream: draft.text for draft in [*sealed, *store.drafts(session)]}
