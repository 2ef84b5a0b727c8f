"""Several processes at one session, whatever they do in whatever order: they say things, run turns,
stop them, decide, edit, fork, sleep and are killed, while the model and the tools do what they
like.

The order is left to chance, and chance has a seed: the same seed gives the same run to the last
commit.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from steno.engine.action import Limits
from steno.engine.request import Request
from steno.journal.facts import (
    ApprovalAsked,
    InputAdmitted,
    InputWithdrawn,
    StepStarted,
    Takes,
    TurnStarted,
)
from steno.journal.parts import Seq, text_of
from steno.service import Misused
from steno.store.errors import (
    KeyReused,
    LeaseLost,
    NotAllowed,
    NotPending,
    NotStorable,
    SessionBusy,
    UnknownSession,
)
from tests.chance import chance_of
from tests.world.boundaries import NOW, THEN, Stands, check_valid, saying, stored
from tests.world.model import Reply
from tests.world.store import Kill
from tests.world.world import FIRST, SYSTEM, Process, World, play

REFUSALS = (Misused, SessionBusy, LeaseLost, KeyReused, NotPending, UnknownSession)
ACTS = 40
PROCESSES = 3
COMMITS_MAX = 25
"""How far ahead a kill can lie."""


class Play:
    def __init__(self, world: World, chance: Random) -> None:
        self.world, self.chance = world, chance
        self.said: list[str] = []
        self.calls = 0
        self.log: list[str] = []
        world.model.choose = self.reply
        world.approval = "ask"
        world.limits = Limits(turn_s=60, attempts_max=2, context_max=1_000)
        world.tools = [
            {"name": "look"},
            {"name": "touch", "approval": "ask", "pause_s": 0.5},
            {"name": "wait", "hangs": True},
        ]
        self.living: list[Process] = []

    # --- what the model does

    def reply(self, request: Request) -> Reply:
        if request.system != SYSTEM:
            return self.chance.choice((Reply(("in short",)), Reply(fails="overloaded")))
        pieces = tuple(
            "word " * self.chance.randint(1, 30) for _ in range(self.chance.randrange(4))
        )
        fate = self.chance.random()
        if fate < 0.1:
            return Reply(fails=self.chance.choice(("rate_limited", "refused", "too_long")))
        if fate < 0.2:
            return Reply(pieces, then="close")
        if fate < 0.3:
            return Reply(pieces, then="hang")
        if fate < 0.6:
            return Reply(pieces, tools=tuple(self.call() for _ in range(self.chance.randint(1, 3))))
        return Reply(pieces or ("done",), pause_s=self.chance.choice((0.0, 0.3)), thought="Hm.")

    def call(self) -> tuple[str, str]:
        """Each has arguments of its own, so that one that runs twice shows."""
        self.calls += 1
        return self.chance.choice(("look", "touch", "wait")), f'{{"n":{self.calls}}}'

    # --- what processes do

    async def act(self) -> None:
        if len(self.living) < PROCESSES or self.chance.random() < 0.1:
            at = Kill(self.chance.choice(("before", "after")), self.chance.randint(1, COMMITS_MAX))
            self.living.append(self.world.process(at if self.chance.random() < 0.5 else None))
        process = self.chance.choice(self.living)
        if self.chance.random() < 0.1:
            self.log.append("kill")
            await process.kill()
        else:
            name, does = self.chance.choice(ACTIONS)
            self.log.append(name)
            process.start(lambda process: self.carefully(does, process))
        await asyncio.sleep(self.chance.choice((0.0, 0.01, 0.4, 5.0)))
        for one in self.living:
            if one.dead:
                await one.kill()
        self.living = [one for one in self.living if not one.dead]

    async def carefully(self, does: "Action", process: Process) -> None:
        """What is refused has changed nothing, and is no news."""
        try:
            await does(self, process)
        except NotStorable:
            raise
        except (*REFUSALS, NotAllowed):
            pass

    async def say(self, process: Process) -> None:
        text = f"prompt {len(self.said)}."
        self.said.append(text)
        await process.say(text, mode=self.chance.choice(("queue", "steer")))

    async def run(self, process: Process) -> None:
        await process.service.turns.run_pending(FIRST, asyncio.Event())

    async def ask(self, process: Process) -> None:
        text = f"prompt {len(self.said)}."
        self.said.append(text)
        await process.answer(await process.say(text))

    async def stop(self, process: Process) -> None:
        await process.service.turns.interrupt(FIRST)

    async def decide(self, process: Process) -> None:
        asked = [one.seq for one in self.world.facts() if isinstance(one.fact, ApprovalAsked)]
        if asked:
            decide = process.service.approvals.decide
            await decide(FIRST, asked[-1], "allow" if self.chance.random() < 0.5 else "deny")

    async def go_on(self, process: Process) -> None:
        await process.run_again(self.chance.choice(("continue", "retry")))

    async def compact(self, process: Process) -> None:
        await process.service.edits.compact(FIRST, asyncio.Event())

    async def undo(self, process: Process) -> None:
        await process.service.edits.undo(FIRST)

    async def withdraw(self, process: Process) -> None:
        inputs = [one.seq for one in self.world.facts() if isinstance(one.fact, InputAdmitted)]
        await process.service.withdraw(FIRST, self.chance.choice(inputs))

    # --- what is true in the end

    async def check(self) -> None:
        world = self.world
        for process in world.processes:
            await process.kill()
        if not world.sessions():
            return
        stands = Stands(world)
        for process in world.processes:
            for event in process.shown:
                assert stands.holds(event), "shown, so it is stored"
        assert max([0, *Counter(world.runs).values()]) <= 1, "no tool ran twice"
        assert world.model.most_at_once <= 1, "requests are serial"
        for request in world.model.requests:
            if request.system == SYSTEM:
                check_valid(request)
        check_inputs(world, self.said)
        assert world.verify() == ()
        world.approval, world.limits = "refuse", Limits()
        world.model.choose = lambda _: Reply((THEN,))
        assert await world.process().run(lambda process: process.ask(NOW)) == THEN
        check_valid(world.model.requests[-1])
        assert not Stands(world).state.pending


def check_inputs(world: World, said: list[str]) -> None:
    """Each is stored once, in the order in which it was accepted, and taken at most once."""
    taken: Counter[Seq] = Counter()
    kept: list[str] = []
    for record in world.facts():
        match record.fact:
            case InputAdmitted(parts=parts):
                kept.append(text_of(parts))
            case StepStarted(takes=takes):
                taken.update(takes)
            case InputWithdrawn(input=input):
                assert not taken[input]
            case TurnStarted(origin=Takes(input=input)):
                taken[input] += 0
            case _:
                pass
    assert len(kept) == len(set(kept))
    assert set(kept) <= set(said)
    assert max([0, *taken.values()]) <= 1


Action = Callable[[Play, Process], Awaitable[Any]]
ACTIONS: list[tuple[str, Action]] = [
    ("say", Play.say),
    ("run", Play.run),
    ("run", Play.run),
    ("ask", Play.ask),
    ("ask", Play.ask),
    ("stop", Play.stop),
    ("decide", Play.decide),
    ("go on", Play.go_on),
    ("compact", Play.compact),
    ("undo", Play.undo),
    ("withdraw", Play.withdraw),
]


@pytest.mark.promise(5, 17, 19, 20, 21, 22, 34, 35)
@pytest.mark.parametrize("seed", range(400))
@pytest.mark.suite(*map(str, range(12)))
def test_whatever_happens_in_whatever_order(seed: int) -> None:
    async def test(world: World) -> None:
        played = Play(world, chance_of("simulation", seed))
        for _ in range(ACTS):
            await played.act()
        with saying(f"after {', '.join(played.log)}"):
            await played.check()

    play(test)


def test_the_same_seed_gives_the_same_run() -> None:
    def facts(seed: int) -> Any:
        async def test(world: World) -> Any:
            played = Play(world, chance_of("simulation", seed))
            for _ in range(ACTS):
                await played.act()
            return stored(world), world.runs, world.model.requests

        return play(test)

    assert facts(3) == facts(3)
    assert facts(3) != facts(4)
