"""The tool that finds what was said before, in any session of the store, and reads around it.

- It sees what people and the assistant said; with `in:tools` in the query also what tools gave
  back. Summaries and reasoning are not speech, and a message that a person hid or redacted is
  not found.
- A session sees the others that began where it did: see `search/scope`.
- An answer is bounded. It says what was left out, and how to ask for what follows.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

from msgspec import Meta, Struct

from steno.journal.facts import Record, ToolSpec
from steno.journal.parts import Seq
from steno.journal.transcript import Message, Transcript
from steno.store.errors import UnknownSession
from steno.tools.builtin import SEARCH_SPEC
from steno.tools.protocol import (
    BadArguments,
    Prepared,
    Reading,
    Unusable,
    decode_arguments,
)

if TYPE_CHECKING:
    from steno.search.keeper import Search
    from steno.search.searching import Found, Hit

TIME_LIMIT_S = 5.0
RESULTS_MAX = 50
QUERY_CHARS_MAX = 2_000
HIT_CHARS_MAX = 400
"""A hit takes no more: so an answer fits what a model can be told at once."""
AROUND_MESSAGES = 3
AROUND_CHARS_MAX = 8_000
_PAGE = 1_000


class ReadStore(Protocol):
    """What reading around a message needs of a store."""

    async def read(
        self, session: str, after: Seq = 0, limit: int = 1_000
    ) -> list[Record]: ...


class SearchArguments(Struct, frozen=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(min_length=1, max_length=QUERY_CHARS_MAX)] | None = (
        None
    )
    limit: Annotated[int, Meta(ge=1, le=RESULTS_MAX)] = 20
    next: Annotated[str, Meta(max_length=100)] | None = None
    all: bool = False
    session: str | None = None
    message: Annotated[int, Meta(ge=1)] | None = None


class SearchSessions:
    spec: ToolSpec = SEARCH_SPEC
    approval: Literal["none", "ask"] = "none"

    def __init__(
        self,
        search: "Callable[[], Search]",
        store: ReadStore,
        session: str,
        time_limit_s: float = TIME_LIMIT_S,
    ) -> None:
        self._search = search
        self._store = store
        self._session = session
        self._time_limit_s = time_limit_s

    async def prepare(self, arguments: str) -> Prepared:
        asked = decode_arguments(arguments, SearchArguments)
        if asked.query is None and (asked.session is None or asked.message is None):
            raise BadArguments(
                "give a `query`, or a `session` and a `message` to read around"
            )
        return Reading(lambda: self._answer(asked))

    async def _answer(self, asked: SearchArguments) -> str:
        if asked.session is not None and asked.message is not None:
            return await self._around(asked.session, asked.message, asked.query or "")
        if asked.query is None or not asked.query.strip():
            raise Unusable("`query` is empty")
        found = await asyncio.to_thread(self._find, asked, asked.query)
        return worded(found, asked.query, self._session)

    def _find(self, asked: SearchArguments, query: str) -> "Found":
        from steno.search.query import parse  # few sessions search
        from steno.search.searching import Asked

        now_ms = time.time_ns() // 1_000_000
        search = self._search()
        return search.find(
            Asked(
                query=parse(query, now_ms),
                limit=asked.limit,
                all=asked.all,
                before=asked.next,
                scope=search.scope_of(self._session),
                time_limit_s=self._time_limit_s,
                now_ms=now_ms,
            )
        )

    async def _around(self, session: str, seq: Seq, query: str) -> str:
        """A message and those around it, as far as the session that asks may see them. Of a long
        one, what stands around the match."""
        sees = await asyncio.to_thread(self._sees, session)
        messages = await self._messages(session) if sees else []
        places = [at for at, one in enumerate(messages) if one.seq == seq]
        if not places:
            raise Unusable(
                f"there is no message {seq} in a session {session!r} that you can read"
            )
        first = max(places[0] - AROUND_MESSAGES, 0)
        near = messages[first : places[0] + AROUND_MESSAGES + 1]
        room = AROUND_CHARS_MAX // 2 // len(near)
        lines = [
            f"{one.seq} {one.role}: "
            + (_place(one.text, query) if one.seq == seq else _cut(one.text, room))
            for one in near
            if not one.hidden
        ]
        left = len(messages) - len(near)
        return "\n".join(
            [*lines, f"[{len(lines)} messages of {session}; {left} others in it]"]
        )

    def _sees(self, session: str) -> bool:
        search = self._search()
        return search.scope_of(self._session).sees(session, search.origin_of(session))

    async def _messages(self, session: str) -> list[Message]:
        transcript, after = Transcript(), 0
        try:
            while records := await self._store.read(session, after, _PAGE):
                for record in records:
                    transcript.apply(record)
                after = records[-1].seq
        except UnknownSession:
            return []
        return transcript.messages


def worded(found: "Found", query: str, own: str) -> str:
    lines = [_line(hit, own) for hit in found.hits]
    count = str(len(found.hits))
    if found.matches > len(found.hits):
        count += f" of {found.matches}{' or more' if found.more else ''}"
    about = [
        f"{count} messages with {query!r} in {found.sessions} sessions",
        *found.notes,
    ]
    left = found.left_out
    if left.same_session:
        about.append(f"{left.same_session} more in the same sessions: ask with all")
    if left.hidden:
        about.append(f"{left.hidden} hidden messages are left out")
    if left.others:
        about.append(
            f"{left.others} sessions of other platforms are not searched from here"
        )
    if left.unscanned:
        about.append("the time was over before everything was looked at")
    if left.damaged:
        about.append(f"{left.damaged} messages are damaged and could not be read")
    if found.next is not None:
        about.append(f'next: "{found.next}"')
    return "\n".join([*lines, f"[{'; '.join(about)}]"])


def _line(hit: "Hit", own: str) -> str:
    day = datetime.fromtimestamp(hit.at_ms / 1000, UTC).strftime("%Y-%m-%d")
    here = ", this session" if hit.session == own else ""
    return (
        f"{hit.session} message {hit.seq} ({day}, {hit.role}{here}) {hit.title!r}\n"
        f"  {_cut(hit.text, HIT_CHARS_MAX)}"
    )


def _place(text: str, query: str) -> str:
    """As much of a message as there is room for, around where it matches."""
    if len(text) <= AROUND_CHARS_MAX // 2 or not query:
        return _cut(text, AROUND_CHARS_MAX // 2)

    from steno.search.matching import snippet
    from steno.search.query import parse

    return snippet(
        parse(query, time.time_ns() // 1_000_000), text, AROUND_CHARS_MAX // 4
    ).text


def _cut(text: str, room: int) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= room else plain[: room - 1] + "…"
