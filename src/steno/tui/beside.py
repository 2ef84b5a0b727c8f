"""What a person does beside the talk: runs a command, writes in an editor, finds something, looks
at what a session has changed and used."""

import asyncio
import contextlib
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text
from textual.app import SuspendNotSupported

from steno.agents import model_settings
from steno.config import ConfigError, editor
from steno.engine import tokens
from steno.engine.request import system_text
from steno.frontend import login as logins
from steno.frontend.costs import ESTIMATE, Spending, calls, dollars
from steno.journal.facts import InputAdmitted
from steno.journal.history import History
from steno.journal.parts import text_of as said_in
from steno.journal.usage import UsageTotal
from steno.models.providers import KNOWN, LOCAL
from steno.providers import catalogue
from steno.providers.catalogue import About
from steno.service import Misused
from steno.service.attachments import Attachment, attachment, read_attachment
from steno.store.errors import StoreError
from steno.tui import wording
from steno.tui.blocks import Answer, Said
from steno.tui.composer import Composer
from steno.tui.dialogs import Choice, Finder, OneLine, Row, Shown
from steno.tui.offers import MENTIONED
from steno.tui.painting import palette
from steno.tui.painting.block import Look, paint
from steno.tui.painting.diff import paint_diff
from steno.tui.painting.markdown import one_line
from steno.tui.terminal import keep_shade
from steno.tui.to_blocks import Folded
from steno.tui.watched import Watched

if TYPE_CHECKING:
    from steno.tui.app import Chat

COMMAND_S = 120.0
ENTITLE_AFTER_S, ENTITLE_TRIES = 0.05, 40
"""How often is looked whether the session rests."""
OUTPUT_BYTES_MAX = 100_000
SAID_SESSIONS = 30
SAID_MAX = 500
LISTED_MAX = 200
PREVIEW_FACTS, PREVIEW_LINES = 40, 7
OFFERED = ("anthropic", "openai", "openrouter", "gemini")
"""Providers whose keys are offered by name; /login NAME takes those of others."""
CLIPBOARDS = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)


class Beside:
    def __init__(self, chat: "Chat") -> None:
        self._chat = chat
        self._spending: dict[str, Spending] = {}

    # --- what goes along

    def mentioned(self, text: str) -> list[Attachment]:
        """The files and folders that a text names with an @."""
        root = self._chat.folder
        found: dict[str, Attachment] = {}
        for name in MENTIONED.findall(text) if root is not None else ():
            path = None if root is None else root / name.rstrip(".,;:!?)")
            if path is None or name in found:
                continue
            if path.is_dir():
                entries = sorted(
                    f"{one.name}{'/' * one.is_dir()}" for one in path.iterdir()
                )
                found[name] = attachment(
                    name, "\n".join(entries[:LISTED_MAX]).encode() or b"-"
                )
            elif path.is_file():
                found[name] = read_attachment(path)
        return list(found.values())

    async def run_command(self, command: str) -> None:
        """Run a command of the person's own; what it says goes with the next message."""
        chat = self._chat
        chat.tell(f"$ {command}")
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=chat.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(COMMAND_S):
                said, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            raise Misused(
                f"{command} took longer than {COMMAND_S:.0f} s and was ended"
            ) from None
        text = said[:OUTPUT_BYTES_MAX].decode("utf-8", "replace").rstrip()
        shown = "\n".join(text.splitlines()[:12])
        chat.tell(
            shown or "(it said nothing)",
            "quiet" if process.returncode == 0 else "warn",
        )
        head = f"$ {command}\n(exit status {process.returncode})\n"
        chat.attached.append(
            attachment("output of a command", f"{head}{text}\n".encode())
        )
        chat.tell(
            "its output goes with your next message; /detach takes it off again"
        )

    async def attach_image(self) -> None:
        for words in CLIPBOARDS:
            try:
                done = await asyncio.to_thread(
                    subprocess.run, words, capture_output=True, timeout=3, check=False
                )
            except (OSError, subprocess.SubprocessError):
                continue
            if done.returncode == 0 and done.stdout:
                self._chat.attached.append(attachment("clipboard.png", done.stdout))
                self._chat.changed()
                return
        self._chat.tell(
            "there is no image in the clipboard, or nothing here can read it", "warn"
        )

    async def write_in_editor(self) -> None:
        composer = self._chat.query_one(Composer)
        program = editor()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "message.md"
            file.write_text(composer.unfolded(composer.text), encoding="utf-8")
            try:
                with self._chat.suspend():
                    subprocess.run([*program, str(file)], check=False)  # noqa: S603, ASYNC221
            except (OSError, SuspendNotSupported) as error:
                raise Misused(
                    f"the editor {program[0]} could not be started: {error}"
                ) from error
            composer.replace_text(
                file.read_text(encoding="utf-8", errors="replace").rstrip("\n")
            )

    # --- finding

    async def find_said(self) -> None:
        """What was said before in this folder: from what is stored, so what was redacted is
        gone."""
        chat = self._chat
        found: dict[str, None] = {}
        for one in await chat.service.views.sessions(
            SAID_SESSIONS, folder=chat.service.folder
        ):
            page = (await chat.service.views.end(one.listed.id, 1_000)).page
            for record in reversed(page.records):
                if isinstance(record.fact, InputAdmitted) and (
                    text := said_in(record.fact.parts)
                ):
                    found.setdefault(text)
        texts = list(found)[:SAID_MAX]
        rows = [
            Row(str(i), one_line(text, 200), text.lower())
            for i, text in enumerate(texts)
        ]
        done = await chat.ask(Finder("What you said", rows, {}, enter="say it again"))
        if done is not None:
            chat.query_one(Composer).replace_text(texts[int(done[1])])

    async def find_command(self) -> None:
        chat = self._chat
        rows = [
            Row(
                one.name,
                f"/{one.name} {one.takes}".rstrip(),
                f"{one.name} {one.does}",
                says=one.does,
            )
            for one in chat.offers.all()
        ]
        done = await chat.ask(Finder("Commands", rows, {}, enter="choose"))
        if done is None:
            return
        one = next(one for one in chat.offers.all() if one.name == done[1])
        composer = chat.query_one(Composer)
        if one.takes or one.name in chat.offers.own:
            composer.replace_text(f"/{one.name} ")
        else:
            await chat.acts.command(one.name, "")

    async def entitle(self, watched: Watched) -> None:
        """Have a title made of what was said, once the session rests. Without one the first line
        stays the title."""
        for _ in range(ENTITLE_TRIES):
            if not watched.driving:
                break
            await asyncio.sleep(ENTITLE_AFTER_S)
        if watched.id is not None and not watched.leaving.is_set():
            with contextlib.suppress(StoreError, ConfigError):
                await self._chat.service.memories.entitle(watched.id, watched.leaving)

    async def preview(self, session: str, width: int) -> Text:
        """A session in a few lines: where it belongs, and the last that was said in it."""
        tail = await self._chat.service.views.end(session, PREVIEW_FACTS)
        row, colours = tail.row, self._chat.palette
        turns = "1 turn" if row.turns == 1 else f"{row.turns} turns"
        beside = (turns, f"{row.messages} messages", row.model, row.folder)
        head = one_line(" · ".join(filter(None, beside)), width)
        blocks = Folded.of_end(tail).blocks()
        look = Look(colours, width)
        lines = [
            line
            for at, kind in ((-1, Said), (-1, Answer))
            for one in [one for one in blocks if isinstance(one, kind) and one.text][
                at:
            ]
            for line in paint(one, look)[:PREVIEW_LINES]
            if line
        ]
        told = [
            Text.assemble(*((part.text, part.style or "") for part in line))
            for line in lines
        ]
        return Text("\n", no_wrap=True).join([Text(head, colours.soft), *told])

    # --- who answers

    async def find_model(self, now: str) -> str:
        """A model to choose; "" if none was. What servers have comes while the list is shown."""
        chat = self._chat
        used = [one.listed.row.model for one in await chat.service.views.sessions(50)]
        known = [now, *chat.wiring.known_models(), *used]
        specs = list(dict.fromkeys(filter(None, known)))
        rows = [self._model_row(spec, chat.prices.about(spec), now) for spec in specs]
        later = self._offered(now, frozenset(specs))
        done = await chat.ask(
            Finder(
                "Models",
                rows,
                {},
                free="a spec, KIND:NAME",
                later=later,
                enter="choose",
            )
        )
        return "" if done is None else done[1]

    async def _offered(
        self, now: str, known: frozenset[str]
    ) -> AsyncIterator[Sequence[Row]]:
        """The models of each provider, as they answer."""
        chat = self._chat
        config = chat.wiring.config
        settings, table = (
            model_settings(config, chat.wiring.where),
            catalogue.Table({}),
        )

        async def ask(name: str) -> Sequence[Row]:
            try:
                offers = await catalogue.offers(name, settings, table)
            except (catalogue.NotAnswered, ConfigError):
                return ()
            found = ((one.spec, chat.prices.with_told(one)) for one in offers)
            return [
                self._model_row(*one, now) for one in found if one[0] not in known
            ]

        names = {*catalogue.askable(settings, config.keyed), *LOCAL}
        for answer in asyncio.as_completed(map(ask, sorted(names))):
            yield await answer

    def _model_row(self, spec: str, about: About, now: str) -> Row:
        context = (
            "" if about.context is None else f"{wording.count(about.context)} tokens"
        )
        price = ""
        if about.price_in is not None and about.price_out is not None:
            price = f"${about.price_in:g} / ${about.price_out:g}"
        favourite = spec in self._chat.wiring.config.model.favourites
        mark = "now" if spec == now else "favourite" if favourite else ""
        return Row(spec, spec, f"{spec} {mark}".lower(), (context, price, mark))

    async def log_in(self, name: str) -> str:
        """Keep a key of a provider, or choose a server of this machine; a model that can be used
        with it, "" if none came of it."""
        chat = self._chat
        config, where = chat.wiring.config, chat.wiring.where
        if not name:
            here = await logins.servers_here(config, where)
            ways = [
                (f"key {one}", f"A key for {KNOWN[one].title}") for one in OFFERED
            ]
            ways += [
                (
                    specs[0],
                    f"{KNOWN[one].title} on this machine: {specs[0].partition(':')[2]}",
                )
                for one, specs in here.items()
            ]
            picked = await chat.ask(Choice("Who is to answer?", "", ways))
            if picked is None:
                return ""
            if not picked.startswith("key "):
                logins.choose(where, picked)
                chat.tell(f"new sessions are answered by {picked}", "good")
                return picked
            name = picked.removeprefix("key ")
        title = KNOWN[name].title if name in KNOWN else name
        key = await chat.ask(
            OneLine(f"Key for {title} (it is not shown)", "", secret=True)
        )
        if key is None:
            return ""
        chat.tell(f"trying the key at {title} …")
        done = await logins.log_in(config, where, name, key)
        kept = done.outcome == "kept"
        chat.tell(logins.outcome(config, name, done), "good" if kept else "bad")
        chat.wiring.look_again()
        return done.model if kept else ""

    def log_out(self, name: str) -> None:
        if not logins.log_out(self._chat.wiring.where, name):
            raise Misused(f"{name}: no key was kept by /login; nothing was changed")
        self._chat.wiring.look_again()
        self._chat.tell(
            f"{name}: the key is gone from here; the provider may still take it"
        )

    # --- colours

    async def choose_theme(self, typed: str) -> None:
        """`typed`: the name of a theme, or "new NAME"; a list comes up if it is empty."""
        chat, home = self._chat, self._chat.wiring.where.home
        first, _, name = typed.partition(" ")
        try:
            if first == "new":
                file = palette.write_own(name.strip(), chat.palette, home)
                chat.tell(
                    f"your theme: edit {file}, then /theme {name.strip()} shows it"
                )
                typed = name.strip()
            if not typed:
                rows = [
                    Row(one, one, one, ("now" if one == chat.shade else "",))
                    for one in palette.names(home)
                ]
                done = await chat.ask(Finder("Themes", rows, {}, enter="choose"))
                if done is None:
                    return
                typed = done[1]
            chat.restyle(typed)
        except palette.BadTheme as error:
            raise Misused(str(error)) from error
        keep_shade(home, chat.shade)

    # --- looking

    async def diff(self, session: str) -> None:
        chat = self._chat
        found = await chat.service.files.of_session(session)
        if not found:
            raise Misused("no edit of this session changed a file")
        colours = chat.palette

        def lines(width: int) -> Sequence[Text]:
            return [
                Text.assemble(*((part.text, part.style or "") for part in line))
                for one in found
                for line in (*paint_diff(one, width, colours, 5_000), [])
            ]

        await chat.push_screen(Shown("How this session changed the files", lines))

    async def cost(self, session: str) -> None:
        """What was used, a line for each model."""
        chat = self._chat
        row = (await chat.service.views.glance(session)).row
        by_model: dict[str, tuple[UsageTotal, float | None]] = {}
        records = await chat.service.views.spent_in(session, row, with_starts=True)
        for call in calls(records, row.model, chat.prices):
            usage, cost = by_model.get(call.model, (UsageTotal(), None))
            usage.add(call.usage)
            cost = cost if call.cost is None else (cost or 0.0) + call.cost
            by_model[call.model] = (usage, cost)
        if not any(usage.input is not None for usage, _ in by_model.values()):
            chat.tell("the provider has not said what this session used")
            return
        lines = [_used(model, *one) for model, one in by_model.items()]
        costs = [cost for _, cost in by_model.values() if cost is not None]
        if costs:
            lines.append(f"about {dollars(sum(costs))} in all; {ESTIMATE}")
        chat.tell("\n".join(lines))

    async def count_cost(self, watched: Watched) -> None:
        """For the status line."""
        if watched.id is None or self._chat.service.ephemeral:
            return
        with contextlib.suppress(StoreError, ConfigError):
            chat, id = self._chat, watched.id
            row = (await chat.service.views.glance(id)).row
            spending = self._spending.setdefault(id, Spending(row.model, chat.prices))
            async for records in chat.service.views.spent_since(
                id, row, spending.upto, with_starts=True
            ):
                if chat.watched is not watched:
                    return
                spending.take(records)
            if watched.cost != spending.cost:
                watched.cost = spending.cost
                chat.changed()

    async def context(self, session: str) -> None:
        """What the next request is made of, about."""
        chat = self._chat
        history = History()
        await chat.service.views.whole(session, history)
        if history.context is None:
            raise Misused("nothing has been asked yet")
        context, entries = history.context, tuple(history.entries())
        sizes = {
            "instructions of the folder": len(context.guidance),
            "surroundings": len(context.surroundings),
            "memories": sum(map(len, context.memories)),
            "tools": sum(
                len(tool.schema) + len(tool.description) for tool in context.tools
            ),
        }
        rest = max(len(system_text(context)) - sum(list(sizes.values())[:3]), 0)
        whole = tokens.of_request(history)
        known = {"system prompt": rest, **sizes}
        told = sum(known.values()) // 4
        most = chat.prices.context_max(context.model)
        lines = [
            f"{name}: about {wording.count(size // 4)}"
            for name, size in known.items()
            if size
        ]
        lines.append(
            f"{len(entries)} messages: about {wording.count(max(whole - told, 0))}"
        )
        of = f" of {wording.count(most)}" if most else ""
        chat.tell(
            "\n".join(
                [
                    f"the next request has about {wording.count(whole)} tokens{of}",
                    *lines,
                ]
            )
        )


def _used(model: str, used: UsageTotal, cost: float | None) -> str:
    parts = [
        f"{wording.count(used.input or 0)} tokens in",
        f"{wording.count(used.output or 0)} out",
    ]
    parts += (
        [f"{wording.count(used.cached)} of those in from a cache"]
        if used.cached
        else []
    )
    parts += [f"{used.unreported} calls without a count"] if used.unreported else []
    parts += [dollars(cost)] if cost is not None else []
    return f"{model}: {', '.join(parts)}, in {used.calls} calls"
