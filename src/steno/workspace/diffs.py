"""How two versions of a file differ: hunks of lines with their numbers and some context, and the
words of a line that are not in its counterpart. Pure."""

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

CONTEXT_LINES = 3
COMPARED_LINES_MAX = 4_000
"""In the middle, where the versions differ. Longer ones are shown as removed and added whole."""
WORDS_CHARS_MAX = 1_000
ALIKE = 0.4
"""Lines that have less than this in common are not each other's counterpart."""
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")

Sign = Literal[" ", "-", "+"]
Span = tuple[int, int]


class DiffLine(Struct, frozen=True):
    """`old` and `new` are its numbers, from 1; None where a version does not have it. `marked` are
    the places in the text that differ from its counterpart."""

    sign: Sign
    text: str
    old: int | None
    new: int | None
    marked: tuple[Span, ...] = ()


class Hunk(Struct, frozen=True):
    lines: tuple[DiffLine, ...]

    def head(self) -> str:
        old = [line.old for line in self.lines if line.old is not None]
        new = [line.new for line in self.lines if line.new is not None]
        return f"@@ -{_range(old)} +{_range(new)} @@"


class Diff(Struct, frozen=True):
    """`kind` says what became of the file. No hunks: nothing that can be shown differs."""

    path: str
    kind: Literal["changed", "made", "removed"]
    hunks: tuple[Hunk, ...] = ()
    binary: bool = False

    @property
    def added(self) -> int:
        return sum(line.sign == "+" for hunk in self.hunks for line in hunk.lines)

    @property
    def removed(self) -> int:
        return sum(line.sign == "-" for hunk in self.hunks for line in hunk.lines)

    def unified(self) -> Iterator[str]:
        """As `diff -u` prints it."""
        yield "--- " + ("/dev/null" if self.kind == "made" else f"a/{self.path}")
        yield "+++ " + ("/dev/null" if self.kind == "removed" else f"b/{self.path}")
        if self.binary:
            yield "Binary files differ"
        for hunk in self.hunks:
            yield hunk.head()
            yield from (line.sign + line.text for line in hunk.lines)


def diff(path: str, before: bytes | None, after: bytes | None) -> Diff:
    kind: Literal["changed", "made", "removed"] = (
        "made" if before is None else "removed" if after is None else "changed"
    )
    if any(b"\0" in (data or b"") for data in (before, after)):
        return Diff(path, kind, binary=True)
    old, new = _lines(before), _lines(after)
    return Diff(path, kind, tuple(_hunks(old, new)))


def _lines(data: bytes | None) -> list[str]:
    text = (data or b"").decode("utf-8", "replace")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    elif text:
        lines[-1] += "  [no newline at the end]"
    return lines


def _hunks(old: list[str], new: list[str]) -> Iterator[Hunk]:
    """Around each change some lines that are the same; changes that are near are one hunk."""
    codes = _codes(old, new)
    groups: list[list[tuple[str, int, int, int, int]]] = []
    for code in codes:
        if code[0] == "equal":
            continue
        if groups and code[1] - groups[-1][-1][2] <= 2 * CONTEXT_LINES:
            groups[-1].append(code)
        else:
            groups.append([code])
    for group in groups:
        yield Hunk(tuple(_of_group(group, old, new)))


def _of_group(
    group: Sequence[tuple[str, int, int, int, int]], old: list[str], new: list[str]
) -> Iterator[DiffLine]:
    _, i1, _, j1, _ = group[0]
    lead = min(CONTEXT_LINES, i1, j1)
    i, j = i1 - lead, j1 - lead
    for _, i1, i2, j1, j2 in group:
        yield from _same(old, i, j, i1 - i)
        yield from _changed(old, new, (i1, i2, j1, j2))
        i, j = i2, j2
    yield from _same(old, i, j, min(CONTEXT_LINES, len(old) - i))


def _same(old: list[str], i: int, j: int, count: int) -> Iterator[DiffLine]:
    for by in range(count):
        yield DiffLine(" ", old[i + by], i + by + 1, j + by + 1)


def _changed(
    old: list[str], new: list[str], at: tuple[int, int, int, int]
) -> Iterator[DiffLine]:
    """What goes, then what comes; a line that became another one is marked where they differ."""
    i1, i2, j1, j2 = at
    marks: dict[tuple[Sign, int], tuple[Span, ...]] = {}
    if i2 - i1 == j2 - j1:
        for by in range(i2 - i1):
            marks["-", i1 + by], marks["+", j1 + by] = _words(
                old[i1 + by], new[j1 + by]
            )
    for i in range(i1, i2):
        yield DiffLine("-", old[i], i + 1, None, marks.get(("-", i), ()))
    for j in range(j1, j2):
        yield DiffLine("+", new[j], None, j + 1, marks.get(("+", j), ()))


def _codes(old: list[str], new: list[str]) -> list[tuple[str, int, int, int, int]]:
    """What is the same at both ends is not compared line by line."""
    most = min(len(old), len(new))
    start = next((at for at in range(most) if old[at] != new[at]), most)
    end = next(
        (at for at in range(most - start) if old[-1 - at] != new[-1 - at]),
        most - start,
    )
    a, b = old[start : len(old) - end], new[start : len(new) - end]
    if not a and not b:
        return []
    if len(a) + len(b) > COMPARED_LINES_MAX:
        return [("replace", start, start + len(a), start, start + len(b))]
    return [
        (tag, start + i1, start + i2, start + j1, start + j2)
        for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(
            None, a, b, False
        ).get_opcodes()
    ]


def _words(old: str, new: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Where two lines differ; nowhere in particular if they have little in common."""
    if max(len(old), len(new)) > WORDS_CHARS_MAX:
        return (), ()
    a, b = _WORDS.findall(old), _WORDS.findall(new)
    matcher = difflib.SequenceMatcher(None, a, b, False)
    if matcher.ratio() < ALIKE:
        return (), ()
    gone, come = [], []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            gone.append(_span(a, i1, i2))
            come.append(_span(b, j1, j2))
    return tuple(filter(_some, gone)), tuple(filter(_some, come))


def _span(words: list[str], first: int, last: int) -> Span:
    start = sum(map(len, words[:first]))
    return start, start + sum(map(len, words[first:last]))


def _some(span: Span) -> bool:
    return span[0] < span[1]


def _range(numbers: list[int]) -> str:
    if not numbers:
        return "0,0"
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]},{len(numbers)}"
