"""The failures that made other runtimes lose text, double it or poison a session, each on the
running program."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from steno.journal.facts import ContextSet, InputAdmitted, SessionStarted
from steno.journal.parts import Text
from steno.models.specs import Access, ModelSettings, make
from steno.runtimes.dispatch import Dispatch
from steno.runtimes.loop import Agent, Native
from steno.session.load import Sessions
from steno.store.errors import SessionBusy
from steno.store.protocol import Admission
from steno.store.sqlite.store import BlockingStore, SqliteStore
from tests.models.rules import check
from tests.program.model_server import ModelServer, Reply
from tests.program.world import World, wait_until

KINDS = ("openai-chat", "anthropic")


def texts(world: World, role: str | None = None) -> list[str]:
    return [message["text"] for message in world.messages(world.only_session(), role)]


def occurrences(request: dict[str, Any], text: str) -> int:
    return json.dumps(request["messages"], ensure_ascii=False).count(text)


@pytest.mark.promise(1)
@pytest.mark.promise(24)
@pytest.mark.promise(41)
def test_a_message_stored_early_and_a_view_that_then_gets_shorter_hide_no_later_message(
    world: World, server: ModelServer
) -> None:
    server.replies = [
        Reply(("one",)),
        Reply(status=400),
        Reply(("three",)),
        Reply(("four",)),
        Reply(("five",)),
    ]
    world.steno("run", "first", "--key", "k")
    world.steno("run", "second, which fails", "--key", "k", expect=1)
    world.steno("run", "third", "--key", "k")
    world.steno("undo", world.only_session())
    world.steno("run", "fourth", "--key", "k")
    world.steno("run", "fifth", "--key", "k")
    assert texts(world, "user") == ["first", "second, which fails", "third", "fourth", "fifth"]
    assert texts(world, "assistant") == ["one", "", "three", "four", "five"]
    assert [
        message["content"]
        for message in server.requests[-1]["messages"]
        if message["role"] != "system"
    ] == [
        "first",
        "one",
        "fourth",
        "four",
        "fifth",
    ]


@pytest.mark.promise(21)
@pytest.mark.promise(41)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.suite("anthropic")
def test_inputs_in_a_row_that_a_provider_wants_joined_do_not_grow_over_three_turns(
    tmp_path: Path, server: ModelServer, kind: str
) -> None:
    world = World(tmp_path, server.url, f"{kind}:test")
    tool = Reply(("looking ",), tools=(("shell", '{"command": "true"}'),))
    server.replies = [reply for _ in range(3) for reply in (tool, Reply(("done",)))]
    said: list[str] = []

    def steer(_: dict[str, Any]) -> None:
        """Two people speak while the first request of each turn is under way."""
        if len(server.requests) % 2:
            with BlockingStore(world.home / "store.db") as store:
                for who in ("ann", "bob"):
                    said.append(f"{who} interjects {len(said)}")
                    input = InputAdmitted((Text(said[-1]),), "test", mode="steer")
                    store.admit(Admission(input=input, session=store.find("k")))

    server.on_request = steer
    for turn in range(3):
        world.steno("run", f"prompt {turn}", "--key", "k", "--yes")
    prompts = [f"prompt {turn}" for turn in range(3)]
    assert sorted(texts(world, "user")) == sorted(prompts + said)
    for request in server.requests:
        check(kind, request)
    for text in prompts + said:
        assert [occurrences(request, text) for request in server.requests[-1:]] == [1], text
        assert max(occurrences(request, text) for request in server.requests) == 1, text


@pytest.mark.promise(17)
def test_two_turns_at_once_on_one_session_in_one_process_are_serial_and_lose_nothing(
    tmp_path: Path, server: ModelServer
) -> None:
    server.replies = [Reply(("first ", "answer"), delay_s=0.2), Reply(("second answer",))]
    asyncio.run(_two_turns_at_once(tmp_path / "store.db", server.url))
    assert server.most_in_flight == 1
    spoken = [
        [message["content"] for message in request["messages"]] for request in server.requests
    ]
    assert spoken == [["one"], ["one", "first answer", "two"]]


async def _two_turns_at_once(path: Path, url: str) -> None:
    async with await SqliteStore.open(path) as store:
        model = make("openai-chat:test", ModelSettings({"openai": Access(base_url=url)}))
        native = Native(store, lambda _: Agent(ContextSet(model.spec), model, {}))
        runtime = Dispatch(Sessions(store), lambda _: native)
        session = await store.create(SessionStarted("test"))

        async def say(text: str) -> None:
            seq = (
                await store.admit(
                    Admission(input=InputAdmitted((Text(text),), "test"), session=session)
                )
            ).seq
            while True:
                try:
                    await runtime.run(
                        session, lambda state: seq not in state.pending, asyncio.Event()
                    )
                    return
                except SessionBusy:
                    await asyncio.sleep(0.01)

        try:
            await asyncio.gather(say("one"), say("two"))
        finally:
            await model.close()


@pytest.mark.promise(17)
@pytest.mark.promise(15)
def test_two_turns_at_once_on_one_session_from_two_processes_are_serial_and_lose_nothing(
    world: World, server: ModelServer
) -> None:
    server.replies = [
        Reply(("first ", "answer"), delay_s=0.3),
        Reply(("second ", "answer"), delay_s=0.1),
    ]
    world.steno("sessions")
    with (
        world.start("run", "one", "--key", "k") as one,
        world.start("run", "two", "--key", "k") as two,
    ):
        assert (one.end(), two.end()) == (0, 0)
        assert sorted([one.shown(), two.shown()]) == ["first answer\n", "second answer\n"]
    assert server.most_in_flight == 1
    assert sorted(texts(world, "user")) == ["one", "two"]
    assert texts(world, "assistant") == ["first answer", "second answer"]
    assert occurrences(server.requests[1], "first answer") == 1


@pytest.mark.promise(9)
@pytest.mark.promise(10)
@pytest.mark.promise(24)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.suite("openai-chat")
def test_a_partial_stream_that_never_gets_its_final_message_is_kept_and_marked(
    tmp_path: Path, server: ModelServer, kind: str
) -> None:
    world = World(tmp_path, server.url, f"{kind}:test")
    server.replies = [
        Reply(("half an ", "answer"), then="close"),
        Reply(status=400),
        Reply(("whole",)),
    ]
    with world.start("run", "tell me", "--key", "k") as program:
        assert program.end() == 1
        assert program.shown() == "half an answer\n"
    partial = world.messages(world.only_session(), "assistant")[0]
    assert (partial["text"], partial["state"]) == ("half an answer", "incomplete")
    assert world.steno("run", "again", "--key", "k") == "whole\n"
    assert texts(world, "assistant") == ["half an answer", "", "whole"]
    assert occurrences(server.requests[-1], "half an answer") == 1
    assert occurrences(server.requests[-1], "broke off") == 1
    check(kind, server.requests[-1])


@pytest.mark.promise(6)
@pytest.mark.promise(9)
@pytest.mark.promise(12)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.suite("anthropic")
def test_a_stop_after_the_text_was_delivered_keeps_the_text_and_settles_the_tool(
    tmp_path: Path, server: ModelServer, kind: str
) -> None:
    world = World(tmp_path, server.url, f"{kind}:test")
    tool = ("shell", '{"command": "echo began; sleep 30"}')
    server.replies = [Reply(("All of this ", "was delivered."), tools=(tool,)), Reply(("ok",))]
    with world.start("run", "do it", "--key", "k", "--yes") as program:
        program.wait_shown("was delivered.")
        wait_until(
            lambda: "began" in json.dumps(world.messages(world.only_session(), "tool")),
            "the tool to begin",
        )
        program.signal(signal.SIGINT)
        assert program.end() == 130
        assert program.shown().startswith("All of this was delivered.")
    (answer,), (tool_said,) = (
        world.messages(world.only_session(), role) for role in ("assistant", "tool")
    )
    assert (answer["text"], answer["state"]) == ("All of this was delivered.", "complete")
    assert (tool_said["text"], tool_said["state"]) == ("began\n", "interrupted")
    world.steno("run", "go on", "--key", "k")
    assert occurrences(server.requests[-1], "All of this was delivered.") == 1
    check(kind, server.requests[-1])


@pytest.mark.promise(20)
def test_a_continuation_whose_request_never_reached_the_model_is_still_due_and_then_happens_once(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("half",), then="hang"), Reply((" and the rest",)), Reply(("later",))]
    with world.start("run", "tell me", "--key", "k") as program:
        program.wait_shown("half")
        program.kill()
    id, address = world.only_session(), world.environment["OPENAI_BASE_URL"]
    world.environment |= {
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "STENO_LIMITS_ATTEMPTS_MAX": "1",
    }
    world.steno("continue", id, expect=1)
    world.environment["OPENAI_BASE_URL"] = address
    assert len(server.requests) == 1
    assert world.steno("continue", id) == " and the rest\n"
    assert "cut off" in json.dumps(server.requests[1]["messages"][-1])
    assert occurrences(server.requests[1], "half") == 1
    world.steno("continue", id, expect=1)
    assert world.steno("run", "next", "--key", "k") == "later\n"
    assert occurrences(server.requests[2], "cut off") == 0
    assert texts(world, "user") == ["tell me", "next"]
    assert [text for text in texts(world, "assistant") if text] == [
        "half",
        " and the rest",
        "later",
    ]
