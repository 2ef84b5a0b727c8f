"""Paints how a file differs: hunks with line numbers and marked words; side by side where there is
room for that."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import zip_longest

from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style

from steno.frontend.sanitize import sanitize
from steno.tui.painting.markdown import Line, highlighted, segments
from steno.tui.painting.palette import Palette
from steno.workspace.diffs import Diff, DiffLine, Hunk

WIDE = 100
"""From this width on, the old version stands beside the new one."""
TAB = "    "


class _DiffLook(Struct, frozen=True):
    palette: Palette
    language: str


@lru_cache(64)
def _language(path: str) -> str:
    """What a file is written in, by its name; "" if that is not known."""
    from pygments.lexers import find_lexer_class_for_filename

    found = find_lexer_class_for_filename(path)
    return "" if found is None else found.aliases[0] if found.aliases else ""


def paint_diff(diff: Diff, width: int, palette: Palette, most: int) -> list[Line]:
    """Its lines, as many as are wanted, and how many are left out."""
    head = _head(diff, palette)
    if diff.binary:
        return [
            head,
            [Segment("not text; its bytes differ", Style(color=palette.soft))],
        ]
    found: list[Line] = []
    look = _DiffLook(palette, _language(diff.path))
    for number, hunk in enumerate(diff.hunks):
        if number:
            found.append([Segment("⋯", Style(color=palette.soft))])
        found += (
            _beside(hunk, width, look) if width >= WIDE else _below(hunk, width, look)
        )
    left = len(found) - most
    if left > 0:
        more: Line = [Segment(f"… {left:,} more lines", Style(color=palette.accent))]
        found = [*found[:most], more]
    return [head, *found]


def _head(diff: Diff, palette: Palette) -> Line:
    what = {"made": "new file", "removed": "removed", "changed": ""}[diff.kind]
    return [
        Segment(diff.path, Style(color=palette.heading, bold=True)),
        Segment(f"  +{diff.added}", Style(color=palette.good)),
        Segment(f" -{diff.removed}", Style(color=palette.bad)),
        Segment(f"  {what}" if what else "", Style(color=palette.soft)),
    ]


def _below(hunk: Hunk, width: int, look: _DiffLook) -> list[Line]:
    wide = _number_width(hunk)
    lines = []
    for line in hunk.lines:
        numbers = " ".join(
            "".rjust(wide) if number is None else str(number).rjust(wide)
            for number in (line.old, line.new)
        )
        lead = Segment(f"{numbers} ", Style(color=look.palette.soft))
        lines.append([lead, *_text(line, width - 2 * wide - 2, look)])
    return lines


def _beside(hunk: Hunk, width: int, look: _DiffLook) -> list[Line]:
    """The old version to the left, the new one to the right."""
    wide = _number_width(hunk)
    room = (width - 3) // 2 - wide - 1
    lines: list[Line] = []
    for old, new in _pairs(hunk):
        left = _half(old, old.old if old else None, room, wide, look)
        right = _half(new, new.new if new else None, room, wide, look)
        lines.append([*left, Segment(" │ ", Style(color=look.palette.faint)), *right])
    return lines


def _half(
    line: DiffLine | None, number: int | None, room: int, wide: int, look: _DiffLook
) -> Line:
    if line is None:
        return [Segment(" " * (room + wide + 1))]
    lead = "" if number is None else str(number)
    number_style = Style(color=look.palette.soft)
    return [Segment(f"{lead.rjust(wide)} ", number_style), *_text(line, room, look)]


def _pairs(hunk: Hunk) -> Iterator[tuple[DiffLine | None, DiffLine | None]]:
    gone: list[DiffLine] = []
    come: list[DiffLine] = []
    for line in hunk.lines:
        if line.sign == "-":
            gone.append(line)
        elif line.sign == "+":
            come.append(line)
        else:
            yield from zip_longest(gone, come)
            gone, come = [], []
            yield line, line
    yield from zip_longest(gone, come)


def _unsafe(line: DiffLine, room: int, palette: Palette) -> Line:
    """Text that would act on a terminal: shown, and not coloured by what it means."""
    grounds = {"+": palette.added, "-": palette.removed, " ": palette.ground}
    words = {"+": palette.added_word, "-": palette.removed_word, " ": palette.ground}
    plain = Style(color=palette.text, bgcolor=grounds[line.sign])
    marked = Style(color=palette.text, bgcolor=words[line.sign], bold=True)
    found: Line = [Segment(f"{line.sign} ", plain)]
    left, at = max(room - 2, 1), 0
    for start, end in (*line.marked, (len(line.text), len(line.text))):
        for text, style in (
            (line.text[at:start], plain),
            (line.text[start:end], marked),
        ):
            shown = sanitize(text.replace("\t", TAB)).replace("\n", " ")
            if cell_len(shown) > left:
                shown = set_cell_size(shown, max(left - 1, 0)) + "…"[: left > 0]
            left -= cell_len(shown)
            found.append(Segment(shown, style))
        at = end
    return [*found, Segment(" " * max(left, 0), plain)]


def _text(line: DiffLine, room: int, look: _DiffLook) -> Line:
    """A sign and the text, coloured by what it means, on a ground that goes to the end of the
    line."""
    palette = look.palette
    text = line.text.rstrip("\n")
    if sanitize(text) != text:
        return _unsafe(line, room, palette)
    grounds = {"+": palette.added, "-": palette.removed, " ": palette.ground}
    words = {"+": palette.added_word, "-": palette.removed_word, " ": palette.ground}
    plain = Style(color=palette.text, bgcolor=grounds[line.sign])
    shown = highlighted(text, look.language, palette)
    for start, end in line.marked:
        shown.stylize(Style(bgcolor=words[line.sign], bold=True), start, end)
    shown.expand_tabs(len(TAB))
    shown.truncate(max(room - 2, 1), overflow="ellipsis", pad=True)
    parts = [
        Segment(one.text, plain + (one.style or Style())) for one in segments(shown)
    ]
    return [Segment(f"{line.sign} ", plain), *parts]


def _number_width(hunk: Hunk) -> int:
    return max(len(str(line.old or line.new or 0)) for line in hunk.lines)
