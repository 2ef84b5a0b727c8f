"""The frame of every page: the list of sessions at the side, one thing in the middle."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct

from steno.gateway.page.html import NOTHING, Html, html, many, when, with_code
from steno.gateway.page.static import VERSION
from steno.service import Summary

Shelf = Literal["sessions", "approvals", "jobs", "deliveries", "people", "usage"]
_SHELVES: tuple[tuple[Shelf, str, str], ...] = (
    ("sessions", "/", "Sessions"),
    ("approvals", "/approvals", "Approvals"),
    ("jobs", "/jobs", "Jobs"),
    ("deliveries", "/deliveries", "Deliveries"),
    ("people", "/people", "People"),
    ("usage", "/usage", "Usage"),
)
_SOURCES = {
    "http": "web",
    "cli": "command line",
    "chat": "terminal",
    "delegate": "helper",
}


class Frame(Struct, frozen=True):
    """What stands around the middle. `next` is the page of the list that follows; `after` is where
    the stream of the page begins."""

    sessions: Sequence[Summary]
    after: str
    now_ms: int
    query: str = ""
    next: int | None = None
    approvals: int = 0


def document(title: str, body: Html) -> bytes:
    whole = html(
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1, '
        'viewport-fit=cover, interactive-widget=resizes-content">'
        '<meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="/page/{v}/icon.svg" type="image/svg+xml">'
        '<link rel="stylesheet" href="/page/{v}/style.css">'
        '<script src="/page/{v}/theme.js"></script>'
        '<script type="module" src="/page/{v}/app.js"></script></head>{body}</html>\n',
        v=VERSION,
        title=f"{title} · steno" if title else "steno",
        body=body,
    )
    return whole.encode("utf-8", "replace")


def framed(
    title: str,
    shelf: Shelf,
    frame: Frame,
    main: Html,
    session: str = "",
    empty: bool = False,
) -> bytes:
    """A page. On a narrow screen the list is in front if `empty`, else the middle is."""
    return document(
        title,
        html(
            '<body data-after="{after}" data-session="{session}" data-shelf="{shelf}" '
            'class="{front}"><a class="skip" href="#main">Skip to the content</a>'
            '<div id="banner" role="status" aria-live="polite"></div>'
            '<div id="announce" class="unseen" role="status" aria-live="polite"></div>'
            '{side}<main id="main" tabindex="-1">{main}</main></body>',
            after=frame.after,
            session=session,
            shelf=shelf,
            front="front-list" if empty else "front-main",
            side=_side(shelf, frame, session),
            main=main,
        ),
    )


def _side(shelf: Shelf, frame: Frame, session: str) -> Html:
    links = many(
        html(
            '<a href="{to}"{current}>{word}{count}</a>',
            to=to,
            word=word,
            current=Html(' aria-current="page"')
            if name == shelf and not session
            else NOTHING,
            count=_count(frame.approvals) if name == "approvals" else NOTHING,
        )
        for name, to, word in _SHELVES
    )
    return html(
        '<nav class="side" aria-label="Sessions"><header><a class="brand" href="/">steno</a>'
        '<button type="button" id="theme" class="quiet needs-script">◐</button>'
        '<a class="button" href="/" id="new">New</a></header>'
        '<div class="shelves">{links}</div>'
        '<form role="search" method="get" action="/"><input type="search" name="q" value="{query}" '
        'placeholder="Search" aria-label="Search sessions" id="search"></form>'
        '<ul id="sessions"{found}>{rows}</ul>{empty}{more}'
        '<form class="leave" method="post" action="/logout"><button class="quiet">Log out</button>'
        "</form></nav>",
        links=links,
        query=frame.query,
        found=Html(" data-found") if frame.query else NOTHING,
        rows=many(row(one, frame.now_ms, session) for one in frame.sessions),
        empty=when(
            not frame.sessions,
            html(
                '<p class="soft pad" id="no-sessions">{word}</p>',
                word="No title has this in it."
                if frame.query
                else "No sessions yet.",
            ),
        ),
        more=when(
            frame.next is not None,
            html(
                '<p class="pad"><a id="more" href="/?before={next}">Older sessions</a></p>',
                next=frame.next or 0,
            ),
        ),
    )


def _count(number: int) -> Html:
    return html(
        ' <span class="count" id="asked"{none}>{number}</span>',
        number=number,
        none=NOTHING if number else Html(" hidden"),
    )


def row(one: Summary, now_ms: int, current: str = "") -> Html:
    """One session in the list. What is unread a browser knows by itself: it remembers which fact
    it saw last."""
    listed = one.listed
    row = listed.row
    marks = []
    if one.waits:
        marks.append(Html('<span class="mark asks">asks you</span>'))
    elif one.runs:
        marks.append(Html('<span class="mark runs">running</span>'))
    elif row.waiting:
        marks.append(Html('<span class="mark">waiting</span>'))
    elif row.last_turn == "failed":
        marks.append(Html('<span class="mark bad">failed</span>'))
    return html(
        '<li data-id="{id}" data-head="{head}" data-at="{at}" data-model="{model}">'
        '<a href="/s/{id}"{current}>'
        '<span class="title" dir="auto">{title}</span>'
        '<span class="soft meta"><span class="new" hidden>unread</span>{marks}'
        '<span class="source">{source}</span> <time datetime="{stamp}">{ago}</time></span></a>'
        "</li>",
        id=listed.id,
        head=listed.head,
        at=row.updated_ms,
        model=row.fallback or row.model,
        title=row.title or "Untitled",
        marks=many(marks),
        source=source(row.platform),
        stamp=stamp(row.updated_ms),
        ago=ago(row.updated_ms, now_ms),
        current=Html(' aria-current="page"') if listed.id == current else NOTHING,
    )


def bar(title: str, rest: Html = NOTHING) -> Html:
    """The head of the middle."""
    return html(
        '<header class="bar"><a class="back" href="/" aria-label="All sessions">←</a>'
        '<h1 dir="auto" id="title">{title}</h1>{rest}</header>',
        title=title,
        rest=rest,
    )


def source(platform: str) -> str:
    kind = platform.partition("/")[0]
    return _SOURCES.get(kind, kind)


def stamp(at_ms: int) -> str:
    return (
        datetime.fromtimestamp(at_ms / 1000)
        .astimezone()
        .isoformat(timespec="seconds")
    )


def ago(at_ms: int, now_ms: int) -> str:
    seconds = max(0, now_ms - at_ms) // 1000
    for length, word in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds // length} {word}"
    return "now"


def plain(title: str, body: Html) -> bytes:
    """A page without a list, for who is not logged in and for refusals."""
    return document(
        title,
        html(
            '<body class="alone"><main id="main" class="card">{body}</main></body>',
            body=body,
        ),
    )


def refused(status: int, detail: str) -> bytes:
    return plain(
        "Not done",
        html(
            '<h1>That did not work</h1><p>{detail}</p><p class="soft">Nothing was changed '
            '({status}).</p><p><a class="button" href="/">Back to the sessions</a></p>',
            detail=with_code(detail),
            status=status,
        ),
    )
