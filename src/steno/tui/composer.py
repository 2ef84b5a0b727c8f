"""Where a person types. Enter sends, Ctrl-J makes a new line; what is pasted keeps its lines."""

import contextlib
import os
import shlex
import time
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import TextArea

from steno.tui.offers import Command, Offers
from steno.tui.painting.markdown import one_line
from steno.tui.painting.palette import DARK, Palette

HISTORY_MAX = 200
SHOWN_MAX = 7
GUARD_S = 0.4
"""A key that comes so soon after a question was meant for something else: it answers nothing."""
PASTE_CHARS_MAX = 1_500
PASTE_LINES_MAX = 12
"""A longer paste stands as one line."""
NEW_LINE = frozenset(("ctrl+j", "shift+enter", "alt+enter", "ctrl+enter"))


def is_path(text: str) -> bool:
    """Whether what is pasted is the path of a file, as terminals write one that is dropped."""
    typed = text.strip()
    if "\n" in typed or not typed.startswith(("/", "~", "file://", "'/", '"/')):
        return False
    return meant_path(typed).is_file()


def meant_path(typed: str) -> Path:
    """The file that is meant: as it is typed, or as shells, terminals and file managers write
    one."""
    words = [typed, typed.strip("'\"")]
    with contextlib.suppress(ValueError):  # a quotation mark that is part of the name
        words.append(" ".join(shlex.split(typed)))
    if typed.startswith("file://"):
        words.append(unquote(urlsplit(typed).path))
    paths = [_from_home(Path(word)) for word in words]
    return next(filter(os.path.exists, paths), paths[1])


def _from_home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # this machine does not know that person
        return path


class Completions(Widget):
    """The commands that what is typed can become."""

    DEFAULT_CSS = "Completions { height: auto; display: none; }"

    def __init__(self, palette: Palette = DARK) -> None:
        super().__init__()
        self.palette = palette
        self._found: list[Command] = []
        self._at = 0

    @property
    def chosen(self) -> Command | None:
        return self._found[self._at] if self._found else None

    def offer(self, found: list[Command]) -> None:
        if found != self._found:
            self._found, self._at = found, 0
            self.display = bool(found)
            self.refresh(layout=True)  # which paints the whole screen anew

    def move(self, by: int) -> None:
        self._at = (self._at + by) % max(len(self._found), 1)
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return min(len(self._found), SHOWN_MAX)

    def render_line(self, y: int) -> Strip:
        colours = self.palette
        first = max(0, min(self._at - SHOWN_MAX + 2, len(self._found) - SHOWN_MAX))
        at = first + y
        ground = Style(bgcolor=colours.chosen if at == self._at else colours.raised)
        if at >= len(self._found):
            return Strip.blank(self.size.width, Style(bgcolor=colours.ground))
        one = self._found[at]
        head = f"{one.sign}{one.name} {one.takes}".rstrip()
        line = [
            Segment(
                " ▸ " if at == self._at else "   ",
                ground + Style(color=colours.accent),
            ),
            Segment(
                head.ljust(20),
                ground + Style(color=colours.text, bold=at == self._at),
            ),
            Segment(
                " " + one_line(one.does, self.size.width - 25),
                ground + Style(color=colours.soft),
            ),
        ]
        return Strip(line).crop_extend(0, self.size.width, ground)


class Composer(TextArea):
    """`offered` is the list of completions that belongs to it."""

    BINDINGS: ClassVar[list[object]] = []  # type: ignore[assignment]

    class Sent(Message):
        """`answers` is the question that the text is an answer to; None if it is a message."""

        def __init__(
            self, text: str, steer: bool, answers: str | None = None
        ) -> None:
            super().__init__()
            self.text = text
            self.steer = steer
            self.answers = answers

    class Wants(Message):
        """Something that is not for the text: leave, scroll, take a queued input back, choose an
        answer."""

        def __init__(self, what: str) -> None:
            super().__init__()
            self.what = what

    def __init__(self, offered: Completions, offers: Offers) -> None:
        super().__init__(
            soft_wrap=True,
            show_line_numbers=False,
            tab_behavior="focus",
            compact=True,
        )
        self.highlight_cursor_line = False
        self.takes_back = False
        """Whether an input waits that the up key takes back."""
        self._question: str | None = None
        """The question that is open, and since when."""
        self._question_s = 0.0
        self._begun_at: str | None = None
        """The question that was open when the text was begun. A text that was begun before it is a
        message, as it was meant."""
        self._offers = offers
        self._pasted: dict[str, str] = {}
        """Long pastes, by the line that stands for each."""
        self._offered = offered
        self._offered_for = ""
        """The text that the list was made for: news of a change may come later than the next
        key."""
        self._history: list[str] = []
        self._back = 0
        self._draft = ""
        self._forgotten = False

    def ask(self, question: str | None) -> None:
        """What is typed from now on answers this question, until there is another one, or none."""
        if question != self._question:
            self._question, self._question_s = question, time.monotonic()

    def answers(self) -> str | None:
        """The question that Enter would answer; None if it would send a message."""
        if not self.text:
            return self._question
        return self._question if self._begun_at == self._question else None

    def _begin(self) -> None:
        if not self.text:
            seen = time.monotonic() - self._question_s >= GUARD_S
            self._begun_at = self._question if seen else None

    def forget(self) -> None:
        """Empty the line. The next up key brings it back, before anything else that it does."""
        self.remember(self.text)
        self.replace_text("")
        self._forgotten = True

    def remember(self, text: str) -> None:
        if text and (not self._history or self._history[-1] != text):
            self._history = [*self._history, text][-HISTORY_MAX:]
        self._back = 0

    def replace_text(self, text: str) -> None:
        self._begin()
        self.text = text
        self.move_cursor(self.document.end)

    def put_back(self, text: str) -> None:
        """What was not sent after all stands before what was typed since, in lines of its own."""
        self.replace_text(
            f"{text}\n{self.text}" if text and self.text else text or self.text
        )
        self._begun_at = None

    def on_text_area_changed(self) -> None:
        self._offer()

    def _offer(self) -> None:
        if self.text != self._offered_for:
            self._offered_for = self.text
            self._offered.offer(self._offers.like(self._before_cursor()))

    def _before_cursor(self) -> str:
        """What stands before the cursor; of a command, the whole line."""
        row, column = self.cursor_location
        lines = self.text.split("\n")
        if len(lines) == 1 and lines[0].startswith("/"):
            return lines[0]
        return lines[row][:column] if row < len(lines) else ""

    def _offer_nothing(self) -> None:
        self._offered_for = self.text
        self._offered.offer([])

    def on_paste(self, event: events.Paste) -> None:
        """A path is attached; what is long stands as a line, which F3 opens."""
        self._begin()
        text = event.text
        if is_path(text):
            self.post_message(self.Wants(f"attach {text.strip()}"))
        elif len(text) > PASTE_CHARS_MAX or text.count("\n") >= PASTE_LINES_MAX:
            lines = text.count("\n") + 1
            line = f"[pasted {lines} lines, {len(text)} characters, #{len(self._pasted) + 1}]"
            self._pasted[line] = text
            self.insert(line)
        else:
            return
        event.stop()
        event.prevent_default()

    def unfolded(self, text: str) -> str:
        """A text with what was pasted in the place of the lines that stand for it."""
        for line, pasted in self._pasted.items():
            text = text.replace(line, pasted)
        return text

    async def on_key(self, event: events.Key) -> None:
        self._begin()
        self._offer()
        if self._acts(event.key) or await self._edits(event.key):
            event.stop()
            event.prevent_default()

    async def _edits(self, key: str) -> bool:
        """Do what a key does to the text, in its place among the letters. Textual would do it only
        after what was typed by then."""
        bound = self._bindings.key_to_bindings.get(key, [])
        return bool(bound) and await self.app.run_action(bound[0].action, self)

    def _acts(self, key: str) -> bool:
        """Do what a key stands for; False if it is for the text."""
        match key:
            case "enter":
                self._enter()
            case "ctrl+s":
                self._send(steer=True)
            case _ if key in NEW_LINE:
                self.insert("\n")
            case "tab" if self._offered.chosen is not None:
                self._complete()
            case "shift+tab":
                self.post_message(self.Wants("mode"))
            case "ctrl+r" | "ctrl+g" | "ctrl+f" | "ctrl+p" | "ctrl+z" | "ctrl+v":
                self.post_message(self.Wants(key))
            case "f3" if self._pasted:
                self.replace_text(self.unfolded(self.text))
            case "tab" | "left" | "right" if self._question and not self.text:
                if time.monotonic() - self._question_s >= GUARD_S:
                    self.post_message(self.Wants(key))
            case "up" | "down" if self._offered.chosen is not None:
                self._offered.move(-1 if key == "up" else 1)
            case "up" if (
                self.cursor_location[0] == 0
                and not self.text
                and self.takes_back
                and not self._forgotten
            ):
                self.post_message(self.Wants("take back"))
            case "up" if self.cursor_location[0] == 0:
                self._recall(1)
            case "down" if self.cursor_location[0] == self.document.line_count - 1:
                self._recall(-1)
            case "pageup" | "pagedown":
                self.post_message(self.Wants(key))
            case "ctrl+d" if not self.text:
                self.post_message(self.Wants("leave"))
            case "escape":
                if self._offered.chosen is None:
                    self.post_message(self.Wants("stop"))
                self._offer_nothing()
            case _:
                return False
        return True

    def _enter(self) -> None:
        chosen = self._offered.chosen
        if chosen is not None and chosen.sign == "@":
            self._complete()
            return
        if chosen is not None and self.text != f"/{chosen.name}":
            self._complete()
            if chosen.takes and not chosen.takes.startswith("["):
                return
        self._send(steer=False)

    def _complete(self) -> None:
        chosen = self._offered.chosen
        if chosen is None:
            return
        if chosen.sign == "@":
            row, column = self.cursor_location
            start = self._before_cursor().rfind("@")
            end = "" if chosen.name.endswith("/") else " "
            self.replace(f"@{chosen.name}{end}", (row, start), (row, column))
            if not end:
                return  # go on below the folder
        else:
            self.replace_text(f"/{chosen.name}" + (" " if chosen.takes else ""))
        self._offer_nothing()

    def _send(self, steer: bool) -> None:
        """What is sent leaves the line at once: the next key is of what comes after it."""
        text, answers = self.unfolded(self.text), None if steer else self.answers()
        self._forgotten, self._pasted = False, {}
        self.replace_text("")
        self._offer_nothing()
        self.post_message(self.Sent(text, steer, answers))

    def _recall(self, by: int) -> None:
        """What was said before, one further back or forth."""
        self._forgotten = False
        back = self._back + by
        if not 0 <= back <= len(self._history):
            return
        if self._back == 0:
            self._draft = self.text
        self._back = back
        self.replace_text(self._draft if back == 0 else self._history[-back])
