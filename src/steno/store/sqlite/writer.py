"""The write side: one transaction after another on one connection.

What is added is collected and written in few statements when the batch is flushed: each step of
SQLite hands Python's lock over, so a batch must be few steps. What is asked for meanwhile is
written first.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import apsw

from steno.journal import codec
from steno.journal.drafts import Stream
from steno.journal.facts import Record
from steno.journal.parts import Hash, Seq
from steno.store.backend import (
    Begun,
    Behind,
    Needs,
    Noted,
    Saved,
    SessionRow,
    marks_of,
    new_row,
)
from steno.store.errors import JournalCorrupt, OutcomeUnknown, StoreError
from steno.store.protocol import Piece
from steno.store.rows import change_crc, columns_of, draft_crc, fact_crc, session_crc
from steno.store.sqlite.database import translate
from steno.store.sqlite.reader import Reader
from steno.store.sqlite.sql import ManyRows
from steno.store.sqlite.write_lock import WriteLock

if TYPE_CHECKING:
    from apsw import SQLiteValue

SWEEP_FACTS = 2_000
SWEEP_PAYLOADS = 20

_NOTHING = "nothing was stored"
_GUILTY_ALONE = (
    apsw.ConstraintError,
    apsw.CorruptError,
    apsw.FullError,
    apsw.MismatchError,
    apsw.RangeError,
    apsw.SQLError,
    apsw.TooBigError,
)
_INSERT_FACTS = ManyRows("insert_facts", 6)
_INSERT_DRAFTS = ManyRows("insert_drafts", 6)
_SAVE_SESSIONS = ManyRows("save_sessions", 12)
_MOVE_SESSIONS = ManyRows("move_sessions", 12)


class SqliteWriter(Reader):
    """See `Writer` for what the verbs mean.

    `_top` is the last id of a fact or of what was noted: ids are given in commit order, so they are
    the order of changes. `lists.given` keeps it where what has it may go. `_upto` is the last id
    that is in a list row. Both are read again when SQLite's data version says that another process
    has written.
    """

    def __init__(self, connection: apsw.Connection, lock: WriteLock) -> None:
        super().__init__(connection)
        self._lock = lock
        # For what gives no rows: a cursor for each statement would cost more.
        self._cursor = connection.cursor()
        self._facts: list[tuple[int, int, Seq, int, int, str]] = []
        self._drafts: dict[tuple[int, Stream], tuple[int, list[str]]] = {}
        self._version = -1
        self._others = False
        self._top = self._upto = 0

    # --- the frame

    def others_wrote(self) -> bool:
        """Whether another process has committed since the last time this was asked. Between two
        transactions alone."""
        self.connection.pragma("data_version")  # has the connection look
        others, self._others = self._others, False
        return others or self.connection.data_version() != self._version

    def begin(self, needs: Iterable[Needs] = (), look: bool = False) -> Begun:
        self._lock.enter()
        self._cursor.execute("begin immediate")
        if self.connection.data_version() == self._version:
            return "same"
        self._others = True
        [(top, upto)] = self.all("tops")
        self._top, self._upto = max(top, upto), upto
        return "changed"

    def flush(self) -> None:
        if self._facts:
            self._flush_facts()
        if self._drafts:
            self._flush_drafts()

    def commit(self) -> None:
        try:
            self._cursor.execute("commit")
        except apsw.IOError as error:
            raise OutcomeUnknown(
                f"the disk failed while storing ({error}); it may be stored or not: "
                "the same call with the same key settles it"
            ) from error
        self._version = self.connection.data_version()
        self._lock.leave()

    def rollback(self) -> None:
        self._version = -1
        self._facts.clear()
        self._drafts.clear()
        if self.connection.in_transaction:
            self.connection.execute("rollback")
        self._lock.leave()

    def explain(self, error: Exception) -> tuple[StoreError, bool] | None:
        if isinstance(error, apsw.Error):
            return translate(error, _NOTHING), isinstance(error, _GUILTY_ALONE)
        if isinstance(error, UnicodeDecodeError):
            damaged = f"{_NOTHING}: the database is damaged (text that is not text: {error})"
            return JournalCorrupt(damaged), False
        return None

    def run(self, name: str, *values: "SQLiteValue") -> None:
        self.all(name, *values)

    # --- asking for what was just added

    def facts(
        self,
        row: SessionRow,
        n: int,
        after: Seq,
        upto: Seq,
        kinds: Sequence[str],
        limit: int,
    ) -> list[Record]:
        self._flush_facts()
        return super().facts(row, n, after, upto, kinds, limit)

    def drafts(
        self, row: SessionRow, seen: Mapping[Stream, int], started: Seq | None = None
    ) -> list[Piece]:
        self._flush_drafts()
        return super().drafts(row, seen, started)

    def behind(self, kinds: Sequence[str] = ()) -> list[Behind]:
        self._flush_facts()
        return super().behind(kinds)

    # --- sessions

    def make(
        self, id: str, name: str | None, parent: int | None, base: Seq
    ) -> SessionRow:
        bound = None if name is None else codec.escape(name)
        touched = (
            self._top + 1
        )  # the id that its first fact will have: no other session has it
        [(n,)] = self.all(
            "insert_session", id, bound, parent, base, touched, "", base
        )
        return new_row(n, id, name, parent, base, touched)

    def save(self, saved: Sequence[Saved]) -> None:
        still: list[tuple[SQLiteValue, ...]] = []
        moved: list[tuple[SQLiteValue, ...]] = []
        for one in saved:
            row = one.row
            row.list_row, row.listed = codec.encode(one.listing), row.head
            row.marks = marks_of(one.listing)
            row.touched = row.touched if one.touched is None else one.touched
            lease = (row.token, row.owner, row.expires_ms)
            listed = (
                row.touched,
                row.list_row.decode(),
                row.listed,
                session_crc(row),
            )
            values = (
                row.n,
                row.id,
                row.base,
                *lease,
                *listed,
                *columns_of(row.marks),
            )
            (still if one.touched is None else moved).append(values)
        for rows, statements in ((still, _SAVE_SESSIONS), (moved, _MOVE_SESSIONS)):
            for statement, flat in statements.split(rows):
                self._cursor.execute(statement, flat)

    def overdue(self, limit: int) -> list[Behind]:
        if self._top - self._upto < limit:
            return []
        found = self.behind()
        self.run("lists_upto", self._top)
        self._upto = self._top
        return found

    # --- facts and drafts

    def add(self, n: int, facts: Sequence[tuple[Seq, int, bytes]]) -> None:
        for seq, at_ms, body in facts:
            self._top += 1
            crc = fact_crc(n, seq, at_ms, body)
            self._facts.append((self._top, n, seq, at_ms, crc, body.decode()))

    def note(self, n: int, kind: Noted, seq: Seq) -> None:
        if kind == "deleted":
            self.run("forget_changes", n)
        self._top += 1
        crc = change_crc(self._top, n, kind, seq)
        self.run("insert_change", self._top, n, kind, seq, crc)
        self.run("places_given", self._top)

    def replace(self, n: int, seq: Seq, at_ms: int, body: bytes) -> None:
        self._flush_facts()
        self.run("replace_fact", fact_crc(n, seq, at_ms, body), body.decode(), n, seq)

    def draft(self, n: int, stream: Stream, start: int, text: str) -> None:
        self._drafts.setdefault((n, stream), (start, []))[1].append(text)

    def undraft(self, n: int, started: Seq) -> None:
        self._flush_drafts()
        self.run("delete_drafts", n, started)

    def _flush_facts(self) -> None:
        if not self._facts:
            return
        facts, self._facts = self._facts, []
        for statement, values in _INSERT_FACTS.split(facts):
            self._cursor.execute(statement, values)

    def _flush_drafts(self) -> None:
        if not self._drafts:
            return
        drafts, self._drafts = self._drafts, {}
        rows = []
        for (n, stream), (start, pieces) in drafts.items():
            text = codec.escape("".join(pieces))
            crc = draft_crc(n, stream, start, text.encode())
            rows.append((n, stream.started, stream.kind, start, crc, text))
        for statement, values in _INSERT_DRAFTS.split(rows):
            self._cursor.execute(statement, values)

    # --- payloads and keys

    def put_payload(self, hash: Hash, body: bytes) -> None:
        self.run("insert_payload", hash, body)

    def own_payload(self, hash: Hash, n: int, names: int) -> None:
        self.run("own_payload", hash, n, names)
        if names < 0:
            self.run("disown_payload", hash, n)
            self.run("delete_payload_unowned", hash)

    def put_key(self, source: str, key: str, n: int, seq: Seq, count: int) -> None:
        self.run("insert_key", codec.escape(source), codec.escape(key), n, seq, count)

    # --- removing

    def delete(self, row: SessionRow, at_ms: int) -> None:
        self.flush()
        self.run("insert_deletion", row.n, row.id, at_ms, row.base, row.head)
        self.run("delete_all_drafts", row.n)
        self.run("delete_session", row.n)

    def sweep(self) -> bool:
        found = self.one("unswept")
        if found is None:
            return False
        n, base, head = found
        first = self.one("facts_between", n, base, head, 1)
        if first is not None:
            self.run("delete_facts", n, first[0], first[0] + SWEEP_FACTS)
            return True
        hashes = [hash for (hash,) in self.all("payloads_owned", n, SWEEP_PAYLOADS)]
        for hash in hashes:
            self.run("disown_payload_at_once", hash, n)
            self.run("delete_payload_unowned", hash)
        self.run("delete_all_drafts", n)
        self.run("delete_keys", n, SWEEP_FACTS)
        if not hashes and self.one("key_of", n) is None:
            self.run("deletion_swept", n)
            self.run("import_swept", n)
        return True

    # --- importing

    def begin_import(self, id: str, at_ms: int, owner: str) -> int:
        [(n,)] = self.all("insert_session", id, None, None, 0, 0, "", 0)
        self.run("delete_session", n)
        self.run("insert_import", n, id, at_ms, owner)
        return int(n)

    def import_of(self, n: int) -> tuple[str | None, int]:
        owner, keys = self.one("import_of", n) or (None, 0)
        return owner, keys

    def end_import(
        self, n: int, id: str, name: str | None, head: Seq, place: int
    ) -> SessionRow:
        self._flush_facts()
        bound = None if name is None else codec.escape(name)
        while self.one("place_taken", place) is not None:
            place -= 1
        self.run("place_session", n, id, bound, place)
        self.run("import_done", head, n)
        return new_row(n, id, name, None, 0, place, head)

    def fail_import(self, n: int) -> None:
        self.run("import_failed", n)
        self.run("places_given", self._top)
