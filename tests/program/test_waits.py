"""A provider that asks to be left alone for a while is left alone for that long, and the person is
told."""

import signal
import time
from typing import Any

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.world import World, wait_until


@pytest.mark.promise(8)
def test_another_attempt_waits_as_long_as_the_server_asked_and_the_person_is_told(
    world: World, server: ModelServer
) -> None:
    came_s: list[float] = []

    def note(_: dict[str, Any]) -> None:
        came_s.append(time.monotonic())

    server.on_request = note
    server.replies = [Reply(status=429, retry_after="2"), Reply(("at last",))]
    with world.start("run", "hi") as program:
        assert program.end() == 0
        assert program.shown() == "at last\n"
        assert "asks to wait 2 s" in program.errors()
    assert 2.0 <= came_s[1] - came_s[0] < 4.0


@pytest.mark.promise(8)
def test_a_server_that_asks_for_more_than_the_bound_fails_the_turn_at_once_and_the_person_is_told(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(status=429, retry_after="3600"), Reply(("too early",))]
    with world.start("run", "hi") as program:
        assert program.end() == 1
        assert "asks to wait 3600 s" in program.errors()
    assert len(server.requests) == 1
    assert world.messages(world.only_session(), "user")[0]["state"] == "failed"


@pytest.mark.promise(6)
def test_ctrl_c_ends_the_wait(world: World, server: ModelServer) -> None:
    server.replies = [Reply(status=503, retry_after="60"), Reply(("never",))]
    with world.start("run", "hi") as program:
        wait_until(
            lambda: any(world.messages(one["id"], "assistant") for one in world.sessions()),
            "the lost attempt",
        )
        program.signal(signal.SIGINT)
        assert program.end() == 130
    assert len(server.requests) == 1
