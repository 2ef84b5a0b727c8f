"""What the rest of steno needs of a runtime, and what a runtime is made of.

    Runtime   runs sessions by their id; front ends know only this
    Driver    carries out the turns of a session that is already held: our own loop, or an external
              app-server

Whatever drives a session, the same facts are stored through the same `HeldSession`, so every view
works for all.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from steno.journal.facts import ContextSet
from steno.session.lease import HeldSession
from steno.session.live import Enough, Runner

if TYPE_CHECKING:
    from steno.runtimes.compact import Compaction

WithMemories = Callable[[HeldSession, ContextSet], Awaitable[ContextSet]]
"""Adds what a new session is told of earlier ones."""


class Runtime(Runner, Protocol):
    async def compact(self, session: str, leaving: asyncio.Event) -> "Compaction":
        """Have the older part of a session at rest summarised, by the model that answers in it."""
        ...


class Driver(Protocol):
    async def drive(self, held: HeldSession, enough: Enough) -> None:
        """Act until the session rests, or until no turn is open and it is `enough`; then let go of
        it."""
        ...

    async def compact_held(self, held: HeldSession) -> "Compaction": ...
