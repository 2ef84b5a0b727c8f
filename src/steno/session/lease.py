"""A session while this process runs it: its writer, and whatever asks the running turn to stop.

What must be true:

- Facts are added one call after the other: each is built on what is in memory by then.
- The lease is renewed while we live. If it is lost, the turn stops: nothing more can be stored.
- Whatever asks the running turn to stop sets `stopped`, and one place decides that:
  `_look_at_stops`.

    async with hold(sessions, id, leaving) as held:    take the lease, fold, close what is open
        await held.record(TurnStarted(Takes(3)))       commit, then take in
        await held.draft(Stream(5, "text"), "Hel")     commit; then it may be shown
        await held.release()                           False if a fact came that we have not seen
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from steno.engine.action import finish
from steno.engine.recover import waits_for_approval
from steno.journal.drafts import Stream
from steno.journal.facts import (
    ApprovalDecided,
    Continues,
    HelperEnded,
    HelperStarted,
    InputAdmitted,
    InterruptAsked,
    MessageRedacted,
    ModeSet,
    Record,
    RuleSet,
    SpentSoFar,
    Takes,
    TurnEnded,
    TurnFact,
    TurnStarted,
)
from steno.journal.history import Entry, Weighed
from steno.journal.parts import Hash, Seq
from steno.journal.state import State
from steno.session.errors import Refusal
from steno.session.load import Folds, Sessions, to_carry, with_text
from steno.session.plugin_hooks import Hooks
from steno.session.writer import Writer, folded, take_lease
from steno.store.errors import (
    NotPending,
    OutcomeUnknown,
    SessionBusy,
    StoreError,
    StoreUnwritable,
)
from steno.store.protocol import Cursor, Lease, Store
from steno.tools.groups import end_group

TICK_S = 0.25
GIVE_WAY_S = 2.0
GIVE_WAY_PAUSE_S = 0.01
HELPER_TAIL = 64
"""Where the beginning of a helper call is looked for: little else is added while it runs."""

T = TypeVar("T")


@contextlib.asynccontextmanager
async def hold(
    sessions: Sessions,
    id: str,
    leaving: asyncio.Event | None = None,
    to_run: bool = True,
    insist: bool = True,
) -> "AsyncIterator[HeldSession]":
    """The session, recovered, while we have its lease. Raises `SessionBusy` if another process has
    it; if that one only distils, and we insist, it gives way. `leaving` stops the running turn."""
    held = await HeldSession.open(sessions, id, to_run, insist)
    leaver = (
        None if leaving is None else asyncio.create_task(held.leave_when(leaving))
    )
    try:
        yield held
    except (StoreUnwritable, OutcomeUnknown) as error:
        held.cut_off_by(error.cause)
        raise
    finally:
        if leaver is not None:
            leaver.cancel()
        await held.leave()


class HeldSession:
    """`stopped` is set while the running turn is to stop: because a person, anywhere, asked for
    that, because we are `leaving`, because its time is up (`overdue`), or because the lease was
    `lost`; of the last two it is we who are `going`. `said` is set when an input comes, `decided`
    when an approval or a rule does. `redacted` says that text was removed from the session since we
    hold it."""

    def __init__(self, sessions: Sessions, lease: Lease, folds: Folds) -> None:
        self.id = lease.session
        self.state = folds.state
        self.history = folds.history
        self.spent = folds.spent
        self.stopped = asyncio.Event()
        self.decided = asyncio.Event()
        self.said = asyncio.Event()
        self.going = asyncio.Event()
        self.redacted = False
        self.lost: StoreError | None = None
        self.leaving = False
        self.overdue = False
        self._store = sessions.store
        self._writer = Writer(sessions, lease, folds, self._taken_in)
        self._hooks = Hooks(sessions.plugins, self.id)
        self._recording = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(
        cls, sessions: Sessions, id: str, to_run: bool = False, insist: bool = True
    ) -> "HeldSession":
        """Take the lease, fold, and close what the last writer left open, once. Without `to_run` a
        turn that waits for approval is ended, too: nothing may be edited while a turn is open."""
        lease = await _acquire(sessions, id, to_run, insist)
        held = cls(sessions, lease, await folded(sessions, lease))
        try:
            await held._recover(to_run)
        except BaseException:
            await held._writer.give_up()
            raise
        held._tasks.append(asyncio.create_task(held._watch()))
        held._tasks.append(asyncio.create_task(held._renew(sessions.lease_ms)))
        return held

    # --- writing

    async def record(self, *facts: TurnFact) -> Seq:
        """Store facts, then take them in and tell plugins. The seq of the first."""
        async with self._recording:
            return await self._writer.append(facts, self._tell)

    def _tell(self, record: Record) -> None:
        self._hooks.tell(self.state, record)

    async def draft(self, stream: Stream, text: str) -> int:
        """Make text durable; it may be shown when this returns. The new end of the stream."""
        return await self._writer.draft(stream, text)

    async def put(self, payload: bytes) -> Hash:
        """Store bytes for a fact that will name them."""
        return await self._store.put(self.id, payload)

    async def consult(
        self, hook: str, arguments: dict[str, object]
    ) -> list[tuple[str, str]]:
        """What plugins have to say before something happens. A turn that stops waits for none."""
        return await self._hooks.consult(self.state, hook, arguments, self.stopped)

    async def _recover(self, to_run: bool) -> None:
        """Plugins are not told: what is closed here was under way in another process."""
        facts = await self._writer.left_open(to_run)
        if facts:
            await _end_calls(self.state)
            await self._writer.append(facts)

    # --- reading

    async def catch_up(self) -> None:
        """Take in what others added."""
        async with self._recording:
            await self._writer.catch_up()

    def with_text(self, entries: Sequence[Weighed | T]) -> AsyncIterator[Entry | T]:
        """Entries with the text that memory has let go, one by one."""
        return with_text(self._store, self.id, entries)

    async def restore(self) -> None:
        """Have all the text of the next request in memory."""
        if missing := self.history.missing():
            entries = [entry async for entry in self.with_text(missing)]
            self.history.restore(
                {one.fact: entry for one, entry in zip(missing, entries, strict=True)}
            )

    async def to_carry(self, upto: Seq) -> tuple[tuple[Seq, ...] | None, SpentSoFar]:
        """What a summary up to a seq must carry over it."""
        return await to_carry(self._store, self.id, upto)

    def _taken_in(self, record: Record) -> None:
        self.redacted |= isinstance(record.fact, MessageRedacted)
        if isinstance(record.fact, TurnEnded):
            self.overdue = False
        self._look_at_stops()

    # --- stopping

    def asked_to_stop(self) -> bool:
        return self.stopped.is_set()

    def letting_go(self) -> bool:
        """Whether it is we who stop, and not a person who wants the turn to stop."""
        return self.going.is_set()

    def _look_at_stops(self) -> None:
        turn = self.state.turn
        asked = self.state.stopping is not None or (
            turn is not None and turn.interrupted is not None
        )
        if asked or self.overdue or self.letting_go():
            self.stopped.set()
        else:
            self.stopped.clear()

    def _go(self) -> None:
        self.going.set()
        self._look_at_stops()

    async def leave_when(self, leaving: asyncio.Event) -> None:
        await leaving.wait()
        self.leaving = True
        self._go()

    async def watch_time(self, turn_s: float) -> None:
        """Stop a turn that has had its time. While it waits for a person, the clock stands
        still."""
        turn, spent_s, then_s = None, 0.0, asyncio.get_running_loop().time()
        while turn_s:
            await asyncio.sleep(min(TICK_S, turn_s))
            now_s, was = asyncio.get_running_loop().time(), turn
            turn = None if self.state.turn is None else self.state.turn.seq
            if turn != was:
                spent_s, self.overdue = 0.0, False
            elif self.state.turn is not None and not waits_for_approval(
                self.state.turn
            ):
                spent_s += now_s - then_s
            then_s = now_s
            if turn is not None and spent_s >= turn_s:
                self.overdue = True
                self._look_at_stops()

    async def _watch(self) -> None:
        """Notice at once what others ask of the running turn; the fact itself is taken in with the
        next record."""
        async for event in self._store.follow(
            self.id, Cursor(self.state.head), drafts=False
        ):
            if not isinstance(event, Record):
                continue
            if isinstance(event.fact, InterruptAsked):
                turn = None if self.state.turn is None else self.state.turn.seq
                if event.fact.turn == turn or event.fact.turn in self.state.helpers:
                    self.stopped.set()
            elif isinstance(event.fact, ApprovalDecided | RuleSet | ModeSet):
                self.decided.set()
            elif isinstance(event.fact, InputAdmitted):
                self.said.set()

    async def _renew(self, lease_ms: int) -> None:
        """Keep the lease while we live."""
        while True:
            await asyncio.sleep(lease_ms / 3000)
            try:
                await self._writer.renew()
            except StoreError as error:
                self.lost = error
                self._go()
                return

    # --- letting go

    async def release(self) -> bool:
        """Let go, unless something came that we have not seen: then take it in, and go on."""
        async with self._recording:
            released = await self._writer.release()
        if released:
            await self.leave()
        return released

    async def close(self) -> None:
        """Let go, whatever came meanwhile."""
        while not await self.release():
            pass

    async def leave(self) -> None:
        """Stop looking after the session. Without a release, the next owner recovers it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self._writer.leave()

    def cut_off_by(self, cause: str) -> None:
        """The end of the running turn cannot be stored. The next runner stores it, with this
        cause."""
        self._writer.cut_off_by(cause)


# --- turns of a session that is held --------------------------------------------------------------


async def open_turn(held: HeldSession, opening: TurnStarted) -> None:
    """Look again, under the lease, whether the turn is due: since the caller looked, another
    process may have begun it."""
    refuse_waiting(held)
    match opening.origin:
        case Continues(turn=turn):
            cut = held.state.cut_off
            if cut is None or cut.ended.turn.seq != turn or not cut.waits():
                raise Refusal("not_waiting", held.id, turn)
        case Takes(input=input):
            _refuse_answered(held, input)
    await held.record(opening)


async def begin(held: HeldSession, input: Seq) -> None:
    """Begin the turn of an input, unless it was taken back since we looked."""
    try:
        await held.record(TurnStarted(Takes(input)))
    except NotPending:
        await held.catch_up()


async def let_go(held: HeldSession) -> None:
    """Let go in order: a running turn ends; what is pending, be it an input or an approval, stays
    so for the next runner."""
    await end_turn(held)
    await held.close()


async def end_turn(held: HeldSession) -> None:
    """A running turn ends as terminated, unless a person asked for its end. One that waits for
    approval goes on waiting."""
    if held.state.turn is not None:
        await held.catch_up()
    turn = held.state.turn
    if turn is not None and not waits_for_approval(turn):
        await held.record(
            *finish(
                turn,
                "interrupted",
                "terminated" if turn.interrupted is None else "user",
            ).facts
        )


def refuse_waiting(held: HeldSession) -> None:
    if held.state.turn is not None:
        raise Refusal("waits_for_approval", held.id)


def _refuse_answered(held: HeldSession, input: Seq) -> None:
    """A prompt is run again only if its last turn did not answer it, and is still the last turn."""
    last = held.state.last_turn
    if input in held.state.pending:
        raise Refusal("input_waits", held.id, input)
    if last is None or last.ending.outcome == "done":
        raise Refusal("answered", held.id)
    if isinstance(last.turn.origin, Takes) and last.turn.origin.input != input:
        raise Refusal("turn_since", held.id)


# --- taking the lease -----------------------------------------------------------------------------


async def _acquire(sessions: Sessions, id: str, to_run: bool, insist: bool) -> Lease:
    """Take the lease. If we insist, what only distils the session, or gives it a title, is asked to
    give way, and does so at once."""
    deadline_s = asyncio.get_running_loop().time() + GIVE_WAY_S
    asked = False
    while True:
        try:
            return await take_lease(sessions, id, to_run, _end_calls)
        except SessionBusy:
            if not insist:
                raise
            asked = asked or await _ask_to_give_way(sessions.store, id)
            if not asked or asyncio.get_running_loop().time() > deadline_s:
                raise
        await asyncio.sleep(GIVE_WAY_PAUSE_S)


async def _end_calls(state: State) -> None:
    """The commands of a dead process live on in groups of their own."""
    calls = () if state.turn is None else state.turn.calls.values()
    await asyncio.gather(
        *(end_group(call.group) for call in calls if call.group is not None)
    )


async def _ask_to_give_way(store: Store, id: str) -> bool:
    """Whether what is under way is a distillate or a title: then that is asked to end."""
    head = (await store.glance(id)).head
    open: Seq | None = None
    for record in await store.read(id, max(head - HELPER_TAIL, 0), HELPER_TAIL):
        if (
            isinstance(record.fact, HelperStarted)
            and record.fact.purpose != "summary"
        ):
            open = record.seq
        elif isinstance(record.fact, HelperEnded) and record.fact.started == open:
            open = None
    if open is None:
        return False
    await store.add(id, [InterruptAsked(open, by="runner")], key=f"interrupt:{open}")
    return True
