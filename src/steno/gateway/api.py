"""The routes under /api: what a person can do with sessions, over HTTP.

Bodies and objects are those of `--json` and of ndjson. An input is answered when it is stored, and
its turn belongs to the service: a client that leaves stops nothing.
"""

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from steno.gateway.cursors import BadCursor, from_print
from steno.gateway.hub import Hub
from steno.gateway.routes import (
    Answer,
    Call,
    Content,
    Json,
    Parameter,
    Problem,
    Route,
    Stream,
)
from steno.gateway.streams import RETRY_MS, Telling, encode, is_end, with_pings
from steno.journal.facts import Record, TurnEnded
from steno.journal.parts import Seq
from steno.journal.transcript import Transcript
from steno.model_choice import Terms
from steno.service import Service
from steno.service.attachments import Attachment, attachment
from steno.service.objects import Objects, approval_object, listed_object, transcript_object
from steno.store.errors import UnknownSession
from steno.store.protocol import Admitted, Cursor

LIST_MAX = 200
TEXT_CHARS_MAX = 1_000_000
BODY_BYTES_MAX = 32 << 20
WAIT_S_MAX = 600


# --- bodies ---------------------------------------------------------------------------------------


class NewSession(Struct, forbid_unknown_fields=True):
    model: str | None = None
    title: str | None = None
    name: str | None = None


class Attached(Struct, forbid_unknown_fields=True):
    """A file that goes with an input. `data` is base64."""

    name: str
    data: str


class NewInput(Struct, forbid_unknown_fields=True):
    text: str
    mode: Literal["queue", "steer"] = "queue"
    attachments: list[Attached] = []


class Title(Struct, forbid_unknown_fields=True):
    title: str


class Interrupt(Struct, forbid_unknown_fields=True):
    turn: int | None = None


class Decision(Struct, forbid_unknown_fields=True):
    decision: Literal["allow", "deny"]
    reason: str = ""


class ForkAt(Struct, forbid_unknown_fields=True):
    at: int


class RewindTo(Struct, forbid_unknown_fields=True):
    to: int | None = None
    withdraw: int | None = None


class Hide(Struct, forbid_unknown_fields=True):
    seq: int
    hidden: bool = True


class Redact(Struct, forbid_unknown_fields=True):
    seq: int


class Made(Struct):
    id: str


class Accepted(Struct):
    """`first` is false if this key was accepted before: then this is where."""

    session: str
    seq: int
    first: bool


class Asked(Struct):
    """`turn` is None if none was running."""

    turn: int | None


class Done(Struct):
    seq: int | None = None
    count: int | None = None


# --- sessions -------------------------------------------------------------------------------------


async def create_session(hub: Hub, call: Call) -> Answer:
    wanted: NewSession = call.read(NewSession)
    agents = hub.program.agents(hub.terms(None))
    model = wanted.model or agents.model_spec()
    hub.program.agents(_with_model(hub, model)).check()
    service = hub.service()
    id = await service.begin(model, wanted.name, wanted.title)
    return Json(Made(id), 201, {"Location": f"/api/sessions/{id}"})


def _with_model(hub: Hub, model: str) -> Terms:
    return replace(hub.terms(None), model=model)


async def list_sessions(hub: Hub, call: Call) -> Answer:
    limit = call.number("limit", 1, LIST_MAX, 50) or 50
    before = call.number("before", 0, 1 << 62, None)
    found = await hub.service().views.sessions(limit, before)
    wanted = [one for one in found if call.token.session in (None, one.listed.id)]
    mark = found[-1].listed.mark if len(found) == limit else None
    return Json({"sessions": [listed_object(one) for one in wanted], "next": mark})


async def show_session(hub: Hub, call: Call) -> Answer:
    service, id = hub.service(), call.parameters["id"]
    loaded, shown = await service.views.shown(id)
    context = loaded.state.context
    most = hub.program.agents(hub.terms(None)).context_max("" if context is None else context.model)
    return Json(transcript_object(loaded, shown, most))


async def rename_session(hub: Hub, call: Call) -> Answer:
    wanted: Title = call.read(Title)
    await hub.service().edits.rename(call.parameters["id"], wanted.title)
    return Json(Done())


async def delete_session(hub: Hub, call: Call) -> Answer:
    with_forks = call.query.get("with_forks") == "true"
    return Json(Done(count=await hub.service().delete(call.parameters["id"], with_forks)))


async def fork_session(hub: Hub, call: Call) -> Answer:
    wanted: ForkAt = call.read(ForkAt)
    id = await hub.service().edits.fork(call.parameters["id"], wanted.at)
    return Json(Made(id), 201, {"Location": f"/api/sessions/{id}"})


async def undo(hub: Hub, call: Call) -> Answer:
    _, seq = await hub.service().edits.undo(call.parameters["id"])
    return Json(Done(seq))


async def rewind(hub: Hub, call: Call) -> Answer:
    wanted: RewindTo = call.read(RewindTo)
    edits, id = hub.service().edits, call.parameters["id"]
    if (wanted.to is None) == (wanted.withdraw is None):
        raise Problem(400, "bad_body", "Say either `to` or `withdraw`.")
    if wanted.to is not None:
        return Json(Done(await edits.rewind(id, wanted.to)))
    await edits.redo(id, wanted.withdraw or 0)
    return Json(Done())


async def hide(hub: Hub, call: Call) -> Answer:
    wanted: Hide = call.read(Hide)
    await hub.service().edits.hide(call.parameters["id"], wanted.seq, wanted.hidden)
    return Json(Done())


async def redact(hub: Hub, call: Call) -> Answer:
    wanted: Redact = call.read(Redact)
    await hub.service().edits.redact(call.parameters["id"], wanted.seq)
    return Json(Done(wanted.seq))


async def compact(hub: Hub, call: Call) -> Answer:
    id = call.parameters["id"]
    await hub.service(id).edits.compact(id, hub.leaving)
    return Json(Done())


async def export(hub: Hub, call: Call) -> Answer:
    service, id = hub.service(), call.parameters["id"]
    await service.views.load(id)
    if call.query.get("format") == "markdown":
        return Stream(service.transfers.markdown(id), "text/markdown; charset=utf-8")
    return Stream(service.transfers.export(id), "application/x-ndjson")


def _refuse_draining(hub: Hub) -> None:
    """To run something again is no fact until it runs, so a service that stops cannot accept it."""
    if hub.draining.is_set():
        raise Problem(503, "stopping", "The service is stopping; ask again.", {"Retry-After": "1"})


async def retry(hub: Hub, call: Call) -> Answer:
    id = call.parameters["id"]
    _refuse_draining(hub)
    service = hub.service(id)
    hub.wake(id, await service.turns.retry(await service.views.load(id)))
    return Json(Done(), 202)


async def go_on(hub: Hub, call: Call) -> Answer:
    id = call.parameters["id"]
    _refuse_draining(hub)
    service = hub.service(id)
    hub.wake(id, service.turns.continuation(await service.views.load(id)))
    return Json(Done(), 202)


# --- inputs and turns -----------------------------------------------------------------------------


async def admit(hub: Hub, call: Call) -> Answer:
    wanted: NewInput = call.read(NewInput)
    id = call.parameters["id"]
    if len(wanted.text) > TEXT_CHARS_MAX:
        raise Problem(413, "too_large", f"The text may have {TEXT_CHARS_MAX} characters at most.")
    service = hub.service(id)
    wait_s = call.number("wait", 0, WAIT_S_MAX, None)
    admitted = await asyncio.shield(
        service.admit(
            wanted.text,
            id,
            None,
            call.headers.get("idempotency-key"),
            "",
            wanted.mode,
            [_attachment(one) for one in wanted.attachments],
        )
    )
    if admitted.session != id:
        raise Problem(409, "key_reused", "This key was used before, for another session.")
    await hub.admitted(id)
    accepted = Accepted(admitted.session, admitted.seq, admitted.first)
    if wait_s is None:
        return Json(accepted, 202)
    ending = await _wait(hub, service, admitted, wait_s)
    return Json(accepted, 202) if ending is None else Json(ending)


def _attachment(one: Attached) -> Attachment:
    try:
        return attachment(one.name, base64.b64decode(one.data, validate=True))
    except binascii.Error as error:
        raise Problem(400, "bad_body", f"attachment {one.name[:80]!r} is not base64") from error


async def _wait(hub: Hub, service: Service, admitted: Admitted, wait_s: int) -> Any:
    """The finished turn, if it ends in time."""
    try:
        async with asyncio.timeout(wait_s):
            events = service.turns.follow(admitted.session, admitted.seq, hub.draining)
            async with aclosing(events) as turn:
                async for event in turn:
                    if isinstance(event, Record) and isinstance(event.fact, TurnEnded):
                        return await _finished(service, admitted, event.fact)
    except TimeoutError:
        return None
    return None


async def _finished(service: Service, admitted: Admitted, ended: TurnEnded) -> dict[str, Any]:
    loaded, shown = await service.views.shown(admitted.session)
    whole = transcript_object(loaded, shown, 0)
    said = [one for one in whole["messages"] if one["turn"] == ended.turn]
    answers = [one["text"] for one in said if one["role"] == "assistant"]
    return {
        "session": admitted.session,
        "seq": admitted.seq,
        "first": admitted.first,
        "turn": {
            "id": ended.turn,
            "outcome": ended.outcome,
            "cause": ended.cause,
            "detail": ended.detail,
        },
        "text": "".join(answers),
        "messages": said,
    }


async def withdraw(hub: Hub, call: Call) -> Answer:
    await hub.service().withdraw(call.parameters["id"], int(call.parameters["seq"]))
    return Json(Done())


async def interrupt(hub: Hub, call: Call) -> Answer:
    wanted: Interrupt = call.read(Interrupt)
    turn = await hub.service().turns.interrupt(call.parameters["id"], turn=wanted.turn)
    return Json(Asked(turn), 202)


# --- approvals ------------------------------------------------------------------------------------


async def approvals(hub: Hub, call: Call) -> Answer:
    waiting = await hub.service().approvals.pending(call.token.session)
    return Json({"approvals": [{"session": one.session} | approval_object(one) for one in waiting]})


async def decide(hub: Hub, call: Call) -> Answer:
    wanted: Decision = call.read(Decision)
    id, seq = call.parameters["id"], int(call.parameters["seq"])
    service = hub.service(id)
    first = await service.approvals.decide(
        id, seq, wanted.decision, by=f"http:{call.token.name}", reason=wanted.reason
    )
    hub.wake(id)
    if not first:
        raise Problem(409, "decided", "This was decided before; nothing was changed.")
    return Json(Done(seq))


async def usage(hub: Hub, call: Call) -> Answer:
    limit = call.number("limit", 1, LIST_MAX, LIST_MAX) or LIST_MAX
    found = await hub.service().views.sessions(limit)
    rows = [listed_object(one) for one in found if call.token.session in (None, one.listed.id)]
    return Json(
        {
            "sessions": [
                {"id": row["id"], "model": row["model"], "usage": row["usage"]} for row in rows
            ]
        }
    )


# --- streams --------------------------------------------------------------------------------------


async def session_events(hub: Hub, call: Call) -> Answer:
    return Stream(_events(hub, call, None))


async def turn_events(hub: Hub, call: Call) -> Answer:
    turn, id = int(call.parameters["turn"]), call.parameters["id"]
    cursor = await _cursor(hub, call)
    ended = await hub.service().views.end_of(id, turn)
    if ended is not None and cursor.seq >= ended:
        return Content(b"", "text/event-stream", 204)
    return Stream(_events(hub, call, turn))


async def _events(hub: Hub, call: Call, turn: Seq | None) -> AsyncIterator[bytes]:
    """A session from a cursor on, for ever; or one turn of it, to its end."""
    service, id = hub.service(), call.parameters["id"]
    cursor = await _cursor(hub, call)
    glance = await service.views.glance(id)
    hello = {
        "type": "hello",
        "session": id,
        "head": glance.head,
        "running": glance.owner is not None,
    }
    yield f"retry: {RETRY_MS}\n\n".encode() + encode("hello", hello)
    transcript, objects = Transcript(), Objects()
    for record in await service.views.recent(id, cursor.seq):
        transcript.apply(record)
        objects.of(record)
    telling = Telling(cursor, transcript, objects)
    after = cursor if turn is None or cursor.seq >= turn else Cursor(turn - 1)

    async def told() -> AsyncIterator[list[bytes]]:
        try:
            async for event in service.views.follow(id, after):
                yield telling.tell(event)
                if turn is not None and is_end(event, turn):
                    return
        except UnknownSession:
            yield [encode("gone", {"type": "gone", "session": id})]

    async with aclosing(with_pings(told(), hub.draining)) as pieces:  # type: ignore[type-var]
        async for piece in pieces:
            yield piece


async def _cursor(hub: Hub, call: Call) -> Cursor:
    """Where a reader goes on: as the last event that it saw says, or the query."""
    text = call.headers.get("last-event-id") or call.query.get("after") or "0"
    head = (await hub.service().views.glance(call.parameters["id"])).head
    if text == "now":
        return Cursor(head)
    try:
        cursor = from_print(text)
    except BadCursor as error:
        raise Problem(400, "bad_cursor", str(error)) from error
    if cursor.seq > head:
        raise Problem(
            409, "cursor_ahead", f"The cursor is ahead of the session, whose last fact is {head}."
        )
    return cursor


# --- the table ------------------------------------------------------------------------------------

_ID = "/api/sessions/{id}"
_EVENTS = "text/event-stream"
_AFTER = (
    Parameter("after", "A cursor, `now`, or 0 for everything"),
    Parameter("Last-Event-ID", "The id of the last event that was seen", "header"),
)
_PAGE = (
    Parameter("limit", f"How many, up to {LIST_MAX}", kind="integer"),
    Parameter("before", "The `next` of the page before", kind="integer"),
)
_KEY = Parameter("Idempotency-Key", "The same key is accepted once, for ever", "header")

ROUTES = (
    Route(
        "GET",
        "/api/sessions",
        "read",
        "List sessions",
        list_sessions,
        {200: dict},
        parameters=_PAGE,
    ),
    Route(
        "POST",
        "/api/sessions",
        "write",
        "Create a session",
        create_session,
        {201: Made},
        NewSession,
    ),
    Route("GET", _ID, "read", "Show a session", show_session, {200: dict}),
    Route("PATCH", _ID, "write", "Rename a session", rename_session, {200: Done}, Title),
    Route(
        "DELETE",
        _ID,
        "admin",
        "Delete a session",
        delete_session,
        {200: Done},
        parameters=(Parameter("with_forks", "Also its forks", kind="boolean"),),
    ),
    Route(
        "POST",
        f"{_ID}/fork",
        "write",
        "Fork a session at a message",
        fork_session,
        {201: Made},
        ForkAt,
    ),
    Route("POST", f"{_ID}/undo", "write", "Undo the last turn", undo, {200: Done}),
    Route(
        "POST", f"{_ID}/rewind", "write", "Rewind, or take that back", rewind, {200: Done}, RewindTo
    ),
    Route("POST", f"{_ID}/hide", "write", "Hide a message from the model", hide, {200: Done}, Hide),
    Route(
        "POST",
        f"{_ID}/redact",
        "admin",
        "Remove the text of a message",
        redact,
        {200: Done},
        Redact,
    ),
    Route("POST", f"{_ID}/compact", "write", "Summarise the older part", compact, {200: Done}),
    Route("POST", f"{_ID}/retry", "write", "Run the last prompt again", retry, {202: Done}),
    Route(
        "POST", f"{_ID}/continue", "write", "Continue a turn that was cut off", go_on, {202: Done}
    ),
    Route(
        "GET",
        f"{_ID}/export",
        "read",
        "Export a session",
        export,
        {200: "application/x-ndjson"},
        parameters=(Parameter("format", "`markdown` for people"),),
    ),
    Route(
        "POST",
        f"{_ID}/inputs",
        "write",
        "Say something",
        admit,
        {200: dict, 202: Accepted},
        NewInput,
        (_KEY, Parameter("wait", "Seconds to wait for the finished turn", kind="integer")),
        BODY_BYTES_MAX,
    ),
    Route(
        "DELETE",
        f"{_ID}/inputs/{{seq}}",
        "write",
        "Withdraw an input that waits",
        withdraw,
        {200: Done},
    ),
    Route("POST", f"{_ID}/interrupt", "write", "Stop a turn", interrupt, {202: Asked}, Interrupt),
    Route(
        "GET",
        f"{_ID}/events",
        "read",
        "Follow a session",
        session_events,
        {200: _EVENTS},
        parameters=_AFTER,
    ),
    Route(
        "GET",
        f"{_ID}/turns/{{turn}}/events",
        "read",
        "Follow one turn to its end",
        turn_events,
        {200: _EVENTS, 204: None},
        parameters=_AFTER,
    ),
    Route(
        "GET", "/api/approvals", "read", "List calls that wait for approval", approvals, {200: dict}
    ),
    Route(
        "POST",
        "/api/approvals/{id}/{seq}",
        "approve",
        "Decide about a call",
        decide,
        {200: Done},
        Decision,
    ),
    Route("GET", "/api/usage", "read", "Usage by session", usage, {200: dict}),
)
