"""What a session refuses, and why. An error says what is so; each front end adds what to do.

Misused     what was asked means nothing; nothing was stored
  NoSuch      there is no message, input or memory of that number
Refusal     the session is in no state for it; nothing was changed (a `NotAllowed` of the store)
"""

from typing import Literal

from steno.journal.parts import Seq
from steno.store.errors import NotAllowed


class Misused(Exception):
    """What was asked means nothing. Nothing was stored; the message says what would be
    understood."""


class NoSuch(Misused):
    """`what` has no `name`. `session` is where it was looked for, if it was in one."""

    def __init__(
        self,
        what: Literal["input", "message", "memory", "attachment"],
        name: Seq | str,
        session: str = "",
    ) -> None:
        where = f"session {session!r} has no" if session else "there is no"
        super().__init__(f"{where} {what} {name}; nothing was changed")
        self.what, self.name, self.session = what, name, session


Why = Literal[
    "waits_for_approval",
    "undone",
    "killed_each_time",
    "nothing_came_back",
    "forked",
    "nothing_cut_off",
    "no_turn",
    "answered",
    "not_waiting",
    "input_waits",
    "turn_since",
    "nothing_asked",
    "several_asked",
    "not_asked",
    "not_owed",
    "being_sent",
    "not_failed",
    "nothing_to_send",
]

_SAID: dict[Why, str] = {
    "waits_for_approval": "a turn of session {session!r} waits for approval; nothing was changed",
    "undone": (
        "the turn of session {session!r} that was cut off is undone; take the undo back first"
    ),
    "killed_each_time": (
        "session {session!r} was continued {times} times in a row and killed each time, so it is "
        "not continued any more. Everything shown is kept, and the next prompt goes on from here"
    ),
    "nothing_came_back": (
        "the turn of session {session!r} that was cut off was taken up {times} times and nothing "
        "came back; there is nothing to continue. Everything shown is kept"
    ),
    "forked": (
        "session {session!r} begins in the middle of a turn that is its parent's to finish; there "
        "is nothing to continue"
    ),
    "nothing_cut_off": (
        "session {session!r} has no turn that was cut off; there is nothing to continue"
    ),
    "no_turn": "session {session!r} has no turn yet; nothing was changed",
    "answered": "the last turn of session {session!r} was answered; there is nothing to retry",
    "not_waiting": "turn {seq} of session {session!r} is not waiting to be continued",
    "input_waits": "input {seq} of session {session!r} still waits for its first turn",
    "turn_since": "another turn of session {session!r} came since",
    "nothing_asked": "nothing in session {session!r} waits for approval; nothing was changed",
    "several_asked": "several calls of session {session!r} wait: {there}; nothing was changed",
    "not_asked": (
        "nothing waits at {seq} in session {session!r}, but {there}; nothing was changed"
    ),
    "not_owed": (
        "delivery {seq} of session {session!r} is not owed any more; nothing was changed"
    ),
    "being_sent": (
        "delivery {seq} of session {session!r} is being sent at this moment; nothing was changed"
    ),
    "not_failed": (
        "delivery {seq} of session {session!r} is none of the last that failed; only those can be "
        "tried again"
    ),
    "nothing_to_send": (
        "nothing was said to the input of delivery {seq} of session {session!r}; there is nothing "
        "to send. Say it again instead"
    ),
}


class Refusal(NotAllowed):
    """`why` says what stands in the way, the other fields where. `there` names what is there
    instead."""

    def __init__(
        self,
        why: Why,
        session: str,
        seq: Seq | None = None,
        times: int = 0,
        there: str = "",
    ) -> None:
        super().__init__(
            _SAID[why].format(session=session, seq=seq, times=times, there=there)
        )
        self.why, self.session, self.seq = why, session, seq
