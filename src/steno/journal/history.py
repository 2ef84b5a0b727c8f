"""The view for a model, in no provider's words: what was said, answered and settled, and what still
counts.

Everything that a model must not see, or must see differently, is decided here and stored nowhere:
hidden messages, rewinds, compaction, prompts whose turn failed before anything was answered.

A long session need not be in memory to be summarised: the text of old entries can be let go, and
restored from their facts.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from steno.journal.facts import (
    AnyFact,
    Compacted,
    ContextSet,
    Continues,
    InputAdmitted,
    MessageHidden,
    MessageRedacted,
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
from steno.journal.parts import (
    Content,
    Outcome,
    Returned,
    Seq,
    Text,
    ToolCall,
    Unknown,
    chars_of,
    outcome_parts,
)

HIDDEN = Returned((Text("[hidden by the user]"),))
_CHANGES = (
    ContextSet,
    Compacted,
    MessageHidden,
    MessageRedacted,
    Rewound,
    RewindWithdrawn,
    SessionStarted,
)
"""After these a request is not what the provider counted and some more."""


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


class Weighed(Struct, frozen=True, gc=False, tag="weighed"):
    """An entry whose text was let go: the `fact` that has it, its calls, its tokens, and how many
    characters a summariser is told of it."""

    seq: Seq
    kind: type[Said] | type[Answered] | type[Settled]
    fact: Seq
    calls: tuple[str, ...]
    tokens: int
    chars: int


Standing = Entry | Weighed
Weigh = Callable[[Entry], tuple[int, int]]
"""The tokens of an entry, and how many characters a summariser is told of it."""


class _Turn(Struct, gc=False):
    origin: Takes | Continues | None = None
    answered: bool = False
    outcome: TurnOutcome | None = None
    continued: bool = False

    def counts(self) -> bool:
        """Whether its prompt is part of what a model is told."""
        return self.answered or self.continued or self.outcome in (None, "done")


class _Slot(Struct, gc=False):
    """An entry, where it stands, and how many standing rewinds leave it out. An outcome stands
    where the `answer` that called for it stands, and is left out with it: neither is ever told
    without the other. `fact` has its text; 0 if none has."""

    at: Seq
    entry: Standing
    turn: _Turn
    step: Seq | None = None
    cuts: int = 0
    answer: "_Slot | None" = None
    fact: Seq = 0


class History(Struct):
    """`counted` is the last answer whose provider said how many tokens it and the request for it
    had, and how many; None when something before it has changed since. `thinned`: text was let go,
    though it may have been restored."""

    context: ContextSet | None = None
    counted: tuple[Seq, int] | None = None
    thinned: bool = False
    _slots: list[_Slot] = []
    _inputs: dict[Seq, Said | Weighed] = {}
    _turns: dict[Seq, _Turn] = {}
    _turn: _Turn = field(default_factory=_Turn)
    _hidden: set[Seq] = set()
    _rewinds: dict[Seq, list[_Slot]] = {}
    _redacted: set[Seq] = set()
    _summaries: list[_Slot] = []
    _made_without: dict[Seq, frozenset[Seq]] = {}
    _pinned: dict[Seq, _Slot] = {}
    _chars: int = 0
    _kept_from: int = 0
    _forked: _Turn | None = None

    def apply(self, record: Record) -> None:
        seq, fact = record.seq, record.fact
        match fact:
            case InputAdmitted():
                self._inputs[seq] = Said(seq, fact.parts)
            case TurnStarted():
                self._start_turn(seq, fact)
            case StepStarted():
                for taken in fact.takes:
                    self._take(seq, taken)
            case StepSealed():
                self._turn.answered = True
                if fact.usage is not None and fact.usage.input is not None:
                    self.counted = (fact.step, fact.usage.input + (fact.usage.output or 0))
                self._add(seq, Answered(fact.step, _sayable(fact), fact.ended), fact.step, seq)
            case ToolSettled():
                address = seq if fact.started is None else fact.started
                self._settle(seq, Settled(address, fact.call, fact.outcome), fact.step, seq)
            case TurnEnded():
                self._turn.outcome = fact.outcome
                if fact.outcome != "done":
                    self._add(seq, Closed(fact.turn, fact.outcome, fact.cause))
            case _:
                self._edit(seq, fact)

    def entries(self) -> list[Entry]:
        """What the next request says, oldest first. What was let go of it must have been
        restored."""
        standing = self.outline()
        told = [entry for entry in standing if not isinstance(entry, Weighed)]
        if len(told) < len(standing):
            raise ValueError("the text of some entries was let go; restore it first")
        return told

    def outline(self) -> list[Standing]:
        """The same, whether or not all of its text is here."""
        if not self._hidden and not self._summaries:
            return [slot.entry for slot in self._standing()]
        return [entry for _, entry in self.placed()]

    def placed(self) -> list[tuple[Seq, Standing]]:
        """The outline, each entry with its place. A call and its outcome have one place. What an
        open turn answers stands even where a summary stands for it too."""
        standing = self._standing()
        summary = self._summary()
        upto = 0 if summary is None else summary.upto
        first: list[tuple[Seq, Standing]] = [] if summary is None else [(upto, summary)]
        pinned = None if summary is None else self._pinned.get(summary.seq)
        later = (slot for slot in standing if slot.at > upto or slot is pinned)
        return first + [
            (slot.at, entry) for slot in later if (entry := self._seen(slot)) is not None
        ]

    def _summary(self) -> Summarised | None:
        """The latest summary that tells nothing but what a model may be told. Where a message of
        its range was hidden or redacted since, or put back, the messages that it stood for are told
        again, until another one is made."""
        for slot in reversed(self._summaries):
            entry = slot.entry
            if slot.cuts or not isinstance(entry, Summarised) or entry.seq in self._redacted:
                continue
            if self.left_out(entry.upto) == self._made_without[entry.seq]:
                return entry
        return None

    def left_out(self, upto: Seq) -> frozenset[Seq]:
        """Messages up to a seq that a model is not told, or not any more as they were."""
        return frozenset(seq for seq in self._hidden | self._redacted if seq <= upto)

    def _standing(self) -> list[_Slot]:
        return [
            slot
            for slot in self._slots
            if not (slot.answer or slot).cuts and (slot.turn.answered or slot.turn.counts())
        ]

    def said(self, inputs: Sequence[Seq]) -> list[Said]:
        """Inputs as they will stand in the history once they are taken."""
        return [said for seq in inputs if isinstance(said := self._inputs.get(seq), Said)]

    def let_go(self, chars_max: int, weigh: Weigh) -> None:
        """Keep the text of the latest entries, about so many characters, once there is twice as
        much. Of older ones keep what they weigh."""
        if self._chars <= 2 * chars_max:
            return
        kept, first, self.thinned = 0, self._kept_from, True
        for i in reversed(range(first, len(self._slots))):
            kept += _chars(self._slots[i].entry)
            if kept > chars_max:
                self._let_go(self._slots[i], weigh)
            else:
                self._kept_from = i
        self._chars = min(kept, chars_max)

    def _let_go(self, slot: _Slot, weigh: Weigh) -> None:
        entry = slot.entry
        if not slot.fact or not isinstance(entry, Said | Answered | Settled):
            return
        slot.entry = weighed = Weighed(
            entry.seq, type(entry), slot.fact, _calls(entry), *weigh(entry)
        )
        if weighed.kind is Said:
            self._inputs[entry.seq] = weighed

    def missing(self) -> list[Weighed]:
        """What the next request says and must be restored first."""
        return [entry for entry in self.outline() if isinstance(entry, Weighed)]

    def restore(self, entries: Mapping[Seq, Entry]) -> None:
        """Put text back where it was let go. `entries` are by the fact that has the text."""
        for slot in self._slots:
            if isinstance(slot.entry, Weighed) and slot.entry.fact in entries:
                slot.entry = entries[slot.entry.fact]

    def _seen(self, slot: _Slot) -> Standing | None:
        entry = slot.entry
        if isinstance(entry, Summarised):
            return None
        if not self._hidden or isinstance(entry, Closed):
            return entry
        if kind_of(entry) is Settled:
            if slot.step in self._hidden:
                return None
            return (
                Settled(entry.seq, _calls(entry)[0], HIDDEN) if entry.seq in self._hidden else entry
            )
        return None if entry.seq in self._hidden else entry

    def _start_turn(self, seq: Seq, fact: TurnStarted) -> None:
        if (
            self._forked is not None and self._forked.origin == fact.origin
        ):  # run again: it does not stand twice
            self._forked.outcome = "interrupted"
        self._turn = self._turns[seq] = _Turn(fact.origin)
        match fact.origin:
            case Takes():
                self._take(seq, fact.origin.input)
            case Continues():
                self._continue(fact.origin.turn)

    def _continue(self, seq: Seq) -> None:
        """The prompt of a turn that is taken up again counts, and so does that of the turn it took
        up."""
        turn = self._turns.get(seq)
        while turn is not None and not turn.continued:
            turn.continued = True
            turn = self._turns.get(turn.origin.turn) if isinstance(turn.origin, Continues) else None

    def _take(self, at: Seq, taken: Seq) -> None:
        said = self._inputs.get(taken)
        if said is not None:
            self._add(at, said, fact=taken)

    def _add(self, at: Seq, entry: Standing, step: Seq | None = None, fact: Seq = 0) -> None:
        self._slots.append(_Slot(at, entry, self._turn, step, fact=fact))
        self._chars += _chars(entry)

    def _settle(self, seq: Seq, entry: Settled, step: Seq, fact: Seq = 0) -> None:
        """An outcome follows its answer and the other outcomes of it, also where another answer
        came in between: calls of an external runtime overlap."""
        answer = next(
            (
                slot
                for slot in reversed(self._slots)
                if slot.entry.seq == step and slot.answer is None
            ),
            None,
        )
        at = seq if answer is None else answer.at
        self._slots.insert(
            self._behind(answer), _Slot(at, entry, self._turn, step, answer=answer, fact=fact)
        )
        self._chars += _chars(entry)

    def _behind(self, answer: "_Slot | None") -> int:
        """The place after an answer and the outcomes of it. A summary that was made meanwhile stays
        before it."""
        place = len(self._slots)
        while answer is not None and kind_of(self._slots[place - 1].entry) in (
            Said,
            Answered,
            Settled,
        ):
            if self._slots[place - 1] is answer or self._slots[place - 1].answer is answer:
                return place
            place -= 1
        return len(self._slots)

    def _settle_open(self, seq: Seq) -> None:
        """In a fork nobody knows what came of a call that was open where it begins: that is its
        parent's."""
        settled: set[str] = set()
        for slot in reversed(self._slots):
            if kind_of(slot.entry) is Answered:
                for call in _calls(slot.entry):
                    if call not in settled:
                        self._settle(seq, Settled(seq, call, Unknown()), slot.entry.seq)
                return
            settled.update(_calls(slot.entry))

    def _edit(self, seq: Seq, fact: AnyFact) -> None:
        if isinstance(fact, _CHANGES):
            self.counted = None
        match fact:
            case SessionStarted():
                if self._turn.origin is not None and self._turn.outcome is None:
                    self._settle_open(seq)
                    self._add(seq, Closed(seq, "interrupted", "forked"))
                    self._forked = self._turn
                self._turn = _Turn()
                said = {slot.entry.seq for slot in self._slots if kind_of(slot.entry) is Said}
                self._inputs = {
                    input: self._inputs[input] for input in said
                }  # what waits is the parent's
            case ContextSet():
                self.context = fact
            case Compacted():
                slot = _Slot(seq, Summarised(seq, fact.upto, fact.summary), _Turn(answered=True))
                last = next(
                    (slot for slot in reversed(self._slots) if kind_of(slot.entry) is Said), None
                )
                if (
                    last is not None
                    and self._turn.origin is not None
                    and self._turn.outcome is None
                ):
                    self._pinned[seq] = last
                self._slots.append(slot)
                self._summaries.append(slot)
                self._made_without[seq] = self.left_out(fact.upto)
            case MessageHidden():
                (self._hidden.add if fact.hidden else self._hidden.discard)(fact.target)
            case MessageRedacted():
                self._redacted.add(fact.target)
            case Rewound():
                self._rewind(seq, fact.to)
            case RewindWithdrawn():
                for slot in self._rewinds.pop(fact.rewind, ()):
                    slot.cuts -= 1
            case _:
                pass

    def _rewind(self, seq: Seq, to: Seq) -> None:
        """Leave out what follows the message at `to`, or begins with the turn at `to`; else all
        after that seq."""
        there = [
            i
            for i, slot in enumerate(self._slots)
            if slot.entry.seq == to and not isinstance(slot.entry, Closed)
        ]
        standing = [
            i for i in there if not self._slots[i].cuts
        ] or there  # a prompt that was run again stands twice
        after = standing[-1] + 1 if standing else None
        first = to if to in self._turns else to + 1
        cut = (
            [slot for slot in self._slots if slot.at >= first]
            if after is None
            else self._slots[after:]
        )
        for slot in cut:
            slot.cuts += 1
        self._rewinds[seq] = cut


def _sayable(fact: StepSealed) -> tuple[Content, ...]:
    """Calls of an answer that broke off or was cut never ran, so no provider may see them
    unpaired."""
    if fact.ended == "complete":
        return fact.parts
    return tuple(part for part in fact.parts if not isinstance(part, ToolCall))


def kind_of(entry: Standing) -> type[Struct]:
    return entry.kind if isinstance(entry, Weighed) else type(entry)


def restored(weighed: Weighed, fact: AnyFact) -> Entry:
    """The entry again, from the fact that has its text."""
    match fact:
        case InputAdmitted():
            return Said(weighed.seq, fact.parts)
        case StepSealed():
            return Answered(weighed.seq, _sayable(fact), fact.ended)
        case ToolSettled():
            return Settled(weighed.seq, fact.call, fact.outcome)
        case _:
            raise ValueError(f"fact {weighed.fact} has no text of an entry")


def _calls(entry: Standing) -> tuple[str, ...]:
    match entry:
        case Answered():
            return tuple(part.id for part in entry.parts if isinstance(part, ToolCall))
        case Settled():
            return (entry.call,)
        case Weighed():
            return entry.calls
        case _:
            return ()


def _chars(entry: Standing) -> int:
    match entry:
        case Said() | Answered():
            return chars_of(entry.parts)
        case Settled():
            return chars_of(outcome_parts(entry.outcome))
        case _:
            return 0
