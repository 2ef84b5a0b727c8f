"""Sessions that a tool call began: linked to their parent, run by the same loop, their end told as
a value."""

import asyncio

from steno.journal.facts import (
    InputAdmitted,
    RuleSet,
    SessionStarted,
    StepSealed,
    TurnEnded,
    TurnStarted,
)
from steno.journal.listing import DELEGATED, author
from steno.journal.parts import Text, text_of
from steno.runtimes.protocol import Runtime
from steno.session.load import Sessions
from steno.store.protocol import Admission, read_all
from steno.tools.delegate import HelperReport


class ChildSessions:
    """`model` answers in them. The author of a child's first input names the parent: `session:ID`.
    The parent's rules hold for its children, so that delegating does not get round them."""

    def __init__(self, sessions: Sessions, runtime: Runtime, model: str) -> None:
        self._sessions = sessions
        self._store = sessions.store
        self._runtime = runtime
        self._model = model

    async def begin(self, parent: str, prompt: str) -> str:
        by = author(parent)
        state = (await self._sessions.load(parent)).state
        rules = state.rules
        child = await self._store.create(
            SessionStarted(DELEGATED, self._model, folder=state.folder)
        )
        if rules:
            await self._store.add(
                child,
                [
                    RuleSet(rule, one.verdict, by, one.until_ms)
                    for rule, one in rules.items()
                ],
            )
        said = InputAdmitted((Text(prompt),), DELEGATED, author=by)
        await self._store.admit(Admission(input=said, session=child))
        return child

    async def run(self, child: str, leaving: asyncio.Event) -> HelperReport:
        await self._runtime.run(child, lambda state: not state.pending, leaving)
        return await self._report(child)

    async def _report(self, child: str) -> HelperReport:
        ending: TurnEnded | None = None
        text = ""
        async for record in read_all(self._store, child):
            if isinstance(record.fact, TurnStarted):
                ending, text = None, ""
            elif isinstance(record.fact, StepSealed):
                text = text_of(record.fact.parts)
            elif isinstance(record.fact, TurnEnded):
                ending = record.fact
        return HelperReport(
            None if ending is None else ending.outcome,
            "" if ending is None else ending.cause,
            text,
        )
