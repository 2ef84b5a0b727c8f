"""Several workers on one store: one runs a session; when it goes, another goes on."""

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import closing

import pytest

from tests import postgres
from tests.gateway.client import Gateway, text_of, wait_until
from tests.program.model_server import ModelServer, Reply

TAKEN_OVER_S = 10.0
"""The published time is about a second; a machine under load is given more."""


def answers(gateway: Gateway, session: str) -> list[str]:
    shown = gateway.ask("GET", f"/api/sessions/{session}").json()
    return [one["text"] for one in shown["messages"] if one["role"] == "assistant"]


def runner(url: str, session: str) -> str | None:
    schema = postgres.schema_of(url)
    asked = (
        f"select h.owner from {schema}.heads h join {schema}.sessions s on s.n = h.n where id = %s"
    )
    with closing(postgres.connect(url)) as connection:
        row = connection.execute(asked.encode(), (session,)).fetchone()
    return None if row is None or row[0] is None else str(row[0])


def worker_of(workers: list[Gateway], owner: str) -> Gateway:
    pid = int(owner.split(".")[-2])
    return next(one for one in workers if one.program.process.pid == pid)


@pytest.mark.promise(16, 61, 72)
def test_any_worker_accepts_any_input_and_each_is_answered_once(
    start: Callable[[int], list[Gateway]], server: ModelServer
) -> None:
    server.replies = [Reply(("an ", "answer"))]
    workers = start(3)
    session = workers[0].make()
    for n in range(6):
        worker = workers[n % 3]
        assert worker.say(session, f"question {n}", f"key-{n}").status == 202
        assert workers[(n + 1) % 3].say(session, f"question {n}", f"key-{n}").status in (200, 202)
    for worker in workers:
        wait_until(lambda one=worker: len(answers(one, session)) == 6, "six answers")  # type: ignore[misc]
    assert len(server.requests) == 6
    said = [json.dumps(request) for request in server.requests]
    assert all(f"question {n}" in said[n] for n in range(6)), "in order, one after the other"
    assert workers[0].world.steno("verify").endswith("no damage\n")


@pytest.mark.promise(19, 34, 36, 72)
def test_a_killed_worker_is_replaced_and_its_client_goes_on_elsewhere(
    start: Callable[[int], list[Gateway]], server: ModelServer, url: str
) -> None:
    call = ("shell", '{"command": "echo ran >> ran.txt; sleep 60"}')
    server.replies = [Reply(("Hel", "lo"), tools=(call,)), Reply(("went on",))]
    workers = start(3)
    session = workers[0].make()
    workers[0].say(session, "begin", "key")
    wait_until(lambda: len(server.requests) == 1, "the turn to run")
    seen = []
    for event in workers[1].events(session):
        seen.append(event)
        if event.name == "tool_started":
            break
    assert text_of(seen) == "Hello"
    dead = worker_of(workers, str(runner(url, session)))
    left = [one for one in workers if one is not dead]
    killed_s = time.monotonic()
    dead.kill()
    after = left[0].until_end(session, seen[-1].id)
    taken_s = time.monotonic() - killed_s
    assert taken_s < TAKEN_OVER_S, taken_s
    shown = left[1].ask("GET", f"/api/sessions/{session}").json()
    assert next(one["text"] for one in shown["messages"] if one["role"] == "assistant") == "Hello"
    assert after[-1].data["outcome"] == "interrupted"
    folder = dead.world.home / "workspaces" / session
    assert (folder / "ran.txt").read_text() == "ran\n", "the tool is not run again"
    assert left[0].say(session, "and now").status == 202
    wait_until(lambda: answers(left[1], session)[-1:] == ["went on"], "the next answer")
    assert "unknown" in json.dumps(server.requests[-1]), "the model is told that it is not known"


@pytest.mark.promise(18, 72)
def test_a_frozen_worker_that_wakes_adds_nothing(
    start: Callable[[int], list[Gateway]], server: ModelServer, url: str
) -> None:
    server.replies = [Reply(("first ", "second"), held=True), Reply(("another",))]
    workers = start(2)
    session = workers[0].make()
    workers[0].say(session, "begin")
    wait_until(lambda: answers(workers[1], session) == ["first "], "the first piece")
    frozen = worker_of(workers, str(runner(url, session)))
    other = next(one for one in workers if one is not frozen)
    frozen.program.signal(signal.SIGSTOP)
    _end_connections(url, frozen)
    wait_until(lambda: runner(url, session) is None, "the session to be taken over")
    assert other.say(session, "go on").status == 202
    wait_until(lambda: answers(other, session) == ["first ", "another"], "the other's answer")
    server.go_on()
    frozen.program.signal(signal.SIGCONT)
    assert frozen.say(session, "are you there?", "woken").status == 202
    wait_until(lambda: len(answers(other, session)) == 3, "an answer after it woke")
    assert answers(other, session)[:2] == ["first ", "another"]
    assert other.world.steno("verify").endswith("no damage\n")
    dead = [json.loads(line) for line in other.world.steno("workers", "--json").splitlines()]
    assert [one["dead"] for one in dead if one["pid"] == frozen.program.process.pid].count(
        True
    ) == 1


def _end_connections(url: str, worker: Gateway) -> None:
    """As a network that drops it would: then the short term counts."""
    pid = str(worker.program.process.pid)
    with closing(postgres.connect(url)) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name like %s",
            (f"steno:%.{pid}.%",),
        )


@pytest.mark.promise(72)
def test_a_worker_that_stops_in_order_hands_its_sessions_over_at_once(
    start: Callable[[int], list[Gateway]], server: ModelServer
) -> None:
    server.replies = [Reply(("one",)), Reply(("two",))]
    workers = start(2)
    session = workers[0].make()
    workers[0].say(session, "first", wait=10)
    assert workers[0].stop() == 0
    assert workers[1].say(session, "second", wait=10).status == 200
    assert answers(workers[1], session) == ["one", "two"]
    [left] = [json.loads(line) for line in workers[1].world.steno("workers", "--json").splitlines()]
    running = workers[1].program.process.pid
    assert (left["host"], left["pid"], left["role"]) == (os.uname().nodename, running, "gateway")


@pytest.mark.promise(72)
def test_what_finds_no_room_in_one_worker_is_run_by_another(
    start: Callable[..., list[Gateway]], server: ModelServer, url: str
) -> None:
    server.replies = [Reply(("first ", "held"), held=True), Reply(("second ", "held"), held=True)]
    workers = start(2, SESSIONS_MAX="1")
    busy, waiting = workers[0].make(), workers[0].make()
    workers[0].say(busy, "begin")
    wait_until(lambda: answers(workers[1], busy) == ["first "], "the first piece")
    full = worker_of(workers, str(runner(url, busy)))
    assert full.say(waiting, "and this?").status == 202
    wait_until(lambda: answers(full, waiting) == ["second "], "the other's first piece")
    assert worker_of(workers, str(runner(url, busy))) is full, "what fills it still runs"
    assert worker_of(workers, str(runner(url, waiting))) is not full
    server.go_on()
    wait_until(lambda: answers(full, busy) == ["first held"], "its end")
    wait_until(lambda: answers(full, waiting) == ["second held"], "the other's end")
