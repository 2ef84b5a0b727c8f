"""What a session must still deliver to somebody outside: which answer, how often that was tried,
and by whom.

It is part of the row for lists, so whoever starts finds what is owed without reading the session.
Its size is that of what is open.
"""

from msgspec import Struct

from steno.journal.facts import (
    Continues,
    Delivered,
    DeliveryAttempted,
    DeliveryOwed,
    DeliveryRefused,
    DeliverySettled,
    InputWithdrawn,
    Record,
    StepStarted,
    TurnEnded,
    TurnStarted,
    taken_by,
)
from steno.journal.parts import Seq

SETTLED_MAX = 5
"""Of those that are settled, the last ones are remembered, for people."""


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
