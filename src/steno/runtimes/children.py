"""Sessions that a tool call began: linked to their parent, run by the same loop, their end told as a value."""

import asyncio

from steno.journal.facts import InputAdmitted, SessionStarted, StepSealed, TurnEnded, TurnStarted
from steno.journal.parts import Text, text_of
from steno.runtimes.native import Native
from steno.store.protocol import Admission, Store
from steno.tools.delegate import PLATFORM, Report

PAGE = 1_000


class ChildSessions:
    """`model` answers in them. The author of a child's first input names the parent: `session:ID`."""

    def __init__(self, store: Store, native: Native, model: str) -> None:
        self._store = store
        self._native = native
        self._model = model

    async def begin(self, parent: str, prompt: str) -> str:
        said = InputAdmitted((Text(prompt),), PLATFORM, author=f"session:{parent}")
        admitted = await self._store.admit(Admission(input=said, create=SessionStarted(PLATFORM, self._model)))
        return admitted.session

    async def run(self, child: str, leaving: asyncio.Event) -> Report:
        await self._native.run(child, lambda state: not state.pending, leaving)
        return await self._report(child)

    async def _report(self, child: str) -> Report:
        ending: TurnEnded | None = None
        text, after = "", 0
        while page := await self._store.read(child, after, PAGE):
            for record in page:
                match record.fact:
                    case TurnStarted():
                        ending, text = None, ""
                    case StepSealed(parts=parts):
                        text = text_of(parts)
                    case TurnEnded() as ended:
                        ending = ended
                    case _:
                        pass
            after = page[-1].seq
        return Report(None if ending is None else ending.outcome, "" if ending is None else ending.cause, text)
