"""The turns of a session: who took which input, which turn took up which, and which are undone.

It says about turns what `history` does to messages: a rewind that names a turn leaves out that turn and all after it,
one that names a message leaves out the turns that came after the message.
"""

from msgspec import Struct

from steno.journal.facts import (
    Continues,
    Record,
    RewindWithdrawn,
    Rewound,
    StepStarted,
    Takes,
    TurnStarted,
)
from steno.journal.parts import Seq


class Taken(Struct, frozen=True):
    """Where an input was taken: by which turn, and by which fact of it."""

    turn: Seq
    at: Seq


class Turns(Struct):
    """`rewinds` are those that can be taken back, with the turns that each leaves out."""

    origins: dict[Seq, Takes | Continues] = {}
    rewinds: dict[Seq, tuple[Seq, ...]] = {}
    _taken: dict[Seq, Taken] = {}

    def apply(self, record: Record) -> None:
        fact = record.fact
        match fact:
            case TurnStarted():
                self.origins[record.seq] = fact.origin
                if isinstance(fact.origin, Takes):
                    self._taken[fact.origin.input] = Taken(record.seq, record.seq)
            case StepStarted():
                for input in fact.takes:
                    self._taken[input] = Taken(next(reversed(self.origins), 0), record.seq)
            case Rewound():
                self.rewinds[record.seq] = tuple(turn for turn in self.origins if self._follows(turn, fact.to))
            case RewindWithdrawn():
                self.rewinds.pop(fact.rewind, None)
            case _:
                pass

    def undone(self) -> frozenset[Seq]:
        return frozenset(turn for left_out in self.rewinds.values() for turn in left_out)

    def last_standing(self) -> Seq | None:
        """The last turn that is not undone."""
        undone = self.undone()
        return next((turn for turn in reversed(self.origins) if turn not in undone), None)

    def prompt(self, turn: Seq) -> Seq | None:
        """The input that a turn was begun for, through the turns that it took up."""
        origin = self.origins.get(turn)
        while isinstance(origin, Continues):
            origin = self.origins.get(origin.turn)
        return None if origin is None else origin.input

    def answer_to(self, input: Seq) -> tuple[Seq, ...]:
        """Where the last answer to an input begins: the fact that took it, and the turns that took that one up."""
        taken = self._taken.get(input)
        if taken is None:
            return ()
        chain = [taken.turn]
        for turn, origin in self.origins.items():
            if isinstance(origin, Continues) and origin.turn == chain[-1]:
                chain.append(turn)
        return (taken.at, *chain[1:])

    def _follows(self, turn: Seq, to: Seq) -> bool:
        if to in self.origins:
            return turn >= to
        return turn > to and self.origins[turn] != Takes(to)
