"""What is owed to chats gets there once: reserve, then fill.

    reserve   record the attempt, make a message that says "…", record its id
    fill      edit it to what is to be shown, as often as that changes, at last to the final text

To fill twice does no harm, so only the reserving can have an unknown outcome. It is tried again
until the delivery expires; the price is a stray "…". Where nothing can be edited, or the answer is
shown when it is done, the message is made with its final text; then an unknown outcome is settled
by the key, by looking, or is recorded as unknown and left alone.

    decide    what to do next about one delivery                                              pure
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import assert_never

from msgspec import Struct

from steno.gateway.channels.protocol import (
    Button,
    Channel,
    ChannelError,
    Limits,
    No,
    NotNow,
    Outgoing,
    Result,
    Sent,
    Unsure,
)
from steno.gateway.channels.text import split
from steno.gateway.channels.wording import asked_text, ended_text
from steno.journal.debts import OwedDelivery
from steno.journal.facts import CUT_OFF
from steno.journal.parts import Seq
from steno.service.chats import Chats, Debt, Showing
from steno.store.errors import StoreError

PLACEHOLDER = "…"
THINKING_S = 3.0
"""A message is reserved when there is text, or after so long."""
CUT_OFF_S = 0.3
"""How long a turn that was cut off is left to whoever takes it up."""
LOOK_S = 30.0
BEHIND_S = 1.0
"""How long an answer waits for an earlier one before it looks again, if nothing wakes it."""
TYPING_S = 4.5
WAIT_MAX_S = 300.0
LEAVING_S = 3.0
"""How long a message that is being made is waited for when the account is let go."""
AT_ONCE_MAX = 4
"""So many tries to reserve a message follow one another at once; each further one waits longer, so
that a service that is killed over and over leaves few stray marks."""
_log = logging.getLogger("steno.channels")


# --- deciding -------------------------------------------------------------------------------------


class Reserve(Struct, frozen=True):
    part: int


class Place(Struct, frozen=True):
    """Make the message with its text."""

    part: int


class Look(Struct, frozen=True):
    """Look for a message that may be there."""

    part: int


class Fill(Struct, frozen=True):
    part: int


class GiveUp(Struct, frozen=True):
    cause: str
    unknown: bool


class Later(Struct, frozen=True):
    """Too early for another try."""

    wait_s: float


class Done(Struct, frozen=True):
    pass


class Rest(Struct, frozen=True):
    """Nothing to do until something changes."""


Step = Reserve | Place | Look | Fill | GiveUp | Later | Done | Rest


class Wanted(Struct, frozen=True):
    """What a chat is to show: `parts`, and whether they are `final`. `by_edits`: messages are
    reserved and filled. `early`: they are shown before they are final, and twice does no harm: a
    question, say."""

    parts: tuple[str, ...]
    final: bool
    by_edits: bool
    early: bool = False


def decide(
    wanted: Wanted,
    one: OwedDelivery,
    filled: Mapping[int, str],
    limits: Limits,
    age_s: float,
) -> Step:
    """`filled` is what messages are known to say; `age_s`, how long ago the last try was."""
    for part, text in enumerate(wanted.parts):
        if part not in one.placed:
            return _make(wanted, one, part, limits, age_s)
        if limits.edits and filled.get(part) != text:
            return Fill(part)
    return Done() if wanted.final else Rest()


def _make(
    wanted: Wanted, one: OwedDelivery, part: int, limits: Limits, age_s: float
) -> Step:
    reserve = wanted.by_edits and limits.edits
    make = Reserve(part) if reserve else Place(part)
    if part not in one.trying:
        return make if reserve or wanted.final or wanted.early else Rest()
    if limits.client_id_s > age_s:
        return make
    if limits.finds:
        return Look(part)
    if reserve or wanted.early:
        left_s = _again_s(one.attempts.get(part, 0)) - age_s
        due = left_s <= 0 or age_s < 0  # a clock that was set back holds nothing up
        return make if due else Later(left_s)
    return GiveUp("the outcome is not known", unknown=True)


def _again_s(attempts: int) -> float:
    """How long after a try with an unknown outcome the next one may be made."""
    more = min(attempts - AT_ONCE_MAX, 20)
    return 0.0 if more < 0 else min(2.0**more, WAIT_MAX_S)


def due(owed: Mapping[Seq, OwedDelivery]) -> Iterator[Seq]:
    """What there is to do something about. Answers come in the order of what they answer, so one
    waits until those before it have a message; one that no turn has begun waits, too."""
    behind: set[str] = set()
    for seq, one in sorted(owed.items()):
        if one.show != "answer":
            yield seq
        elif one.channel not in behind:
            if one.taken:
                yield seq
            if not one.placed:
                behind.add(one.channel)


# --- rates ----------------------------------------------------------------------------------------


class Pace:
    """No more messages and edits a second than a platform takes, in one chat and in all."""

    def __init__(
        self, limits: Limits, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits = limits
        self._now_s = now_s
        self._all = _Bucket(
            limits.all_per_s, max(limits.burst, int(limits.all_per_s))
        )
        self._chats: dict[str, _Bucket] = {}
        self._held: dict[str, float] = {}

    async def wait(self, chat: str) -> None:
        """Until the next one may go out."""
        while True:
            now = self._now_s()
            bucket = self._chats.setdefault(
                chat, _Bucket(self._limits.chat_per_s, self._limits.burst)
            )
            wait_s = max(
                self._held.get(chat, 0.0) - now,
                bucket.wait_s(now),
                self._all.wait_s(now),
                0.0,
            )
            if wait_s <= 0:
                bucket.take(now)
                self._all.take(now)
                self._forget(now)
                return
            await asyncio.sleep(wait_s)

    def hold(self, chat: str, wait_s: float) -> None:
        """The platform said: not before."""
        self._held[chat] = max(self._held.get(chat, 0.0), self._now_s() + wait_s)

    def _forget(self, now: float) -> None:
        if len(self._chats) > 10_000:
            self._chats = {
                chat: one
                for chat, one in self._chats.items()
                if one.level(now) < one.most
            }
            self._held = {
                chat: until for chat, until in self._held.items() if until > now
            }


class _Bucket:
    def __init__(self, per_s: float, most: int) -> None:
        self.most = float(most)
        self._per_s = per_s
        self._level = self.most
        self._at = 0.0

    def level(self, now: float) -> float:
        return min(self.most, self._level + (now - self._at) * self._per_s)

    def wait_s(self, now: float) -> float:
        level = self.level(now)
        return 0.0 if level >= 1.0 else (1.0 - level) / self._per_s

    def take(self, now: float) -> None:
        self._level, self._at = self.level(now) - 1.0, now


# --- doing it -------------------------------------------------------------------------------------


class Means(Struct, frozen=True):
    """What an outbox sends with. `by_edits`: whether a chat is shown answers while they are
    written. `busy`: whether a session runs here; `take_up`: go on with its turn that was cut off,
    False if that cannot be. `token`: what the buttons of a question carry."""

    chats: Chats
    channel: Channel
    by_edits: Callable[[str], bool]
    busy: Callable[[str], bool]
    take_up: Callable[[str], Awaitable[bool]]
    token: Callable[[str, Seq, str], str]


class _State:
    """One delivery while it is looked after: what its messages say, and what was tried."""

    def __init__(self) -> None:
        self.filled: dict[int, str] = {}
        self.plain: set[int] = set()
        self.began_s: float | None = None
        self.cut_s: float | None = None
        self.taken_up: set[Seq] = set()
        self.edited_s = -1e9
        self.typed_s = -1e9
        self.wait_s = 1.0


async def _to_its_end(sending: Coroutine[None, None, float | None]) -> float | None:
    """Also when we are leaving: the next process need not guess whether a message was made."""
    task = asyncio.ensure_future(sending)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=LEAVING_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise


class Outbox:
    def __init__(self, means: Means) -> None:
        self._means = means
        self._chats, self._channel = means.chats, means.channel
        self._limits = means.channel.limits
        self._pace = Pace(self._limits, asyncio.get_running_loop().time)
        self._tasks: dict[tuple[str, Seq], asyncio.Task[None]] = {}
        self._changed: dict[tuple[str, Seq], asyncio.Event] = {}
        self._channels: frozenset[str] = frozenset()
        self._owing: set[str] = set()
        self._woken: set[str] = set()
        self._looks: dict[str, asyncio.Task[None]] = {}
        self.sent = 0
        self.last_sent_ms = 0
        self.last_error = ""

    def open(self) -> int:
        """How many deliveries are looked after."""
        return len(self._tasks)

    async def begin(self, channels: frozenset[str]) -> list[Debt]:
        """Take up everything that is owed. What expired meanwhile is recorded first, before
        anything is sent."""
        self._channels = channels
        debts = [debt async for debt in self._chats.debts(channels)]
        left = [debt for debt in debts if not await self._expire(debt)]
        for session in {debt.session for debt in left}:
            self.owing(session)
        return left

    async def look_again(self) -> None:
        """Wake every session that owes something."""
        async for debt in self._chats.debts(self._channels):
            self.owing(debt.session)

    def owing(self, session: str) -> None:
        """A session owes something to one of our chats."""
        self._owing.add(session)
        self.wake(session)

    def wake(self, session: str) -> None:
        """Something changed in a session. However often that is said, one look at a time sees it:
        the next begins when the last is over."""
        if session in self._owing:
            self._woken.add(session)
            if session not in self._looks:
                task = asyncio.create_task(self._look_at(session))
                self._looks[session] = task
                task.add_done_callback(lambda _: self._looked(session))

    def _looked(self, session: str) -> None:
        del self._looks[session]
        if session in self._woken:
            self.wake(session)

    async def _look_at(self, session: str) -> None:
        """Look after what can be shown: of a thousand answers, one."""
        self._woken.discard(session)
        try:
            owed = await self._chats.owed(session, self._channels)
        except StoreError as error:
            _log.warning("deliveries of %s: %s", session, error)
            await asyncio.sleep(1.0)
            self._woken.add(session)
            return
        if not owed and session not in self._woken:
            self._owing.discard(session)
        for seq in due(owed):
            self._tend_one(session, seq)

    def _tend_one(self, session: str, seq: Seq) -> None:
        here = (session, seq)
        if (changed := self._changed.get(here)) is not None:
            changed.set()
            return
        changed = self._changed[here] = asyncio.Event()
        task = asyncio.create_task(
            self._tend(session, seq, changed), name=f"post {session} {seq}"
        )
        self._tasks[here] = task
        task.add_done_callback(lambda _: self._over(here))

    async def close(self) -> None:
        self._owing.clear()
        tasks = [*self._tasks.values(), *self._looks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _over(self, here: tuple[str, Seq]) -> None:
        task = self._tasks.pop(here)
        del self._changed[here]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.last_error = f"{type(error).__name__}"
            _log.error(
                "delivery %s of %s: %s: %s",
                *reversed(here),
                type(error).__name__,
                error,
            )

    async def _tend(self, session: str, seq: Seq, changed: asyncio.Event) -> None:
        """Until it is settled."""
        state = _State()
        while True:
            changed.clear()
            try:
                wait_s = await self._advance(session, seq, state)
            except StoreError as error:
                _log.warning("delivery %s of %s: %s", seq, session, error)
                wait_s = 1.0
            if wait_s is None:
                return
            if wait_s > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await changed.wait()

    async def _expire(self, debt: Debt) -> bool:
        one = debt.one
        over = time.time() * 1_000 >= one.since_ms + one.expires_s * 1_000
        waits = debt.owed.show == "answer" and not one.turn
        if not over or one.placed or waits:
            return False
        await self._chats.expired(debt, "undelivered")
        return True

    async def _advance(self, session: str, seq: Seq, state: _State) -> float | None:
        """Do the next thing; in how many seconds to look again if nothing changes, None if it is
        settled."""
        debt = await self._chats.debt(session, seq)
        if debt is None or await self._expire(debt):
            return None
        showing = await self._chats.showing(debt)
        if (wait_s := await self._cut_off(debt, showing, state)) is not None:
            return wait_s
        if debt.behind and not debt.one.placed:
            return BEHIND_S
        if (wait_s := self._too_early(debt, showing, state)) is not None:
            await self._type(debt, showing, state)
            return wait_s
        wanted = self._wanted(debt, showing)
        now = time.monotonic()
        age_s = time.time() - debt.one.tried_ms / 1_000
        step = decide(wanted, debt.one, state.filled, self._limits, age_s)
        match step:
            case Reserve(part=part):
                return await self._make(
                    debt, part, Outgoing(PLACEHOLDER, True), state, True
                )
            case Place(part=part):
                what = self._outgoing(debt, showing, wanted, part, state)
                return await self._make(debt, part, what, state, False)
            case Look(part=part):
                return await self._look(debt, part, state)
            case Fill(part=part):
                left_s = state.edited_s + self._limits.edit_s - now
                if not wanted.final and left_s > 0:
                    await self._type(debt, showing, state)
                    return left_s
                what = self._outgoing(debt, showing, wanted, part, state)
                return await self._fill(debt, part, what, wanted.parts[part], state)
            case GiveUp(cause=cause, unknown=unknown):
                await self._chats.failed(debt, cause, unknown, final=True)
                return None
            case Later(wait_s=wait_s):
                return wait_s
            case Done():
                receipt = ",".join(
                    debt.one.placed[part] for part in sorted(debt.one.placed)
                )
                await self._chats.delivered(debt, receipt[:1_000])
                return None
            case Rest():
                await self._type(debt, showing, state)
                return (
                    self._limits.edit_s
                    if wanted.by_edits and showing.began
                    else LOOK_S
                )
            case unreachable:
                assert_never(unreachable)

    async def _cut_off(
        self, debt: Debt, showing: Showing, state: _State
    ) -> float | None:
        """A turn that a kill or a restart cut off is taken up, once for each time that it was; how
        long to wait for that. None if there is nothing to wait for."""
        ended = showing.ended
        if ended is None or ended.cause not in CUT_OFF | {"terminated"}:
            state.cut_s = None
            return None
        if state.cut_s is None:
            state.cut_s = time.monotonic()
            return CUT_OFF_S
        if self._means.busy(debt.session):
            return CUT_OFF_S
        if ended.turn not in state.taken_up:
            state.taken_up.add(ended.turn)
            if await self._means.take_up(debt.session):
                return CUT_OFF_S
        return None

    def _too_early(self, debt: Debt, showing: Showing, state: _State) -> float | None:
        """How long to wait before anything is shown; None if it is time."""
        now = time.monotonic()
        if showing.final:
            return None
        if debt.owed.show != "answer":
            return None
        if not showing.began:
            return LOOK_S
        state.began_s = now if state.began_s is None else state.began_s
        if not self._by_edits(debt):
            return TYPING_S
        if showing.text.strip() or debt.one.placed:
            return None
        left_s = state.began_s + THINKING_S - now
        return min(left_s, self._limits.edit_s / 2) if left_s > 0 else None

    def _by_edits(self, debt: Debt) -> bool:
        return (
            self._limits.edits
            and debt.owed.show == "answer"
            and (bool(debt.one.placed) or self._means.by_edits(debt.owed.address))
        )

    def _wanted(self, debt: Debt, showing: Showing) -> Wanted:
        text = showing.text
        if debt.owed.show == "question":
            text = asked_text(showing)
        elif showing.ended is not None:
            text = ended_text(showing)
        parts = tuple(split(text, self._limits)) if text.strip() else (PLACEHOLDER,)
        # A turn that was run again may have come to less than what is shown of it.
        parts += (PLACEHOLDER,) * (len(debt.one.placed) - len(parts))
        early = debt.owed.show == "question"
        return Wanted(parts, showing.final, self._by_edits(debt), early)

    def _outgoing(
        self, debt: Debt, showing: Showing, wanted: Wanted, part: int, state: _State
    ) -> Outgoing:
        last = part == len(wanted.parts) - 1
        buttons: tuple[Button, ...] = ()
        if (
            showing.asks is not None
            and not showing.decided
            and self._limits.buttons
            and last
        ):
            token = self._means.token(
                debt.session, debt.owed.target, debt.owed.address
            )
            buttons = (Button("Allow", f"{token}:y"), Button("Deny", f"{token}:n"))
        text = wanted.parts[part]
        plain = part in state.plain or text == PLACEHOLDER
        reply_to = debt.owed.reply_to if part == 0 else ""
        return Outgoing(text, plain, buttons, reply_to)

    # --- one thing

    async def _make(
        self, debt: Debt, part: int, what: Outgoing, state: _State, reserving: bool
    ) -> float | None:
        if reserving and part == 0:
            what = Outgoing(what.text, True, (), debt.owed.reply_to)
        await self._pace.wait(debt.owed.address)
        return await _to_its_end(self._send(debt, part, what, state, reserving))

    async def _send(
        self, debt: Debt, part: int, what: Outgoing, state: _State, reserving: bool
    ) -> float | None:
        if not await self._chats.attempt(debt, part):
            return 1.0
        result = await self._channel.send(
            debt.owed.address, f"{debt.owed.key}-{part}", what
        )
        match result:
            case Sent(message=message):
                await self._chats.placed(debt, part, message)
                state.filled[part] = what.text
                state.edited_s = time.monotonic() - (
                    self._limits.edit_s if reserving else 0.0
                )
                self._went(state)
                return 0.0
            case Unsure(cause=cause):
                self.last_error = cause
                again = reserving or self._limits.finds or self._limits.client_id_s
                final = not again and debt.owed.show != "question"
                await self._chats.failed(debt, cause, unknown=True, final=final)
                return None if final else self._back_off(debt, state, None)
            case No() | NotNow():
                return await self._refused(debt, part, result, state)
            case unreachable:
                assert_never(unreachable)

    async def _refused(
        self, debt: Debt, part: int, result: No | NotNow, state: _State
    ) -> float | None:
        """Nothing was made."""
        self.last_error = result.cause
        if isinstance(result, NotNow):
            await self._chats.failed(debt, result.cause, unknown=False, final=False)
            return self._back_off(debt, state, result.wait_s)
        if result.formatting and part not in state.plain:
            state.plain.add(part)
            await self._chats.failed(debt, result.cause, unknown=False, final=False)
            return 0.0
        await self._chats.failed(debt, result.cause, unknown=False, final=True)
        return None

    async def _fill(
        self, debt: Debt, part: int, what: Outgoing, text: str, state: _State
    ) -> float | None:
        await self._pace.wait(debt.owed.address)
        message = debt.one.placed[part]
        result: Result = await self._channel.edit(debt.owed.address, message, what)
        match result:
            case Sent():
                state.filled[part], state.edited_s = text, time.monotonic()
                self._went(state)
                return 0.0
            case No(formatting=True) if part not in state.plain:
                state.plain.add(part)
                return 0.0
            case No(cause=cause):
                self.last_error = cause
                await self._chats.failed(debt, cause, unknown=False, final=True)
                return None
            case NotNow(cause=cause, wait_s=wait_s):
                self.last_error = cause
                return self._back_off(debt, state, wait_s)
            case Unsure(cause=cause):
                self.last_error = cause
                return self._back_off(debt, state, None)
            case unreachable:
                assert_never(unreachable)

    async def _look(self, debt: Debt, part: int, state: _State) -> float:
        try:
            found = await self._channel.find(
                debt.owed.address, f"{debt.owed.key}-{part}"
            )
        except ChannelError as error:
            self.last_error = str(error)
            return self._back_off(debt, state, error.wait_s)
        if found is None:
            await self._chats.failed(
                debt, "it was not there", unknown=False, final=False
            )
        else:
            await self._chats.placed(debt, part, found)
        return 0.0

    async def _type(self, debt: Debt, showing: Showing, state: _State) -> None:
        if (
            showing.began
            and not showing.final
            and time.monotonic() - state.typed_s > TYPING_S
        ):
            state.typed_s = time.monotonic()
            await self._channel.show_typing(debt.owed.address)

    def _back_off(self, debt: Debt, state: _State, wait_s: float | None) -> float:
        """Twice as long each time, and as long as the platform says."""
        state.wait_s = min(state.wait_s * 2, WAIT_MAX_S)
        waiting = max(state.wait_s / 2, wait_s or 0.0)
        if wait_s is not None:
            self._pace.hold(debt.owed.address, wait_s)
        return waiting

    def _went(self, state: _State) -> None:
        state.wait_s = 1.0
        self.sent += 1
        self.last_sent_ms = int(time.time() * 1_000)
