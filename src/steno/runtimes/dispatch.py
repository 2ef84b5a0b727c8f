"""One runtime for all sessions: each is held first, and then driven by the driver that its context
names."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from steno.journal.facts import ContextSet, TurnStarted
from steno.runtimes.protocol import Driver
from steno.session.lease import hold, open_turn, refuse_waiting
from steno.session.live import Enough
from steno.session.load import Sessions, context_of

if TYPE_CHECKING:
    from steno.runtimes.compact import Compaction


class Dispatch:
    """`driver_for` says what drives a session, given its context so far."""

    def __init__(
        self, sessions: Sessions, driver_for: Callable[[ContextSet | None], Driver]
    ) -> None:
        self._sessions = sessions
        self._driver_for = driver_for

    async def run(
        self,
        session: str,
        enough: Enough,
        leaving: asyncio.Event,
        opening: TurnStarted | None = None,
    ) -> None:
        async with hold(self._sessions, session, leaving) as held:
            driver = self._driver_for(context_of(held.state))
            if opening is not None:
                await open_turn(held, opening)
            await driver.drive(held, enough)

    async def compact(self, session: str, leaving: asyncio.Event) -> "Compaction":
        async with hold(self._sessions, session, leaving) as held:
            refuse_waiting(held)
            came = await self._driver_for(context_of(held.state)).compact_held(held)
            await held.close()
            return came
