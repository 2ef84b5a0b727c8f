"""From codex's notifications to what we store and show. Pure: a turn is folded message by message
into acts.

    a message of the agent, its reasoning   drafts of the open step; the step is sealed when something else begins
    a command, a file change, a call        the step is sealed with the call in it, and the call is started with it
    output of a command                     drafts of the call
    what is completed                       its text is the truth; what was shown is kept beside it where it differs
    an input of ours                        recognised by its id; one that steers ends the step and begins the next
    the end of the turn                     whatever is open is closed as the turn ended

Steps and calls are opened and closed by facts that the runtime stores; here they have no seqs. An
act names a call by its id. Output beyond what is shown is collected up to a bound, and settled with
the rest.
"""

from typing import Literal

from msgspec.structs import replace

from steno.journal.facts import PlanStep, PlanUpdated, StepEnding, Usage
from steno.journal.parts import (
    Content,
    Failed,
    Interrupted,
    Opaque,
    Outcome,
    Refused,
    Returned,
    Text,
    ToolCall,
)
from steno.runtimes.codex import RUNTIME
from steno.runtimes.codex import items as i
from steno.runtimes.codex import protocol as p
from steno.runtimes.codex.acts import (
    Act,
    Compacted,
    End,
    Late,
    Lose,
    OpenStep,
    Output,
    Plan,
    Report,
    Seal,
    Settle,
    Skip,
    Start,
    Write,
)
from steno.runtimes.codex.hooks import Over
from steno.runtimes.codex.rights import Unrun
from steno.runtimes.codex.underway import (
    Bounds,
    Promised,
    Running,
    Speech,
    beside,
    collected,
    part_of,
)
from steno.runtimes.codex.wording import (
    REPLACED,
    UNHEARD,
    UNRUN,
    call_of,
    cause_of,
    outcome_of,
    same_call,
    typing_call,
)

TOO_LATE = "codex had said its last word when this input came; it is asked once more"
_WAITS = "waitingOnApproval"


class TurnMap:
    """`turn` is codex's id of it, once it is known; `steers` are the ids of inputs that may come
    back while it runs. The first step is open when it begins."""

    def __init__(self, bounds: Bounds = Bounds(), promised: tuple[Promised, ...] = ()) -> None:  # noqa: B008 - frozen
        self.turn = ""
        self.steers: set[str] = set()
        self._bounds = bounds
        self._promised = list(promised)
        self._alias: dict[str, str] = {}
        self._open = True
        self._steered = False
        self._said: list[Speech] = []
        self._cut: dict[str, str] = {}
        """What earlier steps have of texts that were not complete when a call began."""
        self._usage: Usage | None = None
        self._calls: dict[str, Running] = {}
        self._settled: set[str] = set()
        self._refused: dict[str, str] = {}
        self._gated: set[str] = set()
        self._kept: dict[str, Promised] = {}
        self._questioned: set[str] = set()
        self._overs: dict[str, str] = {}
        self._typings = 0
        self._unknown: dict[str, i.UnknownItem] = {}
        self._asks = False
        self._announced = ""
        self._failure = p.Failure()

    # --- what the runtime tells

    def call_of(self, item: str) -> str:
        """The call that an item stands for."""
        return self._alias.get(item, item)

    def is_open(self, item: str) -> bool:
        """Whether a call with this id has no outcome yet."""
        return self.call_of(item) in self._calls

    def begin(self, call: str) -> list[Act]:
        """A call was approved and runs from now on."""
        running = self._calls.get(call)
        if running is None or running.started:
            return []
        running.started = True
        return [Start(call)]

    def held(self, call: ToolCall) -> list[Act]:
        """A call waits at the gate; codex tells of it when it is let through."""
        acts = [*self._untold(), *self._call(call.id, call)]
        self._gated.add(self.call_of(call.id))
        return acts

    def let_through(self, item: str) -> bool:
        """Whether a call was approved at the gate and codex has not run it yet, as far as it
        told."""
        call = self.call_of(item)
        return call in self._gated and call in self._calls and self._calls[call].started

    def answered(self, item: str, explained: bool, leaves: bool) -> bool:
        """Whether the yes at the gate is also the answer to codex's own question; to one that says
        why, or is to leave the sandbox, if that was approved before. It counts once: codex tells of
        the call from then on."""
        call = self.call_of(item)
        kept = self._kept.get(call)
        known = kept is not None and kept.explained >= explained and kept.leaves >= leaves
        if not self.let_through(item) or ((explained or leaves) and not known):
            return False
        self._gated.discard(call)
        self._questioned.add(call)
        return True

    def let_through_for(self, server: str) -> bool:
        """The same for any tool of a server: codex's question does not say about which call it
        is."""
        names = ((id, running.call.name) for id, running in self._calls.items())
        return any(name.startswith(f"{server}__") and self.let_through(id) for id, name in names)

    def refuse(self, call: str, reason: str) -> list[Act]:
        """A call was not approved. Codex will say that it was declined, unless it was at the
        gate."""
        self._refused[call] = reason
        if call not in self._gated or call not in self._calls:
            return []
        self.settled(call)
        return [Settle(call, Refused(reason))]

    def asked(self, item: str, unrun: Unrun | None = None) -> list[Act]:
        """Codex wants to know whether a call may run: it does not run yet. If it did run, or was
        let through the gate, it is another call from here on; `unrun` says what came of the first
        one, if codex did not."""
        call = self.call_of(item)
        if self._announced == call:
            self._announced = ""
        running = self._calls.get(call)
        acts: list[Act] = []
        if running is not None and running.started:
            told = unrun if call in self._gated or unrun is Unrun.STOPPED else None
            said = collected(running) or ("" if told is None else told.value)
            acts = self._again(item, running.call, said)
        self._questioned.add(self.call_of(item))
        return acts

    def _again(self, item: str, as_told: ToolCall, said: str, started: bool = False) -> list[Act]:
        """What codex told of as one call is another one from here on; `said` is what came of the
        first."""
        call = self.call_of(item)
        self.settled(call)
        outcome = Failed((Text(said),) if said else ())
        again = replace(as_told, id=f"{call}/again")
        self._alias[item] = again.id
        self._calls[again.id] = Running(again, started)
        runs = again.id if started else None
        return [
            Settle(call, outcome),
            *self._seal("complete"),
            *self._ready(),
            *self._seal("complete", again, started=runs),
        ]

    def settled(self, call: str) -> None:
        """Our own tools have stored the outcome of a call."""
        self._calls.pop(call, None)
        self._settled.add(call)

    def saying(self) -> str:
        """What was shown of an answer that is not complete. Of inputs that steer together the first
        cuts it off."""
        told = len(self.steers) > 1
        return (
            ""
            if told
            else "".join(one.shown for one in self._said if one.kind == "text" and one.text is None)
        )

    def close(
        self, status: Literal["interrupted", "failed"], cause: str = "", detail: str = ""
    ) -> list[Act]:
        """End the turn without codex: it was told to and does not answer, or it is gone."""
        return [*self._finish(status), End(status, cause, detail, unheard=True)]

    # --- what codex tells

    def apply(self, note: p.Notification) -> list[Act]:
        late = self._of_another_turn(note)
        if late is not None:
            return late
        return [*self._begun(note), *self._applied(note)]

    def _begun(self, note: p.Notification) -> list[Act]:
        """Codex tells of a file change first and asks then. If the next message is no question, it
        was not asked."""
        call, self._announced = self._announced, ""
        waits = isinstance(note, p.StatusChanged) and _WAITS in note.status.active_flags
        return [] if not call or waits else self.begin(call)

    def _applied(self, note: p.Notification) -> list[Act]:
        match note:
            case p.ItemStarted():
                return [*self._untold(), *self._started(note.item)]
            case p.ItemCompleted():
                return self._completed(note.item)
            case p.AgentDelta() | p.PlanDelta():
                return self._text(note.item_id, "text", note.delta)
            case p.ReasoningDelta():
                return self._text(note.item_id, "reasoning", note.delta)
            case p.ReasoningPart():
                return self._text(note.item_id, "reasoning", "\n\n") if note.summary_index else []
            case p.OutputDelta():
                return self._output(self.call_of(note.item_id), note.delta)
            case p.Typed():
                return self._typed(note)
            case p.UsageUpdated():
                return self._used(note.token_usage.last)
            case p.PlanUpdatedNote():
                steps = tuple(PlanStep(step.step, step.status) for step in note.plan)
                return [Plan(PlanUpdated(steps, note.explanation or ""))]
            case p.StatusChanged():
                self._asks = _WAITS in note.status.active_flags
                return []
            case p.ErrorNote():
                return self._error(note)
            case p.TurnStartedNote():
                self.turn = self.turn or note.turn.id
                return []
            case p.TurnCompleted():
                return self._ended(note.turn)
            case p.Skipped():
                return [Skip(note.method)]
            case Over():
                return self._over(note)
            case p.Warned() | p.Quiet() | p.HookStarted() | p.HookCompleted():
                return []

    def _of_another_turn(self, note: p.Notification) -> list[Act] | None:
        """What to do with a message of an earlier turn; None if it is of this one."""
        turn = getattr(note, "turn_id", "") or getattr(note, "turn", "")
        id = turn.id if isinstance(turn, p.Turn) else turn
        if not id or not self.turn or id == self.turn:
            return None
        return [Late(note.item_id, note.delta)] if isinstance(note, p.OutputDelta) else []

    def _started(self, item: i.Item) -> list[Act]:
        match item:
            case i.UserMessage():
                return self._echo(item)
            case i.AgentMessage() | i.PlanText():
                return self._speak(item.id)
            case i.UnknownItem():
                self._unknown[item.id] = item
                return []
            case i.ReasoningItem() | i.ContextCompaction():
                return []
            case i.DynamicToolCall():
                return self._call(item.id, call_of(item), ours=True)
            case i.FileChange():
                acts = self._call(item.id, call_of(item))
                self._announced = self.call_of(item.id)
                return acts
            case i.CommandExecution():
                acts = self._call(
                    item.id, call_of(item), started=item.process_id is not None or not self._asks
                )
                if item.process_id is not None:
                    self._gated.discard(self.call_of(item.id))
                return acts
            case _:
                return self._call(item.id, call_of(item), started=not self._asks)

    def _completed(self, item: i.Item) -> list[Act]:
        match item:
            case i.UserMessage():
                return []
            case i.AgentMessage() | i.PlanText():
                return self._whole(item.id, "text", item.text)
            case i.ReasoningItem():
                return self._whole(
                    item.id, "reasoning", "\n\n".join((*item.summary, *item.content))
                )
            case i.ContextCompaction():
                return [Compacted()]
            case i.UnknownItem():
                self._unknown.pop(item.id, None)
                return self._keep(Opaque(RUNTIME, item.kind, item.json))
            case _:
                return self._settle(item)

    # --- text

    def _ready(self) -> list[Act]:
        if self._open:
            return []
        self._open = True
        return [OpenStep()]

    def _speak(self, id: str) -> list[Act]:
        """Another message of the agent has a step of its own."""
        if any(said.kind == "text" for said in self._said) and not any(
            said.id == id for said in self._said
        ):
            return self._seal("complete")
        return []

    def _text(self, id: str, kind: Literal["text", "reasoning"], text: str) -> list[Act]:
        acts = self._ready()
        said = next((said for said in self._said if said.id == id), None)
        if said is None:
            self._said.append(said := Speech(id, kind))
        said.shown += text
        return [*acts, Write(kind, text)] if text else acts

    def _whole(self, id: str, kind: Literal["text", "reasoning"], text: str) -> list[Act]:
        """What was not streamed is shown now. What was streamed otherwise stays, beside the truth.
        What an earlier step has is not said again."""
        text = text.removeprefix(self._cut.pop(id, ""))
        said = next((said for said in self._said if said.id == id), None)
        if said is None and not text:
            return []
        shown = "" if said is None else said.shown
        acts = self._text(id, kind, text.removeprefix(shown)) if text.startswith(shown) else []
        for one in self._said:
            if one.id == id:
                one.text = text
        return acts

    def _keep(self, part: Opaque) -> list[Act]:
        """At once: nobody can show it again."""
        acts = self._seal("complete") if self._said else []
        acts += self._ready()
        return [*acts, *self._seal("complete", part)]

    def _seal(self, ended: StepEnding, *more: Content, started: str | None = None) -> list[Act]:
        """Close the open step, if one is open and something is in it."""
        said, usage = self._said, self._usage
        if not self._open or not (said or more):
            return []
        self._open, self._steered, self._said, self._usage = False, False, [], None
        self._cut |= {
            one.id: self._cut.get(one.id, "") + one.shown for one in said if one.text is None
        }
        truth = tuple(
            part
            for one in said
            if (part := part_of(one.kind, one.shown if one.text is None else one.text))
        )
        shown = tuple(part for one in said if (part := part_of(one.kind, one.shown)))
        return [Seal(truth + more, ended, None if shown == truth else shown, usage, started)]

    # --- calls

    def _call(
        self, id: str, call: ToolCall, started: bool = False, ours: bool = False
    ) -> list[Act]:
        known = self.call_of(id)
        if known in self._calls:
            if known in self._gated and not same_call(self._calls[known].call, call):
                return self._again(id, call, REPLACED, started)
            return self.begin(known) if started else []
        promised = next(
            (
                one
                for one in self._promised
                if (one.name, one.arguments) == (call.name, call.arguments)
            ),
            None,
        )
        if promised is not None:
            self._promised.remove(promised)
            self._alias[id] = promised.id
            self._kept[promised.id] = promised
            self._calls[promised.id] = Running(replace(call, id=promised.id), started, ours)
            return [Start(promised.id)] if started else []
        self._calls[id] = Running(call, started, ours)
        acts = self._ready()
        return [*acts, *self._seal("complete", call, started=id if started else None)]

    def _output(self, call: str, text: str) -> list[Act]:
        running = self._calls.get(call)
        if running is None:
            return [Late(call, text)] if call in self._settled else []
        acts = self.begin(call)
        room = self._bounds.shown_chars_max - len(running.shown)
        shown, rest = text[:room], text[room:]
        if rest and running.rest_chars < self._bounds.kept_chars_max:
            running.rest.append(rest)
            running.rest_chars += len(rest)
        if not shown:
            return acts
        running.shown += shown
        return [*acts, Output(call, shown)]

    def _over(self, note: Over) -> list[Act]:
        """Codex tells of a command when it runs. Of one that its sandbox stopped at once it does
        not; its hook does. Of one that codex asked about it tells only when it is over, so that is
        waited for."""
        call = self.call_of(note.call)
        running = self._calls.get(call)
        if (
            call in self._questioned
            and running is not None
            and running.started
            and not running.shown
        ):
            self._overs[call] = note.said()
            return []
        return self._stopped(call, note.said()) if self.let_through(note.call) else []

    def _untold(self) -> list[Act]:
        """When codex begins something else, what it has not told of by then was stopped."""
        overs, self._overs = self._overs, {}
        return [
            act
            for call, said in overs.items()
            if call in self._calls
            for act in self._stopped(call, said)
        ]

    def _stopped(self, call: str, said: str) -> list[Act]:
        self.settled(call)
        return [Settle(call, Failed((Text(said),) if said else ()))]

    def _typed(self, note: p.Typed) -> list[Act]:
        """Codex tells of what it types afterwards: it is a call that is over, whether it asked
        first or not."""
        if not note.stdin:
            return []
        typed = typing_call("", self.call_of(note.item_id), note.stdin)
        for id, running in self._calls.items():
            if self.let_through(id) and same_call(running.call, typed):
                self.settled(id)
                return [Settle(id, Returned(()))]
        self._typings += 1
        call = typing_call(
            f"{note.item_id}/typed{self._typings}", self.call_of(note.item_id), note.stdin
        )
        acts = [*(self._seal("complete") if self._said else []), *self._ready()]
        return [
            *acts,
            *self._seal("complete", call, started=call.id),
            Settle(call.id, Returned(())),
        ]

    def _settle(self, item: i.Item) -> list[Act]:
        id = self.call_of(item.id)
        running = self._calls.get(id)
        if running is None:
            if id in self._settled:
                return []
            acts = self._started(item)
            return [*acts, *self._settle(item)] if self.call_of(item.id) in self._calls else acts
        if running.ours:
            return []
        outcome = outcome_of(item, collected(running))
        acts = [] if isinstance(outcome, Refused) else self.begin(id)
        if isinstance(outcome, Refused):
            outcome = Refused(self._refused.get(id, outcome.reason))
        self.settled(id)
        return [*acts, Settle(id, outcome, beside(outcome, running.shown))]

    # --- inputs, usage, errors, the end

    def _echo(self, item: i.UserMessage) -> list[Act]:
        id = item.client_id
        if id in self.steers:
            self.steers.discard(id)
            done = all(said.text is not None for said in self._said)
            acts = self._seal("complete" if done else "interrupted")
            if self._open:
                acts.append(Lose("steered", "another input came before anything was said"))
            self._open = self._steered = True
            return [*acts, OpenStep(id)]
        return []

    def _used(self, tokens: p.Tokens) -> list[Act]:
        """Codex says 0 where the provider said nothing; unknown is not 0."""
        if not (tokens.input_tokens or tokens.output_tokens):
            return []
        usage = Usage(
            tokens.input_tokens,
            tokens.output_tokens,
            tokens.cached_input_tokens,
            tokens.reasoning_output_tokens,
        )
        if self._open and self._said:
            self._usage = usage
            return []
        return [] if self._open else [Report(usage)]

    def _error(self, note: p.ErrorNote) -> list[Act]:
        """If it tries again by itself, what it had said so far is over."""
        self._failure = note.error
        if not note.will_retry:
            return []
        acts = self._seal("incomplete")
        self._cut.clear()
        if self._open:
            self._open = False
            acts.append(Lose(cause_of(note.error), note.error.reason()))
        return acts

    def _ended(self, turn: p.Turn) -> list[Act]:
        match turn.status:
            case "completed":
                acts = self._finish("completed")
                return [*acts, End("completed", unanswered=self._steered)]
            case "interrupted":
                return [*self._finish("interrupted"), End("interrupted")]
            case _:
                error = turn.error or self._failure
                return [*self._finish("failed"), End("failed", cause_of(error), error.message)]

    def _finish(self, status: Literal["completed", "interrupted", "failed"]) -> list[Act]:
        ended: StepEnding = "interrupted" if status == "interrupted" else "incomplete"
        whole = all(said.text is not None for said in self._said)
        acts = [
            *self._untold(),
            *self._seal("complete" if whole or status == "completed" else ended),
        ]
        for item in self._unknown.values():
            acts += [*self._ready(), *self._seal(ended, Opaque(RUNTIME, item.kind, item.json))]
        if self._open:
            self._open = False
            cause = {
                "interrupted": "stopped",
                "failed": cause_of(self._failure),
                "completed": "empty",
            }[status]
            acts.append(
                Lose(
                    cause,
                    TOO_LATE if status == "completed" and self._steered else self._failure.message,
                )
            )
        unheard = {id for id in self._calls if status == "completed" and self.let_through(id)}
        for id, running in list(self._calls.items()):
            if running.ours:
                continue
            self.settled(id)
            outcome = Failed((Text(UNHEARD),)) if id in unheard else self._left(id, running, status)
            acts.append(Settle(id, outcome, beside(outcome, running.shown)))
        return acts

    def _left(
        self, id: str, running: Running, status: Literal["completed", "interrupted", "failed"]
    ) -> Outcome:
        if not running.started:
            return Refused(self._refused.get(id, UNRUN[status]))
        said = collected(running)
        return Interrupted((Text(said),) if said else ())
