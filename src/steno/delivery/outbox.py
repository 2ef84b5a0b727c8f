"""What is owed to a place outside gets there once: the attempt is stored before it, how it went
after it.

    decide      what to do about one delivery, now
    outcome     what the answer of a channel means

A try is claimed under a key that counts the tries, so of many processes one sends. What was sent
and not settled may have arrived; it is sent again under the same key, by which a receiver knows it.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, assert_never

from msgspec import Struct
from msgspec.structs import replace

from steno.journal.debts import OwedDelivery
from steno.journal.facts import (
    Delivered,
    DeliveryAttempted,
    DeliveryExpired,
    DeliveryOwed,
    DeliveryRefused,
    DeliverySettled,
)
from steno.journal.parts import Seq
from steno.plugins.protocol import Plugins
from steno.store.errors import KeyReused
from steno.store.protocol import Store

HOOK = "delivery"
WAIT_FIRST_S = 1.0
WAIT_MAX_S = 3_600.0
LATER = frozenset((408, 425, 429))
"""Of the answers that say no, those that mean "not now"."""
NOT_TAKEN = LATER | {503}
"""A receiver that says this has done nothing yet."""


# --- deciding -------------------------------------------------------------------------------------


class DeliveryDebt(Struct, frozen=True):
    """A delivery as it stands. `turn` is the turn to tell of, once every view shows it as ended;
    `running`: a process runs its session; `elsewhere`: it was owed in the store that the session
    was imported from; `sending`: a process that is alive tries."""

    session: str
    seq: Seq
    one: OwedDelivery
    turn: Seq | None
    running: bool
    elsewhere: bool = False
    sending: bool = False


class Send(Struct, frozen=True):
    attempt: int


class WaitFor(Struct, frozen=True):
    seconds: float


class Expire(Struct, frozen=True):
    cause: Literal["unanswered", "undelivered", "elsewhere"]


class Leave(Struct, frozen=True):
    """Another process sends it, or there is nothing to tell yet."""


def decide(debt: DeliveryDebt, now_ms: int) -> Send | WaitFor | Expire | Leave:
    one = debt.one
    if debt.elsewhere:
        return Expire("elsewhere")
    if debt.sending or (debt.turn is None and debt.running):
        return Leave()
    if now_ms >= one.since_ms + one.expires_s * 1_000:
        return Expire("unanswered" if debt.turn is None else "undelivered")
    if debt.turn is None:
        return Leave()
    left_s = pause_s(one.tries) - (now_ms - one.tried_ms) / 1_000
    if one.tries and left_s > 0:
        # A clock that was set back must not make it wait for years.
        return WaitFor(min(left_s, pause_s(one.tries)))
    return Send(one.tries + 1)


def pause_s(tries: int) -> float:
    """How long to wait after so many tries."""
    return min(WAIT_FIRST_S * 2 ** min(tries - 1, 20), WAIT_MAX_S) if tries else 0.0


class Replied(Struct, frozen=True):
    status: int


class Unreached(Struct, frozen=True):
    """Nothing was sent."""

    cause: str


class Unanswered(Struct, frozen=True):
    """It may have arrived."""

    cause: str


Answer = Replied | Unreached | Unanswered


def outcome(answer: Answer) -> Delivered | DeliveryRefused:
    """Nothing that a receiver writes is kept but its status: it might repeat what it was sent, and
    what is said must be in the store in one place, where it can be redacted."""
    match answer:
        case Unreached():
            return DeliveryRefused(answer.cause)
        case Unanswered():
            return DeliveryRefused(answer.cause, unknown=True)
        case Replied(status=status):
            cause = f"status {status}"
            if 200 <= status < 300:
                return Delivered(cause)
            if 400 <= status < 500 and status not in LATER:
                return DeliveryRefused(cause, final=True)
            return DeliveryRefused(
                cause, unknown=status >= 500 and status not in NOT_TAKEN
            )
        case unreachable:
            assert_never(unreachable)


def told(outcome: Delivered | DeliveryRefused | DeliveryExpired) -> str | None:
    """What plugins hear of it; None of a try that certainly came to nothing and is made again."""
    match outcome:
        case Delivered():
            return "delivered"
        case DeliveryExpired():
            return "expired"
        case DeliveryRefused(unknown=True):
            return "unknown"
        case DeliveryRefused(final=final):
            return "refused" if final else None
        case unreachable:
            assert_never(unreachable)


# --- doing it -------------------------------------------------------------------------------------


class Channel(Protocol):
    async def send(self, body: bytes, key: str) -> Answer:
        """Send once, within a bounded time. The same key means the same body."""
        ...


Body = Callable[[DeliveryDebt, str], Awaitable[bytes | None]]
"""What a debt has to tell, under its key; None if there is nothing."""


class Outbox:
    """`channel` gives one by its name, or None if it cannot be used here. `body` is what a debt has
    to tell."""

    def __init__(
        self,
        store: Store,
        plugins: Plugins,
        channel: Callable[[str], Channel | None],
        body: Body,
    ) -> None:
        self._store = store
        self._plugins = plugins
        self._channel = channel
        self._body = body
        self._sending: set[tuple[str, Seq]] = set()

    async def settle(self, debt: DeliveryDebt) -> float | None:
        """Do what is to be done now; in how many seconds to look again, None if there is no
        need."""
        here = (debt.session, debt.seq)
        if here in self._sending:
            return None
        self._sending.add(here)
        try:
            return await self._settle(debt)
        finally:
            self._sending.discard(here)

    async def _settle(self, debt: DeliveryDebt) -> float | None:
        [record] = await self._store.read(debt.session, debt.seq - 1, 1)
        owed = record.fact
        if not isinstance(owed, DeliveryOwed):
            return None
        by = debt.one.by
        sending = by not in ("", self._store.owner) and await self._store.alive(by)
        match decide(replace(debt, sending=sending), int(time.time() * 1_000)):
            case Leave():
                return None
            case WaitFor(seconds=seconds):
                return seconds
            case Expire(cause=cause):
                await self._record(
                    debt, owed, DeliveryExpired(cause), f"expired:{debt.seq}"
                )
                return None
            case Send(attempt=attempt):
                return await self._send(debt, owed, attempt)
            case unreachable:
                assert_never(unreachable)

    async def _send(
        self, debt: DeliveryDebt, owed: DeliveryOwed, attempt: int
    ) -> float | None:
        channel = self._channel(owed.channel)
        body = None if channel is None else await self._body(debt, owed.key)
        if channel is None or body is None or not await self._claim(debt, attempt):
            return None
        came = outcome(await channel.send(body, owed.key))
        await self._record(debt, owed, came, f"settled:{debt.seq}:{attempt}")
        return (
            pause_s(attempt)
            if isinstance(came, DeliveryRefused) and not came.final
            else None
        )

    async def _claim(self, debt: DeliveryDebt, attempt: int) -> bool:
        fact = DeliveryAttempted(debt.seq, self._store.owner, debt.turn)
        try:
            await self._store.add(
                debt.session, [fact], key=f"delivery:{debt.seq}:{attempt}"
            )
        except KeyReused:
            return False
        return True

    async def _record(
        self,
        debt: DeliveryDebt,
        owed: DeliveryOwed,
        came: Delivered | DeliveryRefused | DeliveryExpired,
        key: str,
    ) -> None:
        try:
            await self._store.add(
                debt.session, [DeliverySettled(debt.seq, came)], key=key
            )
        except KeyReused:
            return
        if not debt.elsewhere and (said := told(came)) is not None:
            where = {"channel": owed.channel, "address": owed.address}
            self._plugins.tell(
                HOOK, {"session_id": debt.session, **where, "outcome": said}
            )
