"""Drives a held session by codex. What to do next is our engine's decision; what a turn does is
codex's.

The child lives as long as we hold the session: codex lets nobody else have a thread while a process
of its has it open.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
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
    Limits,
    Rest,
    RunTools,
    finish,
    next_action,
    out_of_time,
)
from steno.engine.approval import Policy
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
from steno.journal.history import Said
from steno.journal.parts import Hash, Refused, Seq
from steno.journal.state import OpenCall, OpenTurn
from steno.models.wire import encode
from steno.runtimes.codex import RUNTIME, advice, gate
from steno.runtimes.codex import protocol as p
from steno.runtimes.codex.calls import OutputBounds, Promised
from steno.runtimes.codex.mapping import TurnMap
from steno.runtimes.codex.means import Means
from steno.runtimes.codex.naming import message_id
from steno.runtimes.codex.process import CodexError, Patience, Server, Stopped
from steno.runtimes.codex.thread import (
    Shape,
    Thread,
    confined,
    context,
    lost_note,
    open_thread,
    pending,
    said_to,
    unsaid,
)
from steno.runtimes.codex.turn import Ending, RunningTurn
from steno.runtimes.codex.wording import edits_in
from steno.runtimes.compact import Compaction
from steno.runtimes.loop import payloads_told
from steno.runtimes.protocol import WithMemories
from steno.runtimes.tool_calls import Calls
from steno.runtimes.toolbox import Excerpts, SessionTools, tools_of
from steno.session.lease import HeldSession, begin, end_turn, let_go
from steno.session.live import Enough
from steno.session.load import context_of
from steno.store.protocol import Store
from steno.tools.child import Command
from steno.tools.protocol import Tool

AGAIN = "Answer the user's last message above."
NOT_TAKEN_UP = Refused("not run: it was approved, and codex did not come back to it")
COMPACTION_S = 600.0
T = TypeVar("T")


class CodexAgent(Struct, frozen=True, kw_only=True):
    """Who answers in a session, by codex. `context.model` is `codex:NAME`, or `codex:` for its own
    choice."""

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
    """Tools of ours that codex has better ones for."""


class Codex:
    """`agent_for` says how, given the session's context so far."""

    def __init__(self, store: Store, agent_for: Callable[[ContextSet | None], CodexAgent]) -> None:
        self._store = store
        self._agent_for = agent_for
        self._excerpts = Excerpts(store)

    async def drive(self, held: HeldSession, enough: Enough) -> None:
        agent = self._agent_for(context_of(held.state))
        if agent.with_memories is not None:
            agent = replace(agent, context=await agent.with_memories(held, agent.context))
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
        driven = _Driven(self._store, held, self._agent_for(context_of(held.state)), self._excerpts)
        try:
            return await driven.compact()
        except CodexError as error:
            return Compaction("failed", f"codex {error}")
        finally:
            await driven.close()


class _Driven:
    """A session while codex drives it."""

    def __init__(
        self, store: Store, held: HeldSession, agent: CodexAgent, excerpts: Excerpts
    ) -> None:
        self._store = store
        self._held = held
        self._agent = agent
        self._excerpts = excerpts
        self._server: Server | None = None
        self._thread: Thread | None = None
        self._tools: Mapping[str, Tool] = {}
        self._promised: tuple[Promised, ...] = ()
        self._unanswered = False
        self._goal = ""
        """As it was when the thread was opened: one that is begun has it in its instructions."""

    async def close(self) -> None:
        server, self._server, self._thread = self._server, None, None
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
        """How the turn ended is stored at once: whoever leaves does not wait long. Then the child
        goes, before the lease does: whoever takes the session next finds the thread free."""
        await end_turn(self._held)
        await self.close()
        await let_go(self._held)

    def _next(self) -> Action:
        """A call that was decided about and can only be run by codex does not stand in the way. An
        input that codex took and did not answer to is one more thing to ask, unless the turn was
        stopped."""
        turn = self._held.state.turn
        action = next_action(self._held.state, self._agent.limits, spent=self._held.spent)
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
            await self._unless_stopped(self._ready())
        except CodexError as error:
            await self._fail(error, None)
            return
        server, thread = self._both()
        told = await held.consult(
            "before_request", {"model": f"{RUNTIME}:{thread.model}", "attempt": ask.attempt}
        )
        await held.catch_up()
        notes = [*await self._set_context(thread), *(note for _, note in told)]
        if held.asked_to_stop() or held.state.turn is None:
            await self._give_up(None)
            return
        asked = await self._request(held.state.turn, ask, thread, promised, notes)
        digest = sha256(encode(asked)).hexdigest()[:32]
        model = f"{RUNTIME}:{thread.model}"
        step = await held.record(
            StepStarted(model, digest, ask.attempt, acknowledges=ask.acknowledges)
        )
        map = TurnMap(self._agent.bounds, promised)
        try:
            answer = await self._unless_stopped(server.ask("turn/start", asked, p.TurnAnswer))
        except CodexError as error:
            await self._fail(error, step)
            return
        map.turn, thread.fresh, thread.answered = answer.turn.id, False, ""
        await self._end(
            await RunningTurn(held, self._means(server, thread, model), map, step).run()
        )

    async def _request(
        self,
        turn: OpenTurn,
        ask: Ask,
        thread: Thread,
        promised: tuple[Promised, ...],
        added: list[str],
    ) -> dict[str, Any]:
        """What the thread does not have is said in one message: codex has all of it or nothing, and
        answers to all of it. An input that it has already is not said again: a note asks for what
        is to be done about it."""
        held = self._held
        entries = held.history.entries()
        notes = ["" if thread.fresh else lost_note(entries, turn.seq, thread.answered), *added]
        if ask.acknowledges is not None and held.state.cut_off is not None:
            notes.append(recovery_note(held.state.cut_off, isinstance(turn.origin, Continues)))
        notes += [
            (
                f"The user has approved this call of {one.name}, which was not run: "
                f"{one.arguments}. Run it now."
            )
            for one in promised
        ]
        if inputs := unsaid(entries, thread, held.id):
            asked: dict[str, Any] = {
                "input": await self._input(inputs),
                "clientUserMessageId": message_id(held.id, inputs),
            }
            asked |= context("\n\n".join(filter(None, notes)))
        else:
            note = "\n\n".join(
                filter(None, (*notes, "" if promised or ask.acknowledges else AGAIN))
            )
            asked = {
                "input": [{"type": "text", "text": f"{OPENING}\n{note.removeprefix(OPENING)}"}]
            }
        return {"threadId": thread.id, **asked}

    async def _input(self, inputs: Sequence[Said]) -> list[dict[str, Any]]:
        return said_to(inputs, await self._payloads(payloads_told(tuple(inputs))))

    async def _payloads(self, hashes: set[Hash]) -> dict[Hash, bytes]:
        return {hash: await self._store.get(hash) for hash in sorted(hashes)}

    async def _end(self, ending: Ending) -> None:
        held = self._held
        turn = held.state.turn
        if ending == "left" or ending.unheard:
            await self.close()
        if ending == "left":
            return
        if turn is None:
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
            await held.record(
                *finish(
                    turn, "failed", ending.cause, advice.on_failure(ending, self._agent.command)
                ).facts
            )
            await self.close()
        elif ending.unanswered:
            self._unanswered = True
        elif turn.last is None or (turn.last_lost is not None and turn.last_lost.cause == "empty"):
            await held.record(
                *finish(turn, "failed", "empty", "codex ended the turn without an answer").facts
            )
        else:
            unrun = [call for call in turn.calls.values() if call.started is None]
            settled = [ToolSettled(call.step, call.call.id, NOT_TAKEN_UP) for call in unrun]
            ended = finish(
                replace(
                    turn, calls={id: one for id, one in turn.calls.items() if one not in unrun}
                ),
                "done",
            )
            await held.record(*settled, *ended.facts)

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """What codex takes long over need not be waited for. Raises `Stopped` if a stop is asked
        for first."""
        doing, stop = asyncio.create_task(work), asyncio.create_task(self._held.stopped.wait())
        try:
            await asyncio.wait({doing, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise Stopped
            return await doing
        finally:
            for task in (doing, stop):
                task.cancel()
            await asyncio.gather(doing, stop, return_exceptions=True)

    async def _give_up(self, step: Seq | None) -> None:
        """A stop came before codex had begun. The turn is ended by whoever asked for the stop, or
        for want of time."""
        held = self._held
        await self.close()
        await held.catch_up()
        if step is not None:
            await held.record(StepLost(step, "stopped", "unknown"))
        turn = held.state.turn
        if held.overdue and turn is not None and turn.interrupted is None and not held.letting_go():
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
        cause, detail = advice.on_error(error, held.id)
        lost = () if step is None else (StepLost(step, cause, "unknown", detail),)
        await held.record(*lost, *finish(turn, "failed", cause, detail).facts)

    # --- approvals that outlived a process

    async def _decide(self, calls: tuple[OpenCall, ...]) -> None:
        """Codex forgot what it asked when it ended. Our question stands until somebody answers
        it."""
        promised: list[Promised] = []
        asking = Calls(self._held, {}, self._agent.approval, self._agent.policy)
        for call in calls:
            permission = await asking.permission(call, "ask", edits_in(call.call))
            if isinstance(permission, Refused):
                await asking.settle(call, permission)
            elif permission == "given":
                one = call.call
                promised.append(
                    Promised(one.id, one.name, one.arguments, bool(call.why), call.leaves)
                )
        self._promised = tuple(promised)

    # --- the child and its thread

    async def _ready(self) -> None:
        """A child that runs, and the session's thread open in it."""
        held, command = self._held, self._agent.command
        if self._server is None:
            home = gate.codex_home(command.environment)
            need = "all" if confined(self._agent.sandbox) else gate.needed(home, command.folder)
            self._server = await Server.start(
                command, self._agent.patience, self._agent.version, need
            )
        if self._thread is not None and RUNTIME not in held.state.behind:
            return
        tools = (
            None
            if self._agent.session_tools is None
            else await tools_of(held, self._agent.session_tools)
        )
        self._tools = {
            name: tool for name, tool in (tools or {}).items() if name not in self._agent.own_tools
        }
        turn, self._goal = held.state.turn, held.state.goal
        entries = held.history.entries()
        shape = Shape(
            folder=str(command.folder),
            sandbox=self._agent.sandbox,
            model=self._agent.context.model.partition(":")[2],
            instructions=system_text(replace(self._agent.context, goal=self._goal)),
            tools=tuple(tool.spec for tool in self._tools.values()),
            begin_anew=self._agent.begin_anew,
        )
        payloads = await self._payloads(payloads_told((*entries, *pending(held))))
        inputs = () if turn is None else turn.inputs
        self._thread = await open_thread(self._server, self._store, held, shape, payloads, inputs)

    async def _set_context(self, thread: Thread) -> list[str]:
        """Store what shapes this turn, if it changed. A thread has the tools and instructions that
        it was begun with, so it is told of a goal that was set since."""
        held, before = self._held, self._held.history.context
        kept = before is not None and before.model.partition(":")[0] == RUNTIME and not thread.fresh
        tools = (
            before.tools
            if kept and before is not None
            else tuple(tool.spec for tool in self._tools.values())
        )
        goal = held.state.goal
        context = replace(
            self._agent.context, model=f"{RUNTIME}:{thread.model}", tools=tools, goal=goal
        )
        if before == context:
            return []
        await held.record(context)
        changed = goal != (before.goal if kept and before is not None else self._goal)
        return [
            f"The goal of this session is now: {goal}"
            if goal
            else "This session has no goal any more."
        ] * changed

    def _both(self) -> tuple[Server, Thread]:
        if self._server is None or self._thread is None:
            raise AssertionError("there is a thread once it is ready")
        return self._server, self._thread

    def _means(self, server: Server, thread: Thread, model: str) -> Means:
        held = self._held

        async def keep(payload: bytes) -> Hash:
            return await self._store.put(held.id, payload)

        return Means(
            server=server,
            thread=thread,
            calls=Calls(held, self._tools, self._agent.approval, self._agent.policy),
            keep=keep,
            excerpts=self._excerpts,
            input=self._input,
            model=model,
            output_chars_max=self._agent.bounds.shown_chars_max,
            limits=self._agent.limits,
            confined=confined(self._agent.sandbox),
        )

    async def compact(self) -> Compaction:
        held = self._held
        if RUNTIME not in held.state.threads or RUNTIME in held.state.behind:
            return Compaction("nothing", "codex has no thread of this session yet")
        await self._ready()
        server, thread = self._both()
        started = await held.record(HelperStarted("summary", f"{RUNTIME}:{thread.model}"))
        rouser = asyncio.create_task(_rouse(held, server))
        try:
            async with asyncio.timeout(COMPACTION_S):
                done = await self._compacted(server, thread)
        except CodexError as error:
            done = Compaction("failed", f"codex {error}")
        except TimeoutError:
            done = Compaction("failed", "codex took too long over it")
        finally:
            rouser.cancel()
        if done.outcome == "done":
            await held.record(HelperEnded(started, "done"), ThreadCompacted(RUNTIME, thread.id))
        else:
            ended: Literal["failed", "stopped"] = (
                "stopped" if done.outcome == "stopped" else "failed"
            )
            await held.record(HelperEnded(started, ended, done.detail, sent="unknown"))
        return done

    async def _compacted(self, server: Server, thread: Thread) -> Compaction:
        held = self._held
        await server.ask("thread/compact/start", {"threadId": thread.id}, dict)
        while not held.asked_to_stop():
            for note in server.take():
                match note:
                    case p.TurnCompleted(turn=p.Turn(status="completed")):
                        return Compaction("done", "codex made its own thread shorter")
                    case p.TurnCompleted(turn=turn):
                        return Compaction(
                            "failed", "" if turn.error is None else turn.error.message
                        )
                    case _:
                        pass
            await server.arrived.wait()
        return Compaction("stopped", "asked to stop; its thread may be shorter all the same")


async def _rouse(held: HeldSession, server: Server) -> None:
    await held.stopped.wait()
    server.arrived.set()
