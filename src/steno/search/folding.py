"""Text as it is compared: without case, widths, accents and marks that cannot be seen.

Each code point is folded by itself, so a piece of a text folds to a piece of the folded text. Text
that is not composed (an accent as a code point of its own, a half-width kana with its voicing mark)
has a second form in which it is composed first. A query matches a text if its first form is in the
text's first form, or its second in the text's second.

    Straße  ->  strasse      Ёлка ->  елка       Zoë -> zoe
    Zoe◌̈   ->  zoe◌̈, zoe    ｶﾞ   ->  カ◌゙, ガ
"""

import re
import unicodedata
from bisect import bisect_right

VERSION = f"2/{unicodedata.unidata_version}"
"""Of the rules, and of the letters that this Python knows: an index folded otherwise is made
anew."""

_DROPPED = {
    0x00AD,
    0x0640,
    0x0670,
    0x061C,
    0x180E,
    0x2060,
    0xFEFF,
    *range(0x064B, 0x0660),
    *range(0x06D6, 0x06DD),
    *range(0x06DF, 0x06E5),
    0x06E7,
    0x06E8,
    *range(0x06EA, 0x06EE),
    *range(0x0591, 0x05BE),
    0x05BF,
    0x05C1,
    0x05C2,
    0x05C4,
    0x05C5,
    0x05C7,
    *range(0x200B, 0x2010),
    *range(0x202A, 0x202F),
    *range(0x2061, 0x2070),
    *range(0xFE00, 0xFE10),
    *range(0xE0100, 0xE01F0),
}
"""Soft hyphen, zero-width and bidi marks, variation selectors; tatweel, harakat and niqqud."""

_ALIKE = {"ı": "i", "ё": "е"}  # noqa: RUF001 - the letters themselves
_SECOND_FORM = re.compile("[\uff9e\uff9f]")
_ACCENTS = re.compile("(?<=[a-z\u0370-\u03ff\u1f00-\u1fff])[\u0300-\u036f]+")


def _folded(letter: str) -> str:
    """One code point, folded."""
    point = ord(letter)
    if point in _DROPPED:
        return ""
    if 0xD800 <= point < 0xE000 or point in (0xFFFE, 0xFFFF):
        return "\ufffd"
    if letter.isspace():
        return " "
    if not point:
        return "\x01"
    plain = unicodedata.normalize("NFKC", letter)
    plain = "".join(map(_without_accents, plain)).casefold()
    plain = "".join(map(_without_accents, plain))
    return "".join(_ALIKE.get(one, one) for one in plain if ord(one) not in _DROPPED)


def _without_accents(letter: str) -> str:
    """Letters of Latin and Greek lose their marks; in other scripts a mark makes another letter."""
    if letter.isascii():
        return letter
    name = unicodedata.name(letter, "")
    if not name.startswith(("LATIN", "GREEK")):
        return letter
    apart = unicodedata.normalize("NFKD", letter)
    return "".join(one for one in apart if unicodedata.category(one) != "Mn")


STABLE = (
    "\x01-\x7f"
    "\u0391-\u03a1\u03a3-\u03a9\u03b1-\u03c9"
    "\u0410-\u0450\u0452-\u045f"
    "\u05d0-\u05ea"
    "\u0621-\u063a\u0641-\u064a"
    "\u0904-\u0939\u093c-\u094d"
    "\u0e01-\u0e32\u0e34-\u0e3a\u0e40-\u0e4e"
    "\u2010\u2012-\u2016\u2018-\u201f\u2020-\u2022"
    "\u2190-\u21ff\u2200-\u222b\u2500-\u27bf"
    "\u3001-\u301f\u3041-\u3096\u30a1-\u30fe"
    "\u4e00-\u9fff\uac00-\ud7a3"
    "\U0001f300-\U0001f6ff\U0001f900-\U0001f9ff\U00020000-\U0002a6df"
)
"""Ranges of letters that only lose their case: most of most texts. The others are looked up."""
_ODD = re.compile(f"[^{STABLE}]")
_APART = re.compile(rf"\s+|[^{STABLE}]")


class _Table(dict[str, str]):
    """Filled as letters are met: a text needs few of them."""

    def __missing__(self, letter: str) -> str:
        self[letter] = folded = _folded(letter)
        return folded


_table = _Table()


def fold(text: str) -> str:
    """The first form. Runs of white space are one blank."""
    if text.isascii():
        plain = text.lower().replace("\0", "\x01")
    else:
        plain = text
        for odd in set(
            _ODD.findall(text)
        ):  # what one folds to, another leaves as it is
            plain = plain.replace(odd, _table[odd])
        plain = plain.casefold()
    blank = " ".join(plain.split())
    if not plain or blank == plain:
        return plain
    before = " " if plain[0].isspace() else ""
    after = " " if blank and plain[-1].isspace() else ""
    return before + blank + after


def forms(text: str) -> tuple[str, str]:
    """Both forms; they are the same unless the text is not composed."""
    first = fold(text)
    if text.isascii() or is_composed(text):
        return first, first
    return first, _second(text) or first


def is_composed(text: str) -> bool:
    return (
        unicodedata.is_normalized("NFC", text) and _SECOND_FORM.search(text) is None
    )


def _second(text: str) -> str:
    safe = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _ACCENTS.sub("", fold(unicodedata.normalize("NFKC", safe)))


class Mapped:
    """A folded text that knows where each of its letters stands in the text. Runs of letters that
    only lose their case are known by where they begin."""

    def __init__(self, text: str, second: bool = False) -> None:
        self._letters: list[str] = []
        self._starts: list[int] = []
        self._stretches: list[tuple[int, int, bool]] = []
        self._length = 0
        self._blank = False
        if second:
            for start, end in _clusters(text):
                self._add(_second(text[start:end]), start, end)
        else:
            at = 0
            for found in _APART.finditer(text):
                self._run(text, at, found.start())
                plain = found[0] if found[0].isspace() else _table[found[0]]
                self._add(plain, found.start(), found.end())
                at = found.end()
            self._run(text, at, len(text))
        self.folded = "".join(self._letters)

    def _run(self, text: str, start: int, end: int) -> None:
        if start < end:
            self._append(text[start:end].casefold(), start, end, True)
            self._blank = False

    def _add(self, plain: str, start: int, end: int) -> None:
        """What a stretch of the text folds to, of which each letter stands for all of it."""
        for letter in plain:
            space = letter.isspace()
            if space and self._blank:
                self._stretches[-1] = (self._stretches[-1][0], end, False)
                continue
            self._blank = space
            self._append(" " if space else letter, start, end, False)

    def _append(self, folded: str, start: int, end: int, one_to_one: bool) -> None:
        self._letters.append(folded)
        self._starts.append(self._length)
        self._stretches.append((start, end, one_to_one))
        self._length += len(folded)

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Where a stretch of the folded text stands in the text."""
        return self._of(start)[0], self._of(end - 1)[1]

    def _of(self, letter: int) -> tuple[int, int]:
        n = bisect_right(self._starts, letter) - 1
        start, end, one_to_one = self._stretches[n]
        if not one_to_one:
            return start, end
        start += letter - self._starts[n]
        return start, start + 1


def _clusters(text: str) -> list[tuple[int, int]]:
    """Stretches that compose by themselves: a letter with the marks and jamo that follow it."""
    starts: list[int] = []
    for at, letter in enumerate(text):
        joins = (
            unicodedata.combining(letter)
            or "\u1160" <= letter <= "\u11ff"
            or letter in "\uff9e\uff9f"
            or "\udc00" <= letter <= "\udfff"
        )
        if not starts or not joins:
            starts.append(at)
    return list(zip(starts, [*starts[1:], len(text)], strict=True))
