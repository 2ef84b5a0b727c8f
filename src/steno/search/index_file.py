"""The file of the index: a SQLite database beside the journal, in parts of bounded size.

Deleting it is always right. It is written in transactions of its own, so nothing that appends to
the journal ever waits for it. Its pages have checksums as the store's; a page that does not match
is an error, and then the whole file is thrown away.

    Unusable   the file is damaged, of another format, or cannot be opened: drop it, scan meanwhile
    Busy       another process writes to it: it does what we would have done
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct
from msgspec.structs import replace

from steno.journal.parts import Seq
from steno.search import folding
from steno.store.errors import StoreError
from steno.store.protocol import FeedMark
from steno.store.sqlite import database

FORMAT = 2
SEQ_END: Seq = (1 << 32) - 1
CACHE_KIB = 8_192
_PAGE_BYTES = 4_000
"""Of a leaf of FTS5: with checksums the default does not fit a page."""
_MARKS = "".join(
    chr(i) for i in range(33, 127) if not chr(i).isalnum() and chr(i) not in "\"'"
)
_TRIGRAMS = "'trigram case_sensitive 1'"
_WORDS = f"\"ascii tokenchars '{_MARKS}'\""
_SCHEMA = Path(__file__).with_name("schema.sql")
_TRUNCATE_TRIES = 100
_ASKED_AT_ONCE = 500
_SETTINGS = database.SqliteSettings(durability="process", lock_wait_ms=200)


class Unusable(Exception):
    """Throw the file away."""


class Busy(Exception):
    """Somebody else is at it."""


Place = tuple[FeedMark, Seq]
"""A place in the feed: a mark, and a seq in the session that is told there."""


class Part(Struct):
    """A range of the feed, with all its texts."""

    n: int
    after: FeedMark
    after_seq: Seq
    upto: FeedMark
    upto_seq: Seq
    as_of: FeedMark
    texts: int
    at_min: int
    at_max: int
    state: str

    @property
    def begin(self) -> Place:
        return self.after, self.after_seq

    @property
    def end(self) -> Place:
        return self.upto, self.upto_seq


class IndexFile:
    """One connection, for one thread at a time. `store` names the store that it is of; `vfs` is
    SQLite's file layer, for tests."""

    def __init__(
        self, path: Path, store: str = "", make: bool = True, vfs: str | None = None
    ) -> None:
        self.path = path
        self._vfs = vfs
        self._store = store
        self._vocabularies: set[int] = set()
        self.log_pages = 0
        try:
            self.connection = self._connect(make)
            self._check()
        except (apsw.Error, StoreError, OSError) as error:
            self.close()
            raise Unusable(str(error)) from error
        except Unusable:
            self.close()
            raise

    def _connect(self, make: bool) -> apsw.Connection:
        with contextlib.suppress(FileExistsError):
            if make:
                os.close(
                    os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                )
        connection = database.connect(self.path, replace(_SETTINGS, vfs=self._vfs))
        connection.pragma("cache_size", -CACHE_KIB)
        connection.set_wal_hook(self._committed)
        return connection

    def _committed(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self.log_pages = pages
        return apsw.SQLITE_OK

    def _check(self) -> None:
        connection = self.connection
        if not connection.execute("select 1 from sqlite_schema limit 1").get:
            connection.reserve_bytes(reserve=database.CHECKSUM_BYTES)
            connection.pragma("journal_mode", "wal")
            with self.writing():
                if not connection.execute("select 1 from sqlite_schema limit 1").get:
                    connection.execute(_SCHEMA.read_text(encoding="utf-8")).fetchall()
                    connection.execute(
                        "insert into about values (?, ?, ?, 0, 0, 0, 0)",
                        (FORMAT, folding.VERSION, self._store),
                    )
        about = connection.execute(
            "select format, folding, store from about"
        ).fetchone()
        if about != (FORMAT, folding.VERSION, self._store):
            raise Unusable(f"the index is of another kind: {about}")

    def close(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """One transaction. Whoever else writes to the index is not waited for."""
        try:
            self.connection.execute("begin immediate")
        except apsw.BusyError as error:
            raise Busy(str(error)) from error
        try:
            yield self.connection
            self.connection.execute("commit")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("rollback")
            raise

    def settle(self) -> None:
        """Move the pages of the log into the file. It waits for the disk, and a commit of the
        journal may wait with it; so it is no part of a transaction, and comes when there is time
        for it. Nobody who reads or writes the index waits."""
        with contextlib.suppress(apsw.BusyError):  # somebody else is at it
            self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    @contextlib.contextmanager
    def moment(self) -> Iterator["IndexFile"]:
        """Everything asked inside is of one moment."""
        self.connection.execute("begin")
        try:
            yield self
        finally:
            if self.connection.in_transaction:
                self.connection.execute("commit")  # keeps the tables of vocabularies

    def one(self, sql: str, *values: Any) -> Any:
        row = self.connection.execute(sql, values).fetchone()
        return None if row is None else row[0]

    def rows(self, sql: str, *values: Any) -> list[Any]:
        return self.connection.execute(sql, values).fetchall()

    # --- parts

    def parts(self) -> list[Part]:
        """In the order of the feed."""
        return [
            Part(*row)
            for row in self.rows("select * from parts order by after, after_seq")
        ]

    def begin_part(self, begin: Place, as_of: FeedMark) -> Part:
        """Inside a transaction."""
        n = int(self.one("update about set parts = parts + 1 returning parts"))
        part = Part(n, *begin, *begin, as_of, 0, 1 << 62, 0, "open")
        run = self.connection.execute
        run("insert into parts values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", _row(part))
        run(
            f"create table d{n} (id integer primary key, session integer not null, "
            "seq integer not null, role integer not null, mark integer not null) strict"
        )
        for table, tokens in ((f"g{n}", _TRIGRAMS), (f"w{n}", _WORDS)):
            run(
                f"create virtual table {table} using fts5"
                f"(t, content='', columnsize=0, detail=none, tokenize={tokens})"
            )
        for table in (f"g{n}", f"w{n}"):
            self._set(table, "pgsz", _PAGE_BYTES)
            self._set(table, "usermerge", 2)
        return part

    def pace(self, part: Part, bulk: bool) -> None:
        """How a part is merged while it is filled: by and by, or only when it is full."""
        for table in (f"g{part.n}", f"w{part.n}"):
            self._set(table, "automerge", 0 if bulk else 4)
            self._set(table, "crisismerge", 1_900 if bulk else 16)

    def save_part(self, part: Part) -> None:
        self.connection.execute(
            "replace into parts values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", _row(part)
        )

    def drop_part(self, n: int) -> None:
        """Inside a transaction. It is used no more from then on; `sweep` empties its pages, and
        `scrub` the log."""
        run = self.connection.execute
        run("delete from parts where n = ?", (n,))
        run("delete from holds where part = ?", (n,))
        run("delete from carries where part = ?", (n,))
        run("update payloads set part = null where part = ?", (n,))
        run(
            "delete from payloads where part is null and n not in (select payload from carries)"
        )
        run("insert into dropped values (?)", (n,))
        run("update about set dirty = 1")

    def sweep(self) -> bool:
        """Overwrite some pages of a part that was dropped; whether there was one. All of a part at
        once would be a transaction of a quarter of a second."""
        n = self.one("select n from dropped limit 1")
        if n is None:
            return False
        with self.writing() as connection:
            for table, rows in (
                (f"g{n}_data", 400),
                (f"w{n}_data", 400),
                (f"d{n}", 8_000),
            ):
                if self.one("select 1 from sqlite_schema where name = ?", table):
                    some = f"select id from {table} limit {rows}"
                    connection.execute(f"delete from {table} where id in ({some})")
                    if connection.changes():
                        return True
            for table in (f"temp.v{n}", f"temp.vw{n}", f"g{n}", f"w{n}", f"d{n}"):
                connection.execute(f"drop table if exists {table}")
            self._vocabularies.discard(n)
            connection.execute("delete from dropped where n = ?", (n,))
        return True

    def merge(self, part: Part, pages: int = 64) -> bool:
        """One step of merging a full part into one segment; whether there is more to do. A
        negative number begins."""
        busy = False
        with self.writing():
            for table in (f"g{part.n}", f"w{part.n}"):
                before = self.connection.total_changes()
                self._set(table, "merge", pages)
                busy |= self.connection.total_changes() - before >= 2
        return busy

    def _set(self, table: str, option: str, value: int) -> None:
        self.connection.execute(
            f"insert into {table} ({table}, rank) values (?, ?)", (option, value)
        )

    def vocabulary(self, n: int, wide: bool = False) -> str:
        """The name of a table of the three letters of a part, or of its wide letters."""
        if n not in self._vocabularies:
            self.connection.execute(
                f"create virtual table if not exists temp.v{n} using fts5vocab(main, g{n}, row)"
            )
            self.connection.execute(
                f"create virtual table if not exists temp.vw{n} using fts5vocab(main, w{n}, row)"
            )
            self._vocabularies.add(n)
        return f"temp.vw{n}" if wide else f"temp.v{n}"

    def shares(self, grams: Sequence[str]) -> dict[str, float]:
        """How common these are, as of when that was last counted; those that are not, are rare."""
        found: dict[str, float] = {}
        for start in range(0, len(grams), _ASKED_AT_ONCE):
            some = grams[start : start + _ASKED_AT_ONCE]
            wanted = ",".join("?" * len(some))
            found |= self.rows(
                f"select gram, share from common where gram in ({wanted})", *some
            )
        return found

    # --- what was removed

    def scrub(self) -> bool:
        """Leave nothing of what was dropped in the log; whether that could be done. Another
        process that reads keeps the log for a moment."""
        for _ in range(_TRUNCATE_TRIES):
            with contextlib.suppress(apsw.BusyError):
                [(busy, _, _)] = self.rows("pragma wal_checkpoint(truncate)")
                if not busy:
                    with self.writing():
                        self.connection.execute("update about set dirty = 0")
                    return True
        return False


def _row(part: Part) -> tuple[Any, ...]:
    return tuple(getattr(part, name) for name in Part.__struct_fields__)


def remove(path: Path) -> None:
    """Throw an index away, with its log."""
    for ending in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
