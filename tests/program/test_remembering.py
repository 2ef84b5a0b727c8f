"""Sessions are distilled unasked, in the background, whoever had them, and nobody is held up."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import steno
from steno.journal.facts import InputAdmitted
from steno.journal.parts import Text
from steno.store.protocol import Admission
from steno.store.sqlite.store import BlockingStore
from tests.program.diary import install, told
from tests.program.distilling import (
    GOOD,
    HANGS,
    LEFT_S,
    LINES,
    PORT,
    TEA,
    chat,
    distillations,
    distils,
    helpers,
    is_distillation,
    made,
    quietly,
    remembered,
    remembering_now,
    run,
    wait_made,
)
from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_terminal import CTRL_D, terminal
from tests.program.world import MODEL, World, wait_until
from tests.tui.terminals import full_screen


@pytest.fixture(autouse=True)
def auto(world: World) -> Iterator[None]:
    world.environment |= {"STENO_MEMORY_DISTILL": "auto", "STENO_MEMORY_REST_S": "0"}
    yield
    for process in remembering_now(world):
        os.kill(process, signal.SIGKILL)


@pytest.mark.promise(33)
def test_a_session_is_distilled_after_it_was_left_and_no_message_comes_of_it(
    world: World, server: ModelServer
) -> None:
    distils(server, GOOD)
    assert chat(world, *LINES) < LEFT_S
    id = world.only_session()
    before = world.show(id)
    wait_made(world, id)
    (distilled,) = made(world, id)
    assert (distilled.after, distilled.title, distilled.summary) == (
        0,
        "Tea and ports",
        "They met.",
    )
    assert helpers(world, id) == ["done"]
    after = world.show(id)
    assert [after[view] for view in ("id", "title", "turns", "messages")] == [
        before[view] for view in ("id", "title", "turns", "messages")
    ]
    (request,) = distillations(server)
    assert "#3 user: my name is Ada" in json.dumps(request)
    last = [request for request in server.requests if not is_distillation(request)][-1]
    world.steno("run", "again", "--session", id)
    assert server.requests[-1]["messages"][: len(last["messages"])] == last["messages"]
    assert [
        message["content"] for message in server.requests[-1]["messages"][len(last["messages"]) :]
    ] == [
        "ok",
        "again",
    ]
    assert [
        (one["session"], one["kind"], one["text"], one["seqs"]) for one in remembered(world)
    ] == [
        (id, "fact", TEA, [3]),
        (id, "fact", PORT, [3]),
    ]


def starts_nobody(world: World) -> None:
    """The next start finds nothing to do: `remember` itself, in this very process, asks nobody."""
    world.steno("remember")
    assert not (world.home / "detached").exists()


def test_few_turns_and_the_switches_give_no_request(world: World, server: ModelServer) -> None:
    distils(server, GOOD)
    chat(world, *LINES[:4])
    run(world, *LINES[:4], name="short")
    starts_nobody(world)
    talked = quietly(world, *LINES)
    for switch in (
        {"STENO_MEMORY_DISTILL": "off"},
        {"STENO_MEMORY_ENABLED": "false"},
        {"STENO_MEMORY_MODEL": "local:smollm2"},
    ):
        kept, world.environment = world.environment, world.environment | switch
        chat(world, "hi")
        starts_nobody(world)
        world.environment = kept
    world.environment["STENO_MEMORY_DISTILL"] = "chat"
    program = run(world, *LINES, "and more")
    wait_made(world, talked)
    world.steno("remember")
    assert made(world, program) == []
    assert len(distillations(server)) == 1


@pytest.mark.promise(33)
@pytest.mark.parametrize("last", ["run", "retry", "continue"])
@pytest.mark.suite("run", "continue")
def test_a_session_of_a_program_is_distilled_after_its_last_command(
    world: World, server: ModelServer, last: str
) -> None:
    distils(server, GOOD)
    id = run(world, *LINES[:4])
    if last == "retry":
        server.choose, server.replies = None, [Reply(status=400)]
        world.steno("run", "goodbye", "--key", "program", expect=1)
        distils(server, GOOD)
    elif last == "continue":
        with BlockingStore(world.home / "store.db") as store:
            store.admit(Admission(input=InputAdmitted((Text("goodbye"),), "test"), session=id))
    world.steno(last, *(("goodbye", "--key", "program") if last == "run" else (id,)))
    before = world.show(id)
    wait_made(world, id)
    after = world.show(id)
    assert [after[view] for view in ("title", "turns", "messages")] == [
        before[view] for view in ("title", "turns", "messages")
    ]
    assert len(distillations(server)) == 1
    assert [one["text"] for one in remembered(world)] == [TEA, PORT]
    wait_until(lambda: remembering_now(world) == [], "the end of the process in the background")


def test_a_session_of_the_library_is_distilled_by_whoever_starts_next(
    world: World, server: ModelServer
) -> None:
    """Its model is its program's own, so the one that is configured is asked."""
    distils(server, GOOD)
    world.home.mkdir()
    with steno.open(world.home / "store.db") as chats:
        talk = chats.session("bot")
        for line in LINES:
            talk.say(line)
            with talk.reply(model="my-own") as reply:
                reply.write("ok")
    id = world.only_session()
    world.steno("run", "hi")
    wait_made(world, id)


def test_a_helpers_session_is_not_distilled(world: World, server: ModelServer) -> None:
    server.replies = [
        Reply(tools=(("delegate", '{"prompt": "count"}'),)),
        Reply(("3",)),
        Reply(("done",)),
    ]
    world.steno("run", "hello", "--yes")
    helper = next(one["id"] for one in world.sessions() if one["platform"] == "delegate")
    distils(server, GOOD)
    world.environment["STENO_MEMORY_DISTILL"] = "off"
    for line in LINES:
        world.steno("run", line, "--session", helper)
    world.environment["STENO_MEMORY_DISTILL"] = "auto"
    world.steno("run", "hi")
    starts_nobody(world)
    assert distillations(server) == []


def test_a_program_that_goes_on_and_on_is_not_distilled_before_it_rests(
    world: World, server: ModelServer
) -> None:
    """One process waits for that, however many runs there are."""
    world.environment["STENO_MEMORY_REST_S"] = "3600"
    distils(server, GOOD)
    id = run(world, *LINES, *LINES)
    (waiting,) = remembering_now(world)
    wait_until(lambda: len(stores_open(world)) == 1, "that it looks")
    time.sleep(0.5)
    assert distillations(server) == []
    run(world, "more")
    assert remembering_now(world) == [waiting]
    os.kill(waiting, signal.SIGTERM)
    wait_until(lambda: remembering_now(world) == [], "its end")
    world.environment["STENO_MEMORY_REST_S"] = "0"
    world.steno("run", "hi")
    wait_made(world, id)
    (one,) = made(world, id)
    assert (one.after, len(distillations(server)), helpers(world, id)) == (0, 1, ["done"])
    assert one.upto >= world.messages(id)[-1]["seq"]


def stores_open(world: World) -> list[str]:
    """Who has the store open, by the locks that it holds."""
    held = {file.name for file in (world.home / "store.db-locks").iterdir()}
    return sorted(held - {"open", "made", "turn"})


@pytest.mark.promise(33)
def test_after_a_kill_the_next_start_distils(world: World, server: ModelServer) -> None:
    distils(server, GOOD)
    program = subprocess.Popen(
        [sys.executable, "-m", "steno"],
        env=world.environment,
        cwd=world.work,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert program.stdin is not None
    program.stdin.write("".join(f"{line}\n" for line in LINES).encode())
    program.stdin.flush()
    wait_until(lambda: len(server.requests) == len(LINES), "the last turn")
    wait_until(lambda: world.sessions()[0]["turns"] == len(LINES), "its end")
    program.send_signal(signal.SIGKILL)
    program.communicate()
    id = world.only_session()
    assert made(world, id) == []
    chat(world)
    wait_made(world, id)


@pytest.mark.promise(33)
def test_what_is_due_is_distilled_when_the_end_of_the_session_cannot_be_stored(
    world: World, server: ModelServer
) -> None:
    distils(server, GOOD)
    chat(world, *LINES, script="failing_at_the_end.py")
    id = world.only_session()
    wait_made(world, id)
    assert [one["text"] for one in remembered(world)] == [TEA, PORT]


def test_leaving_takes_no_time_while_the_model_hangs(world: World, server: ModelServer) -> None:
    distils(server, HANGS)
    assert chat(world, *LINES) < LEFT_S
    id = world.only_session()
    wait_until(lambda: len(distillations(server)) == 1, "the request")
    server.choose = None
    began_s = time.monotonic()
    assert world.steno("run", "quick", "--session", id) == "ok\n"
    assert time.monotonic() - began_s < 3.0
    assert helpers(world, id) == ["stopped"]
    assert made(world, id) == []


def test_a_session_whose_terminal_stays_open_is_distilled_when_nobody_uses_it(
    world: World, server: ModelServer
) -> None:
    world.environment["STENO_LIMITS_CHAT_IDLE_S"] = "0.5"
    distils(server, GOOD)
    install(world)
    with terminal(world, "--plain") as talking:
        for number, line in enumerate(LINES, start=1):
            talking.wait_seen("you> ", number)
            talking.type(f"{line}\n")
        talking.wait_seen("this visit has ended")
        id = world.only_session()
        wait_made(world, id)
        assert talking.process.poll() is None
        assert told(world)[-1] | {"key": ""} == {
            "session_id": id,
            "completed": True,
            "interrupted": False,
            "model": MODEL,
            "platform": "chat",
            "reason": "idle",
            "key": "",
        }
        talking.type("anybody?\n")
        talking.wait_seen("this visit has ended", 2)
        talking.type(CTRL_D)
        assert talking.end() == 0
    assert [one["reason"] for one in told(world)] == ["idle", "idle"]


def test_a_session_that_another_one_takes_the_place_of_is_distilled(
    world: World, server: ModelServer
) -> None:
    distils(server, GOOD)
    with full_screen(world) as talking:
        for line in LINES:
            talking.wait_seen("○ ready")
            talking.type(f"{line}\r")
        talking.wait_seen("○ ready")
        wait_until(
            lambda: [one["turns"] for one in world.sessions()] == [len(LINES)], "the last turn"
        )
        talking.type("\x0e")  # Ctrl-N
        id = world.only_session()
        wait_made(world, id)
        assert talking.process.poll() is None
