"""Our own loop: asks the engine what to do next, does it, and records each thing before its
effect."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from math import ceil
from typing import TYPE_CHECKING, Literal, assert_never

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
    Room,
    RunTools,
    next_action,
    out_of_time,
)
from steno.engine.approval import Policy
from steno.engine.request import GO_ON, PLAN_ONLY, Request, build, recovery_note
from steno.journal.drafts import Stream
from steno.journal.facts import (
    ContextSet,
    Continues,
    StepLost,
    StepSealed,
    StepStarted,
)
from steno.journal.history import Answered, Entry, Said, Settled
from steno.journal.parts import (
    Content,
    File,
    Hash,
    Image,
    Reasoning,
    Seq,
    Text,
    outcome_parts,
)
from steno.models.protocol import Model, ModelError
from steno.runtimes.protocol import WithMemories
from steno.runtimes.stream import Kind, Streamed, stream_to
from steno.runtimes.toolbox import Excerpts, SessionTools, tools_of
from steno.session.lease import HeldSession, begin, let_go
from steno.session.live import Enough
from steno.session.load import context_of
from steno.store.errors import NotAllowed, NotPending
from steno.store.protocol import Store
from steno.tools.protocol import Tool

if TYPE_CHECKING:
    from steno.runtimes.compact import Compaction

BACKOFF_S = (0.5, 2.0, 8.0)
CONTEXT_MOST = 1_000_000
"""Tokens that a model is taken to take at most, where that is not set and the session is too
long to be held in memory."""


class Fallback(Struct, frozen=True):
    """A model that may take over for the rest of a turn. `tools` says whether it is offered any."""

    model: Model
    limits: Limits
    tools: bool = True


class Agent(Struct, frozen=True):
    """What answers in a session: the model, what shapes its requests, what it may do."""

    context: ContextSet
    model: Model
    tools: Mapping[str, Tool]
    approval: Literal["allow", "refuse", "ask"] = "refuse"
    limits: Limits = Limits()
    backoff_s: tuple[float, ...] = BACKOFF_S
    policy: Policy = Policy()
    session_tools: SessionTools | None = None
    with_memories: WithMemories | None = None
    with_folder: WithMemories | None = None
    fallback: tuple[Fallback, ...] = ()

    def fallen_to(self, model: str) -> "Agent":
        """The same with another model, if it is one that may take over."""
        for one in self.fallback:
            if one.model.spec == model:
                own, tools = (
                    self.context.model,
                    self.context.tools if one.tools else (),
                )
                context = replace(
                    self.context, model=model, instead_of=own, tools=tools
                )
                return replace(
                    self, context=context, model=one.model, limits=one.limits
                )
        return self


class Native:
    """Drives sessions by our own loop. `agent_for` says who answers, given the session's context so
    far."""

    def __init__(
        self, store: Store, agent_for: Callable[[ContextSet | None], Agent]
    ) -> None:
        self._store = store
        self._agent_for = agent_for
        self._excerpts = Excerpts(store)

    async def drive(self, held: HeldSession, enough: Enough) -> None:
        agent = await _with_session_tools(
            held, self._agent_for(context_of(held.state))
        )
        if agent.with_memories is not None:
            agent = replace(
                agent, context=await agent.with_memories(held, agent.context)
            )
        if agent.with_folder is not None:
            agent = replace(
                agent, context=await agent.with_folder(held, agent.context)
            )
        clock = asyncio.create_task(held.watch_time(agent.limits.turn_s))
        try:
            await self._act(held, agent, enough)
        finally:
            clock.cancel()

    async def compact_held(self, held: HeldSession) -> "Compaction":
        """Have the older part summarised by the model that answers."""
        from steno.runtimes.compact import compact

        agent = self._agent_for(context_of(held.state))
        return await compact(held, agent.model, agent.limits)

    async def _act(self, held: HeldSession, own: Agent, enough: Enough) -> None:
        fallback = tuple(one.model.spec for one in own.fallback)
        while True:
            agent = _answering(held, own)
            if held.lost is not None:
                raise held.lost
            if held.leaving or (held.state.turn is None and enough(held.state)):
                await let_go(held)
                return
            match _next_action(held, replace(agent.limits, fallback=fallback)):
                case Rest():
                    if await held.release():
                        return
                case Begin(input=taken):
                    await begin(held, taken)
                case Ask() as ask:
                    await self._ask(held, agent, ask)
                case FallBack(model=model):
                    await _set(held, _as_set(held, own.fallen_to(model).context))
                case Compact():
                    from steno.runtimes.compact import compact

                    await compact(held, agent.model, agent.limits)
                case RunTools(calls=calls):
                    from steno.runtimes.tool_calls import Calls

                    await Calls(held, agent.tools, agent.approval, agent.policy).run(
                        calls
                    )
                case Finish(facts=facts):
                    await held.record(*facts)
                case unreachable:
                    assert_never(unreachable)

    async def _ask(self, held: HeldSession, agent: Agent, ask: Ask) -> None:
        """One request and its answer: record, send, store each piece, seal."""
        if ask.attempt > 1 and not await _pause(held, agent.backoff_s, ask):
            return
        asked = {"model": agent.model.spec, "attempt": ask.attempt}
        notes = await held.consult("before_request", asked)
        await held.catch_up()
        context = _as_set(held, agent.context)
        if held.history.context != context:
            await _set(held, context)
            await held.catch_up()
        if held.asked_to_stop() or not held.state.pending.keys() >= set(ask.takes):
            return
        await held.restore()
        request = await self._excerpts.put_into(
            build(held.history, ask.takes, _note(held, ask, notes))
        )
        body, digest = await asyncio.to_thread(
            written, agent.model, request, await self._payloads(request)
        )
        started = StepStarted(
            agent.model.spec, digest, ask.attempt, ask.takes, ask.acknowledges
        )
        try:
            step = await held.record(started)
        except NotPending:
            await held.catch_up()
            return
        if held.asked_to_stop():
            await held.record(StepLost(step, "stopped", sent="no"))
            return

        async def commit(kind: Kind, text: str) -> None:
            await held.draft(Stream(step, kind), text)

        await held.record(
            _ending(
                step, await stream_to(commit, agent.model.stream(body), held.stopped)
            )
        )

    async def _payloads(self, request: Request) -> dict[Hash, bytes]:
        return {
            hash: await self._store.get(hash)
            for hash in sorted(payloads_told(request.entries))
        }


async def _with_session_tools(held: HeldSession, agent: Agent) -> Agent:
    tools = (
        None
        if agent.session_tools is None
        else await tools_of(held, agent.session_tools)
    )
    if tools is None:
        return agent
    specs = tuple(tool.spec for tool in tools.values())
    return replace(agent, tools=tools, context=replace(agent.context, tools=specs))


def _answering(held: HeldSession, own: Agent) -> Agent:
    """Whose turn it is: the session's own model, or the fallback that took over in the open
    turn."""
    turn, context = held.state.turn, held.state.context
    if (
        turn is None
        or not turn.fallen
        or context is None
        or context.instead_of != own.context.model
    ):
        return own
    return own.fallen_to(turn.fallen[-1])


def _as_set(held: HeldSession, context: ContextSet) -> ContextSet:
    """A context with what was set in the session."""
    return replace(
        context, goal=held.state.goal, instructions=held.state.instructions
    )


async def _set(held: HeldSession, context: ContextSet) -> None:
    """Store what shapes the requests. Memories whose source has been removed meanwhile are left
    out, all of them."""
    try:
        await held.record(context)
    except NotAllowed:
        without = replace(context, memories=(), recalled=())
        if without == context:
            raise
        if held.history.context != without:
            await held.record(without)


def _next_action(held: HeldSession, limits: Limits) -> Action:
    def measured() -> Room:
        from steno.runtimes.compact import room

        return room(held, limits)

    decided_by = limits
    if not limits.context_max and held.history.thinned:
        decided_by = replace(limits, context_max=CONTEXT_MOST)
    action = next_action(held.state, decided_by, measured, held.spent)
    turn = held.state.turn
    if not held.overdue or turn is None:
        return action
    cut = (
        turn.last_lost is not None
        or turn.last is None
        or turn.last.ended == "interrupted"
    )
    over = isinstance(action, Finish) and (turn.interrupted is not None or not cut)
    return action if over else out_of_time(turn, limits)


def written(
    model: Model, request: Request, payloads: Mapping[Hash, bytes]
) -> tuple[bytes, str]:
    """The request's bytes and their digest. In a thread: a long session takes long enough to keep
    others waiting."""
    body = model.to_wire(request, payloads)
    return body, sha256(body).hexdigest()[:32]


def _note(held: HeldSession, ask: Ask, added: Sequence[tuple[str, str]]) -> str:
    """`added` are notes of plugins, each with its name."""
    notes = []
    if ask.acknowledges is not None and held.state.cut_off is not None:
        turn = held.state.turn
        continuing = turn is not None and isinstance(turn.origin, Continues)
        notes.append(recovery_note(held.state.cut_off, continuing))
    if ask.goes_on:
        notes.append(GO_ON)
    if held.state.mode == "plan":
        notes.append(PLAN_ONLY)
    if held.state.job is not None:
        from steno.engine.jobs import run_note  # it loads what knows time zones

        notes.append(run_note(held.state.job))
    notes += [note for _, note in added]
    return "\n\n".join(notes)


def _ending(step: Seq, streamed: Streamed) -> StepSealed | StepLost:
    """The fact that closes a request: exactly what was shown if it was stopped, the whole answer if
    it finished."""
    if streamed.finished is not None:
        done = streamed.finished
        return StepSealed(step, done.parts, done.ended, done.usage)
    shown: list[Content] = []
    if streamed.reasoning:
        shown.append(Reasoning(streamed.reasoning))
    if streamed.text:
        shown.append(Text(streamed.text))
    if streamed.error is not None:
        if shown:
            return StepSealed(step, tuple(shown), "incomplete")
        return _lost(step, streamed.error)
    if shown:
        return StepSealed(step, tuple(shown), "interrupted")
    return StepLost(step, "stopped", sent="unknown")


def _lost(step: Seq, error: ModelError) -> StepLost:
    """The person is told what the provider asked for, because they wait for it too."""
    if error.retry_after_s is None:
        return StepLost(step, error.cause, error.sent, error.detail)
    detail = f"{error.detail}; the provider asks to wait {error.retry_after_s:g} s"
    return StepLost(
        step, error.cause, error.sent, detail, ceil(error.retry_after_s * 1000)
    )


async def _pause(held: HeldSession, backoff_s: tuple[float, ...], ask: Ask) -> bool:
    """Wait before another attempt: as the provider asked, else a little longer each time. False if
    a stop was asked for meanwhile. Chance keeps those who were turned away together from coming
    back together."""
    from random import uniform

    chance = uniform(0, 1)  # noqa: S311
    if ask.wait_ms:
        wait_s = ask.wait_ms / 1000 * (1 + 0.1 * chance)
    else:
        pause_s = backoff_s[min(ask.attempt - 2, len(backoff_s) - 1)]
        wait_s = pause_s * (0.8 + 0.4 * chance)
    try:
        await asyncio.wait_for(held.stopped.wait(), wait_s)
    except TimeoutError:
        return True
    await held.catch_up()
    return False


def payloads_told(entries: tuple[Entry, ...]) -> set[Hash]:
    """Whose bytes a request carries: every image, and the files that a person sent. Files of tools
    are only named."""
    found: set[Hash] = set()
    for entry in entries:
        if isinstance(entry, (Said, Answered)):
            parts = entry.parts
        elif isinstance(entry, Settled):
            parts = outcome_parts(entry.outcome)
        else:
            continue
        for part in parts:
            if type(part) is Image or (
                type(part) is File and isinstance(entry, Said)
            ):
                found.add(part.hash)
    return found
