"""Regular expressions that cannot take for ever.

Python's matcher tries every way to split a text among repeats. So a repeat inside a repeat is
refused, and so are more than three repeats without an end; the more there are, the shorter the
stretches of a line that they are tried on. A match longer than half a stretch may be missed in a
line that is longer than that.

    Refused   it is not a regular expression, or not one of these
"""

import re
from collections.abc import Iterator
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from steno.search.folding import fold

CHARS_MAX = 200
_STRETCH = {0: 100_000, 1: 20_000, 2: 2_000, 3: 300}
_MANY = 64
"""A repeat of more than so many counts as one without an end."""


class Refused(ValueError):
    """Search for it as text."""


class Pattern:
    """`pieces` are folded texts that every match has: the index can look for them."""

    def __init__(self, source: str, repeats: int, pieces: tuple[str, ...]) -> None:
        self._matcher = re.compile(source, re.IGNORECASE)
        self._stretch = _STRETCH[repeats]
        self.pieces = pieces

    def find(self, text: str) -> tuple[int, int] | None:
        """Where the first match stands in a text as it is stored."""
        for start, end in self._stretches(text):
            if (found := self._matcher.search(text, start, end)) is not None:
                return found.span()
        return None

    def _stretches(self, text: str) -> Iterator[tuple[int, int]]:
        start = 0
        for line in text.splitlines(keepends=True):
            at, end = start, start + len(line)
            while True:
                yield at, min(at + self._stretch, end)
                if at + self._stretch >= end:
                    break
                at += self._stretch // 2
            start = end
        if not text:
            yield 0, 0


def compiled(source: str) -> Pattern:
    if len(source) > CHARS_MAX:
        raise Refused(f"it is longer than {CHARS_MAX} characters")
    try:
        parsed = _parser.parse(source, re.IGNORECASE)
        repeats = _repeats(parsed, False)
        if repeats > max(_STRETCH):
            raise Refused("it has too many repeats")
        pieces = [fold(piece) for piece in _pieces(parsed)]
        return Pattern(source, repeats, tuple(piece for piece in pieces if piece))
    except (re.error, OverflowError, RecursionError) as error:
        raise Refused(f"it is not a regular expression ({error})") from error


def _repeats(parsed: Any, inside: bool) -> int:
    """How many repeats without an end there are, none in another."""
    found = 0
    for op, value in parsed:
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            _, most, body = value
            if most > 1 and inside:
                raise Refused("a repeat is inside a repeat")
            found += most > _MANY
            found += _repeats(body, inside or most > 1)
        elif op is sre.SUBPATTERN:
            found += _repeats(value[-1], inside)
        elif op is sre.BRANCH:
            if inside:
                raise Refused("a choice is inside a repeat")
            found += max(_repeats(branch, inside) for branch in value[1])
        elif op in (
            sre.LITERAL,
            sre.NOT_LITERAL,
            sre.ANY,
            sre.IN,
            sre.AT,
            sre.CATEGORY,
        ):
            pass
        else:
            raise Refused("it looks around, or back at what it found")
    return found


def _pieces(parsed: Any) -> Iterator[str]:
    """Runs of letters that stand in every match as they are."""
    run: list[str] = []
    for op, value in parsed:
        if op is sre.LITERAL:
            run.append(chr(value))
            continue
        yield "".join(run)
        run = []
        if op is sre.SUBPATTERN:
            yield from _pieces(value[-1])
    yield "".join(run)
