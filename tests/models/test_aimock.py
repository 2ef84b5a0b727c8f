"""All three formats against a server that none of us wrote."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from steno.engine.request import Request
from steno.journal.history import Answered, Entry, Settled
from steno.journal.parts import Reasoning, Returned, Text, ToolCall, reasoning_of, text_of
from steno.models.protocol import Model, ModelError, ModelEvent
from steno.models.specs import make
from tests.models.aimock import Aimock, aimock
from tests.models.samples import PAYLOADS, SPECS, last, request, said, settings_at, shown

FACES = "Grüße, 世界 🙂🙂🙂 and 🙃🙃"
LONG = "one two three four five six seven eight nine ten"
FIXTURES: list[dict[str, Any]] = [
    {
        "match": {"userMessage": "plain"},
        "response": {
            "content": FACES,
            "usage": {
                "prompt_tokens": 7,
                "completion_tokens": 3,
                "input_tokens": 7,
                "output_tokens": 3,
            },
        },
    },
    {
        "match": {"userMessage": "think"},
        "response": {
            "content": "Done.",
            "reasoning": "Let me think.",
            "reasoningSignature": "signed-by-aimock",
        },
    },
    {
        "match": {"userMessage": "tools", "hasToolResult": False},
        "response": {
            "content": "I look.",
            "toolCalls": [
                {"name": "shell", "arguments": '{"command":"ls"}', "id": "call_a"},
                {"name": "shell", "arguments": '{"command":"pwd"}', "id": "call_b"},
            ],
        },
    },
    {
        "match": {"userMessage": "tools", "hasToolResult": True},
        "response": {"content": "Two results."},
    },
    {
        "match": {"userMessage": "limit"},
        "response": {
            "error": {"message": "Rate limit reached", "type": "rate_limit_error"},
            "status": 429,
            "retryAfter": 9,
        },
    },
    {
        "match": {"userMessage": "broken"},
        "response": {"error": {"message": "Oops", "type": "api_error"}, "status": 500},
    },
    {
        "match": {"userMessage": "cut"},
        "response": {"content": LONG},
        "latency": 10,
        "truncateAfterChunks": 8,
    },
    {
        "match": {"userMessage": "fall silent"},
        "response": {"content": LONG},
        "latency": 150,
        "disconnectAfterMs": 2000,
    },
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aimock]:
    with aimock(FIXTURES, tmp_path_factory.mktemp("aimock")) as running:
        yield running


def model_at(server: Aimock, spec: str) -> Model:
    return make(spec, settings_at(f"{server.url}/v1", idle_s=10.0))


def ask(server: Aimock, spec: str, asked: Request) -> list[ModelEvent]:
    async def run() -> list[ModelEvent]:
        model = model_at(server, spec)
        try:
            return [event async for event in model.stream(model.to_wire(asked, PAYLOADS))]
        finally:
            await model.close()

    return asyncio.run(run())


@pytest.mark.promise(9)
@pytest.mark.parametrize("spec", SPECS)
def test_a_plain_answer(server: Aimock, spec: str) -> None:
    events = ask(server, spec, request(said(1, "plain")))
    assert last(events).ended == "complete"
    assert shown(events)[0] == text_of(last(events).parts) == FACES
    assert len(events) > 5, "it came in pieces"
    usage = last(events).usage
    assert usage is not None
    assert (usage.input, usage.output) == (7, 3)


@pytest.mark.promise(35)
@pytest.mark.parametrize("spec", SPECS)
def test_a_turn_with_tools(server: Aimock, spec: str) -> None:
    entries: list[Entry] = [said(1, "tools")]
    asked = last(ask(server, spec, request(*entries)))
    calls = [part for part in asked.parts if isinstance(part, ToolCall)]
    assert [(call.name, call.arguments) for call in calls] == [
        ("shell", '{"command":"ls"}'),
        ("shell", '{"command":"pwd"}'),
    ]
    entries.append(Answered(2, asked.parts, asked.ended))
    entries += [
        Settled(3 + n, call.id, Returned((Text(f"out {n}"),))) for n, call in enumerate(calls)
    ]
    assert text_of(last(ask(server, spec, request(*entries))).parts) == "Two results."


@pytest.mark.promise(44)
@pytest.mark.parametrize("spec", SPECS)
def test_reasoning_is_shown_and_goes_back_to_where_it_came_from(server: Aimock, spec: str) -> None:
    asked = last(ask(server, spec, request(said(1, "think"))))
    assert (text_of(asked.parts), reasoning_of(asked.parts)) == ("Done.", "Let me think.")
    if spec.startswith("anthropic"):
        thought = asked.parts[0]
        assert isinstance(thought, Reasoning)
        assert thought.blob is not None
        later = request(said(1, "think"), Answered(2, asked.parts, asked.ended), said(3, "plain"))
        assert b'"signature":"signed-by-aimock"' in model_at(server, spec).to_wire(later, PAYLOADS)
        assert last(ask(server, spec, later)).ended == "complete"


@pytest.mark.promise(8)
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(
    ("message", "cause", "wait_s"),
    [("limit", "rate_limited", 9.0), ("broken", "server_error", None)],
)
def test_an_error(
    server: Aimock, spec: str, message: str, cause: str, wait_s: float | None
) -> None:
    before = len(server.requests())
    with pytest.raises(ModelError) as lost:
        ask(server, spec, request(said(1, message)))
    assert (lost.value.cause, lost.value.sent, lost.value.retry_after_s) == (cause, "yes", wait_s)
    assert len(server.requests()) == before + 1, "nothing retries"


@pytest.mark.promise(9, 10)
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("message", ["cut", "fall silent"])
def test_a_stream_that_is_cut(server: Aimock, spec: str, message: str) -> None:
    events = ask(server, spec, request(said(1, message)))
    text = shown(events)[0]
    assert last(events).ended == "incomplete"
    assert text == text_of(last(events).parts)
    assert text
    assert LONG.startswith(text)
    assert text != LONG
