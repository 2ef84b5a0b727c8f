"""Makes sessions: many at once through the store's own verbs, and single ones that are ready to be
written to."""

from collections.abc import Callable, Sequence
from pathlib import Path

from bench.timing import bounded
from bench.words import TEXTS
from steno.journal.drafts import Stream
from steno.journal.facts import (
    InputAdmitted,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    TurnEnded,
    TurnFact,
    TurnStarted,
    Usage,
)
from steno.journal.parts import Seq, Text
from steno.store import facade, verbs
from steno.store.protocol import Admission, Admitted, Lease, Settings
from steno.store.sqlite.store import BlockingStore, SqliteStore
from steno.store.transaction import Transaction, written
from steno.store.verbs import Moment

MESSAGES_PER_TURN = 2
MODEL = "openai-chat:some-model"
DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
WARM_TURNS = 5_000
FAST = Settings(durability="process")
"""For building only: what is measured is always stored at full durability."""

_TURNS_PER_COMMIT = 1_000


def text(i: int) -> Text:
    return Text(TEXTS[i % len(TEXTS)])


def said(i: int, key: str | None = None) -> InputAdmitted:
    return InputAdmitted((text(i),), "bench", key)


def sealed(step: Seq, i: int) -> StepSealed:
    return StepSealed(step, (text(i),), usage=Usage(input=1_234, output=123, cached=1_024))


def asked(input: Seq) -> tuple[TurnFact, TurnFact]:
    return TurnStarted(Takes(input)), StepStarted(MODEL, DIGEST)


# --- many


def build(path: Path, sessions: int, turns: int) -> list[str]:
    """Make a store (or add to it) with so many finished sessions of so many turns; their ids."""
    with BlockingStore(path, FAST) as store:
        ids: list[str] = []
        at_once = max(1, _TURNS_PER_COMMIT // turns)
        for i in bounded(-(-sessions // at_once), 600.0):
            ids += _build_some(store, min(at_once, sessions - i * at_once), turns)
        return ids


def _build_some(store: BlockingStore, sessions: int, turns: int) -> list[str]:
    ids = [store.create(SessionStarted("bench")) for _ in range(sessions)]
    leases = [store.acquire(id) for id in ids]
    heads = [1] * sessions
    for start in range(0, turns, _TURNS_PER_COMMIT):
        count = min(_TURNS_PER_COMMIT, turns - start)
        heads = store.core.queue.run(_turns(leases, heads, count, store.core.moment()))
    return ids


def add_turns(store: BlockingStore, id: str, turns: int) -> None:
    """More turns in a session that nobody runs."""
    head = store.glance(id).head
    lease = store.acquire(id)
    for start in range(0, turns, _TURNS_PER_COMMIT):
        [head] = store.core.queue.run(
            _turns([lease], [head], min(_TURNS_PER_COMMIT, turns - start), store.core.moment())
        )
    store.release(lease, head)


def _turns(
    leases: list[Lease], heads: list[Seq], count: int, moment: Moment
) -> Callable[[Transaction], list[Seq]]:
    def verb(tx: Transaction) -> list[Seq]:
        return [
            _session_turns(tx, lease, head, count, moment)
            for lease, head in zip(leases, heads, strict=True)
        ]

    return verb


def _session_turns(tx: Transaction, lease: Lease, head: Seq, count: int, moment: Moment) -> Seq:
    for i in range(head, head + count):
        admission = Admission(input=said(i), session=lease.session)
        input = verbs.admit(tx, admission, written((admission.input,)), moment).seq
        step = verbs.append(tx, lease, written(asked(input)), input, moment).last
        ending = TurnEnded(input + 1, "done")
        ended = written((sealed(step, i + 1), ending))
        head = verbs.append(tx, lease, ended, step, moment).last
    return head


def warm(store: BlockingStore) -> None:
    """Write more than a thousand pages at once, so that the log is past its first checkpoint, as
    the baseline's is."""
    lease = store.acquire(store.create(SessionStarted("bench")))
    store.core.queue.run(_turns([lease], [1], WARM_TURNS, store.core.moment()))
    ready = Writer(store)
    for i in range(20):
        ready.append(i)


# --- one


class Writer:
    """A session with an open step, written to by blocking calls."""

    def __init__(self, store: facade.BlockingStore, session: str | None = None) -> None:
        self.store = store
        self.session = session or store.create(SessionStarted("bench"))
        self.lease = store.acquire(self.session)
        input = store.admit(Admission(input=said(0), session=self.session)).seq
        self.head = self.step = store.append(self.lease, asked(input), input).last

    def append(self, i: int) -> None:
        self.head = self.store.append(self.lease, (sealed(self.step, i),), self.head).last

    def admit(self, i: int) -> Admitted:
        return self.store.admit(Admission(input=said(i), session=self.session))


class AsyncWriter:
    """A session with an open step, written to from an event loop."""

    def __init__(self, store: SqliteStore) -> None:
        ready = Writer(store.blocking)
        self.store = store
        self.session, self.lease, self.head, self.step = (
            ready.session,
            ready.lease,
            ready.head,
            ready.step,
        )
        self.stream = Stream(self.step, "text")

    async def append(self, i: int) -> None:
        self.head = (await self.store.append(self.lease, (sealed(self.step, i),), self.head)).last

    async def admit(self, i: int) -> Admitted:
        return await self.store.admit(Admission(input=said(i), session=self.session))

    async def draft(self, piece: str) -> int:
        return await self.store.draft(self.lease, self.stream, piece)

    async def seal(self, whole: str) -> None:
        self.head = (
            await self.store.append(self.lease, (StepSealed(self.step, (Text(whole),)),), self.head)
        ).last


def some(ids: Sequence[str], i: int) -> str:
    """One of many, spread over them all: neighbours in time are not neighbours on disk."""
    return ids[(i * 7_919 + 13) % len(ids)]
