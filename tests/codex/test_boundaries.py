"""Turns of codex, killed before and after each of their commits, and a codex that dies at each of
its messages: in one process, with a codex that is a script. `at_every_boundary` says what must be
true then; here also, that codex is told each input once."""

from collections.abc import Iterator
from typing import Literal

import pytest

from steno.journal.facts import (
    ApprovalAsked,
    ApprovalDecided,
    InterruptAsked,
    StepStarted,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from tests.codex.fake_codex import Change, Deed, FakeCodex, Run, Say, Use, codex_of, no_program
from tests.world.boundaries import NOW, THEN, Prepare, Scenario, Stands, at_every_boundary
from tests.world.boundaries import go_on as by_the_loop
from tests.world.world import FIRST, Process, World, play

LOOK, DONE = Say(("I look.",)), Say(("It ran.",))


@pytest.fixture(autouse=True)
def _no_program() -> Iterator[None]:
    with no_program():
        yield


def by_codex(*deeds: Deed) -> Prepare:
    async def prepare(world: World) -> None:
        world.drive = FakeCodex(world, *deeds)

    return prepare


async def ask(process: Process) -> None:
    await process.ask("hello")


async def go_on(world: World, id: str, before: Stands) -> None:
    codex_of(world).choose = lambda _: [Say((THEN,))]
    await by_the_loop(world, id, before)
    check_told(world)


def check_told(world: World) -> None:
    codex = codex_of(world)
    used = [items for items in codex.threads.values() if items]
    assert len(used) == 1, "the same thread; one that was begun and not bound has nothing"
    ids = codex.ids()
    assert sorted(set(ids)) == sorted(ids), "each input once"


def killed_everywhere(*deeds: Deed) -> list[str]:
    return at_every_boundary(Scenario(ask, by_codex(*deeds), go_on))


@pytest.mark.promise(2, 5, 9, 34, 35)
def test_a_plain_turn() -> None:
    assert killed_everywhere(Say(("one ", "two"), thought="Hm.")) == ["hello", "one two"]


@pytest.mark.promise(4, 5, 9, 19, 34, 35)
def test_a_turn_with_two_commands() -> None:
    said = killed_everywhere(LOOK, Run("one"), Run("two", ("more",)), DONE)
    assert said == ["hello", "I look.", "out put", "", "more", "It ran."]


@pytest.mark.promise(4, 19, 34, 35)
@pytest.mark.parametrize("asks", [True, False])
def test_a_change_of_files(asks: bool) -> None:
    said = killed_everywhere(LOOK, Change("/a", asks), DONE)
    assert said == ["hello", "I look.", "add /a", "It ran."]


@pytest.mark.promise(4, 19, 34, 35)
def test_a_tool_of_ours() -> None:
    said = killed_everywhere(LOOK, Use("look"), DONE)
    assert said == ["hello", "I look.", "out put", "It ran."]


@pytest.mark.promise(21, 22, 34, 35)
@pytest.mark.parametrize("mode", ["queue", "steer"])
def test_inputs_of_others_during_a_turn(mode: Literal["queue", "steer"]) -> None:
    async def prepare(world: World) -> None:
        world.drive = codex = FakeCodex(world)
        codex.choose = lambda said: [Say(("one ", "two") if said == "hello" else ("so",))]

    async def during(other: Process) -> None:
        await other.wait_for(StepStarted)
        await other.say("and this", mode=mode)

    async def act(process: Process) -> None:
        process.world.process().start(during)
        await process.run_all(await process.say("hello"))

    said = at_every_boundary(Scenario(act, prepare, go_on))
    queued = ["hello", "one two", "and this", "so"]
    assert said == (["hello", "one ", "and this", "so"] if mode == "steer" else queued)


@pytest.mark.promise(6, 12, 23, 34, 35)
@pytest.mark.parametrize("at", [StepStarted, ToolStarted])
def test_a_stop_from_another_process(at: type) -> None:
    async def stop(other: Process) -> None:
        turn = await other.wait_for(TurnStarted)
        await other.wait_for(at)
        await other.store.add(FIRST, [InterruptAsked(turn)], key="stop")

    async def act(process: Process) -> None:
        process.world.process().start(stop)
        await process.ask("hello")

    deeds = (LOOK, Run("one", hangs=True), DONE)
    said = at_every_boundary(Scenario(act, by_codex(*deeds), go_on))
    assert said[0] == "hello"
    assert "It ran." not in said


@pytest.mark.promise(4, 19, 34, 35, 37)
@pytest.mark.parametrize("decision", ["allow", "deny"])
def test_a_call_that_waits_for_approval(decision: Literal["allow", "deny"]) -> None:
    async def prepare(world: World) -> None:
        world.approval = "ask"
        await by_codex(LOOK, Run("one"), DONE)(world)

    async def act(process: Process) -> None:
        process.world.process().start(lambda other: other.decide(decision))
        await process.ask("hello")

    async def decided(world: World, id: str, before: Stands) -> None:
        """The question stands where nobody decided. What was approved is run by the next codex,
        once, and nothing is asked again."""
        if not before.waits():
            await go_on(world, id, before)
            return
        assert world.runs == []
        codex_of(world).choose = lambda said: (
            [Run("one"), Say((THEN,))] if "has approved this call" in said else [Say((THEN,))]
        )
        if not any(isinstance(record.fact, ApprovalDecided) for record in before.records):
            world.process().start(lambda other: other.decide(decision))
        next = world.process()
        assert await next.run(lambda process: process.ask(NOW, session=id)) == THEN
        after = Stands(world, id)
        assert sum(isinstance(record.fact, ApprovalAsked) for record in after.records) == 1
        assert world.runs == ["one"] * (decision == "allow")
        *first, now, then = after.texts()
        assert (THEN in first, now, then) == (True, NOW, THEN)
        check_told(world)

    said = at_every_boundary(Scenario(act, prepare, decided))
    assert (said[:2], said[3:]) == (["hello", "I look."], ["It ran."])


@pytest.mark.promise(5, 6, 9, 19, 34, 35)
def test_a_codex_that_ends_at_each_of_its_messages() -> None:
    """The turn fails and says so; what was shown is kept, and the next turn goes on in the same
    thread."""

    async def dies(world: World) -> bool:
        await by_codex(LOOK, Run("one"), Use("look"), DONE)(world)
        codex_of(world).dies_after = n
        process = world.process()
        await process.run(ask)
        stands = Stands(world)
        assert all(stands.holds(one) for one in process.shown), "shown, so it is stored"
        [ended] = [one.fact for one in stands.records if isinstance(one.fact, TurnEnded)]
        assert (ended.outcome, ended.cause) in (("failed", "codex"), ("done", ""))
        await go_on(world, FIRST, stands)
        assert len(world.runs) == len(set(world.runs)), "nothing ran twice"
        return ended.outcome == "failed"

    n = 1
    while play(dies):
        n += 1
    assert n > 15, "more messages than these were told"
