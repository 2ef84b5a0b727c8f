"""What a person can do with sessions, for every front end: the only way from a front end to the store."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

from steno.engine.recover import recover
from steno.journal.facts import (
    Continues,
    InputAdmitted,
    InterruptAsked,
    Record,
    RewindWithdrawn,
    Rewound,
    SessionRenamed,
    SessionStarted,
    StepStarted,
    Takes,
    TurnEnded,
    TurnStarted,
)
from steno.journal.parts import Seq, Text
from steno.journal.state import State
from steno.journal.transcript import Transcript
from steno.journal.usage import UsageTotal
from steno.runtimes.held import HeldSession
from steno.runtimes.native import Native
from steno.store.errors import NotAllowed, SessionBusy, StoreError, UnknownSession
from steno.store.protocol import Admission, Admitted, Cursor, Event, Listed, Report, Store

LOOK_AGAIN_S = 0.2
PAGE = 1_000
INBOX_MAX = 1_000
PREFIX_LEN_MIN = 4

Inbox = asyncio.Queue[Event | BaseException | None]


class View:
    """A session as a person sees it."""

    def __init__(self) -> None:
        self.state = State()
        self.transcript = Transcript()
        self.usage = UsageTotal()
        self.owner: str | None = None

    def apply(self, record: Record) -> None:
        self.state.apply(record)
        self.transcript.apply(record)
        self.usage.apply(record)


class Service:
    def __init__(self, store: Store, native: Native, platform: str, lease_ms: int) -> None:
        self.store = store
        self._native = native
        self._platform = platform
        self._lease_ms = lease_ms

    # --- saying and answering

    async def admit(self, text: str, session: str | None, name: str | None, key: str | None, model: str) -> Admitted:
        """Accept an input. When this returns, it is stored."""
        said = InputAdmitted((Text(text),), self._platform, key)
        create = None if session is not None else SessionStarted(self._platform, model, name)
        return await self.store.admit(Admission(input=said, session=session, create=create))

    def answer(self, session: str, input: Seq, leaving: asyncio.Event) -> AsyncIterator[Event]:
        """Everything of the turn that takes an input, as it is stored, wherever it runs; here if nowhere else.

        The last event is the turn's end. Older inputs go first and are not part of it.
        """
        over = asyncio.Event()
        driving = self._drive(session, input, leaving, over)
        return self._turn(session, input - 1, lambda record: _takes(record, input), driving, over)

    async def resume(self, session: str, opening: TurnStarted, leaving: asyncio.Event) -> AsyncIterator[Event]:
        """Run a turn that continues or retries, and everything of it as it is stored."""
        head = (await self.view(session)).state.head
        driving = self._native.run(session, lambda state: True, leaving, opening)
        async for event in self._turn(session, head, lambda record: record.fact == opening, driving, asyncio.Event()):
            yield event

    async def _drive(self, session: str, input: Seq, leaving: asyncio.Event, over: asyncio.Event) -> None:
        """Run the session until the input is taken care of; while somebody else runs it, wait in case they die."""
        while not (leaving.is_set() or over.is_set()):
            try:
                await self._native.run(session, lambda state: input not in state.pending, leaving)
            except SessionBusy:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), LOOK_AGAIN_S)
            else:
                return

    async def _turn(
        self,
        session: str,
        after: Seq,
        begins: Callable[[Record], bool],
        driving: Coroutine[None, None, None],
        over: asyncio.Event,
    ) -> AsyncIterator[Event]:
        """Follow a session while `driving` runs it; yield the turn that begins with a certain fact, to its end."""
        inbox: Inbox = asyncio.Queue(INBOX_MAX)
        driver = asyncio.create_task(_report(driving, inbox))
        pump = asyncio.create_task(self._pump(session, after, inbox))
        turn: Seq | None = None
        try:
            while (event := await self._next(inbox, session, turn)) is not None:
                if isinstance(event, Record) and turn is None and begins(event):
                    turn = await self._turn_at(session, event)
                if turn is not None:
                    yield event
                    if isinstance(event, Record) and isinstance(event.fact, TurnEnded) and event.fact.turn == turn:
                        over.set()
                        await _settled(driver, pump, inbox)
                        return
        finally:
            for task in (driver, pump):
                task.cancel()
            await asyncio.gather(driver, pump, return_exceptions=True)

    async def _next(self, inbox: "Inbox", session: str, turn: Seq | None) -> Event | None:
        """The next event; None when none will come: we were asked to leave before the turn began."""
        while True:
            event = await inbox.get()
            if isinstance(event, BaseException):
                raise event
            if event is not None:
                return event
            if turn is None and (await self.view(session)).state.pending:
                return None

    async def _pump(self, session: str, after: Seq, inbox: "Inbox") -> None:
        try:
            async for event in self.store.follow(session, Cursor(after)):
                await inbox.put(event)
        except StoreError as error:
            await inbox.put(error)

    async def _turn_at(self, session: str, event: Record) -> Seq:
        """The turn that a fact belongs to: one it starts, or the one that was open."""
        if isinstance(event.fact, TurnStarted):
            return event.seq
        state = State()
        async for record in self._records(session):
            if record.seq >= event.seq:
                break
            state.apply(record)
        return event.seq if state.turn is None else state.turn.seq

    async def due_continuation(self, session: str) -> TurnStarted:
        cut = (await self.view(session)).state.cut_off
        if cut is None or cut.acknowledged_by is not None:
            raise NotAllowed(f"session {session!r} has no turn that was cut off; there is nothing to continue")
        return TurnStarted(Continues(cut.ended.turn.seq))

    async def failed_prompt(self, session: str) -> TurnStarted:
        """The prompt of the last turn, to be run again."""
        last = (await self.view(session)).state.last_turn
        if last is None or last.ending.outcome == "done" or not last.turn.inputs:
            raise NotAllowed(f"the last turn of session {session!r} did not fail; there is nothing to retry")
        return TurnStarted(Takes(last.turn.inputs[0]))

    # --- stopping and editing

    async def interrupt(self, session: str, input: Seq | None = None) -> Seq | None:
        """Ask the running turn to stop, if it took `input` or none is named; the turn, or None if there is none."""
        turn = (await self.view(session)).state.turn
        if turn is None or (input is not None and input not in turn.inputs):
            return None
        await self.store.add(session, [InterruptAsked(turn.seq)], key=f"interrupt:{turn.seq}")
        return turn.seq

    async def rename(self, session: str, title: str) -> None:
        await self.store.add(session, [SessionRenamed(title)])

    async def undo(self, session: str) -> Seq:
        """Take the last turn out of the model's view; the seq of the fact that says so."""
        held = await HeldSession.open(self.store, session, self._lease_ms)
        try:
            last = held.state.last_turn
            if last is None:
                raise NotAllowed(f"session {session!r} has no turn to undo")
            seq = await held.record(Rewound(last.turn.seq))
            await held.release()
            return seq
        finally:
            await held.leave()

    async def redo(self, session: str, rewind: Seq) -> None:
        held = await HeldSession.open(self.store, session, self._lease_ms)
        try:
            await held.record(RewindWithdrawn(rewind))
            await held.release()
        finally:
            await held.leave()

    # --- looking

    async def view(self, session: str) -> View:
        """A session as it stands. What a dead process left open is shown as the next one will close it."""
        view = View()
        glance = await self.store.glance(session)
        async for record in self._records(session):
            if record.seq > glance.head:
                break
            view.apply(record)
        view.owner = glance.owner
        if glance.owner is not None:
            view.transcript.show_drafts(glance.drafts)
        else:
            for seq, fact in enumerate(recover(view.state, glance.drafts), start=glance.head + 1):
                view.apply(Record(seq, 0, fact))
        return view

    async def _records(self, session: str) -> AsyncIterator[Record]:
        after = 0
        while page := await self.store.read(session, after, PAGE):
            for record in page:
                yield record
            after = page[-1].seq

    async def sessions(self, limit: int) -> list[Listed]:
        return await self.store.list(limit)

    async def resolve(self, id: str) -> str:
        """The full id for an id or the unique beginning of one."""
        try:
            await self.store.read(id, limit=1)
        except UnknownSession:
            if len(id) < PREFIX_LEN_MIN:
                raise
            found = [listed.id for listed in await self.store.list(limit=10_000) if listed.id.startswith(id)]
            if len(found) != 1:
                raise
            return found[0]
        return id

    async def delete(self, session: str, with_forks: bool) -> int:
        return await self.store.delete(session, with_forks)

    async def verify(self) -> Report:
        return await self.store.verify()

    async def backup(self, to: Path) -> None:
        await self.store.backup(to)


def _takes(event: Record, input: Seq) -> bool:
    match event.fact:
        case TurnStarted(origin=Takes(input=taken)):
            return taken == input
        case StepStarted(takes=taken_here):
            return input in taken_here
        case _:
            return False


async def _settled(driver: "asyncio.Task[None]", pump: "asyncio.Task[None]", inbox: Inbox) -> None:
    """Let the driver let go of the session. Nobody reads the inbox any more, so make room for its last word."""
    pump.cancel()
    while not inbox.empty():
        inbox.get_nowait()
    await driver


async def _report(driving: Coroutine[None, None, None], inbox: "Inbox") -> None:
    """Run something and tell how it ended: None, or what it raised."""
    try:
        await driving
    except Exception as error:  # noqa: BLE001 - whatever it is, it is raised where the events are read
        await inbox.put(error)
    else:
        await inbox.put(None)
