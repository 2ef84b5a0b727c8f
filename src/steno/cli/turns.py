"""Carries a turn out before a person or a program: prints it, asks about its calls, says how it
ended."""

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Literal

from steno.agents import Agents
from steno.cli.output import NdjsonPrinter, TextPrinter, UntilLost
from steno.cli.signals import Leaving
from steno.cli.stdio import Lines, complain, note
from steno.config import ConfigError
from steno.frontend import wording
from steno.frontend.process import LEFT, TWICE_S
from steno.journal.facts import (
    ApprovalAsked,
    ApprovalDecided,
    InputWithdrawn,
    Record,
    ToolSettled,
    TurnEnded,
    TurnStarted,
)
from steno.journal.parts import Seq
from steno.service import Service
from steno.store.errors import (
    OutcomeUnknown,
    StoreError,
    StoreUnwritable,
    UnknownSession,
)
from steno.store.protocol import Event

if TYPE_CHECKING:
    from steno.frontend.answers import Answer

EXIT = {"done": 0, "failed": 1, "interrupted": 130}
OUTPUT_LOST = FAILED = 1
ANSWERS = "[y/n/a] (a: for 30 days in this session, or type why not)"


class Front:
    """Who watches turns: how what they see is written, whether they are asked about calls, and
    where they type. `watching`: the turn is not theirs; when the output is closed they leave
    it."""

    def __init__(
        self,
        service: Service,
        wiring: Agents,
        style: Literal["text", "ndjson"],
        asks: bool = False,
        watching: bool = False,
    ) -> None:
        self.service = service
        self.wiring = wiring
        self.style = style
        self.asks = asks
        self.watching = watching
        self.lines = Lines()
        self.interrupted_s = -TWICE_S
        self.left_by: signal.Signals | None = None
        """The signal that asked to leave."""


async def carry_out(
    front: Front, session: str, events: AsyncIterator[Event], leaving: Leaving
) -> int:
    """Print a turn to its end; its exit status."""
    ephemeral = front.service.ephemeral
    kept = None if ephemeral else session
    plain = TextPrinter(kept, front.wiring.provider)
    printer = UntilLost(
        NdjsonPrinter(session, ephemeral) if front.style == "ndjson" else plain, kept
    )
    questions = Questions(front, session)
    began = False
    ending: TurnEnded | None = None
    withdrawn = unasked = False
    printer.begin()
    try:
        await questions.ask_what_waits()
        async for event in events:
            began = True
            printer.event(event)
            if printer.lost and front.watching:
                leaving.event.set()
            if not isinstance(event, Record):
                continue
            fact = event.fact
            if isinstance(fact, TurnStarted):
                leaving.turn = event.seq
            elif isinstance(fact, TurnEnded):
                ending = fact
            elif isinstance(fact, ApprovalAsked):
                questions.ask(event.seq)
            elif isinstance(fact, InputWithdrawn):
                withdrawn = True
            elif isinstance(fact, ToolSettled):
                from steno.runtimes.tool_calls import UNASKED

                unasked |= fact.outcome == UNASKED
            elif isinstance(fact, ApprovalDecided):
                questions.decided(fact.asked)
    except UnknownSession:
        ending = TurnEnded(0, "interrupted", "deleted")
        printer.ended(ending)
    except (StoreUnwritable, OutcomeUnknown) as error:
        if leaving.turn is None:
            complain(wording.waits(session, error.cause))
        else:
            printer.ended(TurnEnded(leaving.turn, "interrupted", error.cause))
        return FAILED
    except (StoreError, ConfigError):
        if not ephemeral:
            note(
                f"[what was stored of this turn is kept in session {session}: steno show {session}]"
            )
        raise
    finally:
        await questions.close()
    if withdrawn:
        note(
            f"[the input was taken back before it was answered; steno show {session}]"
        )
        return LEFT
    if unasked and front.style == "text":
        note(
            "[--yes approves tools; --ask wait waits until steno approve or steno deny decides]"
        )
    if ending is None:
        note(f"[left; {await what_stays(front.service, session, began)}]")
        return OUTPUT_LOST if printer.lost else LEFT
    return (
        OUTPUT_LOST
        if printer.lost and ending.outcome == "done"
        else EXIT[ending.outcome]
    )


async def what_stays(service: Service, session: str, began: bool = False) -> str:
    """What a person who left finds again, in words."""
    if service.ephemeral:
        return "the session was in memory only, and is gone"
    loaded = await service.views.load(session)
    kept = f"everything is kept in session {session}"
    if loaded.owner is not None and began:
        return f"{kept}: the turn goes on elsewhere, steno follow {session} shows it"
    if loaded.waits():
        return (
            f"{kept}: the turn waits for approval: steno approve or steno deny decides, then "
            f"steno continue {session}"
        )
    return (
        f"{kept}: the input waits there, and goes first when the session runs next; steno "
        f"continue {session} runs it"
    )


class Questions:
    """Asks about calls, one at a time, or says how to decide where no question is asked here.
    A question is over when it is answered here or elsewhere, or with its turn."""

    def __init__(self, front: Front, session: str) -> None:
        self._front = front
        self._session = session
        self._one_at_a_time = asyncio.Lock()
        self._open: dict[Seq, asyncio.Task[None]] = {}

    async def ask_what_waits(self) -> None:
        """About calls of an earlier turn: they come first."""
        if self._front.asks:
            for one in await self._front.service.approvals.pending(self._session):
                self.ask(one.seq)

    def ask(self, asked: Seq) -> None:
        if asked not in self._open:
            self._open[asked] = asyncio.create_task(self._ask(asked))

    def decided(self, asked: Seq) -> None:
        if asked in self._open:
            self._open[asked].cancel()

    async def close(self) -> None:
        for task in self._open.values():
            task.cancel()
        await asyncio.gather(*self._open.values(), return_exceptions=True)

    async def _ask(self, asked: Seq) -> None:
        from steno.service.approvals import ALWAYS_DAYS, always

        approvals = self._front.service.approvals
        try:
            async with self._one_at_a_time:
                waiting = {
                    one.seq: one for one in await approvals.pending(self._session)
                }
                if asked not in waiting:
                    return
                call = waiting[asked].in_a_line()
                if not self._front.asks:
                    if self._front.style == "text":
                        note(
                            f"[{call} waits for approval: steno approve {self._session} {asked}, "
                            "or steno deny]"
                        )
                    return
                answer = await self._answered(f"allow {call}? {ANSWERS} ")
            if answer is None:
                return
            rules = always(waiting[asked]) if answer.always else ()
            if rules:
                note(
                    f"[allowed in this session for {ALWAYS_DAYS} days: {', '.join(rules)}; steno "
                    f"rules {self._session} has all]"
                )
            await approvals.decide(
                self._session, asked, answer.decision, answer.reason, rules=rules
            )
        except StoreError as error:
            complain(f"the decision was not stored: {error}; Ctrl-C stops the turn")

    async def _answered(self, question: str) -> "Answer | None":
        """Ask until there is an answer. The end of the input refuses; a terminal that is gone
        leaves the question open."""
        from steno.frontend.answers import DENY, read

        lines = self._front.lines
        while (line := await lines.answer(question)) is not None:
            if (answer := read(line)) is not None:
                return answer
        return None if lines.gone else DENY
