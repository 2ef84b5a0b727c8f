"""What a person types, as a value. Nothing is an error: what does not parse is text, and says so.

words                 each is somewhere in the message, also inside a word
"some words"          in this order; a quote inside is written twice
-word  -"some words"  not in the message
one OR other          either
prefix*               a word that begins so
=word                 the whole word
/regex/               a regular expression, on the text as it is stored
field:value           role, session, tool, model, platform, folder, title, before, after, on, in
"""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal, get_args

from msgspec import Struct

from steno.search.documents import ROLES, SPEECH, Role
from steno.search.folding import forms
from steno.search.regex import Pattern, Refused, compiled

CHARS_MAX = 4_000
TERMS_MAX = 64

TermKind = Literal["text", "prefix", "whole", "regex"]
Field = Literal[
    "role",
    "session",
    "tool",
    "model",
    "platform",
    "folder",
    "title",
    "before",
    "after",
    "on",
    "in",
]
FIELDS: tuple[str, ...] = get_args(Field)
_ROLES: dict[str, frozenset[Role]] = {
    "user": frozenset(("user",)),
    "assistant": frozenset(("assistant",)),
    "tool": frozenset(("tool", "call")),
}
_IN: dict[str, frozenset[Role]] = {
    "tools": frozenset(("tool", "call")),
    "distillates": frozenset(("distillate",)),
    "all": frozenset(ROLES),
}


class Term(Struct, frozen=True):
    """Something that a text has, or has not."""

    kind: TermKind
    text: str
    first: str = ""
    second: str = ""
    pattern: Pattern | None = None


class Query(Struct, frozen=True, kw_only=True):
    """`clauses`: of each, one term has to match. `notes` say what was not understood."""

    clauses: tuple[tuple[Term, ...], ...] = ()
    without: tuple[Term, ...] = ()
    roles: frozenset[Role] = SPEECH
    sessions: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    after_ms: int | None = None
    before_ms: int | None = None
    notes: tuple[str, ...] = ()

    def is_empty(self) -> bool:
        """Whether nothing is asked for."""
        return not self.clauses and not self.without and not self.narrowed()

    def narrowed(self) -> bool:
        """Whether only some messages are asked about, whatever they say."""
        asked = (
            self.tools,
            self.models,
            self.platforms,
            self.folders,
            self.titles,
            self.sessions,
        )
        return any(asked) or self.after_ms is not None or self.before_ms is not None

    def about_sessions(self) -> bool:
        return bool(self.models or self.platforms or self.folders or self.titles)


def literal(text: str, roles: frozenset[Role] = SPEECH) -> Query:
    """The text as it is, with no word or sign that means anything."""
    return Query(clauses=((_text(text),),) if text else (), roles=roles)


def _text(text: str) -> Term:
    return Term("text", text, *forms(text))


_TOKEN = re.compile(
    r"""
      (?P<blank>\s+)
    | (?P<minus>-(?=[^\s-]))?
      (?: (?P<field>[A-Za-z]+):(?P<quote>")?
            (?P<value>(?(quote)(?:[^"]|"")*|(?:
                (?:(?<=before:)|(?<=after:)|(?<=on:))
                \d{1,4}\ +(?:hour|day|week|month|year)s?\ +ago(?!\S)
              | \S*)))
            (?(quote)"|)
        | /(?P<regex>(?:[^/\\\n]|\\.)+)/(?=\s|$)
        | "(?P<phrase>(?:[^"]|"")*)"
        | (?P<word>\S+)
      )
    """,
    re.VERBOSE,
)


def parse(text: str, now_ms: int) -> Query:
    """`now_ms` is what dates like "yesterday" are counted from, in the time of this machine."""
    reading = _Reading(now_ms)
    if len(text) > CHARS_MAX:
        reading.note(f"only the first {CHARS_MAX} characters of the query were used")
    at, text = 0, text[:CHARS_MAX]
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:  # pragma: no cover - a word is anything
            break
        if found["blank"] is None:
            reading.take(found)
        at = found.end()
    return reading.done()


class _Reading:
    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._clauses: list[list[Term]] = []
        self._without: list[Term] = []
        self._roles: frozenset[Role] | None = None
        self._fields: dict[str, list[str]] = {}
        self._after_ms: int | None = None
        self._before_ms: int | None = None
        self._notes: list[str] = []
        self._or = False

    def note(self, text: str) -> None:
        self._notes.append(text)

    def take(self, found: re.Match[str]) -> None:
        if found["field"] is not None and self._field(found):
            return
        if (
            found["word"] == "OR"
            and found["minus"] is None
            and self._clauses
            and not self._or
        ):
            self._or = True
            return
        term = self._term(found)
        if term is None:
            return
        if len(self._without) + sum(map(len, self._clauses)) >= TERMS_MAX:
            self.note(f"only the first {TERMS_MAX} words of the query were used")
        elif found["minus"] is not None:
            self._without.append(term)
        elif self._or:
            self._clauses[-1].append(term)
        else:
            self._clauses.append([term])
        self._or = False

    def _term(self, found: re.Match[str]) -> Term | None:
        if found["regex"] is not None:
            return self._regex(found["regex"])
        if found["phrase"] is not None:
            phrase = found["phrase"].replace('""', '"')
            return _text(phrase) if phrase else None
        word = found[0].removeprefix("-") if found["minus"] else found[0]
        if word.startswith('"'):
            self.note("a quote is not closed, and was searched as text")
            word = word[1:] or word
        if len(word) > 1 and word.endswith("*") and word.strip("*"):
            return Term("prefix", word[:-1], *forms(word[:-1]))
        if len(word) > 1 and word.startswith("=") and word[1] not in "=>":
            return Term("whole", word[1:], *forms(word[1:]))
        return _text(word)

    def _regex(self, source: str) -> Term:
        try:
            return Term("regex", source, pattern=compiled(source))
        except Refused as error:
            self.note(f"/{source}/ was searched as text: {error}")
            return _text(f"/{source}/")

    def _field(self, found: re.Match[str]) -> bool:
        """Whether it is one of ours; else it is text, like http://x or std::vector."""
        name, value = found["field"].lower(), found["value"].replace('""', '"')
        if name not in FIELDS or found["minus"] is not None:
            return False
        if not value or (
            found["quote"] is None and value[0] in "/:\\" and name != "folder"
        ):
            return False
        take: Callable[[str, str], bool]
        match name:
            case "role" | "in":
                take = self._scope
            case "before" | "after" | "on":
                take = self._date
            case _:
                take = self._named
        if not take(name, value):
            self.note(
                f"{found[0]} was searched as text: {value!r} means nothing there"
            )
            return False
        return True

    def _scope(self, name: str, value: str) -> bool:
        known = _ROLES if name == "role" else _IN
        roles = known.get(value.lower())
        if roles is None:
            return False
        if name == "in" and value != "distillates" and self._roles is None:
            self._roles = SPEECH | roles
        else:
            self._roles = roles | (self._roles or frozenset())
        return True

    def _date(self, name: str, value: str) -> bool:
        span = _span(value, self._now_ms)
        if span is None:
            return False
        if name in ("after", "on"):
            self._after_ms = max(self._after_ms or 0, span[0])
        if name in ("before", "on"):
            end = span[1] if name == "on" else span[0]
            self._before_ms = (
                end if self._before_ms is None else min(self._before_ms, end)
            )
        return True

    def _named(self, name: str, value: str) -> bool:
        self._fields.setdefault(name, []).append(value)
        return True

    def done(self) -> Query:
        if self._or:
            self.note("OR at the end was searched as text")
            self._clauses.append([_text("OR")])
        of = {name: tuple(values) for name, values in self._fields.items()}
        roles = self._roles or SPEECH
        if "tool" in of and self._roles is None:
            roles = _ROLES["tool"]
        return Query(
            clauses=tuple(map(tuple, self._clauses)),
            without=tuple(self._without),
            roles=roles,
            sessions=of.get("session", ()),
            tools=of.get("tool", ()),
            models=of.get("model", ()),
            platforms=of.get("platform", ()),
            folders=of.get("folder", ()),
            titles=of.get("title", ()),
            after_ms=self._after_ms,
            before_ms=self._before_ms,
            notes=tuple(dict.fromkeys(self._notes)),
        )


# --- days and times as people write them: 2026-11-05, yesterday, 7d, 2 weeks ago -----------------

_UNITS = {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0, "y": 365.0}
_AGO = re.compile(
    r"(\d{1,4})\s*(h|hours?|d|days?|w|weeks?|m|months?|y|years?)(?:\s+ago)?",
    re.IGNORECASE,
)
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")
_WORDS = {"today": 0, "yesterday": 1}


def _span(text: str, now_ms: int) -> tuple[int, int] | None:
    """The first millisecond of what was written, and the first after it; None if it is no date.
    What is counted back from now begins at that moment, or with that day."""
    text = text.strip().lower()
    now = datetime.fromtimestamp(now_ms / 1000).astimezone()
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        if text in _WORDS:
            return _day(today - timedelta(days=_WORDS[text]))
        if ago := _AGO.fullmatch(text):
            days = int(ago[1]) * _UNITS[ago[2][0]]
            if ago[2][0] == "h":
                start = now - timedelta(days=days)
                return _ms(start), _ms(start + timedelta(hours=1))
            return _day(today - timedelta(days=days))
        if date := _DATE.fullmatch(text):
            return _dated(date)
        moment = datetime.fromisoformat(text.upper().replace(" ", "T"))
        return _ms(moment), _ms(moment) + 60_000
    except (ValueError, OverflowError, OSError):
        return None


def _dated(date: re.Match[str]) -> tuple[int, int]:
    year, month, day = int(date[1]), int(date[2] or 1), int(date[3] or 1)
    start = datetime(year, month, day)  # noqa: DTZ001 - in the time of this machine
    if date[3] is not None:
        return _day(start)
    if date[2] is not None:
        end = datetime(year + month // 12, month % 12 + 1, 1)  # noqa: DTZ001
    else:
        end = datetime(year + 1, 1, 1)  # noqa: DTZ001
    return _ms(start), _ms(end)


def _day(start: datetime) -> tuple[int, int]:
    return _ms(start), _ms(start + timedelta(days=1))


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
