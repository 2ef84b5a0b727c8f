"""What may repeat a text that is taken out of the store: the person who has it removed is told
where else to look. Pure."""

import re
from collections.abc import Iterator
from typing import assert_never

from msgspec import Struct

from steno.engine.approval import rule_for
from steno.journal.facts import (
    ApprovalAsked,
    ApprovalDecided,
    Compacted,
    ContextSet,
    Distilled,
    FileKept,
    FilesPutBack,
    FilesSettled,
    FolderSet,
    GoalSet,
    HelperEnded,
    HelperStarted,
    InputFact,
    InterruptAsked,
    ItemKept,
    ItemsWithdrawn,
    MemoryRemoved,
    MessageHidden,
    MessageRedacted,
    ModeSet,
    OutsideFact,
    PlanUpdated,
    Record,
    RewindWithdrawn,
    Rewound,
    RuleSet,
    SessionRenamed,
    SessionStarted,
    SessionTitled,
    StepLost,
    StepSealed,
    StepStarted,
    ThreadBound,
    ThreadCompacted,
    ToolFact,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from steno.journal.parts import GONE, Seq
from steno.journal.state import State
from steno.journal.transcript import Message, Transcript
from steno.tools.builtin import DELEGATE_SPEC
from steno.tools.delegate import prompt_in

_WORD = re.compile(r"[\w.+/@:=-]{6,}")
"""What is shorter is in half of all texts."""


class Copy(Struct, frozen=True):
    session: str
    seq: Seq


class Redaction(Struct, frozen=True):
    """`at` is the fact that says so; `copies` were made of the text, or repeat a word of it;
    `helpers` are sessions that were given it or gave it; `threads` are those of external runtimes,
    with the runtime, that may have it."""

    at: Seq
    copies: tuple[Copy, ...]
    helpers: tuple[str, ...] = ()
    threads: tuple[tuple[str, str], ...] = ()


class Thread(Struct):
    """A thread that an external runtime keeps of the session: it was told nothing more from the
    fact `until` on."""

    runtime: str
    id: str
    until: Seq | None = None


class Texts:
    """Text of a session that is no message: `summaries` stand for everything up to a seq, `said_of`
    are the rules and goals that facts hold, `beside` the titles, reasons and details, `files` those
    that keep what a file held, each with the step and the call that changed it. `threads` are all
    that it ever had. `shared` is the last fact that a fork has from its parent."""

    def __init__(self) -> None:
        self.transcript = Transcript()
        self.summaries: dict[Seq, Seq] = {}
        self.distillates: set[Seq] = set()
        self.said_of: dict[Seq, str] = {}
        self.beside: dict[Seq, str] = {}
        self.files: dict[Seq, tuple[Seq, str]] = {}
        self.threads: list[Thread] = []
        self.shared: Seq = 0
        self._started: dict[Seq, tuple[Seq, str]] = {}
        self._state = State()

    def apply(self, record: Record) -> None:
        seq, fact = record.seq, record.fact
        self._state.apply(record)
        for thread in self.threads:
            if thread.until is None and not self._state.knows_all(
                thread.runtime, thread.id
            ):
                thread.until = seq
        match fact:
            case SessionStarted(forked_from=forked):
                self.shared = 0 if forked is None else forked.seq
            case ThreadBound(runtime=runtime, thread=id):
                self.threads.append(Thread(runtime, id))
            case ContextSet(goal=goal):
                if goal:
                    self.said_of[seq] = goal
            case StepLost(step=at, detail=text):
                self.beside[at] = text
            case (
                TurnEnded(detail=text)
                | HelperEnded(detail=text)
                | SessionRenamed(title=text)
            ):
                self.beside[seq] = text
            case ApprovalAsked(reason=text) | ApprovalDecided(reason=text):
                self.beside[seq] = text
            case Compacted(upto=upto, summary=text):
                if text != GONE:
                    self.summaries[seq] = upto
            case Distilled():
                self.distillates.add(seq)
            case RuleSet(rule=text) | GoalSet(goal=text) | ItemKept(json=text):
                self.said_of[seq] = text
            case ToolStarted(step=step, call=call):
                self._started[seq] = step, call
            case FileKept(started=started):
                self.files[seq] = self._started.get(started, (0, ""))
            case FilesPutBack() | FilesSettled() | ModeSet() | FolderSet():
                pass
            case (
                InputFact()
                | StepStarted()
                | StepSealed()
                | ToolFact()
                | PlanUpdated()
            ):
                pass  # messages, and what stands beside them: the transcript has their text
            case TurnStarted() | InterruptAsked() | UsageReported() | HelperStarted():
                pass
            case MessageHidden() | MessageRedacted() | Rewound() | RewindWithdrawn():
                pass
            case SessionTitled():
                pass  # it goes with each text that it was made of
            case (
                ThreadCompacted() | MemoryRemoved() | OutsideFact() | ItemsWithdrawn()
            ):
                pass
            case unreachable:
                assert_never(unreachable)

    def message(self, seq: Seq) -> Message | None:
        return next(
            (message for message in self.transcript.messages if message.seq == seq),
            None,
        )

    def copies_in(self, seq: Seq, other: "Texts") -> Iterator[Seq]:
        """Where a session that has the fact at `seq`, too, may repeat its text."""
        text, rules = self._removed(seq)
        words = set(_WORD.findall(text))
        yield from (
            at for at, upto in other.summaries.items() if upto >= seq and at != seq
        )
        yield from (
            at for at, said in other.said_of.items() if said in rules and at != seq
        )
        yield from (
            at
            for at, call in other.files.items()
            if at != seq and self._is_of(call, seq)
        )
        yield from (
            at
            for at, said in other.beside.items()
            if at != seq and not words.isdisjoint(_WORD.findall(said))
        )

    def _is_of(self, call: tuple[Seq, str], seq: Seq) -> bool:
        """Whether a call stands in the answer at `seq`, or its outcome does."""
        return call[0] == seq or self._started.get(seq) == call

    def delegated(self, seq: Seq) -> frozenset[str | None]:
        """The prompts that a message delegates, or is the outcome of; None for one that cannot be
        read any more."""
        message = self.message(seq)
        if message is None:
            return frozenset()
        of_turn = (
            call
            for one in self.transcript.messages
            if one.turn == message.turn
            for call in one.tool_calls
            if one is message or call.id == message.tool_call_id
        )
        return frozenset(
            prompt_in(call) for call in of_turn if call.name == DELEGATE_SPEC.name
        )

    def threads_with(self, seq: Seq) -> Iterator[tuple[str, str]]:
        """The threads, each with its runtime, that may have been told what stands at `seq`. A fork
        has its parent's."""
        yield from (
            (one.runtime, one.id)
            for one in self.threads
            if one.until is None or one.until > seq
        )

    def _removed(self, seq: Seq) -> tuple[str, set[str]]:
        """The text that goes, and the rules that were made of it."""
        message = self.message(seq)
        calls = () if message is None else message.tool_calls
        said = self.said_of.get(seq, "")
        texts = [
            "" if message is None else message.text,
            said,
            self.beside.get(seq, ""),
            *(call.arguments for call in calls),
        ]
        rules = {rule_for(call.name, call.arguments) for call in calls}
        return "\n".join(texts), rules | ({said} if said else set())
