"""The outbox and the hub between two moments: what comes while they look is not overlooked."""

import asyncio
from typing import Any, cast

from steno.gateway.channels.outbox import Means, Outbox
from steno.journal.facts import Continues, DeliveryOwed, TurnStarted
from steno.service.chats import Arrival, Chats
from tests.world.gateway import CHANNEL, OWNER, Platform, PlatformChannel, start, until_quiet
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


def _has_turns(world: World, session: str) -> bool:
    return any(isinstance(one.fact, TurnStarted) for one in world.facts(session))
