"""Brings an older store up to this version, one step at a time.

A step is a script that runs in one transaction together with the change of the version number: a
kill leaves the store before the step or after it, readable by the steno that knows that version,
and the next start goes on from there. With the step to the version that this code knows the rows
for lists are made anew from the facts, since what they hold may have changed as well. Then the
pages get room for their checksums if they have none, which SQLite does in one transaction too. All
of it runs only while no other process has the store open.
"""

from pathlib import Path
from zlib import crc32

import apsw
from msgspec import Struct

from steno.journal import codec
from steno.journal.listing import ListingRow
from steno.store import queries
from steno.store.backend import marks_of
from steno.store.rows import columns_of, session_crc
from steno.store.sqlite import database
from steno.store.sqlite.database import SqliteSettings, translated
from steno.store.sqlite.locks import Locks
from steno.store.sqlite.reader import Reader
from steno.store.sqlite.sql import text


class Migration(Struct, frozen=True):
    """Leads to `version` from the one before it, by `to_N.sql` if no script is given."""

    version: int
    script: str = ""


STEPS: tuple[Migration, ...] = tuple(
    Migration(version) for version in range(2, database.VERSION + 1)
)
"""In order, without a gap, ending at `database.VERSION`."""


def open_path(path: Path, settings: SqliteSettings, locks: Locks) -> None:
    """Make or migrate the file and hold it open."""
    if database.restoring(path).exists():
        from steno.store.sqlite import backup  # rarely needed, and so loaded here

        backup.finish(path, locks)
    if path.exists() and not database.has_log(path) and locks.left_behind():
        from steno.store.sqlite import adopt

        adopt.after_strangers(path, settings, locks)
    locks.hold_open()
    if database.prepare(path, settings, STEPS[-1].version) != (
        STEPS[-1].version,
        True,
    ):
        locks.close()
        locks.hold_open(exclusive=True)
        _migrate(path, settings)
        locks.close()
        locks.hold_open()


def _migrate(path: Path, settings: SqliteSettings) -> None:
    connection = database.connect(path, settings)
    connection.create_scalar_function("crc32", _crc32, deterministic=True)
    try:
        with translated(f"cannot migrate {path}"):
            for step in STEPS:
                connection.execute("begin exclusive")
                if connection.pragma("user_version") == step.version - 1:
                    script = step.script or text(f"to_{step.version}.sql")
                    connection.execute(script).fetchall()
                    connection.pragma("user_version", step.version)
                    if step.version >= database.VERSION:
                        _relist(connection)
                connection.execute("commit")
            _check_pages(connection)
    finally:
        connection.close()


def _relist(connection: apsw.Connection) -> None:
    reader, after = Reader(connection), -1
    while rows := list(reader.rows(None, 1, after=after)):
        row = rows[0]
        after, listing = row.n, ListingRow()
        for page in queries.pages(reader, row):
            for record in page:
                listing.apply(record)
        row.list_row, row.listed = codec.encode(listing), row.head
        # What was not due does not become so by being read again.
        row.marks = (marks_of(listing) - {"due"}) | (row.marks & {"due"})
        values = (
            row.list_row.decode(),
            row.listed,
            session_crc(row),
            *columns_of(row.marks),
        )
        reader.all("relist", *values, row.n)


def _check_pages(connection: apsw.Connection) -> None:
    if not database.has_checksums(connection):
        connection.reserve_bytes(reserve=database.CHECKSUM_BYTES)
        connection.execute("vacuum").fetchall()


def _crc32(*texts: object) -> int:
    sum = 0
    for each in texts:
        sum = crc32(str(each).encode(), sum)
    return sum
