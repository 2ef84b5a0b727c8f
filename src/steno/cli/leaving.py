"""Signals: how a person or the system asks this process to stop.

    SIGINT              stop the turn and keep what was shown; a second one within two seconds leaves at once
    SIGTERM, SIGHUP     end the turn as terminated and leave

Whoever only watches a turn leaves at any of them, and the turn goes on.

None of it carries correctness: whatever was committed is in the journal without it.
"""

import asyncio
import contextlib
import os
import signal
import time
from types import TracebackType

from steno.cli.screen import note
from steno.journal.parts import Seq
from steno.service import Service
from steno.store.errors import StoreError

TWICE_S = 2.0


class Leaving:
    """While entered, signals act on the turn that took `input`, or on `turn` once that is known. `event` is set when
    it is time to let go."""

    def __init__(self, service: Service, session: str, input: Seq | None = None, watching: bool = False) -> None:
        self.event = asyncio.Event()
        self.turn: Seq | None = None
        self._service = service
        self._session = session
        self._input = input
        self._watching = watching
        self._last_s = -TWICE_S
        self._tasks: set[asyncio.Task[object]] = set()

    def __enter__(self) -> "Leaving":
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.event.set)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)

    def _interrupt(self) -> None:
        if self._watching:
            self.event.set()
            return
        now_s = time.monotonic()
        if now_s - self._last_s < TWICE_S:
            os._exit(130)
        self._last_s = now_s
        note("\nstopping; Ctrl-C again leaves at once")
        self._tasks.add(asyncio.create_task(self._stop()))

    async def _stop(self) -> None:
        """Stop our turn. If it has not begun, or nothing can be stored, leave: it stays as it is for whoever comes
        next."""
        stopped = None
        if self._input is not None or self.turn is not None:
            with contextlib.suppress(StoreError):
                stopped = await self._service.turns.interrupt(self._session, self._input, self.turn)
        if stopped is None:
            self.event.set()
