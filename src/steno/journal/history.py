"""The view for a model, in no provider's words: what was said, answered and settled, and what still
counts.

Everything that a model must not see, or must see differently, is decided here and stored nowhere:
hidden messages, rewinds, compaction, prompts whose turn failed before anything was answered.

A long session need not be in memory to be summarised: the text of old entries can be let go, and
restored from their facts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from steno.journal import facts as f
from steno.journal.listing import JOB
from steno.journal.parts import (
    Content,
    Failed,
    Outcome,
    Returned,
    Seq,
    Text,
    ToolCall,
    Unknown,
    chars_of,
    outcome_parts,
)
from steno.journal.readers import read

HIDDEN = Returned((Text("[hidden by the user]"),))


class Said(Struct, frozen=True, gc=False, tag="said", omit_defaults=True):
    seq: Seq
    parts: tuple[Content, ...]
    author: str = ""
    quoted: str = ""
    awaits: tuple[f.AwaitedFile, ...] = ()


class Answered(Struct, frozen=True, gc=False, tag="answered"):
    seq: Seq
    parts: tuple[Content, ...]
    ended: f.StepEnding


class Settled(Struct, frozen=True, gc=False, tag="settled"):
    seq: Seq
    call: str
    outcome: Outcome


class Closed(Struct, frozen=True, gc=False, tag="closed"):
    """A turn that did not end well: what stands before it is not a finished answer."""

    seq: Seq
    outcome: f.TurnOutcome
    cause: str


class Noted(Struct, frozen=True, gc=False, tag="noted"):
    """Something that was never said to the model: an input was changed or deleted in its chat, or a
    report was posted there. It is told with the next turn."""

    seq: Seq
    what: Literal["edited", "deleted", "posted"]
    text: str


class Summarised(Struct, frozen=True, gc=False, tag="summarised"):
    seq: Seq
    upto: Seq
    summary: str


Entry = Said | Answered | Settled | Closed | Noted | Summarised


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


class _TurnTold(Struct, gc=False):
    origin: f.Takes | f.Continues | None = None
    answered: bool = False
    outcome: f.TurnOutcome | None = None
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
    turn: _TurnTold
    step: Seq | None = None
    cuts: int = 0
    answer: "_Slot | None" = None
    fact: Seq = 0
    withdrawn: bool = False


# --- rewinds --------------------------------------------------------------------------------------


class _Rewinds(Struct):
    """The rewinds that stand, and the slots that each leaves out. Rewinds overlap, so a slot counts
    how many leave it out.

        1 input "a" · 2 turn (takes 1) · 3 step · 4 sealed "A" · 5 turn.ended
        6 input "b" · 7 turn (takes 6) · 8 step · 9 sealed "B" · 10 turn.ended
                                        told: a A b B
        11 rewound (to 7)               told: a A           from turn 7 on nothing happened
        12 rewound (to 1)               told: a             nothing followed the message at 1
        13 rewind.withdrawn (12)        told: a A           11 still leaves b and B out
    """

    _left_out: dict[Seq, list[_Slot]] = {}

    def add(self, seq: Seq, to: Seq, slots: list[_Slot], is_turn: bool) -> None:
        """Leave out what follows the message at `to`, or begins with the turn at `to`; else all
        after that seq."""
        there = [
            i
            for i, slot in enumerate(slots)
            if slot.entry.seq == to and not isinstance(slot.entry, Closed)
        ]
        # A prompt that was run again stands twice: the place that is told counts.
        standing = [i for i in there if not slots[i].cuts] or there
        if standing:
            cut = slots[standing[-1] + 1 :]
        else:
            first = to if is_turn else to + 1
            cut = [slot for slot in slots if slot.at >= first]
        for slot in cut:
            slot.cuts += 1
        self._left_out[seq] = cut

    def withdraw(self, rewind: Seq) -> None:
        for slot in self._left_out.pop(rewind, ()):
            slot.cuts -= 1


# --- summaries ------------------------------------------------------------------------------------


class _NotTold(Struct):
    """Messages that a model is not told, or not any more as they were."""

    hidden: set[Seq] = set()
    redacted: set[Seq] = set()
    withdrawn: set[Seq] = set()

    def upto(self, seq: Seq) -> frozenset[Seq]:
        gone = self.hidden | self.redacted | self.withdrawn
        return frozenset(one for one in gone if one <= seq)


class _SummaryMade(Struct, gc=False):
    """`without` are the messages of its range that it was made without. `pinned` is the prompt of
    the turn that was open when it was made: it is told beside the summary that stands for it."""

    slot: _Slot
    said: Summarised
    without: frozenset[Seq]
    pinned: _Slot | None


class _Summaries(Struct):
    """The summaries that were made. The latest that tells what a model may be told, no more and no
    less, stands in the place of its range.

        … a A b B, as above             told: a A b B
        11 compacted (upto 5, "S")      told: S b B
        12 message.hidden (3)           told: a b B         S tells of the answer that is hidden
        13 compacted (upto 5, "T")      told: T b B         T was made without it
        14 message.hidden (3, false)    told: S b B         T lacks what was put back, S does not
    """

    made: list[_SummaryMade] = []

    def standing(self, gone: _NotTold) -> _SummaryMade | None:
        for one in reversed(self.made):
            if one.slot.cuts or one.said.seq in gone.redacted:
                continue
            if gone.upto(one.said.upto) == one.without:
                return one
        return None


# --- text in memory -------------------------------------------------------------------------------


LET_GO_MAX = 1_000
"""Entries whose text is let go at once. A page of facts has no more, so what is let go keeps up
with what comes."""


class _TextKept(Struct):
    """How much text the slots hold, and from which slot on all of it is here. What stands before
    may be let go: a slot keeps a `Weighed` in the place of its entry, and the fact that has the
    text brings it back.

        … a A, each of 100 characters
        let_go(150)                     slots: a A, since 200 is not twice as much
        … b B c C                       slots: a A b B c C
        let_go(150)                     slots: (1) (4) (6) (9) (11) C, by the fact with the text
        restore                         slots: a A b B c C, until the next let_go
    """

    chars: int = 0
    thinned: bool = False
    _kept_from: int = 0

    def let_go(
        self, slots: list[_Slot], chars_max: int, weigh: Weigh
    ) -> list[Weighed]:
        """What was let go, if there was twice as much text as may be kept: the oldest first, and
        so many at once that an event loop need not wait for long."""
        if self.chars <= 2 * chars_max:
            return []
        gone, first, self.thinned = [], self._kept_from, True
        chars, keep_from = 0, len(slots)
        for i in reversed(range(first, len(slots))):
            chars += _chars(slots[i].entry)
            if chars <= chars_max:
                keep_from = i
        self._kept_from = min(keep_from, first + LET_GO_MAX)
        for slot in slots[first : self._kept_from]:
            chars -= _chars(slot.entry)
            if (weighed := _weighed(slot, weigh)) is not None:
                slot.entry = weighed
                gone.append(weighed)
        self.chars = chars
        return gone


def _weighed(slot: _Slot, weigh: Weigh) -> Weighed | None:
    entry = slot.entry
    if not slot.fact or not isinstance(entry, Said | Answered | Settled):
        return None
    return Weighed(entry.seq, type(entry), slot.fact, _calls(entry), *weigh(entry))


# --- the history ----------------------------------------------------------------------------------


class History(Struct):
    """`counted` is the last answer whose provider said how many tokens it and the request for it
    had, and how many; None when something before it has changed since."""

    context: f.ContextSet | None = None
    counted: tuple[Seq, int] | None = None
    _slots: list[_Slot] = []
    _inputs: dict[Seq, Said | Weighed] = {}
    _turns: dict[Seq, _TurnTold] = {}
    _turn: _TurnTold = field(default_factory=_TurnTold)
    _forked: _TurnTold | None = None
    _rewinds: _Rewinds = field(default_factory=_Rewinds)
    _gone: _NotTold = field(default_factory=_NotTold)
    _summaries: _Summaries = field(default_factory=_Summaries)
    _texts: _TextKept = field(default_factory=_TextKept)
    _notes: list[Noted] = []
    _attached: set[Seq] = set()
    _items: list[Seq] = []

    def apply(self, record: f.Record) -> None:
        seq, fact = record.seq, record.fact
        match fact:
            case f.InputAdmitted():
                self._inputs[seq] = _said(seq, fact)
            case f.TurnStarted():
                self._start_turn(seq, fact)
            case f.StepStarted():
                for taken in fact.takes:
                    self._take(seq, taken)
            case f.StepSealed():
                self._turn.answered = True
                if fact.usage is not None and fact.usage.input is not None:
                    self.counted = (
                        fact.step,
                        fact.usage.input + (fact.usage.output or 0),
                    )
                parts = fact.parts if fact.ended == "complete" else _sayable(fact)
                answered = Answered(fact.step, parts, fact.ended)
                self._add(seq, answered, chars_of(parts), fact.step, seq)
            case f.TurnEnded():
                self._turn.outcome = fact.outcome
                if fact.outcome != "done":
                    self._add(seq, Closed(fact.turn, fact.outcome, fact.cause), 0)
            case f.ToolSettled():
                address = seq if fact.started is None else fact.started
                self._settle(
                    seq, Settled(address, fact.call, fact.outcome), fact.step, seq
                )
            case f.ContextSet():
                self.context, self.counted = fact, None
            case f.SessionStarted():
                self._start_session(seq)
            case f.MessageGiven():
                self._give(seq, given(seq, fact), seq)
            case f.ItemKept():
                self._read(seq, fact)
            case f.ItemsWithdrawn():
                self._withdraw(fact)
            case f.AttachmentSettled():
                self._attach(fact)
            case f.InputEdited():
                self._notes.append(Noted(seq, "edited", fact.text))
            case f.InputDeleted():
                self._notes.append(Noted(seq, "deleted", ""))
            case f.Posted():
                if fact.by.startswith("job:"):
                    self._notes.append(Noted(seq, "posted", fact.text))
            case f.EditFact():
                self._edit(seq, fact)
            case f.ToolStarted() | f.OutputLate() | f.StepLost() | f.UsageReported():
                pass
            case (
                f.InputWithdrawn()
                | f.InterruptAsked()
                | f.ApprovalFact()
                | f.SessionRenamed()
            ):
                pass
            case f.FolderSet() | f.FileFact():
                pass
            case (
                f.GoalSet()
                | f.HelperFact()
                | f.ThreadFact()
                | f.MemoryFact()
                | f.OutsideFact()
            ):
                pass
            case unreachable:
                assert_never(unreachable)

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
        if not self._gone.hidden and not self._summaries.made:
            return [slot.entry for slot in self._standing()]
        return [entry for _, entry in self.placed()]

    def placed(self) -> list[tuple[Seq, Standing]]:
        """The outline, each entry with its place. A call and its outcome have one place. What an
        open turn answers stands even where a summary stands for it too."""
        summary = self._summaries.standing(self._gone)
        upto = 0 if summary is None else summary.said.upto
        told: list[tuple[Seq, Standing]] = (
            [] if summary is None else [(upto, summary.said)]
        )
        pinned = None if summary is None else summary.pinned
        for slot in self._standing():
            if slot.at > upto or slot is pinned:
                entry = self._seen(slot)
                if entry is not None:
                    told.append((slot.at, entry))
        return told

    def said(self, inputs: Sequence[Seq]) -> list[Said]:
        """Inputs as they will stand in the history once they are taken."""
        return [
            said for seq in inputs if isinstance(said := self._inputs.get(seq), Said)
        ]

    def left_out(self, upto: Seq) -> frozenset[Seq]:
        """Messages up to a seq that a model is not told, or not any more as they were."""
        return self._gone.upto(upto)

    @property
    def thinned(self) -> bool:
        """Whether text was let go at some time, though it may have been restored."""
        return self._texts.thinned

    def let_go(self, chars_max: int, weigh: Weigh) -> None:
        """Keep the text of the latest entries, about so many characters, once there is twice as
        much. Of older ones keep what they weigh."""
        for weighed in self._texts.let_go(self._slots, chars_max, weigh):
            if weighed.kind is Said:
                self._inputs[weighed.seq] = weighed

    def missing(self) -> list[Weighed]:
        """What the next request says and must be restored first."""
        return [entry for entry in self.outline() if isinstance(entry, Weighed)]

    def restore(self, entries: Mapping[Seq, Entry]) -> None:
        """Put text back where it was let go. `entries` are by the fact that has the text."""
        for slot in self._slots:
            if isinstance(slot.entry, Weighed) and slot.entry.fact in entries:
                slot.entry = entries[slot.entry.fact]

    def _standing(self) -> list[_Slot]:
        return [
            slot
            for slot in self._slots
            if not (slot.answer or slot).cuts
            and not slot.withdrawn
            and not (slot.answer or slot).withdrawn
            and (slot.turn.answered or slot.turn.counts())
        ]

    def _seen(self, slot: _Slot) -> Standing | None:
        """An entry as a model is told it, without what is hidden."""
        entry, hidden = slot.entry, self._gone.hidden
        if isinstance(entry, Summarised):
            return None
        if not hidden or isinstance(entry, Closed | Noted):
            return entry
        if kind_of(entry) is not Settled:
            return None if entry.seq in hidden else entry
        if slot.step in hidden:
            return None
        return (
            Settled(entry.seq, _calls(entry)[0], HIDDEN)
            if entry.seq in hidden
            else entry
        )

    def _is_open(self) -> bool:
        return self._turn.origin is not None and self._turn.outcome is None

    def _attach(self, fact: f.AttachmentSettled) -> None:
        """It comes before the turn that takes its input; what comes later, a model is not told."""
        said = self._inputs.get(fact.input)
        if isinstance(said, Said):
            left = tuple(
                one for one in said.awaits if one.id != fact.file or not fact.parts
            )
            parts = (*fact.parts, *said.parts)
            self._inputs[fact.input] = replace(said, parts=parts, awaits=left)
            self._attached.add(fact.input)

    def _give(self, seq: Seq, entry: Said | Answered | Settled, fact: Seq) -> None:
        """It counts whatever becomes of the turns that follow."""
        turn = self._turn
        self._turn = _TurnTold(answered=True)
        if isinstance(entry, Settled):
            answers = (one.entry for one in reversed(self._slots))
            answer = next((one for one in answers if entry.call in _calls(one)), None)
            self._settle(seq, entry, seq if answer is None else answer.seq, fact)
        else:
            self._add(seq, entry, _chars(entry), None, fact)
        self._turn = turn

    def _read(self, seq: Seq, fact: f.ItemKept) -> None:
        """What a reader makes of an item. One fact of several entries cannot bring one of them
        back, so their text is not let go."""
        told = told_by(seq, fact)
        for entry in told:
            self._give(seq, entry, seq if len(told) == 1 else 0)
            self._items.append(seq)
        self.counted = None if told else self.counted

    def _withdraw(self, fact: f.ItemsWithdrawn) -> None:
        gone = {seq for seq in self._items if fact.covers(seq)}
        self._items = [seq for seq in self._items if seq not in gone]
        if gone:
            self.counted = None
            self._gone.withdrawn |= gone
            for slot in self._slots:
                slot.withdrawn |= slot.entry.seq in gone

    def _start_turn(self, seq: Seq, fact: f.TurnStarted) -> None:
        if self._forked is not None and self._forked.origin == fact.origin:
            self._forked.outcome = (
                "interrupted"  # it is run again here, and is not told twice
            )
        if self._notes:
            for note in self._notes:
                self._slots.append(_Slot(seq, note, _TurnTold(answered=True)))
            self._notes = []
        self._turn = self._turns[seq] = _TurnTold(fact.origin)
        if isinstance(fact.origin, f.Takes):
            self._take(seq, fact.origin.input)
        else:
            self._continue(fact.origin.turn)

    def _continue(self, seq: Seq) -> None:
        """The prompt of a turn that is taken up again counts, and so does that of the turn it took
        up."""
        turn = self._turns.get(seq)
        while turn is not None and not turn.continued:
            turn.continued = True
            turn = (
                self._turns.get(turn.origin.turn)
                if isinstance(turn.origin, f.Continues)
                else None
            )

    def _take(self, at: Seq, taken: Seq) -> None:
        said = self._inputs.get(taken)
        if said is not None:
            # What one fact alone does not have cannot be let go.
            fact = 0 if taken in self._attached else taken
            self._add(at, said, _chars(said), None, fact)

    def _add(
        self,
        at: Seq,
        entry: Standing,
        chars: int,
        step: Seq | None = None,
        fact: Seq = 0,
    ) -> None:
        self._slots.append(_Slot(at, entry, self._turn, step, 0, None, fact))
        self._texts.chars += chars

    def _settle(self, seq: Seq, entry: Settled, step: Seq, fact: Seq = 0) -> None:
        """An outcome follows its answer and the other outcomes of it, also where another answer
        came in between: calls of an external runtime overlap."""
        answers = (slot for slot in reversed(self._slots) if slot.answer is None)
        answer = next((slot for slot in answers if slot.entry.seq == step), None)
        at = seq if answer is None else answer.at
        slot = _Slot(at, entry, self._turn, step, answer=answer, fact=fact)
        self._slots.insert(self._behind(answer), slot)
        self._texts.chars += _chars(entry)

    def _behind(self, answer: _Slot | None) -> int:
        """The place after an answer and the outcomes of it. A summary that was made meanwhile stays
        before it."""
        place = len(self._slots)
        while answer is not None:
            before = self._slots[place - 1]
            if kind_of(before.entry) not in (Said, Answered, Settled):
                break
            if before is answer or before.answer is answer:
                return place
            place -= 1
        return len(self._slots)

    def _start_session(self, seq: Seq) -> None:
        """In a fork, what was under way and what waited is the parent's."""
        self.counted = None
        if self._is_open():
            self._settle_open(seq)
            self._add(seq, Closed(seq, "interrupted", "forked"), 0)
            self._forked = self._turn
        self._turn = _TurnTold()
        taken = {
            slot.entry.seq for slot in self._slots if kind_of(slot.entry) is Said
        }
        self._inputs = {
            seq: said for seq, said in self._inputs.items() if seq in taken
        }

    def _settle_open(self, seq: Seq) -> None:
        """What came of a call that was open where a fork begins only its parent learns."""
        settled: set[str] = set()
        for slot in reversed(self._slots):
            if kind_of(slot.entry) is Answered:
                for call in _calls(slot.entry):
                    if call not in settled:
                        self._settle(
                            seq, Settled(seq, call, Unknown()), slot.entry.seq
                        )
                return
            settled.update(_calls(slot.entry))

    def _edit(
        self,
        seq: Seq,
        fact: f.Compacted
        | f.MessageHidden
        | f.MessageRedacted
        | f.Rewound
        | f.RewindWithdrawn,
    ) -> None:
        """The next request is not what the provider counted and some more."""
        self.counted = None
        match fact:
            case f.Compacted():
                said = Summarised(seq, fact.upto, fact.summary)
                slot = _Slot(seq, said, _TurnTold(answered=True))
                prompts = (
                    one for one in reversed(self._slots) if kind_of(one.entry) is Said
                )
                pinned = next(prompts, None) if self._is_open() else None
                without = self._gone.upto(fact.upto)
                self._summaries.made.append(_SummaryMade(slot, said, without, pinned))
                self._slots.append(slot)
            case f.MessageHidden():
                hidden = self._gone.hidden
                (hidden.add if fact.hidden else hidden.discard)(fact.target)
            case f.MessageRedacted():
                self._gone.redacted.add(fact.target)
            case f.Rewound():
                self._rewinds.add(seq, fact.to, self._slots, fact.to in self._turns)
            case f.RewindWithdrawn():
                self._rewinds.withdraw(fact.rewind)
            case unreachable:
                assert_never(unreachable)


def _said(seq: Seq, fact: f.InputAdmitted) -> Said:
    """Who spoke is told of what came from a chat, where several may, and of what a job says, which
    is not speech."""
    if not fact.chat and fact.source != JOB:
        return Said(seq, fact.parts, "", fact.quoted, fact.awaits)
    return Said(seq, fact.parts, fact.author or "", fact.quoted, fact.awaits)


def _sayable(fact: f.StepSealed) -> tuple[Content, ...]:
    """Calls of an answer that broke off or was cut never ran, so no provider may see them
    unpaired."""
    if fact.ended == "complete":
        return fact.parts
    return tuple(part for part in fact.parts if not isinstance(part, ToolCall))


def given(seq: Seq, fact: f.MessageGiven) -> Said | Answered | Settled:
    """A message that was given, as a model is told it."""
    match fact.role:
        case "user":
            return Said(seq, fact.parts)
        case "assistant":
            return Answered(seq, fact.parts, "complete")
        case "tool":
            return Settled(seq, fact.call or "", Returned(fact.parts))


def told_by(seq: Seq, fact: f.ItemKept) -> list[Said | Answered | Settled]:
    """What an item says, as a model is told it. Of what no reader knows it is told nothing."""
    told: list[Said | Answered | Settled] = []
    for one in read(fact):
        match one.role:
            case "user":
                told.append(Said(seq, one.parts))
            case "assistant":
                ended: f.StepEnding = "complete" if one.whole else "incomplete"
                told.append(Answered(seq, one.parts, ended))
            case "tool":
                outcome = Failed(one.parts) if one.failed else Returned(one.parts)
                told.append(Settled(seq, one.call or "", outcome))
            case "item":
                pass
            case unreachable:
                assert_never(unreachable)
    return told


def kind_of(entry: Standing) -> type[Struct]:
    return entry.kind if isinstance(entry, Weighed) else type(entry)


def restored(weighed: Weighed, fact: f.AnyFact) -> Entry:
    """The entry again, from the fact that has its text."""
    if isinstance(fact, f.InputAdmitted):
        return _said(weighed.seq, fact)
    if isinstance(fact, f.MessageGiven):
        return given(weighed.seq, fact)
    if isinstance(fact, f.ItemKept):
        [entry] = told_by(weighed.seq, fact)
        return entry
    if isinstance(fact, f.StepSealed):
        return Answered(weighed.seq, _sayable(fact), fact.ended)
    if isinstance(fact, f.ToolSettled):
        return Settled(weighed.seq, fact.call, fact.outcome)
    raise ValueError(f"fact {weighed.fact} has no text of an entry")


def _calls(entry: Standing) -> tuple[str, ...]:
    match entry:
        case Answered():
            return tuple(
                part.id for part in entry.parts if isinstance(part, ToolCall)
            )
        case Settled():
            return (entry.call,)
        case Weighed():
            return entry.calls
        case Said() | Closed() | Noted() | Summarised():
            return ()


def _chars(entry: Standing) -> int:
    match entry:
        case Said() | Answered():
            return chars_of(entry.parts)
        case Settled():
            return chars_of(outcome_parts(entry.outcome))
        case Closed() | Noted() | Summarised() | Weighed():
            return 0
