"""What sessions owe to places outside: found at a start, tended while we are here, tried once more
when we leave.

What is owed is the answer to an input. It is due once every view shows its turn as ended: done,
failed, stopped, or cut off by a kill. No process has to be here for that: the next start finds it.
A turn that waits for approval has not ended.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from steno.engine.recover import waits_for_approval
from steno.journal.debts import OwedDelivery
from steno.journal.facts import (
    Continues,
    Delivered,
    DeliveryExpired,
    DeliveryOwed,
    DeliveryRefused,
    DeliverySettled,
    Record,
    taken_by,
)
from steno.journal.listing import ListingRow
from steno.journal.parts import Seq
from steno.journal.transcript import Transcript
from steno.journal.turns import Turns
from steno.session.errors import Refusal
from steno.session.load import Sessions, tail
from steno.store.errors import JournalCorrupt, KeyReused, StoreError, UnknownSession
from steno.store.protocol import Glance, Listed, read_all

if TYPE_CHECKING:
    from steno.delivery.outbox import Body, DeliveryDebt, Outbox

LEAVING_S = 0.4
"""For what is due when a front end leaves. What is not settled by then is tried at the next
start."""
LOOK_LEAVING_S = 0.15
"""For what others left, and is being sent at that moment."""
STAY_S = 60.0
"""How long a process without a terminal goes on trying before it leaves."""
LOOK_AGAIN_S = 30.0
SENDING_MAX = 8
PAGE = 100
TAKING = ("turn.started", "step.started")
TEXT_CHARS_MAX = 1_000_000

State = Literal[
    "owed", "sending", "delivered", "refused", "unknown", "expired", "withdrawn"
]


class Delivery(Struct, frozen=True):
    """One delivery, for people. `turn` is the turn whose end is told, None while it runs; `tries`
    is not known of one that is settled; `at_ms` is of the last thing that happened to it."""

    session: str
    seq: Seq
    input: Seq
    channel: str
    address: str
    key: str
    state: State
    cause: str
    turn: Seq | None
    tries: int | None
    at_ms: int


class Sending(Struct, frozen=True):
    """How deliveries go out. `outbox` is made, and what it sends with is loaded by `load`, when
    there is something to deliver and not before. `channels`: some are configured here. `chats` are
    those that are looked after by the process that holds their account."""

    outbox: "Callable[[Body], Outbox]"
    load: Callable[[], None]
    channels: bool
    chats: frozenset[str] = frozenset()


class Deliveries:
    def __init__(self, sessions: Sessions, sending: Sending) -> None:
        self._sending = sending
        self._loading: asyncio.Task[None] | None = None
        self._sessions = sessions
        self._store = sessions.store
        self._at_once = asyncio.Semaphore(SENDING_MAX)
        self._busy: set[asyncio.Task[float | None]] = set()
        self._asked: set[asyncio.Task[None]] = set()

    # --- while we are here

    @contextlib.asynccontextmanager
    async def tending(self, but: str = "") -> AsyncIterator[None]:
        """While entered, what is owed is looked after, but in sessions whose ids begin with `but`:
        a turn that is about to be continued there is told of when that has ended."""
        tending = asyncio.create_task(self._tend(but))
        try:
            yield
        finally:
            if self._busy:
                await asyncio.wait(self._busy, timeout=LOOK_LEAVING_S)
            tending.cancel()
            for task in self._busy:
                task.cancel()
            await asyncio.gather(tending, *self._busy, return_exceptions=True)

    async def finish(self, sessions: Iterable[str], within_s: float) -> None:
        """Deliver what these sessions owe, as far as that can be done in time."""
        sessions, now_s = (
            [one for one in sessions if await self._owes(one)],
            asyncio.get_running_loop().time,
        )
        if sessions:
            await asyncio.shield(self.get_ready())
        until_s, wait_s = now_s() + within_s, await self._in_time(sessions, within_s)
        while wait_s is not None and now_s() + wait_s < until_s:
            await asyncio.sleep(wait_s)
            wait_s = await self._in_time(sessions, until_s - now_s())

    def get_ready(self) -> "asyncio.Task[None]":
        """There will be something to send: load meanwhile what that takes, so that none waits for
        it at the end."""
        self._loading = self._loading or asyncio.create_task(
            asyncio.to_thread(self._sending.load)
        )
        return self._loading

    def _open_in(self, row: ListingRow) -> dict[Seq, OwedDelivery]:
        """What is owed and is no chat's."""
        chats = self._sending.chats
        return {
            seq: one
            for seq, one in row.deliveries.open.items()
            if one.channel not in chats
        }

    async def _owes(self, session: str) -> bool:
        with contextlib.suppress(StoreError):
            return bool(self._open_in((await self._store.glance(session)).row))
        return False

    async def _in_time(self, sessions: list[str], within_s: float) -> float | None:
        with contextlib.suppress(TimeoutError):  # the next start looks again
            async with asyncio.timeout(within_s):
                return await self._each(sessions)
        return None

    # --- what a person decides

    async def give_up(self, session: str, seq: Seq) -> None:
        """What is owed is not tried any more. `Refusal` if it is settled or being sent."""
        one = (await self._store.glance(session)).row.deliveries.open.get(seq)
        if one is None:
            raise Refusal("not_owed", session, seq)
        if one.by and await self._store.alive(one.by):
            raise Refusal("being_sent", session, seq)
        settled = DeliverySettled(seq, DeliveryExpired("given up"))
        try:
            await self._store.add(session, [settled], key=f"settled:{seq}")
        except KeyReused:
            raise Refusal("not_owed", session, seq) from None

    async def again(self, session: str, seq: Seq) -> None:
        """Owe what failed once more: the same text under the same key, by which a receiver knows it
        if it arrived after all. However often this is asked for, it is owed once."""
        row = (await self._store.glance(session)).row
        settled = dict(row.deliveries.settled).get(seq)
        if settled is None:
            raise Refusal("not_failed", session, seq)
        [owed] = await self._store.read(session, seq - 1, 1)
        [how] = await self._store.read(session, settled - 1, 1)
        fact, came = owed.fact, how.fact
        if (
            not isinstance(fact, DeliveryOwed)
            or not isinstance(came, DeliverySettled)
            or isinstance(came.outcome, Delivered)
        ):
            raise Refusal("not_failed", session, seq)
        if fact.show == "answer":
            taken = await self._taken(session, fact.target)
            if not taken or not await self._ended(session, taken):
                raise Refusal("nothing_to_send", session, seq)
            fact = replace(fact, target=taken, show="text")
        with contextlib.suppress(KeyReused):  # it was asked for before
            await self._store.add(session, [fact], key=f"again:{seq}")
        if fact.channel not in self._sending.chats:
            task = asyncio.create_task(self._try_now(session))
            self._asked.add(task)
            task.add_done_callback(self._asked.discard)

    async def _try_now(self, session: str) -> None:
        with contextlib.suppress(StoreError):  # the next look does it
            await self._each([session])

    async def _taken(self, session: str, input: Seq) -> Seq:
        """The last fact that took an input; 0 if none did."""
        taken, after = 0, input
        while page := await self._store.read(session, after, PAGE, TAKING):
            taken = next(
                (one.seq for one in reversed(page) if input in taken_by(one.fact)),
                taken,
            )
            after = page[-1].seq
        return taken

    async def _ended(self, session: str, taken: Seq) -> Seq:
        """The turn that ended with what was said to an input which this fact took; 0 if none."""
        from steno.service.chats import Answer

        answer = Answer(taken)
        async for record in read_all(self._store, session, taken - 1):
            answer.apply(record)
        return 0 if answer.ended is None else answer.ended.turn

    async def _tend(self, but: str) -> None:
        while True:
            wait_s: float | None = None
            with contextlib.suppress(StoreError):
                wait_s = await self._look(but)
            if wait_s is None and not self._sending.channels:
                return
            await asyncio.sleep(
                LOOK_AGAIN_S if wait_s is None else min(wait_s, LOOK_AGAIN_S)
            )

    async def _look(self, but: str) -> float | None:
        waits = [
            await self._each(
                [one.id for one in page if not (but and one.id.startswith(but))]
            )
            async for page in self._owing()
        ]
        return _soonest(waits)

    async def _owing(self, chats: bool = False) -> AsyncIterator[list[Listed]]:
        after = 0
        while page := await self._store.list(PAGE, after=after, where="owes"):
            yield [
                one
                for one in page
                if (one.row.deliveries.open if chats else self._open_in(one.row))
            ]
            after = page[-1].mark

    async def _each(self, sessions: Iterable[str]) -> float | None:
        tasks = [asyncio.create_task(self._settle(session)) for session in sessions]
        self._busy.update(tasks)
        try:
            return _soonest(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            self._busy.difference_update(tasks)

    async def _settle(self, session: str) -> float | None:
        """One session; in how many seconds to look at it again."""
        with contextlib.suppress(
            StoreError
        ):  # deleted since, or not readable now: others go on
            glance = await self._store.glance(session)
            debts = [
                await self._debt(session, glance, *owed)
                for owed in self._open_in(glance.row).items()
            ]
            if debts and self._sending.channels:
                await asyncio.shield(self.get_ready())
            return _soonest(
                await asyncio.gather(*(self._settle_one(debt) for debt in debts))
            )
        return None

    async def _settle_one(self, debt: "DeliveryDebt") -> float | None:
        async with self._at_once:
            return await self._sending.outbox(self.body).settle(debt)

    # --- what there is to tell

    async def _debt(
        self, session: str, glance: Glance, seq: Seq, one: OwedDelivery
    ) -> "DeliveryDebt":
        from steno.delivery.outbox import DeliveryDebt

        if one.show == "text" and not one.turn:
            one = replace(
                one, taken=one.input, turn=await self._ended(session, one.input)
            )
        turn = one.turn or await self._cut_off(session, glance, one)
        if turn and not one.turn:
            one = replace(
                one, since_ms=max(one.since_ms, glance.row.updated_ms)
            )  # as near to its end as is known
        elsewhere = seq <= (await self._store.glance(session)).imported
        return DeliveryDebt(
            session, seq, one, turn or None, glance.owner is not None, elsewhere
        )

    async def _cut_off(self, session: str, glance: Glance, one: OwedDelivery) -> Seq:
        """The turn of an input, if its process is dead; 0 if a process runs it, or it waits for a
        person."""
        if not one.taken or glance.owner is not None:
            return 0
        turn = (await tail(self._store, session, glance.head)).turn
        return 0 if turn is None or waits_for_approval(turn) else turn.seq

    async def body(self, debt: "DeliveryDebt", key: str) -> bytes | None:
        """What a place is told of a turn: the same however often, unless something is redacted
        meanwhile."""
        transcript, turns = Transcript(), Turns()
        await self._sessions.whole(debt.session, transcript, turns)
        turn = next(
            (turn for turn in transcript.turns if turn.seq == debt.turn), None
        )
        if turn is None or turn.outcome is None:
            return None
        text = answer(transcript, turns, turn.seq, debt.one.taken)
        told: dict[str, object] = {
            "session": debt.session,
            "turn": turn.seq,
            "outcome": turn.outcome,
            "cause": turn.cause,
            "text": text[:TEXT_CHARS_MAX],
            "key": key,
        }
        import json  # loaded with the first delivery

        return json.dumps(
            told | ({"cut": True} if len(text) > TEXT_CHARS_MAX else {})
        ).encode()

    # --- looking

    async def listed(self, limit: int) -> list[Delivery]:
        """Those that are owed, and of the latest sessions those that were settled last; the latest
        first."""
        found: list[Delivery] = []
        owing = [one async for page in self._owing(chats=True) for one in page]
        for one in owing + await self._store.list(limit):
            with contextlib.suppress(UnknownSession):  # deleted since
                found += await self._of(one)
        unlike = {(one.session, one.seq): one for one in found}
        return sorted(unlike.values(), key=lambda one: one.at_ms, reverse=True)[
            :limit
        ]

    async def _of(self, one: Listed) -> list[Delivery]:
        owed = one.row.deliveries
        still = [
            await self._open(one.id, seq, debt) for seq, debt in owed.open.items()
        ]
        return still + [
            await self._settled(one.id, seq, settled) for seq, settled in owed.settled
        ]

    async def _open(self, session: str, seq: Seq, one: OwedDelivery) -> Delivery:
        sending = bool(one.by) and await self._store.alive(one.by)
        [owed] = await self._store.read(session, seq - 1, 1)
        at_ms = max(owed.at_ms, one.tried_ms)
        return _delivery(
            session,
            owed,
            "sending" if sending else "owed",
            at_ms,
            one.cause,
            one.turn or None,
            one.tries,
        )

    async def _settled(self, session: str, seq: Seq, settled: Seq) -> Delivery:
        [owed] = await self._store.read(session, seq - 1, 1)
        [record] = await self._store.read(session, settled - 1, 1)
        if not isinstance(record.fact, DeliverySettled):
            return _delivery(session, owed, "withdrawn", record.at_ms)
        match record.fact.outcome:
            case Delivered():
                return _delivery(session, owed, "delivered", record.at_ms)
            case DeliveryExpired(cause=cause):
                return _delivery(session, owed, "expired", record.at_ms, cause)
            case DeliveryRefused(cause=cause, unknown=unknown):
                state: State = "unknown" if unknown else "refused"
                return _delivery(session, owed, state, record.at_ms, cause)


def answer(transcript: Transcript, turns: Turns, turn: Seq, taken: Seq) -> str:
    """What was said to an input: in the turn that took it, from there on, and in those that went on
    with it, to `turn`. As `run` prints it: the texts one after the other, with nothing between."""
    chain = {turn}
    while turn > taken and isinstance(origin := turns.origins.get(turn), Continues):
        turn = origin.turn
        chain.add(turn)
    said = (
        one
        for one in transcript.messages
        if one.role == "assistant" and one.turn in chain
    )
    return "".join(one.text for one in said if one.seq >= taken)


def _delivery(
    session: str,
    owed: Record,
    state: State,
    at_ms: int,
    cause: str = "",
    turn: Seq | None = None,
    tries: int | None = None,
) -> Delivery:
    fact = owed.fact
    if not isinstance(fact, DeliveryOwed):
        raise JournalCorrupt(
            f"session {session!r}: fact {owed.seq} is no delivery, though its row for lists says so"
        )
    where = (fact.target, fact.channel, fact.address, fact.key)
    return Delivery(session, owed.seq, *where, state, cause, turn, tries, at_ms)


def _soonest(waits: Iterable[float | None]) -> float | None:
    return min((wait for wait in waits if wait is not None), default=None)
