"""Running turns and following them: whoever runs a turn, here or elsewhere, the same facts and
pieces are shown."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine

from msgspec import Struct

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
from steno.runtimes.protocol import Runtime
from steno.service.misuse import Misused
from steno.session.load import Sessions, now, tail
from steno.session.page import Tail
from steno.store.errors import JournalCorrupt, LeaseLost, NotAllowed, SessionBusy, StoreError
from steno.store.protocol import Admitted, Cursor, Event

LOOK_AGAIN_S = 0.2
INBOX_MAX = 1_000
COMING_S = 10.0
"""How long a follower waits for somebody to run an input that nobody runs: a process may be
starting."""

Inbox = asyncio.Queue[Event | BaseException | None]


class _Wanted(Struct, frozen=True):
    """What to show of a session: from the fact after `after` with which it `begins`, to the end of
    that turn. Turns in `continued` were taken up by a later one, so their end is not the end.
    `input` is what waits until it begins. `watching`: we do not run it, and may leave at any
    time."""

    session: str
    after: Seq
    begins: Callable[[Record], bool]
    input: Seq | None = None
    continued: frozenset[Seq] = frozenset()
    watching: bool = False


class Running:
    def __init__(self, sessions: Sessions, runtime: Runtime) -> None:
        self._sessions = sessions
        self._store = sessions.store
        self._runtime = runtime

    async def answer(self, admitted: Admitted, leaving: asyncio.Event) -> AsyncIterator[Event]:
        """Everything of the turn that takes an input, as it is stored, wherever it runs; here if
        nowhere else.

        The last event is the turn's end, or says that the input was taken back. Older inputs go
        first and are not part of it. An input that was admitted before gives the answer that it got
        last, with what took it up where it was cut off.
        """
        session, input = admitted.session, admitted.seq
        wanted = _waiting(session, input)
        if not admitted.first:
            wanted = await self._answered(session, input) or wanted
        over = asyncio.Event()
        driving = self._drive(session, input, leaving, over)
        async with contextlib.aclosing(self._turn(wanted, driving, leaving, over)) as events:
            async for event in events:
                yield event

    async def is_answered(self, admitted: Admitted) -> bool:
        """Whether a turn took an input, and none is open."""
        turns = Turns()
        loaded = await self._sessions.whole(admitted.session, turns)
        return loaded.state.turn is None and bool(turns.answer_to(admitted.seq))

    async def resume(
        self, session: str, opening: TurnStarted, leaving: asyncio.Event
    ) -> AsyncIterator[Event]:
        """Run a turn that continues or retries, and everything of it as it is stored."""
        head = (await self._store.glance(session)).head
        wanted = _Wanted(session, head, lambda record: record.fact == opening)
        driving = self._runtime.run(session, lambda state: True, leaving, opening)
        async with contextlib.aclosing(
            self._turn(wanted, driving, leaving, asyncio.Event())
        ) as events:
            async for event in events:
                yield event

    async def carry_on(
        self, session: str, turn: Seq, leaving: asyncio.Event
    ) -> AsyncIterator[Event]:
        """Go on with an open turn that waits for approval; everything of it, from its beginning."""
        wanted = _Wanted(session, turn - 1, lambda record: record.seq == turn)
        driving = self._runtime.run(session, lambda state: True, leaving)
        async with contextlib.aclosing(
            self._turn(wanted, driving, leaving, asyncio.Event())
        ) as events:
            async for event in events:
                yield event

    async def follow(
        self, session: str, input: Seq | None, leaving: asyncio.Event
    ) -> AsyncIterator[Event]:
        """Everything of a turn that somebody else runs, from its beginning, and then as it comes:
        the turn of `input`, or the open one, or the next one if an input waits, or the last one.
        Leaving does not stop it.

        If its process is dead, the end is the one that the next process will store.
        """
        wanted = await self._to_follow(session, input)
        over, gone = asyncio.Event(), False
        driving = self._attend(wanted, leaving)
        turn: Seq | None = None
        async with contextlib.aclosing(self._turn(wanted, driving, leaving, over)) as events:
            async for event in events:
                if turn is None and isinstance(event, Record):
                    turn = await self._turn_at(session, event.seq)
                yield event
                gone = isinstance(event, Record) and isinstance(event.fact, TurnEnded)
        if turn is None or gone or leaving.is_set():
            return
        loaded = await self._sessions.load(session)
        last = loaded.state.last_turn
        if last is not None and last.turn.seq == turn:
            yield Record(loaded.state.head, 0, last.ending)

    async def watch(self, session: str, end: Tail) -> AsyncIterator[Event]:
        """Everything of a session after its end as it was seen, as it is stored, whoever runs it.
        It goes on for ever, unless the session is deleted."""
        offsets = tuple((draft.stream, len(draft.text)) for draft in end.drafts)
        async for event in self._store.follow(session, Cursor(end.head, offsets)):
            yield event

    async def run_pending(self, session: str, leaving: asyncio.Event) -> None:
        """Run a session until it rests. While somebody else runs it, wait in case they die before
        what is pending is taken."""
        while not leaving.is_set():
            try:
                await self._runtime.run(session, lambda state: False, leaving)
            except SessionBusy:
                if not (await self._store.glance(session)).row.pending:
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(leaving.wait(), LOOK_AGAIN_S)
            else:
                return

    async def run_again(self, session: str, opening: TurnStarted, leaving: asyncio.Event) -> None:
        """Run a turn that continues or retries, and then what is pending."""
        await self._runtime.run(session, lambda state: False, leaving, opening)

    async def _to_follow(self, session: str, input: Seq | None) -> _Wanted:
        state = (await self._sessions.load(session)).state
        if input is not None:
            said = await self._store.read(session, input - 1, 1) if input > 0 else []
            if not said or not isinstance(said[0].fact, InputAdmitted):
                raise Misused(
                    f"session {session!r} has no input {input}; steno show {session} has the "
                    "numbers"
                )
            wanted = await self._answered(session, input) or _waiting(session, input)
        elif state.turn is None and state.pending:
            wanted = _waiting(session, min(state.pending))
        else:
            last = None if state.last_turn is None else state.last_turn.turn
            turn = state.turn or last
            if turn is None:
                raise NotAllowed(f"session {session!r} has no turn yet; there is nothing to follow")
            seq = turn.seq
            wanted = _Wanted(session, seq - 1, lambda record: record.seq == seq)
        return _Wanted(
            wanted.session,
            wanted.after,
            wanted.begins,
            wanted.input,
            wanted.continued,
            watching=True,
        )

    async def _attend(self, wanted: _Wanted, leaving: asyncio.Event) -> None:
        """Return when we leave, or when nobody runs the session and nobody comes to run what waits
        in it."""
        alone_s = 0.0
        while not leaving.is_set():
            glance = await self._store.glance(wanted.session)
            alone_s = alone_s + LOOK_AGAIN_S if glance.owner is None else 0.0
            if alone_s > LOOK_AGAIN_S:
                waits = wanted.input is not None and glance.row.waits(wanted.input)
                open = (await tail(self._store, wanted.session, glance.head)).turn is not None
                if open or not waits or alone_s > COMING_S:
                    return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(leaving.wait(), LOOK_AGAIN_S)

    async def _answered(self, session: str, input: Seq) -> _Wanted | None:
        """Where the last answer to an input is, if a turn took it."""
        found = Turns()
        await self._sessions.whole(session, found)
        places = found.answer_to(input)
        if not places:
            return None
        turns = [await self._turn_at(session, place) for place in places]
        return _Wanted(
            session,
            places[0] - 1,
            lambda record: record.seq in places,
            input,
            continued=frozenset(turns[:-1]),
        )

    async def _drive(
        self, session: str, input: Seq, leaving: asyncio.Event, over: asyncio.Event
    ) -> None:
        """Run the session until the input is taken care of; while somebody else runs it, wait in
        case they die."""
        while not (leaving.is_set() or over.is_set()):
            try:
                await self._runtime.run(session, lambda state: input not in state.pending, leaving)
            except SessionBusy:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), LOOK_AGAIN_S)
            else:
                return

    async def _turn(
        self,
        wanted: _Wanted,
        driving: Coroutine[None, None, None],
        leaving: asyncio.Event,
        over: asyncio.Event,
    ) -> AsyncGenerator[Event, None]:
        """Follow a session while `driving` runs it; yield what is wanted, to its end."""
        inbox: Inbox = asyncio.Queue(INBOX_MAX)
        driver = asyncio.create_task(_report(self._told(wanted.session, driving, over), inbox))
        pump = asyncio.create_task(self._pump(wanted, inbox))
        turn: Seq | None = None
        seen = wanted.after
        try:
            while (event := await self._next(inbox, wanted, seen, leaving)) is not None:
                seen = event.seq if isinstance(event, Record) else seen
                if isinstance(event, Record) and turn is None and wanted.begins(event):
                    turn = await self._turn_at(wanted.session, event.seq)
                if isinstance(event, Record) and event.fact == InputWithdrawn(wanted.input or 0):
                    yield event
                    over.set()
                    await _settled(driver, pump, inbox)
                    return
                if turn is None:
                    continue
                ended = (
                    isinstance(event, Record)
                    and isinstance(event.fact, TurnEnded)
                    and event.fact.turn == turn
                )
                if ended and turn in wanted.continued:
                    turn = None
                    continue
                yield event
                if ended:
                    over.set()
                    await _settled(driver, pump, inbox)
                    return
        finally:
            for task in (driver, pump):
                task.cancel()
            await asyncio.gather(driver, pump, return_exceptions=True)

    async def _told(
        self, session: str, driving: Coroutine[None, None, None], over: asyncio.Event
    ) -> None:
        """Run a session. If somebody took it from us, they end our turn: wait until we have been
        told of that."""
        try:
            await driving
        except LeaseLost:
            await self._store.glance(session)  # says so if the session was deleted
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), COMING_S)
                return
            raise

    async def _next(
        self, inbox: Inbox, wanted: _Wanted, seen: Seq, leaving: asyncio.Event
    ) -> Event | None:
        """The next event; None when none will come."""
        while True:
            event = await inbox.get()
            if isinstance(event, BaseException):
                raise event
            if event is not None:
                return event
            if wanted.watching and leaving.is_set():
                return None
            if wanted.watching and (
                not inbox.empty() or seen < (await self._store.glance(wanted.session)).head
            ):
                asyncio.get_running_loop().call_later(LOOK_AGAIN_S, _remind, inbox)
            elif await self._left(wanted, leaving):
                return None

    async def _left(self, wanted: _Wanted, leaving: asyncio.Event) -> bool:
        """Whether we let go before the end: the input still waits, or the turn is somebody else's
        to finish. Who watches and has seen everything sees no more: the turn is open and nobody
        runs it, or a fork cut it off."""
        if wanted.watching:
            return True
        glance = await self._store.glance(wanted.session)
        if wanted.input is not None and glance.row.waits(wanted.input):
            return True
        state = await tail(self._store, wanted.session, glance.head)
        return leaving.is_set() and state.turn is not None

    async def _pump(self, wanted: _Wanted, inbox: Inbox) -> None:
        try:
            async for event in self._store.follow(wanted.session, Cursor(wanted.after)):
                await inbox.put(event)
        except StoreError as error:
            await inbox.put(error)

    async def _turn_at(self, session: str, seq: Seq) -> Seq:
        """The turn that a fact belongs to: one it starts, or the one that was open."""
        state = await tail(self._store, session, seq)
        return seq if state.turn is None else state.turn.seq

    # --- what can be run again

    async def due_continuation(self, session: str) -> TurnStarted:
        state = await self._at_rest(session)
        cut = state.cut_off
        if cut is not None and cut.undone_by:
            raise NotAllowed(
                f"the turn of session {session!r} that was cut off is undone; take the undo back "
                "first"
            )
        if cut is not None and cut.killed >= KILLED_MAX:
            raise NotAllowed(
                f"session {session!r} was continued {cut.killed} times in a row and killed each "
                "time, so it is not "
                "continued any more. Everything shown is kept: the next prompt goes on from here, "
                "and "
                f"steno retry {session} runs the last one again"
            )
        if cut is not None and cut.given_up():
            raise NotAllowed(
                f"the turn of session {session!r} that was cut off was taken up "
                f"{len(cut.withdrawn)} times and nothing "
                f"came back; there is nothing to continue. It is kept: steno retry {session} runs "
                "its prompt again"
            )
        last = state.last_turn
        if last is not None and last.ending.cause == "forked":
            raise NotAllowed(
                f"session {session!r} begins in the middle of a turn that is its parent's to "
                "finish; "
                f"steno retry {session} runs its prompt here"
            )
        if cut is None or not cut.waits():
            raise NotAllowed(
                f"session {session!r} has no turn that was cut off; there is nothing to continue"
            )
        return TurnStarted(Continues(cut.ended.turn.seq))

    async def failed_prompt(self, session: str) -> TurnStarted:
        """The prompt of the last turn, or of the turn that this one took up, to be run again."""
        last = (await self._at_rest(session)).last_turn
        if last is None:
            raise NotAllowed(f"session {session!r} has no turn yet; there is nothing to retry")
        if last.ending.outcome == "done":
            raise NotAllowed(
                f"the last turn of session {session!r} was answered; there is nothing to retry"
            )
        return TurnStarted(Takes(await self._prompt(session, last.turn.origin)))

    async def _prompt(self, session: str, origin: Takes | Continues) -> Seq:
        """The input that a turn was begun for, through the turns that it took up."""
        while isinstance(origin, Continues):
            [record] = await self._store.read(session, origin.turn - 1, 1)
            if not isinstance(record.fact, TurnStarted):
                raise JournalCorrupt(f"session {session!r}: fact {record.seq} begins no turn")
            origin = record.fact.origin
        return origin.input

    async def _at_rest(self, session: str) -> State:
        loaded = await self._sessions.load(session)
        if loaded.owner is not None:
            raise SessionBusy(session, loaded.owner)
        if loaded.state.turn is not None:
            raise NotAllowed(
                f"a turn of session {session!r} waits for approval: decide with steno approve or "
                "steno deny, then "
                f"steno continue {session}; steno interrupt {session} stops it; nothing was changed"
            )
        return loaded.state

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
            await self._store.add(session, [InterruptAsked(helper)], key=f"interrupt:{helper}")
        return helper is not None


def _waiting(session: str, input: Seq) -> _Wanted:
    return _Wanted(session, input - 1, lambda record: _takes(record, input), input)


def _takes(event: Record, input: Seq) -> bool:
    match event.fact:
        case TurnStarted(origin=Takes(input=taken)):
            return taken == input
        case StepStarted(takes=taken_here):
            return input in taken_here
        case _:
            return False


def _remind(inbox: Inbox) -> None:
    """Say again that nobody runs the session. An inbox that is full is looked at anyway."""
    if inbox.full():
        asyncio.get_running_loop().call_later(LOOK_AGAIN_S, _remind, inbox)
    else:
        inbox.put_nowait(None)


async def _settled(driver: "asyncio.Task[None]", pump: "asyncio.Task[None]", inbox: Inbox) -> None:
    """Let the driver let go of the session. Nobody reads the inbox any more, so make room for its
    last word."""
    pump.cancel()
    while not inbox.empty():
        inbox.get_nowait()
    await driver


async def _report(driving: Coroutine[None, None, None], inbox: Inbox) -> None:
    """Run something and tell how it ended: None, or what it raised."""
    try:
        await driving
    except Exception as error:  # noqa: BLE001 - whatever it is, it is raised where the events are read
        await inbox.put(error)
    else:
        await inbox.put(None)
