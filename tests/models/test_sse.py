"""Server-sent events: what counts, and that it does not matter where the bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.models import http
from steno.models.http import Events
from steno.models.protocol import ModelError

WIRE = (
    ": a comment\n\n"
    "event: e\nid: 7\ndata: one\n\n"
    "data:two\ndata:  two\nretry: 9\n\n"
    "data:\n\ndata\n\n\n\n"
    "data: Grüße 世界 🙂\n\n"
    "dataset: no\nother\n\n"
    "data: never ended\n"
)
DATA = ["one", "two\n two", "Grüße 世界 🙂"]


def read(pieces: list[bytes]) -> list[str]:
    events = Events()
    return [data for piece in pieces for data in events.feed(piece)]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_a_stream_may_be_cut_at_any_byte(end: str) -> None:
    wire = WIRE.replace("\n", end).encode()
    assert read([wire]) == read([bytes([byte]) for byte in wire]) == DATA
    for at in range(len(wire)):
        assert read([wire[:at], b"", wire[at:]]) == DATA


@given(
    st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"data: a", b"data:", b":", b"b", b"\xc3"])),
    st.data(),
)
def test_where_it_is_cut_does_not_matter(tokens: list[bytes], data: st.DataObject) -> None:
    wire = b"".join(tokens)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)))))
    pieces = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    assert read(pieces) == read([wire])


def test_an_event_is_given_as_soon_as_it_ends() -> None:
    events = Events()
    assert events.feed(b"data: a\r\r") == ["a"]
    assert events.feed(b"\ndata: b\n\n") == ["b"]


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert read([b"data: \xff\n\n"]) == ["\ufffd"]


@pytest.mark.parametrize("piece", [b"x" * 100, b"data: x\n", b": hello\n"])
def test_an_event_without_end_is_refused(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "EVENT_BYTES_MAX", 1_000)
    events = Events()
    with pytest.raises(ModelError, match="an event has more than"):
        for _ in range(1_001):
            events.feed(piece)


def test_many_events_are_no_long_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "EVENT_BYTES_MAX", 1_000)
    assert len(read([b"data: x\n\n"] * 1_000)) == 1_000
