"""What a session is for: told with every request, the same before and after a summary, a restart
and a fork."""

import json

import pytest

import steno
from steno.journal.facts import GoalSet
from tests.program.model_server import ModelServer
from tests.program.test_cli_views import complaint
from tests.program.test_compaction import Talk
from tests.program.world import World

GOAL = "Port the parser to Rust"


def told(server: ModelServer) -> str:
    """The system prompt of the last request."""
    return str(server.requests[-1]["messages"][0]["content"])


@pytest.mark.promise(32)
def test_a_goal_is_told_with_every_request_until_it_is_taken_away(
    world: World, server: ModelServer
) -> None:
    world.steno("run", "hi", "--key", "k")
    id = world.only_session()
    assert GOAL not in told(server)
    world.steno("goal", id, GOAL)
    assert (world.steno("goal", id), world.show(id)["goal"]) == (f"{GOAL}\n", GOAL)
    assert f"goal: {GOAL}" in world.steno("show", id)
    for prompt in ("one", "two"):
        world.steno("run", prompt, "--key", "k")
        assert told(server).endswith(f"The goal of this session, set by the user:\n{GOAL}")
    assert server.bodies[-1].startswith(
        server.bodies[-2][: server.bodies[-2].index(b'"content":"one"')]
    )
    world.steno("goal", id, "--none")
    world.steno("run", "three", "--key", "k")
    assert GOAL not in json.dumps(server.requests[-1])
    assert world.show(id)["goal"] is None
    assert [message["text"] for message in world.messages(id, "user")] == [
        "hi",
        "one",
        "two",
        "three",
    ]


@pytest.mark.promise(25, 32)
def test_goal_model_name_and_rules_are_the_same_after_three_summaries_and_a_restart(
    world: World, server: ModelServer
) -> None:
    talk = Talk(world, server)
    world.steno("run", "prompt 00", "--key", "ticket-7", "--model", "openai-chat:chosen")
    talk.id, talk.said = world.only_session(), ["prompt 00"]
    world.steno("goal", talk.id, GOAL)
    world.steno("rules", talk.id, "--deny", "shell:rm*", "--allow", "write_file")
    world.steno("rename", talk.id, "my title")
    kept = ("id", "title", "goal", "rules", "approvals")
    before = {name: world.show(talk.id)[name] for name in kept}
    talk.say_until_compacted(3)
    assert {name: world.show(talk.id)[name] for name in kept} == before
    (listed,) = world.sessions()
    assert (listed["model"], listed["name"]) == ("openai-chat:chosen", "ticket-7")
    world.steno("run", "the last one", "--key", "ticket-7")
    assert server.requests[-1]["model"] == "chosen"
    assert GOAL in told(server)
    for request in talk.summary_requests():
        assert GOAL not in json.dumps(request), "a goal is not something that was said"


@pytest.mark.promise(32, 58)
def test_a_fork_has_its_parents_goal_and_may_get_another(world: World, server: ModelServer) -> None:
    world.steno("run", "hi", "--key", "k")
    id = world.only_session()
    world.steno("goal", id, GOAL)
    world.steno("run", "more", "--key", "k")
    fork = world.steno("fork", id, "--at", str(world.messages(id)[-1]["seq"])).strip()
    world.steno("run", "go on", "--session", fork)
    assert GOAL in told(server)
    world.steno("goal", fork, "another")
    assert (world.show(id)["goal"], world.show(fork)["goal"]) == (GOAL, "another")


@pytest.mark.promise(60)
def test_a_redacted_goal_is_gone_from_every_file(world: World, server: ModelServer) -> None:
    world.steno("run", "hi", "--key", "k")
    id = world.only_session()
    world.steno("goal", id, "the word is hunter2secret")
    world.steno("run", "more", "--key", "k")
    with steno.open(world.home / "store.db") as library:
        (at,) = (
            record.seq for record in library.store.read_all(id) if isinstance(record.fact, GoalSet)
        )
    told_in = (
        complaint_of(world, "redact", id, "--seq", str(at), "--yes")
        .split(f"redact {id} ")[1]
        .split()[0]
    )
    world.steno("redact", id, "--seq", told_in, "--yes")
    for file in world.home.glob("store.db*"):
        if file.is_file():
            assert b"hunter2secret" not in file.read_bytes()
    world.steno("run", "and now?", "--key", "k")
    assert "hunter2secret" not in json.dumps(server.requests[-1])


def complaint_of(world: World, *words: str) -> str:
    with world.start(*words) as program:
        assert program.end() == 0
        return program.errors()


def test_an_empty_goal_is_refused(world: World, server: ModelServer) -> None:
    world.steno("run", "hi")
    id = world.only_session()
    assert "has no goal" in world.steno("goal", id)
    assert "--none" in complaint(world, "goal", id, " ", expect=2)
