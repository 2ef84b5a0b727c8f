"""What a person does in the chat, beyond typing: each command, and what can be done with a
message."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from steno.config import FolderRule, keep_folder_rules
from steno.engine.approval import patterns_for
from steno.frontend.answers import ALWAYS
from steno.frontend.answers import Answer as Answered
from steno.journal.facts import ContextSet, Mode
from steno.journal.parts import Seq
from steno.service import Misused, Summary
from steno.service.approvals import ALWAYS_DAYS, always
from steno.service.attachments import read_attachment
from steno.service.files import PutBack
from steno.store.errors import NotAllowed, NotPending, SessionBusy
from steno.tui import status_line
from steno.tui.beside import Beside
from steno.tui.blocks import Answer, Block, Call, Notice, Said, text_of
from steno.tui.composer import Composer, meant_path
from steno.tui.dialogs import Choice, Finder, Help, OneLine, Row, Sure
from steno.tui.painting.markdown import one_line
from steno.tui.scroll import Scroll
from steno.tui.watched import Watched
from steno.workspace.instructions import begin_with

if TYPE_CHECKING:
    from steno.tui.app import Chat

FOUND_MAX = 50
SESSIONS_AT_ONCE = 100
MODE_ORDER: tuple[Mode, ...] = ("ask", "edits", "plan", "everything")
UNDO = (
    ("both", "The talk and the files"),
    ("files", "Only the files"),
    ("talk", "Only the talk"),
)
SAME_UNDO = 3
"""An undo of the talk that follows one of files so closely was one with it."""
IN_ORDER = frozenset({"continue", "retry", "redo", "rewind", "hide", "goal"})
"""Commands that change the session and ask nothing: each finds what the one before it stored."""


class Acts:
    def __init__(self, chat: "Chat") -> None:
        self._chat = chat
        self.beside = Beside(chat)
        self._in_order = asyncio.Lock()
        """What is said, another session to say it in and what changes it come one after the other,
        however fast a person types."""

    async def command(self, name: str, typed: str) -> None:
        chat, rest = self._chat, typed.strip()
        match name:
            case "help":
                await chat.push_screen(
                    Help(
                        chat.palette, status_line.about_model(chat.model, chat.wiring)
                    )
                )
            case "new":
                await self.new()
            case "sessions":
                await self.sessions()
            case "resume":
                if not rest:
                    await self.sessions()
                    return
                await self.open(await chat.service.views.resolve(rest))
            case "model":
                await self.choose_model(
                    rest or await self.beside.find_model(self._now())
                )
            case "login":
                await self.login(rest)
            case "logout":
                self.beside.log_out(rest or self._needs("logout NAME"))
            case "attach":
                self.attach(rest or self._needs("attach PATH"))
            case "detach":
                self.detach()
            case "theme":
                await self.beside.choose_theme(rest)
            case "mode":
                await self.set_mode(rest)
            case "init":
                await self.init()
            case "copy":
                self.copy_last()
            case "plain":
                self.plain()
            case "quit":
                chat.go(0)
            case "steer":
                await self.say(typed if rest else self._needs("steer TEXT"), "steer")
            case _ if name in IN_ORDER:
                async with self._in_order:
                    await self._on_session(name, rest)
            case _:
                await self._on_session(name, rest)

    async def _on_session(self, name: str, rest: str) -> None:
        """Commands that need a session."""
        session = self._chat.watched.id
        if session is None:
            raise Misused(f"there is no session yet; /{name} does nothing")
        edits = self._chat.service.edits
        match name:
            case "continue":
                await self.go_on(session)
            case "retry":
                service = self._chat.service
                loaded = await service.views.load(session)
                self._chat.watched.run(await service.turns.retry(loaded))
            case "stop":
                if not await self._chat.watched.stop():
                    self._chat.tell("nothing runs")
            case "undo":
                await self.undo(session)
            case "diff":
                await self.beside.diff(session)
            case "cost":
                await self.beside.cost(session)
            case "context":
                await self.beside.context(session)
            case "redo":
                await self.redo(session)
            case "rewind":
                await edits.rewind(session, self._seq(rest, "rewind SEQ"))
                self._chat.tell("rewound: /redo takes that back")
            case "fork":
                chosen = bool(rest) or self._chosen_seq() is not None
                at = self._seq(rest, "fork SEQ") if chosen else self._last_seq()
                await self.fork(session, at)
            case "hide":
                await self.hide(session, self._seq(rest, "hide SEQ"))
            case "compact":
                await self.compact(session)
            case "memory":
                await self.memory(session)
            case "goal":
                await edits.set_goal(session, rest or self._needs("goal TEXT"))
                self._chat.tell(f"the goal of this session: {rest}")
            case "rename":
                await edits.rename(
                    session,
                    rest or await self._title(session) or self._needs("rename TITLE"),
                )
            case "delete":
                await self.delete(session)
            case _:
                raise Misused(f"there is no command /{name}")

    # --- sessions

    async def is_elsewhere(self, session: str) -> str:
        """The other folder that a session belongs to; "" if it belongs here, or to none."""
        folder = await self._chat.service.views.folder(session)
        return "" if folder in ("", self._chat.service.folder) else folder

    async def open(self, session: str, at: int | None = None) -> None:
        """Show a session, where it stopped or at a message, and what was left open."""
        if folder := await self.is_elsewhere(session):
            where = await self._chat.ask(
                Choice(
                    "This session belongs to another folder",
                    f"It belongs to {folder}; you are in {self._chat.service.folder}.",
                    (("there", "Work there"), ("here", "Move it here")),
                )
            )
            if where is None:
                if self._chat.watched.id is None:
                    self._chat.welcome()
                return
            if where == "here":
                await self._chat.service.edits.move(
                    session, self._chat.service.folder
                )
        async with self._in_order:
            await self._look_away()
            chat = self._chat
            await chat.watched.open(session)
            chat.begin()
            elsewhere = chat.watched.elsewhere()
            for text, tone in status_line.left_open(
                chat.watched.folded, chat.watched.row, elsewhere
            ):
                chat.tell(
                    text,
                    tone,
                    while_run_by=elsewhere,
                )
            if at is not None:
                chat.call_after_refresh(chat.reveal, at)

    async def new(self) -> None:
        async with self._in_order:
            await self._look_away()
            self._chat.welcome()

    async def _look_away(self) -> None:
        """A turn that runs here goes on only while its session is shown, so that a
        person does not stop one without seeing it."""
        chat = self._chat
        if chat.watched.runs_here():
            raise Misused("a turn runs here; stop it with Ctrl-C, or wait for it")
        before = chat.watched.id
        await chat.watched.leave(0.2)
        chat.watched = Watched(chat.service, chat.changed, chat.failed)
        if before is not None:
            await chat.let_go("replaced", before)

    async def sessions(self) -> None:
        folder = self._chat.service.folder
        while True:
            acts = {
                "f2": ("rename", "rename"),
                "delete": ("delete", "delete"),
                "ctrl+n": ("new", "new"),
                "f4": ("folders", "every folder" if folder else "this folder"),
            }
            first, later = await self._listed(folder)
            heading = "Sessions of this folder" if folder else "Sessions"
            finder = Finder(
                heading,
                first,
                acts,
                later=later,
                search=self._said,
                preview=self.beside.preview,
            )
            match await self._chat.ask(finder):
                case ("open", session):
                    await self.open(session, finder.found_at(session))
                    return
                case ("new", _):
                    await self.new()
                    return
                case ("folders", _):
                    folder = "" if folder else self._chat.service.folder
                case ("rename", session):
                    if (title := await self._title(session)) is not None:
                        await self._chat.service.edits.rename(session, title)
                case ("delete", session):
                    await self.delete(session)
                case _:
                    return

    async def find(self) -> None:
        """Find a message of the session that is shown, and go there."""
        session = self._chat.watched.id
        if session is None:
            raise NotAllowed("nothing is said here yet")

        from steno.service.searches import Wanted  # few chats search

        async def said(text: str) -> AsyncIterator[list[Row]]:
            wanted = Wanted(
                text=text, session=session, all=True, order="newest", limit=FOUND_MAX
            )
            async with aclosing(
                self._chat.service.searches.follow(wanted)
            ) as answers:
                async for found in answers:
                    yield [
                        Row(str(hit.seq), hit.text, "", (hit.role,))
                        for hit in found.hits
                    ]

        done = await self._chat.ask(
            Finder("Find in this session", (), {}, search=said, enter="go there")
        )
        if done is not None and done[1].isdigit():
            await self._chat.reveal(int(done[1]))

    async def _said(self, text: str) -> AsyncIterator[list[Row]]:
        """Sessions by what was said in them, as they are found."""
        from steno.service.searches import Wanted  # few chats search

        now_s = time.time()

        def ago(at_ms: int) -> str:
            return status_line.ago(at_ms, now_s)

        wanted = Wanted(text=text, limit=FOUND_MAX)
        async with aclosing(self._chat.service.searches.follow(wanted)) as answers:
            async for found in answers:
                yield [
                    Row(
                        hit.session,
                        f"{hit.title}: {hit.text}",
                        "",
                        ("", "", ago(hit.at_ms), ""),
                        at=hit.seq,
                    )
                    for hit in found.hits
                ]

    async def _listed(
        self, folder: str
    ) -> tuple[list[Row], AsyncIterator[list[Row]]]:
        """The latest sessions, and the others page by page."""
        views, now_s = self._chat.service.views, time.time()
        latest = await views.sessions(SESSIONS_AT_ONCE, folder=folder)

        async def earlier(page: list[Summary]) -> AsyncIterator[list[Row]]:
            while page:
                page = await views.sessions(
                    SESSIONS_AT_ONCE, page[-1].listed.mark, folder=folder
                )
                yield [_row(one, now_s) for one in page]

        return [_row(one, now_s) for one in latest], earlier(latest)

    async def _title(self, session: str) -> str | None:
        tail = await self._chat.service.views.end(session, 1)
        return await self._chat.ask(OneLine(f"A title for {session}", tail.row.title))

    async def delete(self, session: str) -> None:
        tail = await self._chat.service.views.end(session, 1)
        question = f"Delete “{one_line(tail.row.title, 60) or session}” for good?"
        detail = (
            f"{tail.row.messages} messages. This cannot be taken back. A turn that runs in it is "
            "stopped."
        )
        if not await self._chat.ask(Sure(question, detail, "Yes, delete it")):
            self._chat.tell("nothing was deleted")
            return
        here = session == self._chat.watched.id
        if here:
            self._chat.watched.leaving.set()
        await self._chat.service.delete(session, with_forks=False)
        if here:
            await self._chat.watched.leave(0.2)
            self._chat.watched = Watched(
                self._chat.service, self._chat.changed, self._chat.failed
            )
            self._chat.welcome()
        self._chat.tell("deleted")

    # --- turns

    async def say(self, text: str, mode: Literal["queue", "steer"]) -> None:
        async with self._in_order:
            await self._say(text, mode)

    async def _say(self, text: str, mode: Literal["queue", "steer"]) -> None:
        chat = self._chat
        attached, chat.attached = chat.attached, []
        try:
            along = [*attached, *self.beside.mentioned(text)]
            await self._use_wanted()
            chat.wiring.check(
                ContextSet(chat.watched.row.model or chat.model)
            )  # refused before anything is stored
            begins = chat.watched.id is None
            wanted = chat.take_mode()
            rights = chat.mode if begins and chat.mode != "ask" else wanted
            await chat.watched.say(text, mode, chat.model, along, rights)
        except BaseException:
            chat.attached = attached
            chat.query_one(Composer).put_back(text)
            raise

    async def _use_wanted(self) -> None:
        """Who the chat was started with answers from the first input on. While a process runs the
        session, the model that it has goes on."""
        chat = self._chat
        model = (
            None
            if chat.wanted is None
            else chat.wanted.instead_of(chat.watched.row.model)
        )
        if chat.watched.id is not None and model is not None:
            try:
                await chat.service.edits.choose_model(chat.watched.id, model)
            except SessionBusy:
                chat.tell(
                    f"the session is in use, so its own model answers this; then /model {model}",
                    "warn",
                )
        chat.wanted = None

    async def take_back(self) -> None:
        """The last input that waits goes back into the line, if no turn has taken it."""
        waiting = self._chat.watched.waiting()
        if not waiting:
            return
        try:
            await self._chat.watched.withdraw(waiting[-1].seq)
        except NotPending:
            self._chat.tell("it is being answered already; Ctrl-C stops that", "warn")
            return
        self._chat.query_one(Composer).put_back(waiting[-1].text)
        if waiting[-1].files:
            self._chat.tell(
                f"taken back without {', '.join(waiting[-1].files)}: /attach it again",
                "warn",
            )

    async def go_on(self, session: str) -> None:
        """Take up what was cut off; else run what waits."""
        watched = self._chat.watched
        if watched.asked():
            raise NotAllowed("a tool call waits for your answer")
        loaded = await self._chat.service.views.load(session)
        cut = loaded.state.cut_off
        if cut is not None and cut.waits():
            watched.run(self._chat.service.turns.continuation(loaded))
        elif watched.waiting() or watched.turn() is not None:
            watched.run()
        else:
            raise NotAllowed("there is nothing to continue")

    async def decide(self, call: Call, answer: Answered) -> None:
        if not await self._chat.watched.decide(call, answer):
            kept = f"; your reason was: {answer.reason}" if answer.reason else ""
            self._chat.tell(
                f"the call was already decided elsewhere; that stands{kept}", "warn"
            )

    async def decide_always(self, call: Call) -> None:
        """Allow a call, and ask which others like it run from now on."""
        chat = self._chat
        if chat.watched.id is None or call.asked is None:
            return
        exact = always(
            await chat.service.approvals.choose(chat.watched.id, call.asked)
        )
        patterns = patterns_for(call.name, call.arguments)
        offers = [("exact", f"This call: {', '.join(exact)}")]
        offers += [(rule, f"Calls like {rule}") for rule in patterns]
        offers += (
            [(call.name, f"Every call of {call.name}")]
            if (call.name,) != exact
            else []
        )
        kept = patterns[0] if patterns else exact[0]
        offers.append(("folder", f"{kept}, in all sessions of this folder"))
        picked = await chat.ask(
            Choice(f"Allow for {ALWAYS_DAYS} days, in this session", "", offers)
        )
        if picked is None:
            return
        rules = (
            exact if picked == "exact" else (kept if picked == "folder" else picked,)
        )
        if picked == "folder" and chat.folder is not None:
            until = datetime.now().astimezone().date() + timedelta(days=ALWAYS_DAYS)
            rule = FolderRule("allow", until)
            keep_folder_rules(chat.wiring.where.home, chat.folder, {kept: rule})
        if not await chat.watched.decide(call, ALWAYS, rules):
            chat.tell("the call was already decided elsewhere; that stands", "warn")

    async def next_mode(self) -> None:
        """Of keys that come fast, each goes on from what the one before it stored, which may not be
        on the screen yet."""
        chat = self._chat
        async with self._in_order:
            session = chat.watched.id
            now = chat.mode
            if session is not None:
                now = (await chat.service.views.state(session)).mode
            await self.set_mode(
                MODE_ORDER[(MODE_ORDER.index(now) + 1) % len(MODE_ORDER)]
            )

    async def set_mode(self, mode: str) -> None:
        if mode not in MODE_ORDER:
            raise Misused(f"usage: /mode {'|'.join(MODE_ORDER)}")
        chosen = MODE_ORDER[MODE_ORDER.index(mode)]
        self._chat.mode = chosen
        self._chat.take_mode()  # what the chat was started with is over
        if self._chat.watched.id is not None:
            await self._chat.service.edits.set_mode(self._chat.watched.id, chosen)

    async def init(self) -> None:
        if self._chat.folder is None:
            raise Misused("there is no folder to write an AGENTS.md for")
        await self.say(begin_with(self._chat.folder), "queue")

    async def compact(self, session: str) -> None:
        chat = self._chat
        chat.compacting = asyncio.Event()
        chat.changed()
        try:
            came = await chat.service.edits.compact(session, chat.compacting)
        finally:
            chat.compacting = None
        match came.outcome:
            case "done":
                made = came.detail
                if came.tokens is not None:
                    before, after = came.tokens
                    made = f"summarised: about {before:,} tokens became {after:,}"
                chat.tell(f"{made}; you still read everything", "good")
            case "nothing":
                chat.tell("there is nothing to summarise yet")
            case _:
                why = came.detail or "no reason was given"
                chat.tell(f"no summary was made: {why}; nothing was changed", "warn")

    # --- editing

    async def undo(self, session: str) -> None:
        """Undo the last turn: what was said, what was edited, or both."""
        chat = self._chat
        turn = await chat.service.edits.last_turn(session)
        files = await chat.service.files.changed_since(session, turn)
        what: str | None = "talk"
        if files:
            many = "1 file was" if files == 1 else f"{files} files were"
            what = await chat.ask(
                Choice(
                    "Undo the last turn",
                    f"{many} edited in it. A file that something else changed since stays.",
                    UNDO,
                )
            )
        if what is None:
            return
        if what in ("both", "files"):
            self._tell_put_back(await chat.service.files.undo(session, turn))
        if what in ("both", "talk"):
            prompt = next(
                (
                    one.text
                    for one in reversed(chat.watched.blocks())
                    if isinstance(one, Said)
                ),
                "",
            )
            await chat.service.edits.undo(session)
            chat.tell(
                "undone: the model is not told the last turn any more. /redo takes that back"
            )
            if not chat.query_one(Composer).text:
                chat.query_one(Composer).replace_text(prompt)

    def _tell_put_back(self, done: PutBack, again: bool = False) -> None:
        if done.files:
            files = ", ".join(done.files)
            said = (
                f"edited again: {files}"
                if again
                else f"put back: {files}. /redo edits again"
            )
            self._chat.tell(said, "good")
        if done.left:
            left = ", ".join(done.left)
            self._chat.tell(
                f"changed by something else since, and left as it is: {left}", "warn"
            )

    async def redo(self, session: str) -> None:
        """Take the last undo back, of the talk, of files, or both if they were one."""
        edits, files = self._chat.service.edits, self._chat.service.files
        rewinds = await edits.rewinds(session)
        undone = await files.undone_last(session)
        if not rewinds and undone is None:
            raise NotAllowed("there is no undo to take back")
        last = max(rewinds, default=0)
        if undone is not None and (undone[0] > last or last - undone[0] <= SAME_UNDO):
            self._tell_put_back(await files.redo(session), again=True)
        if last and (undone is None or last > undone[0]):
            await edits.redo(session, last)
            self._chat.tell("taken back: the model is told it again")

    async def fork(self, session: str, at: Seq) -> None:
        fork = await self._chat.service.edits.fork(session, at)
        await self.open(fork)
        self._chat.tell(
            f"a session of its own, from message {at} on; the other one is as it was: /resume "
            f"{session}"
        )

    async def memory(self, session: str) -> None:
        context = (await self._chat.service.views.state(session)).context
        memories = () if context is None else context.memories
        for memory in memories:
            self._chat.tell(f"told of earlier sessions: {memory}")
        if not memories:
            self._chat.tell("this session is told nothing of earlier ones")

    async def hide(self, session: str, seq: Seq) -> None:
        edits = self._chat.service.edits
        if await edits.hide(session, seq, True):
            self._chat.tell(
                f"message {seq} is hidden from the model; /hide {seq} puts it back"
            )
        else:
            await edits.hide(session, seq, False)
            self._chat.tell(f"the model is told message {seq} again")

    async def on_message(self, act: str, block: Block) -> None:
        session = self._chat.watched.id
        if act == "copy":
            self.copy(text_of(block))
            return
        if session is None or isinstance(block, Notice) or not block.seq:
            raise NotAllowed("this is not finished yet")
        match act:
            case "fork":
                await self.fork(session, block.seq)
            case "rewind":
                question = "Rewind to this message?"
                detail = (
                    "The model is told nothing that comes after it. You still read it; /redo "
                    "takes it back."
                )
                if await self._chat.ask(Sure(question, detail, "Yes, rewind")):
                    await self._chat.service.edits.rewind(session, block.seq)
            case "hide":
                await self.hide(session, block.seq)

    async def choose_model(self, spec: str) -> None:
        chat = self._chat
        if not spec:
            return
        chat.wiring.check(ContextSet(spec))  # says what is wrong with a spec
        if chat.watched.id is not None:
            try:
                async with self._in_order:
                    await chat.service.edits.choose_model(chat.watched.id, spec)
            except SessionBusy as error:
                raise NotAllowed(
                    "a turn runs; choose another model when it is over"
                ) from error
        chat.model = spec
        chat.tell(f"{spec} answers from the next request on")

    def _now(self) -> str:
        return self._chat.watched.row.model or self._chat.model

    async def login(self, name: str) -> None:
        """Keep a key, and have a model of its provider answer if only the small one does so far."""
        demo = self._now().startswith("local:")
        if (model := await self.beside.log_in(name)) and demo:
            await self.choose_model(model)

    def attach(self, path: str) -> None:
        try:
            attachment = read_attachment(meant_path(path))
        except Misused:
            self._chat.query_one(Composer).put_back(f"/attach {path}")
            raise
        self._chat.attached.append(attachment)
        what = status_line.attached(attachment)
        self._chat.tell(
            f"{what} goes with the next input; /detach takes it off again"
        )

    def detach(self) -> None:
        if not self._chat.attached:
            raise Misused("nothing is attached")
        self._chat.tell(
            f"{status_line.attached(self._chat.attached.pop())} does not go with the next input"
        )

    # --- copying

    def copy_last(self) -> None:
        answers = [
            block
            for block in self._chat.watched.blocks()
            if isinstance(block, Answer) and block.text
        ]
        if not answers:
            raise Misused("there is no answer to copy")
        self.copy(answers[-1].text)

    def copy(self, text: str) -> None:
        self._chat.copy_to_clipboard(text)
        self._chat.notify(
            f"{len(text):,} characters copied. If nothing arrives: F8, then select with the mouse"
        )

    def plain(self) -> None:
        if self._chat.show_plain():
            self._chat.tell(
                "plain text: select and copy with your terminal. F8 goes back"
            )

    # --- what was typed

    def _chosen_seq(self) -> Seq | None:
        block = self._chat.query_one(Scroll).chosen
        return (
            block.seq
            if isinstance(block, Said | Answer | Call) and block.seq
            else None
        )

    def _seq(self, typed: str, usage: str) -> Seq:
        """Which message is meant: the one that is chosen, or the one of this number."""
        if not typed and (chosen := self._chosen_seq()) is not None:
            return chosen
        if not typed.isdigit():
            raise Misused(
                f"usage: /{usage}; or Tab, choose a message with ↑ and ↓, and press {usage[0]}"
            )
        return int(typed)

    def _last_seq(self) -> Seq:
        said = [
            block
            for block in self._chat.watched.blocks()
            if isinstance(block, Said | Answer | Call) and block.seq
        ]
        if not said:
            raise Misused("nothing has been said yet")
        return said[-1].seq

    def _needs(self, usage: str) -> str:
        raise Misused(f"usage: /{usage}")


def _row(one: Summary, now_s: float) -> Row:
    row = one.listed.row
    state: str = (
        "waits for you"
        if one.waits
        else "running"
        if one.listed.owner
        else row.last_turn or ""
    )
    if row.pending and not one.listed.owner:
        state = f"{len(row.pending)} unanswered"
    words = f"{row.title} {row.name or ''} {row.model} {row.folder}".lower()
    beside = (
        row.folder.rpartition("/")[2],
        f"{row.messages} msg",
        status_line.ago(row.updated_ms, now_s),
        "" if state == "done" else state,
    )
    return Row(one.listed.id, row.title or "(nothing said)", words, beside)
