"""A file that is there whole, or not at all, and for its owner's eyes only."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from steno.store.sqlite.database import sync_folder
from steno.transfer import FileExists


@contextlib.contextmanager
def written_whole(to: Path, overwrite: bool) -> Iterator[BinaryIO]:
    """A file that gets its name when everything was written to it. A kill leaves a file with
    another name beside it."""
    _check(to, overwrite)
    handle, partial = tempfile.mkstemp(prefix=f"{to.name}.", suffix=".partial", dir=to.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _name(Path(partial), to, overwrite)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(partial).unlink()
    sync_folder(to.parent)


def _check(to: Path, overwrite: bool) -> None:
    if to.exists() and not to.is_file():
        raise FileExists(f"{to} is not a file; nothing was written")
    if to.exists() and not overwrite:
        raise _taken(to)


def _taken(to: Path) -> FileExists:
    return FileExists(f"{to} exists already; --force writes over it; nothing was written")


def _name(partial: Path, to: Path, overwrite: bool) -> None:
    if overwrite:
        partial.replace(to)
        return
    try:
        os.link(partial, to)  # refuses a name that somebody took meanwhile
    except FileExistsError:
        raise _taken(to) from None
    except OSError:  # no hard links here
        _check(to, overwrite)
        partial.replace(to)
