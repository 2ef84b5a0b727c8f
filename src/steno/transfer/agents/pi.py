"""pi: one JSONL file a session; a header, then entries that name the entry before them, a tree. Its
own documents describe the format (versions 1 to 3).

The talk leads to the last entry of the file. Not said by anybody: changes of the model, labels,
messages of extensions; they are kept as they came.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steno.journal.facts import StepEnding, Usage
from steno.journal.parts import (
    Content,
    Failed,
    Opaque,
    Reasoning,
    Returned,
    Text,
    ToolCall,
)
from steno.transfer.agents.reading import (
    Line,
    as_json,
    attachment,
    lines,
    list_at,
    ms_of,
    number_at,
    short,
    speaks,
    text_at,
)
from steno.transfer.agents.talk import (
    Answer,
    Attached,
    Entry,
    Kept,
    Said,
    Summarised,
    Talk,
    ToolResult,
    branch,
    line_to,
)

PROGRAM = "pi"
BRANCHES_MAX = 200
_ENDED: dict[str, StepEnding] = {
    "length": "length",
    "error": "incomplete",
    "aborted": "interrupted",
}


def recognised(first: dict[str, Any]) -> bool:
    return text_at(first, "type") == "session" and bool(text_at(first, "id"))


def talks(path: Path) -> Iterator[Talk]:
    bad: list[tuple[str, str]] = []
    with path.open("rb") as file:
        read = list(lines(file, short(path), bad))
    header, entries = read[0].value, {_id(line): line for line in read[1:]}
    parents = _parents(read[1:])
    names = [
        text_at(one.value, "name") for one in read if _type(one) == "session_info"
    ]
    main = line_to(_id(read[-1]), parents) if entries else []
    known = [one for id in main for one in _entry(entries[id])]
    talk = Talk(
        program=PROGRAM,
        id=text_at(header, "id"),
        where=short(path),
        entries=known,
        title=names[-1] if names else "",
        notes=tuple(bad),
    )
    yield talk
    inner = set(parents.values())
    for leaf in [id for id in entries if id not in inner and id not in main][
        :BRANCHES_MAX
    ]:
        other = [one for id in line_to(leaf, parents) for one in _entry(entries[id])]
        if (left := branch(talk, leaf, known, other)) is not None:
            yield left


def _type(line: Line) -> str:
    return text_at(line.value, "type")


def _id(line: Line) -> str:
    return text_at(line.value, "id") or f"line {line.number}"


def _parents(read: list[Line]) -> dict[str, str]:
    """Version 1 has no parents: there each entry follows the one before it."""
    parents, before = dict[str, str](), ""
    for line in read:
        named = "parentId" in line.value
        parents[_id(line)] = text_at(line.value, "parentId") if named else before
        before = _id(line)
    return parents


def _entry(line: Line) -> Iterator[Entry]:
    value, at_ms = line.value, ms_of(line.value.get("timestamp"))
    message = value.get("message")
    role = text_at(message, "role") if _type(line) == "message" else ""
    if _type(line) == "compaction":
        yield Summarised(at_ms, text_at(value, "summary"))
        return
    parts, attached = _parts(
        message.get("content") if isinstance(message, dict) else None
    )
    if role == "user" and speaks(parts):
        yield Said(at_ms, parts, attached=attached)
    elif role == "assistant":
        ended = _ENDED.get(text_at(message, "stopReason"), "complete")
        yield Answer(
            at_ms, parts, text_at(message, "model"), _usage(message), ended, attached
        )
    elif role == "toolResult":
        failed = isinstance(message, dict) and message.get("isError") is True
        outcome = Failed(parts) if failed else Returned(parts)
        yield ToolResult(at_ms, text_at(message, "toolCallId"), outcome, attached)
    else:
        yield Kept(at_ms, line.raw, text_at(value, "id") or None)


def _parts(content: object) -> tuple[tuple[Content, ...], tuple[Attached, ...]]:
    if isinstance(content, str):
        return ((Text(content),) if content else ()), ()
    parts, attached = list[Content](), list[Attached]()
    for block in list_at({"content": content}, "content"):
        kind = text_at(block, "type")
        if kind == "text":
            parts += [Text(block["text"])] if text_at(block, "text") else []
        elif kind == "thinking":
            parts += (
                [Reasoning(block["thinking"])] if text_at(block, "thinking") else []
            )
        elif kind == "toolCall" and text_at(block, "id"):
            arguments = as_json(block.get("arguments", {}))
            parts.append(ToolCall(block["id"], text_at(block, "name"), arguments))
        elif kind == "image" and text_at(block, "data"):
            part, brought = attachment(block["data"], text_at(block, "mimeType"))
            parts.append(part)
            attached += brought
        else:
            parts.append(Opaque(PROGRAM, kind or "unknown", as_json(block)))
    return tuple(parts), tuple(attached)


def _usage(message: object) -> Usage | None:
    fresh = number_at(message, "usage", "input")
    cached = number_at(message, "usage", "cacheRead")
    if fresh is None:
        return None
    return Usage(fresh + (cached or 0), number_at(message, "usage", "output"), cached)
