"""The tool `search_sessions`: what was said before, by people and by the assistant, in this and
other sessions.

What must be true:

- Only inputs and answers are looked at: never notes, summaries, reasoning or the output of tools. A
  message that was hidden or redacted is not found.
- Only sessions that the caller may see: a person at a terminal sees the terminal's sessions, a chat
  sees itself. A helper sees and is seen as the session that delegated to it: delegating gives
  access to nothing more.
- The scan is bounded in time, sessions and results, and says what it left out.
"""

import time
from datetime import UTC, datetime
from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct

from steno.journal.facts import (
    InputAdmitted,
    MessageGiven,
    MessageHidden,
    Record,
    SessionStarted,
    StepSealed,
    ToolSpec,
)
from steno.journal.parts import Seq, text_of
from steno.store.errors import UnknownSession
from steno.store.protocol import Listed, list_all, read_all
from steno.tools.delegate import PLATFORM as DELEGATED
from steno.tools.delegate import parent_in
from steno.tools.protocol import Prepared, Reading, Unusable, decode_arguments

LOCAL = frozenset(("cli", "chat"))
"""Platforms of the one person who owns the store."""

TIME_LIMIT_S = 5.0
SESSIONS_MAX = 5_000
RESULTS_MAX = 50
AROUND_CHARS = 150
QUERY_CHARS_MAX = 500
_PAGE = 1_000
_LIST_PAGE = 200

SEARCH_SPEC = ToolSpec(
    name="search_sessions",
    description=(
        "Find what was said in earlier sessions, and in this one, by the user or by you. Looks "
        "for the text as it is, "
        "in any case. The latest sessions come first. The last line in brackets says what was "
        "left out."
    ),
    schema=(
        '{"type":"object","properties":{'
        '"query":{"type":"string","minLength":1,"description":"The text to look for."},'
        '"limit":{"type":"integer","minimum":1,"maximum":50,'
        '"description":"How many messages at most; 20 if absent."}'
        '},"required":["query"],"additionalProperties":false}'
    ),
    repeat="safe",
)


class SearchedStore(Protocol):
    """What a search needs of a store."""

    async def read(self, session: str, after: Seq = 0, limit: int = 1_000) -> list[Record]: ...
    async def list(self, limit: int = 50, before: int | None = None) -> list[Listed]: ...


class SearchArguments(Struct, frozen=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(min_length=1, max_length=QUERY_CHARS_MAX)]
    limit: Annotated[int, Meta(ge=1, le=RESULTS_MAX)] = 20


class Origin(Struct, frozen=True):
    session: str
    platform: str


class Hit(Struct, frozen=True):
    session: str
    title: str
    seq: Seq
    at_ms: int
    role: Literal["user", "assistant"]
    text: str


class Scan(Struct):
    """`unseen` counts matches that were not kept, `foreign` sessions that are not the caller's to
    see. `ended` says why the scan stopped before the end, if it did."""

    hits: list[Hit] = []
    sessions: int = 0
    unseen: int = 0
    foreign: int = 0
    ended: str = ""


class SearchSessions:
    spec: ToolSpec = SEARCH_SPEC
    approval: Literal["none", "ask"] = "none"

    def __init__(
        self, store: SearchedStore, session: str, time_limit_s: float = TIME_LIMIT_S
    ) -> None:
        self._store = store
        self._session = session
        self._time_limit_s = time_limit_s

    async def prepare(self, arguments: str) -> Prepared:
        asked = decode_arguments(arguments, SearchArguments)
        return Reading(lambda: self._search(asked))

    async def _search(self, asked: SearchArguments) -> str:
        if not asked.query.strip():
            raise Unusable("`query` is empty")
        return worded(await self.scan(asked.query, asked.limit), asked.query, self._session)

    async def scan(self, query: str, limit: int) -> Scan:
        found, wanted = Scan(), query.casefold()
        deadline = time.monotonic() + self._time_limit_s
        own = await self._origin(self._session)
        async for listed in list_all(self._store, _LIST_PAGE):
            if not await self._may_see(own, listed):
                found.foreign += 1
            elif time.monotonic() > deadline:
                found.ended = (
                    f"older sessions were not looked at: {self._time_limit_s:g} s were over"
                )
                break
            elif found.sessions == SESSIONS_MAX:
                found.ended = f"sessions before the latest {SESSIONS_MAX} were not looked at"
                break
            else:
                await self._look(listed, wanted, limit, found)
        return found

    async def _look(self, listed: Listed, wanted: str, limit: int, found: Scan) -> None:
        """Take in what one session has of it."""
        try:
            hits = await self._hits(listed, wanted)
        except UnknownSession:  # deleted since it was listed
            return
        found.sessions += 1
        room = limit - len(found.hits)
        found.hits += hits[:room]
        found.unseen += len(hits[room:])

    async def _hits(self, listed: Listed, wanted: str) -> list[Hit]:
        """The matches in a session, the latest first."""
        hits: list[Hit] = []
        hidden: set[Seq] = set()
        async for record in read_all(self._store, listed.id):
            fact = record.fact
            if isinstance(fact, MessageHidden):
                (hidden.add if fact.hidden else hidden.discard)(fact.target)
            elif isinstance(fact, MessageGiven) and fact.role != "tool":
                hits += _hit(listed, record, record.seq, fact.role, text_of(fact.parts), wanted)
            elif isinstance(fact, InputAdmitted):
                hits += _hit(listed, record, record.seq, "user", text_of(fact.parts), wanted)
            elif isinstance(fact, StepSealed):
                said = text_of(fact.parts)
                hits += _hit(listed, record, fact.step, "assistant", said, wanted)
        return [hit for hit in reversed(hits) if hit.seq not in hidden]

    async def _may_see(self, own: Origin, listed: Listed) -> bool:
        if listed.id == self._session:
            return True
        origin = Origin(listed.id, listed.row.platform)
        if origin.platform == DELEGATED:
            origin = await self._origin(listed.id)
        return origin.session == own.session or {own.platform, origin.platform} <= LOCAL

    async def _origin(self, session: str) -> Origin:
        """Where a session began; of a helper's, where the session that delegated to it did."""
        begun = await self._began(session)
        if begun.platform != DELEGATED:
            return begun
        facts = [record.fact for record in await self._store.read(session, 0, _PAGE)]
        parents = (parent_in(fact) for fact in facts if isinstance(fact, InputAdmitted))
        parent = next(parents, None)
        return begun if parent is None else await self._began(parent)

    async def _began(self, session: str) -> Origin:
        try:
            first = (await self._store.read(session, 0, 1))[0].fact
        except UnknownSession:  # deleted since
            return Origin(session, "")
        return Origin(session, first.platform if isinstance(first, SessionStarted) else "")


def _hit(
    listed: Listed,
    record: Record,
    seq: Seq,
    role: Literal["user", "assistant"],
    text: str,
    wanted: str,
) -> list[Hit]:
    at = text.casefold().find(wanted)
    if at < 0:
        return []
    # Folding can make a text longer; then the place is only about right.
    start, end = max(at - AROUND_CHARS, 0), at + len(wanted) + AROUND_CHARS
    shown = f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"
    return [Hit(listed.id, listed.row.title, seq, record.at_ms, role, " ".join(shown.split()))]


def worded(found: Scan, query: str, own: str) -> str:
    lines = []
    for hit in found.hits:
        day = datetime.fromtimestamp(hit.at_ms / 1000, UTC).strftime("%Y-%m-%d")
        here = ", this session" if hit.session == own else ""
        lines.append(
            f"{hit.session} message {hit.seq} ({day}, {hit.role}{here}) {hit.title!r}\n  {hit.text}"
        )
    count = (
        f"{len(found.hits)} of {len(found.hits) + found.unseen}"
        if found.unseen
        else str(len(found.hits))
    )
    about = [f"{count} messages with {query!r} in {found.sessions} sessions"]
    if found.foreign:
        about.append(f"{found.foreign} sessions of other platforms are not searched from here")
    if found.ended:
        about.append(found.ended)
    lines.append(f"[{'; '.join(about)}]")
    return "\n".join(lines)
