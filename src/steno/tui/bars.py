"""The lines around the transcript: the title above; what waits, what is asked, and the state
below."""

import time

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from steno.frontend.answers import ALLOW, ALWAYS, DENY, Answer
from steno.frontend.costs import dollars
from steno.journal.facts import Mode
from steno.tui import wording
from steno.tui.blocks import Call, Said
from steno.tui.painting.markdown import one_line, width_of
from steno.tui.painting.palette import DARK, Palette

WAITING_SHOWN_MAX = 3
MODEL_LEN_MIN = 16
WIDE = 60
BAR_CELLS = 8
CHOICES = (
    (ALLOW, "Allow once", "Allow"),
    (ALWAYS, "Always in this session", "Always"),
    (DENY, "Deny", "Deny"),
)
CHOOSE = "← → choose, Enter confirms; or type why not"
CONFIRM = "Enter confirms; ← → choose another"
Known = tuple[tuple[str, str], ...]
"""Keys, and what they do."""
KEYS_AT_REST: Known = (
    ("Enter", "send"),
    ("Shift-Tab", "mode"),
    ("@", "file"),
    ("!", "command"),
    ("Ctrl-P", "commands"),
    ("Ctrl-R", "history"),
    ("Ctrl-O", "sessions"),
    ("Tab", "messages"),
    ("F1", "help"),
)
KEYS_WHILE_BUSY: Known = (
    ("Esc", "stop"),
    ("Enter", "queue"),
    ("Ctrl-S", "steer"),
    ("Shift-Tab", "mode"),
    ("Tab", "messages"),
    ("F1", "help"),
)
KEYS_AT_QUESTION: Known = (
    ("← →", "choose"),
    ("Enter", "confirm"),
    ("text", "deny, with a reason"),
    ("Shift-Tab", "mode"),
    ("Esc", "stop"),
)
KEYS_IN_MESSAGES: Known = (
    ("↑ ↓", "choose"),
    ("Enter", "unfold"),
    ("c", "copy"),
    ("f", "fork"),
    ("r", "rewind"),
    ("h", "hide"),
    ("Esc", "back"),
)


class Bar(Widget):
    """A few lines, each a list of spans in a style."""

    def __init__(self, palette: Palette = DARK) -> None:
        super().__init__()
        self.palette = palette

    def restyle(self, palette: Palette) -> None:
        self.palette = palette
        self.refresh()

    def lines(self) -> list[list[Segment]]:
        return []

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.lines())

    def render_line(self, y: int) -> Strip:
        lines = self.lines()
        ground = Style(bgcolor=self.palette.ground, color=self.palette.text)
        if y >= len(lines):
            return Strip.blank(self.size.width, ground)
        return (
            Strip(lines[y])
            .crop_extend(0, self.size.width, ground)
            .apply_style(ground)
        )


def spread(left: list[Segment], right: list[Segment], width: int) -> list[Segment]:
    """Two ends of one line. If they do not both fit, the left end is cut."""
    room = width - Segment.get_line_length(right)
    kept = list(Strip(left).crop(0, max(room - 1, 0)))
    return [
        *kept,
        Segment(" " * max(room - Segment.get_line_length(kept), 0)),
        *right,
    ]


class Title(Bar):
    DEFAULT_CSS = "Title { height: 1; }"

    title = ""
    session = ""
    badge = ""
    """What a person must know of this session all the time."""

    def lines(self) -> list[list[Segment]]:
        colours, raised = self.palette, Style(bgcolor=self.palette.raised)
        right = (
            [
                Segment(
                    f" {self.badge} ", raised + Style(color=colours.warn, bold=True)
                )
            ]
            if self.badge
            else []
        )
        right.append(Segment(f" {self.session} ", raised + Style(color=colours.soft)))
        room = max(self.size.width - Segment.get_line_length(right) - 8, 0)
        name = [
            Segment(" steno ", raised + Style(color=colours.accent, bold=True)),
            Segment(
                one_line(self.title or "a new session", room),
                raised + Style(color=colours.text),
            ),
        ]
        return [
            [
                Segment(part.text, raised + (part.style or Style()))
                for part in spread(name, right, self.size.width)
            ]
        ]


class Waiting(Bar):
    """Inputs that are stored and not taken yet."""

    DEFAULT_CSS = "Waiting { height: auto; display: none; }"

    def __init__(self, palette: Palette = DARK) -> None:
        super().__init__(palette)
        self._said: list[Said] = []
        self._files: tuple[str, ...] = ()

    def show(self, said: list[Said], files: tuple[str, ...]) -> None:
        if (said, files) != (self._said, self._files):
            self._said, self._files = said, files
            self.display = bool(said or files)
            self.refresh(layout=True)

    def lines(self) -> list[list[Segment]]:
        colours = self.palette
        found: list[list[Segment]] = []
        hidden = len(self._said) - WAITING_SHOWN_MAX
        if hidden > 0:
            found.append(
                [Segment(f"   … {hidden} before", Style(color=colours.soft))]
            )
        for i, said in enumerate(shown := self._said[-WAITING_SHOWN_MAX:]):
            last = i == len(shown) - 1
            hint = "  ↑ takes it back" if last else ""
            room = max(self.size.width - len(hint) - 13, 10)
            found.append(
                [
                    Segment(
                        " » steers  " if said.steers else " » queued  ",
                        Style(color=colours.warn),
                    ),
                    Segment(one_line(said.text, room), Style(color=colours.text)),
                    Segment(hint, Style(color=colours.soft)),
                ]
            )
        found += [
            [
                Segment(" + attached ", Style(color=colours.link)),
                Segment(one_line(name, self.size.width - 14)),
            ]
            for name in self._files
        ]
        return found


class Asking(Bar):
    """The question whether a call may run. It takes no keys: the input has them, chooses here and
    sends the answer, so that a letter of a sentence is never an answer by itself."""

    DEFAULT_CSS = "Asking { height: auto; display: none; }"

    class Chosen(Message):
        """A choice was clicked on."""

    def __init__(self, palette: Palette = DARK) -> None:
        super().__init__(palette)
        self._calls: list[Call] = []
        self._chosen: int | None = None
        self._hint = ""

    @property
    def call(self) -> Call | None:
        return self._calls[0] if self._calls else None

    @property
    def chosen(self) -> Answer | None:
        """What Enter answers while nothing is typed; nothing until a choice was made."""
        return (
            None
            if self._chosen is None or not self._calls
            else CHOICES[self._chosen][0]
        )

    def show(self, calls: list[Call]) -> None:
        if calls == self._calls:
            return
        before = self.call
        self._calls = calls
        if (self.call and self.call.key) != (before and before.key):
            self._chosen = None
        self.display = bool(calls)
        self.refresh(layout=True)  # which paints the whole screen anew

    def hint(self, hint: str) -> None:
        """Say what Enter does with what is typed; "" while nothing is."""
        if hint != self._hint:
            self._hint = hint
            self.refresh()

    def choose(self, by: int) -> None:
        """Go to the next choice, or to the one before."""
        first = 0 if by > 0 else len(CHOICES) - 1
        self._chosen = (
            first if self._chosen is None else (self._chosen + by) % len(CHOICES)
        )
        self.refresh()

    def forget(self) -> None:
        self._chosen = None
        self.refresh()

    def is_last(self, by: int) -> bool:
        """Whether there is no further choice in a direction."""
        return self._chosen == (len(CHOICES) - 1 if by > 0 else 0)

    def lines(self) -> list[list[Segment]]:
        call, colours = self.call, self.palette
        if call is None:
            return []
        ground = Style(bgcolor=colours.chosen)
        many = f" (1 of {len(self._calls)})" if len(self._calls) > 1 else ""
        question = f" Allow {call.name}{many}? "
        room = max(self.size.width - width_of(question) - 2, 8)
        top = [
            Segment(question, ground + Style(color=colours.warn, bold=True)),
            Segment(
                one_line(call.subject(), room), ground + Style(color=colours.text)
            ),
        ]
        hint = self._hint or (CONFIRM if self._chosen is not None else CHOOSE)
        told = Segment(
            f" {hint}",
            ground + Style(color=colours.warn if self._hint else colours.soft),
        )
        return [
            list(Strip(line).crop_extend(0, self.size.width, ground))
            for line in (top, self._choices(ground), [told])
        ]

    def _choices(self, ground: Style) -> list[Segment]:
        """While something is typed, Enter sends that: then no choice can be made."""
        found = [Segment(" ", ground)]
        for number, word in enumerate(self._words()):
            style = ground + Style(
                color=self.palette.soft if self._hint else self.palette.text
            )
            if number == self._chosen and not self._hint:
                style = Style(
                    color=self.palette.ground, bgcolor=self.palette.warn, bold=True
                )
            sign = "▸" if number == self._chosen and not self._hint else " "
            found += [Segment(f"{sign}{word} ", style), Segment("  ", ground)]
        return found

    def _words(self) -> list[str]:
        wide = self.size.width >= WIDE
        return [long if wide else short for _, long, short in CHOICES]

    def on_click(self, event: events.Click) -> None:
        """A click chooses; Enter confirms."""
        left = 1
        for number, word in enumerate(self._words()):
            right = left + len(word) + 2
            if event.y == 1 and left <= event.x < right and not self._hint:
                self._chosen = number
                self.refresh()
                self.post_message(self.Chosen())
            left = right + 2


def _shortened(model: str, room: int) -> str:
    """The name of a model in so many letters: its end says more than its middle."""
    kind, _, name = model.partition(":")
    if len(model) <= room:
        return model
    kept = name[-max(room - len(kind) - 2, 4) :]
    return f"{kind}:…{kept}"


class Keys(Bar):
    """The keys of where a person is."""

    DEFAULT_CSS = "Keys { height: 1; }"

    keys: tuple[tuple[str, str], ...] = ()

    def lines(self) -> list[list[Segment]]:
        colours = self.palette
        found = [Segment(" ")]
        room = self.size.width - 2
        for key, does in self.keys:
            room -= width_of(f"{key} {does}  ")
            if room < 0:
                break
            found += [
                Segment(key, Style(color=colours.text)),
                Segment(f" {does}  ", Style(color=colours.soft)),
            ]
        return [found]


MODES: dict[Mode, str] = {
    "ask": "ask",
    "edits": "accept edits",
    "plan": "plan",
    "everything": "everything",
}


class Status(Bar):
    DEFAULT_CSS = "Status { height: 1; }"

    mode: Mode = "ask"
    place = ""
    """The folder, and the branch."""
    state = "ready"
    busy = False
    model = ""
    tokens: int | None = None
    cost: float | None = None
    """In US dollars; None where it is not known."""
    context: int | None = None
    context_max = 0
    durability = "power"
    hint = ""
    since_s: float | None = None

    def lines(self) -> list[list[Segment]]:
        colours = self.palette
        soft = Style(color=colours.soft)
        sign = "●" if self.busy else "○"
        clock = ""
        if self.busy and self.since_s is not None:
            clock = f" · {wording.duration(int((time.monotonic() - self.since_s) * 1000))}"
        tones: dict[Mode, str] = {
            "ask": colours.soft,
            "edits": colours.good,
            "plan": colours.link,
            "everything": colours.warn,
        }
        left = [
            Segment(f" {MODES[self.mode]}", Style(color=tones[self.mode], bold=True)),
            Segment(
                f" {sign} ",
                Style(color=colours.accent if self.busy else colours.good),
            ),
            Segment(self.state + clock, Style(color=colours.text)),
            Segment(f"  {self.hint}", soft),
        ]
        room = self.size.width - Segment.get_line_length(left) - 1
        return [
            spread(left, [Segment(self._facts(room) + " ", soft)], self.size.width)
        ]

    def _facts(self, room: int) -> str:
        """As many of them as there is room for; the model is shortened first."""
        tokens = "" if self.tokens is None else f"{wording.count(self.tokens)} tokens"
        safe = "power-safe" if self.durability == "power" else self.durability
        place, filled = self.place, self._filled()
        cost = "" if self.cost is None else dollars(self.cost)
        for parts in (
            (place, tokens, cost, filled, safe),
            (place, tokens, cost, filled),
            (place, cost, filled),
            (cost, filled),
            (filled,),
            (),
        ):
            rest = "".join(f" · {part}" for part in parts if part)
            model = _shortened(self.model, max(room - len(rest) - 1, MODEL_LEN_MIN))
            if len(model) + len(rest) < room - 1:
                return model + rest
        return ""

    def _filled(self) -> str:
        if self.context is None:
            return ""
        if not self.context_max:
            return f"context {wording.count(self.context)}"
        part = min(self.context / self.context_max, 1.0)
        full = min(round(part * BAR_CELLS), BAR_CELLS)
        bar = "▰" * full + "▱" * (BAR_CELLS - full)
        return f"context {bar} {int(part * 100)}%"
