"""Starts and stops of the service on the running program: nothing accepted is lost, nothing is
answered twice, and what was cut off is taken up once."""

import contextlib
import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from steno.gateway.jobs.scheduler import LOOK_S
from steno.gateway.starts import UNCLEAN_MAX, WITHIN_S
from steno.journal.state import KILLED_MAX, WITHDRAWALS_MAX
from tests.gateway.client import Gateway, eventually, text_of, wait_until
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World


def allow_all(gateway: Gateway) -> None:
    gateway.world.environment["STENO_GATEWAY_APPROVAL"] = "allow"
    gateway.stop()
    gateway.start()


@pytest.mark.promise(22, 63)
def test_an_input_accepted_while_the_service_stops_is_run_by_the_next(
    gateway: Gateway, server: ModelServer, world: World
) -> None:
    server.replies = [Reply(("slow", "."), held=True), Reply(("later",))]
    busy, idle = gateway.make(), gateway.make()
    gateway.say(busy, "work")
    wait_until(lambda: len(server.requests) == 1, "the turn to run")
    gateway.program.signal(signal.SIGTERM)
    wait_until(lambda: gateway.ask("GET", "/ready").status == 503, "the drain")
    assert gateway.say(idle, "during the drain", "key").status == 202
    assert gateway.say(busy, "and here").status == 202
    for again in ("retry", "continue"):  # no fact until it runs, so it cannot be accepted
        own = {"Origin": f"http://127.0.0.1:{gateway.port}"}
        form = own | {"Content-Type": "application/x-www-form-urlencoded"}
        assert gateway.ask("POST", f"/api/sessions/{idle}/{again}").status == 503
        assert gateway.ask("POST", f"/s/{idle}/{again}", b"", form).status == 503
    server.go_on()
    assert gateway.program.process.wait(20) == 0
    assert [one["text"] for one in world.messages(busy, "assistant")] == ["slow."]
    assert world.messages(idle, "assistant") == [], "no turn begins while it stops"
    gateway.start()
    for session, count in ((idle, 1), (busy, 2)):
        wait_until(
            lambda one=session, n=count: len(world.messages(one, "assistant")) == n,  # type: ignore[misc]
            "the answers",
        )
    assert len(server.requests) == 3


@pytest.mark.promise(20, 63)
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_turn_cut_off_after_tool_results_is_taken_up_once_with_a_note(
    gateway: Gateway, server: ModelServer, world: World, how: str
) -> None:
    world.environment["STENO_GATEWAY_DRAIN_S"] = "0"
    allow_all(gateway)
    call = ("shell", '{"command": "echo ran >> ran.txt; echo output"}')
    server.replies = [Reply(tools=(call,)), Reply(then="hang"), Reply(("went on",))]
    session = gateway.make()
    gateway.say(session, "run it")
    wait_until(lambda: len(server.requests) == 2, "the results to be told")
    if how == "killed":
        gateway.kill()
    else:
        assert gateway.stop() == 0
    gateway.start()
    wait_until(lambda: len(server.requests) == 3, "the turn to be taken up")
    last = world.messages(session, "assistant")
    wait_until(
        lambda: world.messages(session, "assistant")[-1]["text"] == "went on", f"an answer: {last}"
    )
    note = json.dumps(server.requests[2]["messages"][-1])
    assert "interrupted" in note or "cut off" in note, note
    assert note not in (world.home / "store.db").read_bytes().decode("utf-8", "replace")
    folder = world.home / "workspaces" / session
    assert (folder / "ran.txt").read_text() == "ran\n", "the tool ran once"
    gateway.stop()
    gateway.start()
    assert eventually(gateway, "/ready", 200).status == 200
    assert len(server.requests) == 3


@pytest.mark.promise(20)
def test_a_turn_that_kills_the_service_is_tried_no_more_often_than_is_published(
    gateway: Gateway, server: ModelServer
) -> None:
    allow_all(gateway)

    def killing(request: object) -> Reply:
        command = json.dumps({"command": f"kill -9 {gateway.program.process.pid}"})
        return Reply(tools=(("shell", command),))

    server.choose = killing
    session = gateway.make()
    gateway.say(session, "kill it")

    def rests() -> bool:
        """What a start takes up, it has taken up when it is ready."""
        with contextlib.suppress(OSError):
            return not gateway.ask("GET", "/ready").json()["running"]
        return False

    def died() -> bool:
        return gateway.program.process.poll() is not None

    starts = 0
    while True:
        wait_until(lambda: died() or rests(), "an end")
        if not died():
            break
        starts += 1
        assert starts < 20
        gateway.start()
    assert starts >= 1
    assert 1 <= len(server.requests) <= 1 + KILLED_MAX + WITHDRAWALS_MAX
    ended = gateway.ask("GET", f"/api/sessions/{session}").json()["turns"]
    assert {one["outcome"] for one in ended} == {"interrupted"}


@pytest.mark.promise(63)
def test_after_three_kills_jobs_wait_for_a_while_and_the_rest_of_the_service_says_so(
    gateway: Gateway, server: ModelServer
) -> None:
    server.replies = [Reply(("done",))]
    job = gateway.ask("POST", "/api/jobs", {"prompt": "look", "cron": "0 9 * * *", "zone": "UTC"})
    for _ in range(UNCLEAN_MAX):
        gateway.kill()
        gateway.start()
    held_back = gateway.ask("GET", "/ready").json()["held_back_until_ms"]
    assert 0 < held_back - time.time() * 1000 <= WITHIN_S * 1000
    run = f"/api/jobs/{job.json()['id']}/run"
    assert gateway.ask("POST", run).status == 202
    assert gateway.say(gateway.make(), "hello", wait=20).json()["text"] == "done"
    for page in ("/jobs", "/deliveries"):
        assert b"was killed 3 times within 5 minutes" in gateway.ask("GET", page).body
    assert b"was killed" not in gateway.ask("GET", "/usage").body
    time.sleep(1.5 * LOOK_S)
    assert len(server.requests) == 1, "no job ran"
    for start in (gateway.world.home / "starts").iterdir():
        os.utime(start, (time.time() - WITHIN_S, time.time() - WITHIN_S))  # the minutes are over
    assert gateway.ask("GET", "/ready").json()["held_back_until_ms"] is None
    assert b"was killed" not in gateway.ask("GET", "/jobs").body
    wait_until(lambda: len(server.requests) == 2, "the job to run")


@pytest.mark.promise(63)
def test_a_new_service_takes_over_from_the_old_on_one_port_under_load(
    gateway: Gateway, server: ModelServer, world: World
) -> None:
    """No request fails to be accepted for longer than a reconnect takes, none is answered twice."""
    server.replies = [Reply(("a", "nswer"), delay_s=0.02)]
    sessions = [gateway.make() for _ in range(8)]
    over = threading.Event()
    said = [0] * len(sessions)

    def talk(n: int) -> int:
        session, count = sessions[n], 0
        while not over.is_set():
            key = f"{session}-{count}"
            for _ in range(50):
                try:
                    answer = gateway.say(session, f"input {count}", key)
                except OSError:
                    time.sleep(0.02)
                    continue
                assert answer.status == 202, answer.body
                break
            else:
                raise AssertionError("not accepted in 50 tries")
            count += 1
            said[n] = count
            over.wait(0.05)
        return count

    def more(each: int) -> bool:
        return all(now >= before + each for now, before in zip(said, had, strict=True))

    with ThreadPoolExecutor(8) as clients:
        talking = [clients.submit(talk, n) for n in range(len(sessions))]
        try:
            had = [0] * len(said)
            wait_until(lambda: more(3), "everyone to talk")
            old = gateway.program
            gateway.start()  # on the same port, beside the old one
            old.signal(signal.SIGTERM)
            assert old.process.wait(30) == 0
            had = list(said)
            wait_until(lambda: more(3), "everyone to talk to the new one")
        finally:
            over.set()
        counts = [one.result() for one in talking]
    for session, count in zip(sessions, counts, strict=True):
        wait_until(
            lambda one=session, n=count: len(world.messages(one, "assistant")) >= n,  # type: ignore[misc]
            "all answers",
        )
        stored = [one["text"] for one in world.messages(session, "user")]
        assert stored == [f"input {i}" for i in range(count)]
        answers = [one["text"] for one in world.messages(session, "assistant")]
        assert answers == ["answer"] * count


@pytest.mark.promise(36, 62)
def test_a_service_that_slept_goes_on_and_its_reader_misses_nothing(
    gateway: Gateway, server: ModelServer
) -> None:
    server.replies = [Reply(tuple("abcdefghij"), delay_s=0.05)]
    session = gateway.make()
    gateway.say(session, "go")
    seen = []
    for event in gateway.events(session):
        seen.append(event)
        if text_of(seen) == "abc":
            gateway.program.put_to_sleep()
            time.sleep(0.5)
            gateway.program.signal(signal.SIGCONT)
        if event.name == "turn_ended":
            break
    assert text_of(seen) == "abcdefghij"
    assert seen[-1].data["outcome"] == "done"
