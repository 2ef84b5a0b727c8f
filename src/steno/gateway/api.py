"""The routes under /api: what a person can do with sessions, over HTTP.

Bodies and objects are those of `--json` and of ndjson. An input is answered when it is stored, and
its turn belongs to the service: a client that leaves stops nothing.
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

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
from steno.gateway.shapes import (
    ApprovalList,
    FinishedTurn,
    SessionPage,
    SessionShown,
    UsagePage,
)
from steno.gateway.streams import BYE, PING, RETRY_MS, Echo, Telling, encode, is_end
from steno.journal.facts import Record, TurnEnded
from steno.journal.listing import ONE_OFF
from steno.journal.parts import Seq
from steno.journal.transcript import Transcript
from steno.journal.usage import UsageTotal
from steno.model_choice import Terms
from steno.service import Service, Summary
from steno.service.attachments import ATTACHMENTS_MAX, Attachment, attachment
from steno.service.objects import (
    Objects,
    approval_object,
    listed_object,
    transcript_object,
    usage_object,
)
from steno.session.cursors import PATTERN, BadCursor, from_print
from steno.store.errors import UnknownSession
from steno.store.protocol import Admitted, Cursor, Listed

LIST_MAX = 200
LINE_CHARS_MAX = 1_000
REASON_CHARS_MAX = 10_000
SEQ_MAX = (1 << 32) - 1
TEXT_CHARS_MAX = 1_000_000
BODY_BYTES_MAX = 32 << 20
WAIT_S_MAX = 600
KEY_LEN_MAX = 255
MARK_MAX = 1 << 62
FORMATS = ("steno", "markdown")


# --- bodies ---------------------------------------------------------------------------------------


Line = Annotated[str, Meta(min_length=1, max_length=LINE_CHARS_MAX, pattern=r"\S")]
At = Annotated[int, Meta(ge=1, le=SEQ_MAX)]


class NewSession(Struct, forbid_unknown_fields=True):
    model: Line | None = None
    title: Line | None = None
    name: Line | None = None


class Attached(Struct, forbid_unknown_fields=True):
    """A file that goes with an input. `data` is base64."""

    name: Line
    data: str


class NewInput(Struct, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1, pattern=r"\S")]
    mode: Literal["queue", "steer"] = "queue"
    attachments: Annotated[list[Attached], Meta(max_length=ATTACHMENTS_MAX)] = []


class Change(Struct, forbid_unknown_fields=True):
    """What is not named stays. The model answers from the next request on."""

    title: Line | None = None
    model: Line | None = None


class Interrupt(Struct, forbid_unknown_fields=True):
    turn: At | None = None


class Decision(Struct, forbid_unknown_fields=True):
    decision: Literal["allow", "deny"]
    reason: Annotated[str, Meta(max_length=REASON_CHARS_MAX)] = ""


class ForkAt(Struct, forbid_unknown_fields=True):
    """`at`: a message or a turn."""

    at: At


class RewindTo(Struct, forbid_unknown_fields=True):
    """Either `to`, a message or a turn; or `withdraw`, a rewind that is to be taken back."""

    to: At | None = None
    withdraw: At | None = None


class Hide(Struct, forbid_unknown_fields=True):
    seq: At
    hidden: bool = True


class Redact(Struct, forbid_unknown_fields=True):
    seq: At


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


async def _page(
    hub: Hub, call: Call, one_off: bool = False
) -> tuple[list[Summary], int | None]:
    """The sessions that are asked for; all filters must hold. Those for one request only if they
    are asked for by their platform, or with `one_off`."""
    limit = call.number("limit", 1, LIST_MAX, 50) or 50
    before = call.number("before", -MARK_MAX, MARK_MAX, None)
    title = call.query.get("title", "").casefold()
    running, waiting = call.flag("running"), call.flag("waiting")
    same = {
        name: call.query[name]
        for name in ("platform", "model", "name")
        if name in call.query
    }

    def keep(listed: Listed) -> bool:
        row = listed.row
        return (
            call.token.session in (None, listed.id)
            and (one_off or "platform" in same or row.platform != ONE_OFF)
            and title in row.title.casefold()
            and running in (None, listed.owner is not None)
            and waiting in (None, bool(row.asked))
            and all(getattr(row, name) == value for name, value in same.items())
        )

    return await hub.service().views.matching(keep, limit, before)


async def list_sessions(hub: Hub, call: Call) -> Answer:
    found, mark = await _page(hub, call)
    return Json({"sessions": [listed_object(one) for one in found], "next": mark})


async def show_session(hub: Hub, call: Call) -> Answer:
    service, id = hub.service(), call.parameters["id"]
    loaded, shown = await service.views.shown(id)
    context = loaded.state.context
    most = hub.program.agents(hub.terms(None)).config.context_max(
        "" if context is None else context.model
    )
    return Json(transcript_object(loaded, shown, most))


async def change_session(hub: Hub, call: Call) -> Answer:
    wanted: Change = call.read(Change)
    id, edits = call.parameters["id"], hub.service().edits
    if wanted.title is None and wanted.model is None:
        raise Problem(422, "nothing_to_change", "Say `title` or `model`.")
    if wanted.model is not None:
        hub.program.agents(_with_model(hub, wanted.model)).check()
        await edits.choose_model(id, wanted.model)
    if wanted.title is not None:
        await edits.rename(id, wanted.title)
    return Json(Done())


async def delete_session(hub: Hub, call: Call) -> Answer:
    with_forks = call.flag("with_forks") or False
    return Json(
        Done(count=await hub.service().delete(call.parameters["id"], with_forks))
    )


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
        raise Problem(422, "bad_body", "Say either `to` or `withdraw`.")
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
    if call.choice("format", FORMATS) == "markdown":
        return Stream(service.transfers.markdown(id), "text/markdown; charset=utf-8")
    return Stream(service.transfers.export(id), "application/x-ndjson")


def refuse_draining(hub: Hub) -> None:
    """To run something again is no fact until it runs, so a service that stops cannot accept it."""
    if hub.draining.is_set():
        raise Problem(
            503,
            "stopping",
            "The service is stopping; ask again.",
            {"Retry-After": "1"},
        )


async def retry(hub: Hub, call: Call) -> Answer:
    id = call.parameters["id"]
    refuse_draining(hub)
    service = hub.service()
    hub.wake(id, await service.turns.retry(await service.views.load(id)))
    return Json(Done(), 202)


async def go_on(hub: Hub, call: Call) -> Answer:
    id = call.parameters["id"]
    refuse_draining(hub)
    service = hub.service()
    hub.wake(id, service.turns.continuation(await service.views.load(id)))
    return Json(Done(), 202)


# --- inputs and turns -----------------------------------------------------------------------------


async def admit(hub: Hub, call: Call) -> Answer:
    wanted: NewInput = call.read(NewInput)
    id = call.parameters["id"]
    if len(wanted.text) > TEXT_CHARS_MAX:
        raise Problem(
            413,
            "too_large",
            f"The text may have {TEXT_CHARS_MAX} characters at most.",
        )
    service = hub.service()
    key = call.headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= KEY_LEN_MAX:
        raise Problem(400, "bad_key", f"A key has 1 to {KEY_LEN_MAX} characters.")
    wait_s = call.number("wait", 0, WAIT_S_MAX, None)
    admitted = await asyncio.shield(
        service.admit(
            wanted.text,
            id,
            None,
            key,
            "",
            wanted.mode,
            [attachment_of(one) for one in wanted.attachments],
        )
    )
    if admitted.session != id:
        raise Problem(
            409, "key_reused", "This key was used before, for another session."
        )
    await hub.admitted(id)
    accepted = Accepted(admitted.session, admitted.seq, admitted.first)
    if wait_s is None:
        return Json(accepted, 202)
    ending = await _wait(hub, service, admitted, wait_s)
    return Json(accepted, 202) if ending is None else Json(ending)


def attachment_of(one: Attached) -> Attachment:
    try:
        return attachment(one.name, base64.b64decode(one.data, validate=True))
    except ValueError as error:
        raise Problem(
            422, "bad_body", f"attachment {one.name[:80]!r} is not base64"
        ) from error


async def _wait(hub: Hub, service: Service, admitted: Admitted, wait_s: int) -> Any:
    """The finished turn, if it ends in time."""
    try:
        async with asyncio.timeout(wait_s):
            events = service.turns.follow(
                admitted.session, admitted.seq, hub.draining
            )
            async with aclosing(events) as turn:
                async for event in turn:
                    if isinstance(event, Record) and isinstance(
                        event.fact, TurnEnded
                    ):
                        return await _finished(service, admitted, event.fact)
    except TimeoutError:
        return None
    return None


async def _finished(
    service: Service, admitted: Admitted, ended: TurnEnded
) -> dict[str, Any]:
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
    turn = await hub.service().turns.interrupt(
        call.parameters["id"], turn=wanted.turn
    )
    return Json(Asked(turn), 202)


# --- approvals ------------------------------------------------------------------------------------


async def approvals(hub: Hub, call: Call) -> Answer:
    waiting = await hub.service().approvals.pending(call.token.session)
    return Json(
        {
            "approvals": [
                {"session": one.session} | approval_object(one) for one in waiting
            ]
        }
    )


async def decide(hub: Hub, call: Call) -> Answer:
    wanted: Decision = call.read(Decision)
    id, seq = call.parameters["id"], int(call.parameters["seq"])
    approvals, by = hub.service().approvals, f"http:{call.token.name}"
    if (before := await approvals.decided(id, seq)) is None:
        await approvals.choose(
            id, seq
        )  # a late answer is refused, and never told as done
        if not await approvals.decide(id, seq, wanted.decision, wanted.reason, by=by):
            before = await approvals.decided(id, seq)
    if before is not None and (before.decision, before.by) != (wanted.decision, by):
        said = f"This was decided before ({before.decision}); nothing was changed."
        raise Problem(409, "decided", said)
    hub.wake(id)
    return Json(Done(seq))


async def usage(hub: Hub, call: Call) -> Answer:
    found, mark = await _page(hub, call, one_off=True)
    total = UsageTotal()
    for one in found:
        if one.listed.row.usage is not None:
            total.add(one.listed.row.usage)
    rows = [listed_object(one) for one in found]
    wanted = ("id", "model", "title", "updated_ms", "usage")
    sessions = [{name: row[name] for name in wanted} for row in rows]
    return Json({"sessions": sessions, "total": usage_object(total), "next": mark})


# --- streams --------------------------------------------------------------------------------------


async def session_events(hub: Hub, call: Call) -> Answer:
    return Stream(_events(hub, call, None), ping=PING, bye=BYE)


async def turn_events(hub: Hub, call: Call) -> Answer:
    turn, id = int(call.parameters["turn"]), call.parameters["id"]
    cursor = await _cursor(hub, call)
    ended = await hub.service().views.end_of(id, turn)
    if ended is not None and cursor.seq >= ended:
        return Content(b"", "text/event-stream", 204)
    return Stream(_events(hub, call, turn), ping=PING, bye=BYE)


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
    telling = Telling(cursor, transcript, objects, hub.echoes.setdefault(id, Echo()))
    after = cursor if turn is None or cursor.seq >= turn else Cursor(turn - 1)
    try:
        async with aclosing(service.views.follow(id, after)) as events:  # type: ignore[type-var]
            async for event in events:
                if told := telling.tell(event):
                    yield b"".join(told)
                if turn is not None and is_end(event, turn):
                    return
    except UnknownSession:
        yield encode("gone", {"type": "gone", "session": id})


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
            409,
            "cursor_ahead",
            f"The cursor is ahead of the session, whose last fact is {head}.",
        )
    return cursor


# --- the table ------------------------------------------------------------------------------------

_ID = "/api/sessions/{id}"
_EVENTS = "text/event-stream"
_AFTER = (
    Parameter(
        "after", "A cursor, `now`, or 0 for everything", pattern=f"^(now|{PATTERN})$"
    ),
    Parameter(
        "Last-Event-ID",
        "The id of the last event that was seen; it goes before `after`",
        "header",
        pattern=f"^{PATTERN}$",
    ),
)
_PAGE = (
    Parameter(
        "limit", f"How many, up to {LIST_MAX}", kind="integer", least=1, most=LIST_MAX
    ),
    Parameter(
        "before",
        "The `next` of the page before",
        kind="integer",
        least=-MARK_MAX,
        most=MARK_MAX,
    ),
    Parameter("title", "Whose title has this text in it"),
    Parameter("running", "That run, or that do not", kind="boolean"),
    Parameter(
        "waiting", "In which a call waits for approval, or none does", kind="boolean"
    ),
    Parameter(
        "platform", "Begun on this platform, such as `http`, `cli` or `http-once`"
    ),
    Parameter("model", "Answered by this model"),
    Parameter("name", "Bound to this name"),
)
_KEY = Parameter(
    "Idempotency-Key",
    "The same key is accepted once, for ever",
    "header",
    pattern=f"^[!-~]{{1,{KEY_LEN_MAX}}}$",
)

_WAIT = Parameter(
    "wait",
    "Seconds to wait for the finished turn",
    kind="integer",
    least=0,
    most=WAIT_S_MAX,
)

ROUTES = (
    Route(
        "GET",
        "/api/sessions",
        "read",
        "List sessions",
        list_sessions,
        {200: SessionPage},
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
    Route("GET", _ID, "read", "Show a session", show_session, {200: SessionShown}),
    Route(
        "PATCH",
        _ID,
        "write",
        "Rename a session, or change its model",
        change_session,
        {200: Done},
        Change,
    ),
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
        "POST",
        f"{_ID}/rewind",
        "write",
        "Rewind, or take that back",
        rewind,
        {200: Done},
        RewindTo,
    ),
    Route(
        "POST",
        f"{_ID}/hide",
        "write",
        "Hide a message from the model",
        hide,
        {200: Done},
        Hide,
    ),
    Route(
        "POST",
        f"{_ID}/redact",
        "admin",
        "Remove the text of a message",
        redact,
        {200: Done},
        Redact,
    ),
    Route(
        "POST",
        f"{_ID}/compact",
        "write",
        "Summarise the older part",
        compact,
        {200: Done},
    ),
    Route(
        "POST",
        f"{_ID}/retry",
        "write",
        "Run the last prompt again",
        retry,
        {202: Done},
    ),
    Route(
        "POST",
        f"{_ID}/continue",
        "write",
        "Continue a turn that was cut off",
        go_on,
        {202: Done},
    ),
    Route(
        "GET",
        f"{_ID}/export",
        "read",
        "Export a session",
        export,
        {200: "application/x-ndjson, text/markdown"},
        parameters=(Parameter("format", "`markdown` for people", one_of=FORMATS),),
    ),
    Route(
        "POST",
        f"{_ID}/inputs",
        "write",
        "Say something",
        admit,
        {200: FinishedTurn, 202: Accepted},
        NewInput,
        (_KEY, _WAIT),
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
    Route(
        "POST",
        f"{_ID}/interrupt",
        "write",
        "Stop a turn",
        interrupt,
        {202: Asked},
        Interrupt,
    ),
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
        "GET",
        "/api/approvals",
        "read",
        "List calls that wait for approval",
        approvals,
        {200: ApprovalList},
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
    Route(
        "GET",
        "/api/usage",
        "read",
        "Usage by session",
        usage,
        {200: UsagePage},
        parameters=_PAGE,
    ),
)
