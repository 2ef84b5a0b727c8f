"""steno under the frameworks that people have: a module for each, imported when it is used.

Every verb runs in a thread and belongs to no event loop, so it works under asyncio and trio, and
one store serves many loops.
"""

from collections.abc import Callable
from contextvars import copy_context
from os import PathLike
from typing import TypeVar

import steno
from steno.library import Library

T = TypeVar("T")


def opened(store: Library | str | PathLike[str]) -> Library:
    """An open library, or the one at a path."""
    return store if isinstance(store, Library) else steno.open(store)


async def in_thread(work: Callable[[], T]) -> T:
    """A caller that is cancelled, however often, waits until it has ended: a write has an
    outcome."""
    import asyncio

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return await _under_trio(work)
    running = loop.run_in_executor(None, copy_context().run, work)
    cancelled: BaseException | None = None
    while not running.done():
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    if cancelled is not None:
        running.exception()
        raise cancelled
    return running.result()


async def _under_trio(work: Callable[[], T]) -> T:
    import anyio
    import anyio.to_thread

    done: list[T] = []
    with anyio.CancelScope(shield=True):
        done.append(await anyio.to_thread.run_sync(work))
    return done[0]
