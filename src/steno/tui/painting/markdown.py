"""Markdown as lines of a terminal, whole or while it grows.

While an answer is being streamed only its last block can still change: everything before it is laid
out once.
"""

import io
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from steno.frontend.sanitize import sanitize
from steno.tui.painting.palette import Palette

if (
    TYPE_CHECKING
):  # both are loaded with the first text that is laid out, after the first frame
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from markdown_it.tree import SyntaxTreeNode
    from pygments.lexer import Lexer
    from pygments.token import _TokenType

Line = list[Segment]

CODE_CHARS_MAX = 60_000
"""Longer code is shown without colours."""
BLANK: Line = []

_console = Console(
    file=io.StringIO(), width=500, color_system="truecolor", tab_size=4
)


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


class Growing:
    """Markdown to which text is added at the end, behind a margin. Lines that are settled stay the
    same objects."""

    def __init__(self, palette: Palette, width: int, margin: int) -> None:
        self._painter = Painter(palette, width)
        self._margin = Segment(" " * margin)
        self._settled: list[Line] = []
        self._upto = 0

    def lines(self, text: str) -> list[Line]:
        """The lines of `text`, which begins with all that was given before. The last two blocks are
        not settled: what follows a list can turn out to go on with it."""
        tail = text[self._upto :]
        tokens = _parser().parse(sanitize(tail))
        starts = [
            token.map[0]
            for token in tokens
            if token.level == 0 and token.map is not None
        ]
        if len(starts) > 2:
            offset = _offset(tail, starts[-2])
            self._settled += [*self._laid_out(tail[:offset]), BLANK]
            self._upto += offset
            tail = tail[offset:]
        return self._settled + self._laid_out(tail)

    def _laid_out(self, text: str) -> list[Line]:
        return [
            [self._margin, *line] if line else BLANK
            for line in self._painter.lines(text)
        ]


def _offset(text: str, line: int) -> int:
    at = 0
    for _ in range(line):
        at = text.index("\n", at) + 1
    return at


class Painter:
    """Lays Markdown out in a width, in colours."""

    def __init__(self, palette: Palette, width: int) -> None:
        self._palette = palette
        self._width = max(width, 8)

    def lines(self, text: str) -> list[Line]:
        from markdown_it.tree import SyntaxTreeNode

        root = SyntaxTreeNode(_parser().parse(sanitize(text)))
        return self._blocks(root.children, self._width)

    def _blocks(
        self, nodes: Sequence["SyntaxTreeNode"], width: int, tight: bool = False
    ) -> list[Line]:
        found: list[Line] = []
        for node in nodes:
            if found and not tight:
                found.append(BLANK)
            found += self._block(node, width)
        return found

    def _block(self, node: "SyntaxTreeNode", width: int) -> list[Line]:
        colours = self._palette
        match node.type:
            case "paragraph":
                return wrapped(self._inline(node.children[0], Style()), width)
            case "heading":
                weight = Style(
                    bold=True, underline=node.tag == "h1", color=colours.heading
                )
                return wrapped(self._inline(node.children[0], weight), width)
            case "fence" | "code_block":
                return code(
                    node.content,
                    node.info.split()[0] if node.info.split() else "",
                    width,
                    colours,
                )
            case "bullet_list" | "ordered_list":
                return self._list(node, width)
            case "blockquote":
                bar = Segment("▎ ", Style(color=colours.faint))
                return [
                    [bar, *line]
                    for line in self._blocks(node.children, max(width - 2, 8))
                ]
            case "hr":
                return [[Segment("─" * width, Style(color=colours.faint))]]
            case "table":
                return _Table(self, colours).lines(node, width)
            case _:
                return wrapped(
                    Text(node.content.rstrip("\n"), Style(color=colours.soft)), width
                )

    def _list(self, node: "SyntaxTreeNode", width: int) -> list[Line]:
        first = (
            int(node.attrs.get("start", 1) or 1) if node.type == "ordered_list" else 0
        )
        signs = [
            f"{first + i}." if first or node.type == "ordered_list" else "•"
            for i in range(len(node.children))
        ]
        indent = max((len(sign) for sign in signs), default=1) + 1
        found: list[Line] = []
        loose = any(
            child.type == "paragraph" and not _hidden(child)
            for item in node.children
            for child in item.children
        )
        for sign, item in zip(signs, node.children, strict=True):
            if found and loose:
                found.append(BLANK)
            inner = self._blocks(
                item.children, max(width - indent, 8), tight=not loose
            ) or [BLANK]
            if (box := _BOX.match(inner[0][0].text if inner[0] else "")) is not None:
                sign = "☐" if box[1] == " " else "☑"
                begin = inner[0][0]
                inner[0] = [
                    Segment(begin.text[box.end() :], begin.style),
                    *inner[0][1:],
                ]
            mark = Segment(
                sign.rjust(indent - 1) + " ", Style(color=self._palette.accent)
            )
            found += [
                [mark, *inner[0]],
                *(
                    [Segment(" " * indent), *line] if line else line
                    for line in inner[1:]
                ),
            ]
        return found

    def inline(self, node: "SyntaxTreeNode", style: Style) -> Text:
        return self._inline(node, style)

    def _inline(self, node: "SyntaxTreeNode", style: Style) -> Text:
        found = Text()
        for child in node.children:
            self._span(found, child, style)
        return found

    def _span(self, found: Text, node: "SyntaxTreeNode", style: Style) -> None:
        colours = self._palette
        match node.type:
            case "text" | "html_inline":
                found.append(node.content, style)
            case "code_inline":
                found.append(
                    node.content,
                    style + Style(color=colours.name, bgcolor=colours.raised),
                )
            case "softbreak" | "hardbreak":
                found.append("\n")
            case "strong" | "em" | "s":
                weight = Style(
                    bold=node.type == "strong" or None,
                    italic=node.type == "em" or None,
                )
                inner = style + weight + Style(strike=node.type == "s" or None)
                for child in node.children:
                    self._span(found, child, inner)
            case "link" | "image":
                address = str(node.attrs.get("href", node.attrs.get("src", "")))
                before = len(found)
                opens = (
                    address if address.startswith(("http://", "https://")) else None
                )
                look = Style(color=colours.link, underline=True, link=opens)
                for child in node.children:
                    self._span(found, child, style + look)
                if found.plain[before:] not in (
                    address,
                    address.removeprefix("mailto:"),
                ):
                    found.append(f" ({address})", style + Style(color=colours.soft))
            case _:
                found.append(node.content, style)


COLUMN_CELLS_MIN = 3
_BOX = re.compile(r"\[([ xX])\] ")
"""A task, done or not, at the beginning of an item."""
_BETWEEN = " │ "


class _Table:
    """Columns as wide as they need to be; if that is too wide, the widest give way. Where there are
    more columns than fit at all, each row is a paragraph: nothing is cut off."""

    def __init__(self, painter: Painter, palette: Palette) -> None:
        self._painter = painter
        self._palette = palette

    def lines(self, node: "SyntaxTreeNode", width: int) -> list[Line]:
        head = Style(bold=True, color=self._palette.heading)
        rows = [
            [
                self._cell(cell, head if part.type == "thead" else Style())
                for cell in row.children
            ]
            for part in node.children
            for row in part.children
        ]
        if (COLUMN_CELLS_MIN + len(_BETWEEN)) * len(rows[0]) > width:
            between = Text(_BETWEEN, Style(color=self._palette.faint))
            return [
                line for row in rows for line in wrapped(between.join(row), width)
            ]
        sides = [
            str(cell.attrs.get("style", ""))
            for cell in node.children[0].children[0].children
        ]
        widths = fitted(
            [
                max(cell.cell_len for cell in column)
                for column in zip(*rows, strict=True)
            ],
            width - 1,
        )
        rule: Line = [
            Segment(
                "─" * (sum(widths) + 3 * (len(widths) - 1)),
                Style(color=self._palette.faint),
            )
        ]
        found: list[Line] = []
        for i, row in enumerate(rows):
            found += self._row(row, widths, sides)
            if i == 0:
                found.append(rule)
        return found

    def _cell(self, node: "SyntaxTreeNode", style: Style) -> Text:
        return (
            self._painter.inline(node.children[0], style) if node.children else Text()
        )

    def _row(
        self, row: list[Text], widths: list[int], sides: list[str]
    ) -> list[Line]:
        cells = [
            wrapped(cell, width) for cell, width in zip(row, widths, strict=True)
        ]
        between = Segment(_BETWEEN, Style(color=self._palette.faint))
        found: list[Line] = []
        for i in range(max(len(cell) for cell in cells)):
            line: Line = []
            for at, (cell, width, side) in enumerate(
                zip(cells, widths, sides, strict=True)
            ):
                part = cell[i] if i < len(cell) else []
                line += [between] if at else []
                line += _beside(part, width - Segment.get_line_length(part), side)
            found.append(line)
        return found


def _beside(part: Line, room: int, side: str) -> Line:
    """A line of a cell with the room that is left on the side that its column says."""
    before = room if "right" in side else room // 2 if "center" in side else 0
    return [
        *([Segment(" " * before)] if before else []),
        *part,
        Segment(" " * (room - before)),
    ]


def fitted(wanted: list[int], width: int) -> list[int]:
    room = max(
        width - len(_BETWEEN) * (len(wanted) - 1), COLUMN_CELLS_MIN * len(wanted)
    )
    given = [max(one, 1) for one in wanted]
    while sum(given) > room:
        widest = given.index(max(given))
        given[widest] -= 1
    return given


def _hidden(node: "SyntaxTreeNode") -> bool:
    opening: Token | None = (
        node.nester_tokens.opening if node.nester_tokens is not None else node.token
    )
    return opening is not None and opening.hidden


def wrapped(text: Text, width: int) -> list[Line]:
    text.expand_tabs(4)
    return [segments(line) for line in text.wrap(_console, max(width, 1))] or [BLANK]


def segments(text: Text) -> Line:
    text.end = ""
    base = (
        text.style if isinstance(text.style, Style) else None
    )  # a text without spans is rendered without its style
    return [
        segment
        for segment in Segment.apply_style(text.render(_console), base)
        if segment.text
    ]


def code(source: str, language: str, width: int, palette: Palette) -> list[Line]:
    """Code on a ground of its own. A line that is too long goes on in the next; nothing is cut
    off."""
    ground = Style(bgcolor=palette.raised)
    found: list[Line] = []
    if language:
        label = sanitize(language)[: width - 2]
        found.append(
            [Segment(f" {label}".ljust(width), ground + Style(color=palette.soft))]
        )
    for line in highlighted(source.rstrip("\n"), language, palette).split(
        "\n", allow_blank=True
    ):
        for part in wrapped(line, width - 2):
            room = max(width - 1 - Segment.get_line_length(part), 0)
            found.append(
                [
                    Segment(" ", ground),
                    *Segment.apply_style(part, ground),
                    Segment(" " * room, ground),
                ]
            )
    return found


def highlighted(source: str, language: str, palette: Palette) -> Text:
    text = Text(source, Style(color=palette.text))
    lexer = None if len(source) > CODE_CHARS_MAX else _lexer(language)
    if lexer is None:
        return text
    styles = _lexical(palette)
    at = 0
    for kind, value in lexer.get_tokens(source):
        end = min(at + len(value), len(source))
        if (style := _style_of(kind, styles)) is not None and value.strip():
            text.stylize(style, at, end)
        at = end
    return text


def _style_of(kind: "_TokenType", styles: dict[object, Style | None]) -> Style | None:
    """That of the kind itself, or of the nearest one that it belongs to."""
    while kind not in styles and kind.parent is not None:
        kind = kind.parent
    return styles.get(kind)


@lru_cache(64)
def _lexer(language: str) -> "Lexer | None":
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return (
            get_lexer_by_name(language, stripnl=False, ensurenl=False)
            if language
            else None
        )
    except ClassNotFound:
        return None


@lru_cache(4)
def _lexical(palette: Palette) -> dict[object, Style | None]:
    from pygments.token import Token as Lexical

    return {
        Lexical: None,
        Lexical.Comment: Style(color=palette.comment, italic=True),
        Lexical.Keyword: Style(color=palette.keyword),
        Lexical.Operator.Word: Style(color=palette.keyword),
        Lexical.Literal.String: Style(color=palette.string),
        Lexical.Literal.Number: Style(color=palette.number),
        Lexical.Keyword.Constant: Style(color=palette.number),
        Lexical.Name.Function: Style(color=palette.name),
        Lexical.Name.Class: Style(color=palette.name, bold=True),
        Lexical.Name.Decorator: Style(color=palette.warn),
        Lexical.Name.Builtin: Style(color=palette.name),
        Lexical.Name.Tag: Style(color=palette.keyword),
        Lexical.Name.Attribute: Style(color=palette.name),
        Lexical.Generic.Deleted: Style(color=palette.bad),
        Lexical.Generic.Inserted: Style(color=palette.good),
        Lexical.Generic.Heading: Style(color=palette.heading, bold=True),
        Lexical.Generic.Prompt: Style(color=palette.soft),
    }


def width_of(text: str) -> int:
    return cell_len(text)


def one_line(text: str, cells_max: int) -> str:
    """A text in one line of a terminal, on which some characters take two cells."""
    line = " ".join(sanitize(text[: cells_max * 8]).split())
    if cell_len(line) <= cells_max:
        return line
    return set_cell_size(line, cells_max - 1).rstrip() + "…" if cells_max > 0 else ""
