"""What other programs kept is read as what was said: on items that the programs themselves wrote,
at the releases that the file names, and on some that were written by hand, which it says, too."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.request import build
from steno.journal.facts import (
    AnyFact,
    InputAdmitted,
    ItemKept,
    ItemsWithdrawn,
    MessageHidden,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    TurnEnded,
    TurnStarted,
)
from steno.journal.history import Answered, History, Said, Settled
from steno.journal.listing import ListingRow
from steno.journal.parts import GONE, Failed, Opaque, Returned, Text, ToolCall, text_of
from steno.journal.readers import READERS, read
from steno.journal.redaction import redact
from steno.journal.transcript import Transcript
from steno.models import anthropic, openai_chat, openai_responses
from steno.models.providers import ModelTuning
from tests.journal.folding import fold, in_place
from tests.models.rules import check

SAMPLES: dict[str, Any] = json.loads(
    (Path(__file__).parent / "golden" / "foreign_items.json").read_text()
)
PROGRAMS = sorted(SAMPLES)
FORMATS: dict[str, Any] = {
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
}
STARTED = SessionStarted("library")


def kept(program: str) -> list[ItemKept]:
    sample = SAMPLES[program]
    return [ItemKept(sample["format"], json.dumps(item)) for item in sample["items"]]


def messages(*facts: AnyFact) -> list[tuple[str, str]]:
    view = fold(Transcript(), in_place([STARTED, *facts]))
    return [(one.role, one.text) for one in view.messages]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_conversation_is_read_as_it_took_place(program: str) -> None:
    view = fold(Transcript(), in_place([STARTED, *kept(program)]))
    assert view.title == "What is 2+2?"
    speech = [one for one in view.messages if one.role != "notice" and one.text]
    begun = [one for one in speech if one.role != "tool" and "and this?" not in one.text]
    assert [(one.role, one.text) for one in begun] == [
        ("user", "What is 2+2?"),
        ("assistant", "Let me see."),
        ("assistant", "It is 4."),
    ]
    [call, *_] = [call for one in view.messages for call in one.tool_calls]
    assert (call.id, call.name, json.loads(call.arguments)["a"]) == ("c1", "add", 2)
    [given_back] = [one for one in view.messages if one.tool_call_id == "c1"]
    assert (given_back.role, given_back.text, given_back.state) == ("tool", "4", "complete")
    spoken = " ".join(one.text for one in speech)
    assert "Be brief." not in spoken
    assert "said by a helper" not in spoken
    assert all(isinstance(part, Opaque) for one in _notices(view) for part in one.parts)


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_no_reader_knows_is_shown_as_an_item_and_told_to_no_model(program: str) -> None:
    odd = ItemKept(SAMPLES[program]["format"], '{"type":"of tomorrow","text":"hello","kind":"new"}')
    [shown] = fold(Transcript(), in_place([STARTED, odd])).messages
    assert (shown.role, "of tomorrow" in shown.text) == ("notice", True)
    assert fold(History(), in_place([STARTED, odd])).entries() == []


def test_a_long_text_inside_an_unknown_item_is_cut_for_the_eye() -> None:
    image = {"type": "image_generation_call", "result": "A" * 100_000}
    [shown] = messages(ItemKept("openai.responses", json.dumps(image)))
    assert len(shown[1]) < 1_000
    assert "(100000 characters)" in shown[1]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_a_model_is_told_a_valid_conversation(program: str, kind: str) -> None:
    said = InputAdmitted((Text("Go on."),), "test")
    facts = [STARTED, *kept(program)]
    history = fold(History(), in_place([*facts, said]))
    request = build(history, [len(facts) + 1])
    wire = FORMATS[kind].format("m", "p", ModelTuning(max_tokens=100)).to_wire(request, {})
    check(kind, json.loads(wire))
    assert "It is 4." in wire.decode()
    assert "web_search_call" not in wire.decode()


def test_results_stand_behind_their_calls_and_say_whether_they_failed() -> None:
    history = fold(
        History(), in_place([STARTED, *kept("claude-agent-sdk, written by hand from its shapes")])
    )
    told = history.entries()
    assert [type(one) for one in told] == [Said, Answered, Settled, Settled, Answered]
    assert [one.outcome for one in told if isinstance(one, Settled)] == [
        Returned((Text("4"),)),
        Failed((Text("no"),)),
    ]


def test_what_was_withdrawn_is_shown_as_withdrawn_and_told_no_more() -> None:
    facts = [
        STARTED,
        *(ItemKept("openai.responses", json.dumps({"role": "user", "content": x})) for x in "abc"),
        ItemsWithdrawn(((3, 3),)),
    ]
    view = fold(Transcript(), in_place(facts))
    assert [(one.text, one.state) for one in view.messages] == [
        ("a", "complete"),
        ("b", "withdrawn"),
        ("c", "complete"),
    ]
    told = fold(History(), in_place([*facts, MessageHidden(4)])).entries()
    assert [text_of(one.parts) for one in told if isinstance(one, Said)] == ["a"]


def test_both_kinds_of_turns_make_one_history() -> None:
    facts: list[Any] = [
        STARTED,
        ItemKept("openai.responses", '{"role":"user","content":"a"}'),
        ItemKept("openai.responses", '{"role":"assistant","content":"A"}'),
        InputAdmitted((Text("b"),), "cli"),
        TurnStarted(Takes(4)),
        StepStarted("m"),
        StepSealed(6, (Text("B"),)),
        TurnEnded(5, "done"),
        ItemKept("openai.responses", '{"role":"user","content":"c"}'),
    ]
    told = fold(History(), in_place(facts)).entries()
    assert (
        "".join(text_of(one.parts) for one in told if isinstance(one, Said | Answered)) == "aAbBc"
    )
    assert [one[1] for one in messages(*facts[1:])] == ["a", "A", "b", "B", "c"]
    assert fold(ListingRow(), in_place(facts)).messages == 5


# --- whatever is in the JSON ----------------------------------------------------------------------

_WORDS = [
    "type", "role", "content", "parts", "kind", "part_kind", "message", "data", "lc", "kwargs",
    "user", "assistant", "message", "function_call", "call_id", "tool_call_id", "text", "human",
    "ai", "tool", "request", "response", "author", "output", "tool_result", "tool_use", "id",
    "function_response", "functionCall", "summary", "reasoning", "isMeta", "partial", "thought",
]  # fmt: skip
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(_WORDS) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(_WORDS) | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=12,
)
_items = st.sampled_from(sorted(READERS)).flatmap(
    lambda format: st.builds(
        lambda value: ItemKept(format, json.dumps(value)),
        _json | st.sampled_from([one for s in SAMPLES.values() for one in s["items"]]),
    )
)


@given(_items)
def test_reading_never_fails_and_lists_count_what_is_shown(item: ItemKept) -> None:
    records = in_place([STARTED, item])
    view = fold(Transcript(), records)
    assert fold(ListingRow(), records).messages == len(view.messages)
    assert fold(ListingRow(), records).title == view.title
    roles = [one.role for one in view.messages if one.role != "tool"]
    assert len(set(roles)) == len(roles)
    fold(History(), records).entries()


@given(_items)
def test_a_redaction_leaves_who_spoke_and_which_call_it_was(item: ItemKept) -> None:
    emptied = redact(item)
    assert isinstance(emptied, ItemKept)
    before, after = read(item), read(emptied)
    assert [(one.role, one.call) for one in after] == [(one.role, one.call) for one in before]
    ids = {part.id for one in before for part in one.parts if isinstance(part, ToolCall)}
    assert {p.id for one in after for p in one.parts if isinstance(p, ToolCall)} == ids


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_redaction_leaves_no_text(program: str) -> None:
    for item in kept(program):
        emptied = redact(item)
        assert isinstance(emptied, ItemKept)
        for word in ("2+2", "brief", "Let me", "It is", "adding", "and this", "base64", '"a"'):
            assert word not in emptied.json
        shown = [text_of(one.parts) for one in read(emptied) if one.role in ("user", "assistant")]
        assert set(shown) <= {"", GONE, GONE + GONE}


def _notices(view: Transcript) -> list[Any]:
    return [one for one in view.messages if one.role == "notice"]
