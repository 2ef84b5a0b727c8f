"""Counts: through every front end each prompt gives one turn, and inputs that come during a turn
are each kept as they are. What was cut off is taken up once, or not at all."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import pytest

from steno.journal.facts import (
    Continues,
    InputAdmitted,
    SessionStarted,
    StepSealed,
    StepStarted,
    Takes,
    TurnEnded,
    TurnStarted,
)
from steno.journal.parts import Text
from steno.store.protocol import Admission
from steno.store.sqlite.store import BlockingStore
from tests.models.rules import check
from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_views import complaint
from tests.program.test_run import said
from tests.program.world import MODEL, WAIT_S, World, wait_until

N = 3
TOOL = (("shell", '{"command": "echo out"}'),)
SCRIPT = {"user": 1, "assistant": 2, "tool": 1}
"""The messages of one scripted turn."""


def by_run(world: World, prompts: list[str]) -> None:
    for prompt in prompts:
        world.steno("run", prompt, "--key", "k", "--yes")


def by_ndjson(world: World, prompts: list[str]) -> None:
    for prompt in prompts:
        world.steno("run", prompt, "--key", "k", "--yes", "--output", "ndjson")


def detached(world: World, prompts: list[str]) -> None:
    for prompt in prompts:
        id, input = world.steno("run", prompt, "--key", "k", "--yes", "--detach").split()
        world.steno("follow", id, "--input", input)


def by_chat(world: World, prompts: list[str]) -> None:
    lines = "".join(f"{prompt}\n" for prompt in prompts).encode()
    words = [sys.executable, "-m", "steno", "--yes"]
    done = subprocess.run(
        words,
        input=lines,
        env=world.environment,
        cwd=world.work,
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.promise(15)
@pytest.mark.parametrize("front", [by_run, by_ndjson, detached, by_chat])
def test_n_turns_through_each_front_end_give_n_times_the_script(
    world: World, server: ModelServer, front: Callable[[World, list[str]], None]
) -> None:
    server.replies = [
        reply
        for n in range(N)
        for reply in (Reply((f"look {n} ",), tools=TOOL), Reply((f"done {n}",)))
    ]
    front(world, [f"prompt {n}" for n in range(N)])
    (listed,) = world.sessions()
    for role, count in SCRIPT.items():
        assert len(world.messages(listed["id"], role)) == N * count, role
    assert listed["messages"] == N * sum(SCRIPT.values())
    assert (len(server.requests), listed["turns"]) == (2 * N, N)
    assert len(world.show(listed["id"])["turns"]) == N


@pytest.mark.promise(21)
@pytest.mark.promise(22)
@pytest.mark.parametrize("kind", ["openai-chat", "anthropic"])
@pytest.mark.suite("openai-chat")
def test_five_inputs_during_a_turn_are_all_kept_in_order_each_with_its_own_boundary(
    world: World, server: ModelServer, kind: str
) -> None:
    world.environment["STENO_MODEL"] = f"{kind}:test"
    gate = world.work / "go"
    wait = (("shell", json.dumps({"command": f"while [ ! -e {gate} ]; do sleep 0.05; done"})),)
    inputs = [f"input {n}" for n in range(5)]
    server.replies = [Reply(("first ",), tools=wait), *(Reply((f"answer {n}",)) for n in range(6))]
    with world.start("run", "begin", "--key", "k", "--yes") as program:
        program.wait_shown("first ")
        for text in inputs:
            world.steno("run", text, "--key", "k", "--detach")
        assert [message["state"] for message in world.messages(world.only_session(), "user")][
            1:
        ] == ["pending"] * 5
        gate.touch()
        assert program.end() == 0
        assert program.shown() == "first answer 0\n"
    wait_until(
        lambda: world.sessions()[0]["turns"] == 6 and not world.sessions()[0]["running"],
        "the six turns",
    )
    users = world.messages(world.only_session(), "user")
    assert [message["text"] for message in users] == ["begin", *inputs]
    assert len({message["turn"] for message in users}) == 6, "a turn each"
    assert len(server.requests) == 7
    for n, request in enumerate(server.requests[2:]):
        check(kind, request)
        assert said(request)[-1] == inputs[n], "each is answered for itself"
        sent = json.dumps(request)
        assert [sent.count(text) for text in inputs] == [1] * (n + 1) + [0] * (4 - n)


@pytest.mark.promise(21)
@pytest.mark.parametrize("kind", ["openai-chat", "anthropic"])
@pytest.mark.suite("anthropic")
def test_five_inputs_that_steer_are_told_once_each_and_their_join_does_not_grow(
    world: World, server: ModelServer, kind: str
) -> None:
    world.environment["STENO_MODEL"] = f"{kind}:test"
    gate = world.work / "go"
    wait = (("shell", json.dumps({"command": f"while [ ! -e {gate} ]; do sleep 0.05; done"})),)
    inputs = [f"input {n}" for n in range(5)]
    server.replies = [Reply(("first ",), tools=wait), Reply(("answer",)), Reply(("later",))]
    with world.start("run", "begin", "--key", "k", "--yes") as program:
        program.wait_shown("first ")
        for text in inputs:
            world.steno("run", text, "--key", "k", "--steer", "--detach")
        gate.touch()
        assert program.end() == 0
    for prompt in ("two", "three"):
        world.steno("run", prompt, "--key", "k")
    assert len(server.requests) == 4
    for request in server.requests[1:]:
        check(kind, request)
        sent = json.dumps(request)
        assert [sent.count(text) for text in inputs] == [1] * 5
        assert [sent.index(text) for text in inputs] == sorted(sent.index(text) for text in inputs)
    users = world.messages(world.only_session(), "user")
    assert [message["text"] for message in users] == ["begin", *inputs, "two", "three"]


# --- taking up what was cut off -------------------------------------------------------------------


def cut_off(world: World, server: ModelServer, *after: Reply) -> str:
    """A session whose turn was killed in the middle of its text; its id."""
    server.replies = [Reply(("half",), then="hang"), *after]
    with world.start("run", "tell me", "--key", "k") as program:
        program.wait_shown("half")
        program.kill()
    return world.only_session()


def noted(request: dict[str, object]) -> int:
    return json.dumps(request).count("was cut off")


@pytest.mark.promise(20)
def test_a_continuation_that_nothing_came_back_of_is_due_again_a_bounded_number_of_times(
    world: World, server: ModelServer
) -> None:
    world.environment["STENO_LIMITS_ATTEMPTS_MAX"] = "2"
    id = cut_off(world, server, Reply(status=500))
    for _ in range(4):
        world.steno("continue", id, expect=1)
    assert [noted(request) for request in server.requests[1:]] == [1] * 8, (
        "it was still due in each attempt"
    )
    assert "taken up 4 times" in complaint(world, "continue", id, expect=1)
    server.replies = [Reply(("fine",))]
    assert world.steno("run", "next", "--key", "k") == "fine\n"
    assert noted(server.requests[-1]) == 0


@pytest.mark.promise(20)
def test_a_continuation_that_kills_whoever_takes_it_up_is_not_taken_up_for_ever(
    world: World, server: ModelServer
) -> None:
    id = cut_off(world, server, Reply(then="hang"))
    for n in range(4):
        with world.start("continue", id) as program:
            wait_until(lambda n=n: len(server.requests) == n + 2, "the request that takes it up")  # type: ignore[misc]
            program.kill()
    assert [noted(request) for request in server.requests[1:]] == [1] * 4
    assert "taken up 4 times" in complaint(world, "continue", id, expect=1)
    assert len(server.requests) == 5
    server.replies = [Reply(("whole",))]
    assert world.steno("retry", id) == "whole\n", "nothing is lost: the prompt can be run again"


def killed_in_a_row(world: World, times: int) -> str:
    """A session in the store whose turn, and as many continuations of it, were killed after they
    showed something."""
    world.home.mkdir()
    with BlockingStore(world.home / "store.db") as store:
        id = store.create(SessionStarted("cli", MODEL, "k"))
        input = store.admit(
            Admission(input=InputAdmitted((Text("tell me"),), "cli"), session=id)
        ).seq
        lease = store.acquire(id)
        origin: Takes | Continues = Takes(input)
        head = input
        for _ in range(times + 1):
            turn, step = head + 1, head + 2
            shown = StepSealed(step, (Text("a bit "),), "interrupted")
            acknowledged = str(origin.turn) if isinstance(origin, Continues) else None
            store.append(
                lease, [TurnStarted(origin), StepStarted(MODEL, acknowledges=acknowledged)], head
            )
            head = store.append(lease, [shown, TurnEnded(turn, "interrupted", "killed")], step).last
            origin = Continues(turn)
        store.release(lease, head)
    return id


@pytest.mark.promise(20)
def test_continuations_that_show_something_and_are_killed_each_time_come_to_an_end(
    world: World, server: ModelServer
) -> None:
    id = killed_in_a_row(world, 4)
    assert "continued 4 times in a row and killed each time" in complaint(
        world, "continue", id, expect=1
    )
    assert server.requests == []
    assert world.steno("run", "next", "--key", "k") == "ok\n"
    assert noted(server.requests[-1]) == 1, "what a person says next takes it up"


@pytest.mark.promise(16)
@pytest.mark.promise(20)
def test_an_input_whose_turn_was_taken_up_at_the_second_try_has_the_answer_of_that(
    world: World, server: ModelServer
) -> None:
    world.environment["STENO_LIMITS_ATTEMPTS_MAX"] = "1"
    server.replies = [Reply(("half",), then="hang"), Reply(status=500), Reply((" and the rest",))]
    words = ("run", "tell me", "--key", "k", "--input-id", "m1")
    with world.start(*words) as program:
        program.wait_shown("half")
        program.kill()
    world.steno("continue", world.only_session(), expect=1)
    world.steno("continue", world.only_session())
    assert world.steno(*words) == "half and the rest\n"
    assert len(server.requests) == 3


@pytest.mark.promise(20)
def test_a_new_input_takes_up_what_was_cut_off_once_and_is_what_is_answered(
    world: World, server: ModelServer
) -> None:
    id = cut_off(world, server, Reply(("answer",)), Reply(("later",)))
    assert world.steno("run", "next", "--key", "k") == "answer\n"
    note = json.dumps(server.requests[1]["messages"][-1])
    assert noted(server.requests[1]) == 1
    assert "Answer the user's latest message" in note
    assert "nothing to continue" in complaint(world, "continue", id, expect=1)
    world.steno("run", "more", "--key", "k")
    assert noted(server.requests[2]) == 0
    assert "was cut off" not in json.dumps(world.show(id))


@pytest.mark.promise(20)
def test_a_stop_during_a_continuation_removes_the_intention_for_good(
    world: World, server: ModelServer
) -> None:
    id = cut_off(world, server, Reply((" and",), then="hang"), Reply(("later",)))
    with world.start("continue", id) as program:
        program.wait_shown(" and")
        program.signal(signal.SIGINT)
        assert program.end() == 130
    assert "nothing to continue" in complaint(world, "continue", id, expect=1)
    world.steno("run", "next", "--key", "k")
    assert noted(server.requests[-1]) == 0
    assert len(server.requests) == 3


@pytest.mark.promise(20)
@pytest.mark.promise(19)
@pytest.mark.parametrize("kind", ["openai-chat", "anthropic"])
@pytest.mark.suite("anthropic")
def test_the_note_names_results_that_were_not_seen_and_effects_that_are_unknown(
    world: World, server: ModelServer, kind: str
) -> None:
    world.environment["STENO_MODEL"] = f"{kind}:test"
    calls = (
        ("shell", '{"command": "echo seen"}'),
        ("shell", '{"command": "echo begun >> log; sleep 60"}'),
    )
    server.replies = [Reply(("Looking. ",), tools=calls), Reply(("well",))]
    with world.start("run", "go", "--key", "k", "--yes") as program:
        program.wait_shown("Looking. ")
        wait_until(
            lambda: len(settled(world)) == 1 and (world.work / "log").exists(),
            "one outcome, one tool at work",
        )
        program.kill()
    world.steno("run", "next", "--key", "k", "--yes")
    check(kind, server.requests[1])
    sent = json.dumps(server.requests[1])
    assert "You have not answered to these tool results yet: call_0." in sent
    assert "Whether these calls took effect is not known: call_1." in sent
    assert "It may or may not have had effects, and it was not run again." in sent
    assert (world.work / "log").read_text() == "begun\n", "it ran once"
    assert no_sleeper(world), "what the dead process left running was ended"


UNSEEN = "You have not answered to these tool results yet: call_0."


@pytest.mark.promise(20)
@pytest.mark.parametrize("kills", [1, 3, 4])
@pytest.mark.suite("1", "4")
def test_results_whose_request_died_unanswered_are_named_again_a_bounded_number_of_times(
    world: World, server: ModelServer, kills: int
) -> None:
    """Killed after the tool, while a request is out; and so is each prompt that comes next."""
    looked = Reply(("Looking. ",), tools=(("shell", '{"command": "echo seen"}'),))
    server.replies = [looked, Reply((), then="hang")]
    for n in range(1 + kills):
        with world.start("run", f"prompt {n}", "--key", "k", "--yes") as program:
            wait_until(partial(has_asked, server, n + 2), "a request")
            program.kill()
    server.replies = [Reply(("well",))]
    world.steno("run", "next", "--key", "k", "--yes")
    world.steno("run", "more", "--key", "k", "--yes")
    own, *taking_up, answered, later = [
        UNSEEN in json.dumps(request) for request in server.requests[1:]
    ]
    assert not own, "the turn of the tool is not cut off yet"
    assert taking_up == [True] * kills
    assert answered == (kills < 4), "in four turns at most"
    assert not later, "an answer came"
    assert world.steno("continue", world.only_session(), expect=1) == ""


def has_asked(server: ModelServer, times: int) -> bool:
    return len(server.requests) == times


def settled(world: World) -> list[str]:
    tools = [message for one in world.sessions() for message in world.messages(one["id"], "tool")]
    return [message["text"] for message in tools if message["state"] == "complete"]


def no_sleeper(world: World) -> bool:
    """Whether no process is left in the folder that commands run in."""
    found = subprocess.run(
        ["pgrep", "-f", "sleep 60"], capture_output=True, text=True, check=False
    ).stdout.split()
    here = []
    for process in found:
        where = subprocess.run(
            ["readlink", f"/proc/{process}/cwd"], capture_output=True, text=True, check=False
        )
        here += [process] if where.stdout.strip() == str(world.work) else []
    return here == []
