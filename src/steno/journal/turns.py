"""The turns of a session: who took which input, which turn took up which, and which are undone.

It says about turns what `history` does to messages: a rewind that names a turn leaves out that turn
and all after it, one that names a message leaves out the turns that came after the message.
"""

from typing import assert_never

from msgspec import Struct

from steno.journal import facts as f
from steno.journal.parts import Seq


class Taken(Struct, frozen=True):
    """Where an input was taken: by which turn, and by which fact of it."""

    turn: Seq
    at: Seq


class Turns(Struct):
    """`rewinds` are those that can be taken back, with the turns that each leaves out."""

    origins: dict[Seq, f.Takes | f.Continues] = {}
    rewinds: dict[Seq, tuple[Seq, ...]] = {}
    _taken: dict[Seq, list[Taken]] = {}

    def apply(self, record: f.Record) -> None:
        fact = record.fact
        match fact:
            case f.TurnStarted():
                self.origins[record.seq] = fact.origin
                if isinstance(fact.origin, f.Takes):
                    self._taken.setdefault(fact.origin.input, []).append(
                        Taken(record.seq, record.seq)
                    )
            case f.StepStarted():
                for input in fact.takes:
                    self._taken.setdefault(input, []).append(
                        Taken(next(reversed(self.origins), 0), record.seq)
                    )
            case (
                f.InputFact()
                | f.StepSealed()
                | f.ToolFact()
                | f.TurnEnded()
                | f.InterruptAsked()
            ):
                pass
            case f.Rewound():
                first = self._first_left_out(fact.to)
                self.rewinds[record.seq] = tuple(
                    turn for turn in self.origins if turn >= first
                )
            case f.RewindWithdrawn():
                self.rewinds.pop(fact.rewind, None)
            case (
                f.StepLost()
                | f.UsageReported()
                | f.SessionStarted()
                | f.SessionRenamed()
            ):
                pass
            case f.ApprovalFact() | f.ContextFact() | f.HelperFact() | f.ThreadFact():
                pass
            case (
                f.MemoryFact()
                | f.Compacted()
                | f.MessageHidden()
                | f.MessageRedacted()
            ):
                pass
            case f.OutsideFact() | f.FileFact() | f.ItemFact():
                pass
            case unreachable:
                assert_never(unreachable)

    def undone(self) -> frozenset[Seq]:
        return frozenset(
            turn for left_out in self.rewinds.values() for turn in left_out
        )

    def last_standing(self) -> Seq | None:
        """The last turn that is not undone."""
        undone = self.undone()
        return next(
            (turn for turn in reversed(self.origins) if turn not in undone), None
        )

    def prompt(self, turn: Seq) -> Seq | None:
        """The input that a turn was begun for, through the turns that it took up."""
        origin = self.origins.get(turn)
        while isinstance(origin, f.Continues):
            origin = self.origins.get(origin.turn)
        return None if origin is None else origin.input

    def taken_at(self, input: Seq) -> Seq | None:
        """The fact that took an input last."""
        return self._taken[input][-1].at if input in self._taken else None

    def answer_to(self, input: Seq) -> tuple[Seq, ...]:
        """Where the last answer to an input begins: the fact that took it, and the turns that took
        that one up."""
        if input not in self._taken:
            return ()
        taken = self._taken[input][-1]
        chain = [taken.turn]
        for turn, origin in self.origins.items():
            if isinstance(origin, f.Continues) and origin.turn in chain:
                chain.append(turn)
        return (taken.at, *chain[1:])

    def _first_left_out(self, to: Seq) -> Seq:
        """Turns from here on are left out. An input stands where the last turn that is not undone
        took it."""
        if to in self.origins:
            return to
        takers = [taken.turn for taken in self._taken.get(to, ())]
        standing = [turn for turn in takers if turn not in self.undone()] or takers
        return (standing[-1] if standing else to) + 1
