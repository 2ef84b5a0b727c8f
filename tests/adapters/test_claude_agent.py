"""steno under the Claude Agent SDK, without the SDK: what it asks of a store. `make adapters` runs
the SDK's own contracts and tests."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest

import steno
from steno.adapters.claude_agent import FOLD_AGAIN_MAX, StenoSessionStore

ALICE = {"project_key": "home", "session_id": "alice"}
AGENT = {**ALICE, "subpath": "subagents/agent-1"}


def entries(*uuids: str) -> list[dict[str, str]]:
    return [{"type": "user", "uuid": uuid} for uuid in uuids]


@pytest.mark.promise(76)
@pytest.mark.promise(16)
def test_an_entry_that_is_sent_again_is_kept_once(tmp_path: Path) -> None:
    async def use() -> None:
        store = StenoSessionStore(tmp_path / "chats.db")
        assert await store.load(ALICE) is None
        await store.append(ALICE, entries("a", "b"))
        await store.append(ALICE, [])
        store.close()
        again = StenoSessionStore(tmp_path / "chats.db")
        await again.append(ALICE, [*entries("b", "c", "c"), {"type": "title"}, {"type": "title"}])
        assert await again.load(ALICE) == [
            *entries("a", "b", "c"),
            {"type": "title"},
            {"type": "title"},
        ]

    anyio.run(use)


def test_a_session_goes_with_all_that_is_under_it() -> None:
    async def use() -> None:
        store = StenoSessionStore()
        other = {"project_key": "home", "session_id": "alice/else%"}
        for key in (ALICE, AGENT, other):
            await store.append(key, entries("a"))
        assert await store.list_subkeys(ALICE) == ["subagents/agent-1"]
        listed = await store.list_sessions("home")
        assert [one["session_id"] for one in listed] == ["alice", "alice/else%"]
        await store.delete(ALICE)
        assert [await store.load(key) for key in (ALICE, AGENT)] == [None, None]
        assert await store.load(other) == entries("a")
        await store.delete(ALICE)

    anyio.run(use)


@pytest.mark.promise(76)
@pytest.mark.promise(47)
def test_times_grow_in_the_order_of_the_commits_whatever_the_clock_says() -> None:
    times = iter([5_000] * 3 + [1_000] * 9)

    async def use() -> None:
        settings = steno.Settings(now_ms=lambda: next(times, 1_000))
        store = StenoSessionStore(steno.open(":memory:", settings))
        for at, session in enumerate(("b", "a", "c", "b")):
            key = {"project_key": "home", "session_id": session}
            await store.append(key, entries(f"{at}"))
        listed = {one["session_id"]: one["mtime"] for one in await store.list_sessions("home")}
        assert sorted(listed, key=lambda session: listed[session]) == ["a", "c", "b"]
        assert len(set(listed.values())) == 3

    anyio.run(use)


def test_a_summary_is_folded_from_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their function that folds is theirs; here it counts."""
    folded: list[int] = []

    def fold(before: Any, key: Any, new: list[Any]) -> Any:
        folded.append(len(new))
        return {"session_id": "alice", "mtime": 0, "data": {"n": len(new) + _count(before)}}

    sdk: Any = ModuleType("claude_agent_sdk")
    sdk.fold_session_summary = fold
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", sdk)

    async def use() -> None:
        store = StenoSessionStore()
        long = FOLD_AGAIN_MAX + 1
        await store.append(ALICE, entries(*(f"{n}" for n in range(long))))
        await store.append(AGENT, entries("s"))
        for count in (long, long, long + 1, long + 2):
            if count > long:
                await store.append(ALICE, entries(f"{count}"))
            [summary] = await store.list_session_summaries("home")
            assert summary["data"] == {"n": count}
        assert folded == [long, 0, 1, 2]

    anyio.run(use)


def _count(before: Any) -> int:
    return 0 if before is None else int(before["data"]["n"])
