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

import json
from collections.abc import AsyncIterator, Callable
from os import PathLike
from typing import Any

from steno.adapters import in_thread, opened
from steno.items import Item, Tail
from steno.library import Library, Reply, Session
from steno.store.errors import Stale

PREFIX = "openai:"
FORMAT = "openai.responses"
PLATFORM = "openai-agents"
SHOWN = "#shown"
"""Ends the name of the session that has what was streamed."""
WAIT_S = 30.0
_TEXT = ("response.output_text.delta", "response.refusal.delta")

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
        self._closed = False
        self._own = not isinstance(store, Library)
        self.chats = opened(store)
        self.items = self.chats.items(PREFIX + session_id, FORMAT, PLATFORM)

    @property
    def session_settings(self) -> Any:
        """As the SDK has them, whether they were given as such or as a dictionary."""
        from agents.memory.session_settings import SessionSettings, coerce_session_settings

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
        return await self._snapshot(limit, prune_prefix) if type(self) is StenoSession else None

    async def _snapshot(self, limit: int, prune_prefix: Callable[[Json], bool] | None) -> Any:
        """The last items, and a way to put others in the place of their end, if nobody changed
        anything meanwhile."""
        from agents.memory.session import _CompactionSnapshot

        tail = await in_thread(lambda: self.items.last(limit))

        async def replace_suffix(start: int, output: list[Json]) -> bool:
            if not tail.items[start:]:
                return False
            return await in_thread(lambda: self._replace(tail, start, output, prune_prefix))

        return _CompactionSnapshot([one.value for one in tail.items], tail.whole, replace_suffix)

    def _replace(
        self, tail: Tail, start: int, output: list[Json], prune: Callable[[Json], bool] | None
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


def keeping(model: Any, session: StenoSession) -> Any:
    """A model of the SDK whose answers are stored as they come, before the SDK sees them: in the
    session with the name of this one and "#shown"."""
    from agents.models.interface import Model

    class KeepingModel(Model):  # type: ignore[misc,unused-ignore]
        def __getattr__(self, name: str) -> Any:
            return getattr(model, name)

        async def close(self) -> None:
            await model.close()

        def get_retry_advice(self, request: Any) -> Any:
            return model.get_retry_advice(request)

        async def get_response(
            self, system_instructions: Any, input: Any, *given: Any, **named: Any
        ) -> Any:
            async with _Shown(session, model, input) as shown:
                answer = await model.get_response(system_instructions, input, *given, **named)
                await shown.write(_text_of(answer.output))
            return answer

        async def stream_response(
            self, system_instructions: Any, input: Any, *given: Any, **named: Any
        ) -> AsyncIterator[Any]:
            async with _Shown(session, model, input) as shown:
                events = model.stream_response(system_instructions, input, *given, **named)
                async for event in events:
                    if event.type in _TEXT:
                        await shown.write(event.delta)
                    yield event

    return KeepingModel()


class _Shown:
    """One answer in the session of what was shown."""

    def __init__(self, session: StenoSession, model: Any, input: Any) -> None:
        self._name = PREFIX + session.session_id + SHOWN
        self._chats = session.chats
        self._model = str(getattr(model, "model", "") or type(model).__name__)
        self._said = _last_said(input)
        self._reply: Reply | None = None

    async def __aenter__(self) -> "_Shown":
        def begin() -> Reply:
            chat: Session = self._chats.session(self._name)
            said = chat.say(self._said)
            return chat.reply(self._model, to=said, wait=WAIT_S).__enter__()

        self._reply = await in_thread(begin)
        return self

    async def write(self, piece: str) -> None:
        reply = self._reply
        if piece and reply is not None:
            await in_thread(lambda: reply.write(piece))

    async def __aexit__(self, kind: Any, error: Any, at: Any) -> None:
        reply = self._reply
        if reply is not None:
            await in_thread(lambda: reply.__exit__(kind, error, at))


def _last_said(input: Any) -> str:
    """What an answer is to: the text that came, or the last item."""
    if isinstance(input, str):
        return input
    last = input[-1] if input else ""
    content = last.get("content") if isinstance(last, dict) else None
    return content if isinstance(content, str) else json.dumps(last, default=str)


def _text_of(output: Any) -> str:
    parts = (part for item in output for part in getattr(item, "content", None) or ())
    return "".join(getattr(part, "text", "") or "" for part in parts)
