"""This process: the signals that it heeds, and the deadline by which it ends.

Nothing here carries correctness: what was committed is in the journal without it. So leaving has a
deadline: what hangs then is left behind, except the commands of tools, which are ended.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping

from steno.engine.visit_end import Reason

TWICE_S = 2.0
"""A second Ctrl-C within this time leaves."""
LEAVE_S = 0.8
"""From the signal to the end of this process, whatever hangs."""
LEFT = 130

REASONS: dict[signal.Signals, Reason] = {
    signal.SIGINT: "signal",
    signal.SIGTERM: "signal",
    signal.SIGHUP: "closed_terminal",
    signal.SIGQUIT: "signal",
}
"""Signals that ask this process to stop, and what is stored as the reason."""

_deadlines: list[threading.Timer] = []


@contextlib.contextmanager
def heeding(actions: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """While entered, a signal has its action. One that was ignored when this process started, by
    `nohup` or by a shell for a command in the background, stays ignored."""
    from asyncio import get_running_loop

    loop = get_running_loop()
    heeded = [
        number for number in actions if signal.getsignal(number) != signal.SIG_IGN
    ]
    for number in heeded:
        loop.add_signal_handler(number, actions[number])
    try:
        yield
    finally:
        for number in heeded:
            loop.remove_signal_handler(number)


def leave_by_deadline(
    first: Callable[[], None] | None = None, status: int = LEFT
) -> None:
    """End this process in time, whatever hangs. No exit handler is needed for what was stored.
    `first` is for what is not stored: the state of a terminal."""
    from steno.tools.groups import end_all

    def leave() -> None:
        end_all()
        if first is not None:
            first()
        os._exit(status)

    timer = threading.Timer(LEAVE_S, leave)
    timer.daemon = True
    timer.start()
    _deadlines.append(timer)


def in_time() -> None:
    """Nothing hangs any more."""
    while _deadlines:
        _deadlines.pop().cancel()
