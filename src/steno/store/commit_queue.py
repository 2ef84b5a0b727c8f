"""One commit at a time, and as many verbs in it as are waiting.

The thread that holds the commit lock takes everything that has been queued by then, by all sessions
and callers, and commits it as one transaction. What arrives meanwhile goes out with the next. A
blocking caller becomes the committer itself, so it pays for no thread switch; async callers share
one thread.

    queue  ->  [verb, verb, verb]  ->  begin · each verb · flush · commit  ->  answers

Each verb stands alone: one that refuses (a stale token, a reused key) has added nothing, and the
others go on. If the transaction itself fails, its verbs are tried one by one where that can help,
so that the guilty one fails alone.

    A appends "Hel"      queue [A]          A finds the lock free, takes [A] and commits
    B admits, C drafts   queue [B, C]       both wait for the lock: A is syncing
    A's commit is over   A is answered      B gets the lock, takes [B, C]: B commits C's verb, too
                         queue []           begin · B: seq 8 · C: LeaseLost · flush · commit
    commit is over       B is answered 8, C gets its error; C never had the lock
    had it failed        B: StoreFull, "nothing was stored"; C: LeaseLost all the same
    had its outcome      B: OutcomeUnknown. The same call with the same key settles it: begin finds
    been unknown         that others may have written, so B's key is looked for in what is stored
"""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from steno.store.backend import LookFirst, Needs, TryAgain
from steno.store.errors import OutcomeUnknown, StoreClosed, StoreError, StoreLocked
from steno.store.transaction import Changes, Transaction

T = TypeVar("T")

BATCH_MAX = 1_000
TRIES_MAX = 8
"""How often a batch is run again because others were quicker."""
NOTHING = Needs()
_QUEUED_BYTES = 400
"""What a queued verb costs beside its text, for the bound on the queue."""


class Waiter(Protocol):
    """Hears when answers are there. Called from the committing thread."""

    def answered(self, tickets: "Sequence[Queued[object]]") -> None: ...


class Queued(Generic[T]):
    """Something to do in a transaction and, once it was done or refused, its answer.

    `size` is how much memory it holds while it waits, and `after` what to do once it is durable.
    `waiter` hears of the answer; `future` is the waiter's own.
    """

    __slots__ = (
        "after",
        "answer",
        "done",
        "error",
        "future",
        "needs",
        "size",
        "verb",
        "waiter",
    )

    def __init__(
        self,
        verb: Callable[[Transaction], T],
        size: int = 0,
        after: Callable[[T], None] | None = None,
        needs: Needs = NOTHING,
    ) -> None:
        self.verb = verb
        self.size = size + _QUEUED_BYTES
        self.after = after
        self.needs = needs
        self.waiter: Waiter | None = None
        self.future: object = None
        self.answer: T | None = None
        self.error: Exception | None = None
        self.done = False

    def result(self) -> T:
        if self.error is not None:
            raise self.error
        return self.answer  # type: ignore[return-value]


class CommitQueue:
    """The only way to write. `on_commit` hears of each commit before the next one begins. `took_s`
    is how long the last one took."""

    def __init__(
        self, transaction: Transaction, on_commit: Callable[[Changes], None]
    ) -> None:
        self._transaction = transaction
        self._on_commit = on_commit
        self._queue: deque[Queued[object]] = deque()
        self._commit = threading.Lock()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._closed = False
        self.took_s = self._began_s = 0.0

    def run(self, verb: Callable[[Transaction], T], needs: Needs = NOTHING) -> T:
        """Run a verb and return when it is durable."""
        return self.settle(Queued(verb, needs=needs))

    def settle(self, ticket: Queued[T]) -> T:
        self.check_open()
        self._queue.append(ticket)  # type: ignore[arg-type]
        while not ticket.done:
            with self._commit:
                if not ticket.done:
                    self._commit_queued()
        return ticket.result()

    def submit(self, ticket: Queued[T]) -> None:
        """Queue a verb; its waiter hears when it is durable."""
        self.check_open()
        if self._thread is None:
            self._start()
        self._queue.append(ticket)  # type: ignore[arg-type]
        self._rouse()

    @contextlib.contextmanager
    def paused(self, wait_s: float = -1) -> Iterator[None]:
        """Nothing is committed through this queue meanwhile. `TimeoutError` if it is not still
        within the time."""
        if not self._commit.acquire(timeout=wait_s):
            raise TimeoutError
        try:
            self.check_open()
            yield
        finally:
            self._commit.release()

    def close(self) -> None:
        """Commit what is queued and take nothing more."""
        with self._commit:
            self._closed = True
            while self._queue:
                self._commit_queued()
        self._rouse()
        if (
            self._thread is not None
            and self._thread is not threading.current_thread()
        ):
            self._thread.join()

    def check_open(self) -> None:
        if self._closed:
            raise StoreClosed("this store was closed")
        if os.getpid() != self._pid:
            raise StoreClosed(
                "this store was opened before a fork; open it again in the child"
            )

    def _start(self) -> None:
        self._thread = threading.Thread(
            target=self._serve, name="steno-commit", daemon=True
        )
        self._thread.start()

    def _rouse(self) -> None:
        """Wake the thread. It looks at the queue after each wake, and this comes after the
        queueing: none is missed."""
        if self._wake.locked():
            with contextlib.suppress(RuntimeError):
                self._wake.release()

    def _serve(self) -> None:
        while not self._closed:
            self._wake.acquire()
            while self._queue:
                with self._commit:
                    self._commit_queued()

    def _commit_queued(self) -> None:
        """Commit what is queued. A Ctrl-C can strike between any two lines here: then each verb of
        the batch ends with an unknown outcome, and the next batch finds the transaction closed."""
        batch: list[Queued[object]] = []
        self._began_s = time.perf_counter()
        try:
            while self._queue and len(batch) < BATCH_MAX:
                if not self._queue[0].done:
                    batch.append(self._queue[0])
                self._queue.popleft()
            later = self._commit_batch(batch)
            self._settled([ticket for ticket in batch if ticket not in later])
            if later:
                self._commit_batch(later, look=True)
                self._settled(later)
        except BaseException:
            self._transaction.rollback()
            _fail(
                batch,
                OutcomeUnknown(
                    "interrupted while storing; the same call with the same key settles it"
                ),
            )
            raise
        finally:
            _answer(batch)

    def _settled(self, batch: "list[Queued[object]]") -> None:
        self.took_s = time.perf_counter() - self._began_s
        _answer(batch)
        changes, self._transaction.changes = self._transaction.changes, {}
        if changes:
            self._on_commit(changes)

    def _commit_batch(
        self,
        batch: "list[Queued[object]]",
        look: bool = False,
        tries: int = TRIES_MAX,
    ) -> "list[Queued[object]]":
        """Those that have to be run in a transaction that looks."""
        if not batch:
            return []
        try:
            return self._transact(batch, look)
        except TryAgain as error:
            self._transaction.rollback()
            if tries:
                return self._commit_batch(batch, look=True, tries=tries - 1)
            _fail(
                batch,
                StoreLocked(f"nothing was stored: others were quicker ({error})"),
            )
        except StoreError as error:
            self._transaction.rollback()
            _fail(batch, error)
        except Exception as error:  # noqa: BLE001 - a caller's mistake must reach that caller, not end the queue
            self._transaction.rollback()
            explained = self._transaction.writer.explain(error)
            meant, alone = (error, True) if explained is None else explained
            if len(batch) > 1 and alone:
                self._one_by_one(batch)
            else:
                _fail(batch, meant)
        return []

    def _one_by_one(self, batch: "list[Queued[object]]") -> None:
        changes: Changes = {}
        for ticket in batch:
            ticket.error = None
            self._commit_batch([ticket], look=True)
            changes |= dict.fromkeys(self._transaction.changes)
        self._transaction.changes = changes

    def _transact(
        self, batch: "list[Queued[object]]", look: bool
    ) -> "list[Queued[object]]":
        """What a session was asked to do stays in order: with the first verb that has to look, the
        later ones of its session wait for that. What is remembered may be out of date, and only
        what is written is compared: so a refusal counts after a look."""
        transaction = self._transaction
        transaction.begin((ticket.needs for ticket in batch), look)
        later: list[Queued[object]] = []
        waiting: set[str | None] = set()
        for ticket in batch:
            if waiting and ticket.needs.session in waiting:
                later.append(ticket)
                continue
            ticket.error = None
            try:
                ticket.answer = ticket.verb(transaction)
            except LookFirst:
                later.append(ticket)
                waiting.add(ticket.needs.session)
            except StoreError as error:
                if transaction.trusts:
                    later.append(ticket)
                    waiting.add(ticket.needs.session)
                else:
                    ticket.error = error
        transaction.flush()
        transaction.commit()
        return later


def _fail(batch: "list[Queued[object]]", error: Exception) -> None:
    """A verb that was refused keeps its own error: that stands whatever became of the rest."""
    for ticket in batch:
        if ticket.error is None and not ticket.done:
            ticket.error = error


def _answer(batch: "list[Queued[object]]") -> None:
    waiters: dict[Waiter, list[Queued[object]]] = {}
    for ticket in batch:
        if ticket.done:
            continue
        ticket.done = True
        if ticket.waiter is not None:
            waiters.setdefault(ticket.waiter, []).append(ticket)
    for waiter, tickets in waiters.items():
        waiter.answered(tickets)
