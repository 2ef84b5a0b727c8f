"""From facts and pieces to the blocks of the screen. The order of messages is the transcript's
own."""

from collections.abc import Callable, Iterable
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from steno.journal.drafts import Draft, Stream
from steno.journal.facts import (
    CUT_OFF,
    AnyFact,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalFact,
    Compacted,
    ContextFact,
    ContextSet,
    Continues,
    EditFact,
    FileFact,
    FileKept,
    FilesPutBack,
    FilesSettled,
    FileVersions,
    FolderSet,
    ForkPoint,
    GoalSet,
    HelperEnded,
    HelperFact,
    HelperStarted,
    InputFact,
    InterruptAsked,
    ItemFact,
    ItemKept,
    ItemsWithdrawn,
    MemoryFact,
    ModeSet,
    OutputLate,
    OutsideFact,
    PlanUpdated,
    Record,
    RuleSet,
    SessionRenamed,
    SessionStarted,
    StepFact,
    StepLost,
    StepSealed,
    StepStarted,
    Takes,
    ThreadBound,
    ThreadCompacted,
    ThreadFact,
    ToolFact,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from steno.journal.parts import (
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
from steno.journal.readers import read
from steno.journal.state import State
from steno.journal.transcript import Message, Transcript, outcome_text
from steno.journal.turns import Turns
from steno.service import Page, Tail
from steno.store.protocol import Piece
from steno.tui import wording
from steno.tui.blocks import Answer, Block, Call, CallState, Notice, Said, Tone
from steno.workspace.diffs import Diff

Ending = Callable[[TurnEnded, bool], tuple[str, Tone]]


class _CallSoFar(Struct):
    """What became of a call so far."""

    started: Seq | None = None
    began_ms: int = 0
    settled: Seq = 0
    ended_ms: int = 0
    outcome: Outcome | None = None
    asked: Seq | None = None
    decided: bool = False
    why: str = ""
    file: FileVersions | None = None


class Folded(Struct):
    """A stretch of a session, folded for the screen.

    A fact may change any block, so the blocks are made anew when they are asked for next. A piece
    changes the one block that its stream is shown in, and only that one is replaced.
    """

    transcript: Transcript
    state: State
    turns: Turns
    diffs: dict[str, Diff | None] = {}
    """How calls change files, by the keys of their blocks; None where that cannot be shown."""
    _calls: dict[tuple[Seq, str], _CallSoFar] = {}
    _called_in: dict[str, Seq] = {}
    """The item that has a call which another program kept."""
    _helpers: dict[Seq, str] = {}
    _streams: dict[Stream, list[str]] = {}
    _notices: list[Notice] = []
    _noticed: AnyFact | None = None
    """What the last notice is about."""
    _models: list[str] = []
    _taken: dict[Seq, Seq] = {}
    """The turn that took an input first: where it stands, also if another turn runs it again."""
    _cut: Seq | None = None
    """The answer that was cut off last, while its turn goes on."""
    _ending: Ending = wording.ending
    """What is said about a turn that is not done."""
    _blocks: list[Block] | None = None
    _live: dict[Stream, int] = {}
    """In which block a stream is shown."""
    _grown: set[Stream] = set()
    """Streams that have got pieces since the blocks were made."""

    @classmethod
    def empty(cls, ending: Ending = wording.ending) -> "Folded":
        return cls(Transcript(), State(), Turns(), _ending=ending)

    @classmethod
    def of_end(cls, end: Tail, ending: Ending = wording.ending) -> "Folded":
        """The end of a session as it stands."""
        folded = cls.empty(ending)
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
        self._blocks = None
        if isinstance(record.fact, HelperStarted):
            self._helpers[record.seq] = record.fact.purpose
        self._tell(record)
        fact, seq = record.fact, record.seq
        match fact:
            case TurnStarted(origin=Takes(input=input)):
                self._taken.setdefault(input, seq)
            case ToolStarted():
                call = self._call(fact.step, fact.call)
                call.started, call.began_ms = seq, record.at_ms
            case ToolSettled():
                call = self._call(fact.step, fact.call)
                call.settled, call.ended_ms = fact.started or seq, record.at_ms
                call.outcome = fact.outcome
                self._forget(fact.started)
            case ApprovalAsked():
                call = self._call(fact.step, fact.call)
                call.asked, call.why = seq, fact.reason or call.why
            case ApprovalDecided():
                for call in self._calls.values():
                    call.decided = call.decided or call.asked == fact.asked
            case StepSealed() | StepLost():
                self._forget(fact.step)
                cut = isinstance(fact, StepSealed) and fact.ended == "interrupted"
                self._cut = fact.step if cut else None
            case TurnEnded():
                self._cut = None
            case (
                TurnStarted()
                | StepStarted()
                | InterruptAsked()
                | RuleSet()
                | OutputLate()
            ):
                pass
            case (
                SessionStarted()
                | SessionRenamed()
                | InputFact()
                | EditFact()
                | ContextFact()
                | UsageReported()
            ):
                pass
            case ItemKept():
                self._read(seq, fact)
            case (
                ThreadFact()
                | HelperFact()
                | MemoryFact()
                | OutsideFact()
                | ItemsWithdrawn()
            ):
                pass
            case FileKept():
                for call in self._calls.values():
                    if call.started == fact.started:
                        call.file = fact.file
                        self.diffs.pop(f"c{_step_of(self._calls, call)}", None)
            case ModeSet() | FilesPutBack() | FilesSettled():
                pass
            case unreachable:
                assert_never(unreachable)

    def _read(self, seq: Seq, fact: ItemKept) -> None:
        """The result of a call stands in the card of the call, which is another item."""
        for one in read(fact):
            for part in one.parts:
                if isinstance(part, ToolCall):
                    self._called_in[part.id] = seq
            if one.role == "tool":
                call = self._call(
                    self._called_in.get(one.call or "", seq), one.call or ""
                )
                call.settled = seq
                call.outcome = (
                    Failed(one.parts) if one.failed else Returned(one.parts)
                )

    def piece(self, piece: Piece) -> None:
        """Text that was just stored."""
        self._streams.setdefault(piece.stream, []).append(piece.text)
        self._grown.add(piece.stream)

    def stream(self, draft: Draft) -> None:
        self._streams[draft.stream] = [draft.text]
        self._blocks = None

    def streaming(self, stream: Stream) -> str:
        pieces = self._streams.get(stream, [])
        if len(pieces) > 1:
            pieces[:] = ["".join(pieces)]
        return pieces[0] if pieces else ""

    def streams(self, step: Seq) -> bool:
        """Whether something of an answer is there."""
        return any(
            self._streams.get(Stream(step, kind)) for kind in ("text", "reasoning")
        )

    def forget_blocks(self) -> None:
        """They are made anew when they are asked for next."""
        self._blocks = None

    def blocks(self) -> list[Block]:
        if self._blocks is None or not self._grown <= self._live.keys():
            self._live = {}
            self._blocks = self._made()
        else:
            for stream in self._grown:
                at = self._live[stream]
                self._blocks[at] = self._with(self._blocks[at], stream)
        self._grown.clear()
        return self._blocks

    def _with(self, block: Block, stream: Stream) -> Block:
        """A block with what its stream says now."""
        text = self.streaming(stream)
        if isinstance(block, Call):
            return replace(block, output=text)
        field = "text" if stream.kind == "text" else "reasoning"
        return replace(block, **{field: text})

    def _made(self) -> list[Block]:
        undone = self.turns.undone()
        found: list[Block] = []
        notices = list(self._notices)
        step = None if self.state.turn is None else self.state.turn.step
        for message in self.transcript.messages:
            if message.state == "pending":
                continue
            place = max(message.seq, self._taken.get(message.seq, message.turn or 0))
            if step is not None and step < place:
                self._add_open(found, step, notices)
                step = None
            while notices and notices[0].seq < place:
                found.append(notices.pop(0))
            self._add(found, message, message.turn in undone)
        if step is not None:
            self._add_open(found, step, notices)
        return found + notices

    def waiting(self) -> list[Said]:
        """The inputs that no turn has taken yet, the oldest first."""
        waiting = [
            message
            for message in self.transcript.messages
            if message.state == "pending"
        ]
        steering = {
            seq for seq, input in self.state.pending.items() if input.mode == "steer"
        }
        return [
            replace(_said(message, False), steers=message.seq in steering)
            for message in waiting
        ]

    def asks(self) -> bool:
        """Whether there is a call that a person must decide about."""
        turn = self.state.turn
        return turn is not None and any(
            call.asked and call.decision is None and call.started is None
            for call in turn.calls.values()
        )

    def asked(self) -> list[Call]:
        """The calls that a person must decide about."""
        if not self.asks():
            return []
        return [
            block
            for block in self.blocks()
            if isinstance(block, Call) and block.state == "asked"
        ]

    def _add(self, found: list[Block], message: Message, undone: bool) -> None:
        match message.role:
            case "user":
                found.append(_said(message, undone))
            case "assistant" if message.state != "lost":
                if (answer := _answer(message, undone)) is not None:
                    found.append(answer)
                for call in message.tool_calls:
                    found.append(card := self._card(message, call, undone))
                    if card.state == "running":
                        self._live[Stream(card.seq, "output")] = len(found) - 1
            case "notice":
                key = f"posted {message.seq}"
                found.append(
                    Notice(key, message.text, seq=message.seq, undone=undone)
                )
            case (
                "assistant" | "tool"
            ):  # nothing came; or it stands in the card of its call
                pass
            case unreachable:
                assert_never(unreachable)

    def _card(self, message: Message, call: ToolCall, undone: bool) -> Call:
        known = self._calls.get((message.seq, call.id), _CallSoFar())
        output = ""
        if known.outcome is not None:
            output = said_in(outcome_text(known.outcome))
        elif known.started is not None:
            output = self.streaming(Stream(known.started, "output"))
        measured = (
            known.outcome is not None
            and not isinstance(known.outcome, Unknown)
            and known.began_ms
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
            known.file,
            self.diffs.get(f"c{message.seq}.{call.id}"),
        )

    def _add_open(self, found: list[Block], step: Seq, notices: list[Notice]) -> None:
        """What is being streamed at this moment, and the notices before it."""
        while notices and notices[0].seq < step:
            found.append(notices.pop(0))
        text = self.streaming(Stream(step, "text"))
        reasoning = self.streaming(Stream(step, "reasoning"))
        if text or reasoning:
            self._live[Stream(step, "text")] = self._live[
                Stream(step, "reasoning")
            ] = len(found)
            found.append(Answer(f"a{step}", step, text, "streaming", 0, reasoning))

    def _call(self, step: Seq, call: str) -> _CallSoFar:
        return self._calls.setdefault((step, call), _CallSoFar())

    def _forget(self, started: Seq | None) -> None:
        for kind in ("text", "reasoning", "output"):
            self._streams.pop(Stream(started or 0, kind), None)

    def _tell(self, record: Record) -> None:
        """Add the notice of a fact, if it has one."""
        before, fact = self._noticed, record.fact
        if isinstance(fact, StepStarted) and _broke_off(before):
            self._notices[-1] = replace(
                self._notices[-1],
                text="the answer broke off; the model is asked to go on",
            )
        if (said := self._notice(fact)) is None:
            return
        if isinstance(fact, TurnEnded) and _is_cause(before, fact):
            self._notices.pop()  # why the turn failed is not said twice
        elif isinstance(fact, StepLost) and isinstance(before, StepLost):
            self._notices.pop()  # attempts of one request are one line
        seq = record.seq
        if isinstance(fact, StepStarted) and self._cut is not None:
            seq = self._cut
        self._notices.append(Notice(f"n{record.seq}", *said, seq))
        self._noticed = fact

    def _notice(self, fact: AnyFact) -> tuple[str, Tone] | None:
        match fact:
            case TurnEnded() if fact.outcome != "done":
                by_codex = bool(self._models) and self._models[-1].startswith(
                    "codex:"
                )
                return self._ending(fact, by_codex)
            case StepLost() if fact.cause not in CUT_OFF | {"stopped"}:
                return wording.lost(fact), "warn"
            case StepSealed(ended="incomplete"):
                return "the answer broke off", "warn"
            case StepSealed(ended="length"):
                return (
                    "the answer was cut at the length limit; what there is of it is kept",
                    "warn",
                )
            case StepStarted() if fact.takes and self._cut is not None:
                return "cut off by the next message; what was shown is kept", "quiet"
            case TurnStarted(origin=Continues()):
                return "taken up where it was cut off", "quiet"
            case Compacted():
                return (
                    "summarised: the model is told a summary of everything above",
                    "quiet",
                )
            case ThreadCompacted(runtime=runtime):
                told = f"{runtime} made its own thread shorter; only {runtime} knows what it says"
                return told, "quiet"
            case HelperEnded(outcome="failed") if (
                self._helpers.get(fact.started) == "summary"
            ):
                return (
                    f"a summary could not be made: {fact.detail or 'no reason given'}",
                    "warn",
                )
            case PlanUpdated():
                return "\n".join((fact.title(), *fact.lines())), "quiet"
            case SessionStarted(forked_from=ForkPoint() as point):
                return f"forked from {point.session} at {point.seq}", "quiet"
            case ContextSet():
                return self._model_changed(fact)
            case TurnStarted() | TurnEnded() | StepFact() | InterruptAsked():
                return None
            case (
                SessionStarted()
                | SessionRenamed()
                | InputFact()
                | EditFact()
                | GoalSet()
                | ThreadBound()
            ):
                return None
            case (
                ToolFact()
                | ApprovalFact()
                | HelperFact()
                | MemoryFact()
                | OutsideFact()
            ):
                return None
            case FolderSet() | FileFact() | ItemFact():
                return None
            case unreachable:
                assert_never(unreachable)

    def _model_changed(self, context: ContextSet) -> tuple[str, Tone] | None:
        before, model = self._models[-1] if self._models else "", context.model
        self._models.append(model)
        if context.instead_of and before != model:
            return (
                f"{model} answers the rest of this turn instead of {context.instead_of}",
                "warn",
            )
        if before and before != model:
            return f"{model} answers from here on", "quiet"
        return None


def _step_of(calls: dict[tuple[Seq, str], _CallSoFar], call: _CallSoFar) -> str:
    step, id = next(key for key, one in calls.items() if one is call)
    return f"{step}.{id}"


def _broke_off(fact: AnyFact | None) -> bool:
    return isinstance(fact, StepSealed) and fact.ended == "incomplete"


def _is_cause(lost: AnyFact | None, ended: TurnEnded) -> bool:
    """Whether a turn ended for the reason for which its last request was lost."""
    return isinstance(lost, StepLost) and (lost.cause, lost.detail) == (
        ended.cause,
        ended.detail,
    )


def earlier_blocks(
    page: Page,
    later: Iterable[Record],
    shown_later: frozenset[Seq],
    ending: Ending = wording.ending,
) -> list[Block]:
    """A page before others: facts of the `later` ones may hide or undo what is in it. Inputs that
    waited at its end stand in the later ones."""
    folded = Folded.empty(ending)
    folded.take([*page.waited, *page.records])
    folded.transcript.messages = [
        m for m in folded.transcript.messages if m.seq not in shown_later
    ]
    for record in later:
        folded.transcript.apply(record)
        folded.turns.apply(record)
    return folded.blocks()


def _answer(message: Message, undone: bool) -> Answer | None:
    """None if it is nothing but calls."""
    reasoning = reasoning_of(message.parts)
    if (
        message.state == "complete"
        and message.tool_calls
        and not (message.text or reasoning)
    ):
        return None
    return Answer(
        f"a{message.seq}",
        message.seq,
        message.text,
        message.state,
        message.at_ms,
        reasoning,
        message.hidden,
        undone,
    )


def _said(message: Message, undone: bool) -> Said:
    return Said(
        f"s{message.seq}",
        message.seq,
        message.text,
        message.state,
        message.at_ms,
        tuple(_file(part) for part in message.attachments),
        message.hidden,
        undone,
    )


def _file(part: Image | File) -> str:
    kind = "image" if isinstance(part, Image) else "file"
    return f"{part.name or kind} ({wording.size(part.size)})"


def _call_state(known: _CallSoFar, asks: bool, message: Message) -> CallState:
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
