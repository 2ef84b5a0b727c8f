"""What comes up over the chat: a list to find something in, a question, a line to type, the
help."""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from functools import partial
from typing import Any, ClassVar

from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from steno.session.errors import Misused
from steno.store.errors import StoreError
from steno.tui.offers import COMMANDS
from steno.tui.painting.markdown import one_line
from steno.tui.painting.palette import Palette

ROWS_MAX = 500
ID_CHARS_MIN = 3
"""Of an id, to find it by: one letter of it is in almost every other."""
MORE = "there are more, which are being read"
NAME_CELLS_MIN = 16
PREVIEW_AFTER_S = 0.03
PREVIEW_ROWS_MIN = 30
"""A screen with fewer lines shows the list alone."""
SEARCH_AFTER_S = 0.1
"""After the last key."""
KEYS = (
    ("Enter", "send; while a turn runs, queue"),
    ("Ctrl-J", "a new line (also Shift-Enter, Alt-Enter)"),
    ("Ctrl-S", "steer: say it into the running turn, at its next step"),
    ("↑ when empty", "take the last queued input back; else what you said before"),
    ("Esc", "stop the turn and keep what was shown"),
    (
        "Esc Esc",
        "with nothing running: to what you said last, to rewind, fork or hide from there",
    ),
    (
        "Ctrl-C",
        "the same; twice within two seconds, with nothing typed between: leave",
    ),
    ("Shift-Tab", "the next mode: ask, accept edits, plan, everything"),
    ("@", "name a file or a folder, which goes along"),
    ("!", "run a command yourself; its output is attached"),
    ("Ctrl-R", "find what you said before"),
    ("Ctrl-F", "find in the talk"),
    ("Ctrl-G", "write in your editor"),
    ("Ctrl-P", "find a command"),
    ("Ctrl-V", "attach the image in the clipboard"),
    ("Ctrl-Z", "put steno in the background; fg brings it back"),
    ("F3", "open what a long paste stands for"),
    ("Ctrl-D", "leave, if nothing runs and nothing is typed"),
    ("← →  Enter", "at a question about a tool call: choose an answer, confirm it"),
    (
        "text  Enter",
        "at a question: deny the call and tell the model why; y, n or a answers it",
    ),
    ("Tab", "to the messages and back"),
    (
        "Ctrl-O",
        "the list of sessions; type to find them by title and by what was said",
    ),
    ("Ctrl-N", "a new session"),
    ("F1", "this help"),
    ("F8", "plain text: for the terminal's own selection"),
    ("PgUp  PgDn", "scroll"),
)
MESSAGE_KEYS = (
    ("↑ ↓", "choose a message"),
    ("Enter", "fold or unfold reasoning and tool output"),
    ("c", "copy it"),
    ("f", "fork: go on from here in a session of its own"),
    ("r", "rewind: the model is told nothing that comes after"),
    ("h", "hide it from the model, or put it back"),
    ("Esc", "back to the input"),
)


class Row(Struct, frozen=True):
    """A line of a list: a name, and what stands `beside` it in columns, the most important one
    last. `words` is what is searched; an id is found by its beginning."""

    id: str
    name: str
    words: str
    beside: tuple[str, ...] = ()
    says: str = ""
    """What it is, after the name, as far as there is room."""
    at: int | None = None
    """The message of it that was found, if one was."""

    def has(self, word: str) -> bool:
        return word in self.words or (
            len(word) >= ID_CHARS_MIN and self.id.startswith(word)
        )


def columns(rows: Sequence[Row], width: int) -> list[Text]:
    """Rows as lines of the same width. Columns for which there is no room are left out, then names
    are cut."""
    beside = [
        max(cell_len(cell) for cell in column)
        for column in zip(*(row.beside for row in rows), strict=True)
    ]
    beside = [2 + wide if wide else 0 for wide in beside]
    while beside and width - sum(beside) < NAME_CELLS_MIN:
        beside.pop(0)
    room = max(width - sum(beside), 0)
    names = max((cell_len(row.name) for row in rows if row.says), default=0) + 2
    found = []
    for row in rows:
        name = one_line(row.name, room)
        if row.says:
            name = f"{name:<{names}}{one_line(row.says, max(room - names, 0))}"
        line = Text(set_cell_size(name, room), no_wrap=True)
        if row.says:
            line.stylize("dim", names)
        for cell, wide in zip(
            row.beside[len(row.beside) - len(beside) :], beside, strict=True
        ):
            line.append(" " * (wide - cell_len(cell)) + cell, "dim")
        found.append(line)
    return found


class Finder(ModalScreen[tuple[str, str] | None]):
    """A list in which one finds as one types. Gives what was done and the row that it was done
    to."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back", priority=True),
        Binding("down", "move(1)", "Down", priority=True),
        Binding("up", "move(-1)", "Up", priority=True),
        Binding("pagedown", "move(10)", "Down", priority=True),
        Binding("pageup", "move(-10)", "Up", priority=True),
    ]

    def __init__(
        self,
        heading: str,
        rows: Sequence[Row],
        acts: Mapping[str, tuple[str, str]],
        free: str = "",
        later: AsyncIterator[Sequence[Row]] | None = None,
        search: Callable[[str], AsyncIterator[Sequence[Row]]] | None = None,
        enter: str = "open",
        preview: Callable[[str, int], Awaitable[Text]] | None = None,
    ) -> None:
        """`acts` are keys with what they do and a word for it; `free`: what is typed may be chosen
        itself; `later` are rows that come while the list is shown already; `search` gives more rows
        for what is typed, each time all that it has so far; `enter` is a word for what Enter does;
        `preview` shows more of the row that is chosen, where there is room."""
        super().__init__()
        self._enter = enter
        self._preview = preview
        self._previewed = Static(classes="preview", markup=False)
        self._later = later
        self._search = search
        self._searched: tuple[str, Sequence[Row]] = ("", ())
        self._end = "" if later is None else MORE
        self._heading = heading
        self._rows = list(rows)
        self._acts = acts
        self._free = free
        self._typing = Line(left=acts, placeholder="type to find")
        self._listed = OptionList(compact=True)
        self._at: dict[str, int | None] = {}
        self._listed_for = ""
        """What the list was made for: news of a change may come later than the next key."""

    def compose(self) -> ComposeResult:
        hints = [
            ("Enter", self._enter),
            *((key, word) for key, (_, word) in self._acts.items()),
        ]
        hint = "   ".join(
            f"{_key(key)} {word}" for key, word in [*hints, ("escape", "back")]
        )
        with Vertical(classes="panel"):
            yield Static(self._heading, classes="heading")
            yield self._typing
            yield self._listed
            if self._preview is not None:
                yield self._previewed
            yield Static(hint, classes="hint", markup=False)

    def on_mount(self) -> None:
        self.set_class(self.app.size.height < PREVIEW_ROWS_MIN, "-short")
        self._fill()
        self._typing.focus()
        if self._later is not None:
            self.run_worker(self._read_on(self._later))

    async def _read_on(self, later: AsyncIterator[Sequence[Row]]) -> None:
        try:
            async for rows in later:
                self._rows += rows
                if self._listed.option_count < ROWS_MAX:
                    self._fill_again()
            self._end = ""
        except StoreError as error:
            self._end = f"the rest could not be read: {error}"
        self._fill_again()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.height < PREVIEW_ROWS_MIN, "-short")
        self.call_after_refresh(self._fill_again)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._catch_up()
        if self._search is not None and event.value.strip():
            search, wanted = self._search, event.value
            self.run_worker(
                partial(self._find, search, wanted),  # type: ignore[arg-type]
                exclusive=True,
                group="search",
            )

    async def _find(
        self, search: Callable[[str], AsyncIterator[Sequence[Row]]], wanted: str
    ) -> None:
        """What is typed on meanwhile ends it."""
        await asyncio.sleep(SEARCH_AFTER_S)
        try:
            async for rows in search(wanted):
                self._searched = (wanted, rows)
                self._fill_again()
        except (StoreError, Misused) as error:
            self._end = f"what was said could not be searched: {error}"
        if self._typing.value == wanted:
            self._fill_again()

    def _catch_up(self) -> None:
        if self._typing.value != self._listed_for:
            self._fill()

    def _fill_again(self) -> None:
        """What was chosen stays so, if the list is for the same."""
        chosen = None if self._typing.value != self._listed_for else self._chosen()
        self._fill(None if chosen is None else chosen.id)

    def found_at(self, id: str) -> int | None:
        """At which message a row was found; None if it was found by its own name."""
        return self._at.get(id)

    def _chosen(self) -> Option | None:
        at = self._listed.highlighted
        return None if at is None else self._listed.get_option_at_index(at)

    def _fill(self, chosen: str | None = None) -> None:
        """What is like what is typed, as wide as there is room beside a scrollbar."""
        wanted, listed = self._typing.value, self._listed
        self._listed_for = wanted
        words = wanted.lower().split()
        found = [row for row in self._rows if all(row.has(word) for word in words)]
        found = sorted(
            found, key=lambda row: not all(word in row.name.lower() for word in words)
        )[:ROWS_MAX]
        if self._searched[0] == wanted:
            known = {row.id for row in found}
            found += [row for row in self._searched[1] if row.id not in known]
        self._at = {row.id: row.at for row in found}
        lines = columns(found, listed.size.width - listed.scrollbar_size_vertical)
        listed.clear_options()
        listed.add_options(
            Option(line, id=row.id) for row, line in zip(found, lines, strict=True)
        )
        if not found:
            none = "No matches" + (f"; {self._end}" if self._end else "")
            said = f'use "{wanted}" ({self._free})' if self._free and wanted else none
            listed.add_option(
                Option(
                    Text(said, style="italic"), disabled=not (self._free and wanted)
                )
            )
        elif self._end not in ("", MORE):  # what is listed is not all there is
            listed.add_option(Option(Text(self._end, style="italic"), disabled=True))
        listed.highlighted = next(
            (at for at, row in enumerate(found) if row.id == chosen), 0
        )

    def on_option_list_option_highlighted(
        self, event: OptionList.OptionHighlighted
    ) -> None:
        if self._preview is not None and event.option_id is not None:
            shown, id = self._preview, event.option_id
            self.run_worker(
                partial(self._show, shown, id),  # type: ignore[arg-type]
                exclusive=True,
                group="preview",
            )

    async def _show(
        self, preview: Callable[[str, int], Awaitable[Text]], id: str
    ) -> None:
        await asyncio.sleep(PREVIEW_AFTER_S)
        try:
            self._previewed.update(await preview(id, self._previewed.size.width))
        except (StoreError, Misused) as error:
            self._previewed.update(Text(str(error)))

    def action_move(self, by: int) -> None:
        self._catch_up()
        listed = self._listed
        if listed.option_count:
            at = 0 if listed.highlighted is None else listed.highlighted
            listed.highlighted = max(0, min(at + by, listed.option_count - 1))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._done("open")

    def on_option_list_option_selected(
        self, event: OptionList.OptionSelected
    ) -> None:
        self._done("open")

    def on_key(self, event: events.Key) -> None:
        if event.key in self._acts:
            event.stop()
            event.prevent_default()
            self._done(self._acts[event.key][0])

    def _done(self, act: str) -> None:
        self._catch_up()
        option = self._chosen()
        if act == "new":
            self.dismiss((act, ""))
        elif option is not None and option.id is not None:
            self.dismiss((act, option.id))
        elif self._free and (typed := self._typing.value.strip()):
            self.dismiss((act, typed))


class Sure(ModalScreen[bool]):
    """A question to which the answer is no, unless yes is chosen and confirmed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(False)", "Back", priority=True)
    ]

    def __init__(self, question: str, detail: str, yes: str) -> None:
        super().__init__()
        self._question = question
        self._detail = detail
        self._yes = yes

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel small"):
            yield Static(self._question, classes="heading", markup=False)
            yield Static(self._detail, markup=False)
            yield OptionList("No", self._yes, compact=True, markup=False)
            yield Static("↑ ↓ choose   Enter confirms   Esc back", classes="hint")

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def on_option_list_option_selected(
        self, event: OptionList.OptionSelected
    ) -> None:
        self.dismiss(event.option_index == 1)


class Choice(ModalScreen[str | None]):
    """One of some answers; None if none was chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back", priority=True)
    ]

    def __init__(
        self, question: str, detail: str, answers: Sequence[tuple[str, str]]
    ) -> None:
        super().__init__()
        self._question = question
        self._detail = detail
        self._answers = answers

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel small"):
            yield Static(self._question, classes="heading", markup=False)
            if self._detail:
                yield Static(self._detail, markup=False)
            yield OptionList(
                *(said for _, said in self._answers), compact=True, markup=False
            )
            yield Static("↑ ↓ choose   Enter confirms   Esc back", classes="hint")

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def on_option_list_option_selected(
        self, event: OptionList.OptionSelected
    ) -> None:
        self.dismiss(self._answers[event.option_index][0])


class Shown(ModalScreen[None]):
    """Something to read."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss(None)", "Back")
    ]

    def __init__(self, heading: str, lines: Callable[[int], Sequence[Text]]) -> None:
        super().__init__()
        self._heading = heading
        self._lines = lines

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel wide"):
            yield Static(self._heading, classes="heading", markup=False)
            with VerticalScroll():
                width = max(int(self.app.size.width * 0.96) - 8, 30)
                yield Static(Text("\n").join(self._lines(width)))
            yield Static("↑ ↓ scroll   Esc back", classes="hint")

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


class Line(Input):
    """A line in which keys that edit act in their place among the letters, and those that the
    screen acts on are left to it."""

    def __init__(
        self, value: str = "", left: Collection[str] = (), **more: Any
    ) -> None:
        super().__init__(value, compact=True, **more)
        self._left = left

    async def on_key(self, event: events.Key) -> None:
        bound = self._bindings.key_to_bindings.get(event.key, [])
        if bound and event.key not in self._left:
            event.stop()
            event.prevent_default()
            await self.app.run_action(bound[0].action, self)


class OneLine(ModalScreen[str | None]):
    """A line to type."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back", priority=True)
    ]

    def __init__(self, heading: str, value: str, secret: bool = False) -> None:
        super().__init__()
        self._heading = heading
        self._value = value
        self._secret = secret

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel small"):
            yield Static(self._heading, classes="heading", markup=False)
            yield Line(self._value, password=self._secret)
            yield Static("Enter saves   Esc back", classes="hint")

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)


class Help(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,f1,enter", "dismiss(None)", "Back")
    ]

    def __init__(self, palette: Palette, about: str) -> None:
        super().__init__()
        self._palette = palette
        self._about = about

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel"):
            yield Static("Keys and commands", classes="heading")
            with VerticalScroll():
                yield Static(self._table())
            yield Static("Esc back   ↑ ↓ scroll", classes="hint")

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style=self._palette.accent, no_wrap=True)
        table.add_column(ratio=1)
        if self._about:
            table.add_row("", Text(self._about + "\n", self._palette.warn))
        self._section(table, "In the input", KEYS)
        self._section(table, "In the messages", MESSAGE_KEYS)
        self._section(
            table,
            "Commands",
            [(f"/{c.name} {c.takes}".rstrip(), c.does) for c in COMMANDS],
        )
        return table

    def _section(
        self, table: Table, name: str, rows: Sequence[tuple[str, str]]
    ) -> None:
        table.add_row(Text(name, f"bold {self._palette.heading}"), "")
        for key, does in rows:
            table.add_row(f"  {key}", does)
        table.add_row("", "")


def _key(key: str) -> str:
    names = {
        "escape": "Esc",
        "delete": "Del",
        "f2": "F2",
        "f4": "F4",
        "ctrl+n": "Ctrl-N",
    }
    return names.get(key, key)
