"""What a turn of codex is to store and show: what its notifications come to. Pure values, carried
out in order by the turn."""

from typing import Literal

from msgspec import Struct

from steno.journal.facts import PlanUpdated, StepEnding, Usage
from steno.journal.parts import Content, Outcome


class OpenStep(Struct, frozen=True):
    """Begin another answer. `takes` is the id of an input that steers from here on."""

    takes: str | None = None


class WriteText(Struct, frozen=True):
    """Make text of the open step durable, and so show it."""

    kind: Literal["text", "reasoning"]
    text: str


class SealStep(Struct, frozen=True):
    """Close the open step with its answer. `started` is the id of its call if that runs already."""

    parts: tuple[Content, ...]
    ended: StepEnding = "complete"
    shown: tuple[Content, ...] | None = None
    usage: Usage | None = None
    started: str | None = None


class LoseStep(Struct, frozen=True):
    """Close the open step: nothing came of it."""

    cause: str
    detail: str = ""


class StartCall(Struct, frozen=True):
    call: str


class ShowOutput(Struct, frozen=True):
    call: str
    text: str


class SettleCall(Struct, frozen=True):
    """`shown` is what was shown where the outcome does not begin with it."""

    call: str
    outcome: Outcome
    shown: str | None = None


class KeepLate(Struct, frozen=True):
    """Output of a call of an earlier turn, or of one that is settled."""

    call: str
    text: str


class ReportUsage(Struct, frozen=True):
    """What the last sealed step cost."""

    usage: Usage


class StorePlan(Struct, frozen=True):
    plan: PlanUpdated


class NoteCompaction(Struct, frozen=True):
    """Codex has made its thread shorter."""


class EndTurn(Struct, frozen=True):
    """The turn is over. Everything open was closed by the effects before. `unheard`: codex did not
    say so, and may still be working. `unanswered`: codex took an input that steers after its last
    answer, and said nothing to it."""

    status: Literal["completed", "interrupted", "failed"]
    cause: str = ""
    detail: str = ""
    unheard: bool = False
    unanswered: bool = False


class LogUnknown(Struct, frozen=True):
    """A notification that steno does not know."""

    method: str


AsFact = (
    SealStep
    | LoseStep
    | StartCall
    | SettleCall
    | KeepLate
    | ReportUsage
    | StorePlan
    | NoteCompaction
)
"""What becomes facts. Neighbours of these are stored together."""

Effect = OpenStep | WriteText | ShowOutput | AsFact | EndTurn | LogUnknown


def joined(effects: list[Effect]) -> list[Effect]:
    """The same with neighbouring pieces of one stream as one."""
    together: list[Effect] = []
    for effect in effects:
        match together[-1] if together else None, effect:
            case WriteText(kind, before), WriteText(same, text) if kind == same:
                together[-1] = WriteText(kind, before + text)
            case ShowOutput(call, before), ShowOutput(same, text) if call == same:
                together[-1] = ShowOutput(call, before + text)
            case KeepLate(call, before), KeepLate(same, text) if call == same:
                together[-1] = KeepLate(call, before + text)
            case _:
                together.append(effect)
    return together
