"""steno for other people's programs: keep a conversation so that nothing said or shown is lost.

Everything here blocks until it is durable. For leases, tools and async, use the store itself:
`Library.store`.
"""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from steno.engine.recover import close, recover
from steno.journal.drafts import Stream
from steno.journal.facts import (
    InputAdmitted,
    Record,
    SessionRenamed,
    SessionStarted,
    StepEnding,
    StepLost,
    StepSealed,
    StepStarted,
    Takes,
    TurnEnded,
    TurnFact,
    TurnOutcome,
    TurnStarted,
)
from steno.journal.parts import Seq, Text
from steno.journal.state import State
from steno.journal.transcript import Message, Transcript
from steno.store.errors import NotAllowed
from steno.store.protocol import Admission, Admitted, Lease, Listed, Settings
from steno.store.sqlite.blocking import BlockingStore

__all__ = ["Library", "Message", "Reply", "Session", "open"]

SOURCE = "library"
_REMEMBERED_MAX = 10_000


def open(path: str | Path, settings: Settings | None = None) -> "Library":
    """Open the store at `path`, or make it. Its folder must exist."""
    return Library(BlockingStore(Path(path), settings))


class Library:
    """All sessions of one store."""

    def __init__(self, store: BlockingStore) -> None:
        self.store = store
        self._sound = _Sound(store)

    def __enter__(self) -> "Library":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.store.close()

    def session(self, name: str) -> "Session":
        """The session bound to a name of yours (a user, a ticket, a chat), made if there is
        none."""
        id = self.store.find(name)
        return Session(
            self.store, id or self.store.ensure(SessionStarted(SOURCE, name=name)), self._sound
        )

    def open(self, id: str) -> "Session":
        """The session with this id."""
        self.store.read(id, limit=1)
        return Session(self.store, id, self._sound)

    def sessions(self) -> Iterator[Listed]:
        """Every session, the most recently used first."""
        page = self.store.list()
        while page:
            yield from page
            page = self.store.list(before=page[-1].mark)


class _Sound:
    """An input is not accepted to a session that cannot be read. A reply is built from everything,
    so that is read, once; from then on what is new."""

    def __init__(self, store: BlockingStore) -> None:
        self._store = store
        self._read: dict[str, Seq] = {}

    def check(self, session: str) -> None:
        upto = self._read.get(session, 0)
        for record in self._store.read_all(session, upto):
            upto = record.seq
        if len(self._read) >= _REMEMBERED_MAX:
            self._read.clear()
        self._read[session] = upto


class Session:
    def __init__(self, store: BlockingStore, id: str, sound: _Sound) -> None:
        self.store = store
        self.id = id
        self._sound = sound

    def say(self, text: str, key: str | None = None, author: str | None = None) -> Admitted:
        """Accept what someone said. The same `key` with the same text is accepted once, however
        often it comes. Raises `JournalCorrupt`, and stores nothing, if what a reply would be built
        from is damaged."""
        self._sound.check(self.id)
        said = InputAdmitted((Text(text),), f"{SOURCE}/{self.id}", key, author)
        return self.store.admit(Admission(input=said, session=self.id))

    def reply(self, model: str) -> "Reply":
        """Answer the oldest input that nobody has answered yet."""
        return Reply(self.store, self.id, model)

    def rename(self, title: str) -> None:
        self.store.add(self.id, [SessionRenamed(title)])

    def messages(self) -> list[Message]:
        """Everything said so far, with what is being streamed at this moment."""
        return self.transcript().messages

    def transcript(self) -> Transcript:
        """The view for people. What a dead process left open is shown as the next one will close
        it."""
        view, state = Transcript(), State()
        glance = self.store.glance(self.id)
        for record in self.store.read_all(self.id, upto=glance.head):
            view.apply(record)
            state.apply(record)
        if glance.owner is not None:
            view.show_drafts(glance.drafts)
        else:
            for i, fact in enumerate(recover(state, glance.drafts), start=1):
                view.apply(Record(state.head + i, 0, fact))
        return view


class Reply:
    """One turn: takes an input, stores every piece before you show it, and ends however you leave
    the block."""

    def __init__(self, store: BlockingStore, session: str, model: str) -> None:
        self._store = store
        self._session = session
        self._model = model
        self._state = State()
        self._pieces: list[str] = []
        self._lease: Lease | None = None
        self._step: Seq = 0

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def __enter__(self) -> "Reply":
        self._lease = self._store.acquire(self._session)
        try:
            self._begin()
        except BaseException:
            self._release()
            raise
        return self

    def write(self, piece: str) -> str:
        """Store a piece of the answer; returned when it is durable and may be shown."""
        self._store.draft(self._held(), Stream(self._step, "text"), piece)
        self._pieces.append(piece)
        return piece

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._end("complete", self._ended("done", "", ""))
            elif isinstance(error, Exception):
                self._end("incomplete", self._ended("failed", type(error).__name__, str(error)))
            else:
                cause = "user" if isinstance(error, KeyboardInterrupt) else "left"
                self._end("interrupted", self._ended("interrupted", cause, ""))
        finally:
            self._release()

    def _begin(self) -> None:
        for record in self._store.read_all(self._session):
            self._state.apply(record)
        closing = close(self._state, self._store.drafts(self._session))
        if closing:
            self._record(*closing)
        if not self._state.pending:
            raise NotAllowed(f"session {self._session!r} has no input to answer")
        self._record(TurnStarted(Takes(min(self._state.pending))))
        self._record(StepStarted(self._model))
        self._step = self._state.head

    def _end(self, how: StepEnding, ending: TurnEnded) -> None:
        """Seal what is stored, not what we remember: a Ctrl-C may have struck between the two."""
        drafts = self._store.drafts(self._session)
        text = "".join(draft.text for draft in drafts if draft.stream.started == self._step)
        if text or how == "complete":
            self._record(StepSealed(self._step, (Text(text),) if text else (), how), ending)
        else:
            self._record(StepLost(self._step, ending.cause, sent="unknown"), ending)

    def _ended(self, outcome: TurnOutcome, cause: str, detail: str) -> TurnEnded:
        return TurnEnded(self._turn(), outcome, cause, detail)

    def _turn(self) -> Seq:
        if self._state.turn is None:
            raise NotAllowed("this reply has not begun")
        return self._state.turn.seq

    def _record(self, *facts: TurnFact) -> None:
        """Store facts and take them in, with whatever others added before them."""
        added = self._store.append(self._held(), facts, self._state.head)
        for record in added.foreign:
            self._state.apply(record)
        for seq, fact in enumerate(facts, start=added.first):
            self._state.apply(Record(seq, added.at_ms, fact))

    def _release(self) -> None:
        """Let go, whatever happens: a store that cannot be written must not keep the session from
        the next reply."""
        lease, self._lease = self._held(), None
        try:
            while not (answer := self._store.release(lease, self._state.head)).released:
                for record in answer.foreign:
                    self._state.apply(record)
        finally:
            self._store.abandon(lease)

    def _held(self) -> Lease:
        if self._lease is None:
            raise NotAllowed("this reply is over; begin another one")
        return self._lease
