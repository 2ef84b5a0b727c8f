"""The store of one process of a `World`: the store's own verbs, on memory that the processes of the
world share, without threads.

Each commit is a boundary at which the process can be made to die: right before it, or when it is
durable and nothing has been told of it yet. From then on the store does nothing for this process.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from steno.race import first_of
from steno.store.facade import BlockingStore
from steno.store.follow import ALIVE_S
from steno.store.protocol import Change, Cursor, Event, FeedMark

if TYPE_CHECKING:
    from tests.world.world import Process

COMMITS = frozenset(
    ("admit", "create", "ensure", "fork", "add", "acquire", "release", "append", "draft")
) | frozenset(("put", "redact", "delete"))


class Kill(Struct, frozen=True):
    """Where a process dies: before or after its n-th commit."""

    when: Literal["before", "after"]
    n: int


class Dead(BaseException):
    """The process was killed: nothing that it still tries has an effect."""


class Handle:
    """Satisfies `Store`."""

    def __init__(self, process: "Process", blocking: BlockingStore) -> None:
        self._process = process
        self._blocking = blocking

    @property
    def owner(self) -> str:
        return self._blocking.owner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self._blocking, name)
        return partial(self._commit if name in COMMITS else self._look, name, verb)

    async def _commit(self, name: str, verb: Callable[..., Any], *args: Any, **more: Any) -> Any:
        n = self._process.next_commit(name, args)
        await self._process.reached(Kill("before", n))
        answer = verb(*args, **more)
        self._process.world.changed()
        await self._process.reached(Kill("after", n))
        return answer

    async def _look(self, _: str, verb: Callable[..., Any], *args: Any, **more: Any) -> Any:
        self._process.check_alive()
        await asyncio.sleep(0)
        return verb(*args, **more)

    async def follow(
        self, session: str, cursor: Cursor | None = None, drafts: bool = True
    ) -> AsyncIterator[Event]:
        seen = cursor or Cursor()
        while True:
            self._process.check_alive()
            version = self._process.world.version
            events, seen = self._blocking.core.since(session, seen, drafts)
            for event in events:
                yield event
            if not events:
                await self._process.world.newer_than(version)

    async def follow_changes(self, after: FeedMark = 0) -> AsyncIterator[Change]:
        while True:
            self._process.check_alive()
            version = self._process.world.version
            page = self._blocking.changes(after)
            for change in page.changes:
                yield change
            after = page.mark
            if not page.changes:
                await self._process.world.newer_than(version)

    async def runner_changes(self, session: str, known: str | None) -> str | None:
        while True:
            version = self._process.world.version
            runner: str | None = await self.running(session)
            if runner != known:
                return runner
            await first_of(self._process.world.newer_than(version), limit_s=ALIVE_S)

    async def close(self) -> None:
        self._blocking.close()
