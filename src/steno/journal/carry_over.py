"""Which facts up to a seq still matter to a runner, when a summary stands for what was said until
then.

A runner that reads those and then everything after the seq has the state and the history that
reading everything gives. So what was compacted away costs nothing when a session is opened. The
transcript for people, counts and search still read it all.

A sequence of facts, and what is carried over 9 by a summary of everything up to there:

    1 session.started                                carried: where the session comes from
    2 goal.set "a"                                   not carried: 6 took its place
    3 input.admitted · 4 turn.started (takes 3) · 5 turn.ended (4, done)           summarised
    6 goal.set "b"                                   carried: the goal that holds
    7 input.admitted · 8 turn.started (takes 7) · 9 turn.ended (8, done)
                                                     carried: the last turn, with its input
    10 input.admitted · 11 compacted (upto 9, carries 1 6 7 8 9)       10 comes later and is read
"""

from typing import assert_never

from msgspec import Struct, field

from steno.journal import facts as f
from steno.journal.parts import Seq
from steno.journal.state import State

_LATEST: dict[type, str] = {
    f.ContextSet: "context",
    f.SessionRenamed: "title",
    f.SessionTitled: "proposed title",
    f.Compacted: "compacted",
    f.GoalSet: "goal",
    f.ModeSet: "mode",
    f.FolderSet: "folder",
}
"""Facts of which the last one counts."""


class Carry(Struct):
    """Fold facts up to the seq; then `seqs` are those to carry over it."""

    _state: State = field(default_factory=State)
    _latest: dict[str, Seq] = {}
    _turns: dict[Seq, list[Seq]] = {}
    _said_in: Seq = 0
    _hidden: dict[Seq, Seq] = {}
    _rewinds: set[Seq] = set()
    _ended: tuple[Seq, ...] = ()
    _hooks: dict[Seq, list[Seq]] = {}
    _notes: tuple[Seq, ...] = ()
    _attached: dict[Seq, list[Seq]] = {}

    def apply(self, record: f.Record) -> None:
        seq, fact, before = record.seq, record.fact, self._state.turn
        self._state.apply(record)
        turn = self._state.turn or before
        if turn is not None and not isinstance(
            fact, f.InputAdmitted | f.SessionStarted
        ):
            self._turns.setdefault(turn.seq, []).append(seq)
        match fact:
            case f.TurnStarted() | f.StepStarted():
                taken = f.taken_by(fact)
                self._notes = () if isinstance(fact, f.TurnStarted) else self._notes
                if taken and turn is not None:
                    self._said_in = turn.seq
                    self._turns[turn.seq] += taken
            case f.StepSealed() | f.ToolFact() | f.TurnEnded():
                pass  # carried with their turn
            case f.AttachmentSettled():
                self._attached.setdefault(fact.input, []).append(seq)
            case f.InputEdited() | f.InputDeleted() | f.Posted():
                self._notes = (*self._notes, seq)  # the next turn tells of them
            case (
                f.InputFact()
                | f.SessionAttended()
                | f.DeliveryFact()
                | f.HelperFact()
            ):
                pass  # what is open of these, the state knows
            case f.SessionStarted():
                kept = (*_LATEST.values(), "rule")
                self._latest = {
                    name: at
                    for name, at in self._latest.items()
                    if name.split(" ")[0] in kept
                }
                self._latest["started"] = seq
                self._ended, self._hooks = (), {}
            case f.ContextFact() | f.SessionRenamed() | f.SessionTitled():
                self._latest[_LATEST[type(fact)]] = seq
            case f.ModeSet() | f.Compacted():
                self._latest[_LATEST[type(fact)]] = seq
            case f.RuleSet():
                self._latest.pop(f"rule {fact.rule}", None)
                if fact.verdict is not None:
                    self._latest[f"rule {fact.rule}"] = seq
            case f.FileFact():
                pass  # what is not settled of these, the state knows
            case f.SessionEnded():
                if self._state.ended is fact:
                    self._ended = (
                        (seq,) if fact.attended is None else (fact.attended, seq)
                    )
            case f.HookOwed():
                self._hooks[seq] = (
                    [*self._ended, seq] if fact.attended is not None else [seq]
                )
            case f.HookAttempted() | f.HookDone():
                self._hooks.get(fact.owed, []).append(seq)
            case f.ThreadBound():
                self._latest[f"thread {fact.runtime}"] = seq
            case f.MessageHidden():
                self._hidden[fact.target] = seq
            case f.Rewound():
                self._rewinds.add(seq)
            case f.RewindWithdrawn():
                self._rewinds.discard(fact.rewind)
            case (
                f.StepLost()
                | f.ApprovalAsked()
                | f.ApprovalDecided()
                | f.InterruptAsked()
            ):
                pass  # carried with their turn
            case (
                f.UsageReported()
                | f.ThreadCompacted()
                | f.PlanUpdated()
                | f.MemoryFact()
            ):
                pass  # neither the state nor the history looks at them
            case f.ItemFact():
                pass  # the summary stands for what they say
            case f.AccountFact() | f.JobFact():
                pass  # nothing is said in such journals
            case f.MessageRedacted():
                pass  # the text is gone from the fact itself
            case unreachable:
                assert_never(unreachable)
        self._forget()

    def seqs(self) -> tuple[Seq, ...] | None:
        """None while a turn waits to be taken up: then too much hangs on what was before it."""
        state = self._state
        if state.cut_off is not None:
            return None
        kept = {
            *self._latest.values(),
            *self._ended,
            *state.pending,
            *state.deliveries,
            *state.helpers,
            *self._notes,
            *state.putting_back,
        }
        kept.update(state.attending)
        for hook in state.hooks:
            kept.update(self._hooks[hook])
        for seqs in self._turns.values():
            kept.update(seqs)
        for input, seqs in self._attached.items():
            kept.update(seqs if input in kept else ())
        kept.update(seq for seq in self._rewinds if seq > self._said_in)
        kept.update(at for target, at in self._hidden.items() if target in kept)
        return tuple(sorted(kept))

    def _forget(self) -> None:
        """Facts of turns before the one that took the last input, but not of the last turn that
        ended; and of hooks that are done."""
        if len(self._hooks) > len(self._state.hooks):
            self._hooks = {
                hook: seqs
                for hook, seqs in self._hooks.items()
                if hook in self._state.hooks
            }
        last = self._state.last_turn
        keep = 0 if last is None else last.turn.seq
        if any(turn < self._said_in and turn != keep for turn in self._turns):
            self._turns = {
                t: seqs
                for t, seqs in self._turns.items()
                if t >= self._said_in or t == keep
            }


def needs_everything(
    record: f.Record, upto: Seq, carried: frozenset[Seq], made: Seq
) -> bool:
    """Whether a fact after the seq brings back what was said before it, so that all of that must be
    read. `made` is the place of the summary."""
    fact = record.fact
    if isinstance(fact, (f.MessageHidden, f.MessageRedacted)):
        return record.seq > made and (fact.target <= upto or fact.target == made)
    if isinstance(fact, f.ItemsWithdrawn):
        return record.seq > made and any(first <= upto for first, _ in fact.runs)
    if isinstance(fact, f.Rewound):
        return fact.to <= upto
    if isinstance(fact, f.TurnStarted):
        origin = fact.origin
        back = origin.input if isinstance(origin, f.Takes) else origin.turn
        return back <= upto and back not in carried
    return False
