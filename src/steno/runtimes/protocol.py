"""What the rest of steno needs of a runtime, and what a runtime is made of.

    Runtime   runs sessions by their id; front ends know only this
    Driver    carries out the turns of a session that is already held: our own loop, or an external app-server

Whatever drives a session, the same facts are stored through the same `HeldSession`, so every view
works for all.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from steno.journal.facts import ContextSet, TurnStarted
from steno.journal.state import State
from steno.runtimes.compact import Compaction
from steno.session.lease import HeldSession

Enough = Callable[[State], bool]
WithMemories = Callable[[HeldSession, ContextSet], Awaitable[ContextSet]]
"""Adds what a new session is told of earlier ones."""


class Runtime(Protocol):
    async def run(
        self,
        session: str,
        enough: Enough,
        leaving: asyncio.Event,
        opening: TurnStarted | None = None,
    ) -> None:
        """Run a session until it rests, or until no turn is open and it is `enough`. Raises
        `SessionBusy` if somebody else runs it.

        `opening` is a turn to begin with: one that continues or retries. `leaving`, when set, ends
        the running turn as terminated and lets go.
        """
        ...

    async def compact(self, session: str, leaving: asyncio.Event) -> Compaction:
        """Have the older part of a session at rest summarised, by whoever answers in it."""
        ...


class Driver(Protocol):
    async def drive(self, held: HeldSession, enough: Enough) -> None:
        """Act until the session rests, or until no turn is open and it is `enough`; then let go of
        it."""
        ...

    async def compact_held(self, held: HeldSession) -> Compaction: ...
