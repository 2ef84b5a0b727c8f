"""What a session has spent of its budget: steps, tokens as far as the providers said, and time at
work."""

from typing import assert_never

from msgspec import Struct

from steno.journal import facts as f
from steno.journal.parts import Seq, Unknown


class Spent(Struct):
    """`turn_tokens` are those of the turn that began last. `worked_ms` is the time that models and
    tools took together, without what a killed process was doing: how long that took is not known.
    A fork begins anew."""

    steps: int = 0
    tokens: int = 0
    turn_tokens: int = 0
    worked_ms: int = 0
    _open: dict[Seq, int] = {}

    def apply(self, record: f.Record) -> None:
        fact = record.fact
        match fact:
            case f.TurnStarted():
                self.turn_tokens = 0
            case f.StepStarted():
                self.steps += 1
                self._open[record.seq] = record.at_ms
            case f.StepSealed():
                self._count(fact.usage)
                self._close(fact.step, record.at_ms, fact.ended != "interrupted")
            case f.InputFact() | f.TurnEnded() | f.InterruptAsked():
                pass
            case f.ToolStarted():
                self._open[record.seq] = record.at_ms
            case f.ToolSettled():
                if fact.started is not None:
                    known = not isinstance(fact.outcome, Unknown)
                    self._close(fact.started, record.at_ms, known)
            case f.HelperEnded() | f.UsageReported():
                self._count(fact.usage)
            case f.StepLost():
                self._close(fact.step, record.at_ms, fact.cause not in f.CUT_OFF)
            case f.SessionStarted():
                self.steps = self.tokens = self.turn_tokens = self.worked_ms = 0
                self._open = {}
            case (
                f.SessionRenamed()
                | f.OutputLate()
                | f.ApprovalFact()
                | f.ContextFact()
            ):
                pass
            case f.EditFact() | f.HelperStarted() | f.ThreadFact() | f.MemoryFact():
                pass
            case f.OutsideFact() | f.FileFact() | f.ItemFact():
                pass
            case unreachable:
                assert_never(unreachable)

    def _count(self, usage: f.Usage | None) -> None:
        if usage is not None:
            tokens = (usage.input or 0) + (usage.output or 0)
            self.tokens += tokens
            self.turn_tokens += tokens

    def _close(self, started: Seq, at_ms: int, counts: bool) -> None:
        began_ms = self._open.pop(started, None)
        if counts and began_ms is not None:
            self.worked_ms += max(at_ms - began_ms, 0)
