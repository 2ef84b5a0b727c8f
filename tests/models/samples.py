"""Requests to try the wire formats on: one with everything in it, and random ones that no engine
would build."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from steno.engine.request import Request
from steno.journal.facts import StepEnding, ToolSpec
from steno.journal.history import Answered, Closed, Entry, Said, Settled, Summarised
from steno.journal.parts import (
    Blob,
    Content,
    Failed,
    File,
    Image,
    Interrupted,
    Outcome,
    Reasoning,
    Redacted,
    Refused,
    Returned,
    Text,
    ToolCall,
    Unknown,
)
from steno.models import wording
from steno.models.protocol import Finished, ModelEvent, ReasoningDelta, TextDelta
from steno.models.specs import Access, ModelSettings, make

KEYS = {"openai": "sk-openai-test", "anthropic": "sk-anthropic-test"}


def settings_at(base_url: str = "", idle_s: float = 120.0, key: str | None = None) -> ModelSettings:
    """Every vendor at one address, each with its own key or with this one."""
    vendors = {
        vendor: Access(own if key is None else key, base_url) for vendor, own in KEYS.items()
    }
    return ModelSettings(vendors, idle_s)


SETTINGS = settings_at()
SPECS = ("openai-chat:gpt-test", "openai-responses:gpt-test", "anthropic:claude-test")
SHELL = ToolSpec(
    "shell", "Run a command.", '{"type":"object","properties":{"command":{"type":"string"}}}'
)
PIXEL = b"\x89PNG\r\n\x1a\n pixel"
PAYLOADS = {"a" * 64: PIXEL, "b" * 64: b"name,age\n", "c" * 64: b"\xff\xfe"}
PICTURE = Image("a" * 64, "image/png", len(PIXEL), "dot.png")
TABLE = File("b" * 64, "text/csv", 9, "people.csv")
BINARY = File("c" * 64, "application/octet-stream", 2, "blob.bin")


def request(
    *entries: Entry,
    note: str = "",
    system: str = "Be brief.",
    tools: tuple[ToolSpec, ...] = (SHELL,),
) -> Request:
    return Request("unused", system, tools, entries, note)


def wire(spec: str, asked: Request) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(body_of(spec, asked))
    return body


def body_of(spec: str, asked: Request) -> bytes:
    return make(spec, SETTINGS).to_wire(asked, PAYLOADS)


def said(seq: int, *parts: Content | str) -> Said:
    return Said(seq, tuple(Text(part) if isinstance(part, str) else part for part in parts))


def answered(seq: int, *parts: Content | str, ended: Any = "complete") -> Answered:
    return Answered(
        seq, tuple(Text(part) if isinstance(part, str) else part for part in parts), ended
    )


def shown(events: list[ModelEvent]) -> tuple[str, str]:
    """The text and the reasoning that a client was shown."""
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    return text, "".join(event.text for event in events if isinstance(event, ReasoningDelta))


def last(events: list[ModelEvent]) -> Finished:
    assert isinstance(events[-1], Finished)
    assert not any(isinstance(event, Finished) for event in events[:-1])
    return events[-1]


EVERYTHING = request(
    Summarised(1, 0, "They met."),
    said(2, "Look at this.", PICTURE, TABLE, BINARY),
    answered(
        3,
        Reasoning("First look.", Blob("anthropic", '{"signature":"sig"}')),
        Reasoning(
            "Then look.",
            Blob(
                "openai-responses",
                '{"id":"rs_1","summary":[],"encrypted_content":"x","type":"reasoning"}',
            ),
        ),
        "I look.",
        ToolCall("call_1", "shell", '{"command": "ls"}'),
        ToolCall("call_1", "no such tool!", "not json"),
        ToolCall("", "shell", ""),
    ),
    Settled(4, "call_1", Returned((Text("a.txt"), PICTURE, TABLE))),
    Settled(5, "call_1", Failed((Text("no such tool"),))),
    Settled(6, "", Unknown((Text("half"),))),
    answered(7, "It has", ended="incomplete"),
    answered(8, "a dot.", ToolCall("call_2", "shell", "{}"), ToolCall("call_3", "shell", "{}")),
    Settled(9, "call_2", Refused("the user said no")),
    Settled(10, "call_3", Interrupted()),
    Closed(11, "interrupted", "killed"),
    said(12, "Go on", Redacted(7)),
    said(13, "and hurry"),
    answered(14, "I hurr", ended="interrupted"),
    Closed(15, "interrupted", "user"),
    said(16, "Now?"),
    note="[Note from the runtime, not from the user] Check first.",
)


# --- random ones ----------------------------------------------------------------------------------

_NASTY = [
    "",
    " ",
    "\n",
    "\0",
    "\ud83d",
    "\ud83d\ude00",
    "🙂",
    "\ufdd0",
    "é",
    "漢字",
    '"]}',
    "a",
    "plain words",
]
texts = st.lists(st.sampled_from(_NASTY) | st.text(max_size=5), max_size=3).map("".join)
call_ids = st.sampled_from(["", "a", "b", "c", "functions.x:0", "toolu_01", "call " * 20]) | texts
arguments = st.sampled_from(
    ["", "{}", '{"a":1}', "[1]", "nope", '{"a":NaN}', '{"a":"\\ud800"}', '{"a":"\ud800"}']
)
blobs = st.none() | st.builds(
    Blob,
    st.sampled_from(["openai-chat", "openai-responses", "anthropic", "elsewhere"]),
    st.sampled_from(
        [
            "junk",
            '{"signature":"s"}',
            '{"redacted":"r"}',
            '{"field":"reasoning_content"}',
            '{"extra_content":1}',
        ]
    )
    | st.just('{"id":"rs_1","summary":[],"encrypted_content":"x","type":"reasoning"}'),
)
_pieces: list[Content] = [
    PICTURE,
    TABLE,
    BINARY,
    Image("f" * 64, "image/png", 1),
    Image("a" * 64, "image/tiff", 1),
]
input_parts: st.SearchStrategy[Content] = st.one_of(
    st.builds(Text, texts), st.builds(Redacted, st.integers(0, 9)), st.sampled_from(_pieces)
)
answer_parts = (
    st.builds(Text, texts)
    | st.builds(Reasoning, texts, blobs)
    | st.builds(
        ToolCall, call_ids, st.sampled_from(["shell", "", "odd name!", "x" * 80]), arguments
    )
    | st.builds(Redacted, st.integers(0, 9))
)
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Refused, texts),
    *(
        st.builds(kind, st.lists(input_parts, max_size=3).map(tuple))
        for kind in (Returned, Failed, Interrupted, Unknown)
    ),
)


ENDINGS: list[StepEnding] = ["complete", "complete", "length", "incomplete", "interrupted"]


@st.composite
def histories(draw: st.DrawFn, settled: bool = False) -> tuple[Entry, ...]:
    """Entries with seqs that grow. If `settled`, every answer's calls are settled at once, as an
    engine does."""
    entries: list[Entry] = []
    seq = 0
    for kind in draw(
        st.lists(
            st.sampled_from(["said", "answered", "settled", "closed", "summarised"]), max_size=12
        )
    ):
        seq += 1
        match kind:
            case "said":
                entries.append(Said(seq, tuple(draw(st.lists(input_parts, max_size=3)))))
            case "answered":
                ended = draw(st.sampled_from(ENDINGS))
                parts = tuple(draw(st.lists(answer_parts, max_size=4)))
                entries.append(Answered(seq, parts, ended))
                calls = [part.id for part in parts if isinstance(part, ToolCall)]
                for call in (
                    calls
                    if settled
                    else draw(st.lists(st.sampled_from([*calls, "zz"]), max_size=4))
                ):
                    seq += 1
                    entries.append(Settled(seq, call, draw(outcomes)))
            case "settled" if not settled:
                entries.append(Settled(seq, draw(call_ids), draw(outcomes)))
            case "closed":
                entries.append(
                    Closed(
                        seq,
                        draw(st.sampled_from(["interrupted", "failed"])),
                        draw(st.sampled_from(["user", "killed", ""])),
                    )
                )
            case "summarised":
                entries.append(Summarised(seq, 0, draw(texts)))
    return tuple(entries)


def requests(settled: bool = False) -> st.SearchStrategy[Request]:
    tools = st.sampled_from([(), (SHELL,), (ToolSpec("odd", "", "not json"),)])
    notes = st.sampled_from(["", "", f"{wording.GO_ON} Check."])
    return st.builds(Request, st.just("unused"), texts, tools, histories(settled), notes)
