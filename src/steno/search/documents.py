"""Which texts of a fact are searched, and at which message a hit opens.

    user         what was said to the session
    assistant    what it answered, without reasoning
    call         the arguments of the tool calls in an answer
    tool         what a tool gave back, and all of an output that lies in a payload
    distillate   what was kept of the session
    title        a title that a person gave
    item         what another program keeps in the session

A summary is nobody's speech and is not searched: the originals are. The text of a payload is a
document of its own: it is in the index once, however many facts name it.
"""

from collections.abc import Iterator
from typing import Literal, assert_never

import msgspec
from msgspec import Struct

from steno.journal import facts as f
from steno.journal.parts import Content, File, Hash, Seq, Text, ToolCall, text_of
from steno.journal.readers import read
from steno.journal.transcript import outcome_text

Role = Literal["user", "assistant", "call", "tool", "distillate", "title", "item"]
ROLES: tuple[Role, ...] = (
    "user",
    "assistant",
    "call",
    "tool",
    "distillate",
    "title",
    "item",
)
LETTER: dict[Role, str] = {
    "user": "u",
    "assistant": "a",
    "call": "c",
    "tool": "t",
    "distillate": "d",
    "title": "n",
    "item": "i",
}
SPEECH: frozenset[Role] = frozenset(("user", "assistant", "title"))
"""What is searched unless more is asked for."""


class Document(Struct, frozen=True, gc=False):
    """`address` is the message that it is part of. With `payload`, the text lies there."""

    role: Role
    address: Seq
    text: str
    payload: Hash | None = None


def documents(record: f.Record) -> list[Document]:
    """The texts of a fact. Most facts have none."""
    return list(_documents(record)) if type(record.fact) in _WITH_TEXT else []


_WITH_TEXT = frozenset(
    (
        f.InputAdmitted,
        f.MessageGiven,
        f.ItemKept,
        f.StepSealed,
        f.ToolSettled,
        f.OutputLate,
        f.Distilled,
        f.SessionRenamed,
        f.SessionTitled,
    )
)


def _documents(record: f.Record) -> Iterator[Document]:
    fact = record.fact
    match fact:
        case f.InputAdmitted():
            names = " ".join(
                part.name for part in fact.parts if isinstance(part, File)
            )
            said = text_of(fact.parts)
            text = f"{said}\n{names}" if names else said
            if text:
                yield Document("user", record.seq, text)
        case f.MessageGiven():
            if said := text_of(fact.parts):
                yield Document(fact.role, record.seq, said)
        case f.ItemKept():
            yield from _item(record.seq, fact)
        case f.StepSealed():
            if said := text_of(fact.parts):
                yield Document("assistant", fact.step, said)
            if calls := _called(fact.parts):
                yield Document("call", fact.step, calls)
        case f.ToolSettled():
            parts = outcome_text(fact.outcome)
            address = record.seq if fact.started is None else fact.started
            said = "".join(part.text for part in parts if isinstance(part, Text))
            if said:
                yield Document("tool", address, said)
            for part in parts:
                if isinstance(part, File) and part.media_type.startswith("text/"):
                    yield Document("tool", address, "", part.hash)
        case f.OutputLate():
            if fact.text:
                yield Document("tool", fact.started, fact.text)
        case f.Distilled():
            lines = (fact.title, fact.summary, *(item.text for item in fact.items))
            if any(lines):
                yield Document(
                    "distillate", record.seq, "\n".join(filter(None, lines))
                )
        case (
            f.OutsideFact()
            | f.ContextFact()
            | f.HelperFact()
            | f.EditFact()
            | f.ApprovalFact()
        ):
            pass
        case f.SessionRenamed() | f.SessionTitled():
            if fact.title:
                yield Document("title", record.seq, fact.title)
        case f.SessionStarted() | f.InputFact() | f.MemoryFact():
            pass
        case (
            f.TurnStarted()
            | f.TurnEnded()
            | f.InterruptAsked()
            | f.StepFact()
            | f.ToolFact()
        ):
            pass
        case f.ThreadFact() | f.ItemFact() | f.FileFact():
            pass
        case unreachable:
            assert_never(unreachable)


def _item(seq: Seq, fact: f.ItemKept) -> Iterator[Document]:
    """Where a reader knows its format, what it says; else all texts in it."""
    said: dict[Role, list[str]] = {}
    readings = read(fact)
    for one in readings:
        if one.role != "item":
            said.setdefault(one.role, []).append(text_of(one.parts))
            said.setdefault("call", []).append(_called(one.parts))
    if not readings or any(one.role == "item" for one in readings):
        said["item"] = list(_strings(fact.json))
    for role, texts in said.items():
        if text := "\n".join(filter(None, texts)):
            yield Document(role, seq, text)


def _strings(json: str) -> Iterator[str]:
    """The texts in some JSON; where it is none, all of it."""
    try:
        left = [msgspec.json.decode(json)]
    except msgspec.DecodeError:
        left = [json]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            left += reversed(value.values())
        elif isinstance(value, list):
            left += reversed(value)


def _called(parts: tuple[Content, ...]) -> str:
    calls = (part for part in parts if isinstance(part, ToolCall))
    return "\n".join(f"{call.name} {call.arguments}" for call in calls)
