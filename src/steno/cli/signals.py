"""Signals: how a person or the system asks this process to stop.

    SIGINT                      stop the turn, keep what was shown; a second one within 2 s leaves
    SIGTERM, SIGHUP, SIGQUIT    end the turn as terminated and leave

A command that only watches a turn leaves at any of them, and the turn goes on.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from types import TracebackType

from steno.cli.stdio import complain, end_question, note
from steno.engine.visit_end import Reason
from steno.frontend.process import REASONS, TWICE_S, heeding, leave_by_deadline
from steno.journal.parts import Seq
from steno.service import Service
from steno.service.deliveries import LEAVING_S, STAY_S
from steno.store.errors import StoreError

UNTAKEN = (
    "left before the store had taken the input; steno sessions shows whether it did: then it "
    "waits there"
)


@contextlib.asynccontextmanager
async def visiting(
    service: Service, about: str = "", stays: bool = False
) -> AsyncIterator[None]:
    """While entered, sessions are opened, and what dead processes left is looked after, but for
    what the session `about` owes: its turn is about to go on. At the end they are let go, and what
    they owe is delivered: in a moment, or if no caller waits for us (`stays`) as long as that is
    worth trying."""
    try:
        async with service.visits.looking(), service.deliveries.tending(about):
            yield
    finally:
        delivering = service.deliveries.finish(
            service.visits.attended(), STAY_S if stays else LEAVING_S
        )
        problems, _ = await asyncio.gather(service.visits.leave(), delivering)
        for problem in problems:
            complain(problem)


class Asked:
    """The signal that asked this process to leave; None so far."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None


@contextlib.contextmanager
def taking_in(service: Service) -> Iterator[Asked]:
    """While an input is being stored, which takes long if another program has the store locked. A
    signal that comes meanwhile ends this process in time."""
    asked = Asked()

    def leave(number: signal.Signals) -> None:
        if asked.signal is None:
            asked.signal = number
            service.visits.reason = REASONS[number]
            leave_by_deadline(lambda: complain(UNTAKEN))

    with heeding({number: partial(leave, number) for number in REASONS}):
        yield asked


class Leaving:
    """While entered, signals act on the turn that took `input`, or on `turn` once that is known.
    `event` is set when it is time to let go."""

    def __init__(
        self,
        service: Service,
        session: str,
        input: Seq | None = None,
        watching: bool = False,
    ) -> None:
        self.event = asyncio.Event()
        self.signal: signal.Signals | None = None
        """The signal that asked to leave."""
        self.turn: Seq | None = None
        self.stopping: Reason = "signal"
        """Why its front end leaves if it does so with a turn that was stopped."""
        self._service = service
        self._session = session
        self._input = input
        self._watching = watching
        self.interrupted_s = -TWICE_S
        """When a person last asked for an end."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._heeding = contextlib.ExitStack()

    def __enter__(self) -> "Leaving":
        actions = {number: partial(self._leave, number) for number in REASONS}
        self._heeding.enter_context(
            heeding(actions | {signal.SIGINT: self._interrupt})
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        self._heeding.close()

    def _leave(self, number: signal.Signals) -> None:
        self.signal = self.signal or number
        self._service.visits.reason = REASONS[number]
        if not self.event.is_set():
            leave_by_deadline()
        self._tasks.add(asyncio.create_task(self._let_go(tuple(self._tasks))))

    async def _let_go(self, stopping: Iterable[asyncio.Task[None]]) -> None:
        """A stop that was asked for is stored first: that a person wished the end counts more than
        how it came."""
        await asyncio.gather(*stopping, return_exceptions=True)
        self.event.set()

    def _interrupt(self) -> None:
        now_s = time.monotonic()
        if self._watching or now_s - self.interrupted_s < TWICE_S:
            self._leave(signal.SIGINT)
            return
        self.interrupted_s = now_s
        self._service.visits.reason = self.stopping
        note(
            f"{'' if end_question() else chr(10)}stopping; Ctrl-C again leaves at once"
        )
        self._tasks.add(asyncio.create_task(self._stop()))

    async def _stop(self) -> None:
        """Stop our turn. If it has not begun, or nothing can be stored, leave: it stays as it is
        for the next start."""
        stopped = None
        if self._input is not None or self.turn is not None:
            with contextlib.suppress(StoreError):
                stopped = await self._service.turns.interrupt(
                    self._session, self._input, self.turn
                )
        if stopped is None:
            self.event.set()
