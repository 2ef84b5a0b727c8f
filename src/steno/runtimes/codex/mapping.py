"""From codex's notifications to what we store and show. Pure: a turn is folded message by message
into effects.

    a message of the agent, its reasoning   drafts of the open step, until something else begins
    a command, a file change, a call        the step is sealed with the call in it
    output of a command                     drafts of the call
    what is completed                       its text is the truth; what was shown is kept beside it
                                            if it differs
    an input of ours                        recognised by its id; one that steers begins a new step
    the end of the turn                     whatever is open is closed as the turn ended

Steps and calls are opened and closed by facts that the turn stores; here they have no seqs. An
effect names a call by its id. The states of a call are in `calls`. An example:

    agentMessage delta "I look."          WriteText("I look.")
    item/started commandExecution c1      SealStep("I look.", call c1, started=c1)
    outputDelta c1 "hi"                   ShowOutput(c1, "hi")
    item/completed commandExecution c1    SettleCall(c1, Returned("hi"))
    agentMessage delta "It ran."          OpenStep, WriteText("It ran.")
    turn/completed                        SealStep("It ran."), EndTurn(completed)
"""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from steno.journal.facts import PlanStep, PlanUpdated, StepEnding, Usage
from steno.journal.parts import (
    Content,
    Failed,
    Interrupted,
    Opaque,
    Outcome,
    Reasoning,
    Refused,
    Returned,
    Text,
    ToolCall,
)
from steno.runtimes.codex import RUNTIME
from steno.runtimes.codex import items as i
from steno.runtimes.codex import protocol as p
from steno.runtimes.codex.calls import (
    CallEvent,
    CallState,
    CallTable,
    CodexCall,
    OutputBounds,
    Promised,
    move,
)
from steno.runtimes.codex.effects import (
    Effect,
    EndTurn,
    KeepLate,
    LogUnknown,
    LoseStep,
    NoteCompaction,
    OpenStep,
    ReportUsage,
    SealStep,
    SettleCall,
    ShowOutput,
    StartCall,
    StorePlan,
    WriteText,
)
from steno.runtimes.codex.policy import Unrun
from steno.runtimes.codex.translate import (
    REPLACED,
    UNHEARD,
    UNRUN,
    call_of,
    cause_of,
    outcome_of,
    same_call,
    typing_call,
)

TOO_LATE = (
    "codex had given its last answer when this input came; it is asked once more"
)

Kind = Literal["text", "reasoning"]
Status = Literal["completed", "interrupted", "failed"]


class Speech(Struct):
    """An item of text in the open step. `text` is the truth once it is completed."""

    id: str
    kind: Kind
    shown: str = ""
    text: str | None = None

    def is_whole(self) -> bool:
        return self.text is not None

    def parts(self) -> tuple[Content, ...]:
        return _part(self.kind, self.shown if self.text is None else self.text)

    def shown_parts(self) -> tuple[Content, ...]:
        return _part(self.kind, self.shown)


class Step:
    """The step that is open, if one is, and what is said in it. `steered`: it began with an input
    that steers. `cut` is what earlier steps have of texts that were not complete when a call
    began."""

    def __init__(self) -> None:
        self.is_open = True
        self.steered = False
        self.said: list[Speech] = []
        self.cut: dict[str, str] = {}
        self.usage: Usage | None = None

    def open(self) -> list[Effect]:
        if self.is_open:
            return []
        self.is_open = True
        return [OpenStep()]

    def write(self, id: str, kind: Kind, text: str) -> list[Effect]:
        effects = self.open()
        said = self._item(id)
        if said is None:
            self.said.append(said := Speech(id, kind))
        said.shown += text
        return [*effects, WriteText(kind, text)] if text else effects

    def complete(self, id: str, kind: Kind, text: str) -> list[Effect]:
        """What was not streamed is shown now. What was streamed otherwise stays, beside the truth.
        What an earlier step has is not said again."""
        text = text.removeprefix(self.cut.pop(id, ""))
        said = self._item(id)
        if said is None and not text:
            return []
        shown = "" if said is None else said.shown
        effects: list[Effect] = []
        if text.startswith(shown):
            effects = self.write(id, kind, text.removeprefix(shown))
        if (said := self._item(id)) is not None:
            said.text = text
        return effects

    def speaks(self) -> bool:
        return bool(self.said)

    def is_whole(self) -> bool:
        return all(one.is_whole() for one in self.said)

    def another_message(self, id: str) -> list[Effect]:
        """Another message of the agent has a step of its own."""
        if any(one.kind == "text" for one in self.said) and self._item(id) is None:
            return self.seal("complete")
        return []

    def seal(
        self, ended: StepEnding, *more: Content, started: str | None = None
    ) -> list[Effect]:
        """Close the open step, if one is open and something is in it."""
        if not self.is_open or not (self.said or more):
            return []
        for one in self.said:
            if not one.is_whole():
                self.cut[one.id] = self.cut.get(one.id, "") + one.shown
        truth = tuple(part for one in self.said for part in one.parts())
        shown = tuple(part for one in self.said for part in one.shown_parts())
        beside = None if shown == truth else shown
        sealed = SealStep(truth + more, ended, beside, self.usage, started)
        self.is_open = self.steered = False
        self.said, self.usage = [], None
        return [sealed]

    def lose(self, cause: str, detail: str) -> list[Effect]:
        """Close the open step, if one is open: nothing came of it."""
        if not self.is_open:
            return []
        self.is_open = False
        return [LoseStep(cause, detail)]

    def begin_steered(self, input: str) -> list[Effect]:
        self.is_open = self.steered = True
        return [OpenStep(input)]

    def _item(self, id: str) -> Speech | None:
        return next((one for one in self.said if one.id == id), None)


class TurnMap:
    """`turn` is codex's id of it, once it is known; `steers` are the ids of inputs that may come
    back while it runs. The first step is open when it begins."""

    def __init__(
        self,
        bounds: OutputBounds = OutputBounds(),  # noqa: B008 - it is frozen
        promised: tuple[Promised, ...] = (),
    ) -> None:
        self.turn = ""
        self.steers: set[str] = set()
        self._bounds = bounds
        self._calls = CallTable(promised)
        self._step = Step()
        self._unknown: dict[str, i.UnknownItem] = {}
        self._typings = 0
        self._asks = False
        self._failure = p.Failure()

    # --- what the turn tells

    def call_of(self, item: str) -> str:
        """The id of the call that an item stands for."""
        call = self._calls.of(item)
        return item if call is None else call.id

    def is_open(self, item: str) -> bool:
        """True if a call with this id has no outcome yet."""
        call = self._calls.of(item)
        return call is not None and call.is_open()

    def begin(self, call: str) -> list[Effect]:
        """A call was approved, and runs from now on."""
        found = self._calls.named(call)
        return [] if found is None else _moved(found, CallEvent.BEGIN)

    def held(self, call: ToolCall) -> list[Effect]:
        """A call waits at the gate; codex tells of it when it is let through."""
        return [*self._untold(), *self._told(call.id, call, CallState.HELD)]

    def let_through(self, item: str) -> bool:
        """True if a call was approved at the gate and codex has not said that it runs."""
        call = self._calls.of(item)
        return call is not None and call.state is CallState.PASSED

    def let_through_for(self, server: str) -> bool:
        """The same for any tool of a server: codex's question does not say about which call it
        is."""
        return any(
            one.server == server for one in self._calls.in_state(CallState.PASSED)
        )

    def answered(self, item: str, explained: bool, leaves: bool) -> bool:
        """True if the yes at the gate is also the answer to codex's own question. It counts
        once."""
        call = self._calls.of(item)
        if call is None or not call.covers(explained, leaves):
            return False
        move(call, CallEvent.COVER)
        return True

    def refuse(self, call: str, reason: str) -> list[Effect]:
        """A call was not approved. Codex will say that it was declined, unless it was at the
        gate."""
        found = self._calls.named(call)
        if found is None:
            return []
        found.refusal = reason
        at_gate = found.state in (CallState.HELD, CallState.PASSED)
        return _settled(found, Refused(reason)) if at_gate else []

    def asked(self, item: str, unrun: Unrun | None = None) -> list[Effect]:
        """Codex asks whether a call may run: it does not run yet. If it did run, or was let through
        the gate, it is another call from here on; `unrun` says what came of the first one, if codex
        did not."""
        call = self._calls.of(item)
        if call is None or not call.is_open():
            return []
        if not call.is_started():
            return _moved(call, CallEvent.ASK)
        known = call.state is CallState.PASSED or unrun is Unrun.STOPPED
        said = call.collected() or (
            unrun.value if unrun is not None and known else ""
        )
        return self._again(item, call, call.as_told, said, CallState.ASKED)

    def settled(self, call: str) -> None:
        """Our own tools have stored the outcome of a call."""
        if (found := self._calls.named(call)) is not None:
            move(found, CallEvent.SETTLE)

    def saying(self) -> str:
        """What was shown of an answer that is not complete. If several inputs steer at once, the
        first of them cuts it off."""
        if len(self.steers) > 1:
            return ""
        unfinished = (one for one in self._step.said if not one.is_whole())
        return "".join(one.shown for one in unfinished if one.kind == "text")

    def close(
        self,
        status: Literal["interrupted", "failed"],
        cause: str = "",
        detail: str = "",
    ) -> list[Effect]:
        """End the turn without codex: it was told to and does not answer, or it is gone."""
        return [*self._finish(status), EndTurn(status, cause, detail, unheard=True)]

    # --- what codex tells

    def apply(self, note: p.Notification) -> list[Effect]:
        if self.turn and p.turn_of(note) not in ("", self.turn):
            return (
                [KeepLate(note.item_id, note.delta)]
                if isinstance(note, p.OutputDelta)
                else []
            )
        return [*self._after_announcement(note), *self._applied(note)]

    def _after_announcement(self, note: p.Notification) -> list[Effect]:
        """Codex tells of a file change first and asks then. If the next message is no question, it
        was not asked."""
        waits = isinstance(note, p.StatusChanged) and note.waits()
        call = self._calls.announced
        return (
            []
            if call is None
            else _moved(call, CallEvent.WAIT if waits else CallEvent.GO_ON)
        )

    def _applied(self, note: p.Notification) -> list[Effect]:
        match note:
            case p.ItemStarted():
                return [*self._untold(), *self._started(note.item)]
            case p.ItemCompleted():
                return self._completed(note.item)
            case p.AgentDelta() | p.PlanDelta():
                return self._step.write(note.item_id, "text", note.delta)
            case p.ThoughtDelta():
                return self._step.write(note.item_id, "reasoning", note.delta)
            case p.ThoughtPart():
                first = not note.summary_index
                return (
                    []
                    if first
                    else self._step.write(note.item_id, "reasoning", "\n\n")
                )
            case p.OutputDelta():
                return self._output(note.item_id, note.delta)
            case p.StdinTyped():
                return self._typed(note)
            case p.UsageUpdated():
                return self._used(note.token_usage.last)
            case p.PlanUpdatedNote():
                steps = tuple(PlanStep(step.step, step.status) for step in note.plan)
                return [StorePlan(PlanUpdated(steps, note.explanation or ""))]
            case p.StatusChanged():
                self._asks = note.waits()
                return []
            case p.ErrorNote():
                return self._error(note)
            case p.TurnStartedNote():
                self.turn = self.turn or note.turn.id
                return []
            case p.TurnCompleted():
                return self._ended(note.turn)
            case p.Skipped():
                return [LogUnknown(note.method)]
            case p.CommandOver():
                return self._over(note)
            case p.Quiet():
                return []

    def _started(self, item: i.Item) -> list[Effect]:
        begun = CallState.TOLD if self._asks else CallState.RUNNING
        match item:
            case i.UserMessage():
                return self._echo(item)
            case i.AgentMessage() | i.PlanText():
                return self._step.another_message(item.id)
            case i.UnknownItem():
                self._unknown[item.id] = item
                return []
            case i.ReasoningItem() | i.ContextCompaction():
                return []
            case i.DynamicToolCall():
                return self._told(item.id, call_of(item), CallState.OURS)
            case i.FileChange():
                return self._told(item.id, call_of(item), CallState.ANNOUNCED)
            case i.CommandExecution() if item.process_id is not None:
                told = self._told(item.id, call_of(item), CallState.RUNNING)
                call = self._calls.of(item.id)
                return (
                    told if call is None else [*told, *_moved(call, CallEvent.SPAWN)]
                )
            case i.McpToolCall():
                told = self._told(item.id, call_of(item), begun)
                if (call := self._calls.of(item.id)) is not None:
                    call.server = item.server
                return told
            case i.CommandExecution() | i.WebSearch() | i.OtherCall():
                return self._told(item.id, call_of(item), begun)

    def _completed(self, item: i.Item) -> list[Effect]:
        match item:
            case i.UserMessage():
                return []
            case i.AgentMessage() | i.PlanText():
                return self._step.complete(item.id, "text", item.text)
            case i.ReasoningItem():
                text = "\n\n".join((*item.summary, *item.content))
                return self._step.complete(item.id, "reasoning", text)
            case i.ContextCompaction():
                return [NoteCompaction()]
            case i.UnknownItem():
                self._unknown.pop(item.id, None)
                return self._keep(Opaque(RUNTIME, item.kind, item.json))
            case (
                i.CommandExecution()
                | i.FileChange()
                | i.McpToolCall()
                | i.DynamicToolCall()
                | i.WebSearch()
                | i.OtherCall()
            ):
                return self._settle(item)

    def _keep(self, part: Opaque) -> list[Effect]:
        """At once: it cannot be shown again."""
        return [*self._apart(), *self._step.seal("complete", part)]

    def _apart(self) -> list[Effect]:
        """Open a step in which nothing was said."""
        before = self._step.seal("complete") if self._step.speaks() else []
        return [*before, *self._step.open()]

    # --- calls

    def _told(self, item: str, as_told: ToolCall, state: CallState) -> list[Effect]:
        """A call is told of, by codex or at the gate. One that is in the table is known, unless
        codex runs another in its place: a hook of its own can change a call on the way."""
        call = self._calls.of(item)
        if call is None or not call.is_open():
            return self._added(self._calls.add(item, as_told, state))
        at_gate = call.state in (CallState.HELD, CallState.PASSED)
        if at_gate and not same_call(call.as_told, as_told):
            return self._again(item, call, as_told, REPLACED, state)
        return _moved(call, CallEvent.BEGIN) if state is CallState.RUNNING else []

    def _added(self, call: CodexCall) -> list[Effect]:
        """A call that was promised is in a step already: an earlier process sealed that."""
        if call.promised is not None:
            return [StartCall(call.id)] if call.is_started() else []
        started = call.id if call.is_started() else None
        opened = self._step.open()
        return [*opened, *self._step.seal("complete", call.as_told, started=started)]

    def _again(
        self,
        item: str,
        call: CodexCall,
        as_told: ToolCall,
        said: str,
        state: CallState,
    ) -> list[Effect]:
        """What codex told of as one call is another one from here on; `said` is what came of the
        first."""
        settled = _settled(call, _failed(said))
        before = self._step.seal("complete")
        return [
            *settled,
            *before,
            *self._added(self._calls.again(item, as_told, state)),
        ]

    def _output(self, item: str, text: str) -> list[Effect]:
        call = self._calls.of(item)
        if call is None or call.state is CallState.OURS:
            return []
        if not call.is_open():
            return [KeepLate(call.id, text)]
        begun = _moved(call, CallEvent.OUTPUT)
        shown = call.take_output(text, self._bounds)
        return [*begun, ShowOutput(call.id, shown)] if shown else begun

    def _over(self, note: p.CommandOver) -> list[Effect]:
        """Codex tells of a command when it runs. Of one that its sandbox stopped at once it does
        not; its hook does. Of one that codex asked about it tells only when it is over, so that is
        waited for."""
        call = self._calls.of(note.call)
        if call is None:
            return []
        if call.state is CallState.PASSED:
            return _settled(call, _failed(note.said()))
        call.over = note.said()
        return _moved(call, CallEvent.HOOK)

    def _untold(self) -> list[Effect]:
        """When codex begins something else, what it has not told of by then was stopped."""
        untold = self._calls.in_state(CallState.OVER)
        return [
            effect for call in untold for effect in _settled(call, _failed(call.over))
        ]

    def _typed(self, note: p.StdinTyped) -> list[Effect]:
        """Codex tells of what it types afterwards: it is a call that is over, whether it asked
        first or not."""
        if not note.stdin:
            return []
        typed = typing_call("", self.call_of(note.item_id), note.stdin)
        for call in self._calls.in_state(CallState.PASSED):
            if same_call(call.as_told, typed):
                return _settled(call, Returned(()))
        self._typings += 1
        typed = replace(typed, id=f"{note.item_id}/typed{self._typings}")
        sealed = [
            *self._apart(),
            *self._step.seal("complete", typed, started=typed.id),
        ]
        return [*sealed, SettleCall(typed.id, Returned(()))]

    def _settle(self, item: i.CallItem) -> list[Effect]:
        call, told = self._calls.of(item.id), list[Effect]()
        if call is None:
            told = self._started(item)
            call = self._calls.of(item.id)
        if call is None or not call.is_open() or call.state is CallState.OURS:
            return told
        outcome = outcome_of(item, call.collected())
        if isinstance(outcome, Refused):
            return [*told, *_settled(call, Refused(call.refusal or outcome.reason))]
        return [*told, *_moved(call, CallEvent.BEGIN), *_settled(call, outcome)]

    # --- inputs, usage, errors, the end

    def _echo(self, item: i.UserMessage) -> list[Effect]:
        if item.client_id not in self.steers:
            return []
        self.steers.discard(item.client_id)
        sealed = self._step.seal(
            "complete" if self._step.is_whole() else "interrupted"
        )
        lost = self._step.lose(
            "steered", "another input came before anything was said"
        )
        return [*sealed, *lost, *self._step.begin_steered(item.client_id)]

    def _used(self, tokens: p.Tokens) -> list[Effect]:
        """Codex says 0 where the provider said nothing; unknown is not 0."""
        if not (tokens.input_tokens or tokens.output_tokens):
            return []
        usage = Usage(
            tokens.input_tokens,
            tokens.output_tokens,
            tokens.cached_input_tokens,
            tokens.reasoning_output_tokens,
        )
        if not self._step.is_open:
            return [ReportUsage(usage)]
        if self._step.speaks():
            self._step.usage = usage
        return []

    def _error(self, note: p.ErrorNote) -> list[Effect]:
        """If it tries again by itself, what it had said so far is over."""
        self._failure = note.error
        if not note.will_retry:
            return []
        sealed = self._step.seal("incomplete")
        self._step.cut.clear()
        return [*sealed, *self._step.lose(cause_of(note.error), note.error.reason())]

    def _ended(self, turn: p.TurnInfo) -> list[Effect]:
        match turn.status:
            case "completed":
                effects = self._finish("completed")
                return [*effects, EndTurn("completed", unanswered=self._step.steered)]
            case "interrupted":
                return [*self._finish("interrupted"), EndTurn("interrupted")]
            case _:
                error = turn.error or self._failure
                return [
                    *self._finish("failed"),
                    EndTurn("failed", cause_of(error), error.message),
                ]

    def _finish(self, status: Status) -> list[Effect]:
        ended: StepEnding = "interrupted" if status == "interrupted" else "incomplete"
        whole = status == "completed" or self._step.is_whole()
        effects = [*self._untold(), *self._step.seal("complete" if whole else ended)]
        for item in self._unknown.values():
            kept = Opaque(RUNTIME, item.kind, item.json)
            effects += [*self._step.open(), *self._step.seal(ended, kept)]
        effects += self._nothing_said(status)
        for call in self._calls.still_open():
            if call.state is not CallState.OURS:
                effects += _settled(call, _left(call, status))
        return effects

    def _nothing_said(self, status: Status) -> list[Effect]:
        match status:
            case "completed":
                late = self._step.steered
                return self._step.lose(
                    "empty", TOO_LATE if late else self._failure.message
                )
            case "interrupted":
                return self._step.lose("stopped", self._failure.message)
            case "failed":
                return self._step.lose(cause_of(self._failure), self._failure.message)


def _left(call: CodexCall, status: Status) -> Outcome:
    """What came of a call that is open when its turn ends."""
    if not call.is_started():
        return Refused(call.refusal or UNRUN[status])
    if call.state is CallState.PASSED and status == "completed":
        return _failed(UNHEARD)
    said = call.collected()
    return Interrupted((Text(said),) if said else ())


def _moved(call: CodexCall, event: CallEvent) -> list[Effect]:
    return [StartCall(call.id)] if move(call, event) else []


def _settled(call: CodexCall, outcome: Outcome) -> list[Effect]:
    shown = call.beside(outcome)
    move(call, CallEvent.SETTLE)
    return [SettleCall(call.id, outcome, shown)]


def _failed(said: str) -> Failed:
    return Failed((Text(said),) if said else ())


def _part(kind: Kind, text: str) -> tuple[Content, ...]:
    if not text:
        return ()
    return (Text(text) if kind == "text" else Reasoning(text),)
