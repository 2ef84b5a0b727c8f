"""steno under the frameworks that people have: a module for each, imported when it is used.

Every verb runs in a thread and belongs to no event loop, so it works under asyncio and trio, and
one store serves many loops.
"""

from collections.abc import Callable, Coroutine
from os import PathLike
from typing import Any, TypeVar

import steno
from steno.library import Library

T = TypeVar("T")


def opened(store: Library | str | PathLike[str]) -> Library:
    """An open library, or the one at a path."""
    return store if isinstance(store, Library) else steno.open(store)


async def in_thread(work: Callable[[], T]) -> T:
    """A caller that is cancelled, however often, waits until it has ended: a write has an
    outcome."""
    import anyio
    import anyio.to_thread

    done: list[T] = []
    with anyio.CancelScope(shield=True):
        working = anyio.to_thread.run_sync(work)
        done.append(await (_outlasting(working) if _on_asyncio() else working))
    return done[0]


def _on_asyncio() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _outlasting(work: Coroutine[Any, Any, T]) -> T:
    """asyncio cancels a task that waits in a shielded scope all the same."""
    import asyncio

    running, cancelled = asyncio.ensure_future(work), None
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    if cancelled is not None:
        running.exception()
        raise cancelled
    return running.result()
