"""A copy of a store while it is in use: of one moment, whole, readable by its owner alone."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import apsw

from steno.store.errors import NotAllowed, StoreUnopenable
from steno.store.sqlite.database import sync_folder, translated


def backup(connection: apsw.Connection, to: Path) -> None:
    """Everything acknowledged before this call is in the copy. The name appears when the copy is
    complete."""
    if to.exists():
        raise NotAllowed(f"{to} exists already; a backup never overwrites")
    partial = to.with_name(to.name + ".partial")
    try:
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600))
    except OSError as error:
        raise StoreUnopenable(f"cannot make {partial}: {error.strerror}") from error
    try:
        with translated(f"the backup {to} was not made"), _may_write(connection):
            connection.execute("vacuum into ?", (str(partial),))
        sync_file(partial)
        partial.replace(to)
        sync_folder(to.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


@contextlib.contextmanager
def _may_write(connection: apsw.Connection) -> Iterator[None]:
    """`vacuum into` counts as writing, though it writes to another file."""
    connection.pragma("query_only", False)
    try:
        yield
    finally:
        connection.pragma("query_only", True)


def sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
