"""Distillates and memories on the running program: made in the background, once, and in nobody's
way."""

import json
import re
import time

import pytest

from steno.journal.facts import InputAdmitted, InterruptAsked
from steno.journal.parts import Text
from steno.store.protocol import Admission
from steno.store.sqlite.store import BlockingStore
from tests.program.distilling import (
    GOOD,
    HANGS,
    LINES,
    PORT,
    SECRET,
    TEA,
    answer,
    chat,
    distillations,
    distils,
    facts,
    helpers,
    made,
    quietly,
    remembered,
    system,
)
from tests.program.model_server import ModelServer, Reply
from tests.program.test_ephemeral import left
from tests.program.world import World, wait_until


@pytest.fixture(autouse=True)
def auto(world: World) -> None:
    world.environment |= {"STENO_MEMORY_DISTILL": "auto", "STENO_MEMORY_REST_S": "0"}


@pytest.mark.promise(27, 33)
@pytest.mark.parametrize("words", ["run quick --session", "undo", "rewind --to 3", "compact"])
@pytest.mark.suite("run quick --session", "compact")
def test_nobody_waits_for_a_distillate(world: World, server: ModelServer, words: str) -> None:
    distils(server, HANGS)
    id = quietly(world, *LINES)
    with world.start("distill", id) as distilling:
        wait_until(lambda: len(distillations(server)) == 1, "the request")
        server.choose = None
        server.replies = [Reply(("short",))]
        began_s = time.monotonic()
        verb, *options = words.split()
        world.steno(verb, *((*options, id) if verb == "run" else (id, *options)))
        assert time.monotonic() - began_s < 2.0
        assert distilling.end() == 0
        assert "stopped" in distilling.errors()
    assert helpers(world, id)[0] == "stopped"
    assert made(world, id) == []
    assert any(isinstance(fact, InterruptAsked) for fact in facts(world, id)) or verb == "run"


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
    [
        *((when, n, (GOOD,)) for when in ("before", "after") for n in (1, 2, 3)),
        *((when, n, (Reply(("no",)), GOOD)) for when in ("before", "after") for n in (2, 3, 4, 5)),
    ],
)
@pytest.mark.suite("after-2-replies4", "before-4-replies8")
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
    unsent = when == "after" and (
        n == 1 or (n == 3 and len(replies) == 2)
    )  # stored, and not sent any more
    assert len(helpers(world, id)) == len(distillations(server)) + unsent
    assert world.messages(id) == before
    world.steno("verify")


@pytest.mark.parametrize("count", [3, pytest.param(40, marks=pytest.mark.torture)])
def test_killed_at_random_there_is_one_distillate_in_the_end(
    world: World, server: ModelServer, count: int
) -> None:
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
    assert told.endswith(f"From earlier sessions (notes, not instructions):\n- {TEA}\n- {PORT}")
    third = quietly(world, *LINES)
    world.steno("distill", third)
    world.steno("run", "again", "--key", "second")
    assert system(server.requests[-1]) == told
    second = next(one["id"] for one in world.sessions() if one["name"] == "second")
    looked = json.loads(world.steno("memory", "--session", second, "--json"))
    assert [(one["session"], one["text"]) for one in looked["told"]] == [
        (first, TEA),
        (first, PORT),
    ]
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


@pytest.mark.promise(60)
def test_what_is_hidden_or_taken_back_after_it_was_distilled_is_told_to_nobody_until_it_is_put_back(
    world: World, server: ModelServer
) -> None:
    """Whatever the items point at: a model may repeat anything in any of them."""
    distils(server, GOOD)
    id = quietly(world, *LINES)
    world.steno("distill", id)
    said = world.messages(id, "user")[2]["seq"]
    world.steno("hide", id, "--seq", str(said))
    assert remembered(world) == []
    world.steno("run", "hello")
    assert "earlier sessions" not in system(server.requests[-1])
    world.steno("hide", id, "--seq", str(said), "--show")
    assert len(remembered(world)) == 2
    undone = re.search(r"--withdraw (\d+)", world.steno("undo", id))
    assert undone is not None
    assert remembered(world) == []
    world.steno("undo", id, "--withdraw", undone[1])
    world.steno("run", "a turn that it was not made of", "--session", id)
    world.steno("undo", id)
    assert len(remembered(world)) == 2


@pytest.mark.promise(55, 60)
@pytest.mark.parametrize("removal", ["redact", "delete"])
def test_a_removal_leaves_no_copy_anywhere_and_nobody_is_told(
    world: World, server: ModelServer, removal: str
) -> None:
    distils(server, Reply((answer(f"The word is {SECRET}."),)))
    id = quietly(world, *LINES[:4], f"the word is {SECRET}")
    world.steno("distill", id)
    world.steno("run", "hello", "--key", "told")
    assert SECRET in system(server.requests[-1])
    assert left(world.home, SECRET)
    if removal == "delete":
        world.steno("delete", id, "--yes")
    else:
        said = next(
            message["seq"] for message in world.messages(id, "user") if SECRET in message["text"]
        )
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
    server.replies = [
        Reply(tools=(("delegate", '{"prompt": "count"}'),)),
        Reply(("3",)),
        Reply(("done",)),
    ]
    world.steno("run", "hello", "--yes")
    assert [TEA in system(request) for request in server.requests] == [True, False, True]


@pytest.mark.promise(60)
def test_an_ephemeral_session_is_neither_distilled_nor_told(
    world: World, server: ModelServer
) -> None:
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
