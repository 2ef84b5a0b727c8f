"""Distils a session that rests, or gives it a title, and gives way to what runs it.

The session is held while the model is asked, so there is one distillate of a range.
An input, or a process that asks for the session, ends the call at once: none waits for a
distillate. Until the one fact at the end is stored nothing has changed, whatever happens.
"""

import asyncio
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from steno.engine import distillation, tokens
from steno.engine.distillation import BadDistillate, Source
from steno.journal.facts import ContextSet, Distilled, HelperEnded, SessionTitled
from steno.journal.parts import Seq, text_of
from steno.models.protocol import Model
from steno.runtimes.helper import HelperFailed, HelperStopped, ask_helper
from steno.session.lease import HeldSession, hold
from steno.session.load import Sessions, context_of
from steno.store.errors import NotAllowed
from steno.store.protocol import read_all

CALLS_MAX = 2
"""An answer that cannot be used is asked for once more."""
CHARS_MAX = 100_000
CONTEXT_UNSAID = 16_000
TITLE_S = 20.0


class Distillation(Struct, frozen=True):
    """What came of it. `at` is the fact, if there is a new one."""

    outcome: Literal["done", "failed", "stopped", "nothing"]
    detail: str = ""
    at: Seq | None = None
    made: Distilled | None = None


class Distiller(Struct, frozen=True):
    """Who is asked. `context_max` is what the model takes, in tokens; 0 if that is not set."""

    model: Model
    context_max: int = 0
    limit_s: float = 60.0


class Distilling:
    def __init__(
        self, sessions: Sessions, by: Callable[[ContextSet | None], Distiller]
    ) -> None:
        self._sessions = sessions
        self._store = sessions.store
        self._by = by

    async def distil(
        self, session: str, leaving: asyncio.Event, if_due: bool = False
    ) -> Distillation:
        """Distil what was said since the last distillate. With `if_due`, only if that is enough.
        Raises `SessionBusy` if another process has the session, one that distils it included."""
        async with hold(self._sessions, session, leaving, insist=False) as held:
            try:
                came = await self._distil(held, if_due)
            except HelperStopped:
                came = Distillation("stopped", "the session goes on")
            except (HelperFailed, NotAllowed) as error:
                came = Distillation("failed", str(error))
            await held.close()
            return came

    async def entitle(self, session: str, leaving: asyncio.Event) -> str:
        """Have a title made of what was said, if the session has none of its own; "" if none was
        made. Raises `SessionBusy` if something runs the session."""
        async with hold(self._sessions, session, leaving, insist=False) as held:
            try:
                title = await self._entitle(held)
            except (HelperStopped, HelperFailed, NotAllowed):
                title = ""
            await held.close()
            return title

    async def _entitle(self, held: HeldSession) -> str:
        row = (await self._store.glance(held.id)).row
        if held.state.turn is not None or held.state.pending or not row.wants_title():
            return ""
        by = self._by(context_of(held.state))
        source = await self._source(held, 0, by, distillation.TITLE_SOURCE_CHARS)
        if source is None:
            return ""
        request = distillation.ask_title(by.model.spec, source)
        deadline_s = asyncio.get_running_loop().time() + min(TITLE_S, by.limit_s)
        started, finished = await ask_helper(
            held, by.model, "title", request, deadline_s, held.said, held.stopped
        )
        try:
            title = distillation.title_in(text_of(finished.parts))
        except BadDistillate as error:
            await held.record(
                HelperEnded(started, "failed", f"unusable: {error}", finished.usage)
            )
            return ""
        await held.record(HelperEnded(started, "done", "", finished.usage))
        if held.redacted:
            return ""
        await held.record(SessionTitled(source.upto, title, by.model.spec))
        return title

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
        deadline_s = asyncio.get_running_loop().time() + by.limit_s
        wrong: tuple[str, str] | None = None
        for _ in range(CALLS_MAX):
            made, wrong = await _ask(
                held, by.model, source, wrong, deadline_s, titled=row.named
            )
            if made is not None:
                if held.redacted:
                    raise HelperFailed("a message was redacted meanwhile")
                at = await held.record(made)
                return Distillation("done", "", at, made)
        raise HelperFailed(
            f"the answer could not be used: {wrong[1] if wrong else ''}"
        )

    async def _source(
        self, held: HeldSession, after: Seq, by: Distiller, chars_max: int = CHARS_MAX
    ) -> Source | None:
        head, held.redacted = held.state.head, False
        everything = read_all(self._store, held.id, after, head)
        records = [distillation.brief(record) async for record in everything]
        context = by.context_max or CONTEXT_UNSAID
        chars_max = min(context * tokens.CHARS_PER_TOKEN // 2, chars_max)
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
    request = distillation.ask(model.spec, source, wrong)
    started, finished = await ask_helper(
        held, model, "distillation", request, deadline_s, held.said, held.stopped
    )
    answer = text_of(finished.parts)
    try:
        if finished.ended != "complete":
            raise BadDistillate("it broke off")
        made = distillation.distillate(answer, source, titled, model.spec)
    except BadDistillate as error:
        await held.record(
            HelperEnded(started, "failed", f"unusable: {error}"[:500], finished.usage)
        )
        return None, (answer, str(error))
    await held.record(HelperEnded(started, "done", "", finished.usage))
    return made, None
