"""What a person does beside the talk: runs a command, writes in an editor, finds something, looks
at what a session has changed and used."""

import asyncio
import contextlib
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text
from textual.app import SuspendNotSupported

from steno.config import ConfigError, editor
from steno.engine import tokens
from steno.engine.request import system_text
from steno.journal.facts import InputAdmitted
from steno.journal.history import History
from steno.journal.parts import text_of as said_in
from steno.service import Misused
from steno.service.attachments import Attachment, attachment, read_attachment
from steno.store.errors import StoreError
from steno.tui import wording
from steno.tui.composer import Composer
from steno.tui.dialogs import Finder, Row, Shown
from steno.tui.offers import MENTIONED
from steno.tui.painting.diff import paint_diff
from steno.tui.painting.markdown import one_line
from steno.tui.painting.palette import PALETTES
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
CLIPBOARDS = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)


class Beside:
    def __init__(self, chat: "Chat") -> None:
        self._chat = chat

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
                entries = sorted(f"{one.name}{'/' * one.is_dir()}" for one in path.iterdir())
                found[name] = attachment(name, "\n".join(entries[:LISTED_MAX]).encode() or b"-")
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
            raise Misused(f"{command} took longer than {COMMAND_S:.0f} s and was ended") from None
        text = said[:OUTPUT_BYTES_MAX].decode("utf-8", "replace").rstrip()
        shown = "\n".join(text.splitlines()[:12])
        chat.tell(shown or "(it said nothing)", "quiet" if process.returncode == 0 else "warn")
        head = f"$ {command}\n(exit status {process.returncode})\n"
        chat.attached.append(attachment("output of a command", f"{head}{text}\n".encode()))
        chat.tell("its output goes with your next message; /detach takes it off again")

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
        self._chat.tell("there is no image in the clipboard, or nothing here can read it", "warn")

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
                raise Misused(f"the editor {program[0]} could not be started: {error}") from error
            composer.replace_text(file.read_text(encoding="utf-8", errors="replace").rstrip("\n"))

    # --- finding

    async def find_said(self) -> None:
        """What was said before in this folder: from what is stored, so what was redacted is
        gone."""
        chat = self._chat
        found: dict[str, None] = {}
        for one in await chat.service.views.sessions(SAID_SESSIONS, folder=chat.service.folder):
            page = (await chat.service.views.end(one.listed.id, 1_000)).page
            for record in reversed(page.records):
                if isinstance(record.fact, InputAdmitted) and (text := said_in(record.fact.parts)):
                    found.setdefault(text)
        texts = list(found)[:SAID_MAX]
        rows = [Row(str(i), one_line(text, 200), text.lower()) for i, text in enumerate(texts)]
        done = await chat.ask(Finder("What you said", rows, {}))
        if done is not None:
            chat.query_one(Composer).replace_text(texts[int(done[1])])

    async def find_command(self) -> None:
        chat = self._chat
        rows = [
            Row(
                one.name, f"/{one.name} {one.takes}".rstrip(), f"{one.name} {one.does}", (one.does,)
            )
            for one in chat.offers.all()
        ]
        done = await chat.ask(Finder("Commands", rows, {}))
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

    # --- looking

    async def diff(self, session: str) -> None:
        chat = self._chat
        found = await chat.service.files.of_session(session)
        if not found:
            raise Misused("no edit of this session changed a file")
        palette = PALETTES[chat.shade]

        def lines(width: int) -> Sequence[Text]:
            return [
                Text.assemble(*((part.text, part.style or "") for part in line))
                for one in found
                for line in (*paint_diff(one, width, palette, 5_000), [])
            ]

        await chat.push_screen(Shown("How this session changed the files", lines))

    async def cost(self, session: str) -> None:
        row = (await self._chat.service.views.end(session, 1)).row
        used = row.usage
        if used is None or used.input is None:
            self._chat.tell("the provider has not said what this session used")
            return
        parts = [f"{wording.count(used.input)} tokens in"]
        parts += [f"{wording.count(used.output)} out"] if used.output is not None else []
        cached = getattr(used, "cached", None)
        parts += [f"{wording.count(cached)} of those in read from a cache"] if cached else []
        self._chat.tell(f"{row.model}: {', '.join(parts)}, in {row.turns} turns")

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
            "tools": sum(len(tool.schema) + len(tool.description) for tool in context.tools),
        }
        rest = max(len(system_text(context)) - sum(list(sizes.values())[:3]), 0)
        whole = tokens.of_request(history)
        known = {"system prompt": rest, **sizes}
        told = sum(known.values()) // 4
        most = chat.wiring.context_max(context.model)
        lines = [
            f"{name}: about {wording.count(size // 4)}" for name, size in known.items() if size
        ]
        lines.append(f"{len(entries)} messages: about {wording.count(max(whole - told, 0))}")
        of = f" of {wording.count(most)}" if most else ""
        chat.tell(
            "\n".join([f"the next request has about {wording.count(whole)} tokens{of}", *lines])
        )
