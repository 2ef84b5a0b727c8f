"""What is open in a turn of codex: texts, calls, and what a person promised it. Pure values."""

from typing import Literal

from msgspec import Struct

from steno.journal.parts import Content, Outcome, Reasoning, Refused, Text, ToolCall


class Speech(Struct):
    """An item of text in the open step. `text` is the truth once it is completed."""

    id: str
    kind: Literal["text", "reasoning"]
    shown: str = ""
    text: str | None = None


class Running(Struct):
    """A call without an outcome. `rest` is output beyond what is shown. `ours`: our own tools
    settle it."""

    call: ToolCall
    started: bool
    ours: bool = False
    shown: str = ""
    rest: list[str] = []
    rest_chars: int = 0


class Bounds(Struct, frozen=True):
    shown_chars_max: int = 30_000
    kept_chars_max: int = 5_000_000


class Promised(Struct, frozen=True):
    """A call that a person approved before it could be run: when codex comes with the same one, it
    is this one. `explained`: codex had said why it asks. `leaves`: it was approved to leave the
    sandbox."""

    id: str
    name: str
    arguments: str
    explained: bool = False
    leaves: bool = False


def part_of(kind: Literal["text", "reasoning"], text: str) -> Content | None:
    if not text:
        return None
    return Text(text) if kind == "text" else Reasoning(text)


def collected(running: Running) -> str:
    return running.shown + "".join(running.rest)


def beside(outcome: Outcome, shown: str) -> str | None:
    """What was shown, if the outcome does not begin with it."""
    if not shown or isinstance(outcome, Refused):
        return None
    said = "".join(part.text for part in outcome.parts if isinstance(part, Text))
    return None if said.startswith(shown) else shown
