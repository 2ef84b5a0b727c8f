"""The verbs of a store, for callers that block and for callers that await: one table, two faces.

    queued     only writes. A blocking caller becomes the committer itself; one that awaits queues
               the change for the committing thread, and waits first while the queue is full
    threaded   looks, too. A blocking caller runs it; one that awaits has a thread run it

What the verbs mean is said where they are declared, in `Store`.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    cast,
    overload,
)

from steno.journal.drafts import Stream
from steno.journal.facts import Record
from steno.journal.parts import Seq
from steno.store.commit_queue import Queued
from steno.store.core import Core
from steno.store.protocol import Change, Cursor, Event, FeedMark, Lease, Settings

if TYPE_CHECKING:
    import asyncio
    from typing import Self

T = TypeVar("T")
P = ParamSpec("P")
F = TypeVar("F", bound="Verbs")


class Verb(Generic[P, T]):
    """One verb in both faces. A face takes its function out of the table when it is declared; what
    is said here of `__get__` is for type checkers."""

    def __init__(
        self,
        blocks: Callable[Concatenate["BlockingStore", P], T],
        awaits: Callable[Concatenate["AsyncStore", P], Coroutine[Any, Any, T]],
    ) -> None:
        self.blocks = blocks
        self.awaits = awaits

    if TYPE_CHECKING:

        @overload
        def __get__(self, store: "BlockingStore", face: object) -> Callable[P, T]: ...
        @overload
        def __get__(
            self, store: "AsyncStore", face: object
        ) -> Callable[P, Coroutine[Any, Any, T]]: ...
        @overload
        def __get__(
            self, store: None, face: type["BlockingStore"]
        ) -> Callable[Concatenate[Any, P], T]: ...
        @overload
        def __get__(
            self, store: None, face: type["AsyncStore"]
        ) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]: ...
        def __get__(self, store: object, face: object) -> Any: ...


def queued(plan: Callable[Concatenate[Core, P], Queued[T]]) -> Verb[P, T]:
    def blocks(store: "BlockingStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        core = store.core
        change = plan(core, *args, **kwargs)
        answer = core.queue.settle(change)
        if change.after is not None:
            change.after(answer)
        return answer

    async def awaits(store: "AsyncStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        change = plan(store.core, *args, **kwargs)
        if store.is_full:
            await store.room()
        answer = await store.submit(change)
        if change.after is not None:
            change.after(answer)
        return answer

    return Verb(blocks, awaits)


def threaded(act: Callable[Concatenate[Core, P], T]) -> Verb[P, T]:
    def blocks(store: "BlockingStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return act(store.core, *args, **kwargs)

    async def awaits(store: "AsyncStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store.to_thread(act, store.core, *args, **kwargs)

    return Verb(blocks, awaits)


def at_once(act: Callable[Concatenate[Core, P], T]) -> Verb[P, T]:
    """Waits for nothing."""

    def blocks(store: "BlockingStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return act(store.core, *args, **kwargs)

    async def awaits(store: "AsyncStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return act(store.core, *args, **kwargs)

    return Verb(blocks, awaits)


class Verbs:
    """The table."""

    core: Core

    @property
    def owner(self) -> str:
        return self.core.backend.owner

    @property
    def settings(self) -> Settings:
        return self.core.settings

    admit = queued(Core.admit)
    admitted = queued(Core.admitted)
    create = queued(Core.create)
    ensure = queued(Core.ensure)
    fork = threaded(Core.fork)
    add = queued(Core.add)
    keep = queued(Core.keep)
    keep_all = queued(Core.keep_all)

    claim = threaded(Core.claim)
    put_back = threaded(Core.put_back)
    acquire = threaded(Core.acquire)
    abandon = at_once(Core.abandon)
    running = threaded(Core.running)
    renew = queued(Core.renew)
    release = queued(Core.release)
    append = queued(Core.append)
    draft = queued(Core.draft)
    alive = threaded(Core.alive)

    read = threaded(Core.read)
    facts_at = threaded(Core.facts_at)
    drafts = threaded(Core.drafts)
    streaming = threaded(Core.streaming)
    glance = threaded(Core.glance)
    changes = threaded(Core.changes)
    find = threaded(Core.find)
    kept = threaded(Core.kept)
    kept_anywhere = threaded(Core.kept_anywhere)
    named = threaded(Core.named)
    keys = threaded(Core.keys)
    list = threaded(Core.list)

    put = queued(Core.put)
    get = threaded(Core.get)

    bring = threaded(Core.bring)
    extend = threaded(Core.extend)
    redact = threaded(Core.redact)
    delete = threaded(Core.delete)
    verify = threaded(Core.verify)


def _face(how: str) -> Callable[[type[F]], type[F]]:
    def fill(face: type[F]) -> type[F]:
        for name, verb in vars(Verbs).items():
            if isinstance(verb, Verb):
                setattr(face, name, getattr(verb, how))
        return face

    return fill


@_face("blocks")
class BlockingStore(Verbs):
    """Every verb as a plain method. Safe to use from many threads."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read_all(
        self, session: str, after: Seq = 0, upto: Seq | None = None
    ) -> Iterator[Record]:
        """Every fact in order, page by page."""
        while page := self.core.read(session, after):
            for record in page:
                if upto is not None and record.seq > upto:
                    return
                yield record
            after = page[-1].seq

    def follow(
        self, session: str, cursor: Cursor | None = None, drafts: bool = True
    ) -> Iterator[Event]:
        """What is new, and then what comes, for ever. Stop iterating to leave."""
        from steno.store.follow import follow

        return follow(self.core, session, cursor, drafts)

    def follow_changes(self, after: FeedMark = 0) -> Iterator[Change]:
        """What changed after a mark, and then what comes, for ever. Stop iterating to leave."""
        from steno.store.follow import follow_changes

        return follow_changes(self.core, after)

    def close(self) -> None:
        self.core.close()


class AtOnce:
    """The verbs of a blocking store as coroutines that never suspend: what is written for the
    other face runs over it without an event loop, by `now`."""

    def __init__(self, store: BlockingStore) -> None:
        self._store = store
        self._draft = store.draft

    async def draft(self, lease: Lease, stream: Stream, text: str) -> int:
        return self._draft(lease, stream, text)

    def __getattr__(self, verb: str) -> Callable[..., Coroutine[None, None, Any]]:
        blocking = getattr(self._store, verb)
        if not callable(blocking):
            return blocking  # type: ignore[no-any-return]

        async def at_once(*arguments: Any, **named: Any) -> Any:
            return blocking(*arguments, **named)

        setattr(self, verb, at_once)
        return at_once


def now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing. Where it gives way to other tasks, it goes on."""
    try:
        while coroutine.send(None) is None:
            pass
    except StopIteration as done:
        return cast(T, done.value)
    coroutine.close()
    raise RuntimeError("a verb of a blocking store has suspended")


@_face("awaits")
class AsyncStore(Verbs):
    """Every verb as a coroutine. Belongs to the event loop it was made in."""

    def __init__(self, core: Core) -> None:
        import asyncio  # callers that block do without it

        from steno.store.follow import Followers

        self.core = core
        self.to_thread = asyncio.to_thread
        self.followers = Followers(core)
        self._loop = asyncio.get_running_loop()
        self._queued = 0
        self.is_full = False
        self._queued_max = core.settings.queue_bytes_max
        self._room = asyncio.Event()

    async def __aenter__(self) -> "Self":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def follow(
        self, session: str, cursor: Cursor | None = None, drafts: bool = True
    ) -> AsyncGenerator[Event, None]:
        return self.followers.follow(session, cursor, drafts)

    async def runner_changes(self, session: str, known: str | None) -> str | None:
        return await self.followers.runner_changes(session, known)

    def follow_changes(self, after: FeedMark = 0) -> AsyncGenerator[Change, None]:
        return self.followers.follow_changes(after)

    async def close(self) -> None:
        """Followers look once more, and find the store closed."""
        await self.to_thread(self.core.close)
        self.followers.look()

    @property
    def blocking(self) -> BlockingStore:
        """The same open store for threads that may block."""
        return BlockingStore(self.core)

    async def room(self) -> None:
        """A full queue makes the caller wait before it adds to it."""
        while self._queued > self._queued_max:
            self._room.clear()
            await self._room.wait()
        self.is_full = False

    def submit(self, change: Queued[T]) -> "asyncio.Future[T]":
        """Queue a change; its answer is there once it is durable."""
        future: asyncio.Future[T] = self._loop.create_future()
        change.waiter, change.future = self, future
        self.core.queue.submit(change)
        self._queued += change.size
        self.is_full = self._queued > self._queued_max
        return future

    def answered(self, queued: Sequence[Queued[object]]) -> None:
        self._loop.call_soon_threadsafe(self._resolve, queued)

    def _resolve(self, queued: Sequence[Queued[object]]) -> None:
        for ticket in queued:
            self._queued -= ticket.size
            future: asyncio.Future[object] = ticket.future  # type: ignore[assignment]
            if future.cancelled():
                continue
            if ticket.error is None:
                future.set_result(ticket.answer)
            else:
                future.set_exception(ticket.error)
        self._room.set()
