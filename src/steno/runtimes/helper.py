"""A helper call: a request about a session that is no part of it, recorded before it is sent.

The caller judges the answer, and records how the call ended with what it cost.
"""

import asyncio
from hashlib import sha256
from typing import Literal

from steno.engine.request import Request
from steno.journal.facts import HelperEnded, HelperStarted
from steno.journal.parts import Seq
from steno.models.protocol import Finished, Model, ModelError
from steno.race import first_of
from steno.session.lease import HeldSession


class HelperFailed(Exception):
    """No answer, or one that is of no use. That is recorded."""


class HelperStopped(Exception):
    """The call was ended before an answer came. That is recorded."""


async def ask_helper(
    held: HeldSession,
    model: Model,
    purpose: Literal["summary", "title", "distillation"],
    request: Request,
    deadline_s: float,
    *ends: asyncio.Event,
) -> tuple[Seq, Finished]:
    """The fact that began the call, and the answer. Each of `ends` ends it at once; where one is
    set before, nothing is sent and nothing is recorded."""
    body = await asyncio.to_thread(model.to_wire, request, {})
    if any(end.is_set() for end in ends):
        raise HelperStopped
    started = await held.record(
        HelperStarted(purpose, model.spec, sha256(body).hexdigest()[:32])
    )
    left_s = max(deadline_s - asyncio.get_running_loop().time(), 0.0)
    try:
        finished = await first_of(_answer(model, body), *ends, limit_s=left_s)
    except ModelError as error:
        detail = f"{error.cause}: {error.detail}"
        await held.record(HelperEnded(started, "failed", detail, sent=error.sent))
        raise HelperFailed(error.detail) from error
    if finished is not None:
        return started, finished
    if any(end.is_set() for end in ends):
        await held.record(HelperEnded(started, "stopped", sent="unknown"))
        raise HelperStopped
    await held.record(
        HelperEnded(started, "failed", "no answer in time", sent="unknown")
    )
    raise HelperFailed("no answer in time")


async def _answer(model: Model, body: bytes) -> Finished:
    async for event in model.stream(body):
        if isinstance(event, Finished):
            return event
    raise ModelError("dropped", "the stream ended without an end", "yes")
