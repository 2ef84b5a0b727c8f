"""HTML from templates, with one escaper.

A template is a constant of ours with `{name}` in it. Every value that is put in is escaped, unless
it is `Html` already; so text of a model, a tool or a person can become markup in no other way than
through `markdown`. Characters that control a terminal, or that turn the direction of the text, are
shown as pictures of themselves.
"""

from collections.abc import Iterable
from html import escape as _escape

from steno.frontend.sanitize import sanitize


class Html(str):
    """Markup that is safe to send."""

    __slots__ = ()


NOTHING = Html("")


def text(value: object) -> Html:
    """The one escaper: for text and for attributes in quotes."""
    return value if isinstance(value, Html) else Html(_escape(sanitize(str(value))))


def html(template: str, **values: object) -> Html:
    return Html(
        template.format_map({name: text(value) for name, value in values.items()})
    )


def many(parts: Iterable[Html]) -> Html:
    return Html("".join(parts))


def when(true: object, part: Html) -> Html:
    return part if true else NOTHING


def with_code(said: str) -> Html:
    """What stands between backticks in a sentence of ours is a command."""
    parts = said.split("`")
    return many(
        html("<code>{it}</code>", it=it) if i % 2 else text(it)
        for i, it in enumerate(parts)
    )
