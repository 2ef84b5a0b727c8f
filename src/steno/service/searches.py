"""Finding what was said, for every front end, and reading around what was found."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from steno.journal.parts import Seq
from steno.journal.transcript import Message, Transcript
from steno.search.indexer import Progress
from steno.search.keeper import Search
from steno.search.query import Query, literal, parse
from steno.search.scope import Everything, Scope
from steno.search.searching import Asked, Found, Order, Watch
from steno.session.load import Sessions

LIMIT_MAX = 200
TIME_LIMIT_S = 20.0


class Wanted(Struct, frozen=True, kw_only=True):
    """A query as it was typed, and how much of its answer. `before`: the `next` of the page
    before. `as_text`: nothing in it means anything but itself. `session`: only there."""

    text: str
    limit: int = 20
    all: bool = False
    order: Order = "best"
    before: str | None = None
    as_text: bool = False
    session: str | None = None

    def query(self, now_ms: int) -> Query:
        query = literal(self.text) if self.as_text else parse(self.text, now_ms)
        return (
            query
            if self.session is None
            else replace(query, sessions=(self.session,))
        )


class Searches:
    def __init__(self, search: Search, sessions: Sessions) -> None:
        self._search = search
        self._sessions = sessions

    async def find(self, wanted: Wanted, scope: Scope | None = None) -> Found:
        """What is there at this moment. `scope` is what the caller may see."""
        async with aclosing(self.follow(wanted, scope)) as answers:
            return [found async for found in answers][-1]

    async def follow(
        self, wanted: Wanted, scope: Scope | None = None
    ) -> AsyncGenerator[Found]:
        """The same; of a search that takes long, also what it has so far. The last one is `done`.
        A caller that leaves ends it."""
        now_ms = time.time_ns() // 1_000_000
        asked = Asked(
            query=wanted.query(now_ms),
            limit=max(1, min(wanted.limit, LIMIT_MAX)),
            all=wanted.all,
            order=wanted.order,
            before=wanted.before,
            scope=scope or Everything(),
            time_limit_s=TIME_LIMIT_S,
            now_ms=now_ms,
        )
        if not wanted.text.strip() or asked.query.is_empty():
            yield Found(notes=asked.query.notes)
            return
        stop, told, loop = (
            threading.Event(),
            asyncio.Event(),
            asyncio.get_running_loop(),
        )
        partial: list[Found] = []

        def tell(found: Found) -> None:
            partial[:] = [found]
            loop.call_soon_threadsafe(told.set)

        search = asyncio.create_task(
            asyncio.to_thread(self._search.find, asked, Watch(tell, stop.is_set))
        )
        search.add_done_callback(lambda _: told.set())
        try:
            while not search.done():
                await told.wait()
                told.clear()
                if partial and not search.done():
                    yield partial.pop()
            yield search.result()
        finally:
            stop.set()

    async def around(
        self, session: str, seq: Seq, messages: int = 3
    ) -> list[Message]:
        """A message with some before it and some after it."""
        transcript = Transcript()
        await self._sessions.whole(session, transcript)
        places = [at for at, one in enumerate(transcript.messages) if one.seq == seq]
        if not places:
            return []
        return transcript.messages[
            max(places[0] - messages, 0) : places[0] + messages + 1
        ]

    async def progress(self) -> Progress:
        return await asyncio.to_thread(self._search.progress)

    def keep_up(self) -> None:
        """Fill the index beside everything else, while this process runs."""
        self._search.keep_up()

    @property
    def index(self) -> Search:
        return self._search


def found_object(found: Found) -> dict[str, Any]:
    """An answer as JSON."""
    return {
        "hits": [to_builtins(hit) for hit in found.hits],
        "matches": found.matches,
        "sessions": found.sessions,
        "more": found.more,
        "next": found.next,
        "left_out": to_builtins(found.left_out),
        "notes": list(found.notes),
        "indexed": round(found.indexed, 4),
        "took_ms": round(found.took_ms, 1),
    }
