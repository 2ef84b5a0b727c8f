"""Drives a held session by codex. What to do next is our engine's decision; what a turn does is
codex's.

The child lives as long as we hold the session: codex lets no other process have a thread while one
of its processes has it open.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from hashlib import sha256
from typing import Any, Literal, TypeVar, assert_never

from msgspec import Struct
from msgspec.structs import replace

from steno.engine.action import (
    Action,
    Ask,
    Begin,
    Compact,
    FallBack,
    Finish,
    Rest,
    RunTools,
    finish,
    next_action,
    out_of_time,
)
from steno.engine.approval import edits_in
from steno.engine.request import OPENING, recovery_note, system_text
from steno.journal.facts import (
    ContextSet,
    Continues,
    HelperEnded,
    HelperStarted,
    StepLost,
    StepStarted,
    ThreadCompacted,
    ToolSettled,
)
from steno.journal.parts import Refused, Seq
from steno.journal.state import OpenCall, OpenTurn
from steno.models.wire import encode
from steno.race import first_of
from steno.runtimes.codex import RUNTIME, gate
from steno.runtimes.codex import protocol as p
from steno.runtimes.codex.binary import by_hand
from steno.runtimes.codex.calls import Promised
from steno.runtimes.codex.effects import EndTurn
from steno.runtimes.codex.mapping import TurnMap
from steno.runtimes.codex.policy import is_confined
from steno.runtimes.codex.process import (
    CodexError,
    CodexServer,
    Declined,
    Gone,
    Silent,
    Stopped,
    ThreadBusy,
    Unguarded,
    Unreadable,
    Unstartable,
)
from steno.runtimes.codex.thread import (
    CodexThread,
    Shape,
    context,
    lost_note,
    message_id,
    open_thread,
    pending,
    unsaid,
)
from steno.runtimes.codex.translate import SANDBOX
from steno.runtimes.codex.turn import CodexAgent, CodexTurn, Ending, TurnContext
from steno.runtimes.compact import Compaction
from steno.runtimes.loop import payloads_told
from steno.runtimes.tool_calls import Calls
from steno.runtimes.toolbox import Excerpts, tools_of
from steno.session.lease import HeldSession, begin, end_turn, let_go
from steno.session.live import Enough
from steno.session.load import context_of
from steno.store.protocol import Store
from steno.tools.child import Command
from steno.tools.protocol import Tool

NO_GOAL = "This session has no goal any more."
NO_INSTRUCTIONS = (
    "The instructions that came with an earlier message do not hold any more."
)
AGAIN = "Answer the user's last message above."
NOT_TAKEN_UP = Refused("not run: it was approved, and codex did not come back to it")
COMPACTION_S = 600.0
T = TypeVar("T")


class Codex:
    """`agent_for` says how codex answers, given the session's context so far."""

    def __init__(
        self, store: Store, agent_for: Callable[[ContextSet | None], CodexAgent]
    ) -> None:
        self._store = store
        self._agent_for = agent_for
        self._excerpts = Excerpts(store)

    async def drive(self, held: HeldSession, enough: Enough) -> None:
        agent = self._agent_for(context_of(held.state))
        if agent.with_memories is not None:
            agent = replace(
                agent, context=await agent.with_memories(held, agent.context)
            )
        await held.restore()
        driven = _Driven(self._store, held, agent, self._excerpts)
        clock = asyncio.create_task(held.watch_time(agent.limits.turn_s))
        try:
            await driven.act(enough)
        finally:
            clock.cancel()
            await driven.close()

    async def compact_held(self, held: HeldSession) -> Compaction:
        """Have codex make its own thread shorter. Our history stays as it is."""
        await held.restore()
        driven = _Driven(
            self._store, held, self._agent_for(context_of(held.state)), self._excerpts
        )
        try:
            return await driven.compact()
        except CodexError as error:
            return Compaction("failed", f"codex {error}")
        finally:
            await driven.close()


class _Opened(Struct, frozen=True):
    """The session's thread, open in a child that runs. `goal` and `instructions` are the session's
    when the thread was opened: one that is begun has them in its own instructions."""

    server: CodexServer
    thread: CodexThread
    tools: Mapping[str, Tool]
    goal: str
    instructions: str


class _Driven:
    """A session while codex drives it. `_promised` are calls that were approved while codex was
    away; `_unanswered`: codex took an input and did not answer to it."""

    def __init__(
        self, store: Store, held: HeldSession, agent: CodexAgent, excerpts: Excerpts
    ) -> None:
        self._store = store
        self._held = held
        self._agent = agent
        self._excerpts = excerpts
        self._server: CodexServer | None = None
        self._opened: _Opened | None = None
        self._promised: tuple[Promised, ...] = ()
        self._unanswered = False

    async def close(self) -> None:
        server, self._server, self._opened = self._server, None, None
        if server is not None:
            await server.end()

    async def act(self, enough: Enough) -> None:
        held = self._held
        while True:
            if held.lost is not None:
                raise held.lost
            if held.leaving or (held.state.turn is None and enough(held.state)):
                await self._let_go()
                return
            match self._next():
                case Rest():
                    await self.close()
                    if await held.release():
                        return
                case Begin(input=taken):
                    await begin(held, taken)
                case Ask() as ask:
                    await self._ask(ask)
                case RunTools(calls=calls):
                    await self._decide(calls)
                case Finish(facts=facts):
                    await held.record(*facts)
                case Compact() | FallBack():
                    raise AssertionError(
                        "codex looks after the length of its thread, and has no fallback"
                    )
                case unreachable:
                    assert_never(unreachable)

    async def _let_go(self) -> None:
        """How the turn ended is stored at once, so that leaving does not take long. Then the child
        goes, before the lease does: the next process to take the session finds the thread free."""
        await end_turn(self._held)
        await self.close()
        await let_go(self._held)

    def _next(self) -> Action:
        """A call that was decided about and can only be run by codex does not stand in the way. An
        input that codex took and did not answer to is one more thing to ask, unless the turn was
        stopped."""
        turn = self._held.state.turn
        action = next_action(
            self._held.state, self._agent.limits, spent=self._held.spent
        )
        if isinstance(action, RunTools) and self._promised:
            return Ask()
        if self._unanswered and turn is not None and turn.interrupted is None:
            return Ask()
        return action

    # --- one turn

    async def _ask(self, ask: Ask) -> None:
        """One turn of codex. Whatever goes wrong with it is a stored end of ours."""
        held = self._held
        promised, self._promised, self._unanswered = self._promised, (), False
        try:
            opened = await self._unless_stopped(self._ready())
        except CodexError as error:
            await self._fail(error, None)
            return
        turn_context, thread = self._turn_context(opened), opened.thread
        model = turn_context.model()
        told = await held.consult(
            "before_request", {"model": model, "attempt": ask.attempt}
        )
        await held.catch_up()
        notes = [*await self._set_context(opened), *(note for _, note in told)]
        if held.asked_to_stop() or held.state.turn is None:
            await self._give_up(None)
            return
        asked = await self._request(
            held.state.turn, ask, turn_context, promised, notes
        )
        digest = sha256(encode(asked)).hexdigest()[:32]
        step = await held.record(
            StepStarted(model, digest, ask.attempt, acknowledges=ask.acknowledges)
        )
        try:
            began = opened.server.ask("turn/start", asked, p.TurnAnswer)
            answer = await self._unless_stopped(began)
        except CodexError as error:
            await self._fail(error, step)
            return
        map = TurnMap(self._agent.bounds, promised)
        map.turn, thread.fresh, thread.answered = answer.turn.id, False, ""
        await self._end(await CodexTurn(turn_context, map, step).run())

    async def _request(
        self,
        turn: OpenTurn,
        ask: Ask,
        turn_context: TurnContext,
        promised: tuple[Promised, ...],
        added: list[str],
    ) -> dict[str, Any]:
        """What the thread does not have is said in one message: codex has all of it or nothing, and
        answers to all of it. An input that it has already is not said again: a note asks for what
        is to be done about it."""
        held, thread = self._held, turn_context.thread
        entries = held.history.entries()
        notes = [
            "" if thread.fresh else lost_note(entries, turn.seq, thread.answered),
            *added,
        ]
        if ask.acknowledges is not None and held.state.cut_off is not None:
            notes.append(
                recovery_note(held.state.cut_off, isinstance(turn.origin, Continues))
            )
        notes += [
            (
                f"The user has approved this call of {one.name}, which was not run: "
                f"{one.arguments}. Run it now."
            )
            for one in promised
        ]
        if inputs := unsaid(entries, thread, held.id):
            return {
                "threadId": thread.id,
                "input": await turn_context.input(inputs),
                "clientUserMessageId": message_id(held.id, inputs),
                **context("\n\n".join(filter(None, notes))),
            }
        if not promised and not ask.acknowledges:
            notes.append(AGAIN)
        note = "\n\n".join(filter(None, notes)).removeprefix(OPENING)
        said = [{"type": "text", "text": f"{OPENING}\n{note}"}]
        return {"threadId": thread.id, "input": said}

    async def _end(self, ending: Ending) -> None:
        held = self._held
        turn = held.state.turn
        if ending == "left" or ending.unheard:
            await self.close()
        if ending == "left" or turn is None:
            return
        if ending.status == "interrupted" and held.letting_go():
            return  # the loop lets go, and says that it was we who ended it
        await held.catch_up()
        if held.overdue and turn.interrupted is None:
            await held.record(*out_of_time(turn, self._agent.limits).facts)
        elif ending.status == "interrupted":
            cause = "user" if turn.interrupted is not None else "codex"
            await held.record(*finish(turn, "interrupted", cause).facts)
        elif ending.status == "failed":
            detail = _detail(ending, self._agent.command)
            await held.record(*finish(turn, "failed", ending.cause, detail).facts)
            await self.close()
        elif ending.unanswered:
            self._unanswered = True
        elif turn.last is None or (
            turn.last_lost is not None and turn.last_lost.cause == "empty"
        ):
            why = "codex ended the turn without an answer"
            await held.record(*finish(turn, "failed", "empty", why).facts)
        else:
            await self._finish(turn)

    async def _finish(self, turn: OpenTurn) -> None:
        """The turn is done. A call that was approved and that codex did not come back to was not
        run."""
        unrun = [call for call in turn.calls.values() if call.started is None]
        settled = [
            ToolSettled(call.step, call.call.id, NOT_TAKEN_UP) for call in unrun
        ]
        started = {
            id: one for id, one in turn.calls.items() if one.started is not None
        }
        done = finish(replace(turn, calls=started), "done")
        await self._held.record(*settled, *done.facts)

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """What codex takes long over need not be waited for. Raises `Stopped` if a stop is asked
        for first."""

        async def done() -> tuple[T]:
            return (await work,)

        if (found := await first_of(done(), self._held.stopped)) is None:
            raise Stopped
        return found[0]

    async def _give_up(self, step: Seq | None) -> None:
        """A stop came before codex had begun. What asked for the stop ends the turn, or its time is
        up."""
        held = self._held
        await self.close()
        await held.catch_up()
        if step is not None:
            await held.record(StepLost(step, "stopped", "unknown"))
        turn = held.state.turn
        if (
            held.overdue
            and turn is not None
            and turn.interrupted is None
            and not held.letting_go()
        ):
            await held.record(*out_of_time(turn, self._agent.limits).facts)

    async def _fail(self, error: CodexError, step: Seq | None) -> None:
        """A turn that codex could not even begin."""
        held = self._held
        if isinstance(error, Stopped):
            await self._give_up(step)
            return
        await self.close()
        turn = held.state.turn
        if turn is None or held.letting_go():
            return
        cause, detail = error.cause, _what_happened(error)
        lost = () if step is None else (StepLost(step, cause, "unknown", detail),)
        await held.record(*lost, *finish(turn, "failed", cause, detail).facts)

    # --- approvals that outlived a process

    async def _decide(self, calls: tuple[OpenCall, ...]) -> None:
        """Codex forgot what it asked when it ended. Our question stands until it is answered."""
        promised: list[Promised] = []
        asking = Calls(self._held, {}, self._agent.approval, self._agent.policy)
        for open_call in calls:
            call = open_call.call
            permission = await asking.permission(
                open_call, "ask", edits_in(call.name, call.arguments)
            )
            if isinstance(permission, Refused):
                await asking.settle(open_call, permission)
            elif permission == "given":
                explained, leaves = bool(open_call.why), open_call.leaves
                promised.append(
                    Promised(call.id, call.name, call.arguments, explained, leaves)
                )
        self._promised = tuple(promised)

    # --- the child and its thread

    async def _ready(self) -> _Opened:
        """A child that runs, and the session's thread open in it."""
        held, agent = self._held, self._agent
        if self._server is None:
            home = gate.codex_home(agent.command.environment)
            confined = is_confined(agent.sandbox)
            need = "all" if confined else gate.needed(home, agent.command.folder)
            self._server = await CodexServer.start(
                agent.command, agent.patience, agent.version, need
            )
        if self._opened is not None and RUNTIME not in held.state.behind:
            return self._opened
        tools = await self._tools()
        turn, goal, entries = held.state.turn, held.state.goal, held.history.entries()
        shape = Shape(
            folder=str(agent.command.folder),
            sandbox=agent.sandbox,
            model=agent.context.model.partition(":")[2],
            instructions=system_text(
                replace(
                    agent.context, goal=goal, instructions=held.state.instructions
                )
            ),
            tools=tuple(tool.spec for tool in tools.values()),
            begin_anew=agent.begin_anew,
        )
        hashes = sorted(payloads_told((*entries, *pending(held))))
        payloads = {hash: await self._store.get(hash) for hash in hashes}
        inputs = () if turn is None else turn.inputs
        thread = await open_thread(
            self._server, self._store, held, shape, payloads, inputs
        )
        self._opened = _Opened(
            self._server, thread, tools, goal, held.state.instructions
        )
        return self._opened

    async def _tools(self) -> Mapping[str, Tool]:
        session_tools, own = self._agent.session_tools, self._agent.own_tools
        tools = (
            None
            if session_tools is None
            else await tools_of(self._held, session_tools)
        )
        return {name: tool for name, tool in (tools or {}).items() if name not in own}

    async def _set_context(self, opened: _Opened) -> list[str]:
        """Store what shapes this turn, if it changed. A thread has the tools and instructions that
        it was begun with, so it is told of a goal and of instructions that were set since."""
        held, thread, goal = self._held, opened.thread, self._held.state.goal
        before, told = held.history.context, held.state.instructions
        tools, known = tuple(tool.spec for tool in opened.tools.values()), opened.goal
        known_told = opened.instructions
        if before is not None and _runtime(before) == RUNTIME and not thread.fresh:
            tools, known, known_told = before.tools, before.goal, before.instructions
        model = f"{RUNTIME}:{thread.model}"
        context = replace(
            self._agent.context,
            model=model,
            tools=tools,
            goal=goal,
            instructions=told,
        )
        if before == context:
            return []
        await held.record(context)
        notes = []
        if goal != known:
            notes.append(
                f"The goal of this session is now: {goal}" if goal else NO_GOAL
            )
        if told != known_told:
            notes.append(
                f"Your instructions are now: {told}" if told else NO_INSTRUCTIONS
            )
        return notes

    def _turn_context(self, opened: _Opened) -> TurnContext:
        return TurnContext(
            self._store,
            self._held,
            self._agent,
            opened.server,
            opened.thread,
            opened.tools,
            self._excerpts,
        )

    # --- compaction

    async def compact(self) -> Compaction:
        held = self._held
        if RUNTIME not in held.state.threads or RUNTIME in held.state.behind:
            return Compaction("nothing", "codex has no thread of this session yet")
        opened = await self._ready()
        thread = opened.thread
        started = await held.record(
            HelperStarted("summary", f"{RUNTIME}:{thread.model}")
        )
        try:
            made = self._compacted(opened.server, thread)
            done = await first_of(made, held.stopped, limit_s=COMPACTION_S)
        except CodexError as error:
            done = Compaction("failed", f"codex {error}")
        if done is None and held.asked_to_stop():
            done = Compaction(
                "stopped", "asked to stop; its thread may be shorter all the same"
            )
        elif done is None:
            done = Compaction("failed", "codex took too long over it")
        if done.outcome == "done":
            await held.record(
                HelperEnded(started, "done"), ThreadCompacted(RUNTIME, thread.id)
            )
        else:
            stopped = done.outcome == "stopped"
            ended: Literal["failed", "stopped"] = "stopped" if stopped else "failed"
            await held.record(
                HelperEnded(started, ended, done.detail, sent="unknown")
            )
        return done

    async def _compacted(
        self, server: CodexServer, thread: CodexThread
    ) -> Compaction:
        await server.ask("thread/compact/start", {"threadId": thread.id}, dict)
        while True:
            ends = (
                one.turn for one in server.take() if isinstance(one, p.TurnCompleted)
            )
            if (turn := next(ends, None)) is not None and turn.status == "completed":
                return Compaction("done", "codex made its own thread shorter")
            if turn is not None:
                return Compaction(
                    "failed", "" if turn.error is None else turn.error.message
                )
            await server.arrived.wait()


def _runtime(context: ContextSet) -> str:
    return context.model.partition(":")[0]


# --- what a person is told of a failure -----------------------------------------------------------

_MENDS: Mapping[type[CodexError], str] = {
    ThreadBusy: "close it there; nothing is lost",
    Unguarded: (
        "so its own rules files or MCP servers could do things without asking steno; "
        "turn hooks on in its configuration, or take those away"
    ),
    Unstartable: "path under [codex] names another program",
    Gone: "it is started again with the next turn",
    Silent: "answer_s under [codex] gives it more time",
    Unreadable: f"steno was tried with codex {p.VERSIONS}; path under [codex] names another",
}


def _what_happened(error: CodexError) -> str:
    """Why codex could not begin a turn, and what to do where the cause does not say it."""
    match error:
        case Unstartable():
            said = str(error)
        case Declined():
            said = f"codex says: {error}"
        case _:
            said = f"codex {error}"
    return "; ".join(filter(None, (said, _MENDS.get(type(error), ""))))


def _detail(end: EndTurn, command: Command) -> str:
    """`command` is what codex was started with."""
    match end.cause:
        case "no_key":
            login = f"{by_hand(command)} login signs in"
            return f"{end.detail}; {login}, or set the key that its provider wants"
        case "sandbox":
            return f"{end.detail}; {SANDBOX}"
        case _:
            return end.detail
