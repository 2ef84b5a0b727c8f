"""What a person can do with sessions, for every front end: the only way from a front end to the store.

Misused   what was asked means nothing; nothing was stored; say what would
"""

import asyncio
import contextlib
import difflib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from steno.engine.recover import recover, waits_for_approval
from steno.journal.facts import (
    ApprovalDecided,
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
from steno.journal.turns import Turns
from steno.journal.usage import UsageTotal
from steno.runtimes.held import HeldSession
from steno.runtimes.native import Native
from steno.store.errors import KeyReused, LeaseLost, NotAllowed, SessionBusy, StoreError, UnknownSession
from steno.store.protocol import Admission, Admitted, Cursor, Event, Listed, Report, Store

LOOK_AGAIN_S = 0.2
PAGE = 1_000
TAIL = 16
INBOX_MAX = 1_000
PREFIX_LEN_MIN = 4
LIKE_MAX = 1_000

TURN_EDGES = (SessionStarted, TurnStarted, TurnEnded)

Inbox = asyncio.Queue[Event | BaseException | None]


class Misused(Exception):
    pass


class View:
    """A session as a person sees it."""

    def __init__(self) -> None:
        self.state = State()
        self.transcript = Transcript()
        self.turns = Turns()
        self.usage = UsageTotal()
        self.owner: str | None = None

    def apply(self, record: Record) -> None:
        self.state.apply(record)
        self.transcript.apply(record)
        self.turns.apply(record)
        self.usage.apply(record)

    def waits(self) -> bool:
        """Whether a person must decide about a call before the open turn goes on."""
        return self.state.turn is not None and waits_for_approval(self.state.turn)


class Summary(Struct, frozen=True):
    """A session in a list, as `View` would have it. `waits`: for a person's approval."""

    listed: Listed
    waits: bool


class _Wanted(Struct, frozen=True):
    """What to show of a session: from the fact after `after` with which it `begins`, to the end of that turn. Turns in
    `continued` were taken up by a later one, so their end is not the end. `input` is what waits until it begins."""

    session: str
    after: Seq
    begins: Callable[[Record], bool]
    input: Seq | None = None
    continued: frozenset[Seq] = frozenset()


class Service:
    def __init__(self, store: Store, native: Native, platform: str, lease_ms: int) -> None:
        self._store = store
        self._native = native
        self._platform = platform
        self._lease_ms = lease_ms

    async def close(self) -> None:
        await self._store.close()

    # --- saying and answering

    async def admit(
        self,
        text: str,
        session: str | None,
        name: str | None,
        key: str | None,
        model: str,
        mode: Literal["queue", "steer"] = "queue",
    ) -> Admitted:
        """Accept an input. When this returns, it is stored."""
        if not text.strip():
            raise Misused("the prompt is empty; nothing was stored")
        if name is not None and not name.strip():
            raise Misused("the name of a session is empty; nothing was stored")
        if key == "":
            raise Misused("the id of an input is empty; nothing was stored")
        said = InputAdmitted((Text(text),), self._platform, key, mode=mode)
        create = None if session is not None else SessionStarted(self._platform, model, name)
        return await self._store.admit(Admission(input=said, session=session, create=create))

    async def answer(self, admitted: Admitted, leaving: asyncio.Event) -> AsyncIterator[Event]:
        """Everything of the turn that takes an input, as it is stored, wherever it runs; here if nowhere else.

        The last event is the turn's end. Older inputs go first and are not part of it. An input that was admitted
        before gives the answer that it got last, with what took it up where it was cut off.
        """
        session, input = admitted.session, admitted.seq
        wanted = _Wanted(session, input - 1, lambda record: _takes(record, input), input)
        if not admitted.first:
            wanted = await self._answered(session, input) or wanted
        over = asyncio.Event()
        driving = self._drive(session, input, leaving, over)
        async with contextlib.aclosing(self._turn(wanted, driving, leaving, over)) as events:
            async for event in events:
                yield event

    async def resume(self, session: str, opening: TurnStarted, leaving: asyncio.Event) -> AsyncIterator[Event]:
        """Run a turn that continues or retries, and everything of it as it is stored."""
        head = (await self.view(session)).state.head
        wanted = _Wanted(session, head, lambda record: record.fact == opening)
        driving = self._native.run(session, lambda state: True, leaving, opening)
        async with contextlib.aclosing(self._turn(wanted, driving, leaving, asyncio.Event())) as events:
            async for event in events:
                yield event

    async def _answered(self, session: str, input: Seq) -> _Wanted | None:
        """Where the last answer to an input is, if a turn took it."""
        places = (await self.view(session)).turns.answer_to(input)
        if not places:
            return None
        turns = [await self._turn_at(session, place) for place in places]
        return _Wanted(
            session, places[0] - 1, lambda record: record.seq in places, input, continued=frozenset(turns[:-1])
        )

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
        self, wanted: _Wanted, driving: Coroutine[None, None, None], leaving: asyncio.Event, over: asyncio.Event
    ) -> AsyncGenerator[Event, None]:
        """Follow a session while `driving` runs it; yield what is wanted, to its end."""
        inbox: Inbox = asyncio.Queue(INBOX_MAX)
        driver = asyncio.create_task(_report(driving, inbox))
        pump = asyncio.create_task(self._pump(wanted, inbox))
        turn: Seq | None = None
        try:
            while (event := await self._next(inbox, wanted, leaving)) is not None:
                if isinstance(event, Record) and turn is None and wanted.begins(event):
                    turn = await self._turn_at(wanted.session, event.seq)
                if turn is None:
                    continue
                ended = isinstance(event, Record) and isinstance(event.fact, TurnEnded) and event.fact.turn == turn
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

    async def _next(self, inbox: "Inbox", wanted: _Wanted, leaving: asyncio.Event) -> Event | None:
        """The next event; None when none will come."""
        while True:
            event = await inbox.get()
            if isinstance(event, LeaseLost):
                await self._store.glance(wanted.session)  # says so if the session was deleted
            if isinstance(event, BaseException):
                raise event
            if event is not None:
                return event
            if await self._left(wanted, leaving):
                return None

    async def _left(self, wanted: _Wanted, leaving: asyncio.Event) -> bool:
        """Whether we let go before the end: the input still waits, or the turn is somebody else's to finish."""
        if wanted.input in (await self.view(wanted.session)).state.pending:
            return True
        head = (await self._store.glance(wanted.session)).head
        return leaving.is_set() and (await self._tail(wanted.session, head)).turn is not None

    async def _pump(self, wanted: _Wanted, inbox: "Inbox") -> None:
        try:
            async for event in self._store.follow(wanted.session, Cursor(wanted.after)):
                await inbox.put(event)
        except StoreError as error:
            await inbox.put(error)

    async def _turn_at(self, session: str, seq: Seq) -> Seq:
        """The turn that a fact belongs to: one it starts, or the one that was open."""
        state = await self._tail(session, seq)
        return seq if state.turn is None else state.turn.seq

    async def due_continuation(self, session: str) -> TurnStarted:
        view = await self._at_rest(session)
        cut = view.state.cut_off
        if cut is None or cut.acknowledged_by is not None:
            raise NotAllowed(f"session {session!r} has no turn that was cut off; there is nothing to continue")
        if cut.ended.turn.seq in view.turns.undone():
            raise NotAllowed(f"the turn of session {session!r} that was cut off is undone; take the undo back first")
        return TurnStarted(Continues(cut.ended.turn.seq))

    async def failed_prompt(self, session: str) -> TurnStarted:
        """The prompt of the last turn, or of the turn that this one took up, to be run again."""
        view = await self._at_rest(session)
        last = view.state.last_turn
        prompt = None if last is None else view.turns.prompt(last.turn.seq)
        if last is None or prompt is None:
            raise NotAllowed(f"session {session!r} has no turn yet; there is nothing to retry")
        if last.ending.outcome == "done":
            raise NotAllowed(f"the last turn of session {session!r} was answered; there is nothing to retry")
        return TurnStarted(Takes(prompt))

    async def _at_rest(self, session: str) -> View:
        view = await self.view(session)
        if view.owner is not None:
            raise SessionBusy(session, view.owner)
        if view.state.turn is not None:
            raise NotAllowed(
                f"a turn of session {session!r} waits for approval: the next prompt to the session asks again, "
                f"steno interrupt {session} stops it"
            )
        return view

    # --- stopping and editing

    async def interrupt(self, session: str, input: Seq | None = None, turn: Seq | None = None) -> Seq | None:
        """Ask the running turn to stop, if it took `input` and is `turn`, where they are named; the turn, or None."""
        running = (await self.view(session)).state.turn
        if running is None or (input is not None and input not in running.inputs):
            return None
        if turn is not None and turn != running.seq:
            return None
        await self._store.add(session, [InterruptAsked(running.seq)], key=f"interrupt:{running.seq}")
        return running.seq

    async def decide(self, session: str, asked: Seq, decision: Literal["allow", "deny"]) -> None:
        """Say whether a call may run. The first word counts: a later one of another front end changes nothing."""
        with contextlib.suppress(KeyReused):
            await self._store.add(session, [ApprovalDecided(asked, decision, by="user")], key=f"decided:{asked}")

    async def rename(self, session: str, title: str) -> None:
        if not title.strip():
            raise Misused(f"the title is empty; session {session!r} keeps the one it has")
        await self._store.add(session, [SessionRenamed(title)])

    async def undo(self, session: str) -> tuple[Seq, Seq]:
        """Take the last turn that is not undone out of the model's view; that turn, and the fact that says so."""
        held = await HeldSession.open(self._store, session, self._lease_ms)
        try:
            turn = (await self.view(session)).turns.last_standing()
            if turn is None:
                raise NotAllowed(f"session {session!r} has no turn to undo; nothing was changed")
            seq = await held.record(Rewound(turn))
            await held.release()
            return turn, seq
        finally:
            await held.leave()

    async def redo(self, session: str, rewind: Seq) -> None:
        """Take an undo back."""
        standing = (await self.view(session)).turns.rewinds
        if rewind not in standing:
            valid = ", ".join(map(str, standing))
            there = f"those that can be taken back are {valid}" if valid else "none can be taken back"
            raise NotAllowed(f"session {session!r} has no undo {rewind}: {there}; nothing was changed")
        held = await HeldSession.open(self._store, session, self._lease_ms)
        try:
            await held.record(RewindWithdrawn(rewind))
            await held.release()
        finally:
            await held.leave()

    # --- looking

    async def view(self, session: str) -> View:
        """A session as it stands. What a dead process left open is shown as the next one will close it."""
        view = View()
        glance = await self._store.glance(session)
        async for record in self._records(session, 0, glance.head):
            view.apply(record)
        view.owner = glance.owner
        if glance.owner is not None:
            view.transcript.show_drafts(glance.drafts)
        else:
            for seq, fact in enumerate(recover(view.state, glance.drafts), start=glance.head + 1):
                view.apply(Record(seq, 0, fact))
        return view

    async def _records(self, session: str, after: Seq, upto: Seq) -> AsyncIterator[Record]:
        while after < upto and (page := await self._store.read(session, after, min(PAGE, upto - after))):
            for record in page:
                yield record
            after = page[-1].seq

    async def _tail(self, session: str, upto: Seq) -> State:
        """What is open at a fact, folded from the last fact up to it that began or ended a turn."""
        length = TAIL
        while True:
            tail = [record async for record in self._records(session, max(upto - length, 0), upto)]
            edges = (i for i in reversed(range(len(tail))) if isinstance(tail[i].fact, TURN_EDGES))
            edge = next(edges, 0 if length >= upto else None)
            if edge is not None:
                state = State()
                for record in tail[edge:]:
                    state.apply(record)
                return state
            length *= 8

    async def sessions(self, limit: int) -> list[Summary]:
        """The latest first, each as it stands: as `view` has it."""
        found = []
        for listed in await self._store.list(limit):
            with contextlib.suppress(UnknownSession):  # deleted since
                found.append(await self._as_it_stands(listed))
        return found

    async def _as_it_stands(self, listed: Listed) -> Summary:
        """A row with what is not in it: what came since, what is being streamed, what will close an open turn."""
        glance, row = await self._store.glance(listed.id), listed.row
        async for record in self._records(listed.id, listed.head, glance.head):
            row.apply(record)
        state = await self._tail(listed.id, glance.head)
        waits = state.turn is not None and waits_for_approval(state.turn)
        if glance.owner is not None:
            row.messages += sum(draft.stream.kind != "reasoning" and draft.text != "" for draft in glance.drafts)
        else:
            for seq, fact in enumerate(recover(state, glance.drafts), start=glance.head + 1):
                row.apply(Record(seq, row.updated_ms, fact))
        return Summary(replace(listed, head=glance.head, owner=glance.owner, row=row), waits)

    async def latest(self) -> str | None:
        """The session that changed last."""
        found = await self._store.list(1)
        return found[0].id if found else None

    async def resolve(self, id: str) -> str:
        """The full id for an id or the unique beginning of one."""
        try:
            await self._store.read(id, limit=1)
        except UnknownSession:
            if len(id) < PREFIX_LEN_MIN:
                raise
            found = [known async for known in self._ids() if known.startswith(id)]
            if len(found) != 1:
                raise
            return found[0]
        return id

    async def _ids(self) -> AsyncIterator[str]:
        page = await self._store.list(PAGE)
        while page:
            for listed in page:
                yield listed.id
            page = await self._store.list(PAGE, before=page[-1].mark)

    async def like(self, id: str) -> list[str]:
        """Ids of the latest sessions that look like one that does not exist."""
        ids = [listed.id for listed in await self._store.list(LIKE_MAX)]
        return difflib.get_close_matches(id, ids, n=3, cutoff=0.5)

    # --- keeping

    async def delete(self, id: str, with_forks: bool) -> int:
        """Remove a session for good; how many went. For one that is gone already, remove what a kill left of it."""
        with contextlib.suppress(UnknownSession):
            id = await self.resolve(id)
        return await self._store.delete(id, with_forks)

    async def verify(self) -> Report:
        return await self._store.verify()

    async def backup(self, to: Path) -> None:
        await self._store.backup(to)


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
