"""Everything that changes, in one stream: the list of sessions, calls that wait for approval,
deliveries, and one open session beside them.

The id of an event joins two places, so that one connection resumes both:

    57               the list up to change 57
    57~~40~41t12     and the open session up to cursor 40~41t12

What is told of the list is how things stand, not what happened: a session's row, the approvals that
wait in it. So told twice is told once, and changes that follow each other are told together.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, assert_never

from msgspec import Struct

from steno.gateway.hub import Hub
from steno.gateway.routes import Answer, Call, Parameter, Problem, Route, Stream
from steno.gateway.streams import BYE, PING, RETRY_MS, Telling, Told, encode
from steno.journal.facts import (
    ApprovalAsked,
    ApprovalDecided,
    Delivered,
    DeliveryAttempted,
    DeliveryExpired,
    DeliveryOwed,
    DeliveryRefused,
    DeliverySettled,
    Record,
    TurnEnded,
)
from steno.journal.listing import QUIET
from steno.journal.transcript import Transcript
from steno.service import Service
from steno.service.objects import Objects, approval_object, listed_object
from steno.session.cursors import BadCursor, from_print, to_print
from steno.store.errors import UnknownMark, UnknownSession
from steno.store.protocol import (
    ChangePage,
    Cursor,
    FactAdded,
    FeedMark,
    SessionDeleted,
    SessionImported,
    StoreRestored,
    TextRemoved,
)

GATHER_S = 0.15
"""Changes of the list that come within this time are told together."""
BETWEEN = "~~"


class At(Struct, frozen=True):
    """Where a reader of the feed stands. `cursor` None: no session is open."""

    mark: FeedMark
    cursor: Cursor | None = None


async def place(service: Service, call: Call, session: str | None) -> At:
    """Where a reader goes on: as the last event that it saw says, or the query."""
    text = call.headers.get("last-event-id") or call.query.get("after") or "now"
    head = 0 if session is None else (await service.views.glance(session)).head
    last = await service.views.mark()
    if text == "now":
        return At(last, None if session is None else Cursor(head))
    mark, between, rest = text.partition(BETWEEN)
    try:
        if not (mark.isascii() and mark.isdigit() and len(mark) <= 18):
            raise BadCursor(f"{text[:80]!r} is not a cursor of steno")
        if bool(between) != (session is not None):
            raise BadCursor(
                "the cursor is of a stream with another session, or with none"
            )
        cursor = from_print(rest) if between else None
    except BadCursor as error:
        raise Problem(400, "bad_cursor", str(error)) from error
    if int(mark) > last or (cursor is not None and cursor.seq > head):
        raise Problem(
            409,
            "cursor_ahead",
            "The cursor is ahead of the store. Begin again at `now`.",
        )
    return At(int(mark), cursor)


# --- the list -------------------------------------------------------------------------------------


async def list_news(service: Service, mark: FeedMark) -> AsyncIterator[list[Told]]:
    try:
        async for page in service.views.news(mark, GATHER_S):
            told = await _list_told(service, page)
            yield [Told(one, str(mark)) for one in told[:-1]] + [
                Told(one, str(page.mark)) for one in told[-1:]
            ]
            mark = page.mark if told else mark
    except UnknownMark:
        yield [Told({"type": "restored"}, str(mark))]


async def _list_told(service: Service, page: ChangePage) -> list[dict[str, Any]]:
    changed: dict[str, None] = {}
    asked: dict[str, None] = {}
    told: list[dict[str, Any]] = []
    for change in page.changes:
        match change:
            case FactAdded():
                changed[change.session] = None
                if isinstance(
                    change.record.fact, ApprovalAsked | ApprovalDecided | TurnEnded
                ):
                    asked[change.session] = None
                told += _delivery(change.session, change.record)
            case SessionImported():
                changed[change.session] = None
            case SessionDeleted():
                told.append({"type": "session_deleted", "session": change.session})
            case TextRemoved():
                told.append(
                    {"type": "redacted", "session": change.session, "seq": change.seq}
                )
            case StoreRestored():
                told.append({"type": "restored"})
            case unreachable:
                assert_never(unreachable)
    for session in changed:
        with contextlib.suppress(UnknownSession):  # deleted since
            told += await _stands(service, session, session in asked)
    return told


async def _stands(
    service: Service, session: str, asked: bool
) -> list[dict[str, Any]]:
    one = await service.views.summary(session)
    told: list[dict[str, Any]] = []
    if one.listed.row.platform not in QUIET:
        told.append(
            {"type": "session", "session": listed_object(one) | {"running": one.runs}}
        )
    if asked:
        waiting = [
            approval_object(each) for each in await service.approvals.pending(session)
        ]
        told.append({"type": "approvals", "session": session, "approvals": waiting})
    return told


def _delivery(session: str, record: Record) -> list[dict[str, Any]]:
    fact, seq, state, cause = record.fact, record.seq, "owed", ""
    if isinstance(fact, DeliveryAttempted):
        seq, state = fact.owed, "sending"
    elif isinstance(fact, DeliverySettled):
        seq = fact.owed
        match fact.outcome:
            case Delivered():
                state = "delivered"
            case DeliveryExpired():
                state, cause = "expired", fact.outcome.cause
            case DeliveryRefused():
                state, cause = (
                    "refused" if fact.outcome.final else "owed",
                    fact.outcome.cause,
                )
            case unreachable:
                assert_never(unreachable)
    elif not isinstance(fact, DeliveryOwed):
        return []
    return [
        {
            "type": "delivery",
            "session": session,
            "seq": seq,
            "state": state,
            "cause": cause,
        }
    ]


# --- both in one ----------------------------------------------------------------------------------


async def session_news(
    service: Service, session: str, cursor: Cursor
) -> AsyncIterator[list[Told]]:
    transcript, objects = Transcript(), Objects()
    for record in await service.views.recent(session, cursor.seq):
        transcript.apply(record)
        objects.of(record)
    telling = Telling(cursor, transcript, objects)
    try:
        async for event in service.views.follow(session, cursor):
            yield telling.told(event)
    except UnknownSession:
        yield [Told({"type": "gone", "session": session}, telling.place.id())]


async def joined(
    sources: Mapping[str, AsyncIterator[list[Told]]], ids: dict[str, str]
) -> AsyncGenerator[list[bytes], None]:
    """What comes from several sources, as it comes. `ids` is where the reader stands in each: a
    place counts from the moment in which what leads to it goes out."""
    coming = {
        asyncio.ensure_future(anext(source)): name for name, source in sources.items()
    }
    try:
        while coming:
            done, _ = await asyncio.wait(coming, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                name = coming.pop(task)
                with contextlib.suppress(StopAsyncIteration):
                    told = task.result()
                    coming[asyncio.ensure_future(anext(sources[name]))] = name
                    yield [_encoded(one, name, ids) for one in told]
    finally:
        for task in coming:
            task.cancel()
        await asyncio.gather(*coming, return_exceptions=True)


def _encoded(one: Told, name: str, ids: dict[str, str]) -> bytes:
    ids[name] = one.id
    return encode(one.data["type"], one.data, BETWEEN.join(ids.values()))


async def events(hub: Hub, call: Call) -> Answer:
    return Stream(_events(hub, call), ping=PING, bye=BYE)


async def _events(hub: Hub, call: Call) -> AsyncIterator[bytes]:
    service, session = hub.service(), call.query.get("session")
    at = await place(service, call, session)
    hello: dict[str, Any] = {"type": "hello", "mark": at.mark}
    ids = {"list": str(at.mark)}
    sources = {"list": list_news(service, at.mark)}
    if session is not None and at.cursor is not None:
        glance = await service.views.glance(session)
        hello |= {
            "session": session,
            "head": glance.head,
            "running": glance.owner is not None,
        }
        ids["session"] = to_print(at.cursor)
        sources["session"] = session_news(service, session, at.cursor)
    yield f"retry: {RETRY_MS}\n\n".encode() + encode(
        "hello", hello, BETWEEN.join(ids.values())
    )
    async for piece in flat(joined(sources, ids)):
        yield piece


async def flat(coming: AsyncGenerator[list[bytes], None]) -> AsyncIterator[bytes]:
    """Events that come together, as one piece."""
    async with contextlib.aclosing(coming):
        async for told in coming:
            if told:
                yield b"".join(told)


ROUTES = (
    Route(
        "GET",
        "/api/events",
        "read",
        "Follow the list, approvals, deliveries, and one session",
        events,
        {200: "text/event-stream"},
        parameters=(
            Parameter("session", "The session to follow beside them"),
            Parameter("after", "The id of an event, or `now`"),
            Parameter(
                "Last-Event-ID", "The id of the last event that was seen", "header"
            ),
        ),
    ),
)
