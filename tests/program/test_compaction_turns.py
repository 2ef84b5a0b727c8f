"""Summaries in the middle of things: among tool calls, before an answer that never comes, by
command, beside other inputs; and everything that opened the session before opens the same session
after."""

import json
import signal
import threading
import time
from typing import Any

import pytest

import steno
from steno.journal.facts import (
    Compacted,
    HelperEnded,
    HelperStarted,
    InputAdmitted,
)
from steno.journal.parts import Text
from steno.store.protocol import Admission
from tests.models.rules import check
from tests.program.model_server import ModelServer, Reply
from tests.program.test_compaction import FILLER, Talk, is_summary, last_user
from tests.program.world import World, wait_until

SUMMARY = "They spoke of many things."
KINDS = {"openai-chat": "openai-chat:m", "anthropic": "anthropic:m"}


@pytest.fixture
def talk(world: World, server: ModelServer) -> Talk:
    return Talk(world, server)


def facts(world: World, id: str, *kinds: type) -> list[Any]:
    with steno.open(world.home / "store.db") as library:
        return [
            record.fact for record in library.store.read_all(id) if isinstance(record.fact, kinds)
        ]


# --- among tool calls -----------------------------------------------------------------------------


@pytest.mark.promise(29, 30, 35)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.suite("anthropic")
def test_in_a_long_turn_every_call_stays_with_its_outcome_and_the_prompt_stays_word_for_word(
    world: World, server: ModelServer, kind: str
) -> None:
    """Two calls a step, twelve steps, a context that holds four of them."""
    world.environment |= {"STENO_MODEL_CONTEXT_TOKENS": "4000", "STENO_APPROVALS_SHELL": "allow"}
    prompt = 'a prompt that must stay: "exactly" so\t, with its  spaces'
    (world.work / "out").write_text("lorem ipsum " * 60)
    steps = 0

    def choose(request: dict[str, Any]) -> Reply:
        nonlocal steps
        if is_summary(request):
            return Reply((SUMMARY,), usage=False)
        steps += 1
        counted = len(json.dumps(request)) // 4
        call = ("shell", json.dumps({"command": f"echo {steps}; cat out"}))
        return (
            Reply((f"step {steps} ",), tools=(call, call), input_tokens=counted)
            if steps <= 12
            else Reply(("done",))
        )

    server.choose = choose
    assert world.steno("run", prompt, "--model", KINDS[kind]).endswith("done\n")
    id = world.only_session()
    assert len(facts(world, id, Compacted)) >= 2
    for request in server.requests:
        check(kind, request)
        if not is_summary(request):
            said = [
                m
                for m in request["messages"]
                if m["role"] == "user" and "must stay" in json.dumps(m)
            ]
            assert len(said) == 1
            assert json.dumps(prompt)[1:-1] in json.dumps(said[0])
    for request in filter(is_summary, server.requests):
        text = last_user(request)
        assert text.count("[calls shell as") == text.count("outcome of call_"), (
            "a call goes with its outcome"
        )
    assert len(world.messages(id, "tool")) == 24


@pytest.mark.promise(28)
def test_a_stop_that_was_asked_for_before_a_summary_is_due_prevents_it(
    world: World, server: ModelServer
) -> None:
    world.environment |= {"STENO_MODEL_CONTEXT_TOKENS": "2000", "STENO_APPROVALS_SHELL": "allow"}
    (world.work / "out").write_text("lorem ipsum " * 900)
    call = ("shell", json.dumps({"command": "cat out; touch said; sleep 60"}))
    server.replies = [Reply(("hello",)), Reply(tools=(call,), usage=False)]
    world.steno("run", f"first {FILLER}", "--key", "k")
    with world.start("run", "do it", "--key", "k") as running:
        wait_until(lambda: (world.work / "said").exists(), "the output that makes a summary due")
        world.steno("interrupt", world.only_session())
        assert running.end() == 130
    assert facts(world, world.only_session(), HelperStarted, Compacted) == []
    assert not any(map(is_summary, server.requests))


@pytest.mark.promise(31)
def test_a_provider_that_finds_a_request_too_long_is_believed_whatever_was_configured(
    world: World, server: ModelServer
) -> None:
    """A model that takes 6,000 characters, and nobody has said so."""
    world.environment["STENO_TOOLS_ENABLED"] = "false"

    def choose(request: dict[str, Any]) -> Reply:
        if len(json.dumps(request)) > 6_000:
            return Reply(status=413)
        return Reply((SUMMARY if is_summary(request) else "ok",), usage=False)

    server.choose = choose
    for i in range(12):
        assert world.steno("run", f"prompt {i} {FILLER}", "--key", "k") == "ok\n"
    assert len(facts(world, world.only_session(), Compacted)) >= 2
    states = [message["state"] for message in world.messages(world.only_session())]
    assert states.count("complete") == 24
    assert set(states) == {"complete", "lost"}, (
        "each refusal is an attempt of which nothing came back"
    )


@pytest.mark.promise(31)
def test_what_the_provider_counts_decides_and_not_what_we_estimate(
    world: World, server: ModelServer
) -> None:
    """Few words, of which the provider says that they are 1,900 tokens, for a model that takes
    2,000."""
    world.environment |= {"STENO_MODEL_CONTEXT_TOKENS": "2000", "STENO_TOOLS_ENABLED": "false"}
    server.choose = lambda request: Reply(
        ("short",), input_tokens=10 if is_summary(request) else 1_900
    )
    for prompt in ("one " + FILLER, "two " + FILLER):
        world.steno("run", prompt, "--key", "k")
    id = world.only_session()
    assert world.show(id)["context"]["tokens"] >= 1_900
    assert len(facts(world, id, Compacted)) == 1
    assert is_summary(server.requests[1])


# --- an answer that never comes -------------------------------------------------------------------


@pytest.mark.promise(10, 24, 28)
@pytest.mark.parametrize(
    "nothing",
    [
        Reply((), usage=False),
        Reply(then="close"),
        Reply(then="eof"),
        Reply(status=400),
        Reply(("half",), then="close"),
    ],
    ids=["empty", "closed", "no end", "refused", "broken"],
)
@pytest.mark.suite("empty", "refused", "broken")
def test_a_turn_that_compacts_and_then_returns_nothing_leaves_the_session_consistent(
    talk: Talk, nothing: Reply
) -> None:
    talk.world.environment["STENO_LIMITS_ATTEMPTS_MAX"] = "1"
    talk.say_until_nearly_full()
    answered = talk.server.choose
    talk.server.choose = lambda request: talk.summary if is_summary(request) else nothing
    prompt = f"prompt 04 {FILLER}"
    talk.world.steno("run", prompt, "--session", talk.id, expect=None)
    assert len(talk.facts(Compacted)) == 1
    shown = talk.world.show(talk.id)
    kept = [text for said in talk.said for text in (said, f"answer to {said[:12]}")]
    assert [message["text"] for message in shown["messages"]][:8] == kept
    assert [m["text"] for m in shown["messages"] if m["role"] == "user"][-1] == prompt
    talk.server.choose = answered
    talk.world.steno("run", "and now?", "--session", talk.id)
    request = talk.requests()[-1]
    check("openai-chat", request)
    assert json.dumps(request).count(SUMMARY) == 1
    assert last_user(request).endswith("and now?")
    assert len(talk.facts(Compacted)) == 1
    assert talk.world.steno("verify")


# --- what a summary may be made of ----------------------------------------------------------------


@pytest.mark.promise(29)
def test_recovery_notes_never_reach_a_summary(talk: Talk) -> None:
    talk.say()
    talk.server.choose = None
    talk.server.replies = [Reply(("a half answer",), then="hang")]
    with talk.world.start("run", "prompt that is killed", "--session", talk.id) as dying:
        dying.wait_shown("a half answer")
        dying.kill()
    talk.server.choose = talk._choose
    talk.world.steno("run", f"after the kill {FILLER}", "--session", talk.id)
    assert any("[Note from the runtime" in json.dumps(request) for request in talk.requests())
    for i in range(6):
        talk.world.steno("run", f"more {i} {FILLER}", "--session", talk.id)
    summaries = talk.summary_requests()
    assert any("a half answer" in json.dumps(request) for request in summaries)
    for request in summaries:
        assert "Note from the runtime" not in json.dumps(request)
        assert "not from the user" not in json.dumps(request)
    assert "Note from the runtime" not in json.dumps(talk.world.show(talk.id))


@pytest.mark.promise(45)
@pytest.mark.parametrize("how", ["hide", "redact"])
def test_what_is_taken_from_the_models_view_is_in_no_request_whatever_was_summarised(
    talk: Talk, how: str
) -> None:
    """Before a summary, and after it: then the summary may repeat it, and the rest is told again
    without it."""
    talk.say_until_nearly_full()
    first, second = (str(message["seq"]) for message in talk.world.messages(talk.id, "user")[:2])
    yes = ("--yes",) if how == "redact" else ()
    talk.world.steno(how, talk.id, "--seq", first, *yes)
    talk.world.steno("compact", talk.id)
    assert talk.said[0] not in json.dumps(talk.summary_requests())
    assert talk.said[1] in json.dumps(talk.summary_requests())
    talk.world.steno(how, talk.id, "--seq", second, *yes)
    before = len(talk.server.requests)
    talk.world.steno("run", "and now?", "--session", talk.id)
    asked = json.dumps(talk.server.requests[before:])
    assert talk.said[1] not in asked
    assert talk.said[2] in asked
    check("openai-chat", talk.requests()[-1])


@pytest.mark.promise(28, 45)
def test_what_is_hidden_while_a_summary_is_made_is_in_no_request_after_it(talk: Talk) -> None:
    talk.say_until_nearly_full()
    second = str(talk.world.messages(talk.id, "user")[1]["seq"])
    talk.summary = Reply((SUMMARY,), usage=False, held=True)
    with talk.world.start("compact", talk.id) as compacting:
        wait_until(lambda: bool(talk.summary_requests()), "the summariser to be asked")
        talk.world.steno("hide", talk.id, "--seq", second)
        talk.server.go_on()
        assert compacting.end() == 1
        assert "edited meanwhile" in compacting.errors()
    assert talk.facts(Compacted) == []


# --- every way in ---------------------------------------------------------------------------------


@pytest.mark.promise(16, 25, 26, 29)
def test_everything_that_opened_the_session_before_three_summaries_opens_it_after(
    world: World, server: ModelServer
) -> None:
    talk = Talk(world, server)
    world.environment["STENO_TOOLS_ENABLED"] = "true"
    world.environment["STENO_MODEL_CONTEXT_TOKENS"] = "4000"
    world.steno("run", "the zebra prompt", "--key", "ticket-7", "--input-id", "first")
    talk.id, talk.said = world.only_session(), ["the zebra prompt"]
    first = world.messages(talk.id)
    fork = world.steno("fork", talk.id, "--at", str(first[-1]["seq"])).strip()
    talk.say_until_compacted(3)
    assert SUMMARY not in json.dumps(world.show(talk.id))
    asked = len(server.requests)
    for opened in (world.show(talk.id), world.show(talk.id[:6])):
        assert (opened["id"], opened["title"]) == (talk.id, "the zebra prompt")
        assert opened["messages"][:2] == first
    for way in (("--resume", talk.id), ("--resume", talk.id[:6]), ("--continue",)):
        printed = world.steno(*way)
        assert f"steno --resume {talk.id}" in printed
        assert talk.said[-1][:40] in printed
    again = world.steno("run", "the zebra prompt", "--key", "ticket-7", "--input-id", "first")
    assert again == "answer to the zebra pr\n"
    assert f'"{talk.id}"' in world.steno("follow", talk.id, "--output", "ndjson")
    assert len(server.requests) == asked, "looking asks nobody"
    count = len(world.messages(talk.id))
    for way in (("--key", "ticket-7"), ("--session", talk.id), ("--session", talk.id[:6])):
        world.steno("run", "through here", *way)
    assert len(world.messages(talk.id)) == count + 6
    (forked,) = [one["forked_from"] for one in world.sessions() if one["id"] == fork]
    assert forked["session"] == talk.id
    assert world.messages(fork) == first
    check_search(world, server, talk, first[0]["seq"])


def check_search(world: World, server: ModelServer, talk: Talk, seq: int) -> None:
    """What was said before is found once, under the same id and seq; what a summary says is not
    found."""

    def found(query: str) -> str:
        call = ("search_sessions", json.dumps({"query": query}))
        asks = Reply(tools=(call,), usage=False)
        told = Reply(("ok",), usage=False)
        server.choose = lambda request: told if request["messages"][-1]["role"] == "tool" else asks
        world.steno("run", "look it up", "--key", "another")
        return str(server.requests[-1]["messages"][-1]["content"])

    text = found("zebra")
    assert text.count(f"{talk.id} message {seq}") == 1
    assert "0 messages" in found("of many things") or "no message" in found("of many things")


# --- beside other inputs --------------------------------------------------------------------------


@pytest.mark.promise(2, 27)
def test_an_input_is_accepted_within_a_second_and_answered_within_the_published_bound(
    talk: Talk,
) -> None:
    talk.say_until_nearly_full()
    talk.summary = Reply(then="hang")
    with talk.world.start("run", f"prompt 04 {FILLER}", "--session", talk.id) as first:
        wait_until(lambda: bool(talk.summary_requests()), "the summariser to be asked")
        began_s = time.monotonic()
        with steno.open(talk.world.home / "store.db") as library:
            said = InputAdmitted((Text("prompt 05"),), "test", "key")
            before_s = time.monotonic()
            library.store.admit(Admission(input=said, session=talk.id))
            took_s = time.monotonic() - before_s
        assert took_s < 1
        assert first.end() == 0
        talk.world.steno("continue", talk.id)
        assert time.monotonic() - began_s < 2 * 3 + 4, (
            "3 s for each of two summaries, and two programs that start"
        )
    assert [message["state"] for message in talk.world.messages(talk.id)] == ["complete"] * 12


def _wait(event: threading.Event) -> None:
    event.wait(30)


@pytest.mark.promise(27)
def test_an_input_during_a_summary_by_command_is_accepted_and_answered_after_it(talk: Talk) -> None:
    talk.say_until_nearly_full()
    accepted = threading.Event()
    talk.summary = Reply((SUMMARY,), usage=False)
    talk.server.on_request = lambda request: None if not is_summary(request) else _wait(accepted)
    talk.world.environment["STENO_LIMITS_SUMMARY_S"] = "60"
    with talk.world.start("compact", talk.id) as compacting:
        wait_until(lambda: bool(talk.summary_requests()), "the summariser to be asked")
        waiting = threading.Thread(
            target=talk.world.steno, args=("run", "prompt 04", "--session", talk.id)
        )
        talk.said.append("prompt 04")
        waiting.start()
        wait_until(lambda: len(talk.world.messages(talk.id, "user")) == 5, "acceptance")
        assert compacting.process.poll() is None
        accepted.set()
        assert compacting.end() == 0
        waiting.join(30)
    assert SUMMARY in json.dumps(talk.requests()[-1])
    assert [m["text"] for m in talk.world.messages(talk.id)][-2:] == [
        "prompt 04",
        "answer to prompt 04",
    ]


@pytest.mark.promise(28)
@pytest.mark.parametrize("number", [None, signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.suite("None", "SIGKILL")
def test_a_summary_by_command_that_is_cut_off_leaves_the_old_context(
    talk: Talk, number: signal.Signals | None
) -> None:
    """By a signal, or by `interrupt` from another process."""
    talk.say_until_nearly_full()
    talk.summary = Reply(("half a summary",), then="hang")
    talk.world.environment["STENO_LIMITS_SUMMARY_S"] = "60"
    with talk.world.start("compact", talk.id) as compacting:
        wait_until(lambda: bool(talk.summary_requests()), "the summariser to be asked")
        if number is None:
            assert "asked the summary" in talk.world.steno("interrupt", talk.id)
        else:
            compacting.signal(number)
        assert compacting.end() == (-signal.SIGKILL if number == signal.SIGKILL else 1)
    talk.check_kept()
    talk.summary = Reply((SUMMARY,), usage=False)
    talk.world.steno("run", "and now?", "--session", talk.id)
    assert talk.said[0] in json.dumps(talk.requests()[-1])
    assert talk.facts(Compacted) == []
    (ended,) = talk.facts(HelperEnded)
    assert ended.outcome == ("unknown" if number == signal.SIGKILL else "stopped")


@pytest.mark.promise(8, 28)
@pytest.mark.parametrize("n", range(1, 5))
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.suite("before-2", "before-4", "after-1", "after-3")
def test_a_kill_at_any_boundary_of_a_summary_by_command_leaves_the_old_context_or_the_new(
    talk: Talk, when: str, n: int
) -> None:
    talk.say_until_nearly_full()
    with talk.world.start_dying(when, n, "compact", talk.id) as dying:
        assert dying.end() in (-9, 0), dying.errors()
    talk.check_kept()
    talk.world.steno("run", "and now?", "--session", talk.id)
    text = json.dumps(talk.requests()[-1])
    compacted = len(talk.facts(Compacted))
    assert text.count(SUMMARY) == compacted <= 1
    assert (talk.said[0] in text) == (not compacted)
    assert len(talk.facts(HelperStarted)) == len(talk.facts(HelperEnded))
