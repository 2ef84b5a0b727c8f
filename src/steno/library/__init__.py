"""steno for other people's programs: keep a conversation so that nothing said or shown is lost.

    open        Library        Session        Reply            blocks until it is durable
    aopen       AsyncLibrary   AsyncSession   AsyncReply       the same verbs, awaited

There is one implementation, the asynchronous one. The blocking face runs it over a store whose
verbs never suspend, so it needs no event loop and no thread. For tools, forks and leases, use the
store itself: `Library.store`.

What is passed is checked before anything is stored. A `TypeError` or `ValueError` names the
argument.
"""

from os import PathLike

from steno.library.blocking import Library, Reply, Session
from steno.library.given import a_path, some_settings
from steno.library.library import AsyncLibrary
from steno.library.means import MEMORY, SOURCE
from steno.library.reply import AsyncReply
from steno.library.session import AsyncSession, Followed, WireFormat
from steno.store.protocol import Settings
from steno.store.sqlite.store import BlockingStore

__all__ = [
    "SOURCE",
    "AsyncLibrary",
    "AsyncReply",
    "AsyncSession",
    "Followed",
    "Library",
    "Reply",
    "Session",
    "WireFormat",
    "aopen",
    "open",
]


def open(path: str | PathLike[str], settings: Settings | None = None) -> Library:
    """Open the store at `path`, or make it. Its folder must exist. ":memory:" is a store in the
    memory of this process, which ends with it."""
    if path == MEMORY:
        from steno.store.memory import BlockingMemoryStore, Place

        return Library(BlockingMemoryStore(Place(), some_settings(settings)))
    return Library(BlockingStore(a_path(path), some_settings(settings)))


def aopen(
    path: str | PathLike[str], settings: Settings | None = None
) -> AsyncLibrary:
    """The same for programs with an event loop: `async with steno.aopen(path) as chats`, or `await
    steno.aopen(path)`."""
    return AsyncLibrary(a_path(path), some_settings(settings))
