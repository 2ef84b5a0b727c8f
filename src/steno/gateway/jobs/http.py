"""The routes of jobs."""

import msgspec

from steno.gateway.hub import Hub
from steno.gateway.routes import Answer, Call, Json, Parameter, Problem, Route
from steno.session.jobs import JobBook, JobShown, NewJob

KEY_CHARS_MAX = 200


class JobsListed(msgspec.Struct):
    jobs: list[JobShown]


def _book(hub: Hub) -> JobBook:
    return hub.service().jobs.book


def _by(call: Call) -> str:
    return f"http:{call.token.name}"


def _key(call: Call) -> str:
    key = call.headers.get("idempotency-key", "")
    if len(key) > KEY_CHARS_MAX:
        raise Problem(
            400, "bad_key", f"A key has at most {KEY_CHARS_MAX} characters."
        )
    return f"http:{call.token.name}:{key}" if key else ""


async def listed(hub: Hub, call: Call) -> Answer:
    return Json(JobsListed(await _book(hub).listed()))


async def add(hub: Hub, call: Call) -> Answer:
    return Json(await _book(hub).add(call.read(NewJob), _by(call), _key(call)), 201)


async def show(hub: Hub, call: Call) -> Answer:
    return Json(await _book(hub).show(call.parameters["job"]))


async def run(hub: Hub, call: Call) -> Answer:
    key = _key(call) or None
    return Json(
        await _book(hub).ask_to_run(call.parameters["job"], _by(call), key), 202
    )


async def pause(hub: Hub, call: Call) -> Answer:
    return Json(await _book(hub).pause(call.parameters["job"], _by(call)))


async def resume(hub: Hub, call: Call) -> Answer:
    return Json(await _book(hub).resume(call.parameters["job"], _by(call)))


async def remove(hub: Hub, call: Call) -> Answer:
    return Json(await _book(hub).remove(call.parameters["job"], _by(call)))


_JOB = "/api/jobs/{job}"
_ONCE = (
    Parameter("Idempotency-Key", "What is asked for under it is done once", "header"),
)
ROUTES = (
    Route("GET", "/api/jobs", "read", "List jobs", listed, {200: JobsListed}),
    Route(
        "POST",
        "/api/jobs",
        "admin",
        "Make a job",
        add,
        {201: JobShown},
        NewJob,
        _ONCE,
    ),
    Route(
        "GET", _JOB, "read", "Show a job and what came of it", show, {200: JobShown}
    ),
    Route("DELETE", _JOB, "admin", "Remove a job", remove, {200: JobShown}),
    Route(
        "POST",
        f"{_JOB}/run",
        "admin",
        "Run a job now",
        run,
        {202: JobShown},
        None,
        _ONCE,
    ),
    Route("POST", f"{_JOB}/pause", "admin", "Pause a job", pause, {200: JobShown}),
    Route(
        "POST",
        f"{_JOB}/resume",
        "admin",
        "Turn a job on again",
        resume,
        {200: JobShown},
    ),
)
