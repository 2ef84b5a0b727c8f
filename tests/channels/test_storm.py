"""Gateways that are killed again and again under many chats, in one process and in no time: what is
left undone at the last kill comes to its end without another start."""

import asyncio
import re
from collections import Counter

import pytest
from msgspec.structs import replace

from steno.engine.request import Request
from steno.journal.facts import (
    Delivered,
    DeliveryOwed,
    DeliverySettled,
    InputAdmitted,
    TurnEnded,
)
from steno.journal.state import KILLED_MAX
from tests.chance import REPEAT, chance_of
from tests.world.boundaries import saying
from tests.world.gateway import FAST, KEYED, Platform, start, until_quiet
from tests.world.model import Reply
from tests.world.store import Kill
from tests.world.world import World, play

PEOPLE = tuple(str(number) for number in range(20, 40))


def answer(request: Request) -> Reply:
    """Says what it was asked, a piece every now and then."""
    asked = re.findall(r"q-\d+-\d+", str(request.entries))[-1]
    return Reply(("answer ", "to ", asked), pause_s=0.05)


@pytest.mark.promise(63, 68, 22)
@pytest.mark.parametrize("kind", ["edits", "keyed"])
@pytest.mark.parametrize(
    ("seed", "kills", "chats"),
    [(1, 12, 4), *(pytest.param(n, 200, 20, marks=pytest.mark.torture) for n in range(5))],
)
def test_what_kills_leave_undone_comes_to_its_end_without_another(
    seed: int, kills: int, chats: int, kind: str
) -> None:
    chance = chance_of("storm", seed, kills, kind)

    async def test(world: World) -> None:
        world.model.choose = answer
        platform = Platform(KEYED if kind == "keyed" else replace(FAST, edits=True))
        said: dict[str, str] = {}
        pushed = []
        for number in range(kills):
            kill = Kill(chance.choice(("before", "after")), chance.randint(1, 60))
            gateway = start(world, platform, kill, allow=PEOPLE)
            for person in chance.sample(PEOPLE[:chats], min(4, chats)):
                text = f"q-{number}-{person}"
                said[text] = person
                pushed.append(platform.say(text, person))
                await asyncio.sleep(chance.random() * 0.05)
            platform.push(*chance.sample(pushed, min(3, len(pushed))))
            assert gateway.reaped is not None
            await asyncio.wait({gateway.reaped}, timeout=chance.random())
            await gateway.process.kill()
        start(world, platform, allow=PEOPLE)
        await until_quiet(world, 60.0)
        _all_is_told(world, platform, said)
        assert world.verify() == ()

    with saying(REPEAT):
        play(test)


@pytest.mark.promise(68)
def test_an_answer_whose_message_was_cut_off_each_time_is_shown_in_the_end() -> None:
    async def test(world: World) -> None:
        world.model.choose = lambda _: Reply(("answer",))
        platform = Platform(replace(FAST, edits=True))
        platform.fatal = 9
        platform.say("hello")
        while platform.fatal:
            reaped = start(world, platform).reaped
            assert reaped is not None
            await reaped
        start(world, platform)
        await until_quiet(world, 300.0)
        [told] = platform.texts()
        assert told.endswith("answer")

    play(test)


def _all_is_told(world: World, platform: Platform, said: dict[str, str]) -> None:
    """Each answer, whole; or that it was cut off, where it was killed too often to go on."""
    stored = [one.fact for id in world.sessions() for one in world.facts(id)]
    owed = sum(isinstance(one, DeliveryOwed) for one in stored)
    outcomes = [one.outcome for one in stored if isinstance(one, DeliverySettled)]
    assert sum(isinstance(one, InputAdmitted) for one in stored) == len(said), "each once"
    told = Counter(text for person in PEOPLE for text in platform.texts(person))
    left = {text for text in said if not any(one.endswith(f"to {text}") for one in told)}
    cut = [one for one in told.elements() if "Cut off" in one]
    assert len(cut) == len(left), (left, cut, _open(world))
    assert sum(isinstance(one, Delivered) for one in outcomes) == owed
    assert sum(told.values()) == len(said)
    ended = [one for one in stored if isinstance(one, TurnEnded)]
    assert len(cut) * KILLED_MAX <= sum(one.cause == "killed" for one in ended)


def _open(world: World) -> list[str]:
    """What is owed, and the last facts of its session."""
    told = []
    for id in world.sessions():
        facts = world.facts(id)
        settled = {one.fact.owed for one in facts if isinstance(one.fact, DeliverySettled)}
        open = [one for one in facts if isinstance(one.fact, DeliveryOwed)]
        if left := [one.seq for one in open if one.seq not in settled]:
            told.append(f"{id} owes {left}: {facts[-4:]}")
    return told
