"""The text of a page of HTML."""

import re
from html.parser import HTMLParser


class _Page(HTMLParser):
    """The text of a page, with headings, items and links as Markdown has them."""

    _UNSEEN = frozenset(("script", "style", "noscript", "svg", "template", "head"))
    _BREAKS = frozenset(
        (
            "p",
            "div",
            "section",
            "article",
            "header",
            "footer",
            "main",
            "nav",
            "ul",
            "ol",
            "table",
        )
    ) | frozenset(("tr", "br", "hr", "pre", "blockquote"))

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._unseen = 0
        self._links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self._UNSEEN:
            self._unseen += 1
        elif re.fullmatch("h[1-6]", tag):
            self.pieces.append("\n\n" + "#" * int(tag[1]) + " ")
        elif tag == "li":
            self.pieces.append("\n- ")
        elif tag in self._BREAKS:
            self.pieces.append("\n")
        elif tag == "a":
            self._links.append(dict(attrs).get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._UNSEEN:
            self._unseen = max(self._unseen - 1, 0)
        elif tag in self._BREAKS or re.fullmatch("h[1-6]", tag):
            self.pieces.append("\n")
        elif (
            tag == "a"
            and self._links
            and (link := self._links.pop()).startswith("http")
        ):
            self.pieces.append(f" ({link})")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.pieces.append(re.sub(r"\s+", " ", data))


def as_text(html: str) -> str:
    page = _Page()
    page.feed(html)
    page.close()
    lines = (line.strip() for line in "".join(page.pieces).splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
