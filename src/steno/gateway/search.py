"""The routes that find what was said: in all sessions, or in one."""

from msgspec import Struct
from msgspec.structs import replace

from steno.gateway.hub import Hub
from steno.gateway.routes import Answer, Call, Json, Parameter, Problem, Route
from steno.search.scope import OneSession, Scope
from steno.search.searching import PLACE
from steno.service.searches import LIMIT_MAX, Wanted, found_object

_ORDERS = ("best", "newest")


class HitShown(Struct):
    """A message that matches. `marks` are places in `text`, `places` the same in the message as it
    is stored, in code points. `seq` is its address, `fact` the fact that holds the text."""

    session: str
    seq: int
    fact: int
    at_ms: int
    role: str
    title: str
    text: str
    marks: list[list[int]]
    places: list[list[int]]
    score: float
    streaming: bool


class LeftOutShown(Struct):
    """What was not given, and why."""

    hidden: int
    others: int
    same_session: int
    unscanned: bool
    damaged: int


class SearchPage(Struct):
    """`matches` counts what was looked at; with `more` there are more, or may be. `next` is what
    to give as `before` for the page after this one; null at the end. `indexed` is how much of the
    store the index covers: the rest was read."""

    hits: list[HitShown]
    matches: int
    sessions: int
    more: bool
    next: str | None
    left_out: LeftOutShown
    notes: list[str]
    indexed: float
    took_ms: float


async def search(hub: Hub, call: Call) -> Answer:
    return await _found(hub, _wanted(call))


async def search_session(hub: Hub, call: Call) -> Answer:
    """In one session, with what a fork shares with its parents."""
    wanted, id = _wanted(call), call.parameters["id"]
    await hub.service().views.load(id)  # says that there is none
    return await _found(hub, replace(wanted, session=id, all=True), OneSession(id))


async def _found(hub: Hub, wanted: Wanted, scope: Scope | None = None) -> Answer:
    return Json(found_object(await hub.service().searches.find(wanted, scope)))


def _wanted(call: Call) -> Wanted:
    """Without `q` nothing is asked for, and nothing is found."""
    before = call.query.get("before")
    if before is not None and PLACE.fullmatch(before) is None:
        raise Problem(
            400, "bad_query", "before must be the `next` of an earlier answer"
        )
    return Wanted(
        text=call.query.get("q", ""),
        limit=call.number("limit", 1, LIMIT_MAX, 20) or 20,
        all=call.flag("all") or False,
        order="newest" if call.choice("order", _ORDERS) == "newest" else "best",
        before=before,
        as_text=call.flag("literal") or False,
    )


_ASKED = (
    Parameter("q", "What to look for"),
    Parameter(
        "limit",
        f"How many, up to {LIMIT_MAX}",
        kind="integer",
        least=1,
        most=LIMIT_MAX,
    ),
    Parameter(
        "before", "The `next` of the page before", pattern=f"^{PLACE.pattern}$"
    ),
    Parameter("all", "Every match, not the best one of each session", kind="boolean"),
    Parameter("order", "The best first, or the newest", one_of=_ORDERS),
    Parameter(
        "literal",
        "Search for `q` as it is: no sign in it means anything",
        kind="boolean",
    ),
)

SEARCH = (
    Route(
        "GET",
        "/api/search",
        "read",
        "Find what was said",
        search,
        {200: SearchPage},
        parameters=_ASKED,
    ),
    Route(
        "GET",
        "/api/sessions/{id}/search",
        "read",
        "Find what was said in a session",
        search_session,
        {200: SearchPage},
        parameters=_ASKED,
    ),
)
