"""Turns of every kind, killed before and after each of their commits: in one process, with a store
in memory, each in some milliseconds. `at_every_boundary` says what must be true then."""

from collections.abc import Callable

import pytest

from steno.engine.action import Limits
from steno.engine.request import Request
from steno.journal.facts import InterruptAsked, StepStarted, ToolStarted, TurnStarted
from tests.world.boundaries import Scenario, at_every_boundary
from tests.world.model import FakeModel, Reply
from tests.world.world import FIRST, Process, World

CALL = (("look", '{"n":1}'),)
TWO = (("look", '{"n":1}'), ("look", '{"n":2}'))
THREE = (*TWO, ("look", '{"n":3}'))


async def ask(process: Process) -> None:
    await process.ask("hello")


def looks(n: int) -> Reply:
    return Reply((f"step {n} ", "going "), tools=(("look", f'{{"n":{n}}}'),))


def one_by_one(*replies: Reply) -> Callable[[Request], Reply]:
    """Whatever the request says."""
    left = list(replies)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


@pytest.mark.promise(2, 5, 9, 34, 35, 40)
def test_a_plain_turn() -> None:
    said = at_every_boundary(Scenario(ask), Reply(("one ", "two"), thought="Hm."))
    assert said == ["hello", "one two"]


@pytest.mark.promise(4, 5, 9, 19, 34, 35, 40)
def test_a_turn_with_three_tools_one_after_the_other() -> None:
    replies = (looks(0), looks(1), looks(2), Reply(("all ", "done")))
    said = at_every_boundary(Scenario(ask), *replies)
    steps = [text for n in range(3) for text in (f"step {n} going ", "out put")]
    assert said == ["hello", *steps, "all done"]


@pytest.mark.promise(4, 19, 34, 35, 40)
def test_a_turn_with_three_tools_at_once() -> None:
    replies = (Reply(("going",), tools=THREE), Reply(("done",)))
    said = at_every_boundary(Scenario(ask), *replies)
    assert said == ["hello", "going", *["out put"] * 3, "done"]


@pytest.mark.promise(10, 34, 35, 40)
def test_an_answer_that_breaks_off_and_is_gone_on_with() -> None:
    replies = (Reply(("half ", "of"), then="close"), Reply((" the", " rest")))
    assert at_every_boundary(Scenario(ask), *replies) == ["hello", "half of", " the rest"]


@pytest.mark.promise(8, 34, 35)
def test_attempts_that_are_lost_and_one_that_is_answered() -> None:
    async def prepare(world: World) -> None:
        lost = [Reply(fails=cause) for cause in ("rate_limited", "overloaded")]
        world.model.choose = one_by_one(*lost, Reply(("at ", "last")))

    assert at_every_boundary(Scenario(ask, prepare)) == ["hello", "", "", "at last"]


@pytest.mark.promise(9, 34, 35)
def test_another_model_takes_over() -> None:
    async def prepare(world: World) -> None:
        world.model.choose = one_by_one(Reply(fails="overloaded"))
        world.limits = Limits(attempts_max=1)
        world.fallback = (FakeModel(one_by_one(Reply(("in its ", "place"))), "fake:two"),)

    assert at_every_boundary(Scenario(ask, prepare)) == ["hello", "", "in its place"]


@pytest.mark.promise(6, 34, 35)
@pytest.mark.parametrize(
    "limits", [Limits(steps_max=2), Limits(turn_tokens_max=20), Limits(session_tokens_max=20)]
)
def test_a_budget_that_is_spent(limits: Limits) -> None:
    async def prepare(world: World) -> None:
        world.limits = limits

    said = at_every_boundary(Scenario(ask, prepare), looks(0), looks(1), looks(2))
    assert said == ["hello", "step 0 going ", "out put", "step 1 going ", "out put"]


@pytest.mark.promise(6, 9, 34, 35)
@pytest.mark.parametrize("where", ["answer", "tool"])
def test_a_turn_whose_time_is_up(where: str) -> None:
    async def prepare(world: World) -> None:
        world.limits = Limits(turn_s=5)
        world.tools = [{"name": "look", "hangs": where == "tool"}]

    hanging = Reply(("step ",), then="hang") if where == "answer" else looks(0)
    said = at_every_boundary(Scenario(ask, prepare), hanging)
    assert said == ["hello", *(["step "] if where == "answer" else ["step 0 going ", "out put"])]


async def stop_at(process: Process, kind: type) -> None:
    turn = await process.wait_for(TurnStarted)
    await process.wait_for(kind)
    await process.store.add(FIRST, [InterruptAsked(turn)], key="stop")


@pytest.mark.promise(6, 12, 23, 34, 35)
@pytest.mark.parametrize("at", [StepStarted, ToolStarted])
def test_a_stop_from_another_process(at: type) -> None:
    async def prepare(world: World) -> None:
        world.tools = [{"name": "look", "hangs": True}]

    async def act(process: Process) -> None:
        other = process.world.process()
        other.start(lambda other: stop_at(other, at))
        await process.ask("hello")

    hanging = Reply(("going ",), then="hang") if at is StepStarted else looks(0)
    said = at_every_boundary(Scenario(act, prepare), hanging, Reply(("no",)))
    assert said == ["hello", *(["going "] if at is StepStarted else ["step 0 going ", "out put"])]
