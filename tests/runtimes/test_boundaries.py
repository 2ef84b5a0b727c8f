"""Turns of every kind, killed before and after each of their commits: in one process, with a store
in memory, each in some milliseconds. `at_every_boundary` says what must be true then."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Literal

import pytest

from steno.engine.action import Limits
from steno.engine.request import Request
from steno.journal.facts import (
    ApprovalAsked,
    ApprovalDecided,
    Compacted,
    Delivered,
    DeliveryAttempted,
    DeliveryOwed,
    DeliverySettled,
    Distilled,
    HelperEnded,
    HelperStarted,
    HookDone,
    HookOwed,
    InterruptAsked,
    SessionAttended,
    SessionEnded,
    StepStarted,
    ToolStarted,
    TurnStarted,
)
from steno.journal.history import Said, Summarised
from steno.journal.parts import text_of
from steno.store.errors import NotAllowed
from tests.world.boundaries import NOW, THEN, Scenario, Stands, at_every_boundary, go_on
from tests.world.listeners import Ear, Inbox
from tests.world.model import FakeModel, Reply
from tests.world.store import Kill
from tests.world.world import FIRST, SYSTEM, Process, World, play

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


# --- inputs that come meanwhile -------------------------------------------------------------------


@pytest.mark.promise(21, 22, 34, 35, 40)
def test_inputs_that_queue() -> None:
    async def act(process: Process) -> None:
        for text in ("one", "two"):
            await process.say(text)
        await process.ask("three")

    said = at_every_boundary(Scenario(act), Reply(("first",)), Reply(("second",)), Reply(("last",)))
    assert said == ["one", "first", "two", "second", "three", "last"]


@pytest.mark.promise(21, 22, 34, 35, 40)
@pytest.mark.parametrize("mode", ["queue", "steer"])
def test_inputs_of_others_during_a_turn(mode: Literal["queue", "steer"]) -> None:
    async def prepare(world: World) -> None:
        world.tools = [{"name": "look", "pause_s": 1.0}]

    async def during(other: Process) -> None:
        await other.wait_for(ToolStarted)
        for text in ("and this", "and that"):
            await other.say(text, mode=mode)

    async def act(process: Process) -> None:
        process.world.process().start(during)
        await process.run_all(await process.say("hello"))

    said = at_every_boundary(Scenario(act, prepare), looks(0), Reply(("fine",)), Reply(("yes",)))
    queued = ["fine", "and this", "yes", "and that", "yes"]
    steered = ["and this", "and that", "fine"]
    looked = ["hello", "step 0 going ", "out put"]
    assert said == looked + (queued if mode == "queue" else steered)


# --- approval -------------------------------------------------------------------------------------


async def ask_approval(world: World) -> None:
    world.approval = "ask"
    world.tools = [{"name": "look", "approval": "ask"}]


@pytest.mark.promise(4, 19, 34, 35, 37)
@pytest.mark.parametrize("decision", ["allow", "deny"])
def test_a_call_that_waits_for_approval(decision: Literal["allow", "deny"]) -> None:
    async def act(process: Process) -> None:
        process.world.process().start(lambda other: other.decide(decision))
        await process.ask("hello")

    async def decided(world: World, id: str, before: Stands) -> None:
        """The question stands where nobody decided; what was decided counts, and is not asked
        again."""
        if not before.waits():
            await go_on(world, id, before)
            return
        asked = [record for record in before.records if isinstance(record.fact, ApprovalAsked)]
        assert len(asked) == 1
        assert world.runs == []
        world.model.choose = lambda _: Reply((THEN,))
        if not any(isinstance(record.fact, ApprovalDecided) for record in before.records):
            world.process().start(lambda other: other.decide(decision))
        next = world.process()
        assert await next.run(lambda process: process.ask(NOW, session=id)) == THEN
        after = Stands(world, id)
        assert sum(isinstance(record.fact, ApprovalAsked) for record in after.records) == 1
        assert len(world.runs) == (decision == "allow")
        assert after.texts()[-3:] == [THEN, NOW, THEN]

    said = at_every_boundary(Scenario(act, ask_approval, decided), looks(0), Reply(("so",)))
    assert said[:2] == ["hello", "step 0 going "]
    assert said[3:] == ["so"]


# --- what is run again ----------------------------------------------------------------------------


async def cut_off(world: World) -> None:
    """A turn that was killed when a tool had run."""
    cut = world.process(Kill("after", 11))
    await cut.run(ask)
    assert world.runs == ['look {"n":0}']


@pytest.mark.promise(19, 20, 34, 35)
@pytest.mark.parametrize("how", ["continue", "retry"])
def test_a_turn_that_is_run_again(how: str) -> None:
    async def act(process: Process) -> None:
        await process.run_again(how)

    async def prepare(world: World) -> None:
        await cut_off(world)
        world.model.choose = one_by_one(Reply(("once ", "more"), tools=CALL), Reply(("done",)))

    said = at_every_boundary(Scenario(act, prepare), looks(0))
    assert said[-3:] == ["once more", "out put", "done"]


@pytest.mark.promise(20, 34)
def test_what_was_cut_off_is_continued_once_however_often_that_is_killed() -> None:
    """Each continuation is killed, at another commit. None of them runs a tool again, and at some
    time none is made any more."""

    async def test(world: World) -> None:
        await cut_off(world)
        world.model.choose = lambda _: Reply(("more ",) * 9)
        for n in range(30):
            process = world.process(Kill("after", n % 8 + 1))
            try:
                await process.run(lambda process: process.run_again("continue"))
            except NotAllowed:
                break
        else:
            raise AssertionError("it is continued for ever")
        assert world.runs == ['look {"n":0}']
        await go_on(world, FIRST, Stands(world))

    play(test, looks(0))


# --- summaries ------------------------------------------------------------------------------------

LONG = "many words " * 60
SUMMARY = "They spoke of many things."


def summarising(*replies: Reply) -> Callable[[Request], Reply]:
    left = one_by_one(*replies)
    return lambda request: Reply((SUMMARY,)) if request.system != SYSTEM else left(request)


async def nearly_full(world: World) -> None:
    """A session whose next request is too long."""
    world.model.choose = lambda _: Reply((LONG,))
    before = world.process()
    for prompt in ("one", "two", "three", "four"):
        await before.run(partial(Process.ask, text=f"{prompt} {LONG}"))
    await before.kill()
    world.model.choose = summarising(Reply(("short",)))
    world.limits = Limits(context_max=1_400)


async def old_or_new(world: World, id: str, before: Stands) -> None:
    """One session, with the old context or the new one; each call to the summariser has an end."""
    await go_on(world, id, before)
    records = world.facts(id)
    made = [record.fact for record in records if isinstance(record.fact, Compacted)]
    assert [one.summary for one in made] in ([], [SUMMARY])
    told = [entry for entry in world.model.requests[-1].entries if isinstance(entry, Summarised)]
    assert len(told) == len(made)
    kinds = [type(record.fact) for record in records]
    assert kinds.count(HelperStarted) == kinds.count(HelperEnded)


@pytest.mark.promise(8, 28, 29, 33, 34, 35)
def test_a_summary_before_an_answer() -> None:
    said = at_every_boundary(Scenario(ask, nearly_full, old_or_new, repeats=False))
    assert said[-2:] == ["hello", "short"]
    assert SUMMARY not in said


@pytest.mark.promise(8, 28, 33, 34, 35)
def test_a_summary_by_command() -> None:
    async def act(process: Process) -> None:
        made = await process.service.edits.compact(FIRST, asyncio.Event())
        assert made.outcome == "done"

    said = at_every_boundary(Scenario(act, nearly_full, old_or_new, repeats=False))
    assert len(said) == 8


# --- helpers --------------------------------------------------------------------------------------


@pytest.mark.promise(4, 19, 34, 35, 38)
def test_a_task_that_is_delegated() -> None:
    async def prepare(world: World) -> None:
        world.delegates = True
        helps = Reply(("on it",), tools=(("delegate", '{"prompt":"look"}'),))
        steps = {"hello": helps, "look": Reply(("found",))}
        world.model.choose = lambda request: steps.get(
            text_of(request.entries[-1].parts) if isinstance(request.entries[-1], Said) else "",
            Reply(("done",)),
        )

    said = at_every_boundary(Scenario(ask, prepare))
    assert (said[0], said[1], said[3]) == ("hello", "on it", "done")
    assert "found" in said[2]


# --- whom something is owed -----------------------------------------------------------------------


@pytest.mark.promise(39)
def test_the_end_of_a_session_is_told_to_plugins() -> None:
    async def prepare(world: World) -> None:
        world.ear = Ear()

    async def act(process: Process) -> None:
        await process.ask("hello")
        await process.service.visits.leave()

    async def told(world: World, id: str, before: Stands) -> None:
        """At least once, under one key, if a turn had begun; and a second look tells nothing."""
        assert world.ear is not None
        for _ in range(2):
            await world.process().run(lambda process: process.service.visits.look())
        records = world.facts(id)
        kinds = [type(record.fact) for record in records]
        assert kinds.count(SessionEnded) == kinds.count(SessionAttended)
        owed = [record.fact.key for record in records if isinstance(record.fact, HookOwed)]
        heard = [str(one["key"]) for one in world.ear.heard]
        assert set(heard) == set(owed)
        assert len(owed) == (TurnStarted in kinds)
        between = HookDone not in {type(record.fact) for record in before.records}
        assert len(heard) <= len(owed) + between, "twice only between the call and its record"
        if heard:
            reasons = {one["reason"] for one in world.ear.heard}
            assert reasons <= {"left", "killed"}

    said = at_every_boundary(Scenario(act, prepare, told), Reply(("one ", "two")))
    assert said == ["hello", "one two"]


@pytest.mark.promise(14)
def test_an_answer_that_is_owed_to_a_place() -> None:
    async def prepare(world: World) -> None:
        world.inbox = Inbox()

    async def act(process: Process) -> None:
        owed = DeliveryOwed(0, "hook", "http://127.0.0.1/", "key-1")
        admitted = await process.say("hello", owes=(owed,))
        await process.answer(admitted)
        await process.service.deliveries.finish([admitted.session], within_s=1.0)

    async def delivered(world: World, id: str, before: Stands) -> None:
        """Once; twice only if the process died between sending and its record, and then under the
        same key. An input that nobody took yet is answered first."""
        assert world.inbox is not None
        if before.state.pending:
            await world.process().run(lambda process: process.ask(NOW, session=id))
        next = world.process()
        for _ in range(2):
            await next.run(lambda process: process.service.deliveries.finish([id], within_s=100.0))
        records = world.facts(id)
        (settled,) = [one.fact for one in records if isinstance(one.fact, DeliverySettled)]
        assert isinstance(settled.outcome, Delivered)
        assert {key for key, _ in world.inbox.got} == {"key-1"}
        tries = sum(isinstance(one.fact, DeliveryAttempted) for one in records)
        assert 1 <= len(world.inbox.got) <= tries <= 2
        assert "one two".startswith(world.inbox.got[-1][1]["text"])

    said = at_every_boundary(Scenario(act, prepare, delivered), Reply(("one ", "two")))
    assert said == ["hello", "one two"]


# --- what is kept of a session --------------------------------------------------------------------

DISTILLATE = json.dumps(
    {
        "title": "Tea",
        "summary": "They met.",
        "decisions": [],
        "open": [],
        "facts": [{"text": "Ada likes tea.", "seqs": [3]}],
    }
)


@pytest.mark.promise(8, 33)
@pytest.mark.parametrize("first", [DISTILLATE, "no JSON at all"], ids=["good", "unusable"])
def test_a_distillate(first: str) -> None:
    async def distil(process: Process) -> None:
        await process.service.memories.distil(FIRST, asyncio.Event())

    async def prepare(world: World) -> None:
        before = world.process()
        await before.run(lambda process: process.ask("I am Ada, and I like tea."))
        await before.kill()
        world.model.choose = one_by_one(Reply((first,)), Reply((DISTILLATE,)))

    async def made_once(world: World, id: str, before: Stands) -> None:
        """There is one in the end, each call has an end, and nothing was said."""
        world.model.choose = lambda _: Reply((DISTILLATE,))
        for _ in range(2):
            await world.process().run(distil)
        facts = [record.fact for record in world.facts(id)]
        assert sum(isinstance(fact, Distilled) for fact in facts) == 1
        kinds = [type(fact) for fact in facts]
        assert kinds.count(HelperStarted) == kinds.count(HelperEnded)
        unsent = isinstance(before.records[-1].fact, HelperStarted)
        asked = sum(request.system != SYSTEM for request in world.model.requests)
        assert kinds.count(HelperStarted) - unsent <= asked <= kinds.count(HelperStarted)
        assert Stands(world).texts() == before.texts()
        await go_on(world, id, Stands(world))

    scenario = Scenario(distil, prepare, made_once, repeats=False)
    assert at_every_boundary(scenario) == ["I am Ada, and I like tea.", "ok"]
