"""One row per session for lists: what a person needs to find it again."""

from msgspec import Struct

from steno.journal.facts import (
    ContextSet,
    ForkPoint,
    InputAdmitted,
    Record,
    SessionEnded,
    SessionRenamed,
    SessionStarted,
    StepLost,
    StepSealed,
    ToolSettled,
    TurnEnded,
    TurnOutcome,
)
from steno.journal.parts import GONE, Content, Redacted, Seq, text_of

TITLE_LEN_MAX = 80


class ListingRow(Struct, omit_defaults=True):
    """`messages` counts what the transcript shows; `titled` is the fact that the title comes from."""

    platform: str = ""
    model: str = ""
    name: str | None = None
    forked_from: ForkPoint | None = None
    title: str = ""
    named: bool = False
    titled: Seq = 0
    created_ms: int = 0
    updated_ms: int = 0
    messages: int = 0
    turns: int = 0
    last_turn: TurnOutcome | None = None
    ended: str | None = None

    def apply(self, record: Record) -> bool:
        """Take one fact in; whether the row changed."""
        fact = record.fact
        match fact:
            case InputAdmitted():
                self.messages += 1
                self.ended = None
                if not self.title and not self.named and (title := title_of(fact.parts)):
                    self.title, self.titled = title, record.seq
            case StepSealed() | StepLost() | ToolSettled():
                self.messages += 1
            case TurnEnded():
                self.turns += 1
                self.last_turn = fact.outcome
            case SessionStarted():
                self._start(record, fact)
            case SessionRenamed():
                self.title, self.named, self.titled = fact.title, True, record.seq
            case SessionEnded():
                self.ended = fact.reason
            case ContextSet():
                self.model = fact.model
            case _:
                return False
        self.updated_ms = record.at_ms
        return True

    def _start(self, record: Record, fact: SessionStarted) -> None:
        self.platform, self.name, self.forked_from = fact.platform, fact.name, fact.forked_from
        self.model = fact.model or self.model
        self.created_ms = record.at_ms
        self.ended = None


def title_of(parts: tuple[Content, ...]) -> str:
    """The first line that was said; where it was redacted, a word that says so."""
    line = next((line.strip() for line in text_of(parts).splitlines() if line.strip()), "")
    if not line and any(isinstance(part, Redacted) for part in parts):
        return GONE
    return line if len(line) <= TITLE_LEN_MAX else line[: TITLE_LEN_MAX - 1].rstrip() + "…"
