"""Several processes at one session: who runs a turn, who watches it, and who takes over. In one
process, in no time."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from steno.engine.action import Limits
from steno.journal.facts import InterruptAsked, Record, StepStarted, TurnEnded, TurnStarted
from steno.store.errors import SessionBusy
from steno.store.protocol import Admitted, Event, Piece
from tests.world.boundaries import Stands, saying
from tests.world.model import Reply
from tests.world.store import Kill
from tests.world.world import FIRST, Process, World, play, spoken

STEP = Reply(("step ", "one "), tools=(("look", "{}"),), pause_s=0.1)
LAST = Reply(("and ", "done"), pause_s=0.1)


def check_seen(events: list[Event], stands: Stands) -> None:
    """Every piece once and in order, each before the fact that seals it; and every fact once."""
    ends: dict[object, int] = {}
    seqs = [event.seq for event in events if isinstance(event, Record)]
    assert seqs == sorted(set(seqs))
    for event in events:
        assert stands.holds(event)
        if isinstance(event, Piece):
            assert event.offset == ends.get(event.stream, 0)
            ends[event.stream] = event.offset + len(event.text)


def outcome_in(events: list[Event]) -> str:
    last = events[-1]
    assert isinstance(last, Record)
    assert isinstance(last.fact, TurnEnded)
    return last.fact.outcome


@pytest.mark.promise(5, 9, 17, 36)
def test_who_waits_for_an_answer_gets_it_wherever_its_runner_is_killed() -> None:
    """Killed before it took the input, the watcher runs it; killed later, the watcher is told that
    it was."""

    def watched(kill: Kill | None) -> tuple[int, str]:
        async def test(world: World) -> tuple[int, str]:
            runner, watcher = world.process(kill), world.process()
            admitted = await watcher.run(lambda process: process.say("hello"))
            assert admitted is not None
            running = runner.start(lambda process: process.answer(admitted))
            watching = watcher.start(lambda process: process.answer(admitted))
            if kill is not None:
                await runner.died.wait()
                await runner.kill()
            else:
                await running
            events = await watching
            check_seen(events, Stands(world))
            assert len(set(world.runs)) == len(world.runs)
            return len(runner.commits), outcome_in(events)

        return play(test, STEP, LAST)

    count, outcome = watched(None)
    assert outcome == "done"
    found = set()
    for n in range(1, count + 1):
        for kill in (Kill("before", n), Kill("after", n)):
            with saying(f"killed {kill.when} commit {n} of {count}"):
                found.add(watched(kill)[1])
    assert found == {"done", "interrupted"}


@pytest.mark.promise(17)
def test_two_front_ends_give_strictly_serial_requests() -> None:
    async def test(world: World) -> None:
        one, two = world.process(), world.process()
        asked = [
            one.start(lambda process: process.ask("first")),
            two.start(lambda process: process.ask("second")),
        ]
        assert await asyncio.gather(*asked) == ["step one and done", "after that"]
        assert world.model.most_at_once == 1
        told = [type(entry).__name__ for entry in world.model.requests[-1].entries]
        assert told == ["Said", "Answered", "Settled", "Answered", "Said"]

    play(test, STEP, LAST, Reply(("after that",)))


@pytest.mark.promise(36)
def test_a_client_that_left_gets_every_missed_piece_once_when_it_returns() -> None:
    async def test(world: World) -> None:
        runner, client = world.process(), world.process()
        admitted = await runner.run(lambda process: process.say("hello"))
        assert admitted is not None
        running = runner.start(lambda process: process.answer(admitted))
        seen: list[Event] = []
        for leaves_after_s in (0.15, 60.0):
            leaving = asyncio.Event()
            asyncio.get_running_loop().call_later(leaves_after_s, leaving.set)
            seen = await client.run(partial(follow, admitted=admitted, leaving=leaving)) or []
        assert spoken(seen) == spoken(await running) == "step one and done"
        check_seen(seen, Stands(world))
        assert outcome_in(seen) == "done", "leaving stops nothing"

    async def follow(process: Process, admitted: Admitted, leaving: asyncio.Event) -> list[Event]:
        turns = process.service.turns
        return [event async for event in turns.follow(admitted.session, admitted.seq, leaving)]

    play(test, STEP, LAST)


@pytest.mark.promise(34, 36)
def test_who_follows_a_turn_whose_process_is_dead_sees_the_end_that_will_be_stored() -> None:
    async def test(world: World) -> None:
        dead = world.process(Kill("after", 8))
        await dead.run(lambda process: process.ask("hello"))
        looker = world.process()
        before = world.facts()
        turns = looker.service.turns
        seen = [event async for event in turns.follow(FIRST, None, asyncio.Event())]
        assert outcome_in(seen) == "interrupted"
        assert world.facts() == before
        await world.process().run(lambda process: process.ask("and now?"))
        ends = [one.fact for one in world.facts() if isinstance(one.fact, TurnEnded)]
        last = seen[-1]
        assert isinstance(last, Record)
        assert ends[0] == last.fact

    play(test, STEP, LAST)


Look = Callable[[Process], Awaitable[set[str | None]]]


@pytest.mark.promise(34)
def test_a_turn_that_was_cut_off_is_never_seen_open_again() -> None:
    """Not even at the moment at which the next runner has the session and has stored nothing."""

    def seen_of(kill: Kill | None) -> tuple[list[str], set[str | None]]:
        async def test(world: World) -> tuple[list[str], set[str | None]]:
            first, seen = world.process(kill), set[str | None]()
            await first.run(lambda process: process.ask("hello"))
            looking = [
                world.process().start(lambda process, how=how: look(process, how, seen))  # type: ignore[misc]
                for how in (in_full, in_lists)
            ]
            await world.process().run(lambda process: process.ask("and now?", FIRST))
            for one in looking:
                one.cancel()
            return first.commits, seen

        return play(test, STEP, LAST)

    async def in_full(process: Process) -> set[str | None]:
        _, shown = await process.service.views.shown(FIRST)
        return {shown.transcript.turns[0].outcome}

    async def in_lists(process: Process) -> set[str | None]:
        row = (await process.service.views.summary(FIRST)).listed.row
        return {row.last_turn} if row.turns == 1 else set()

    async def look(process: Process, how: Look, seen: set[str | None]) -> None:
        while True:
            version = process.world.version
            seen |= await how(process)
            await process.world.newer_than(version)

    commits, seen = seen_of(None)
    assert seen == {"done"}
    [begun] = [n for n, commit in enumerate(commits, 1) if "TurnStarted" in commit]
    for n in range(begun, len(commits) - 1):
        with saying(f"killed after commit {n} of {len(commits)}"):
            assert seen_of(Kill("after", n))[1] == {"interrupted"}


@pytest.mark.promise(23)
def test_a_stop_that_comes_too_late_does_not_stop_the_next_turn() -> None:
    async def test(world: World) -> None:
        process = world.process()
        await process.run(lambda process: process.ask("first"))
        (turn,) = [one.seq for one in world.facts() if isinstance(one.fact, TurnStarted)]

        async def stop(other: Process) -> None:
            await other.wait_for(StepStarted, times=3)
            await other.store.add(FIRST, [InterruptAsked(turn)], key=f"interrupt:{turn}")

        world.process().start(stop)
        assert await process.run(lambda process: process.ask("second")) == "all of it"
        ends = [one.fact for one in world.facts() if isinstance(one.fact, TurnEnded)]
        assert [one.outcome for one in ends] == ["done", "done"]
        assert any(isinstance(one.fact, InterruptAsked) for one in world.facts())

    play(test, STEP, LAST, Reply(("all ", "of ", "it"), pause_s=1.0))


@pytest.mark.promise(18)
def test_a_session_that_runs_elsewhere_is_not_run_here() -> None:
    async def test(world: World) -> None:
        runner, other = world.process(), world.process()
        runner.start(lambda process: process.ask("hello"))
        await other.run(lambda process: process.wait_for(StepStarted))
        with pytest.raises(SessionBusy):
            await other.store.acquire(FIRST)

    play(test, Reply(("going",), then="hang"))


@pytest.mark.promise(6)
def test_the_time_of_a_turn_stands_still_while_it_waits_for_a_person() -> None:
    async def test(world: World) -> None:
        world.approval, world.limits = "ask", Limits(turn_s=5)
        world.tools = [{"name": "look", "approval": "ask"}]
        process = world.process()
        asking = process.start(lambda process: process.ask("hello"))
        await asyncio.sleep(3_600)
        assert not asking.done()
        await world.process().run(lambda other: other.decide("allow"))
        assert await asking == "step one and done"

    play(test, STEP, LAST)
