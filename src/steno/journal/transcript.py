"""The view for people: every message ever said, in order, whatever a model still sees of it.

A message keeps one address for life: an input's own seq, the seq of the step that streams an
answer, the seq at which a tool started. Those are the addresses of live streams too.
"""

from collections.abc import Iterable
from typing import Literal, assert_never

from msgspec import Struct

from steno.journal import facts as f
from steno.journal.drafts import Draft
from steno.journal.listing import title_of
from steno.journal.parts import (
    Content,
    Failed,
    File,
    Image,
    Interrupted,
    Opaque,
    Outcome,
    Redacted,
    Refused,
    Returned,
    Seq,
    Text,
    ToolCall,
    Unknown,
    outcome_parts,
)
from steno.journal.readers import read

Role = Literal["user", "assistant", "tool", "notice"]
MessageState = Literal[
    "pending",
    "streaming",
    "complete",
    "incomplete",
    "interrupted",
    "lost",
    "failed",
    "withdrawn",
    "given",
]
"""given: said elsewhere, as a client told it."""


class Message(Struct):
    """`seq` is its address, `end` the last fact that is part of it. `changed`: its author edited or
    deleted it in their chat since; `edited` is what it says there now."""

    seq: Seq
    end: Seq
    at_ms: int
    role: Role
    parts: tuple[Content, ...]
    state: MessageState
    turn: Seq | None = None
    tool_call_id: str | None = None
    hidden: bool = False
    author: str | None = None
    changed: Literal["", "edited", "deleted"] = ""
    edited: str = ""

    @property
    def text(self) -> str:
        return "".join(shown_text(part) for part in self.parts)

    @property
    def attachments(self) -> tuple[Image | File, ...]:
        """Bytes beside the text: what a person sent along, what a tool gave back."""
        return tuple(part for part in self.parts if isinstance(part, Image | File))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


class Turn(Struct):
    """`outcome` is None while it runs."""

    seq: Seq
    outcome: f.TurnOutcome | None = None
    cause: str = ""
    detail: str = ""


class Transcript(Struct):
    """`plan` is the last one that an external runtime told."""

    title: str = ""
    turns: list[Turn] = []
    messages: list[Message] = []
    _inputs: dict[Seq, Message] = {}
    _taken: list[Message] = []
    _sealed: bool = False
    _calls: dict[Seq, str] = {}
    _hidden: set[Seq] = set()
    _named: bool = False
    _items: set[Seq] = set()
    plan: f.PlanUpdated | None = None

    def apply(self, record: f.Record) -> None:
        fact = record.fact
        match fact:
            case f.InputAdmitted():
                said = Message(
                    record.seq,
                    record.seq,
                    record.at_ms,
                    "user",
                    fact.parts,
                    "pending",
                )
                said.author = fact.author
                self._inputs[record.seq] = said
                self.messages.append(said)
                self.title = (
                    self.title if self.title or self._named else title_of(fact.parts)
                )
            case f.TurnStarted():
                self._start_turn(record.seq, fact)
            case f.StepStarted():
                for seq in fact.takes:
                    self._take(seq)
            case f.StepSealed():
                state: MessageState = (
                    "complete" if fact.ended == "length" else fact.ended
                )
                self._say(record, fact.step, "assistant", fact.parts, state)
                self._sealed = True
            case f.StepLost():
                self._say(record, fact.step, "assistant", (), "lost")
            case f.ToolStarted():
                self._calls[record.seq] = fact.call
            case f.ToolSettled():
                self._settle(record, fact)
            case f.TurnEnded():
                self._end_turn(fact)
            case f.MessageGiven():
                seq, role = record.seq, fact.role
                self._place(
                    Message(
                        seq,
                        seq,
                        record.at_ms,
                        role,
                        fact.parts,
                        "given",
                        None,
                        fact.call,
                    )
                )
                if role == "user" and not self.title and not self._named:
                    self.title = title_of(fact.parts)
            case f.SessionStarted():
                self._start_session()
            case f.InputWithdrawn():
                self._withdraw(fact.input)
            case f.InputEdited() | f.InputDeleted():
                self._change(fact)
            case f.AttachmentSettled():
                self._attach(fact)
            case f.Posted():
                self._say(
                    record, record.seq, "notice", (Text(fact.text),), "complete"
                )
            case f.SessionRenamed():
                self.title, self._named = fact.title, True
            case f.SessionTitled():
                self.title = self.title if self._named else fact.title
            case f.PlanUpdated():
                self.plan = fact
            case f.MessageHidden():
                (self._hidden.add if fact.hidden else self._hidden.discard)(
                    fact.target
                )
                for message in self.messages:
                    if message.seq == fact.target:
                        message.hidden = fact.hidden
            case (
                f.UsageReported()
                | f.OutputLate()
                | f.InterruptAsked()
                | f.ApprovalFact()
            ):
                pass
            case f.FileFact():
                pass
            case f.ContextFact() | f.HelperFact() | f.MemoryFact() | f.OutsideFact():
                pass
            case (
                f.ThreadBound()
                | f.ThreadCompacted()
                | f.Compacted()
                | f.MessageRedacted()
            ):
                pass
            case f.ItemKept():
                self._read(record, fact)
            case f.ItemsWithdrawn():
                self._withdraw_items(fact)
            case (
                f.Rewound() | f.RewindWithdrawn()
            ):  # people still read what a model is not told
                pass
            case unreachable:
                assert_never(unreachable)

    def show_drafts(self, drafts: Iterable[Draft]) -> None:
        """Add what is being streamed at this moment, in the place it will be sealed in."""
        for draft in drafts:
            if draft.stream.kind == "reasoning" or not draft.text:
                continue
            role: Role = "tool" if draft.stream.kind == "output" else "assistant"
            seq = draft.stream.started
            shown = Message(
                seq, seq, 0, role, (Text(draft.text),), "streaming", self._open_turn()
            )
            shown.tool_call_id, shown.hidden = (
                self._calls.get(seq),
                seq in self._hidden,
            )
            self._place(shown)

    def _start_turn(self, seq: Seq, fact: f.TurnStarted) -> None:
        self.turns.append(Turn(seq))
        self._taken, self._sealed = [], False
        self._calls.clear()
        match fact.origin:
            case f.Takes():
                self._take(fact.origin.input)
            case f.Continues():
                pass

    def _take(self, seq: Seq) -> None:
        said = self._inputs.get(seq)
        if said is not None:
            if said.state == "pending":
                self._to_front(said)
            said.turn, said.state = self._open_turn(), "complete"
            self._taken.append(said)

    def _withdraw(self, seq: Seq) -> None:
        said = self._inputs.get(seq)
        if said is not None and said.state == "pending":
            said.state = "withdrawn"
            self.messages = [
                message for message in self.messages if message is not said
            ]
            self._place(said)

    def _read(self, record: f.Record, fact: f.ItemKept) -> None:
        """What a reader of its format makes of an item. It is part of no turn."""
        for one in read(fact):
            role: Role = "notice" if one.role == "item" else one.role
            state: MessageState = (
                "failed" if one.failed else "complete" if one.whole else "incomplete"
            )
            seq = record.seq
            said = Message(
                seq, seq, record.at_ms, role, one.parts, state, None, one.call
            )
            said.hidden = seq in self._hidden
            self._place(said)
            self._items.add(seq)
            if role == "user" and not self.title and not self._named:
                self.title = title_of(one.parts)

    def _withdraw_items(self, fact: f.ItemsWithdrawn) -> None:
        for message in self.messages:
            if message.seq in self._items and fact.covers(message.seq):
                message.state = "withdrawn"

    def _attach(self, fact: f.AttachmentSettled) -> None:
        said = self._inputs.get(fact.input)
        if said is not None:
            said.parts = (*fact.parts, *said.parts)

    def _change(self, fact: f.InputEdited | f.InputDeleted) -> None:
        """What was said stays as it was; that it was changed in its chat is shown beside it."""
        said = self._inputs.get(fact.input)
        if said is not None:
            edited = isinstance(fact, f.InputEdited)
            said.changed = "edited" if edited else "deleted"
            said.edited = fact.text if isinstance(fact, f.InputEdited) else ""

    def _to_front(self, said: Message) -> None:
        """An input that waits no longer stands before those that still do."""
        first = self._waiting()
        if self.messages[first] is not said:
            at = next(
                i
                for i in range(first, len(self.messages))
                if self.messages[i] is said
            )
            self.messages.insert(first, self.messages.pop(at))

    def _settle(self, record: f.Record, fact: f.ToolSettled) -> None:
        seq = record.seq if fact.started is None else fact.started
        self._say(
            record,
            seq,
            "tool",
            outcome_text(fact.outcome),
            _settled_state(fact.outcome),
            fact.call,
        )
        self._calls.pop(seq, None)

    def _end_turn(self, fact: f.TurnEnded) -> None:
        for turn in reversed(self.turns):
            if turn.seq == fact.turn:
                turn.outcome, turn.cause, turn.detail = (
                    fact.outcome,
                    fact.cause,
                    fact.detail,
                )
                break
        if fact.outcome == "failed" or (
            fact.outcome == "interrupted" and not self._sealed
        ):
            for said in self._taken:
                said.state = fact.outcome
        self._taken = []

    def _start_session(self) -> None:
        """In a fork the inputs that wait are the parent's, and so is a turn under way."""
        taken = {
            seq: said for seq, said in self._inputs.items() if said.state != "pending"
        }
        self._inputs = taken
        if self.turns and self.turns[-1].outcome is None:
            self.turns[-1].outcome, self.turns[-1].cause = "interrupted", "forked"

    def _say(
        self,
        record: f.Record,
        seq: Seq,
        role: Role,
        parts: tuple[Content, ...],
        state: MessageState,
        call: str | None = None,
    ) -> None:
        said = Message(
            seq, record.seq, record.at_ms, role, parts, state, self._open_turn(), call
        )
        said.hidden = seq in self._hidden
        self._place(said)

    def _place(self, said: Message) -> None:
        """In order of address, and before inputs that still wait: those belong to a later turn."""
        at = self._waiting()
        while at and self.messages[at - 1].seq > said.seq:
            at -= 1
        self.messages.insert(at, said)

    def _waiting(self) -> int:
        """Where the inputs begin that wait to be taken: they stand last."""
        at = len(self.messages)
        while (
            at
            and self.messages[at - 1].state == "pending"
            and self.messages[at - 1].seq in self._inputs
        ):
            at -= 1
        return at

    def _open_turn(self) -> Seq | None:
        return self.turns[-1].seq if self.turns else None


def outcome_text(outcome: Outcome) -> tuple[Content, ...]:
    """What a person reads of a tool's outcome."""
    match outcome:
        case Refused():
            return (Text(outcome.reason),)
        case _:
            return outcome_parts(outcome)


def _settled_state(outcome: Outcome) -> MessageState:
    match outcome:
        case Returned():
            return "complete"
        case Failed() | Refused():
            return "failed"
        case Interrupted() | Unknown():
            return "interrupted"


def shown_text(part: Content) -> str:
    match part:
        case Text():
            return part.text
        case Redacted():
            return f"[{part.chars} characters redacted]"
        case Opaque():
            return f"[{part.runtime} item {part.kind}: {part.json}]"
        case _:
            return ""
