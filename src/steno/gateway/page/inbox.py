"""Calls that wait for a person, in all sessions. The store is asked for all of it once; after that
only sessions that changed are looked at, so a page costs the same whether there are ten sessions or
ten thousand."""

import asyncio

from steno.journal.facts import ApprovalAsked, ApprovalDecided, ToolFact, TurnEnded
from steno.service import Approval, Service
from steno.store.errors import UnknownMark, UnknownSession
from steno.store.protocol import FactAdded, FeedMark, SessionDeleted, StoreRestored


class Inbox:
    def __init__(self) -> None:
        self._mark: FeedMark | None = None
        self._waiting: dict[str, list[Approval]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def waiting(self, service: Service) -> list[Approval]:
        """The one that waits longest first."""
        async with self._one_at_a_time:
            await self._catch_up(service)
        found = [one for asked in self._waiting.values() for one in asked]
        return sorted(found, key=lambda one: (one.since_ms, one.session, one.seq))

    async def _catch_up(self, service: Service) -> None:
        while self._mark is not None:
            try:
                page = await service.views.changes(self._mark)
            except UnknownMark:
                break
            if any(isinstance(change, StoreRestored) for change in page.changes):
                break
            for change in page.changes:
                if isinstance(change, SessionDeleted):
                    self._waiting.pop(change.session, None)
            for session in {
                change.session
                for change in page.changes
                if isinstance(change, FactAdded)
                and isinstance(
                    change.record.fact,
                    ApprovalAsked | ApprovalDecided | ToolFact | TurnEnded,
                )
            }:
                await self._look(service, session)
            if page.mark == self._mark:
                return
            self._mark = page.mark
        await self._look_at_all(service)

    async def _look(self, service: Service, session: str) -> None:
        try:
            found = await service.approvals.pending(session)
        except UnknownSession:
            found = []
        self._waiting.pop(session, None)
        if found:
            self._waiting[session] = found

    async def _look_at_all(self, service: Service) -> None:
        self._mark = await service.views.mark()
        self._waiting = {}
        for one in await service.approvals.pending():
            self._waiting.setdefault(one.session, []).append(one)
