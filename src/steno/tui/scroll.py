"""The transcript on the screen. One widget that paints lines: of a long session only what is near
the screen is ever laid out, and however far a person scrolls, no more than a bounded number of
lines is held.

A window of the blocks is laid out. It grows where the screen comes near its edge and gives way at
the other one.
"""

import re
import time
from bisect import bisect_right
from typing import ClassVar

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from steno.tui.blocks import Answer, Block, Call, Notice, Said
from steno.tui.painting.block import MARGIN, Look, inner_width, paint
from steno.tui.painting.markdown import Growing, Line
from steno.tui.painting.palette import DARK, Palette

SCREENS_AHEAD = 2
"""So many screens beyond the edges of the visible one are laid out."""
LINES_MAX = 3_000


_FRAME = re.compile(r"^ *[│▌] ?| *│ *$")
_BORDER = re.compile(r"^ *[╭╰─].*[╮╯─] *$")


def _unframed(line: str) -> str:
    """A line without what is painted around it."""
    return _FRAME.sub("", line).rstrip()


def _not_frame(line: str) -> bool:
    return _BORDER.match(line) is None


class _Painted(Struct):
    block: Block
    look: Look
    lines: list[Line]
    strips: list[Strip]
    growing: Growing | None = None

    def strip(self, i: int, line: Line) -> Strip:
        """The strip of a line; while an answer grows most of them are as they were."""
        if i < len(self.lines) and self.lines[i] is line:
            return self.strips[i]
        return Strip(line, Segment.get_line_length(line))


class Scroll(ScrollView, can_focus=True):
    FOCUS_ON_CLICK = False  # who selects with the mouse goes on typing in the input
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "choose(-1)", "Message above"),
        Binding("down,j", "choose(1)", "Message below"),
        Binding("pageup,b", "screens(-1)", "A screen up"),
        Binding("pagedown,space", "screens(1)", "A screen down"),
        Binding("home,g", "top", "Earlier"),
        Binding("end,G", "bottom", "To the end"),
        Binding("enter,o", "unfold", "Fold, unfold"),
        Binding("c,y", "act('copy')", "Copy"),
        Binding("f", "act('fork')", "Fork here"),
        Binding("r", "act('rewind')", "Rewind to here"),
        Binding("h", "act('hide')", "Hide from the model"),
        Binding("escape,i", "leave", "Back to the input"),
    ]

    class WantsEarlier(Message):
        """The screen has come near the beginning of what is loaded."""

    class Acted(Message):
        """A person wants something done with a message."""

        def __init__(self, act: str, block: Block) -> None:
            super().__init__()
            self.act = act
            self.block = block

    class Left(Message):
        pass

    class Typed(Message):
        """Something was typed that is no key of the messages: it is meant for the input."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, palette: Palette = DARK) -> None:
        super().__init__()
        self.following = True
        """Whether the end of the session is kept on the screen."""
        self._palette = palette
        self._plain = False
        self._blocks: list[Block] = []
        self._lo = self._hi = 0
        self._starts: list[int] = []
        self._laid: list[list[Strip]] = []
        """What is painted until it is measured again, whatever has changed meanwhile."""
        self._painted: dict[str, _Painted] = {}
        self._opened: set[str] = set()
        self._chosen: str | None = None
        self._asking_earlier = False
        """Whether an earlier page was asked for and has not come, or never will."""

    # --- what is shown

    @property
    def laid_out(self) -> int:
        """How many lines are held."""
        return self.virtual_size.height

    @property
    def chosen(self) -> Block | None:
        return next(
            (block for block in self._blocks if block.key == self._chosen), None
        )

    def restyle(self, palette: Palette) -> None:
        self._palette = palette
        self._relayout()

    def show_plain(self, plain: bool) -> None:
        self._plain = plain
        self._relayout()

    def begin(self, blocks: list[Block]) -> None:
        """Another session."""
        self._painted.clear()
        self._opened.clear()
        self._chosen, self._asking_earlier, self.following = None, False, True
        self._blocks = blocks
        self._to_end()

    def show(self, blocks: list[Block]) -> None:
        """The blocks as they are now: most of them as they were."""
        at_end = self._hi >= len(self._blocks)
        self._blocks = blocks
        if self.following:
            self._lo = min(self._lo, len(blocks))
            self._hi = len(blocks)
            self._measure()
            self._trim_top()
            self._fill_up()
            self.scroll_end(animate=False, immediate=True, force=True)
        else:
            self._hi = len(blocks) if at_end else min(self._hi, len(blocks))
            self._measure()
        self.refresh()

    def put_before(self, blocks: list[Block]) -> None:
        """An earlier page; if there is nothing in it, there is none before it either."""
        self._asking_earlier = not blocks
        self._blocks = blocks + self._blocks
        self._lo += len(blocks)
        self._hi += len(blocks)
        self._extend()

    # --- layout

    def _look(self, block: Block) -> Look:
        live = isinstance(block, Call) and block.state == "running"
        return Look(
            self._palette,
            max(self.size.width - 1, 20),
            block.key in self._opened,
            block.key == self._chosen and self.has_focus,
            self._plain,
            block.key == self._blocks[0].key,
            int(time.time() * 1000) if live else 0,
        )

    def _strips(self, block: Block) -> list[Strip]:
        look, known = self._look(block), self._painted.get(block.key)
        if known is not None and known.look == look and known.block == block:
            return known.strips
        growing = None
        if (
            isinstance(block, Answer)
            and block.state == "streaming"
            and not look.plain
        ):
            growing = Growing(look.palette, inner_width(look.width), MARGIN)
            if known is not None and known.growing is not None and known.look == look:
                growing = known.growing
        before = known or _Painted(block, look, [], [])
        lines = paint(block, look, growing)
        strips = [before.strip(i, line) for i, line in enumerate(lines)]
        self._painted[block.key] = _Painted(block, look, lines, strips, growing)
        return strips

    def _measure(self) -> None:
        """Where each block of the window begins."""
        self._starts, self._laid, line = [], [], 0
        for block in self._blocks[self._lo : self._hi]:
            strips = self._strips(block)
            self._starts.append(line)
            self._laid.append(strips)
            line += len(strips)
        self.virtual_size = Size(self.size.width, line)

    def _to_end(self) -> None:
        self._lo = self._hi = len(self._blocks)
        self._measure()
        self._fill_up()
        self.scroll_end(animate=False, immediate=True, force=True)
        self.refresh()

    def _fill_up(self) -> int:
        """Lay out blocks above the window until there are enough; how many lines that added."""
        before, wanted = (
            self.virtual_size.height,
            self.size.height * (SCREENS_AHEAD + 1),
        )
        height = before
        while (
            self._lo > 0
            and height - round(self.scroll_y if not self.following else 0) < wanted
        ):
            self._lo -= 1
            height += len(self._strips(self._blocks[self._lo]))
        if height != before:
            self._measure()
        return height - before

    def _extend(self) -> None:
        """Lay out what comes near."""
        height, ahead = self.size.height, self.size.height * SCREENS_AHEAD
        if not height:
            return
        if self.scroll_y < ahead and self._lo > 0:
            added = 0
            while self._lo > 0 and added < ahead:
                self._lo -= 1
                added += len(self._strips(self._blocks[self._lo]))
            self._measure()
            self._shift(added)
            self._trim_bottom()
        if (
            self._hi < len(self._blocks)
            and self.scroll_y + height + ahead > self.virtual_size.height
        ):
            added = 0
            while self._hi < len(self._blocks) and added < ahead:
                added += len(self._strips(self._blocks[self._hi]))
                self._hi += 1
            self._measure()
            self._trim_top()
        if (
            self._lo == 0
            and self.scroll_y < height
            and not self._asking_earlier
            and not self.following
        ):
            self._asking_earlier = True
            self.post_message(self.WantsEarlier())

    def _trim_top(self) -> None:
        dropped = 0
        keep = max(LINES_MAX, 8 * self.size.height)
        while self.virtual_size.height - dropped > keep and self._lo < self._hi - 1:
            block = self._blocks[self._lo]
            dropped += len(self._strips(block))
            self._painted.pop(block.key, None)
            self._lo += 1
        if dropped:
            self._measure()
            if not self.following:
                self._shift(-dropped)

    def _trim_bottom(self) -> None:
        dropped = 0
        keep = max(LINES_MAX, 8 * self.size.height)
        while self.virtual_size.height - dropped > keep and self._hi > self._lo + 1:
            self._hi -= 1
            block = self._blocks[self._hi]
            dropped += len(self._strips(block))
            self._painted.pop(block.key, None)
        if dropped:
            self._measure()

    def _shift(self, lines: int) -> None:
        """What is on the screen stays where it is, although lines came or went above it."""
        self.screen.clear_selection()
        self.set_reactive(Scroll.scroll_y, max(self.scroll_y + lines, 0))
        self.set_reactive(Scroll.scroll_target_y, self.scroll_y)
        self.vertical_scrollbar.position = (
            self.scroll_y
        )  # what is set silently is not watched
        self._refresh_scroll()
        self.refresh()

    def _relayout(self) -> None:
        """Everything looks different now. The block at the top of the screen stays there."""
        if not self.size.width:
            return
        top = None if self.following else self._block_at(round(self.scroll_y))
        self._painted.clear()
        if top is None:
            self._to_end()
            return
        self._lo, self._hi = self._lo + top, self._lo + top + 1
        self._measure()
        self.scroll_to(y=0, animate=False, immediate=True, force=True)
        self._extend()
        self.refresh()

    def _block_at(self, line: int) -> int | None:
        """The block at a line, counted from the beginning of the window."""
        return (
            bisect_right(self._starts, line) - 1
            if 0 <= line < self.virtual_size.height
            else None
        )

    # --- painting

    def render_line(self, y: int) -> Strip:
        line = round(self.scroll_y) + y
        base = Style(color=self._palette.text, bgcolor=self._palette.ground)
        at = self._block_at(line)
        if at is None:
            return Strip.blank(self.size.width, base)
        strip = self._laid[at][line - self._starts[at]]
        strip = strip.crop_extend(0, self.size.width, base).apply_style(base)
        if (selection := self.text_selection) is not None and (
            span := selection.get_span(line)
        ) is not None:
            strip = self._selected(strip, *span)
        return strip.apply_offsets(0, line)

    def _selected(self, strip: Strip, start: int, end: int) -> Strip:
        text = strip.text
        first = cell_len(text[:start])
        last = self.size.width if end == -1 else cell_len(text[:end])
        under = Style(bgcolor=self._palette.accent, color=self._palette.ground)
        middle = Strip(
            [Segment(part.text, under) for part in strip.crop(first, last)]
        )
        return Strip.join([strip.crop(0, first), middle, strip.crop(last)])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        lines = (strip.text.rstrip() for strips in self._laid for strip in strips)
        taken = selection.extract("\n".join(lines))
        return "\n".join(filter(_not_frame, map(_unframed, taken.split("\n")))), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    @property
    def allow_select(self) -> bool:
        return True

    def tick(self) -> None:
        """Clocks of running calls go on."""
        live = [
            b
            for b in self._blocks[self._lo : self._hi]
            if isinstance(b, Call) and b.state == "running"
        ]
        if live:
            self.show(self._blocks)

    # --- moving

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.vertical_scrollbar.position = (
            new_value  # also while it is not shown: it is not told when it comes
        )
        if self.size.height and new_value != old_value:
            at_end = self._hi >= len(self._blocks) and new_value >= self.max_scroll_y
            self.following = at_end
            if not at_end:
                self._extend()

    def on_resize(self, event: events.Resize) -> None:
        self._relayout()

    def on_focus(self) -> None:
        if self._chosen is None and self._blocks:
            self.action_choose(0)
        self.show(self._blocks)

    def on_blur(self) -> None:
        self.show(self._blocks)

    def action_choose(self, by: int) -> None:
        """Go to another message."""
        choosable = [
            i for i, block in enumerate(self._blocks) if not isinstance(block, Notice)
        ]
        if not choosable:
            return
        now = next(
            (
                n
                for n, i in enumerate(choosable)
                if self._blocks[i].key == self._chosen
            ),
            len(choosable) - 1,
        )
        if now + by >= len(choosable):
            self.action_bottom()
            return
        index = choosable[max(now + by, 0)]
        self._chosen = self._blocks[index].key
        self._bring(index)

    def go_to(self, seq: int) -> bool:
        """Choose the message at a seq; whether it is here."""
        found = [
            i
            for i, one in enumerate(self._blocks)
            if getattr(one, "seq", None) == seq
        ]
        if found:
            self.following, self._chosen = False, self._blocks[found[0]].key
            self._bring(found[0])
        return bool(found)

    def go_to_said(self) -> bool:
        """Choose what was said last; whether anything was."""
        said = [one.seq for one in self._blocks if isinstance(one, Said) and one.seq]
        return bool(said) and self.go_to(said[-1])

    def _bring(self, index: int) -> None:
        """Bring a block onto the screen."""
        while index < self._lo:
            self._lo -= 1
        while index >= self._hi:
            self._hi += 1
        before = self.virtual_size.height
        self._measure()
        if self.virtual_size.height != before:
            self._trim_bottom()
        start = self._starts[index - self._lo]
        height = len(self._strips(self._blocks[index]))
        top, bottom = round(self.scroll_y), round(self.scroll_y) + self.size.height
        if start < top or height >= self.size.height:
            self.scroll_to(y=start, animate=False, immediate=True, force=True)
        elif start + height > bottom:
            self.scroll_to(
                y=start + height - self.size.height,
                animate=False,
                immediate=True,
                force=True,
            )
        self._extend()
        self.refresh()

    def action_screens(self, by: int) -> None:
        self.scroll_to(
            y=self.scroll_y + by * max(self.size.height - 2, 1),
            animate=False,
            immediate=True,
            force=True,
        )

    def action_top(self) -> None:
        self.following = False
        self.scroll_to(y=0, animate=False, immediate=True, force=True)
        self._extend()

    def action_bottom(self) -> None:
        self.following = True
        for block in self._blocks[: self._lo]:
            self._painted.pop(block.key, None)
        self._to_end()

    def action_unfold(self) -> None:
        if self._chosen is not None:
            self._opened ^= {self._chosen}
            self.show(self._blocks)

    def action_act(self, act: str) -> None:
        if (block := self.chosen) is not None:
            self.post_message(self.Acted(act, block))

    def action_leave(self) -> None:
        self._chosen = None
        self.post_message(self.Left())

    def on_key(self, event: events.Key) -> None:
        here = self.app.focused is self
        if (char := event.character) and event.is_printable:
            if here and event.key in self._bindings.key_to_bindings:
                return
            event.stop()
            event.prevent_default()
            self._chosen = None
            self.post_message(self.Typed(char))

    def on_click(self, event: events.Click) -> None:
        at = self._block_at(round(self.scroll_y) + event.y)
        if at is None or self.text_selection is not None:
            return
        block = self._blocks[self._lo + at]
        if isinstance(block, Call) or (isinstance(block, Answer) and block.reasoning):
            line = round(self.scroll_y) + event.y - self._starts[at]
            if isinstance(block, Call) or line == 0:
                self._opened ^= {block.key}
        self._chosen = block.key
        self.show(self._blocks)
