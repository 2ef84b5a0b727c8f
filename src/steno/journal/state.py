"""The state an engine decides from: what is open, what is pending, what shapes the next request.

It holds only what is still open, so its size does not grow with the session.
"""

from typing import Literal

from msgspec import Struct

from steno.journal.facts import (
    AnyFact,
    ApprovalAsked,
    ApprovalDecided,
    Compacted,
    ContextSet,
    Continues,
    DeliveryOwed,
    DeliveryRefused,
    DeliverySettled,
    HookDone,
    HookOwed,
    InputAdmitted,
    InterruptAsked,
    Record,
    SessionEnded,
    SessionRenamed,
    SessionStarted,
    StepLost,
    StepSealed,
    StepStarted,
    Takes,
    ThreadBound,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from steno.journal.parts import Seq, ToolCall


class OpenCall(Struct):
    """A tool call without an outcome. `started` is None until the tool runs."""

    call: ToolCall
    step: Seq
    started: Seq | None = None
    group: int | None = None
    repeat: Literal["never", "safe"] = "never"
    asked: Seq | None = None
    decision: Literal["allow", "deny"] | None = None


class OpenTurn(Struct):
    """`step` is the seq of a request without an ending; `lost` counts such attempts since the last answer."""

    seq: Seq
    origin: Takes | Continues
    inputs: list[Seq]
    step: Seq | None = None
    sealed: list[Seq] = []
    lost: int = 0
    calls: dict[str, OpenCall] = {}
    last: StepSealed | None = None
    interrupted: InterruptAsked | None = None


class EndedTurn(Struct):
    turn: OpenTurn
    ending: TurnEnded


class State(Struct):
    head: Seq = 0
    started: SessionStarted | None = None
    title: str = ""
    context: ContextSet | None = None
    pending: dict[Seq, InputAdmitted] = {}
    turn: OpenTurn | None = None
    last_turn: EndedTurn | None = None
    compacted: Seq | None = None
    threads: dict[str, str] = {}
    deliveries: dict[Seq, DeliveryOwed] = {}
    hooks: dict[Seq, HookOwed] = {}
    ended: SessionEnded | None = None

    def apply(self, record: Record) -> None:
        self.head = record.seq
        fact = record.fact
        match fact:
            case InputAdmitted():
                self.pending[record.seq] = fact
                self.ended = None
            case TurnStarted():
                self._start_turn(record.seq, fact)
            case StepStarted() | StepSealed() | StepLost():
                if self.turn is not None:
                    self._step(self.turn, record.seq, fact)
            case ToolStarted() | ToolSettled() | ApprovalAsked() | ApprovalDecided():
                if self.turn is not None:
                    _call(self.turn, record.seq, fact)
            case InterruptAsked():
                if self.turn is not None and self.turn.seq == fact.turn:
                    self.turn.interrupted = fact
            case TurnEnded():
                if self.turn is not None and self.turn.seq == fact.turn:
                    self.last_turn, self.turn = EndedTurn(self.turn, fact), None
            case _:
                self._keep(record.seq, fact)

    def _start_turn(self, seq: Seq, fact: TurnStarted) -> None:
        self.ended = None
        self.turn = OpenTurn(seq, fact.origin, [])
        match fact.origin:
            case Takes():
                self.pending.pop(fact.origin.input, None)
                self.turn.inputs.append(fact.origin.input)
            case Continues():
                pass

    def _step(self, turn: OpenTurn, seq: Seq, fact: StepStarted | StepSealed | StepLost) -> None:
        match fact:
            case StepStarted():
                turn.step = seq
                for taken in fact.takes:
                    self.pending.pop(taken, None)
                    turn.inputs.append(taken)
            case StepSealed():
                turn.step, turn.last, turn.lost = None, fact, 0
                turn.sealed.append(fact.step)
                if fact.ended == "complete":
                    calls = (part for part in fact.parts if isinstance(part, ToolCall))
                    turn.calls = {call.id: OpenCall(call, fact.step) for call in calls}
            case StepLost():
                turn.step = None
                turn.lost += 1

    def _keep(self, seq: Seq, fact: AnyFact) -> None:
        match fact:
            case SessionStarted():
                self._start_session(fact)
            case SessionRenamed():
                self.title = fact.title
            case SessionEnded():
                self.ended = fact
            case ContextSet():
                self.context = fact
            case Compacted():
                self.compacted = seq
            case ThreadBound():
                self.threads[fact.runtime] = fact.thread
            case DeliveryOwed():
                self.deliveries[seq] = fact
            case DeliverySettled():
                if not (isinstance(fact.outcome, DeliveryRefused) and not fact.outcome.final):
                    self.deliveries.pop(fact.owed, None)
            case HookOwed():
                self.hooks[seq] = fact
            case HookDone():
                self.hooks.pop(fact.owed, None)
            case _:
                pass

    def _start_session(self, fact: SessionStarted) -> None:
        """A fork inherits what was said, not what was under way: that is its parent's to finish."""
        self.started = fact
        self.turn = None
        self.pending, self.deliveries, self.hooks, self.threads = {}, {}, {}, {}
        self.ended = None


def _call(turn: OpenTurn, seq: Seq, fact: ToolStarted | ToolSettled | ApprovalAsked | ApprovalDecided) -> None:
    match fact:
        case ToolStarted():
            if (call := turn.calls.get(fact.call)) is not None:
                call.started, call.group, call.repeat = seq, fact.group, fact.repeat
        case ToolSettled():
            turn.calls.pop(fact.call, None)
        case ApprovalAsked():
            if (call := turn.calls.get(fact.call)) is not None:
                call.asked = seq
        case ApprovalDecided():
            for call in turn.calls.values():
                if call.asked == fact.asked and call.decision is None:
                    call.decision = fact.decision
