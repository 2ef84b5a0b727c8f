"""What a session cost, as far as the providers said. Unknown is not 0."""

from typing import assert_never

from msgspec import Struct

from steno.journal import facts as f

_UNKNOWN = f.Usage()

_free: set[type] = set()
"""The kinds of facts that cost nothing, as far as any was met: most facts are of these."""


class UsageTotal(Struct, omit_defaults=True):
    """Sums of what was reported. With `unreported` calls, each sum is a lower bound; it is None
    where no provider reported anything."""

    calls: int = 0
    unreported: int = 0
    input: int | None = None
    output: int | None = None
    cached: int | None = None
    reasoning: int | None = None

    def apply(self, record: f.Record) -> None:
        fact = record.fact
        if type(fact) in _free:
            return
        match fact:
            case f.StepSealed():
                self._count(fact.usage)
            case f.UsageReported():
                self.unreported -= 1
                self.calls -= 1
                self._count(fact.usage)
            case f.HelperEnded():
                if fact.sent != "no":
                    self._count(fact.usage)
            case f.Compacted():
                if fact.usage is not None:
                    self._count(fact.usage)
            case f.StepLost():
                if fact.sent != "no":
                    self._count(None)
            case (
                f.InputFact()
                | f.TurnStarted()
                | f.TurnEnded()
                | f.StepStarted()
                | f.ToolFact()
                | f.SessionStarted()
                | f.SessionRenamed()
                | f.ContextFact()
                | f.ApprovalFact()
                | f.InterruptAsked()
                | f.HelperStarted()
                | f.ThreadFact()
                | f.MemoryFact()
                | f.OutsideFact()
                | f.MessageHidden()
                | f.MessageRedacted()
                | f.Rewound()
                | f.RewindWithdrawn()
                | f.ItemFact()
                | f.FileFact()
            ):
                _free.add(type(fact))
            case unreachable:
                assert_never(unreachable)

    def add(self, other: "UsageTotal") -> None:
        """Take in the usage of another session."""
        self.calls += other.calls
        self.unreported += other.unreported
        self._sum(other)

    def _sum(self, usage: "f.Usage | UsageTotal") -> None:
        self.input = _plus(self.input, usage.input)
        self.output = _plus(self.output, usage.output)
        self.cached = _plus(self.cached, usage.cached)
        self.reasoning = _plus(self.reasoning, usage.reasoning)

    def _count(self, usage: f.Usage | None) -> None:
        self.calls += 1
        if usage is None or usage == _UNKNOWN:
            self.unreported += 1
            return
        self._sum(usage)


def _plus(total: int | None, reported: int | None) -> int | None:
    return total if reported is None else (total or 0) + reported
