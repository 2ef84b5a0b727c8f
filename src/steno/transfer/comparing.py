"""Whether a store has the session of a file already. The file is read to its end in any case: a
damaged one says so."""

import asyncio
from collections.abc import Iterator
from itertools import islice

from steno.journal.drafts import Draft
from steno.journal.facts import Record
from steno.journal.parts import Seq
from steno.store.protocol import Keyed, Payload, Store
from steno.transfer import OtherContent
from steno.transfer.importing import Incoming

PAGE = 100


async def facts_since(store: Store, incoming: Incoming) -> Seq:
    """How many facts the session has here beyond those in the file. `OtherContent` if they are not
    the same up to there."""
    session = incoming.header.session
    glance = await store.glance(session)
    origin = glance.row.forked_from
    same = incoming.header.base == (0 if origin is None else origin.seq)
    after, drafts = 0, list[Draft]()
    carried = (
        one for one in incoming.carried() if not isinstance(one, Payload)
    )  # the same hash is the same payload
    while some := await asyncio.to_thread(_take, carried):
        records = [one for one in some if isinstance(one, Record)]
        drafts += [one for one in some if isinstance(one, Draft)]
        same = same and await _has(store, session, after, records)
        after = records[-1].seq if records else after
    if after == glance.head:
        same = same and {(one.stream, one.text) for one in drafts} == {
            (one.stream, one.text) for one in glance.drafts
        }
    if not same:
        raise OtherContent(
            f"there is a session {session!r} already, and it is another one; nothing was changed"
        )
    return glance.head - after


def _take(carried: Iterator[Record | Draft | Keyed]) -> list[Record | Draft | Keyed]:
    return list(islice(carried, PAGE))


async def _has(store: Store, session: str, after: Seq, records: list[Record]) -> bool:
    return not records or await store.read(session, after, len(records)) == records
