"""One runtime for all sessions: each is held first, and then driven by whoever its context
names."""

import asyncio
from collections.abc import Callable

from steno.journal.facts import ContextSet, TurnStarted
from steno.plugins.protocol import NoPlugins, Plugins
from steno.runtimes.compacting import Compaction
from steno.runtimes.holding import context_of, holding, open_turn, refuse_waiting
from steno.runtimes.protocol import Driver, Enough
from steno.store.protocol import Store


class Dispatch:
    """`driver_for` says who drives a session, given its context so far. `plugins` are told of its
    turns."""

    def __init__(
        self,
        store: Store,
        driver_for: Callable[[ContextSet | None], Driver],
        lease_ms: int,
        plugins: Plugins | None = None,
    ) -> None:
        self._store = store
        self._driver_for = driver_for
        self._lease_ms = lease_ms
        self._plugins = plugins or NoPlugins()

    async def run(
        self,
        session: str,
        enough: Enough,
        leaving: asyncio.Event,
        opening: TurnStarted | None = None,
    ) -> None:
        async with holding(self._store, session, self._lease_ms, leaving) as held:
            held.plugins = self._plugins
            driver = self._driver_for(context_of(held.state))
            if opening is not None:
                await open_turn(held, opening)
            await driver.drive(held, enough)

    async def compact(self, session: str, leaving: asyncio.Event) -> Compaction:
        async with holding(self._store, session, self._lease_ms, leaving) as held:
            held.plugins = self._plugins
            refuse_waiting(held)
            came = await self._driver_for(context_of(held.state)).compact_held(held)
            while not await held.release():
                pass
            return came
