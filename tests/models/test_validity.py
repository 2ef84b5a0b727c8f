"""Whatever stands in the history, the request is valid; what was sent once is sent again, byte for
byte."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from steno.engine.request import Request
from steno.journal.history import Answered, Entry, Said, Settled, Summarised
from steno.journal.parts import Blob, Reasoning, Returned, ToolCall
from steno.models import wording
from steno.models.specs import make
from tests.models.rules import check
from tests.models.samples import (
    EVERYTHING,
    PAYLOADS,
    SPECS,
    answered,
    body_of,
    histories,
    request,
    requests,
    said,
    settings_at,
    wire,
)

MARKER = b',"cache_control":{"type":"ephemeral"}'


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.promise(35)
def test_a_history_with_everything_in_it_is_valid(spec: str) -> None:
    check(spec.partition(":")[0], wire(spec, EVERYTHING))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.promise(35)
@given(asked=requests())
def test_any_history_is_valid(spec: str, asked: Request) -> None:
    check(spec.partition(":")[0], wire(spec, asked))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.promise(35)
@given(asked=requests(settled=True))
def test_every_beginning_of_a_history_is_valid(spec: str, asked: Request) -> None:
    for end in range(len(asked.entries) + 1):
        check(spec.partition(":")[0], wire(spec, replace(asked, entries=asked.entries[:end])))


@pytest.mark.parametrize("spec", [*SPECS, "scripted:echo"])
@pytest.mark.promise(40)
@given(entries=histories(settled=True), note=st.sampled_from(["", "a note"]))
def test_appending_changes_no_byte_of_what_was_sent(
    spec: str, entries: tuple[Entry, ...], note: str
) -> None:
    whole = _lasting(spec, request(*entries))
    for end in range(1, len(entries)):
        if _could_be_sent(entries, end):
            sent = _lasting(spec, request(*entries[:end], note=note))
            assert whole.startswith(sent), (sent, whole)


def _could_be_sent(entries: tuple[Entry, ...], end: int) -> bool:
    """A request ends where the user or the tools spoke, with every call settled."""
    return isinstance(entries[end - 1], Said | Settled | Summarised) and not isinstance(
        entries[end], Settled
    )


def _lasting(spec: str, asked: Request) -> bytes:
    """The bytes without cache markers, the note at the end, and the brackets that close them."""
    body = body_of(spec, asked).replace(MARKER, b"")
    for note in (asked.note or wording.GO_ON, ""):
        words = msgspec.json.encode(note)
        for tail in (
            b',{"role":"user","content":%s}]}' % words,
            b',{"role":"user","content":[{"type":"text","text":%s}]}]}' % words,
            b',{"type":"text","text":%s}]}]}' % words,
            b',{"type":"message","role":"user","content":[{"type":"input_text","text":%s}]}]}'
            % words,
            b',"note":%s}' % words,
        ):
            body = body.removesuffix(tail)
    return body.rstrip(b'"]}')


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.promise(40)
def test_the_note_of_a_request_is_not_in_the_next_one(spec: str) -> None:
    first = request(said(1, "a"), answered(2, "Hel", ended="incomplete"), note="Go on, please.")
    then = request(
        said(1, "a"), answered(2, "Hel", ended="incomplete"), answered(3, "lo"), said(4, "b")
    )
    assert b"Go on, please." in body_of(spec, first)
    assert b"Go on, please." not in body_of(spec, then)
    assert body_of(spec, then).replace(MARKER, b"").startswith(_lasting(spec, first))


@pytest.mark.promise(41, 44)
@given(asked=requests())
def test_going_to_another_provider_and_back_changes_no_byte(asked: Request) -> None:
    before = [body_of(spec, asked) for spec in SPECS]
    assert [body_of(spec, asked) for spec in reversed(SPECS)] == before[::-1]
    assert [body_of(spec, asked) for spec in SPECS] == before


@pytest.mark.promise(44)
@given(asked=requests())
def test_a_blob_goes_to_the_provider_it_is_bound_to_and_to_no_other(asked: Request) -> None:
    entries = tuple(
        _sealed(entry) if isinstance(entry, Answered) else entry for entry in asked.entries
    )
    chat, responses, messages = (body_of(spec, replace(asked, entries=entries)) for spec in SPECS)
    assert b"SECRET-anthropic" not in chat + responses
    assert b"SECRET-openai-chat" not in responses + messages
    assert b"SECRET-openai-responses" not in chat + messages
    assert b"SECRET-elsewhere" not in chat + responses + messages


def _sealed(entry: Answered) -> Answered:
    def seal(provider: str) -> Blob:
        data = {
            "signature": f"SECRET-{provider}",
            "id": "rs",
            "extra_content": f"SECRET-{provider}",
        }
        return Blob(provider, msgspec.json.encode(data).decode())

    thoughts = tuple(
        Reasoning("hm", seal(provider))
        for provider in ("openai-chat", "openai-responses", "anthropic", "elsewhere")
    )
    return replace(entry, parts=thoughts + entry.parts)


@pytest.mark.promise(44)
def test_a_blob_comes_back_to_its_provider_after_a_change_of_model() -> None:
    thought = Reasoning("Let me see.", Blob("anthropic", '{"signature":"sig"}'))
    asked = request(
        said(1, "a"), answered(2, thought, "b"), said(3, "c"), answered(4, "d"), said(5, "e")
    )
    assert wire("anthropic:claude-test", asked)["messages"][1]["content"][0] == {
        "type": "thinking",
        "thinking": "Let me see.",
        "signature": "sig",
    }
    elsewhere = settings_at("http://127.0.0.1:9")
    assert b"Let me see." not in make("anthropic:claude-test", elsewhere).to_wire(asked, PAYLOADS)


def test_ids_of_calls_are_unique_over_the_whole_request() -> None:
    entries: list[Entry] = [said(1, "a")]
    for seq in (2, 4):
        entries += [
            answered(seq, ToolCall("call_0", "shell", "{}")),
            Settled(seq + 1, "call_0", Returned()),
        ]
    ids = [
        block["id"]
        for message in wire("anthropic:claude-test", request(*entries))["messages"]
        for block in message["content"]
        if block["type"] == "tool_use"
    ]
    assert ids[0] == "call_0"
    assert len(set(ids)) == 2
