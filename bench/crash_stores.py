"""Stores for crashkit: steno through its library, and what some frameworks keep conversations in.
Each is loaded when it is asked for; a framework that is not installed is left out by
`make crashkit`."""

import asyncio
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict

SESSION = "crashkit"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


class Steno:
    """Items of another program, and an answer as it is streamed."""

    title = "steno (items, reply)"
    version = _version("steno-agent")
    offers = frozenset(("keys", "expect", "stream"))

    def __init__(self, folder: Path) -> None:
        import steno

        self._chats = steno.open(folder / "store.db")
        self._items = self._chats.items(SESSION, format="text")
        self._reply: Any = None

    def append(
        self, values: Sequence[str], key: str | None = None, expect: int | None = None
    ) -> None:
        keys = None if key is None else [f"{key}.{number}" for number in range(len(values))]
        head = None
        if expect is not None:
            there = self._items.last()
            head = there.head
            if len(there.items) != expect:
                raise ValueError(f"{len(there.items)} items are there, not {expect}")
        self._items.add(values, keys, head)

    def read(self) -> list[str]:
        return [str(one.value) for one in self._items.last().items]

    def write(self, piece: str) -> None:
        if self._reply is None:
            session = self._chats.session("answers")
            self._reply = session.reply("model", to=session.say("go on")).__enter__()
        self._reply.write(piece)

    def shown(self) -> str:
        said = self._chats.session("answers").messages()
        return "".join(one.text for one in said if one.role == "assistant")


class OpenAIAgents:
    """The SQLite session of the OpenAI Agents SDK."""

    title = "OpenAI Agents SDK SQLiteSession"
    version = _version("openai-agents")

    def __init__(self, folder: Path) -> None:
        agents: Any = import_module("agents")
        self._session = agents.SQLiteSession(SESSION, folder / "sessions.db")

    def append(self, values: Sequence[str], key: object = None, expect: object = None) -> None:
        items = [{"role": "user", "content": value} for value in values]
        asyncio.run(self._session.add_items(items))

    def read(self) -> list[str]:
        return [str(item["content"]) for item in asyncio.run(self._session.get_items())]


class LangGraph:
    """The SQLite checkpoints of LangGraph: a text is a message in the state of a thread."""

    title = "LangGraph SqliteSaver"
    version = _version("langgraph-checkpoint-sqlite")

    def __init__(self, folder: Path) -> None:
        import sqlite3

        graph: Any = import_module("langgraph.graph")
        sqlite: Any = import_module("langgraph.checkpoint.sqlite")
        base = sqlite3.connect(folder / "checkpoints.db", timeout=60, check_same_thread=False)
        building = graph.StateGraph(_Texts)
        building.add_node("rest", lambda state: {})
        building.add_edge(graph.START, "rest")
        self._graph = building.compile(checkpointer=sqlite.SqliteSaver(base))
        self._thread = {"configurable": {"thread_id": SESSION}}

    def append(self, values: Sequence[str], key: object = None, expect: object = None) -> None:
        self._graph.invoke({"texts": list(values)}, self._thread)

    def read(self) -> list[str]:
        return list(self._graph.get_state(self._thread).values.get("texts", []))


class GoogleADK:
    """The SQLite sessions of Google's ADK: a text is an event, and a call takes one."""

    title = "Google ADK SqliteSessionService"
    version = _version("google-adk")

    def __init__(self, folder: Path) -> None:
        service: Any = import_module("google.adk.sessions.sqlite_session_service")
        self._event: Any = import_module("google.adk.events.event").Event
        self._types: Any = import_module("google.genai.types")
        self._service = service.SqliteSessionService(str(folder / "sessions.db"))
        self._place = {"app_name": SESSION, "user_id": "alice", "session_id": SESSION}

    async def _session(self) -> Any:
        found = await self._service.get_session(**self._place)
        return found or await self._service.create_session(**self._place)

    async def _append(self, values: Sequence[str]) -> None:
        session = await self._session()
        for value in values:
            content = self._types.Content(role="user", parts=[self._types.Part(text=value)])
            event = self._event(author="user", content=content)
            await self._service.append_event(session, event)

    def append(self, values: Sequence[str], key: object = None, expect: object = None) -> None:
        asyncio.run(self._append(values))

    def read(self) -> list[str]:
        events = asyncio.run(self._session()).events
        return [str(event.content.parts[0].text) for event in events]


class PydanticAI:
    """The SQLite step store of pydantic-ai's harness: a batch is the history of a snapshot."""

    title = "pydantic-ai-harness SqliteStepStore"
    version = _version("pydantic-ai-harness")
    offers = frozenset(("keys",))

    def __init__(self, folder: Path) -> None:
        self._steps: Any = import_module("pydantic_ai_harness.step_persistence")
        self._messages: Any = import_module("pydantic_ai.messages")
        self._store = self._steps.SqliteStepStore(database=folder / "steps.db")

    def append(self, values: Sequence[str], key: str | None = None, expect: object = None) -> None:
        parts = [self._messages.UserPromptPart(content=value) for value in values]
        said = [self._messages.ModelRequest(parts=[part]) for part in parts]
        snapshot = self._steps.ContinuableSnapshot(
            run_id=SESSION, step_index=0, messages=said, idempotency_key=key
        )
        asyncio.run(self._store.save_snapshot(snapshot))

    def read(self) -> list[str]:
        snapshots = asyncio.run(self._store.list_snapshots(run_id=SESSION))
        return [str(said.parts[0].content) for one in snapshots for said in one.messages]


class Microsoft:
    """The files of Microsoft's Agent Framework."""

    title = "Microsoft Agent Framework FileHistoryProvider"
    version = _version("agent-framework-core")

    def __init__(self, folder: Path) -> None:
        self._framework: Any = import_module("agent_framework")
        self._history = self._framework.FileHistoryProvider(folder)

    def append(self, values: Sequence[str], key: object = None, expect: object = None) -> None:
        said = [self._framework.Message("user", [value]) for value in values]
        asyncio.run(self._history.save_messages(SESSION, said))

    def read(self) -> list[str]:
        return [str(one.text) for one in asyncio.run(self._history.get_messages(SESSION))]


class _Texts(TypedDict):
    texts: Annotated[list[str], add]
