"""Questions on a terminal: about calls of an earlier turn too, and before something is removed for
good."""

import json
import time

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_approvals_elsewhere import ASKS, killed_while_waiting, pending, ran
from tests.program.test_cli_terminal import CTRL_D, Terminal, terminal
from tests.program.world import World, wait_until

QUESTION = "? [y/n/a]"


@pytest.mark.promise(37)
@pytest.mark.parametrize(("answer", "times"), [("y\n", 1), ("n\n", 0)])
def test_a_prompt_on_a_terminal_asks_first_about_what_waits(
    world: World, server: ModelServer, answer: str, times: int
) -> None:
    server.replies = [ASKS, Reply(("So be it.",)), Reply(("And this is new.",))]
    killed_while_waiting(world)
    with terminal(world, "run", "and now?", "--key", "k") as asked:
        asked.wait_seen("? [y/n/a]")
        assert "echo run >> ran.txt" in asked.seen()
        asked.type(answer)
        assert asked.end() == 0
        assert "And this is new." in asked.seen()
        assert asked.seen().count("? [y/n/a]") == 1
    assert ran(world) == times


@pytest.mark.promise(37)
def test_continue_on_a_terminal_asks_about_what_waits(world: World, server: ModelServer) -> None:
    server.replies = [ASKS, Reply(("It ran.",))]
    id = killed_while_waiting(world)["session"]
    with terminal(world, "continue", id) as asked:
        asked.wait_seen("? [y/n/a]")
        asked.type("y\n")
        assert asked.end() == 0
        assert asked.seen().count("? [y/n/a]") == 1
    assert ran(world) == 1


def test_nobody_is_asked_on_the_terminal_by_a_run_that_waits_or_by_a_watcher(
    world: World, server: ModelServer
) -> None:
    server.replies = [ASKS, Reply(("It ran.",))]
    with terminal(world, "run", "do it", "--ask", "wait") as waiting:
        waiting.wait_seen("steno approve")
        id = world.only_session()
        with terminal(world, "follow", id) as watching:
            watching.wait_seen("steno approve")
            assert "[y/n/a]" not in watching.seen() + waiting.seen()
            world.steno("approve", id)
            assert watching.end() == 0
        assert waiting.end() == 0
    assert pending(world) == []


def test_a_rule_that_allows_or_denies_asks_nobody(world: World, server: ModelServer) -> None:
    world.environment["STENO_APPROVALS_SHELL"] = "allow"
    server.replies = [ASKS, Reply(("It ran.",))]
    with terminal(world, "run", "do it") as allowed:
        assert allowed.end() == 0
        assert "[y/n/a]" not in allowed.seen()
    assert ran(world) == 1


@pytest.mark.promise(60)
@pytest.mark.parametrize(("answer", "stays"), [("y\n", False), ("n\n", True)])
def test_a_redaction_asks_on_a_terminal(
    world: World, server: ModelServer, answer: str, stays: bool
) -> None:
    world.steno("run", "a secret word")
    id = world.only_session()
    with terminal(world, "redact", id, "--seq", str(world.messages(id, "user")[0]["seq"])) as asked:
        asked.wait_seen("for good? [y/N]")
        asked.type(answer)
        assert asked.end() == (1 if stays else 0)
    wait_until(
        lambda: ("a secret word" in json.dumps(world.show(id))) is stays, "the text to stay or go"
    )


SENTENCES = ["you should use sed instead", "actually no, stop", "yes but not in this folder"]


def asked_in(world: World, asked: Terminal, words: tuple[str, ...]) -> None:
    if words[0] == "--plain":
        asked.wait_seen("you> ")
        asked.type("do it\n")
    asked.wait_seen(QUESTION)


def leave(asked: Terminal, words: tuple[str, ...]) -> int:
    if words[0] == "--plain":
        asked.wait_seen("you> ", 2)
        asked.type(CTRL_D)
    return asked.end()


@pytest.mark.promise(37)
@pytest.mark.parametrize("words", [("run", "do it"), ("--plain",)], ids=["run", "plain"])
@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.suite("you should use sed instead-run", "actually no, stop-plain")
def test_a_line_that_is_no_answer_refuses_the_call_and_the_model_is_told_it(
    world: World, server: ModelServer, words: tuple[str, ...], sentence: str
) -> None:
    server.replies = [ASKS, Reply(("As you like.",))]
    with terminal(world, *words) as asked:
        asked_in(world, asked, words)
        asked.type(f"{sentence}\n")
        asked.wait_seen("As you like.")
        assert leave(asked, words) == 0
    id = world.only_session()
    assert ran(world) == 0
    assert sentence in world.messages(id, "tool")[0]["text"]
    assert f'"reason":{json.dumps(sentence)}' in world.steno("export", id)
    assert sentence in json.dumps(server.requests[-1]["messages"])
    assert world.show(id)["rules"] == []
    assert len(world.messages(id, "user")) == 1


@pytest.mark.promise(37)
@pytest.mark.parametrize(
    ("line", "times", "rules"),
    [("yes", 1, 0), (" Y ", 1, 0), ("always", 1, 1), ("a", 1, 1), ("no", 0, 0)],
)
@pytest.mark.suite("yes-1-0", "a-1-1", "no-0-0")
def test_a_whole_word_answers_and_an_empty_line_is_asked_again(
    world: World, server: ModelServer, line: str, times: int, rules: int
) -> None:
    server.replies = [ASKS, Reply(("So be it.",))]
    with terminal(world, "run", "do it") as asked:
        asked.wait_seen(QUESTION)
        asked.type("\n")
        asked.wait_seen(QUESTION, 2)
        assert world.messages(world.only_session(), "tool") == []
        asked.type(f"{line}\n")
        assert asked.end() == 0
    assert ran(world) == times
    assert len(world.show(world.only_session())["rules"]) == rules


def test_nothing_is_printed_onto_the_line_of_a_question(world: World, server: ModelServer) -> None:
    """Another call, which needs no approval, ends while the question is open."""
    script = "until test -e go; do sleep 0.02; done; echo slow-is-done"
    (world.work / "slow.sh").write_text(script)
    calls = (
        ("shell", '{"command": "sh slow.sh"}'),
        ("shell", '{"command": "echo run >> ran.txt"}'),
    )
    server.replies = [Reply(("hi",)), Reply(("I will.",), tools=calls), Reply(("Both ran.",))]
    world.steno("run", "hi", "--key", "k")
    world.steno("rules", world.only_session(), "--allow", "shell:sh slow.sh")
    with terminal(world, "run", "do it", "--key", "k") as asked:
        asked.wait_seen(QUESTION)
        (world.work / "go").touch()
        wait_until(
            lambda: "slow-is-done" in json.dumps(world.messages(world.only_session(), "tool")),
            "the other call to end",
        )
        time.sleep(0.3)
        before = asked.seen()
        assert "slow-is-done" not in before
        assert before.endswith("why not) ")
        asked.type("y\n")
        assert asked.end() == 0
        seen = asked.seen().replace("\r\n", "\n")
    assert before.count(QUESTION) == 1
    assert "why not) y\n[" in seen
    assert "[returned: slow-is-done]" in seen.splitlines()
    assert ran(world) == 1


def test_a_question_that_is_answered_elsewhere_leaves_its_line(
    world: World, server: ModelServer
) -> None:
    server.replies = [ASKS, Reply(("It ran.",))]
    with terminal(world, "run", "do it") as asked:
        asked.wait_seen(QUESTION)
        world.steno("approve", world.only_session())
        assert asked.end() == 0
        lines = asked.seen().replace("\r\n", "\n").splitlines()
    (question,) = [line for line in lines if QUESTION in line]
    assert question.rstrip().endswith("why not)")
    assert "It ran." in lines
