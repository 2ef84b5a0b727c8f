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

from steno.journal.facts import (
    ApprovalAsked,
    ApprovalDecided,
    Compacted,
    ContextSet,
    DeliveryFact,
    GoalSet,
    HelperFact,
    HookAttempted,
    HookDone,
    HookOwed,
    InputAdmitted,
    InputFact,
    InterruptAsked,
    MemoryFact,
    MessageHidden,
    MessageRedacted,
    PlanUpdated,
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
    ThreadCompacted,
    ToolFact,
    TurnEnded,
    TurnStarted,
    UsageReported,
    taken_by,
)
from steno.journal.parts import Seq
from steno.journal.state import State


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

    def apply(self, record: Record) -> None:
        seq, fact, before = record.seq, record.fact, self._state.turn
        self._state.apply(record)
        turn = self._state.turn or before
        if turn is not None and not isinstance(fact, InputAdmitted | SessionStarted):
            self._turns.setdefault(turn.seq, []).append(seq)
        match fact:
            case TurnStarted() | StepStarted():
                taken = taken_by(fact)
                if taken and turn is not None:
                    self._said_in = turn.seq
                    self._turns[turn.seq] += taken
            case StepSealed() | ToolFact() | TurnEnded():
                pass  # carried with their turn
            case InputFact() | SessionAttended() | DeliveryFact() | HelperFact():
                pass  # what is open of these, the state knows
            case SessionStarted():
                kept = ("context", "title", "compacted", "goal", "rule")
                self._latest = {
                    name: at for name, at in self._latest.items() if name.split(" ")[0] in kept
                }
                self._latest["started"] = seq
                self._ended, self._hooks = (), {}
            case ContextSet():
                self._latest["context"] = seq
            case SessionRenamed():
                self._latest["title"] = seq
            case GoalSet():
                self._latest["goal"] = seq
            case RuleSet():
                self._latest.pop(f"rule {fact.rule}", None)
                if fact.verdict is not None:
                    self._latest[f"rule {fact.rule}"] = seq
            case SessionEnded():
                if self._state.ended is fact:
                    self._ended = (seq,) if fact.attended is None else (fact.attended, seq)
            case HookOwed():
                self._hooks[seq] = [*self._ended, seq] if fact.attended is not None else [seq]
            case HookAttempted() | HookDone():
                self._hooks.get(fact.owed, []).append(seq)
            case Compacted():
                self._latest["compacted"] = seq
            case ThreadBound():
                self._latest[f"thread {fact.runtime}"] = seq
            case MessageHidden():
                self._hidden[fact.target] = seq
            case Rewound():
                self._rewinds.add(seq)
            case RewindWithdrawn():
                self._rewinds.discard(fact.rewind)
            case StepLost() | ApprovalAsked() | ApprovalDecided() | InterruptAsked():
                pass  # carried with their turn
            case UsageReported() | ThreadCompacted() | PlanUpdated() | MemoryFact():
                pass  # neither the state nor the history looks at them
            case MessageRedacted():
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
        }
        kept.update(state.attending)
        for hook in state.hooks:
            kept.update(self._hooks[hook])
        for seqs in self._turns.values():
            kept.update(seqs)
        kept.update(seq for seq in self._rewinds if seq > self._said_in)
        kept.update(at for target, at in self._hidden.items() if target in kept)
        return tuple(sorted(kept))

    def _forget(self) -> None:
        """Facts of turns before the one that took the last input, but not of the last turn that
        ended; and of hooks that are done."""
        if len(self._hooks) > len(self._state.hooks):
            self._hooks = {
                hook: seqs for hook, seqs in self._hooks.items() if hook in self._state.hooks
            }
        last = self._state.last_turn
        keep = 0 if last is None else last.turn.seq
        if any(turn < self._said_in and turn != keep for turn in self._turns):
            self._turns = {
                t: seqs for t, seqs in self._turns.items() if t >= self._said_in or t == keep
            }


def needs_everything(record: Record, upto: Seq, carried: frozenset[Seq], made: Seq) -> bool:
    """Whether a fact after the seq brings back what was said before it, so that all of that must be
    read. `made` is the place of the summary."""
    fact = record.fact
    if isinstance(fact, (MessageHidden, MessageRedacted)):
        return record.seq > made and (fact.target <= upto or fact.target == made)
    if isinstance(fact, Rewound):
        return fact.to <= upto
    if isinstance(fact, TurnStarted):
        origin = fact.origin
        back = origin.input if isinstance(origin, Takes) else origin.turn
        return back <= upto and back not in carried
    return False
