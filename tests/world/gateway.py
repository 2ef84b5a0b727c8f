"""A gateway in a process of a `World`: the hub, the channels and the scheduler as they are, between
a store in memory and a platform that keeps what it was told.

The platform outlives every process. It gives out an update until it is acknowledged, and again when
it is told to; it keeps every message that was made, so that a second one shows.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import gettempdir
from typing import Any, cast

from msgspec.structs import replace

from steno.compose import Program
from steno.config import ChannelConfig, GatewayConfig
from steno.gateway.channels.protocol import (
    Batch,
    ChannelSetup,
    Limits,
    Message,
    NotNow,
    Outgoing,
    Quiet,
    RemoteFile,
    Result,
    Sent,
    Unsure,
    Update,
)
from steno.gateway.channels.worker import Channels, Worker, _prepare
from steno.gateway.hub import Hub
from steno.gateway.jobs.scheduler import Scheduler
from steno.service import Service
from tests.world.store import Kill
from tests.world.world import Process, World

OWNER = "7"
CHANNEL = "ch"
FAST = Limits(4_000, chat_per_s=1_000, all_per_s=1_000, edit_s=0.1, buttons=True)
KEYED = replace(FAST, edits=True, client_id_s=86_400)
"""A repeated key makes no second message."""


class Platform:
    """`updates` are those that are not acknowledged; `chats` has every message ever made, in order,
    with the key that it was made under. `tokens` are those of buttons, `answered` what who pressed
    one was told, `files` what can be fetched. The next `fatal` messages are the last thing that
    their processes do; each of `raises` is raised once, by the verb that it is named after."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or KEYED
        self.updates: list[Update] = []
        self.chats: dict[str, list[list[str]]] = {}
        self.answered: list[str] = []
        self.tokens: list[str] = []
        self.away = False
        self.fatal = 0
        self.files: dict[str, bytes] = {}
        self.raises: dict[str, Exception] = {}
        self._arrived = asyncio.Event()
        self._ids = itertools.count(1)

    def push(self, *updates: Update) -> None:
        self.updates += updates
        self._arrived.set()

    def say(self, text: str, person: str = OWNER, **more: Any) -> Message:
        said = Message(f"u{next(self._ids)}", person, person, text, **more)
        self.push(said)
        return said

    def texts(self, chat: str = OWNER) -> list[str]:
        """What stands in a chat, without the marks of reserved messages."""
        return [text for _, _, text in self.chats.get(chat, []) if text != "…"]

    async def wait(self) -> None:
        while not self.updates:
            self._arrived.clear()
            await self._arrived.wait()


class PlatformChannel(Quiet):
    """What a process has of the platform."""

    account = "platform:1"

    def __init__(self, process: Process, platform: Platform) -> None:
        self._process = process
        self._platform = platform
        self.limits = platform.limits

    async def receive(self, mark: str) -> AsyncIterator[Batch]:
        while True:
            await self._platform.wait()
            self._stumble("receive")
            given = list(self._platform.updates)
            yield Batch(tuple(given))
            self._process.check_alive()
            left = list(self._platform.updates)
            for one in given:
                left.remove(one)
            self._platform.updates = left

    async def send(self, chat: str, key: str, what: Outgoing) -> Result:
        self._process.check_alive()
        if self._platform.away:
            return NotNow("away")
        messages = self._platform.chats.setdefault(chat, [])
        if self.limits.client_id_s:
            for id, known, _ in messages:
                if known == key:
                    return Sent(id)
        self._platform.tokens += [one.token.rpartition(":")[0] for one in what.buttons[:1]]
        id = f"m{len(messages)}"
        messages.append([id, key, what.text])
        if self._platform.fatal:
            self._platform.fatal -= 1
            self._process.die()
        if (error := self._platform.raises.pop("send", None)) is not None:
            return Unsure(str(error))
        await asyncio.sleep(0)
        self._process.check_alive()
        return Sent(id)

    async def edit(self, chat: str, message: str, what: Outgoing) -> Result:
        self._process.check_alive()
        if self._platform.away:
            return NotNow("away")
        [found] = [one for one in self._platform.chats[chat] if one[0] == message]
        found[2] = what.text
        await asyncio.sleep(0)
        return Sent(message)

    def _stumble(self, verb: str) -> None:
        if (error := self._platform.raises.pop(verb, None)) is not None:
            raise error

    async def fetch(self, file: RemoteFile, bytes_max: int) -> bytes:
        await asyncio.sleep(0.5)
        self._process.check_alive()
        return self._platform.files[file.id]

    async def find(self, chat: str, key: str) -> str | None:
        self._process.check_alive()
        self._stumble("find")
        found = [id for id, known, _ in self._platform.chats.get(chat, []) if known == key]
        return found[0] if found else None

    async def answer_tap(self, tap: str, text: str) -> None:
        self._process.check_alive()
        self._platform.answered.append(text)

    def check_id(self, id: str) -> str:
        return ""


class _Agents:
    def __init__(self, world: World) -> None:
        self._world = world

    def model_spec(self) -> str:
        return self._world.model.spec

    def check(self) -> None: ...


class _Program:
    """What the hub uses of one."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def service(self, platform: str, terms: Any) -> Service:
        return self._process.service

    def agents(self, terms: Any) -> _Agents:
        return _Agents(self._process.world)

    def attended(self) -> list[str]:
        return self._process.service.visits.attended()

    async def leave_session(self, session: str) -> list[str]:
        return await self._process.service.visits.leave("left", session)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Gateway:
    """One gateway, from its start to its kill."""

    def __init__(
        self, process: Process, platform: Platform, jobs: bool, allow: tuple[str, ...]
    ) -> None:
        config = ChannelConfig(kind="platform", owners=(OWNER,), allow=allow)
        program = cast(Program, _Program(process))
        self.process = process
        self.reaped: asyncio.Future[None] | None = None
        here = Path(gettempdir())
        self.hub = hub = Hub(program, GatewayConfig(folder=str(here)), here)
        channel = PlatformChannel(process, platform)
        setup = ChannelSetup(CHANNEL, config, "secret", here)
        hub.prepare = lambda session: _prepare(hub, session, [channel], frozenset((CHANNEL,)))
        self.channels = Channels([Worker(setup, channel, hub, {})])
        self.scheduler = Scheduler(hub, self.channels) if jobs else None

    async def run(self) -> None:
        await self.hub.find_work()
        self.channels.start()
        tasks = [asyncio.create_task(self.hub.tend())]
        if self.scheduler is not None:
            tasks.append(asyncio.create_task(self.scheduler.run(lambda: True)))
        await asyncio.gather(*tasks)


def start(
    world: World,
    platform: Platform,
    kill: Kill | None = None,
    jobs: bool = False,
    allow: tuple[str, ...] = (),
) -> Gateway:
    """Start a gateway in a process of its own. When it dies, its locks die with it."""
    process = world.process(kill)
    gateway = Gateway(process, platform, jobs, allow)
    process.start(lambda _: gateway.run())
    gateway.reaped = asyncio.ensure_future(_reap(process))
    return gateway


async def _reap(process: Process) -> None:
    await process.died.wait()
    await process.kill()


async def until_quiet(world: World, for_s: float = 4.0) -> None:
    """Until nothing was stored for so long: nothing is left to do."""
    while True:
        version = world.version
        await asyncio.sleep(for_s)
        if world.version == version:
            return
