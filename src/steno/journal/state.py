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
    HelperEnded,
    HelperStarted,
    HookDone,
    HookOwed,
    InputAdmitted,
    InterruptAsked,
    Record,
    RewindWithdrawn,
    Rewound,
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

STOPS = frozenset(("user",))
"""Causes that are a person's wish. Nothing takes up what a person stopped."""


class OpenCall(Struct):
    """A tool call without an outcome. `started` is None until the tool runs. `asked` are the facts that asked a person
    whether it may run: a new runner asks again, and the answer to any of them counts."""

    call: ToolCall
    step: Seq
    started: Seq | None = None
    group: int | None = None
    repeat: Literal["never", "safe"] = "never"
    asked: tuple[Seq, ...] = ()
    decision: Literal["allow", "deny"] | None = None
    reason: str = ""


class OpenTurn(Struct):
    """`step` is the seq of a request without an ending. `lost` counts the attempts that got no answer since the last
    one, `broken` the answers in a row that broke off. `compaction` is what came of one since the last answer."""

    seq: Seq
    origin: Takes | Continues
    inputs: list[Seq]
    step: Seq | None = None
    steps: int = 0
    lost: int = 0
    last_lost: StepLost | None = None
    broken: int = 0
    calls: dict[str, OpenCall] = {}
    settled: list[ToolSettled] = []
    last: StepSealed | None = None
    interrupted: InterruptAsked | None = None
    compaction: Literal["done", "failed"] | None = None


class EndedTurn(Struct):
    turn: OpenTurn
    ending: TurnEnded


class CutOff(Struct):
    """A turn that something other than a person cut off, and whether a request has taken it up.

    `key` names the turn and the tool results at its end. `acknowledged_by` is the step that carries the continuation;
    a lost step withdraws it, `withdrawn` counts how often. `undone_by` are the standing rewinds that reach into the
    turn: nobody takes up what a person has taken out of view. `at` is where it ended; the inputs in `later`
    waited then.
    """

    ended: EndedTurn
    key: str
    acknowledged_by: Seq | None = None
    withdrawn: int = 0
    at: Seq = 0
    later: frozenset[Seq] = frozenset()
    undone_by: frozenset[Seq] = frozenset()

    def waits(self) -> bool:
        """Whether it can still be taken up."""
        return self.acknowledged_by is None and not self.undone_by


class State(Struct):
    head: Seq = 0
    started: SessionStarted | None = None
    title: str = ""
    context: ContextSet | None = None
    pending: dict[Seq, InputAdmitted] = {}
    turn: OpenTurn | None = None
    last_turn: EndedTurn | None = None
    cut_off: CutOff | None = None
    compacted: Seq | None = None
    helpers: dict[Seq, HelperStarted] = {}
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
                    self._end_turn(self.turn, fact)
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

    def _end_turn(self, turn: OpenTurn, fact: TurnEnded) -> None:
        """A turn that was cut off may be taken up once; a person's stop, or a later ending, takes that away."""
        self.last_turn, self.turn = EndedTurn(turn, fact), None
        if fact.outcome == "interrupted" and fact.cause not in STOPS:
            self.cut_off = CutOff(self.last_turn, continuation_key(turn), at=self.head, later=frozenset(self.pending))
        elif self.cut_off is not None and (self._taken_up(fact) or fact.cause in STOPS):
            self.cut_off = None

    def _taken_up(self, fact: TurnEnded) -> bool:
        """Whether what was cut off is behind us: a request took it up, or it was undone and an answer came since."""
        cut = self.cut_off
        return cut is not None and (cut.acknowledged_by is not None or (not cut.waits() and fact.outcome == "done"))

    def _rewind(self, seq: Seq, to: Seq) -> None:
        """A rewind to anything in or before a turn reaches into it. What waited at its end came after it, whatever its
        seq."""
        cut = self.cut_off
        if cut is not None and to < cut.at and to not in cut.later:
            cut.undone_by |= {seq}

    def _step(self, turn: OpenTurn, seq: Seq, fact: StepStarted | StepSealed | StepLost) -> None:
        match fact:
            case StepStarted():
                turn.step, turn.steps = seq, turn.steps + 1
                if self.cut_off is not None and fact.acknowledges == self.cut_off.key:
                    self.cut_off.acknowledged_by = seq
                for taken in fact.takes:
                    self.pending.pop(taken, None)
                    turn.inputs.append(taken)
            case StepSealed():
                turn.step, turn.last, turn.lost, turn.last_lost = None, fact, 0, None
                turn.broken = turn.broken + 1 if fact.ended == "incomplete" else 0
                turn.settled, turn.compaction = [], None
                if fact.ended == "complete":
                    calls = (part for part in fact.parts if isinstance(part, ToolCall))
                    turn.calls = {call.id: OpenCall(call, fact.step) for call in calls}
            case StepLost():
                turn.step, turn.last_lost = None, fact
                turn.lost += 1
                if self.cut_off is not None and self.cut_off.acknowledged_by == fact.step:
                    self.cut_off.acknowledged_by = None
                    self.cut_off.withdrawn += 1

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
                if self.turn is not None:
                    self.turn.compaction, self.turn.lost, self.turn.last_lost = "done", 0, None
            case Rewound():
                self._rewind(seq, fact.to)
            case RewindWithdrawn():
                if self.cut_off is not None:
                    self.cut_off.undone_by -= {fact.rewind}
            case HelperStarted():
                self.helpers[seq] = fact
            case HelperEnded():
                helper = self.helpers.pop(fact.started, None)
                failed = helper is not None and helper.purpose == "summary" and fact.outcome != "done"
                if self.turn is not None and failed:
                    self.turn.compaction = "failed"
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
        self.turn = self.cut_off = None
        self.pending, self.deliveries, self.hooks, self.threads, self.helpers = {}, {}, {}, {}, {}
        self.ended = None


def continuation_key(turn: OpenTurn) -> str:
    """The same for the same turn and the same batch of tool results at its end, in every process."""
    results = ",".join(f"{fact.step}.{fact.call}" for fact in turn.settled)
    return f"{turn.seq}:{results}" if results else str(turn.seq)


def _call(turn: OpenTurn, seq: Seq, fact: ToolStarted | ToolSettled | ApprovalAsked | ApprovalDecided) -> None:
    match fact:
        case ToolStarted():
            if (call := turn.calls.get(fact.call)) is not None:
                call.started, call.group, call.repeat = seq, fact.group, fact.repeat
        case ToolSettled():
            turn.calls.pop(fact.call, None)
            turn.settled.append(fact)
        case ApprovalAsked():
            if (call := turn.calls.get(fact.call)) is not None:
                call.asked = (*call.asked, seq)
        case ApprovalDecided():
            for call in turn.calls.values():
                if fact.asked in call.asked and call.decision is None:
                    call.decision, call.reason = fact.decision, fact.reason
