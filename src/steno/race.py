"""Waits for the first of several things."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def first_of(
    work: Awaitable[T], *ends: asyncio.Event, limit_s: float | None = None
) -> T | None:
    """What `work` gives or raises; None if one of `ends` is set first, or the time is up.

    Work that is not over by then is cancelled, and has ended when this returns.
    """
    working = asyncio.ensure_future(work)
    waits = [asyncio.ensure_future(end.wait()) for end in ends]
    try:
        await asyncio.wait(
            (working, *waits), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
        )
        return working.result() if working.done() else None
    finally:
        for task in (working, *waits):
            task.cancel()
        await asyncio.gather(working, *waits, return_exceptions=True)
