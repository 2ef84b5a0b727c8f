"""Readers of one session share what is told: each is told what it would be told alone."""

from hypothesis import given
from hypothesis import strategies as st

from steno.gateway.streams import Echo, Telling
from steno.journal.drafts import Stream
from steno.journal.facts import Record, StepSealed
from steno.journal.parts import Reasoning, Text
from steno.journal.transcript import Transcript
from steno.service.objects import Objects
from steno.store.protocol import Cursor, Event, Piece

SAID, THOUGHT = Stream(3, "text"), Stream(3, "reasoning")
TEXT = "a wörd, 漢字 and \U0001f600 more"


def events_of(cuts: list[int]) -> list[Event]:
    """What is said and thought, cut at these places, and its seal."""
    ends = [*sorted({cut % len(TEXT) for cut in cuts} - {0}), len(TEXT)]
    begins = [0, *ends[:-1]]
    pieces: list[Event] = [
        Piece(stream, begin, TEXT[begin:end])
        for begin, end in zip(begins, ends, strict=True)
        for stream in (THOUGHT, SAID)
    ]
    return [*pieces, Record(4, 1, StepSealed(3, (Reasoning(TEXT), Text(TEXT))))]


def reader(at: tuple[int, int], echo: Echo) -> Telling:
    offsets = tuple((stream, end) for stream, end in zip((SAID, THOUGHT), at, strict=True) if end)
    return Telling(Cursor(3, offsets), Transcript(), Objects(), echo)


@given(
    st.lists(st.integers(0, 100), max_size=6),
    st.lists(st.tuples(st.integers(0, len(TEXT)), st.integers(0, len(TEXT))), max_size=6),
    st.booleans(),
)
def test_a_shared_piece_is_what_each_reader_would_be_told_alone(
    cuts: list[int], places: list[tuple[int, int]], one_after_the_other: bool
) -> None:
    echo = Echo()
    shared = [reader(at, echo) for at in places]
    alone = [reader(at, Echo()) for at in places]
    events = events_of(cuts)
    told: dict[int, list[bytes]] = {i: [] for i in range(len(places))}
    if one_after_the_other:  # a reader that is ahead, and those that are behind it
        for i, one in enumerate(shared):
            for event in events:
                told[i] += one.tell(event)
    else:
        for event in events:
            for i, one in enumerate(shared):
                told[i] += one.tell(event)
    for i, one in enumerate(alone):
        assert told[i] == [line for event in events for line in one.tell(event)]
        assert shared[i].place.id() == one.place.id()


def test_readers_at_one_place_are_told_the_same_bytes() -> None:
    echo = Echo()
    here, there = reader((0, 0), echo), reader((0, 0), echo)
    behind = reader((2, 0), echo)
    [first, *_] = events_of([])
    assert here.tell(first) is there.tell(first)
    assert behind.tell(first) is not here.tell(first)
