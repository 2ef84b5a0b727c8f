"""Looking at sessions. Nothing is stored by looking: what a dead process left open is closed in
memory."""

import contextlib
from collections.abc import AsyncIterator

from msgspec import Struct
from msgspec.structs import replace

from steno.engine import tokens
from steno.engine.ending import last_turn
from steno.engine.recover import recover, waits_for_approval
from steno.journal.drafts import Draft
from steno.journal.facts import (
    ApprovalAsked,
    ApprovalDecided,
    Compacted,
    ContextSet,
    Distilled,
    GoalSet,
    HelperEnded,
    InputAdmitted,
    Record,
    RuleSet,
    SessionEnded,
    SessionRenamed,
    StepLost,
    StepStarted,
    ThreadBound,
    TurnEnded,
    TurnStarted,
)
from steno.journal.history import History
from steno.journal.listing import ListingRow
from steno.journal.parts import GONE, Seq
from steno.journal.state import State
from steno.journal.transcript import Message, Transcript
from steno.journal.turns import Turns
from steno.journal.usage import UsageTotal
from steno.runtimes.holding import context_of
from steno.service.pages import FACTS, Page, page
from steno.store.errors import UnknownSession
from steno.store.protocol import Listed, Store
from steno.tools.delegate import parent_in
from steno.tools.output import unfold

PAGE = 1_000
TAIL = 16
PREFIX_LEN_MIN = 4
LIKE_MAX = 1_000

TURN_EDGES = (TurnStarted, TurnEnded)


class Approval(Struct, frozen=True):
    """A call that a person was asked about and that has not run. `seq` is where it was first asked,
    `why` the reason that was told, if there was one."""

    session: str
    seq: Seq
    call: str
    tool: str
    arguments: str
    since_ms: int
    decision: str | None
    why: str = ""


class Thread(Struct):
    """A thread that an external runtime keeps of the session: it was told nothing more from the
    fact `until` on."""

    runtime: str
    id: str
    until: Seq | None = None


class View:
    """A session as a person sees it. `ends` are where turns ended; `summaries` stand for everything
    up to a seq; `models` were chosen from a seq on, `asked` got the requests; `said_of` are the
    rules and goals that facts hold, `beside` the titles, reasons and details: text that is no
    message. `threads` are all that it ever had. `delegated_by` is whose helper works in it."""

    def __init__(self) -> None:
        self.state = State()
        self.transcript = Transcript()
        self.turns = Turns()
        self.usage = UsageTotal()
        self.history = History()
        self.owner: str | None = None
        self.asked_ms: dict[Seq, int] = {}
        self.ends: dict[Seq, Seq] = {}
        self.summaries: dict[Seq, Seq] = {}
        self.distillates: dict[Seq, Distilled] = {}
        self.models: dict[Seq, str] = {}
        self.asked: dict[Seq, str] = {}
        self.said_of: dict[Seq, str] = {}
        self.beside: dict[Seq, str] = {}
        self.threads: list[Thread] = []
        self.delegated_by: str | None = None

    def apply(self, record: Record) -> None:
        for fold in (self.state, self.transcript, self.turns, self.usage, self.history):
            fold.apply(record)
        for thread in self.threads:
            if thread.until is None and not self.state.knows_all(thread.runtime, thread.id):
                thread.until = record.seq
        match record.fact:
            case ThreadBound(runtime=runtime, thread=id):
                self.threads.append(Thread(runtime, id))
            case InputAdmitted():
                self.delegated_by = self.delegated_by or parent_in(record.fact)
            case ApprovalAsked(reason=text):
                self.asked_ms[record.seq] = record.at_ms
                self.beside[record.seq] = text
            case StepStarted(model=model):
                self.asked[record.seq] = model
            case ContextSet():
                self.models[record.seq] = record.fact.own_model
                if record.fact.goal:
                    self.said_of[record.seq] = record.fact.goal
            case TurnEnded(turn=turn, detail=text):
                self.ends[turn] = record.seq
                self.beside[record.seq] = text
            case StepLost(step=at, detail=text):
                self.beside[at] = text
            case (
                HelperEnded(detail=text) | ApprovalDecided(reason=text) | SessionRenamed(title=text)
            ):
                self.beside[record.seq] = text
            case Compacted(upto=upto, summary=text) if text != GONE:
                self.summaries[record.seq] = upto
            case Distilled():
                self.distillates[record.seq] = record.fact
            case RuleSet(rule=text) | GoalSet(goal=text):
                self.said_of[record.seq] = text
            case _:
                pass

    def waits(self) -> bool:
        """Whether a person must decide about a call before the open turn goes on."""
        return self.state.turn is not None and waits_for_approval(self.state.turn)

    def message(self, seq: Seq) -> Message | None:
        return next((message for message in self.transcript.messages if message.seq == seq), None)

    def context(self) -> ContextSet | None:
        """What shaped the last request; before the first one, the model that the session was begun
        with."""
        return context_of(self.state)

    def context_tokens(self) -> int | None:
        """How long the next request will be, about; None before anything was asked."""
        return None if self.history.context is None else tokens.of_request(self.history)


class Summary(Struct, frozen=True):
    """A session in a list, as `View` would have it. `waits`: for a person's approval."""

    listed: Listed
    waits: bool


class Tail(Struct, frozen=True):
    """The end of a session, of one moment: its last page, the text being streamed, its row for
    lists and who runs it. `closing` is what will close a turn that a dead process left open: it is
    shown, and stored by the next runner."""

    page: Page
    head: Seq
    drafts: tuple[Draft, ...]
    row: ListingRow
    owner: str | None
    closing: tuple[Record, ...]


class Views:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def view(self, session: str) -> View:
        """A session as it stands. What a dead process left open is shown as the next one will close
        it."""
        while True:
            view, head = await self._view(session)
            killed = await self._killed(view.state.attending)
            if (
                not killed or (await self._store.glance(session)).head == head
            ):  # else they left in order meanwhile
                break
        for ended in killed:
            view.apply(Record(view.state.head + 1, 0, ended))
        return view

    async def _view(self, session: str) -> tuple[View, Seq]:
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
        return view, glance.head

    async def whole(self, session: str) -> View:
        """A session as it stands, with the long outputs of its tools in full."""
        view = await self.view(session)
        await unfold(view.transcript.messages, self._store.get)
        return view

    async def tail(self, session: str, upto: Seq) -> State:
        """What is open at a fact, folded from the last fact up to it that began or ended a turn."""
        return _folded(await self._tail(session, upto))

    async def now(self, session: str) -> State:
        """What is open in a session as it stands, without reading all of it."""
        glance = await self._store.glance(session)
        state = await self.tail(session, glance.head)
        if glance.owner is None:
            for seq, fact in enumerate(recover(state, glance.drafts), start=glance.head + 1):
                state.apply(Record(seq, 0, fact))
        return state

    async def end(self, session: str, facts_min: int = FACTS) -> Tail:
        """The end of a session as it stands. What is before it is read with `before`."""
        glance = await self._store.glance(session)
        last = await page(self._store, session, glance.head, facts_min)
        closing: tuple[Record, ...] = ()
        if glance.owner is None:
            facts = recover(_folded([*last.waited, *last.records]), glance.drafts)
            closing = tuple(
                Record(seq, 0, fact) for seq, fact in enumerate(facts, start=glance.head + 1)
            )
        return Tail(last, glance.head, glance.drafts, glance.row, glance.owner, closing)

    async def before(self, session: str, later: Page, facts_min: int = FACTS) -> Page | None:
        """The page before a page; None if that is the first."""
        return (
            None
            if later.first <= 1
            else await page(self._store, session, later.first - 1, facts_min)
        )

    async def owner(self, session: str) -> str | None:
        """Who runs a session."""
        return await self._store.running(session)

    async def approvals(self, session: str) -> list[Approval]:
        """The calls of a session that a person was asked about and that have not run."""
        records = await self._tail(session, (await self._store.glance(session)).head)
        asked_ms = {
            record.seq: record.at_ms for record in records if isinstance(record.fact, ApprovalAsked)
        }
        return approvals_of(session, _folded(records), asked_ms)

    async def ids(self) -> AsyncIterator[str]:
        page = await self._store.list(PAGE)
        while page:
            for listed in page:
                yield listed.id
            page = await self._store.list(PAGE, before=page[-1].mark)

    async def sessions(self, limit: int, before: int | None = None) -> list[Summary]:
        """The latest first, each as it stands: as `view` has it. `before` is the mark of the last
        one that is known."""
        found = []
        for listed in await self._store.list(limit, before):
            with contextlib.suppress(UnknownSession):  # deleted since
                found.append(await self._as_it_stands(listed))
        return found

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
            found = [known async for known in self.ids() if known.startswith(id)]
            if len(found) != 1:
                raise
            return found[0]
        return id

    async def like(self, id: str) -> list[str]:
        """Ids of the latest sessions that look like one that does not exist."""
        from difflib import get_close_matches

        ids = [listed.id for listed in await self._store.list(LIKE_MAX)]
        return get_close_matches(id, ids, n=3, cutoff=0.5)

    async def _as_it_stands(self, listed: Listed) -> Summary:
        """A row with what is not in it: what is being streamed, and what will close an open turn or
        a dead visit."""
        glance = await self._store.glance(listed.id)
        row = glance.row
        state = await self.tail(listed.id, glance.head)
        waits = state.turn is not None and waits_for_approval(state.turn)
        row.last_turn = last_turn(row, state)
        if glance.owner is not None:
            row.messages += sum(
                draft.stream.kind != "reasoning" and draft.text != "" for draft in glance.drafts
            )
        else:
            for seq, fact in enumerate(recover(state, glance.drafts), start=glance.head + 1):
                row.apply(Record(seq, row.updated_ms, fact))
        killed = await self._killed(row.owed.attending)
        if (
            killed and (await self._store.glance(listed.id)).head != glance.head
        ):  # they left in order meanwhile
            return await self._as_it_stands(listed)
        for ended in killed:
            row.apply(Record(glance.head + 1, row.updated_ms, ended))
        return Summary(replace(listed, head=glance.head, owner=glance.owner, row=row), waits)

    async def _killed(self, attending: dict[Seq, str]) -> list[SessionEnded]:
        """The ends that the next start will store, for visitors that are dead."""
        dead = [seq for seq, by in attending.items() if not await self._store.alive(by)]
        return [SessionEnded("killed", attended=seq) for seq in dead]

    async def _tail(self, session: str, upto: Seq) -> list[Record]:
        length = TAIL
        while True:
            tail = [record async for record in self._records(session, max(upto - length, 0), upto)]
            edges = (i for i in reversed(range(len(tail))) if isinstance(tail[i].fact, TURN_EDGES))
            edge = next(edges, 0 if length >= upto else None)
            if edge is not None:
                return tail[edge:]
            length *= 8

    async def _records(self, session: str, after: Seq, upto: Seq) -> AsyncIterator[Record]:
        while after < upto and (
            page := await self._store.read(session, after, min(PAGE, upto - after))
        ):
            for record in page:
                yield record
            after = page[-1].seq


def approvals_of(session: str, state: State, asked_ms: dict[Seq, int]) -> list[Approval]:
    if state.turn is None or not waits_for_approval(state.turn):
        return []
    return [
        Approval(
            session,
            call.asked[0],
            call.call.id,
            call.call.name,
            call.call.arguments,
            asked_ms.get(call.asked[0], 0),
            call.decision,
            call.why,
        )
        for call in state.turn.calls.values()
        if call.asked and call.started is None
    ]


def _folded(records: list[Record]) -> State:
    state = State()
    for record in records:
        state.apply(record)
    return state
