"""Runs steno and kills it, with a real SIGKILL, before or after its n-th write: python dying.py
before|after N …

A write is a record of facts or a piece of streamed text.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from steno.cli import main
from steno.session.lease import HeldSession

P = ParamSpec("P")
T = TypeVar("T")

when, n, words = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
count = 0


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


HeldSession.record = or_die(HeldSession.record)  # type: ignore[assignment,method-assign]
HeldSession.draft = or_die(HeldSession.draft)  # type: ignore[assignment,method-assign]
sys.exit(main(words))
