"""One turn of codex: what it tells becomes facts and drafts, in order, each before it is seen.

Only this loop changes what is open. What else happens to the turn (a person's decision, the outcome
of one of our own tools) goes into the same queue. A call that codex asks about:

    codex: requestApproval c1      approval.asked; the turn goes on, a task waits for the decision
    a person: yes                  the task puts the decision into the queue
    the loop                       tool.started, and then codex is answered
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from functools import cache
from typing import Any, Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from steno.engine.action import Finish, Limits, next_action
from steno.engine.approval import Policy, edits_in
from steno.engine.recover import waits_for_approval
from steno.journal.budget import Spent
from steno.journal.drafts import Stream
from steno.journal.facts import (
    ContextSet,
    OutputLate,
    StepLost,
    StepSealed,
    StepStarted,
    ThreadCompacted,
    ToolSettled,
    ToolStarted,
    TurnEnded,
    TurnFact,
    UsageReported,
)
from steno.journal.history import Said
from steno.journal.parts import Content, Outcome, Refused, Seq, Text, ToolCall
from steno.journal.state import OpenCall, OpenTurn, State
from steno.models import wording
from steno.runtimes.codex import RUNTIME, policy
from steno.runtimes.codex import effects as e
from steno.runtimes.codex import protocol as p
from steno.runtimes.codex import translate as t
from steno.runtimes.codex.calls import OutputBounds
from steno.runtimes.codex.items import UserMessage
from steno.runtimes.codex.mapping import TurnMap
from steno.runtimes.codex.process import (
    CodexError,
    CodexServer,
    Gone,
    Message,
    Patience,
    log,
)
from steno.runtimes.codex.thread import (
    CodexThread,
    arguments_of,
    client_id,
    client_ids,
    context,
    cut_note,
    folder_asked,
    said_to,
    seq_in,
)
from steno.runtimes.loop import payloads_told
from steno.runtimes.protocol import WithMemories
from steno.runtimes.tool_calls import Calls, Permission
from steno.runtimes.toolbox import Excerpts, SessionTools
from steno.session.lease import HeldSession
from steno.store.errors import NotPending
from steno.store.protocol import Store
from steno.tools.child import Command
from steno.tools.output import kept
from steno.tools.protocol import Tool

LATE_S = 0.3
"""How long we listen for the output of commands that were interrupted."""

UNKNOWN_CALL = Refused("not run: steno does not know this call")
TWIN = Refused(
    "not run: another call with the same id is under way, and codex could not tell them apart"
)
UNREADABLE = Refused(
    "not run: steno cannot read this patch, so no rule for files can be applied to it"
)

Ending = e.EndTurn | Literal["left"]
"""How a turn ended; "left": we let go of a session whose turn waits for a person."""


class CodexAgent(Struct, frozen=True, kw_only=True):
    """How codex answers in a session. `context.model` is `codex:NAME`, or `codex:` for its own
    choice. `own_tools` are tools of ours that codex has better ones for."""

    command: Command
    version: str
    context: ContextSet
    approval: Literal["allow", "refuse", "ask"] = "refuse"
    policy: Policy = Policy()
    limits: Limits = Limits()
    patience: Patience = Patience()
    bounds: OutputBounds = OutputBounds()
    sandbox: str = "workspace-write"
    begin_anew: bool = False
    session_tools: SessionTools | None = None
    with_memories: WithMemories | None = None
    own_tools: frozenset[str] = frozenset()


class TurnContext(Struct, frozen=True):
    """What a turn works with."""

    store: Store
    held: HeldSession
    agent: CodexAgent
    server: CodexServer
    thread: CodexThread
    tools: Mapping[str, Tool]
    excerpts: Excerpts

    def model(self) -> str:
        return f"{RUNTIME}:{self.thread.model}"

    def is_confined(self) -> bool:
        """True if codex has a sandbox: it asks by itself only about what is to leave it."""
        return policy.is_confined(self.agent.sandbox)

    def calls(self) -> Calls:
        return Calls(self.held, self.tools, self.agent.approval, self.agent.policy)

    async def input(self, inputs: Sequence[Said]) -> list[dict[str, Any]]:
        hashes = sorted(payloads_told(tuple(inputs)))
        return said_to(inputs, {hash: await self.store.get(hash) for hash in hashes})

    async def within_bounds(self, outcome: Outcome) -> Outcome:
        """An outcome with output that is too long stored apart."""

        async def keep(payload: bytes) -> str:
            return await self.store.put(self.held.id, payload)

        return await kept(outcome, self.agent.bounds.shown_chars_max, keep)


class _Decided(Struct, frozen=True):
    request: int | str
    call: str
    permission: Permission


class _Ran(Struct, frozen=True):
    request: int | str
    call: str
    outcome: Outcome | None


class _SignedOut(Struct, frozen=True):
    reason: str


_News = _Decided | _Ran | _SignedOut


class CodexTurn:
    """`step` is open when it begins. `_doubted`: codex was asked whether a login is missing."""

    def __init__(self, context: TurnContext, map: TurnMap, step: Seq) -> None:
        self._context = context
        self._held = context.held
        self._server = context.server
        self._thread = context.thread
        self._calls = context.calls()
        self._map = map
        self._recorder = Recorder(context, step)
        self._tasks: set[asyncio.Task[None]] = set()
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._news: list[_News] = []
        self._interrupted_s: float | None = None
        self._broken: BaseException | None = None
        self._doubted = False
        self._spent = ""

    async def run(self) -> Ending:
        """To its end, or until we leave while it waits for a person."""
        self._spawn(self._rouse())
        self._spawn(self._steer())
        try:
            while True:
                ending = await self._go_on()
                if ending is not None:
                    return self._with_budget(ending)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._patience()):
                        await self._server.arrived.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _go_on(self) -> Ending | None:
        """Everything that can be done now."""
        if self._broken is not None:
            raise self._broken
        try:
            messages = self._server.take()
        except Gone as error:
            if only_waits(self._held.state.turn):
                log().info("codex %s; the question that it asked stands", error)
                return "left"
            return await self._do(
                self._map.close("failed", "codex", f"codex {error}")
            )
        news, self._news = self._news, []
        if (ending := await self._take_in(messages)) is not None:
            return ending
        for one in news:
            if (ending := await self._heed(one)) is not None:
                return ending
        self._doubt_login(messages)
        limits, state = self._context.agent.limits, self._held.state
        self._spent = self._spent or budget_reached(state, limits, self._held.spent)
        if self._held.asked_to_stop() or self._spent:
            return await self._stop()
        return None

    async def _take_in(self, messages: list[Message]) -> Ending | None:
        effects: list[e.Effect] = []
        for message in messages:
            if isinstance(message, p.ServerRequest):
                if (ending := await self._do(effects)) is not None:
                    return ending
                effects = []
                await self._serve(message)
            else:
                self._hear_echo(message)
                effects += self._map.apply(message)
        return await self._do(effects)

    def _hear_echo(self, note: p.Notification) -> None:
        """What codex says back to us is in its thread. What it only took may be lost."""
        match note:
            case p.ItemStarted(item=UserMessage(client_id=str(id))) if id:
                self._thread.known.update(client_ids(id))
            case _:
                pass

    def _with_budget(self, ending: Ending) -> Ending:
        """A turn that we stopped for its budget failed of that, unless a person stopped it
        first."""
        turn = self._held.state.turn
        if (
            ending == "left"
            or ending.status != "interrupted"
            or self._held.letting_go()
        ):
            return ending
        if not self._spent or turn is None or turn.interrupted is not None:
            return ending
        return e.EndTurn("failed", "budget", self._spent)

    def _doubt_login(self, messages: list[Message]) -> None:
        """Codex tries again for long, or without end, also where a login is missing."""
        errors = (
            one for one in messages if isinstance(one, p.ErrorNote) and one.will_retry
        )
        again = next(errors, None)
        if again is not None and not self._doubted:
            self._doubted = True
            self._spawn(self._check_login(again.error))

    async def _check_login(self, again: p.Failure) -> None:
        """Beside the turn: a codex that does not answer can still be stopped."""
        try:
            account = await self._server.ask("account/read", {}, p.AccountRead)
        except CodexError as error:
            log().info("codex %s", error)
            self._doubted = False
            return
        if account.missing():
            self._tell(_SignedOut(again.reason()))

    async def _rouse(self) -> None:
        await self._held.stopped.wait()
        self._server.arrived.set()

    def _tell(self, news: _News) -> None:
        self._news.append(news)
        self._server.arrived.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: "asyncio.Task[None]") -> None:
        """What could not be stored ends the turn as it would have in the loop: codex would wait for
        its answer."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = error
            self._server.arrived.set()

    # --- stopping and steering

    def _patience(self) -> float | None:
        if self._interrupted_s is None:
            return None
        limit_s = self._interrupted_s + self._server.patience.interrupt_s
        return max(limit_s - time.monotonic(), 0.01)

    async def _stop(self) -> Ending | None:
        """Ask codex to stop; if it does not in time, the turn ends all the same."""
        held, limit_s = self._held, self._server.patience.interrupt_s
        if held.letting_go() and waits(held.state.turn):
            return "left"
        if self._interrupted_s is None:
            self._interrupted_s = time.monotonic()
            asked = {"threadId": self._thread.id, "turnId": self._map.turn}
            try:
                await self._server.ask("turn/interrupt", asked, dict, limit_s)
            except CodexError as error:
                log().info("codex %s", error)
                return await self._do(self._map.close("interrupted"))
            self._server.arrived.set()
            return None
        if time.monotonic() - self._interrupted_s >= limit_s:
            return await self._do(self._map.close("interrupted"))
        return None

    async def _steer(self) -> None:
        """Send inputs that steer, one by one. They are facts already; they are taken when codex has
        them. The turn does not wait for that: a codex that does not answer can still be stopped."""
        while self._interrupted_s is None:
            self._held.said.clear()
            await self._held.catch_up()
            if (said := self._unsent()) is None:
                await self._held.said.wait()
            else:
                await self._send(said, client_id(self._held.id, said))

    def _unsent(self) -> Said | None:
        sent = self._map.steers | self._thread.known
        for seq, input in self._held.state.pending.items():
            said = Said(seq, input.parts)
            if input.mode == "steer" and client_id(self._held.id, said) not in sent:
                return said
        return None

    async def _send(self, said: Said, id: str) -> None:
        """Say more in the turn that runs."""
        self._map.steers.add(id)
        asked = {
            "threadId": self._thread.id,
            "expectedTurnId": self._map.turn,
            "clientUserMessageId": id,
            "input": await self._context.input([said]),
            **context(cut_note(self._map.saying())),
        }
        try:
            await self._server.ask("turn/steer", asked, dict)
        except CodexError as error:
            log().info(
                "an input could not be sent and waits for the next turn: codex %s",
                error,
            )

    # --- what codex asks of us

    async def _serve(self, request: p.ServerRequest) -> None:
        id = request.id
        match request.asked:
            case p.WaitingCall() as waiting:
                await self._hold(id, waiting)
            case p.CommandApproval() as typing if typing.types():
                await self._ask_typing(id, typing)
            case p.CommandApproval() | p.FileApproval() as asked:
                await self._ask_again(id, asked)
            case p.ToolCallAsked(call_id=call):
                self._spawn(self._called(id, self._map.call_of(call)))
            case p.Elicited(server_name=name) as elicited if elicited.approves():
                through = self._map.let_through_for(name)
                action = "accept" if through else "decline"
                self._server.reply(id, {"action": action, "content": {}})
            case p.Elicited(server_name=name):
                log().warning(
                    "the MCP server %s of codex asks for something, which steno does not do",
                    name,
                )
                self._server.reply(id, {"action": "decline"})
            case p.Unserved(method=method):
                log().warning("codex asks for %s, which steno does not do", method)
                self._server.refuse(id, "steno does not do this")

    async def _hold(self, request: int | str, waiting: p.WaitingCall) -> None:
        """A call at the gate. Without a sandbox codex asks by itself about a change of files."""
        confined, call = self._context.is_confined(), t.waiting_call(waiting)
        if policy.is_patch(waiting):
            if not confined:
                self._server.decide(request)
                return
            within = await asyncio.to_thread(folder_asked, waiting.path, waiting.call)
            call = policy.as_changes(waiting, within) or call
        twin = self._map.is_open(call.id)
        call = replace(call, id=f"{call.id}/{request}") if twin else call
        await self._do(self._map.held(call) if waiting.turn == self._map.turn else [])
        id = self._map.call_of(call.id)
        if twin:
            self._tell(_Decided(request, id, TWIN))
        elif (
            confined
            and policy.may_be_patch(waiting)
            and not edits_in(call.name, call.arguments)
        ):
            self._tell(_Decided(request, id, UNREADABLE))
        else:
            self._spawn(self._permitted(request, id))

    async def _ask_again(
        self, request: int | str, asked: p.CommandApproval | p.FileApproval
    ) -> None:
        """The yes at the gate is also the answer to codex's own question, unless that says more."""
        item, confined, leaves = asked.item_id, self._context.is_confined(), None
        if isinstance(asked, p.CommandApproval) and self._map.let_through(item):
            arguments = await asyncio.to_thread(arguments_of, self._thread.path, item)
            leaves = policy.leaves(arguments)
        if self._map.answered(
            item, asked.reason is not None, confined and leaves is not False
        ):
            self._server.decide(request)
            return
        await self._do(self._map.asked(item, policy.unrun(asked, leaves)))
        why = policy.why(asked, leaves, confined)
        covers = policy.covers_leaving(asked, leaves, confined)
        self._spawn(self._permitted(request, self._map.call_of(item), why, covers))

    async def _ask_typing(self, request: int | str, asked: p.CommandApproval) -> None:
        """Codex would type into a command that runs outside its sandbox. That one runs on, whatever
        is decided."""
        text = t.typed_in(asked)
        if text is None or not asked.approval_id:
            log().warning(
                "codex asks to type something that steno cannot read: %s",
                asked.command,
            )
            self._server.decide(request, UNKNOWN_CALL.reason)
            return
        call = t.typing_call(
            asked.approval_id, self._map.call_of(asked.item_id), text
        )
        await self._do(self._map.held(call))
        why = (asked.reason or "")[: policy.REASON_CHARS_MAX]
        id, confined = self._map.call_of(call.id), self._context.is_confined()
        self._spawn(self._permitted(request, id, why, confined))

    async def _permitted(
        self, request: int | str, call: str, why: str = "", leaves: bool = False
    ) -> None:
        if (open_call := self._open_call(call)) is None:
            self._tell(_Decided(request, call, UNKNOWN_CALL))
            return
        edits = edits_in(open_call.call.name, open_call.call.arguments)
        permission = await self._calls.permission(
            open_call, "ask", edits, why, leaves
        )
        self._tell(_Decided(request, call, permission))

    async def _called(self, request: int | str, call: str) -> None:
        """However often codex asks for a call, it is run once, and each gets its outcome."""
        async with self._locks[call]:
            if (open_call := self._open_call(call)) is not None:
                await self._calls.run((open_call,))
        settled = (
            () if self._held.state.turn is None else self._held.state.turn.settled
        )
        outcome = next(
            (fact.outcome for fact in reversed(settled) if fact.call == call), None
        )
        self._tell(_Ran(request, call, outcome))

    def _open_call(self, call: str) -> OpenCall | None:
        turn = self._held.state.turn
        return None if turn is None else turn.calls.get(call)

    async def _heed(self, news: _News) -> Ending | None:
        match news:
            case _Decided(permission="left"):
                return "left"
            case _Decided(request, call, "given"):
                await self._do(self._map.begin(call))
                self._server.decide(request)
            case _Decided(request, call, Refused(reason=reason)):
                await self._do(self._map.refuse(call, reason))
                self._server.decide(request, reason)
            case _Ran(outcome=None) if self._held.letting_go():
                return "left"
            case _Ran(request, call, outcome):
                self._map.settled(call)
                self._server.reply(request, await self._told(outcome or UNKNOWN_CALL))
            case _SignedOut(reason=reason):
                why = f"codex is not signed in: {reason}"
                return await self._do(self._map.close("failed", "no_key", why))
        self._server.arrived.set()
        return None

    async def _told(self, outcome: Outcome) -> dict[str, Any]:
        """The outcome of one of our tools, as codex is told it."""
        text = t.told_of(await self._context.excerpts.of_outcome(outcome))
        success = not isinstance(outcome, Refused) and not wording.verdict(outcome)
        return {
            "success": success,
            "contentItems": [{"type": "inputText", "text": text}],
        }

    # --- what is stored

    async def _do(self, effects: list[e.Effect]) -> Ending | None:
        end = await self._recorder.do(effects)
        if end is not None:
            await self._listen_on(end)
        return end

    async def _listen_on(self, end: e.EndTurn) -> None:
        """Codex lets commands run on when their turn was interrupted. They are ended; what they
        still say is kept, as late. When we let go, we end codex, and they end with it."""
        turn = self._held.state.turn
        ran = turn is not None and any(
            seq > turn.seq for seq in self._thread.ran.values()
        )
        if end.status != "interrupted" or not ran or self._held.letting_go():
            return
        cleaned = "thread/backgroundTerminals/clean", {"threadId": self._thread.id}
        try:
            await self._server.ask(*cleaned, dict, LATE_S)
        except CodexError as error:
            log().info("codex %s", error)
        await asyncio.sleep(LATE_S)
        with contextlib.suppress(Gone):
            late = [
                one for one in self._server.take() if isinstance(one, p.OutputDelta)
            ]
            await self._recorder.do(
                [
                    e.KeepLate(self._map.call_of(one.item_id), one.delta)
                    for one in late
                ]
            )


class Recorder:
    """Carries effects out in order, as facts and drafts. `step` is the open one."""

    def __init__(self, context: TurnContext, step: Seq) -> None:
        self._context = context
        self._held = context.held
        self._ran = context.thread.ran
        self._step: Seq | None = step
        self._last_step = step
        self._advised = False

    async def do(self, effects: list[e.Effect]) -> e.EndTurn | None:
        """The end of the turn, if it is among the effects. Pieces of one stream go out together,
        and so do facts that need not wait."""
        facts: list[TurnFact] = []
        together = e.joined(effects)
        for at, effect in enumerate(together):
            if isinstance(effect, e.AsFact):
                if any(
                    _is_about(fact, getattr(effect, "call", None)) for fact in facts
                ):
                    await self._store(facts)
                facts += await self._facts(effect)
                continue
            await self._store(facts)
            match effect:
                case e.OpenStep(takes=takes):
                    taken = None if takes is None else seq_in(takes, self._held.id)
                    self._step = await self._open(() if taken is None else (taken,))
                case e.WriteText(kind=kind, text=text):
                    await self._held.draft(Stream(self._open_step(), kind), text)
                case e.ShowOutput(call=call, text=text):
                    await self._held.draft(Stream(self._ran[call], "output"), text)
                case e.LogUnknown(method=method):
                    log_unknown(method)
                case e.EndTurn():
                    late = [
                        one
                        for one in together[at + 1 :]
                        if isinstance(one, e.KeepLate)
                    ]
                    await self.do([*late])
                    return effect
                case unreachable:
                    assert_never(unreachable)
        await self._store(facts)
        return None

    async def _open(self, takes: tuple[Seq, ...]) -> Seq:
        """A step. An input that was withdrawn while it was being sent stays withdrawn."""
        model = self._context.model()
        try:
            return await self._held.record(StepStarted(model, takes=takes))
        except NotPending:
            await self._held.catch_up()
            return await self._held.record(StepStarted(model))

    async def _store(self, facts: list[TurnFact]) -> None:
        if not facts:
            return
        first = await self._held.record(*facts)
        for seq, fact in enumerate(facts, start=first):
            if isinstance(fact, ToolStarted):
                self._ran[fact.call] = seq
        facts.clear()

    async def _facts(self, effect: e.AsFact) -> list[TurnFact]:
        match effect:
            case e.SealStep():
                return self._sealed(effect)
            case e.LoseStep(cause=cause, detail=detail):
                return [StepLost(self._close_step(), cause, "yes", detail)]
            case e.StartCall(call=id):
                return [self._started(self._open_call(id).step, id)]
            case e.SettleCall(call=id):
                call = self._open_call(id)
                outcome = await self._context.within_bounds(effect.outcome)
                shown = None if effect.shown is None else (Text(effect.shown),)
                self._advise(outcome)
                return [ToolSettled(call.step, id, outcome, call.started, shown)]
            case e.KeepLate(call=id, text=text):
                return [OutputLate(self._ran[id], text)] if id in self._ran else []
            case e.ReportUsage(usage=usage):
                return [UsageReported(self._last_step, usage)]
            case e.StorePlan(plan=plan):
                return [plan]
            case e.NoteCompaction():
                return [ThreadCompacted(RUNTIME, self._context.thread.id)]
            case unreachable:
                assert_never(unreachable)

    def _sealed(self, effect: e.SealStep) -> list[TurnFact]:
        step = self._last_step = self._close_step()
        sealed = StepSealed(
            step, effect.parts, effect.ended, effect.usage, effect.shown
        )
        if effect.started is None:
            return [sealed]
        self._notice(effect.parts[-1])
        return [sealed, self._started(step, effect.started)]

    def _started(self, step: Seq, call: str) -> ToolStarted:
        return ToolStarted(step, call, self._context.server.group)

    def _notice(self, part: Content) -> None:
        """Codex runs no command unasked, unless a rules file came to be while it ran, or the gate
        failed."""
        if isinstance(part, ToolCall) and part.name == t.SHELL:
            log().warning("codex runs a command without asking: %s", part.arguments)

    def _advise(self, outcome: Outcome) -> None:
        """To codex, a sandbox that cannot be built is a command that failed."""
        if not self._advised and t.of_the_sandbox(outcome):
            self._advised = True
            log().warning(
                "codex's sandbox does not work here, so its commands fail; %s",
                t.SANDBOX,
            )

    def _open_call(self, call: str) -> OpenCall:
        """What is stored of a call without an outcome."""
        turn = self._held.state.turn
        if turn is None:
            raise AssertionError("a call is open only in a turn")
        return turn.calls[call]

    def _open_step(self) -> Seq:
        if self._step is None:
            raise AssertionError("a step is open whenever something is said")
        return self._step

    def _close_step(self) -> Seq:
        step, self._step = self._open_step(), None
        return step


def _is_about(fact: TurnFact, call: str | None) -> bool:
    """True if a fact must be stored before what follows for this call."""
    if isinstance(fact, StepSealed):
        return any(
            isinstance(part, ToolCall) and part.id == call for part in fact.parts
        )
    return isinstance(fact, ToolStarted | ToolSettled) and fact.call == call


@cache
def log_unknown(method: str) -> None:
    """Once, however often it comes."""
    log().warning("codex sent %s, which steno does not know; it is skipped", method)


# --- how a turn stands, by our journal; pure ------------------------------------------------------


def waits(turn: OpenTurn | None) -> bool:
    """True if a person was asked about something."""
    return turn is not None and any(
        c.asked and not c.started for c in turn.calls.values()
    )


def only_waits(turn: OpenTurn | None) -> bool:
    """True if nothing is under way but a question to a person, which the end of codex does not
    answer."""
    if turn is None or turn.step is not None or not waits_for_approval(turn):
        return False
    return all(call.started is None for call in turn.calls.values())


def budget_reached(state: State, limits: Limits, spent: Spent) -> str:
    """Which budget is spent, as our own loop would say before it asks again; "" if none."""
    turn = state.turn
    if turn is None or turn.step is not None or turn.calls or turn.last is None:
        return ""
    action = next_action(state, limits, spent=spent)
    ended = action.facts[-1] if isinstance(action, Finish) else None
    return (
        ended.detail
        if isinstance(ended, TurnEnded) and ended.cause == "budget"
        else ""
    )
