"""One row per session for lists: what a person needs to find it again."""

from typing import assert_never

from msgspec import Struct, field

from steno.journal import facts as f
from steno.journal.debts import Owed, OwedDeliveries
from steno.journal.memory import SessionMemory
from steno.journal.parts import GONE, Content, Redacted, Seq, text_of
from steno.journal.readers import read
from steno.journal.usage import UsageTotal

TITLE_LEN_MAX = 80
DELEGATED = "delegate"
"""The platform of a session that another one delegated to."""
TITLE_TRIES_MAX = 2
"""Requests for a title in the life of a session, whatever came of them."""
HELPERS = frozenset((DELEGATED,))
"""Platforms of sessions that work for another one: what is worth keeping of them is told there."""
ONE_OFF = "http-once"
"""The platform of sessions that are for one request of a client which keeps the conversation
itself. Lists leave them out unless they are asked for, and nothing is distilled of them."""
ACCOUNT = "account"
"""The platform of the session that a channel's account has. Nothing is said in it, so no list has
it."""
JOBS = "jobs"
"""The platform of the sessions that have the facts of jobs. Nothing is said in them."""
JOB = "job"
"""The source of what jobs say, and the platform of sessions in which they run."""
UNSPOKEN = (ACCOUNT, JOBS)
"""Platforms of sessions in which nothing is ever said: no list has them."""
QUIET = frozenset((ONE_OFF, *UNSPOKEN))
"""Platforms of sessions that lists leave out."""


class ListingRow(Struct, omit_defaults=True):
    """`messages` counts what the transcript shows; `titled` is the fact that the title comes from.
    `usage` is of the session's own facts, and None in a row that an earlier steno began: then it is
    not known. `context` is how long the last request was with its answer, as far as the provider
    said. `waiting` are the inputs that wait to be taken, as runs of neighbours, first and last: a
    thousand that came in a row take no more room than two. `fallback` is the model that answered
    last, if that was not the session's own. `folder` is the one that the session belongs to."""

    platform: str = ""
    model: str = ""
    fallback: str = ""
    name: str | None = None
    forked_from: f.ForkPoint | None = None
    title: str = ""
    named: bool = False
    titled: Seq = 0
    proposed: Seq = 0
    """How far a helper had read that made the title; 0 if none did."""
    title_tries: int = 0
    created_ms: int = 0
    updated_ms: int = 0
    messages: int = 0
    turns: int = 0
    last_turn: f.TurnOutcome | None = None
    ended: str | None = None
    compacted: Seq = 0
    """The last fact with a summary; 0 if there is none."""
    usage: UsageTotal | None = None
    context: int | None = None
    owed: Owed = field(default_factory=Owed)
    deliveries: OwedDeliveries = field(default_factory=OwedDeliveries)
    waiting: list[tuple[Seq, Seq]] = []
    memory: SessionMemory = field(default_factory=SessionMemory)
    folder: str = ""
    asked: Seq = 0
    """The last question about a call in the open turn; 0 if there is none."""
    open: Seq = 0
    """The open turn; 0 if there is none."""
    items: Seq = 0
    """The last fact about what other programs keep in the session; 0 if there is none."""
    unseen: bool = False
    """Whether tools gave results that no answer came to, in the open turn or in one that was cut
    off."""

    def apply(self, record: f.Record) -> bool:
        """Take one fact in; whether the row changed."""
        seq, at_ms, fact = record.seq, record.at_ms, record.fact
        if self.usage is not None:
            self.usage.apply(record)
        match fact:
            case f.InputAdmitted():
                self.messages += 1
                self._wait(seq)
                self.ended = None
                self._entitle(seq, fact.parts)
            case f.MessageGiven():
                self.messages += 1
                self._entitle(seq, fact.parts if fact.role == "user" else ())
            case f.TurnStarted() | f.StepStarted():
                return self._run(record, fact)
            case f.StepSealed():
                self.messages += 1
                self.unseen = False
                self.context = _length(fact.usage)
            case f.StepLost() | f.ToolSettled() | f.Posted():
                self.messages += 1
                self.unseen |= isinstance(fact, f.ToolSettled)
            case f.TurnEnded():
                self.turns += 1
                self.last_turn, self.asked, self.open = fact.outcome, 0, 0
                self.unseen &= (
                    fact.outcome == "interrupted" and fact.cause not in f.STOPS
                )
                self.deliveries.apply(seq, at_ms, fact)
                self.memory.apply(seq, fact)
            case f.InputWithdrawn():
                self.deliveries.apply(seq, at_ms, fact)
                return self._wait_no_longer((fact.input,))
            case f.SessionStarted():
                self._start(record, fact)
            case f.ItemKept() | f.ItemsWithdrawn():
                self._keep(seq, fact)
            case f.SessionRenamed():
                self.title, self.named, self.titled, self.proposed = (
                    fact.title,
                    True,
                    seq,
                    0,
                )
            case f.SessionAttended():
                self.ended = None
                self.owed.apply(seq, fact)
            case f.SessionEnded():
                self.ended = fact.reason if self.owed.apply(seq, fact) else self.ended
            case f.HookFact():
                return self.owed.apply(seq, fact) or True
            case f.DeliveryFact():
                return self.deliveries.apply(seq, at_ms, fact)
            case f.ContextSet():
                self.model, self.fallback = (
                    fact.own_model,
                    fact.model if fact.instead_of else "",
                )
                self.memory.apply(seq, fact)
            case f.Compacted():
                self.compacted, self.context = seq, None
            case f.HelperEnded() | f.UsageReported():
                return self.usage is not None
            case f.HelperStarted() | f.SessionTitled():
                return self._ask_or_entitle(seq, fact)
            case f.Distilled() | f.MemoryRemoved() | f.MessageHidden() | f.Rewound():
                return self.memory.apply(seq, fact)
            case f.ToolStarted() | f.OutputLate() | f.InputFact() | f.AccountFact():
                return False
            case f.ApprovalAsked() | f.FolderSet():
                return self._note(seq, fact)
            case f.InterruptAsked() | f.GoalSet() | f.ApprovalFact() | f.JobFact():
                return False
            case (
                f.ThreadFact()
                | f.MessageRedacted()
                | f.RewindWithdrawn()
                | f.FileFact()
            ):
                return False
            case unreachable:
                assert_never(unreachable)
        self.updated_ms = at_ms
        return True

    def _entitle(self, seq: Seq, said: tuple[Content, ...]) -> None:
        if not self.title and not self.named and (title := title_of(said)):
            self.title, self.titled = title, seq

    def _ask_or_entitle(
        self, seq: Seq, fact: f.HelperStarted | f.SessionTitled
    ) -> bool:
        if isinstance(fact, f.HelperStarted):
            asked = fact.purpose == "title"
            self.title_tries += asked
            return asked or self.memory.apply(seq, fact)
        if not self.named:
            self.title, self.titled = fact.title, seq
            self.proposed = 0 if fact.title == GONE else fact.upto
        return not self.named

    def _keep(self, seq: Seq, fact: f.ItemKept | f.ItemsWithdrawn) -> None:
        self.items = seq
        for one in read(fact) if isinstance(fact, f.ItemKept) else ():
            self.messages += 1
            self._entitle(seq, one.parts if one.role == "user" else ())

    def _run(self, record: f.Record, fact: f.TurnStarted | f.StepStarted) -> bool:
        began = isinstance(fact, f.TurnStarted)
        self.open = record.seq if began else self.open
        delivered = self.deliveries.apply(record.seq, record.at_ms, fact)
        return self._wait_no_longer(f.taken_by(fact)) or delivered or began

    def _note(self, seq: Seq, fact: f.ApprovalAsked | f.FolderSet) -> bool:
        if isinstance(fact, f.ApprovalAsked):
            self.asked = seq
        else:
            self.folder = fact.folder
        return True

    def _start(self, record: f.Record, fact: f.SessionStarted) -> None:
        self.platform, self.name, self.forked_from = (
            fact.platform,
            fact.name,
            fact.forked_from,
        )
        self.model, self.fallback = fact.model or self.model, ""
        self.folder = fact.folder or self.folder
        self.created_ms = record.at_ms
        self.usage, self.context = UsageTotal(), None
        self.owed, self.deliveries, self.ended = Owed(), OwedDeliveries(), None
        self.waiting, self.asked, self.open, self.unseen = [], 0, 0, False
        self.memory = SessionMemory(
            upto=0 if fact.forked_from is None else record.seq
        )

    @property
    def pending(self) -> list[Seq]:
        return [seq for first, last in self.waiting for seq in range(first, last + 1)]

    def waits(self, input: Seq) -> bool:
        return any(first <= input <= last for first, last in self.waiting)

    def _wait(self, input: Seq) -> None:
        if self.waiting and self.waiting[-1][1] == input - 1:
            self.waiting[-1] = (self.waiting[-1][0], input)
        else:
            self.waiting.append((input, input))

    def _wait_no_longer(self, inputs: tuple[Seq, ...]) -> bool:
        taken = [input for input in inputs if self.waits(input)]
        for input in taken:
            self.waiting = [
                left for run in self.waiting for left in _without(run, input)
            ]
        return bool(taken)

    def owes(self) -> bool:
        """Whether something must still reach the outside."""
        return self.owed.anything() or bool(self.deliveries.open)

    def unfinished(self) -> bool:
        """Whether a process that starts has something to run here: inputs wait, a turn is open, or
        one was cut off after tools gave results."""
        return bool(self.waiting) or self.open > 0 or self.unseen

    def wants_title(self) -> bool:
        """Whether a helper may be asked for a title: something was answered, and neither a person
        nor a helper gave one."""
        return (
            self.last_turn == "done"
            and not (self.named or self.proposed or self.open)
            and self.title_tries < TITLE_TRIES_MAX
            and self.platform not in HELPERS | QUIET
        )

    def due(self) -> bool:
        """Whether enough was said since the last distillate that another one should be made,
        unasked."""
        return self.platform not in HELPERS | {ONE_OFF} and self.memory.due()


def _length(used: f.Usage | None) -> int | None:
    """How long a request was with its answer, as far as the provider said."""
    if used is None or used.input is None:
        return None
    return used.input + (used.output or 0)


def _without(run: tuple[Seq, Seq], input: Seq) -> list[tuple[Seq, Seq]]:
    first, last = run
    if not first <= input <= last:
        return [run]
    return [(a, b) for a, b in ((first, input - 1), (input + 1, last)) if a <= b]


def titles(fact: f.AnyFact) -> tuple[Content, ...]:
    """What a title can be taken from."""
    if isinstance(fact, f.ItemKept):
        return next((one.parts for one in read(fact) if one.role == "user"), ())
    return fact.parts if isinstance(fact, f.InputAdmitted | f.MessageGiven) else ()


def title_of(parts: tuple[Content, ...]) -> str:
    """The first line that was said; where it was redacted, a word that says so."""
    line = next(
        (line.strip() for line in text_of(parts).splitlines() if line.strip()), ""
    )
    if not line and any(isinstance(part, Redacted) for part in parts):
        return GONE
    return (
        line
        if len(line) <= TITLE_LEN_MAX
        else line[: TITLE_LEN_MAX - 1].rstrip() + "…"
    )


# --- which sessions work for another one, by what they say themselves

_BY_SESSION = "session:"


def author(parent: str) -> str:
    """Who says the first thing in a child's session."""
    return f"{_BY_SESSION}{parent}"


def parent_in(said: f.InputAdmitted) -> str | None:
    """The session that delegated, if one did."""
    by = said.author or ""
    return (
        by.removeprefix(_BY_SESSION)
        if said.source == DELEGATED and by.startswith(_BY_SESSION)
        else None
    )
