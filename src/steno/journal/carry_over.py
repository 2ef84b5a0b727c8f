"""Which facts up to a seq still matter to whoever runs the session, when a summary stands for what
was said until then.

A runner that reads those and then everything after the seq has the state and the history that
reading everything gives. So what was compacted away costs nothing when a session is opened. The
transcript for people, counts and search still read it all.
"""

from msgspec import Struct, field

from steno.journal.facts import (
    Compacted,
    ContextSet,
    Continues,
    GoalSet,
    HookAttempted,
    HookDone,
    HookOwed,
    InputAdmitted,
    MessageHidden,
    MessageRedacted,
    Record,
    RewindWithdrawn,
    Rewound,
    RuleSet,
    SessionEnded,
    SessionRenamed,
    SessionStarted,
    StepStarted,
    Takes,
    ThreadBound,
    TurnStarted,
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
            case SessionEnded(attended=attended) if self._state.ended is fact:
                self._ended = (seq,) if attended is None else (attended, seq)
            case HookOwed():
                self._hooks[seq] = [*self._ended, seq] if fact.attended is not None else [seq]
            case HookAttempted() | HookDone():
                self._hooks.get(fact.owed, []).append(seq)
            case Compacted():
                self._latest["compacted"] = seq
            case ThreadBound():
                self._latest[f"thread {fact.runtime}"] = seq
            case TurnStarted(origin=Takes(input=input)):
                self._said_in = seq
                self._turns[seq].append(input)
            case StepStarted(takes=taken) if taken and turn is not None:
                self._said_in = turn.seq
                self._turns[turn.seq] += taken
            case MessageHidden():
                self._hidden[fact.target] = seq
            case Rewound():
                self._rewinds.add(seq)
            case RewindWithdrawn():
                self._rewinds.discard(fact.rewind)
            case _:
                pass
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
    match record.fact:
        case MessageHidden(target=target) | MessageRedacted(target=target):
            return record.seq > made and (target <= upto or target == made)
        case Rewound(to=to):
            return to <= upto
        case TurnStarted(origin=Continues(turn=turn)):
            return turn <= upto and turn not in carried
        case TurnStarted(origin=Takes(input=input)):
            return input <= upto and input not in carried
        case _:
            return False
