"""Commands that wait for another process: waiting costs next to nothing, and ends at once."""

import time
from pathlib import Path

from tests.program.model_server import ModelServer, Reply
from tests.program.world import Program, World, wait_until

WAKEUPS_MAX = 5
WINDOW_S = 2.0
WINDOWS_MAX = 10
"""In the first ones they may still be starting."""


def wakeups(program: Program) -> int:
    """How often any thread of a process has slept so far."""
    statuses = [
        (task / "status").read_text()
        for task in Path(f"/proc/{program.process.pid}/task").iterdir()
    ]
    return sum(
        int(line.split()[1])
        for status in statuses
        for line in status.splitlines()
        if line.startswith("voluntary_ctxt_switches")
    )


def rests(*programs: Program) -> list[bool]:
    before = [wakeups(program) for program in programs]
    time.sleep(WINDOW_S)
    after = [wakeups(program) for program in programs]
    return [
        (end - begin) / WINDOW_S <= WAKEUPS_MAX for begin, end in zip(before, after, strict=True)
    ]


def test_a_follower_and_a_run_that_waits_wake_a_few_times_a_second(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("going",), then="hang"), Reply(("second",))]
    with world.start("run", "one", "--key", "k") as runner:
        runner.wait_shown("going")
        id = world.only_session()
        with world.start("follow", id) as follower, world.start("run", "two", "--key", "k") as next:
            follower.wait_shown("going")
            wait_until(lambda: len(world.messages(id, "user")) == 2, "the second input")
            assert any(all(rests(follower, next)) for _ in range(WINDOWS_MAX))
            runner.kill()
            assert next.end() == 0
            assert next.shown() == "second\n"
            assert follower.end() == 130
