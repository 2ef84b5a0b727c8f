"""What a session still owes to the outside: an end to each open visit, a call to plugins, a delivery.

A debt outlives the process that made it. `State` and the row for lists hold these folds, so the next
process to start finds what is owed in the rows, without reading a session. Their size is that of what
is open.
"""

from msgspec import Struct

from steno.journal.facts import (
    AnyFact,
    Continues,
    Delivered,
    DeliveryAttempted,
    DeliveryOwed,
    DeliveryRefused,
    DeliverySettled,
    HookAttempted,
    HookDone,
    HookOwed,
    InputWithdrawn,
    Record,
    SessionAttended,
    SessionEnded,
    StepStarted,
    TurnEnded,
    TurnStarted,
    taken_by,
)
from steno.journal.parts import Seq

SETTLED_MAX = 5
"""Of those that are settled, the last ones are remembered, for people."""


class OwedHook(Struct, omit_defaults=True):
    """`by` is the owner who tells the plugins, or did last; `left` are those that have not been
    told, and none where the fact names none. `tries` counts those who took it over from a dead
    one."""

    by: str = ""
    left: tuple[str, ...] = ()
    tries: int = 0


class Owed(Struct, omit_defaults=True):
    """`attending` are the visits that are open, and whose they are. `ended` is the visit whose end
    was the end of the session; 0 if there is none, or somebody came since."""

    attending: dict[Seq, str] = {}
    hooks: dict[Seq, OwedHook] = {}
    ended: Seq = 0

    def anything(self) -> bool:
        return bool(self.attending or self.hooks)

    def owners(self) -> frozenset[str]:
        """Those who look after it. If they are dead, somebody else must."""
        return frozenset((*self.attending.values(), *(hook.by for hook in self.hooks.values())))

    def apply(self, seq: Seq, fact: AnyFact) -> bool:
        """Take one fact in; whether it was the end of the session."""
        match fact:
            case SessionAttended():
                self.attending[seq], self.ended = fact.by, 0
            case SessionEnded():
                return self._end(fact)
            case HookOwed():
                if fact.attended is None or fact.attended == self.ended:
                    self.hooks[seq] = OwedHook(fact.by, fact.plugins)
            case HookAttempted():
                if (owed := self.hooks.get(fact.owed)) is not None:
                    owed.by, owed.tries = fact.by, owed.tries + 1
            case HookDone():
                self._done(fact)
            case _:
                pass
        return False

    def _end(self, fact: SessionEnded) -> bool:
        """Of several visits only the last to end is the session's end. One that had ended before
        ends nothing."""
        if fact.attended is None:
            self.ended = 0
            return True
        if self.attending.pop(fact.attended, None) is None:
            return False
        self.ended = 0 if self.attending else fact.attended
        return not self.attending

    def _done(self, fact: HookDone) -> None:
        owed = self.hooks.get(fact.owed)
        if owed is None:
            return
        owed.left = tuple(name for name in owed.left if name != fact.plugin) if fact.plugin else ()
        if not owed.left:
            del self.hooks[fact.owed]


class OwedDelivery(Struct, omit_defaults=True):
    """`taken` is the fact that took the input, and `turn` the turn whose end is the answer: 0 while
    there is none. Until somebody tried, a turn that takes the input again or goes on with that one
    takes its place; then it stays, so that under one key the same is sent. `since_ms` is when it
    became owed, or due. `by` tries right now, if alive; `cause` is why the last try failed."""

    input: Seq
    expires_s: int
    since_ms: int
    taken: Seq = 0
    turn: Seq = 0
    tries: int = 0
    tried_ms: int = 0
    by: str = ""
    cause: str = ""


class Deliveries(Struct, omit_defaults=True):
    """`open` are those that are owed. `settled` are the last ones that are not any more, each with
    the fact that says so."""

    open: dict[Seq, OwedDelivery] = {}
    settled: list[tuple[Seq, Seq]] = []

    def apply(self, record: Record) -> bool:
        """Take one fact in; whether anything changed."""
        fact = record.fact
        match fact:
            case DeliveryOwed():
                self.open[record.seq] = OwedDelivery(fact.target, fact.expires_s, record.at_ms)
                return True
            case DeliveryAttempted() if (one := self.open.get(fact.owed)) is not None:
                one.by, one.tries, one.tried_ms, one.cause = (
                    fact.by,
                    one.tries + 1,
                    record.at_ms,
                    "",
                )
                one.turn = one.turn if fact.turn is None else fact.turn
                return True
            case DeliverySettled() if (one := self.open.get(fact.owed)) is not None:
                one.by, one.cause = (
                    "",
                    "" if isinstance(fact.outcome, Delivered) else fact.outcome.cause,
                )
                if not isinstance(fact.outcome, DeliveryRefused) or fact.outcome.final:
                    self._close(fact.owed, record.seq)
                return True
            case InputWithdrawn():
                void = [seq for seq, one in self.open.items() if one.input == fact.input]
                for seq in void:
                    self._close(seq, record.seq)
                return bool(void)
            case TurnStarted() | StepStarted() | TurnEnded():
                return bool(self.open) and self._answer(record.seq, record.at_ms, fact)
            case _:
                return False

    def _answer(self, seq: Seq, at_ms: int, fact: TurnStarted | StepStarted | TurnEnded) -> bool:
        taken = taken_by(fact)
        goes_on = (
            fact.origin.turn
            if isinstance(fact, TurnStarted) and isinstance(fact.origin, Continues)
            else None
        )
        changed = False
        for one in self.open.values():
            if one.tries:
                continue
            if one.input in taken:
                one.taken, one.turn, changed = seq, 0, True
            elif one.turn and one.turn == goes_on:
                one.turn, changed = 0, True
            elif isinstance(fact, TurnEnded) and one.taken and not one.turn:
                one.turn, one.since_ms, changed = fact.turn, at_ms, True
        return changed

    def _close(self, owed: Seq, settled: Seq) -> None:
        del self.open[owed]
        self.settled = [*self.settled, (owed, settled)][-SETTLED_MAX:]
