"""Chats: from a platform's update to the stored input, and a start with many chats.

Both run in this process, on the parts that the service has: a store on disk, an account, its inbox.
Nothing is answered meanwhile.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

from bench.result import Plan, Result, at_most
from bench.timing import percentile
from steno.compose import Setup
from steno.config import ChannelConfig, Config, Place
from steno.gateway.channels.commands import Commands
from steno.gateway.channels.held import HeldAccount
from steno.gateway.channels.inbox import Inbox
from steno.gateway.channels.protocol import ChannelSetup, Message
from steno.gateway.hub import Hub
from steno.gateway.platforms.hook import Hook
from steno.journal.facts import ChatBound, InputAdmitted
from steno.journal.parts import Text
from steno.store.protocol import Admission

NAME = "channels"
CONFIG = ChannelConfig(kind="hook", owners=("ann",))


def run(plan: Plan) -> list[Result]:
    folder = Path(plan.folder)
    for name in ("updates", "start"):
        (folder / name).mkdir(parents=True)
    return [
        *asyncio.run(_updates(folder / "updates", plan.pick(2_000, 300))),
        *asyncio.run(_start(folder / "start", plan.pick(10_000, 2_000))),
    ]


@asynccontextmanager
async def holding(home: Path) -> AsyncIterator[HeldAccount]:
    """An account in a fresh home; no turn is run."""
    config = Config(channels={"ch": CONFIG})
    async with Setup(config, Place(home, home)).open() as program:
        hub = Hub(program, config.gateway, home)
        hub.draining.set()
        channel = Hook(ChannelSetup("ch", CONFIG, "s" * 16, home))
        session = await hub.service().chats.account(channel.account)
        held = HeldAccount("ch", CONFIG, channel, hub, session)
        await held.catch_up()
        yield held


async def _updates(home: Path, count: int) -> list[Result]:
    async with holding(home) as held:
        inbox = Inbox(held, Commands(held))
        for number in range(100):
            await inbox.take(_message(number))
        store = held.chats.store
        session = await held.begin("alone")
        alone, taken = [], []
        for number in range(100, count):
            said = InputAdmitted((Text(f"message {number}"),), "bench", f"{number}")
            alone.append(await _timed(store.admit(Admission(input=said, session=session))))
            taken.append(await _timed(inbox.take(_message(number))))
    beyond = percentile(taken, 0.5) - percentile(alone, 0.5)
    detail = f"p50 of {count}; one commit {percentile(alone, 0.5):.2f} ms"
    return [
        at_most(NAME, "an update to the stored input, beyond one commit", beyond, 5, "ms", detail)
    ]


async def _start(home: Path, chats: int) -> list[Result]:
    async with holding(home) as held:
        store = held.chats.store
        for first in range(0, chats, 500):
            bound = [ChatBound(f"chat-{n}", f"s-{n}") for n in range(first, first + 500)]
            await store.add(held.session, bound)
        again = HeldAccount("ch", CONFIG, held.channel, held.hub, held.session)
        took_ms = await _timed(again.catch_up())
        assert len(again.known.chats) == chats
    what = f"an account with {chats:,} chats, to receiving"
    return [at_most(NAME, what, took_ms / 1_000, 3, "s", "reading and folding its journal")]


async def _timed(work: Awaitable[object]) -> float:
    before_s = time.perf_counter()
    await work
    return (time.perf_counter() - before_s) * 1_000


def _message(number: int) -> Message:
    """In one of a hundred chats."""
    chat = f"chat-{number % 100}"
    return Message(f"m{number}", chat, "ann", f"message {number}", f"{number}", "Ann")
