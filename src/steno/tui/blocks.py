"""What stands on the screen, from top to bottom: what was said, answers, tool calls, notices, and
before all that a start. Values only."""

import json
from typing import Literal

from msgspec import Struct

from steno.journal.facts import FileVersions
from steno.journal.parts import Seq
from steno.journal.transcript import MessageState
from steno.workspace.diffs import Diff

CallState = Literal[
    "asked",
    "waiting",
    "running",
    "returned",
    "failed",
    "refused",
    "interrupted",
    "unknown",
]
Tone = Literal["quiet", "good", "warn", "bad"]


class Said(Struct, frozen=True, tag=True):
    """An input. `files` are the names of what came with it. One that `steers` waits for the next
    step only."""

    key: str
    seq: Seq
    text: str
    state: MessageState
    at_ms: int = 0
    files: tuple[str, ...] = ()
    hidden: bool = False
    undone: bool = False
    steers: bool = False


class Answer(Struct, frozen=True, tag=True):
    key: str
    seq: Seq
    text: str
    state: MessageState
    at_ms: int = 0
    reasoning: str = ""
    hidden: bool = False
    undone: bool = False


class Call(Struct, frozen=True, tag=True):
    """A tool call. `seq` is the address of its outcome; 0 while it has none. `asked` is where a
    person is asked, and `why` the reason that comes with the question. `file` is what it changed,
    and `diff` how, as far as that is known."""

    key: str
    seq: Seq
    name: str
    arguments: str
    state: CallState
    output: str = ""
    began_ms: int = 0
    took_ms: int | None = None
    asked: Seq | None = None
    hidden: bool = False
    undone: bool = False
    why: str = ""
    file: FileVersions | None = None
    diff: Diff | None = None

    def given(self) -> dict[str, object]:
        """The arguments by name; empty if they are no JSON object."""
        try:
            found = json.loads(self.arguments)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def subject(self) -> str:
        """What the call is about, in a line: its command, its path, or all of its arguments."""
        given = self.given()
        if self.name == "todo" and isinstance(steps := given.get("steps"), list):
            done = sum(
                isinstance(one, dict) and one.get("status") == "done" for one in steps
            )
            return f"{done} of {len(steps)} done"
        for key in ("command", "path", "query", "prompt", "task", "url"):
            if isinstance(value := given.get(key), str):
                return value
        return self.arguments if given else ""


class Notice(Struct, frozen=True, tag=True):
    """Something that happened, and is no speech."""

    key: str
    text: str
    tone: Tone = "quiet"
    seq: Seq = 0
    hidden: bool = False
    undone: bool = False


class Start(Notice, frozen=True, tag=True):
    """What stands on the screen before a session has begun: where one is, the last sessions there
    and when they were used, a tip; and what a person must know first."""

    place: str = ""
    recent: tuple[tuple[str, str], ...] = ()
    tip: str = ""
    warning: str = ""


Block = Said | Answer | Call | Notice


def text_of(block: Block) -> str:
    """A block as plain text, to be copied."""
    match block:
        case Call():
            return f"{block.name} {block.arguments}\n{block.output}".rstrip("\n")
        case _:
            return block.text
