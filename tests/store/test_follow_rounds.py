"""Many followers are told in rounds: a few at once, and what is committed meanwhile is joined."""

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from steno.store import follow
from steno.store.protocol import Event
from steno.store.sqlite.store import SqliteStore
from tests.store.contract import begin
from tests.store.test_follow import listening, words

pytestmark = pytest.mark.promise(36)

Hand = list[Event]


async def test_each_of_many_followers_is_shown_each_piece_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slices of three, and a pause after each round."""
    monkeypatch.setattr(follow, "TOGETHER", 3)
    monkeypatch.setattr(follow, "ROUND_S_MIN", 0.0)
    async with await SqliteStore.open(tmp_path / "chats.db") as store, AsyncExitStack() as stack:
        talks = [await begin(store) for _ in range(5)]
        listeners = [await stack.enter_async_context(listening(store, talk)) for talk in talks * 4]
        for word in words(30):
            await asyncio.gather(*(talk.write(word) for talk in talks))
        for listener in listeners:
            await listener.until("".join(words(30)))


async def test_the_loop_goes_on_while_many_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "TOGETHER", 4)
    handed, seen, together = 0, 0, 0
    hand = follow._Follower.hand

    def counted(follower: follow._Follower, events: Hand) -> None:
        nonlocal handed
        handed += 1
        hand(follower, events)

    async def look_around() -> None:
        nonlocal seen, together
        while True:
            together, seen = max(together, handed - seen), handed
            await asyncio.sleep(0)

    async with await SqliteStore.open(tmp_path / "chats.db") as store, AsyncExitStack() as stack:
        talks = [await begin(store) for _ in range(20)]
        listeners = [await stack.enter_async_context(listening(store, talk)) for talk in talks]
        for talk, listener in zip(talks, listeners, strict=True):
            await talk.write("begun")
            await listener.until("begun")
        monkeypatch.setattr(follow._Follower, "hand", counted)
        looking = asyncio.create_task(look_around())
        await asyncio.gather(*(talk.write(", ended") for talk in talks))
        for listener in listeners:
            await listener.until("begun, ended")
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking
        assert handed == 20
        assert 0 < together <= 4


async def test_what_is_committed_during_a_round_is_told_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Telling that takes its time leaves as much time to everything else."""
    handed = 0
    hand = follow._Follower.hand

    def slow(follower: follow._Follower, events: Hand) -> None:
        nonlocal handed
        handed += 1
        time.sleep(0.01)
        hand(follower, events)

    async with await SqliteStore.open(tmp_path / "chats.db") as store:
        talk = await begin(store)
        async with listening(store, talk) as listener:
            await talk.write("begun ")
            await listener.until("begun ")
            monkeypatch.setattr(follow._Follower, "hand", slow)
            for word in words(200):
                await talk.write(word)
            await listener.until("begun " + "".join(words(200)))
            assert handed <= 100


async def test_the_look_after_runners_ends_with_the_last_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two wait for the runner of a session; when both have left, no timer is left behind."""
    monkeypatch.setattr(follow, "ALIVE_S", 0.02)
    looks = asyncio.Event()
    look = follow.Followers._look_alive

    def seen(followers: follow.Followers) -> None:
        looks.set()
        look(followers)

    monkeypatch.setattr(follow.Followers, "_look_alive", seen)
    async with await SqliteStore.open(tmp_path / "chats.db") as store:
        talk = await begin(store)
        runner = await store.running(talk.session)
        waits = [asyncio.create_task(store.runner_changes(talk.session, runner)) for _ in range(2)]
        await looks.wait()
        await _ended(waits.pop())
        looks.clear()
        await looks.wait()  # one still waits
        await _ended(waits.pop())
        looks.clear()
        await asyncio.sleep(0.1)
        assert not looks.is_set()


async def _ended(task: "asyncio.Task[str | None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
