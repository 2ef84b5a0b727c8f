"""What comes, for the page: the same feed as /api/events, rendered.

    session   a row of the list           deleted   it is gone
    block     a block, to be put in the place of the one with its key, or before another
    text      a piece of a stream, to be put behind what is there of it: from `offset` to `end`
    queue     all inputs that wait        controls  what the session is doing
    inbox     how many calls wait         changed   deliveries, or an edit of what is further up

A reader that comes back is told blocks by their keys and text by its offset, so it does not matter
how much of a block it had. What cannot be joined on to what it has, it fetches again.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from steno.frontend.sanitize import sanitize, without_escapes
from steno.gateway.feed import BETWEEN, At, flat, joined, list_news, place
from steno.gateway.hub import Hub
from steno.gateway.page.blocks import Scene, block, queue
from steno.gateway.page.inbox import Inbox
from steno.gateway.page.layout import row
from steno.gateway.page.session import (
    FACTS_MIN,
    controls,
    fold_page,
    scene_of,
    status_of,
)
from steno.gateway.routes import Call
from steno.gateway.streams import RETRY_MS, Told, encode
from steno.journal.drafts import Stream
from steno.journal.facts import Record
from steno.service import Service
from steno.session.cursors import Place, to_print
from steno.session.page import reaches
from steno.store.errors import UnknownSession
from steno.store.protocol import Cursor, Event, Piece
from steno.tui.blocks import Answer, Block
from steno.tui.to_blocks import Folded

RECORDS_MAX = 2_000
"""Facts that are folded for one reader; then it begins again with a shorter stretch."""
CAUGHT_UP_S = 0.6
_LETTERS = {"text": "t", "reasoning": "r", "output": "o"}


class Rendering:
    """One session, for one reader. `folded` is what the reader has been shown."""

    def __init__(
        self, service: Service, session: str, cursor: Cursor, may: tuple[bool, bool]
    ):
        self.place = Place(cursor)
        self._service = service
        self._session = session
        self._may = may
        self._folded = Folded.empty()
        self._first = 1
        self._records = 0
        self._shown: dict[str, Block] = {}
        self._open = {stream.started for stream, _ in cursor.offsets}
        """Answers under way that the reader has an element for."""
        self._said: dict[str, str] = {}

    async def begin(self) -> None:
        """Fold the end of what the reader has seen."""
        page = await self._service.views.page(
            self._session, self.place.seq, FACTS_MIN
        )
        self._folded, self._first, self._records = (
            fold_page(page),
            page.first,
            len(page.records),
        )
        self._shown = {one.key: one for one in self._folded.blocks()}
        self._said = self._beside(self._scene())

    def _scene(self) -> Scene:
        return scene_of(self._session, self._folded, *self._may)

    async def told(self, event: Event) -> list[Told]:
        if isinstance(event, Piece):
            return self._piece(event.stream, event.offset, event.text)
        told = self._fact(event)
        if self._records > RECORDS_MAX:
            await self.begin()
        return told

    def _piece(self, stream: Stream, offset: int, text: str) -> list[Told]:
        at, new = self.place.piece(stream, offset, text)
        if not new:
            return []
        told: list[Told] = []
        if stream.kind != "output" and stream.started not in self._open:
            answer = Answer(f"a{stream.started}", stream.started, "", "streaming")
            told.append(self._block(answer, self._scene(), None))
        self._open.add(stream.started)
        piece: dict[str, Any] = {
            "type": "text",
            "stream": f"{stream.started}{_LETTERS[stream.kind]}",
            "offset": at,
            "end": at + len(new),
            "text": shown_text(stream, new),
        }
        return [*told, Told(piece, self.place.id())]

    def _fact(self, record: Record) -> list[Told]:
        self._folded.apply(record)
        self._records += 1
        self.place.fact(record)
        scene = self._scene()
        told: list[dict[str, Any]] = []
        blocks = self._folded.blocks()
        now = {one.key: one for one in blocks}
        told += [
            {"type": "block", "key": key, "html": "", "before": None}
            for key in self._shown.keys() - now.keys()
        ]
        after: str | None = None
        for one in reversed(
            blocks
        ):  # the last first: each stands before one that is there
            if self._shown.get(one.key) != one:
                told.append(self._block(one, scene, after).data)
            after = one.key
        self._shown = now
        self._open &= {
            step for step in (self._open_step(),) if step
        } | self._running()
        if reaches(record, self._first):
            told.append({"type": "changed", "what": "earlier"})
        said = self._beside(scene)
        told += [
            {"type": name, "html": body, "runs": status_of(self._folded).runs}
            for name, body in said.items()
            if self._said.get(name) != body
        ]
        self._said = said
        return [Told(one, self.place.id()) for one in told]

    def _open_step(self) -> int | None:
        turn = self._folded.state.turn
        return None if turn is None else turn.step

    def _running(self) -> set[int]:
        turn = self._folded.state.turn
        calls = () if turn is None else turn.calls.values()
        return {call.started for call in calls if call.started is not None}

    def _beside(self, scene: Scene) -> dict[str, str]:
        return {
            "queue": str(queue(self._folded.waiting(), scene)),
            "controls": str(controls(status_of(self._folded), scene)),
        }

    def _block(self, one: Block, scene: Scene, before: str | None) -> Told:
        data = {
            "type": "block",
            "key": one.key,
            "html": str(block(one, scene)),
            "before": before,
        }
        return Told(data, self.place.id())


def shown_text(stream: Stream, piece: str) -> str:
    """A piece as it may stand on the page: the whole is cleaned again when it is sealed."""
    if stream.kind == "output":
        piece = without_escapes(piece).replace("\r\n", "\n").replace("\r", "\n")
    return sanitize(piece)


async def session_news(
    service: Service, session: str, cursor: Cursor, may: tuple[bool, bool]
) -> AsyncIterator[list[Told]]:
    telling = Rendering(service, session, cursor, may)
    try:
        await telling.begin()
        async for event in service.views.follow(session, cursor):
            yield await telling.told(event)
    except UnknownSession:
        yield [Told({"type": "gone"}, telling.place.id())]


async def rendered_list(
    service: Service, inbox: Inbox, mark: int, now_ms: Callable[[], int]
) -> AsyncIterator[list[Told]]:
    """The news of the list, as rows."""
    async for news in list_news(service, mark):
        yield [
            Told(await _rendered(service, inbox, one.data, now_ms()), one.id)
            for one in news
        ]


async def _rendered(
    service: Service, inbox: Inbox, data: dict[str, Any], now_ms: int
) -> dict[str, Any]:
    match data["type"]:
        case "session":
            id = data["session"]["id"]
            try:
                summary = await service.views.summary(id)
            except UnknownSession:
                return {"type": "deleted", "id": id}
            return {"type": "session", "id": id, "html": str(row(summary, now_ms))}
        case "session_deleted":
            return {"type": "deleted", "id": data["session"]}
        case "approvals":
            return {"type": "inbox", "count": len(await inbox.waiting(service))}
        case "delivery":
            return {"type": "changed", "what": "deliveries"}
        case kind:
            return {"type": "changed", "what": kind}


async def page_events(
    hub: Hub, inbox: Inbox, call: Call, now_ms: Callable[[], int]
) -> AsyncIterator[bytes]:
    service, session = hub.service(), call.query.get("session") or None
    at: At = await place(service, call, session)
    ids = {"list": str(at.mark)}
    sources = {"list": rendered_list(service, inbox, at.mark, now_ms)}
    if session is not None and at.cursor is not None:
        may = (call.token.allows("write"), call.token.allows("approve"))
        ids["session"] = to_print(at.cursor)
        sources["session"] = session_news(service, session, at.cursor, may)
    hello = encode("hello", {"type": "hello"}, BETWEEN.join(ids.values()))
    yield f"retry: {RETRY_MS}\n\n".encode() + hello
    coming = joined(sources, ids)
    if call.query.get("poll") == "true":
        coming = _until_still(coming)
    async for piece in flat(coming):
        yield piece


async def _until_still(
    events: AsyncGenerator[list[bytes], None],
) -> AsyncGenerator[list[bytes], None]:
    """What there is, and an end when nothing more comes for a moment."""
    while True:
        coming = asyncio.ensure_future(anext(events))
        done, _ = await asyncio.wait({coming}, timeout=CAUGHT_UP_S)
        if not done:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
            yield [encode("still", {"type": "still"})]
            return
        try:
            yield coming.result()
        except StopAsyncIteration:
            return
