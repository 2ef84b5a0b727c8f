"""Paints how a file differs: hunks with line numbers and marked words; side by side where there is
room for that."""

from collections.abc import Iterator
from itertools import zip_longest

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style

from steno.frontend.sanitize import sanitize
from steno.tui.painting.markdown import Line
from steno.tui.painting.palette import Palette
from steno.workspace.diffs import Diff, DiffLine, Hunk

WIDE = 100
"""From this width on, the old version stands beside the new one."""
TAB = "    "


def paint_diff(diff: Diff, width: int, palette: Palette, most: int) -> list[Line]:
    """Its lines, as many as are wanted, and how many are left out."""
    head = _head(diff, palette)
    if diff.binary:
        return [head, [Segment("not text; its bytes differ", Style(color=palette.soft))]]
    found: list[Line] = []
    for number, hunk in enumerate(diff.hunks):
        if number:
            found.append([Segment("⋯", Style(color=palette.soft))])
        found += _beside(hunk, width, palette) if width >= WIDE else _below(hunk, width, palette)
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


def _below(hunk: Hunk, width: int, palette: Palette) -> list[Line]:
    wide = _number_width(hunk)
    lines = []
    for line in hunk.lines:
        numbers = " ".join(
            "".rjust(wide) if number is None else str(number).rjust(wide)
            for number in (line.old, line.new)
        )
        lead = Segment(f"{numbers} ", Style(color=palette.soft))
        lines.append([lead, *_text(line, width - 2 * wide - 2, palette)])
    return lines


def _beside(hunk: Hunk, width: int, palette: Palette) -> list[Line]:
    """The old version to the left, the new one to the right."""
    wide = _number_width(hunk)
    room = (width - 3) // 2 - wide - 1
    lines: list[Line] = []
    for old, new in _pairs(hunk):
        left = _half(old, old.old if old else None, room, wide, palette)
        right = _half(new, new.new if new else None, room, wide, palette)
        lines.append([*left, Segment(" │ ", Style(color=palette.faint)), *right])
    return lines


def _half(
    line: DiffLine | None, number: int | None, room: int, wide: int, palette: Palette
) -> Line:
    if line is None:
        return [Segment(" " * (room + wide + 1))]
    lead = "" if number is None else str(number)
    return [Segment(f"{lead.rjust(wide)} ", Style(color=palette.soft)), *_text(line, room, palette)]


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


def _text(line: DiffLine, room: int, palette: Palette) -> Line:
    """A sign and the text, on a ground that goes to the end of the line."""
    grounds = {"+": palette.added, "-": palette.removed, " ": palette.ground}
    words = {"+": palette.added_word, "-": palette.removed_word, " ": palette.ground}
    plain = Style(color=palette.text, bgcolor=grounds[line.sign])
    marked = Style(color=palette.text, bgcolor=words[line.sign], bold=True)
    found: Line = [Segment(f"{line.sign} ", plain)]
    left, at = max(room - 2, 1), 0
    for start, end in (*line.marked, (len(line.text), len(line.text))):
        for text, style in ((line.text[at:start], plain), (line.text[start:end], marked)):
            shown = sanitize(text.replace("\t", TAB)).replace("\n", " ")
            if cell_len(shown) > left:
                shown = set_cell_size(shown, max(left - 1, 0)) + "…"[: left > 0]
            left -= cell_len(shown)
            found.append(Segment(shown, style))
        at = end
    return [*found, Segment(" " * max(left, 0), plain)]


def _number_width(hunk: Hunk) -> int:
    return max(len(str(line.old or line.new or 0)) for line in hunk.lines)
