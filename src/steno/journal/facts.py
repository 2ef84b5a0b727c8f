"""The facts: everything that can happen in a session, each a frozen, tagged value in the past
tense.

Rules that hold for every fact:

- A fact stands in exactly one session, at one seq, and is never changed (redaction replaces text,
  keeps the fact).
- It says what happened, not what to do. A new meaning is a new tag; a field may be added only with
  a default.
- Turns, steps, inputs and messages have no ids of their own: they are addressed by the seq of the
  fact that began them. One turn is open at a time, so turn facts without an address belong to the
  open turn.
- `TurnFact` may be written only by the holder of the session's lease. `FreeFact` may be added by
  every process.
- Most facts belong to a group, which is their base class. A fold that has no use for any fact of a
  group names the group. So a new fact of no group, or one that a fold may care about, is a type
  error in each fold until that fold says what it means there.

Facts about deliveries, plugins, accounts, jobs and memory are declared in `fact_kinds`.
docs/reference/journal-format.md describes each tag for readers in other languages.
"""

from typing import Literal, get_args

from msgspec import Struct

from steno.journal.fact_kinds.account import AccountFact as AccountFact
from steno.journal.fact_kinds.account import AccountRead as AccountRead
from steno.journal.fact_kinds.account import AnyAccountFact as AnyAccountFact
from steno.journal.fact_kinds.account import ChatBound as ChatBound
from steno.journal.fact_kinds.account import CodeGiven as CodeGiven
from steno.journal.fact_kinds.account import CodeMissed as CodeMissed
from steno.journal.fact_kinds.account import CommandDone as CommandDone
from steno.journal.fact_kinds.account import CommandGiven as CommandGiven
from steno.journal.fact_kinds.account import PersonPaired as PersonPaired
from steno.journal.fact_kinds.account import PersonRemoved as PersonRemoved
from steno.journal.fact_kinds.account import QuestionPut as QuestionPut
from steno.journal.fact_kinds.account import Rank as Rank
from steno.journal.fact_kinds.account import SenderRefused as SenderRefused
from steno.journal.fact_kinds.base import Fact as Fact
from steno.journal.fact_kinds.base import OutsideFact as OutsideFact
from steno.journal.fact_kinds.job import AnyJobFact as AnyJobFact
from steno.journal.fact_kinds.job import At as At
from steno.journal.fact_kinds.job import Cron as Cron
from steno.journal.fact_kinds.job import Every as Every
from steno.journal.fact_kinds.job import JobAsked as JobAsked
from steno.journal.fact_kinds.job import JobDue as JobDue
from steno.journal.fact_kinds.job import JobEnded as JobEnded
from steno.journal.fact_kinds.job import JobFact as JobFact
from steno.journal.fact_kinds.job import JobOutcome as JobOutcome
from steno.journal.fact_kinds.job import JobPaused as JobPaused
from steno.journal.fact_kinds.job import JobRemoved as JobRemoved
from steno.journal.fact_kinds.job import JobResumed as JobResumed
from steno.journal.fact_kinds.job import JobSet as JobSet
from steno.journal.fact_kinds.job import JobSkipped as JobSkipped
from steno.journal.fact_kinds.job import JobTold as JobTold
from steno.journal.fact_kinds.job import Schedule as Schedule
from steno.journal.fact_kinds.memory import Distilled as Distilled
from steno.journal.fact_kinds.memory import Item as Item
from steno.journal.fact_kinds.memory import ItemAt as ItemAt
from steno.journal.fact_kinds.memory import MemoryFact as MemoryFact
from steno.journal.fact_kinds.memory import MemoryRemoved as MemoryRemoved
from steno.journal.fact_kinds.memory import SessionTitled as SessionTitled
from steno.journal.fact_kinds.outside import Delivered as Delivered
from steno.journal.fact_kinds.outside import DeliveryAttempted as DeliveryAttempted
from steno.journal.fact_kinds.outside import DeliveryExpired as DeliveryExpired
from steno.journal.fact_kinds.outside import DeliveryFact as DeliveryFact
from steno.journal.fact_kinds.outside import DeliveryOwed as DeliveryOwed
from steno.journal.fact_kinds.outside import DeliveryPlaced as DeliveryPlaced
from steno.journal.fact_kinds.outside import DeliveryRefused as DeliveryRefused
from steno.journal.fact_kinds.outside import DeliverySettled as DeliverySettled
from steno.journal.fact_kinds.outside import HookAttempted as HookAttempted
from steno.journal.fact_kinds.outside import HookDone as HookDone
from steno.journal.fact_kinds.outside import HookFact as HookFact
from steno.journal.fact_kinds.outside import HookOwed as HookOwed
from steno.journal.fact_kinds.outside import Posted as Posted
from steno.journal.parts import (
    Content,
    File,
    Hash,
    Image,
    Outcome,
    Seq,
    outcome_parts,
)

# --- the session ----------------------------------------------------------------------------------


class ForkPoint(Fact, frozen=True):
    session: str
    seq: Seq


class SessionStarted(Fact, frozen=True, tag="session.started"):
    """Always the first fact of a session's own. In a fork, everything up to `forked_from` is the
    parent's. `folder` is where its tools work; "" if it belongs to none."""

    platform: str
    model: str = ""
    name: str | None = None
    forked_from: ForkPoint | None = None
    folder: str = ""


class SessionRenamed(Fact, frozen=True, tag="session.renamed"):
    title: str


class VisitFact(OutsideFact, frozen=True):
    """Who has the session open."""


class SessionAttended(VisitFact, frozen=True, tag="session.attended"):
    """A front end opened the session: a visit, until a `session.ended` names it. `by` is the owner
    of the visitor's store, which dies with its process: then another process ends the visit."""

    by: str
    platform: str


class SessionEnded(VisitFact, frozen=True, tag="session.ended"):
    """A visit is over. It is the end of the session unless other visits are open. A later visit,
    input or turn resumes the session; there is no fact for that.

    `attended` is the visit that is over; `last_turn` is how the last turn had ended, or will be
    closed by recovery.
    """

    reason: str
    last_turn: Literal["none", "done", "interrupted", "failed"] = "none"
    attended: Seq | None = None


# --- inputs and turns -----------------------------------------------------------------------------


class InputFact(Fact, frozen=True):
    """What was said to the session, or given to it when it began."""


class Label(Fact, frozen=True):
    """Something that a client wants to read again beside its input. It means nothing here."""

    name: str
    value: str


class AwaitedFile(Fact, frozen=True):
    """A file that came with an input and is fetched later; `id` is the platform's."""

    id: str
    name: str = ""
    media_type: str = ""
    size: int | None = None


class InputAdmitted(InputFact, frozen=True, tag="input.admitted"):
    """An input arrived. It is pending until a turn or a step takes it. `instructions` shape the
    requests from then on, until others come; None leaves them as they are, "" takes them away.

    `author` is who spoke, `chat` where, and `quoted` what they answered to or passed on: words of
    others, told to a model as such. `awaits` are files that are fetched before it is answered.
    """

    parts: tuple[Content, ...]
    source: str
    key: str | None = None
    author: str | None = None
    mode: Literal["queue", "steer"] = "queue"
    instructions: str | None = None
    labels: tuple[Label, ...] = ()
    chat: str = ""
    quoted: str = ""
    awaits: tuple[AwaitedFile, ...] = ()


class InputWithdrawn(InputFact, frozen=True, tag="input.withdrawn"):
    """An input was taken back while it was pending. No turn takes it any more; people still read
    it."""

    input: Seq
    by: str = "user"


class MessageGiven(InputFact, frozen=True, tag="message.given"):
    """A client says what was said elsewhere, before the session began. Nothing of it was said to
    this session or generated in it, but a model is told it as it was given. `call` is the call that
    a message of a tool is the outcome of."""

    role: Literal["user", "assistant", "tool"]
    parts: tuple[Content, ...]
    call: str | None = None


class AttachmentSettled(InputFact, frozen=True, tag="attachment.settled"):
    """A file that an input awaited is here, as a part; or it could not be fetched, because of
    `cause`."""

    input: Seq
    file: str
    parts: tuple[Content, ...] = ()
    cause: str = ""


class InputEdited(InputFact, frozen=True, tag="input.edited"):
    """Who said the input at `input` changed it in their chat afterwards. What was said stays; a
    model is told of the change with the next request."""

    input: Seq
    text: str
    by: str = ""


class InputDeleted(InputFact, frozen=True, tag="input.deleted"):
    """Who said the input at `input` deleted it in their chat. It stays here."""

    input: Seq
    by: str = ""


class Takes(Fact, frozen=True, tag="takes"):
    input: Seq


class Continues(Fact, frozen=True, tag="continues"):
    turn: Seq


class TurnStarted(Fact, frozen=True, tag="turn.started"):
    origin: Takes | Continues


TurnOutcome = Literal["done", "interrupted", "failed"]
STOPS = frozenset(("user",))
"""Causes that are a person's wish. Nothing takes up what a person stopped."""


class TurnEnded(Fact, frozen=True, tag="turn.ended"):
    """`cause` is a short stable word (user, killed, lease_lost, provider, budget …); `detail` is
    for people."""

    turn: Seq
    outcome: TurnOutcome
    cause: str = ""
    detail: str = ""


class InterruptAsked(Fact, frozen=True, tag="interrupt.asked"):
    """Names the turn it means, so that it can never stop a later one; or a helper call that runs
    outside any turn."""

    turn: Seq
    by: str = "user"


# --- what shapes a request ------------------------------------------------------------------------


class ToolSpec(Fact, frozen=True):
    """`schema` is JSON text, kept as written so that the request's bytes can be rebuilt."""

    name: str
    description: str
    schema: str
    repeat: Literal["never", "safe"] = "never"


class ContextFact(Fact, frozen=True):
    """What shapes every later request."""


class ContextSet(ContextFact, frozen=True, tag="context.set"):
    """Holds for every later request until the next one: the whole context, not a difference.
    `recalled` says where each of the memories came from. `instead_of` is the session's own model
    where a fallback answers in its place, for the rest of one turn. `instructions` are those that
    came with an input. `folder` is where tools work, `guidance` what its files say to those who
    work there, and `surroundings` what was found there when this was stored: date, system, git."""

    model: str
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    memories: tuple[str, ...] = ()
    recalled: tuple[ItemAt, ...] = ()
    goal: str = ""
    instead_of: str = ""
    instructions: str = ""
    folder: str = ""
    guidance: str = ""
    surroundings: str = ""

    @property
    def own_model(self) -> str:
        """The model that was chosen for the session."""
        return self.instead_of or self.model


class GoalSet(ContextFact, frozen=True, tag="goal.set"):
    """What this session is for, in a person's words, until the next one; "" is no goal. The next
    request's context tells a model."""

    goal: str
    by: str = "user"


class FolderSet(ContextFact, frozen=True, tag="folder.set"):
    """The session belongs to another folder from here on: its tools work there."""

    folder: str
    by: str = "user"


# --- steps ----------------------------------------------------------------------------------------


class StepFact(Fact, frozen=True):
    """A request to the model and its answer."""


class StepStarted(StepFact, frozen=True, tag="step.started"):
    """A request is about to be sent. `digest` is of its bytes; `takes` are inputs that steer from
    here on.

    `acknowledges` is the key of an automatic continuation that this request carries out. The
    acknowledgement stands unless the step is lost: a `StepLost` withdraws it.
    """

    model: str
    digest: str = ""
    attempt: int = 1
    takes: tuple[Seq, ...] = ()
    acknowledges: str | None = None


class Usage(Fact, frozen=True):
    """Token counts as the provider reported them; None is unknown, which is not 0."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    reasoning: int | None = None


StepEnding = Literal["complete", "length", "incomplete", "interrupted"]


class StepSealed(StepFact, frozen=True, tag="step.sealed"):
    """The answer to a request, with its tool calls in place. Seals the drafts of `step`.

    `ended`: complete (the provider said so), length (cut at a token limit), incomplete (the stream
    broke off), interrupted (stopped by us, or our process died). `shown` is what was shown where
    that differs from `parts`.
    """

    step: Seq
    parts: tuple[Content, ...]
    ended: StepEnding = "complete"
    usage: Usage | None = None
    shown: tuple[Content, ...] | None = None


class UsageReported(StepFact, frozen=True, tag="usage.reported"):
    """What an answer cost, told after it was sealed."""

    step: Seq
    usage: Usage


class StepLost(StepFact, frozen=True, tag="step.lost"):
    """A request of which nothing came back. `sent` says whether the provider may have received it,
    `wait_ms` how long it asked us to wait before another attempt."""

    step: Seq
    cause: str
    sent: Literal["yes", "no", "unknown"]
    detail: str = ""
    wait_ms: int | None = None


CUT_OFF = frozenset(("killed", "store_full", "store_locked", "store_unwritable"))
"""Causes that recovery gives: the runner of the turn was gone, or could not store any more."""


# --- tools ----------------------------------------------------------------------------------------


class ToolFact(Fact, frozen=True):
    """A tool that runs, and what it gives back."""


class ToolStarted(ToolFact, frozen=True, tag="tool.started"):
    """Stored before the tool runs. `group` is the process group to end if we die meanwhile."""

    step: Seq
    call: str
    group: int | None = None
    repeat: Literal["never", "safe"] = "never"


class ToolSettled(ToolFact, frozen=True, tag="tool.settled"):
    """The outcome of one call. `started` is None for a call that never ran. Seals the draft of
    `started`. `shown` is what was shown where that differs from the outcome."""

    step: Seq
    call: str
    outcome: Outcome
    started: Seq | None = None
    shown: tuple[Content, ...] | None = None


class OutputLate(ToolFact, frozen=True, tag="output.late"):
    """Output of a call that came after its outcome was stored. It was never shown with it."""

    started: Seq
    text: str


class ApprovalFact(Fact, frozen=True):
    """Which calls may run."""


class ApprovalAsked(ApprovalFact, frozen=True, tag="approval.asked"):
    """`leaves` is True if a yes also covers running the call outside the sandbox that its runtime
    keeps it in."""

    step: Seq
    call: str
    reason: str = ""
    leaves: bool = False


class ApprovalDecided(ApprovalFact, frozen=True, tag="approval.decided"):
    asked: Seq
    decision: Literal["allow", "deny"]
    by: str
    reason: str = ""


class RuleSet(ApprovalFact, frozen=True, tag="rule.set"):
    """Which calls of this session may run: `rule` is a tool, or a tool and a pattern. It holds
    until the next fact about the same rule; the verdict None takes it back. From `until_ms` on it
    is as if it were not there; 0: it does not end by itself."""

    rule: str
    verdict: Literal["allow", "ask", "deny"] | None
    by: str = "user"
    until_ms: int = 0


Mode = Literal["ask", "edits", "plan", "everything"]


class ModeSet(ApprovalFact, frozen=True, tag="mode.set"):
    """What runs without asking, until the next one. `ask`: what only reads. `edits`: changes of
    files in the folder, too. `plan`: nothing but what only reads runs at all. `everything`: all
    that no rule denies."""

    mode: Mode
    by: str = "user"


# --- files that were changed ----------------------------------------------------------------------


class FileVersions(Fact, frozen=True):
    """A file of the session's folder before and after a change, by the hash of its content; None
    where there is no file."""

    path: str
    before: Hash | None
    after: Hash | None


class FileFact(Fact, frozen=True):
    """Files that were changed, and put back."""


class FileKept(FileFact, frozen=True, tag="file.kept"):
    """The call that began at `started` is about to put `after` in the place of `before`. Stored,
    with both contents, before the file is touched: after a kill it holds one or the other."""

    started: Seq
    file: FileVersions


class FilesPutBack(FileFact, frozen=True, tag="files.put_back"):
    """Each of `files` is about to be changed once more, to what it held earlier: what was changed
    from the turn at `turn` on is undone, or with `takes_back` an earlier undo is. Stored before the
    first is touched; `files.settled` says that all were."""

    files: tuple[FileVersions, ...]
    turn: Seq = 0
    takes_back: Seq = 0


class FilesSettled(FileFact, frozen=True, tag="files.settled"):
    """What came of putting files back. Those in `left` had been changed by others, and were
    not touched."""

    put_back: Seq
    left: tuple[str, ...] = ()


# --- threads of external runtimes -----------------------------------------------------------------


class ThreadFact(Fact, frozen=True):
    """What an external runtime keeps for the session, and what it plans."""


class ThreadBound(ThreadFact, frozen=True, tag="thread.bound"):
    """An external runtime keeps a thread of its own for this session. It knows everything said
    before this fact."""

    runtime: str
    thread: str


class ThreadCompacted(ThreadFact, frozen=True, tag="thread.compacted"):
    """An external runtime made its own thread shorter. What it put in the place of what was said
    only it knows; the history is as it was."""

    runtime: str
    thread: str


class PlanStep(Fact, frozen=True):
    """`status` is the runtime's own word for how far it is."""

    step: str
    status: str


class PlanUpdated(ThreadFact, frozen=True, tag="plan.updated"):
    """What an external runtime says it will do, the whole plan each time."""

    steps: tuple[PlanStep, ...]
    explanation: str = ""

    def title(self) -> str:
        return f"plan: {self.explanation}" if self.explanation else "plan"

    def lines(self) -> list[str]:
        """The steps as a person reads them. A status that has no sign is said in its own word."""
        return [
            f"{_SIGNS.get(one.status, f'{one.status}:')} {one.step}"
            for one in self.steps
        ]


_SIGNS = {"completed": "✓", "inProgress": "▸", "pending": "·"}


# --- what other programs keep ---------------------------------------------------------------------


class ItemFact(Fact, frozen=True):
    """What another program keeps in the session, in a format of its own. Nothing waits for it, and
    it is speech only where a reader of its format makes it so."""


class ItemKept(ItemFact, frozen=True, tag="item.kept"):
    """An item, kept as it came: `json` is JSON text, `format` names what wrote it, `key` is its own
    id there. `payloads` are bytes that belong to it."""

    format: str
    json: str
    key: str | None = None
    payloads: tuple[Hash, ...] = ()


class ItemsWithdrawn(ItemFact, frozen=True, tag="items.withdrawn"):
    """The items in these runs of seqs, each from its first to its last, are no longer part of what
    is kept. Other facts inside a run are not meant."""

    runs: tuple[tuple[Seq, Seq], ...]

    def covers(self, seq: Seq) -> bool:
        return any(first <= seq <= last for first, last in self.runs)


# --- helper calls ---------------------------------------------------------------------------------


class HelperFact(Fact, frozen=True):
    """A request about the session that is no part of it."""


class HelperStarted(HelperFact, frozen=True, tag="helper.started"):
    """A request to a model that is about the session and not part of it: no message comes of it.
    Stored before it is sent."""

    purpose: Literal["summary", "title", "distillation"]
    model: str
    digest: str = ""


class HelperEnded(HelperFact, frozen=True, tag="helper.ended"):
    """`unknown`: our process died first. `sent` says whether the provider may have received the
    request."""

    started: Seq
    outcome: Literal["done", "failed", "stopped", "unknown"]
    detail: str = ""
    usage: Usage | None = None
    sent: Literal["yes", "no", "unknown"] = "yes"


# --- editing the view -----------------------------------------------------------------------------


class SpentSoFar(Fact, frozen=True):
    steps: int
    tokens: int
    worked_ms: int


class EditFact(Fact, frozen=True):
    """Changes what a model is told of what was said before."""


class Compacted(EditFact, frozen=True, tag="compacted"):
    """For a model, `summary` stands for everything up to `upto`. People still read the originals.

    `carries` are the facts up to there that still matter to a runner, and `spent` is what the
    session had spent by then: with them a runner need not read what was compacted away. Without
    them, it reads everything.
    """

    upto: Seq
    summary: str
    model: str = ""
    usage: Usage | None = None
    carries: tuple[Seq, ...] | None = None
    spent: SpentSoFar | None = None


class MessageHidden(EditFact, frozen=True, tag="message.hidden"):
    """Takes one message out of the model's view, or (with `hidden` false) puts it back."""

    target: Seq
    hidden: bool = True


class MessageRedacted(EditFact, frozen=True, tag="message.redacted"):
    """The text at `target` was removed from the store for good."""

    target: Seq
    by: str = "user"


class Rewound(EditFact, frozen=True, tag="rewound"):
    """For a model, nothing after the message at `to`, or from the turn at `to` on, happened before
    this fact."""

    to: Seq


class RewindWithdrawn(EditFact, frozen=True, tag="rewind.withdrawn"):
    rewind: Seq


FreeFact = (
    SessionRenamed
    | SessionAttended
    | SessionEnded
    | InputWithdrawn
    | AttachmentSettled
    | InputEdited
    | InputDeleted
    | InterruptAsked
    | ApprovalDecided
    | RuleSet
    | ModeSet
    | GoalSet
    | FolderSet
    | MessageHidden
    | MemoryRemoved
    | DeliveryOwed
    | DeliveryAttempted
    | DeliveryPlaced
    | DeliverySettled
    | Posted
    | HookOwed
    | HookAttempted
    | HookDone
    | ItemsWithdrawn
    | AnyAccountFact
    | AnyJobFact
)
"""May be added by every process, at any time, with no lease."""

TurnFact = (
    ContextSet
    | TurnStarted
    | TurnEnded
    | StepStarted
    | StepSealed
    | UsageReported
    | StepLost
    | ToolStarted
    | ToolSettled
    | OutputLate
    | FileKept
    | FilesPutBack
    | FilesSettled
    | ApprovalAsked
    | HelperStarted
    | HelperEnded
    | Compacted
    | Distilled
    | SessionTitled
    | Rewound
    | RewindWithdrawn
    | ThreadBound
    | ThreadCompacted
    | PlanUpdated
)
"""Need the session's lease."""

OwnFact = SessionStarted | InputAdmitted | MessageGiven | MessageRedacted | ItemKept
"""Written by a verb of the store itself: create or fork, admit, redact, import."""

AnyFact = FreeFact | TurnFact | OwnFact

FREE_FACTS: frozenset[type] = frozenset(get_args(FreeFact))
TURN_FACTS: frozenset[type] = frozenset(get_args(TurnFact))


class Record(Struct, frozen=True, gc=False):
    """A fact in its place. Order is `seq`; `at_ms` is the wall clock of the writer and orders
    nothing."""

    seq: Seq
    at_ms: int
    fact: AnyFact


def taken_by(fact: AnyFact) -> tuple[Seq, ...]:
    """The inputs that a fact takes."""
    if isinstance(fact, TurnStarted):
        return (fact.origin.input,) if isinstance(fact.origin, Takes) else ()
    return fact.takes if isinstance(fact, StepStarted) else ()


_WITH_PARTS = frozenset(
    (InputAdmitted, AttachmentSettled, MessageGiven, StepSealed, ToolSettled)
)


def parts_of(fact: AnyFact) -> tuple[Content, ...]:
    """Every content part inside a fact."""
    if isinstance(fact, (InputAdmitted, AttachmentSettled, MessageGiven)):
        return fact.parts
    if isinstance(fact, StepSealed):
        return fact.parts + (fact.shown or ())
    if isinstance(fact, ToolSettled):
        return outcome_parts(fact.outcome) + (fact.shown or ())
    return ()


def payloads_of(fact: AnyFact) -> tuple[Hash, ...]:
    """The payloads that a fact refers to by hash. Asked of every fact that is written."""
    if type(fact) is ItemKept:
        return fact.payloads
    if type(fact) not in _WITH_PARTS:
        files = versions_of(fact) if isinstance(fact, FileFact) else ()
        return tuple(
            hash for one in files for hash in (one.before, one.after) if hash
        )
    return tuple(
        part.hash for part in parts_of(fact) if isinstance(part, (Image, File))
    )


def versions_of(fact: AnyFact) -> tuple[FileVersions, ...]:
    """The files that a fact says were changed or put back."""
    if isinstance(fact, FileKept):
        return (fact.file,)
    return fact.files if isinstance(fact, FilesPutBack) else ()
