"""How files of other agents are read: whole, wherever the pieces they come in are cut."""

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.transfer.agents import aider, reading
from steno.transfer.agents.reading import Unreadable, objects
from steno.transfer.agents.talk import Said
from tests.transfer import foreign

CONVERSATIONS = st.lists(st.dictionaries(st.text(), st.text() | st.integers(), max_size=3))


@given(CONVERSATIONS, st.booleans(), st.integers(1, 9))
def test_a_list_is_read_whole_in_pieces_of_any_length(
    conversations: list[dict[str, Any]], ascii_only: bool, piece: int
) -> None:
    """Also where a letter, a number or a quote stands across two pieces."""
    body = json.dumps(conversations, ensure_ascii=ascii_only, indent=piece % 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_PIECE_BYTES", piece)
        read = list(objects(io.BytesIO(body.encode("utf-8", "surrogatepass")), "file"))
    assert ascii_only is False or read == conversations
    assert len(read) == len(conversations)


@pytest.mark.promise(77)
@given(st.data())
def test_a_list_that_is_cut_off_anywhere_is_told_of(data: st.DataObject) -> None:
    body = json.dumps([{"a": "größe"}, {"b": [1, 2]}, {"c": "中文"}], ensure_ascii=False).encode()
    end = data.draw(st.integers(1, len(body) - 1))
    with pytest.raises(Unreadable):
        list(objects(io.BytesIO(body[:end]), "file"))


@pytest.mark.promise(77)
def test_a_letter_across_two_pieces_stays_that_letter() -> None:
    text = "a" * (reading._PIECE_BYTES - 9) + "größe 中文"
    body = json.dumps([{"t": text}], ensure_ascii=False).encode()
    assert list(objects(io.BytesIO(body), "file")) == [{"t": text}]


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


def test_aider_writes_the_time_of_its_machine(new_york: None, tmp_path: Path) -> None:
    (talk,) = aider.talks(foreign.aider(tmp_path / aider.NAME))
    said = next(one for one in talk.entries if isinstance(one, Said))
    assert said.at_ms == 1_795_014_000_000  # 2026-11-18 10:00 there
