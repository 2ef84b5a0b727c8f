"""The end of a visit: what is stored of it, and what plugins are called with."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from steno.journal.facts import FreeFact, HookOwed, SessionEnded, TurnOutcome
from steno.journal.listing import ListingRow
from steno.journal.parts import Seq
from steno.journal.state import State

HOOK = "on_session_end"

Reason = Literal[
    "left", "closed_terminal", "signal", "idle", "replaced", "killed", "deleted"
]
LastTurn = Literal["none", "done", "interrupted", "failed"]


class AtEnd(Struct, frozen=True):
    """A session at the end of a visit: how its last turn ended, or will be closed by recovery;
    whether an input waits that no turn has taken; which model answers."""

    last_turn: LastTurn = "none"
    waiting: bool = False
    model: str = ""

    @property
    def ran(self) -> bool:
        """Whether a turn ever began. Where none did there is no end to tell of."""
        return self.last_turn != "none"


class Visit(Struct, frozen=True):
    session: str
    seq: Seq
    platform: str

    @property
    def key(self) -> str:
        """Under which its end is stored: the same for every process that may end it."""
        return f"ended:{self.seq}"


def at_end(row: ListingRow, tail: State) -> AtEnd:
    """`tail` is folded from the last fact that began or ended a turn. A turn that is open is cut
    off by leaving."""
    last: LastTurn = (
        "interrupted" if tail.turn is not None else last_turn(row, tail) or "none"
    )
    return AtEnd(last, bool(row.waiting), row.model)


def last_turn(row: ListingRow, tail: State) -> TurnOutcome | None:
    """How the last turn ended. One that a fork cut off has no end of its own; then the tail has its
    beginning."""
    return row.last_turn if tail.last_turn is None else tail.last_turn.ending.outcome


def told(visit: Visit, reason: Reason, at: AtEnd) -> dict[str, object]:
    """What `on_session_end` says. A kill interrupts, also at rest: no person left then."""
    return {
        "session_id": visit.session,
        "completed": at.last_turn == "done" and not at.waiting,
        "interrupted": reason == "killed"
        or at.last_turn == "interrupted"
        or at.waiting,
        "model": at.model,
        "platform": visit.platform,
        "reason": reason,
        "key": f"{visit.session}:{visit.key}",
    }


def ending(
    visit: Visit, reason: Reason, at: AtEnd, plugins: Sequence[str], by: str
) -> tuple[FreeFact, ...]:
    """The facts of an end, for one commit. `by` is the owner whose process calls the plugins."""
    ended = SessionEnded(reason, at.last_turn, visit.seq)
    if not plugins:
        return (ended,)
    import json  # loaded where a plugin is told: most starts do without

    arguments = told(visit, reason, at)
    return (
        ended,
        HookOwed(
            HOOK,
            str(arguments["key"]),
            json.dumps(arguments),
            tuple(plugins),
            visit.seq,
            by,
        ),
    )
