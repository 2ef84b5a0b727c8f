"""Texts on their way into a part of the index: they are read, folded and cut before the transaction
begins in which they are written."""

import time
from collections.abc import Callable

from steno.journal.facts import InputAdmitted, MessageHidden, SessionStarted
from steno.journal.listing import parent_in
from steno.journal.parts import Hash, Seq, to_text
from steno.search import grams
from steno.search.documents import LETTER, ROLES, Document, documents
from steno.search.feed import Searched, Told, told
from steno.search.folding import forms
from steno.search.index_file import IndexFile, Part, Place
from steno.store.errors import UnknownPayload
from steno.store.protocol import FeedMark

PAYLOAD = len(ROLES)
"""Stands in the place of a role for the text of a payload; its row has the number of the payload
in the place of a session."""
_LONG = 1 << 16
_FACTS_A_TEXT = 50
_BREATH_S = 0.0001


def payload_text(store: Searched, hash: Hash) -> str | None:
    """All of a payload as text; None if it is gone."""
    try:
        return to_text(store.get(hash))
    except UnknownPayload:
        return None


Numbering = Callable[[str | int], int]
"""The number of a session; of a payload, which is known by one already, itself."""


class Batch:
    """Texts on their way into a part: folded and cut before the transaction begins. `breath_s` is
    how long that may go on before other threads get their turn; they share one lock, and would wait
    twenty times as long for it."""

    def __init__(
        self, store: Searched, file: IndexFile, breath_s: float | None = None
    ) -> None:
        self._store = store
        self._file = file
        self._breath_s = breath_s
        self._breathed_s = time.monotonic()
        self._rows: list[tuple[int, str | int, Seq, FeedMark, str, str]] = []
        self._payloads: dict[Hash, str | None] = {}
        self._carries: list[tuple[Hash, str, Seq, FeedMark]] = []
        self._hidden: list[tuple[str, Seq, Seq, bool]] = []
        self._begun: dict[str, str] = {}
        self._parents: dict[str, str] = {}
        self._at_ms: list[int] = []

    def take(self, begin: Place, end: Place, texts: int, chars: int) -> Place:
        """Take what the feed tells next, up to so many texts; the place that was reached. Facts
        without a text cost little, and are many: of them it is more."""
        facts = _FACTS_A_TEXT * texts
        reached = begin
        for batch in told(self._store, begin, end, max(16, min(250, texts))):
            self._breathe()
            for one in batch:
                if len(self._rows) >= texts or chars <= 0 or facts <= 0:
                    return reached
                chars -= self.add(one)
                facts -= 1
                reached = one.end
                self._breathe()
        return end

    def _breathe(self) -> None:
        if (
            self._breath_s is None
            or time.monotonic() - self._breathed_s < self._breath_s
        ):
            return
        time.sleep(_BREATH_S)
        self._breathed_s = time.monotonic()

    def add(self, one: Told) -> int:
        """How long its texts are."""
        fact = one.record.fact
        if isinstance(fact, MessageHidden):
            self._hidden.append(
                (one.session, fact.target, one.record.seq, fact.hidden)
            )
        elif isinstance(fact, SessionStarted):
            self._begun[one.session] = fact.platform
        elif (
            isinstance(fact, InputAdmitted)
            and (parent := parent_in(fact)) is not None
        ):
            self._parents.setdefault(one.session, parent)
        chars = 0
        for document in documents(one.record):
            self._at_ms.append(one.record.at_ms)
            self._document(one, document)
            chars += len(document.text)
        return chars

    def _document(self, one: Told, document: Document) -> None:
        if document.payload is None:
            role = ROLES.index(document.role)
            self.text(role, document.text, one.session, one.record.seq, one.mark)
            return
        hash = document.payload
        self._carries.append((hash, one.session, one.record.seq, one.mark))
        if hash not in self._payloads:
            known = self._file.one(
                "select 1 from payloads where hash = ? and part notnull", hash
            )
            self._payloads[hash] = None if known else payload_text(self._store, hash)

    def text(
        self, role: int, text: str, session: str | int, seq: Seq, mark: FeedMark
    ) -> None:
        first, second = forms(text)
        letter = "t" if role == PAYLOAD else LETTER[ROLES[role]]
        pairs = grams.wide(first)
        narrow = grams.narrow(first, letter)
        if first != second:
            pairs |= grams.wide(second)
            narrow += grams.narrow(second, letter)
        if len(narrow) > _LONG:
            narrow = grams.distinct(narrow)
        self._rows.append((role, session, seq, mark, narrow, " ".join(pairs)))

    def write(self, part: Part) -> None:
        """Inside a transaction."""
        file, run = self._file, self._file.connection
        numbers: dict[str | int, int] = {}

        def number(session: str | int) -> int:
            if isinstance(session, int):
                return session
            if session not in numbers:
                numbers[session] = _numbered(file, session)
            return numbers[session]

        for hash, text in self._payloads.items():
            n = file.one("select n from payloads where hash = ?", hash)
            if n is None:
                n = file.one(
                    "insert into payloads (hash) values (?) returning n", hash
                )
            if text is not None:
                self.text(PAYLOAD, text, n, 0, part.upto)
                file.connection.execute(
                    "update payloads set part = ? where n = ?", (part.n, n)
                )
        for hash, session, seq, mark in self._carries:
            run.execute(
                "insert or ignore into carries select n, ?, ?, ?, ? from payloads where hash = ?",
                (part.n, number(session), seq, mark, hash),
            )
        id = file.one(f"select coalesce(max(id), 0) from d{part.n}")
        rows = [(id + i, *row) for i, row in enumerate(self._rows, start=1)]
        run.executemany(
            f"insert into d{part.n} values (?, ?, ?, ?, ?)",
            [
                (i, number(session), seq, role, mark)
                for i, role, session, seq, mark, _, _ in rows
            ],
        )
        run.executemany(
            f"insert into g{part.n} (rowid, t) values (?, ?)",
            [(row[0], row[5]) for row in rows],
        )
        run.executemany(
            f"insert into w{part.n} (rowid, t) values (?, ?)",
            [(row[0], row[6]) for row in rows if row[6]],
        )
        self._about_sessions(part, number)
        part.texts += len(rows)
        part.at_min = min([part.at_min, *self._at_ms])
        part.at_max = max([part.at_max, *self._at_ms])

    def _about_sessions(self, part: Part, number: Numbering) -> None:
        run = self._file.connection
        held = {row[1] for row in self._rows if row[0] != PAYLOAD}
        held |= {session for _, session, _, _ in self._carries}
        run.executemany(
            "insert or ignore into holds values (?, ?)",
            [(number(session), part.n) for session in held],
        )
        run.executemany(
            "insert into hidden values (?, ?, ?, ?) on conflict do update set "
            "seq = excluded.seq, hidden = excluded.hidden where excluded.seq > seq",
            [
                (number(session), target, seq, hidden)
                for session, target, seq, hidden in self._hidden
            ],
        )
        run.executemany(
            "update sessions set platform = ? where n = ?",
            [
                (platform, number(session))
                for session, platform in self._begun.items()
            ],
        )
        run.executemany(
            "update sessions set parent = ? where n = ?",
            [(parent, number(session)) for session, parent in self._parents.items()],
        )


def _numbered(file: IndexFile, session: str) -> int:
    n = file.one("select n from sessions where id = ?", session)
    if n is None:
        n = file.one("insert into sessions (id) values (?) returning n", session)
    return int(n)
