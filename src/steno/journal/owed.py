"""What a session still owes to somebody outside it: an end to each visit that is open, a word to
plugins.

It outlives the process that owes it: the next one to start finds the session by it. Its size is
that of what is open. `State` and the row for lists hold the same fold, so a look at the rows tells
what a look at the facts would.
"""

from msgspec import Struct

from steno.journal.facts import (
    AnyFact,
    HookAttempted,
    HookDone,
    HookOwed,
    SessionAttended,
    SessionEnded,
)
from steno.journal.parts import Seq


class OwedHook(Struct, omit_defaults=True):
    """`by` is the owner who tells the plugins, or did last; `left` are those that have not been
    told, and none where the fact names none. `tries` counts those who took it over from a dead
    one."""

    by: str = ""
    left: tuple[str, ...] = ()
    tries: int = 0


class Owed(Struct, omit_defaults=True):
    """`attending` are the visits that are open, and whose they are. `ended` is the visit whose end
    was the end of the session; 0 if there is none, or somebody came since."""

    attending: dict[Seq, str] = {}
    hooks: dict[Seq, OwedHook] = {}
    ended: Seq = 0

    def anything(self) -> bool:
        return bool(self.attending or self.hooks)

    def owners(self) -> frozenset[str]:
        """Those who look after it. If they are dead, somebody else must."""
        return frozenset((*self.attending.values(), *(hook.by for hook in self.hooks.values())))

    def apply(self, seq: Seq, fact: AnyFact) -> bool:
        """Take one fact in; whether it was the end of the session."""
        match fact:
            case SessionAttended():
                self.attending[seq], self.ended = fact.by, 0
            case SessionEnded():
                return self._end(fact)
            case HookOwed():
                if fact.attended is None or fact.attended == self.ended:
                    self.hooks[seq] = OwedHook(fact.by, fact.plugins)
            case HookAttempted():
                if (owed := self.hooks.get(fact.owed)) is not None:
                    owed.by, owed.tries = fact.by, owed.tries + 1
            case HookDone():
                self._done(fact)
            case _:
                pass
        return False

    def _end(self, fact: SessionEnded) -> bool:
        """Of several visits only the last to end is the session's end. One that had ended before
        ends nothing."""
        if fact.attended is None:
            self.ended = 0
            return True
        if self.attending.pop(fact.attended, None) is None:
            return False
        self.ended = 0 if self.attending else fact.attended
        return not self.attending

    def _done(self, fact: HookDone) -> None:
        owed = self.hooks.get(fact.owed)
        if owed is None:
            return
        owed.left = tuple(name for name in owed.left if name != fact.plugin) if fact.plugin else ()
        if not owed.left:
            del self.hooks[fact.owed]
