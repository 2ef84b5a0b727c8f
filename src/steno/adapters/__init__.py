"""steno under the frameworks that people have: a module for each, imported when it is used.

Every verb runs in a thread and belongs to no event loop, so it works under asyncio and trio, and
one store serves many loops.
"""

from collections.abc import Callable
from os import PathLike
from typing import TypeVar

import steno
from steno.library import Library

T = TypeVar("T")


def opened(store: Library | str | PathLike[str]) -> Library:
    """An open library, or the one at a path."""
    return store if isinstance(store, Library) else steno.open(store)


async def in_thread(work: Callable[[], T]) -> T:
    """A caller that is cancelled waits until it has ended: a write has an outcome."""
    import anyio
    import anyio.to_thread

    done: list[T] = []
    with anyio.CancelScope(shield=True):
        done.append(await anyio.to_thread.run_sync(work))
    return done[0]
