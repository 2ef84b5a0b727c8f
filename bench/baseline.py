"""What is measured against: Python's own sqlite3, one row a transaction, WAL, synchronous=full."""

import sqlite3
from pathlib import Path

from bench.words import TEXTS

WARM_ROWS = 9_000
"""More than a thousand pages: the log has been through its first checkpoint and is written over
from then on."""


class Raw:
    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.connection.execute("pragma journal_mode = wal")
        self.connection.execute("pragma synchronous = full")
        self.connection.execute(
            "create table messages (id integer primary key, session integer, body text)"
        )
        self._warm()

    def _warm(self) -> None:
        self.connection.execute("begin immediate")
        rows = ((i % 100, TEXTS[i % len(TEXTS)]) for i in range(WARM_ROWS))
        self.connection.executemany("insert into messages (session, body) values (?, ?)", rows)
        self.connection.execute("commit")
        for i in range(20):
            self.append(i)

    def append(self, i: int) -> None:
        self.connection.execute("begin immediate")
        self.connection.execute(
            "insert into messages (session, body) values (1, ?)", (TEXTS[i % len(TEXTS)],)
        )
        self.connection.execute("commit")

    def close(self) -> None:
        self.connection.close()
