"""What a person can do with sessions, for every front end: the only way from a front end to the store.

    service.admit       accept an input; then
    service.turns       run it, follow it, continue, retry, stop
    service.approvals   decide about calls
    service.edits       undo, rewind, hide, redact, fork, rename, compact
    service.views       look

Misused   what was asked means nothing; nothing was stored; say what would
"""

import contextlib
from pathlib import Path
from typing import Literal

from steno.journal.facts import InputAdmitted, SessionStarted
from steno.journal.parts import Text
from steno.runtimes.native import Native
from steno.service.approvals import Approvals
from steno.service.editing import Edits
from steno.service.misuse import Misused
from steno.service.turns import Running
from steno.service.views import Approval, Summary, View, Views
from steno.store.errors import UnknownSession
from steno.store.protocol import Admission, Admitted, Report, Store

__all__ = ["Approval", "Misused", "Service", "Summary", "View"]


class Service:
    def __init__(self, store: Store, native: Native, platform: str, lease_ms: int) -> None:
        self.views = Views(store)
        self.turns = Running(store, native, self.views)
        self.approvals = Approvals(store, self.views)
        self.edits = Edits(store, native, self.views, platform, lease_ms)
        self._store = store
        self._platform = platform

    async def close(self) -> None:
        await self._store.close()

    async def admit(
        self,
        text: str,
        session: str | None,
        name: str | None,
        key: str | None,
        model: str,
        mode: Literal["queue", "steer"] = "queue",
    ) -> Admitted:
        """Accept an input. When this returns, it is stored."""
        if not text.strip():
            raise Misused("the prompt is empty; nothing was stored")
        if name is not None and not name.strip():
            raise Misused("the name of a session is empty; nothing was stored")
        if key == "":
            raise Misused("the id of an input is empty; nothing was stored")
        said = InputAdmitted((Text(text),), self._platform, key, mode=mode)
        create = None if session is not None else SessionStarted(self._platform, model, name)
        return await self._store.admit(Admission(input=said, session=session, create=create))

    async def delete(self, id: str, with_forks: bool) -> int:
        """Remove a session for good; how many went. For one that is gone already, remove what a kill left of it."""
        with contextlib.suppress(UnknownSession):
            id = await self.views.resolve(id)
        return await self._store.delete(id, with_forks)

    async def verify(self) -> Report:
        return await self._store.verify()

    async def backup(self, to: Path) -> None:
        await self._store.backup(to)
