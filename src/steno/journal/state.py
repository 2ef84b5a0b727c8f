"""The state an engine decides from: what is open, what is pending, what shapes the next request.

It holds only what is still open, so its size does not grow with the session.
"""

from typing import Literal, assert_never

from msgspec import Struct, field

from steno.journal import facts as f
from steno.journal.debts import Owed, OwedHook
from steno.journal.listing import JOB
from steno.journal.parts import Seq, ToolCall

WITHDRAWALS_MAX = 3
KILLED_MAX = 4
"""Continuations in a row that may be killed after they showed something."""


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
    origin: f.Takes | f.Continues
    inputs: list[Seq]
    step: Seq | None = None
    steps: int = 0
    lost: int = 0
    last_lost: f.StepLost | None = None
    broken: int = 0
    calls: dict[str, OpenCall] = {}
    settled: list[f.ToolSettled] = []
    last: f.StepSealed | None = None
    interrupted: f.InterruptAsked | None = None
    compaction: Literal["done", "failed"] | None = None
    fallen: list[str] = []

    def fall_back(self, model: str) -> None:
        """Of a model that takes over no attempt was lost yet, and it may succeed in making a
        summary. What broke off is still to be gone on with."""
        self.fallen.append(model)
        self.lost, self.broken, self.compaction = 0, min(self.broken, 1), None

    def call(
        self,
        seq: Seq,
        fact: f.ToolStarted
        | f.ToolSettled
        | f.OutputLate
        | f.ApprovalAsked
        | f.ApprovalDecided,
    ) -> None:
        """Take in a fact about a call of this turn."""
        match fact:
            case f.ToolStarted():
                if (call := self.calls.get(fact.call)) is not None:
                    call.started, call.group, call.repeat = (
                        seq,
                        fact.group,
                        fact.repeat,
                    )
            case f.ToolSettled():
                self.calls.pop(fact.call, None)
                self.settled.append(fact)
            case f.ApprovalAsked():
                if (call := self.calls.get(fact.call)) is not None:
                    call.leaves = fact.leaves and (call.leaves or not call.asked)
                    call.asked, call.why = (*call.asked, seq), fact.reason or call.why
            case f.ApprovalDecided():
                for call in self.calls.values():
                    if fact.asked in call.asked and call.decision is None:
                        call.decision, call.reason = fact.decision, fact.reason
            case f.OutputLate():
                pass
            case unreachable:
                assert_never(unreachable)


class EndedTurn(Struct):
    turn: OpenTurn
    ending: f.TurnEnded


class CutOff(Struct):
    """A turn that something other than a person cut off, and whether a request has taken it up.

    `key` names the turn and the tool results at its end; `at` is where it ended, and the inputs in
    `later` waited then. `acknowledged_by` is the step that carries the continuation. Two counts
    bound what continues by itself: `withdrawn` are the turns that took it up and got no answer,
    `killed` counts the continuations in a row, this turn the last of them, that showed something
    and were killed. `undone_by` are the standing rewinds that reach into the turn: what a person
    took out of view is not taken up. `unseen` are results of an earlier turn that was cut off: the
    requests of the turns in `tried` told of them, and nothing came back.

    A sequence of facts, and what follows from it:

        3 input.admitted · 4 turn.started (takes 3) · 5 step.started · draft "Hel" · kill -9
        recover stores 6 step.sealed (5, "Hel", interrupted) · 7 turn.ended (4, interrupted, killed)
                                                turn 4 waits to be taken up, by the key "4"
        8 turn.started (continues 4)
        9 step.started (acknowledges "4")       taken up by 9, whose request tells of the kill
        10 step.lost (9)                        nothing came back: it waits again (withdrawn: 8)
        11 step.started (acknowledges "4")      taken up by 11
        12 step.sealed (11) · 13 turn.ended (8, done)    answered: nothing is cut off any more

    If the process is killed after 11 showed something, turn 8 is what is cut off (`killed` is 1).
    A rewind to 3 or 4 undoes turn 4: it does not wait while that rewind stands.

    A prompt takes up what was cut off, too. If it dies unanswered, it is what is cut off, and the
    results that it told of are unseen as before:

        … 6 tool.settled (a) · kill -9 · 7 turn.ended (4, interrupted, killed)
        8 input.admitted · 9 turn.started (takes 8) · 10 step.started (acknowledges "4:5.a")
        kill -9 · 11 step.lost (10) · 12 turn.ended (9, interrupted, killed)
                                                turn 9 waits, with a unseen, tried in 9
    """

    ended: EndedTurn
    key: str
    acknowledged_by: Seq | None = None
    withdrawn: frozenset[Seq] = frozenset()
    at: Seq = 0
    later: frozenset[Seq] = frozenset()
    undone_by: frozenset[Seq] = frozenset()
    killed: int = 0
    unseen: tuple[f.ToolSettled, ...] = ()
    tried: frozenset[Seq] = frozenset()

    def results(self) -> tuple[f.ToolSettled, ...]:
        """Results of tools that no answer came to, as long as it is worth telling of them."""
        tried = self.tried | self.withdrawn
        return (
            *(self.unseen if len(tried) <= WITHDRAWALS_MAX else ()),
            *self.ended.turn.settled,
        )

    def waits(self) -> bool:
        """Whether it can still be taken up."""
        return (
            self.acknowledged_by is None
            and not self.undone_by
            and not self.given_up()
        )

    def given_up(self) -> bool:
        return self.came_to_nothing() or self.killed >= KILLED_MAX

    def came_to_nothing(self) -> bool:
        return len(self.withdrawn) > WITHDRAWALS_MAX

    def withdraw(self, turn: Seq) -> None:
        """The request that had taken it up in this turn got no answer."""
        self.acknowledged_by, self.withdrawn = None, self.withdrawn | {turn}

    def rewind(self, seq: Seq, to: Seq) -> None:
        """A rewind to anything in or before the turn reaches into it. What waited at its end came
        after it, whatever its seq."""
        if to < self.at and to not in self.later:
            self.undone_by |= {seq}

    def is_continued_by(self, turn: OpenTurn) -> bool:
        """Whether a turn only takes this one up. If an input was taken in it, it is about that."""
        return not turn.inputs and turn.origin == f.Continues(self.ended.turn.seq)

    def is_over(self, ending: f.TurnEnded) -> bool:
        """Whether the end of a later turn leaves it behind: a request took it up, a person stopped,
        or it was undone or given up and an answer came since."""
        if self.acknowledged_by is not None or ending.cause in f.STOPS:
            return True
        return ending.outcome == "done" and not self.waits()


class HeldRule(Struct, frozen=True):
    """What a session has decided about calls. `until_ms`: when that ends; 0 if it does not."""

    verdict: Literal["allow", "ask", "deny"]
    until_ms: int = 0

    def over(self, now_ms: int) -> bool:
        return 0 < self.until_ms <= now_ms


class JobRun(Struct, frozen=True):
    """An input of a job: its key, which has the time, and when it was admitted."""

    key: str
    admitted_ms: int


class State(Struct):
    """`stopping` is an open helper call that a person asked to stop. `rules` are those of this
    session alone, in the order in which they were set. `threads` are those that external runtimes
    keep, by runtime, and `bound` says where each was bound; those in `behind` do not know all that
    counts: a model of another runtime answered since, or what was said before was edited. `folder`
    is the one that the session belongs to, `putting_back` what was not settled of that yet."""

    head: Seq = 0
    started: f.SessionStarted | None = None
    title: str = ""
    context: f.ContextSet | None = None
    pending: dict[Seq, f.InputAdmitted] = {}
    turn: OpenTurn | None = None
    last_turn: EndedTurn | None = None
    cut_off: CutOff | None = None
    compacted: Seq | None = None
    helpers: dict[Seq, f.HelperStarted] = {}
    threads: dict[str, str] = {}
    bound: dict[str, Seq] = {}
    behind: frozenset[str] = frozenset()
    deliveries: dict[Seq, f.DeliveryOwed] = {}
    owed: Owed = field(default_factory=Owed)
    ended: f.SessionEnded | None = None
    rules: dict[str, HeldRule] = {}
    mode: f.Mode = "ask"
    goal: str = ""
    instructions: str = ""
    """Those of the input that was taken last and had any."""
    folder: str = ""
    putting_back: dict[Seq, f.FilesPutBack] = {}
    stopping: Seq | None = None
    job: JobRun | None = None
    """What the input that was taken last is an occurrence of, if a job said it."""
    job_inputs: dict[Seq, JobRun] = {}

    @property
    def attending(self) -> dict[Seq, str]:
        """The visits that are open, with their owners."""
        return self.owed.attending

    @property
    def hooks(self) -> dict[Seq, OwedHook]:
        return self.owed.hooks

    def apply(self, record: f.Record) -> None:
        seq, fact = record.seq, record.fact
        self.head = seq
        match fact:
            case f.InputAdmitted():
                self.pending[seq], self.ended = fact, None
                self._note_job(record, fact)
            case f.TurnStarted():
                self._start_turn(seq, fact)
            case f.StepFact():
                if self.turn is not None:
                    self._step(self.turn, seq, fact)
            case f.TurnEnded():
                if self.turn is not None and self.turn.seq == fact.turn:
                    self._end_turn(self.turn, fact)
            case f.ToolFact() | f.ApprovalAsked() | f.ApprovalDecided():
                if self.turn is not None:
                    self.turn.call(seq, fact)
            case f.InputWithdrawn():
                self.pending.pop(fact.input, None)
            case f.InterruptAsked():
                if self.turn is not None and self.turn.seq == fact.turn:
                    self.turn.interrupted = fact
                elif fact.turn in self.helpers:
                    self.stopping = fact.turn
            case f.SessionStarted():
                self._start_session(fact)
            case f.SessionRenamed():
                self.title = fact.title
            case f.ContextSet():
                self.context, self.instructions = fact, fact.instructions
                if (
                    self.turn is not None
                    and fact.instead_of
                    and fact.model not in self.turn.fallen
                ):
                    self.turn.fall_back(fact.model)
            case f.GoalSet() | f.FolderSet() | f.ModeSet() | f.RuleSet():
                self._choose(fact)
            case f.FileFact():
                self._file(seq, fact)
            case f.EditFact():
                self._edit(seq, fact)
            case f.HelperStarted():
                self.helpers[seq] = fact
            case f.HelperEnded():
                self._end_helper(fact)
            case f.ThreadBound():
                self.threads[fact.runtime], self.bound[fact.runtime] = (
                    fact.thread,
                    seq,
                )
                self.behind -= {fact.runtime}
            case f.DeliveryOwed():
                self.deliveries[seq] = fact
            case f.DeliverySettled():
                if (
                    not isinstance(fact.outcome, f.DeliveryRefused)
                    or fact.outcome.final
                ):
                    self.deliveries.pop(fact.owed, None)
            case f.SessionAttended():
                self.ended = None
                self.owed.apply(seq, fact)
            case f.SessionEnded():
                self.ended = fact if self.owed.apply(seq, fact) else self.ended
            case f.HookFact():
                self.owed.apply(seq, fact)
            case f.DeliveryAttempted() | f.DeliveryPlaced() | f.Posted():
                pass
            case (
                f.AttachmentSettled()
                | f.InputEdited()
                | f.InputDeleted()
                | f.MemoryFact()
            ):
                pass
            case f.ThreadCompacted() | f.PlanUpdated():
                pass
            case f.ItemFact() | f.MessageGiven() | f.AccountFact() | f.JobFact():
                pass
            case unreachable:
                assert_never(unreachable)

    def _note_job(self, record: f.Record, fact: f.InputAdmitted) -> None:
        if fact.source == JOB and fact.key is not None:
            self.job_inputs[record.seq] = JobRun(fact.key, record.at_ms)

    def _choose(self, fact: f.GoalSet | f.FolderSet | f.ModeSet | f.RuleSet) -> None:
        """What a person sets for the session."""
        match fact:
            case f.GoalSet():
                self.goal = fact.goal
            case f.FolderSet():
                self.folder = fact.folder
            case f.ModeSet():
                self.mode = fact.mode
            case f.RuleSet():
                self.rules.pop(fact.rule, None)
                if fact.verdict is not None:
                    self.rules[fact.rule] = HeldRule(fact.verdict, fact.until_ms)
            case unreachable:
                assert_never(unreachable)

    def _file(
        self, seq: Seq, fact: f.FileKept | f.FilesPutBack | f.FilesSettled
    ) -> None:
        match fact:
            case f.FilesPutBack():
                self.putting_back[seq] = fact
            case f.FilesSettled():
                self.putting_back.pop(fact.put_back, None)
            case f.FileKept():
                pass
            case unreachable:
                assert_never(unreachable)

    def _start_turn(self, seq: Seq, fact: f.TurnStarted) -> None:
        self.ended = None
        self.turn = OpenTurn(seq, fact.origin, [])
        if isinstance(fact.origin, f.Takes):
            self._take(self.turn, fact.origin.input)

    def _take(self, turn: OpenTurn, input: Seq) -> None:
        said = self.pending.pop(input, None)
        turn.inputs.append(input)
        self.job = self.job_inputs.pop(input, None)
        if said is not None and said.instructions is not None:
            self.instructions = said.instructions

    def _end_turn(self, turn: OpenTurn, fact: f.TurnEnded) -> None:
        self.last_turn, self.turn = EndedTurn(turn, fact), None
        cut = self.cut_off
        if fact.outcome == "interrupted" and fact.cause not in f.STOPS:
            continued = cut is not None and cut.is_continued_by(turn)
            if cut is not None and continued and turn.last is None:
                cut.withdraw(
                    turn.seq
                )  # it came to nothing: what was cut off waits, as before
                return
            # A signal is no kill: what ends us in order is not an effect of what we do.
            killed = (
                cut.killed + (fact.cause == "killed")
                if cut is not None and continued
                else 0
            )
            waiting = frozenset(self.pending)
            key = continuation_key(turn)
            after = CutOff(
                self.last_turn, key, at=self.head, later=waiting, killed=killed
            )
            came_back = turn.last is not None or (
                cut is not None and cut.acknowledged_by is not None
            )
            if cut is not None and not came_back and not cut.undone_by:
                after.unseen, after.tried = cut.results(), cut.tried | cut.withdrawn
            self.cut_off = after
        elif cut is not None and cut.is_over(fact):
            self.cut_off = None

    def _step(
        self,
        turn: OpenTurn,
        seq: Seq,
        fact: f.StepStarted | f.StepSealed | f.StepLost | f.UsageReported,
    ) -> None:
        cut = self.cut_off
        match fact:
            case f.StepStarted():
                turn.step, turn.steps = seq, turn.steps + 1
                self._fall_behind(fact.model.partition(":")[0])
                if cut is not None and fact.acknowledges == cut.key:
                    cut.acknowledged_by = seq
                for taken in fact.takes:
                    self._take(turn, taken)
            case f.StepSealed():
                turn.step, turn.last, turn.lost, turn.last_lost = None, fact, 0, None
                turn.broken = turn.broken + 1 if fact.ended == "incomplete" else 0
                turn.settled, turn.compaction = [], None
                if fact.ended == "complete":
                    calls = (
                        part for part in fact.parts if isinstance(part, ToolCall)
                    )
                    turn.calls |= {
                        call.id: OpenCall(call, fact.step) for call in calls
                    }
            case f.StepLost():
                turn.step, turn.last_lost = None, fact
                turn.lost += 1
                if cut is not None and cut.acknowledged_by == fact.step:
                    cut.withdraw(turn.seq)
            case f.UsageReported():
                pass
            case unreachable:
                assert_never(unreachable)

    def _edit(
        self,
        seq: Seq,
        fact: f.Compacted
        | f.MessageHidden
        | f.MessageRedacted
        | f.Rewound
        | f.RewindWithdrawn,
    ) -> None:
        """What was said before changed: no external thread knows of that."""
        self._fall_behind()
        match fact:
            case f.Compacted():
                self.compacted = seq
                if self.turn is not None:
                    self.turn.compaction, self.turn.lost = "done", 0
            case f.Rewound():
                if self.cut_off is not None:
                    self.cut_off.rewind(seq, fact.to)
            case f.RewindWithdrawn():
                if self.cut_off is not None:
                    self.cut_off.undone_by -= {fact.rewind}
            case f.MessageHidden() | f.MessageRedacted():
                pass
            case unreachable:
                assert_never(unreachable)

    def _end_helper(self, fact: f.HelperEnded) -> None:
        helper = self.helpers.pop(fact.started, None)
        self.stopping = None
        failed = (
            helper is not None
            and helper.purpose == "summary"
            and fact.outcome != "done"
        )
        if self.turn is not None and failed:
            self.turn.compaction = "failed"

    def _start_session(self, fact: f.SessionStarted) -> None:
        """A fork inherits what was said, not what was under way: that is its parent's to finish,
        and here it was cut off; nothing takes it up by itself. What was allowed was allowed to its
        parent; what is forbidden stays forbidden."""
        self.started, self.folder = fact, fact.folder or self.folder
        self.mode, self.putting_back = "plan" if self.mode == "plan" else "ask", {}
        if self.turn is not None:
            self.last_turn = EndedTurn(
                self.turn, f.TurnEnded(self.turn.seq, "interrupted", "forked")
            )
        self.turn = self.cut_off = self.stopping = None
        self.rules = {
            rule: one for rule, one in self.rules.items() if one.verdict != "allow"
        }
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
