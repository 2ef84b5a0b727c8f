"""Distillates and memories on the running program: made in the background, once, and in nobody's way."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from steno.journal.distillates import Distilled
from steno.journal.facts import AnyFact, HelperEnded, HelperStarted, InputAdmitted, InterruptAsked
from steno.journal.parts import Text
from steno.store.protocol import Admission
from steno.store.sqlite.blocking import BlockingStore
from tests.program.model_server import ModelServer, Reply
from tests.program.test_ephemeral import left
from tests.program.world import WAIT_S, World, wait_until
from tests.rotating import rotating

LINES = ("my name is Ada", "I like tea", "the port is 8080", "what else?", "goodbye")
TEA, PORT, SECRET = "Ada likes tea.", "The port is 8080.", "swordfish-ä☃-4711"


def answer(*facts: str, seqs: tuple[int, ...] = (3,)) -> str:
    """What a model says of a session."""
    found = [{"text": text, "seqs": seqs} for text in facts]
    return json.dumps(
        {"title": "Tea and ports", "summary": "They met.", "decisions": [], "open": [], "facts": found},
        ensure_ascii=False,
    )


GOOD = Reply((answer(TEA, PORT),))
HANGS = Reply(("{",), then="hang")
LEFT_S = 3.0
"""A third of a second where nothing else runs, with a distillation or without. What hangs here hangs for an hour."""


def is_distillation(request: dict[str, Any]) -> bool:
    return "worth keeping" in json.dumps(request["messages"][0])


def distillations(server: ModelServer) -> list[dict[str, Any]]:
    return [request for request in server.requests if is_distillation(request)]


def distils(server: ModelServer, *replies: Reply) -> None:
    """Answers to requests for a distillate, in order; the last one is repeated. All else is answered with ok."""

    def choose(request: dict[str, Any]) -> Reply:
        if not is_distillation(request):
            return Reply(("ok",))
        return replies[min(len(distillations(server)), len(replies) - 1)]

    server.choose = choose


@pytest.fixture(autouse=True)
def auto(world: World) -> None:
    world.environment["STENO_MEMORY_DISTILL"] = "auto"


def chat(world: World, *lines: str, words: tuple[str, ...] = (), program: tuple[str, ...] = ("-m", "steno")) -> float:
    """Type lines into the chat, to its end; how long it took to leave after the last answer."""
    chatting = subprocess.Popen(
        [sys.executable, *program, *words],
        env=world.environment,
        cwd=world.work,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert chatting.stdin is not None
    assert chatting.stdout is not None
    seen = b""
    for number, line in enumerate(lines, start=1):
        chatting.stdin.write(line.encode() + b"\n")
        chatting.stdin.flush()
        while seen.count(b"you> ") < number + 1:
            seen += os.read(chatting.stdout.fileno(), 65_536)
    left_s = time.monotonic()
    chatting.communicate(timeout=WAIT_S)
    assert chatting.returncode == 0
    return time.monotonic() - left_s


def quietly(world: World, *lines: str) -> str:
    """A session of the chat that nobody has distilled; its id."""
    world.environment["STENO_MEMORY_DISTILL"] = "off"
    chat(world, *lines)
    world.environment["STENO_MEMORY_DISTILL"] = "auto"
    return str(world.sessions()[0]["id"])


def facts(world: World, id: str) -> list[AnyFact]:
    with BlockingStore(world.home / "store.db") as store:
        return [record.fact for record in store.read_all(id)]


def made(world: World, id: str) -> list[Distilled]:
    return [fact for fact in facts(world, id) if isinstance(fact, Distilled)]


def helpers(world: World, id: str) -> list[str]:
    """How each call for a distillate ended."""
    stored = facts(world, id)
    started = {seq: "open" for seq, fact in enumerate(stored, start=1) if isinstance(fact, HelperStarted)}
    for fact in stored:
        if isinstance(fact, HelperEnded):
            started[fact.started] = fact.outcome
    return list(started.values())


def remembered(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(world.steno("memory", "--json"))
    return found


def system(request: dict[str, Any]) -> str:
    return str(request["messages"][0]["content"])


def wait_made(world: World, id: str, count: int = 1) -> None:
    wait_until(lambda: len(made(world, id)) == count, f"{count} distillate(s)")


@pytest.mark.promise(33)
def test_a_session_is_distilled_after_it_was_left_and_no_message_comes_of_it(world: World, server: ModelServer) -> None:
    distils(server, GOOD)
    assert chat(world, *LINES) < LEFT_S
    id = world.only_session()
    before = world.show(id)
    wait_made(world, id)
    (distilled,) = made(world, id)
    assert (distilled.after, distilled.title, distilled.summary) == (0, "Tea and ports", "They met.")
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
    assert [message["content"] for message in server.requests[-1]["messages"][len(last["messages"]) :]] == [
        "ok",
        "again",
    ]
    assert [(one["session"], one["kind"], one["text"], one["seqs"]) for one in remembered(world)] == [
        (id, "fact", TEA, [3]),
        (id, "fact", PORT, [3]),
    ]


def test_few_turns_programs_and_the_switch_give_no_request(world: World, server: ModelServer) -> None:
    distils(server, GOOD)
    chat(world, *LINES[:4])
    quietly(world, *LINES)
    world.environment["STENO_MEMORY_ENABLED"] = "false"
    chat(world, "hi")
    world.environment |= {"STENO_MEMORY_ENABLED": "true", "STENO_MEMORY_MODEL": "local:smollm2"}
    chat(world, "hi")
    del world.environment["STENO_MEMORY_MODEL"]
    for line in LINES:
        world.steno("run", line, "--key", "program")
    time.sleep(0.5)
    assert distillations(server) == []


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
    chat(world, *LINES, program=(str(Path(__file__).with_name("failing_at_the_end.py")),))
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


@pytest.mark.promise(27, 33)
@pytest.mark.parametrize(
    "words",
    [("run", "quick", "--session"), ("undo",), ("rewind", "--to", "3"), ("compact",)],
    ids=lambda words: words[0],
)
def test_nobody_waits_for_a_distillate(world: World, server: ModelServer, words: tuple[str, ...]) -> None:
    distils(server, HANGS)
    id = quietly(world, *LINES)
    with world.start("distill", id) as distilling:
        wait_until(lambda: len(distillations(server)) == 1, "the request")
        server.choose = None
        server.replies = [Reply(("short",))]
        began_s = time.monotonic()
        world.steno(*(words if words[0] == "run" else words[:1]), id, *(() if words[0] == "run" else words[1:]))
        assert time.monotonic() - began_s < 2.0
        assert distilling.end() == 0
        assert "stopped" in distilling.errors()
    assert helpers(world, id)[0] == "stopped"
    assert made(world, id) == []
    assert any(isinstance(fact, InterruptAsked) for fact in facts(world, id)) or words[0] == "run"


def test_an_input_alone_stops_a_distillation(world: World, server: ModelServer) -> None:
    """Nobody has come to run it yet: whoever does finds the session free."""
    distils(server, HANGS)
    id = quietly(world, *LINES)
    with world.start("distill", id) as distilling:
        wait_until(lambda: len(distillations(server)) == 1, "the request")
        with BlockingStore(world.home / "store.db") as store:
            store.admit(Admission(input=InputAdmitted((Text("quick"),), "test"), session=id))
            assert distilling.end() == 0
            assert store.running(id) is None
    assert helpers(world, id) == ["stopped"]


def test_whoever_distils_leaves_another_one_alone(world: World, server: ModelServer) -> None:
    distils(server, HANGS)
    id = quietly(world, *LINES)
    with world.start("distill", id) as first:
        wait_until(lambda: len(distillations(server)) == 1, "the request")
        world.steno("remember")
        world.steno("distill", id, expect=1)
        assert helpers(world, id) == ["open"]
        assert first.process.poll() is None
    assert len(distillations(server)) == 1


def test_several_processes_make_one_distillate(world: World, server: ModelServer) -> None:
    id = quietly(world, *LINES)
    distils(server, Reply((*answer(TEA),), delay_s=0.005))
    programs = [world.start("remember") for _ in range(4)]
    for program in programs:
        with program:
            assert program.end() == 0
    assert len(distillations(server)) == 1
    assert len(made(world, id)) == 1
    assert helpers(world, id) == ["done"]


@pytest.mark.promise(8, 33)
@pytest.mark.parametrize(
    ("when", "n", "replies"),
    rotating(
        [
            *((when, n, (GOOD,)) for when in ("before", "after") for n in (1, 2, 3)),
            *((when, n, (Reply(("no",)), GOOD)) for when in ("before", "after") for n in (2, 3, 4, 5)),
        ],
        3,
    ),
)
def test_killed_at_any_fact_there_is_one_distillate_in_the_end(
    world: World, server: ModelServer, when: str, n: int, replies: tuple[Reply, ...]
) -> None:
    distils(server, *replies)
    id = quietly(world, *LINES)
    before = world.messages(id)
    with world.start_dying(when, n, "distill", id) as program:
        program.end()
    assert len(made(world, id)) <= 1
    world.steno("distill", id, expect=None)
    world.steno("distill", id, expect=None)
    assert len(made(world, id)) == 1
    assert "open" not in helpers(world, id)
    unsent = when == "after" and (n == 1 or (n == 3 and len(replies) == 2))  # stored, and not sent any more
    assert len(helpers(world, id)) == len(distillations(server)) + unsent
    assert world.messages(id) == before
    world.steno("verify")


@pytest.mark.parametrize("count", [3, pytest.param(40, marks=pytest.mark.torture)])
def test_killed_at_random_there_is_one_distillate_in_the_end(world: World, server: ModelServer, count: int) -> None:
    id = quietly(world, *LINES)
    distils(server, Reply((*answer(TEA),), delay_s=0.002))
    for number in range(count):
        with world.start("distill", id) as program:
            time.sleep(0.2 + 0.4 * (number * 7 % count) / count)
            program.kill()
        assert len(made(world, id)) <= 1
    world.steno("distill", id)
    assert len(made(world, id)) == 1
    assert "open" not in helpers(world, id)
    assert len(distillations(server)) <= len(helpers(world, id))
    world.steno("verify")


def test_an_answer_that_cannot_be_used_is_asked_for_once_more_and_then_given_up(
    world: World, server: ModelServer
) -> None:
    distils(server, Reply(("no",)))
    id = quietly(world, *LINES)
    before = world.messages(id)
    world.steno("distill", id, expect=1)
    assert helpers(world, id) == ["failed", "failed"]
    assert (made(world, id), world.messages(id)) == ([], before)
    chat(world)
    time.sleep(0.5)
    assert len(distillations(server)) == 2


def test_a_provider_that_fails_is_recorded(world: World, server: ModelServer) -> None:
    distils(server, Reply(status=500))
    id = quietly(world, *LINES)
    world.steno("distill", id, expect=1)
    assert helpers(world, id) == ["failed"]
    assert len(distillations(server)) == 1


@pytest.mark.promise(40)
def test_a_new_session_is_told_and_stays_told_the_same(world: World, server: ModelServer) -> None:
    distils(server, GOOD, Reply((answer("Cups are blue."),)))
    first = quietly(world, *LINES)
    world.steno("distill", first)
    world.steno("run", "hello", "--key", "second")
    told = system(server.requests[-1])
    assert told.endswith(f"From earlier sessions:\n- {TEA}\n- {PORT}")
    third = quietly(world, *LINES)
    world.steno("distill", third)
    world.steno("run", "again", "--key", "second")
    assert system(server.requests[-1]) == told
    second = next(one["id"] for one in world.sessions() if one["name"] == "second")
    looked = json.loads(world.steno("memory", "--session", second, "--json"))
    assert [(one["session"], one["text"]) for one in looked["told"]] == [(first, TEA), (first, PORT)]
    world.steno("run", "hello")
    assert "- Cups are blue.\n" in system(server.requests[-1])


def test_the_switches_keep_a_new_session_from_being_told(world: World, server: ModelServer) -> None:
    distils(server, GOOD)
    world.steno("distill", quietly(world, *LINES))
    world.steno("run", "hello", "--no-memory")
    assert TEA not in system(server.requests[-1])
    chat(world, "hello", words=("--no-memory",))
    assert TEA not in system(server.requests[-1])
    world.environment["STENO_MEMORY_ENABLED"] = "false"
    world.steno("run", "hello")
    assert TEA not in system(server.requests[-1])
    world.environment |= {"STENO_MEMORY_ENABLED": "true", "STENO_MEMORY_ITEMS_MAX": "1"}
    world.steno("run", "hello")
    assert TEA in system(server.requests[-1])
    assert PORT not in system(server.requests[-1])


def test_what_is_removed_is_told_to_nobody(world: World, server: ModelServer) -> None:
    distils(server, GOOD)
    id = quietly(world, *LINES)
    world.steno("distill", id)
    tea, port = remembered(world)
    assert "is forgotten" in world.steno("memory", "remove", tea["name"])
    assert "was forgotten before" in world.steno("memory", "remove", tea["name"])
    assert [one["name"] for one in remembered(world)] == [port["name"]]
    world.steno("run", "hello")
    assert TEA not in system(server.requests[-1])
    assert PORT in system(server.requests[-1])
    for wrong in ("nonsense", f"{id}:1.0", f"{id}:99.0", "nobody:1.0"):
        world.steno("memory", "remove", wrong, expect=2)


@pytest.mark.promise(55, 60)
@pytest.mark.parametrize("removal", ["redact", "delete"])
def test_a_removal_leaves_no_copy_anywhere_and_nobody_is_told(world: World, server: ModelServer, removal: str) -> None:
    distils(server, Reply((answer(f"The word is {SECRET}."),)))
    id = quietly(world, *LINES[:4], f"the word is {SECRET}")
    world.steno("distill", id)
    world.steno("run", "hello", "--key", "told")
    assert SECRET in system(server.requests[-1])
    assert left(world.home, SECRET)
    if removal == "delete":
        world.steno("delete", id, "--yes")
    else:
        said = next(message["seq"] for message in world.messages(id, "user") if SECRET in message["text"])
        world.steno("redact", id, "--seq", str(said), "--yes")
    assert left(world.home, SECRET) == []
    assert remembered(world) == []
    world.steno("run", "hello")
    assert SECRET not in system(server.requests[-1])
    world.steno("run", "again", "--key", "told")
    assert SECRET not in json.dumps(server.requests[-1], ensure_ascii=False)
    world.steno("verify")


def test_a_helper_of_the_session_is_told_nothing(world: World, server: ModelServer) -> None:
    distils(server, GOOD)
    world.steno("distill", quietly(world, *LINES))
    server.choose, server.requests = None, []
    server.replies = [Reply(tools=(("delegate", '{"prompt": "count"}'),)), Reply(("3",)), Reply(("done",))]
    world.steno("run", "hello", "--yes")
    assert [TEA in system(request) for request in server.requests] == [True, False, True]


@pytest.mark.promise(60)
def test_an_ephemeral_session_is_neither_distilled_nor_told(world: World, server: ModelServer) -> None:
    distils(server, GOOD)
    chat(world, *LINES, words=("--ephemeral",))
    time.sleep(1.0)
    assert not world.home.exists()
    world.steno("distill", quietly(world, *LINES))
    server.requests.clear()
    chat(world, *LINES, words=("--ephemeral",))
    time.sleep(0.5)
    assert distillations(server) == []
    assert all(TEA not in system(request) for request in server.requests)
    assert len(world.sessions()) == 1
