"""The chat on the screen: puts the parts together, and paints what changed a few dozen times a
second at most."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from msgspec.structs import replace
from textual import events
from textual.app import App, ComposeResult, ScreenStackError
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.css.query import NoMatches
from textual.dom import NoScreen
from textual.screen import Screen
from textual.widgets import Static

from steno.agents import Agents
from steno.config import ConfigError
from steno.engine.visit_end import Reason
from steno.frontend.answers import ALWAYS, read
from steno.frontend.costs import Prices
from steno.frontend.first_frame import WELCOME
from steno.frontend.wording import EPHEMERAL, IDLE
from steno.frontend.worker import start_if_due
from steno.journal.facts import Mode, StepLost
from steno.journal.parts import Seq
from steno.model_choice import Beginning
from steno.service import Misused, Service
from steno.service.attachments import Attachment
from steno.store.errors import StoreError
from steno.tui import status_line
from steno.tui.actions import Acts
from steno.tui.bars import (
    KEYS_AT_QUESTION,
    KEYS_AT_REST,
    KEYS_IN_MESSAGES,
    KEYS_WHILE_BUSY,
    Asking,
    Keys,
    Status,
    Title,
    Waiting,
)
from steno.tui.blocks import Block, Call, Notice, Start, Tone
from steno.tui.composer import Completions, Composer
from steno.tui.offers import Offers, nearest, parse
from steno.tui.painting.palette import Shade, palette_of, theme
from steno.tui.scroll import Scroll
from steno.tui.terminal import Terminal
from steno.tui.watched import Watched
from steno.workspace.commands import commands
from steno.workspace.finding import Files
from steno.workspace.surroundings import branch

Answer = TypeVar("Answer")

FRAME_S = 1 / 30
REST = 2.0
"""Painting takes no more than one part of the time in so many and one."""
TWICE_S = 2.0
STOP_S = 0.25
LEAVE_S = 0.4
"""For a turn to end in order. What hangs longer is left behind: the next runner closes it."""
TICK_S = 0.5
RECENT_SHOWN = 5


class Talk(Screen[None]):
    """Keys go to the input from the first one on."""

    AUTO_FOCUS = "Composer"


class Chat(App[int]):
    CSS_PATH = "chat.tcss"
    TITLE = "steno"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "stop", "Stop", priority=True),
        Binding("ctrl+q", "nothing", show=False, priority=True),
        Binding("ctrl+o", "sessions", "Sessions"),
        Binding("ctrl+f", "find", "Find"),
        Binding("ctrl+n", "new", "New session"),
        Binding("f1", "help", "Help"),
        Binding("f8", "plain", "Plain text"),
    ]

    def __init__(
        self,
        service: Service,
        wiring: Agents,
        beginning: Beginning,
        shade: Shade,
    ) -> None:
        super().__init__(driver_class=Terminal)
        self.service = service
        self.wiring = wiring
        self.shade: Shade = shade
        self.model = beginning.model
        self.wanted = beginning.wanted
        """Who was asked for at the start, until a session has it."""
        self.answer_is_late = False
        """Whether what the terminal says of itself may still come, among keys."""
        self.attached: list[Attachment] = []
        self.compacting: asyncio.Event | None = None
        self.watched = Watched(service, self.changed, self.failed)
        self.acts = Acts(self)
        self.prices = Prices(wiring)
        self.left: int | None = None
        self.unsent = ""
        """What was typed and not sent when the person left."""
        self.mode: Mode = beginning.mode or "ask"
        """What runs without asking in a session that has not begun."""
        folder = wiring.where.folder
        self.folder = None if folder is None else Path(folder)
        files = None if folder is None else Files(folder, (wiring.where.home,))
        self.offers = Offers(commands(folder, wiring.where.home), files)
        self._wanted_mode = beginning.mode
        self._prompt = beginning.prompt
        self._place = self._where()
        self._text_at_stop = ""
        self._session = beginning.session
        self._at = beginning.at
        self._notes: list[tuple[Notice, str | None]] = []
        self._noted = 0
        self._start = Start("start", WELCOME)
        self._due = False
        self._cost_s = 0.0
        self._plain = False
        self._last_interrupt_s = -TWICE_S
        self._last_escape_s = -TWICE_S
        self._busy: tuple[bool, Seq | None] = (False, None)
        self._rested: tuple[str | None, int] = (None, 0)
        """The session, and how many of its turns were over when it last rested."""
        self._busy_since_s: float | None = None
        self._lost: tuple[StepLost | None, float] = (None, 0.0)
        """The last request that got no answer, and since when that is known here."""
        self._hint = ""
        self._loading = False
        self._stopping: asyncio.Task[None] | None = None
        self._active_s = time.monotonic()
        self._typed_last = ""
        self._jobs: set[asyncio.Task[None]] = set()
        self._saying: set[asyncio.Task[None]] = set()
        self.palette = palette_of(shade, wiring.where.home)
        self.register_theme(theme(shade, self.palette))
        self.theme = f"steno-{shade}"

    def get_default_screen(self) -> Screen[None]:
        return Talk(id="_default")

    def compose(self) -> ComposeResult:
        palette = self.palette
        offered = Completions(palette)
        yield Title(palette)
        yield Scroll(palette)
        yield Waiting(palette)
        yield Asking(palette)
        yield offered
        with Horizontal(id="typing"):
            yield Static(">", id="prompt")
            yield Composer(offered, self.offers)
        yield Keys(palette)
        yield Status(palette)

    async def on_mount(self) -> None:
        self.screen.set_focus(
            self.query_one(Composer)
        )  # the next key may be there already
        if self._session is not None:
            if await self.acts.is_elsewhere(self._session):
                self.do(self.acts.open(self._session, self._at))  # it asks
            else:
                await self._done(self.acts.open(self._session, self._at))
        else:
            self.welcome()
        if self._prompt:
            self._say(self.acts.say(self._prompt, "queue"))
        self.set_interval(TICK_S, self._tick)
        self.call_after_refresh(self._load_rest)

    def _load_rest(self) -> None:
        """What finds text, and what asks servers, is loaded once there is something to see."""
        self.service.searches.keep_up()
        threading.Thread(
            target=self.wiring.load_ahead, name="load-ahead", daemon=True
        ).start()

    # --- what is on the screen

    def changed(self) -> None:
        """There is something else to see: it is painted with the next frame."""
        self._active_s = time.monotonic()
        if not self._due and self.is_running:
            self._due = True
            self.set_timer(max(FRAME_S, REST * self._cost_s), self._paint)

    def tell(
        self, text: str, tone: Tone = "quiet", while_run_by: str | None = None
    ) -> None:
        """Something that this person must know; maybe only while another process runs the
        session. No part of it."""
        self._noted += 1
        note = Notice(f"local{self._noted}", text, tone, 1 << 62)
        self._notes.append((note, while_run_by))
        self.changed()

    def forget_told(self) -> None:
        self._notes.clear()

    def begin(self) -> None:
        """Another session is on the screen."""
        self.forget_told()
        self._rested = (self.watched.id, self.watched.row.turns)
        self.do(self.acts.beside.count_cost(self.watched))
        self.query_one(Scroll).begin(self._blocks())
        self._paint()

    def welcome(self) -> None:
        """A session that has not begun."""
        about = status_line.about_model(self.model, self.wiring)
        self._start = Start(
            "start",
            WELCOME,
            place=self._place,
            tip=status_line.HOW_TO_BEGIN,
            warning=about,
        )
        if self.service.ephemeral:
            self._start = replace(self._start, text=EPHEMERAL.replace("\n", " "))
        else:
            self.do(self._recent())
        self.begin()

    async def _recent(self) -> None:
        """The last sessions of the folder, and a tip."""
        found = await self.service.views.sessions(
            RECENT_SHOWN, folder=self.service.folder
        )
        now_s, rows = time.time(), [one.listed.row for one in found]
        tip = status_line.TIPS[len(found) % len(status_line.TIPS)]
        self._start = replace(
            self._start,
            recent=tuple(
                (row.title or "nothing said", status_line.ago(row.updated_ms, now_s))
                for row in rows
            ),
            tip=f"{status_line.HOW_TO_BEGIN}\n{tip}",
        )
        self.changed()

    def _where(self) -> str:
        """The folder and its branch, in few letters."""
        if self.folder is None:
            return ""
        on = branch(self.folder)
        return f"{self.folder.name or '/'} ({on})" if on else self.folder.name or "/"

    def _blocks(self) -> list[Block]:
        self._notes = [
            (note, by) for note, by in self._notes if by in (None, self.watched.owner)
        ]
        begun: list[Block] = (
            [self._start] if self.watched.id is None else self.watched.blocks()
        )
        return [*begun, *(note for note, _ in self._notes)]

    def _paint(self) -> None:
        self._due = False
        if not self._stands():
            return
        before_s = time.perf_counter()
        blocks = self._blocks()
        self.query_one(Scroll).show(blocks)
        waiting = self.watched.waiting()
        files = tuple(status_line.attached(one) for one in self.attached)
        self.query_one(Waiting).show(waiting, files)
        self.query_one(Composer).takes_back = bool(waiting)
        self._paint_question(self.watched.asked())
        self._paint_hint()
        self._paint_state()
        if self.watched.without_diff() and not self._loading:
            self._loading = True
            self.do(self._load_diffs())
        self._cost_s = time.perf_counter() - before_s

    def take_mode(self) -> Mode | None:
        """The mode that the chat was started with, until a session has it."""
        mode, self._wanted_mode = self._wanted_mode, None
        return mode

    async def _load_diffs(self) -> None:
        try:
            await self.watched.load_diffs()
        finally:
            self._loading = False

    def _paint_question(self, calls: list[Call]) -> None:
        self.query_one(Asking).show(calls)
        self.query_one(Composer).ask(calls[0].key if calls else None)

    def _paint_hint(self) -> None:
        """What Enter does with what is typed while a question is open."""
        composer, asking = self.query_one(Composer), self.query_one(Asking)
        typed = composer.text.strip()
        meant = (
            read(typed)
            if composer.answers() == (asking.call and asking.call.key)
            else None
        )
        if not typed or asking.call is None:
            asking.hint("")
        elif parse(composer.text) is not None:
            asking.hint("Enter runs the command; the question stays open")
        else:
            asking.hint(status_line.meaning(meant))

    def _paint_state(self) -> None:
        if not self._stands():
            return
        watched, status, title = (
            self.watched,
            self.query_one(Status),
            self.query_one(Title),
        )
        state = status_line.state(
            watched.folded.state,
            watched.elsewhere(),
            watched.driving,
            self.compacting is not None,
            self._trying(),
            watched.streams(),
        )
        if watched.deleted:
            state = status_line.DELETED
        if (busy := (state.busy, watched.turn())) != self._busy:
            self._busy, self._busy_since_s = (
                busy,
                time.monotonic() if state.busy else None,
            )
        if not state.busy and (watched.id, watched.row.turns) != self._rested:
            self._rested = (watched.id, watched.row.turns)
            self.do(self.acts.beside.count_cost(watched))
            if self.wiring.entitles(watched.row):
                self.do(self.acts.beside.entitle(watched))
        status.state, status.busy = state.word, state.busy
        status.hint = (
            self._hint
            if time.monotonic() - self._last_interrupt_s < TWICE_S
            else state.hint
        )
        status.since_s = self._busy_since_s
        status.mode = self.mode if watched.id is None else watched.folded.state.mode
        status.place = self._place
        self._paint_keys(state.busy)
        wanted = (
            None if self.wanted is None else self.wanted.instead_of(watched.row.model)
        )
        own = wanted or watched.row.model or self.model
        status.model = status_line.answering(watched.folded.state) or own
        usage = watched.row.usage
        known = usage is not None and (
            usage.input is not None or usage.output is not None
        )
        status.tokens = (
            (usage.input or 0) + (usage.output or 0)
            if usage is not None and known
            else None
        )
        status.context, status.context_max = (
            watched.row.context,
            self._takes(status.model),
        )
        status.cost = watched.cost
        status.durability = (
            "in memory"
            if self.service.ephemeral
            else self.wiring.config.store.durability
        )
        status.refresh()
        title.title, title.session = watched.row.title, watched.id or ""
        title.badge = "ephemeral: nothing is kept" if self.service.ephemeral else ""
        title.refresh()

    def _trying(self) -> status_line.Trying:
        turn, now_s = self.watched.folded.state.turn, time.monotonic()
        lost = None if turn is None else turn.last_lost
        if lost is not self._lost[0]:
            self._lost = (lost, now_s)
        return status_line.Trying(
            self.wiring.config.limits.attempts_max, now_s - self._lost[1]
        )

    def _takes(self, model: str) -> int:
        try:
            return self.prices.context_max(model)
        except ConfigError:
            return 0  # the picker of models says what is wrong with the table

    def _paint_keys(self, busy: bool) -> None:
        keys = self.query_one(Keys)
        if self.focused is self.query_one(Scroll):
            found = KEYS_IN_MESSAGES
        elif self.query_one(Asking).call is not None:
            found = KEYS_AT_QUESTION
        else:
            found = KEYS_WHILE_BUSY if busy else KEYS_AT_REST
        if keys.keys != found:
            keys.keys = found
            keys.refresh()

    def on_descendant_focus(self) -> None:
        if self._stands():
            self._paint_state()

    def _stands(self) -> bool:
        """Whether there is something to paint on. A timer may strike while the parts are put up or
        taken down, one by one."""
        return self.is_running and self.left is None and bool(self.query(Status))

    def _tick(self) -> None:
        if not self._stands():
            return
        self.query_one(Scroll).tick()
        if self.query_one(Status).busy:
            self._paint_state()
        self._look_whether_idle(time.monotonic(), self.query_one(Composer).text)

    def _look_whether_idle(self, now_s: float, typed: str) -> None:
        """Where no person is any more, the visit ends, so that plugins hear of it. What is said
        next begins another."""
        if typed != self._typed_last or self.watched.turn() is not None:
            self._typed_last, self._active_s = typed, now_s
        session, idle_s = self.watched.id, self.wiring.config.limits.chat_idle_s
        if (
            0 < idle_s < now_s - self._active_s
            and session is not None
            and self.service.visits.attending(session)
        ):
            self._active_s = now_s
            self.do(self._end_idle(session))

    async def _end_idle(self, session: str) -> None:
        await self.let_go("idle", session)
        self.tell(IDLE)

    async def let_go(self, reason: Reason, session: str) -> None:
        """End the visit of a session while the chat goes on. What is worth keeping of it is written
        down meanwhile."""
        for problem in await self.service.visits.leave(reason, session):
            self.tell(problem, "warn")
        await start_if_due(self.wiring, self.service)

    def paint_again(self) -> None:
        """The terminal missed something."""
        self.refresh(repaint=True, layout=True)

    # --- what a person does

    def on_composer_sent(self, event: Composer.Sent) -> None:
        composer = self.query_one(Composer)
        self.query_one(Scroll).action_bottom()
        meant = self.offers.meant(event.text)
        if event.answers is not None and meant is None:
            self._answer(event.answers, event.text)
            return
        if not event.text.strip() and not self.attached:
            composer.put_back(event.text)
            return
        if meant is None and event.text.startswith("!") and event.text[1:].strip():
            composer.remember(event.text)
            self.do(self.acts.beside.run_command(event.text[1:].strip()))
            return
        if meant is not None and not self.offers.known(meant[0]):
            near = nearest(meant[0], tuple(self.offers.own.values()))
            hint = f"did you mean /{near}?" if near else "/help lists them."
            composer.put_back(event.text)
            self.tell(
                (
                    f"there is no command /{meant[0]}; {hint} To say it, begin with a space. "
                    "Nothing was said"
                ),
                "warn",
            )
            return
        composer.remember(event.text)
        self.forget_told()
        if meant is None:
            self._say(self.acts.say(event.text, "steer" if event.steer else "queue"))
        elif meant[0] in self.offers.own:
            own = self.offers.own[meant[0]]
            self._say(self.acts.say(own.with_arguments(meant[1]), "queue"))
        elif meant[0] == "steer":
            self._say(self.acts.command(*meant))
        else:
            self.do(self.acts.command(*meant))

    def _answer(self, question: str, text: str) -> None:
        """Answer a question, with what is typed or by the choice that was made."""
        asking, composer = self.query_one(Asking), self.query_one(Composer)
        call, answer = asking.call, read(text) or self.query_one(Asking).chosen
        if call is None or call.key != question:
            composer.put_back(text)
            self.tell(
                "the call was decided elsewhere; your text is still in the input",
                "warn",
            )
        elif answer is ALWAYS and not text.strip():
            self.do(self.acts.decide_always(call))
        elif answer is not None:
            composer.remember(answer.reason)
            self.forget_told()
            self.do(self.acts.decide(call, answer))

    def _say(self, saying: Coroutine[Any, Any, None]) -> None:
        """The chat is not left before it is accepted."""
        task = self.do(saying)
        self._saying.add(task)
        task.add_done_callback(self._saying.discard)

    def on_composer_wants(self, event: Composer.Wants) -> None:
        scroll = self.query_one(Scroll)
        match event.what:
            case "pageup" | "pagedown":
                scroll.action_screens(-1 if event.what == "pageup" else 1)
            case "take back":
                self.do(self.acts.take_back())
            case "tab" | "left" | "right":
                self._choose(event.what)
            case "leave":
                self._leave_if_idle()
            case "stop":
                self._stop_by_escape()
            case "mode":
                self.do(self.acts.next_mode())
            case "ctrl+r":
                self.do(self.acts.beside.find_said())
            case "ctrl+f":
                self.do(self.acts.find())
            case "ctrl+p":
                self.do(self.acts.beside.find_command())
            case "ctrl+g":
                self.do(self.acts.beside.write_in_editor())
            case "ctrl+v":
                self.do(self.acts.beside.attach_image())
            case "ctrl+z":
                self._suspend()
            case what if what.startswith("attach "):
                self.do(self.acts.command("attach", what.removeprefix("attach ")))

    def _stop_by_escape(self) -> None:
        """Stop what runs. Where nothing does, the second one goes to what was said last."""
        scroll, now_s = self.query_one(Scroll), time.monotonic()
        twice, self._last_escape_s = now_s - self._last_escape_s < TWICE_S, now_s
        if self.compacting is not None:
            self.compacting.set()
        elif self.watched.turn() is not None:
            self._stopping = self.do(self._stop())
        elif twice and not self.query_one(Composer).text and scroll.go_to_said():
            scroll.focus()

    def _suspend(self) -> None:
        """The process that runs a turn must be there to renew its lease."""
        if self.watched.runs_here():
            self.tell("a turn runs here: stop it with Esc, or wait for it", "warn")
        else:
            self.action_suspend_process()

    def on_text_area_changed(self) -> None:
        if self._stands():
            self._paint_hint()

    def on_asking_chosen(self) -> None:
        self.query_one(Composer).focus()

    def _choose(self, key: str) -> None:
        """The arrow keys go round the choices; Tab goes on to the messages after the last one."""
        asking, by = self.query_one(Asking), 1 if key in ("tab", "right") else -1
        if key in ("tab", "shift+tab") and asking.is_last(by):
            asking.forget()
            self.query_one(Scroll).focus()
        else:
            asking.choose(by)

    def on_scroll_wants_earlier(self) -> None:
        self.do(self._load_earlier())

    def on_scroll_acted(self, event: Scroll.Acted) -> None:
        self.do(self.acts.on_message(event.act, event.block))

    def on_scroll_typed(self, event: Scroll.Typed) -> None:
        composer = self.query_one(Composer)
        self.screen.set_focus(composer)
        composer.insert(event.text)

    def on_scroll_left(self) -> None:
        self.query_one(Composer).focus()

    def on_text_selected(self, event: events.TextSelected) -> None:
        if text := self.screen.get_selected_text():
            self.acts.copy(text)

    async def _load_earlier(self) -> None:
        self.query_one(Scroll).put_before(await self.watched.earlier())

    def action_sessions(self) -> None:
        self.do(self.acts.command("sessions", ""))

    def action_find(self) -> None:
        self.do(self.acts.find())

    async def reveal(self, seq: int) -> None:
        """Bring a message onto the screen; earlier pages are read until it is there."""
        scroll = self.query_one(Scroll)
        while not scroll.go_to(seq):
            earlier = await self.watched.earlier()
            if not earlier:
                return
            scroll.put_before(earlier)
        scroll.focus()

    def action_new(self) -> None:
        self.do(self.acts.command("new", ""))

    def action_help(self) -> None:
        self.do(self.acts.command("help", ""))

    def action_plain(self) -> None:
        self.acts.plain()

    def action_nothing(self) -> None:
        pass

    def show_plain(self) -> bool:
        """Nothing but text on the screen, and the mouse is the terminal's; or back."""
        self._plain = not self._plain
        self.query_one(Scroll).show_plain(self._plain)
        if isinstance(self._driver, Terminal):
            self._driver.give_mouse(self._plain)
        return self._plain

    def restyle(self, shade: Shade) -> None:
        self.shade, self.palette = shade, palette_of(shade, self.wiring.where.home)
        self.register_theme(theme(shade, self.palette))
        if self.theme == f"steno-{shade}":
            self.refresh_css()
        self.theme = f"steno-{shade}"
        palette = self.palette
        self.query_one(Scroll).restyle(palette)
        self.query_one(Completions).palette = palette
        for kind in (Title, Waiting, Asking, Keys, Status):
            self.query_one(kind).restyle(palette)

    async def ask(self, screen: Screen[Answer]) -> Answer | None:
        """Put something over the chat, and wait for what comes of it."""
        answered: asyncio.Future[Answer | None] = (
            asyncio.get_running_loop().create_future()
        )
        await self.push_screen(
            screen,
            lambda answer: None if answered.done() else answered.set_result(answer),
        )
        return await answered

    def do(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Do something without keeping the screen from its work; if it fails, say why."""
        task = asyncio.create_task(self._done(work))
        self._jobs.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._jobs.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed(
                f"something went wrong here ({type(error).__name__}: {error}); what was stored is "
                "kept"
            )

    async def _done(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (StoreError, Misused, ConfigError) as error:
            self.tell(status_line.problem(error), "bad")
        except (NoMatches, NoScreen, ScreenStackError):
            if self._stands():
                raise  # else the screen was taken down meanwhile: there is nothing to show it on
        self.changed()

    def failed(self, why: str) -> None:
        self.tell(why, "bad")

    # --- leaving

    def action_stop(self) -> None:
        """In its place among the keys, which wait at the input: what was typed before it comes
        first."""
        if self._stands():
            self.query_one(Composer).call_later(self.action_interrupt)
        else:
            self.action_interrupt()

    def action_interrupt(self) -> None:
        """Stop the turn; the second time within two seconds, leave."""
        now_s = time.monotonic()
        twice, self._last_interrupt_s = (
            now_s - self._last_interrupt_s < TWICE_S,
            now_s,
        )
        if not self._stands() or (
            twice and self.query_one(Composer).text == self._text_at_stop
        ):
            self.go(0)
            return
        composer = self.query_one(Composer)
        if self.compacting is not None:
            self.compacting.set()
        elif self.watched.turn() is not None:
            self._hint = "Ctrl-C again leaves"
            self._stopping = self.do(self._stop())
        elif composer.text:
            composer.forget()
            self._hint = "forgotten, ↑ brings it back; Ctrl-C again leaves"
        else:
            self._hint = "Ctrl-C again leaves, or Ctrl-D"
        self._text_at_stop = composer.text
        self._paint_state()
        self.set_timer(TWICE_S, self._paint_state)

    async def _stop(self) -> None:
        if not await self.watched.stop():
            self.tell("nothing runs")

    def _leave_if_idle(self) -> None:
        if self._saying or self.watched.runs_here():
            self.tell(
                "a turn runs here: Ctrl-C stops it, and leaves if pressed twice",
                "warn",
            )
        else:
            self.go(0)

    def terminal_gone(self) -> None:
        """The window was closed. No person can be asked."""
        self.go(130, "closed_terminal")

    def go(self, status: int, reason: Reason = "left") -> None:
        """Leave in order, in less than a second."""
        if self.left is None:
            self.left = status
            self.service.visits.reason = reason
            self._jobs.add(asyncio.create_task(self._go(status)))

    async def _go(self, status: int) -> None:
        """A stop that was asked for is stored first: that a person wished the end counts more than
        how it came."""
        if self.on_leaving is not None:
            self.on_leaving(status)
        try:
            if self._stopping is not None:
                await asyncio.wait([self._stopping], timeout=STOP_S)
            self.watched.leaving.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._take_in(), STOP_S)
            self.unsent = self.query_one(Composer).text
            await self.watched.leave(LEAVE_S)
        finally:
            self.exit(status)

    async def _take_in(self) -> None:
        """What was sent before the person left is accepted. A key goes from one part to the next
        until it is here."""
        for part in self.query_one(Composer).ancestors_with_self:
            passed = asyncio.Event()
            if part.call_later(passed.set):
                await passed.wait()
        if self._saying:
            await asyncio.wait(self._saying)

    on_leaving: Any = None
    """Called first when the chat is left; makes sure that it ends."""
