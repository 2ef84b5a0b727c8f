"""The routes of the page: what is looked at, and the forms by which something is done. A form
answers with another page (303); to a script of ours it says where that would be."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from steno.gateway.api import LINE_CHARS_MAX, Attached, attachment_of, refuse_draining
from steno.gateway.channels.worker import ChannelHealth
from steno.gateway.feed import BETWEEN
from steno.gateway.hub import Hub
from steno.gateway.page import shelves, usage
from steno.gateway.page.html import NOTHING, Html
from steno.gateway.page.inbox import Inbox
from steno.gateway.page.layout import Frame, Shelf, framed
from steno.gateway.page.live import page_events
from steno.gateway.page.session import (
    FACTS_MIN,
    earlier_html,
    earlier_link,
    earlier_main,
    fold_end,
    fold_page,
    main,
    printed_cursor,
    scene_of,
    welcome,
)
from steno.gateway.page.static import KEEP, VERSION, contents
from steno.gateway.routes import Answer, Call, Content, Json, Problem, Route, Stream
from steno.gateway.server import BAD_LINK, cookie
from steno.gateway.streams import BYE, PING
from steno.gateway.tokens import VISIT_S, BadToken, Scope, TokenError, Tokens
from steno.journal.parts import File
from steno.search.searching import PLACE, Found
from steno.service import Service
from steno.service.approvals import always
from steno.service.attachments import Attachment, attachment
from steno.service.searches import Wanted
from steno.store.errors import NotAllowed

LIST_MAX = 50
FACTS_AFTER = 60
"""Shown after a message that was searched for."""
TEXT_CHARS_MAX = 1_000_000
FORM_BYTES_MAX = 4 << 20
SEND_BYTES_MAX = 32 << 20
TITLE_CHARS_MAX = 200
OURS = {"Referrer-Policy": "same-origin"}
"""A browser that may not say where a form comes from sends no origin with it, and we want one."""


class Pages:
    """What the page remembers: nothing that a restart would miss."""

    def __init__(
        self,
        hub: Hub,
        tokens: Tokens,
        channels: Callable[[], list[ChannelHealth]],
        held_back_until_s: Callable[[], float | None],
    ) -> None:
        self.hub = hub
        self.tokens = tokens
        self.channels = channels
        self.held_back_until_s = held_back_until_s
        self.inbox = Inbox()
        self.ledger = usage.Ledger()


def _now_ms() -> int:
    return int(time.time() * 1000)


def _html(body: bytes, status: int = 200) -> Content:
    return Content(body, "text/html; charset=utf-8", status, OURS)


def _bytes(part: Html) -> bytes:
    return part.encode("utf-8", "replace")


def _to(call: Call, where: str) -> Answer:
    if call.headers.get("x-steno-page"):
        return Json({"to": where})
    return Content(b"", "text/plain", 303, {"Location": where} | OURS)


def _seq(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise Problem(400, "bad_body", "The number of a message is missing.")
    return int(text)


async def _frame(pages: Pages, call: Call, cursor: str = "") -> Frame:
    service = pages.hub.service()
    mark = await service.views.mark()
    query = call.query.get("q", "").strip()[:TITLE_CHARS_MAX]
    asked = await pages.inbox.waiting(service)
    if (bound := call.token.session) is not None:
        found, more = [await service.views.summary(bound)], None
        asked = [one for one in asked if one.session == bound]
    elif query:
        found, more = await service.views.titled(query, LIST_MAX), None
    else:
        before = (
            call.number("before", -(1 << 62), 1 << 62, None) if not cursor else None
        )
        found = await service.views.sessions(LIST_MAX, before)
        more = found[-1].listed.mark if len(found) == LIST_MAX else None
    after = f"{mark}{BETWEEN}{cursor}" if cursor else str(mark)
    return Frame(found, after, _now_ms(), query, more, len(asked))


# --- what is looked at ----------------------------------------------------------------------------


async def home(pages: Pages, call: Call) -> Answer:
    if query := call.query.get("q", "").strip()[:TITLE_CHARS_MAX]:
        return await _search(pages, call, query)
    agents = pages.hub.program.agents(pages.hub.terms(None))
    body = welcome(agents.known_models(), agents.model_spec(), secrets.token_hex(16))
    return _html(framed("", "sessions", await _frame(pages, call), body, empty=True))


async def _search(pages: Pages, call: Call, query: str) -> Answer:
    """Hits of a search that takes long are sent as they come."""
    following = call.query.get("from")
    if following is not None and PLACE.fullmatch(following) is None:
        raise Problem(
            400, "bad_query", "The page to go on from is not one of a search."
        )
    wanted = Wanted(text=query, limit=LIST_MAX, before=following)
    answers = pages.hub.service().searches.follow(wanted)
    answer = await anext(answers)
    frame = await _frame(pages, call)
    titled = () if following else frame.sessions
    whole = framed("Search", "sessions", frame, shelves.found(query, titled))
    head, tail = whole.split(shelves.FOUND_HERE.encode(), 1)

    async def pieces(answer: Found) -> AsyncIterator[bytes]:
        shown = set[str]()
        async with contextlib.aclosing(answers):
            yield head + _bytes(shelves.hits(answer, shown, frame.now_ms))
            async for later in answers:
                answer = later
                yield _bytes(shelves.hits(answer, shown, frame.now_ms))
        yield _bytes(shelves.found_end(query, answer, len(shown))) + tail

    if answer.done:
        return _html(b"".join([piece async for piece in pieces(answer)]))
    return Stream(pieces(answer), "text/html; charset=utf-8", OURS)


async def session(pages: Pages, call: Call) -> Answer:
    id, hub = call.parameters["id"], pages.hub
    service = hub.service()
    if "before" in call.query:
        return await _earlier_page(pages, call)
    end = await service.views.end(id, FACTS_MIN)
    at = call.number("at", 1, 1 << 31, None)
    if at is not None and at < end.page.first:
        before = str(min(at + FACTS_AFTER, end.page.first))
        return await _earlier_page(pages, replace(call, query={"before": before}))
    folded = fold_end(end)
    scene = scene_of(
        id, folded, call.token.allows("write"), call.token.allows("approve")
    )
    title = end.row.title or "Untitled"
    models = hub.program.agents(hub.terms(None)).known_models()
    body = main(end, folded, scene, title, models, secrets.token_hex(16))
    frame = await _frame(pages, call, printed_cursor(end))
    return _html(framed(title, "sessions", frame, body, id))


async def _earlier(pages: Pages, call: Call) -> tuple[Html, Html, Html]:
    """Blocks before a fact, with the link to those before them, and all of it as a page."""
    id, views = call.parameters["id"], pages.hub.service().views
    before = call.number("before", 2, 1 << 31, 2) or 2
    glance = await views.glance(id)
    page = await views.page(id, min(before - 1, glance.head), FACTS_MIN)
    folded = fold_page(page)
    scene = scene_of(
        id, folded, call.token.allows("write"), call.token.allows("approve")
    )
    blocks = earlier_html(page, await views.reaching(id, before), scene)
    title = glance.row.title or "Untitled"
    return (
        blocks,
        earlier_link(id, page.first),
        earlier_main(page, blocks, scene, title),
    )


async def _earlier_page(pages: Pages, call: Call) -> Answer:
    _, _, body = await _earlier(pages, call)
    bare = replace(call, query={})
    return _html(framed("Earlier", "sessions", await _frame(pages, bare), body))


async def earlier(pages: Pages, call: Call) -> Answer:
    blocks, link, _ = await _earlier(pages, call)
    return Json({"html": str(blocks), "link": str(link)})


async def text(pages: Pages, call: Call) -> Answer:
    """A message as it is stored, to be copied."""
    message = await pages.hub.service().views.message(
        call.parameters["id"], int(call.parameters["seq"])
    )
    return Content(
        message.text.encode("utf-8", "replace"), "text/plain; charset=utf-8"
    )


async def file(pages: Pages, call: Call) -> Answer:
    """An attachment. Nothing but pictures is shown in the browser."""
    part, data = await pages.hub.service().views.attachment(
        call.parameters["id"], int(call.parameters["seq"]), _seq(call.parameters["n"])
    )
    how = {"Cache-Control": "private, max-age=86400, immutable"}
    if isinstance(part, File):
        how["Content-Disposition"] = "attachment"
        return Content(data, "application/octet-stream", 200, how)
    return Content(data, part.media_type, 200, how)


async def approvals(pages: Pages, call: Call) -> Answer:
    service = pages.hub.service()
    waiting = await pages.inbox.waiting(service)
    titles = {
        one.session: (await service.views.glance(one.session)).row.title
        for one in waiting
    }
    body = shelves.approvals(waiting, titles, _now_ms(), call.token.allows("approve"))
    return await _shelf(pages, call, "approvals", "Approvals", body)


async def deliveries(pages: Pages, call: Call) -> Answer:
    found = await pages.hub.service().deliveries.listed(shelves.DELIVERIES_MAX)
    may_change = call.token.allows("write")
    body = shelves.deliveries(
        found, pages.channels(), _now_ms(), may_change, _held_back(pages)
    )
    return await _shelf(pages, call, "deliveries", "Deliveries", body)


async def change_delivery(pages: Pages, call: Call) -> Answer:
    deliveries = pages.hub.service().deliveries
    id, seq = call.parameters["id"], int(call.parameters["seq"])
    match call.parameters["act"]:
        case "again":
            await deliveries.again(id, seq)
        case "give-up":
            await deliveries.give_up(id, seq)
        case _:
            raise Problem(404, "no_route", "There is nothing at this path.")
    return _to(call, "/deliveries")


async def jobs(pages: Pages, call: Call) -> Answer:
    book = pages.hub.service().jobs.book
    found = [
        await book.show(one.id) for one in (await book.listed())[: shelves.JOBS_MAX]
    ]
    body = shelves.jobs(
        found, _now_ms(), call.token.allows("admin"), _held_back(pages)
    )
    return await _shelf(pages, call, "jobs", "Jobs", body)


async def change_job(pages: Pages, call: Call) -> Answer:
    book, by = pages.hub.service().jobs.book, f"page:{call.token.name}"
    job = call.parameters["job"]
    match call.parameters["act"]:
        case "run":
            await book.ask_to_run(job, by, f"page:{call.form().get('key', '')}")
        case "pause":
            await book.pause(job, by)
        case "resume":
            await book.resume(job, by)
        case _:
            raise Problem(404, "no_route", "There is nothing at this path.")
    return _to(call, "/jobs")


async def people(pages: Pages, call: Call) -> Answer:
    accounts = [one async for one in pages.hub.service().chats.every_account()]
    body = shelves.people(accounts, _now_ms(), call.token.allows("admin"))
    return await _shelf(pages, call, "people", "People", body)


async def pair(pages: Pages, call: Call) -> Answer:
    fields = call.form()
    chats, by = pages.hub.service().chats, f"page:{call.token.name}"
    await chats.pair(
        fields.get("code", "").strip(), fields.get("owner") == "yes", by, _now_ms()
    )
    return _to(call, "/people")


async def unpair(pages: Pages, call: Call) -> Answer:
    person = call.form().get("person", "")
    await pages.hub.service().chats.unpair(person, f"page:{call.token.name}")
    return _to(call, "/people")


async def used(pages: Pages, call: Call) -> Answer:
    days = await pages.ledger.days(pages.hub.service(), _now_ms())
    return await _shelf(pages, call, "usage", "Usage", usage.page(days))


async def _shelf(
    pages: Pages, call: Call, shelf: Shelf, title: str, body: Html
) -> Answer:
    return _html(framed(title, shelf, await _frame(pages, call), body))


def _held_back(pages: Pages) -> Html:
    """What acts by itself waits after too many kills, and its pages say so."""
    until_s = pages.held_back_until_s()
    return (
        NOTHING
        if until_s is None
        else shelves.held_back(round(until_s * 1000) - _now_ms())
    )


async def events(pages: Pages, call: Call) -> Answer:
    return Stream(
        page_events(pages.hub, pages.inbox, call, _now_ms), ping=PING, bye=BYE
    )


async def static(pages: Pages, call: Call) -> Answer:
    found = contents().get(call.parameters["file"])
    if found is None:
        raise Problem(404, "no_route", "There is nothing at this path.")
    keep = KEEP if call.parameters["version"] == VERSION else "no-store"
    return Content(found[0], found[1], 200, {"Cache-Control": keep})


# --- coming and going -----------------------------------------------------------------------------


async def login(pages: Pages, call: Call) -> Answer:
    return _html(shelves.login())


async def log_in(pages: Pages, call: Call) -> Answer:
    """Exchange the code of a one-time link for a cookie."""
    if "origin" not in call.headers:
        raise Problem(
            403, "no_origin", "A browser must say where the request comes from."
        )
    try:
        secret = pages.tokens.redeem(call.form().get("code", "").strip())
    except BadToken:
        raise Problem(
            401,
            BAD_LINK,
            "This link was used before, or is older than a minute. "
            "Run `steno gateway open` for another one.",
        ) from None
    given = {"Set-Cookie": cookie(call.cookie_name, secret, VISIT_S)}
    return Content(b"", "text/plain", 303, {"Location": "/"} | given | OURS)


async def log_out(pages: Pages, call: Call) -> Answer:
    with contextlib.suppress(TokenError):  # another tab was quicker
        pages.tokens.revoke(call.token.name)
    gone = {"Set-Cookie": cookie(call.cookie_name, "", 0)}
    return Content(b"", "text/plain", 303, {"Location": "/login"} | gone | OURS)


# --- saying something -----------------------------------------------------------------------------


class Sent(Struct, forbid_unknown_fields=True):
    """What the script of the page sends. `session` "": a new one."""

    text: str
    key: str
    session: str = ""
    mode: Literal["queue", "steer"] = "queue"
    model: str = ""
    files: list[Attached] = []


async def _admit(pages: Pages, sent: Sent, files: Sequence[Attachment]) -> str:
    """Accept an input; its session. A session that is new is made in the same commit, so a form
    that comes twice makes one."""
    hub = pages.hub
    if len(sent.text) > TEXT_CHARS_MAX:
        raise Problem(
            413,
            "too_large",
            f"The text may have {TEXT_CHARS_MAX} characters at most.",
        )
    if not 8 <= len(sent.key) <= 200:
        raise Problem(400, "bad_body", "The form has no key. Load the page again.")
    model = ""
    if not sent.session:
        agents = hub.program.agents(hub.terms(None))
        model = sent.model.strip() or agents.model_spec()
        hub.program.agents(replace(hub.terms(None), model=model)).check()
    service = hub.service(sent.session or None)
    admitted = await asyncio.shield(
        service.admit(
            sent.text,
            sent.session or None,
            None,
            f"page:{sent.key}",
            model,
            sent.mode,
            files,
        )
    )
    await hub.admitted(admitted.session)
    return admitted.session


async def send_by_script(pages: Pages, call: Call) -> Answer:
    sent: Sent = call.read(Sent)
    id = await _admit(pages, sent, [attachment_of(one) for one in sent.files])
    return Json({"to": f"/s/{id}", "session": id}, 202)


async def send_by_form(pages: Pages, call: Call) -> Answer:
    fields, files = call.form_with_files()
    mode: Literal["queue", "steer"] = (
        "steer" if fields.get("mode") == "steer" else "queue"
    )
    text = fields.get("text", "").replace("\r\n", "\n")
    here = call.parameters.get("id", "")
    if not text.strip() and not files:
        return _to(call, f"/s/{here}" if here else "/")
    sent = Sent(text, fields.get("key", ""), here, mode, fields.get("model", ""))
    attached = [
        attachment(name[:LINE_CHARS_MAX] or "file", data) for name, data in files
    ]
    return _to(call, f"/s/{await _admit(pages, sent, attached)}")


# --- doing something ------------------------------------------------------------------------------


def _service(pages: Pages, call: Call) -> tuple[Service, str, dict[str, str]]:
    id = call.parameters["id"]
    return pages.hub.service(id), id, call.form()


def _here(call: Call) -> Answer:
    return _to(call, f"/s/{call.parameters['id']}")


async def stop(pages: Pages, call: Call) -> Answer:
    service, id, fields = _service(pages, call)
    await service.turns.interrupt(id, turn=_seq(fields.get("turn", "")))
    return _here(call)


async def retry(pages: Pages, call: Call) -> Answer:
    service, id, _ = _service(pages, call)
    refuse_draining(pages.hub)
    pages.hub.wake(id, await service.turns.retry(await service.views.load(id)))
    return _here(call)


async def go_on(pages: Pages, call: Call) -> Answer:
    service, id, _ = _service(pages, call)
    refuse_draining(pages.hub)
    pages.hub.wake(id, service.turns.continuation(await service.views.load(id)))
    return _here(call)


async def undo(pages: Pages, call: Call) -> Answer:
    service, id, _ = _service(pages, call)
    await service.edits.undo(id)
    return _here(call)


async def fork(pages: Pages, call: Call) -> Answer:
    service, id, fields = _service(pages, call)
    return _to(call, f"/s/{await service.edits.fork(id, _seq(fields.get('at', '')))}")


async def hide(pages: Pages, call: Call) -> Answer:
    service, id, fields = _service(pages, call)
    await service.edits.hide(
        id, _seq(fields.get("seq", "")), fields.get("hidden") != "no"
    )
    return _here(call)


async def rename(pages: Pages, call: Call) -> Answer:
    service, id, fields = _service(pages, call)
    await service.edits.rename(id, fields.get("title", "")[:TITLE_CHARS_MAX])
    return _here(call)


async def choose_model(pages: Pages, call: Call) -> Answer:
    service, id, fields = _service(pages, call)
    model = fields.get("model", "").strip()[:TITLE_CHARS_MAX]
    hub = pages.hub
    hub.program.agents(replace(hub.terms(id), model=model)).check()
    await service.edits.choose_model(id, model)
    return _here(call)


async def compact(pages: Pages, call: Call) -> Answer:
    service, id, _ = _service(pages, call)
    await service.edits.compact(id, pages.hub.leaving)
    return _here(call)


async def delete(pages: Pages, call: Call) -> Answer:
    service, id, _ = _service(pages, call)
    await service.delete(id, with_forks=False)
    return _to(call, "/")


async def withdraw(pages: Pages, call: Call) -> Answer:
    service, id, fields = _service(pages, call)
    await service.withdraw(id, _seq(fields.get("seq", "")))
    return _here(call)


async def decide(pages: Pages, call: Call) -> Answer:
    service, id, fields = _service(pages, call)
    seq = int(call.parameters["seq"])
    said = fields.get("decision")
    if said not in ("allow", "deny"):
        raise Problem(
            400, "bad_body", "The form does not say whether the call may run."
        )
    decision: Literal["allow", "deny"] = "allow" if said == "allow" else "deny"
    rules: tuple[str, ...] = ()
    if fields.get("always") == "yes":
        rules = always(await service.approvals.choose(id, seq))
    by, reason = f"page:{call.token.name}", fields.get("reason", "")[:2_000]
    if not await service.approvals.decide(id, seq, decision, reason, rules, by):
        raise NotAllowed("This was decided before; nothing was changed.")
    pages.hub.wake(id)
    return _to(call, "/approvals" if fields.get("from") == "inbox" else f"/s/{id}")


# --- the table ------------------------------------------------------------------------------------

_S = "/s/{id}"
_PAGE = {200: "text/html"}


def _look(path: str, says: str, handler: Any, scope: Scope | None = "read") -> Route:
    return Route("GET", path, scope, says, handler, _PAGE)


def _do(path: str, says: str, handler: Any, scope: Scope | None = "write") -> Route:
    answers = {303: None}
    return Route(
        "POST",
        path,
        scope,
        says,
        handler,
        answers,
        body_bytes_max=FORM_BYTES_MAX,
        form=True,
    )


def _say(path: str, says: str) -> Route:
    made = _do(path, says, send_by_form)
    return replace(made, body_bytes_max=SEND_BYTES_MAX, files=True)


ROUTES = (
    _look("/", "The page: sessions, and a new one", home),
    _look(_S, "The page of a session", session),
    Route(
        "GET",
        f"{_S}/earlier",
        "read",
        "Earlier messages, as HTML",
        earlier,
        {200: dict},
    ),
    Route(
        "GET",
        f"{_S}/text/{{seq}}",
        "read",
        "The text of a message",
        text,
        {200: "text/plain"},
    ),
    Route(
        "GET",
        f"{_S}/files/{{seq}}/{{n}}",
        "read",
        "An attachment",
        file,
        {200: "application/octet-stream"},
    ),
    _look("/approvals", "The page of calls that wait for approval", approvals),
    _look("/deliveries", "The page of deliveries", deliveries),
    _do(
        "/deliveries/{id}/{seq}/{act}",
        "Try a delivery again, or give it up",
        change_delivery,
    ),
    _look("/usage", "The page of usage by day", used),
    _look("/jobs", "The page of jobs", jobs),
    _do("/jobs/{job}/{act}", "Run, pause or resume a job", change_job, "admin"),
    _look("/people", "The page of people who may talk to channels", people),
    _do("/people/pair", "Let a person in who has a code", pair, "admin"),
    _do("/people/unpair", "Let a person in no longer", unpair, "admin"),
    Route(
        "GET",
        "/page/events",
        "read",
        "What the page shows, live",
        events,
        {200: "text/event-stream"},
    ),
    Route(
        "GET",
        "/page/{version}/{file}",
        None,
        "A file of the page",
        static,
        {200: "text/plain"},
    ),
    _look("/login", "The page where a browser logs in", login, None),
    _do("/login", "Exchange a one-time link for a cookie", log_in, None),
    _do("/logout", "Log a browser out", log_out, "read"),
    Route(
        "POST",
        "/page/send",
        "write",
        "Say something, by the script of the page",
        send_by_script,
        {202: dict},
        Sent,
        body_bytes_max=SEND_BYTES_MAX,
    ),
    _say("/new", "Say something in a new session"),
    _say(f"{_S}/send", "Say something"),
    _do(f"{_S}/stop", "Stop a turn", stop),
    _do(f"{_S}/retry", "Run the last prompt again", retry),
    _do(f"{_S}/continue", "Continue a turn that was cut off", go_on),
    _do(f"{_S}/undo", "Undo the last turn", undo),
    _do(f"{_S}/fork", "Fork at a message", fork),
    _do(f"{_S}/hide", "Hide a message from the model", hide),
    _do(f"{_S}/rename", "Rename a session", rename),
    _do(f"{_S}/model", "Choose another model", choose_model),
    _do(f"{_S}/compact", "Summarise the older part", compact),
    _do(f"{_S}/delete", "Delete a session", delete, "admin"),
    _do(f"{_S}/withdraw", "Take an input back that waits", withdraw),
    _do(f"{_S}/decide/{{seq}}", "Decide about a call", decide, "approve"),
)
