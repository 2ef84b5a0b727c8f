"""One session as a page: its end, what is done with it, and what is earlier on demand."""

from msgspec import Struct

from steno.gateway.page.blocks import Scene, block, ending, queue
from steno.gateway.page.html import NOTHING, Html, html, many, when
from steno.gateway.page.layout import bar, source
from steno.journal.drafts import Stream
from steno.journal.facts import Record
from steno.journal.listing import ListingRow
from steno.service import Page, Tail
from steno.session.cursors import to_print
from steno.store.protocol import Cursor
from steno.tui.blocks import Block
from steno.tui.to_blocks import Folded, earlier_blocks
from steno.tui.wording import count

FACTS_MIN = 120
"""A page shows so many facts at least; the first paint does not grow with the session."""


class Status(Struct, frozen=True):
    """What a session is doing, and so which buttons make sense."""

    turn: int | None
    asks: bool
    outcome: str | None
    cause: str = ""

    @property
    def runs(self) -> bool:
        return self.turn is not None


def status_of(folded: Folded) -> Status:
    turn = folded.state.turn
    last = folded.transcript.turns[-1] if folded.transcript.turns else None
    outcome = None if last is None else last.outcome
    cause = "" if last is None else last.cause
    return Status(None if turn is None else turn.seq, folded.asks(), outcome, cause)


def fold_end(end: Tail) -> Folded:
    return Folded.of_end(end, ending)


def fold_page(page: Page) -> Folded:
    """A stretch as it was stored, without what is being streamed."""
    folded = Folded.empty(ending)
    folded.take([*page.waited, *page.records])
    return folded


def scene_of(
    session: str, folded: Folded, may_write: bool, may_approve: bool
) -> Scene:
    attached = {
        message.seq: (message.end, message.attachments)
        for message in folded.transcript.messages
        if message.attachments
    }
    return Scene(session, may_write, may_approve, attached)


def cursor_of(end: Tail) -> Cursor:
    """Where a reader stands who was shown this."""
    live = end.drafts if end.owner is not None else ()
    return Cursor(
        end.head,
        tuple(
            (Stream(one.stream.started, one.stream.kind), len(one.text))
            for one in live
        ),
    )


def printed_cursor(end: Tail) -> str:
    return to_print(cursor_of(end))


# --- parts of the page ----------------------------------------------------------------------------


def main(
    end: Tail, folded: Folded, scene: Scene, title: str, models: list[str], key: str
) -> Html:
    status = status_of(folded)
    return html(
        "{head}"
        '<div id="scroll"><div class="column">{earlier}'
        '<section id="log" role="log" aria-live="off" aria-label="Conversation">{blocks}</section>'
        '<div id="queue" aria-live="polite">{queue}</div><div id="outbox"></div></div></div>'
        '<div id="foot" class="column"><div id="controls">{controls}</div>{composer}</div>',
        head=_head(end.row, scene, title, models),
        earlier=earlier_link(scene.session, end.page.first),
        blocks=blocks_of(folded.blocks(), scene),
        queue=queue(folded.waiting(), scene),
        controls=controls(status, scene),
        composer=when(scene.may_write, composer(scene.session, status.runs, key)),
    )


def blocks_of(found: list[Block], scene: Scene) -> Html:
    if not found:
        return Html('<p class="soft" id="empty">Nothing was said yet.</p>')
    return many(block(one, scene) for one in found)


def earlier_link(session: str, first: int) -> Html:
    return when(
        first > 1,
        html(
            '<p class="centre"><a id="earlier" class="button" href="/s/{id}?before={first}">'
            "Earlier messages</a></p>",
            id=session,
            first=first,
        ),
    )


def earlier_main(page: Page, later: Html, scene: Scene, title: str) -> Html:
    return html(
        '{head}<div id="scroll"><div class="column">{earlier}'
        '<section id="log" aria-label="Conversation">{blocks}</section>'
        '<p class="centre"><a class="button" href="/s/{id}">To the end</a></p></div></div>',
        head=bar(title),
        earlier=earlier_link(scene.session, page.first),
        blocks=later,
        id=scene.session,
    )


def earlier_html(page: Page, reaching: list[Record], scene: Scene) -> Html:
    return blocks_of(earlier_blocks(page, reaching, frozenset(), ending), scene)


def controls(status: Status, scene: Scene) -> Html:
    """What the session is doing, and what can be done about that now."""
    if not scene.may_write:
        return NOTHING
    if status.runs:
        word = "Waits for your decision" if status.asks else "Answering"
        return html(
            '<span class="doing{asks}" role="status">{word}</span>'
            '<form method="post" action="/s/{id}/stop" data-act>'
            '<input type="hidden" name="turn" value="{turn}">'
            '<button class="stop">Stop</button></form>',
            word=word,
            asks=" asks" if status.asks else "",
            id=scene.session,
            turn=status.turn,
        )
    offered = []
    if status.outcome == "interrupted" and status.cause != "user":
        offered.append(("continue", "Continue"))
    if status.outcome in ("failed", "interrupted"):
        offered.append(("retry", "Retry"))
    if status.outcome is not None:
        offered.append(("undo", "Undo"))
    return many(
        html(
            '<form method="post" action="/s/{id}/{act}" data-act><button class="quiet">{word}'
            "</button></form>",
            id=scene.session,
            act=act,
            word=word,
        )
        for act, word in offered
    )


def composer(session: str, runs: bool, key: str) -> Html:
    """The form in which something is said. Its key makes a form that is sent twice one input."""
    return html(
        '<form id="composer" method="post" action="{to}" enctype="multipart/form-data" '
        'data-session="{id}">'
        '<input type="hidden" name="key" value="{key}">'
        '<ul id="attached" aria-label="Attachments"></ul>'
        '<label class="unseen" for="say">Message</label>'
        '<textarea id="say" name="text" rows="2" placeholder="Say something" required '
        'dir="auto" autocomplete="off"></textarea>'
        '<div class="buttons"><label class="button quiet" id="attach">Attach'
        '<input type="file" id="files" name="files" multiple></label>'
        '<span class="hint soft needs-script">Enter sends, Shift+Enter adds a line</span>'
        '<button name="mode" value="steer" id="steer" {steer}>Steer</button>'
        '<button class="go" name="mode" value="queue" id="send">{send}</button></div></form>',
        to=f"/s/{session}/send" if session else "/new",
        id=session,
        key=key,
        steer=NOTHING if runs else Html("hidden"),
        send="Queue" if runs else "Send",
    )


def _head(row: ListingRow, scene: Scene, title: str, models: list[str]) -> Html:
    rest = html(
        '<span class="soft facts"><span class="source">{source}</span>'
        '<span id="model">{model}</span>{context}</span>{menu}',
        source=source(row.platform),
        model=row.fallback or row.model,
        context=when(
            row.context, html("<span>{n} tokens</span>", n=count(row.context or 0))
        ),
        menu=_menu(row, scene, title, models),
    )
    return bar(title, rest)


def _menu(row: ListingRow, scene: Scene, title: str, models: list[str]) -> Html:
    write = html(
        '<form method="post" action="/s/{id}/rename" data-act><label>Title<input name="title" '
        'value="{title}" maxlength="200" required dir="auto"></label><button>Rename</button></form>'
        '<form method="post" action="/s/{id}/model" data-act><label>Model<input name="model" '
        'list="models" value="{model}" maxlength="200" required></label><button>Choose</button>'
        '</form><datalist id="models">{models}</datalist>'
        '<form method="post" action="/s/{id}/compact" data-act><button>Summarise the older part'
        "</button></form>",
        id=scene.session,
        title=title,
        model=row.model,
        models=many(html('<option value="{one}">', one=one) for one in models),
    )
    delete = html(
        '<details class="danger"><summary>Delete…</summary><form method="post" '
        'action="/s/{id}/delete"><p>This removes the session for good, in every place.</p>'
        '<button class="no">Delete for good</button></form></details>',
        id=scene.session,
    )
    return html(
        '<details class="menu"><summary aria-label="More">⋯</summary><div class="sheet">{write}'
        '<p><a href="/api/sessions/{id}/export?format=markdown" download="{id}.md">Export as '
        'Markdown</a></p><p><a href="/api/sessions/{id}/export" download="{id}.jsonl">Export to '
        "import elsewhere</a></p>{delete}</div></details>",
        write=when(scene.may_write, write),
        id=scene.session,
        delete=when(scene.may_write, delete),
    )


def welcome(models: list[str], default: str, key: str) -> Html:
    """A new session."""
    return html(
        '<div class="welcome"><h1>What shall we do?</h1>'
        '<p class="soft">Everything you say is stored before it is answered. '
        "You can close this page at any time; the answer goes on.</p>"
        '{composer}<details id="choose"><summary>Model: {default}</summary>'
        '<label><span class="unseen">Another model</span><input id="new-model" list="models" '
        'placeholder="{default}" maxlength="200" form="composer" name="model"></label>'
        '<datalist id="models">{models}</datalist></details></div>',
        composer=composer("", False, key),
        default=default,
        models=many(html('<option value="{one}">', one=one) for one in models),
    )
