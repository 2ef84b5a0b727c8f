"""Following and driving a session: everything stored is shown, and nothing is waited for for
ever."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from steno.journal.drafts import Stream
from steno.journal.facts import (
    InputWithdrawn,
    InterruptAsked,
    Record,
    StepSealed,
    StepStarted,
    Takes,
    TurnEnded,
    TurnStarted,
)
from steno.journal.parts import Seq, Text
from steno.session import live
from steno.session.lease import HeldSession
from steno.session.live import while_working
from steno.session.load import Sessions
from steno.session.page import Tail
from steno.store.errors import LeaseLost, StoreError, UnknownSession
from steno.store.protocol import Admitted, Cursor, Event
from steno.store.sqlite.store import SqliteStore
from tests.session.rooms import Room, room

LIMIT_S = 20.0


def run(test: Callable[[Room], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with room() as here, asyncio.timeout(LIMIT_S):
            await test(here)

    asyncio.run(whole())


@asynccontextmanager
async def two(folder: Path) -> AsyncIterator[tuple[Room, Room]]:
    """Two processes, as far as a store can tell."""
    async with (
        asyncio.timeout(LIMIT_S),
        await SqliteStore.open(folder / "store.db") as here,
        await SqliteStore.open(folder / "store.db") as there,
    ):
        yield Room(here), Room(there)


def facts(events: list[Event]) -> list[object]:
    return [event.fact for event in events if isinstance(event, Record)]


async def all_of(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


async def admit(here: Room, text: str, session: str | None = None) -> Admitted:
    return await here.service.admit(text, session, None, None, "scripted:echo")


async def begun(here: Room, text: str = "hi") -> tuple[HeldSession, Admitted, Seq]:
    """A turn under way that has said "Hel"; it goes on as long as it is held."""
    admitted = await admit(here, text)
    held = await HeldSession.open(here.sessions, admitted.session)
    await held.record(TurnStarted(Takes(admitted.seq)))
    step = await held.record(StepStarted("scripted:echo"))
    await held.draft(Stream(step, "text"), "Hel")
    return held, admitted, step


async def never() -> None:
    await asyncio.Event().wait()


async def nothing() -> None:
    return


# --- reading while something goes on


def test_what_was_stored_when_the_work_is_over_is_read_to_its_last_character() -> None:
    async def test(here: Room) -> None:
        held, admitted, _ = await begun(here)
        reading = while_working(here.store, admitted.session, Cursor(), nothing())
        events = await all_of(reading)
        stored = await here.store.read(admitted.session)
        assert [event for event in events if isinstance(event, Record)] == stored
        assert "".join(getattr(event, "text", "") for event in events) == "Hel"
        await held.leave()

    run(test)


def test_an_error_of_the_work_reaches_the_reader() -> None:
    async def fails() -> None:
        raise LeaseLost("x", 1)

    async def test(here: Room) -> None:
        session = await here.say("one")
        with pytest.raises(LeaseLost):
            await all_of(while_working(here.store, session, Cursor(), fails()))

    run(test)


def test_work_is_cancelled_when_the_reader_goes() -> None:
    async def test(here: Room) -> None:
        session = await here.say("one")
        cancelled = asyncio.Event()

        async def work() -> None:
            try:
                await never()
            finally:
                cancelled.set()

        async with aclosing(while_working(here.store, session, Cursor(), work())) as events:
            await anext(events)
        assert cancelled.is_set()

    run(test)


def test_work_may_end_in_order_when_the_reader_has_seen_the_end() -> None:
    async def test(here: Room) -> None:
        session = await here.say("one")
        over, done = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            await over.wait()
            await asyncio.sleep(0.01)
            done.set()

        async with aclosing(while_working(here.store, session, Cursor(), work(), over)) as events:
            await anext(events)
            over.set()
        assert done.is_set()

    run(test)


def test_a_session_that_is_deleted_ends_the_reading() -> None:
    async def test(here: Room) -> None:
        session = await here.say("one")
        head = (await here.store.glance(session)).head
        reading = asyncio.create_task(
            all_of(while_working(here.store, session, Cursor(head), never()))
        )
        await asyncio.sleep(0.05)
        await here.store.delete(session)
        with pytest.raises(UnknownSession):
            await reading

    run(test)


# --- one turn


def test_an_answer_ends_with_its_turn() -> None:
    async def test(here: Room) -> None:
        admitted = await admit(here, "one")
        events = await all_of(here.service.turns.answer(admitted, asyncio.Event()))
        assert isinstance(facts(events)[0], TurnStarted)
        assert isinstance(facts(events)[-1], TurnEnded)
        assert (await here.store.running(admitted.session)) is None

    run(test)


def test_older_inputs_go_first_and_are_not_part_of_an_answer() -> None:
    async def test(here: Room) -> None:
        first = await admit(here, "one")
        second = await admit(here, "two", first.session)
        events = await all_of(here.service.turns.answer(second, asyncio.Event()))
        assert facts(events)[0] == TurnStarted(Takes(second.seq))
        assert len([fact for fact in facts(events) if isinstance(fact, TurnEnded)]) == 1
        assert not (await here.store.glance(first.session)).row.pending

    run(test)


def test_an_input_that_was_answered_gives_its_answer_again() -> None:
    async def test(here: Room) -> None:
        admitted = await admit(here, "one")
        once = await all_of(here.service.turns.answer(admitted, asyncio.Event()))
        again = Admitted(admitted.session, admitted.seq, first=False)
        twice = await all_of(here.service.turns.answer(again, asyncio.Event()))
        assert facts(twice) == facts(once)

    run(test)


def test_an_input_that_is_taken_back_ends_its_answer(tmp_path: Path) -> None:
    async def whole() -> None:
        async with two(tmp_path) as (here, there):
            held, running, _ = await begun(there)
            waits = await admit(here, "two", running.session)
            answer = asyncio.create_task(all_of(here.service.turns.answer(waits, asyncio.Event())))
            await asyncio.sleep(0.05)
            await here.service.withdraw(waits.session, waits.seq)
            assert facts(await answer) == [InputWithdrawn(waits.seq)]
            await held.leave()

    asyncio.run(whole())


def test_leaving_ends_an_answer_that_another_process_gives(tmp_path: Path) -> None:
    async def whole() -> None:
        async with two(tmp_path) as (here, there):
            held, running, _step = await begun(there)
            leaving = asyncio.Event()
            same = Admitted(running.session, running.seq, first=False)
            answer = asyncio.create_task(all_of(here.service.turns.answer(same, leaving)))
            await asyncio.sleep(0.05)
            leaving.set()
            events = await answer
            assert facts(events) == [
                TurnStarted(Takes(running.seq)),
                StepStarted("scripted:echo"),
            ]
            assert "".join(getattr(event, "text", "") for event in events) == "Hel"
            assert not held.asked_to_stop()
            await held.leave()

    asyncio.run(whole())


def test_a_turn_whose_process_dies_is_ended_by_the_process_that_waits_for_it(
    tmp_path: Path,
) -> None:
    async def whole() -> None:
        async with two(tmp_path) as (here, there):
            held, running, step = await begun(there)
            same = Admitted(running.session, running.seq, first=False)
            answer = asyncio.create_task(all_of(here.service.turns.answer(same, asyncio.Event())))
            await asyncio.sleep(0.05)
            await held.leave()
            await there.store.close()
            told = facts(await answer)
            assert told[-1] == TurnEnded(step - 1, "interrupted", "killed")
            assert StepSealed(step, (Text("Hel"),), "interrupted") in told

    asyncio.run(whole())


def test_following_a_turn_whose_process_is_dead_shows_the_end_that_will_be_stored() -> None:
    async def test(here: Room) -> None:
        held, admitted, step = await begun(here)
        await held.leave()
        head = (await here.store.glance(admitted.session)).head
        events = await all_of(here.service.turns.follow(admitted.session, None, asyncio.Event()))
        assert events[-1] == Record(head + 2, 0, TurnEnded(step - 1, "interrupted", "killed"))
        assert (await here.store.glance(admitted.session)).head == head

    run(test)


def test_following_an_input_that_no_process_runs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "COMING_S", 0.5)

    async def test(here: Room) -> None:
        admitted = await admit(here, "one")
        follow = here.service.turns.follow(admitted.session, admitted.seq, asyncio.Event())
        assert await all_of(follow) == []

    run(test)


def test_leaving_a_turn_that_is_followed_does_not_stop_it() -> None:
    async def test(here: Room) -> None:
        held, admitted, _ = await begun(here)
        leaving = asyncio.Event()
        follow = asyncio.create_task(
            all_of(here.service.turns.follow(admitted.session, None, leaving))
        )
        await asyncio.sleep(0.05)
        leaving.set()
        assert isinstance(facts(await follow)[-1], StepStarted)
        assert not held.asked_to_stop()
        await held.leave()

    run(test)


def test_a_lease_that_was_lost_is_told_if_no_process_ends_the_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "COMING_S", 0.2)

    class Loses:
        async def run(self, session: str, *_: object) -> None:
            raise LeaseLost(session, 1)

    async def test(here: Room) -> None:
        admitted = await admit(here, "one")
        turns = live.Live(here.sessions, Loses())
        with pytest.raises(LeaseLost):
            await all_of(turns.answer(admitted, asyncio.Event()))

    run(test)


# --- as long as it is shown


class Shown:
    """A front end that shows a session."""

    def __init__(self, here: Room) -> None:
        self.here = here
        self.events: list[Tail | Event] = []
        self.failed: list[Exception] = []
        self.leaving = asyncio.Event()
        self._new = asyncio.Event()

    async def open(self, session: str) -> None:
        self.live = await self.here.service.turns.show(
            session, self.leaving, self._new.set, self.failed.append
        )
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self.live.events():
            self.events.append(event)
            self._new.set()

    async def until(self, seen: Callable[[], bool]) -> None:
        while not seen():
            self._new.clear()
            waits = asyncio.create_task(self._new.wait())
            await asyncio.wait({waits, self.task}, return_when=asyncio.FIRST_COMPLETED)
            waits.cancel()
            if self.task.done():
                self.task.result()

    async def close(self) -> None:
        await self.live.leave(1.0)
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def test_a_session_that_is_shown_runs_what_is_said_in_it() -> None:
    async def test(here: Room) -> None:
        shown = Shown(here)
        session = await here.say("one")
        await shown.open(session)
        await admit(here, "two", session)
        shown.live.run()
        await shown.until(lambda: not shown.live.driving and shown.live.state.turn is None)
        assert shown.live.state.pending == {}
        assert shown.live.row.turns == 2
        assert shown.failed == []
        await shown.close()

    run(test)


def test_a_turn_that_is_left_behind_is_shown_as_it_will_be_closed(tmp_path: Path) -> None:
    async def whole() -> None:
        async with two(tmp_path) as (here, there):
            held, running, step = await begun(there)
            shown = Shown(here)
            await shown.open(running.session)
            await held.leave()
            await there.store.close()
            await shown.until(lambda: len([e for e in shown.events if isinstance(e, Tail)]) == 2)
            end = [event for event in shown.events if isinstance(event, Tail)][-1]
            closed = TurnEnded(step - 1, "interrupted", "killed")
            assert end.closing[-1].fact == closed
            assert shown.live.state.turn is None
            await shown.close()

    asyncio.run(whole())


def test_what_was_shown_as_closed_is_read_again_once_it_is_stored() -> None:
    async def test(here: Room) -> None:
        held, admitted, _step = await begun(here)
        await held.leave()
        shown = Shown(here)
        await shown.open(admitted.session)
        await shown.until(lambda: bool(shown.events))
        assert shown.live.end.closing
        await admit(here, "two", admitted.session)
        shown.live.run()
        await shown.until(lambda: not shown.live.driving)
        await shown.until(lambda: shown.live.row.turns == 2)
        assert not shown.live.end.closing
        await shown.close()

    run(test)


def test_a_stop_is_asked_for_wherever_the_turn_runs(tmp_path: Path) -> None:
    async def whole() -> None:
        async with two(tmp_path) as (here, there):
            held, running, step = await begun(there)
            shown = Shown(here)
            await shown.open(running.session)
            assert await shown.live.stop()
            await asyncio.wait_for(held.stopped.wait(), 5)
            await held.catch_up()
            assert held.state.turn is not None
            assert held.state.turn.interrupted == InterruptAsked(step - 1)
            await held.leave()
            await shown.close()

    asyncio.run(whole())


def test_what_running_raises_is_told_to_the_front_end() -> None:
    class Fails:
        async def run(self, session: str, *_: object) -> None:
            raise StoreError("full")

    async def test(here: Room) -> None:
        session = await here.say("one")
        failed: list[Exception] = []
        turns = live.Live(Sessions(here.store), Fails())
        ended = asyncio.Event()
        shown = await turns.show(session, asyncio.Event(), ended.set, failed.append)
        shown.run()
        await ended.wait()
        assert [str(error) for error in failed] == ["full"]

    run(test)
