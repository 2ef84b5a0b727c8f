"""Signals: how a person or the system asks this process to stop.

    SIGINT              stop the turn and keep what was shown; a second one within two seconds leaves at once
    SIGTERM, SIGHUP     end the turn as terminated and leave

None of it carries correctness: whatever was committed is in the journal without it.
"""

import asyncio
import os
import signal
import sys
import time
from types import TracebackType

from steno.journal.parts import Seq
from steno.service import Service

TWICE_S = 2.0


class Leaving:
    """While entered, signals act on one session. `signal` is the one that came, if any."""

    def __init__(self, service: Service, session: str, input: Seq | None = None) -> None:
        self.event = asyncio.Event()
        self.signal: int | None = None
        self._service = service
        self._session = session
        self._input = input
        self._last_s = -TWICE_S
        self._tasks: set[asyncio.Task[object]] = set()

    def __enter__(self) -> "Leaving":
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._leave, number)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)

    def _interrupt(self) -> None:
        now_s = time.monotonic()
        if now_s - self._last_s < TWICE_S:
            os._exit(130)
        self._last_s, self.signal = now_s, signal.SIGINT
        print("\nstopping; Ctrl-C again leaves at once", file=sys.stderr)
        self._tasks.add(asyncio.create_task(self._stop()))

    async def _stop(self) -> None:
        """Stop the running turn. If ours has not begun, leave: it stays pending for whoever comes next."""
        if await self._service.interrupt(self._session, self._input) is None:
            self.event.set()

    def _leave(self, number: int) -> None:
        self.signal = number
        self.event.set()
