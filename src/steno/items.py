"""What another program keeps in a session, in a format of its own: added, withdrawn and replaced,
each change in one commit.

    kept = chats.items("openai:alice", format="openai.responses")
    kept.add([{"role": "user", "content": "hi"}])
    tail = kept.last(10)
    kept.change([summary], withdraw=[item.seq for item in tail.items], expect=tail.head)

Items wait for no turn. `expect` is the `head` of what you looked at: if others changed the items
meanwhile, the change is refused with `Stale`, and nothing of it is stored.

Where the session has turns of steno, too, what was said in those is read in the same format, so
that a program goes on with the whole conversation. Withdrawing it leaves it out of the items and
changes nothing in the session.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Literal, TypeVar

from msgspec import Struct

from steno.journal.facts import ItemKept, ItemsWithdrawn, Record, SessionStarted
from steno.journal.history import History
from steno.journal.parts import Hash, Seq, hash_of
from steno.journal.readers.writing import WRITERS
from steno.store.errors import Stale, UnknownSession
from steno.store.facade import now
from steno.store.protocol import Keeping, Kept, Store, give_way, read_all

T = TypeVar("T")

PAGE = 200
"""Facts that are read at once at most, from the end of a session on. To begin with as many as were
asked for: most often all of them count."""
KINDS = ("item.kept", "items.withdrawn")


Runs = list[tuple[Seq, Seq]]


class Item(Struct, frozen=True):
    seq: Seq
    value: Any
    key: str | None = None
    at_ms: int = 0
    payloads: tuple[Hash, ...] = ()


class Tail(Struct, frozen=True):
    """The last items, oldest first. `head` is what to `expect`; `whole`: there are no others, or,
    after a seq, none up to there was withdrawn since."""

    items: tuple[Item, ...]
    head: Seq
    whole: bool
    session: str | None = None


class AsyncItems:
    def __init__(self, store: Store, name: str, format: str, platform: str) -> None:
        self._store = store
        self._format = format
        self._started = SessionStarted(platform, name=name)
        self.name = name

    async def session(self) -> str | None:
        """The id of the session that they are in, if there is one."""
        return await self._store.find(self.name)

    async def add(
        self,
        items: Sequence[object],
        keys: Sequence[str | None] | None = None,
        expect: Seq | None = None,
    ) -> Kept:
        """Add items, all or none of them. One whose key was kept before is not kept again; with
        other content it is refused with `KeyReused`."""
        return await self.change(items, (), expect, keys)

    async def change(
        self,
        items: Sequence[object] = (),
        withdraw: Sequence[Seq] = (),
        expect: Seq | None = None,
        keys: Sequence[str | None] | None = None,
        payloads: Sequence[bytes | Hash] = (),
        same: Literal["refuse", "first"] = "refuse",
    ) -> Kept:
        """Add items and withdraw others, in one commit. An `Item` is kept as it was elsewhere, with
        its key and its payloads. `payloads` belong to the first of the items: bytes to store, or
        the hashes of what is stored. With `same="first"` a key that was kept before counts as the
        same item."""
        return await self._store.keep(
            self.keeping(items, withdraw, expect, keys, payloads, same)
        )

    def keeping(
        self,
        items: Sequence[object] = (),
        withdraw: Sequence[Seq] = (),
        expect: Seq | None = None,
        keys: Sequence[str | None] | None = None,
        payloads: Sequence[bytes | Hash] = (),
        same: Literal["refuse", "first"] = "refuse",
    ) -> Keeping:
        """What `change` would do, for `keep_all`: several changes in one commit."""
        named = [None] * len(items) if keys is None else list(keys)
        if len(named) != len(items):
            raise ValueError(f"{len(items)} items have {len(named)} keys")
        kept = [
            self._kept(item, key, payloads if at == 0 else ())
            for at, (item, key) in enumerate(zip(items, named, strict=True))
        ]
        return Keeping(
            create=self._started,
            items=tuple(kept),
            withdraw=runs_of(withdraw),
            expect=expect,
            payloads=tuple(body for body in payloads if isinstance(body, bytes)),
            same=same,
        )

    def _kept(
        self, item: object, key: str | None, payloads: Sequence[bytes | Hash]
    ) -> ItemKept:
        if isinstance(item, Item):
            return ItemKept(
                self._format, _to_json(item.value), item.key, item.payloads
            )
        return ItemKept(
            self._format, _to_json(item), key, tuple(map(_hash, payloads))
        )

    async def at(self, seqs: Sequence[Seq]) -> list[Item]:
        """Items by their seqs, in that order, also those that were withdrawn."""
        session = await self.session() if seqs else None
        if session is None:
            return []
        found = await self._store.facts_at({session: list(seqs)})
        records = [found[session, seq] for seq in seqs if (session, seq) in found]
        return list(_live(records, [], self._format))

    async def by_key(self, key: str) -> Item | None:
        """The item with a key, unless it was withdrawn."""
        session = await self.session()
        seq = (
            None
            if session is None
            else await self._store.kept(session, self._format, key)
        )
        if session is None or seq is None:
            return None
        withdrawn = await self._store.read(session, seq, 1_000, ("items.withdrawn",))
        runs = [
            run
            for one in withdrawn
            if isinstance(one.fact, ItemsWithdrawn)
            for run in one.fact.runs
        ]
        found = (await self._store.facts_at({session: [seq]})).values()
        return next(_live(found, runs, self._format), None)

    async def last(self, n: int | None = None) -> Tail:
        """The last `n` items, or all: read from the end, so that it costs what it gives."""
        return await self._tail(n, 0)

    async def since(self, seq: Seq) -> Tail:
        """Those after a seq."""
        return await self._tail(None, seq)

    async def _tail(self, n: int | None, after: Seq) -> Tail:
        session = await self.session()
        if session is None:
            return Tail((), 0, True)
        try:
            glance = await self._store.glance(session)
            withdrawn: Runs = []
            if self._format in WRITERS and glance.row.turns > 0:
                found = await self._spoken(session, glance.head, after, withdrawn)
            else:
                found = await self._backwards(
                    session, glance.row.items, after, n, withdrawn
                )
        except UnknownSession:
            return Tail((), 0, True)
        kept = found if n is None else found[: max(n, 0)]
        whole = len(kept) == len(found) and all(
            first > after for first, _ in withdrawn
        )
        return Tail(tuple(reversed(kept)), glance.row.items, whole, session)

    async def _backwards(
        self, session: str, upto: Seq, after: Seq, n: int | None, withdrawn: Runs
    ) -> list[Item]:
        found: list[Item] = []
        facts = PAGE if n is None else min(max(n, 0) + 1, PAGE)
        while upto > after and (n is None or len(found) <= n):
            below = max(upto - facts, after)
            facts = min(2 * facts, PAGE)
            page = await self._store.read(session, below, upto - below, KINDS)
            within = [record for record in page if record.seq <= upto]
            found += _live(reversed(within), withdrawn, self._format)
            upto = below
            await give_way()
        return found

    async def _spoken(
        self, session: str, head: Seq, after: Seq, withdrawn: Runs
    ) -> list[Item]:
        """The items, and in the same format what was said in other ways: by turns of steno, or in
        the format of another program. The last one first."""
        history, records = History(), list[Record]()
        async for record in read_all(self._store, session, 0, head):
            history.apply(record)
            if isinstance(record.fact, ItemKept | ItemsWithdrawn):
                records.append(record)
        placed: list[tuple[Seq, Item]] = []
        for page in _pages(records):
            placed += [
                (item.seq, item) for item in _live(page, withdrawn, self._format)
            ]
            await give_way()
        own = {
            record.seq
            for record in records
            if isinstance(record.fact, ItemKept)
            and record.fact.format == self._format
        }
        write = WRITERS[self._format]
        for entries in _pages(history.placed()):
            for at, entry in entries:
                if entry.seq not in own and not _within(entry.seq, withdrawn):
                    said = reversed(list(write(entry)))
                    placed += [(at, Item(entry.seq, value)) for value in said]
            await give_way()
        placed.sort(key=itemgetter(0), reverse=True)
        return [item for _, item in placed if item.seq > after]

    async def pop(self, check: Callable[[Item], bool] | None = None) -> Item | None:
        """Withdraw the last item, and give it back; None if there is none, or if `check` says no to
        it."""
        while (tail := await self.last(1)).items:
            [item] = tail.items
            if check is not None and not check(item):
                return None
            try:
                await self.change(withdraw=[item.seq], expect=tail.head)
            except Stale:
                continue
            return item
        return None

    async def clear(self) -> None:
        """Withdraw all of them, by one fact."""
        tail = await self.last(1)
        if tail.items:
            doomed = ((1, tail.items[-1].seq),)
            await self._store.keep(Keeping(create=self._started, withdraw=doomed))

    async def delete(self) -> bool:
        """Remove the session that they are in, for good; whether there was one."""
        session = await self.session()
        if session is None:
            return False
        try:
            await self._store.delete(session)
        except UnknownSession:
            return False
        return True


class Items:
    """The verbs of `AsyncItems`, blocking."""

    def __init__(self, kept: AsyncItems) -> None:
        self._kept = kept

    def add(
        self,
        items: Sequence[object],
        keys: Sequence[str | None] | None = None,
        expect: Seq | None = None,
    ) -> Kept:
        """Add items, all or none of them."""
        return now(self._kept.add(items, keys, expect))

    def change(
        self,
        items: Sequence[object] = (),
        withdraw: Sequence[Seq] = (),
        expect: Seq | None = None,
        keys: Sequence[str | None] | None = None,
        payloads: Sequence[bytes | Hash] = (),
        same: Literal["refuse", "first"] = "refuse",
    ) -> Kept:
        return now(self._kept.change(items, withdraw, expect, keys, payloads, same))

    def keeping(
        self,
        items: Sequence[object] = (),
        withdraw: Sequence[Seq] = (),
        expect: Seq | None = None,
        keys: Sequence[str | None] | None = None,
        payloads: Sequence[bytes | Hash] = (),
        same: Literal["refuse", "first"] = "refuse",
    ) -> Keeping:
        """What `change` would do, for `Library.keep_all`."""
        return self._kept.keeping(items, withdraw, expect, keys, payloads, same)

    def at(self, seqs: Sequence[Seq]) -> list[Item]:
        """Items by their seqs, in that order, also those that were withdrawn."""
        return now(self._kept.at(seqs))

    def by_key(self, key: str) -> Item | None:
        """The item with a key, unless it was withdrawn."""
        return now(self._kept.by_key(key))

    def last(self, n: int | None = None) -> Tail:
        return now(self._kept.last(n))

    def since(self, seq: Seq) -> Tail:
        """Those after a seq."""
        return now(self._kept.since(seq))

    def pop(self, check: Callable[[Item], bool] | None = None) -> Item | None:
        return now(self._kept.pop(check))

    def clear(self) -> None:
        """Withdraw all of them, by one fact."""
        now(self._kept.clear())

    def delete(self) -> bool:
        """Remove the session that they are in, for good; whether there was one."""
        return now(self._kept.delete())


def _pages(found: Sequence[T]) -> Iterator[Sequence[T]]:
    """From the end on, as many at once as one step of an event loop takes in."""
    for end in range(len(found), 0, -PAGE):
        yield found[max(end - PAGE, 0) : end][::-1]


def _live(
    backwards: Iterable[Record], withdrawn: list[tuple[Seq, Seq]], format: str
) -> Iterator[Item]:
    """The items that are not withdrawn, from the last on. A withdrawal comes after its items, so
    it is met first; `withdrawn` has what was met."""
    for record in backwards:
        fact = record.fact
        if isinstance(fact, ItemsWithdrawn):
            withdrawn.extend(fact.runs)
        elif (
            isinstance(fact, ItemKept)
            and fact.format == format
            and not _within(record.seq, withdrawn)
        ):
            value = json.loads(fact.json)
            yield Item(record.seq, value, fact.key, record.at_ms, fact.payloads)


def _within(seq: Seq, runs: Sequence[tuple[Seq, Seq]]) -> bool:
    return any(first <= seq <= last for first, last in runs)


def runs_of(seqs: Sequence[Seq]) -> tuple[tuple[Seq, Seq], ...]:
    """Seqs as runs of neighbours."""
    runs: list[tuple[Seq, Seq]] = []
    for seq in sorted(set(seqs)):
        if runs and runs[-1][1] == seq - 1:
            runs[-1] = (runs[-1][0], seq)
        else:
            runs.append((seq, seq))
    return tuple(runs)


HEAD_BYTES = 32
"""Of a long value: the length of a list is often in its first bytes, which are in no chunk."""
CHUNK_BYTES = (1 << 16, 1 << 14, 1 << 12, 1 << 10)
WHOLE_BYTES_MAX = 1 << 11


def cut(body: bytes) -> tuple[bytes, list[bytes], bytes]:
    """A value as its first bytes, chunks to store as payloads, and its last bytes. A value that
    grows at its end shares its chunks with what it was, but for the last few small ones."""
    if len(body) <= WHOLE_BYTES_MAX:
        return body, [], b""
    chunks, at = [], HEAD_BYTES
    for size in CHUNK_BYTES:
        while len(body) - at >= size:
            chunks.append(body[at : at + size])
            at += size
    return body[:HEAD_BYTES], chunks, body[at:]


def _hash(payload: bytes | Hash) -> Hash:
    return payload if isinstance(payload, str) else hash_of(payload)


def _to_json(item: object) -> str:
    try:
        return json.dumps(
            item, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        )
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"an item must be JSON: {error}; nothing was stored"
        ) from error
