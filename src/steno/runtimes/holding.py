"""Taking a session to run it, and letting go of it: the same for whatever drives it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from steno.engine.action import finish
from steno.engine.recover import waits_for_approval
from steno.journal.facts import ContextSet, Continues, Takes, TurnStarted
from steno.journal.parts import Seq
from steno.journal.state import State
from steno.runtimes.held import HeldSession
from steno.store.errors import NotAllowed, NotPending
from steno.store.protocol import Store


@asynccontextmanager
async def holding(
    store: Store, session: str, lease_ms: int, leaving: asyncio.Event, insist: bool = True
) -> AsyncIterator[HeldSession]:
    """The session, recovered, while we run it. Raises `SessionBusy` if somebody else does. Whoever
    only distils it gives way to us, if we insist."""
    held = await HeldSession.open(store, session, lease_ms, to_run=True, insist=insist)
    leaver = asyncio.create_task(held.leave_when(leaving))
    try:
        yield held
    finally:
        leaver.cancel()
        await held.leave()


async def open_turn(held: HeldSession, opening: TurnStarted) -> None:
    """Look again, under the lease, whether the turn is due: since the caller looked, somebody else
    may have begun it."""
    refuse_waiting(held)
    match opening.origin:
        case Continues(turn=turn):
            cut = held.state.cut_off
            if cut is None or cut.ended.turn.seq != turn or not cut.waits():
                raise NotAllowed(
                    f"turn {turn} of session {held.id!r} is not waiting to be continued"
                )
        case Takes(input=input):
            _refuse_answered(held, input)
    await held.record(opening)


async def begin(held: HeldSession, input: Seq) -> None:
    """Begin the turn of an input, unless it was taken back since we looked."""
    try:
        await held.record(TurnStarted(Takes(input)))
    except NotPending:
        await held.catch_up()


async def let_go(held: HeldSession) -> None:
    """Let go in order: a running turn ends; what is pending, be it an input or an approval, stays
    so for whoever comes next."""
    await end_turn(held)
    while not await held.release():
        pass


async def end_turn(held: HeldSession) -> None:
    """A running turn ends as terminated, unless a person asked for its end. One that waits for
    approval goes on waiting."""
    if held.state.turn is not None:
        await held.catch_up()
    turn = held.state.turn
    if turn is not None and not waits_for_approval(turn):
        await held.record(
            *finish(turn, "interrupted", "terminated" if turn.interrupted is None else "user").facts
        )


def context_of(state: State) -> ContextSet | None:
    """What shaped the last request; before the first one, the model that the session was begun
    with."""
    if state.context is not None or state.started is None:
        return state.context
    return ContextSet(state.started.model)


def refuse_waiting(held: HeldSession) -> None:
    if held.state.turn is not None:
        raise NotAllowed(
            f"a turn of session {held.id!r} waits for approval: steno approvals shows what for; "
            "decide, then steno "
            f"continue {held.id}, or stop it with steno interrupt {held.id}; nothing was changed"
        )


def _refuse_answered(held: HeldSession, input: Seq) -> None:
    """A prompt is run again only if its last turn did not answer it, and is still the last turn."""
    last = held.state.last_turn
    if input in held.state.pending:
        raise NotAllowed(
            f"input {input} of session {held.id!r} still waits for its first turn; steno continue "
            "runs it"
        )
    if last is None or last.ending.outcome == "done":
        raise NotAllowed(
            f"input {input} of session {held.id!r} has been answered meanwhile; see steno show "
            f"{held.id}"
        )
    if isinstance(last.turn.origin, Takes) and last.turn.origin.input != input:
        raise NotAllowed(
            f"another turn of session {held.id!r} came since; see steno show {held.id}"
        )
