"""One conversation in each format, by equality."""

from typing import Any

import msgspec
import pytest

from steno.engine.request import Request
from steno.journal.history import Closed, Settled
from steno.journal.parts import Blob, Failed, Reasoning, Returned, Text, ToolCall
from tests.models.samples import PICTURE, SHELL, SPECS, answered, body_of, request, said, wire

CHAT, RESPONSES, MESSAGES = SPECS
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}}
CACHED = {"type": "ephemeral"}
PIXEL64 = "iVBORw0KGgogcGl4ZWw="
SEALED = (
    Reasoning("Signed.", Blob("anthropic", '{"signature":"sig"}')),
    Reasoning("", Blob("anthropic", '{"redacted":"opaque"}')),
    Reasoning(
        "Sum.",
        Blob(
            "openai-responses",
            '{"id":"rs_1","summary":[],"encrypted_content":"enc","type":"reasoning"}',
        ),
    ),
)
TALK = request(
    said(1, "What is this?", PICTURE),
    answered(2, *SEALED, "I look.", ToolCall("call_1", "shell", '{"command": "ls"}')),
    Settled(3, "call_1", Failed((Text("denied"),))),
    answered(4, "I could n", ended="interrupted"),
    Closed(5, "interrupted", "user"),
    said(6, "Go on."),
    said(7, "Please."),
    note="A note.",
)


def test_chat_completions() -> None:
    assert wire(CHAT, TALK) == {
        "model": "gpt-test",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "shell",
                    "description": "Run a command.",
                    "parameters": PARAMETERS,
                },
            }
        ],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL64}"}},
                ],
            },
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "shell", "arguments": '{"command": "ls"}'},
                    }
                ],
            },
            {
                "role": "tool",
                "tool_call_id": "call_1",
                "content": "denied\n\n[The tool reports an error.]",
            },
            {
                "role": "assistant",
                "content": "I could n\n\n[This answer was stopped before it was finished.]"
                "\n\n[This turn was stopped by the user.]",
            },
            {"role": "user", "content": "Go on."},
            {"role": "user", "content": "Please."},
            {"role": "user", "content": "A note."},
        ],
    }


def test_messages() -> None:
    assert wire(MESSAGES, TALK) == {
        "model": "claude-test",
        "max_tokens": 8192,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": CACHED}],
        "tools": [{"name": "shell", "description": "Run a command.", "input_schema": PARAMETERS}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL64},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Signed.", "signature": "sig"},
                    {"type": "redacted_thinking", "data": "opaque"},
                    {"type": "text", "text": "I look."},
                    {
                        "type": "tool_use",
                        "id": "call_1",
                        "name": "shell",
                        "input": {"command": "ls"},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_1",
                        "content": [
                            {"type": "text", "text": "denied"},
                            {"type": "text", "text": "[The tool reports an error.]"},
                        ],
                        "is_error": True,
                    }
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I could n"},
                    {"type": "text", "text": "[This answer was stopped before it was finished.]"},
                    {"type": "text", "text": "[This turn was stopped by the user.]"},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Go on."},
                    {"type": "text", "text": "Please.", "cache_control": CACHED},
                    {"type": "text", "text": "A note."},
                ],
            },
        ],
    }


def test_responses() -> None:
    def model(text: str) -> dict[str, Any]:
        return {"type": "message", "role": "assistant", "content": text}

    def user(text: str) -> dict[str, Any]:
        return {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": text}],
        }

    picture = {
        "type": "input_image",
        "detail": "auto",
        "image_url": f"data:image/png;base64,{PIXEL64}",
    }
    first = user("What is this?")
    first["content"].append(picture)
    assert wire(RESPONSES, TALK) == {
        "model": "gpt-test",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "instructions": "Be brief.",
        "tools": [
            {
                "type": "function",
                "name": "shell",
                "description": "Run a command.",
                "parameters": PARAMETERS,
                "strict": False,
            }
        ],
        "input": [
            first,
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "enc"},
            model("I look."),
            {
                "type": "function_call",
                "call_id": "call_1",
                "name": "shell",
                "arguments": '{"command": "ls"}',
            },
            {
                "type": "function_call_output",
                "call_id": "call_1",
                "output": "denied\n\n[The tool reports an error.]",
            },
            model("I could n"),
            model("[This answer was stopped before it was finished.]"),
            model("[This turn was stopped by the user.]"),
            user("Go on."),
            user("Please."),
            user("A note."),
        ],
    }


def test_a_picture_among_the_output_of_a_tool_goes_where_the_wire_has_a_place_for_it() -> None:
    outcome = Returned((Text("see"), PICTURE))
    talk = request(
        said(1, "a"), answered(2, ToolCall("c", "shell", "{}")), Settled(3, "c", outcome)
    )
    assert wire(CHAT, talk)["messages"][-1]["content"] == "see\n\n[image, not shown]"
    assert [part["type"] for part in wire(RESPONSES, talk)["input"][-1]["output"]] == [
        "input_text",
        "input_image",
    ]
    result = wire(MESSAGES, talk)["messages"][-1]["content"][0]
    assert [part["type"] for part in result["content"]] == ["text", "image"]


@pytest.mark.promise(7)
@pytest.mark.parametrize("spec", [*SPECS, "scripted:echo", "local:smollm2"])
def test_half_of_a_surrogate_pair_does_not_stop_a_request(spec: str) -> None:
    body = body_of(spec, request(said(1, "a\ud83db", "\0"), system="\udfff", note="\ud800"))
    assert msgspec.json.decode(body)


@pytest.mark.parametrize("spec", SPECS)
def test_schemas_are_sent_as_they_were_recorded(spec: str) -> None:
    odd = '{ "type":"object",\n "properties":{"b":{},"a":{}} }'
    tool = type(SHELL)("odd", "", odd)
    assert odd.encode() in body_of(spec, request(said(1, "a"), tools=(tool,)))


@pytest.mark.parametrize("spec", SPECS)
def test_what_grows_stands_last(spec: str) -> None:
    body = body_of(spec, request(said(1, "the last words")))
    assert body.rstrip(b'"]}').endswith(
        (b"the last words", b'"the last words","cache_control":{"type":"ephemeral')
    )


@pytest.mark.parametrize(
    ("model", "asked"), [("gpt-4o-mini", False), ("gpt-4.1", False), ("gpt-5", True), ("o3", True)]
)
def test_encrypted_reasoning_is_asked_of_models_that_reason(model: str, asked: bool) -> None:
    assert ("include" in wire(f"openai-responses:{model}", request(said(1, "a")))) is asked


def test_calls_in_the_history_need_a_tool_even_where_none_is_offered() -> None:
    talk = request(said(1, "a"), answered(2, ToolCall("c", "shell", "{}")), said(3, "b"), tools=())
    assert wire(MESSAGES, talk)["tool_choice"] == {"type": "none"}
    assert "tools" not in wire(MESSAGES, request(said(1, "a"), tools=()))


def deepseek(calls: tuple[ToolCall, ...]) -> Request:
    thought = Reasoning("Hm.", Blob("openai-chat", '{"field":"reasoning_content"}'))
    extra = Reasoning(
        "", Blob("openai-chat", '{"extra_content":{"google":{"thought_signature":"s"}}}')
    )
    return request(said(1, "a"), answered(2, thought, "b", extra, *calls), said(3, "c"))


def test_what_a_server_sent_beside_a_call_goes_back_beside_it() -> None:
    message = wire(CHAT, deepseek((ToolCall("c", "shell", "{}"), ToolCall("d", "shell", "{}"))))[
        "messages"
    ][2]
    assert message["reasoning_content"] == "Hm."
    assert message["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "s"}}
    assert "extra_content" not in message["tool_calls"][1]


def test_reasoning_without_a_call_is_left_out_of_chat_completions() -> None:
    assert b"Hm." not in body_of(CHAT, deepseek(()))
