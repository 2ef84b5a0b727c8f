"""Chats: from a platform's update to the stored input, from an answer to its message, what channels
cost that nobody uses, and a start with many chats.

The first two run in this process, on the parts that the service has: a store on disk, an account,
its inbox, its outbox, the hub. The others run the program.
"""

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from bench.gateway import Service
from bench.result import Plan, Result, at_most, failed
from bench.timing import percentile
from steno.compose import Setup
from steno.config import ChannelConfig, Config, ModelConfig, Place
from steno.gateway.channels.commands import Commands
from steno.gateway.channels.held import HeldAccount
from steno.gateway.channels.inbox import Inbox
from steno.gateway.channels.protocol import (
    Batch,
    ChannelSetup,
    Limits,
    Message,
    Outgoing,
    Quiet,
    Sent,
)
from steno.gateway.channels.worker import Channels, Worker, _prepare
from steno.gateway.hub import Hub
from steno.gateway.platforms.hook import Hook
from steno.journal.facts import (
    ChatBound,
    Delivered,
    DeliveryOwed,
    DeliverySettled,
    InputAdmitted,
    SessionStarted,
    TurnEnded,
)
from steno.journal.parts import Text
from steno.store.protocol import Admission, Store, read_all
from tests.channels.contract import SUBJECTS

NAME = "channels"
SECRET = "s" * 16
CONFIG = ChannelConfig(kind="hook", owners=("ann",))


def run(plan: Plan) -> list[Result]:
    folder = Path(plan.folder)
    for name in ("updates", "answers", "idle", "start"):
        (folder / name).mkdir(parents=True)
    return [
        *asyncio.run(_updates(folder / "updates", plan.pick(2_000, 300))),
        *asyncio.run(_answers(folder / "answers", plan.pick(20, 6))),
        *_idle(folder / "idle", plan.pick(30, 8)),
        *_start(folder / "start", plan.pick(10_000, 2_000)),
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


class Loop(Quiet):
    """A platform in this process, without limits of its own. It notes when it was told what."""

    account = "loop:1"
    limits = Limits(4_000, edits=True, chat_per_s=1e6, all_per_s=1e6, burst=1_000, edit_s=0.1)

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[Message] = asyncio.Queue()
        self.told: dict[str, tuple[str, float]] = {}

    async def receive(self, mark: str) -> AsyncIterator[Batch]:
        while True:
            yield Batch((await self.waiting.get(),))

    async def send(self, chat: str, key: str, what: Outgoing) -> Sent:
        self.told[key] = what.text, time.time()
        return Sent(key)

    async def edit(self, chat: str, message: str, what: Outgoing) -> Sent:
        return await self.send(chat, message, what)

    def check_id(self, id: str) -> str:
        return ""


async def _answers(home: Path, seconds: int) -> list[Result]:
    """A message a second in each of a hundred chats. An answer is there when its turn's end is
    stored; from then to the edit that shows the whole of it."""
    config = Config(channels={"ch": CONFIG}, model=ModelConfig(default="scripted:echo"))
    async with Setup(config, Place(home, home)).open() as program:
        hub, loop = Hub(program, config.gateway, home), Loop()
        hub.prepare = lambda session: _prepare(hub, session, [loop], frozenset(("ch",)))
        worker = Worker(ChannelSetup("ch", CONFIG, "s" * 16, home), loop, hub, {})
        channels = Channels([worker])
        channels.start()
        await worker.receiving.wait()
        began_s = time.monotonic()
        for number in range(seconds * 100):
            await asyncio.sleep(max(began_s + number / 100 - time.monotonic(), 0.0))
            loop.waiting.put_nowait(_message(number))
        store = hub.service().chats.store
        waits_ms: list[float] = []
        owed = 0
        for _ in range(60):
            await asyncio.sleep(1.0)
            waits_ms, owed = await _waits(store, loop)
            if owed == seconds * 100 == len(waits_ms):
                break
        await channels.close()
        await hub.drain(1.0)
    if len(waits_ms) < seconds * 100:
        return [failed(NAME, f"{len(waits_ms)} of {owed} answers were sent")]
    p50, p99 = percentile(waits_ms, 0.5), percentile(waits_ms, 0.99)
    detail = f"p50 {p50:.0f} ms; {len(waits_ms)} answers of {seconds} s"
    return [at_most(NAME, "100 chats, from an answer to its message: p99", p99, 200, "ms", detail)]


async def _waits(store: Store, loop: Loop) -> tuple[list[float], int]:
    """How long each answer took to its chat, and how many are owed or were."""
    waits_ms: list[float] = []
    owed = 0
    for listed in await store.list(1_000):
        ends: list[int] = []
        debts: dict[int, str] = {}
        sent: list[float] = []
        async for record in read_all(store, listed.id):
            fact = record.fact
            if isinstance(fact, TurnEnded):
                ends.append(record.at_ms)
            elif isinstance(fact, DeliveryOwed):
                debts[record.seq] = f"{fact.key}-0"
            elif isinstance(fact, DeliverySettled) and isinstance(fact.outcome, Delivered):
                sent.append(loop.told[debts[fact.owed]][1] * 1_000)
        owed += len(debts)
        waits_ms += [max(at - end, 0.0) for at, end in zip(sent, ends, strict=False)]
    return waits_ms, owed


@contextmanager
def _served(home: Path, channels: dict[str, dict[str, object]]) -> Iterator[Service]:
    service = Service(home, model="scripted:echo", more={"CH_SECRET": SECRET})
    service.environment["STENO_CHANNELS"] = json.dumps(channels)
    try:
        yield service
    finally:
        service.stop()


def _idle(home: Path, seconds: int) -> list[Result]:
    """Three chat apps, of which nothing comes, against none."""
    with ExitStack() as stack:
        subjects = [SUBJECTS[name](home / name) for name in ("telegram", "slack", "discord")]
        configured, secrets = {}, {}
        for subject in subjects:
            subject.open()
            stack.callback(subject.close)
            kind = str(subject.settings()["kind"])
            secrets[f"{kind.upper()}_SECRET"] = subject.secret
            own = {"token_env": f"{kind.upper()}_SECRET", "owners": [subject.id("7")]}
            configured[kind] = own | subject.settings()
        share: dict[str, float] = {}
        cases: list[tuple[str, dict[str, dict[str, object]]]] = [
            ("none", {}),
            ("chats", configured),
        ]
        for name, channels in cases:
            with _served(home / name, channels) as service:
                service.environment.update(secrets)
                service.start()
                if channels:
                    _until_receiving(service, len(channels))
                time.sleep(3.0)
                began_s, cpu_s = time.perf_counter(), service.cpu_s()
                time.sleep(seconds)
                share[name] = (service.cpu_s() - cpu_s) / (time.perf_counter() - began_s)
    cost = (share["chats"] - share["none"]) * 100
    detail = f"{share['chats']:.2%} with them, {share['none']:.2%} without; over {seconds} s"
    return [at_most(NAME, "3 idle channels: of a core", cost, 1, "%", detail)]


def _start(home: Path, chats: int) -> list[Result]:
    """The program again after a kill, until it stores what arrives."""
    asyncio.run(_fill(home, chats))
    hook: dict[str, object] = {"kind": "hook", "token_env": "CH_SECRET", "owners": ["ann"]}
    with _served(home, {"ch": hook}) as service:
        ready_s = service.start()
        before_s = time.perf_counter()
        _until_receiving(service, 1)
        took_s = ready_s + time.perf_counter() - before_s
    what = f"an account with {chats:,} chats, start to receiving"
    return [at_most(NAME, what, took_s, 3, "s", f"the program; listens after {ready_s:.2f} s")]


async def _fill(home: Path, chats: int) -> None:
    """A session for each chat; a hundred of them owe something."""
    async with holding(home) as held:
        store = held.chats.store
        for first in range(0, chats, 500):
            names = [f"chat/{held.source}/chat-{n}" for n in range(first, first + 500)]
            begun = [store.ensure(SessionStarted("hook", "", name)) for name in names]
            sessions = await asyncio.gather(*begun)
            bound = [ChatBound(f"chat-{first + n}", id) for n, id in enumerate(sessions)]
            await store.add(held.session, bound)
        for n in range(100):
            await held.post(f"chat-{n}", "news", f"news:{n}")


def _until_receiving(service: Service, channels: int) -> None:
    deadline_s, told = time.monotonic() + 60, []
    asked = Request(
        f"http://127.0.0.1:{service.port}/api/channels",
        headers={"Authorization": f"Bearer {service.tokens[0]}"},
    )
    while time.monotonic() < deadline_s:
        with urlopen(asked, timeout=10) as answer:
            told = json.load(answer)["channels"]
        if [one["state"] for one in told] == ["receiving"] * channels:
            return
        time.sleep(0.02)
    raise subprocess.SubprocessError(f"the channels do not receive: {told}")


async def _timed(work: Awaitable[object]) -> float:
    before_s = time.perf_counter()
    await work
    return (time.perf_counter() - before_s) * 1_000


def _message(number: int) -> Message:
    """In one of a hundred chats."""
    chat = f"chat-{number % 100}"
    return Message(f"m{number}", chat, "ann", f"message {number}", f"{number}", "Ann")
