"""Search over a store: what the index knows, verified on the journal, and a scan of the rest.

    drafts      what is being streamed
    gap         what the feed tells that no part covers: read and matched
    part        rows that may match, read from the journal as it is now, and matched
    gap, part   ... the newest first, until there is enough or the time is over

So a result is of the moment in which it was asked for, whatever state the index is in.
"""

import heapq
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from steno.journal.facts import (
    MessageHidden,
    Record,
    SessionStarted,
    StepSealed,
    ToolSettled,
)
from steno.journal.listing import ListingRow
from steno.journal.parts import Hash, Seq, ToolCall
from steno.search import matching
from steno.search.batch import PAYLOAD, payload_text
from steno.search.documents import ROLES, Document, Role, documents
from steno.search.feed import Searched, Told, told_backwards
from steno.search.index_file import SEQ_END, IndexFile, Part, Place
from steno.search.indexer import floor, gaps
from steno.search.planner import Plan
from steno.search.query import Query
from steno.search.scope import Everything, Origins, Scope
from steno.store.errors import JournalCorrupt, UnknownSession
from steno.store.protocol import PAGE

POOL = 200
"""Of so many matches, the newest, the best are chosen."""
_FIRST_BATCH = 32
_BATCH_MAX = 512
_GAP_KNOWN_MAX = 5_000
"""A gap up to so long is gone through whole: then who hid what is known without asking."""
TOP: Place = (1 << 62, SEQ_END)
TELL_S = 0.25
"""A search that takes longer tells what it has so far, as often."""
PLACE = re.compile(r"[0-9]{1,18}\.[0-9]{1,10}\.[0-9]{1,6}")
"""What `next` looks like."""


class Hit(Struct, frozen=True, kw_only=True):
    """A message that matches. `seq` is its address in the session, as `show` numbers it; `fact` is
    the fact that holds the text. `marks` are places in `text`, `places` the same in the message as
    it is stored, in code points."""

    session: str
    seq: Seq
    fact: Seq
    at_ms: int
    role: Role
    title: str
    text: str
    marks: tuple[tuple[int, int], ...]
    places: tuple[tuple[int, int], ...]
    score: float
    streaming: bool = False


class LeftOut(Struct, frozen=True, kw_only=True):
    """What was not given, and why. `hidden`: messages that match and are hidden. `others`: sessions
    that the caller may not see. `same_session`: matches behind the best of their session.
    `unscanned`: the time was over before everything was looked at."""

    hidden: int = 0
    others: int = 0
    same_session: int = 0
    unscanned: bool = False
    damaged: int = 0


class Found(Struct, frozen=True, kw_only=True):
    """`matches` counts what was looked at; with `more`, there are more or may be. `next` asks for
    what follows. `indexed` is how much of the store the index covers, from 0 to 1. Not `done`: what
    was found so far, and the search goes on."""

    hits: tuple[Hit, ...] = ()
    matches: int = 0
    sessions: int = 0
    more: bool = False
    next: str | None = None
    left_out: LeftOut = LeftOut()
    notes: tuple[str, ...] = ()
    indexed: float = 1.0
    took_ms: float = 0.0
    done: bool = True


Order = Literal["best", "newest"]


class Asked(Struct, frozen=True, kw_only=True):
    """What is asked, by whom, and how much of it. `all`: every match, not the best one of each
    session. `before`: the `next` of an earlier answer."""

    query: Query
    limit: int = 20
    all: bool = False
    order: Order = "best"
    before: str | None = None
    scope: Scope = Everything()
    time_limit_s: float = 20.0
    now_ms: int = 0


class Match(Struct):
    place: Place
    session: str
    fact: Seq
    at_ms: int
    role: Role
    address: Seq
    text: matching.Folded
    streaming: bool = False
    score: float = 0.0


class _Late(Exception):
    """The time is over, or the answer is not wanted any more."""


class Watch(Struct, frozen=True):
    """Whom a search tells what it has so far, and when it is to stop."""

    tell: Callable[[Found], None] | None = None
    stopped: Callable[[], bool] = lambda: False


UNWATCHED = Watch()


class Searching:
    """One search. `file` is None where there is no index; it is at one moment all along."""

    def __init__(
        self,
        store: Searched,
        file: IndexFile | None,
        asked: Asked,
        origins: Origins,
        watch: Watch,
    ) -> None:
        self._store = store
        self._file = file
        self._asked = asked
        self._query = asked.query
        self._origins = origins
        self._watch = watch
        self._began = self._told_s = time.monotonic()
        self._deadline = self._began + asked.time_limit_s
        self._found: list[Match] = []
        self._told = 0
        self._parts = [] if file is None else file.parts()
        self._floor = floor(store)
        self._gaps: list[tuple[Place, Place]] = []
        self._gap_facts: dict[Place, list[Told]] = {}
        self._ids: dict[int, str | None] = {}
        self._verdicts: dict[str, bool] = {}
        self._rows: dict[str, ListingRow | None] = {}
        self._hides: dict[tuple[str, Seq], tuple[Seq, bool]] = {}
        self._tool_names: dict[tuple[str, Seq], dict[str, str]] = {}
        self._payloads: dict[Hash, matching.Folded | None] = {}
        self._hides_known = False
        self._any_hidden: bool | None = None
        self._planned: Plan | None = None
        self._reached: Place | None = None
        self._hidden = 0
        self._damaged = 0
        self._unscanned = False

    # --- the answer

    def run(self) -> Found:
        asked = self._asked
        upper, skipped = _cursor(asked.before)
        wanted = asked.limit if asked.order == "newest" and asked.all else POOL
        more = False
        seen: set[tuple[str, Seq]] = set()
        try:
            for match in self._stream(upper):
                key = match.session, match.address
                if key in seen or self._is_hidden(match):
                    continue
                if len(self._found) == wanted:
                    more = True
                    break
                seen.add(key)
                self._found.append(match)
        except _Late:
            self._unscanned = more = True
        ranked = self._ranked(self._found)
        return replace(
            self._answer(ranked[skipped : skipped + asked.limit], len(ranked)),
            more=more,
            next=self._next(self._found, ranked, upper, skipped, more),
            left_out=LeftOut(
                hidden=self._hidden,
                others=self._others(),
                same_session=len(self._found) - len(ranked),
                unscanned=self._unscanned,
                damaged=self._damaged,
            ),
            done=True,
        )

    def _answer(self, shown: list[Match], ranked: int) -> Found:
        """What there is at this moment."""
        return Found(
            hits=tuple(self._hit(match) for match in shown),
            matches=len(self._found),
            sessions=len({match.session for match in self._found}),
            more=True,
            left_out=LeftOut(
                hidden=self._hidden, same_session=len(self._found) - ranked
            ),
            notes=self._query.notes,
            indexed=self._share(),
            took_ms=(time.monotonic() - self._began) * 1000,
            done=False,
        )

    def _tell(self, tell: Callable[[Found], None]) -> None:
        """What was found so far, if that is more than the last time."""
        _, skipped = _cursor(self._asked.before)
        if len(self._found) > self._told:
            self._told = len(self._found)
            ranked = self._ranked(self._found)
            shown = ranked[skipped : skipped + self._asked.limit]
            tell(self._answer(shown, len(ranked)))
        self._told_s = time.monotonic()

    def _ranked(self, found: list[Match]) -> list[Match]:
        asked = self._asked
        if asked.order == "best":
            for match in found:
                age_ms = asked.now_ms - match.at_ms
                match.score = matching.score(
                    self._query, match.text, match.role, age_ms
                )
            found = sorted(found, key=lambda match: match.score, reverse=True)
        if asked.all:
            return found
        best: dict[str, Match] = {}
        for match in found:
            best.setdefault(match.session, match)
        return list(best.values())

    def _next(
        self,
        found: list[Match],
        ranked: list[Match],
        upper: Place,
        skipped: int,
        more: bool,
    ) -> str | None:
        """The same pool of matches from further on, or the pool that follows."""
        if skipped + self._asked.limit < len(ranked):
            newest = max(match.place for match in found)
            top = min(upper, (newest[0], newest[1] + 1))
            return f"{top[0]}.{top[1]}.{skipped + self._asked.limit}"
        below = [match.place for match in found] if more else []
        if (
            self._unscanned and self._reached is not None
        ):  # one fact may have several texts
            below.append(min((self._reached[0], self._reached[1] + 1), upper))
        if not below:
            return None
        oldest = min(below)
        return f"{oldest[0]}.{oldest[1]}.0"

    def _hit(self, match: Match) -> Hit:
        row = self._row(match.session)
        shown = matching.snippet(self._query, match.text.raw)
        return Hit(
            session=match.session,
            seq=match.address,
            fact=match.fact,
            at_ms=match.at_ms,
            role=match.role,
            title="" if row is None else row.title,
            text=shown.text,
            marks=shown.marks,
            places=shown.places,
            score=round(match.score, 4),
            streaming=match.streaming,
        )

    # --- everything that matches, the newest first

    def _stream(self, upper: Place) -> Iterator[Match]:
        if self._query.sessions:
            yield from self._in_sessions(upper)
            return
        drafts = list(self._drafts()) if upper == TOP else []
        top = (self._store.changes(None).mark, SEQ_END)
        self._gaps = gaps(self._parts, self._floor, top)
        self._look_at_gaps()
        yield from drafts
        carried = self._carried()
        stream = heapq.merge(
            self._by_place(upper),
            carried,
            key=lambda match: match.place,
            reverse=True,
        )
        for match in stream:
            if match.place < upper:
                yield match

    def _by_place(self, upper: Place) -> Iterator[Match]:
        for segment in self._segments():
            if isinstance(segment, Part):
                if segment.begin < upper:
                    yield from self._in_part(segment, upper)
            elif segment[0] < upper:
                yield from self._in_gap(segment[0], min(segment[1], upper))

    def _segments(self) -> Iterator[Part | tuple[Place, Place]]:
        both: list[tuple[Place, Part | tuple[Place, Place]]] = [
            (gap[0], gap) for gap in self._gaps
        ]
        both += [(part.begin, part) for part in self._parts]
        for _, segment in sorted(both, key=lambda one: one[0], reverse=True):
            yield segment

    def _drafts(self) -> Iterator[Match]:
        for session in self._store.streaming():
            if not self._sees(session):
                continue
            with suppress(UnknownSession):
                for draft in self._store.drafts(session):
                    role: Role = (
                        "tool" if draft.stream.kind == "output" else "assistant"
                    )
                    if (
                        draft.stream.kind == "reasoning"
                        or role not in self._query.roles
                    ):
                        continue
                    record = Record(
                        draft.stream.started, self._asked.now_ms, _NOTHING
                    )
                    said = Document(role, draft.stream.started, draft.text)
                    match = self._tested(
                        (1 << 61, draft.stream.started), session, record, said
                    )
                    if match is not None:
                        match.streaming = True
                        yield match

    def _in_gap(self, begin: Place, end: Place) -> Iterator[Match]:
        known = self._gap_facts.get(begin)
        batches = (
            told_backwards(self._store, begin, end)
            if known is None
            else iter([known])
        )
        for batch in batches:
            self._check_time()
            for one in batch:
                if self._sees(one.session):
                    yield from self._of_record(one.place, one.session, one.record)
                self._reached = one.place

    def _of_record(
        self, place: Place, session: str, record: Record
    ) -> Iterator[Match]:
        for document in documents(record):
            if document.role in self._query.roles:
                match = self._tested(place, session, record, document)
                if match is not None:
                    yield match

    def _in_part(self, part: Part, upper: Place) -> Iterator[Match]:
        query, file = self._query, self._file
        if file is None or (
            query.before_ms is not None and part.at_min >= query.before_ms
        ):
            return
        if query.after_ms is not None and part.at_max < query.after_ms:
            return
        below = 1 << 62
        if upper < part.end:
            row = file.one(
                f"select min(id) from d{part.n} where (mark, seq) >= (?, ?)", *upper
            )
            below = below if row is None else int(row)
        ids = self._plan().candidates(file, part.n, below)
        size = _FIRST_BATCH
        self._check_time()
        while batch := _some(ids, size):
            self._check_time()
            yield from self._verified(part, batch)
            size = min(2 * size, _BATCH_MAX)
        self._reached = part.begin

    def _verified(self, part: Part, ids: list[int]) -> Iterator[Match]:
        """Read what may match from the journal, and match it."""
        rows: list[tuple[Place, str, Seq, int]] = []
        places: dict[str, list[Seq]] = {}
        for n, seq, role, mark in self._looked_up(part, ids):
            if role == PAYLOAD or ROLES[role] not in self._query.roles:
                continue
            session = self._id(n)
            if session is not None and self._sees(session):
                rows.append(((mark, seq), session, seq, role))
                places.setdefault(session, []).append(seq)
        records = self._read(places)
        for place, session, seq, role in rows:
            record = records.get((session, seq))
            for document in documents(record) if record is not None else ():
                if document.role == ROLES[role] and document.payload is None:
                    match = self._tested(place, session, record, document)  # type: ignore[arg-type]
                    if match is not None:
                        yield match
            self._reached = place

    def _read(self, places: dict[str, list[Seq]]) -> dict[tuple[str, Seq], Record]:
        """From the journal as it is now. Where it is damaged, what can be read is."""
        try:
            return self._store.facts_at(places)
        except JournalCorrupt:
            found: dict[tuple[str, Seq], Record] = {}
            for session, seqs in places.items():
                for seq in seqs:
                    try:
                        found |= self._store.facts_at({session: [seq]})
                    except JournalCorrupt:
                        self._damaged += 1
            return found

    def _looked_up(
        self, part: Part, ids: list[int]
    ) -> list[tuple[int, int, int, int]]:
        """Session, seq, role and mark of rows, in the order of the ids."""
        if self._file is None:
            return []
        numbers = ",".join(map(str, ids))
        columns = "session, seq, role, mark"
        return self._file.rows(
            f"select {columns} from d{part.n} where id in ({numbers}) order by id desc"
        )

    def _carried(self) -> list[Match]:
        """Matches in payloads, at the places of all facts that name them."""
        if self._file is None or "tool" not in self._query.roles:
            return []
        found: list[Match] = []
        for n, hash in self._payload_rows():
            self._check_time()
            if not self._payload_matches(hash):
                continue
            rows = self._file.rows(
                "select session, seq, mark from carries where payload = ?", n
            )
            for number, seq, mark in rows:
                session = self._id(number)
                if session is None or not self._sees(session):
                    continue
                record = self._read({session: [seq]}).get((session, seq))
                for document in documents(record) if record is not None else ():
                    if document.payload == hash:
                        match = self._tested((mark, seq), session, record, document)  # type: ignore[arg-type]
                        found += [] if match is None else [match]
        return sorted(found, key=lambda match: match.place, reverse=True)

    def _payload_rows(self) -> list[tuple[int, Hash]]:
        """The payloads that may match: by the index, and those that are in no part."""
        if self._file is None:
            return []
        found = self._file.rows("select n, hash from payloads where part is null")
        for part in self._parts:
            if not self._file.one(
                "select 1 from payloads where part = ? limit 1", part.n
            ):
                continue
            ids = self._plan().candidates(self._file, part.n, 1 << 62)
            while batch := _some(ids, _BATCH_MAX):
                numbers = [
                    n
                    for n, _, role, _ in self._looked_up(part, batch)
                    if role == PAYLOAD
                ]
                for n in numbers:
                    found += self._file.rows(
                        "select n, hash from payloads where n = ?", n
                    )
        return found

    def _payload_matches(self, hash: Hash) -> bool:
        text = self._payload(hash)
        return text is not None and matching.matches(self._query, text)

    def _payload(self, hash: Hash) -> matching.Folded | None:
        if hash not in self._payloads:
            text = payload_text(self._store, hash)
            self._payloads[hash] = None if text is None else matching.folded(text)
        return self._payloads[hash]

    def _in_sessions(self, upper: Place) -> Iterator[Match]:
        """All of some sessions, read: what a fork shares with its parents, too."""
        for session in self._named_sessions():
            if not self._sees(session):
                continue
            self._hides_known = True
            after, records = 0, list[Record]()
            while page := self._store.read(session, after, PAGE):
                self._check_time()
                records += page
                after = page[-1].seq
            for record in records:
                self._note_hidden(session, record)
            if upper == TOP:
                yield from (
                    match for match in self._drafts() if match.session == session
                )
            for record in reversed(records):
                if (record.seq, 0) < upper:
                    yield from self._of_record((record.seq, 0), session, record)

    def _named_sessions(self) -> Iterator[str]:
        """Those whose id begins as asked."""
        for name in dict.fromkeys(self._query.sessions):
            with suppress(UnknownSession):
                self._store.glance(name)
                yield name
                continue
            page = self._store.list(200)
            while page:
                yield from (one.id for one in page if one.id.startswith(name))
                page = self._store.list(200, before=page[-1].mark)

    # --- one text

    def _tested(
        self, place: Place, session: str, record: Record, document: Document
    ) -> Match | None:
        """The match, if this text is one: by what it says, when, and in what session."""
        query = self._query
        if query.after_ms is not None and record.at_ms < query.after_ms:
            return None
        if query.before_ms is not None and record.at_ms >= query.before_ms:
            return None
        if document.payload is None:
            text = matching.folded(document.text)
        elif (found := self._payload(document.payload)) is not None:
            text = found
        else:
            return None
        if not matching.matches(query, text):
            return None
        if query.about_sessions() and not self._is_about(session):
            return None
        if query.tools and not self._is_by_tool(session, record):
            return None
        if document.role == "title" and not self._is_title(session, record.seq):
            return None
        return Match(
            place,
            session,
            record.seq,
            record.at_ms,
            document.role,
            document.address,
            text,
        )

    def _is_title(self, session: str, seq: Seq) -> bool:
        """A title counts while it is the session's."""
        row = self._row(session)
        return row is not None and row.titled == seq

    def _is_about(self, session: str) -> bool:
        query, row = self._query, self._row(session)
        if row is None:
            return False
        for wanted, has in (
            (query.platforms, row.platform),
            (query.models, row.model),
            (query.titles, row.title),
            (query.folders, row.folder),
        ):
            if wanted and not all(_within(one, has) for one in wanted):
                return False
        return True

    def _is_by_tool(self, session: str, record: Record) -> bool:
        fact = record.fact
        if isinstance(fact, StepSealed):
            names = [part.name for part in fact.parts if isinstance(part, ToolCall)]
        elif isinstance(fact, ToolSettled):
            names = [self._names(session, fact.step, record.seq).get(fact.call, "")]
        else:
            names = []
        return any(
            _within(tool, name) for tool in self._query.tools for name in names
        )

    def _names(self, session: str, step: Seq, before: Seq) -> dict[str, str]:
        """The tools that an answer called, by the ids of the calls."""
        if (session, step) not in self._tool_names:
            sealed = self._store.read(session, step, before - step, ("step.sealed",))
            facts = [one.fact for one in sealed if isinstance(one.fact, StepSealed)]
            self._tool_names[session, step] = {
                part.id: part.name
                for fact in facts
                if fact.step == step
                for part in fact.parts
                if isinstance(part, ToolCall)
            }
        return self._tool_names[session, step]

    # --- what is hidden, and from whom

    def _look_at_gaps(self) -> None:
        """Learn what was hidden since the index was filled, if that is not long ago."""
        if sum(end[0] - begin[0] for begin, end in self._gaps) > _GAP_KNOWN_MAX:
            return
        for begin, end in self._gaps:
            batches = told_backwards(self._store, begin, end)
            self._gap_facts[begin] = [one for batch in batches for one in batch]
            for one in self._gap_facts[begin]:
                self._note_hidden(one.session, one.record)
        self._hides_known = True

    def _note_hidden(self, session: str, record: Record) -> None:
        if isinstance(record.fact, MessageHidden):
            key = session, record.fact.target
            if record.seq > self._hides.get(key, (0, False))[0]:
                self._hides[key] = record.seq, record.fact.hidden

    def _is_hidden(self, match: Match) -> bool:
        key = match.session, match.address
        if not self._hides_known:
            found = self._store.read(
                match.session, match.address, PAGE, ("message.hidden",)
            )
            for record in found:
                self._note_hidden(match.session, record)
        elif (
            self._file is not None and not self._query.sessions and self._file_hides()
        ):
            row = self._file.connection.execute(
                "select h.seq, h.hidden from hidden h join sessions s on s.n = h.session "
                "where s.id = ? and h.target = ?",
                key,
            ).fetchone()
            if row is not None and row[0] > self._hides.get(key, (0, False))[0]:
                self._hides[key] = row[0], bool(row[1])
        hidden = self._hides.get(key, (0, False))[1]
        self._hidden += hidden
        return hidden

    def _file_hides(self) -> bool:
        """Whether the index knows of anything hidden: mostly not, and it is asked for each hit."""
        if self._any_hidden is None and self._file is not None:
            self._any_hidden = bool(
                self._file.one("select exists (select 1 from hidden)")
            )
        return bool(self._any_hidden)

    def _sees(self, session: str) -> bool:
        scope = self._asked.scope
        if scope.all:
            return True
        if session not in self._verdicts:
            self._verdicts[session] = scope.sees(session, self._origins.of(session))
        return self._verdicts[session]

    def _others(self) -> int:
        """Sessions that the caller may not see: all of them, whatever they say."""
        if self._asked.scope.all:
            return 0
        begun = [
            (one.session, one.record.fact.platform)
            for batch in self._gap_facts.values()
            for one in batch
            if isinstance(one.record.fact, SessionStarted)
        ]
        known = (
            self._file is not None and self._hides_known and not self._query.sessions
        )
        return self._origins.unseen(
            self._asked.scope, self._file if known else None, begun
        )

    # --- small things

    def _check_time(self) -> None:
        now_s = time.monotonic()
        if now_s > self._deadline or self._watch.stopped():
            raise _Late
        if self._watch.tell is not None and now_s > self._told_s + TELL_S:
            self._tell(self._watch.tell)

    def _plan(self) -> Plan:
        if self._planned is None:
            shares = (lambda _: {}) if self._file is None else self._file.shares
            self._planned = Plan(self._query, shares)
        return self._planned

    def _id(self, n: int) -> str | None:
        if n not in self._ids and self._file is not None:
            self._ids[n] = self._file.one("select id from sessions where n = ?", n)
        return self._ids.get(n)

    def _row(self, session: str) -> ListingRow | None:
        if session not in self._rows:
            self._rows[session] = None
            with suppress(UnknownSession, JournalCorrupt):
                self._rows[session] = self._store.glance(session).row
        return self._rows[session]

    def _share(self) -> float:
        bottom, top = self._floor[0], self._store.changes(None).mark
        covered = sum(part.upto - part.after for part in self._parts)
        return 1.0 if top <= bottom else min(covered / (top - bottom), 1.0)


_NOTHING = MessageHidden(0)


def _within(wanted: str, has: str) -> bool:
    return matching.folded(wanted).first in matching.folded(has).first


def _some(ids: Iterator[int], size: int) -> list[int]:
    found: list[int] = []
    for id in ids:
        found.append(id)
        if len(found) == size:
            break
    return found


def _cursor(before: str | None) -> tuple[Place, int]:
    """Below which place to look, and how many of what is found to skip. What is no place is
    none."""
    if PLACE.fullmatch(before or "") is None:
        return TOP, 0
    mark, seq, skipped = map(int, (before or "").split("."))
    return (mark, seq), skipped
