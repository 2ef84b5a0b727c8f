"""Paints a block as lines of a terminal."""

import json
from typing import assert_never

from msgspec import Struct
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from steno.frontend.sanitize import output, sanitize
from steno.tui import wording
from steno.tui.blocks import Answer, Block, Call, CallState, Notice, Said, Start, Tone
from steno.tui.painting.diff import paint_diff
from steno.tui.painting.markdown import (
    BLANK,
    Growing,
    Line,
    Painter,
    code,
    one_line,
    width_of,
    wrapped,
)
from steno.tui.painting.palette import Palette

MARGIN = 2
OUTPUT_LINES = 6
"""Shown of a call's output while it is folded: the first ones of one that returned, else the last:
they say why."""
REASONING_LINES = 3
OUTPUT_LINES_MAX = 2_000
DIFF_LINES = 16
DIFF_LINES_MAX = 2_000
RECENT_CELLS = 64
_LANGUAGES = {"shell": "bash"}

_SIGNS: dict[CallState, tuple[str, str]] = {
    "asked": ("?", "waits for you"),
    "waiting": ("·", "waits"),
    "running": ("●", "running"),
    "returned": ("✓", ""),
    "failed": ("✗", "failed"),
    "refused": ("⊘", "not run"),
    "interrupted": ("■", "stopped"),
    "unknown": ("?", "outcome unknown"),
}


class Look(Struct, frozen=True):
    """How a block is painted. `opened`: a person has unfolded it. `plain`: nothing but its text.
    `first`: nothing is above it."""

    palette: Palette
    width: int
    opened: bool = False
    chosen: bool = False
    plain: bool = False
    first: bool = False
    now_ms: int = 0


def paint(block: Block, look: Look, growing: Growing | None = None) -> list[Line]:
    """The lines of a block, the blank one after it included."""
    if look.plain:
        return [*_plain(block, look), BLANK]
    match block:
        case Said():
            lines = _said(block, look)
        case Answer():
            lines = _answer(block, look, growing)
        case Call():
            lines = _card(block, look)
        case Start():
            lines = _start(block, look)
        case Notice():
            lines = _notice(block, look)
        case unreachable:
            assert_never(unreachable)
    if block.undone or block.hidden:
        lines = [_dimmed(line, look.palette) for line in lines]
        told = (
            "undone: the model is not told this"
            if block.undone
            else "hidden: the model is not told this"
        )
        lines.append(_beside(told, look))
    if look.chosen:
        lines = [_marked(line, look) for line in lines]
    return [*([BLANK] if look.first else []), *lines, BLANK]


def inner_width(width: int) -> int:
    """What is left of a width for the text of an answer."""
    return max(width - 2 * MARGIN, 10)


def _said(block: Said, look: Look) -> list[Line]:
    colours, width = look.palette, inner_width(look.width)
    ground = Style(bgcolor=colours.raised)
    bar = Segment("▌", Style(color=colours.accent, bgcolor=colours.raised))
    text = Text(sanitize(block.text), Style(color=colours.text))
    lines = wrapped(text, width - 2) if block.text else []
    lines += [
        [Segment(one_line(f"+ {name}", width - 2), Style(color=colours.link))]
        for name in block.files
    ]
    found: list[Line] = []
    for line in lines or [BLANK]:
        room = max(look.width - 3 - Segment.get_line_length(line), 0)
        found.append(
            [
                Segment(" "),
                bar,
                Segment(" ", ground),
                *_on(line, ground),
                Segment(" " * room, ground),
            ]
        )
    told = {
        "failed": "not answered",
        "interrupted": "not answered",
        "withdrawn": "taken back",
        "given": "said elsewhere",
    }
    if block.state in told:
        found.append(_beside(told[block.state], look))
    return found


def _answer(block: Answer, look: Look, growing: Growing | None) -> list[Line]:
    width = inner_width(look.width)
    found = _reasoning(block, look) if block.reasoning else []
    if block.text:
        found += [BLANK] if found else []
        if growing is not None:
            found += growing.lines(block.text)
        else:
            found += [
                _indented(line)
                for line in Painter(look.palette, width).lines(block.text)
            ]
    match block.state:
        case "streaming":
            cursor = Segment(
                " ▍" if block.text else "▍", Style(color=look.palette.accent)
            )
            if block.text and found and found[-1]:
                found[-1] = [*found[-1], cursor]
        case "given":
            found.append(_beside("said elsewhere", look))
        case _:
            pass
    return found or [_beside("said nothing", look)]


def _reasoning(block: Answer, look: Look) -> list[Line]:
    style = Style(color=look.palette.soft, italic=True)
    lines = wrapped(
        Text(sanitize(block.reasoning.strip()), style), inner_width(look.width) - 2
    )
    thinking = block.state == "streaming" and not block.text
    sign = "▾" if look.opened or thinking else "▸"
    word = "thinking…" if thinking else f"thought ({_lines(len(lines))})"
    shown = lines if look.opened else lines[-REASONING_LINES:] if thinking else []
    head: Line = [
        Segment(f"{' ' * MARGIN}{sign} {word}", Style(color=look.palette.soft))
    ]
    bar = Segment(" " * MARGIN + "│ ", Style(color=look.palette.faint))
    return [head, *([bar, *line] for line in shown)]


def _card(block: Call, look: Look) -> list[Line]:
    colours = look.palette
    tone = {
        "returned": colours.good,
        "failed": colours.bad,
        "unknown": colours.warn,
        "asked": colours.warn,
    }
    edge = Style(color=colours.warn if block.state == "asked" else colours.faint)
    sign, word = _SIGNS[block.state]
    mark = Style(
        color=tone.get(
            block.state, colours.accent if block.state == "running" else colours.soft
        )
    )
    took = _took(block, look)
    right = " ".join(filter(None, (word, took, sign)))
    width = look.width - 2 * MARGIN
    subject = block.subject()
    name = one_line(block.name, max(width // 2, 8))
    room = width - width_of(name) - len(right) - 10
    title = one_line(subject, room) if room > 3 else ""
    cut = title != subject.strip()
    whole = not cut and _is_all(block, subject)
    between = max(room - width_of(title) + 1, 1)
    top: Line = [
        Segment(" " * MARGIN + "╭─ ", edge),
        Segment(name, Style(color=colours.heading, bold=True)),
        Segment(" " + title, Style(color=colours.text)),
        Segment(" " + "─" * between + " ", edge),
        Segment(right, mark),
        Segment(" ─╮", edge),
    ]
    if block.name == "todo" and (steps := block.given().get("steps")):
        body = _steps(steps, look, width - 4)
        return [
            top,
            *(_framed(line, width, edge) for line in body),
            _bottom(width, edge),
        ]
    if block.diff is not None and block.state not in ("failed", "refused"):
        most = DIFF_LINES_MAX if look.opened or block.state == "asked" else DIFF_LINES
        body = paint_diff(block.diff, width - 4, colours, most)
        body += _reason(block, look, width - 4)
        return [
            top,
            *(_framed(line, width, edge) for line in body),
            _bottom(width, edge),
        ]
    told = look.opened or (block.state == "asked" and not whole)
    body = _arguments(block, look, width - 4) if told else []
    if told and cut and "command" not in block.given():
        body = (
            wrapped(Text(sanitize(subject), Style(color=colours.text)), width - 4)
            + body
        )
    body += _reason(block, look, width - 4)
    body += _output(block, look, width - 4)
    if not body:
        return [_single(top)]
    return [top, *(_framed(line, width, edge) for line in body), _bottom(width, edge)]


def _reason(block: Call, look: Look, width: int) -> list[Line]:
    if not block.why or not (look.opened or block.state == "asked"):
        return []
    text = Text(f"because: {sanitize(block.why)}", Style(color=look.palette.warn))
    return wrapped(text, width)


def _steps(steps: object, look: Look, width: int) -> list[Line]:
    """A list of what is to be done, with a box for each."""
    colours = look.palette
    looks = {
        "done": ("☑", Style(color=colours.soft, strike=True)),
        "doing": ("▸", Style(color=colours.accent, bold=True)),
    }
    found: list[Line] = []
    for step in steps if isinstance(steps, list) else []:
        if isinstance(step, dict):
            sign, style = looks.get(
                str(step.get("status")), ("☐", Style(color=colours.text))
            )
            text = one_line(str(step.get("text", "")), width - 3)
            found.append(
                [
                    Segment(f"{sign} ", Style(color=colours.accent)),
                    Segment(text, style),
                ]
            )
    return found


def _single(top: Line) -> Line:
    """A card with nothing in it is a line."""
    first, last = top[0], top[-1]
    return [
        Segment(first.text.replace("╭", "─"), first.style),
        *top[1:-1],
        Segment(" ──", last.style),
    ]


def _framed(line: Line, width: int, edge: Style) -> Line:
    room = max(width - 4 - Segment.get_line_length(line), 0)
    return [
        Segment(" " * MARGIN + "│ ", edge),
        *line,
        Segment(" " * room + " │", edge),
    ]


def _bottom(width: int, edge: Style) -> Line:
    return [Segment(" " * MARGIN + "╰" + "─" * (width - 2) + "╯", edge)]


def _took(block: Call, look: Look) -> str:
    if block.took_ms is not None:
        return wording.duration(block.took_ms)
    if block.state == "running" and look.now_ms > block.began_ms > 0:
        return wording.duration((look.now_ms - block.began_ms) // 1_000 * 1_000)
    return ""


def _is_all(block: Call, subject: str) -> bool:
    """Whether a call says nothing beyond its subject."""
    given = block.given()
    return block.state != "asked" or len(given) <= 1 or subject == block.arguments


def _arguments(block: Call, look: Look, width: int) -> list[Line]:
    """All of them: a person who is asked about a call sees the whole of it."""
    given, colours = block.given(), look.palette
    match given:
        case {"command": str(command), **rest} if not rest:
            return code(
                sanitize(command), _LANGUAGES.get(block.name, ""), width, colours
            )
        case {"path": str(path), "content": str(content), **rest} if not rest:
            return code(sanitize(content), path.rpartition(".")[2], width, colours)
        case {"path": str(), "old": str(old), "new": str(new), **rest} if not rest:
            lines = [f"-{line}" for line in old.splitlines()] + [
                f"+{line}" for line in new.splitlines()
            ]
            return code(sanitize("\n".join(lines)), "diff", width, colours)
        case _:
            pretty = (
                json.dumps(given, indent=2, ensure_ascii=False)
                if given
                else block.arguments
            )
            return code(sanitize(pretty), "json", width, colours)


def _output(block: Call, look: Look, width: int) -> list[Line]:
    text = output(block.output).rstrip("\n")
    if not text:
        return []
    style = Style(color=look.palette.text if look.opened else look.palette.soft)
    rows = text.split("\n")
    most = OUTPUT_LINES_MAX if look.opened else OUTPUT_LINES
    ends = block.state != "returned"
    kept = rows[-most:] if ends else rows[:most]
    lines = [part for row in kept for part in wrapped(Text(row, style), width)]
    cut = lines[-most:] if ends else lines[:most]
    left = len(rows) - len(kept) or len(lines) - len(cut)
    if left:
        where = "before" if ends else "more"
        more: Line = [
            Segment(f"… {_lines(left)} {where}", Style(color=look.palette.accent))
        ]
        return [more, *cut] if ends else [*cut, more]
    return cut


def _lines(number: int) -> str:
    return "1 line" if number == 1 else f"{number:,} lines"


def _notice(block: Notice, look: Look) -> list[Line]:
    colour = _tone(block.tone, look.palette)
    lines = wrapped(
        Text(sanitize(block.text), Style(color=colour)), inner_width(look.width) - 2
    )
    mark = Segment(" " * MARGIN + "─ ", Style(color=look.palette.faint))
    return [
        [mark if i == 0 else Segment(" " * (MARGIN + 2)), *line]
        for i, line in enumerate(lines)
    ]


def _start(block: Start, look: Look) -> list[Line]:
    colours, width = look.palette, inner_width(look.width)

    def told(text: str, colour: str, bold: bool = False) -> list[Line]:
        lines = wrapped(Text(sanitize(text), Style(color=colour, bold=bold)), width)
        return [_indented(line) for line in lines]

    found: list[Line] = told(block.text, colours.good)
    if block.warning:
        found += [BLANK, *told(block.warning, colours.warn)]
    if block.place:
        found += [BLANK, *told(block.place, colours.heading, bold=True)]
    if block.recent:
        found += [BLANK, *told("Recent here; Ctrl-O opens one", colours.soft)]
    for title, ago in block.recent:
        room = max(min(width - 8, RECENT_CELLS) - len(ago) - 4, 8)
        name = one_line(title, room)
        gap = " " * (room - width_of(name) + 2)
        found.append(
            [
                Segment(" " * (MARGIN + 2) + name, Style(color=colours.text)),
                Segment(gap + ago, Style(color=colours.soft)),
            ]
        )
    if block.tip:
        found += [BLANK, *told(block.tip, colours.soft)]
    return found


def _beside(text: str, look: Look, tone: Tone = "quiet") -> Line:
    return [
        Segment(" " * MARGIN + "─ " + text, Style(color=_tone(tone, look.palette)))
    ]


def _tone(tone: Tone, palette: Palette) -> str:
    return {
        "quiet": palette.soft,
        "good": palette.good,
        "warn": palette.warn,
        "bad": palette.bad,
    }[tone]


def _indented(line: Line) -> Line:
    return [Segment(" " * MARGIN), *line] if line else line


def _on(line: Line, ground: Style) -> Line:
    return [
        Segment(part.text, ground if part.style is None else ground + part.style)
        for part in line
    ]


def _dimmed(line: Line, palette: Palette) -> Line:
    faded = Style(color=palette.comment)
    return [
        Segment(part.text, faded if part.style is None else part.style + faded)
        for part in line
    ]


def _marked(line: Line, look: Look) -> Line:
    """The message that is selected: another ground, and a sign for terminals without colours."""
    ground = Style(bgcolor=look.palette.chosen)
    marked = [
        Segment(part.text, ground if part.style is None else part.style + ground)
        for part in line
    ]
    room = max(look.width - Segment.get_line_length(line), 0)
    text = "".join(part.text for part in marked[:1])
    if text.startswith(" "):
        marked[0] = Segment(
            "▸" + text[1:],
            (marked[0].style or ground) + Style(color=look.palette.accent),
        )
    elif not marked:
        return [
            Segment(
                "▸" + " " * max(room - 1, 0),
                ground + Style(color=look.palette.accent),
            )
        ]
    return [*marked, Segment(" " * room, ground)]


def _plain(block: Block, look: Look) -> list[Line]:
    """Text as it is stored, with a word for who says it, and nothing that a copy would have to be
    cleaned of."""
    match block:
        case Said():
            head, text = "you:", block.text
        case Answer():
            head, text = "", block.text
        case Call():
            head, text = f"{block.name} {block.arguments}", output(block.output)
        case Notice():
            head, text = "", f"[{block.text}]"
        case unreachable:
            assert_never(unreachable)
    whole = "\n".join(filter(None, (head, text)))
    return wrapped(Text(sanitize(whole)), look.width)
