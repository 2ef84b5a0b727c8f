"""From a request of OpenAI's API to a turn, and from the turn to what the client reads.

A request is one input, accepted once, however often it comes. The official SDK repeats a request
whose connection was cut, without a key, and only counts its tries in a header. So every input gets
a key made of its body and of the minute, and a repeated request looks for the last one:

    12:00:59 try 0    key BODY:12:00:0     stored; the connection is cut
    12:01:02 try 1    no BODY:12:01:0; there is BODY:12:00:0: that turn it is
    12:01:30 try 0    key BODY:12:01:0     the same words once more are said once more

The keys are stored with the inputs, so this holds after a restart too.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from hashlib import sha256
from typing import Any

from msgspec import Struct

from steno.config import ConfigError
from steno.gateway.hub import Hub
from steno.gateway.openai.reply import Reply, Told, place_of
from steno.gateway.routes import Call, Problem
from steno.gateway.streams import PING_S
from steno.journal.facts import InputAdmitted
from steno.journal.parts import Redacted
from steno.journal.turns import Turns
from steno.model_choice import Terms
from steno.models.specs import KINDS
from steno.service import Framing, Service
from steno.session.errors import NoSuch
from steno.store.errors import ForksRemain, NotPending, SessionBusy, UnknownSession
from steno.store.protocol import Admitted, Cursor, Piece

RETRY_MINUTES = 10
LOOK_S = 0.2
CANCEL_S = 10.0
FINAL = {"x-should-retry": "false"}
"""Tells the SDK that the same request will get the same answer."""


class Restarting(Exception):
    """The service stops before the turn is over; it can be read on from the next start on."""


# --- one request, one input -----------------------------------------------------------------------


class Keys:
    """The keys of one request."""

    def __init__(self, service: Service, call: Call) -> None:
        self._service = service
        said = call.headers.get("idempotency-key")
        if said is not None and not said.strip():
            raise Problem(
                400, "bad_header", "Idempotency-Key is empty. Nothing was stored."
            )
        bound = [
            call.headers.get(name, "") for name in ("x-steno-session", "x-steno-key")
        ]
        self.given = (
            None if said is None else _digest("key", call.token.name, call.path, said)
        )
        body = _digest("body", call.token.name, call.path, *bound, call.body.hex())
        self._base = body
        tries = call.headers.get("x-stainless-retry-count", "0")
        self._repeated = tries.isdecimal() and tries.strip("0") != ""

    async def before(self) -> Admitted | None:
        """What an earlier try of this request was given back."""
        if self.given is not None:
            return await self._service.admitted(self.given)
        if not self._repeated:
            return None
        minute = _minute()
        for back in range(RETRY_MINUTES + 1):
            count = await self._count(minute - back)
            if count:
                return await self._service.admitted(
                    self._key(minute - back, count - 1)
                )
        return None

    async def new(self) -> str:
        """A key that no request has had."""
        if self.given is not None:
            return self.given
        minute = _minute()
        return self._key(minute, await self._count(minute))

    def _key(self, minute: int, number: int) -> str:
        return f"{self._base}:{minute}:{number}"

    async def _count(self, minute: int) -> int:
        """How many keys of a minute are used: they are used in order, so few looks are enough."""
        low, high = 0, 1
        while await self._service.admitted(self._key(minute, high - 1)) is not None:
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            used = (
                await self._service.admitted(self._key(minute, middle - 1))
                is not None
            )
            low, high = (middle, high) if used else (low, middle)
        return low


def _digest(*words: str) -> str:
    return (
        "v1:" + sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()
    )


def _minute() -> int:
    return int(time.time()) // 60


class New(Struct):
    """An input that a client wants accepted. `place` finds where it goes once it is sure that it
    was not accepted before: a session, or None for a new one."""

    text: str
    attachments: list[Any]
    framing: Framing
    model: str | None
    place: Callable[[], Any]


async def accept(hub: Hub, call: Call, new: New) -> Admitted:
    """Have an input stored, once, and run."""
    service = hub.service()
    keys = Keys(service, call)
    known = await keys.before()
    if known is not None and keys.given is None:
        return known
    session = known.session if known is not None else await new.place()
    _check_bound(call, session)
    if known is None and session is not None and new.model is not None:
        await choose(service, session, new.model)
    model = new.model or hub.program.agents(hub.terms(None)).model_spec()
    framing = (
        new.framing
        if session is None
        else Framing(new.framing.instructions, new.framing.labels)
    )
    while True:
        key = await keys.new()
        admitted = await asyncio.shield(
            service.admit(
                new.text,
                session,
                None,
                key,
                model,
                "queue",
                new.attachments,
                framing=framing,
            )
        )
        if admitted.first or keys.given is not None:
            await hub.admitted(admitted.session)
            return admitted


def _check_bound(call: Call, session: str | None) -> None:
    if call.token.session not in (None, session):
        raise Problem(
            403,
            "bound",
            f"This token is for the session {call.token.session!r} alone.",
        )


async def choose(service: Service, session: str, model: str) -> None:
    """Have a model answer in a session from now on, if another one does."""
    glance = await service.views.glance(session)
    if glance.row.model == model:
        return
    try:
        await service.edits.choose_model(session, model)
    except SessionBusy as error:
        raise Problem(
            409,
            "busy",
            f"The session is running with {glance.row.model!r}. Wait for its end to choose "
            f"{model!r}, or leave the model at 'steno'. Nothing was stored.",
            FINAL,
            "model",
        ) from error


def model_of(hub: Hub, said: str | None) -> str | None:
    """The model that a client names; None where it leaves that to the session."""
    if said is None or said in ("", "steno"):
        return None
    try:
        hub.program.agents(Terms(model=said)).check()
    except (ConfigError, ValueError) as error:
        known = said.partition(":")[0] in KINDS
        raise no_model(said, f" {error}." if known else "") from error
    return said


def no_model(said: str, why: str = "") -> Problem:
    return Problem(
        404,
        "model_not_found",
        f"There is no model {said[:200]!r} here.{why} Use 'steno' for the one that is configured, "
        "or a name that GET /v1/models lists, such as 'openai-chat:gpt-5.6-terra'.",
        FINAL,
        "model",
    )


# --- where it goes --------------------------------------------------------------------------------


async def bound(hub: Hub, call: Call, model: str | None) -> str | None:
    """The session that a request names by header, or that its token is for."""
    service = hub.service()
    session, name = (
        call.headers.get("x-steno-session"),
        call.headers.get("x-steno-key"),
    )
    if session is not None and name is not None:
        raise Problem(
            400, "bad_header", "Send X-Steno-Session or X-Steno-Key, not both."
        )
    if name is not None:
        return await service.begin(
            model or hub.program.agents(hub.terms(None)).model_spec(), name
        )
    if session is not None:
        await service.views.glance(session.removeprefix("conv_"))
        return session.removeprefix("conv_")
    return call.token.session


async def following(hub: Hub, previous: str) -> str:
    """The session in which a response can be followed: its own, if it is the last there; else one
    that is forked after it."""
    try:
        reply = await read(hub, previous)
    except Problem as problem:
        problem.param = "previous_response_id"
        raise
    service, turns = hub.service(), Turns()
    loaded = await service.views.whole(reply.session, turns)
    later = [seq for seq in loaded.state.pending if seq > reply.input]
    places = turns.answer_to(reply.input)
    last = places[-1] if places else None
    if not later and (last is None or last == turns.last_standing()):
        return reply.session
    if last is None:
        raise Problem(
            409,
            "not_answered",
            f"{previous} is not answered yet, and others wait behind it. Nothing was stored.",
            FINAL,
            "previous_response_id",
        )
    return await service.edits.fork(reply.session, last)


# --- what comes of it -----------------------------------------------------------------------------


def not_found(id: str) -> Problem:
    return Problem(404, "not_found", f"There is no response {id[:200]!r}.", FINAL)


async def find(hub: Hub, id: str, call: Call | None = None) -> Reply:
    """The response of this id, with nothing of it read yet."""
    place = place_of(id)
    if place is None:
        raise not_found(id)
    session, input = place
    try:
        async for record in hub.service().views.records(session, input - 1, input):
            fact = record.fact
            gone = isinstance(fact, InputAdmitted) and any(
                isinstance(part, Redacted) for part in fact.parts
            )
            if record.seq == input and isinstance(fact, InputAdmitted) and not gone:
                if call is not None:
                    _check_bound(call, session)
                return Reply(session, input)
    except UnknownSession as error:
        raise not_found(id) from error
    raise not_found(id)


async def read(hub: Hub, id: str, call: Call | None = None) -> Reply:
    """The response as it stands."""
    reply = await find(hub, id, call)
    views = hub.service().views
    glance = await views.glance(reply.session)
    reply.model = glance.row.model
    async for record in views.records(reply.session, reply.input - 1):
        reply.take(record)
        if reply.is_over():
            return reply
    for draft in glance.drafts:
        reply.take(Piece(draft.stream, 0, draft.text))
    return reply


async def follow(hub: Hub, reply: Reply) -> AsyncGenerator[list[Told] | None, None]:
    """Everything of a response as it is stored, to its end; None where nothing came for a while.
    Raises `Restarting` if the service stops first."""
    views = hub.service().views
    reply.model = (await views.glance(reply.session)).row.model
    events = views.follow(reply.session, Cursor(reply.input - 1))
    stops = [asyncio.ensure_future(one.wait()) for one in (hub.draining, hub.leaving)]
    coming = asyncio.ensure_future(anext(events))
    try:
        while not reply.is_over():
            ends = stops[1:] if reply.is_running() else stops
            pause_s = PING_S if reply.ending is None else LOOK_S
            await asyncio.wait(
                {coming, *ends}, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED
            )
            if coming.done():
                event = coming.result()
                coming = asyncio.ensure_future(anext(events))
                yield reply.take(event)
            elif any(one.done() for one in ends):
                raise Restarting
            elif reply.ending is None:
                yield None
            elif await _rests(hub, reply):
                break
        yield reply.finish()
    finally:
        for task in (coming, *stops):
            task.cancel()
        await asyncio.gather(coming, *stops, return_exceptions=True)
        await events.aclose()  # type: ignore[attr-defined]


async def _rests(hub: Hub, reply: Reply) -> bool:
    """Whether nothing runs that could take up what was cut off."""
    glance = await hub.service().views.glance(reply.session)
    return glance.owner is None and glance.head <= reply.seen


# --- stopping it ----------------------------------------------------------------------------------


async def stop(hub: Hub, reply: Reply) -> None:
    """Stop the turn of a response, or take its input back while it waits. A later turn is not
    touched."""
    service = hub.service(reply.session)
    if reply.turn is None:
        with contextlib.suppress(NotPending):
            await service.withdraw(reply.session, reply.input)
            return
        reply = await read(hub, reply.id)
    if reply.turn:
        await service.turns.interrupt(reply.session, turn=reply.turn)
        hub.wake(reply.session)


async def ended(hub: Hub, reply: Reply, limit_s: float) -> Reply:
    """The response once it is over, or as it is after some time."""
    fresh = Reply(reply.session, reply.input)
    with contextlib.suppress(TimeoutError, Restarting):
        async with asyncio.timeout(limit_s):
            async with contextlib.aclosing(follow(hub, fresh)) as told:
                async for _ in told:
                    pass
    return await read(hub, reply.id)


async def remove(hub: Hub, reply: Reply) -> None:
    """Remove the text of a response and of its input for good; where the session has nothing else,
    the session."""
    service = hub.service()
    loaded, shown = await service.views.shown(reply.session)
    own = [one for one in shown.transcript.messages if one.state != "given"]
    turns = {
        turn
        for turn in shown.turns.origins
        if shown.turns.prompt(turn) == reply.input
    }
    mine = [one for one in own if one.turn in turns or one.seq == reply.input]
    if len(mine) == len(own) and loaded.row.forked_from is None:
        with contextlib.suppress(ForksRemain):
            await service.delete(reply.session, False)
            return
    for message in mine:
        with contextlib.suppress(NoSuch):
            if message.text or message.attachments or message.tool_calls:
                await service.edits.redact(reply.session, message.seq)
