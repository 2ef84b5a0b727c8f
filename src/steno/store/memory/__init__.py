"""A store in the memory of one process, in plain dictionaries.

A `Place` is what several open stores share, as processes share a file. It lives as long as anything
refers to it, and leaves no bytes. "Durable" means as long as that. An open store can be killed:
from then on it does nothing any more, and its owner counts as dead.

Every table is a dictionary of values that are never changed, so a transaction is undone by putting
back what was there. Who reads holds the place's lock, and so does a transaction.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from steno.journal import codec
from steno.journal.drafts import Stream
from steno.journal.facts import Record
from steno.journal.parts import Hash, Seq, hash_of
from steno.store import facade
from steno.store.backend import (
    Begun,
    Behind,
    ChangeRow,
    ImportRow,
    KeyRow,
    Needs,
    Noted,
    Paused,
    Saved,
    SessionRow,
    marks_of,
    new_row,
)
from steno.store.core import Core
from steno.store.errors import JournalCorrupt, StoreClosed
from steno.store.protocol import Damage, Keyed, Left, Mark, Piece, Settings
from steno.store.values import new_owner

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_ABSENT = object()


class _Text(Struct, frozen=True):
    """The end of a stream: its last piece, where that starts, and what is before it."""

    before: "_Text | None"
    start: int
    text: str

    def after(self, seen: int) -> str:
        pieces: list[str] = []
        at: _Text | None = self
        while at is not None and at.start + len(at.text) > seen:
            pieces.append(at.text[max(seen - at.start, 0) :])
            at = at.before
        return "".join(reversed(pieces))


class _Import(Struct, frozen=True):
    id: str
    at_ms: int
    owner: str | None
    """None once the session is there, "" if it failed."""
    head: Seq


class Place:
    """What the stores that are opened on it share. Where it does not `tell_alive`, only the term of
    a lease says whether its owner is gone, as where several hosts share a store."""

    def __init__(self, tell_alive: bool = True) -> None:
        self.tell_alive = tell_alive
        self.lock = threading.RLock()
        self.living: dict[str, dict[Callable[[], None], None]] = {}
        """The owners that have it open, each with those that wait for what others commit."""
        self.left: dict[str, Left] = {}
        self.counters = {"n": 0, "top": 0, "upto": 0, "commits": 0}
        self.rows: dict[int, SessionRow] = {}
        self.ids: dict[str, int] = {}
        self.facts: dict[tuple[int, Seq], tuple[int, bytes]] = {}
        """Their times and bytes."""
        self.heads: dict[int, Seq] = {}
        self.fresh: dict[int, tuple[int, Seq]] = {}
        """The facts that are in no list row, by their place in the order of changes."""
        self.drafts: dict[tuple[int, Stream], _Text] = {}
        self.payloads: dict[Hash, bytes] = {}
        self.owners: dict[Hash, Mapping[int, int]] = {}
        self.keys: dict[tuple[str, str], tuple[int, Seq, int]] = {}
        self.changes: dict[int, tuple[int, Literal["added"] | Noted, Seq]] = {}
        """Number, kind and seq of each change, by its place in the order of changes."""
        self.deletions: dict[int, tuple[str, bool]] = {}
        """The ids of deleted sessions, and whether they are swept."""
        self.imports: dict[int, _Import] = {}

    def kill(self, owner: str) -> None:
        """As if the process of an owner were killed: what it has not committed is lost, and it
        commits nothing more."""
        with self.lock:
            self.living.pop(owner, None)


class _Reader:
    """See `Snapshot` for what the questions mean."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def _row(self, n: int | None) -> SessionRow | None:
        row = None if n is None else self._place.rows.get(n)
        return (
            None
            if row is None
            else replace(row, head=self._place.heads.get(row.n, row.base))
        )

    def _rows(self, mark: Mark | None) -> list[SessionRow]:
        rows = (self._row(n) for n in self._place.rows)
        return [
            row
            for row in rows
            if row is not None and (mark is None or mark in row.marks)
        ]

    def session(self, of: str | int) -> SessionRow | None:
        return self._row(of if isinstance(of, int) else self._place.ids.get(of))

    def forks(self, n: int) -> list[SessionRow]:
        return [row for row in self._rows(None) if row.parent == n]

    def bound(self, name: str) -> str | None:
        return next(
            (row.id for row in self._place.rows.values() if row.name == name), None
        )

    def named(self, prefix: str, after: str, limit: int) -> list[str]:
        named = [
            (row.name, row.id)
            for row in self._place.rows.values()
            if row.name is not None
        ]
        found = sorted(
            one for one in named if one[0].startswith(prefix) and one[0] > after
        )
        return [id for _, id in found[:limit]]

    def facts(
        self,
        row: SessionRow,
        n: int,
        after: Seq,
        upto: Seq,
        kinds: Sequence[str],
        limit: int,
    ) -> list[Record]:
        found: list[Record] = []
        for seq in range(after + 1, upto + 1):
            if len(found) >= limit:
                break
            stored = self._place.facts.get((n, seq))
            if stored is None:
                raise JournalCorrupt(f"session {row.id!r}: fact {seq} is missing")
            if _is_of(stored[1], kinds):
                found.append(Record(seq, stored[0], codec.decode(stored[1])))
        return found

    def facts_at(
        self, places: Mapping[str, Sequence[Seq]]
    ) -> dict[tuple[str, Seq], Record]:
        found: dict[tuple[str, Seq], Record] = {}
        for id, seqs in places.items():
            n = self._place.ids.get(id, 0)
            for seq in seqs:
                if (stored := self._place.facts.get((n, seq))) is not None:
                    found[id, seq] = Record(seq, stored[0], codec.decode(stored[1]))
        return found

    def drafts(
        self, row: SessionRow, seen: Mapping[Stream, int], started: Seq | None = None
    ) -> list[Piece]:
        found: list[Piece] = []
        for (n, stream), text in self._place.drafts.items():
            if n == row.n and started in (None, stream.started):
                offset = seen.get(stream, 0)
                found.append(Piece(stream, offset, text.after(offset)))
        return sorted((one for one in found if one.text), key=lambda one: one.stream)

    def streaming(self) -> list[str]:
        numbers = dict.fromkeys(n for n, _ in self._place.drafts)
        return [
            row.id for n in numbers if (row := self._place.rows.get(n)) is not None
        ]

    def key(self, source: str, key: str) -> KeyRow | None:
        n, seq, count = self._place.keys.get((source, key), (0, 0, 0))
        row = self._place.rows.get(n)
        return None if row is None else KeyRow(row.id, seq, count)

    def keys(self, n: int, source: str) -> list[Keyed]:
        return sorted(
            Keyed(seq, key, count)
            for (whose, key), (m, seq, count) in self._place.keys.items()
            if m == n and whose == source
        )

    def payload(self, hash: Hash, length: int | None = None) -> bytes | None:
        body = self._place.payloads.get(hash)
        return None if body is None else body[:length]

    def rows(
        self, mark: Mark | None, limit: int, before: int | None = None, after: int = 0
    ) -> Iterator[SessionRow]:
        if before is None:
            rows = sorted(
                (r for r in self._rows(mark) if r.n > after), key=lambda row: row.n
            )
        else:
            rows = [row for row in self._rows(mark) if row.touched < before]
            rows.sort(key=lambda row: row.touched, reverse=True)
        yield from rows[:limit]

    def behind(self, kinds: Sequence[str] = ()) -> list[Behind]:
        rows, facts = self._place.rows, self._place.facts
        last: dict[int, int] = {}
        wanted: set[int] = set()
        for place, at in self._place.fresh.items():
            arrived = self._place.imports.get(at[0])
            if arrived is not None and at[1] <= arrived.head:
                continue
            last[at[0]] = place
            if _is_of(facts[at][1], kinds):
                wanted.add(at[0])
        return [Behind(n, rows[n].id, last[n]) for n in wanted if n in rows]

    def changes(self, after: int, limit: int, facts: bool = True) -> list[ChangeRow]:
        found: list[ChangeRow] = []
        for place in range(after + 1, self.last_place() + 1):
            if len(found) == limit:
                break
            n, kind, seq = self._place.changes.get(place, (0, "added", 0))
            if n and (facts or kind != "added"):
                found.append(self._change(place, n, kind, seq))
        return found

    def _change(
        self, place: int, n: int, kind: Literal["added"] | Noted, seq: Seq
    ) -> ChangeRow:
        row = self._place.rows.get(n)
        if kind != "added":
            session = self._place.deletions[n][0] if row is None else row.id
            return ChangeRow(place, session, kind, seq)
        came = self._place.imports.get(n)
        if row is None or (came is not None and seq <= came.head):
            return ChangeRow(place, None, kind, seq)
        [record] = self.facts(row, n, seq - 1, seq, (), 1)
        return ChangeRow(place, row.id, kind, seq, record)

    def last_place(self) -> int:
        return self._place.counters["top"]

    def told(self, source: str) -> list[str]:
        return [
            row.id
            for row in self._place.rows.values()
            if source in codec.decode_listing(row.list_row).memory.from_sessions
        ]

    def deleted(self, id: str) -> bool:
        return any(deleted == id for deleted, _ in self._place.deletions.values())

    def imported(self, id: str) -> Seq | None:
        found = self._place.imports.get(self._place.ids.get(id, 0))
        return None if found is None else found.head

    def unfinished(self) -> tuple[list[str], list[ImportRow]]:
        return [id for id, swept in self._place.deletions.values() if not swept], [
            ImportRow(n, one.at_ms, one.owner)
            for n, one in self._place.imports.items()
            if one.owner is not None
        ]


class _Writer(_Reader):
    """See `Writer` for what the verbs mean."""

    def __init__(self, place: Place, owner: str) -> None:
        super().__init__(place)
        self._owner = owner
        self._inside = False
        self._undo: list[tuple[dict[Any, Any], object, object]] = []
        self._seen = -1

    # --- the frame

    def begin(self, needs: Iterable[Needs] = (), look: bool = False) -> Begun:
        self._place.lock.acquire()
        self._inside = True
        _check_living(self._place, self._owner)
        return "same" if self._place.counters["commits"] == self._seen else "changed"

    def flush(self) -> None: ...

    def commit(self) -> None:
        _check_living(self._place, self._owner)
        self._undo.clear()
        self._seen = self._place.counters["commits"] = (
            self._place.counters["commits"] + 1
        )
        waiting = [
            tell
            for owner, tells in self._place.living.items()
            if owner != self._owner
            for tell in tells
        ]
        self._leave()
        for tell in waiting:
            tell()

    def rollback(self) -> None:
        while self._undo:
            table, key, before = self._undo.pop()
            if before is _ABSENT:
                table.pop(key, None)
            else:
                table[key] = before
        self._seen = -1
        self._leave()

    def _leave(self) -> None:
        if self._inside:
            self._inside = False
            self._place.lock.release()

    def explain(self, error: Exception) -> None:
        return None

    def _put(self, table: dict[K, V], key: K, value: V) -> None:
        self._undo.append((table, key, table.get(key, _ABSENT)))
        table[key] = value

    def _drop(self, table: dict[K, V], key: K) -> None:
        if key in table:
            self._undo.append((table, key, table[key]))
            del table[key]

    def _count(self, name: str) -> int:
        value = self._place.counters[name] + 1
        self._put(self._place.counters, name, value)
        return value

    # --- rows

    def make(
        self, id: str, name: str | None, parent: int | None, base: Seq
    ) -> SessionRow:
        row = new_row(
            self._count("n"), id, name, parent, base, self._place.counters["top"] + 1
        )
        return self._made(row)

    def _made(self, row: SessionRow) -> SessionRow:
        self._put(self._place.rows, row.n, replace(row))
        self._put(self._place.ids, row.id, row.n)
        return row

    def save(self, saved: Sequence[Saved]) -> None:
        for one in saved:
            row = one.row
            row.list_row, row.listed = codec.encode(one.listing), row.head
            row.marks = marks_of(one.listing)
            row.touched = row.touched if one.touched is None else one.touched
            self._put(self._place.rows, row.n, replace(row))

    def overdue(self, limit: int) -> list[Behind]:
        if self._place.counters["top"] - self._place.counters["upto"] < limit:
            return []
        found = self.behind()
        self._put(self._place.counters, "upto", self._place.counters["top"])
        for place in list(self._place.fresh):
            self._drop(self._place.fresh, place)
        return found

    def add(self, n: int, facts: Sequence[tuple[Seq, int, bytes]]) -> None:
        for seq, at_ms, body in facts:
            self._put(self._place.facts, (n, seq), (at_ms, body))
            self._put(self._place.heads, n, seq)
            place = self._count("top")
            self._put(self._place.fresh, place, (n, seq))
            self._put(self._place.changes, place, (n, "added", seq))

    def note(self, n: int, kind: Noted, seq: Seq) -> None:
        if kind == "deleted":
            self._forget_changes(n)
        self._put(self._place.changes, self._count("top"), (n, kind, seq))

    def _forget_changes(self, n: int) -> None:
        changes = self._place.changes
        for place in [place for place, change in changes.items() if change[0] == n]:
            self._drop(changes, place)

    def replace(self, n: int, seq: Seq, at_ms: int, body: bytes) -> None:
        self._put(self._place.facts, (n, seq), (at_ms, body))

    def draft(self, n: int, stream: Stream, start: int, text: str) -> None:
        before = self._place.drafts.get((n, stream))
        self._put(self._place.drafts, (n, stream), _Text(before, start, text))

    def undraft(self, n: int, started: Seq | None) -> None:
        for key in list(self._place.drafts):
            if key[0] == n and started in (None, key[1].started):
                self._drop(self._place.drafts, key)

    def put_payload(self, hash: Hash, body: bytes) -> None:
        self._put(self._place.payloads, hash, body)

    def own_payload(self, hash: Hash, n: int, names: int) -> None:
        owners = dict(self._place.owners.get(hash, {}))
        owners[n] = owners.get(n, 0) + names
        if names < 0 and owners[n] <= 0:
            del owners[n]
        self._set_owners(hash, owners)

    def _set_owners(self, hash: Hash, owners: Mapping[int, int]) -> None:
        if owners:
            self._put(self._place.owners, hash, owners)
        else:
            self._drop(self._place.owners, hash)
            self._drop(self._place.payloads, hash)

    def put_key(self, source: str, key: str, n: int, seq: Seq, count: int) -> None:
        self._put(self._place.keys, (source, key), (n, seq, count))

    # --- removing and importing

    def delete(self, row: SessionRow, at_ms: int) -> None:
        self._drop(self._place.rows, row.n)
        self._drop(self._place.ids, row.id)
        self.undraft(row.n, None)
        self._put(self._place.deletions, row.n, (row.id, False))

    def sweep(self) -> bool:
        place = self._place
        deleted = [n for n, (_, swept) in place.deletions.items() if not swept]
        failed = [n for n, one in place.imports.items() if one.owner == ""]
        for n in deleted + failed:
            for at in [at for at in place.facts if at[0] == n]:
                self._drop(place.facts, at)
            for order in [order for order, at in place.fresh.items() if at[0] == n]:
                self._drop(place.fresh, order)
            for key in [key for key, found in place.keys.items() if found[0] == n]:
                self._drop(place.keys, key)
            for hash, owners in list(place.owners.items()):
                if n in owners:
                    self._set_owners(
                        hash, {m: names for m, names in owners.items() if m != n}
                    )
            self.undraft(n, None)
            self._drop(place.heads, n)
        for n in deleted:
            self._put(place.deletions, n, (place.deletions[n][0], True))
        for n in failed:
            self._forget_changes(n)
            self._drop(place.imports, n)
        return bool(deleted or failed)

    def begin_import(self, id: str, at_ms: int, owner: str) -> int:
        n = self._count("n")
        self._put(self._place.imports, n, _Import(id, at_ms, owner, 0))
        return n

    def import_of(self, n: int) -> tuple[str | None, int]:
        found = self._place.imports.get(n)
        keys = sum(key[0] == n for key in self._place.keys.values())
        return None if found is None else found.owner, keys

    def end_import(
        self, n: int, id: str, name: str | None, head: Seq, place: int
    ) -> SessionRow:
        arrived = replace(self._place.imports[n], owner=None, head=head)
        self._put(self._place.imports, n, arrived)
        taken = {row.touched for row in self._rows(None)}
        while place in taken:
            place -= 1
        return self._made(new_row(n, id, name, None, 0, place, head))

    def fail_import(self, n: int) -> None:
        found = self._place.imports.get(n)
        if found is not None and found.owner is not None:
            self._put(self._place.imports, n, replace(found, owner=""))


class _Watch:
    def __init__(self, place: Place, owner: str) -> None:
        self._place, self._owner = place, owner

    def add(self, tell: Callable[[], None], hand: object = None) -> None:
        with self._place.lock:
            if self._owner in self._place.living:
                self._place.living[self._owner][tell] = None
                return
        tell()

    def discard(self, tell: Callable[[], None]) -> None:
        with self._place.lock:
            self._place.living.get(self._owner, {}).pop(tell, None)


class MemoryBackend:
    """See `Backend` for what the verbs mean."""

    remote = False

    def __init__(self, place: Place, settings: Settings, owner: str) -> None:
        self.place = place
        self.owner = owner
        self.restored = 0
        self.watch = _Watch(place, owner)
        self._now_ms = settings.now_ms
        with place.lock:
            place.living[owner] = {}

    def writer(self) -> _Writer:
        return _Writer(self.place, self.owner)

    @contextmanager
    def snapshot(self, patient: bool = False) -> Iterator[_Reader]:
        with self.place.lock:
            _check_living(self.place, self.owner)
            yield _Reader(self.place)

    def alive(self, owner: str) -> bool | None:
        return owner in self.place.living if self.place.tell_alive else None

    def heads(self, ids: Sequence[str]) -> dict[str, tuple[Seq, int | None]]:
        with self.snapshot() as view:
            rows = [row for id in ids if (row := view.session(id)) is not None]
        return {
            row.id: (row.head, None if row.owner is None else row.token)
            for row in rows
        }

    def claim(self, limit: int, full: Sequence[str], anew: bool) -> None:
        return None

    def held(self) -> list[tuple[str, int | None]]:
        return []

    def put_back(self, session: str, waits_for: str | None) -> None:
        """Nothing was handed to any worker."""

    def leave(self, session: str, left: Left | None) -> None:
        with self.place.lock:
            self.place.left.pop(session, None)
            if left is not None:
                self.place.left[session] = left

    def left(self, session: str) -> Left | None:
        return self.place.left.get(session)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 if self._now_ms is None else self._now_ms()

    def erase(self) -> None:
        """What was removed is referred to by nothing."""

    def sessions(self) -> Iterator[str]:
        with self.snapshot():
            ids = list(self.place.ids)
        yield from ids

    def damage(self) -> Iterator[Damage]:
        with self.snapshot():
            yield from list(_damage(self.place))

    def start(self, paused: Paused) -> None: ...

    def stop(self) -> None:
        """Those who wait are told once more, and find the store closed."""
        for tell in list(self.place.living.get(self.owner, ())):
            tell()

    def close(self) -> None:
        with self.place.lock:
            self.place.living.pop(self.owner, None)


def _is_of(body: bytes, kinds: Sequence[str]) -> bool:
    return not kinds or body.startswith(
        tuple(f'{{"type":"{kind}"'.encode() for kind in kinds)
    )


def _check_living(place: Place, owner: str) -> None:
    if owner not in place.living:
        raise StoreClosed("the process of this store was killed")


def _damage(place: Place) -> Iterator[Damage]:
    unswept = {n for n, (_, swept) in place.deletions.items() if not swept}
    kept = {
        *place.rows,
        *unswept,
        *(n for n, one in place.imports.items() if one.owner is not None),
    }
    for (source, key), (n, seq, _) in place.keys.items():
        if (n, seq) not in place.facts and n in place.rows:
            yield Damage(
                f"key {key!r} of {source!r}", "refers to a fact that does not exist"
            )
    for n in {n for n, _ in place.facts} - kept:
        yield Damage(f"facts of session number {n}", "belong to no session")
    for n, stream in place.drafts:
        if (n, stream.started) not in place.facts:
            yield Damage(
                f"draft of fact {stream.started}, session {n}", "belongs to no fact"
            )
    for hash, body in place.payloads.items():
        if hash_of(body) != hash or hash not in place.owners:
            yield Damage(
                f"payload {hash}", "does not match its hash, or belongs to no session"
            )


# --- opening --------------------------------------------------------------------------------------


def _opened(place: Place, settings: Settings | None) -> Core:
    settings = settings or Settings()
    core = Core(MemoryBackend(place, settings, new_owner()), settings)
    core.open()
    return core


class BlockingMemoryStore(facade.BlockingStore):
    def __init__(self, place: Place, settings: Settings | None = None) -> None:
        super().__init__(_opened(place, settings))


class MemoryStore(facade.AsyncStore):
    @classmethod
    async def open(
        cls, place: Place, settings: Settings | None = None
    ) -> "MemoryStore":
        return cls(_opened(place, settings))
