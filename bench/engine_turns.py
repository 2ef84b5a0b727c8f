"""Turns as the program runs them, without a front end: the native runtime drives, a follower
shows."""

import asyncio
import time

from msgspec import Struct

from steno.journal.facts import ContextSet, InputAdmitted, Record, SessionStarted, TurnEnded
from steno.journal.parts import Seq, Text
from steno.models.protocol import Model
from steno.runtimes.dispatch import Dispatch
from steno.runtimes.loop import Agent, Native
from steno.runtimes.protocol import Driver
from steno.session.load import Sessions
from steno.store.protocol import Admission, Cursor, Piece, Store

LIMIT_S = 300.0


class Shown(Struct, frozen=True, gc=False):
    """A piece of text at the moment a person would see it (monotonic)."""

    at_s: float
    text: str


async def admitted(store: Store, session: str | None = None) -> tuple[str, Seq]:
    """Say something, in a new session if none is named."""
    said = InputAdmitted((Text("go"),), "bench")
    create = None if session is not None else SessionStarted("bench")
    answer = await store.admit(Admission(input=said, session=session, create=create))
    return answer.session, answer.seq


async def turn(store: Store, model: Model, session: str, input: Seq) -> list[Shown]:
    """Answer an input; every piece as it is shown. The turn must end well."""
    native = Native(store, lambda _: Agent(ContextSet(model.spec), model, {}))
    return await driven(store, native, session, input)


async def driven(store: Store, driver: Driver, session: str, input: Seq) -> list[Shown]:
    """The same, by whoever drives the session."""
    runtime = Dispatch(Sessions(store), lambda _: driver)
    driving = asyncio.create_task(
        runtime.run(session, lambda state: input not in state.pending, asyncio.Event())
    )
    shown: list[Shown] = []
    async with asyncio.timeout(LIMIT_S):
        async for event in store.follow(session, Cursor(input)):
            match event:
                case Piece():
                    shown.append(Shown(time.monotonic(), event.text))
                case Record(fact=TurnEnded() as ending):
                    if ending.outcome != "done":
                        raise TimeoutError(
                            f"a turn ended as {ending.outcome}: {ending.cause} {ending.detail}"
                        )
                    break
                case Record():
                    pass
        await driving
    return shown
