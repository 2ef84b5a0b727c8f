"""A place in the journal, in print: what a client gives back to read on from there.

    40               everything up to fact 40
    40~41t12         and 12 code points of the text that fact 41 started
    40~41t12~44o3    and 3 of the output that fact 44 started

Letters, digits and `~` alone, so it fits a header, a query and an event id. Clients treat it as
opaque.

    BadCursor    not one of ours; nothing can be read from it
"""

import re

from steno.journal.drafts import Kind, Stream, sealed_by
from steno.journal.facts import Record
from steno.store.protocol import Cursor

STREAMS_MAX = 64
_LETTERS: dict[Kind, str] = {"text": "t", "reasoning": "r", "output": "o"}
_KINDS: dict[str, Kind] = {letter: kind for kind, letter in _LETTERS.items()}
PATTERN = r"[0-9]{1,10}(?:~[0-9]{1,10}[tro][0-9]{1,9})*"
_CURSOR = re.compile(PATTERN)
_STREAM = re.compile(r"(\d+)([tro])(\d+)")


class BadCursor(ValueError):
    pass


def to_print(cursor: Cursor) -> str:
    streams = (
        f"~{stream.started}{_LETTERS[stream.kind]}{offset}"
        for stream, offset in cursor.offsets
    )
    return f"{cursor.seq}{''.join(streams)}"


def from_print(text: str) -> Cursor:
    if _CURSOR.fullmatch(text) is None or text.count("~") > STREAMS_MAX:
        raise BadCursor(f"{text[:80]!r} is not a cursor of steno")
    seq, *streams = text.split("~")
    offsets: dict[Stream, int] = {}
    for one in streams:
        found = _STREAM.fullmatch(one)
        if found is None:
            raise BadCursor(f"{text[:80]!r} is not a cursor of steno")
        offsets[Stream(int(found[1]), _KINDS[found[2]])] = int(found[3])
    return Cursor(int(seq), tuple(offsets.items()))


class Place:
    """Where a reader stands: the last fact, and how far it is in each stream that is open."""

    def __init__(self, cursor: Cursor) -> None:
        self.seq = cursor.seq
        self._ends: dict[Stream, int] = dict(cursor.offsets)

    def cursor(self) -> Cursor:
        return Cursor(self.seq, tuple(self._ends.items()))

    def id(self) -> str:
        return to_print(self.cursor())

    def piece(self, stream: Stream, offset: int, text: str) -> tuple[int, str]:
        """What of a piece is new, and where it begins."""
        known = self._ends.get(stream, 0)
        new = text[max(known - offset, 0) :]
        self._ends[stream] = max(known, offset + len(text))
        return max(known, offset), new

    def fact(self, record: Record) -> None:
        self.seq = record.seq
        started = sealed_by(record.fact)
        if started is not None:
            self._ends = {
                one: end for one, end in self._ends.items() if one.started != started
            }
