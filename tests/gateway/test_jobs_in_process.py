"""Jobs in gateways that are killed at every commit, two at a time, while the clock is set back and
forward and summer time begins and ends: one process, no time, the same each time.

What is checked is what anybody can read: the journals, and the chat.
"""

import asyncio
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from steno.engine.jobs import LATE_MS
from steno.engine.request import Request
from steno.journal.facts import (
    InputAdmitted,
    JobDue,
    JobEnded,
    JobSkipped,
    Record,
    SessionStarted,
)
from steno.session.jobs import NewJob
from tests.chance import chance_of
from tests.world.boundaries import saying
from tests.world.gateway import CHANNEL, OWNER, Gateway, Platform, start, until_quiet
from tests.world.model import Reply
from tests.world.store import Kill
from tests.world.world import Process, World, play

HOUR_MS = 3_600_000
POSTED = "Report: all is well."
CHANGES = {
    "no-change": "2026-11-18T09:00+01:00",
    "spring": "2026-03-29T00:30+01:00",
    "autumn": "2026-10-25T00:30+02:00",
}


async def made(world: World, **new: Any) -> str:
    """A job that posts in the owner's chat."""
    to = f"{CHANNEL}:{OWNER}"

    async def add(process: Process) -> str:
        book = process.service.jobs.book
        return (await book.add(NewJob("Report.", to=to, **new), "cli")).id

    id = await world.process().run(add)
    assert id is not None
    return id


def posts(platform: Platform) -> list[str]:
    """What jobs said. A turn that was cut off after its text goes on, and says it again: both are
    its answer."""
    return [one for one in platform.texts() if one.startswith(POSTED)]


async def with_a_chat(world: World, platform: Platform) -> None:
    """The chat that jobs post in has a session."""
    gateway = start(world, platform)
    platform.say("hello")
    await until_quiet(world)
    await gateway.process.kill()


class Seen:
    """What the journals say of a job."""

    def __init__(self, world: World, job: str) -> None:
        records = {
            name: facts
            for id in world.sessions()
            if isinstance((first := (facts := world.facts(id))[0].fact), SessionStarted)
            and (name := first.name)
        }
        own: list[Record] = records.get(f"job/{job}", [])
        self.due = [one for one in own if isinstance(one.fact, JobDue)]
        self.skipped = [one for one in own if isinstance(one.fact, JobSkipped)]
        self.ended = [one.fact for one in own if isinstance(one.fact, JobEnded)]
        runs: list[Record] = records.get(f"job/{job}/runs", [])
        self.admitted = [str(one.fact.key) for one in runs if isinstance(one.fact, InputAdmitted)]

    def check(self, job: str) -> None:
        """Each time was decided about once, each that was due was admitted once and ended once."""
        due = [one.fact for one in self.due if isinstance(one.fact, JobDue)]
        skipped = [one.fact for one in self.skipped if isinstance(one.fact, JobSkipped)]
        times = [one.at for one in due]
        assert len(set(times)) == len(times), "a time is due once"
        assert sorted(self.admitted) == sorted(f"job:{job}:{at}" for at in times)
        assert sorted(one.due for one in self.ended) == sorted(one.seq for one in self.due)
        assert {(one.outcome, one.cause) for one in self.ended} <= {("done", "")}
        said = {one.at for one in skipped}
        assert len(said) == len(skipped), "a time is told as missed once"
        for one in due:
            assert one.at not in said or one.late_ms <= LATE_MS, "missed, so it does not run"


def set_clock(world: World, text: str) -> None:
    world.shift_ms += int(datetime.fromisoformat(text).timestamp() * 1_000) - world.now_ms()


@pytest.mark.promise(69)
def test_a_clock_set_back_runs_neither_what_ran_nor_what_was_told_as_missed() -> None:
    async def test(world: World) -> None:
        platform = Platform()
        await with_a_chat(world, platform)
        job = await made(world, every="1h")
        world.shift_ms += int(4.5 * HOUR_MS)
        start(world, platform, jobs=True)
        await until_quiet(world)
        before, asked = Seen(world, job), len(world.model.requests)
        assert (len(before.due), len(before.skipped)) == (1, 3)
        for hours in (-1, +0.7, -2, +2.7):
            world.shift_ms += int(hours * HOUR_MS)
            await until_quiet(world)
        after = Seen(world, job)
        after.check(job)
        assert (after.due, after.skipped) == (before.due, before.skipped)
        assert len(world.model.requests) == asked, "no request more"
        missed = [text for text in platform.texts() if "missed 3 of its times" in text]
        assert len(missed) == len(platform.texts()) - 2 == 1, platform.texts()

    play(test, Reply((POSTED,)))


async def _one_occurrence(world: World, kill: Kill | None, second: bool) -> list[str]:
    """An hour has come; what is committed until it has been posted."""
    platform = Platform()
    await with_a_chat(world, platform)
    job = await made(world, every="1h")
    world.shift_ms += int(2.2 * HOUR_MS)
    gateway = start(world, platform, kill, jobs=True)
    if second:
        start(world, platform, jobs=True)
    await until_quiet(world)
    if kill is not None:
        assert gateway.process.dead
        if not second:
            start(world, platform, jobs=True)
        await until_quiet(world)
    seen = Seen(world, job)
    seen.check(job)
    assert (len(seen.due), len(seen.skipped)) == (1, 1)
    assert next(one for one in platform.texts() if "missed" not in one) == "hi"
    assert len(posts(platform)) == 1, "posted once"
    assert len(platform.texts()) == 3, "what was missed is told once"
    assert world.verify() == ()
    return gateway.process.commits


def _reply(request: Request) -> Reply:
    return Reply((POSTED,)) if "This is the job" in str(request) else Reply(("hi",))


@pytest.mark.promise(69)
@pytest.mark.promise(13)
@pytest.mark.parametrize("second", [False, True], ids=["then-another", "beside-another"])
def test_killed_at_every_commit_an_occurrence_runs_is_posted_and_told_once(second: bool) -> None:
    def once(kill: Kill | None) -> list[str]:
        async def test(world: World) -> list[str]:
            world.model.choose = _reply
            return await _one_occurrence(world, kill, second)

        return play(test)

    commits = once(None)
    for n in range(1, len(commits) + 1):
        for when in ("before", "after"):
            with saying(f"killed {when} commit {n} of {len(commits)}"):
                once(Kill(when, n))


SCHEDULES: tuple[dict[str, str], ...] = (
    {"every": "10m"},
    {"cron": "*/20 * * * *", "zone": "Europe/Berlin"},
    {"cron": "30 2 * * *", "zone": "Europe/Berlin"},
    {"cron": "0 * * * *", "zone": "Europe/Berlin"},
)
SEEDS = 200


@pytest.mark.promise(69)
@pytest.mark.promise(47)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("seeds", [2, pytest.param(SEEDS, marks=pytest.mark.torture)])
def test_two_gateways_kills_and_clocks_that_are_set_give_one_run_a_time(
    change: str, seeds: int
) -> None:
    for seed in range(seeds):
        with saying(f"seed {seed}"):
            play(partial(_under_chance, change=change, seed=seed))


async def _under_chance(world: World, change: str, seed: int) -> None:
    chance = chance_of(f"jobs at {change}", seed)
    world.model.choose = _reply
    set_clock(world, CHANGES[change])
    platform = Platform()
    await with_a_chat(world, platform)
    jobs = [
        await made(
            world,
            missed=chance.choice(("once", "all", "skip")),
            overlap=chance.choice(("queue", "skip")),
            **schedule,
        )
        for schedule in SCHEDULES
    ]
    gateways: list[Gateway] = []
    for _ in range(chance.randrange(6, 14)):
        if len(gateways) < 2:
            kill = Kill(chance.choice(("before", "after")), chance.randrange(1, 60))
            gateways.append(start(world, platform, kill, jobs=True))
        world.shift_ms += round(chance.uniform(-100, 130) * 60_000)
        await asyncio.sleep(chance.uniform(0, 12))
        gateways = [one for one in gateways if not one.process.dead]
    for gateway in gateways:
        await gateway.process.kill()
    start(world, platform, jobs=True)
    await until_quiet(world)
    posted = 0
    for job in jobs:
        seen = Seen(world, job)
        seen.check(job)
        posted += len(seen.due)
    assert len(posts(platform)) == posted, "each that ran is posted once"
    assert world.verify() == ()
