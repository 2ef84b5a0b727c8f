"""The state an engine decides from: what is open, what is pending, what shapes the next request.

It holds only what is still open, so its size does not grow with the session.
"""

from typing import Literal

from msgspec import Struct, field

from steno.journal.debts import Owed, OwedHook
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
    GoalSet,
    HelperEnded,
    HelperStarted,
    InputAdmitted,
    InputWithdrawn,
    InterruptAsked,
    MessageHidden,
    MessageRedacted,
    Record,
    RewindWithdrawn,
    Rewound,
    RuleSet,
    SessionAttended,
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

WITHDRAWALS_MAX = 3
KILLED_MAX = 4
"""Continuations in a row that may be killed after they showed something."""
STOPS = frozenset(("user",))
"""Causes that are a person's wish. Nothing takes up what a person stopped."""


class OpenCall(Struct):
    """A tool call without an outcome. `started` is None until the tool runs. `asked` are the facts
    that asked a person whether it may run: a new runner asks again, and the answer to any of them
    counts. `why` is the reason that was told with the question, `reason` the one that was given
    with the answer. `leaves` is True if every question covered leaving the sandbox."""

    call: ToolCall
    step: Seq
    started: Seq | None = None
    group: int | None = None
    repeat: Literal["never", "safe"] = "never"
    asked: tuple[Seq, ...] = ()
    decision: Literal["allow", "deny"] | None = None
    reason: str = ""
    why: str = ""
    leaves: bool = False


class OpenTurn(Struct):
    """`step` is the seq of a request without an ending. `lost` counts the attempts that got no
    answer since the last one, `broken` the answers in a row that broke off. `compaction` is what
    came of one since the last answer. `fallen` are the fallbacks that took over in this turn, in
    order: the last one answers."""

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
    fallen: list[str] = []

    def fall_back(self, model: str) -> None:
        """Of a model that takes over no attempt was lost yet, and it may succeed in making a
        summary. What broke off is still to be gone on with."""
        self.fallen.append(model)
        self.lost, self.broken, self.compaction = 0, min(self.broken, 1), None


class EndedTurn(Struct):
    turn: OpenTurn
    ending: TurnEnded


class CutOff(Struct):
    """A turn that something other than a person cut off, and whether a request has taken it up.

    `key` names the turn and the tool results at its end. `acknowledged_by` is the step that carries
    the continuation; a lost step withdraws it. `withdrawn` are the turns in which that happened: a
    bounded number, or a turn that kills whoever takes it up would be taken up for ever. `undone_by`
    are the standing rewinds that reach into the turn: nobody takes up what a person has taken out
    of view. `at` is where it ended; the inputs in `later` waited then. `killed` counts the
    continuations in a row, this turn the last of them, that showed something and were killed: they
    are bounded, too, or whoever continues by itself at its start would do so for ever.
    """

    ended: EndedTurn
    key: str
    acknowledged_by: Seq | None = None
    withdrawn: frozenset[Seq] = frozenset()
    at: Seq = 0
    later: frozenset[Seq] = frozenset()
    undone_by: frozenset[Seq] = frozenset()
    killed: int = 0

    def waits(self) -> bool:
        """Whether it can still be taken up."""
        return self.acknowledged_by is None and not self.undone_by and not self.given_up()

    def given_up(self) -> bool:
        return self.came_to_nothing() or self.killed >= KILLED_MAX

    def came_to_nothing(self) -> bool:
        return len(self.withdrawn) > WITHDRAWALS_MAX


class State(Struct):
    """`stopping` is an open helper call that somebody wants to stop. `rules` are those of this
    session alone, in the order in which they were set. `threads` are those that external runtimes
    keep, by runtime, and `bound` says where each was bound; those in `behind` do not know all that
    counts: a model of another runtime answered since, or what was said before was edited."""

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
    bound: dict[str, Seq] = {}
    behind: frozenset[str] = frozenset()
    deliveries: dict[Seq, DeliveryOwed] = {}
    owed: Owed = field(default_factory=Owed)
    ended: SessionEnded | None = None
    rules: dict[str, Literal["allow", "ask", "deny"]] = {}
    goal: str = ""
    stopping: Seq | None = None

    @property
    def attending(self) -> dict[Seq, str]:
        """The visits that are open, and whose they are."""
        return self.owed.attending

    @property
    def hooks(self) -> dict[Seq, OwedHook]:
        return self.owed.hooks

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
                elif fact.turn in self.helpers:
                    self.stopping = fact.turn
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
        """A turn that was cut off may be taken up once; a person's stop, or a later ending, takes
        that away."""
        self.last_turn, self.turn = EndedTurn(turn, fact), None
        if (
            fact.outcome == "interrupted"
            and fact.cause not in STOPS
            and not self._still_cut_off(turn)
        ):
            cut = CutOff(
                self.last_turn, continuation_key(turn), at=self.head, later=frozenset(self.pending)
            )
            cut.killed = self._killed_in_a_row(turn, fact)
            self.cut_off = cut
        elif self.cut_off is not None and (self._taken_up(fact) or fact.cause in STOPS):
            self.cut_off = None

    def _killed_in_a_row(self, turn: OpenTurn, fact: TurnEnded) -> int:
        """A turn that somebody said something in begins a new row. A signal is no kill: whoever
        ends us in order is not ended by what we do."""
        cut = self.cut_off
        if cut is None or turn.inputs or turn.origin != Continues(cut.ended.turn.seq):
            return 0
        return cut.killed + (fact.cause == "killed")

    def _still_cut_off(self, turn: OpenTurn) -> bool:
        """Whether a turn that was to take up what was cut off came to nothing: then that is what
        waits, as before."""
        cut = self.cut_off
        if (
            cut is None
            or turn.last is not None
            or turn.inputs
            or turn.origin != Continues(cut.ended.turn.seq)
        ):
            return False
        cut.acknowledged_by, cut.withdrawn = None, cut.withdrawn | {turn.seq}
        return True

    def _taken_up(self, fact: TurnEnded) -> bool:
        """Whether what was cut off is behind us: a request took it up, or it was undone or given up
        and an answer came since."""
        cut = self.cut_off
        return cut is not None and (
            cut.acknowledged_by is not None or (not cut.waits() and fact.outcome == "done")
        )

    def _rewind(self, seq: Seq, to: Seq) -> None:
        """A rewind to anything in or before a turn reaches into it. What waited at its end came
        after it, whatever its seq."""
        cut = self.cut_off
        if cut is not None and to < cut.at and to not in cut.later:
            cut.undone_by |= {seq}

    def _step(self, turn: OpenTurn, seq: Seq, fact: StepStarted | StepSealed | StepLost) -> None:
        match fact:
            case StepStarted():
                turn.step, turn.steps = seq, turn.steps + 1
                self._fall_behind(fact.model.partition(":")[0])
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
                    turn.calls |= {call.id: OpenCall(call, fact.step) for call in calls}
            case StepLost():
                turn.step, turn.last_lost = None, fact
                turn.lost += 1
                if self.cut_off is not None and self.cut_off.acknowledged_by == fact.step:
                    self.cut_off.acknowledged_by = None
                    self.cut_off.withdrawn |= {turn.seq}

    def _keep(self, seq: Seq, fact: AnyFact) -> None:
        match fact:
            case SessionStarted():
                self._start_session(fact)
            case InputWithdrawn():
                self.pending.pop(fact.input, None)
            case SessionRenamed():
                self.title = fact.title
            case SessionAttended():
                self.ended = None
                self.owed.apply(seq, fact)
            case ContextSet():
                self.context = fact
                if self.turn is not None and fact.instead_of and fact.model not in self.turn.fallen:
                    self.turn.fall_back(fact.model)
            case RuleSet():
                self._rule(fact)
            case GoalSet():
                self.goal = fact.goal
            case Compacted():
                self.compacted = seq
                self._fall_behind()
                if self.turn is not None:
                    self.turn.compaction, self.turn.lost = "done", 0
            case Rewound():
                self._rewind(seq, fact.to)
                self._fall_behind()
            case MessageHidden() | MessageRedacted():
                self._fall_behind()
            case RewindWithdrawn():
                self._fall_behind()
                if self.cut_off is not None:
                    self.cut_off.undone_by -= {fact.rewind}
            case HelperStarted():
                self.helpers[seq] = fact
            case HelperEnded():
                helper = self.helpers.pop(fact.started, None)
                self.stopping = None
                failed = (
                    helper is not None and helper.purpose == "summary" and fact.outcome != "done"
                )
                if self.turn is not None and failed:
                    self.turn.compaction = "failed"
            case ThreadBound():
                self.threads[fact.runtime], self.bound[fact.runtime] = fact.thread, seq
                self.behind -= {fact.runtime}
            case DeliveryOwed():
                self.deliveries[seq] = fact
            case DeliverySettled():
                if not (isinstance(fact.outcome, DeliveryRefused) and not fact.outcome.final):
                    self.deliveries.pop(fact.owed, None)
            case SessionEnded():
                self.ended = fact if self.owed.apply(seq, fact) else self.ended
            case _:
                self.owed.apply(seq, fact)

    def _rule(self, fact: RuleSet) -> None:
        self.rules.pop(fact.rule, None)
        if fact.verdict is not None:
            self.rules[fact.rule] = fact.verdict

    def _start_session(self, fact: SessionStarted) -> None:
        """A fork inherits what was said, not what was under way: that is its parent's to finish,
        and here it was cut off; nothing takes it up by itself. What was allowed was allowed to its
        parent; what is forbidden stays forbidden."""
        self.started = fact
        if self.turn is not None:
            self.last_turn = EndedTurn(self.turn, TurnEnded(self.turn.seq, "interrupted", "forked"))
        self.turn = self.cut_off = self.stopping = None
        self.rules = {rule: verdict for rule, verdict in self.rules.items() if verdict != "allow"}
        self.pending, self.deliveries, self.threads, self.helpers = {}, {}, {}, {}
        self.owed, self.ended, self.bound, self.behind = Owed(), None, {}, frozenset()

    def knows_all(self, runtime: str, thread: str) -> bool:
        """Whether this is the runtime's thread, and it has all that counts."""
        return self.threads.get(runtime) == thread and runtime not in self.behind

    def _fall_behind(self, but: str = "") -> None:
        """No external thread knows of this, but that of the runtime which did it."""
        self.behind |= self.threads.keys() - {but}


def continuation_key(turn: OpenTurn) -> str:
    """The same for the same turn and the same batch of tool results at its end, in every
    process."""
    results = ",".join(f"{fact.step}.{fact.call}" for fact in turn.settled)
    return f"{turn.seq}:{results}" if results else str(turn.seq)


def _call(
    turn: OpenTurn, seq: Seq, fact: ToolStarted | ToolSettled | ApprovalAsked | ApprovalDecided
) -> None:
    match fact:
        case ToolStarted():
            if (call := turn.calls.get(fact.call)) is not None:
                call.started, call.group, call.repeat = seq, fact.group, fact.repeat
        case ToolSettled():
            turn.calls.pop(fact.call, None)
            turn.settled.append(fact)
        case ApprovalAsked():
            if (call := turn.calls.get(fact.call)) is not None:
                call.leaves = fact.leaves and (call.leaves or not call.asked)
                call.asked, call.why = (*call.asked, seq), fact.reason or call.why
        case ApprovalDecided():
            for call in turn.calls.values():
                if fact.asked in call.asked and call.decision is None:
                    call.decision, call.reason = fact.decision, fact.reason
