"""Leases, burials and lost answers in any order, on the real store: what was acknowledged is there
once and in order, and who was declared dead adds nothing.

Each rule of the store that this rests on is taken out once, to see that it is missed.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from steno.journal.facts import SessionStarted, StepLost, StepStarted, Takes, TurnStarted
from steno.store.errors import LeaseLost, SessionBusy
from steno.store.postgres.database import PostgresSettings
from steno.store.postgres.owners import Owners
from steno.store.postgres.store import BlockingPostgresStore
from steno.store.postgres.writer import PostgresWriter
from steno.store.protocol import Admission, Lease
from tests import postgres
from tests.store.test_postgres import lose_next, said, sql

WORKERS = 3
NEVER = PostgresSettings(short_ms=3_600_000, long_ms=3_600_000, give_up_ms=10_000)
"""The beats are set back by hand: the clock of this world is the machine's."""

workers = st.integers(0, WORKERS - 1)


class Worker:
    def __init__(self, url: str) -> None:
        self.store = BlockingPostgresStore(url, NEVER)
        self.lease: Lease | None = None
        self.head = 0
        self.frozen = False
        self.buried = False


class Takeover(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.url = postgres.server().new_store()
        self.workers = [Worker(self.url) for _ in range(WORKERS)]
        first = self.workers[0].store
        admitted = first.admit(Admission(input=said("begin"), create=SessionStarted("test")))
        self.session = admitted.session
        lease = first.acquire(self.session)
        facts = (TurnStarted(Takes(admitted.seq)), StepStarted("model"))
        self.kept = ["session.started", "input", "turn", "step"]
        head = first.append(lease, facts, admitted.seq).last
        first.release(lease, head)
        self.holder: Worker | None = None
        self.said = 0

    def teardown(self) -> None:
        for worker in self.workers:
            worker.store.close()

    # --- what workers do

    @rule(which=workers)
    def take(self, which: int) -> None:
        worker, holder = self.workers[which], self.holder
        try:
            lease = worker.store.acquire(self.session)
        except SessionBusy:
            assert holder is not None
            assert not holder.buried
            assert not holder.frozen or holder is worker
            return
        assert holder is None or holder.frozen or holder.buried, "it was taken from one that lives"
        if holder is not None and holder is not worker:
            self._bury(holder)
        self.holder, worker.lease, worker.head = worker, lease, len(self.kept)

    @rule(which=workers)
    def add(self, which: int) -> None:
        worker = self.workers[which]
        if worker.lease is None:
            return
        self.said += 1
        text = f"fact {self.said}"
        may = self.holder is worker and not worker.buried
        try:
            added = worker.store.append(worker.lease, (StepLost(4, text, "no"),), worker.head)
        except LeaseLost:
            assert not may, "it holds the session and is alive"
            self._lost(worker)
            return
        assert may, "it was declared dead, or the session is another's"
        assert added.first == added.last == len(self.kept) + 1, "in its place, without a gap"
        worker.head = added.last
        self.kept.append(text)

    @rule(which=workers)
    def give_back(self, which: int) -> None:
        worker = self.workers[which]
        if worker.lease is None:
            return
        try:
            assert worker.store.release(worker.lease, worker.head).released
        except LeaseLost:
            assert self.holder is not worker or worker.buried
            self._lost(worker)
        else:
            assert self.holder is worker
            assert not worker.buried
            self.holder, worker.lease = None, None

    # --- what happens to them

    @rule(which=workers, when=st.sampled_from(["before", "after"]))
    def lose(self, which: int, when: str) -> None:
        """The answer to its next commit is lost."""
        lose_next(self.workers[which].store, when)

    @rule(which=workers)
    def freeze(self, which: int) -> None:
        """Its beat is old; whoever looks will declare it dead."""
        worker = self.workers[which]
        worker.frozen = True
        old = "update @owners set beat = beat - interval '1 day' where owner = %s"
        sql(self.url, old, worker.store.owner)

    @rule(which=workers, by=workers)
    def judge(self, which: int, by: int) -> None:
        worker, other = self.workers[which], self.workers[by]
        if worker is other:
            return
        assert other.store.alive(worker.store.owner) == (not worker.frozen)
        if worker.frozen:
            self._bury(worker)

    def _bury(self, worker: Worker) -> None:
        worker.buried = True
        if self.holder is worker:
            self.holder = None

    def _lost(self, worker: Worker) -> None:
        """It knows now, and goes on under another name."""
        worker.lease = None
        if worker.buried:
            worker.frozen = worker.buried = False

    @invariant()
    def what_was_acknowledged_is_there_once(self) -> None:
        records = self.workers[-1].store.read(self.session)
        assert [record.seq for record in records] == [*range(1, len(self.kept) + 1)]
        stored = [record.fact.cause for record in records if isinstance(record.fact, StepLost)]
        assert stored == self.kept[4:]


QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]

Takeover.TestCase.settings = settings(
    stateful_step_count=10,
    max_examples=2,
    phases=[Phase.generate],
    suppress_health_check=QUIET,
)
TestTakeoverInAnyOrder = Takeover.TestCase


@pytest.mark.torture
class TestTakeoverInAnyOrderForLong(Takeover.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(stateful_step_count=50, max_examples=200, suppress_health_check=QUIET)


@contextmanager
def unfenced(world: "Takeover") -> Iterator[None]:
    """A batch is stored whatever the row of its worker says."""
    real = PostgresWriter._arguments

    def arguments(writer: PostgresWriter, states: Any, fenced: bool) -> list[Any]:
        return [*real(writer, states, fenced)[:2], False, *real(writer, states, fenced)[3:]]

    def at_once(writer: PostgresWriter, states: Any) -> None:
        writer.connection.execute(writer._call, arguments(writer, states, True))

    statements = world.workers[0].store.backend.connector.statements
    with (
        patch.object(PostgresWriter, "_send_at_once", at_once),
        patch.object(PostgresWriter, "_arguments", arguments),
        patch.dict(statements, fence=b"select 1 where %s::text is not null"),
    ):
        yield


@contextmanager
def guessing(world: "Takeover", stored: bool) -> Iterator[None]:
    with patch.object(Owners, "settle", lambda _owners, _k: stored):
        yield


Steps = Callable[[Takeover], None]


def declared_dead(world: Takeover) -> None:
    world.take(0)
    world.add(0)
    world.freeze(0)
    world.judge(0, by=1)
    world.add(0)


def lost(when: str) -> Steps:
    def steps(world: Takeover) -> None:
        world.take(0)
        world.add(0)
        world.lose(0, when)
        world.add(0)
        world.what_was_acknowledged_is_there_once()

    return steps


MUTANTS: dict[str, tuple[Callable[[Takeover], AbstractContextManager[None]], Steps]] = {
    "no fence": (unfenced, declared_dead),
    "stored is guessed": (lambda world: guessing(world, True), lost("before")),
    "not stored is guessed": (lambda world: guessing(world, False), lost("after")),
}


@pytest.mark.promise(72, 73)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_rule_is_missed_when_it_is_taken_out(mutant: str) -> None:
    """The steps go well as it is, and not without the rule."""
    without, steps = MUTANTS[mutant]
    for taken_out in (False, True):
        world = Takeover()
        try:
            if not taken_out:
                steps(world)
                continue
            with without(world), pytest.raises(AssertionError):
                steps(world)
        finally:
            world.teardown()
