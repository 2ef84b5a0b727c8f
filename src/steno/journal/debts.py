"""What a session still owes to the outside: ends of visits, calls of plugins, deliveries.

A debt outlives the process that made it. The row for lists holds these folds, so the next process
to start finds what is owed without reading a session. Their size is that of what is open.
"""

from typing import assert_never

from msgspec import Struct

from steno.journal import facts as f
from steno.journal.parts import Seq

SETTLED_MAX = 5
"""Of those that are settled, the last ones are remembered, for people."""


class OwedHook(Struct, omit_defaults=True):
    """A call to plugins. `by` is the owner whose process calls them, or did last; `left` are those
    not called yet, and none where the fact names none. `tries` counts the owners that took it over
    from a dead one."""

    by: str = ""
    left: tuple[str, ...] = ()
    tries: int = 0


class Owed(Struct, omit_defaults=True):
    """`attending` are the visits that are open, with their owners. `ended` is the visit whose end
    was the end of the session; 0 if there is none, or another visit began since."""

    attending: dict[Seq, str] = {}
    hooks: dict[Seq, OwedHook] = {}
    ended: Seq = 0

    def anything(self) -> bool:
        return bool(self.attending or self.hooks)

    def owners(self) -> frozenset[str]:
        """The owners that settle it. If they are dead, another process must."""
        return frozenset(
            (*self.attending.values(), *(hook.by for hook in self.hooks.values()))
        )

    def apply(
        self,
        seq: Seq,
        fact: f.SessionAttended
        | f.SessionEnded
        | f.HookOwed
        | f.HookAttempted
        | f.HookDone,
    ) -> bool:
        """Take one fact in; whether it was the end of the session."""
        match fact:
            case f.SessionAttended():
                self.attending[seq], self.ended = fact.by, 0
            case f.SessionEnded():
                return self._end(fact)
            case f.HookOwed():
                if fact.attended is None or fact.attended == self.ended:
                    self.hooks[seq] = OwedHook(fact.by, fact.plugins)
            case f.HookAttempted():
                if (owed := self.hooks.get(fact.owed)) is not None:
                    owed.by, owed.tries = fact.by, owed.tries + 1
            case f.HookDone():
                self._done(fact)
            case unreachable:
                assert_never(unreachable)
        return False

    def _end(self, fact: f.SessionEnded) -> bool:
        """The end of the last open visit is the end of the session. A visit that had ended before
        ends nothing."""
        if fact.attended is None:
            self.ended = 0
            return True
        if self.attending.pop(fact.attended, None) is None:
            return False
        self.ended = 0 if self.attending else fact.attended
        return not self.attending

    def _done(self, fact: f.HookDone) -> None:
        owed = self.hooks.get(fact.owed)
        if owed is None:
            return
        owed.left = (
            tuple(name for name in owed.left if name != fact.plugin)
            if fact.plugin
            else ()
        )
        if not owed.left:
            del self.hooks[fact.owed]


class OwedDelivery(Struct, omit_defaults=True):
    """`taken` is the fact that took the input, and `turn` the turn whose end is the answer: 0 while
    there is none. Until the first try, a turn that takes the input again or continues that one
    takes its place; from then on it stays, so that one key always stands for one text. `since_ms`
    is when it became owed, or due. `by` is the owner of the try under way, if it is alive; `cause`
    is why the last try failed.

    In a chat the text has parts, a message for each: `placed` are those that are there, `trying`
    those that may be, `attempts` how often each was tried. They decide no turn: what a message
    shows can be changed until the delivery is settled."""

    input: Seq
    expires_s: int
    since_ms: int
    taken: Seq = 0
    turn: Seq = 0
    tries: int = 0
    tried_ms: int = 0
    by: str = ""
    cause: str = ""
    channel: str = ""
    show: str = "answer"
    placed: dict[int, str] = {}
    trying: tuple[int, ...] = ()
    attempts: dict[int, int] = {}


DeliveryNews = (
    f.DeliveryOwed
    | f.DeliveryAttempted
    | f.DeliveryPlaced
    | f.DeliverySettled
    | f.InputWithdrawn
    | f.TurnStarted
    | f.StepStarted
    | f.TurnEnded
)
"""The facts that can change what must be delivered."""


class OwedDeliveries(Struct, omit_defaults=True):
    """`open` are those that are owed. `settled` are the last ones that were, each with the fact
    that settled it."""

    open: dict[Seq, OwedDelivery] = {}
    settled: list[tuple[Seq, Seq]] = []

    def apply(self, seq: Seq, at_ms: int, fact: DeliveryNews) -> bool:
        """Take one fact in; whether anything changed."""
        match fact:
            case f.DeliveryOwed():
                self.open[seq] = OwedDelivery(
                    fact.target,
                    fact.expires_s,
                    at_ms,
                    channel=fact.channel,
                    show=fact.show,
                )
                return True
            case f.DeliveryAttempted():
                if (one := self.open.get(fact.owed)) is None:
                    return False
                if fact.part is not None:
                    return _try_part(one, fact.part, fact.by, at_ms)
                one.by, one.tries, one.tried_ms = fact.by, one.tries + 1, at_ms
                one.cause, one.turn = "", one.turn if fact.turn is None else fact.turn
                return True
            case f.DeliveryPlaced():
                if (one := self.open.get(fact.owed)) is None:
                    return False
                one.placed[fact.part], one.by = fact.message, ""
                one.trying = tuple(part for part in one.trying if part != fact.part)
                return True
            case f.DeliverySettled(owed=owed, outcome=outcome):
                if (one := self.open.get(owed)) is None:
                    return False
                if isinstance(outcome, f.DeliveryRefused) and not outcome.unknown:
                    one.trying = ()
                one.by, one.cause = (
                    "",
                    "" if isinstance(outcome, f.Delivered) else outcome.cause,
                )
                if not isinstance(outcome, f.DeliveryRefused) or outcome.final:
                    self._close(owed, seq)
                return True
            case f.InputWithdrawn():
                void = [
                    owed for owed, one in self.open.items() if one.input == fact.input
                ]
                for owed in void:
                    self._close(owed, seq)
                return bool(void)
            case f.TurnStarted() | f.StepStarted() | f.TurnEnded():
                return bool(self.open) and self._answer(seq, at_ms, fact)
            case unreachable:
                assert_never(unreachable)

    def _answer(
        self, seq: Seq, at_ms: int, fact: f.TurnStarted | f.StepStarted | f.TurnEnded
    ) -> bool:
        taken, goes_on = f.taken_by(fact), None
        if isinstance(fact, f.TurnStarted) and isinstance(fact.origin, f.Continues):
            goes_on = fact.origin.turn
        changed = False
        for one in self.open.values():
            if one.tries:
                continue
            if one.input in taken:
                one.taken, one.turn, changed = seq, 0, True
            elif one.turn and one.turn == goes_on:
                one.turn, changed = 0, True
            elif isinstance(fact, f.TurnEnded) and one.taken and not one.turn:
                one.turn, one.since_ms, changed = fact.turn, at_ms, True
        return changed

    def _close(self, owed: Seq, settled: Seq) -> None:
        del self.open[owed]
        self.settled = [*self.settled, (owed, settled)][-SETTLED_MAX:]


def _try_part(one: OwedDelivery, part: int, by: str, at_ms: int) -> bool:
    one.by, one.tried_ms = by, at_ms
    one.trying = (*(other for other in one.trying if other != part), part)
    one.attempts[part] = one.attempts.get(part, 0) + 1
    return True
