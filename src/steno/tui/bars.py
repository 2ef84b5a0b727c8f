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

from steno.tui import wording
from steno.tui.blocks import Call, Said
from steno.tui.markdown import width_of
from steno.tui.palette import DARK, Palette
from steno.tui.plain import one_line

WAITING_SHOWN_MAX = 3
MODEL_LEN_MIN = 16
WIDE = 60
GUARD_S = 0.4
"""A key that was meant for something else does not answer a question that has just come up."""


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
        return Strip(lines[y]).crop_extend(0, self.size.width, ground).apply_style(ground)


def spread(left: list[Segment], right: list[Segment], width: int) -> list[Segment]:
    """Two ends of one line. If they do not both fit, the left end is cut."""
    room = width - Segment.get_line_length(right)
    kept = list(Strip(left).crop(0, max(room - 1, 0)))
    return [*kept, Segment(" " * max(room - Segment.get_line_length(kept), 0)), *right]


class Title(Bar):
    DEFAULT_CSS = "Title { height: 1; }"

    title = ""
    session = ""
    badge = ""
    """What a person must know of this session all the time."""

    def lines(self) -> list[list[Segment]]:
        colours, raised = self.palette, Style(bgcolor=self.palette.raised)
        right = (
            [Segment(f" {self.badge} ", raised + Style(color=colours.warn, bold=True))]
            if self.badge
            else []
        )
        right.append(Segment(f" {self.session} ", raised + Style(color=colours.soft)))
        room = max(self.size.width - Segment.get_line_length(right) - 8, 0)
        name = [
            Segment(" steno ", raised + Style(color=colours.accent, bold=True)),
            Segment(
                one_line(self.title or "a new session", room), raised + Style(color=colours.text)
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
            found.append([Segment(f"   … {hidden} before", Style(color=colours.soft))])
        for i, said in enumerate(shown := self._said[-WAITING_SHOWN_MAX:]):
            last = i == len(shown) - 1
            hint = "  ↑ takes it back" if last else ""
            room = max(self.size.width - len(hint) - 13, 10)
            found.append(
                [
                    Segment(
                        " » steers  " if said.steers else " » queued  ", Style(color=colours.warn)
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


class Asking(Bar, can_focus=True):
    """A question about a call, answered with one key. Whoever types something else instead says it:
    from there on no letter of it is an answer."""

    DEFAULT_CSS = "Asking { height: auto; display: none; }"

    class Decided(Message):
        def __init__(self, call: Call, answer: str) -> None:
            super().__init__()
            self.call = call
            self.answer = answer

    class Typed(Message):
        """Text that is for the input."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, palette: Palette = DARK) -> None:
        super().__init__(palette)
        self._calls: list[Call] = []
        self._since_s = 0.0
        self._typing = False
        self.always = False

    @property
    def call(self) -> Call | None:
        return self._calls[0] if self._calls else None

    def show(self, calls: list[Call]) -> None:
        before = self.call
        self._calls = calls
        if (self.call and self.call.key) != (before and before.key):
            self._since_s = time.monotonic()
        self.display = bool(calls)
        self.refresh(layout=True)

    def lines(self) -> list[list[Segment]]:
        call, colours = self.call, self.palette
        if call is None:
            return []
        ground = Style(bgcolor=colours.chosen)
        many = f" (1 of {len(self._calls)})" if len(self._calls) > 1 else ""
        question = f" Allow {call.name}{many}? "
        always = "always in this session" if self.size.width >= WIDE else "always"
        keys = [("y", "allow"), ("n", "deny")] + ([("a", always)] if self.always else [])
        if not self.has_focus:
            keys = [("Tab", "then y or n")]
        room = max(self.size.width - width_of(question) - 2, 8)
        subject = Segment(one_line(call.subject(), room), ground + Style(color=colours.text))
        top = [Segment(question, ground + Style(color=colours.warn, bold=True)), subject]
        bottom = [Segment("  ", ground)]
        for key, word in keys:
            bottom += [
                Segment(f" {key} ", ground + Style(color=colours.warn, bold=True, reverse=True)),
                Segment(f" {word}   ", ground + Style(color=colours.text)),
            ]
        hint = Segment("Ctrl-C stops the turn", ground + Style(color=colours.soft))
        if Segment.get_line_length([*bottom, hint]) <= self.size.width:
            bottom.append(hint)
        return [list(Strip(line).crop_extend(0, self.size.width, ground)) for line in (top, bottom)]

    def on_focus(self) -> None:
        self._typing = False
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def on_key(self, event: events.Key) -> None:
        answers = {"y": "allow", "n": "deny"} | ({"a": "always"} if self.always else {})
        call = self.call
        if call is None or not (event.key in answers or event.is_printable):
            return
        event.stop()
        event.prevent_default()
        if self._typing or event.key not in answers:
            self._type(event.character or "")
        elif time.monotonic() - self._since_s >= GUARD_S:
            self.post_message(self.Decided(call, answers[event.key]))

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self._type(event.text)

    def _type(self, text: str) -> None:
        self._typing = True
        self.post_message(self.Typed(text))


def _shortened(model: str, room: int) -> str:
    """The name of a model in so many letters: its end says more than its middle."""
    kind, _, name = model.partition(":")
    if len(model) <= room:
        return model
    kept = name[-max(room - len(kind) - 2, 4) :]
    return f"{kind}:…{kept}"


class Status(Bar):
    DEFAULT_CSS = "Status { height: 1; }"

    state = "ready"
    busy = False
    model = ""
    tokens: int | None = None
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
            clock = f" {wording.duration(int((time.monotonic() - self.since_s) * 1000))}"
        left = [
            Segment(f" {sign} ", Style(color=colours.accent if self.busy else colours.good)),
            Segment(self.state + clock, Style(color=colours.text)),
            Segment(f"  {self.hint}", soft),
        ]
        room = self.size.width - Segment.get_line_length(left) - 1
        return [spread(left, [Segment(self._facts(room) + " ", soft)], self.size.width)]

    def _facts(self, room: int) -> str:
        """As many of them as there is room for; the model is shortened first."""
        tokens = "" if self.tokens is None else f"{wording.count(self.tokens)} tokens"
        safe = "power-safe" if self.durability == "power" else self.durability
        for parts in ((tokens, self._filled(), safe), (self._filled(), safe), (safe,), ()):
            rest = "".join(f" · {part}" for part in parts if part)
            model = _shortened(self.model, max(room - len(rest) - 1, MODEL_LEN_MIN))
            if len(model) + len(rest) < room:
                return model + rest
        return ""

    def _filled(self) -> str:
        if self.context is None:
            return ""
        if not self.context_max:
            return f"context {wording.count(self.context)}"
        return f"context {self.context * 100 // self.context_max}%"
