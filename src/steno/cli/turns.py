"""Shows one turn as it is stored: text on stdout, everything else on stderr; or all of it as ndjson."""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any, Literal, assert_never

import msgspec

from steno.cli.leaving import Leaving
from steno.journal.facts import (
    ApprovalAsked,
    ApprovalDecided,
    Record,
    StepLost,
    StepSealed,
    ToolSettled,
    ToolStarted,
    TurnEnded,
)
from steno.journal.parts import ToolCall, text_of
from steno.journal.transcript import outcome_text
from steno.service import Service
from steno.store.protocol import Event, Piece

EXIT = {"done": 0, "failed": 1, "interrupted": 130}


async def carry_out(
    session: str,
    events: AsyncIterator[Event],
    service: Service,
    leaving: Leaving,
    style: Literal["text", "ndjson"],
) -> int:
    """Print a turn to its end; its exit status."""
    printer = NdjsonPrinter() if style == "ndjson" else TextPrinter()
    printer.session(session)
    ending: TurnEnded | None = None
    async for event in events:
        match event:
            case Piece():
                printer.piece(event)
            case Record(fact=TurnEnded() as ending):
                printer.ended(ending)
            case Record():
                printer.record(event)
                if isinstance(event.fact, ApprovalAsked) and style == "text" and sys.stdin.isatty():
                    await _decide(service, session, event.seq)
            case unreachable:
                assert_never(unreachable)
    if ending is None:
        print(f"left before the turn began; the input is kept in session {session}", file=sys.stderr)
        return 130
    return EXIT[ending.outcome]


async def _decide(service: Service, session: str, asked: int) -> None:
    try:
        answer = await asyncio.to_thread(input, "allow? [y/N] ")
    except EOFError:
        answer = ""
    decision: Literal["allow", "deny"] = "allow" if answer.strip().lower() == "y" else "deny"
    await service.store.add(session, [ApprovalDecided(asked, decision, by="user")], key=f"decided:{asked}")


class TextPrinter:
    """For people. Says on stderr what a person must know and the text does not tell."""

    def __init__(self) -> None:
        self._calls: dict[str, ToolCall] = {}
        self._column = 0

    def session(self, id: str) -> None:
        self._id = id

    def piece(self, piece: Piece) -> None:
        if piece.stream.kind == "text":
            sys.stdout.write(writable(piece.text))
            sys.stdout.flush()
            self._column = 0 if piece.text.endswith("\n") else 1

    def record(self, record: Record) -> None:
        match record.fact:
            case StepSealed() as sealed:
                self._calls.update({part.id: part for part in sealed.parts if isinstance(part, ToolCall)})
                if sealed.ended == "incomplete":
                    self._say("the answer broke off; asking the model to go on")
            case StepLost() as lost if lost.cause != "stopped":
                self._say(f"no answer ({lost.cause}): {lost.detail}")
            case ApprovalAsked() as asked:
                self._say(f"wants to run {self._called(asked.call)}")
            case ToolStarted() as started:
                self._say(f"running {self._called(started.call)}")
            case ToolSettled() as settled:
                said = text_of(outcome_text(settled.outcome))
                self._say(f"{type(settled.outcome).__name__.lower()}: {_short(said)}")
            case _:
                pass

    def ended(self, ending: TurnEnded) -> None:
        if self._column:
            sys.stdout.write("\n")
            sys.stdout.flush()
        if ending.outcome != "done":
            why = f"{ending.cause}: {ending.detail}" if ending.detail else ending.cause
            self._say(f"the turn was {ending.outcome} ({why}); everything shown is kept in session {self._id}")

    def _called(self, call: str) -> str:
        found = self._calls.get(call)
        return call if found is None else f"{found.name} {_short(found.arguments)}"

    def _say(self, text: str) -> None:
        if self._column:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._column = 0
        print(f"[{writable(text)}]", file=sys.stderr, flush=True)


class NdjsonPrinter:
    """For programs: one object a line."""

    def session(self, id: str) -> None:
        self._put({"type": "session", "id": id})

    def piece(self, piece: Piece) -> None:
        kind = {"text": "text", "reasoning": "reasoning", "output": "tool_output"}[piece.stream.kind]
        self._put({"type": kind, "seq": piece.stream.started, "offset": piece.offset, "text": piece.text})

    def record(self, record: Record) -> None:
        match record.fact:
            case StepLost() as lost:
                self._put({"type": "lost", "seq": lost.step, "cause": lost.cause, "detail": lost.detail})
            case StepSealed() as sealed:
                self._put({"type": "sealed", "seq": sealed.step, "ended": sealed.ended})
            case ApprovalAsked() as asked:
                self._put({"type": "approval_asked", "seq": record.seq, "call": asked.call})
            case ToolStarted() as started:
                self._put({"type": "tool_started", "seq": record.seq, "call": started.call})
            case ToolSettled() as settled:
                outcome = type(settled.outcome).__name__.lower()
                text = text_of(outcome_text(settled.outcome))
                self._put(
                    {"type": "tool_settled", "seq": record.seq, "call": settled.call, "outcome": outcome, "text": text}
                )
            case _:
                pass

    def ended(self, ending: TurnEnded) -> None:
        self._put({"type": "turn_ended", "outcome": ending.outcome, "cause": ending.cause, "detail": ending.detail})

    def _put(self, line: dict[str, Any]) -> None:
        sys.stdout.write(to_json(line) + "\n")
        sys.stdout.flush()


def to_json(value: object) -> str:
    """JSON in ASCII where the text has lone surrogates, which UTF-8 cannot carry."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        import json

        return json.dumps(value)


def writable(text: str) -> str:
    """Text for a terminal: what UTF-8 cannot carry is shown as an escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def _short(text: str, most: int = 200) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
