"""What the real codex cannot be made to say here: unknown items and messages, text that changes,
late output, another version. A stand-in says it; everything else is the running program."""

import json
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.program.test_cli_terminal import terminal
from tests.program.test_tools_mcp import stdio
from tests.program.world import Program, World, wait_until
from tests.tools.mcp_servers import odd
from tests.tui.chatting import Person, chat_with

DONE = ["turn/completed", {"turn": {"id": "TURN", "status": "completed"}}]
STOPPED = ["turn/completed", {"turn": {"id": "TURN", "status": "interrupted"}}]


def delta(text: str, item: str = "m") -> list[Any]:
    return ["item/agentMessage/delta", {"itemId": item, "delta": text}]


def item(step: str, **fields: Any) -> list[Any]:
    return [f"item/{step}", {"item": fields}]


def message(text: str, id: str = "m") -> list[Any]:
    return item("completed", type="agentMessage", id=id, text=text)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, "http://127.0.0.1:9/v1")


def scripted(world: World, turn: list[Any], stopped: list[Any] | None = None, **more: Any) -> None:
    """From here on, codex says this in each turn."""
    script = world.work.parent / "script.json"
    script.write_text(json.dumps({"turn": turn, "stopped": stopped or [], **more}))
    program = world.work.parent / "codex"
    server = Path(__file__).with_name("scripted_server.py")
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {server} {script}\n")
    program.chmod(0o755)
    home = str(world.work.parent)  # without rules files of whoever runs the tests
    world.environment |= {
        "STENO_RUNTIME": "codex",
        "STENO_CODEX_PATH": str(program),
        "CODEX_HOME": home,
    }
    world.environment["STENO_CODEX_SANDBOX"] = (
        "danger-full-access"  # in a sandbox it would have to run hooks
    )
    world.environment.pop("STENO_MODEL", None)


def run(world: World) -> tuple[str, str]:
    with world.start("run", "go", "--key", "k") as program:
        program.end()
        return program.shown(), program.errors()


def test_an_unknown_notification_is_logged_once_and_skipped(world: World) -> None:
    scripted(
        world,
        [["thread/dreamt", {}], ["thread/dreamt", {}], delta("Hello."), message("Hello."), DONE],
    )
    shown, errors = run(world)
    assert shown == "Hello.\n"
    assert errors.count("thread/dreamt") == 1


def test_an_unknown_notification_is_logged_once_in_a_chat_of_many_turns(world: World) -> None:
    scripted(world, [["thread/dreamt", {}], message("Hello."), DONE])
    with terminal(world, "--plain") as chat:
        for n in (1, 2):
            chat.wait_seen("you> ", n)
            chat.type("go\n")
        chat.wait_seen("you> ", 3)
        chat.type("/quit\n")
        assert chat.end() == 0
        assert chat.seen().count("Hello.") == 2
        assert chat.seen().count("thread/dreamt") == 1


def test_an_unknown_item_is_stored_with_its_json_and_shown_as_such(world: World) -> None:
    dream = {"type": "dream", "id": "d", "about": "sheep"}
    scripted(
        world,
        [item("started", **dream), item("completed", **dream, vivid=True), message("Hello."), DONE],
    )
    shown, errors = run(world)
    assert shown == "Hello.\n"
    assert (
        errors
        == '[codex item dream: {"type": "dream", "id": "d", "about": "sheep", "vivid": true}]\n'
    )
    [_, opaque, answer] = world.messages(world.only_session())
    assert (
        opaque["text"]
        == '[codex item dream: {"type": "dream", "id": "d", "about": "sheep", "vivid": true}]'
    )
    assert answer["text"] == "Hello."
    with world.start("run", "go", "--key", "k", "--output", "ndjson") as program:
        program.end()
        [told] = [json.loads(line) for line in program.shown().splitlines() if '"item"' in line]
    assert (told["runtime"], told["kind"], json.loads(told["json"])) == (
        "codex",
        "dream",
        {**dream, "vivid": True},
    )


@pytest.mark.parametrize("ended", ["stopped", "failed", "dies"])
@pytest.mark.suite("dies")
def test_an_unknown_item_that_was_not_completed_is_stored_as_it_began(
    world: World, ended: str
) -> None:
    failed = [
        "turn/completed",
        {"turn": {"id": "TURN", "status": "failed", "error": {"message": "Oops"}}},
    ]
    began = item("started", type="dream", id="d", about="sheep")
    then: dict[str, list[Any]] = {"stopped": [], "failed": [failed], "dies": ["dies"]}
    scripted(world, [began, delta("Hello."), *then[ended]], stopped=[STOPPED])
    with world.start("run", "go", "--key", "k") as program:
        program.wait_shown("Hello.")
        if ended == "stopped":
            program.signal(signal.SIGINT)
        assert program.end() != 0
    [_, answer, opaque] = world.messages(world.only_session())
    assert answer["text"] == "Hello."
    assert opaque["text"] == '[codex item dream: {"type": "dream", "id": "d", "about": "sheep"}]'
    assert opaque["state"] == ("interrupted" if ended == "stopped" else "incomplete")


@pytest.mark.promise(9, 11)
def test_the_completed_text_is_the_truth_and_what_was_shown_is_kept(world: World) -> None:
    scripted(world, [delta("Hallo."), message("Hello."), DONE])
    assert run(world)[0] == "Hallo.\n"
    session = world.only_session()
    assert world.messages(session, "assistant")[0]["text"] == "Hello."
    exported = world.steno("show", session, "--json")
    assert "Hello." in exported


@pytest.mark.promise(9, 11)
def test_an_answer_that_a_command_comes_into_is_stored_as_it_was_shown(world: World) -> None:
    command = {"type": "commandExecution", "id": "c", "command": "x", "processId": "1"}
    began = item("started", **command, status="inProgress")
    ran = item("completed", **command, status="completed", exitCode=0, aggregatedOutput="")
    scripted(world, [delta("Hel"), began, delta("lo."), ran, message("Hello."), DONE])
    assert run(world)[0] == "Hello.\n"
    said = [one["text"] for one in world.messages(world.only_session(), "assistant")]
    assert "".join(said) == "Hello."


def test_another_version_is_used_and_said_so(world: World) -> None:
    scripted(world, [message("Hello."), DONE], agent="codex/9.9.9 (x)")
    shown, errors = run(world)
    assert shown == "Hello.\n"
    assert "9.9.9" in errors


def test_late_output_is_kept_as_late_and_never_in_a_newer_turn(world: World) -> None:
    command = {
        "type": "commandExecution",
        "id": "c",
        "command": "sleep 9",
        "processId": "1",
        "status": "inProgress",
    }
    output = ["item/commandExecution/outputDelta", {"itemId": "c", "delta": "early\n"}]
    late = ["item/commandExecution/outputDelta", {"itemId": "c", "delta": "late\n"}]
    scripted(world, [item("started", **command), output], stopped=[STOPPED, late])
    with world.start("run", "go", "--key", "k", "--output", "ndjson") as program:
        program.wait_shown("early")
        world.steno("interrupt", world.only_session())
        assert program.end() == 130
    session = world.only_session()
    [ran] = world.messages(session, "tool")
    assert (ran["text"], ran["state"]) == ("early\n", "interrupted")
    scripted(world, [late, message("Hello."), DONE])
    assert run(world)[0] == "Hello.\n"
    assert "late" not in json.dumps(world.messages(session))
    [kept, *rest] = [fact for fact in facts(world) if fact["type"] == "output.late"]
    assert (kept["text"], rest) == ("late\n", []), "of the turn that it belongs to, and of no other"


@pytest.mark.promise(23)
def test_late_output_that_comes_while_the_next_turn_runs_is_kept_with_its_own(world: World) -> None:
    command = {
        "type": "commandExecution",
        "id": "c",
        "command": "sleep 9",
        "processId": "1",
        "status": "inProgress",
    }
    late = [
        "item/commandExecution/outputDelta",
        {"itemId": "c", "delta": "late\n", "turnId": "turn1"},
    ]
    scripted(world, [late, item("started", **command), delta("Hello.")], stopped=[STOPPED])

    async def talk(person: Person) -> None:
        await person.say("go")
        await person.sees("Hello. ▍")
        await person.say("next")
        await person.sees("queued  next")
        await person.press("ctrl+c")
        await person.until(lambda: person.screen().count("Hello.") == 2, "another answer")

    chat_with(world, talk)
    stored = facts(world)
    [kept] = [fact for fact in stored if fact["type"] == "output.late"]
    assert (kept["text"], kept["started"]) == (
        "late\n",
        [fact["type"] for fact in stored].index("tool.started") + 1,
    )


def test_a_turn_that_fails_of_the_sandbox_says_what_to_do(world: World) -> None:
    error = {"message": "landlock was refused", "codexErrorInfo": "sandboxError"}
    scripted(
        world, [["turn/completed", {"turn": {"id": "TURN", "status": "failed", "error": error}}]]
    )
    shown, errors = run(world)
    assert shown == ""
    assert "landlock was refused; sandbox under [codex] chooses" in errors
    [turn] = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ("failed", "sandbox")
    scripted(world, [message("Hello."), DONE])
    assert run(world)[0] == "Hello.\n"


@pytest.mark.parametrize(
    ("info", "cause", "told"),
    [
        ({"httpConnectionFailed": {"httpStatusCode": 418}}, "refused", "refuse"),
        (
            {"httpConnectionFailed": {"httpStatusCode": 502}},
            "server_error",
            "an error of its own",
        ),
        ({"httpConnectionFailed": {"httpStatusCode": 413}}, "too_long", "steno compact"),
        (
            {"httpConnectionFailed": {"httpStatusCode": None}},
            "unreachable",
            "cannot be reached",
        ),
        ("contextWindowExceeded", "too_long", "steno compact"),
        ({}, "server_error", "an error of its own"),
    ],
)
@pytest.mark.suite("info0-refused-refuse", "contextWindowExceeded-too_long-steno compact")
def test_a_provider_that_answers_is_not_said_to_be_out_of_reach(
    world: World, info: Any, cause: str, told: str
) -> None:
    error = {"message": "Oops.", "codexErrorInfo": info}
    scripted(
        world, [["turn/completed", {"turn": {"id": "TURN", "status": "failed", "error": error}}]]
    )
    _, errors = run(world)
    assert told in errors
    [turn] = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ("failed", cause)


@pytest.mark.promise(23)
def test_a_codex_that_does_not_heed_a_stop_is_ended_and_another_answers_what_waits(
    world: World,
) -> None:
    world.environment["STENO_CODEX_INTERRUPT_S"] = "0.2"
    scripted(world, [delta("Hello.")])

    async def talk(person: Person) -> None:
        await person.say("go")
        await person.sees("Hello. ▍")
        await person.say("next")
        await person.sees("queued  next")
        await person.press("ctrl+c")
        await person.sees("stopped by you", "▌ next")
        await person.until(lambda: person.screen().count("Hello.") == 2, "its own answer")

    chat_with(world, talk)


@pytest.mark.torture
@pytest.mark.promise(6, 34)
def test_a_codex_that_reads_nothing_any_more_is_stopped_all_the_same(world: World) -> None:
    calls: list[Any] = []
    for n in range(40):
        calls.append(
            item("started", type="dynamicToolCall", id=f"c{n}", tool="odd__big", arguments={})
        )
        calls.append(["item/tool/call", {"callId": f"c{n}", "tool": "odd__big"}, n])
    scripted(world, ["deaf", *calls])
    world.steno("sessions")
    world.home.joinpath("config.toml").write_text(stdio("odd", odd()))
    world.environment["STENO_CODEX_INTERRUPT_S"] = "0.2"
    with world.start("run", "go", "--key", "k", "--yes") as program:
        wait_until(
            lambda: [fact["type"] for fact in facts(world)].count("tool.settled") == 40, "outcomes"
        )
        world.steno("interrupt", world.only_session())
        assert program.end() == 130
    assert [one["outcome"] for one in world.show(world.only_session())["turns"]] == ["interrupted"]


@pytest.mark.promise(6, 34)
@pytest.mark.parametrize(
    ("silent", "number"),
    [
        (s, n)
        for s in ("initialize", "thread/start", "turn/start")
        for n in (signal.SIGINT, signal.SIGTERM)
    ],
)
@pytest.mark.suite("initialize-SIGINT", "thread/start-SIGTERM", "turn/start-SIGINT")
def test_a_stop_is_heeded_while_codex_takes_long_to_begin(
    world: World, silent: str, number: int
) -> None:
    scripted(world, [message("Hello."), DONE], silent=silent)
    world.steno("sessions")
    with world.start("run", "go", "--key", "k") as program:
        begun = "step.started" if silent == "turn/start" else "turn.started"
        wait_until(lambda: begun in [fact["type"] for fact in facts(world)], "a turn")
        began_s = time.monotonic()
        program.signal(number)
        assert program.end() == 130
        assert time.monotonic() - began_s < 15, "codex has 30 s to answer"
    cause = "user" if number == signal.SIGINT else "terminated"
    assert [
        (fact["outcome"], fact["cause"]) for fact in facts(world) if fact["type"] == "turn.ended"
    ] == [("interrupted", cause)]
    scripted(world, [message("Hello."), DONE])
    assert run(world)[0] == "Hello.\n"


@pytest.mark.promise(6)
def test_a_stop_is_heeded_while_codex_does_not_say_who_is_signed_in(world: World) -> None:
    again = ["error", {"error": {"message": "no answer"}, "willRetry": True}]
    scripted(world, [delta("Hel"), again, delta("lo.")], stopped=[STOPPED], silent="account/read")
    with world.start("run", "go", "--key", "k") as program:
        program.wait_shown("lo.")
        began_s = time.monotonic()
        program.signal(signal.SIGINT)
        assert program.end() == 130
        assert time.monotonic() - began_s < 15, "codex has 30 s to answer"


@contextmanager
def steering(world: World, said: str) -> Iterator[Program]:
    """Somebody who says this to the turn that runs, and waits for the answer."""
    with world.start("run", said, "--session", world.only_session(), "--steer") as program:
        wait_until(lambda: said in json.dumps(facts(world)), "the input to be stored")
        time.sleep(0.5)
        yield program


@pytest.mark.promise(6, 22)
def test_a_stop_is_heeded_while_codex_does_not_answer_to_an_input_that_steers(world: World) -> None:
    scripted(world, [delta("Hello.")], stopped=[STOPPED], silent="turn/steer")
    with world.start("run", "go", "--key", "k") as program:
        program.wait_shown("Hello.")
        with steering(world, "more") as second:
            began_s = time.monotonic()
            program.signal(signal.SIGINT)
            assert program.end() == 130
            assert time.monotonic() - began_s < 15, "codex has 30 s to answer"
            second.wait_shown("Hello.")
            second.kill()
    said = [(one["text"], one["state"]) for one in world.messages(world.only_session())]
    assert said[:3] == [("go", "complete"), ("Hello.", "interrupted"), ("more", "complete")]


@pytest.mark.promise(21, 37)
def test_an_answer_to_codex_does_not_wait_for_codex_to_take_an_input(world: World) -> None:
    """The stand-in reads nothing but the answer to its question."""
    command = {"type": "commandExecution", "id": "c", "command": "x", "status": "inProgress"}
    waits = [
        "thread/status/changed",
        {"status": {"type": "active", "activeFlags": ["waitingOnApproval"]}},
    ]
    asks = ["item/commandExecution/requestApproval", {"itemId": "c"}, 7]
    scripted(world, [waits, item("started", **command), asks, message("Hello."), DONE])
    world.steno("sessions")
    with world.start("run", "go", "--key", "k", "--ask", "wait") as program:
        wait_until(
            lambda: "approval.asked" in [fact["type"] for fact in facts(world)], "a question"
        )
        with steering(world, "more one"), steering(world, "more two"):
            began_s = time.monotonic()
            world.steno("approve", world.only_session())
            program.wait_shown("Hello.")
            assert time.monotonic() - began_s < 15, "codex has 30 s to answer"
            program.end()
    users = [one["text"] for one in world.messages(world.only_session(), "user")]
    assert users == ["go", "more one", "more two"]


@pytest.mark.promise(46)
def test_the_reason_of_a_question_is_on_the_screen(world: World) -> None:
    change = {"path": "a.txt", "kind": {"type": "add"}, "diff": "x"}
    patch = item("started", type="fileChange", id="f", changes=[change], status="inProgress")
    asks = [
        "item/fileChange/requestApproval",
        {"itemId": "f", "reason": "write beyond\u001b[2J"},
        7,
    ]
    scripted(world, [patch, asks, message("Hello."), DONE])

    async def talk(person: Person) -> None:
        await person.say("go")
        await person.sees("Allow apply_patch?", "because: write beyond")
        await person.deny("apply_patch")
        await person.sees("Hello.")
        assert "because" not in person.screen()

    chat_with(world, talk)


def test_a_codex_that_asks_and_dies_fails_the_turn_and_says_so(world: World) -> None:
    scripted(world, [delta("Hello."), ["item/tool/requestUserInput", {"itemId": "z"}, 9], "dies"])
    shown, errors = run(world)
    assert shown == "Hello.\n"
    assert "codex ended by itself" in errors
    assert "Traceback" not in errors
    [turn] = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ("failed", "codex")


def test_a_codex_that_ends_and_leaves_its_output_open_fails_the_turn(world: World) -> None:
    scripted(world, [delta("Hello."), "dies"])
    program = world.work.parent / "codex"
    program.write_text(program.read_text().replace("exec", "sleep 600 &\nexec"))
    shown, errors = run(world)
    assert shown == "Hello.\n"
    assert "codex ended by itself" in errors
    [turn] = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ("failed", "codex")


def test_lines_that_are_no_messages_are_logged_once(world: World) -> None:
    scripted(world, [message("Hello."), DONE])
    program = world.work.parent / "codex"
    program.write_text(program.read_text().replace("exec", "seq 1000\nexec"))
    shown, errors = run(world)
    assert shown == "Hello.\n"
    assert errors.count("is no message") == 1


def test_a_request_about_a_call_that_nobody_knows_is_answered_and_the_turn_goes_on(
    world: World,
) -> None:
    asks = [
        ["item/tool/call", {"callId": "x", "tool": "read_output", "arguments": {}}, 7],
        ["item/commandExecution/requestApproval", {"itemId": "y"}, 8],
        ["item/tool/requestUserInput", {"itemId": "z"}, 9],
    ]
    scripted(world, [*asks, message("Hello."), DONE])
    shown, errors = run(world)
    assert shown == "Hello.\n"
    assert "item/tool/requestUserInput, which steno does not do" in errors


@pytest.mark.promise(4)
def test_a_tool_of_ours_that_codex_asks_for_twice_is_run_once_and_both_get_its_outcome(
    world: World,
) -> None:
    called = item("started", type="dynamicToolCall", id="c", tool="odd__count", arguments={})
    asks = ["item/tool/call", {"callId": "c", "tool": "odd__count", "arguments": {}}, 1, 2]
    scripted(world, [called, asks, message("It says: ANSWERS."), DONE])
    world.steno("sessions")
    world.home.joinpath("config.toml").write_text(stdio("odd", odd()))
    with world.start("run", "go", "--key", "k", "--yes") as program:
        assert program.end() == 0
        assert program.shown() == "It says: count 1, count 1.\n"
    assert (world.work / "count.txt").read_text() == "run\n"
    kinds = [fact["type"] for fact in facts(world)]
    assert (kinds.count("tool.started"), kinds.count("tool.settled")) == (1, 1)


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        ({"turn": {"status": "completed"}}, "done"),
        ({"turn": {"id": 7}}, "failed"),
        ({"turn": None}, "failed"),
    ],
)
@pytest.mark.suite("end0-done")
def test_an_end_that_does_not_say_of_which_turn_ends_the_one_that_runs(
    world: World, end: Any, outcome: str
) -> None:
    scripted(world, [message("Hello."), ["turn/completed", end]])
    assert run(world)[0] == "Hello.\n"
    [turn] = world.show(world.only_session())["turns"]
    assert turn["outcome"] == outcome
    if outcome == "failed":
        [ended] = [fact for fact in facts(world) if fact["type"] == "turn.ended"]
        assert ended["detail"] == "it ended in a way that steno cannot read"


def test_an_answer_that_cannot_be_read_fails_the_turn_and_says_so(world: World) -> None:
    scripted(world, [], opened={"thread": "none"})
    _, errors = run(world)
    assert "in a way that steno does not understand" in errors
    assert "0.163" in errors
    [turn] = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ("failed", "codex")


@pytest.mark.promise(3)
def test_a_question_that_cannot_be_stored_ends_the_turn_and_codex_is_not_kept_waiting(
    world: World,
) -> None:
    command = {"type": "commandExecution", "id": "c", "command": "x", "status": "inProgress"}
    waits = [
        "thread/status/changed",
        {"status": {"type": "active", "activeFlags": ["waitingOnApproval"]}},
    ]
    asks = ["item/commandExecution/requestApproval", {"itemId": "c"}, 7]
    scripted(world, [waits, item("started", **command), asks, message("Hello."), DONE])
    words = (
        sys.executable,
        str(Path(__file__).with_name("unasking.py")),
        "run",
        "go",
        "--key",
        "k",
        "--ask",
        "wait",
    )
    with Program(world, words) as program:
        assert program.end() == 1
        assert "the disk is full" in program.errors()
    [turn] = world.show(world.only_session())["turns"]
    assert turn["outcome"] == "interrupted"
    assert "tool.started" not in [fact["type"] for fact in facts(world)]


def test_an_approved_call_that_codex_does_not_come_back_to_says_so(world: World) -> None:
    command = {"type": "commandExecution", "id": "c", "command": "x", "status": "inProgress"}
    waits = [
        "thread/status/changed",
        {"status": {"type": "active", "activeFlags": ["waitingOnApproval"]}},
    ]
    scripted(
        world,
        [
            waits,
            item("started", **command),
            ["item/commandExecution/requestApproval", {"itemId": "c"}, 7],
        ],
    )
    world.steno("sessions")
    with world.start("run", "go", "--key", "k", "--ask", "wait") as program:
        wait_until(
            lambda: "approval.asked" in [fact["type"] for fact in facts(world)], "a question"
        )
        program.kill()
    session = world.only_session()
    world.steno("approve", session)
    scripted(world, [message("Hello."), DONE])
    world.steno("continue", session)
    [unrun] = world.messages(session, "tool")
    assert unrun["text"] == "not run: it was approved, and codex did not come back to it"
    assert [one["outcome"] for one in world.show(session)["turns"]] == ["done"]


def test_a_rule_for_files_counts_for_a_patch_that_waited_while_nobody_ran_the_session(
    world: World,
) -> None:
    change = {"path": str(world.work / "a.txt"), "kind": {"type": "add"}, "diff": "x"}
    patch = item("started", type="fileChange", id="f", changes=[change], status="inProgress")
    scripted(world, [patch, ["item/fileChange/requestApproval", {"itemId": "f"}, 7], DONE])
    world.steno("sessions")
    with world.start("run", "go", "--key", "k", "--ask", "wait") as program:
        wait_until(
            lambda: "approval.asked" in [fact["type"] for fact in facts(world)], "a question"
        )
        program.kill()
    session = world.only_session()
    world.steno("rules", session, "--deny", f"edit_file:{world.work}/*")
    scripted(world, [message("Hello."), DONE])
    world.steno("continue", session, "--ask", "wait")
    [refused] = world.messages(session, "tool")
    assert refused["text"] == f"not run: the rule 'edit_file:{world.work}/*' denies it"


@pytest.mark.parametrize("budget", ["STENO_LIMITS_STEPS_MAX", "STENO_LIMITS_TURN_TOKENS_MAX"])
def test_a_turn_that_has_spent_its_budget_is_stopped_and_says_so(world: World, budget: str) -> None:
    command = {"type": "commandExecution", "id": "c", "command": "x", "processId": "1"}
    ran = item("completed", **command, status="completed", exitCode=0, aggregatedOutput="out")
    used = [
        "thread/tokenUsage/updated",
        {"tokenUsage": {"last": {"inputTokens": 5, "outputTokens": 5}}},
    ]
    scripted(world, [item("started", **command, status="inProgress"), used, ran], stopped=[STOPPED])
    world.environment[budget] = "1"
    _, errors = run(world)
    assert "the turn reached its budget of 1 " in errors
    [turn] = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ("failed", "budget")
    [outcome] = world.messages(world.only_session(), "tool")
    assert (outcome["text"], outcome["state"]) == ("out", "complete")


@pytest.mark.promise(8)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.suite("SIGKILL")
def test_a_compaction_that_does_not_end_is_left_at_once_and_its_call_is_recorded(
    world: World, number: int
) -> None:
    scripted(world, [message("Hello."), DONE])
    run(world)
    with world.start("compact", world.only_session()) as program:
        wait_until(
            lambda: "helper.started" in [fact["type"] for fact in facts(world)], "codex to be asked"
        )
        program.signal(number)
        assert program.end() != 0
    assert run(world)[0] == "Hello.\n"
    [ended] = [fact for fact in facts(world) if fact["type"] == "helper.ended"]
    assert (ended["outcome"], ended["sent"]) == (
        "stopped" if number == signal.SIGINT else "unknown",
        "unknown",
    )


@pytest.mark.promise(5, 9)
def test_output_that_was_shown_otherwise_is_kept_beside_the_whole(world: World) -> None:
    command = {"type": "commandExecution", "id": "c", "command": "x", "processId": "1"}
    output = ["item/commandExecution/outputDelta", {"itemId": "c", "delta": "second\n"}]
    whole = item(
        "completed", **command, status="completed", exitCode=0, aggregatedOutput="first\nsecond\n"
    )
    scripted(
        world,
        [item("started", **command, status="inProgress"), output, whole, message("Done."), DONE],
    )
    shown, errors = run(world)
    assert shown == "Done.\n"
    assert 'codex runs a command without asking: {"command": "x"}' in errors
    [ran] = world.messages(world.only_session(), "tool")
    assert (ran["text"], ran["state"]) == ("first\nsecond\n", "complete")
    [settled] = [fact for fact in facts(world) if fact["type"] == "tool.settled"]
    assert settled["shown"] == [{"type": "text", "text": "second\n"}]


def facts(world: World) -> list[dict[str, Any]]:
    with sqlite3.connect(f"file:{world.home / 'store.db'}?mode=ro", uri=True) as store:
        return [json.loads(body) for (body,) in store.execute("select body from facts order by id")]


def steer_at_the_end(world: World, then: list[Any]) -> list[tuple[str, str, str]]:
    """A turn that takes an input when everything was said, and the turn after it. What is
    stored."""
    taken = item("started", type="userMessage", id="u", clientId="STEERED")
    scripted(world, [delta("Hello."), message("Hello."), "steered", taken, DONE], then=then)
    with world.start("run", "go", "--key", "k") as program:
        program.wait_shown("Hello.")
        world.steno("run", "and", "--session", world.only_session(), "--steer", expect=None)
        program.end()
    return [
        (one["role"], one["text"], one["state"]) for one in world.messages(world.only_session())
    ]


@pytest.mark.promise(9, 21)
def test_an_input_that_codex_took_at_its_end_is_asked_about_once_more(world: World) -> None:
    said = steer_at_the_end(world, [delta("And so on.", "n"), message("And so on.", "n"), DONE])
    assert said[:3] == [
        ("user", "go", "complete"),
        ("assistant", "Hello.", "complete"),
        ("user", "and", "complete"),
    ]
    assert said[-1] == ("assistant", "And so on.", "complete")
    [lost] = [fact for fact in facts(world) if fact["type"] == "step.lost"]
    assert "it is asked once more" in lost["detail"]
    [turn] = world.show(world.only_session())["turns"]
    assert turn["outcome"] == "done"


def test_an_input_that_codex_says_nothing_to_is_not_called_done(world: World) -> None:
    said = steer_at_the_end(world, [DONE])
    assert ("user", "and", "failed") in said
    [turn] = world.show(world.only_session())["turns"]
    assert (turn["outcome"], turn["cause"]) == ("failed", "empty")
