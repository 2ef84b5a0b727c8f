"""A session as one HTML file, to keep or to share: no script, no address that is loaded, pictures
inside it, everything that was said escaped. Many sessions are a file each, and a list of them."""

from base64 import b64encode
from collections.abc import Callable, Container, Iterator, Mapping
from datetime import UTC, datetime

from steno.gateway.page.html import NOTHING, Html, html, many, when
from steno.gateway.page.markdown import code, markdown
from steno.journal.parts import Hash, Image, Seq, reasoning_of
from steno.journal.transcript import Message, Transcript

PICTURE_BYTES_MAX = 5 << 20
PICTURES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
Clean = Callable[[str], str]

_STYLE = """
:root { color-scheme: light dark; --line: light-dark(#d9d6cf, #3a3833); --soft: light-dark(#6b675f,
#a19c92); --back: light-dark(#fbfaf7, #1b1a18); --card: light-dark(#ffffff, #242320); }
body { margin: 0 auto; max-width: 46rem; padding: 2rem 1rem 4rem; background: var(--back);
font: 1rem/1.6 system-ui, sans-serif; color: light-dark(#22201c, #e8e4db); }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .25rem; }
.meta, time, small { color: var(--soft); font-size: .85rem; }
article { margin: 1.5rem 0; }
article > header { display: flex; gap: .75rem; align-items: baseline; }
article > header b { font-size: .9rem; }
.user > div { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
padding: .6rem .9rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.aside { color: var(--soft); font-style: italic; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .75rem;
overflow-x: auto; font: .85rem/1.5 ui-monospace, monospace; }
details { border-left: 3px solid var(--line); padding-left: .75rem; margin: .5rem 0; }
summary { cursor: pointer; color: var(--soft); } .code-bar { display: none; }
table { border-collapse: collapse; } td, th { border: 1px solid var(--line); padding: .3rem .6rem; }
img { max-width: 100%; border-radius: .5rem; } a { color: light-dark(#1f5f8b, #8cc4ea); }
.k, .kc, .kd, .kn, .kr, .kt, .ow { color: light-dark(#8b3a62, #e29ab8); }
.s, .s1, .s2, .sd, .si, .se { color: light-dark(#3f6b1f, #a9cf83); }
.c, .c1, .ch, .cm, .sd { color: var(--soft); } .m, .mi, .mf { color: light-dark(#8a5a00, #e0b56a); }
@media print { body { max-width: none; } details { display: block; } }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def document(
    id: str,
    transcript: Transcript,
    undone: Container[Seq],
    pictures: Mapping[Hash, bytes],
    clean: Clean,
) -> Iterator[str]:
    """Piece by piece. `clean` takes out of a text what should not be shared."""
    title = clean(" ".join(transcript.title.split())) or id
    yield _head(title)
    first = transcript.messages[0].at_ms if transcript.messages else None
    yield html(
        '<header><h1>{title}</h1><p class="meta">{when}{count} messages · steno session {id}</p>'
        "</header><main>",
        title=title,
        when=NOTHING if first is None else html("{day} · ", day=_day(first)),
        count=len(transcript.messages),
        id=id,
    )
    for message in transcript.messages:
        yield _message(message, message.turn in undone, pictures, clean)
    for turn in transcript.turns[-1:]:
        if turn.outcome not in (None, "done"):
            word = "failed" if turn.outcome == "failed" else "was interrupted"
            yield html(
                '<p class="aside">The last turn {word} ({why}).</p>',
                word=word,
                why=turn.cause,
            )
    yield "</main></body></html>\n"


def listing(rows: list[tuple[str, str, int, int]]) -> Iterator[str]:
    """A list of saved sessions: file, title, messages, time."""
    yield _head("steno sessions")
    yield html(
        "<header><h1>{count} sessions</h1></header><main><ul>", count=len(rows)
    )
    for file, title, messages, at_ms in rows:
        yield html(
            '<li><a href="{file}">{title}</a> <small>{count} messages · {day}</small></li>',
            file=file,
            title=title,
            count=messages,
            day=_day(at_ms),
        )
    yield "</ul></main></body></html>\n"


def _head(title: str) -> Html:
    return html(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="referrer" content="no-referrer">'
        "<title>{title}</title><style>{style}</style></head><body>",
        policy=_POLICY,
        title=title,
        style=Html(_STYLE),
    )


def _message(
    message: Message, undone: bool, pictures: Mapping[Hash, bytes], clean: Clean
) -> Html:
    names = {
        "user": "You",
        "assistant": "Assistant",
        "tool": "Tool",
        "notice": "Note",
    }
    marks = [str(message.state)] if message.state != "complete" else []
    marks += ["hidden"] * message.hidden + ["undone"] * undone
    return html(
        '<article class="{role}" id="m{seq}"><header><b>{name}</b> <time>{at}</time> '
        "<small>{marks}</small></header>{files}{body}</article>",
        role=message.role,
        seq=message.seq,
        name=names[message.role],
        at=_time(message.at_ms),
        marks=", ".join(marks),
        files=many(_attached(one, pictures) for one in message.attachments),
        body=_body(message, clean),
    )


def _body(message: Message, clean: Clean) -> Html:
    text = clean(message.text)
    if message.role == "user":
        return html('<div dir="auto">{text}</div>', text=text)
    if message.role == "tool":
        return html(
            "<details><summary>Output, {lines} lines</summary>{output}</details>",
            lines=text.count("\n") + bool(text),
            output=code(text),
        )
    thought = clean(reasoning_of(message.parts))
    calls = (
        html(
            "<details><summary>Calls {name}</summary>{arguments}</details>",
            name=call.name,
            arguments=code(clean(call.arguments), "json"),
        )
        for call in message.tool_calls
    )
    return many(
        (
            when(
                thought,
                html(
                    '<details><summary>Thought</summary><div class="aside">{text}</div></details>',
                    text=thought,
                ),
            ),
            html('<div dir="auto">{said}</div>', said=markdown(text))
            if text
            else NOTHING,
            *calls,
        )
    )


def _attached(part: object, pictures: Mapping[Hash, bytes]) -> Html:
    name = getattr(part, "name", "") or getattr(part, "media_type", "file")
    body = pictures.get(part.hash) if isinstance(part, Image) else None
    if isinstance(part, Image) and body is not None and part.media_type in PICTURES:
        data = f"data:{part.media_type};base64,{b64encode(body).decode()}"
        return html(
            '<p><img src="{data}" alt="{name}"></p>', data=Html(data), name=name
        )
    return html('<p class="aside">{name}</p>', name=name)


def _day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
