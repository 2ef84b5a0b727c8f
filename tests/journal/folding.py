"""Short ways to say what happened and to look at it."""

from collections.abc import Sequence
from typing import Literal, TypeVar, cast

from steno.journal.facts import AnyFact, Fact, InputAdmitted, Record
from steno.journal.history import Entry, History
from steno.journal.listing import ListingRow
from steno.journal.parts import Text
from steno.journal.state import State
from steno.journal.transcript import Message, Transcript
from steno.journal.usage import UsageTotal

V = TypeVar("V", State, Transcript, History, ListingRow, UsageTotal)


def in_place(sequence: Sequence[Fact], first: int = 1) -> list[Record]:
    """The n-th fact at seq n, one second apart."""
    return [
        Record(seq, 1_000 * seq, cast(AnyFact, fact))
        for seq, fact in enumerate(sequence, start=first)
    ]


def fold(view: V, records: Sequence[Record]) -> V:
    for record in records:
        view.apply(record)
    return view


def state(*sequence: Fact) -> State:
    return fold(State(), in_place(sequence))


def transcript(*sequence: Fact) -> Transcript:
    return fold(Transcript(), in_place(sequence))


def messages(*sequence: Fact) -> list[Message]:
    return transcript(*sequence).messages


def entries(*sequence: Fact) -> list[Entry]:
    return fold(History(), in_place(sequence)).entries()


def said(text: str, mode: Literal["queue", "steer"] = "queue") -> InputAdmitted:
    return InputAdmitted((Text(text),), "test", mode=mode)
