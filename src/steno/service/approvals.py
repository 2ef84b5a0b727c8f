"""Deciding about calls, from any process. What is asked and what is decided are facts, so both outlive everybody."""

import contextlib
from typing import Literal

from steno.journal.facts import ApprovalDecided
from steno.journal.parts import Seq
from steno.service.views import Approval, Views
from steno.store.errors import KeyReused, NotAllowed, UnknownSession
from steno.store.protocol import Store


class Approvals:
    def __init__(self, store: Store, views: Views) -> None:
        self._store = store
        self._views = views

    async def pending(self, session: str | None = None) -> list[Approval]:
        """What waits for a person: in one session, or in all, the one that waits longest first."""
        if session is not None:
            return [one for one in await self._views.approvals(session) if one.decision is None]
        found: list[Approval] = []
        async for id in self._views.ids():
            with contextlib.suppress(UnknownSession):  # deleted since
                found += [one for one in await self._views.approvals(id) if one.decision is None]
        return sorted(found, key=lambda one: (one.since_ms, one.session, one.seq))

    async def choose(self, session: str, seq: Seq | None) -> Approval:
        """The one that is meant: the one at `seq`, or the only one."""
        waiting = await self.pending(session)
        if seq is None and len(waiting) == 1:
            return waiting[0]
        if (meant := next((one for one in waiting if one.seq == seq), None)) is not None:
            return meant
        there = ", ".join(f"{one.seq} ({one.tool})" for one in waiting)
        if not waiting:
            raise NotAllowed(f"nothing in session {session!r} waits for approval; nothing was changed")
        if seq is None:
            raise NotAllowed(f"say which: {there} wait in session {session!r}; nothing was changed")
        raise NotAllowed(f"nothing waits at {seq} in session {session!r}, but {there}; nothing was changed")

    async def decide(self, session: str, asked: Seq, decision: Literal["allow", "deny"], reason: str = "") -> bool:
        """Say whether a call may run. The first word counts: False if somebody had decided otherwise before."""
        try:
            decided = ApprovalDecided(asked, decision, by="user", reason=reason)
            await self._store.add(session, [decided], key=f"decided:{asked}")
        except KeyReused:
            return False
        return True
