"""An account from its start to its end, and all accounts of the configuration together.

take the lease      one process receives and sends as an account; the others wait for it
carry on            commands that were recorded, deliveries that are owed, what changed
receive             store, then ask for more: that acknowledges
watch the feed      inputs from elsewhere are shown here too; questions are put; answers go out
leave               stop receiving, let the lease go at once: the next process takes over
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Literal

from msgspec import Struct

from steno.config import Config, Place
from steno.engine.people import call_digest
from steno.gateway.channels.attachments import fetch
from steno.gateway.channels.commands import Commands, Extra
from steno.gateway.channels.held import HeldAccount
from steno.gateway.channels.inbox import Inbox
from steno.gateway.channels.outbox import Means, Outbox
from steno.gateway.channels.protocol import (
    Channel,
    ChannelError,
    ChannelRefused,
    ChannelSetup,
    Update,
)
from steno.gateway.channels.registry import chats_in, make
from steno.gateway.hub import EVERY_INPUT, Hub, Prepared
from steno.journal.facts import (
    AccountRead,
    ApprovalAsked,
    DeliveryExpired,
    DeliveryOwed,
    DeliverySettled,
    InputAdmitted,
    QuestionPut,
    Record,
    TurnStarted,
    taken_by,
)
from steno.journal.listing import JOB
from steno.journal.parts import Seq
from steno.service.chats import new_key
from steno.store.errors import StoreError, UnknownMark, UnknownSession
from steno.store.protocol import FactAdded, Lease

LOOK_AGAIN_S = 0.2
"""How often a process that waits for an account looks whether it is free."""
LOOK_AGAIN_OWED_S = 5.0
MARK_EVERY = 500
MARK_S = 5.0
WAIT_MAX_S = 60.0
STUMBLES_MAX = 3
"""An update on which we stumble so often is left out: those behind it wait for it."""
State = Literal["starting", "waiting", "receiving", "trouble", "refused", "off"]
_log = logging.getLogger("steno.channels")


class ChannelHealth(Struct):
    """What a person sees of an account. `receiving` is more than connected: what arrives is
    stored."""

    name: str
    kind: str
    account: str
    state: State = "starting"
    error: str = ""
    taken: int = 0
    last_in_ms: int = 0
    sent: int = 0
    last_out_ms: int = 0
    open: int = 0
    last_send_error: str = ""


class Worker:
    """Looks after one account until it is closed."""

    def __init__(
        self,
        setup: ChannelSetup,
        channel: Channel,
        hub: Hub,
        extra: Mapping[str, Extra],
    ) -> None:
        self.health = ChannelHealth(setup.name, setup.config.kind, channel.account)
        self.channel = channel
        self.config = setup.config
        self._setup, self._hub = setup, hub
        self._extra = dict(extra)
        self._inbox: Inbox | None = None
        self._outbox: Outbox | None = None
        self._lease: Lease | None = None
        self._marked_s = 0.0
        self._stumbles: dict[str, int] = {}
        self.receiving = asyncio.Event()

    def look(self) -> ChannelHealth:
        if self._inbox is not None and self._outbox is not None:
            health, outbox = self.health, self._outbox
            health.taken, health.last_in_ms = self._inbox.taken, self._inbox.last_ms
            health.sent, health.last_out_ms = outbox.sent, outbox.last_sent_ms
            health.open, health.last_send_error = outbox.open(), outbox.last_error
        return self.health

    async def run(self) -> None:
        """For ever. What goes wrong is told by `health`, and tried again."""
        wait_s = 1.0
        try:
            while True:
                began_s = time.monotonic()
                try:
                    await self._hold()
                except ChannelRefused as error:
                    self._trouble("refused", error)
                    wait_s = WAIT_MAX_S
                except (ChannelError, StoreError) as error:
                    self._trouble("trouble", error)
                except Exception as error:  # noqa: BLE001 - one account must not end the others
                    _log.exception("channel %s: not foreseen", self.health.name)
                    self._trouble("trouble", error)
                    asked_s = getattr(error, "wait_s", None)
                    long = time.monotonic() - began_s > WAIT_MAX_S
                    wait_s = 1.0 if long else min(wait_s * 2, WAIT_MAX_S)
                    wait_s = max(wait_s / 2, asked_s or 0.0)
                await asyncio.sleep(wait_s)
        finally:
            self.health.state = "off"
            self.receiving.clear()
            await self.channel.close()

    def _trouble(self, state: State, error: Exception) -> None:
        self.health.state, self.health.error = state, str(error)[:300]
        self.receiving.clear()
        _log.warning("channel %s: %s", self.health.name, self.health.error)

    async def _hold(self) -> None:
        """While we have the account."""
        setup, hub = self._setup, self._hub
        chats = hub.program.service(setup.config.kind, hub.terms(None)).chats
        session = await chats.account(self.channel.account)
        while (lease := await chats.take_account(session)) is None:
            self.health.state = "waiting"
            await asyncio.sleep(LOOK_AGAIN_S)
        self._lease = lease
        held = HeldAccount(setup.name, setup.config, self.channel, hub, session)
        keeping = asyncio.create_task(self._keep(held, lease))
        try:
            await self._work(held, keeping)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            with contextlib.suppress(StoreError):
                await asyncio.shield(chats.leave_account(self._lease))

    async def _keep(self, held: HeldAccount, lease: Lease) -> None:
        while True:
            left_s = lease.expires_ms / 1_000 - time.time()
            await asyncio.sleep(max(left_s / 3, 1.0))
            self._lease = lease = await held.chats.keep_account(lease)

    async def _work(self, held: HeldAccount, keeping: "asyncio.Task[None]") -> None:
        await held.catch_up()
        await self.channel.open()
        feed = held.known.feed or await held.chats.now()
        means = Means(
            held.chats,
            self.channel,
            lambda chat: _by_edits(held, chat),
            self._hub.runs,
            lambda session: _take_up(held, session),
            lambda session, asked, chat: _token(held, session, asked, chat),
        )
        commands = Commands(held, self._extra)
        outbox, inbox = Outbox(means), Inbox(held, commands)
        self._inbox, self._outbox = inbox, outbox
        tasks = [keeping]
        try:
            for debt in await outbox.begin(frozenset((held.name,))):
                if not debt.one.taken and debt.owed.show == "answer":
                    self._hub.wake(debt.session)  # accepted by a process that is gone
            tasks.append(asyncio.create_task(self._watch(held, outbox, feed)))
            tasks.append(asyncio.create_task(_look_again(outbox)))
            await commands.go_on()
            tasks.append(asyncio.create_task(self._receive(held, inbox)))
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self.receiving.clear()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await commands.close()
            await outbox.close()

    # --- what arrives

    async def _receive(self, held: HeldAccount, inbox: Inbox) -> None:
        batches = self.channel.receive(held.known.mark)
        self.health.state, self.health.error = "receiving", ""
        self.receiving.set()
        async with aclosing(batches) as arriving:  # type: ignore[type-var]
            async for batch in arriving:
                for update in batch.updates:
                    await self._take(inbox, update)
                if batch.mark and batch.mark != held.known.mark:
                    await held.note([AccountRead(mark=batch.mark)])
        raise ChannelError("the platform ended the connection")

    async def _take(self, inbox: Inbox, update: Update) -> None:
        """Store an update. What we are not prepared for is tried again, and then left out."""
        try:
            await _whatever_happens(inbox.take(update))
        except (ChannelError, StoreError):
            raise
        except Exception:
            tries = self._stumbles[update.id] = self._stumbles.get(update.id, 0) + 1
            if tries < STUMBLES_MAX:
                raise
            del self._stumbles[update.id]
            _log.exception(
                "channel %s: an update is left out: %r", self.health.name, update.id
            )

    # --- what happens elsewhere

    async def _watch(self, held: HeldAccount, outbox: Outbox, feed: int) -> None:
        seen, marked = 0, feed
        while True:
            try:
                async with aclosing(held.chats.changes(feed)) as changes:  # type: ignore[type-var]
                    async for change in changes:
                        feed = change.mark
                        if isinstance(change, FactAdded):
                            seen += await self._changed(held, outbox, change)
                        due = (
                            time.monotonic() - self._marked_s > MARK_S
                            and feed > marked
                        )
                        if seen and (seen >= MARK_EVERY or due):
                            seen, marked = 0, feed
                            self._marked_s = time.monotonic()
                            await held.note([AccountRead(feed=feed)])
            except (
                UnknownMark
            ):  # a backup was restored: what came before it is not told again
                feed = await held.chats.now()

    async def _changed(
        self, held: HeldAccount, outbox: Outbox, change: FactAdded
    ) -> int:
        """Do what follows from a fact; 1 if it was about one of our chats."""
        session, record = change.session, change.record
        if session == held.session:
            await held.catch_up()
            return 0
        fact = record.fact
        if isinstance(fact, DeliveryOwed) and fact.channel == held.name:
            outbox.owing(session)
        outbox.wake(session)
        chats = held.known.chats_of(session)
        if not chats and not (
            isinstance(fact, ApprovalAsked) and await _is_job(held, session)
        ):
            return 0
        with contextlib.suppress(UnknownSession):  # deleted since
            if isinstance(fact, InputAdmitted):
                await _mirror(held, session, record.seq, fact, chats)
            elif isinstance(fact, ApprovalAsked):
                await _ask(held, session, record, chats)
            elif inputs := taken_by(fact):
                await _owe_late(held, session, record.seq, inputs)
        return 1


async def _look_again(outbox: Outbox) -> None:
    """The feed tells at once of what is owed. What it did not tell of is late, and not lost."""
    while True:
        await asyncio.sleep(LOOK_AGAIN_OWED_S)
        with contextlib.suppress(StoreError):
            await outbox.look_again()


async def _whatever_happens(taking: Coroutine[None, None, None]) -> None:
    """A commit that has begun is waited for, also when we are leaving."""
    task = asyncio.ensure_future(taking)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise


async def _prepare(
    hub: Hub, session: str, channels: Sequence[Channel], names: frozenset[str]
) -> Prepared:
    """Fetch what inputs of a chat came with. If a chat waits for a turn that was cut off, or a job
    does, it comes before what waits."""
    service = hub.service()
    ready_to = (
        await fetch(service.chats, session, channels) if channels else EVERY_INPUT
    )
    row = (await service.views.glance(session)).row
    owed = row.deliveries.open.values()
    chat_waits = any(
        one.taken and one.show == "answer" and one.channel in names for one in owed
    )
    opening = (
        await _cut_off(hub, session) if chat_waits or row.platform == JOB else None
    )
    return Prepared(opening, ready_to)


async def _cut_off(hub: Hub, session: str) -> TurnStarted | None:
    """The turn that goes on with one that was cut off, if it may be: it is continued a bounded
    number of times, and never after a stop or when something was said since."""
    service = hub.service(session)
    with contextlib.suppress(StoreError):
        return service.turns.continuation(await service.views.load(session))
    return None


async def _is_job(held: HeldAccount, session: str) -> bool:
    """Whether a job runs there: what it asks for, the owner is asked."""
    with contextlib.suppress(UnknownSession):
        return (await held.service().views.glance(session)).row.platform == JOB
    return False


async def _take_up(held: HeldAccount, session: str) -> bool:
    """Go on with a turn that was cut off; False if that cannot be."""
    opening = await _cut_off(held.hub, session)
    if opening is not None:
        held.hub.wake(session, opening)
    return opening is not None


def _by_edits(held: HeldAccount, chat: str) -> bool:
    group = chat in held.known.groups
    return (held.config.group_stream if group else held.config.stream) == "edit"


def _token(held: HeldAccount, session: str, asked: Seq, chat: str) -> str:
    question = held.known.question(session, asked, chat)
    return "" if question is None else question.token


async def _mirror(
    held: HeldAccount,
    session: str,
    seq: Seq,
    fact: InputAdmitted,
    chats: frozenset[str],
) -> None:
    """An input from elsewhere is shown in every other chat of its session, and so is its answer.
    What a job says is not: it owes its answer to its chat itself, if it has anything to say."""
    if fact.source == JOB:
        return
    for chat in sorted(chats):
        if (fact.source, fact.chat) != (held.source, chat):
            owed = [held.owed(chat, "text", seq), held.owed(chat, "answer", seq)]
            await held.chats.owe(
                session, owed, f"mirror:{seq}:{held.name}:{chat}"[:200]
            )


async def _owe_late(
    held: HeldAccount, session: str, taken: Seq, inputs: tuple[Seq, ...]
) -> None:
    """An answer that became owed when its input was taken already, as where another process runs
    the session: what is owed is known from its fact on, so it would wait for ever. The text of
    the turn is owed in its place.

        59 input, of a terminal · 60 turn (takes 59), by the terminal's process
        61 owed (answer to 59)      by us, who heard of 59 only now
        62 owed (text of 60), 61 settled       once we hear of 60
    """
    owed = await held.chats.owed(session, frozenset((held.name,)))
    for seq, one in owed.items():
        late = one.show == "answer" and one.input in inputs and seq > taken
        if late and not one.taken and (debt := await held.chats.debt(session, seq)):
            text = held.owed(debt.owed.address, "text", taken)
            settled = DeliverySettled(seq, DeliveryExpired("elsewhere"))
            await held.chats.note(session, [text, settled], f"late:{seq}")


async def _ask(
    held: HeldAccount, session: str, record: Record, chats: frozenset[str]
) -> None:
    """Put a question in the chats of its session, and where the owner is otherwise."""
    owners = {one.chat for one in held.known.owners()}
    places = set(chats) | (owners if not owners & chats else set())
    one = await held.chats.asked(session, record.seq)
    if one is None:
        return  # decided since, or asked before: the first question stands
    for chat in sorted(places):
        if held.known.question(session, one.seq, chat) is None:
            digest = call_digest(one.tool, one.arguments)
            put = QuestionPut(chat, session, one.seq, digest, new_key())
            await held.note([put], f"question:{session}:{one.seq}:{chat}"[:200])
        owed = held.owed(chat, "question", one.seq)
        await held.chats.owe(
            session, [owed], f"question:{one.seq}:{held.name}:{chat}"[:200]
        )


class Channels:
    """The accounts of the configuration, each with a task of its own."""

    def __init__(self, workers: list[Worker]) -> None:
        self.workers = workers
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def of(
        cls,
        config: Config,
        where: Place,
        hub: Hub,
        extra: Mapping[str, Extra] | None = None,
    ) -> "Channels":
        """Those of the configuration. Raises `ConfigError` if one of them cannot be used."""
        made = [make(name, one, where) for name, one in chats_in(config).items()]
        channels = [channel for _, channel in made]
        names = frozenset(setup.name for setup, _ in made)
        hub.prepare = lambda session: _prepare(hub, session, channels, names)
        return cls(
            [Worker(setup, channel, hub, extra or {}) for setup, channel in made]
        )

    def health(self) -> list[ChannelHealth]:
        return [worker.look() for worker in self.workers]

    def receiving(self, name: str) -> bool:
        return any(
            one.receiving.is_set() for one in self.workers if one.health.name == name
        )

    def channel(self, name: str) -> Channel | None:
        return next(
            (one.channel for one in self.workers if one.health.name == name), None
        )

    def start(self, may_act: Callable[[], bool] = lambda: True) -> None:
        """Begin, as soon as the service may act by itself."""
        self._task = asyncio.create_task(self._run(may_act), name="channels")

    async def _run(self, may_act: Callable[[], bool]) -> None:
        while not may_act():  # noqa: ASYNC110 - time alone makes it true
            await asyncio.sleep(1.0)
        async with asyncio.TaskGroup() as together:
            for worker in self.workers:
                together.create_task(
                    worker.run(), name=f"channel {worker.health.name}"
                )

    async def close(self) -> None:
        """Stop receiving and sending, and let the accounts go at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
