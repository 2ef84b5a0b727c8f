"""Every verb of a store, over any backend. `facade` gives them to callers that block and to callers
that await.

A verb that only writes gives a `Queued`: what to do in a transaction, for the commit queue. The
others look first, and are run in the caller's thread.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from steno.journal.drafts import Draft, Stream
from steno.journal.facts import (
    FREE_FACTS,
    TURN_FACTS,
    FreeFact,
    ItemsWithdrawn,
    Record,
    SessionStarted,
    TurnFact,
)
from steno.journal.listing import ListingRow
from steno.journal.parts import Hash, Seq, hash_of
from steno.store import queries, redact_cascade, verbs
from steno.store.backend import Backend, ImportRow, Needs, SessionRow, Snapshot
from steno.store.commit_queue import CommitQueue, Queued
from steno.store.errors import (
    JournalCorrupt,
    NotAllowed,
    OutcomeUnknown,
    SessionBusy,
    StoreClosed,
    StoreError,
    StoreUnwritable,
    UnknownPayload,
    UnknownSession,
    note,
    warn,
)
from steno.store.protocol import (
    Admission,
    Admitted,
    Appended,
    Carried,
    ChangePage,
    Closing,
    Cursor,
    Event,
    FeedMark,
    Glance,
    Keeping,
    Kept,
    Keyed,
    Lease,
    Left,
    Listed,
    Release,
    Report,
    Settings,
    Shares,
    Where,
)
from steno.store.transaction import Changes, Transaction, Written, written
from steno.store.values import (
    check_admission,
    check_facts,
    check_keeping,
    check_kinds,
    check_lease,
    check_new_id,
    check_payload,
    check_started,
    check_stream,
    check_where,
    expect,
    new_id,
)
from steno.store.verbs import RESERVED_SOURCE, Moment

if TYPE_CHECKING:
    from steno.store.verify import Tell

T = TypeVar("T")

KEEPINGS_MAX = 100
_IMPORT_MS_MAX = 24 * 3_600_000
"""Where it cannot be told whether a process is alive, an import that takes longer counts as given
up."""


class Core:
    """One open store. Safe to use from many threads."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self.backend = backend
        self.settings = settings
        self.queue = CommitQueue(Transaction(backend.writer()), self._committed)
        self._listeners: list[Callable[[Changes], None]] = []
        self.copies: list[Callable[[], None]] = []
        """What takes removed text out of copies that others keep beside the journal. Called before
        a removal is acknowledged."""
        self._leases: set[tuple[str, int]] = set()
        self._claimed: set[str] = set()
        """What was handed out of the ready queue and is neither run nor put back yet."""
        self._rows = queries.Remembered()
        self._closed = False
        self._pid = os.getpid()
        backend.start(self.queue.paused)

    def open(self) -> None:
        """Finish what a process that was killed left unfinished. A full disk is no reason not to
        read."""
        try:
            with contextlib.suppress(StoreUnwritable, OutcomeUnknown):
                self._sweep()
        except BaseException:
            self.close()
            raise

    # --- what needs no lease

    def admit(self, admission: Admission) -> Queued[Admitted]:
        check_admission(admission, self.settings.payload_bytes_max)
        visit = () if admission.visit is None else (admission.visit,)
        ready = written((*admission.given, *visit, admission.input))
        size = sum(len(body) for _, body, _ in ready) + sum(
            map(len, admission.payloads)
        )
        key, create = admission.input.key, admission.create
        needs = Needs(
            admission.session,
            None if key is None else (admission.input.source, key),
            None if create is None else create.name,
            create is not None,
        )
        return Queued(
            lambda tx: verbs.admit(tx, admission, ready, self.moment()),
            size,
            needs=needs,
        )

    def admitted(self, source: str, key: str) -> Queued[Admitted | None]:
        expect(str, source=source, key=key)
        return Queued(
            lambda tx: verbs.admitted(tx, source, key), needs=Needs(key=(source, key))
        )

    def create(
        self, started: SessionStarted, session: str | None = None
    ) -> Queued[str]:
        check_started(started)
        if session is not None:
            check_new_id(session)
        return Queued(
            lambda tx: verbs.create(tx, started, session, self.moment()),
            needs=Needs(session, None, started.name, True),
        )

    def ensure(self, started: SessionStarted) -> Queued[str]:
        check_started(started)
        return Queued(
            lambda tx: verbs.ensure(tx, started, self.moment()),
            needs=Needs(None, None, started.name, True),
        )

    def fork(self, session: str, at: Seq, started: SessionStarted) -> str:
        expect(int, at=at)
        check_started(started)
        listing, after = ListingRow(), 0
        while after < at and (
            page := self.read(session, after, min(queries.PAGE, at - after))
        ):
            for record in page:
                listing.apply(record)
            after = page[-1].seq
        return self.queue.run(
            lambda tx: verbs.fork(tx, session, at, started, listing, self.moment()),
            Needs(session, makes=True),
        )

    def add(
        self, session: str, facts: Sequence[FreeFact], key: str | None = None
    ) -> Queued[Appended]:
        if key is not None:
            expect(str, key=key)
        check_facts(facts, FREE_FACTS, "needs the session's lease")
        ready = written(facts)
        size = sum(len(body) for _, body, _ in ready)
        return Queued(
            lambda tx: verbs.add(tx, session, ready, key, self.moment()),
            size,
            needs=Needs(
                session,
                None if key is None else (RESERVED_SOURCE + str(session), key),
            ),
        )

    def keep(self, keeping: Keeping) -> Queued[Kept]:
        ready, size, needs = self._prepared(keeping)
        return Queued(
            lambda tx: verbs.keep(tx, keeping, ready, self.moment()),
            size,
            needs=needs,
        )

    def keep_all(self, keepings: Sequence[Keeping]) -> Queued[tuple[Kept, ...]]:
        expect((list, tuple), keepings=keepings)
        if not 0 < len(keepings) <= KEEPINGS_MAX:
            raise NotAllowed(f"1 to {KEEPINGS_MAX} sessions can be changed at once")
        names = [one.create.name for one in keepings if one.create is not None]
        if len(set(names)) < len(names):
            raise NotAllowed("two of them are about one name; nothing was stored")
        prepared = [self._prepared(one) for one in keepings]
        ready = [
            (one, body) for one, (body, _, _) in zip(keepings, prepared, strict=True)
        ]
        first, *others = [needs for _, _, needs in prepared]
        return Queued(
            lambda tx: verbs.keep_all(tx, ready, self.moment()),
            sum(size for _, size, _ in prepared),
            needs=replace(first, also=tuple(others)),
        )

    def _prepared(self, keeping: Keeping) -> tuple[list[Written], int, Needs]:
        """Its facts as they will be stored, their size, and what the commit will look at."""
        check_keeping(keeping, self.settings.payload_bytes_max)
        withdrawn = (ItemsWithdrawn(keeping.withdraw),) if keeping.withdraw else ()
        ready = written((*keeping.items, *withdrawn))
        size = sum(len(body) for _, body, _ in ready) + sum(
            map(len, keeping.payloads)
        )
        create = keeping.create
        name = None if create is None else create.name
        return ready, size, Needs(keeping.session, None, name, create is not None)

    # --- leases

    def claim(
        self, limit: int, full: Sequence[str] = (), anew: bool = False
    ) -> list[Listed]:
        expect(int, limit=limit)
        expect((list, tuple), full=full)
        expect(bool, anew=anew)
        self._check_open()
        claimed = self.backend.claim(max(limit, 0), full, anew)
        if claimed is None:
            return self._unfinished()
        held = self.backend.held() if anew else []
        dropped = [id for id, token in held if not self._knows(id, token)]
        found = []
        with self.snapshot() as view:
            for id in dict.fromkeys((*dropped, *claimed)):
                try:
                    row = queries.session(view, id)
                    found.append(
                        Listed(id, row.head, row.n, None, queries.listing(view, row))
                    )
                except UnknownSession:  # it was deleted meanwhile
                    continue
                except JournalCorrupt as error:  # no reason not to run the others
                    warn("session %r is not run: %s", id, error)
        self._claimed.update(dropped, claimed)
        return found

    def _knows(self, session: str, token: int | None) -> bool:
        """Whether what is in our hands by what is stored is so by what is known here."""
        return (
            session in self._claimed if token is None else self.holds(session, token)
        )

    def _unfinished(self) -> list[Listed]:
        found: list[Listed] = []
        while page := self.list(queries.PAGE, after=found[-1].mark if found else 0,
                                where="unfinished"):  # fmt: skip
            found += page
        return found

    def put_back(self, session: str, waits_for: str | None = None) -> None:
        expect(str, session=session)
        expect((str, NoneType), waits_for=waits_for)
        self._check_open()
        self.backend.put_back(session, waits_for)
        self._claimed.discard(session)

    def acquire(self, session: str, closing: Closing | None = None) -> Lease:
        """Take the lease of a session that is free, expired, or whose owner is dead."""
        ready = None
        if closing is not None:
            expect(Closing, closing=closing)
            expect(int, head=closing.head)
            if closing.facts:
                check_facts(closing.facts, TURN_FACTS, "is not a turn fact")
            ready = closing.head, written(closing.facts)
        lease = self._take(session, None, ready)
        while lease is None:
            with self.snapshot() as view:
                row = queries.session(view, session)
            if self._is_held(row):
                raise SessionBusy(session, str(row.owner))
            lease = self._take(session, row.token, ready)
        return lease

    def _take(
        self,
        session: str,
        token: int | None,
        closing: tuple[Seq, Sequence[Written]] | None,
    ) -> Lease | None:
        """The lease is known to be ours before it can be read that it is taken: else another thread
        of this process, finding an owner that vouches for nothing, would take it from us. What was
        not stored is another's by now, maybe with the same token: it is not ours any more."""
        expires_ms = self.backend.now_ms() + self.settings.lease_ms
        lease: Lease | None = None

        def drop() -> None:
            if lease is not None:
                self._leases.discard((session, lease.token))

        def verb(tx: Transaction) -> Lease | None:
            nonlocal lease
            drop()
            lease = verbs.acquire(
                tx,
                session,
                self.backend.owner,
                token,
                expires_ms,
                closing,
                self.moment(),
            )
            if lease is not None:
                self._leases.add((session, lease.token))
            return lease

        try:
            return self.queue.run(verb, Needs(session))
        except BaseException:
            drop()
            raise

    def abandon(self, lease: Lease, left: Left | None = None) -> None:
        check_lease(lease)
        if left is not None and self.holds(lease.session, lease.token):
            expect(Left, left=left)
            expect(int, turn=left.turn)
            expect(str, cause=left.cause)
            self.backend.leave(lease.session, left)
        self._let_go(lease)

    def _let_go(self, lease: Lease) -> None:
        self._leases.discard((lease.session, lease.token))
        self._claimed.discard(lease.session)

    def holds(self, session: str, token: int) -> bool:
        """Whether this open store has that lease: then no other adds to the session's streams."""
        return (session, token) in self._leases

    def running(self, session: str) -> str | None:
        with self.snapshot() as view:
            row = queries.session(view, session)
        return row.owner if self._is_held(row) else None

    def _is_held(self, row: SessionRow) -> bool:
        """Whether the owner of a lease is alive decides. Where that cannot be told, the lease's
        term does."""
        if row.owner is None:
            return False
        if row.owner == self.backend.owner:
            return self.holds(row.id, row.token)
        alive = self.backend.alive(row.owner)
        return row.expires_ms > self.backend.now_ms() if alive is None else alive

    def alive(self, owner: str) -> bool:
        expect(str, owner=owner)
        return self.backend.alive(owner) is not False

    def renew(self, lease: Lease) -> Queued[Lease]:
        check_lease(lease)
        return Queued(
            lambda tx: verbs.renew(
                tx, lease, self.backend.now_ms() + self.settings.lease_ms
            ),
            needs=Needs(lease.session),
        )

    def release(self, lease: Lease, head: Seq) -> Queued[Release]:
        check_lease(lease)
        if type(head) is not int:
            expect(int, head=head)

        def after(answer: Release) -> None:
            if answer.released:
                self._let_go(lease)

        return Queued(
            lambda tx: verbs.release(tx, lease, head),
            after=after,
            needs=Needs(lease.session),
        )

    def append(
        self, lease: Lease, facts: Sequence[TurnFact], head: Seq
    ) -> Queued[Appended]:
        check_lease(lease)
        if type(head) is not int:
            expect(int, head=head)
        check_facts(facts, TURN_FACTS, "is not a turn fact")
        ready = written(facts)
        size = sum(len(body) for _, body, _ in ready)
        return Queued(
            lambda tx: verbs.append(tx, lease, ready, head, self.moment()),
            size,
            needs=Needs(lease.session),
        )

    def draft(self, lease: Lease, stream: Stream, text: str) -> Queued[int]:
        check_lease(lease)
        check_stream(stream)
        if type(text) is not str:
            expect(str, text=text)
        return Queued(
            lambda tx: verbs.draft(tx, lease, stream, text),
            len(text),
            needs=Needs(lease.session),
        )

    # --- reading

    def read(
        self,
        session: str,
        after: Seq = 0,
        limit: int = 1_000,
        kinds: Sequence[str] = (),
    ) -> list[Record]:
        expect(int, after=after, limit=limit)
        if kinds:
            check_kinds(kinds)
        with self.snapshot() as view:
            return queries.records(
                view, queries.session(view, session), after, limit, kinds
            )

    def facts_at(
        self, places: Mapping[str, Sequence[Seq]]
    ) -> dict[tuple[str, Seq], Record]:
        expect(Mapping, places=places)
        with self.snapshot() as view:
            return view.facts_at(places)

    def drafts(self, session: str) -> list[Draft]:
        with self.snapshot() as view:
            return queries.drafts(view, queries.session(view, session))

    def streaming(self) -> list[str]:
        with self.snapshot() as view:
            return view.streaming()

    def glance(self, session: str) -> Glance:
        """Whether the owner is alive is asked after the snapshot. If it is not, what was seen
        counts only if nothing changed since: the owner may have ended in order meanwhile."""
        while True:
            row, glance = self._glance(session)
            if row.owner is None or self._is_held(row):
                return glance
            again, _ = self._glance(session)
            if (again.head, again.token, again.owner) == (
                row.head,
                row.token,
                row.owner,
            ):
                return replace(glance, owner=None)

    def _glance(self, session: str) -> tuple[SessionRow, Glance]:
        with self.snapshot() as view:
            row = queries.session(view, session)
            listing, drafts = self._rows.listing(view, row), queries.drafts(view, row)
            imported = view.imported(row.id) or 0
        left = None if row.owner is None else self.backend.left(session)
        return row, Glance(
            row.head, row.owner, tuple(drafts), listing, left, imported
        )

    def since(
        self, session: str, cursor: Cursor, drafts: bool = True
    ) -> tuple[list[Event], Cursor]:
        self._check_open()
        with self.backend.snapshot(patient=True) as view:
            return queries.since(view, session, cursor, queries.PAGE, drafts)

    def heads(self, sessions: Sequence[str]) -> dict[str, tuple[Seq, int | None]]:
        self._check_open()
        return self.backend.heads(sessions)

    def changes(
        self, after: FeedMark | None = 0, limit: int = 1_000, facts: bool = True
    ) -> ChangePage:
        with self.snapshot() as view:
            return queries.changes(view, self.backend.restored, after, limit, facts)

    def find(self, name: str) -> str | None:
        expect(str, name=name)
        with self.snapshot() as view:
            return view.bound(name)

    def kept(self, session: str, format: str, key: str) -> Seq | None:
        expect(str, format=format, key=key)
        with self.snapshot() as view:
            queries.session(view, session)
            row = view.key(RESERVED_SOURCE + session, verbs.item_key(format, key))
        return None if row is None else row.seq

    def kept_anywhere(self, format: str, key: str) -> tuple[str, Seq] | None:
        expect(str, format=format, key=key)
        with self.snapshot() as view:
            row = view.key(verbs.ANYWHERE_SOURCE, verbs.item_key(format, key))
        return None if row is None else (row.session, row.seq)

    def named(self, prefix: str, after: str = "", limit: int = 50) -> list[Listed]:
        expect(str, prefix=prefix, after=after)
        expect(int, limit=limit)
        with self.snapshot() as view:
            found = queries.named(view, prefix, after, limit)
        return self._with_runners(found)

    def _with_runners(self, found: list[Listed]) -> list[Listed]:
        return [one if one.owner is None else self._with_runner(one) for one in found]

    def _with_runner(self, listed: Listed) -> Listed:
        owner = self.running(listed.id)
        return replace(listed, owner=owner, orphaned=owner is None)

    def keys(self, session: str) -> list[Keyed]:
        with self.snapshot() as view:
            n = queries.session(view, session).n
            from steno.store.import_session import ANYWHERE

            anywhere = view.keys(n, verbs.ANYWHERE_SOURCE)
            return view.keys(n, RESERVED_SOURCE + session) + [
                replace(one, key=ANYWHERE + one.key) for one in anywhere
            ]

    # --- payloads

    def put(self, session: str, payload: bytes) -> Queued[Hash]:
        expect(str, session=session)
        check_payload(payload, self.settings.payload_bytes_max)
        hash = hash_of(payload)
        return Queued(
            lambda tx: verbs.put(tx, session, hash, payload),
            len(payload),
            needs=Needs(session),
        )

    def get(self, payload: Hash) -> bytes:
        expect(str, payload=payload)
        with self.snapshot() as view:
            body = view.payload(payload)
        if body is None:
            raise UnknownPayload(f"no payload {payload}")
        return body

    # --- a session from another store

    def bring(self, session: str, base: Seq, carried: Iterable[Carried]) -> None:
        expect(int, base=base)
        expect(Iterable, carried=carried)
        owner = self.backend.owner
        from steno.store import import_session  # loaded with the first import

        arrival = import_session.Arrival(
            session, base, self.settings.payload_bytes_max
        )
        n = self.queue.run(
            lambda tx: import_session.begin(tx, session, owner, self.moment())
        )
        try:
            for batch in arrival.batches(carried):
                self.queue.run(
                    partial(import_session.stage, n=n, owner=owner, batch=batch)
                )
            self.queue.run(lambda tx: import_session.finish(tx, n, owner, arrival))
        except BaseException:
            with contextlib.suppress(StoreError):  # the next process sweeps it
                self._fail_import(n)
                self._sweep()
            raise

    def extend(
        self,
        session: str,
        head: Seq,
        records: Sequence[Record],
        payloads: Sequence[bytes] = (),
    ) -> None:
        expect(int, head=head)
        expect((list, tuple), records=records, payloads=payloads)
        for record in records:
            expect(Record, record=record)
            expect(int, seq=record.seq, at_ms=record.at_ms)
        for body in payloads:
            check_payload(body, self.settings.payload_bytes_max)
        from steno.store import import_session

        self.queue.run(
            lambda tx: import_session.extend(tx, session, head, records, payloads),
            Needs(session),
        )

    # --- removing, checking, copying

    def redact(self, session: str, target: Seq, by: str = "user") -> Seq:
        expect(int, target=target)
        expect(str, by=by)
        with self.snapshot() as view:
            at = queries.redactable(view, queries.session(view, session), target)
        self._forget_text(*at)
        seq = self.queue.run(
            lambda tx: verbs.redact(tx, session, target, at, by, self.moment())
        )
        self._forget_text(*at)
        self._erase()
        return seq

    def _forget_text(self, holder: str, seq: Seq) -> None:
        """Have other sessions forget what was distilled from a fact: see `redact_cascade`."""
        with self.snapshot() as view:
            family = queries.family(view, queries.session(view, holder), seq)
            doomed = {
                row.id: redact_cascade.covering(view, row, seq) for row in family
            }
        gone = {
            (id, record.seq) for id, records in doomed.items() for record in records
        }
        if gone:
            self._forget(doomed, lambda at: (at.session, at.seq) in gone)

    def _forget(self, sources: Iterable[str], gone: redact_cascade.Gone) -> None:
        for source in sources:
            with self.snapshot() as view:
                told = [
                    queries.session(view, id) for id in queries.told(view, source)
                ]
                told = [
                    row
                    for row in told
                    if redact_cascade.has_memories(view, row, gone)
                ]
            for row in told:
                self.queue.run(
                    partial(redact_cascade.forget_memories, id=row.id, gone=gone)
                )

    def delete(self, session: str, with_forks: bool = False) -> int:
        try:
            count = self.queue.run(
                lambda tx: verbs.delete(tx, session, with_forks, self.moment())
            )
        except UnknownSession:
            with self.snapshot() as view:
                unfinished = view.deleted(session)
            if unfinished:
                self._erase()
            raise
        self.backend.leave(session, None)
        note("deleted session %r (%d with its forks)", session, count)
        self._erase()
        return count

    def _erase(self) -> None:
        """Leave nothing of what was removed anywhere. If that fails, the same call again goes on
        from here."""
        try:
            self._sweep()
            self.backend.erase()
            for clear in self.copies:
                clear()
        except (StoreUnwritable, OutcomeUnknown, OSError) as error:
            raise OutcomeUnknown(
                f"removed from the journal, but not from every file yet: {error}"
            ) from error

    def _sweep(self) -> None:
        with self.snapshot() as view:
            deleted, imports = view.unfinished()
        abandoned = [one.n for one in imports if self._is_abandoned(one)]
        if not deleted and not abandoned:
            return
        self._forget(deleted, lambda at: at.session in deleted)
        for n in abandoned:
            self._fail_import(n)
        while self.queue.run(verbs.sweep):
            pass

    def _fail_import(self, n: int) -> None:
        from steno.store import import_session

        self.queue.run(partial(import_session.fail, n=n))

    def _is_abandoned(self, one: ImportRow) -> bool:
        if one.owner in ("", self.backend.owner):
            return not one.owner
        alive = self.backend.alive(one.owner)
        return (
            one.at_ms + _IMPORT_MS_MAX < self.backend.now_ms()
            if alive is None
            else not alive
        )

    def verify(self, tell: "Tell | None" = None) -> Report:
        from steno.store import verify

        self._check_open()
        total = 0 if tell is None else verify.counted(self.backend.sessions())
        return verify.verify(
            self.snapshot,
            self.backend.sessions(),
            self.backend.damage(),
            lambda done: None if tell is None else tell(done, total),
        )

    def close(self) -> None:
        """Let go of the store. Correctness does not need it: a kill leaves the same facts."""
        if self._closed:
            return
        self._closed = True
        if (
            os.getpid() == self._pid
        ):  # in a forked child, everything here is its parent's
            self.backend.stop()
            self.queue.close()
            self.backend.close()

    # --- for the faces

    def moment(self) -> Moment:
        return Moment(self.backend.now_ms(), self.settings.new_id or new_id)

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        self._check_open()
        return self.backend.snapshot()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("this store was closed")
        self.queue.check_open()

    def listen(self, listener: Callable[[Changes], None]) -> None:
        """Have a function called, from the committing thread, with what each commit of this process
        changed."""
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[Changes], None]) -> None:
        self._listeners.remove(listener)

    def _committed(self, changes: Changes) -> None:
        for listener in self._listeners:
            listener(changes)

    # Last: it hides the type of its name.

    def list(
        self,
        limit: int = 50,
        before: int | None = None,
        after: int | None = None,
        where: Where | None = None,
    ) -> list[Listed]:
        expect(int, limit=limit)
        expect((int, NoneType), before=before, after=after)
        check_where(where)
        with self.snapshot() as view:
            if isinstance(where, Shares):
                found = queries.sharing(view, where, limit, after)
            elif after is not None:
                found = queries.by_number(view, where, limit, after)
            else:
                found = queries.by_change(view, where, limit, before)
        return self._with_runners(found)
