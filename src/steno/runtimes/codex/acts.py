"""What is to be stored and shown of a turn of codex: what its notifications mean to us. Pure
values."""

from typing import Literal

from msgspec import Struct

from steno.journal.facts import PlanUpdated, StepEnding, Usage
from steno.journal.parts import Content, Outcome


class OpenStep(Struct, frozen=True):
    """Another answer begins. `takes` is the id of an input that steers from here on."""

    takes: str | None = None


class Write(Struct, frozen=True):
    """Make text of the open step durable, and so show it."""

    kind: Literal["text", "reasoning"]
    text: str


class Seal(Struct, frozen=True):
    """Close the open step with its answer. `started` is the id of its call if that runs already."""

    parts: tuple[Content, ...]
    ended: StepEnding = "complete"
    shown: tuple[Content, ...] | None = None
    usage: Usage | None = None
    started: str | None = None


class Lose(Struct, frozen=True):
    """Close the open step: nothing came of it."""

    cause: str
    detail: str = ""


class Start(Struct, frozen=True):
    call: str


class Output(Struct, frozen=True):
    call: str
    text: str


class Settle(Struct, frozen=True):
    """`shown` is what was shown where the outcome does not begin with it."""

    call: str
    outcome: Outcome
    shown: str | None = None


class Late(Struct, frozen=True):
    """Output of a call of an earlier turn, or of one that is settled."""

    call: str
    text: str


class Report(Struct, frozen=True):
    """What the last sealed step cost."""

    usage: Usage


class Plan(Struct, frozen=True):
    plan: PlanUpdated


class Compacted(Struct, frozen=True):
    """It has made its thread shorter."""


class End(Struct, frozen=True):
    """The turn is over. Everything open was closed by the acts before. `unheard`: codex did not say
    so, and may be at it still. `unanswered`: codex took an input that steers when it had said its
    last word, and said nothing to it."""

    status: Literal["completed", "interrupted", "failed"]
    cause: str = ""
    detail: str = ""
    unheard: bool = False
    unanswered: bool = False


class Skip(Struct, frozen=True):
    """A notification that means nothing to us."""

    method: str


Act = (
    OpenStep
    | Write
    | Seal
    | Lose
    | Start
    | Output
    | Settle
    | Late
    | Report
    | Plan
    | Compacted
    | End
    | Skip
)


def joined(acts: list[Act]) -> list[Act]:
    """Acts with neighbouring pieces of one stream as one."""
    together: list[Act] = []
    for act in acts:
        last = together[-1] if together else None
        if isinstance(act, Write) and isinstance(last, Write) and act.kind == last.kind:
            together[-1] = Write(act.kind, last.text + act.text)
        elif isinstance(act, Output) and isinstance(last, Output) and act.call == last.call:
            together[-1] = Output(act.call, last.text + act.text)
        elif isinstance(act, Late) and isinstance(last, Late) and act.call == last.call:
            together[-1] = Late(act.call, last.text + act.text)
        else:
            together.append(act)
    return together
