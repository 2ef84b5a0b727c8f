"""What comes back, decoded: recorded streams, by equality."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.journal.facts import Usage
from steno.journal.parts import Blob, Reasoning, Text, ToolCall, reasoning_of, text_of
from steno.models.answer import AnswerReader, finished
from steno.models.anthropic import MessagesReader
from steno.models.http import events_of
from steno.models.openai_chat import ChatReader
from steno.models.openai_responses import ResponsesReader
from steno.models.protocol import Finished, ModelError, ModelEvent, TextDelta
from tests.models.samples import last, shown

CHAT = [
    {
        "id": "x1",
        "choices": [
            {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        ],
    },
    {"id": "x1", "choices": [{"index": 0, "delta": {"reasoning_content": "Hm."}}]},
    {"id": "x1", "choices": [{"index": 0, "delta": {"content": "Grüße, "}}]},
    {"id": "x1", "choices": [{"index": 0, "delta": {"content": "世界 🙂"}}]},
    {
        "id": "x1",
        "choices": [
            {
                "delta": {
                    "tool_calls": [
                        {"index": 0, "id": "c1", "function": {"name": "shell", "arguments": ""}}
                    ]
                }
            }
        ],
    },
    {
        "id": "x1",
        "choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]}}],
    },
    {
        "id": "x1",
        "choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": " 1}"}}]}}],
    },
    {"id": "x1", "choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    {
        "id": "x1",
        "choices": [],
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
    },
]
MESSAGES = [
    {
        "type": "message_start",
        "message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 1}},
    },
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "thinking", "thinking": "", "signature": ""},
    },
    {"type": "ping"},
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "thinking_delta", "thinking": "Hm."},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "signature_delta", "signature": "si"},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "signature_delta", "signature": "g"},
    },
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "redacted_thinking", "data": "opaque"},
    },
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "Grüße, "}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "世界 🙂"}},
    {"type": "content_block_stop", "index": 2},
    {
        "type": "content_block_start",
        "index": 3,
        "content_block": {"type": "tool_use", "id": "toolu_1", "name": "shell", "input": {}},
    },
    {
        "type": "content_block_delta",
        "index": 3,
        "delta": {"type": "input_json_delta", "partial_json": '{"a":'},
    },
    {
        "type": "content_block_delta",
        "index": 3,
        "delta": {"type": "input_json_delta", "partial_json": " 1}"},
    },
    {"type": "content_block_stop", "index": 3},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
]
RESPONSES = [
    {"type": "response.created", "response": {"id": "resp_1", "usage": None}},
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {"type": "reasoning", "id": "rs_1", "summary": []},
    },
    {"type": "response.reasoning_summary_part.added", "output_index": 0},
    {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Hm."},
    {
        "type": "response.output_item.done",
        "output_index": 0,
        "item": {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "enc",
        },
    },
    {
        "type": "response.output_item.added",
        "output_index": 1,
        "item": {"type": "message", "content": []},
    },
    {"type": "response.output_text.delta", "output_index": 1, "delta": "Grüße, "},
    {"type": "response.output_text.delta", "output_index": 1, "delta": "世界 🙂"},
    {
        "type": "response.output_item.done",
        "output_index": 1,
        "item": {"type": "message", "content": [{"type": "output_text", "text": "Grüße, 世界 🙂"}]},
    },
    {
        "type": "response.output_item.added",
        "output_index": 2,
        "item": {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": ""},
    },
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"a":'},
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": " 1}"},
    {
        "type": "response.output_item.done",
        "output_index": 2,
        "item": {
            "type": "function_call",
            "call_id": "c1",
            "name": "shell",
            "arguments": '{"a": 1}',
        },
    },
    {
        "type": "response.completed",
        "response": {
            "usage": {
                "input_tokens": 9,
                "output_tokens": 5,
                "input_tokens_details": {"cached_tokens": 4},
                "output_tokens_details": {"reasoning_tokens": 2},
            }
        },
    },
]
STREAMS: dict[str, list[Any]] = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES}


def reader(kind: str) -> AnswerReader:
    readers: dict[str, type[ChatReader] | type[MessagesReader] | type[ResponsesReader]] = {
        "chat": ChatReader,
        "messages": MessagesReader,
        "responses": ResponsesReader,
    }
    return readers[kind]("here")


def read(kind: str, events: list[Any]) -> list[ModelEvent]:
    """Everything that a stream of these events gives, as the model would yield it."""
    reading = reader(kind)
    seen: list[ModelEvent] = []
    broken = None
    try:
        for event in events:
            seen += reading.read(event if isinstance(event, str) else json.dumps(event))
    except ModelError as error:
        broken = error
    seen += reading.answer.rest()
    return [*seen, finished(reading, broken)]


def chunk(**delta: Any) -> dict[str, Any]:
    return {"id": "x1", "choices": [{"index": 0, "delta": delta}]}


def end(reason: str = "stop") -> dict[str, Any]:
    return {"id": "x1", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def call(arguments: str | None = None, **fields: Any) -> dict[str, Any]:
    name = fields.pop("name", None)
    return chunk(tool_calls=[{"function": {"name": name, "arguments": arguments}, **fields}])


# --- whole answers --------------------------------------------------------------------------------

WHOLE = {
    "chat": (
        Reasoning("Hm.", Blob("here", '{"field":"reasoning_content"}')),
        Text("Grüße, 世界 🙂"),
        ToolCall("c1", "shell", '{"a": 1}'),
    ),
    "messages": (
        Reasoning("Hm.", Blob("here", '{"signature":"sig"}')),
        Reasoning("", Blob("here", '{"redacted":"opaque"}')),
        Text("Grüße, 世界 🙂"),
        ToolCall("toolu_1", "shell", '{"a": 1}'),
    ),
    "responses": (
        Reasoning(
            "Hm.",
            Blob(
                "here",
                '{"id":"rs_1","summary":[{"text":"Hm.","type":"summary_text"}],"encrypted_content":"enc",'
                '"type":"reasoning"}',
            ),
        ),
        Text("Grüße, 世界 🙂"),
        ToolCall("c1", "shell", '{"a": 1}'),
    ),
}
USED = {"chat": Usage(9, 5, 4, 2), "messages": Usage(7, 5, 4), "responses": Usage(9, 5, 4, 2)}


@pytest.mark.parametrize("kind", STREAMS)
def test_a_whole_answer(kind: str) -> None:
    assert last(read(kind, STREAMS[kind])) == Finished(WHOLE[kind], "complete", USED[kind])


@pytest.mark.promise(9)
@pytest.mark.parametrize("kind", STREAMS)
def test_what_is_shown_is_what_is_kept_wherever_the_stream_breaks_off(kind: str) -> None:
    for length in range(len(STREAMS[kind]) + 1):
        try:
            events = read(kind, STREAMS[kind][:length])
        except ModelError:
            assert length <= 4, "nothing was shown yet"
            continue
        assert shown(events) == (text_of(last(events).parts), reasoning_of(last(events).parts))


@pytest.mark.promise(10)
@pytest.mark.parametrize("kind", STREAMS)
def test_without_its_end_marker_an_answer_is_incomplete_and_has_no_calls(kind: str) -> None:
    cut = {"chat": CHAT[:-2], "messages": MESSAGES[:-1], "responses": RESPONSES[:-1]}[kind]
    finish = last(read(kind, cut))
    assert finish.ended == "incomplete"
    assert text_of(finish.parts) == "Grüße, 世界 🙂"
    assert not any(isinstance(part, ToolCall) for part in finish.parts)


@pytest.mark.promise(10)
@pytest.mark.parametrize("kind", STREAMS)
def test_without_anything_shown_an_answer_that_broke_off_is_lost(kind: str) -> None:
    nothing = {
        "chat": [*CHAT[:1], *CHAT[4:7]],
        "messages": [MESSAGES[0], *MESSAGES[13:17]],
        "responses": RESPONSES[9:13],
    }
    with pytest.raises(ModelError) as lost:
        read(kind, nothing[kind])
    assert (lost.value.cause, lost.value.sent) == ("dropped", "yes")


@pytest.mark.promise(8)
@pytest.mark.parametrize("kind", STREAMS)
def test_usage_that_was_not_reported_is_unknown(kind: str) -> None:
    silent = {
        "chat": CHAT[:-1],
        "messages": [
            {"type": "message_start", "message": {}},
            *MESSAGES[9:13],
            {"type": "message_stop"},
        ],
        "responses": [*RESPONSES[:-1], {"type": "response.completed", "response": {}}],
    }
    assert last(read(kind, silent[kind])).usage is None


def test_the_output_of_an_answer_that_broke_off_is_unknown() -> None:
    assert last(read("messages", MESSAGES[:12])).usage == Usage(7, None, 4)


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_may_be_cut_at_any_byte(kind: str) -> None:
    """Lines, events and characters arrive in pieces; the decoder puts them together."""
    wire = (
        b": hello\r\n\r\n"
        + "".join(
            f"event: e\ndata: {json.dumps(event, ensure_ascii=False)}\n\n"
            for event in STREAMS[kind]
        ).encode()
    )
    expected = [json.dumps(event, ensure_ascii=False) for event in STREAMS[kind]]

    async def cut(at: int) -> list[str]:
        async def pieces() -> AsyncIterator[bytes]:
            yield wire[:at]
            yield wire[at:]

        return [data async for data in events_of(pieces())]

    async def all_cuts() -> None:
        for at in range(1, len(wire)):
            assert await cut(at) == expected

    asyncio.run(all_cuts())
    assert last(read(kind, expected)).parts == WHOLE[kind]


# --- odd servers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "ended"),
    [
        ("stop", "complete"),
        ("tool_calls", "complete"),
        ("length", "length"),
        ("error", "incomplete"),
        ("abort", "incomplete"),
    ],
)
def test_a_finish_reason_is_the_end_marker(reason: str, ended: str) -> None:
    assert last(read("chat", [chunk(content="a"), end(reason), "[DONE]"])).ended == ended
    assert last(read("chat", [chunk(content="a"), end(reason)])).ended == ended


def test_done_alone_is_no_end_marker() -> None:
    assert last(read("chat", [chunk(content="a"), "[DONE]"])).ended == "incomplete"


def test_reasoning_may_come_in_either_field() -> None:
    events = read("chat", [chunk(reasoning="a"), chunk(reasoning="b"), chunk(content="c"), end()])
    assert last(events).parts == (Reasoning("ab", Blob("here", '{"field":"reasoning"}')), Text("c"))


def test_calls_with_one_index_or_none_are_kept_apart() -> None:
    same = [call("{}", index=0, id="a", name="x"), call("{}", index=0, id="b", name="y")]
    none = [call('{"n":', id="a", name="x"), call("1}"), call("{}", id="b", name="y")]
    nameless = [call("{}", index=0, name="x"), call("{}", index=0, name="y")]
    for stream in (same, none, nameless):
        calls = [
            part
            for part in last(read("chat", [*stream, end("tool_calls")])).parts
            if isinstance(part, ToolCall)
        ]
        assert [part.name for part in calls] == ["x", "y"]
        assert len({part.id for part in calls}) == 2


def test_an_id_that_comes_with_every_piece_is_one_call() -> None:
    stream = [
        call('{"a"', index=0, id="a", name="x"),
        call(":1}", index=0, id="a", name="x"),
        end(),
    ]
    assert last(read("chat", stream)).parts == (ToolCall("a", "x", '{"a":1}'),)


def test_missing_and_doubled_ids_become_unique_ones_that_are_the_same_in_every_process() -> None:
    stream = [
        call("{}", index=0, id="", name="x"),
        call("{}", index=1, id="a"),
        call("{}", index=2, id="a"),
        end(),
    ]
    calls = [part.id for part in last(read("chat", stream)).parts if isinstance(part, ToolCall)]
    assert calls[1] == "a"
    assert len(set(calls)) == 3
    assert calls == [
        part.id for part in last(read("chat", stream)).parts if isinstance(part, ToolCall)
    ]
    other = [json.loads(json.dumps(event).replace("x1", "x2")) for event in stream]
    assert calls[0] != next(
        part.id for part in last(read("chat", other)).parts if isinstance(part, ToolCall)
    )


def test_a_signature_beside_a_call_is_kept_for_its_server() -> None:
    stream = [
        call("{}", index=0, id="a", name="x", extra_content={"google": {"thought_signature": "s"}}),
        end(),
    ]
    assert last(read("chat", stream)).parts == (
        Reasoning("", Blob("here", '{"extra_content":{"google":{"thought_signature":"s"}}}')),
        ToolCall("a", "x", "{}"),
    )


def test_a_call_without_arguments_has_none() -> None:
    assert last(read("chat", [call("", index=0, id="a", name="x"), end()])).parts == (
        ToolCall("a", "x", "{}"),
    )


def test_calls_of_an_answer_that_was_cut_are_not_calls() -> None:
    stream = [
        chunk(content="I look"),
        call('{"command": "rm', index=0, id="a", name="shell"),
        end("length"),
    ]
    assert last(read("chat", stream)) == Finished((Text("I look"),), "length")


@pytest.mark.promise(7, 9)
def test_a_character_that_comes_in_two_halves_is_put_together() -> None:
    halves = [
        '{"choices":[{"delta":{"content":"a\\ud83d"}}]}',
        '{"choices":[{"delta":{"content":"\\ude42b"}}]}',
    ]
    events = read("chat", [*halves, end()])
    assert (shown(events)[0], last(events).parts) == ("a🙂b", (Text("a🙂b"),))


@pytest.mark.promise(7, 9)
def test_half_a_character_is_kept_as_it_is() -> None:
    events = read(
        "chat", ['{"choices":[{"delta":{"content":"a\\ud83d"}}]}', chunk(reasoning="b"), end()]
    )
    assert shown(events)[0] == text_of(last(events).parts) == "a\ud83d"
    events = read("chat", ['{"choices":[{"delta":{"content":"a\\ud83d"}}]}'])
    assert shown(events)[0] == text_of(last(events).parts) == "a\ud83d"


@pytest.mark.promise(9)
@given(st.text(st.characters(exclude_categories=()), max_size=20), st.data())
def test_text_cut_into_utf16_units_is_shown_as_it_is_kept(text: str, data: st.DataObject) -> None:
    units = text.encode("utf-16-le", "surrogatepass")
    cuts = sorted(data.draw(st.sets(st.integers(0, len(units) // 2))))
    places = [0, *cuts, len(units) // 2]
    pieces = [
        units[2 * a : 2 * b].decode("utf-16-le", "surrogatepass") for a, b in pairwise(places)
    ]
    events = read("chat", [*[chunk(content=piece) for piece in pieces], end()])
    whole = units.decode("utf-16-le", "surrogatepass")
    assert shown(events)[0] == text_of(last(events).parts) == whole


def test_an_error_in_the_stream_is_the_reason_if_nothing_was_shown() -> None:
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(ModelError, match="Overloaded") as lost:
        read("messages", [MESSAGES[0], overloaded])
    assert (lost.value.cause, lost.value.sent) == ("overloaded", "yes")
    assert last(read("messages", [*MESSAGES[:12], overloaded])).ended == "incomplete"
    with pytest.raises(ModelError) as lost:
        read("chat", [{"error": {"code": 429, "message": "slow down"}}])
    assert lost.value.cause == "rate_limited"
    failed = {
        "type": "response.failed",
        "response": {"error": {"code": "rate_limit_exceeded", "message": "slow"}},
    }
    with pytest.raises(ModelError) as lost:
        read("responses", [failed])
    assert lost.value.cause == "rate_limited"


@pytest.mark.parametrize("kind", STREAMS)
def test_what_cannot_be_read_breaks_the_stream_off(kind: str) -> None:
    with pytest.raises(ModelError) as lost:
        read(kind, ["<html>"])
    assert (lost.value.cause, lost.value.sent) == ("dropped", "yes")
    assert last(read(kind, [*STREAMS[kind][:12], "<html>"])).ended in ("incomplete", "complete")


def test_a_model_that_declines_is_no_answer() -> None:
    declined = [
        MESSAGES[0],
        {"type": "message_delta", "delta": {"stop_reason": "refusal"}},
        {"type": "message_stop"},
    ]
    with pytest.raises(ModelError) as lost:
        read("messages", declined)
    assert lost.value.cause == "refused"


def test_text_that_comes_only_with_the_whole_item_is_shown_once() -> None:
    whole = [RESPONSES[5], RESPONSES[8], RESPONSES[-1]]
    events = read("responses", whole)
    assert [event for event in events if isinstance(event, TextDelta)] == [
        TextDelta("Grüße, 世界 🙂")
    ]
    assert last(events).parts == (Text("Grüße, 世界 🙂"),)


def test_an_answer_cut_at_its_limit() -> None:
    cut = {
        "type": "response.incomplete",
        "response": {"incomplete_details": {"reason": "max_output_tokens"}},
    }
    assert last(read("responses", [*RESPONSES[5:8], cut])).ended == "length"
    stop = [
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
        {"type": "message_stop"},
    ]
    assert last(read("messages", [*MESSAGES[9:13], *stop])).ended == "length"
