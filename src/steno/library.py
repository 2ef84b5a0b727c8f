"""steno for other people's programs: keep a conversation so that nothing said or shown is lost.

    open        Library        Session        Reply            blocks until it is durable
    aopen       AsyncLibrary   AsyncSession   AsyncReply       the same verbs, awaited

There is one implementation, the asynchronous one. The blocking face runs it over a store whose
verbs never suspend, so it needs no event loop and no thread. For tools, forks and leases, use the
store itself: `Library.store`.

What is passed is checked before anything is stored. A `TypeError` or `ValueError` names the
argument.
"""

import json
import math
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
    Sequence,
)
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from steno.journal.drafts import Stream
from steno.journal.facts import (
    InputAdmitted,
    SessionRenamed,
    SessionStarted,
    StepEnding,
    StepLost,
    StepSealed,
    StepStarted,
    Takes,
    TurnEnded,
    TurnOutcome,
    TurnStarted,
)
from steno.journal.history import History
from steno.journal.parts import File, Seq, Text, to_text
from steno.journal.state import State
from steno.journal.transcript import Message, Transcript
from steno.session.load import Sessions
from steno.session.writer import Writer
from steno.store import facade
from steno.store.errors import (
    NotAllowed,
    NotPending,
    OutcomeUnknown,
    SessionBusy,
    StoreUnwritable,
    UnknownSession,
)
from steno.store.facade import now
from steno.store.protocol import Admission, Admitted, Keeping, Kept, Listed, Settings, Store
from steno.store.sqlite.store import BlockingStore

if TYPE_CHECKING:
    from steno.items import AsyncItems, Items
    from steno.search.keeper import Search
    from steno.search.searching import Asked, Found
    from steno.store.facade import AsyncStore

__all__ = [
    "AsyncLibrary",
    "AsyncReply",
    "AsyncSession",
    "Library",
    "Message",
    "Reply",
    "Session",
    "aopen",
    "open",
]

SOURCE = "library"
MEMORY = ":memory:"
OUTPUT_CHARS_MAX = 10_000
"""Of a tool's long output in `messages`: so much of its beginning and its end together."""
OUTPUTS_BYTES_MAX = 32 << 20
"""What `messages` reads of long outputs, the latest first. Of older ones it says how long they
are."""
_PAUSE_S = 0.005
_PAUSE_MAX_S = 0.1

WireFormat = Literal["openai-chat", "openai-responses", "anthropic"]
_FORMATS = {"openai-chat": "messages", "openai-responses": "input", "anthropic": "messages"}
"""Formats of providers, and what a request has the conversation under."""

T = TypeVar("T")


def open(path: str | PathLike[str], settings: Settings | None = None) -> "Library":
    """Open the store at `path`, or make it. Its folder must exist. ":memory:" is a store in the
    memory of this process, which ends with it."""
    if path == MEMORY:
        from steno.store.memory import BlockingMemoryStore, Place

        return Library(BlockingMemoryStore(Place(), _settings(settings)))
    return Library(BlockingStore(_path(path), _settings(settings)))


def aopen(path: str | PathLike[str], settings: Settings | None = None) -> "AsyncLibrary":
    """The same for programs with an event loop: `async with steno.aopen(path) as chats`, or `await
    steno.aopen(path)`."""
    return AsyncLibrary(_path(path), _settings(settings))


# --- one implementation ---------------------------------------------------------------------------


class AsyncLibrary:
    """All sessions of one store."""

    store: "AsyncStore"

    def __init__(self, path: Path, settings: Settings | None = None) -> None:
        self._path = path
        self._settings = settings
        self._search: Search | None = None

    async def _open(self) -> "AsyncLibrary":
        from asyncio import sleep

        if str(self._path) == MEMORY:
            from steno.store.memory import MemoryStore, Place

            self.store = await MemoryStore.open(Place(), self._settings)
        else:
            from steno.store.sqlite.store import SqliteStore

            self.store = await SqliteStore.open(self._path, self._settings)
        self._means = _Means(self.store, sleep)
        _keep_clear(self.store.blocking, _path_of(self.store))
        return self

    def __await__(self) -> "Generator[Any, None, AsyncLibrary]":
        return self._open().__await__()

    async def __aenter__(self) -> "AsyncLibrary":
        return await self._open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._search is not None:
            self._search.close()
        await self.store.close()

    async def session(self, name: str) -> "AsyncSession":
        """The session bound to a name of yours (a user, a ticket, a chat), made if there is
        none."""
        return AsyncSession(self._means, await self._means.ensure(name))

    async def open(self, id: str) -> "AsyncSession":
        """The session with this id."""
        return AsyncSession(self._means, await self._means.known(id))

    async def sessions(self) -> AsyncIterator[Listed]:
        """Every session, the most recently used first."""
        page = await self.store.list()
        while page:
            for listed in page:
                yield listed
            page = await self.store.list(before=page[-1].mark)

    def items(self, name: str, format: str, platform: str = SOURCE) -> "AsyncItems":
        """What another program keeps under a name, in a format of its own. Nothing is made until
        something is kept."""
        from steno.items import AsyncItems

        return AsyncItems(self.store, _str("name", name), _str("format", format), platform)

    async def keep_all(self, changes: Sequence[Keeping]) -> tuple[Kept, ...]:
        """Several changes of items, each of another name, in one commit: see
        `AsyncItems.keeping`."""
        return await self.store.keep_all(changes)

    async def named(self, prefix: str) -> AsyncIterator[Listed]:
        """Every session whose name begins with a prefix, in the order of the names."""
        page = await self.store.named(_str("prefix", prefix))
        while page:
            for listed in page:
                yield listed
            page = await self.store.named(prefix, page[-1].row.name or "")

    async def search(
        self,
        query: str,
        limit: int = 20,
        all: bool = False,
        newest: bool = False,
        before: str | None = None,
        literal: bool = False,
    ) -> "Found":
        """Messages of all sessions that match, the best of each session; with `all`, every one.
        `before` is the `next` of an earlier answer. With `literal` no sign in the query means
        anything. Docs: reference/search."""
        from asyncio import to_thread

        return await to_thread(
            self._searching().find, _asked(query, limit, all, newest, before, literal)
        )

    def _searching(self) -> "Search":
        if self._search is None:
            self._search = _search_of(self.store.blocking, _path_of(self.store))
        return self._search


class AsyncSession:
    def __init__(self, means: "_Means", id: str) -> None:
        self.id = id
        self._means = means
        self._store = means.store

    @classmethod
    def over(cls, store: Store, id: str) -> "AsyncSession":
        """A session of a store that is open already."""
        from asyncio import sleep

        return cls(_Means(store, sleep), id)

    async def say(self, text: str, key: str | None = None, author: str | None = None) -> Admitted:
        """Accept what someone said. The same `key` with the same text is accepted once, however
        often it comes. Raises `JournalCorrupt`, and stores nothing, if what a reply would be built
        from is damaged."""
        said = InputAdmitted(
            (Text(_str("text", text)),),
            f"{SOURCE}/{self.id}",
            None if key is None else _str("key", key),
            None if author is None else _str("author", author),
        )
        await self._means.sessions.check(self.id)
        return await self._store.admit(Admission(input=said, session=self.id))

    def reply(
        self, model: str, to: Admitted | Seq | None = None, wait: float = 0.0
    ) -> "AsyncReply":
        """Answer an input: `to`, as `say` returned it, or the oldest that waits.

        `wait` is how many seconds to wait if another reply is under way. An older input then goes
        first, if its own reply begins within `wait` seconds of when it was said. Without `wait`,
        `SessionBusy` says that another reply is under way. `NotPending` says that the input has
        been taken, or withdrawn.
        """
        return AsyncReply(
            self._means, self.id, _str("model", model), _input(to, self.id), _wait(wait)
        )

    async def rename(self, title: str) -> None:
        await self._store.add(self.id, [SessionRenamed(_str("title", title))])

    async def messages(self, limit: int | None = None, after: Seq = 0) -> list[Message]:
        """Everything said so far, with what is being streamed at this moment: what stands after a
        seq, and of that the last `limit`. Of a long output of a tool the text has the beginning and
        the end; `output` reads all of it."""
        least = _int("after", after)
        messages = [one for one in (await self.transcript()).messages if one.seq > least]
        if limit is not None:
            most = max(_int("limit", limit), 0)
            messages = messages[max(len(messages) - most, 0) :]
        room = OUTPUTS_BYTES_MAX
        for message in reversed(messages):
            for part in _outputs(message):
                room -= part.size
                text = "" if room < 0 else await self._output(part)
                message.parts = (Text(_excerpt(text, part, message.seq)), *message.parts)
        return messages

    async def output(self, message: Message | Seq) -> str:
        """The whole text of a message, however long it is."""
        seq = message.seq if isinstance(message, Message) else _int("message", message)
        found = [one for one in (await self.transcript()).messages if one.seq == seq]
        if not found:
            raise NotAllowed(f"session {self.id!r} has no message {seq}")
        outputs = [await self._output(part) for part in _outputs(found[0])]
        return found[0].text + "".join(outputs)

    async def _output(self, part: File) -> str:
        return to_text(await self._store.get(part.hash))

    async def history(self, format: WireFormat) -> list[Any]:
        """What a model is told of the session, in the words of a provider: the messages, or the
        items, that a request to it has. What still waits is not among it."""
        if format not in _FORMATS:
            raise ValueError(f"format must be one of {', '.join(_FORMATS)}, not {format!r}")
        told = History()
        await self._means.sessions.whole(self.id, told)
        return await _to_wire(self._store, told, format)

    async def transcript(self) -> Transcript:
        """The view for people. What a dead process left open is shown as the next one will close
        it."""
        view = Transcript()
        await self._means.sessions.whole(self.id, view)
        return view


class AsyncReply:
    """One turn: takes an input, stores every piece before you show it, and ends however you leave
    the block."""

    def __init__(
        self, means: "_Means", session: str, model: str, to: Seq | None, wait_s: float
    ) -> None:
        self._means = means
        self._store = means.store
        self._session = session
        self._model = model
        self._to = to
        self._wait_s = wait_s
        self._writer: Writer | None = None
        self._input: Message | None = None
        self._stream = Stream(0, "text")
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def input(self) -> Message:
        """What is answered."""
        if self._input is None:
            raise NotAllowed("this reply has not begun")
        return self._input

    async def __aenter__(self) -> "AsyncReply":
        deadline_s = time.monotonic() + self._wait_s
        pause_s = _PAUSE_S
        while not await self._try(last=time.monotonic() >= deadline_s):
            await self._means.pause(min(pause_s, max(deadline_s - time.monotonic(), 0)))
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)
        return self

    async def write(self, piece: str) -> str:
        """Store a piece of the answer; returned when it is durable and may be shown."""
        if type(piece) is not str:
            piece = _str("piece", piece)
        await (self._writer or self._held()).draft(self._stream, piece)
        self._pieces.append(piece)
        return piece

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        writer, self._writer = self._held(), None
        try:
            match error:
                case None:
                    await self._end(writer, "complete", "done", "", "")
                case StoreUnwritable() | OutcomeUnknown():
                    await self._end(writer, "interrupted", "interrupted", error.cause, "")
                case Exception():
                    cause, detail = type(error).__name__, str(error)
                    await self._end(writer, "incomplete", "failed", cause, detail)
                case _:
                    cause = "user" if isinstance(error, KeyboardInterrupt) else "left"
                    await self._end(writer, "interrupted", "interrupted", cause, "")
            while not await writer.release():
                pass
        except UnknownSession:
            await writer.release()  # says that the lease went with the session
            raise
        except (StoreUnwritable, OutcomeUnknown) as unwritable:
            writer.cut_off_by(unwritable.cause)
            raise
        finally:
            await writer.leave()

    async def _try(self, last: bool) -> bool:
        """Begin, if it is our turn. The last time it is, unless another reply is under way."""
        if not last and not await self._is_due():
            return False
        try:
            writer = await Writer.open(self._means.sessions, self._session)
        except SessionBusy:
            if last:
                raise
            return False
        try:
            await self._begin(writer)
        except BaseException:
            await writer.give_up()
            raise
        self._writer = writer
        return True

    async def _is_due(self) -> bool:
        """Whether no other reply is under way, and none to an older input may still begin."""
        glance = await self._store.glance(self._session)
        if glance.owner is not None or self._to is None:
            return glance.owner is None
        since_ms = time.time() * 1000 - self._wait_s * 1000
        for older in glance.row.pending:
            if older >= self._to:
                break
            [said] = await self._store.read(self._session, older - 1, 1)
            if said.at_ms > since_ms:
                return False
        return True

    async def _begin(self, writer: Writer) -> None:
        taken = await self._taken(writer.state)
        [said] = await self._store.read(self._session, taken - 1, 1)
        turn = await writer.append([TurnStarted(Takes(taken)), StepStarted(self._model)])
        parts = cast(InputAdmitted, said.fact).parts
        self._stream = Stream(turn + 1, "text")
        self._input = Message(taken, taken, said.at_ms, "user", parts, "complete", turn)

    async def _taken(self, state: State) -> Seq:
        """The input that is to be answered."""
        if self._to in state.pending:
            return self._to
        if self._to is not None:
            raise await self._refusal(self._to)
        if not state.pending:
            raise NotAllowed(f"session {self._session!r} has no input to answer")
        return min(state.pending)

    async def _refusal(self, input: Seq) -> NotAllowed | NotPending:
        """Why an input cannot be answered."""
        transcript = await AsyncSession(self._means, self._session).transcript()
        said = next((one for one in transcript.messages if one.seq == input), None)
        of = f"input {input} of session {self._session!r}"
        if said is None or said.role != "user":
            return NotAllowed(f"session {self._session!r} has no input {input}")
        if said.state == "withdrawn":
            return NotPending(f"{of} was withdrawn; nothing was stored")
        turn = next(one for one in transcript.turns if one.seq == said.turn)
        how = "was answered" if turn.outcome == "done" else f"was taken and {turn.outcome}"
        return NotPending(f"{of} {how} in turn {turn.seq}; nothing was stored")

    async def _end(
        self, writer: Writer, how: StepEnding, outcome: TurnOutcome, cause: str, detail: str
    ) -> None:
        """Seal what is stored, not what we remember: a Ctrl-C may have struck between the two."""
        step = self._stream.started
        drafts = await self._store.drafts(self._session)
        text = "".join(draft.text for draft in drafts if draft.stream.started == step)
        ending = TurnEnded(step - 1, outcome, cause, detail)
        if text or how == "complete":
            await writer.append([StepSealed(step, (Text(text),) if text else (), how), ending])
        else:
            await writer.append([StepLost(step, cause, sent="unknown"), ending])

    def _held(self) -> Writer:
        if self._writer is None:
            raise NotAllowed("this reply is over; begin another one")
        return self._writer


class _Means:
    """What every session of a library uses: the store, its sessions, and a way to wait."""

    def __init__(self, store: Store, pause: Callable[[float], Awaitable[None]]) -> None:
        self.store = store
        self.sessions = Sessions(store)
        self.pause = pause

    async def ensure(self, name: str) -> str:
        name = _str("name", name)
        found = await self.store.find(name)
        return found or await self.store.ensure(SessionStarted(SOURCE, name=name))

    async def known(self, id: str) -> str:
        id = _str("id", id)
        await self.store.read(id, limit=1)
        return id


async def _to_wire(store: Store, told: History, format: str) -> list[Any]:
    from importlib import import_module

    from steno.engine.request import build
    from steno.models.providers import ModelTuning
    from steno.models.wording import GO_ON
    from steno.runtimes.loop import payloads_told

    request = build(told)
    payloads = {hash: await store.get(hash) for hash in sorted(payloads_told(request.entries))}
    wire = import_module(f"steno.models.{format.replace('-', '_')}")
    body = json.loads(wire.format("", "", ModelTuning(max_tokens=1)).to_wire(request, payloads))
    messages: list[Any] = body[_FORMATS[format]]
    # A request ends with the user's words; that note is no part of the session.
    return messages[:-1] if messages and GO_ON in json.dumps(messages[-1]) else messages


def _outputs(message: Message) -> list[File]:
    """The long output of a tool: text that lies in a payload."""
    if message.role != "tool":
        return []
    files = (part for part in message.parts if isinstance(part, File))
    return [part for part in files if part.media_type == "text/plain"]


def _excerpt(text: str, part: File, seq: Seq) -> str:
    if not text:
        return f"[{part.size} bytes of text; output({seq}) has all of it]"
    if len(text) <= OUTPUT_CHARS_MAX:
        return text
    half = OUTPUT_CHARS_MAX // 2
    left_out = f"[characters {half} to {len(text) - half} of {len(text)} are left out"
    return f"{text[:half]}\n{left_out}; output({seq}) has all of them]\n{text[-half:]}"


# --- the blocking face ----------------------------------------------------------------------------


class Library:
    """All sessions of one store."""

    def __init__(self, store: facade.BlockingStore) -> None:
        self.store = store
        self._means = _Means(cast(Store, facade.AtOnce(store)), _sleep)
        self._search: Search | None = None
        _keep_clear(store, _path_of(store))

    def __enter__(self) -> "Library":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._search is not None:
            self._search.close()
        self.store.close()

    def session(self, name: str) -> "Session":
        """The session bound to a name of yours (a user, a ticket, a chat), made if there is
        none."""
        return Session(AsyncSession(self._means, now(self._means.ensure(name))), self.store)

    def open(self, id: str) -> "Session":
        """The session with this id."""
        return Session(AsyncSession(self._means, now(self._means.known(id))), self.store)

    def sessions(self) -> Iterator[Listed]:
        """Every session, the most recently used first."""
        page = self.store.list()
        while page:
            yield from page
            page = self.store.list(before=page[-1].mark)

    def items(self, name: str, format: str, platform: str = SOURCE) -> "Items":
        """What another program keeps under a name, in a format of its own. Nothing is made until
        something is kept."""
        from steno.items import AsyncItems, Items

        kept = AsyncItems(self._means.store, _str("name", name), _str("format", format), platform)
        return Items(kept)

    def keep_all(self, changes: Sequence[Keeping]) -> tuple[Kept, ...]:
        """Several changes of items, each of another name, in one commit: see `Items.keeping`."""
        return self.store.keep_all(changes)

    def named(self, prefix: str) -> Iterator[Listed]:
        """Every session whose name begins with a prefix, in the order of the names."""
        page = self.store.named(_str("prefix", prefix))
        while page:
            yield from page
            page = self.store.named(prefix, page[-1].row.name or "")

    def search(
        self,
        query: str,
        limit: int = 20,
        all: bool = False,
        newest: bool = False,
        before: str | None = None,
        literal: bool = False,
    ) -> "Found":
        if self._search is None:
            self._search = _search_of(self.store, _path_of(self.store))
        return self._search.find(_asked(query, limit, all, newest, before, literal))

    search.__doc__ = AsyncLibrary.search.__doc__


class Session:
    """The verbs of `AsyncSession`, blocking."""

    def __init__(self, session: AsyncSession, store: facade.BlockingStore) -> None:
        self.store = store
        self.id = session.id
        self._session = session

    def say(self, text: str, key: str | None = None, author: str | None = None) -> Admitted:
        return now(self._session.say(text, key, author))

    def reply(self, model: str, to: Admitted | Seq | None = None, wait: float = 0.0) -> "Reply":
        return Reply(self._session.reply(model, to, wait))

    def rename(self, title: str) -> None:
        now(self._session.rename(title))

    def messages(self, limit: int | None = None, after: Seq = 0) -> list[Message]:
        return now(self._session.messages(limit, after))

    def history(self, format: WireFormat) -> list[Any]:
        return now(self._session.history(format))

    def output(self, message: Message | Seq) -> str:
        return now(self._session.output(message))

    def transcript(self) -> Transcript:
        return now(self._session.transcript())

    say.__doc__ = AsyncSession.say.__doc__
    reply.__doc__ = AsyncSession.reply.__doc__
    history.__doc__ = AsyncSession.history.__doc__
    messages.__doc__ = AsyncSession.messages.__doc__
    output.__doc__ = AsyncSession.output.__doc__
    transcript.__doc__ = AsyncSession.transcript.__doc__


class Reply:
    """One turn: takes an input, stores every piece before you show it, and ends however you leave
    the block."""

    def __init__(self, reply: AsyncReply) -> None:
        self._reply = reply
        self._write = reply.write

    @property
    def text(self) -> str:
        return self._reply.text

    @property
    def input(self) -> Message:
        """What is answered."""
        return self._reply.input

    def __enter__(self) -> "Reply":
        now(self._reply.__aenter__())
        return self

    def write(self, piece: str) -> str:
        """Store a piece of the answer; returned when it is durable and may be shown."""
        return now(self._write(piece))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        now(self._reply.__aexit__(kind, error, at))


async def _sleep(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251 - no loop waits for it


# --- what callers pass ----------------------------------------------------------------------------


def _str(name: str, value: object) -> str:
    """A subclass of `str` is stored as the text that it is."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    return str.__str__(value)


def _int(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    return int(value)


def _wait(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"wait must be a number of seconds, not {type(value).__name__}")
    if not 0 <= value < math.inf:
        raise ValueError(f"wait must be a number of seconds from 0 on, not {value}")
    return float(value)


def _input(to: object, session: str) -> Seq | None:
    if to is None:
        return None
    if not isinstance(to, Admitted):
        return _int("to", to)
    if to.session != session:
        raise ValueError(f"to is an input of session {to.session!r}, not of {session!r}")
    return to.seq


def _path(path: object) -> Path:
    if not isinstance(path, str | PathLike):
        raise TypeError(f"path must be a str or a path, not {type(path).__name__}")
    return Path(path)


def _settings(settings: object) -> Settings | None:
    if settings is not None and not isinstance(settings, Settings):
        raise TypeError(f"settings must be steno.Settings, not {type(settings).__name__}")
    return settings


# --- search ---------------------------------------------------------------------------------------


def _path_of(store: facade.Verbs) -> Path | None:
    """Where a store is, if it is a file."""
    found: Path | None = getattr(store, "path", None)
    return found


def _search_of(store: facade.BlockingStore, path: Path | None) -> "Search":
    from steno.search import beside
    from steno.search.keeper import Search  # many programs never search

    return Search(store, None if path is None else beside(path))


def _keep_clear(store: facade.BlockingStore, path: Path | None) -> None:
    """Have what is removed from the store taken out of its index, too, if there is one."""
    if path is None:
        return

    def clear() -> None:
        if path.with_name(path.name + "-search").exists():
            search = _search_of(store, path)
            search.clear()
            search.close()

    store.core.copies.append(clear)


def _asked(
    query: str, limit: int, all: bool, newest: bool, before: str | None, as_text: bool
) -> "Asked":
    from steno.search.query import literal, parse
    from steno.search.searching import Asked

    now_ms = time.time_ns() // 1_000_000
    text = _str("query", query)
    return Asked(
        query=literal(text) if as_text else parse(text, now_ms),
        limit=max(_int("limit", limit), 1),
        all=all,
        order="newest" if newest else "best",
        before=None if before is None else _str("before", before),
        now_ms=now_ms,
    )
