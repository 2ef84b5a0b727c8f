"""steno under a framework against that framework's own durable store, in the same rounds: append,
load, and bytes. A framework that is not installed is left out."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from bench.result import Plan, Result, at_most, noted

NAME = "adapters"
ROUNDS = 5
TEXT = "word " * 100
LAST = 50

Json = Any


class Kept(Struct, frozen=True):
    """One conversation in a store. `load` reads the last of it, as its framework does."""

    append: Callable[[int], Awaitable[object]]
    load: Callable[[], Awaitable[object]]
    close: Callable[[], object]


def openai(own: bool, folder: Path) -> Kept:
    if own:
        session = import_module("agents").SQLiteSession("alice", folder / "own.db")
    else:
        session = import_module("steno.adapters.openai_agents").StenoSession(
            "alice", folder / "ours.db"
        )

    async def append(n: int) -> None:
        await session.add_items([{"role": "user", "content": f"{n} {TEXT}"}])

    return Kept(append, lambda: session.get_items(LAST), session.close)


def langgraph(own: bool, folder: Path) -> Kept:
    import sqlite3

    base: Any = import_module("langgraph.checkpoint.base")
    if own:
        theirs: Any = import_module("langgraph.checkpoint.sqlite")
        connection = sqlite3.connect(folder / "own.db", check_same_thread=False)
        saver, close = theirs.SqliteSaver(connection), connection.close
    else:
        saver = import_module("steno.adapters.langgraph").StenoSaver(folder / "ours.db")
        close = saver.chats.close
    said: list[str] = []
    at: Json = {"configurable": {"thread_id": "alice", "checkpoint_ns": ""}}

    async def append(n: int) -> None:
        nonlocal at
        said.append(f"{n} {TEXT}")
        checkpoint = base.empty_checkpoint()
        version = saver.get_next_version(None if n == 0 else f"{n:032}.0", None)
        checkpoint["channel_values"] = {"said": list(said)}
        checkpoint["channel_versions"] = {"said": version}
        at = saver.put(at, checkpoint, {"source": "loop", "step": n}, {"said": version})

    async def load() -> object:
        return saver.get_tuple({"configurable": {"thread_id": "alice", "checkpoint_ns": ""}})

    return Kept(append, load, close)


def adk(own: bool, folder: Path) -> Kept:
    sessions: Any = import_module("google.adk.sessions.base_session_service")
    events: Any = import_module("google.adk.events.event")
    types: Any = import_module("google.genai.types")
    if own:
        module: Any = import_module("google.adk.sessions.sqlite_session_service")
        service = module.SqliteSessionService(str(folder / "own.db"))
        close: Callable[[], object] = lambda: None  # noqa: E731 - it opens the file for each call
    else:
        service = import_module("steno.adapters.google_adk").StenoSessionService(folder / "ours.db")
        close = service.chats.close
    place: dict[str, Any] = {"app_name": "app", "user_id": "alice", "session_id": "1"}
    session: Json = None

    async def append(n: int) -> None:
        nonlocal session
        session = session or await service.create_session(**place)
        content = types.Content(role="user", parts=[types.Part(text=f"{n} {TEXT}")])
        await service.append_event(session, events.Event(author="user", content=content))

    async def load() -> object:
        last = sessions.GetSessionConfig(num_recent_events=LAST)
        return await service.get_session(**place, config=last)

    return Kept(append, load, close)


def steps(own: bool, folder: Path) -> Kept:
    harness: Any = import_module("pydantic_ai_harness.step_persistence")
    messages: Any = import_module("pydantic_ai.messages")
    if own:
        store = harness.SqliteStepStore(database=folder / "own.db")
        close: Callable[[], object] = lambda: None  # noqa: E731 - it opens the file for each call
    else:
        module: Any = import_module("steno.adapters.pydantic_ai_steps")
        store = module.StenoStepStore(folder / "ours.db")
        close = store.close
    said: list[Json] = []

    async def append(n: int) -> None:
        part = messages.UserPromptPart(content=f"{n} {TEXT}")
        said.append(messages.ModelRequest(parts=[part]))
        snapshot = harness.ContinuableSnapshot(run_id="1", step_index=n, messages=list(said))
        await store.save_snapshot(snapshot)

    return Kept(append, lambda: store.latest_snapshot(run_id="1"), close)


STORES: dict[str, tuple[str, Callable[[bool, Path], Kept]]] = {
    "OpenAI SQLiteSession": ("agents", openai),
    "LangGraph SqliteSaver": ("langgraph.checkpoint.sqlite", langgraph),
    "ADK SqliteSessionService": ("google.adk", adk),
    "pydantic-ai-harness SqliteStepStore": ("pydantic_ai_harness", steps),
}


def run(plan: Plan) -> list[Result]:
    return [result for name in STORES for result in _against(plan, name)]


def _against(plan: Plan, name: str) -> Iterator[Result]:
    package, opened = STORES[name]
    try:
        import_module(package)
    except ImportError:
        yield noted(NAME, f"{name}: not installed", 0.0, "")
        return
    many = plan.pick(1_000 if opened in (openai, langgraph) else 300, 40)
    folder = Path(plan.folder) / name.replace(" ", "-")
    folder.mkdir()
    both = opened(True, folder), opened(False, folder)
    empty = [_bytes(folder, prefix) for prefix in ("own", "ours")]
    appends, loads = asyncio.run(_measured(both, many))
    for one in both:
        one.close()
    sizes = [_bytes(folder, prefix) / many for prefix in ("own", "ours")]
    how = f"{many} messages of {len(TEXT)} characters; median of {ROUNDS} rounds"
    for what, (own, ours) in (("append", appends), (f"load the last {LAST}", loads)):
        unit = f"{ours * 1e3:.2f} ms against {own * 1e3:.2f} ms; {how}"
        yield at_most(NAME, f"{name}: {what}", ours / own, 1.0, detail=unit)
    yield at_most(
        NAME,
        f"{name}: bytes",
        sizes[1] / sizes[0],
        1.0,
        detail=f"{sizes[1]:.0f} against {sizes[0]:.0f} a message; of an empty store "
        f"{empty[1] / 1e3:.0f} kB against {empty[0] / 1e3:.0f} kB",
    )


async def _measured(
    both: Sequence[Kept], many: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Seconds of an append and of a load, theirs and ours, in turn."""
    appends: list[list[float]] = [[], []]
    loads: list[list[float]] = [[], []]
    for part in range(ROUNDS):
        for which, one in enumerate(both):
            begun = time.perf_counter()
            for n in range(part * many // ROUNDS, (part + 1) * many // ROUNDS):
                await one.append(n)
            appends[which].append((time.perf_counter() - begun) / (many // ROUNDS))
            begun = time.perf_counter()
            for _ in range(10):
                await one.load()
            loads[which].append((time.perf_counter() - begun) / 10)
    return _medians(appends), _medians(loads)


def _medians(seconds: Sequence[Sequence[float]]) -> tuple[float, float]:
    own, ours = (median(one) for one in seconds)
    return own, ours


def _bytes(folder: Path, prefix: str) -> int:
    return sum(file.stat().st_size for file in folder.glob(f"{prefix}.db*") if file.is_file())


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        for result in run(Plan(place, "--quick" in sys.argv)):
            print(f"{result.what:40} {result.value:6.2f} {result.unit}  {result.detail}")
