"""Another model answers in the place of the session's own: what was shown is what is stored,
nothing is said twice."""

import json
from pathlib import Path
from typing import Any

import pytest

from steno.journal.facts import Compacted
from tests.models.rules import check
from tests.program.model_server import SIGNED, ModelServer, Reply
from tests.program.test_compaction import FILLER, Talk, is_summary
from tests.program.world import World, wait_until

OTHER, LAST = "openai-chat:other", "openai-chat:last"


@pytest.fixture
def world(tmp_path: Path, server: ModelServer) -> World:
    world = World(tmp_path, server.url)
    world.environment |= {
        "STENO_MODEL_FALLBACK": f"{OTHER},{LAST}",
        "STENO_LIMITS_ATTEMPTS_MAX": "1",
    }
    return world


def asked(server: ModelServer) -> list[str]:
    return [str(request["model"]) for request in server.requests]


def by_model(**replies: Reply) -> Any:
    return lambda request: replies[request["model"]]


def answers(world: World) -> list[tuple[str, str, str | None]]:
    found = world.messages(world.only_session(), "assistant")
    return [(message["text"], message["state"], message["model"]) for message in found]


@pytest.mark.promise(8)
@pytest.mark.promise(9)
@pytest.mark.promise(32)
def test_the_next_model_answers_what_the_first_does_not_for_the_rest_of_the_turn(
    world: World, server: ModelServer
) -> None:
    server.choose = by_model(
        test=Reply(status=503), other=Reply(status=401), last=Reply(("from the ", "last"))
    )
    with world.start("run", "hello", "--key", "k") as program:
        assert program.end() == 0
        assert program.shown() == "from the last\n"
        told = program.errors()
    assert f"[{OTHER} answers the rest of this turn instead of openai-chat:test]" in told
    assert f"[{LAST} answers the rest of this turn instead of openai-chat:test]" in told
    assert asked(server) == ["test", "other", "last"]
    lost = [("", "lost", "openai-chat:test"), ("", "lost", OTHER)]
    assert answers(world) == [*lost, ("from the last", "complete", LAST)]
    assert [(one["model"], one["fallback"]) for one in world.sessions()] == [
        ("openai-chat:test", LAST)
    ]
    server.choose = by_model(test=Reply(("the first again",)))
    assert world.steno("run", "and now?", "--key", "k") == "the first again\n"
    assert asked(server)[3:] == ["test"]
    assert [(one["model"], one["fallback"]) for one in world.sessions()] == [
        ("openai-chat:test", None)
    ]


@pytest.mark.promise(9)
@pytest.mark.promise(10)
def test_after_text_that_broke_off_the_next_model_goes_on_and_what_is_printed_is_what_is_stored(
    world: World, server: ModelServer
) -> None:
    tool = Reply(("First I look. ",), tools=(("shell", '{"command": "echo looked"}'),))
    server.replies = [
        tool,
        Reply(("Once upon",), then="close"),
        Reply(status=503),
        Reply((" a time.",)),
    ]
    lines = world.steno("run", "a story", "--yes", "--output", "ndjson").splitlines()
    told = [json.loads(line) for line in lines]
    shown = [one["text"] for one in told if one["type"] == "text"]
    assert "".join(shown) == "First I look. Once upon a time."
    assert "".join(text for text, _, _ in answers(world)) == "".join(shown)
    assert asked(server) == ["test", "test", "test", "other"]
    [taken_over] = [one for one in told if one["type"] == "fallback"]
    assert (taken_over["model"], taken_over["instead_of"]) == (OTHER, "openai-chat:test")
    last = server.requests[-1]["messages"]
    assert json.dumps(last).count("Once upon") == 1
    assert any(message["role"] == "tool" and "looked" in message["content"] for message in last)
    assert "Go on exactly where it stopped" in last[-1]["content"]
    for request in server.requests:
        check("openai-chat", request)


@pytest.mark.promise(20)
@pytest.mark.promise(34)
def test_after_a_kill_while_the_fallback_answers_the_next_turn_begins_with_the_first_model(
    world: World, server: ModelServer
) -> None:
    server.choose = by_model(test=Reply(status=503), other=Reply(("half an ",), then="hang"))
    with world.start("run", "hello", "--key", "k") as program:
        program.wait_shown("half an ")
        assert program.kill() == "half an "
    assert answers(world)[-1] == ("half an ", "interrupted", OTHER)
    assert world.show(world.only_session())["turns"][-1]["cause"] == "killed"
    server.choose = by_model(test=Reply(("answer",)))
    assert world.steno("run", "go on", "--key", "k") == "answer\n"
    assert asked(server) == ["test", "other", "test"]
    assert "was cut off (killed)" in json.dumps(server.requests[-1]["messages"])
    check("openai-chat", server.requests[-1])


@pytest.mark.promise(44)
def test_what_one_provider_signed_is_not_sent_to_the_fallback_and_comes_back_to_the_first(
    tmp_path: Path, server: ModelServer
) -> None:
    world = World(tmp_path, server.url, "anthropic:first")
    world.environment |= {"STENO_MODEL_FALLBACK": OTHER, "STENO_LIMITS_ATTEMPTS_MAX": "1"}
    answering = Reply(("seen",), thought="hm", tools=(("shell", '{"command": "true"}'),))
    server.replies = [answering, Reply(status=529), Reply(("done",)), Reply(("again",))]
    assert world.steno("run", "look", "--yes", "--key", "k") == "seendone\n"
    assert world.steno("run", "more", "--key", "k") == "again\n"
    assert [SIGNED in json.dumps(request) for request in server.requests] == [
        False,
        True,
        False,
        True,
    ]
    for request, kind in zip(
        server.requests, ("anthropic", "anthropic", "openai-chat", "anthropic"), strict=True
    ):
        check(kind, request)


def test_a_turn_that_no_model_answers_fails_with_the_last_cause_and_can_be_stopped(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(status=503)]
    world.steno("run", "hello", expect=1)
    assert asked(server) == ["test", "other", "last"]
    server.requests.clear()
    server.replies = [Reply(status=503), Reply(then="hang")]
    with world.start("run", "again", "--key", "k") as program:
        wait_until(lambda: len(server.requests) == 2, "the fallback to be asked")
        [session] = [one["id"] for one in world.sessions() if one["name"] == "k"]
        world.steno("interrupt", session)
        assert program.end() == 130
    assert asked(server) == ["test", "other"]


def test_a_fallback_that_cannot_be_used_is_refused_before_anything_is_stored(
    world: World, server: ModelServer
) -> None:
    for spec in ("codex:x", "nonsense"):
        world.environment["STENO_MODEL_FALLBACK"] = spec
        with world.start("run", "hello") as program:
            assert program.end() == 2
            assert "STENO_MODEL_FALLBACK" in program.errors()
    assert world.sessions() == []
    assert server.requests == []


@pytest.mark.promise(31)
@pytest.mark.promise(32)
def test_where_the_sessions_own_model_makes_no_summary_the_next_one_makes_it_and_answers(
    world: World, server: ModelServer
) -> None:
    talk = Talk(world, server)
    talk.say_until_nearly_full()

    def choose(request: dict[str, Any]) -> Reply:
        if not is_summary(request):
            return Reply(("answer",), usage=False)
        return (
            Reply(status=503)
            if request["model"] == "test"
            else Reply(("They spoke.",), usage=False)
        )

    server.choose = choose
    server.requests.clear()
    assert world.steno("run", f"long {FILLER * 3}", "--session", talk.id) == "answer\n"
    assert asked(server)[0] == "test"
    assert set(asked(server)[1:]) == {"other"}, "it makes the summary and answers"
    assert [compacted.model for compacted in talk.facts(Compacted)] == [OTHER]
    (listed,) = world.sessions()
    assert (listed["model"], listed["fallback"]) == ("openai-chat:test", OTHER)
    assert world.steno("run", "short", "--session", talk.id) == "answer\n"
    assert asked(server)[-1] == "test"
