"""Signals: how a person or the system asks this process to stop.

    SIGINT                       stop the turn and keep what was shown; a second one within two seconds leaves
    SIGTERM, SIGHUP, SIGQUIT     end the turn as terminated and leave

Whoever only watches a turn leaves at any of them, and the turn goes on.

None of it carries correctness: whatever was committed is in the journal without it. So leaving has
a deadline: what hangs then is left behind, but for the commands of tools, which are ended.
"""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from types import TracebackType

from steno.cli.screen import complain, end_question, finish, note
from steno.engine.visit_end import Reason
from steno.journal.parts import Seq
from steno.service import Service
from steno.service.deliveries import LEAVING_S, STAY_S
from steno.store.errors import StoreError
from steno.tools.groups import end_all

TWICE_S = 2.0
LEAVE_S = 0.8
"""From the signal to the end of this process, whatever hangs."""
LEFT = 130
UNTAKEN = (
    "left before the store had taken the input; steno sessions shows whether it did: then it "
    "waits there"
)

REASONS: dict[signal.Signals, Reason] = {
    signal.SIGINT: "signal",
    signal.SIGTERM: "signal",
    signal.SIGHUP: "closed_terminal",
    signal.SIGQUIT: "signal",
}


@contextlib.asynccontextmanager
async def visiting(service: Service, about: str = "", stays: bool = False) -> AsyncIterator[None]:
    """While entered, sessions are opened, and what dead processes left is looked after, but for
    what the session `about` owes: its turn is about to go on. At the end they are let go, and what
    they owe is delivered: in a moment, or if nobody waits for us (`stays`) as long as that is worth
    trying."""
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


_deadlines: list[threading.Timer] = []


def leave_by_deadline(first: Callable[[], None] | None = None, status: int = LEFT) -> None:
    """End this process in time, whatever hangs. No exit handler is needed for what was stored.
    `first` is for what is not stored: the state of a terminal."""

    def leave() -> None:
        end_all()
        if first is not None:
            first()
        os._exit(status)

    timer = threading.Timer(LEAVE_S, leave)
    timer.daemon = True
    timer.start()
    _deadlines.append(timer)


def left(status: int) -> int:
    """Whoever had a deadline ends here: everything is closed, and to take the interpreter apart,
    module by module, can take as long again."""
    if _deadlines:
        finish()
        os._exit(status)
    return status


def in_time() -> None:
    """Nothing hangs any more."""
    while _deadlines:
        _deadlines.pop().cancel()


@contextlib.contextmanager
def taking_in(service: Service) -> Iterator[asyncio.Event]:
    """While what somebody said is being stored, which takes long where another program has the
    store locked. Whoever asks for an end meanwhile gets it in time; the event says that they
    did."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    def leave(number: signal.Signals) -> None:
        if not asked.is_set():
            asked.set()
            service.visits.reason = REASONS[number]
            leave_by_deadline(lambda: complain(UNTAKEN))

    for number in REASONS:
        loop.add_signal_handler(number, leave, number)
    try:
        yield asked
    finally:
        for number in REASONS:
            loop.remove_signal_handler(number)


class Leaving:
    """While entered, signals act on the turn that took `input`, or on `turn` once that is known.
    `event` is set when it is time to let go."""

    def __init__(
        self, service: Service, session: str, input: Seq | None = None, watching: bool = False
    ) -> None:
        self.event = asyncio.Event()
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

    def __enter__(self) -> "Leaving":
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        for number in REASONS.keys() - {signal.SIGINT}:
            loop.add_signal_handler(number, self._leave, number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in REASONS:
            loop.remove_signal_handler(number)

    def _leave(self, number: signal.Signals) -> None:
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
        note(f"{'' if end_question() else chr(10)}stopping; Ctrl-C again leaves at once")
        self._tasks.add(asyncio.create_task(self._stop()))

    async def _stop(self) -> None:
        """Stop our turn. If it has not begun, or nothing can be stored, leave: it stays as it is
        for whoever comes next."""
        stopped = None
        if self._input is not None or self.turn is not None:
            with contextlib.suppress(StoreError):
                stopped = await self._service.turns.interrupt(self._session, self._input, self.turn)
        if stopped is None:
            self.event.set()
