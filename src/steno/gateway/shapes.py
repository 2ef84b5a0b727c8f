"""What the JSON of answers looks like, as types: for the OpenAPI document, and for clients that are
made from it. The objects themselves are made by `service.objects`; a test compares the two."""

from typing import Literal

from msgspec import Struct

Outcome = Literal["done", "interrupted", "failed"]


class Usage(Struct):
    """Tokens, as far as the provider said. `unreported` counts the calls of which it did not."""

    calls: int
    unreported: int
    input: int | None
    output: int | None
    cached: int | None
    reasoning: int | None


class ForkPoint(Struct):
    session: str
    seq: int


class SessionInList(Struct):
    """One row of a list. `updated_ms` is the time of the last message or change."""

    id: str
    title: str
    name: str | None
    model: str
    fallback: str | None
    platform: str
    folder: str | None
    messages: int
    turns: int
    last_turn: Outcome | None
    running: bool
    ended: str | None
    waiting: bool
    context_tokens: int | None
    usage: Usage | None
    created_ms: int
    updated_ms: int
    forked_from: ForkPoint | None


class SessionPage(Struct):
    """`next` is what to give as `before` for the page after this one; null at the end."""

    sessions: list[SessionInList]
    next: int | None


class ToolCallShown(Struct):
    id: str
    name: str
    arguments: str


class AttachmentShown(Struct):
    type: Literal["image", "file"]
    name: str
    media_type: str
    size: int
    hash: str


class MessageShown(Struct, kw_only=True):
    seq: int
    turn: int | None
    role: str
    text: str
    state: str
    tool_calls: list[ToolCallShown]
    attachments: list[AttachmentShown]
    tool_call_id: str | None
    hidden: bool
    model: str | None = None


class TurnShown(Struct):
    id: int
    outcome: Outcome | None
    cause: str
    undone: bool


class PlanStep(Struct):
    step: str
    status: str


class PlanShown(Struct):
    explanation: str
    steps: list[PlanStep]


class RuleShown(Struct):
    """`until_ms`: when it ends; null if it does not by itself."""

    rule: str
    verdict: Literal["allow", "ask", "deny"]
    until_ms: int | None


class DistillateShown(Struct):
    seq: int
    after: int
    upto: int
    title: str
    summary: str


class ApprovalShown(Struct, kw_only=True):
    """A call that waits for a decision. `session` is there in lists of all sessions."""

    session: str | None = None
    seq: int
    call: str
    tool: str
    arguments: str
    since_ms: int
    reason: str
    decision: str | None = None


class ApprovalList(Struct):
    approvals: list[ApprovalShown]


class ContextShown(Struct):
    tokens: int | None
    max: int | None


class SessionShown(Struct):
    """A whole session, as `steno show --json` gives it."""

    id: str
    title: str
    ended: str | None
    visitors: list[str]
    delegated_by: str | None
    goal: str | None
    plan: PlanShown | None
    rules: list[RuleShown]
    memories: list[str]
    distillates: list[DistillateShown]
    turns: list[TurnShown]
    messages: list[MessageShown]
    approvals: list[ApprovalShown]
    context: ContextShown
    usage: Usage


class TurnEnd(Struct):
    id: int
    outcome: Outcome
    cause: str
    detail: str


class FinishedTurn(Struct):
    """What an input with `?wait=` gives once its turn has ended."""

    session: str
    seq: int
    first: bool
    turn: TurnEnd
    text: str
    messages: list[MessageShown]


class SessionUsage(Struct):
    id: str
    model: str
    title: str
    updated_ms: int
    usage: Usage | None


class UsagePage(Struct):
    """`total` is of this page. Sessions whose usage is not known count as nothing."""

    sessions: list[SessionUsage]
    total: Usage
    next: int | None
