"""The routes under /v1. Refusals have OpenAI's shape and status.

A turn belongs to the service. A client that leaves stops nothing, unless it sent
`X-Steno-On-Disconnect: stop`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from msgspec import Struct

from steno.gateway.hub import Hub
from steno.gateway.openai import chat, requests, turns
from steno.gateway.openai.reply import PREVIOUS, Object, Reply, Told, after
from steno.gateway.routes import Answer, Call, Json, Parameter, Problem, Route, Stream
from steno.gateway.streams import to_line
from steno.journal.facts import InputAdmitted, Label, MessageGiven
from steno.journal.parts import Image, text_of
from steno.journal.transcript import Transcript
from steno.service import Framing
from steno.store.errors import UnknownSession
from steno.store.protocol import Admitted

BODY_BYTES_MAX = 32 << 20
FINE_MAX = 20_000
"""So many code points are told one by one to a reader that may leave out whole events."""
ITEMS_MAX = 100
PING = b": ping\n\n"


# --- responses ------------------------------------------------------------------------------------


async def create_response(hub: Hub, call: Call) -> Answer:
    body: requests.ResponsesBody = call.read(requests.ResponsesBody)
    requests.check_responses(body)
    asked = requests.asked_by_responses(body)
    model = turns.model_of(hub, body.model)
    labels = requests.labels_of(body.metadata)
    if body.previous_response_id is not None:
        labels += (Label(PREVIOUS, body.previous_response_id),)
    framing = Framing(
        asked.instructions, labels, tuple(asked.given), tuple(asked.payloads)
    )
    place = partial(_place, hub, call, body, asked, model)
    new = turns.New(asked.text, asked.attachments, framing, model, place)
    admitted = await turns.accept(hub, call, new)
    reply = Reply(admitted.session, admitted.seq)
    if body.stream:
        return Stream(
            _leave(hub, call, reply, _events(hub, reply, -1)), headers=_headers(reply)
        )
    if body.background:
        return Json((await turns.read(hub, reply.id)).object(), 200, _headers(reply))
    return await _whole(hub, call, reply, _response)


async def _place(
    hub: Hub,
    call: Call,
    body: requests.ResponsesBody,
    asked: requests.Asked,
    model: str | None,
) -> str | None:
    """The session that a request goes on with; None for a new one."""
    conversation = body.conversation
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    if conversation is not None and not isinstance(conversation, str):
        raise requests.refuse("conversation", "A conversation is named by its id.")
    if body.previous_response_id is not None and conversation is not None:
        raise requests.refuse(
            "previous_response_id",
            "Send previous_response_id or conversation, not both.",
        )
    session = await turns.bound(hub, call, model)
    if body.previous_response_id is not None:
        session = await turns.following(hub, body.previous_response_id)
    elif conversation is not None:
        session = conversation.removeprefix("conv_")
        await _known(hub, session)
    if session is not None and asked.given:
        raise requests.refuse(
            "input",
            "This session has what was said before: send the new message alone. Nothing was "
            "stored.",
        )
    return session


async def _known(hub: Hub, session: str) -> None:
    try:
        await hub.service().views.glance(session)
    except UnknownSession as error:
        raise Problem(
            404,
            "not_found",
            f"There is no conversation {session[:100]!r}.",
            turns.FINAL,
        ) from error


async def retrieve_response(hub: Hub, call: Call) -> Answer:
    id = call.parameters["response"]
    reply = await turns.find(hub, id, call)
    start = call.number("starting_after", -1, 1 << 40, None)
    if not call.flag("stream"):
        if start is not None:
            raise requests.refuse(
                "starting_after", "starting_after needs stream=true."
            )
        return Json((await turns.read(hub, id)).object(), 200, _headers(reply))
    await hub.look_after(reply.session)
    events = _events(hub, reply, -1 if start is None else start, fine=start is None)
    return Stream(events, headers=_headers(reply))


async def cancel_response(hub: Hub, call: Call) -> Answer:
    reply = await turns.read(
        hub, (await turns.find(hub, call.parameters["response"], call)).id
    )
    if reply.ending is None:
        await turns.stop(hub, reply)
        reply = await turns.ended(hub, reply, turns.CANCEL_S)
    return Json(reply.object(), 200, _headers(reply))


async def delete_response(hub: Hub, call: Call) -> Answer:
    reply = await turns.read(
        hub, (await turns.find(hub, call.parameters["response"], call)).id
    )
    if reply.ending is None:
        raise Problem(
            409,
            "running",
            "The response is not over: cancel it first. Nothing was removed.",
        )
    await turns.remove(hub, reply)
    return Json({"id": reply.id, "object": "response", "deleted": True})


async def input_items(hub: Hub, call: Call) -> Answer:
    """What a response was asked; with the first one of a session, what was given before it."""
    reply = await turns.find(hub, call.parameters["response"], call)
    limit = call.number("limit", 1, ITEMS_MAX, 20) or 20
    items: list[Object] = []
    async for record in hub.service().views.records(reply.session, 0, reply.input):
        fact = record.fact
        if isinstance(fact, MessageGiven):
            items.append(_item(record.seq, fact.role, fact.parts))
        elif isinstance(fact, InputAdmitted):
            items = items if record.seq == reply.input else []
    if reply.said is None:
        records = hub.service().views.records(
            reply.session, reply.input - 1, reply.input
        )
        async for record in records:
            reply.take(record)
    if reply.said is not None:
        items.append(_item(reply.input, "user", reply.said.parts))
    if call.choice("order", ("asc", "desc")) != "asc":
        items.reverse()
    seen = call.query.get("after")
    at = next((i + 1 for i, item in enumerate(items) if item["id"] == seen), 0)
    page = items[at : at + limit]
    return Json(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": len(items) > at + limit,
        }
    )


def _item(seq: int, role: str, parts: Any) -> Object:
    text = text_of(parts)
    kind = "output_text" if role == "assistant" else "input_text"
    content: list[Object] = [{"type": kind, "text": text}] if text else []
    content += [
        {"type": "input_image", "detail": "auto", "file_id": part.hash}
        for part in parts
        if isinstance(part, Image)
    ]
    return {
        "id": f"msg_{seq}",
        "type": "message",
        "role": role,
        "status": "completed",
        "content": content,
    }


def _response(reply: Reply) -> Object:
    return reply.object()


async def _events(
    hub: Hub, reply: Reply, start: int, fine: bool = False
) -> AsyncIterator[bytes]:
    """The events of a response after a place, as they go over the wire."""
    points = 0
    try:
        async with contextlib.aclosing(turns.follow(hub, reply)) as following:
            async for told in following:
                if told is None:
                    yield PING
                    continue
                points += sum(len(one.text) for one in told)
                rest = after(told, start, fine and points <= FINE_MAX)
                if rest:
                    yield b"".join(_sse(one) for one in rest)
    except turns.Restarting:
        yield _broken(
            reply,
            "restarting",
            "The service restarts; the turn is kept. Retrieve the "
            "response with stream=true and starting_after to read on.",
        )
    except UnknownSession:
        if reply.said is None:
            raise
        yield _broken(reply, "deleted", "The session was deleted.")


def _broken(reply: Reply, code: str, message: str) -> bytes:
    data = {"code": code, "message": message, "param": None}
    return _sse(Told("error", max(reply.at, 0), data))


def _sse(told: Told) -> bytes:
    return f"event: {told.type}\ndata: ".encode() + to_line(told.object()) + b"\n\n"


# --- chat -----------------------------------------------------------------------------------------


async def create_chat(hub: Hub, call: Call) -> Answer:
    body: requests.ChatBody = call.read(requests.ChatBody)
    requests.check_chat(body)
    asked = requests.asked_by_chat(body)
    model = turns.model_of(hub, body.model)
    labels = requests.labels_of(body.metadata)
    framing = Framing(
        asked.instructions, labels, tuple(asked.given), tuple(asked.payloads), True
    )
    place = partial(_chat_place, hub, call, asked, model)
    new = turns.New(asked.text, asked.attachments, framing, model, place)
    admitted: Admitted = await turns.accept(hub, call, new)
    reply = Reply(admitted.session, admitted.seq)
    if body.stream:
        with_usage = body.stream_options is not None and bool(
            body.stream_options.include_usage
        )
        chunks = _chunks(hub, reply, with_usage)
        return Stream(_leave(hub, call, reply, chunks), headers=_headers(reply))
    return await _whole(hub, call, reply, _completion)


async def _chat_place(
    hub: Hub, call: Call, asked: requests.Asked, model: str | None
) -> str | None:
    session = await turns.bound(hub, call, model)
    if session is None or not asked.given:
        return session
    transcript = Transcript()
    await hub.service().views.whole(session, transcript)
    if not chat.agrees(asked.given, transcript):
        raise Problem(
            409,
            "history_differs",
            f"The messages before the last one are not what was said in session {session!r}. Send "
            "the new message alone, or leave X-Steno-Session and X-Steno-Key out to have this "
            "conversation kept by itself. Nothing was stored.",
            turns.FINAL,
            "messages",
        )
    return session


def _completion(reply: Reply) -> Object:
    problem = _failure(reply)
    if problem is not None:
        raise problem
    return chat.completion(reply)


def _failure(reply: Reply) -> Problem | None:
    """What a client is told of a turn that did not end well: there is no field for it."""
    if not reply.why():
        return None
    kept = "What was said is kept" if reply.text() else "The message is kept"
    return Problem(
        502 if reply.status() == "failed" else 409,
        reply.ending.cause if reply.ending is not None else "unknown",
        f"{reply.why()}. {kept} in session {reply.session!r}.",
        turns.FINAL,
    )


async def _chunks(hub: Hub, reply: Reply, with_usage: bool) -> AsyncIterator[bytes]:
    begun = False
    try:
        async with contextlib.aclosing(turns.follow(hub, reply)) as following:
            async for told in following:
                if told is None:
                    yield PING
                    continue
                if not begun:
                    begun = True
                    yield _data(chat.opening(reply))
                found = chat.chunks(reply, told)
                if found:
                    yield b"".join(_data(one) for one in found)
    except (turns.Restarting, UnknownSession) as error:
        if not begun:
            raise
        gone = isinstance(error, UnknownSession)
        yield _error(
            "The session was deleted."
            if gone
            else f"The service restarts; the turn is kept in session {reply.session!r}.",
            "deleted" if gone else "restarting",
        )
        return
    problem = _failure(reply)
    if problem is not None:
        yield _error(problem.detail, problem.kind)
        return
    yield b"".join(_data(one) for one in chat.closing(reply, with_usage)) + chat.DONE


def _data(value: object) -> bytes:
    return b"data: " + to_line(value) + b"\n\n"


def _error(message: str, code: str) -> bytes:
    error = {"message": message, "type": "server_error", "param": None, "code": code}
    return _data({"error": error})


# --- models ---------------------------------------------------------------------------------------


async def list_models(hub: Hub, call: Call) -> Answer:
    known = hub.program.agents(hub.terms(None)).known_models()
    data = [_model(id) for id in dict.fromkeys(["steno", *known])]
    return Json({"object": "list", "data": data})


async def show_model(hub: Hub, call: Call) -> Answer:
    id = call.parameters["model"]
    known = ["steno", *hub.program.agents(hub.terms(None)).known_models()]
    if id not in known:
        raise turns.no_model(id)
    return Json(_model(id))


def _model(id: str) -> Object:
    return {
        "id": id,
        "object": "model",
        "created": 0,
        "owned_by": id.partition(":")[0],
    }


# --- answers in one piece -------------------------------------------------------------------------


async def _whole(hub: Hub, call: Call, reply: Reply, made: Any) -> Answer:
    """The answer once the turn is over. If that takes long, or a person has to decide something,
    blanks keep the connection alive: JSON may begin with them."""
    ending = _leave(hub, call, reply, _to_end(hub, reply, made))
    coming = asyncio.ensure_future(anext(ending))
    try:
        first = await coming
        if first != b" ":
            return Json(made(reply), 200, _headers(reply))
    except BaseException:
        coming.cancel()
        raise

    async def pieces() -> AsyncIterator[bytes]:
        yield first
        async with contextlib.aclosing(ending) as rest:  # type: ignore[type-var]
            async for piece in rest:
                yield piece

    return Stream(pieces(), "application/json", _headers(reply))


async def _to_end(hub: Hub, reply: Reply, made: Any) -> AsyncIterator[bytes]:
    try:
        async with contextlib.aclosing(turns.follow(hub, reply)) as following:
            async for told in following:
                if told is None:
                    yield b" "
    except turns.Restarting as error:
        raise Problem(
            503,
            "restarting",
            f"The service restarts. The message is kept in session {reply.session!r}, and its turn "
            f"is {reply.id}.",
            {"Retry-After": "1"},
        ) from error
    yield to_line(made(reply))


async def _leave(
    hub: Hub, call: Call, reply: Reply, pieces: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    """The same; but a client that asked for it stops the turn by leaving."""
    try:
        async for piece in pieces:
            yield piece
    finally:
        left = reply.ending is None and not hub.draining.is_set()
        if left and call.headers.get("x-steno-on-disconnect") == "stop":
            hub.later(turns.stop(hub, Reply(reply.session, reply.input)))


def _headers(reply: Reply) -> dict[str, str]:
    return {
        "X-Steno-Session": reply.session,
        "X-Steno-Response": reply.id,
        "X-Request-Id": reply.id,
    }


# --- the table ------------------------------------------------------------------------------------


class Deleted(Struct):
    id: str
    object: str
    deleted: bool


_ID = "/v1/responses/{response}"
_BOTH = (
    Parameter("Idempotency-Key", "The same key is accepted once, for ever", "header"),
    Parameter("X-Steno-Session", "The session to go on with", "header"),
    Parameter("X-Steno-Key", "A name of a session, made if absent", "header"),
    Parameter("X-Steno-On-Disconnect", "`stop`: leaving stops the turn", "header"),
)

ROUTES = (
    Route(
        "POST",
        "/v1/responses",
        "write",
        "Ask for a response",
        create_response,
        {200: (dict, "text/event-stream")},
        requests.ResponsesBody,
        _BOTH,
        BODY_BYTES_MAX,
        binds=False,
    ),
    Route(
        "GET",
        _ID,
        "read",
        "Retrieve a response, or its events",
        retrieve_response,
        {200: (dict, "text/event-stream")},
        parameters=(
            Parameter("stream", "`true`: as server-sent events", kind="boolean"),
            Parameter(
                "starting_after", "The number of the last event seen", kind="integer"
            ),
        ),
        binds=False,
    ),
    Route(
        "DELETE",
        _ID,
        "admin",
        "Remove a response",
        delete_response,
        {200: Deleted},
        binds=False,
    ),
    Route(
        "POST",
        f"{_ID}/cancel",
        "write",
        "Stop a response",
        cancel_response,
        {200: dict},
        binds=False,
    ),
    Route(
        "GET",
        f"{_ID}/input_items",
        "read",
        "List what a response was asked",
        input_items,
        {200: dict},
        parameters=(
            Parameter("limit", f"How many, up to {ITEMS_MAX}", kind="integer"),
            Parameter("order", "`asc` or `desc`"),
            Parameter("after", "The id of the last item seen"),
        ),
        binds=False,
    ),
    Route(
        "POST",
        "/v1/chat/completions",
        "write",
        "Ask for a chat completion",
        create_chat,
        {200: (dict, "text/event-stream")},
        requests.ChatBody,
        _BOTH,
        BODY_BYTES_MAX,
        binds=False,
    ),
    Route(
        "GET",
        "/v1/models",
        "read",
        "List models",
        list_models,
        {200: dict},
        binds=False,
    ),
    Route(
        "GET",
        "/v1/models/{model}",
        "read",
        "Show a model",
        show_model,
        {200: dict},
        binds=False,
    ),
)
