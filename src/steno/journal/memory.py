"""What a session has to remember it by: where its distillates are, and how much was said since the
last one.

It is part of the row for lists, so that what is due and what can be recalled is found without
reading sessions. Its size is bounded.
"""

from collections.abc import Iterable

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


class Memory(Struct, omit_defaults=True):
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

    def apply(self, record: Record) -> bool:
        """Take one fact in; whether anything changed."""
        match record.fact:
            case TurnEnded(outcome="done"):
                self.answered, self.tries = self.answered + 1, 0
            case HelperStarted(purpose="distillation"):
                self.tries += 1
            case Distilled() as made:
                self.upto, self.answered, self.tries = made.upto, 0, 0
                if made.items:
                    self.at[record.seq] = list(range(len(made.items)))
                    self.at = dict(list(self.at.items())[-DISTILLATES_MAX:])
            case MemoryRemoved(distilled=seq, item=item):
                left = [one for one in self.at.get(seq, []) if one != item]
                if left:
                    self.at[seq] = left
                else:
                    self.at.pop(seq, None)
            case MessageHidden(hidden=True) | Rewound() if not self.edited:
                self.edited = True
            case ContextSet(recalled=recalled) if recalled or self.from_sessions:
                self.from_sessions = tuple(sorted({at.session for at in recalled}))
            case _:
                return False
        return True


def taken_back(made: Distilled, edits: Iterable[Record]) -> bool:
    """Whether a person has hidden or taken back something of what a distillate was made of. `edits`
    are those since. What was put back counts as never gone."""
    hidden: set[Seq] = set()
    rewound: dict[Seq, Seq] = {}
    for record in edits:
        match record.fact:
            case _ if record.seq <= made.upto:
                pass
            case MessageHidden(target=target, hidden=is_hidden):
                (hidden.add if is_hidden else hidden.discard)(target)
            case Rewound(to=to):
                rewound[record.seq] = to
            case RewindWithdrawn(rewind=rewind):
                rewound.pop(rewind, None)
            case _:
                pass
    return any(made.after < seq <= made.upto for seq in hidden) or any(
        to <= made.upto for to in rewound.values()
    )
