"""Carries a turn out before a person or a program: prints it, asks about its calls, says how it ended."""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

from steno.cli.leaving import Leaving
from steno.cli.printers import NdjsonPrinter, TextPrinter, UntilLost
from steno.cli.screen import Lines, complain, note, person_present
from steno.config import ConfigError
from steno.journal.facts import ApprovalAsked, ApprovalDecided, Record, TurnEnded, TurnStarted
from steno.journal.parts import Seq
from steno.service import Service
from steno.store.errors import StoreError, UnknownSession
from steno.store.protocol import Event
from steno.wiring import Wiring

EXIT = {"done": 0, "failed": 1, "interrupted": 130}
OUTPUT_LOST = 1
LEFT = 130


class Front:
    """Who watches turns: where they type, and how what they see is written."""

    def __init__(self, service: Service, wiring: Wiring, style: Literal["text", "ndjson"]) -> None:
        self.service = service
        self.wiring = wiring
        self.style = style
        self.lines = Lines()


async def carry_out(front: Front, session: str, events: AsyncIterator[Event], leaving: Leaving) -> int:
    """Print a turn to its end; its exit status."""
    text = TextPrinter(session, front.wiring.provider)
    printer = UntilLost(NdjsonPrinter(session) if front.style == "ndjson" else text, session)
    questions = Questions(front.service, session, front.lines)
    began = False
    ending: TurnEnded | None = None
    printer.begin()
    try:
        async for event in events:
            began = True
            printer.event(event)
            match event:
                case Record(fact=TurnStarted()):
                    leaving.turn = event.seq
                case Record(fact=TurnEnded() as ending):
                    pass
                case Record(fact=ApprovalAsked() as asked) if front.style == "text" and person_present():
                    questions.ask(event.seq, text.called(asked.call))
                case Record(fact=ApprovalDecided() as decided):
                    questions.decided(decided.asked)
                case _:
                    pass
    except UnknownSession:
        ending = TurnEnded(0, "interrupted", "deleted")
        printer.ended(ending)
    except (StoreError, ConfigError):
        note(f"[what was stored of this turn is kept in session {session}: steno show {session}]")
        raise
    finally:
        await questions.close()
    if ending is None:
        note(f"[left; everything is kept in session {session}: {await _what_stays(front, session, began)}]")
        return LEFT
    return OUTPUT_LOST if printer.lost and ending.outcome == "done" else EXIT[ending.outcome]


async def _what_stays(front: Front, session: str, began: bool) -> str:
    view = await front.service.view(session)
    if not began:
        return "the input waits there, and goes first when the session runs next"
    if view.owner is not None:
        return "the turn goes on elsewhere"
    return "the turn waits for approval, and the next prompt to the session asks again"


class Questions:
    """Asks about calls, one at a time. A question is over when it is answered here or elsewhere, or with its turn."""

    def __init__(self, service: Service, session: str, lines: Lines) -> None:
        self._service = service
        self._session = session
        self._lines = lines
        self._one_at_a_time = asyncio.Lock()
        self._open: dict[Seq, asyncio.Task[None]] = {}

    def ask(self, asked: Seq, what: str) -> None:
        self._open[asked] = asyncio.create_task(self._ask(asked, what))

    def decided(self, asked: Seq) -> None:
        if asked in self._open:
            self._open[asked].cancel()

    async def close(self) -> None:
        for task in self._open.values():
            task.cancel()
        await asyncio.gather(*self._open.values(), return_exceptions=True)

    async def _ask(self, asked: Seq, what: str) -> None:
        async with self._one_at_a_time:
            note(f"allow {what} ? [y/N] ", end="")
            answer = await self._lines.next() or ""
        try:
            await self._service.decide(self._session, asked, "allow" if answer.strip().lower() == "y" else "deny")
        except StoreError as error:
            complain(f"the decision was not stored: {error}; Ctrl-C stops the turn")
