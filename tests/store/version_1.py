"""A store of format version 1, as the program of that time left it, and whether a migrated one
holds the same."""

from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from steno.journal import codec
from steno.store.sqlite.store import BlockingStore

_SCRIPT = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")

Rows = list[tuple[Any, ...]]


def files(folder: Path) -> dict[str, bytes]:
    """The files of such a store whose process was killed: all of it is in its log."""
    path = folder / "version_1.db"
    with closing(apsw.Connection(str(path))) as connection:
        connection.pragma("journal_mode", "wal")
        connection.pragma("wal_autocheckpoint", 0)
        connection.execute("begin;" + _SCRIPT + "commit;").fetchall()
        return {ending: path.with_name(path.name + ending).read_bytes() for ending in ("", "-wal")}


def _rows(statement: str) -> Rows:
    with closing(apsw.Connection(":memory:")) as connection:
        connection.execute(_SCRIPT).fetchall()
        return connection.execute(statement).fetchall()


def assert_holds_the_same(store: BlockingStore) -> None:
    """Every fact, draft, key and payload, and the order of lists."""
    with store.backend.snapshot() as reader:
        connection = reader.connection
        for table, columns in (
            ("drafts", "*"),
            ("keys", "*"),
            ("payloads", "*"),
            ("payload_owners", "*"),
            ("deletions", "*"),
            ("sessions", "n, id, name, parent, base, token, owner, expires_ms"),
        ):
            assert connection.execute(f"select {columns} from {table}").fetchall() == _rows(
                f"select {columns} from {table}"
            ), table
    facts = _rows(
        "select s.id, f.id & 0xffffffff, f.at_ms, f.body from facts f join sessions s on s.n = "
        "f.id >> 32"
    )
    for id, base in _rows("select id, base from sessions"):
        found = [
            (id, r.seq, r.at_ms, codec.encode(r.fact).decode())
            for r in store.read_all(id)
            if r.seq > base
        ]
        assert found == [row for row in facts if row[0] == id]
    ids = [id for (id,) in _rows("select id from sessions order by touched desc")]
    assert [listed.id for listed in store.list()] == ids
    assert store.verify().damage == ()
