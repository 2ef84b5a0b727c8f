"""A session while something watches it or runs it: what is stored, as it is stored, wherever that
happens.

    Live.answer      the turn of an input; it is run here if no other process runs it
    Live.resume      a turn that continues or retries
    Live.carry_on    an open turn that waited for a person
    Live.follow      a turn that another process runs
    LiveSession      all of a session, for as long as a front end shows it

Every one of them reads events while some work goes on beside it (`while_working`). The work runs
the session, or waits for the process that does. It cannot wait for ever:

- reading ends with the turn, or when the work is over and everything stored by then was seen;
- the work ends when the session rests, when we leave, when another process has let the session go,
  or after a fixed time.

    steno run "hi"           events after fact 2, work: run the session
      input 3 · turn 4       takes 3: shown from here on
      step 5 · "Hel" · "lo" · sealed 6 · ended 7    the end of turn 4: over
    steno follow, the process that runs it is killed after "Hel"
      turn 4 · step 5 · "Hel"                       work: twice in a row, no process runs it: over
      head is 5, the draft of 5 has 3 characters: all of that was seen
      ended 7                                       in memory, as the next runner will store it
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
)
from contextlib import aclosing, suppress
from typing import Protocol

from msgspec import Struct

from steno.engine.recover import waits_for_approval
from steno.journal.drafts import Stream
from steno.journal.facts import (
    Continues,
    InputAdmitted,
    InputWithdrawn,
    InterruptAsked,
    Record,
    StepStarted,
    Takes,
    TurnEnded,
    TurnStarted,
)
from steno.journal.parts import Seq
from steno.journal.state import KILLED_MAX, State
from steno.journal.turns import Turns
from steno.race import first_of
from steno.session import page as pages
from steno.session.errors import NoSuch, Refusal
from steno.session.load import Loaded, Sessions, folded, now, tail
from steno.session.page import Tail
from steno.store.errors import (
    JournalCorrupt,
    LeaseLost,
    SessionBusy,
    StoreError,
    UnknownSession,
)
from steno.store.protocol import Admitted, Cursor, Event, Glance, Store

ALONE_S = 0.2
"""So long no process runs an open turn before it counts as left behind: one may just begin."""
LEFT_BEHIND_S = 0.5
"""The same where a person looks on, and could begin it."""
LOOK_AGAIN_S = 2.0
"""What is looked at besides, where nothing tells that it changed."""
COMING_S = 10.0
"""How long a follower waits for a process to run an input that none runs: one may be starting."""

Enough = Callable[[State], bool]


class Runner(Protocol):
    async def run(
        self,
        session: str,
        enough: Enough,
        leaving: asyncio.Event,
        opening: TurnStarted | None = None,
    ) -> None:
        """Run a session until it rests, or until no turn is open and it is `enough`. Raises
        `SessionBusy` if another process runs it.

        `opening` is a turn to begin with: one that continues or retries. `leaving`, when set, ends
        the running turn as terminated and lets go.
        """
        ...


# --- reading while something goes on --------------------------------------------------------------


class _Seen:
    """How far events were read: the last fact, and how much of each open stream."""

    def __init__(self, cursor: Cursor) -> None:
        self._seq = cursor.seq
        self._ends: dict[Stream, int] = dict(cursor.offsets)

    def take(self, event: Event) -> None:
        if isinstance(event, Record):
            self._seq = event.seq
        else:
            self._ends[event.stream] = event.offset + len(event.text)

    def all_of(self, glance: Glance) -> bool:
        """Whether everything was seen that was stored at that moment. Each stream that was open
        then has ended since, or was seen as far as it went."""
        if self._seq != glance.head:
            return self._seq > glance.head
        return all(
            self._ends.get(one.stream, 0) >= len(one.text) for one in glance.drafts
        )


async def while_working(
    store: Store,
    session: str,
    cursor: Cursor,
    work: Coroutine[None, None, None],
    over: asyncio.Event | None = None,
) -> AsyncGenerator[Event, None]:
    """What is stored after the cursor, while `work` goes on, and to the last of what was stored
    when it was over. Raises what the work raises.

    If the reader stops before that, the work is cancelled; if it has set `over`, the work is given
    the time to end in order.
    """
    seen, stored = _Seen(cursor), None
    working = asyncio.ensure_future(work)
    events = store.follow(session, cursor)
    arriving = asyncio.ensure_future(anext(events))
    try:
        while stored is None or not seen.all_of(stored):
            if stored is None:
                await asyncio.wait(
                    {working, arriving}, return_when=asyncio.FIRST_COMPLETED
                )
                if not arriving.done():
                    working.result()
                    stored = await store.glance(session)
                    continue
            event = await arriving
            seen.take(event)
            arriving = asyncio.ensure_future(anext(events))
            yield event
    finally:
        arriving.cancel()
        if over is None or not over.is_set():
            working.cancel()
        await asyncio.gather(arriving, working, return_exceptions=True)
        await events.aclose()


class _Wanted(Struct, frozen=True):
    """What to show of a session: from the fact after `after` with which it `begins`, to the end of
    that turn. Turns in `continued` were taken up by a later one, so their end is not the end.
    `input` is what waits until it begins."""

    session: str
    after: Seq
    begins: Callable[[Record], bool]
    input: Seq | None = None
    continued: frozenset[Seq] = frozenset()


class Live:
    """Runs and follows the turns of any session."""

    def __init__(self, sessions: Sessions, runner: Runner) -> None:
        self._sessions = sessions
        self._store = sessions.store
        self._runner = runner

    def answer(
        self, admitted: Admitted, leaving: asyncio.Event
    ) -> AsyncGenerator[Event, None]:
        """Everything of the turn that takes an input, as it is stored, wherever it runs; here if
        nowhere else.

        The last event is the turn's end, or says that the input was taken back. Older inputs go
        first and are not part of it. An input that was admitted before gives the answer that it got
        last, with what took it up where it was cut off.
        """
        session, input, over = admitted.session, admitted.seq, asyncio.Event()

        async def wanted() -> _Wanted:
            answered = (
                None if admitted.first else await self._answered(session, input)
            )
            return answered or _waiting(session, input)

        return self._turn(
            wanted, lambda _: self._drive(session, input, leaving, over), over
        )

    def resume(
        self, session: str, opening: TurnStarted, leaving: asyncio.Event
    ) -> AsyncGenerator[Event, None]:
        """Run a turn that continues or retries, and everything of it as it is stored."""

        async def wanted() -> _Wanted:
            head = (await self._store.glance(session)).head
            return _Wanted(session, head, lambda record: record.fact == opening)

        return self._turn(
            wanted,
            lambda _: self._runner.run(session, lambda state: True, leaving, opening),
            asyncio.Event(),
        )

    def carry_on(
        self, session: str, turn: Seq, leaving: asyncio.Event
    ) -> AsyncGenerator[Event, None]:
        """Go on with an open turn that waits for approval; everything of it, from its beginning."""

        async def wanted() -> _Wanted:
            return _Wanted(session, turn - 1, lambda record: record.seq == turn)

        return self._turn(
            wanted,
            lambda _: self._runner.run(session, lambda state: True, leaving),
            asyncio.Event(),
        )

    async def follow(
        self, session: str, input: Seq | None, leaving: asyncio.Event
    ) -> AsyncGenerator[Event, None]:
        """Everything of a turn that another process runs, from its beginning, and then as it comes:
        the turn of `input`, or the open one, or the next one if an input waits, or the last one.
        Leaving does not stop it.

        If its process is dead, the end is the one that the next process will store.
        """
        began, over = False, asyncio.Event()
        turn = self._turn(
            lambda: self._to_follow(session, input),
            lambda wanted: self._until_left(wanted, leaving, over),
            over,
        )
        async with aclosing(turn) as events:
            async for event in events:
                began = True
                yield event
        if not began or leaving.is_set() or over.is_set():
            return
        loaded = await self._sessions.load(session)
        ended = loaded.state.last_turn
        if ended is not None and loaded.state.turn is None:
            closing = (one.seq for one in loaded.closing if one.fact == ended.ending)
            yield Record(next(closing, loaded.head), 0, ended.ending)

    async def run_pending(
        self,
        session: str,
        leaving: asyncio.Event,
        last: asyncio.Event | None = None,
        enough: Enough | None = None,
    ) -> None:
        """Run a session until it rests. While another process runs it, wait in case that dies
        before what is pending is taken. Once `last` is set, or it is `enough`, no further turn
        begins."""
        while not (leaving.is_set() or (last is not None and last.is_set())):
            try:
                await self._runner.run(session, enough or _until(last), leaving)
            except SessionBusy as busy:
                if not (await self._store.glance(session)).row.pending:
                    return
                let_go = self._store.runner_changes(session, busy.owner)
                await first_of(
                    let_go, *filter(None, (leaving, last)), limit_s=LOOK_AGAIN_S
                )
            else:
                return

    async def run_again(
        self,
        session: str,
        opening: TurnStarted,
        leaving: asyncio.Event,
        last: asyncio.Event | None = None,
        enough: Enough | None = None,
    ) -> None:
        """Run a turn that continues or retries, and then what is pending."""
        await self._runner.run(session, enough or _until(last), leaving, opening)

    async def only_waits(self, session: str) -> bool:
        """Whether nothing goes on in the open turn but waiting for a person."""
        turn = (await self._sessions.load(session)).state.turn
        if turn is None or turn.step is not None or not waits_for_approval(turn):
            return False
        return all(one.asked and one.decision is None for one in turn.calls.values())

    async def is_answered(self, admitted: Admitted) -> bool:
        """Whether a turn took an input, and none is open."""
        turns = Turns()
        loaded = await self._sessions.whole(admitted.session, turns)
        return loaded.state.turn is None and bool(turns.answer_to(admitted.seq))

    # --- one turn

    async def _turn(
        self,
        find: Callable[[], Awaitable[_Wanted]],
        work: Callable[[_Wanted], Coroutine[None, None, None]],
        over: asyncio.Event,
    ) -> AsyncGenerator[Event, None]:
        """What is wanted, to its end; `over` is set with the end."""
        turn: Seq | None = None
        wanted = await find()
        taken_back = InputWithdrawn(wanted.input or 0)
        working = self._unless_lost(wanted.session, work(wanted), over)
        reading = while_working(
            self._store, wanted.session, Cursor(wanted.after), working, over
        )
        async with aclosing(reading) as events:
            async for event in events:
                fact = event.fact if isinstance(event, Record) else None
                if (
                    turn is None
                    and isinstance(event, Record)
                    and wanted.begins(event)
                ):
                    turn = await self._turn_at(wanted.session, event)
                ended = isinstance(fact, TurnEnded) and fact.turn == turn
                if ended and turn in wanted.continued:
                    turn = None
                    continue
                if ended or fact == taken_back:
                    over.set()
                if turn is not None or fact == taken_back:
                    yield event
                if over.is_set():
                    return

    async def _turn_at(self, session: str, record: Record) -> Seq:
        """The turn that a fact belongs to: one it starts, or the one that was open."""
        if isinstance(record.fact, TurnStarted):
            return record.seq
        turn = (await tail(self._store, session, record.seq)).turn
        return record.seq if turn is None else turn.seq

    async def _drive(
        self, session: str, input: Seq, leaving: asyncio.Event, over: asyncio.Event
    ) -> None:
        """Run the session until the input is taken care of; while another process runs it, wait in
        case that dies."""
        while not (leaving.is_set() or over.is_set()):
            try:
                await self._runner.run(
                    session, lambda state: input not in state.pending, leaving
                )
            except SessionBusy as busy:
                await first_of(
                    self._store.runner_changes(session, busy.owner), over, leaving
                )
            else:
                return

    async def _until_left(
        self, wanted: _Wanted, leaving: asyncio.Event, over: asyncio.Event
    ) -> None:
        """Return when we leave, or when no process runs the session and none comes to run what
        waits in it."""
        session = wanted.session
        while not (leaving.is_set() or over.is_set()):
            runner = await self._store.running(session)
            if runner is not None:
                await first_of(
                    self._store.runner_changes(session, runner), over, leaving
                )
            elif not await self._comes(session, ALONE_S, over, leaving):
                glance = await self._store.glance(session)
                waits = wanted.input is not None and glance.row.waits(wanted.input)
                open = (
                    await tail(self._store, session, glance.head)
                ).turn is not None
                if (
                    open
                    or not waits
                    or not await self._comes(session, COMING_S, over, leaving)
                ):
                    return

    async def _comes(self, session: str, wait_s: float, *ends: asyncio.Event) -> bool:
        """Whether a process begins to run a session that none runs, within a time."""
        runs = self._store.runner_changes(session, None)
        return await first_of(runs, *ends, limit_s=wait_s) is not None

    async def _unless_lost(
        self, session: str, work: Coroutine[None, None, None], over: asyncio.Event
    ) -> None:
        """If another process took the session from us, it ends our turn: wait for that."""
        try:
            await work
        except LeaseLost:
            await self._store.glance(session)  # says so if the session was deleted
            if await first_of(over.wait(), limit_s=COMING_S) is None:
                raise

    async def _answered(self, session: str, input: Seq) -> _Wanted | None:
        """Where the last answer to an input is, if a turn took it."""
        found = Turns()
        await self._sessions.whole(session, found)
        places = found.answer_to(input)
        if not places:
            return None
        first, *later = places
        [record] = await self._store.read(session, first - 1, 1)
        turns = [await self._turn_at(session, record), *later]
        return _Wanted(
            session,
            first - 1,
            lambda record: record.seq in places,
            input,
            continued=frozenset(turns[:-1]),
        )

    async def _to_follow(self, session: str, input: Seq | None) -> _Wanted:
        if input is not None:
            said = await self._store.read(session, input - 1, 1) if input > 0 else []
            if not said or not isinstance(said[0].fact, InputAdmitted):
                raise NoSuch("input", input, session)
            return await self._answered(session, input) or _waiting(session, input)
        state = (await self._sessions.load(session)).state
        if state.turn is None and state.pending:
            return _waiting(session, min(state.pending))
        turn = state.turn or (
            None if state.last_turn is None else state.last_turn.turn
        )
        if turn is None:
            raise Refusal("no_turn", session)
        seq = turn.seq
        return _Wanted(session, seq - 1, lambda record: record.seq == seq)

    # --- what can be run again

    def continuation(self, loaded: Loaded) -> TurnStarted:
        """The turn that takes up the one that was cut off. Raises `Refusal` if none waits for
        that."""
        _refuse_running(loaded)
        session, state = loaded.id, loaded.state
        cut = state.cut_off
        if cut is not None and cut.undone_by:
            raise Refusal("undone", session)
        if cut is not None and cut.killed >= KILLED_MAX:
            raise Refusal("killed_each_time", session, times=cut.killed)
        if cut is not None and cut.given_up():
            raise Refusal("nothing_came_back", session, times=len(cut.withdrawn))
        last = state.last_turn
        if last is not None and last.ending.cause == "forked":
            raise Refusal("forked", session)
        if cut is None or not cut.waits():
            raise Refusal("nothing_cut_off", session)
        return TurnStarted(Continues(cut.ended.turn.seq))

    async def retry(self, loaded: Loaded) -> TurnStarted:
        """A turn that runs the prompt of the last turn again, or of the turn that this one took
        up."""
        _refuse_running(loaded)
        last = loaded.state.last_turn
        if last is None:
            raise Refusal("no_turn", loaded.id)
        if last.ending.outcome == "done":
            raise Refusal("answered", loaded.id)
        origin = last.turn.origin
        while isinstance(origin, Continues):
            [record] = await self._store.read(loaded.id, origin.turn - 1, 1)
            if not isinstance(record.fact, TurnStarted):
                raise JournalCorrupt(
                    f"session {loaded.id!r}: fact {record.seq} begins no turn"
                )
            origin = record.fact.origin
        return TurnStarted(origin)

    async def interrupt(
        self, session: str, input: Seq | None = None, turn: Seq | None = None
    ) -> Seq | None:
        """Ask the running turn to stop, if it took `input` and is `turn`, where they are named; the
        turn, or None."""
        running = (await now(self._store, session)).turn
        if running is None or (input is not None and input not in running.inputs):
            return None
        if turn is not None and turn != running.seq:
            return None
        await self._store.add(
            session, [InterruptAsked(running.seq)], key=f"interrupt:{running.seq}"
        )
        return running.seq

    async def interrupt_helper(self, session: str) -> bool:
        """Ask a summary that is being made outside any turn to stop; whether there was one."""
        helper = next(iter((await self._sessions.load(session)).state.helpers), None)
        if helper is not None:
            await self._store.add(
                session, [InterruptAsked(helper)], key=f"interrupt:{helper}"
            )
        return helper is not None

    # --- for as long as it is shown

    async def show(
        self,
        session: str,
        leaving: asyncio.Event,
        changed: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> "LiveSession":
        """All of a session for as long as a front end shows it, until that is `leaving`. `changed`
        is called when something other than its facts is different, `failed` with what running it
        raised."""
        end = await pages.end(self._store, session)
        signals = _Signals(leaving, changed, failed)
        return LiveSession(self, self._store, session, end, signals)


class _Signals(Struct, frozen=True):
    """Between a session and the front end that shows it."""

    leaving: asyncio.Event
    changed: Callable[[], None]
    failed: Callable[[Exception], None]


class LiveSession:
    """One session for as long as a front end shows it, whichever process runs it.

    `events` says what is stored. `owner` is the process that runs it, `driving` says whether this
    one tries to. `state` and `row` are folds of its end and what came since.
    """

    def __init__(
        self, live: Live, store: Store, id: str, end: Tail, signals: "_Signals"
    ) -> None:
        self.id = id
        self.driving = False
        self._live = live
        self._store = store
        self._leaving = signals.leaving
        self._changed = signals.changed
        self._failed = signals.failed
        self._look = asyncio.Event()
        self._wake = asyncio.Event()
        self._again: TurnStarted | None = None
        self._driver: asyncio.Task[None] | None = None
        self._take_end(end)

    def _take_end(self, end: Tail) -> None:
        self.end = end
        self.row, self.owner = end.row, end.owner
        self.state = folded([*end.page.waited, *end.page.records, *end.closing])

    def is_ours(self) -> bool:
        """Whether this process runs it."""
        return self.owner == self._store.owner

    async def events(self) -> AsyncIterator[Tail | Event]:
        """The end of the session, and what is stored after it, for ever. The end again when it must
        be read anew: a turn was left behind, or what was shown as closed has been stored."""
        while True:
            yield self.end
            offsets = tuple(
                (draft.stream, len(draft.text)) for draft in self.end.drafts
            )
            cursor = Cursor(self.end.head, offsets)
            reading = while_working(
                self._store, self.id, cursor, self._until_left_behind()
            )
            async with aclosing(reading) as events:
                async for event in events:
                    if isinstance(event, Record):
                        if self.end.closing:
                            break
                        self._take(event)
                    yield event
            length = self.end.head - self.end.page.first + 2
            self._take_end(await pages.end(self._store, self.id, max(length, 1)))

    def _take(self, record: Record) -> None:
        self.state.apply(record)
        self.row.apply(record)
        if isinstance(record.fact, TurnStarted):
            self._look.set()

    async def _until_left_behind(self) -> None:
        """Look which process runs it, until a turn is open that none runs any more."""
        alone = 0
        while alone < 2:
            self._look.clear()
            with suppress(StoreError):  # the reader of the events is told
                owner = await self._store.running(self.id)
                if owner != self.owner:
                    self.owner = owner
                    self._changed()
                alone = alone + 1 if self._is_alone() else 0
                limit_s = LEFT_BEHIND_S if alone else LOOK_AGAIN_S
                changes = self._store.runner_changes(self.id, owner)
                await first_of(changes, self._look, limit_s=limit_s)
                continue
            await first_of(self._look.wait(), limit_s=LOOK_AGAIN_S)

    def _is_alone(self) -> bool:
        turn = self.state.turn
        run = self.driving or (self.owner is not None and not self.is_ours())
        return turn is not None and not run and not waits_for_approval(turn)

    # --- running it

    def run(self, again: TurnStarted | None = None) -> None:
        """Run what waits, unless another process does; first a turn that is taken up or run
        again."""
        self._again = again or self._again
        self._wake.set()
        if not self.driving:
            self.driving = True
            self._driver = asyncio.create_task(self._drive())

    async def _drive(self) -> None:
        try:
            while self._wake.is_set() and not self._leaving.is_set():
                self._wake.clear()
                await self._drive_once()
        finally:
            self.driving = False
            self._changed()

    async def _drive_once(self) -> None:
        again, self._again = self._again, None
        try:
            if again is not None:
                await self._live.run_again(self.id, again, self._leaving)
            else:
                await self._live.run_pending(self.id, self._leaving)
        except UnknownSession:
            pass  # the reader of the events is told
        except Exception as error:  # noqa: BLE001 - whatever it is, the front end says so
            if not await self._is_gone():
                self._failed(error)

    async def _is_gone(self) -> bool:
        """Whether it was deleted: the reader of the events is told."""
        try:
            await self._store.running(self.id)
        except UnknownSession:
            return True
        except StoreError:
            return False
        return False

    async def stop(self) -> bool:
        """Ask the running turn to stop, whichever process runs it; whether there is one."""
        turn = self.state.turn
        if turn is None:
            return False
        if self.owner is None and not self.driving and not waits_for_approval(turn):
            return False
        return await self._live.interrupt(self.id, turn=turn.seq) is not None

    async def leave(self, limit_s: float) -> None:
        """Let go of what this process runs, in order and within the limit."""
        self._leaving.set()
        if self._driver is not None:
            await asyncio.wait([self._driver], timeout=limit_s)
            self._driver.cancel()
            await asyncio.wait([self._driver], timeout=0.05)


def _until(last: asyncio.Event | None) -> Enough:
    return lambda state: last is not None and last.is_set()


def _waiting(session: str, input: Seq) -> _Wanted:
    return _Wanted(session, input - 1, lambda record: _takes(record, input), input)


def _takes(record: Record, input: Seq) -> bool:
    fact = record.fact
    if isinstance(fact, TurnStarted):
        return fact.origin == Takes(input)
    return isinstance(fact, StepStarted) and input in fact.takes


def _refuse_running(loaded: Loaded) -> None:
    if loaded.owner is not None:
        raise SessionBusy(loaded.id, loaded.owner)
    if loaded.state.turn is not None:
        raise Refusal("waits_for_approval", loaded.id)
