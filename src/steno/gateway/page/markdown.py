"""Markdown and code as HTML. Raw HTML in the source is text; links go to http, https and mailto
alone and open elsewhere; pictures of others are links, never loaded. What is very long stays plain.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from steno.frontend.sanitize import sanitize
from steno.gateway.page.html import Html, html, many, text

MARKDOWN_CHARS_MAX = 100_000
CODE_CHARS_MAX = 50_000
_LINK = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_ALIGNED = {
    "text-align:right": ' class="right"',
    "text-align:center": ' class="centre"',
}
_COPY = Html(
    '<button type="button" class="copy needs-script" data-copy="code">Copy</button>'
)


@lru_cache(maxsize=1_000)
def markdown(source: str) -> Html:
    """A text as people read it."""
    if len(source) > MARKDOWN_CHARS_MAX:
        return html('<pre class="plain">{source}</pre>', source=source)
    return Html(_parser().render(sanitize(source)))


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    made = MarkdownIt(
        "commonmark", {"html": False, "linkify": False, "typographer": False}
    )
    made.enable(["table", "strikethrough"])
    made.validateLink = lambda url: _LINK.match(url.strip()) is not None  # type: ignore[method-assign]
    made.add_render_rule("fence", _fence)
    made.add_render_rule("code_block", _fence)
    made.add_render_rule("link_open", _link)
    made.add_render_rule("image", _image)
    made.add_render_rule("table_open", lambda *_: '<div class="wide"><table>')
    made.add_render_rule("table_close", lambda *_: "</table></div>")
    made.add_render_rule("th_open", _cell)
    made.add_render_rule("td_open", _cell)
    return made


def _fence(self: RendererHTML, tokens: Sequence[Token], at: int, *_: Any) -> str:
    language = tokens[at].info.split(maxsplit=1)[0] if tokens[at].info.strip() else ""
    return code(tokens[at].content, language)


def _cell(self: RendererHTML, tokens: Sequence[Token], at: int, *_: Any) -> str:
    """The page's policy allows no style in an element."""
    token = tokens[at]
    return f"<{token.tag}{_ALIGNED.get(str(token.attrGet('style')), '')}>"


def _link(self: RendererHTML, tokens: Sequence[Token], at: int, *_: Any) -> str:
    to = tokens[at].attrGet("href") or ""
    return html(
        '<a href="{to}" target="_blank" rel="noopener noreferrer nofollow">',
        to=str(to),
    )


def _image(self: RendererHTML, tokens: Sequence[Token], at: int, *_: Any) -> str:
    token = tokens[at]
    template = (
        '<a href="{to}" target="_blank" rel="noopener noreferrer nofollow" class="picture">'
        "picture: {name}</a>"
    )
    to = str(token.attrGet("src") or "")
    return html(template, to=to, name=token.content or to)


def code(source: str, language: str = "") -> Html:
    """A block of code, coloured if we know its language."""
    name = language if re.fullmatch(r"[\w.+#-]{1,30}", language) else ""
    return html(
        '<div class="code"><div class="code-bar"><span>{name}</span>{copy}</div>'
        '<pre tabindex="0"><code>{body}</code></pre></div>',
        name=name,
        copy=_COPY,
        body=coloured(source.rstrip("\n"), name),
    )


def coloured(source: str, language: str) -> Html:
    lexer = _lexer(language) if len(source) <= CODE_CHARS_MAX else None
    if lexer is None:
        return text(source)
    return Html(
        highlight(sanitize(source), lexer, HtmlFormatter(nowrap=True)).rstrip("\n")
    )


@lru_cache(maxsize=100)
def _lexer(language: str) -> Lexer | None:
    if not language:
        return None
    try:
        lexer: Lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
    return lexer


def diff(lines: Sequence[str]) -> Html:
    """Lines that begin with `+`, `-` or a space."""
    kinds = {"+": "added", "-": "removed"}
    rows = (
        html(
            '<span class="{kind}">{line}\n</span>',
            kind=kinds.get(line[:1], "same"),
            line=line,
        )
        for line in lines
    )
    return html('<pre class="diff" tabindex="0">{rows}</pre>', rows=many(rows))
