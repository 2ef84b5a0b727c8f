"""The view for a model, in no provider's words: what was said, answered and settled, and what still counts.

Everything that a model must not see, or must see differently, is decided here and stored nowhere: hidden
messages, rewinds, compaction, prompts whose turn failed before anything was answered.
"""

from collections.abc import Sequence

from msgspec import Struct, field

from steno.journal.facts import (
    AnyFact,
    Compacted,
    ContextSet,
    Continues,
    InputAdmitted,
    MessageHidden,
    Record,
    RewindWithdrawn,
    Rewound,
    SessionStarted,
    StepEnding,
    StepSealed,
    StepStarted,
    Takes,
    ToolSettled,
    TurnEnded,
    TurnOutcome,
    TurnStarted,
)
from steno.journal.parts import Content, Outcome, Returned, Seq, Text, ToolCall, Unknown

HIDDEN = Returned((Text("[hidden by the user]"),))


class Said(Struct, frozen=True, gc=False, tag="said"):
    seq: Seq
    parts: tuple[Content, ...]


class Answered(Struct, frozen=True, gc=False, tag="answered"):
    seq: Seq
    parts: tuple[Content, ...]
    ended: StepEnding


class Settled(Struct, frozen=True, gc=False, tag="settled"):
    seq: Seq
    call: str
    outcome: Outcome


class Closed(Struct, frozen=True, gc=False, tag="closed"):
    """A turn that did not end well: what stands before it is not a finished answer."""

    seq: Seq
    outcome: TurnOutcome
    cause: str


class Summarised(Struct, frozen=True, gc=False, tag="summarised"):
    seq: Seq
    upto: Seq
    summary: str


Entry = Said | Answered | Settled | Closed | Summarised


class _Turn(Struct, gc=False):
    origin: Takes | Continues | None = None
    answered: bool = False
    ending: TurnEnded | None = None
    continued: bool = False

    def counts(self) -> bool:
        """Whether its prompt is part of what a model is told."""
        return self.answered or self.continued or self.ending is None or self.ending.outcome == "done"


class _Slot(Struct, gc=False):
    """An entry, where it stands, and how many standing rewinds leave it out. An outcome stands where the `answer` that
    called for it stands, and is left out with it: neither is ever told without the other."""

    at: Seq
    entry: Entry
    turn: _Turn
    step: Seq | None = None
    cuts: int = 0
    answer: "_Slot | None" = None


class History(Struct):
    """`counted` is the last answer whose provider said how many tokens it and the request for it had, and how many;
    None when something before it has changed since."""

    context: ContextSet | None = None
    counted: tuple[Seq, int] | None = None
    _slots: list[_Slot] = []
    _inputs: dict[Seq, InputAdmitted] = {}
    _turns: dict[Seq, _Turn] = {}
    _turn: _Turn = field(default_factory=_Turn)
    _hidden: set[Seq] = set()
    _rewinds: dict[Seq, list[_Slot]] = {}
    _summaries: list[_Slot] = []
    _pinned: dict[Seq, _Slot] = {}

    def apply(self, record: Record) -> None:
        seq, fact = record.seq, record.fact
        match fact:
            case InputAdmitted():
                self._inputs[seq] = fact
            case TurnStarted():
                self._start_turn(seq, fact)
            case StepStarted():
                for taken in fact.takes:
                    self._take(seq, taken)
            case StepSealed():
                self._turn.answered = True
                if fact.usage is not None and fact.usage.input is not None:
                    self.counted = (fact.step, fact.usage.input + (fact.usage.output or 0))
                self._add(seq, Answered(fact.step, _sayable(fact), fact.ended), fact.step)
            case ToolSettled():
                address = seq if fact.started is None else fact.started
                self._settle(seq, Settled(address, fact.call, fact.outcome), fact.step)
            case TurnEnded():
                self._turn.ending = fact
                if fact.outcome != "done":
                    self._add(seq, Closed(fact.turn, fact.outcome, fact.cause))
            case _:
                self._edit(seq, fact)

    def entries(self) -> list[Entry]:
        """What the next request says, oldest first."""
        if not self._hidden and not self._summaries:
            return [slot.entry for slot in self._standing()]
        return [entry for _, entry in self.placed()]

    def placed(self) -> list[tuple[Seq, Entry]]:
        """The same, each with its place. A call and its outcome have one place. What an open turn answers stands even
        where a summary stands for it too."""
        standing = self._standing()
        summaries = (slot.entry for slot in reversed(self._summaries) if not slot.cuts)
        summary = next((entry for entry in summaries if isinstance(entry, Summarised)), None)
        upto = 0 if summary is None else summary.upto
        first: list[tuple[Seq, Entry]] = [] if summary is None else [(upto, summary)]
        pinned = None if summary is None else self._pinned.get(summary.seq)
        later = (slot for slot in standing if slot.at > upto or slot is pinned)
        return first + [(slot.at, entry) for slot in later if (entry := self._seen(slot)) is not None]

    def _standing(self) -> list[_Slot]:
        return [
            slot
            for slot in self._slots
            if not (slot.answer or slot).cuts and (slot.turn.answered or slot.turn.counts())
        ]

    def said(self, inputs: Sequence[Seq]) -> list[Said]:
        """Inputs as they will stand in the history once they are taken."""
        return [Said(seq, self._inputs[seq].parts) for seq in inputs if seq in self._inputs]

    def _seen(self, slot: _Slot) -> Entry | None:
        entry = slot.entry
        if isinstance(entry, Summarised):
            return None
        if not self._hidden or isinstance(entry, Closed):
            return entry
        if isinstance(entry, Settled):
            if slot.step in self._hidden:
                return None
            return Settled(entry.seq, entry.call, HIDDEN) if entry.seq in self._hidden else entry
        return None if entry.seq in self._hidden else entry

    def _start_turn(self, seq: Seq, fact: TurnStarted) -> None:
        self._turn = self._turns[seq] = _Turn(fact.origin)
        match fact.origin:
            case Takes():
                self._take(seq, fact.origin.input)
            case Continues():
                self._continue(fact.origin.turn)

    def _continue(self, seq: Seq) -> None:
        """The prompt of a turn that is taken up again counts, and so does that of the turn it took up."""
        turn = self._turns.get(seq)
        while turn is not None and not turn.continued:
            turn.continued = True
            turn = self._turns.get(turn.origin.turn) if isinstance(turn.origin, Continues) else None

    def _take(self, at: Seq, taken: Seq) -> None:
        said = self._inputs.get(taken)
        if said is not None:
            self._add(at, Said(taken, said.parts))

    def _add(self, at: Seq, entry: Entry, step: Seq | None = None) -> None:
        self._slots.append(_Slot(at, entry, self._turn, step))

    def _settle(self, seq: Seq, entry: Settled, step: Seq) -> None:
        """An outcome follows its answer and the other outcomes of it, also where another answer came in between: calls
        of an external runtime overlap."""
        answer = next((slot for slot in reversed(self._slots) if slot.entry.seq == step and slot.answer is None), None)
        at = seq if answer is None else answer.at
        self._slots.insert(self._behind(answer), _Slot(at, entry, self._turn, step, answer=answer))

    def _behind(self, answer: "_Slot | None") -> int:
        """The place after an answer and the outcomes of it. A summary that was made meanwhile stays before it."""
        place = len(self._slots)
        while answer is not None and isinstance(self._slots[place - 1].entry, Said | Answered | Settled):
            if self._slots[place - 1] is answer or self._slots[place - 1].answer is answer:
                return place
            place -= 1
        return len(self._slots)

    def _settle_open(self, seq: Seq) -> None:
        """In a fork nobody knows what came of a call that was open where it begins: that is its parent's."""
        settled: set[str] = set()
        for slot in reversed(self._slots):
            if isinstance(slot.entry, Answered):
                for part in slot.entry.parts:
                    if isinstance(part, ToolCall) and part.id not in settled:
                        self._settle(seq, Settled(seq, part.id, Unknown()), slot.entry.seq)
                return
            if isinstance(slot.entry, Settled):
                settled.add(slot.entry.call)

    def _edit(self, seq: Seq, fact: AnyFact) -> None:
        if isinstance(fact, ContextSet | Compacted | MessageHidden | Rewound | RewindWithdrawn | SessionStarted):
            self.counted = None
        match fact:
            case SessionStarted():
                if self._turn.origin is not None and self._turn.ending is None:
                    self._settle_open(seq)
                    self._add(seq, Closed(seq, "interrupted", "forked"))
                self._turn = _Turn()
                said = {slot.entry.seq for slot in self._slots if isinstance(slot.entry, Said)}
                self._inputs = {input: self._inputs[input] for input in said}  # what waits is the parent's
            case ContextSet():
                self.context = fact
            case Compacted():
                slot = _Slot(seq, Summarised(seq, fact.upto, fact.summary), _Turn(answered=True))
                last = next((slot for slot in reversed(self._slots) if isinstance(slot.entry, Said)), None)
                if last is not None and self._turn.origin is not None and self._turn.ending is None:
                    self._pinned[seq] = last
                self._slots.append(slot)
                self._summaries.append(slot)
            case MessageHidden():
                (self._hidden.add if fact.hidden else self._hidden.discard)(fact.target)
            case Rewound():
                self._rewind(seq, fact.to)
            case RewindWithdrawn():
                for slot in self._rewinds.pop(fact.rewind, ()):
                    slot.cuts -= 1
            case _:
                pass

    def _rewind(self, seq: Seq, to: Seq) -> None:
        """Leave out what follows the message at `to`, or begins with the turn at `to`; else all after that seq."""
        there = [i for i, slot in enumerate(self._slots) if slot.entry.seq == to and not isinstance(slot.entry, Closed)]
        standing = [i for i in there if not self._slots[i].cuts] or there  # a prompt that was run again stands twice
        after = standing[-1] + 1 if standing else None
        first = to if to in self._turns else to + 1
        cut = [slot for slot in self._slots if slot.at >= first] if after is None else self._slots[after:]
        for slot in cut:
            slot.cuts += 1
        self._rewinds[seq] = cut


def _sayable(fact: StepSealed) -> tuple[Content, ...]:
    """Calls of an answer that broke off or was cut never ran, so no provider may see them unpaired."""
    if fact.ended == "complete":
        return fact.parts
    return tuple(part for part in fact.parts if not isinstance(part, ToolCall))
