"""A session as a stream of server-sent events: what is stored, from a cursor on, then what comes.

Nothing is buffered here. Each event's id is the cursor after it, so a client that comes back with
the last id it saw reads on at the next code point, from this process or another one.

The text of a stream is told once, in order, however it was cut. A client that left in mid-answer
and comes back when it is sealed is told the rest of it from the fact that seals it:

    text 41 0 "Hel"          id 40~41t3
    (gone; the answer is sealed as fact 42 meanwhile)
    text 41 3 "lo"           id 40~41t5, from fact 42
    message 42               id 42
"""

from typing import Any

import msgspec
from msgspec import Struct

from steno.journal.drafts import Stream
from steno.journal.facts import Record, StepSealed, ToolSettled, TurnEnded
from steno.journal.parts import Content, Reasoning, Text, outcome_parts, text_of
from steno.journal.transcript import Transcript
from steno.service.objects import Objects, message_object
from steno.session.cursors import Place
from steno.store.protocol import Cursor, Event, Piece

PING_S = 15.0
RETRY_MS = 1_000


def encode(name: str, data: dict[str, Any], id: str | None = None) -> bytes:
    """One event, as it goes over the wire."""
    mark = "" if id is None else f"id: {id}\n"
    return f"{mark}event: {name}\ndata: ".encode() + to_line(data) + b"\n\n"


def to_line(data: object) -> bytes:
    """JSON on one line. Text that UTF-8 cannot carry is escaped."""
    try:
        return msgspec.json.encode(data)
    except UnicodeEncodeError:
        import json

        return json.dumps(data).encode()


PING = encode("ping", {})
BYE = encode("bye", {"type": "bye", "reason": "restart"})


def sealed_streams(record: Record) -> list[tuple[Stream, str]]:
    """The whole text of each stream that a fact seals."""
    fact = record.fact
    if isinstance(fact, StepSealed):
        parts = fact.parts if fact.shown is None else fact.shown
        both = (
            (Stream(fact.step, "reasoning"), _reasoning(parts)),
            (Stream(fact.step, "text"), _text(parts)),
        )
        return [(stream, text) for stream, text in both if text]
    if isinstance(fact, ToolSettled) and fact.started is not None:
        parts = outcome_parts(fact.outcome) if fact.shown is None else fact.shown
        text = text_of(parts)
        return [(Stream(fact.started, "output"), text)] if text else []
    return []


def _text(parts: tuple[Content, ...]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


def _reasoning(parts: tuple[Content, ...]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Reasoning))


class Told(Struct, frozen=True):
    """An event, and where its reader stands after it."""

    data: dict[str, Any]
    id: str


class Echo:
    """The piece that was told last to a reader of a session: another one that stands where that one
    stood is told the same bytes. One piece is kept for all of a session's readers, and none is
    promised."""

    def __init__(self) -> None:
        self._piece: Piece | None = None
        self._at = Cursor()
        self._told: list[bytes] = []

    def of(self, piece: Piece, at: Cursor) -> list[bytes] | None:
        return self._told if piece is self._piece and at == self._at else None

    def keep(self, piece: Piece, at: Cursor, told: list[bytes]) -> None:
        self._piece, self._at, self._told = piece, at, told


class Telling:
    """Turns what is stored into events, for one reader. `transcript` has folded what came before
    the reader's place; `echo` is shared with other readers of the session."""

    def __init__(
        self,
        cursor: Cursor,
        transcript: Transcript,
        objects: Objects,
        echo: Echo | None = None,
    ) -> None:
        self.place = Place(cursor)
        self._transcript = transcript
        self._objects = objects
        self._echo = echo or Echo()

    def tell(self, event: Event) -> list[bytes]:
        if not isinstance(event, Piece):
            return [
                encode(one.data["type"], one.data, one.id) for one in self.told(event)
            ]
        at = self.place.cursor()
        told = self._echo.of(event, at)
        if told is not None:
            self.place.piece(event.stream, event.offset, event.text)
            return told
        told = [
            encode(one.data["type"], one.data, one.id) for one in self.told(event)
        ]
        self._echo.keep(event, at, told)
        return told

    def told(self, event: Event) -> list[Told]:
        if isinstance(event, Piece):
            return self._piece(event.stream, event.offset, event.text)
        told: list[Told] = []
        for stream, text in sealed_streams(event):
            told += self._piece(stream, 0, text)
        return told + self._fact(event)

    def _piece(self, stream: Stream, offset: int, text: str) -> list[Told]:
        at, new = self.place.piece(stream, offset, text)
        if not new:
            return []
        [one] = self._objects.of(Piece(stream, at, new))
        return [Told(one, self.place.id())]

    def _fact(self, record: Record) -> list[Told]:
        self._transcript.apply(record)
        self.place.fact(record)
        found = [one for one in self._objects.of(record) if one["type"] != "sealed"]
        found += [
            {"type": "message", "message": message_object(message)}
            for message in self._transcript.messages[-4:]
            if message.end == record.seq
        ]
        id = self.place.id()
        return [Told(one, id) for one in found]


def is_end(event: Event, turn: int) -> bool:
    return (
        isinstance(event, Record)
        and isinstance(event.fact, TurnEnded)
        and event.fact.turn == turn
    )
