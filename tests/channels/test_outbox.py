"""The outbox and the hub between two moments: what comes while they look is not overlooked."""

import asyncio
from typing import Any, cast

import pytest
from msgspec.structs import replace

from steno.gateway.channels.outbox import Means, Outbox, due
from steno.journal.debts import OwedDelivery
from steno.journal.facts import Continues, DeliveryOwed, TurnStarted
from steno.service.chats import Arrival, Chats
from tests.world.gateway import CHANNEL, FAST, OWNER, Platform, PlatformChannel, start, until_quiet
from tests.world.model import Reply
from tests.world.world import Process, World, play


class SlowOnce:
    """The first look at what is owed takes its time to come back."""

    def __init__(self, chats: Chats) -> None:
        self._chats = chats
        self.looked, self.may_return = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chats, name)

    async def owed(self, session: str, channels: frozenset[str]) -> Any:
        found = await self._chats.owed(session, channels)
        if not self.looked.is_set():
            self.looked.set()
            await self.may_return.wait()
        return found


async def _no(session: str) -> bool:
    return False


def test_what_becomes_owed_while_a_look_finds_nothing_is_sent() -> None:
    async def test(world: World) -> None:
        platform = Platform()

        async def act(process: Process) -> None:
            chats = process.service.chats
            slow = SlowOnce(chats)
            channel = PlatformChannel(process, platform)
            outbox = Outbox(
                Means(
                    cast(Chats, slow),
                    channel,
                    lambda chat: False,
                    lambda session: False,
                    _no,
                    lambda session, seq, chat: "",
                )
            )
            session = await chats.begin("test", world.model.spec, "chat")
            await outbox.begin(frozenset((CHANNEL,)))
            outbox.owing(session)
            await slow.looked.wait()
            owed = DeliveryOwed(0, CHANNEL, OWNER, "key", 86_400)
            arrival = Arrival(channel.account, "test", "u1", OWNER, "hello", "Ann", session)
            assert await chats.admit(arrival, (owed,)) is not None
            outbox.owing(session)
            await asyncio.sleep(1)
            slow.may_return.set()
            await asyncio.sleep(1)
            await process.service.turns.run_pending(session, asyncio.Event())
            outbox.wake(session)
            await asyncio.sleep(60)
            assert platform.texts() == ["ok"]
            await outbox.close()

        await world.process().run(act)

    play(test)


def test_a_turn_that_is_due_no_longer_keeps_nothing_waiting() -> None:
    async def test(world: World) -> None:
        world.model.choose = lambda request: Reply((f"answer {len(request.entries)}",))
        platform = Platform()
        gateway = start(world, platform)
        platform.say("hello")
        await until_quiet(world)
        session = next(id for id in world.sessions() if _has_turns(world, id))

        async def act(process: Process) -> None:
            chats = process.service.chats
            arrival = Arrival("elsewhere", "test", "u9", "", "more", "Ann", session)
            assert await chats.admit(arrival, ()) is not None
            gateway.hub.wake(session, TurnStarted(Continues(1)))
            await until_quiet(world)

        await gateway.process.start(act)
        assert len(world.model.requests) == 2

    play(test)


def test_what_an_answer_costs_does_not_grow_with_those_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []
    advance = Outbox._advance

    async def counted(self: Outbox, session: str, *rest: Any) -> float | None:
        steps.append(session)
        return await advance(self, session, *rest)

    monkeypatch.setattr(Outbox, "_advance", counted)

    async def flood(world: World, messages: int) -> float:
        world.model.choose = lambda request: Reply(("ok",))
        platform = Platform(replace(FAST, chat_per_s=1.0, burst=1))
        start(world, platform)
        steps.clear()
        for number in range(messages):
            platform.say(f"q-{number}")
        await until_quiet(world, 30.0)
        assert len(platform.texts()) == messages
        return len(steps) / messages

    few = play(lambda world: flood(world, 5))
    many = play(lambda world: flood(world, 50))
    assert many <= 1.5 * few, f"{many:.1f} steps for each of 50, {few:.1f} for each of 5"


def test_of_answers_that_wait_for_one_another_the_first_is_looked_after() -> None:
    untaken = OwedDelivery(1, 60, 0, channel="ch")
    taken = replace(untaken, taken=9)
    placed = replace(taken, placed={0: "m"})
    text = replace(untaken, show="text")
    assert list(due({1: placed, 2: placed, 3: taken, 4: taken, 5: text})) == [1, 2, 3, 5]
    assert list(due({1: untaken, 2: taken, 3: text})) == [3]
    assert list(due({1: untaken, 2: replace(taken, channel="other")})) == [2]


def _has_turns(world: World, session: str) -> bool:
    return any(isinstance(one.fact, TurnStarted) for one in world.facts(session))
