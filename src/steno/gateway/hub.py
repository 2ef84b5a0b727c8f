"""Runs the sessions that have something to run: one task a session, however often it is woken.

Turns belong to the service, never to a client. A session is woken by an input, a decision, a retry,
or at the start because something in it waits; it is run until it rests. What the process leaves
undone is a fact, so the next start finds it.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

from steno.compose import Program
from steno.config import ConfigError, GatewayConfig
from steno.journal.facts import TurnStarted
from steno.model_choice import Terms
from steno.service import Misused, Service
from steno.store.errors import SessionBusy, StoreError, UnknownSession

PLATFORM = "http"
LOOK_AGAIN_S = 1.0
PAGE = 200

_log = logging.getLogger("steno.gateway")


class Hub:
    """`home` is where a session without a folder of its own gets one."""

    def __init__(self, program: Program, config: GatewayConfig, home: Path) -> None:
        self.program = program
        self.draining = asyncio.Event()
        """Set when no new turn begins here."""
        self.leaving = asyncio.Event()
        """Set when running turns are to end."""
        self._config = config
        self._home = home
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._woken: set[str] = set()
        self._openings: dict[str, TurnStarted] = {}
        self.turns_run = 0
        self.failures = 0

    def service(self, session: str | None = None) -> Service:
        """What can be done with a session from here, on the terms that the configuration gives."""
        return self.program.service(PLATFORM, self.terms(session))

    def terms(self, session: str | None) -> Terms:
        if session is None:
            return Terms(approval=self._config.approval)
        return Terms(approval=self._config.approval, folder=self._folder(session))

    def _folder(self, session: str) -> Path:
        if self._config.folder:
            return Path(self._config.folder).expanduser()
        folder = self._home / "workspaces" / session
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def running(self) -> int:
        return len(self._tasks)

    # --- running

    def wake(self, session: str, opening: TurnStarted | None = None) -> None:
        """Have a session run. What is stored already is found; wakes coalesce."""
        if opening is not None:
            self._openings[session] = opening
        self._woken.add(session)
        if session not in self._tasks and not self.draining.is_set():
            task = asyncio.create_task(self._run(session), name=f"session {session}")
            self._tasks[session] = task
            task.add_done_callback(lambda _: self._done(session))

    def _done(self, session: str) -> None:
        task = self._tasks.pop(session)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures += 1
            _log.error("session %s: %s: %s", session, type(error).__name__, error)
        if session in self._woken and not self.draining.is_set():
            self.wake(session)

    async def _run(self, session: str) -> None:
        while session in self._woken and not self.draining.is_set():
            self._woken.discard(session)
            service = self.service(session)
            opening = self._openings.pop(session, None)
            self.turns_run += 1
            try:
                if opening is not None:
                    await service.turns.run_again(session, opening, self.leaving)
                else:
                    await service.turns.run_pending(session, self.leaving)
            except UnknownSession:
                return  # deleted meanwhile
            except SessionBusy:
                await asyncio.sleep(LOOK_AGAIN_S)
                self._woken.add(session)
            except (StoreError, ConfigError, Misused) as error:
                self.failures += 1
                _log.warning("session %s was not run: %s", session, error)
                return

    # --- coming and going

    async def find_work(self) -> int:
        """Wake what an earlier process left: inputs that wait, turns that are open, turns that were
        cut off after tool results; how many."""
        found = 0
        async for session in self._left():
            found += 1
            await self._take_up(session)
        return found

    async def _left(self) -> AsyncIterator[str]:
        async for session in self.service().views.owing():
            yield session

    async def _take_up(self, session: str) -> None:
        service = self.service(session)
        with contextlib.suppress(StoreError):
            loaded = await service.views.load(session)
            if loaded.owner is not None:
                return
            cut = loaded.state.cut_off
            if cut is not None and cut.waits() and cut.results() and not loaded.state.pending:
                self.wake(session, service.turns.continuation(loaded))
            elif loaded.state.pending or loaded.state.turn is not None or loaded.closing:
                self.wake(session)

    async def drain(self, drain_s: float) -> None:
        """Begin no turn any more; give those that run some time, then end them in order."""
        self.draining.set()
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=drain_s)
        self.leaving.set()
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=5.0)
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
