"""Any order of verbs, by several writers at one place that come, go and die, against a model of
plain lists."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from steno.journal.drafts import Stream
from steno.journal.facts import (
    AnyFact,
    ForkPoint,
    InputAdmitted,
    MessageRedacted,
    SessionRenamed,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    TurnEnded,
    TurnFact,
    TurnStarted,
)
from steno.journal.listing import ListingRow
from steno.journal.parts import Redacted, Seq, Text
from steno.journal.transcript import Transcript
from steno.store import memory
from steno.store.errors import (
    ForksRemain,
    KeyReused,
    LeaseLost,
    NotAllowed,
    SessionBusy,
    ShownTextDropped,
    UnknownSession,
)
from steno.store.facade import BlockingStore
from steno.store.postgres.store import BlockingPostgresStore
from steno.store.protocol import Admission, Carried, Lease
from steno.store.sqlite import store as sqlite
from steno.store.sqlite.database import SqliteSettings
from tests import postgres
from tests.store.contract import kill

STORES_MAX = 3
SESSIONS_MAX = 6
SETTINGS = SqliteSettings(durability="process", lock_wait_ms=1_000)
MEMORY = Path("/dev/shm")
"""Files all the same; thousands of steps need no disk."""

picks = st.integers(0, 59)
keys = st.none() | st.sampled_from("kmn")
texts = st.text(st.sampled_from("ab \n\0\ud800\udfff\ufdd0é漢🦑"), max_size=5)


class Cell:
    """A fact in the model; a fork shares it with its parent, so that a redaction shows in both."""

    def __init__(self, fact: AnyFact) -> None:
        self.fact = fact


class Session:
    def __init__(
        self, id: str, cells: list[Cell], parent: "Session | None" = None, base: Seq = 0
    ) -> None:
        self.id = id
        self.cells = cells
        self.parent = parent
        self.base = self.forked_at = base
        self.token = 0
        self.owner: BlockingStore | None = None
        self.drafts: dict[Stream, str] = {}
        self.redacted: dict[Seq, Seq] = {}
        self.added: dict[str, tuple[Seq, AnyFact]] = {}

    def append(self, fact: AnyFact) -> Seq:
        self.cells.append(Cell(fact))
        return len(self.cells)


class Held:
    """A lease, and what its holder knows."""

    def __init__(self, store: BlockingStore, lease: Lease) -> None:
        self.store = store
        self.lease = lease
        self.turn: Seq = 0
        self.step: Seq = 0


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.stores: list[BlockingStore] = [self.open_store()]
        self.sessions: dict[str, Session] = {}
        self.gone: list[str] = []
        self.admitted: dict[str, tuple[Session, Seq]] = {}
        self.held: list[Held] = []

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)

    def open_store(self) -> BlockingStore:
        return sqlite.BlockingStore(self.folder / "chats.db", SETTINGS)

    def crash(self, store: BlockingStore) -> None:
        """Killed, a process closes nothing; its locks are gone all the same."""
        assert isinstance(store, sqlite.BlockingStore)
        store.backend.locks.forget()

    def store(self, pick: int) -> BlockingStore:
        return self.stores[pick % len(self.stores)]

    def session(self, pick: int) -> Session:
        return list(self.sessions.values())[pick % len(self.sessions)]

    # --- processes

    @precondition(lambda self: len(self.stores) < STORES_MAX)
    @rule()
    def open(self) -> None:
        self.stores.append(self.open_store())

    @precondition(lambda self: len(self.stores) > 1)
    @rule(pick=picks, how=st.sampled_from(["close", "crash"]))
    def leave(self, pick: int, how: str) -> None:
        """A process ends."""
        store = self.store(pick)
        self.stores.remove(store)
        self.held = [held for held in self.held if held.store is not store]
        if how == "close":
            store.close()
        else:
            self.crash(store)

    def runs(self, session: Session) -> bool:
        return session.owner in self.stores

    # --- sessions

    @precondition(lambda self: len(self.sessions) < SESSIONS_MAX)
    @rule(pick=picks)
    def create(self, pick: int) -> None:
        started = SessionStarted("test")
        id = self.store(pick).create(started)
        self.sessions[id] = Session(id, [Cell(started)])

    @precondition(lambda self: 0 < len(self.sessions) < SESSIONS_MAX)
    @rule(pick=picks, which=picks, at=picks)
    def fork(self, pick: int, which: int, at: int) -> None:
        parent = self.session(which)
        at = at % len(parent.cells) + 1
        id = self.store(pick).fork(parent.id, at, SessionStarted("fork"))
        started = SessionStarted("fork", forked_from=ForkPoint(parent.id, at))
        holder = parent
        while holder.parent is not None and at <= holder.base:
            holder = holder.parent
        self.sessions[id] = Session(id, [*parent.cells[:at], Cell(started)], holder, at)

    @precondition(lambda self: self.sessions)
    @rule(pick=picks, which=picks, with_forks=st.booleans())
    def delete(self, pick: int, which: int, with_forks: bool) -> None:
        doomed = [self.session(which)]
        for member in doomed:
            doomed += [other for other in self.sessions.values() if other.parent is member]
        if len(doomed) > 1 and not with_forks:
            with pytest.raises(ForksRemain):
                self.store(pick).delete(doomed[0].id)
            return
        assert self.store(pick).delete(doomed[0].id, with_forks) == len(doomed)
        for member in doomed:
            del self.sessions[member.id]
            self.gone.append(member.id)
        self.admitted = {
            key: found for key, found in self.admitted.items() if found[0] not in doomed
        }

    @precondition(lambda self: self.sessions)
    @rule(pick=picks, other=picks, which=picks)
    def go_and_come_back(self, pick: int, other: int, which: int) -> None:
        """A session without forks is deleted, and brought back from what was read of it: all of it
        is its own now, what was added under keys is known, and whoever ran it does not any more."""
        session, store = self.session(which), self.store(pick)
        if any(fork.parent is session for fork in self.sessions.values()):
            return
        carried: list[Carried] = [
            *store.read_all(session.id),
            *store.drafts(session.id),
            *store.keys(session.id),
        ]
        store.delete(session.id)
        self.store(other).bring(session.id, session.forked_at, carried)
        session.cells = [Cell(cell.fact) for cell in session.cells]
        session.parent, session.base, session.token, session.owner = None, 0, 0, None

    # --- facts that need no lease

    @precondition(lambda self: self.sessions)
    @rule(pick=picks, which=picks, text=texts, key=keys)
    def admit(self, pick: int, which: int, text: str, key: str | None) -> None:
        session, said = self.session(which), InputAdmitted((Text(text),), "test", key)
        admission = Admission(input=said, session=session.id)
        before = None if key is None else self.admitted.get(key)
        if before is None:
            answer = self.store(pick).admit(admission)
            assert (answer.session, answer.seq, answer.first) == (
                session.id,
                session.append(said),
                True,
            )
            if key is not None:
                self.admitted[key] = (session, answer.seq)
            return
        there, seq = before
        stored = there.cells[seq - 1].fact
        assert isinstance(stored, InputAdmitted)
        if stored.parts == said.parts or isinstance(stored.parts[0], Redacted):
            answer = self.store(pick).admit(admission)
            assert (answer.session, answer.seq, answer.first) == (there.id, seq, False)
        else:
            with pytest.raises(KeyReused):
                self.store(pick).admit(admission)

    @precondition(lambda self: self.sessions)
    @rule(pick=picks, which=picks, title=texts, key=keys)
    def rename(self, pick: int, which: int, title: str, key: str | None) -> None:
        session, fact = self.session(which), SessionRenamed(title)
        before = None if key is None else session.added.get(key)
        if before is not None and before[1] != fact:
            with pytest.raises(KeyReused):
                self.store(pick).add(session.id, [fact], key)
            return
        answer = self.store(pick).add(session.id, [fact], key)
        assert answer.first == (session.append(fact) if before is None else before[0])
        if key is not None:
            session.added[key] = (answer.first, fact)

    @precondition(lambda self: self.sessions)
    @rule(pick=picks, which=picks, message=picks)
    def redact(self, pick: int, which: int, message: int) -> None:
        session = self.session(which)
        seq = message % len(session.cells) + 1
        cell = session.cells[seq - 1]
        if not isinstance(cell.fact, InputAdmitted):
            return
        answer = self.store(pick).redact(session.id, seq)
        if seq not in session.redacted:
            part = cell.fact.parts[0]
            if isinstance(part, Text):
                cell.fact = InputAdmitted(
                    (Redacted(len(part.text)),), cell.fact.source, cell.fact.key
                )
            session.redacted[seq] = session.append(MessageRedacted(seq))
        assert answer == session.redacted[seq]

    # --- leases and what they allow

    @precondition(lambda self: self.sessions)
    @rule(pick=picks, which=picks)
    def acquire(self, pick: int, which: int) -> None:
        store, session = self.store(pick), self.session(which)
        if self.runs(session):
            with pytest.raises(SessionBusy):
                store.acquire(session.id)
            return
        lease = store.acquire(session.id)
        assert lease.token == session.token + 1
        session.token, session.owner = lease.token, store
        self.held.append(Held(store, lease))

    def holder(self, pick: int) -> tuple[Held, Session | None]:
        """A lease that was given, and its session if it is still good."""
        held = self.held[pick % len(self.held)]
        session = self.sessions.get(held.lease.session)
        good = (
            session is not None
            and session.token == held.lease.token
            and session.owner is held.store
        )
        return held, session if good else None

    @precondition(lambda self: self.held)
    @rule(pick=picks, text=texts)
    def begin(self, pick: int, text: str) -> None:
        held, session = self.holder(pick)
        facts: list[TurnFact] = [TurnStarted(Takes(1)), StepStarted("model")]
        if session is None:
            with pytest.raises(LeaseLost):
                held.store.append(held.lease, facts, 0)
            return
        seen = len(session.cells) // 2
        answer = held.store.append(held.lease, facts, seen)
        assert [record.fact for record in answer.foreign] == [
            cell.fact for cell in session.cells[seen:]
        ]
        held.turn, held.step = (session.append(fact) for fact in facts)
        assert (answer.first, answer.last) == (held.turn, held.step)

    @precondition(lambda self: self.held)
    @rule(pick=picks, text=texts, kind=st.sampled_from(["text", "reasoning"]))
    def draft(self, pick: int, text: str, kind: str) -> None:
        held, session = self.holder(pick)
        stream = Stream(held.step, kind)  # type: ignore[arg-type]
        if session is None:
            with pytest.raises(LeaseLost):
                held.store.draft(held.lease, stream, text)
        elif not held.step or self.sealed(session, held.step):
            with pytest.raises(NotAllowed):
                held.store.draft(held.lease, stream, text)
        else:
            shown = session.drafts.get(stream, "") + text
            assert held.store.draft(held.lease, stream, text) == len(shown)
            if shown:
                session.drafts[stream] = shown

    def sealed(self, session: Session, step: Seq) -> bool:
        return any(
            isinstance(cell.fact, StepSealed) and cell.fact.step == step for cell in session.cells
        )

    @precondition(lambda self: self.held)
    @rule(pick=picks, more=texts)
    def seal(self, pick: int, more: str) -> None:
        held, session = self.holder(pick)
        if session is None or not held.step:
            return
        shown = session.drafts.get(Stream(held.step, "text"), "")
        thought = session.drafts.get(Stream(held.step, "reasoning"))
        ending = TurnEnded(held.turn, "done")
        if shown or thought:
            with pytest.raises(ShownTextDropped):
                held.store.append(
                    held.lease, [StepSealed(held.step, (Text(shown[:-1]),)), ending], 0
                )
        if thought:
            return
        facts: list[TurnFact] = [StepSealed(held.step, (Text(shown + more),)), ending]
        held.store.append(held.lease, facts, len(session.cells))
        for fact in facts:
            session.append(fact)
        session.drafts.pop(Stream(held.step, "text"), None)

    @precondition(lambda self: self.held)
    @rule(pick=picks, seen=st.booleans())
    def release(self, pick: int, seen: bool) -> None:
        held, session = self.holder(pick)
        if session is None:
            with pytest.raises(LeaseLost):
                held.store.release(held.lease, 0)
            self.held.remove(held)
            return
        head = len(session.cells)
        answer = held.store.release(held.lease, head if seen else head - 1)
        assert answer.released == seen
        if seen:
            session.owner = None

    # --- what must be true at any moment

    @invariant()
    def what_is_read_is_what_was_stored(self) -> None:
        for store in self.stores:
            for session in self.sessions.values():
                assert [record.fact for record in store.read(session.id)] == [
                    cell.fact for cell in session.cells
                ]
                drafts = {draft.stream: draft.text for draft in store.drafts(session.id)}
                assert drafts == session.drafts

    @invariant()
    def lists_are_right(self) -> None:
        listed = {entry.id: entry for entry in self.stores[0].list()}
        assert listed.keys() == self.sessions.keys()
        for id, session in self.sessions.items():
            view, row = Transcript(), ListingRow()
            for record in self.stores[-1].read(id):
                view.apply(record)
                row.apply(record)
            assert (listed[id].head, listed[id].row.messages) == (
                len(session.cells),
                len(view.messages),
            )
            assert listed[id].row == row
            assert (listed[id].owner is not None) == self.runs(session)

    @invariant()
    def what_was_deleted_is_gone(self) -> None:
        for id in self.gone[-2:]:
            with pytest.raises(UnknownSession):
                self.stores[-1].read(id)

    @invariant()
    def nothing_is_damaged(self) -> None:
        assert self.stores[-1].verify().damage == ()


class MemoryMachine(StoreMachine):
    def __init__(self) -> None:
        self.place = memory.Place()
        super().__init__()

    def open_store(self) -> BlockingStore:
        return memory.BlockingMemoryStore(self.place)

    def crash(self, store: BlockingStore) -> None:
        self.place.kill(store.owner)


class PostgresMachine(StoreMachine):
    def __init__(self) -> None:
        self.url = postgres.server(18).new_store()
        super().__init__()

    def open_store(self) -> BlockingStore:
        return BlockingPostgresStore(self.url)

    def crash(self, store: BlockingStore) -> None:
        assert isinstance(store, BlockingPostgresStore)
        kill(self.url, store)


SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much]

StoreMachine.TestCase.settings = settings(
    stateful_step_count=40, max_examples=12, suppress_health_check=SLOW
)
TestAnyOrderOfVerbs = StoreMachine.TestCase
MemoryMachine.TestCase.settings = StoreMachine.TestCase.settings
TestAnyOrderOfVerbsInMemory = MemoryMachine.TestCase
PostgresMachine.TestCase.settings = settings(
    stateful_step_count=30, max_examples=3, suppress_health_check=SLOW
)
TestAnyOrderOfVerbsInPostgres = PostgresMachine.TestCase


@pytest.mark.torture
class TestAnyOrderOfVerbsForLong(StoreMachine.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(stateful_step_count=100, suppress_health_check=SLOW)


@pytest.mark.torture
class TestAnyOrderOfVerbsInPostgresForLong(PostgresMachine.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(stateful_step_count=60, max_examples=100, suppress_health_check=SLOW)


@pytest.mark.torture
class TestAnyOrderOfVerbsInMemoryForLong(MemoryMachine.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(stateful_step_count=100, suppress_health_check=SLOW)
