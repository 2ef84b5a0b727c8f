"""steno under the OpenAI Agents SDK.

    chats = steno.open("chats.db")
    session = StenoSession("alice", chats)
    agent = agents.Agent("Assistant", model=keeping(model, session))
    await agents.Runner.run(agent, "Hello", session=session)

`StenoSession` keeps the items of a conversation, a batch in one commit. The SDK gives a session
only what is complete: `keeping` makes a model that stores each piece of an answer before the SDK
sees it, so that a kill or a cancel loses nothing that was shown.

Every verb runs in a thread and belongs to no event loop, so one session serves `run_sync` and many
loops. A write whose caller is cancelled has ended when the call returns.
"""

from collections.abc import Callable
from os import PathLike
from typing import Any

from steno.adapters import in_thread, opened
from steno.adapters.openai_model import PREFIX, keeping
from steno.items import Item, Tail
from steno.library import Library
from steno.store.errors import Stale

FORMAT = "openai.responses"
PLATFORM = "openai-agents"

__all__ = ["StenoSession", "keeping"]

Json = Any


class StenoSession:
    """A session of the SDK. `store` is an open library, or the path of a store."""

    def __init__(
        self,
        session_id: str,
        store: Library | str | PathLike[str] = ":memory:",
        session_settings: Any = None,
    ) -> None:
        self.session_id = session_id
        self._settings = session_settings
        if isinstance(session_settings, dict):
            self.session_settings  # noqa: B018 - says what is no setting
        self._closed = False
        self._own = not isinstance(store, Library)
        self.chats = opened(store)
        self.items = self.chats.items(PREFIX + session_id, FORMAT, PLATFORM)

    @property
    def session_settings(self) -> Any:
        """As the SDK has them, whether they were given as such or as a dictionary."""
        from agents.memory.session_settings import (
            SessionSettings,
            coerce_session_settings,
        )

        if not isinstance(self._settings, SessionSettings):
            self._settings = coerce_session_settings(self._settings or {})
        return self._settings

    @session_settings.setter
    def session_settings(self, settings: Any) -> None:
        self._settings = settings

    async def get_items(self, limit: int | None = None) -> list[Json]:
        """The last `limit` items, or all of them; a limit below 0 is none."""
        if limit is None and self._settings is not None:
            limit = self.session_settings.limit
        if limit is not None and limit < 0:
            limit = None
        tail = await in_thread(lambda: self.items.last(limit))
        return [item.value for item in tail.items]

    async def add_items(self, items: list[Json]) -> None:
        """All of them, or none."""
        if self._closed:
            raise RuntimeError("this session is closed; nothing was stored")
        if items:
            await in_thread(lambda: self.items.add(items))

    async def pop_item(self) -> Json | None:
        return await self._pop_item_with_validation()

    async def clear_session(self) -> None:
        await in_thread(self.items.clear)

    def close(self) -> None:
        """Close the store, if this session opened it."""
        self._closed = True
        if self._own:
            self.chats.close()

    # What the SDK asks of a session that can do more than the protocol says.

    async def _pop_item_with_validation(
        self, validate: Callable[[Json], None] | None = None
    ) -> Json | None:
        """`validate` raises if the item must stay."""

        def check(item: Item) -> bool:
            if validate is not None:
                validate(item.value)
            return True

        item = await in_thread(lambda: self.items.pop(check))
        return None if item is None else item.value

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Json], bool] | None = None
    ) -> Any:
        """None for a class derived from this one: it may read and write items in its own way."""
        return (
            await self._snapshot(limit, prune_prefix)
            if type(self) is StenoSession
            else None
        )

    async def _snapshot(
        self, limit: int, prune_prefix: Callable[[Json], bool] | None
    ) -> Any:
        """The last items, and a way to put others in the place of their end, if nobody changed
        anything meanwhile."""
        from agents.memory.session import _CompactionSnapshot

        tail = await in_thread(lambda: self.items.last(limit))

        async def replace_suffix(start: int, output: list[Json]) -> bool:
            if not tail.items[start:]:
                return False
            return await in_thread(
                lambda: self._replace(tail, start, output, prune_prefix)
            )

        return _CompactionSnapshot(
            [one.value for one in tail.items], tail.whole, replace_suffix
        )

    def _replace(
        self,
        tail: Tail,
        start: int,
        output: list[Json],
        prune: Callable[[Json], bool] | None,
    ) -> bool:
        doomed = [item.seq for item in tail.items[start:]]
        now = self.items.last(None if prune is not None else len(doomed))
        if [item.seq for item in now.items[-len(doomed) :]] != doomed:
            return False
        for item in now.items[: -len(doomed)]:
            if prune is None or not prune(item.value):
                break
            doomed.append(item.seq)
        try:
            self.items.change(output, withdraw=doomed, expect=now.head)
        except Stale:
            return False
        return True
