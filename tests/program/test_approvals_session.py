"""Rules that hold for one session: set by an answer to a question or by a command, kept, shown,
taken back."""

import json
import signal
import time
from typing import Any

import pytest

import steno
from tests.program.model_server import ModelServer, Reply
from tests.program.test_approval import terminal
from tests.program.test_approvals_elsewhere import killed_while_waiting, pending, ran, wait_pending
from tests.program.test_approvals_rules import calls, configure
from tests.program.test_cli_views import complaint
from tests.program.world import World, wait_until

COMMAND = "echo run >> ran.txt"
AGAIN = calls(COMMAND)
DAY_S = 86_400


def rules(world: World, id: str) -> list[dict[str, Any]]:
    """Its rules. Those of "always" end after thirty days, and say so."""
    found: list[dict[str, Any]] = json.loads(world.steno("rules", id, "--json"))
    assert world.show(id)["rules"] == found
    for one in found:
        until_ms = one.pop("until_ms")
        assert until_ms is None or 29 * DAY_S < until_ms / 1_000 - time.time() < 31 * DAY_S
    return found


def facts_of(world: World, id: str) -> int:
    with steno.open(world.home / "store.db") as library:
        return sum(1 for _ in library.store.read_all(id))


def outcomes(world: World, id: str) -> list[str]:
    return [message["text"] for message in world.messages(id, "tool")]


@pytest.mark.promise(37)
def test_an_answer_for_the_whole_session_is_kept_by_the_next_processes_and_can_be_taken_back(
    world: World, server: ModelServer
) -> None:
    server.replies = [AGAIN, Reply(("It ran.",)), AGAIN, Reply(("Again.",)), AGAIN, Reply(("No.",))]
    with world.start("run", "do it", "--key", "k", "--ask", "wait") as asking:
        (one,) = wait_pending(world)
        id = one["session"]
        assert "always" in world.steno("approve", id, "--always")
        assert asking.end() == 0
    assert rules(world, id) == [{"rule": f"shell:{COMMAND}", "verdict": "allow"}]
    assert f"allow  shell:{COMMAND}  (until 20" in world.steno("show", id)
    world.steno("run", "again", "--key", "k")
    assert ran(world) == 2
    world.steno("rules", id, "--remove", f"shell:{COMMAND}")
    assert rules(world, id) == []
    world.steno("run", "and again", "--key", "k")
    assert ran(world) == 2
    assert "nobody to ask" in outcomes(world, id)[-1]


def test_one_key_on_the_terminal_allows_a_command_for_the_session(
    world: World, server: ModelServer
) -> None:
    server.replies = [AGAIN, AGAIN, Reply(("It ran twice.",))]
    with terminal(world, "run", "do it") as person:
        person.wait_shown("? [y/n/a]")
        person.type("a")
        assert person.end() == 0
        assert person.shown().count("? [y/n/a]") == 1
    assert ran(world) == 2
    assert rules(world, world.only_session()) == [{"rule": f"shell:{COMMAND}", "verdict": "allow"}]


def test_what_is_always_allowed_is_this_command_and_no_other(
    world: World, server: ModelServer
) -> None:
    star = calls("touch *.txt")
    server.replies = [
        star,
        Reply(("ok",)),
        calls("touch a.txt"),
        Reply(("no",)),
        star,
        Reply(("yes",)),
    ]
    with world.start("run", "do it", "--key", "k", "--ask", "wait") as asking:
        (one,) = wait_pending(world)
        world.steno("approve", one["session"], "--always")
        assert asking.end() == 0
    world.steno("run", "another", "--key", "k")
    world.steno("run", "the same", "--key", "k")
    assert [path.name for path in world.work.iterdir()] == ["*.txt"]
    assert ["nobody to ask" in text for text in outcomes(world, one["session"])] == [
        False,
        True,
        False,
    ]


@pytest.mark.promise(37)
@pytest.mark.parametrize(("verdict", "times"), [("allow", 1), ("deny", 0)])
def test_a_rule_decides_about_a_call_that_waits(
    world: World, server: ModelServer, verdict: str, times: int
) -> None:
    server.replies = [AGAIN, Reply(("So be it.",))]
    with world.start("run", "do it", "--ask", "wait") as asking:
        (one,) = wait_pending(world)
        world.steno(
            "rules",
            one["session"],
            f"--{verdict}",
            "shell:echo run*",
            "--allow",
            f"shell:{COMMAND}",
        )
        assert asking.end() == 0
    assert ran(world) == times
    assert pending(world) == []


@pytest.mark.promise(37)
def test_a_rule_set_while_nobody_runs_the_session_counts_for_the_next_runner(
    world: World, server: ModelServer
) -> None:
    server.replies = [AGAIN, Reply(("It ran.",))]
    id = killed_while_waiting(world, signal.SIGKILL)["session"]
    world.steno("rules", id, "--allow", "shell")
    assert ran(world) == 0
    world.steno("continue", id, "--ask", "wait")
    assert ran(world) == 1


def test_a_rule_of_a_session_holds_in_no_other(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("hello",)), AGAIN, Reply(("no",))]
    world.steno("run", "hi", "--key", "one")
    world.steno("rules", world.only_session(), "--allow", "shell")
    world.steno("run", "do it", "--key", "two")
    assert ran(world) == 0


def test_deny_wins_wherever_it_was_set_and_else_the_session_counts_before_the_configuration(
    world: World, server: ModelServer
) -> None:
    configure(
        world,
        (
            '[approvals]\n"shell:touch a*" = "deny"\n"shell:touch b*" = "ask"\n"shell:touch c*" = '
            '"allow"\n'
        ),
    )
    server.replies = [
        Reply(("hello",)),
        calls("touch a", "touch b", "touch c", "touch d"),
        Reply(("done",)),
    ]
    world.steno("run", "hi", "--key", "k")
    world.steno("rules", world.only_session(), "--allow", "shell", "--deny", "shell:touch c")
    world.steno("run", "do it", "--key", "k", "--allow", "shell")
    assert sorted(path.name for path in world.work.iterdir()) == ["b", "d"]


def test_a_rule_that_denies_in_a_session_wins_over_yes(world: World, server: ModelServer) -> None:
    server.replies = [Reply(("hello",)), calls("touch a", "touch b"), Reply(("done",))]
    world.steno("run", "hi", "--key", "k")
    world.steno("rules", world.only_session(), "--deny", "shell:touch a")
    world.steno("run", "do it", "--key", "k", "--yes")
    assert [path.name for path in world.work.iterdir()] == ["b"]


def test_a_fork_inherits_what_is_denied_and_not_what_is_allowed(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(("hello",)), calls("touch a", "touch b"), Reply(("done",))]
    world.steno("run", "hi", "--key", "k")
    id = world.only_session()
    world.steno("rules", id, "--allow", "shell:touch a", "--deny", "shell:touch b")
    world.steno("run", "more", "--key", "k")
    fork = world.steno("fork", id, "--at", str(world.messages(id)[-1]["seq"])).strip()
    assert rules(world, fork) == [{"rule": "shell:touch b", "verdict": "deny"}]
    assert len(rules(world, id)) == 2


def test_nobody_gets_round_a_rule_by_delegating(world: World, server: ModelServer) -> None:
    def choose(request: dict[str, Any]) -> Reply:
        texts = json.dumps(request["messages"])
        if '"tool"' in texts:
            return Reply(("done",))
        return (
            calls("touch a", "touch b")
            if "subtask" in texts
            else Reply(tools=(("delegate", '{"prompt": "subtask"}'),))
        )

    world.steno("run", "hi", "--key", "k")
    world.steno("rules", world.only_session(), "--deny", "shell:touch a")
    server.choose = choose
    world.steno("run", "do it", "--key", "k", "--yes")
    assert [path.name for path in world.work.iterdir()] == ["b"]
    child = next(one["id"] for one in world.sessions() if one["name"] != "k")
    assert rules(world, child) == [{"rule": "shell:touch a", "verdict": "deny"}]


def test_rules_are_listed_refused_and_told_apart_from_those_of_the_configuration(
    world: World,
) -> None:
    world.steno("run", "hi")
    id = world.only_session()
    assert "has no rules of its own" in world.steno("rules", id)
    assert "names no tool" in complaint(world, "rules", id, "--allow", ":x", expect=2)
    assert "SEQ stands before" in complaint(world, "approve", id, "--always", "7", expect=2)
    assert "has no rule 'shell'" in complaint(world, "rules", id, "--remove", "shell", expect=1)
    world.steno("rules", id, "--ask", "read_file")
    assert world.steno("rules", id, "--deny", "read_file").split() == ["deny", "read_file"]
    before = facts_of(world, id)
    world.steno("rules", id, "--deny", "read_file")
    assert facts_of(world, id) == before, "what is so already is not stored again"


@pytest.mark.promise(60)
def test_a_rule_made_of_a_redacted_call_is_named_and_can_be_redacted(
    world: World, server: ModelServer
) -> None:
    secret = calls("echo hunter2secret")
    server.replies = [secret, Reply(("ok",))]
    with world.start("run", "do it", "--ask", "wait") as asking:
        (one,) = wait_pending(world)
        id = one["session"]
        world.steno("approve", id, "--always")
        assert asking.end() == 0
    answer, tool = world.messages(id, "assistant")[0], world.messages(id, "tool")[0]
    told = world.start("redact", id, "--seq", str(answer["seq"]), "--yes")
    with told:
        assert told.end() == 0
        said = told.errors()
    rule_at = said.split(f"redact {id} ")[1].split()[0]
    world.steno("redact", id, "--seq", rule_at, "--yes")
    world.steno("redact", id, "--seq", str(tool["seq"]), "--yes")
    wait_until(
        lambda: b"hunter2secret" not in (world.home / "store.db").read_bytes(), "the text to go"
    )
    for file in world.home.glob("store.db*"):
        if file.is_file():
            assert b"hunter2secret" not in file.read_bytes()
