"""From facts and pieces to the blocks of the screen. The order of messages is the transcript's
own."""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from steno.journal.drafts import Draft, Stream
from steno.journal.facts import (
    CUT_OFF,
    ApprovalAsked,
    ApprovalDecided,
    Compacted,
    ContextSet,
    Continues,
    HelperEnded,
    HelperStarted,
    PlanUpdated,
    Record,
    SessionStarted,
    StepLost,
    StepSealed,
    StepStarted,
    Takes,
    ThreadCompacted,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from steno.journal.parts import (
    Content,
    Failed,
    File,
    Image,
    Interrupted,
    Outcome,
    Refused,
    Returned,
    Seq,
    ToolCall,
    Unknown,
    reasoning_of,
)
from steno.journal.parts import text_of as said_in
from steno.journal.state import State
from steno.journal.transcript import Message, Transcript, outcome_text
from steno.journal.turns import Turns
from steno.service import Page, Tail
from steno.store.protocol import Piece
from steno.tui import wording
from steno.tui.blocks import Answer, Block, Call, CallState, Notice, Said

BROKE_OFF = "the answer broke off"


class _Call(Struct):
    """What became of a call so far."""

    started: Seq | None = None
    began_ms: int = 0
    settled: Seq = 0
    ended_ms: int = 0
    outcome: Outcome | None = None
    asked: Seq | None = None
    decided: bool = False
    why: str = ""


class Folded(Struct):
    """A stretch of a session, folded for the screen."""

    transcript: Transcript
    state: State
    turns: Turns
    _calls: dict[tuple[Seq, str], _Call] = {}
    _streams: dict[Stream, list[str]] = {}
    _notices: list[Notice] = []
    _models: list[str] = []
    _taken: dict[Seq, Seq] = {}
    """The turn that took an input first: where it stands, also if another turn runs it again."""
    _cut: Seq | None = None
    """The answer that was cut off last, while its turn goes on."""

    @classmethod
    def empty(cls) -> "Folded":
        return cls(Transcript(), State(), Turns())

    @classmethod
    def of_end(cls, end: Tail) -> "Folded":
        """The end of a session as it stands."""
        folded = cls.empty()
        folded.take([*end.page.waited, *end.page.records])
        for draft in end.drafts if end.owner is not None else ():
            folded.stream(draft)
        folded.take(end.closing)
        return folded

    def take(self, records: Iterable[Record]) -> None:
        for record in records:
            self.apply(record)

    def apply(self, record: Record) -> None:
        for fold in (self.transcript, self.state, self.turns):
            fold.apply(record)
        fact, seq = record.fact, record.seq
        match fact:
            case TurnStarted(origin=Takes(input=input)):
                self._taken.setdefault(input, seq)
            case ToolStarted():
                call = self._call(fact.step, fact.call)
                call.started, call.began_ms = seq, record.at_ms
            case ToolSettled():
                call = self._call(fact.step, fact.call)
                call.settled, call.ended_ms, call.outcome = (
                    fact.started or seq,
                    record.at_ms,
                    fact.outcome,
                )
                self._forget(fact.started)
            case ApprovalAsked():
                call = self._call(fact.step, fact.call)
                call.asked, call.why = seq, fact.reason or call.why
            case ApprovalDecided():
                for call in self._calls.values():
                    call.decided = call.decided or call.asked == fact.asked
            case StepSealed() | StepLost():
                self._forget(fact.step)
                self._cut = (
                    fact.step
                    if isinstance(fact, StepSealed) and fact.ended == "interrupted"
                    else None
                )
            case StepStarted() if self._notices and self._notices[-1].text == BROKE_OFF:
                self._notices[-1] = replace(
                    self._notices[-1], text=f"{BROKE_OFF}; the model is asked to go on"
                )
            case TurnEnded():
                self._cut = None
            case _:
                pass
        if (notice := self._notice(record)) is not None:
            if (
                isinstance(fact, TurnEnded)
                and self._notices
                and self._notices[-1].text == wording.lost(fact)
            ):
                self._notices.pop()  # why the turn failed is not said twice
            self._notices.append(notice)

    def piece(self, piece: Piece) -> None:
        """Text that was just stored."""
        self._streams.setdefault(piece.stream, []).append(piece.text)

    def stream(self, draft: Draft) -> None:
        self._streams[draft.stream] = [draft.text]

    def streaming(self, stream: Stream) -> str:
        pieces = self._streams.get(stream, [])
        if len(pieces) > 1:
            pieces[:] = ["".join(pieces)]
        return pieces[0] if pieces else ""

    def blocks(self) -> list[Block]:
        undone = self.turns.undone()
        found: list[Block] = []
        notices = list(self._notices)
        step = None if self.state.turn is None else self.state.turn.step
        for message in self.transcript.messages:
            if message.state == "pending":
                continue
            place = max(message.seq, self._taken.get(message.seq, message.turn or 0))
            if step is not None and step < place:
                found += self._open(step, notices)
                step = None
            while notices and notices[0].seq < place:
                found.append(notices.pop(0))
            found += self._message(message, message.turn in undone)
        found += [] if step is None else self._open(step, notices)
        return found + notices

    def waiting(self) -> list[Said]:
        """The inputs that nobody has taken yet, the oldest first."""
        waiting = [message for message in self.transcript.messages if message.state == "pending"]
        steering = {seq for seq, input in self.state.pending.items() if input.mode == "steer"}
        return [
            replace(_said(message, False), steers=message.seq in steering) for message in waiting
        ]

    def asked(self) -> list[Call]:
        """The calls that a person must decide about."""
        return [
            block for block in self.blocks() if isinstance(block, Call) and block.state == "asked"
        ]

    def _message(self, message: Message, undone: bool) -> list[Block]:
        match message.role:
            case "user":
                return [_said(message, undone)]
            case "tool":
                return []
            case "assistant" if message.state == "lost":
                return []
            case "assistant":
                found: list[Block] = []
                reasoning = reasoning_of(message.parts)
                if (
                    message.text
                    or reasoning
                    or message.state != "complete"
                    or not message.tool_calls
                ):
                    found.append(
                        Answer(
                            f"a{message.seq}",
                            message.seq,
                            message.text,
                            message.state,
                            message.at_ms,
                            reasoning,
                            message.hidden,
                            undone,
                        )
                    )
                return found + [self._card(message, call, undone) for call in message.tool_calls]

    def _card(self, message: Message, call: ToolCall, undone: bool) -> Call:
        known = self._calls.get((message.seq, call.id), _Call())
        output = ""
        if known.outcome is not None:
            output = said_in(outcome_text(known.outcome))
        elif known.started is not None:
            output = self.streaming(Stream(known.started, "output"))
        measured = (
            known.outcome is not None and not isinstance(known.outcome, Unknown) and known.began_ms
        )
        took_ms = known.ended_ms - known.began_ms if measured else None
        asks = (
            known.asked
            if known.outcome is None and not known.decided and known.started is None
            else None
        )
        return Call(
            f"c{message.seq}.{call.id}",
            known.settled or known.started or 0,
            call.name,
            call.arguments,
            _call_state(known, asks is not None, message),
            output,
            known.began_ms,
            None if took_ms is None or took_ms < 0 else took_ms,
            asks,
            message.hidden,
            undone,
            known.why,
        )

    def _open(self, step: Seq, notices: list[Notice]) -> list[Block]:
        """What is being streamed at this moment, and the notices before it."""
        text = self.streaming(Stream(step, "text"))
        reasoning = self.streaming(Stream(step, "reasoning"))
        found: list[Block] = []
        while notices and notices[0].seq < step:
            found.append(notices.pop(0))
        if text or reasoning:
            found.append(Answer(f"a{step}", step, text, "streaming", 0, reasoning))
        return found

    def _call(self, step: Seq, call: str) -> _Call:
        return self._calls.setdefault((step, call), _Call())

    def _forget(self, started: Seq | None) -> None:
        for kind in ("text", "reasoning", "output"):
            self._streams.pop(Stream(started or 0, kind), None)

    def _notice(self, record: Record) -> Notice | None:
        key, seq, fact = f"n{record.seq}", record.seq, record.fact
        match fact:
            case TurnEnded(outcome="interrupted" | "failed"):
                by_codex = bool(self._models) and self._models[-1].startswith("codex:")
                return Notice(key, *wording.ending(fact, by_codex), seq)
            case StepLost() if fact.cause not in CUT_OFF | {"stopped"}:
                return Notice(key, wording.lost(fact), "warn", seq)
            case StepSealed(ended="incomplete"):
                return Notice(key, BROKE_OFF, "warn", seq)
            case StepSealed(ended="length"):
                return Notice(
                    key,
                    "the answer was cut at the length limit; what there is of it is kept",
                    "warn",
                    seq,
                )
            case StepStarted() if fact.takes and self._cut is not None:
                return Notice(
                    key, "cut off by the next message; what was shown is kept", "quiet", self._cut
                )
            case TurnStarted(origin=Continues()):
                return Notice(key, "taken up where it was cut off", "quiet", seq)
            case Compacted():
                return Notice(
                    key, "summarised: the model is told a summary of everything above", "quiet", seq
                )
            case ThreadCompacted(runtime=runtime):
                return Notice(
                    key,
                    f"{runtime} made its own thread shorter; only {runtime} knows what it says",
                    "quiet",
                    seq,
                )
            case HelperStarted(purpose="summary"):
                return None
            case HelperEnded(outcome="failed"):
                return Notice(
                    key,
                    f"a summary could not be made: {fact.detail or 'no reason given'}",
                    "warn",
                    seq,
                )
            case PlanUpdated():
                return Notice(key, "\n".join((fact.title(), *fact.lines())), "quiet", seq)
            case SessionStarted(forked_from=point) if point is not None:
                return Notice(key, f"forked from {point.session} at {point.seq}", "quiet", seq)
            case ContextSet():
                return self._model_changed(key, seq, fact)
            case _:
                return None

    def _model_changed(self, key: str, seq: Seq, context: ContextSet) -> Notice | None:
        before, model = self._models[-1] if self._models else "", context.model
        self._models.append(model)
        if context.instead_of and before != model:
            return Notice(
                key,
                f"{model} answers the rest of this turn instead of {context.instead_of}",
                "warn",
                seq,
            )
        return (
            Notice(key, f"{model} answers from here on", "quiet", seq)
            if before and before != model
            else None
        )


def earlier_blocks(page: Page, later: Iterable[Record], shown_later: frozenset[Seq]) -> list[Block]:
    """A page before others: facts of the `later` ones may hide or undo what is in it. Inputs that
    waited at its end stand in the later ones."""
    folded = Folded.empty()
    folded.take([*page.waited, *page.records])
    folded.transcript.messages = [m for m in folded.transcript.messages if m.seq not in shown_later]
    for record in later:
        folded.transcript.apply(record)
        folded.turns.apply(record)
    return folded.blocks()


def _said(message: Message, undone: bool) -> Said:
    return Said(
        f"s{message.seq}",
        message.seq,
        message.text,
        message.state,
        message.at_ms,
        tuple(_file(part) for part in message.parts if isinstance(part, Image | File)),
        "",
        message.hidden,
        undone,
    )


def _file(part: Content) -> str:
    if not isinstance(part, Image | File):
        return ""
    kind = "image" if isinstance(part, Image) else "file"
    return f"{part.name or kind} ({wording.size(part.size)})"


def _call_state(known: _Call, asks: bool, message: Message) -> CallState:
    match known.outcome:
        case None:
            if known.started is not None:
                return "running"
            return "asked" if asks else "waiting"
        case Returned():
            return "returned"
        case Failed():
            return "failed"
        case Refused():
            return "refused"
        case Interrupted():
            return "interrupted"
        case Unknown():
            return "unknown"
