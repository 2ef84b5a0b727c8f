"""Shows a turn as it is stored: text on stdout, everything else on stderr; or all of it as ndjson.

In text, stdout is the stored text of the turn, byte for byte, and one newline where it does not end
with one.
"""

import json
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from steno.cli.stdio import OutputLost, fresh_line, note, show
from steno.frontend import wording
from steno.journal.facts import (
    ApprovalAsked,
    ContextSet,
    PlanUpdated,
    Record,
    StepLost,
    StepSealed,
    StepStarted,
    ToolSettled,
    ToolStarted,
    TurnEnded,
)
from steno.journal.parts import Opaque, ToolCall, text_of
from steno.journal.transcript import outcome_text
from steno.store.protocol import Event, Piece
from steno.wiring import Provider

ARGUMENTS_SHOWN_MAX = 200


class Printer(Protocol):
    def begin(self) -> None: ...

    def event(self, event: Event) -> None: ...

    def ended(self, ending: TurnEnded) -> None: ...


class UntilLost:
    """A printer as long as its output is read. A reader that leaves does not stop the turn."""

    def __init__(self, printer: Printer, session: str | None) -> None:
        self.lost = False
        self._printer = printer
        self._session = session

    def begin(self) -> None:
        self._do(self._printer.begin)

    def event(self, event: Event) -> None:
        self._do(lambda: self._printer.event(event))

    def ended(self, ending: TurnEnded) -> None:
        self._do(lambda: self._printer.ended(ending))

    def _do(self, print: Callable[[], None]) -> None:
        if self.lost:
            return
        try:
            print()
        except OutputLost as error:
            self.lost = True
            see = "" if self._session is None else f", see steno show {self._session}"
            note(f"[nobody reads the output ({error}); the turn goes on{see}]")


class TextPrinter:
    """For people. Says on stderr what a person must know and the text does not tell. `session` is
    where it is kept."""

    def __init__(self, session: str | None, provider_of: Callable[[str], Provider | None]) -> None:
        self._session = session
        self._provider_of = provider_of
        self._calls: dict[str, ToolCall] = {}
        self._model = ""
        self._broke_off = False
        self._cut_off = False
        self._line_open = False

    def begin(self) -> None:
        pass

    def event(self, event: Event) -> None:
        match event:
            case Piece():
                if event.stream.kind == "text":
                    show(event.text, end="")
                    self._line_open = not event.text.endswith("\n")
            case Record(fact=TurnEnded() as ending):
                self.ended(ending)
            case Record():
                self._record(event)

    def _record(self, record: Record) -> None:
        match record.fact:
            case StepStarted() as started:
                self._model = started.model
                if self._cut_off and started.takes:
                    self._say("cut off by the next message; what was shown is kept")
                elif self._broke_off:
                    self._say("asking the model to go on")
                elif started.attempt > 1:
                    self._say(f"asking again (attempt {started.attempt})")
                self._broke_off = self._cut_off = False
            case StepSealed() as sealed:
                self._calls.update(calls_in(sealed))
                items = [part for part in sealed.parts if isinstance(part, Opaque)]
                for one in items:
                    self._say(f"{one.runtime} item {one.kind}: {_short(one.json)}")
                self._broke_off, self._cut_off = (
                    sealed.ended == "incomplete",
                    sealed.ended == "interrupted",
                )
                if self._broke_off:
                    self._say("the answer broke off")
                elif sealed.ended == "length":
                    self._say("the answer was cut at the length limit; what there is of it is kept")
                elif not (text_of(sealed.parts) or calls_in(sealed) or items):
                    self._say("the model answered without a word")
            case StepLost() as lost if lost.cause != "stopped":
                self._say(wording.lost(lost.cause, lost.detail, self._provider_of(self._model)))
            case ContextSet(instead_of=own, model=model) if own:
                self._say(f"{model} answers the rest of this turn instead of {own}")
            case PlanUpdated() as plan:
                self._say(f"plan: {_short('; '.join(plan.lines()))}")
            case ToolStarted() as started:
                self._say(f"running {_short(self.called(started.call))}")
            case ToolSettled() as settled:
                said = text_of(outcome_text(settled.outcome))
                self._say(f"{type(settled.outcome).__name__.lower()}: {_short(said)}")
            case _:
                pass

    def ended(self, ending: TurnEnded) -> None:
        if self._line_open:
            show("")
            self._line_open = False
        if ending.outcome != "done":
            self._say(
                wording.ending(ending, self._session, self._model, self._provider_of(self._model))
            )

    def called(self, call: str) -> str:
        """A call as a person reads it, whole."""
        found = self._calls.get(call)
        return call if found is None else f"{found.name} {found.arguments}"

    def _say(self, text: str) -> None:
        note(f"{fresh_line()}[{text}]")


class NdjsonPrinter:
    """For programs: one object a line."""

    def __init__(self, session: str, ephemeral: bool = False) -> None:
        self._session = session
        self._ephemeral = ephemeral
        self._calls: dict[str, ToolCall] = {}

    def begin(self) -> None:
        self._put(
            {"type": "session", "id": self._session}
            | ({"ephemeral": True} if self._ephemeral else {})
        )

    def event(self, event: Event) -> None:
        match event:
            case Piece():
                kind = {"text": "text", "reasoning": "reasoning", "output": "tool_output"}[
                    event.stream.kind
                ]
                self._put(
                    {
                        "type": kind,
                        "seq": event.stream.started,
                        "offset": event.offset,
                        "text": event.text,
                    }
                )
            case Record(fact=TurnEnded() as ending):
                self.ended(ending)
            case Record():
                self._record(event)

    def _record(self, record: Record) -> None:
        match record.fact:
            case StepLost() as lost:
                self._put(
                    {"type": "lost", "seq": lost.step, "cause": lost.cause, "detail": lost.detail}
                )
            case ContextSet(instead_of=own, model=model) if own:
                self._put(
                    {"type": "fallback", "seq": record.seq, "model": model, "instead_of": own}
                )
            case PlanUpdated() as plan:
                self._put({"type": "plan", "seq": record.seq} | plan_fields(plan))
            case StepSealed() as sealed:
                self._calls.update(calls_in(sealed))
                for one in sealed.parts:
                    if isinstance(one, Opaque):
                        item = {"runtime": one.runtime, "kind": one.kind, "json": one.json}
                        self._put({"type": "item", "seq": sealed.step, **item})
                self._put({"type": "sealed", "seq": sealed.step, "ended": sealed.ended})
            case ApprovalAsked() as asked:
                called = self._called(asked.call)
                self._put(
                    {"type": "approval_asked", "seq": record.seq, **called, "reason": asked.reason}
                )
            case ToolStarted() as started:
                self._put({"type": "tool_started", "seq": record.seq, **self._called(started.call)})
            case ToolSettled() as settled:
                outcome = type(settled.outcome).__name__.lower()
                text = text_of(outcome_text(settled.outcome))
                self._put(
                    {
                        "type": "tool_settled",
                        "seq": record.seq,
                        "call": settled.call,
                        "outcome": outcome,
                        "text": text,
                    }
                )
            case _:
                pass

    def ended(self, ending: TurnEnded) -> None:
        self._put(
            {
                "type": "turn_ended",
                "outcome": ending.outcome,
                "cause": ending.cause,
                "detail": ending.detail,
            }
        )

    def _called(self, call: str) -> dict[str, str]:
        found = self._calls.get(call)
        name, arguments = ("", "") if found is None else (found.name, found.arguments)
        return {"call": call, "name": name, "arguments": arguments}

    def _put(self, line: dict[str, Any]) -> None:
        show(to_json(line))


def plan_fields(plan: PlanUpdated) -> dict[str, Any]:
    steps = [{"step": one.step, "status": one.status} for one in plan.steps]
    return {"explanation": plan.explanation, "steps": steps}


def calls_in(sealed: StepSealed) -> dict[str, ToolCall]:
    return {part.id: part for part in sealed.parts if isinstance(part, ToolCall)}


def to_json(value: object) -> str:
    """JSON in ASCII where the text has lone surrogates, which UTF-8 cannot carry."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value)


def _short(text: str) -> str:
    line = " ".join(text[: ARGUMENTS_SHOWN_MAX * 10].split())
    return line if len(line) <= ARGUMENTS_SHOWN_MAX else line[: ARGUMENTS_SHOWN_MAX - 1] + "…"
