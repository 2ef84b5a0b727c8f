"""The pieces of folded text that the index knows a message by.

Scripts without blanks between words, and all that is written in wide letters, are known by single
letters and by pairs of neighbours. Everything else is known by three letters in a row, blanks
included; a run of wide letters stands there as one mark.

    "use 中文字 api"   wide     中 文 字 中文 文字
                       narrow   "use ␁ api␁␁" -> use, "se ", "e ␁", " ␁ ", "␁ a", " ap", api, ...

The two marks at the end let the last one or two letters begin three letters, too.
"""

import operator
import re
from collections.abc import Iterable

_WIDE = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Myanmar
    "\u1100-\u11ff"  # Hangul jamo
    "\u1780-\u17ff"  # Khmer
    "\u2e80-\ufffc"  # CJK, kana, Hangul, and what stands among them
    "\U00010000-\U0010ffff"  # rare CJK, emoji
)
_RUN = re.compile(f"[{_WIDE}]+")
HOLE = "\x01"
ROLE = "\x02"


def narrow(text: str, role: str) -> str:
    """What the index of three letters is given of a text: the role of who said it stands in
    front."""
    letters = text if text.isascii() else _RUN.sub(HOLE, text)
    return f"{ROLE}{role}{ROLE}{letters}{HOLE}{HOLE}"


def distinct(text: str) -> str:
    """A long text with the same three letters in a row, each once; and some that it has not."""
    found: dict[str, None] = {}
    for start in range(0, len(text), 1 << 15):
        piece = text[start : start + (1 << 15) + 2]
        found.update(
            dict.fromkeys(
                map("".join, zip(piece, piece[1:], piece[2:], strict=False))
            )
        )
    return HOLE.join(found)


def role_gram(role: str) -> str:
    return f"{ROLE}{role}{ROLE}"


def wide(text: str) -> set[str]:
    """What the index of wide letters is given of a text."""
    if text.isascii():
        return set()
    runs = _RUN.findall(text)
    found = set("".join(runs))
    for run in runs:
        found.update(map(operator.add, run, run[1:]))
    return found


class Needed:
    """What a text must have in the index if a folded piece is in it. `short` is a piece of one or
    two narrow letters, which is known only by how three letters begin."""

    def __init__(self, piece: str) -> None:
        letters = _RUN.sub(HOLE, piece)
        self.narrow = list(
            dict.fromkeys(letters[i : i + 3] for i in range(len(letters) - 2))
        )
        self.wide: list[str] = []
        for run in _RUN.findall(piece):
            pairs = [run[i : i + 2] for i in range(len(run) - 1)]
            self.wide += pairs or [run]
        self.short = letters if not self.narrow and not self.wide else ""

    def __bool__(self) -> bool:
        return bool(self.narrow or self.wide or self.short)


def quoted(gram: str) -> str:
    """A gram as FTS5 takes one, whatever letters it is made of."""
    return '"' + gram.replace('"', '""') + '"'


def all_of(found: Iterable[str]) -> str:
    return " AND ".join(map(quoted, found))
