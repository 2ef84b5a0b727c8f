"""Text that this process commits is handed to its followers: each piece once, in order, and only
once it is stored."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import apsw
import pytest

from steno.journal.drafts import Stream
from steno.journal.facts import Record, StepSealed, StepStarted, TurnEnded
from steno.journal.parts import Text
from steno.store.core import Core
from steno.store.errors import StoreError
from steno.store.protocol import Cursor, Event, Piece
from steno.store.sqlite.store import SqliteStore
from steno.store.transaction import Transaction
from tests.store.contract import Running, begin

pytestmark = pytest.mark.promise(36)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Each look of a follower at what is stored, with whether it looked for text."""
    seen: list[bool] = []
    since = Core.since

    def look(
        store: Core, session: str, cursor: Cursor, drafts: bool = True
    ) -> tuple[list[Event], Cursor]:
        seen.append(drafts)
        return since(store, session, cursor, drafts)

    monkeypatch.setattr(Core, "since", look)
    return seen


class Listener:
    """Follows in a task of its own; `text` is what it was shown, each piece where it belongs."""

    def __init__(
        self, store: SqliteStore, running: Running, drafts: bool = True, pause_s: float = 0.0
    ) -> None:
        self.text = ""
        self.events: list[Event] = []
        self._pause_s = pause_s
        self._stream = Stream(running.step, "text")
        self._arrived = asyncio.Event()
        self.task = asyncio.create_task(self._listen(store.follow(running.session, drafts=drafts)))

    async def _listen(self, events: AsyncIterator[Event]) -> None:
        async for event in events:
            self.events.append(event)
            if isinstance(event, Piece) and event.stream == self._stream:
                assert event.offset == len(self.text)
                assert not any(
                    isinstance(one, Record) and isinstance(one.fact, StepSealed)
                    for one in self.events
                )
                self.text += event.text
            self._arrived.set()
            await asyncio.sleep(self._pause_s)

    async def until(self, text: str) -> None:
        while self.text != text:
            assert text.startswith(self.text)
            await self._next()

    async def until_ended(self) -> None:
        while not self.events or not isinstance(self.events[-1], Record):
            await self._next()

    async def _next(self) -> None:
        self._arrived.clear()
        waiting = asyncio.create_task(self._arrived.wait())
        await asyncio.wait((waiting, self.task), timeout=20, return_when=asyncio.FIRST_COMPLETED)
        assert waiting.done(), "nothing came"


@asynccontextmanager
async def listening(
    store: SqliteStore, running: Running, drafts: bool = True, pause_s: float = 0.0
) -> AsyncIterator[Listener]:
    listener = Listener(store, running, drafts, pause_s)
    yield listener
    listener.task.cancel()
    with suppress(asyncio.CancelledError):
        await listener.task


def words(count: int) -> Iterator[str]:
    return (f"word{i} " for i in range(count))


async def test_text_of_this_process_is_not_read_back(path: Path, looks: list[bool]) -> None:
    async with await SqliteStore.open(path) as store:
        running = await begin(store)
        async with listening(store, running) as listener:
            said = "first "
            await running.write(said)
            await listener.until(said)
            before = len(looks)
            for word in words(50):
                await running.write(word)
                said += word
                await listener.until(said)
            assert len(looks) - before <= 1


async def test_text_wakes_nobody_who_follows_facts_only(path: Path, looks: list[bool]) -> None:
    async with await SqliteStore.open(path) as store:
        running = await begin(store)
        async with listening(store, running, drafts=False):
            await asyncio.sleep(0.1)
            before = len(looks)
            for word in words(50):
                await running.write(word)
            await asyncio.sleep(0.1)
            assert looks[before:] == []


async def test_text_of_a_thread_that_blocks_is_handed_over_too(
    path: Path, looks: list[bool]
) -> None:
    async with await SqliteStore.open(path) as store:
        running = await begin(store)
        async with listening(store, running) as listener:
            await running.write("first ")
            await listener.until("first ")
            before = len(looks)
            await asyncio.to_thread(
                store.blocking.draft, running.lease, Stream(running.step, "text"), "second"
            )
            await listener.until("first second")
            assert len(looks) - before <= 1


async def test_who_begins_in_the_middle_gets_the_beginning_first(path: Path) -> None:
    async with await SqliteStore.open(path) as store:
        running = await begin(store)

        async def write(said: list[str]) -> None:
            for word in words(300):
                await running.write(word)
                said.append(word)

        said: list[str] = []
        writing = asyncio.create_task(write(said))
        async with AsyncExitStack() as stack:
            listeners = []
            while not writing.done():
                listeners.append(await stack.enter_async_context(listening(store, running)))
                await asyncio.sleep(0.01)
            for listener in listeners:
                await listener.until("".join(said))


async def test_a_slow_follower_misses_nothing(path: Path) -> None:
    async with await SqliteStore.open(path) as store:
        running = await begin(store)
        async with listening(store, running, pause_s=0.05) as listener:
            said = "".join(words(500))
            for word in words(500):
                await running.write(word)
            await running.record(StepSealed(running.step, (Text(said),)), TurnEnded(3, "done"))
            await listener.until(said)


async def test_what_comes_while_a_follower_looks_is_shown_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that ends after more was committed, and even sealed, than it has seen; and one that
    has seen it all."""
    async with await SqliteStore.open(path) as store:
        running = await begin(store)
        since, loop = Core.since, asyncio.get_running_loop()

        def slow(
            core: Core, session: str, cursor: Cursor, drafts: bool = True
        ) -> tuple[list[Event], Cursor]:
            asyncio.run_coroutine_threadsafe(running.write("before "), loop).result(20)
            found = since(core, session, cursor, drafts)
            asyncio.run_coroutine_threadsafe(running.write("after "), loop).result(20)
            monkeypatch.undo()
            return found

        await running.write("first ")
        monkeypatch.setattr(Core, "since", slow)
        async with listening(store, running) as listener:
            await listener.until("first before after ")
            await running.write("last")
            await listener.until("first before after last")


async def test_what_was_handed_before_its_seal_was_seen_is_not_shown_after_it(path: Path) -> None:
    async with await SqliteStore.open(path) as store:
        running = await begin(store)
        async with listening(store, running) as listener:
            await running.write("whole")
            await listener.until("whole")
            await running.record(StepSealed(running.step, (Text("whole"),)), TurnEnded(3, "done"))
            await listener.until_ended()
            heard = list(listener.events)
            store.followers.tell(
                {running.session: [Piece(Stream(running.step, "text"), 0, "whole")]}
            )
            store.followers.tell({running.session: [Piece(Stream(running.step, "text"), 2, "ole")]})
            await asyncio.sleep(0.1)
            assert listener.events == heard


async def test_text_that_does_not_join_on_is_looked_for(path: Path) -> None:
    async with await SqliteStore.open(path) as store:
        running = await begin(store)
        async with listening(store, running) as listener:
            await running.write("one ")
            await listener.until("one ")
            store.followers.tell(
                {running.session: [Piece(Stream(running.step, "text"), 8, "three")]}
            )
            await asyncio.sleep(0.1)
            assert listener.text == "one "
            await running.write("two ")
            await listener.until("one two ")


@pytest.mark.promise(5, 36)
@pytest.mark.parametrize("error", [apsw.FullError("full"), apsw.IOError("broken")])
async def test_text_whose_commit_failed_is_not_shown(
    path: Path, error: apsw.Error, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Transaction) -> None:
        monkeypatch.undo()
        raise error

    async with await SqliteStore.open(path) as store:
        running = await begin(store)
        async with listening(store, running) as listener:
            await running.write("stored ")
            await listener.until("stored ")
            monkeypatch.setattr(Transaction, "commit", fail)
            with pytest.raises(StoreError):
                await running.write("lost ")
            await asyncio.sleep(0.1)
            assert listener.text == "stored "
            await running.write("again")
            await listener.until("stored again")


async def test_a_refused_neighbour_does_not_hide_or_double_text(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that fails is tried again verb by verb."""

    def fail(_: Transaction) -> None:
        monkeypatch.undo()
        raise apsw.FullError("full")

    async with await SqliteStore.open(path) as store:
        running, other = await begin(store), await begin(store)
        async with listening(store, running) as listener, listening(store, other) as beside:
            await running.write("one ")
            await other.write("uno ")
            await listener.until("one ")
            await beside.until("uno ")
            monkeypatch.setattr(Transaction, "commit", fail)
            with store.core.queue.paused():
                writes = [
                    asyncio.create_task(running.write("two")),
                    asyncio.create_task(other.write("dos")),
                ]
                await asyncio.sleep(0.05)
            await asyncio.gather(*writes)
            await listener.until("one two")
            await beside.until("uno dos")


async def test_a_session_that_moves_between_processes_is_heard_wherever_it_runs(path: Path) -> None:
    async with await SqliteStore.open(path) as here, await SqliteStore.open(path) as there:
        running = await begin(here)
        async with listening(here, running) as near, listening(there, running) as far:
            said = ""
            for store in (here, there, here, there):
                if store is not running.store:
                    await running.release()
                    running.store, running.lease = store, await store.acquire(running.session)
                for word in words(20):
                    await running.write(word)
                    said += word
                await near.until(said)
                await far.until(said)
            await running.record(StepSealed(running.step, (Text(said),)), TurnEnded(3, "done"))
            await near.until_ended()
            await far.until_ended()
            assert near.text == far.text == said


async def test_facts_of_this_process_are_not_read_back(path: Path, looks: list[bool]) -> None:
    """Some are: where a commit is noticed before it is handed over. Else it would be 123 looks."""
    async with await SqliteStore.open(path) as store:
        running = await begin(store)
        async with listening(store, running) as listener, listening(store, running, drafts=False):
            await running.write("Hel")
            await listener.until("Hel")
            before, facts = len(looks), len(listener.events)
            for _ in range(20):
                await running.record(StepSealed(running.step, (Text("Hello"),)))
                running.step = await running.record(StepStarted("model"))
                await running.write("Hel")
            await running.record(TurnEnded(3, "done"))
            last = (await store.read(running.session, running.head - 1))[0]
            while listener.events[-1] != last:
                await listener._next()
            assert len(looks) - before <= 41
        told = [event for event in listener.events[facts:] if isinstance(event, Record)]
        assert told == await store.read(running.session, running.head - len(told))
        assert len(told) == 41
