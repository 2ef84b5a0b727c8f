"""Looking at sessions. Nothing is stored by looking: what a dead process left open is closed in
memory."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from steno.engine import tokens
from steno.engine.recover import waits_for_approval
from steno.engine.visit_end import last_turn
from steno.journal.facts import (
    ApprovalAsked,
    Distilled,
    InputAdmitted,
    Record,
    StepStarted,
    ToolSettled,
    TurnEnded,
)
from steno.journal.history import History
from steno.journal.listing import QUIET, UNSPOKEN, ListingRow, parent_in
from steno.journal.parts import Content, File, Image, Seq
from steno.journal.state import State
from steno.journal.transcript import Message, Transcript, outcome_text
from steno.journal.turns import Turns
from steno.journal.usage import UsageTotal
from steno.session import page as pages
from steno.session.errors import NoSuch
from steno.session.load import (
    Fold,
    Loaded,
    Sessions,
    closing_of,
    folded,
    look,
    tail,
    tail_records,
)
from steno.session.page import FACTS, Page, Tail
from steno.store.errors import UnknownSession
from steno.store.protocol import (
    PAGE,
    ChangePage,
    Cursor,
    Event,
    FeedMark,
    Glance,
    Listed,
    list_all,
    read_all,
)

PREFIX_LEN_MIN = 4
LIKE_MAX = 1_000
LOOKED_AT_MAX = 5_000
"""Rows that one question with a filter looks at."""
USAGE_FACTS = (
    "step.sealed",
    "step.lost",
    "usage.reported",
    "helper.ended",
    "compacted",
)
IN_FOLDER_LOOKED_MAX = 20_000
"""How many sessions are looked through for those of one folder, those that changed last."""


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

    def in_a_line(self) -> str:
        """The call, with the reason that came with the question."""
        import json  # only questions need it; most commands ask none

        reason = (
            f" because {json.dumps(self.why, ensure_ascii=False)}" if self.why else ""
        )
        return f"{self.tool} {self.arguments}{reason}"


class Shown:
    """All that is shown of a session; its `transcript` is folded beside it. `asked` are the models
    that got the requests, `asked_ms` is when a person was asked about a call, `delegated_by` the
    session that began this one."""

    def __init__(self) -> None:
        self.transcript = Transcript()
        self.turns = Turns()
        self.usage = UsageTotal()
        self.history = History()
        self.asked: dict[Seq, str] = {}
        self.asked_ms: dict[Seq, int] = {}
        self.distillates: dict[Seq, Distilled] = {}
        self.delegated_by: str | None = None

    def apply(self, record: Record) -> None:
        for fold in (self.turns, self.usage, self.history):
            fold.apply(record)
        fact = record.fact
        if isinstance(fact, InputAdmitted):
            self.delegated_by = self.delegated_by or parent_in(fact)
        elif isinstance(fact, ApprovalAsked):
            self.asked_ms[record.seq] = record.at_ms
        elif isinstance(fact, StepStarted):
            self.asked[record.seq] = fact.model
        elif isinstance(fact, Distilled):
            self.distillates[record.seq] = fact

    def context_tokens(self) -> int | None:
        """How long the next request will be, about; None before anything was asked."""
        return (
            None if self.history.context is None else tokens.of_request(self.history)
        )


class Summary(Struct, frozen=True):
    """A session in a list, as it stands. `waits`: for a person's approval. `runs`: a turn of it is
    under way."""

    listed: Listed
    waits: bool
    runs: bool


class Views:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._store = sessions.store

    async def load(self, session: str) -> Loaded:
        return await self._sessions.load(session)

    async def state(self, session: str) -> State:
        """The state of a session as it stands."""
        return (await self._sessions.load(session)).state

    async def folder(self, session: str) -> str:
        """The folder that a session belongs to; "" if to none. Nothing of it is folded for that."""
        return (await self._store.glance(session)).row.folder

    async def whole(self, session: str, *folds: Fold) -> Loaded:
        """A session as it stands, with folds of all of it."""
        return await self._sessions.whole(session, *folds)

    async def shown(self, session: str) -> tuple[Loaded, Shown]:
        """All of a session, with the long outputs of its tools in full."""
        shown = Shown()
        loaded = await self._sessions.whole(session, shown.transcript, shown)
        await self._unfold(shown.transcript.messages)
        return loaded, shown

    async def glance(self, session: str) -> Glance:
        """What is under way in a session, of one moment."""
        return await self._store.glance(session)

    def follow(self, session: str, cursor: Cursor) -> AsyncIterator[Event]:
        """What is stored after a cursor, and then what comes. It goes on for ever, unless the
        session is deleted."""
        return self._store.follow(session, cursor)

    async def recent(self, session: str, upto: Seq) -> list[Record]:
        """The facts up to one, from the last beginning or end of a turn before it."""
        return await tail_records(self._store, session, upto)

    async def end_of(self, session: str, turn: Seq) -> Seq | None:
        """The fact that ended a turn; None if there is none yet."""
        async for record in read_all(self._store, session, turn - 1):
            if isinstance(record.fact, TurnEnded) and record.fact.turn == turn:
                return record.seq
        return None

    async def claim(
        self, limit: int, full: Sequence[str], anew: bool
    ) -> list[Listed]:
        """Sessions in which there is something to run."""
        return await self._store.claim(limit, full, anew)

    async def put_back(self, session: str, waits_for: str | None = None) -> None:
        """A session that was claimed is not run here."""
        await self._store.put_back(session, waits_for)

    async def end(self, session: str, facts_min: int = FACTS) -> Tail:
        return await pages.end(self._store, session, facts_min)

    async def before(self, session: str, later: Page) -> Page | None:
        return await pages.before(self._store, session, later)

    async def page(self, session: str, upto: Seq, facts_min: int = FACTS) -> Page:
        """The whole turns that end with a fact."""
        return await pages.page(self._store, session, upto, facts_min)

    async def reaching(self, session: str, first: Seq) -> list[Record]:
        """The facts from one on that change what is shown of messages before it."""
        found: list[Record] = []
        after = first - 1
        while True:
            records = await self._store.read(session, after, PAGE, pages.REACHING)
            found += [record for record in records if pages.reaches(record, first)]
            if len(records) < PAGE:
                return found
            after = records[-1].seq

    async def message(self, session: str, seq: Seq) -> Message:
        """One message in full."""
        transcript = Transcript()
        async for record in read_all(self._store, session, seq - 1):
            transcript.apply(record)
            found = [message for message in transcript.messages if message.seq == seq]
            if found:
                await self._unfold(found)
                return found[0]
        raise NoSuch("message", seq, session)

    async def attachment(
        self, session: str, seq: Seq, n: int
    ) -> tuple[Image | File, bytes]:
        """What came with the input, or the outcome of a tool, that a fact holds: the n-th."""
        records = await self._store.read(session, seq - 1, 1)
        found = [part for record in records for part in attachments_in(record)][
            n : n + 1
        ]
        if not found:
            raise NoSuch("attachment", seq, session)
        return found[0], await self._store.get(found[0].hash)

    async def spent(self, listed: Listed, with_starts: bool = False) -> list[Record]:
        """The facts of a session of its own that say what calls of models cost; and those that say
        which model was called."""
        return await self.spent_in(listed.id, listed.row, with_starts)

    async def spent_in(
        self, session: str, row: ListingRow, with_starts: bool = False
    ) -> list[Record]:
        pages = self.spent_since(session, row, 0, with_starts)
        return [record async for page in pages for record in page]

    async def spent_since(
        self, session: str, row: ListingRow, after: Seq, with_starts: bool = False
    ) -> AsyncIterator[list[Record]]:
        """The same, of the session's own facts after a seq, page by page."""
        kinds = (
            (*USAGE_FACTS, "step.started", "helper.started")
            if with_starts
            else USAGE_FACTS
        )
        forked_from = row.forked_from
        after = max(after, 0 if forked_from is None else forked_from.seq)
        while True:
            records = await self._store.read(session, after, PAGE, kinds)
            yield records
            if len(records) < PAGE:
                return
            after = records[-1].seq

    async def since(self, at_ms: int, limit: int) -> list[Listed]:
        """The sessions that changed since a time, the latest first. Lists are in the order in which
        sessions came to the store, so one that was imported stands before later ones."""
        found: list[Listed] = []
        async for listed in list_all(self._store):
            if len(found) == limit:
                break
            if listed.row.updated_ms >= at_ms:
                found.append(listed)
        return sorted(found, key=lambda one: -one.row.updated_ms)

    async def older(self, before_ms: int) -> list[Listed]:
        """The sessions in which nothing happened since a time and nothing runs or waits, the oldest
        first."""
        found = [
            listed
            async for listed in list_all(self._store)
            if listed.row.updated_ms < before_ms and listed.owner is None
        ]
        return sorted(found, key=lambda one: one.row.updated_ms)

    async def owner(self, session: str) -> str | None:
        """Who runs a session."""
        return await self._store.running(session)

    async def approvals(self, session: str) -> list[Approval]:
        """The calls of a session that a person was asked about and that have not run."""
        head = (await self._store.glance(session)).head
        records = await tail_records(self._store, session, head)
        asked_ms = {
            record.seq: record.at_ms
            for record in records
            if isinstance(record.fact, ApprovalAsked)
        }
        return approvals_of(session, folded(records), asked_ms)

    async def sessions(
        self,
        limit: int,
        before: int | None = None,
        all: bool = False,
        folder: str = "",
    ) -> list[Summary]:
        """The latest first, each as it stands. `before` is the mark of the last one that is known.
        With `all`, also those that are for one request; with `folder`, only those that belong to it
        or to none."""
        found = []
        for listed in await self._listed(limit, before, all, folder):
            with contextlib.suppress(UnknownSession):  # deleted since
                found.append(await self._as_it_stands(listed))
        return found

    async def summary(self, session: str) -> Summary:
        """One session as lists show it."""
        glance = await self._store.glance(session)
        return await self._looked_at(
            Listed(session, glance.head, 0, glance.owner, glance.row)
        )

    async def matching(
        self, keep: Callable[[Listed], bool], limit: int, before: int | None = None
    ) -> tuple[list[Summary], int | None]:
        """The latest first, those that are to be kept; and the mark to go on before, None at the
        end. So many rows are looked at together that fewer may be found than were asked for."""
        found: list[Summary] = []
        for _ in range(LOOKED_AT_MAX // PAGE):
            page = await self._store.list(PAGE, before)
            for listed in page:
                before = listed.mark
                if listed.row.platform not in UNSPOKEN and keep(listed):
                    with contextlib.suppress(UnknownSession):  # deleted since
                        found.append(await self._as_it_stands(listed))
                if len(found) == limit:
                    return found, before
            if len(page) < PAGE:
                return found, None
        return found, before

    async def titled(self, text: str, limit: int) -> list[Summary]:
        """The latest sessions whose title has this text in it, in small or large letters."""
        wanted, found = text.casefold(), []
        async for listed in list_all(self._store):
            if (
                listed.row.platform not in QUIET
                and wanted in listed.row.title.casefold()
            ):
                with contextlib.suppress(UnknownSession):  # deleted since
                    found.append(await self._as_it_stands(listed))
            if len(found) == limit:
                break
        return found

    async def _unfold(self, messages: list[Message]) -> None:
        """Long output of tools, whole."""
        if any(message.role == "tool" for message in messages):
            from steno.tools.output import unfold

            await unfold(messages, self._store.get)

    async def mark(self) -> FeedMark:
        """The place of the last change of any session."""
        return (await self._store.changes(None)).mark

    async def changes(self, after: FeedMark) -> ChangePage:
        return await self._store.changes(after)

    async def news(
        self, after: FeedMark, gather_s: float
    ) -> AsyncIterator[ChangePage]:
        """What changes in any session after a mark, for ever. Changes that follow each other within
        `gather_s` come together."""
        from asyncio import sleep

        async with contextlib.aclosing(self._store.follow_changes(after)) as changes:
            async for change in changes:
                if change.mark <= after:
                    continue
                await sleep(gather_s)
                page = await self._store.changes(after)
                after = page.mark
                yield page

    async def _listed(
        self, limit: int, before: int | None, all: bool = False, folder: str = ""
    ) -> list[Listed]:
        found: list[Listed] = []
        size, looked = limit, 0
        while len(found) < limit and (page := await self._store.list(size, before)):
            hidden = UNSPOKEN if all else QUIET
            found += [
                one
                for one in page
                if one.row.platform not in hidden
                and (not folder or one.row.folder in ("", folder))
            ]
            looked += len(page)
            if folder and looked >= IN_FOLDER_LOOKED_MAX:
                break
            before, size = page[-1].mark, max(size, PAGE)
        return found[:limit]

    async def latest(self, folder: str = "") -> str | None:
        """The session that changed last; with `folder`, of those that belong to it or to none."""
        found = await self._listed(1, None, folder=folder)
        return found[0].id if found else None

    async def records(
        self, session: str, after: Seq = 0, upto: Seq | None = None
    ) -> AsyncIterator[Record]:
        """The facts after a seq that are stored by now."""
        async for record in read_all(self._store, session, after, upto):
            yield record

    async def facts(self, session: str, seq: Seq, limit: int = 1) -> list[Record]:
        """Some facts from one on."""
        return await self._store.read(session, seq - 1, limit)

    async def resolve(self, id: str) -> str:
        """The full id for an id or the unique beginning of one."""
        try:
            await self._store.read(id, limit=1)
        except UnknownSession:
            if len(id) < PREFIX_LEN_MIN:
                raise
            found = [
                one.id async for one in list_all(self._store) if one.id.startswith(id)
            ]
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
        return (
            Summary(listed, False, False)
            if _rests(listed)
            else await self._looked_at(listed)
        )

    async def _looked_at(self, listed: Listed) -> Summary:
        """A row with what is not in it: what is being streamed, and what will close an open turn or
        a dead visit."""
        glance, killed = await look(self._store, listed.id)
        row = glance.row
        state = await tail(self._store, listed.id, glance.head)
        waits = state.turn is not None and waits_for_approval(state.turn)
        row.last_turn = last_turn(row, state)
        if glance.owner is not None:
            row.messages += sum(
                draft.stream.kind != "reasoning" and draft.text != ""
                for draft in glance.drafts
            )
        for record in closing_of(glance, state, killed):
            row.apply(replace(record, at_ms=row.updated_ms))
        runs = glance.owner is not None and state.turn is not None
        found = replace(listed, head=glance.head, owner=glance.owner, row=row)
        return Summary(found, waits, runs)


def _rests(listed: Listed) -> bool:
    """Whether the row says all there is: nothing runs, and nothing is to be closed. A fork may have
    been cut off in the middle of a turn."""
    row = listed.row
    left_open = listed.orphaned or row.open > 0 or row.owed.attending
    return listed.owner is None and not left_open and row.forked_from is None


def attachments_in(record: Record) -> list[Image | File]:
    fact = record.fact
    parts: tuple[Content, ...] = ()
    if isinstance(fact, InputAdmitted):
        parts = fact.parts
    elif isinstance(fact, ToolSettled):
        parts = outcome_text(fact.outcome)
    return [part for part in parts if isinstance(part, Image | File)]


def approvals_of(
    session: str, state: State, asked_ms: dict[Seq, int]
) -> list[Approval]:
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
