"""The adapters as stores for crashkit: a class for each."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any


class OpenAIAgents:
    def __init__(self, folder: Path) -> None:
        from steno.adapters.openai_agents import StenoSession

        self._session = StenoSession("alice", folder / "chats.db")

    def append(self, values: Sequence[str]) -> None:
        asyncio.run(self._session.add_items([{"content": value} for value in values]))

    def read(self) -> list[str]:
        return [item["content"] for item in asyncio.run(self._session.get_items())]


class OpenAIShown(OpenAIAgents):
    """What a program is shown of a run of the SDK while its model streams."""

    offers = frozenset(("stream",))

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._loop = asyncio.new_event_loop()
        self._pieces: asyncio.Queue[str] = asyncio.Queue()
        self._events: Any = None

    async def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        from openai.types.responses import ResponseTextDeltaEvent

        number = 0
        while True:
            piece, number = await self._pieces.get(), number + 1
            yield ResponseTextDeltaEvent(
                content_index=0, delta=piece, item_id="1", logprobs=[], output_index=0,
                sequence_number=number, type="response.output_text.delta",
            )  # fmt: skip

    async def _run(self) -> AsyncIterator[str]:
        import agents

        from steno.adapters.openai_agents import keeping

        agent = agents.Agent("Assistant", model=keeping(self, self._session))
        config = agents.RunConfig(tracing_disabled=True)
        run = agents.Runner.run_streamed(agent, "go on", session=self._session, run_config=config)
        async for event in run.stream_events():
            data: Any = getattr(event, "data", None)
            if getattr(data, "type", "") == "response.output_text.delta":
                yield data.delta

    def write(self, piece: str) -> None:
        """Returns when the program that runs the agent has the piece."""
        self._events = self._events or self._run()
        self._pieces.put_nowait(piece)
        assert self._loop.run_until_complete(anext(self._events)) == piece

    def shown(self) -> str:
        said = self._session.chats.session("openai:alice#shown").messages()
        assert [one.state for one in said if one.role == "assistant"] in ([], ["interrupted"])
        assert [one["content"] for one in asyncio.run(self._session.get_items())] == ["go on"]
        return "".join(one.text for one in said if one.role == "assistant")


class ClaudeAgent:
    offers = frozenset(("keys",))
    _key = {"project_key": "home", "session_id": "alice"}  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        from steno.adapters.claude_agent import StenoSessionStore

        self._store = StenoSessionStore(folder / "chats.db")

    def append(self, values: Sequence[str], key: str | None = None) -> None:
        entries = [{"type": "user", "text": value} for value in values]
        if key is not None:
            entries = [{**one, "uuid": f"{key}.{at}"} for at, one in enumerate(entries)]
        asyncio.run(self._store.append(self._key, entries))

    def read(self) -> list[str]:
        return [entry["text"] for entry in asyncio.run(self._store.load(self._key)) or []]


class LangGraph:
    """A text is a message in the state of a thread."""

    def __init__(self, folder: Path) -> None:
        from steno.adapters.langgraph import StenoSaver

        self._saver = StenoSaver(folder / "chats.db")
        self._thread = {"configurable": {"thread_id": "alice", "checkpoint_ns": ""}}

    def append(self, values: Sequence[str]) -> None:
        from langgraph.checkpoint.base import empty_checkpoint

        from steno.store.errors import Stale

        while True:
            found = self._saver.get_tuple(self._thread)
            said = [] if found is None else found.checkpoint["channel_values"]["said"]
            version = self._saver.get_next_version(None)
            checkpoint: Any = empty_checkpoint()
            checkpoint["channel_values"] = {"said": [*said, *values]}
            checkpoint["channel_versions"] = {"said": version}
            after = self._thread if found is None else found.config
            try:
                self._saver.put(after, checkpoint, {}, {"said": version})
                return
            except Stale:
                continue

    def read(self) -> list[str]:
        found = self._saver.get_tuple(self._thread)
        return [] if found is None else list(found.checkpoint["channel_values"]["said"])


class PydanticAI:
    offers = frozenset(("expect",))

    def __init__(self, folder: Path) -> None:
        from steno.adapters.pydantic_ai import StenoConversationStore

        self._store = StenoConversationStore(folder / "chats.db")

    def append(self, values: Sequence[str], expect: int | None = None) -> None:
        from pydantic_ai.conversation import Conversation
        from pydantic_ai.conversation_store import ConversationConflict
        from pydantic_ai.messages import ModelRequest, UserPromptPart

        async def save() -> None:
            while True:
                found = await self._store.load("alice")
                chat = found or Conversation(messages=[], conversation_id="alice")
                if expect is not None and len(chat.messages) != expect:
                    raise ConversationConflict("alice")
                for value in values:
                    chat.messages.append(ModelRequest(parts=[UserPromptPart(content=value)]))
                try:
                    await self._store.save(chat)
                    return
                except ConversationConflict:
                    if expect is not None:
                        raise

        asyncio.run(save())

    def read(self) -> list[str]:
        chat: Any = asyncio.run(self._store.load("alice"))
        return [] if chat is None else [one.parts[0].content for one in chat.messages]


class PydanticAISteps:
    """A text is an event of a run, and a batch is the history of a snapshot."""

    offers = frozenset(("keys",))

    def __init__(self, folder: Path) -> None:
        from steno.adapters.pydantic_ai_steps import StenoStepStore

        self._store = StenoStepStore(folder / "chats.db")

    def append(self, values: Sequence[str], key: str | None = None) -> None:
        from pydantic_ai.messages import ModelRequest, UserPromptPart
        from pydantic_ai_harness.step_persistence import ContinuableSnapshot

        said: Any = [ModelRequest(parts=[UserPromptPart(content=value)]) for value in values]
        snapshot = ContinuableSnapshot(
            run_id="alice", step_index=0, messages=said, idempotency_key=key
        )
        asyncio.run(self._store.save_snapshot(snapshot))

    def read(self) -> list[str]:
        snapshots: Any = asyncio.run(self._store.list_snapshots(run_id="alice"))
        return [said.parts[0].content for one in snapshots for said in one.messages]


class GoogleADK:
    """A text is a part of an event, and a batch is an event."""

    offers = frozenset(("keys",))
    _of: dict[str, Any] = {"app_name": "app", "user_id": "alice", "session_id": "1"}  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        from steno.adapters.google_adk import StenoSessionService

        self._service = StenoSessionService(folder / "chats.db")

    def append(self, values: Sequence[str], key: str | None = None) -> None:
        from google.adk.errors._stale_session_error import StaleSessionError
        from google.adk.errors.already_exists_error import AlreadyExistsError
        from google.adk.events.event import Event
        from google.genai.types import Content, Part

        async def add() -> None:
            while True:
                session = await self._service.get_session(**self._of)
                try:
                    if session is None:
                        session = await self._service.create_session(**self._of)
                    content = Content(role="user", parts=[Part(text=value) for value in values])
                    named: dict[str, Any] = {} if key is None else {"id": key, "timestamp": 1.0}
                    event = Event(author="user", content=content, **named)
                    await self._service.append_event(session, event)
                    return
                except (StaleSessionError, AlreadyExistsError):
                    continue

        asyncio.run(add())

    def read(self) -> list[str]:
        session: Any = asyncio.run(self._service.get_session(**self._of))
        events = [] if session is None else session.events
        return [part.text for event in events for part in event.content.parts]
