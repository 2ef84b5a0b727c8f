"""Distils a session that rests, and gives way to whoever wants to run it.

The session is held while the model is asked, so there is one distillate of a range, whoever tries.
An input, or somebody who asks for the session, ends the call at once: nobody waits for a
distillate. Until the one fact at the end is stored nothing has changed, whatever happens.
"""

import asyncio
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Literal

from msgspec import Struct

from steno.engine import distillation, tokens
from steno.engine.distillation import Source, Unusable
from steno.journal.facts import ContextSet, Distilled, HelperEnded, HelperStarted
from steno.journal.parts import Seq, text_of
from steno.models.protocol import Finished, Model, ModelError
from steno.session.lease import HeldSession, hold
from steno.session.load import Sessions, context_of
from steno.store.errors import NotAllowed
from steno.store.paging import read_all

CALLS_MAX = 2
"""An answer that cannot be used is asked for once more."""
CHARS_MAX = 100_000
CONTEXT_UNSAID = 16_000


class Distillation(Struct, frozen=True):
    """What came of it. `at` is the fact, if there is a new one."""

    outcome: Literal["done", "failed", "stopped", "nothing"]
    detail: str = ""
    at: Seq | None = None
    made: Distilled | None = None


class Distiller(Struct, frozen=True):
    """Who is asked. `context_max` is what the model takes, in tokens; 0 if nobody said."""

    model: Model
    context_max: int = 0
    limit_s: float = 60.0


class _GivesWay(Exception):
    """Somebody wants the session for something else."""


class _Failed(Exception):
    pass


class Distilling:
    def __init__(self, sessions: Sessions, by: Callable[[ContextSet | None], Distiller]) -> None:
        self._sessions = sessions
        self._store = sessions.store
        self._by = by

    async def distil(
        self, session: str, leaving: asyncio.Event, if_due: bool = False
    ) -> Distillation:
        """Distil what was said since the last distillate. With `if_due`, only if that is enough.
        Raises `SessionBusy` if somebody has the session, another one who distils it included."""
        async with hold(self._sessions, session, leaving, insist=False) as held:
            try:
                came = await self._distil(held, if_due)
            except _GivesWay:
                came = Distillation("stopped", "somebody wants to go on with the session")
            except (_Failed, NotAllowed) as error:
                came = Distillation("failed", str(error))
            await held.close()
            return came

    async def _distil(self, held: HeldSession, if_due: bool) -> Distillation:
        row = (await self._store.glance(held.id)).row
        if held.state.turn is not None or held.state.pending:
            return Distillation("nothing", "a turn is not over")
        if if_due and not row.due():
            return Distillation("nothing", "not enough was said since the last one")
        by = self._by(context_of(held.state))
        source = await self._source(held, row.memory.upto, by)
        if source is None:
            return Distillation("nothing", "nothing was said since the last one")
        deadline_s = time.monotonic() + by.limit_s
        wrong: tuple[str, str] | None = None
        for _ in range(CALLS_MAX):
            made, wrong = await _ask(held, by.model, source, wrong, deadline_s, titled=row.named)
            if made is not None:
                if held.redacted:
                    raise _Failed("a message was redacted meanwhile")
                at = await held.record(made)
                return Distillation("done", "", at, made)
        raise _Failed(f"the answer could not be used: {wrong[1] if wrong else ''}")

    async def _source(self, held: HeldSession, after: Seq, by: Distiller) -> Source | None:
        head, held.redacted = held.state.head, False
        everything = read_all(self._store, held.id, after, head)
        records = [distillation.brief(record) async for record in everything]
        context = by.context_max or CONTEXT_UNSAID
        chars_max = min(context * tokens.CHARS_PER_TOKEN // 2, CHARS_MAX)
        return (
            await asyncio.to_thread(distillation.source, records, after, chars_max)
            if records
            else None
        )


async def _ask(
    held: HeldSession,
    model: Model,
    source: Source,
    wrong: tuple[str, str] | None,
    deadline_s: float,
    titled: bool,
) -> tuple[Distilled | None, tuple[str, str] | None]:
    """One call, recorded before it is sent and after it is over: a distillate, or an answer that is
    none and why."""
    body = await asyncio.to_thread(model.to_wire, distillation.ask(model.spec, source, wrong), {})
    if held.said.is_set() or held.asked_to_stop():
        raise _GivesWay
    started = await held.record(
        HelperStarted("distillation", model.spec, sha256(body).hexdigest()[:32])
    )
    finished = await _answered(held, model, body, started, deadline_s)
    answer = text_of(finished.parts)
    try:
        if finished.ended != "complete":
            raise Unusable("it broke off")
        made = distillation.distillate(answer, source, titled, model.spec)
    except Unusable as error:
        await held.record(
            HelperEnded(started, "failed", f"unusable: {error}"[:500], finished.usage)
        )
        return None, (answer, str(error))
    await held.record(HelperEnded(started, "done", "", finished.usage))
    return made, None


async def _answered(
    held: HeldSession, model: Model, body: bytes, started: Seq, deadline_s: float
) -> Finished:
    answer = asyncio.create_task(_answer(model, body))
    ends = [asyncio.create_task(event.wait()) for event in (held.said, held.stopped)]
    try:
        left_s = max(deadline_s - time.monotonic(), 0.0)
        await asyncio.wait((answer, *ends), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            if any(end.done() for end in ends):
                await held.record(HelperEnded(started, "stopped", sent="unknown"))
                raise _GivesWay
            await held.record(HelperEnded(started, "failed", "no answer in time", sent="unknown"))
            raise _Failed("no answer in time")
        return await answer
    except ModelError as error:
        await held.record(
            HelperEnded(started, "failed", f"{error.cause}: {error.detail}", sent=error.sent)
        )
        raise _Failed(error.detail) from error
    finally:
        for task in (answer, *ends):
            task.cancel()
        await asyncio.gather(answer, *ends, return_exceptions=True)


async def _answer(model: Model, body: bytes) -> Finished:
    async for event in model.stream(body):
        if isinstance(event, Finished):
            return event
    raise ModelError("dropped", "the stream ended without an end", "yes")
