"""Our own loop: asks the engine what to do next, does it, and records each thing before its effect."""

import asyncio
import random
from collections.abc import Callable, Mapping
from hashlib import sha256
from math import ceil
from typing import Literal, assert_never

from msgspec import Struct

from steno.engine.action import (
    Action,
    Ask,
    Begin,
    Compact,
    Finish,
    Limits,
    Rest,
    RunTools,
    finish,
    next_action,
    out_of_time,
)
from steno.engine.approval import Policy
from steno.engine.notes import GO_ON, recovery_note
from steno.engine.recover import waits_for_approval
from steno.engine.request import Request, build
from steno.journal.drafts import Stream
from steno.journal.facts import ContextSet, Continues, StepLost, StepSealed, StepStarted, Takes, TurnStarted
from steno.journal.history import Answered, Entry, Said, Settled
from steno.journal.parts import Content, Hash, Image, Reasoning, Seq, Text, outcome_parts
from steno.journal.state import State
from steno.models.protocol import Model, ModelError
from steno.runtimes.calls import Calls
from steno.runtimes.compacting import Compaction, compact, room
from steno.runtimes.held import HeldSession
from steno.runtimes.offering import Excerpts, SessionTools, with_session_tools
from steno.runtimes.streaming import Kind, Streamed, stream_to
from steno.store.errors import NotAllowed
from steno.store.protocol import Store
from steno.tools.protocol import Tool

BACKOFF_S = (0.5, 2.0, 8.0)


Enough = Callable[[State], bool]


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


class Native:
    """Runs sessions of one store. `agent_for` says who answers, given the session's context so far."""

    def __init__(self, store: Store, agent_for: Callable[[ContextSet | None], Agent], lease_ms: int) -> None:
        self._store = store
        self._lease_ms = lease_ms
        self._agent_for = agent_for
        self._excerpts = Excerpts(store)

    async def run(
        self, session: str, enough: Enough, leaving: asyncio.Event, opening: TurnStarted | None = None
    ) -> None:
        """Run a session until it rests, or until no turn is open and it is `enough`. Raises `SessionBusy` if somebody
        else runs it.

        `opening` is a turn to begin with: one that continues or retries. `leaving`, when set, ends the running turn as
        terminated and lets go.
        """
        held = await HeldSession.open(self._store, session, self._lease_ms, to_run=True)
        leaver = asyncio.create_task(held.leave_when(leaving))
        try:
            if opening is not None:
                await self._open(held, opening)
            await self._loop(held, enough)
        finally:
            leaver.cancel()
            await held.leave()

    async def compact(self, session: str, leaving: asyncio.Event) -> Compaction:
        """Have the older part of a session at rest summarised, by the model that answers in it."""
        held = await HeldSession.open(self._store, session, self._lease_ms, to_run=True)
        leaver = asyncio.create_task(held.leave_when(leaving))
        try:
            _refuse_waiting(held)
            agent = self._agent_for(_context(held.state))
            came = await compact(held, agent.model, agent.limits)
            while not await held.release():
                pass
            return came
        finally:
            leaver.cancel()
            await held.leave()

    async def _open(self, held: HeldSession, opening: TurnStarted) -> None:
        """Look again, under the lease, whether the turn is due: since the caller looked, somebody else may have begun
        it."""
        _refuse_waiting(held)
        match opening.origin:
            case Continues(turn=turn):
                cut = held.state.cut_off
                if cut is None or cut.ended.turn.seq != turn or not cut.waits():
                    raise NotAllowed(f"turn {turn} of session {held.id!r} is not waiting to be continued")
            case Takes(input=input):
                _refuse_answered(held, input)
        await held.record(opening)

    async def _loop(self, held: HeldSession, enough: Enough) -> None:
        agent = await with_session_tools(held, self._agent_for(_context(held.state)))
        clock = asyncio.create_task(held.watch_time(agent.limits.turn_s))
        try:
            await self._act(held, agent, enough)
        finally:
            clock.cancel()

    async def _act(self, held: HeldSession, agent: Agent, enough: Enough) -> None:
        while True:
            if held.lost is not None:
                raise held.lost
            if held.leaving or (held.state.turn is None and enough(held.state)):
                await self._close(held)
                return
            match _next_action(held, agent.limits):
                case Rest():
                    if await held.release():
                        return
                case Begin(input=taken):
                    await held.record(TurnStarted(Takes(taken)))
                case Ask() as ask:
                    await self._ask(held, agent, ask)
                case Compact():
                    await compact(held, agent.model, agent.limits)
                case RunTools(calls=calls):
                    await Calls(held, agent.tools, agent.approval, agent.policy).run(calls)
                case Finish(facts=facts):
                    await held.record(*facts)
                case unreachable:
                    assert_never(unreachable)

    async def _close(self, held: HeldSession) -> None:
        """Let go in order: a running turn ends as terminated; what is pending, be it an input or an approval, stays so
        for whoever comes next."""
        if held.state.turn is not None and not waits_for_approval(held.state.turn):
            await held.record(*finish(held.state.turn, "interrupted", "terminated").facts)
        while not await held.release():
            pass

    async def _ask(self, held: HeldSession, agent: Agent, ask: Ask) -> None:
        """One request and its answer: record, send, store each piece, seal."""
        if ask.attempt > 1 and not await _pause(held, agent.backoff_s, ask):
            return
        if held.history.context != agent.context:
            await held.record(agent.context)
        await held.catch_up()
        if held.asked_to_stop():
            return
        request = await self._excerpts.put_into(build(held.history, ask.takes, _note(held, ask)))
        body, digest = await asyncio.to_thread(written, agent.model, request, await self._payloads(request))
        step = await held.record(StepStarted(agent.model.spec, digest, ask.attempt, ask.takes, ask.acknowledges))
        if held.asked_to_stop():
            await held.record(StepLost(step, "stopped", sent="no"))
            return

        async def commit(kind: Kind, text: str) -> None:
            await held.draft(Stream(step, kind), text)

        await held.record(_ending(step, await stream_to(commit, agent.model.stream(body), held.stopped)))

    async def _payloads(self, request: Request) -> dict[Hash, bytes]:
        return {hash: await self._store.get(hash) for hash in sorted(images_of(request.entries))}


def _next_action(held: HeldSession, limits: Limits) -> Action:
    action = next_action(held.state, limits, lambda: room(held.history, limits), held.spent)
    turn = held.state.turn
    if not held.overdue or turn is None:
        return action
    cut = turn.last_lost is not None or turn.last is None or turn.last.ended == "interrupted"
    over = isinstance(action, Finish) and (turn.interrupted is not None or not cut)
    return action if over else out_of_time(turn, limits)


def _context(state: State) -> ContextSet | None:
    """What shaped the last request; before the first one, the model that the session was begun with."""
    if state.context is not None or state.started is None:
        return state.context
    return ContextSet(state.started.model)


def _refuse_waiting(held: HeldSession) -> None:
    if held.state.turn is not None:
        raise NotAllowed(
            f"a turn of session {held.id!r} waits for approval: steno approvals shows what for; decide, then steno "
            f"continue {held.id}, or stop it with steno interrupt {held.id}; nothing was changed"
        )


def _refuse_answered(held: HeldSession, input: Seq) -> None:
    """A prompt is run again only if its last turn did not answer it, and is still the last turn."""
    last = held.state.last_turn
    if input in held.state.pending:
        raise NotAllowed(f"input {input} of session {held.id!r} still waits for its first turn; steno continue runs it")
    if last is None or last.ending.outcome == "done":
        raise NotAllowed(f"input {input} of session {held.id!r} has been answered meanwhile; see steno show {held.id}")
    if isinstance(last.turn.origin, Takes) and last.turn.origin.input != input:
        raise NotAllowed(f"another turn of session {held.id!r} came since; see steno show {held.id}")


def written(model: Model, request: Request, payloads: Mapping[Hash, bytes]) -> tuple[bytes, str]:
    """The request's bytes and their digest. In a thread: a long session takes long enough to keep others waiting."""
    body = model.to_wire(request, payloads)
    return body, sha256(body).hexdigest()[:32]


def _note(held: HeldSession, ask: Ask) -> str:
    notes = []
    if ask.acknowledges is not None and held.state.cut_off is not None:
        turn = held.state.turn
        continuing = turn is not None and isinstance(turn.origin, Continues)
        notes.append(recovery_note(held.state.cut_off, continuing))
    if ask.goes_on:
        notes.append(GO_ON)
    return "\n\n".join(notes)


def _ending(step: Seq, streamed: Streamed) -> StepSealed | StepLost:
    """The fact that closes a request: exactly what was shown if it was stopped, the whole answer if it finished."""
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
    return StepLost(step, error.cause, error.sent, detail, ceil(error.retry_after_s * 1000))


async def _pause(held: HeldSession, backoff_s: tuple[float, ...], ask: Ask) -> bool:
    """Wait before another attempt: as the provider asked, else a little longer each time. False if a stop was asked
    for meanwhile. Chance keeps those who were turned away together from coming back together."""
    if ask.wait_ms:
        wait_s = ask.wait_ms / 1000 * random.uniform(1.0, 1.1)  # noqa: S311
    else:
        wait_s = backoff_s[min(ask.attempt - 2, len(backoff_s) - 1)] * random.uniform(0.8, 1.2)  # noqa: S311
    try:
        await asyncio.wait_for(held.stopped.wait(), wait_s)
    except TimeoutError:
        return True
    await held.catch_up()
    return False


def images_of(entries: tuple[Entry, ...]) -> set[Hash]:
    found: set[Hash] = set()
    for entry in entries:
        if isinstance(entry, (Said, Answered)):
            parts = entry.parts
        elif isinstance(entry, Settled):
            parts = outcome_parts(entry.outcome)
        else:
            continue
        for part in parts:
            if type(part) is Image:
                found.add(part.hash)
    return found
