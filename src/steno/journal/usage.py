"""What a session cost, as far as the providers said. Unknown is not 0."""

from msgspec import Struct

from steno.journal.facts import (
    Compacted,
    HelperEnded,
    Record,
    StepLost,
    StepSealed,
    Usage,
    UsageReported,
)

_COUNTED = frozenset((StepSealed, UsageReported, HelperEnded, Compacted, StepLost))
_UNKNOWN = Usage()


class UsageTotal(Struct, omit_defaults=True):
    """Sums of what was reported. With `unreported` calls, each sum is a lower bound; a sum nobody
    reported anything for is None."""

    calls: int = 0
    unreported: int = 0
    input: int | None = None
    output: int | None = None
    cached: int | None = None
    reasoning: int | None = None

    def apply(self, record: Record) -> None:
        if type(record.fact) not in _COUNTED:
            return
        match record.fact:
            case StepSealed():
                self._count(record.fact.usage)
            case UsageReported():
                self.unreported -= 1
                self.calls -= 1
                self._count(record.fact.usage)
            case HelperEnded(sent="yes" | "unknown"):
                self._count(record.fact.usage)
            case Compacted(usage=Usage() as usage):
                self._count(usage)
            case StepLost(sent="yes" | "unknown"):
                self._count(None)
            case _:
                pass

    def _count(self, usage: Usage | None) -> None:
        self.calls += 1
        if usage is None or usage == _UNKNOWN:
            self.unreported += 1
            return
        self.input = _plus(self.input, usage.input)
        self.output = _plus(self.output, usage.output)
        self.cached = _plus(self.cached, usage.cached)
        self.reasoning = _plus(self.reasoning, usage.reasoning)


def _plus(total: int | None, reported: int | None) -> int | None:
    return total if reported is None else (total or 0) + reported
