"""The write side: one transaction after another on one connection.

What a session's holder adds to it goes out in one round trip, without a look: what is remembered of
the session is compared when it is written, and if others were quicker nothing is stored and the
verbs are run again. So does an input for a session that no other worker runs: its key is taken for
new, and if it is not, that is found when it is written. Everything else takes two: all that the
verbs of a batch are known to need is locked and fetched with the beginning, all that they write
goes out with the commit.

    trusted   the verbs run on what is remembered     commit_one(...) or commit_batch(...)
    looking   begin · fence · lock · fetch            the verbs run     write · commit

Each batch has a number, and stores it. If the answer to a commit is lost, its number is burnt by
whoever connects next: then it is known whether it was stored, and, if it was not, that it never
will be.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import psycopg

from steno.journal import codec
from steno.journal.drafts import Stream
from steno.journal.facts import Record
from steno.journal.parts import Hash, Seq
from steno.store.backend import (
    Begun,
    Behind,
    KeyRow,
    LookFirst,
    Needs,
    Noted,
    Saved,
    SessionRow,
    TryAgain,
    marks_of,
    new_row,
)
from steno.store.errors import OutcomeUnknown, StoreError, warn
from steno.store.postgres.arrays import Ints, Texts
from steno.store.postgres.batch import Batch, State, columns, saved_row
from steno.store.postgres.database import (
    Connected,
    is_conflict,
    is_lost,
    translate,
    translated,
)
from steno.store.postgres.lone import Change, Lone
from steno.store.postgres.owners import Owners
from steno.store.postgres.reader import CHUNK, Reader, Stamped, Values, to_row
from steno.store.protocol import Piece
from steno.store.rows import (
    change_crc,
    draft_crc,
    fact_crc,
    to_drafts,
    to_records,
)

SWEEP_FACTS = 2_000
SWEEP_PAYLOADS = 20

_NOTHING = "nothing was stored"
_REMEMBERED_MAX = 20_000
_RECENT_MAX = 64
"""Facts of a session that are kept in memory: what opened a stream is among them."""
_TEXT_MAX = 64 << 20
"""Characters of streams that are kept in memory, to be compared with what seals them."""
_COMMIT = b"select {schema}.commit_batch(" + b", ".join([b"%s"] * 37) + b")"


class PostgresWriter(Reader):
    """See `Writer` for what the verbs mean."""

    begins = b"begin"

    def __init__(self, owners: Owners, connection: Connected) -> None:
        self._owners = owners
        self._connector = owners.connector
        self.statements = self._connector.statements
        self._call = _COMMIT.replace(
            b"{schema}", self._connector.where.schema.encode()
        )
        self._connection: Connected | None = owners.noticing(connection)
        self._lone: Lone | None = None
        self._k = 0
        self._trusts = False
        self.begun = False
        self._batch = Batch()
        self._known: dict[int, State] = {}
        self._recent: dict[int, dict[Seq, tuple[int, bytes]]] = {}
        self._texts: dict[int, dict[Stream, list[str]]] = {}
        self._text_chars = 0
        self._numbers: list[int] = []
        self._patience_s = 0.0
        self._ids: dict[str, int] = {}
        self._id_of: dict[int, str] = {}
        self._forget_fetched()

    def _forget_fetched(self) -> None:
        self._sessions: dict[str, Stamped | None] = {}
        self._keys: dict[tuple[str, str], KeyRow | None] = {}
        self._stale_keys: dict[tuple[str, str], int] = {}
        self._names: dict[str, str | None] = {}
        self._new_keys: dict[tuple[str, str], tuple[int, Seq, int]] = {}
        self._assumable: set[tuple[str, str]] = set()
        self._assumed: set[tuple[str, str]] = set()
        """Keys that are taken for new without a look: who asked for one must also put it."""
        self._unsaved: set[int] = set()
        """Sessions to which this transaction added facts after their rows, sent or not."""
        self._put: set[Hash] = set()
        self._owned: dict[tuple[Hash, int], int] = {}

    @property
    def connection(self) -> Connected:  # type: ignore[override]
        if self._connection is None:
            self._connection = self._owners.connect(self._patience_s)
        return self._connection

    # --- the frame

    def register(self) -> None:
        with translated("cannot open the store to write"):
            self._owners.register(self.connection)

    def begin(self, needs: Iterable[Needs] = (), look: bool = False) -> Begun:
        needs = [one for need in needs for one in (need, *need.also)]
        self._forget_fetched()
        self._patience_s = self._owners.patience_s(needs)
        if len(self._known) > _REMEMBERED_MAX or self._text_chars > _TEXT_MAX:
            self._forget_sessions()
        ids = [
            codec.escape(one.session) for one in needs if isinstance(one.session, str)
        ]
        if not look and self._owners.registered and self._ids.keys() & ids:
            self._trusts = True
            self._assumable = {
                one.key for one in needs if one.key and self._is_near(one.session)
            }
            return "trusted"
        self._trusts = False
        self._look(needs, sorted(set(ids)))
        return "changed"

    def _is_near(self, session: str | None) -> bool:
        """Whether a session is known here, and no other worker runs it."""
        if not isinstance(session, str) or (n := self._ids.get(session)) is None:
            return False
        return self._known[n].owner in (None, self._owners.owner)

    def _look(self, needs: Sequence[Needs], ids: list[str]) -> None:
        keys = [one.key for one in needs if one.key is not None and _texts(*one.key)]
        names = [codec.escape(one.name) for one in needs if isinstance(one.name, str)]
        makes = sum(one.makes for one in needs) - len(self._numbers)
        try:
            self._fetch(ids, sorted(set(keys)), names, makes)
        except psycopg.Error as error:
            self._lose(error)
            if is_lost(error) or is_conflict(error):
                raise TryAgain(str(error)) from error
            raise translate(error, _NOTHING) from error

    def _fetch(
        self,
        ids: list[str],
        keys: list[tuple[str, str]],
        names: list[str],
        makes: int,
    ) -> None:
        self._owners.register(self.connection)
        self._k += 1
        run = self._run
        sources = [codec.escape(source) for source, _ in keys]
        with self.connection.pipeline():
            self.connection.execute(self.begins)
            self.begun = True
            fence = run("fence", (self._owners.owner,))
            run("insert_batch", (self._owners.owner, self._k))
            if ids:
                run("lock_sessions", (ids,))
            rows = run("sessions_by_id", (ids,)) if ids else None
            drafts = run("drafts_by_id", (ids,)) if ids else None
            asked = (sources, [codec.escape(key) for _, key in keys])
            found = run("keys_given", asked) if keys else None
            bound = run("sessions_by_name", (names,)) if names else None
            numbers = run("next_numbers", (makes,)) if makes > 0 else None
        if fence.fetchone() is None:
            self._buried()
        if rows is not None and drafts is not None:
            self._take_in(ids, rows.fetchall(), drafts.fetchall())
        if found is not None:
            self._keys = dict.fromkeys(keys)
            self._take_keys(found.fetchall())
        if bound is not None:
            self._names = {codec.unescape(name): None for name in names}
            self._names |= {
                codec.unescape(name): str(id) for name, id in bound.fetchall()
            }
        if numbers is not None:
            self._numbers += [n for (n,) in numbers.fetchall()]

    def _buried(self) -> NoReturn:
        """Another worker has declared us dead: whatever we held is lost. We go on under another
        name."""
        warn(
            "%s was declared dead; what it ran is run by others now",
            self._owners.owner,
        )
        self.rollback()
        self._owners.become_another()
        raise TryAgain("this worker was declared dead")

    def _take_in(
        self,
        ids: Sequence[str],
        rows: list[tuple[Any, ...]],
        drafts: list[tuple[Any, ...]],
    ) -> None:
        for id in ids:
            self._sessions[codec.unescape(id)] = None
        for raw in rows:
            row = to_row(raw)
            if row.owner is not None and row.owner in self._owners.former:
                row.owner = None
            row.touched = 0
            self._sessions[row.id] = row
            self._known[row.n] = State(row.head, row.token, row.owner, row.stamp)
            self._ids[row.id], self._id_of[row.n] = row.n, row.id
            self._texts[row.n] = {}
            row.stamp = 0
        by_session: dict[int, list[tuple[Any, ...]]] = {}
        for n, *rest in drafts:
            by_session.setdefault(n, []).append(tuple(rest))
        for n, pieces in by_session.items():
            encoded = [
                (one[0], one[1], one[2], one[3], one[4].encode()) for one in pieces
            ]
            for draft in to_drafts(str(n), n, encoded):
                self._texts[n][draft.stream] = [draft.text]
                self._text_chars += len(draft.text)

    def _take_keys(self, found: Sequence[tuple[Any, ...]]) -> None:
        for source, key, n, id, seq, count in found:
            named = (codec.unescape(source), codec.unescape(key))
            if id is None:
                self._stale_keys[named] = n
            else:
                self._keys[named] = KeyRow(id, seq, count)

    def flush(self) -> None:
        """All goes out with the commit."""

    def commit(self) -> None:
        if self._trusts:
            if self._assumed - self._new_keys.keys():
                raise TryAgain("it was asked for a key")
            if self._batch:
                self._k += 1
                self._send(alone=True)
        elif self.begun:
            self._send(alone=False)
        self._owners.written(self._k)

    def _send(self, alone: bool) -> None:
        """In one round trip. If the answer is lost, find out what became of it."""
        states = self._states()
        self._owners.doubt = False
        try:
            if alone:
                self._send_at_once(states)
            else:
                self._write_and_commit(states)
        except psycopg.Error as error:
            self._settle(error)
        else:
            if self._owners.doubt:
                self._settle(None)
        self._stored(states)

    def _send_at_once(self, states: Mapping[int, State]) -> None:
        if self._connector.settings.pooled or len(states) > 1:
            self.connection.execute(self._call, self._arguments(states, fenced=True))
            return
        connection = self.connection
        if self._lone is None or self._lone.connection is not connection:
            self._lone = Lone(connection, self._connector.where.schema)
        [(n, now)] = states.items()
        change = Change(n, self._known[n], now, self._batch, self._assumed_keys())
        self._lone.commit(self._owners.owner, self._k, change)

    def _write_and_commit(self, states: Mapping[int, State]) -> None:
        with self.connection.pipeline():
            taken = self._write_named()
            if self._batch:
                self.connection.execute(
                    self._call, self._arguments(states, fenced=False)
                )
            if not taken:  # after an error, the server skips it
                self.connection.execute(b"commit")
        if taken:
            if any(cursor.rowcount != 1 for cursor in taken):
                raise TryAgain("a key was taken meanwhile")
            self.connection.execute(b"commit")
        self.begun = False

    def _write_named(self) -> "list[psycopg.Cursor[tuple[Any, ...]]]":
        taken = []
        for named, (n, seq, count) in self._new_keys.items():
            source, key = codec.escape(named[0]), codec.escape(named[1])
            dead = self._stale_keys.get(named)
            if dead is None:
                self._run("insert_key", (source, key, n, seq, count))
            else:  # of a session that is gone, or that arrives: that one may be there any moment
                self._run("lock_import", (dead,))
                taken.append(
                    self._run("take_key", (n, seq, count, source, key, dead))
                )
        self._new_keys = {}
        for (hash, n), names in self._owned.items():
            self._run("own_payload", (hash, n, names))
        self._owned = {}
        return taken

    def _settle(self, error: psycopg.Error | None) -> None:
        """Returns if the batch was stored."""
        if error is not None and not is_lost(error):
            if error.sqlstate == "STF01":
                self._buried()
            if is_conflict(error):
                raise TryAgain(str(error)) from error
            raise translate(error, _NOTHING) from error
        self._lose(error)
        stored = self._owners.settle(self._k)
        if stored is None:
            raise OutcomeUnknown(
                "the database went away while storing, so it may be stored or not; the same call "
                "with the same key settles it"
            ) from error
        if not stored:
            raise TryAgain(f"the connection was lost: {error}") from error
        self.begun = False

    def _stored(self, states: Mapping[int, State]) -> None:
        self._known.update(states)
        self._batch = Batch()

    def _lose(self, error: psycopg.Error | None) -> None:
        """Let a connection go of which it is not known how it stands."""
        if self._connection is not None and (error is None or is_lost(error)):
            self._connection.close()
            self._connection = None
            self.begun = False

    def rollback(self) -> None:
        self._batch = Batch()
        self._forget_sessions()
        self._forget_fetched()
        if self._connection is not None and self.begun:
            try:
                self._connection.execute(b"rollback")
            except psycopg.Error:
                self._connection.close()
                self._connection = None
        self.begun = False

    def _forget_sessions(self) -> None:
        self._known.clear()
        self._ids.clear()
        self._id_of.clear()
        self._recent.clear()
        self._texts.clear()
        self._text_chars = 0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def explain(self, error: Exception) -> tuple[StoreError, bool] | None:
        if isinstance(error, psycopg.Error):
            self._lose(error)
            return translate(error, _NOTHING), not is_lost(error)
        return None

    def _must_look(self) -> None:
        """What follows needs a transaction on the server."""
        if self._trusts:
            raise LookFirst

    def run(self, name: str, *values: object) -> None:
        self._run(name, values)

    def _ask(self, name: str, values: Values) -> "psycopg.Cursor[tuple[Any, ...]]":
        """Always in the transaction that was begun."""
        return self._run(name, values)

    # --- what the batch does, as arguments

    def _states(self) -> dict[int, State]:
        """Each session that it changes, as it will be; in order, so batches cannot lock each other
        out."""
        states: dict[int, State] = {}
        for n in sorted(self._batch.touched):
            was = self._known.get(n)
            if was is None:
                raise TryAgain("a session was forgotten")
            states[n] = State(was.head, was.token, was.owner, was.stamp)
        for n, seq, *_ in self._batch.facts:
            states[n].head = seq
        for n, saved in self._batch.rows.items():
            state = states[n]
            state.token, state.owner = saved.row.token, saved.row.owner
            state.stamp += 1
        return states

    def _arguments(self, states: Mapping[int, State], fenced: bool) -> list[Any]:
        batch = self._batch
        were = [self._known[n] for n in states]
        rows = [saved_row(saved) for saved in batch.rows.values()]
        lasts = {n: at for at, (n, *_) in enumerate(batch.facts, 1)}
        new = list(states.values()) if rows else []
        return [
            self._owners.owner,
            self._k,
            fenced,
            Ints.of(list(states)),
            Ints.of([state.head for state in were]),
            Ints.of([state.token for state in were]),
            Ints.of([state.stamp for state in were]),
            Ints.of([state.head for state in states.values()]),
            Ints.of([state.token for state in new]),
            Texts.of([state.owner for state in new]),
            Ints.of([state.stamp for state in new]),
            Ints.of([lasts.get(n, 0) for n in states]),
            *columns(batch.facts, "nnnnt"),
            *columns(batch.pieces(), "nntnnt"),
            *columns(batch.undrafts, "nn"),
            *columns(rows, "ntnnnnt"),
            *columns(self._assumed_keys() if fenced else (), "ttnnn"),
        ]

    def _assumed_keys(self) -> list[tuple[str, str, int, Seq, int]]:
        """If one of them is there, nothing is stored, and the verbs are run again after a look."""
        return [
            (codec.escape(source), codec.escape(key), *row)
            for (source, key), row in self._new_keys.items()
        ]

    def _write_out(self) -> None:
        """Send what was collected, so that statements of this transaction find it."""
        if not self._batch and not self._new_keys and not self._owned:
            return
        states = self._states()
        for cursor in self._write_named():
            if cursor.rowcount != 1:
                raise TryAgain("a key was taken meanwhile")
        if self._batch:
            self.connection.execute(self._call, self._arguments(states, fenced=False))
        self._stored(states)

    # --- questions

    def one(self, name: str, *values: object) -> tuple[Any, ...] | None:
        self._must_look()
        return super().one(name, *values)

    def all(self, name: str, *values: object) -> list[tuple[Any, ...]]:
        self._must_look()
        return super().all(name, *values)

    def session(self, of: str | int) -> SessionRow | None:
        self._must_look()
        if isinstance(of, int):
            found = super().session(of)
            if found is not None:
                found.touched = 0
            return found
        if of not in self._sessions:
            ids = [codec.escape(of)]
            with self.connection.pipeline():
                self._run("lock_sessions", (ids,))
                rows = self._run("sessions_by_id", (ids,))
                drafts = self._run("drafts_by_id", (ids,))
            self._take_in(ids, rows.fetchall(), drafts.fetchall())
        return self._sessions[of]

    def forks(self, n: int) -> list[SessionRow]:
        self._write_out()
        return super().forks(n)

    def bound(self, name: str) -> str | None:
        self._must_look()
        if name not in self._names:
            self._names[name] = super().bound(name)
        return self._names[name]

    def key(self, source: str, key: str) -> KeyRow | None:
        if (source, key) not in self._keys and (source, key) in self._assumable:
            self._assumed.add((source, key))
            return None
        self._must_look()
        if (source, key) not in self._keys:
            self._keys[source, key] = None
            self._take_keys(
                self.all("key_if_any", codec.escape(source), codec.escape(key))
            )
        return self._keys[source, key]

    def facts(
        self,
        row: SessionRow,
        n: int,
        after: Seq,
        upto: Seq,
        kinds: Sequence[str],
        limit: int,
    ) -> list[Record]:
        recent = self._recent.get(n, {})
        wanted = range(after + 1, min(upto, after + limit) + 1)
        if not kinds and all(seq in recent for seq in wanted):
            rows = [(seq, at, fact_crc(n, seq, at, body), body) for seq in wanted
                    for at, body in (recent[seq],)]  # fmt: skip
            return to_records(row.id, n, rows)
        self._must_look()
        self._write_out()
        return super().facts(row, n, after, upto, kinds, limit)

    def drafts(
        self, row: SessionRow, seen: Mapping[Stream, int], started: Seq | None = None
    ) -> list[Piece]:
        texts = self._texts.get(row.n)
        if texts is None:
            self._must_look()
            self._write_out()
            return super().drafts(row, seen, started)
        found = [
            Piece(stream, offset, text)
            for stream, pieces in sorted(texts.items(), key=lambda one: one[0])
            if started in (None, stream.started)
            for offset in (seen.get(stream, 0),)
            for text in ("".join(pieces)[offset:],)
            if text
        ]
        for piece in found:
            texts[piece.stream] = ["".join(texts[piece.stream])]
        return found

    def behind(self, kinds: Sequence[str] = ()) -> list[Behind]:
        self._write_out()
        return super().behind(kinds)

    # --- sessions

    def make(
        self, id: str, name: str | None, parent: int | None, base: Seq
    ) -> SessionRow:
        self._must_look()
        n = self._number()
        self._insert_session(new_row(n, id, name, parent, base, 0), place=0)
        return self._made(new_row(n, id, name, parent, base, 0))

    def _number(self) -> int:
        if not self._numbers:
            self._numbers = [n for (n,) in self.all("next_numbers", 1)]
        return self._numbers.pop(0)

    def _insert_session(self, row: SessionRow, place: int) -> None:
        bound = None if row.name is None else codec.escape(row.name)
        listing = row.list_row.decode()
        values = (row.n, row.id, bound, row.parent, row.base, listing, row.listed, 0)
        with self.connection.pipeline():
            self._run("insert_session", values)
            self._run("insert_head", (row.n, row.head, place))

    def _made(self, row: SessionRow) -> SessionRow:
        self._known[row.n] = State(row.head, 0, None, 0)
        self._ids[row.id], self._id_of[row.n] = row.n, row.id
        self._texts.setdefault(row.n, {})
        if row.name is not None:
            self._names[row.name] = row.id
        self._sessions[row.id] = Stamped(
            **{name: getattr(row, name) for name in _FIELDS}
        )
        return self._sessions[row.id]  # type: ignore[return-value]

    def save(self, saved: Sequence[Saved]) -> None:
        for one in saved:
            row = one.row
            row.list_row, row.listed = codec.encode(one.listing), row.head
            row.marks = marks_of(one.listing)
            row.expires_ms = row.touched = (
                0  # a lease has no term here; places are the server's
            )
            self._unsaved.discard(row.n)
            self._batch.rows[row.n] = one
            self._batch.touched[row.n] = None

    def overdue(self, limit: int) -> list[Behind]:
        """Rows are saved when the lease changes; what is added without one has its row saved at
        once."""
        held, names = self._owners.owner, self._id_of
        free = [
            n for n in self._unsaved if n in names and self._known[n].owner != held
        ]
        return [Behind(n, names[n], 0) for n in free]

    # --- facts and drafts

    def add(self, n: int, facts: Sequence[tuple[Seq, int, bytes]]) -> None:
        if n not in self._known:
            rows = [
                (n, s, at, fact_crc(n, s, at, body), body.decode())
                for s, at, body in facts
            ]
            self.run("insert_facts", *columns(rows, "nnnnt"))
            return
        recent = self._recent.setdefault(n, {})
        for seq, at_ms, body in facts:
            crc = fact_crc(n, seq, at_ms, body)
            self._batch.facts.append((n, seq, at_ms, crc, body.decode()))
            recent[seq] = (at_ms, body)
        while len(recent) > _RECENT_MAX:
            del recent[next(iter(recent))]
        self._batch.touched[n] = None
        self._unsaved.add(n)

    def note(self, n: int, kind: Noted, seq: Seq) -> None:
        self._write_out()
        if kind == "deleted":
            self.run("forget_changes", n)
        [(place,)] = self.all("next_place")
        self.run(
            "insert_change", place, n, kind, seq, change_crc(place, n, kind, seq)
        )

    def replace(self, n: int, seq: Seq, at_ms: int, body: bytes) -> None:
        self._write_out()
        self._recent.pop(n, None)
        self.run("replace_fact", fact_crc(n, seq, at_ms, body), body.decode(), n, seq)
        self.run("restamp", n)
        if n in self._known:
            self._known[n].stamp += 1

    def draft(self, n: int, stream: Stream, start: int, text: str) -> None:
        if n not in self._known:  # of a session that arrives
            said = codec.escape(text)
            crc = draft_crc(n, stream, start, said.encode())
            self.run("insert_draft", n, stream.started, stream.kind, start, crc, said)
            return
        self._batch.drafts.setdefault((n, stream), (start, []))[1].append(text)
        self._batch.touched[n] = None
        if n in self._texts:
            self._texts[n].setdefault(stream, []).append(text)
            self._text_chars += len(text)

    def undraft(self, n: int, started: Seq) -> None:
        self._batch.take_draft(n, started)
        self._batch.undrafts.append((n, started))
        self._batch.touched[n] = None
        texts = self._texts.get(n, {})
        for stream in [stream for stream in texts if stream.started == started]:
            self._text_chars -= sum(map(len, texts.pop(stream)))

    # --- payloads and keys

    def put_payload(self, hash: Hash, body: bytes) -> None:
        """One that is there is not sent again. If it goes meanwhile, owning it fails."""
        self._must_look()
        if hash in self._put or self.payload(hash, 0) is not None:
            return
        self._put.add(hash)
        with self.connection.pipeline():
            self._run("insert_payload", (hash, len(body)))
            for i in range(0, len(body), CHUNK):
                self._run("insert_chunk", (hash, i // CHUNK, body[i : i + CHUNK]))

    def own_payload(self, hash: Hash, n: int, names: int) -> None:
        if names >= 0:
            self._owned[hash, n] = self._owned.get((hash, n), 0) + names
            return
        self._write_out()
        self.run("own_payload", hash, n, names)
        self.run("disown_payload", hash, n)
        self.run("delete_payload_unowned", hash)

    def put_key(self, source: str, key: str, n: int, seq: Seq, count: int) -> None:
        self._new_keys[source, key] = (n, seq, count)
        owner = self._id_of.get(n)
        self._keys[source, key] = None if owner is None else KeyRow(owner, seq, count)

    # --- removing

    def delete(self, row: SessionRow, at_ms: int) -> None:
        self._write_out()
        self.run("insert_deletion", row.n, row.id, at_ms, row.base, row.head)
        self.run("delete_all_drafts", row.n)
        self.run("delete_work", row.n)
        self.run("delete_head", row.n)
        self.run("delete_session", row.n)
        for known in (self._known, self._recent, self._texts):
            known.pop(row.n, None)
        self._ids.pop(row.id, None)
        self._id_of.pop(row.n, None)
        self._sessions[row.id] = None
        self._names = {}
        self._keys = {}

    def sweep(self) -> bool:
        self._write_out()
        found = self.one("unswept")
        if found is None:
            return False
        n, base, head = found
        first = self.one("facts_between", n, base, head, 1)
        if first is not None:
            self.run("delete_facts", n, first[0], first[0] + SWEEP_FACTS)
            return True
        hashes = [hash for (hash,) in self.all("payloads_owned", n, SWEEP_PAYLOADS)]
        for hash in hashes:
            self.run("disown_payload_at_once", hash, n)
            self.run("delete_payload_unowned", hash)
        self.run("delete_all_drafts", n)
        self.run("delete_keys", n, SWEEP_FACTS)
        if not hashes and self.one("key_of", n) is None:
            self.run("deletion_swept", n)
            self.run("import_swept", n)
        return True

    # --- importing

    def begin_import(self, id: str, at_ms: int, owner: str) -> int:
        self._must_look()
        n = self._number()
        self.run("insert_import", n, id, at_ms, owner)
        return n

    def import_of(self, n: int) -> tuple[str | None, int]:
        self._must_look()
        self._write_out()
        self.run("lock_import", n)
        owner, keys = self.one("import_of", n) or (None, 0)
        return owner, keys

    def end_import(
        self, n: int, id: str, name: str | None, head: Seq, place: int
    ) -> SessionRow:
        self._write_out()
        while self.one("place_taken", place) is not None:
            place -= 1
        row = new_row(n, id, name, None, 0, 0, head)
        self._insert_session(row, place)
        self.run("import_done", head, n)
        self._texts.pop(n, None)
        return self._made(row)

    def fail_import(self, n: int) -> None:
        self._must_look()
        self.run("import_failed", n)


_FIELDS = SessionRow.__struct_fields__


def _texts(*values: object) -> bool:
    return all(isinstance(value, str) for value in values)
