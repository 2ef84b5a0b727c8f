"""A session as the lines of a file, page by page, of one moment.

Facts up to the head of that moment, and the text that was being streamed then: a session that is
being run is exported as if its process had been killed, with every character that was shown. Text
can be removed from facts while they are read. So they are read twice and must be the same: after a
redaction before the second reading there is no export with the text.
"""

import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO

from steno.journal.facts import payloads_of
from steno.journal.parts import Hash
from steno.store.errors import UnknownPayload
from steno.store.protocol import Glance, Store, read_all
from steno.transfer import ChangedMeanwhile, FileExists, TransferError
from steno.transfer.lines import (
    LINE_BYTES_MAX,
    VERSION,
    AnyLine,
    EndLine,
    HeaderLine,
    PayloadLine,
    draft_line,
    fact_line,
    key_line,
    to_bytes,
)

PAGE = 100


async def export(store: Store, session: str) -> AsyncIterator[bytes]:
    """The bytes of the file, line by line. Without the last line they are not an export."""
    whole, counts = hashlib.sha256(), {"payload": 0, "fact": 0, "draft": 0, "key": 0}
    async for line in _lines(store, session):
        written = to_bytes(line)
        if len(written) > LINE_BYTES_MAX:
            raise TransferError(
                f"session {session!r} has a payload that is too large to be imported again"
            )
        whole.update(written)
        if not isinstance(line, HeaderLine):
            counts[str(line.__struct_config__.tag)] += 1
        yield written
    yield to_bytes(
        EndLine(
            counts["payload"],
            counts["fact"],
            counts["draft"],
            counts["key"],
            whole.hexdigest(),
        )
    )


async def _lines(store: Store, session: str) -> AsyncIterator[AnyLine]:
    glance = await store.glance(session)
    origin = glance.row.forked_from
    yield HeaderLine(VERSION, session, 0 if origin is None else origin.seq)
    read, brought = hashlib.sha256(), set[Hash]()
    async for record in read_all(store, session, 0, glance.head, PAGE):
        for hash in payloads_of(record.fact):
            if hash not in brought:
                yield await _payload(store, session, hash)
                brought.add(hash)
        line = fact_line(record)
        read.update(line.body)
        yield line
    await _check_unchanged(store, session, glance, read.digest())
    for draft in sorted(
        glance.drafts, key=lambda one: (one.stream.started, one.stream.kind)
    ):
        yield draft_line(draft)
    for keyed in await store.keys(session):
        if keyed.seq <= glance.head:
            yield key_line(keyed)


async def _payload(store: Store, session: str, hash: Hash) -> PayloadLine:
    try:
        return PayloadLine(hash, await store.get(hash))
    except UnknownPayload:
        raise _changed(session) from None


async def _check_unchanged(
    store: Store, session: str, glance: Glance, read: bytes
) -> None:
    again = hashlib.sha256()
    async for record in read_all(store, session, 0, glance.head, PAGE):
        again.update(fact_line(record).body)
    if again.digest() != read:
        raise _changed(session)


def _changed(session: str) -> ChangedMeanwhile:
    return ChangedMeanwhile(
        f"text was removed from session {session!r} while it was exported; try again"
    )


@contextlib.contextmanager
def written_whole(to: Path, overwrite: bool) -> Iterator[BinaryIO]:
    """A file that is there whole or not at all, for its owner alone: it gets its name when all was
    written to it. A kill leaves a file with another name beside it."""
    _check(to, overwrite)
    handle, partial = tempfile.mkstemp(
        prefix=f"{to.name}.", suffix=".partial", dir=to.parent
    )
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _name(Path(partial), to, overwrite)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(partial).unlink()
    if sys.platform != "win32":
        folder = os.open(to.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _check(to: Path, overwrite: bool) -> None:
    if to.exists() and (not overwrite or not to.is_file()):
        raise FileExists(to)


def _name(partial: Path, to: Path, overwrite: bool) -> None:
    if overwrite:
        partial.replace(to)
        return
    try:
        os.link(partial, to)  # refuses a name that was taken meanwhile
    except FileExistsError:
        raise FileExists(to) from None
    except OSError:  # no hard links here
        _check(to, overwrite)
        partial.replace(to)
