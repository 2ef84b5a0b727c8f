"""steno under the OpenAI Agents SDK, without the SDK: what it asks of a session. `make adapters`
runs the SDK's own tests."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.adapters.openai_agents import StenoSession


def said(*texts: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text} for text in texts]


def test_items_are_kept_in_order_and_the_limit_is_of_the_last(tmp_path: Path) -> None:
    async def use() -> None:
        session = StenoSession("alice", tmp_path / "chats.db")
        assert await session.get_items() == []
        assert await session.pop_item() is None
        await session.add_items(said("a", "b", "c"))
        assert await session.get_items(2) == said("b", "c")
        assert await session.get_items(0) == []
        assert await session.get_items(-1) == said("a", "b", "c")
        assert await session.pop_item() == said("c")[0]
        await session.clear_session()
        assert await session.get_items() == []
        await session.add_items(said("d"))
        session.close()

    asyncio.run(use())
    again = StenoSession("alice", tmp_path / "chats.db")
    assert asyncio.run(again.get_items()) == said("d")
    assert asyncio.run(StenoSession("bob", again.chats).get_items()) == []
    again.close()


def test_an_item_that_must_stay_stays() -> None:
    def no(item: Any) -> None:
        raise PermissionError(item["content"])

    session = StenoSession("alice")
    asyncio.run(session.add_items(said("a")))
    with pytest.raises(PermissionError, match="a"):
        asyncio.run(session._pop_item_with_validation(no))
    assert asyncio.run(session.get_items()) == said("a")


@pytest.mark.promise(2)
def test_a_write_whose_caller_is_cancelled_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is cancelled."""
    begun, may_end = threading.Event(), threading.Event()
    session = StenoSession("alice")
    add = session.items.add

    def slowly(items: Any) -> Any:
        begun.set()
        assert may_end.wait(10)
        return add(items)

    monkeypatch.setattr(session.items, "add", slowly)

    async def use() -> list[Any]:
        adding = asyncio.create_task(session.add_items(said("a")))
        await asyncio.to_thread(begun.wait)
        for _ in range(3):
            adding.cancel()
            await asyncio.sleep(0.01)
            assert not adding.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await adding
        return await session.get_items()

    assert asyncio.run(use()) == said("a")


def test_settings_may_be_a_dictionary_and_a_closed_session_takes_nothing() -> None:
    async def use() -> None:
        session = StenoSession("alice", session_settings={"limit": 1})
        assert session.session_settings.limit == 1
        await session.add_items(said("a", "b"))
        assert await session.get_items() == said("b")
        session.close()
        with pytest.raises(RuntimeError, match="closed"):
            await session.add_items([])

    asyncio.run(use())
    assert StenoSession("alice").session_settings.limit is None


ADDS = """
import asyncio, sys
from steno.adapters.openai_agents import StenoSession

async def main():
    session = StenoSession("alice", sys.argv[1])
    for n in range(100000):
        await session.add_items([{"n": n, "of": i} for i in range(5)])
        print(n, flush=True)

asyncio.run(main())
"""


@pytest.mark.promise(2)
@pytest.mark.parametrize("after", [1, 7, 20])
def test_a_kill_loses_no_batch_that_was_acknowledged_and_tears_none(
    tmp_path: Path, after: int
) -> None:
    path = tmp_path / "chats.db"
    with subprocess.Popen(
        [sys.executable, "-c", ADDS, str(path)], stdout=subprocess.PIPE, text=True
    ) as dying:
        assert dying.stdout is not None
        for _ in range(after):
            dying.stdout.readline()
        dying.kill()
        acknowledged = after + len(dying.stdout.read().split())
    with steno.open(path) as chats:
        kept = [item.value for item in chats.items("openai:alice", "openai.responses").last().items]
    assert len(kept) >= 5 * acknowledged
    assert kept == [{"n": i // 5, "of": i % 5} for i in range(len(kept))]
    assert len(kept) % 5 == 0
