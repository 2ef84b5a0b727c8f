"""A program that carries out a script as the error tree of the store asks of it.

`StoreUnwritable` means that nothing was stored: it looks whether that is so, and asks again.
`OutcomeUnknown` means that it may be stored or not: it repeats what can be repeated, and otherwise
reads what is there before it repeats.
"""

from collections.abc import Callable

from steno.store.errors import OutcomeUnknown, StoreUnopenable, StoreUnwritable, UnknownSession
from steno.store.protocol import Admitted
from tests.crash.check import observed
from tests.crash.world import Add, Admit, Delete, Hands, Redact, Script, Verb

TRIES_MAX = 3
REPEATABLE = (Admit, Add, Redact, Delete)
"""The same call settles it: the first three by their keys, and who is told that a session is
unknown has deleted it."""


class Caller:
    """`acknowledged` is called with the number of verbs that are done, each time it grows."""

    def __init__(self, script: Script, hands: Hands, acknowledged: Callable[[int], None]) -> None:
        self.script = script
        self.hands = hands
        self.unknown = 0
        self.refused = 0
        self._acknowledged = acknowledged

    def run(self) -> None:
        for k, verb in enumerate(self.script.verbs):
            self._carry_out(k, verb)
            self._acknowledged(k + 1)

    def _carry_out(self, k: int, verb: Verb) -> None:
        for tries in range(TRIES_MAX):
            try:
                answer = verb.perform(self.hands, self.script.worlds[k])
            except OutcomeUnknown:
                self.unknown += 1
                if not isinstance(verb, REPEATABLE) and self._is_done(k):
                    return
            except (StoreUnwritable, StoreUnopenable) as error:
                self.refused += 1
                if self._is_done(k):
                    raise AssertionError(
                        f"{verb} said that nothing was stored, but it was"
                    ) from error
            except UnknownSession:
                if tries and isinstance(verb, Delete):
                    return
                raise
            else:
                assert _same_answer(answer, self.script.answers[k], tries), (verb, answer)
                return
        raise AssertionError(f"{verb} failed {TRIES_MAX} times, with one fault")

    def _is_done(self, k: int) -> bool:
        """Whether a reader finds what a verb was to make; if not, nothing of it may be there."""
        before, after = self.script.worlds[k].readable(), self.script.worlds[k + 1].readable()
        found = observed(self.hands.store, self.script).readable()
        assert found in (before, after), "a verb that failed left something of itself"
        return found == after != before


def _same_answer(answer: object, expected: object, tries: int) -> bool:
    """An input that is admitted again, after an outcome that was unknown, may have been there
    already."""
    if tries and isinstance(answer, Admitted) and isinstance(expected, Admitted):
        return (answer.session, answer.seq) == (expected.session, expected.seq)
    return answer == expected
