"""Runs steno and kills it, with a real SIGKILL, before or after its n-th write about a job: python
dying_at_jobs.py before|after N …

Its clock is moved by STENO_TESTS_SHIFT_S seconds. A write is an admission, a fact in the journal of
a job, a post, or a delivery that is owed.
"""

import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from steno.cli import main
from steno.service.chats import Chats
from steno.service.jobs import Jobs

P = ParamSpec("P")
T = TypeVar("T")

when, n, words = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
count = 0
_time, _time_ns = time.time, time.time_ns
shift_s = float(os.environ.get("STENO_TESTS_SHIFT_S", "0"))
time.time = lambda: _time() + shift_s
time.time_ns = lambda: _time_ns() + int(shift_s * 1e9)


def or_die(write: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    async def counted(*args: P.args, **kwargs: P.kwargs) -> T:
        global count
        count += 1
        mine = count
        if mine == n and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = await write(*args, **kwargs)
        if mine == n and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    return counted


Chats.admit = or_die(Chats.admit)  # type: ignore[assignment,method-assign]
Chats.owe = or_die(Chats.owe)  # type: ignore[assignment,method-assign]
Jobs.post = or_die(Jobs.post)  # type: ignore[assignment,method-assign]
Jobs._add = or_die(Jobs._add)  # type: ignore[assignment,method-assign]
sys.exit(main(words))
