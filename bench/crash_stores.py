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
    """What is said, with keys, and an answer as it is streamed. The library says one text at a
    time, so a batch is not one commit."""

    title = "steno (say, reply)"
    version = _version("steno-agent")
    offers = frozenset(("keys", "stream"))

    def __init__(self, folder: Path) -> None:
        import steno

        self._session = steno.open(folder / "store.db").session(SESSION)
        self._reply: Any = None

    def append(self, values: Sequence[str], key: str | None = None, expect: object = None) -> None:
        for number, value in enumerate(values):
            self._session.say(value, key=None if key is None else f"{key}.{number}")

    def read(self) -> list[str]:
        return [one.text for one in self._session.messages() if one.role == "user"]

    def write(self, piece: str) -> None:
        if self._reply is None:
            said = self._session.say("go on")
            self._reply = self._session.reply("model", to=said).__enter__()
        self._reply.write(piece)

    def shown(self) -> str:
        return "".join(one.text for one in self._session.messages() if one.role == "assistant")


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


class _Texts(TypedDict):
    texts: Annotated[list[str], add]
