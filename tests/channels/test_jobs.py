"""Jobs on the running program: each occurrence runs once, what it says is posted, and what was
missed is told."""

import json
from typing import Any

import pytest

from tests.channels.conftest import OWNER, Serve
from tests.channels.telegram_stub import Telegram
from tests.gateway.client import Gateway
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World, wait_until

HOUR_S = 3_600
CHAT = f"tg:{OWNER}"
POSTED = "Report: all is well."


def said(request: dict[str, Any]) -> str:
    return json.dumps(request["messages"])


def add(world: World, *words: str) -> str:
    return str(json.loads(world.steno("jobs", "add", "Report.", *words, "--json"))["id"])


def job(gateway: Gateway, id: str) -> dict[str, Any]:
    found: dict[str, Any] = gateway.ask("GET", f"/api/jobs/{id}").json()
    return found


def run_now(gateway: Gateway, id: str) -> None:
    assert gateway.ask("POST", f"/api/jobs/{id}/run").status == 202


def outcomes(gateway: Gateway, id: str) -> list[str]:
    return [one["outcome"] for one in job(gateway, id)["runs"]]


def wait_ended(gateway: Gateway, id: str, *wanted: str) -> None:
    wait_until(lambda: outcomes(gateway, id) == list(wanted), f"{wanted}")


def bind_chat(telegram: Telegram) -> None:
    telegram.say("hello")
    telegram.wait_text(OWNER, "hi")


def by_prompt(request: dict[str, Any]) -> Reply:
    """What the model says: to people, and to the job."""
    last = said({"messages": request["messages"][-1:]})
    if "This is the job" in last:
        return Reply((POSTED,))
    return Reply(("hi",))


def of_job(server: ModelServer) -> list[dict[str, Any]]:
    ours = ("This is the job", "Report.")
    return [one for one in server.requests if all(part in said(one) for part in ours)]


@pytest.mark.promise(13, 69)
def test_what_a_job_posts_is_in_the_history_of_its_chat_and_nobodys_speech(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    server.choose = by_prompt
    gateway = serve()
    bind_chat(telegram)
    id = add(world, "--every", "1d", "--to", CHAT)
    world.steno("jobs", "run", id)
    telegram.wait_text(OWNER, POSTED)
    wait_ended(gateway, id, "done")
    telegram.say("what was that?")
    wait_until(lambda: telegram.texts(OWNER) == ["hi", POSTED, "hi"], "the answer")
    last = server.requests[-1]["messages"]
    assert "Posted in the chat by a job since, not by you" in said(server.requests[-1])
    assert POSTED in said(server.requests[-1])
    assert [one for one in last if one["role"] == "assistant" and POSTED in str(one)] == []


@pytest.mark.promise(69)
def test_in_the_session_of_its_chat_a_job_is_told_as_one_and_its_answer_is_delivered(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    server.choose = by_prompt
    gateway = serve()
    bind_chat(telegram)
    id = add(world, "--every", "1d", "--to", CHAT, "--in-chat")
    run_now(gateway, id)
    wait_ended(gateway, id, "done")
    assert telegram.texts(OWNER) == ["hi", POSTED], "the prompt is not shown"
    assert f'Message from \\"job:{id}\\"' in said(server.requests[-1])
    assert "hello" in said(server.requests[-1])
    assert len(world.sessions()) == 1


def test_a_job_with_nothing_to_say_posts_nothing(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    replies = {"This is the job": Reply(("[silent]",))}
    server.choose = lambda one: next(
        (reply for part, reply in replies.items() if part in said(one)), Reply(("hi",))
    )
    gateway = serve()
    bind_chat(telegram)
    id = add(world, "--every", "1d", "--to", CHAT)
    world.steno("jobs", "run", id)
    wait_ended(gateway, id, "silent")
    assert telegram.texts(OWNER) == ["hi"]


@pytest.mark.promise(69)
@pytest.mark.parametrize("back", [False, True], ids=["forward", "and-back"])
@pytest.mark.suite("forward")
def test_missed_times_run_once_late_are_told_and_a_clock_set_back_runs_none_again(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World, back: bool
) -> None:
    server.choose = by_prompt
    gateway = serve()
    bind_chat(telegram)
    id = add(world, "--every", "1h", "--to", CHAT)
    gateway.stop()
    gateway.shift_s = 4.5 * HOUR_S
    gateway.start()
    telegram.wait_text(OWNER, POSTED)
    telegram.wait_like(OWNER, "missed 3 of its times")
    wait_ended(gateway, id, "missed", "missed", "missed", "done")
    [request] = of_job(server)
    assert "It runs 30 min late" in said(request) or "It runs 29 min late" in said(request)
    assert b"30 min late" not in (world.home / "store.db").read_bytes(), "a note is not stored"
    if not back:
        return
    gateway.stop()
    gateway.shift_s = 3.5 * HOUR_S  # an hour back: 04:00 comes again
    gateway.start()
    looked(gateway)
    gateway.stop()
    gateway.shift_s = 4.2 * HOUR_S
    gateway.start()
    looked(gateway)
    assert len(of_job(server)) == 1
    assert outcomes(gateway, id) == ["missed", "missed", "missed", "done"]


def looked(gateway: Gateway) -> None:
    """Wait until the scheduler has looked at everything that is due: what is asked for last runs
    last."""
    other = gateway.ask("POST", "/api/jobs", {"prompt": "Else.", "every": "9d"}).json()["id"]
    gateway.ask("POST", f"/api/jobs/{other}/pause")
    run_now(gateway, other)
    wait_until(lambda: len(outcomes(gateway, other)) == 1, "another job to run")
    gateway.ask("DELETE", f"/api/jobs/{other}")


@pytest.mark.promise(69)
@pytest.mark.parametrize("at", [f"{when}-{n}" for n in range(1, 6) for when in ("before", "after")])
@pytest.mark.suite("after-1", "before-4")
def test_killed_around_an_occurrence_it_runs_and_posts_once(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World, at: str
) -> None:
    server.choose = by_prompt
    gateway = serve()
    bind_chat(telegram)
    id = add(world, "--every", "1h", "--to", CHAT)
    gateway.stop()
    gateway.shift_s = 1.2 * HOUR_S
    when, n = at.split("-")
    dying = ("dying_at_jobs.py", when, n, "gateway", "--listen", f"127.0.0.1:{gateway.port}")
    moved = world.environment | {"STENO_TESTS_SHIFT_S": str(gateway.shift_s)}
    world.environment, kept = moved, world.environment
    with world.start_changed(*dying) as program:
        world.environment = kept
        wait_until(lambda: program.process.poll() is not None, "the kill")
    gateway.start()
    telegram.wait_text(OWNER, POSTED)
    wait_ended(gateway, id, "done")
    looked(gateway)
    assert telegram.texts(OWNER) == ["hi", POSTED]
    session = next(one["id"] for one in world.sessions() if one["title"] == "Report.")
    assert [one["text"] for one in world.messages(session, "user")] == ["Report."]
    assert len(of_job(server)) == 1


@pytest.mark.promise(69)
def test_two_gateways_on_one_store_run_each_occurrence_once(
    serve: Serve, server: ModelServer, world: World
) -> None:
    server.choose = by_prompt
    gateway = serve()
    serve()
    id = add(world, "--every", "1s")
    wait_until(lambda: outcomes(gateway, id).count("done") > 2, "runs")
    world.steno("jobs", "pause", id)
    wait_until(lambda: "running" not in outcomes(gateway, id), "the last one to end")
    runs = job(gateway, id)["runs"]
    times = [one["at"] for one in runs if one["outcome"] == "done"]
    assert len(times) == len(set(times)) == len(of_job(server))
    session = runs[0]["session"]
    assert len(world.messages(session, "user")) == len(times)


def test_the_owner_sets_and_changes_jobs_in_a_chat(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    server.choose = by_prompt
    serve()
    bind_chat(telegram)
    telegram.say("/jobs add cron 0 9 * * 1-5 Europe/Berlin Report.")
    telegram.wait_like(OWNER, "The job is set.")
    [made] = [json.loads(one) for one in world.steno("jobs", "list", "--json").splitlines()]
    assert (made["prompt"], made["to"]) == ("Report.", CHAT)
    assert made["schedule"] == "cron 0 9 * * 1-5 (Europe/Berlin)"
    telegram.say(f"/jobs run {made['id']}")
    telegram.wait_text(OWNER, POSTED)
    telegram.say(f"/jobs pause {made['id']}")
    telegram.wait_like(OWNER, "Paused.")
    telegram.say(f"/jobs remove {made['id']}")
    telegram.wait_like(OWNER, "Removed.")
    assert world.steno("jobs", "list", "--json") == ""


def test_jobs_over_http_need_a_token_that_may(serve: Serve, world: World) -> None:
    gateway = serve()
    new = {"prompt": "Report.", "cron": "0 9 * * *", "zone": "Europe/Berlin"}
    key = {"Idempotency-Key": "k"}
    first, again = (gateway.ask("POST", "/api/jobs", new, key) for _ in range(2))
    assert (first.status, first.json()["id"]) == (201, again.json()["id"])
    assert len(gateway.ask("GET", "/api/jobs").json()["jobs"]) == 1
    id = first.json()["id"]
    assert gateway.ask("POST", f"/api/jobs/{id}/pause").json()["state"] == "paused"
    assert gateway.ask("POST", f"/api/jobs/{id}/resume").json()["state"] == "on"
    assert gateway.ask("POST", "/api/jobs", {"prompt": "x", "every": "no"}).status == 422
    assert gateway.ask("GET", "/api/jobs/nothing").status == 422
    reader = world.steno("gateway", "token", "add", "reader", "--scope", "write").strip()
    assert gateway.ask("POST", "/api/jobs", new, token=reader).status == 403
    assert gateway.ask("DELETE", f"/api/jobs/{id}").status == 200
    assert gateway.ask("GET", "/api/jobs").json()["jobs"] == []


def test_a_model_makes_no_job_unless_a_person_agrees_to_that_one(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    world.environment["STENO_GATEWAY_APPROVAL"] = "allow"
    arguments = json.dumps({"act": "add", "prompt": "Report.", "every": "1d"})
    server.replies = [Reply(tools=(("change_job", arguments),)), Reply(("made",))]
    serve()
    telegram.say("every day, please")
    telegram.wait_like(OWNER, "change_job")
    assert world.steno("jobs", "list", "--json") == ""
    telegram.say("/approve")
    telegram.wait_text(OWNER, "made")
    assert len(world.steno("jobs", "list", "--json").splitlines()) == 1


def test_a_job_that_fails_ten_times_is_paused_and_its_owner_hears_of_it_once_each(
    serve: Serve, telegram: Telegram, server: ModelServer, world: World
) -> None:
    bad = Reply(status=400)
    server.choose = lambda one: bad if "This is the job" in said(one) else Reply(("hi",))
    gateway = serve()
    bind_chat(telegram)
    id = add(world, "--every", "1d", "--to", CHAT)
    for _ in range(2):
        run_now(gateway, id)
    telegram.wait_like(OWNER, "failed twice")
    for _ in range(8):
        run_now(gateway, id)
    telegram.wait_like(OWNER, "failed ten times")
    assert job(gateway, id)["state"] == "paused"
    server.choose = by_prompt
    run_now(gateway, id)
    telegram.wait_like(OWNER, "works again")
    texts = telegram.texts(OWNER)
    assert sum("failed" in text for text in texts) == 2
    assert sum("works again" in text for text in texts) == 1
