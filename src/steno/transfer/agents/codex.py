"""Codex: `sessions/YYYY/MM/DD/rollout-*.jsonl`, one `{timestamp, type, payload}` a line; old files
may be compressed (`.zst`, `.gz`).

A prompt stands in it twice: as the message that a model is sent, and as the event of what the
person typed. The event is the person's; messages of the role user that no event names are what
codex tells the model about the folder and its rules, and are kept, not said. Only where a file has
no such event at all is the message taken for the prompt.
"""

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from steno.journal.facts import Usage
from steno.journal.parts import (
    Content,
    Failed,
    Reasoning,
    Returned,
    Text,
    ToolCall,
    text_of,
)
from steno.transfer.agents.reading import (
    Line,
    Unreadable,
    as_json,
    lines,
    list_at,
    ms_of,
    number_at,
    openai_parts,
    short,
    speaks,
    text_at,
)
from steno.transfer.agents.talk import (
    Answer,
    Entry,
    Kept,
    Said,
    Summarised,
    Talk,
    ToolResult,
)

PROGRAM = "codex"
CALLS = ("function_call", "custom_tool_call", "local_shell_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output")


def recognised(first: dict[str, Any]) -> bool:
    return "payload" in first and text_at(first, "type") in (
        "session_meta",
        "response_item",
    )


def open_rollout(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if path.suffix == ".zst":
        try:
            import zstandard
        except ImportError:
            why = "it is compressed; reading it needs the package zstandard"
            raise Unreadable(short(path), why) from None
        raw = zstandard.ZstdDecompressor().stream_reader(
            path.open("rb"), closefd=True
        )
        return cast(BinaryIO, io.BufferedReader(raw))
    return path.open("rb")


def talks(path: Path) -> Iterator[Talk]:
    bad: list[tuple[str, str]] = []
    typed, id, title = set[str](), "", ""
    with open_rollout(path) as file:
        for line in lines(file, short(path), bad):
            payload = line.value.get("payload")
            if text_at(line.value, "type") == "session_meta":
                id = id or text_at(payload, "id") or text_at(payload, "session_id")
            elif text_at(payload, "type") == "user_message":
                typed.add(text_at(payload, "message"))
            elif text_at(payload, "type") == "thread_name_updated":
                title = text_at(payload, "thread_name")
    yield Talk(
        program=PROGRAM,
        id=id or path.name.split(".")[0],
        where=short(path),
        entries=_entries(path, typed),
        title=title,
        notes=tuple(bad),
    )


def _entries(path: Path, typed: set[str]) -> Iterator[Entry]:
    """Items of one answer follow each other: reasoning, text, calls. They are one step, up to the
    first output of a call or the next prompt."""
    parts, began, model, usage = list[Content](), 0, "", None
    with open_rollout(path) as file:
        for line in lines(file, short(path), []):
            at_ms = ms_of(line.value.get("timestamp"))
            kind = text_at(line.value, "type")
            payload = line.value.get("payload")
            if kind == "turn_context":
                model = text_at(payload, "model") or model
            said = _said_by_model(kind, payload)
            if said:
                began = began or at_ms
                parts += said
                continue
            if text_at(payload, "type") == "token_count":
                usage = _usage(payload) or usage
            ends = kind == "compacted" or text_at(payload, "type") in (
                *OUTPUTS,
                "user_message",
                "message",
                "task_complete",
                "turn_aborted",
            )
            if parts and ends:
                yield Answer(began, tuple(parts), model, usage)
                parts, began, usage = [], 0, None
            yield from _entry(line, kind, payload, at_ms, typed)
    if parts:
        yield Answer(began, tuple(parts), model, usage)


def _said_by_model(kind: str, payload: Any) -> list[Content]:
    if kind != "response_item":
        return []
    what = text_at(payload, "type")
    if what == "message" and text_at(payload, "role") == "assistant":
        return list(openai_parts(payload.get("content"), PROGRAM)[0])
    if what == "reasoning":
        told = [*list_at(payload, "summary"), *list_at(payload, "content")]
        text = "\n".join(filter(None, (text_at(one, "text") for one in told)))
        return [Reasoning(text)] if text else []
    if what in CALLS and text_at(payload, "call_id"):
        arguments = text_at(payload, "arguments") or as_json(
            payload.get("input", payload.get("action", {}))
        )
        return [
            ToolCall(payload["call_id"], text_at(payload, "name") or what, arguments)
        ]
    return []


def _usage(payload: Any) -> Usage | None:
    last = payload.get("info") if isinstance(payload, dict) else None
    told = last.get("last_token_usage") if isinstance(last, dict) else None
    if not isinstance(told, dict):
        return None
    return Usage(
        number_at(told, "input_tokens"),
        number_at(told, "output_tokens"),
        number_at(told, "cached_input_tokens"),
        number_at(told, "reasoning_output_tokens"),
    )


def _entry(
    line: Line, kind: str, payload: Any, at_ms: int, typed: set[str]
) -> Iterator[Entry]:
    what = text_at(payload, "type")
    if what == "user_message" and kind == "event_msg" and text_at(payload, "message"):
        yield Said(at_ms, (Text(payload["message"]),))
    elif what == "message" and text_at(payload, "role") == "user":
        parts, attached = openai_parts(payload.get("content"), PROGRAM)
        if (
            not typed
            and speaks(parts)
            and not text_of(parts).lstrip().startswith("<")
        ):
            yield Said(at_ms, parts, attached=attached)
        elif attached and text_of(parts).strip() in {one.strip() for one in typed}:
            pictures = tuple(one.part for one in attached)
            yield Said(at_ms, pictures, attached=attached)
        elif text_of(parts) not in typed:
            yield Kept(at_ms, line.raw)
    elif what in OUTPUTS and text_at(payload, "call_id"):
        yield _output(payload, at_ms)
    elif kind == "compacted":
        yield Summarised(at_ms, text_at(payload, "message"))
    elif what in ("agent_message", "agent_reasoning", "token_count"):
        return  # the same as the items of the answer
    else:
        yield Kept(at_ms, line.raw)


def _output(payload: dict[str, Any], at_ms: int) -> ToolResult:
    output = payload.get("output")
    failed = isinstance(output, dict) and output.get("success") is False
    said = output.get("content", output) if isinstance(output, dict) else output
    parts, attached = openai_parts(said, PROGRAM)
    parts = parts or (Text(as_json(output)),)
    outcome = Failed(parts) if failed else Returned(parts)
    return ToolResult(at_ms, payload["call_id"], outcome, attached)
