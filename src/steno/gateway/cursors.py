"""A place in the journal, in print: what a client gives back to read on from there.

    40               everything up to fact 40
    40~41t12         and 12 code points of the text that fact 41 started
    40~41t12~44o3    and 3 of the output that fact 44 started

Letters, digits and `~` alone, so it fits a header, a query and an event id. Clients treat it as
opaque.

    BadCursor    not one of ours; nothing can be read from it
"""

import re

from steno.journal.drafts import Kind, Stream
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
        f"~{stream.started}{_LETTERS[stream.kind]}{offset}" for stream, offset in cursor.offsets
    )
    return f"{cursor.seq}{''.join(streams)}"


def from_print(text: str) -> Cursor:
    if _CURSOR.fullmatch(text) is None or text.count("~") > STREAMS_MAX:
        raise BadCursor(f"{text[:80]!r} is not a cursor of this service")
    seq, *streams = text.split("~")
    offsets: dict[Stream, int] = {}
    for one in streams:
        found = _STREAM.fullmatch(one)
        if found is None:
            raise BadCursor(f"{text[:80]!r} is not a cursor of this service")
        offsets[Stream(int(found[1]), _KINDS[found[2]])] = int(found[3])
    return Cursor(int(seq), tuple(offsets.items()))
