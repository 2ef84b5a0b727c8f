"""All sessions of a store into another one, each whole; cut off, it goes on where it was.

A session that is there already is compared: equal, it is left; with fewer facts than here, and the
same as far as they go, it gets the rest; else it is left as it is and named. At the end all are
compared once more.
"""

import hashlib
import tempfile
from collections.abc import AsyncIterator, Callable
from typing import BinaryIO, cast

from msgspec import Struct

from steno.journal.facts import Record, payloads_of
from steno.journal.parts import Seq
from steno.store.errors import NotAllowed, UnknownSession
from steno.store.protocol import Listed, Store, read_all
from steno.transfer.export import export
from steno.transfer.incoming import Incoming
from steno.transfer.lines import fact_line

PAGE = 100
_IN_MEMORY = 4 << 20
_EXTEND = 200


class Copied(Struct):
    """How many sessions were copied, brought up to date, were there; and those that differ."""

    copied: int = 0
    extended: int = 0
    equal: int = 0
    different: list[str] = []

    @property
    def seen(self) -> int:
        return self.copied + self.extended + self.equal + len(self.different)


async def copy(
    source: Store, target: Store, told: Callable[[Copied], None]
) -> Copied:
    """`told` hears after each session how far it is."""
    done = Copied(different=[])
    async for listed in _all(source):
        await _one(source, target, listed, done)
        told(done)
    async for listed in _all(source):
        if listed.id not in done.different and not await _holds(
            source, target, listed
        ):
            done.different.append(listed.id)
    return done


async def _all(store: Store) -> AsyncIterator[Listed]:
    page = await store.list(PAGE, after=0)
    while page:
        for listed in page:
            yield listed
        page = await store.list(PAGE, after=page[-1].mark)


async def _one(source: Store, target: Store, listed: Listed, done: Copied) -> None:
    try:
        head = (await target.glance(listed.id)).head
    except UnknownSession:
        await _bring(source, target, listed.id)
        done.copied += 1
        return
    same = await _digest(source, listed.id, head) == await _digest(
        target, listed.id, head
    )
    if not same or head > listed.head:
        done.different.append(listed.id)
    elif head == listed.head:
        done.equal += 1
    else:
        await _extend(source, target, listed, head)
        done.extended += 1


async def _bring(source: Store, target: Store, session: str) -> None:
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
        async for line in export(source, session):
            file.write(line)
        file.seek(0)
        incoming = Incoming(cast(BinaryIO, file))
        await target.bring(session, incoming.header.base, incoming.carried())


async def _extend(source: Store, target: Store, listed: Listed, head: Seq) -> None:
    """The facts that came since, some at a time."""
    records: list[Record] = []
    async for record in read_all(source, listed.id, head, listed.head, PAGE):
        records.append(record)
        if len(records) == _EXTEND:
            head, records = await _add(source, target, listed.id, head, records), []
    if records:
        await _add(source, target, listed.id, head, records)


async def _add(
    source: Store, target: Store, session: str, head: Seq, records: list[Record]
) -> Seq:
    hashes = {hash for record in records for hash in payloads_of(record.fact)}
    payloads = [await source.get(hash) for hash in sorted(hashes)]
    await target.extend(session, head, records, payloads)
    return records[-1].seq


async def _holds(source: Store, target: Store, listed: Listed) -> bool:
    """Whether the target has all that the source had when it was listed."""
    try:
        here = await _digest(source, listed.id, listed.head)
        return here == await _digest(target, listed.id, listed.head)
    except (UnknownSession, NotAllowed):
        return False


async def _digest(store: Store, session: str, upto: Seq) -> str:
    whole = hashlib.sha256()
    async for record in read_all(store, session, 0, upto, PAGE):
        line = fact_line(record)
        whole.update(f"{line.seq} {line.at_ms} ".encode() + bytes(line.body))
    return whole.hexdigest()
