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
  anyone.

docs/reference/journal-format.md describes each tag for readers in other languages.
"""

from typing import Literal, get_args

from msgspec import Struct

from steno.journal.parts import Content, File, Hash, Image, Outcome, Seq, outcome_parts


class Fact(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Base of all facts: strict when read, compact when written."""


# --- the session ----------------------------------------------------------------------------------


class ForkPoint(Fact, frozen=True):
    session: str
    seq: Seq


class SessionStarted(Fact, frozen=True, tag="session.started"):
    """Always the first fact of a session's own. In a fork, everything up to `forked_from` is the
    parent's."""

    platform: str
    model: str = ""
    name: str | None = None
    forked_from: ForkPoint | None = None


class SessionRenamed(Fact, frozen=True, tag="session.renamed"):
    title: str


class SessionAttended(Fact, frozen=True, tag="session.attended"):
    """A front end opened the session: a visit, until a `session.ended` names it. `by` is the owner
    of the visitor's store, which dies with its process: then somebody else ends the visit."""

    by: str
    platform: str


class SessionEnded(Fact, frozen=True, tag="session.ended"):
    """Somebody left. It is the end of the session unless other visits are open. A later visit,
    input or turn resumes the session; there is no fact for that.

    `attended` is the visit that is over; `last_turn` is how the last turn had ended, or will be
    closed by recovery.
    """

    reason: str
    last_turn: Literal["none", "done", "interrupted", "failed"] = "none"
    attended: Seq | None = None


# --- inputs and turns -----------------------------------------------------------------------------


class InputAdmitted(Fact, frozen=True, tag="input.admitted"):
    """Somebody said something. It is pending until a turn or a step takes it."""

    parts: tuple[Content, ...]
    source: str
    key: str | None = None
    author: str | None = None
    mode: Literal["queue", "steer"] = "queue"


class InputWithdrawn(Fact, frozen=True, tag="input.withdrawn"):
    """Whoever said it took it back while it was pending. No turn takes it any more; people still
    read it."""

    input: Seq
    by: str = "user"


class Takes(Fact, frozen=True, tag="takes"):
    input: Seq


class Continues(Fact, frozen=True, tag="continues"):
    turn: Seq


class TurnStarted(Fact, frozen=True, tag="turn.started"):
    origin: Takes | Continues


TurnOutcome = Literal["done", "interrupted", "failed"]


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


# --- what is worth keeping ------------------------------------------------------------------------


class ItemAt(Fact, frozen=True):
    """An item of a distillate: in that session, in the fact at `seq`, the one of this number, from
    0."""

    session: str
    seq: Seq
    item: int


class Item(Fact, frozen=True):
    """Something worth keeping; `seqs` are the messages it came from."""

    kind: Literal["decision", "open", "fact"]
    text: str
    seqs: tuple[Seq, ...] = ()


class Distilled(Fact, frozen=True, tag="distilled"):
    """What a helper call made of the facts after `after` and up to `upto`. No message and nothing
    that a model is told comes of it here; other sessions may be told its items. `title` is a
    proposal, where nobody had given one."""

    after: Seq
    upto: Seq
    title: str = ""
    summary: str = ""
    items: tuple[Item, ...] = ()
    model: str = ""


class MemoryRemoved(Fact, frozen=True, tag="memory.removed"):
    """A person does not want an item to be remembered. `item` is its number in the distillate, from
    0."""

    distilled: Seq
    item: int


# --- what shapes a request ------------------------------------------------------------------------


class ToolSpec(Fact, frozen=True):
    """`schema` is JSON text, kept as written so that the request's bytes can be rebuilt."""

    name: str
    description: str
    schema: str
    repeat: Literal["never", "safe"] = "never"


class ContextSet(Fact, frozen=True, tag="context.set"):
    """Holds for every later request until the next one: the whole context, not a difference.
    `recalled` says where each of the memories came from. `instead_of` is the session's own model
    where a fallback answers in its place, for the rest of one turn."""

    model: str
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    memories: tuple[str, ...] = ()
    recalled: tuple[ItemAt, ...] = ()
    goal: str = ""
    instead_of: str = ""

    @property
    def own_model(self) -> str:
        """The model that was chosen for the session."""
        return self.instead_of or self.model


class GoalSet(Fact, frozen=True, tag="goal.set"):
    """What this session is for, in a person's words, until the next one; "" is no goal. The next
    request's context tells a model."""

    goal: str
    by: str = "user"


# --- steps ----------------------------------------------------------------------------------------


class StepStarted(Fact, frozen=True, tag="step.started"):
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


class StepSealed(Fact, frozen=True, tag="step.sealed"):
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


class UsageReported(Fact, frozen=True, tag="usage.reported"):
    """What an answer cost, told after it was sealed."""

    step: Seq
    usage: Usage


class StepLost(Fact, frozen=True, tag="step.lost"):
    """A request of which nothing came back. `sent` says whether the provider may have received it,
    `wait_ms` how long it asked us to wait before another attempt."""

    step: Seq
    cause: str
    sent: Literal["yes", "no", "unknown"]
    detail: str = ""
    wait_ms: int | None = None


# --- tools ----------------------------------------------------------------------------------------


class ToolStarted(Fact, frozen=True, tag="tool.started"):
    """Stored before the tool runs. `group` is the process group to end if we die meanwhile."""

    step: Seq
    call: str
    group: int | None = None
    repeat: Literal["never", "safe"] = "never"


class ToolSettled(Fact, frozen=True, tag="tool.settled"):
    """The outcome of one call. `started` is None for a call that never ran. Seals the draft of
    `started`. `shown` is what was shown where that differs from the outcome."""

    step: Seq
    call: str
    outcome: Outcome
    started: Seq | None = None
    shown: tuple[Content, ...] | None = None


class OutputLate(Fact, frozen=True, tag="output.late"):
    """Output of a call that came after its outcome was stored. It was never shown with it."""

    started: Seq
    text: str


class ApprovalAsked(Fact, frozen=True, tag="approval.asked"):
    """`leaves` is True if a yes also covers running the call outside the sandbox that its runtime
    keeps it in."""

    step: Seq
    call: str
    reason: str = ""
    leaves: bool = False


class ApprovalDecided(Fact, frozen=True, tag="approval.decided"):
    asked: Seq
    decision: Literal["allow", "deny"]
    by: str
    reason: str = ""


class RuleSet(Fact, frozen=True, tag="rule.set"):
    """Which calls of this session may run: `rule` is a tool, or a tool and a pattern. It holds
    until the next fact about the same rule; the verdict None takes it back."""

    rule: str
    verdict: Literal["allow", "ask", "deny"] | None
    by: str = "user"


# --- threads of external runtimes -----------------------------------------------------------------


class ThreadBound(Fact, frozen=True, tag="thread.bound"):
    """An external runtime keeps a thread of its own for this session. It knows everything said
    before this fact."""

    runtime: str
    thread: str


class ThreadCompacted(Fact, frozen=True, tag="thread.compacted"):
    """An external runtime made its own thread shorter. What it put in the place of what was said
    only it knows; the history is as it was."""

    runtime: str
    thread: str


class PlanStep(Fact, frozen=True):
    """`status` is the runtime's own word for how far it is."""

    step: str
    status: str


class PlanUpdated(Fact, frozen=True, tag="plan.updated"):
    """What an external runtime says it will do, the whole plan each time."""

    steps: tuple[PlanStep, ...]
    explanation: str = ""

    def title(self) -> str:
        return f"plan: {self.explanation}" if self.explanation else "plan"

    def lines(self) -> list[str]:
        """The steps as a person reads them. A status that has no sign is said in its own word."""
        return [f"{_SIGNS.get(one.status, f'{one.status}:')} {one.step}" for one in self.steps]


_SIGNS = {"completed": "✓", "inProgress": "▸", "pending": "·"}


# --- helper calls ---------------------------------------------------------------------------------


class HelperStarted(Fact, frozen=True, tag="helper.started"):
    """A request to a model that is about the session and not part of it: no message comes of it.
    Stored before it is sent."""

    purpose: Literal["summary", "title", "distillation"]
    model: str
    digest: str = ""


class HelperEnded(Fact, frozen=True, tag="helper.ended"):
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


class Compacted(Fact, frozen=True, tag="compacted"):
    """For a model, `summary` stands for everything up to `upto`. People still read the originals.

    `carries` are the facts up to there that still matter to whoever runs the session, and `spent`
    is what it had spent by then: with them nobody has to read what was compacted away in order to
    go on. Without, everything is read.
    """

    upto: Seq
    summary: str
    model: str = ""
    usage: Usage | None = None
    carries: tuple[Seq, ...] | None = None
    spent: SpentSoFar | None = None


class MessageHidden(Fact, frozen=True, tag="message.hidden"):
    """Takes one message out of the model's view, or (with `hidden` false) puts it back."""

    target: Seq
    hidden: bool = True


class MessageRedacted(Fact, frozen=True, tag="message.redacted"):
    """The text at `target` was removed from the store for good."""

    target: Seq
    by: str = "user"


class Rewound(Fact, frozen=True, tag="rewound"):
    """For a model, nothing after the message at `to`, or from the turn at `to` on, happened before
    this fact."""

    to: Seq


class RewindWithdrawn(Fact, frozen=True, tag="rewind.withdrawn"):
    rewind: Seq


# --- the outside world ----------------------------------------------------------------------------


class DeliveryOwed(Fact, frozen=True, tag="delivery.owed"):
    """What the input at `target` is answered must reach `address` on `channel`; `key` is the id we
    give it there. `expires_s` after the answer ended, or after this if there is none, it is not
    tried any more."""

    target: Seq
    channel: str
    address: str
    key: str
    expires_s: int = 86_400


class DeliveryAttempted(Fact, frozen=True, tag="delivery.attempted"):
    """Somebody, the owner `by`, is about to send what `turn` came to. The first attempt decides
    which turn that is."""

    owed: Seq
    by: str = ""
    turn: Seq | None = None


class Delivered(Fact, frozen=True, tag="delivered"):
    receipt: str = ""


class DeliveryRefused(Fact, frozen=True, tag="delivery_failed"):
    """The channel said no, or did not answer. `unknown` when it may have arrived all the same."""

    cause: str
    unknown: bool = False
    final: bool = False


class DeliveryExpired(Fact, frozen=True, tag="expired"):
    cause: str = ""


class DeliverySettled(Fact, frozen=True, tag="delivery.settled"):
    """How an attempt went. A failure that is not final leaves the delivery owed."""

    owed: Seq
    outcome: Delivered | DeliveryRefused | DeliveryExpired


class HookOwed(Fact, frozen=True, tag="hook.owed"):
    """Plugins must be told. `key` stays the same however often they are; `arguments` is JSON text.

    `by` is the owner who tells them, all in `plugins` once. With `attended` it is owed only if the
    end of that visit, stored with it, was the end of the session.
    """

    hook: str
    key: str
    arguments: str = "{}"
    plugins: tuple[str, ...] = ()
    attended: Seq | None = None
    by: str = ""


class HookAttempted(Fact, frozen=True, tag="hook.attempted"):
    """Somebody takes it over from an owner who is dead, and tells those plugins that nobody has
    recorded as told."""

    owed: Seq
    by: str


class HookDone(Fact, frozen=True, tag="hook.done"):
    """A plugin was told, or will not be; `error` is what it raised, or why it was not. Without
    `plugin`: all of them."""

    owed: Seq
    plugin: str = ""
    error: str = ""


FreeFact = (
    SessionRenamed
    | SessionAttended
    | SessionEnded
    | InputWithdrawn
    | InterruptAsked
    | ApprovalDecided
    | RuleSet
    | GoalSet
    | MessageHidden
    | MemoryRemoved
    | DeliveryOwed
    | DeliveryAttempted
    | DeliverySettled
    | HookOwed
    | HookAttempted
    | HookDone
)
"""May be added by anyone, at any time, with no lease."""

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
    | ApprovalAsked
    | HelperStarted
    | HelperEnded
    | Compacted
    | Distilled
    | Rewound
    | RewindWithdrawn
    | ThreadBound
    | ThreadCompacted
    | PlanUpdated
)
"""Need the session's lease."""

OwnFact = SessionStarted | InputAdmitted | MessageRedacted
"""Written by a verb of the store itself: create or fork, admit, redact."""

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
    match fact:
        case TurnStarted(origin=Takes(input=input)):
            return (input,)
        case StepStarted():
            return fact.takes
        case _:
            return ()


_WITH_PARTS = frozenset((InputAdmitted, StepSealed, ToolSettled))
_BY_HASH = (Image, File)


def parts_of(fact: AnyFact) -> tuple[Content, ...]:
    """Every content part inside a fact."""
    match fact:
        case InputAdmitted():
            return fact.parts
        case StepSealed():
            return fact.parts + (fact.shown or ())
        case ToolSettled():
            return outcome_parts(fact.outcome) + (fact.shown or ())
        case _:
            return ()


def payloads_of(fact: AnyFact) -> tuple[Hash, ...]:
    """The payloads that a fact refers to by hash."""
    if type(fact) not in _WITH_PARTS:
        return ()
    hashes: tuple[Hash, ...] = ()
    for part in parts_of(fact):
        if isinstance(part, _BY_HASH):
            hashes += (part.hash,)
    return hashes
