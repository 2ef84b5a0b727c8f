"""One commit at a time, and as many verbs in it as are waiting.

Whoever holds the commit lock takes everything that has been queued by then, by all sessions and
callers, and commits it as one transaction. What arrives meanwhile goes out with the next. A
blocking caller becomes the committer itself, so it pays for no thread switch; async callers share
one thread.

    queue  ->  [verb, verb, verb]  ->  begin · each verb · flush · commit  ->  answers

Each verb stands alone: one that refuses (a stale token, a reused key) has added nothing, and the
others go on. If the transaction itself fails, its verbs are tried one by one where that can help,
so that the guilty one fails alone.
"""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import apsw

from steno.store.errors import JournalCorrupt, OutcomeUnknown, StoreClosed, StoreError
from steno.store.sqlite.database import translate
from steno.store.sqlite.transaction import Changes, Transaction

T = TypeVar("T")

BATCH_MAX = 1_000
DOING = "nothing was stored"

_GUILTY_ALONE = (
    apsw.ConstraintError,
    apsw.CorruptError,
    apsw.FullError,
    apsw.MismatchError,
    apsw.RangeError,
    apsw.SQLError,
    apsw.TooBigError,
)


class Waiter(Protocol):
    """Somebody who is told when answers are there. Called from the committing thread."""

    def answered(self, tickets: "Sequence[Ticket[object]]") -> None: ...


class Ticket(Generic[T]):
    """A queued verb and, later, its answer."""

    __slots__ = ("answer", "done", "error", "future", "size", "verb", "waiter")

    def __init__(
        self,
        verb: Callable[[Transaction], T],
        waiter: Waiter | None = None,
        size: int = 0,
        future: object = None,
    ) -> None:
        self.verb = verb
        self.waiter = waiter
        self.size = size
        self.future = future
        self.answer: T | None = None
        self.error: Exception | None = None
        self.done = False

    def result(self) -> T:
        if self.error is not None:
            raise self.error
        return self.answer  # type: ignore[return-value]


class Pipeline:
    """The only way to write. `on_commit` hears of each commit before the next one begins."""

    def __init__(self, transaction: Transaction, on_commit: Callable[[Changes], None]) -> None:
        self._transaction = transaction
        self._on_commit = on_commit
        self._queue: deque[Ticket[object]] = deque()
        self._commit = threading.Lock()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._closed = False

    def run(self, verb: Callable[[Transaction], T]) -> T:
        """Run a verb and return when it is durable."""
        ticket = Ticket(verb)
        self._check_open()
        self._queue.append(ticket)  # type: ignore[arg-type]
        while not ticket.done:
            with self._commit:
                if not ticket.done:
                    self._commit_queued()
        return ticket.result()

    def submit(self, ticket: Ticket[T]) -> None:
        """Queue a verb; its waiter is told when it is durable."""
        self._check_open()
        if self._thread is None:
            self._start()
        self._queue.append(ticket)  # type: ignore[arg-type]
        self._rouse()

    def exclusively(self, act: Callable[[], T]) -> T:
        """Run something while nothing is being committed, by no process."""
        with self._commit:
            self._check_open()
            turnstile = self._transaction.turnstile
            turnstile.enter()
            try:
                return act()
            finally:
                turnstile.leave()

    def close(self) -> None:
        """Commit what is queued and take nothing more."""
        with self._commit:
            self._closed = True
            while self._queue:
                self._commit_queued()
        self._rouse()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("this store was closed")
        if os.getpid() != self._pid:
            raise StoreClosed("this store was opened before a fork; open it again in the child")

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._serve, name="steno-commit", daemon=True)
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
        """Commit what is queued. A Ctrl-C can strike between any two lines here: then everybody in
        the batch is told that the outcome is unknown, and the next batch finds the transaction
        closed."""
        batch: list[Ticket[object]] = []
        try:
            while self._queue and len(batch) < BATCH_MAX:
                if not self._queue[0].done:
                    batch.append(self._queue[0])
                self._queue.popleft()
            self._commit_batch(batch)
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
        changes, self._transaction.changes = self._transaction.changes, {}
        if changes:
            self._on_commit(changes)

    def _commit_batch(self, batch: "list[Ticket[object]]") -> None:
        if not batch:
            return
        try:
            self._transact(batch)
        except _GUILTY_ALONE as error:
            self._transaction.rollback()
            if len(batch) > 1:
                self._one_by_one(batch)
            else:
                batch[0].error = translate(error, DOING)
        except apsw.Error as error:
            self._transaction.rollback()
            _fail(batch, translate(error, DOING))
        except StoreError as error:
            self._transaction.rollback()
            _fail(batch, error)
        except UnicodeDecodeError as error:
            self._transaction.rollback()
            _fail(
                batch,
                JournalCorrupt(
                    f"{DOING}: the database is damaged (text that is not text: {error})"
                ),
            )
        except Exception as error:  # noqa: BLE001 - a caller's mistake must reach that caller, not end the pipeline
            self._transaction.rollback()
            if len(batch) > 1:
                self._one_by_one(batch)
            else:
                batch[0].error = error

    def _one_by_one(self, batch: "list[Ticket[object]]") -> None:
        changes: Changes = {}
        for ticket in batch:
            ticket.error = None
            self._commit_batch([ticket])
            changes |= dict.fromkeys(self._transaction.changes)
        self._transaction.changes = changes

    def _transact(self, batch: "list[Ticket[object]]") -> None:
        transaction = self._transaction
        transaction.begin()
        for ticket in batch:
            try:
                ticket.answer = ticket.verb(transaction)
            except StoreError as error:
                ticket.error = error
        transaction.flush()
        try:
            transaction.commit()
        except apsw.IOError as error:
            raise OutcomeUnknown(
                f"the disk failed while storing ({error}); it may be stored or not: "
                "the same call with the same key settles it"
            ) from error


def _fail(batch: "list[Ticket[object]]", error: StoreError) -> None:
    """A verb that was refused keeps its own error: that stands whatever became of the rest."""
    for ticket in batch:
        if ticket.error is None and not ticket.done:
            ticket.error = error


def _answer(batch: "list[Ticket[object]]") -> None:
    waiters: dict[Waiter, list[Ticket[object]]] = {}
    for ticket in batch:
        if ticket.done:
            continue
        ticket.done = True
        if ticket.waiter is not None:
            waiters.setdefault(ticket.waiter, []).append(ticket)
    for waiter, tickets in waiters.items():
        waiter.answered(tickets)
