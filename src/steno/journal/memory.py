"""What can be remembered of a session: where its distillates are, and how much was said since the
last one.

It is part of the row for lists, so that what is due and what can be recalled is found without
reading sessions. Its size is bounded.
"""

from collections.abc import Iterable
from typing import assert_never

from msgspec import Struct

from steno.journal.facts import (
    ContextSet,
    Distilled,
    HelperStarted,
    MemoryRemoved,
    MessageHidden,
    Record,
    RewindWithdrawn,
    Rewound,
    TurnEnded,
)
from steno.journal.parts import Seq

TURNS_DUE = 5
"""Turns that were answered since the last distillate: fewer are not worth a request."""
TRIES_MAX = 2
"""Requests for one distillate, before something more is said. One that was stopped counts too."""
DISTILLATES_MAX = 20


MemoryNews = (
    TurnEnded
    | HelperStarted
    | Distilled
    | MemoryRemoved
    | MessageHidden
    | Rewound
    | ContextSet
)
"""The facts that can change what there is to remember."""


class SessionMemory(Struct, omit_defaults=True):
    """`upto` is where the last distillate ends, `answered` counts turns since, `tries` the requests
    for another one since the last of them. `at` are the latest distillates with their items that
    stand, by number; `edited`: something was hidden or taken back at some time; `from_sessions` are
    those that this session was told memories of."""

    upto: Seq = 0
    answered: int = 0
    tries: int = 0
    at: dict[Seq, list[int]] = {}
    edited: bool = False
    from_sessions: tuple[str, ...] = ()

    def due(self) -> bool:
        return self.answered >= TURNS_DUE and self.tries < TRIES_MAX

    def apply(self, seq: Seq, fact: MemoryNews) -> bool:
        """Take one fact in; whether anything changed."""
        match fact:
            case TurnEnded():
                if fact.outcome == "done":
                    self.answered, self.tries = self.answered + 1, 0
                return fact.outcome == "done"
            case HelperStarted():
                self.tries += fact.purpose == "distillation"
                return fact.purpose == "distillation"
            case Distilled():
                self.upto, self.answered, self.tries = fact.upto, 0, 0
                if fact.items:
                    self.at[seq] = list(range(len(fact.items)))
                    self.at = dict(list(self.at.items())[-DISTILLATES_MAX:])
                return True
            case MemoryRemoved():
                items = self.at.get(fact.distilled, [])
                if fact.item in items:
                    items.remove(fact.item)
                if not items:
                    self.at.pop(fact.distilled, None)
                return True
            case MessageHidden() | Rewound():
                edited = self.edited or isinstance(fact, Rewound) or fact.hidden
                changed, self.edited = edited != self.edited, edited
                return changed
            case ContextSet():
                sessions = tuple(sorted({at.session for at in fact.recalled}))
                changed, self.from_sessions = sessions != self.from_sessions, sessions
                return changed
            case unreachable:
                assert_never(unreachable)


def taken_back(made: Distilled, edits: Iterable[Record]) -> bool:
    """Whether a person has hidden or taken back something of what a distillate was made of. Of
    `edits` those since count. What was put back counts as never gone."""
    hidden: set[Seq] = set()
    rewound: dict[Seq, Seq] = {}
    for record in edits:
        fact = record.fact
        if record.seq <= made.upto:
            continue
        if isinstance(fact, MessageHidden):
            (hidden.add if fact.hidden else hidden.discard)(fact.target)
        elif isinstance(fact, Rewound):
            rewound[record.seq] = fact.to
        elif isinstance(fact, RewindWithdrawn):
            rewound.pop(fact.rewind, None)
    return any(made.after < seq <= made.upto for seq in hidden) or any(
        to <= made.upto for to in rewound.values()
    )
