"""Where a person types. Enter sends, Ctrl-J makes a new line; what is pasted keeps its lines."""

import difflib
import re
import time
from typing import ClassVar

from msgspec import Struct
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import TextArea

from steno.tui.painting.markdown import one_line
from steno.tui.painting.palette import DARK, Palette

HISTORY_MAX = 200
SHOWN_MAX = 7
GUARD_S = 0.4
"""A key that comes so soon after a question was meant for something else: it answers nothing."""
NEW_LINE = frozenset(("ctrl+j", "shift+enter", "alt+enter", "ctrl+enter"))


# --- words that begin with a slash ----------------------------------------------------------------

COMMAND = re.compile(r"/([\w-]*)(?:\s|$)")
"""A first word with one slash before it is meant as a command. A path has a second slash."""


class Command(Struct, frozen=True):
    name: str
    takes: str
    does: str


COMMANDS = (
    Command("help", "", "keys and commands"),
    Command("new", "", "begin a new session"),
    Command("sessions", "", "find, resume, rename or delete a session"),
    Command("resume", "ID", "go on with a session"),
    Command("continue", "", "take up what was cut off, run what waits"),
    Command("retry", "", "run the last prompt again"),
    Command("stop", "", "stop the running turn"),
    Command("steer", "TEXT", "say something into the running turn"),
    Command("undo", "", "take the last turn out of the model's view"),
    Command("redo", "", "take the last undo or rewind back"),
    Command("rewind", "SEQ", "take what follows a message out of the model's view"),
    Command("fork", "[SEQ]", "go on in a session of its own from a message"),
    Command("hide", "SEQ", "take one message out of the model's view, or put it back"),
    Command("model", "[SPEC]", "have another model answer"),
    Command("compact", "", "have the older part summarised"),
    Command("goal", "TEXT", "say what this session is for; the model is told with every request"),
    Command("memory", "", "what this session is told of earlier ones"),
    Command("attach", "PATH", "send a file or an image with the next input"),
    Command("detach", "", "take the last attached file off again"),
    Command("rename", "TITLE", "give this session a title"),
    Command("delete", "", "delete this session for good"),
    Command("copy", "", "copy the last answer"),
    Command("plain", "", "plain text, for the terminal's own selection"),
    Command("theme", "[dark|light]", "other colours"),
    Command("quit", "", "leave; everything is kept"),
)

_BY_NAME = {command.name: command for command in COMMANDS}


def parse(line: str) -> tuple[str, str] | None:
    """The command that a line is meant as, and what follows it as it was typed; None if it is
    something to be said."""
    meant = COMMAND.match(line)
    return None if meant is None else (meant[1], line[meant.end() :])


def known(name: str) -> bool:
    return name in _BY_NAME


def completions(line: str) -> list[Command]:
    """The commands that a beginning can become; none if it is no beginning of one."""
    if not line.startswith("/") or any(char.isspace() for char in line) or "/" in line[1:]:
        return []
    begun = line[1:].lower()
    first = [command for command in COMMANDS if command.name.startswith(begun)]
    return first + [
        command for command in COMMANDS if begun and begun in command.name and command not in first
    ]


def nearest(name: str) -> str | None:
    """A command that may have been meant."""
    found = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.5)
    return found[0] if found else None


# --- the input ------------------------------------------------------------------------------------


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
        self.refresh(layout=True)

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
        head = f"/{one.name} {one.takes}".rstrip()
        line = [
            Segment(" ▸ " if at == self._at else "   ", ground + Style(color=colours.accent)),
            Segment(head.ljust(20), ground + Style(color=colours.text, bold=at == self._at)),
            Segment(
                " " + one_line(one.does, self.size.width - 25), ground + Style(color=colours.soft)
            ),
        ]
        return Strip(line).crop_extend(0, self.size.width, ground)


class Composer(TextArea):
    """`offered` is the list of completions that belongs to it."""

    BINDINGS: ClassVar[list[object]] = []  # type: ignore[assignment]

    class Sent(Message):
        """`answers` is the question that the text is an answer to; None if it is a message."""

        def __init__(self, text: str, steer: bool, answers: str | None = None) -> None:
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

    def __init__(self, offered: Completions) -> None:
        super().__init__(
            soft_wrap=True, show_line_numbers=False, tab_behavior="focus", compact=True
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
        self.replace_text(f"{text}\n{self.text}" if text and self.text else text or self.text)
        self._begun_at = None

    def on_text_area_changed(self) -> None:
        self._offer()

    def _offer(self) -> None:
        if self.text != self._offered_for:
            self._offered_for = self.text
            self._offered.offer(completions(self.text))

    def _offer_nothing(self) -> None:
        self._offered_for = self.text
        self._offered.offer([])

    def on_paste(self, event: events.Paste) -> None:
        self._begin()

    def on_key(self, event: events.Key) -> None:
        self._begin()
        self._offer()
        if self._acts(event.key):
            event.stop()
            event.prevent_default()

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
            case "tab" | "shift+tab" | "left" | "right" if self._question and not self.text:
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
                self._offer_nothing()
            case _:
                return False
        return True

    def _enter(self) -> None:
        chosen = self._offered.chosen
        if chosen is not None and self.text != f"/{chosen.name}":
            self._complete()
            if chosen.takes and not chosen.takes.startswith("["):
                return
        self._send(steer=False)

    def _complete(self) -> None:
        chosen = self._offered.chosen
        if chosen is not None:
            self.replace_text(f"/{chosen.name}" + (" " if chosen.takes else ""))
            self._offer_nothing()

    def _send(self, steer: bool) -> None:
        """What is sent leaves the line at once: the next key is of what comes after it."""
        text, answers = self.text, None if steer else self.answers()
        self._forgotten = False
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
