"""What codex's own rules files allow is asked about all the same: our rules come first, and a
question waits."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from steno.runtimes.codex.gate import CallGate, needed
from steno.runtimes.codex.protocol import ServerRequest
from tests.codex.test_kills import POINTS, check, run_dying
from tests.codex.test_sharing import asked_of_codex
from tests.codex.world import CONFIG, CodexWorld
from tests.program.diary import install
from tests.program.test_plugins import NOSY
from tests.program.world import Program, wait_until

ALLOW = 'prefix_rule(pattern=["touch"], decision="allow")\n'


@pytest.fixture
def world(world: CodexWorld) -> CodexWorld:
    """Codex's home allows `touch`, as if somebody had said "always" there."""
    allow(world.codex_home)
    return world


def allow(place: Path) -> None:
    (place / "rules").mkdir(parents=True)
    (place / "rules" / "default.rules").write_text(ALLOW)


def allow_in_project(world: CodexWorld) -> None:
    (world.codex_home / "rules" / "default.rules").unlink()
    allow(world.work / ".codex")
    trusted = f'[projects."{world.work}"]\ntrust_level = "trusted"\n'
    world.codex_home.joinpath("config.toml").write_text(
        CONFIG.format(url=world.server.url) + trusted
    )


def made(world: CodexWorld) -> bool:
    return (world.work / "made").exists()


def kinds(world: CodexWorld) -> list[str]:
    return [str(fact["type"]) for fact in world.facts()]


def asked(world: CodexWorld) -> Program:
    world.steno("sessions")  # makes the store
    program = world.start("run", "touch", "--key", "k", "--ask", "wait")
    wait_until(lambda: "approval.asked" in kinds(world), "a question")
    return program


@pytest.mark.promise(4)
@pytest.mark.parametrize("where", ["home", "project"])
@pytest.mark.suite("project")
def test_a_rule_that_denies_counts_for_what_codex_allows(world: CodexWorld, where: str) -> None:
    if where == "project":
        allow_in_project(world)
    world.steno("sessions")
    world.home.joinpath("config.toml").write_text('[approvals]\n"shell:touch*" = "deny"\n')
    assert world.run("touch", "--yes") == "I look.It ran.\n"
    assert not made(world)
    [refused] = world.messages(world.only_session(), "tool")
    assert (refused["state"], refused["text"]) == (
        "failed",
        "not run: the rule 'shell:touch*' denies it",
    )
    assert "tool.started" not in kinds(world)
    assert "the rule 'shell:touch*' denies it" in str(world.requests("touch")[-1]), (
        "the model is told why"
    )


@pytest.mark.promise(4, 37)
def test_a_command_that_codex_allows_waits_for_a_person(world: CodexWorld) -> None:
    with asked(world) as program:
        [waiting] = json.loads(world.steno("approvals", "--json"))
        assert (waiting["tool"], json.loads(waiting["arguments"])) == (
            "shell",
            {"command": "touch made"},
        )
        assert not made(world)
        world.steno("approve", world.only_session())
        assert program.end() == 0
        assert program.shown() == "I look.It ran.\n"
    assert made(world)
    _, called, ran, _ = world.messages(world.only_session())
    assert [call["id"] for call in called["tool_calls"]] == [ran["tool_call_id"]]
    assert ran["state"] == "complete"
    stored = kinds(world)
    order = ("approval.asked", "approval.decided", "tool.started", "tool.settled")
    assert [stored.count(kind) for kind in order] == [1, 1, 1, 1]
    assert sorted(order, key=stored.index) == list(order)


def test_nobody_to_ask_means_no(world: CodexWorld) -> None:
    world.run("touch")
    assert not made(world)


@pytest.mark.promise(37)
@pytest.mark.parametrize("ended", ["steno killed", "codex killed", "terminated"])
@pytest.mark.suite("steno killed")
def test_the_question_outlives_who_asked_it(world: CodexWorld, ended: str) -> None:
    with asked(world) as program:
        session = world.only_session()
        if ended == "codex killed":
            world.kill_codex()
        else:
            program.signal(signal.SIGTERM if ended == "terminated" else signal.SIGKILL)
            program.process.wait(30)
            world.wait_codex_gone()
        assert not made(world)
        world.steno("approve", session)
        if ended == "codex killed":
            assert program.end() == 0
        else:
            world.steno("continue", session)
    [ran] = world.messages(session, "tool")
    assert ran["state"] == "complete"
    assert kinds(world).count("tool.started") == 1
    assert len(world.threads()) == 1


@pytest.mark.promise(23)
def test_a_stop_while_it_waits_ends_the_turn(world: CodexWorld) -> None:
    with asked(world) as program:
        world.steno("interrupt", world.only_session())
        assert program.end() == 130
    world.wait_codex_gone()
    assert not made(world)
    assert world.run("and") == "And so on.\n"


def test_what_codex_asks_about_by_itself_is_asked_once(world: CodexWorld) -> None:
    world.run("echo", "--yes")
    world.run("patch", "--yes")
    assert (world.work / "ran").read_text() == "ran\n"
    assert (world.work / "new.txt").read_text() == "made by a patch\n"
    calls = [
        call["name"] for one in world.messages(world.only_session()) for call in one["tool_calls"]
    ]
    assert calls == ["shell", "apply_patch"]
    assert [one["state"] for one in world.messages(world.only_session(), "tool")] == [
        "complete",
        "complete",
    ]
    stored = kinds(world)
    assert (stored.count("tool.started"), stored.count("tool.settled")) == (2, 2)


def test_a_codex_that_runs_no_hooks_is_not_let_loose(world: CodexWorld) -> None:
    config = CONFIG.format(url=world.server.url).replace("[features]", "[features]\nhooks = false")
    world.codex_home.joinpath("config.toml").write_text(config)
    with world.start("run", "touch", "--key", "k", "--yes") as program:
        assert program.end() == 1
        assert "turn hooks on in its configuration" in program.errors()
    assert not made(world)


@pytest.mark.promise(4, 5, 6, 19, 34)
@pytest.mark.parametrize(("victim", "when", "n"), POINTS)
@pytest.mark.suite("both-after-18")
def test_killed_at_a_message(world: CodexWorld, victim: str, when: str, n: int) -> None:
    world.run("hello")
    check(world, run_dying(world, victim, when, n))


@pytest.mark.parametrize("hooks", ["true", "false"])
@pytest.mark.suite("true")
def test_a_login_alone_does_not_need_hooks(world: CodexWorld, hooks: str) -> None:
    """It can bring tools, and they are asked about where codex runs hooks."""
    (world.codex_home / "rules" / "default.rules").unlink()
    (world.codex_home / "auth.json").write_text('{"OPENAI_API_KEY": "key"}')
    config = CONFIG.format(url=world.server.url).replace(
        "[features]", f"[features]\nhooks = {hooks}"
    )
    world.codex_home.joinpath("config.toml").write_text(config)
    assert world.run("touch", "--yes") == "I look.It ran.\n"
    assert made(world)


@pytest.mark.promise(4, 37)
@pytest.mark.parametrize(
    ("gate", "prompt"),
    [(gate, prompt) for gate in (False, True) for prompt in ("touch", "patch")],
)
@pytest.mark.suite("True-touch")
def test_a_hook_of_codex_does_not_answer_in_our_place(
    world: CodexWorld, gate: bool, prompt: str
) -> None:
    """Who trusts it in codex has not said yes here."""
    if not gate:
        (world.codex_home / "rules" / "default.rules").unlink()
    has_hook(world, "PermissionRequest", {"decision": {"behavior": "allow"}})
    world.run(prompt)
    assert list(world.work.iterdir()) == []
    [refused] = world.messages(world.only_session(), "tool")
    assert refused["text"].startswith("not run: it needs approval")


@pytest.mark.promise(4)
@pytest.mark.parametrize("instead", ["touch other", "echo > other"])
@pytest.mark.suite("touch other")
def test_a_command_that_a_hook_of_codex_puts_in_place_of_another_is_a_call_of_its_own(
    world: CodexWorld, instead: str
) -> None:
    """What was approved did not run; what runs is asked about, unless codex's own rules allow
    it."""
    has_hook(
        world, "PreToolUse", {"permissionDecision": "allow", "updatedInput": {"command": instead}}
    )
    allowed = instead.startswith("touch")
    with asked(world) as program:
        world.steno("approve", world.only_session())
        if not allowed:
            wait_until(lambda: kinds(world).count("approval.asked") == 2, "another question")
            [waiting] = json.loads(world.steno("approvals", "--json"))
            assert json.loads(waiting["arguments"]) == {"command": instead}
            assert list(world.work.iterdir()) == []
            world.steno("approve", world.only_session())
        assert program.end() == 0
        assert ("codex runs a command without asking" in program.errors()) == allowed
    messages = world.messages(world.only_session())
    calls = [
        json.loads(call["arguments"])["command"] for one in messages for call in one["tool_calls"]
    ]
    assert calls == ["touch made", instead]
    unrun, ran = (one["text"] for one in messages if one["role"] == "tool")
    assert (unrun, ran) == ("not run: a hook of codex's own put another call in its place", "")
    assert [one.name for one in world.work.iterdir()] == ["other"]


def has_hook(world: CodexWorld, event: str, says: dict[str, Any]) -> None:
    """Somebody has given codex a hook that says this, and trusts it."""
    said = world.codex_home / "said.json"
    said.write_text(json.dumps({"hookSpecificOutput": {"hookEventName": event, **says}}))
    hook = f'[[hooks.{event}]]\nhooks = [{{type = "command", command = "cat {said}"}}]\n'
    config = world.codex_home / "config.toml"
    config.write_text(config.read_text() + hook)
    listed = asked_of_codex(world, "hooks/list", {"cwds": [str(world.work)]})
    [known] = listed["data"][0]["hooks"]
    trusted = f"trusted_hash = {json.dumps(known['currentHash'])}\n"
    config.write_text(f"{config.read_text()}[hooks.state.{json.dumps(known['key'])}]\n{trusted}")


def test_where_the_gate_is_needed(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "project" / "within"
    folder.mkdir(parents=True)
    assert needed(home, folder) == "none"
    allow(tmp_path / "project" / ".codex")
    assert needed(home, folder) == "all", "a rules file above the folder"
    assert needed(home, tmp_path) == "none"
    home.mkdir()
    (home / "auth.json").touch()
    assert needed(home, tmp_path) == "some"
    (home / "config.toml").write_text("[features]\nplugins = false\n")
    assert needed(home, tmp_path) == "some"
    for servers in (
        '[mcp_servers.odd]\ncommand = "odd"\n',
        '[plugins."a@b"]\nenabled = true\n',
        "not toml [",
    ):
        (home / "config.toml").write_text(servers)
        assert needed(home, tmp_path) == "all"


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.suite("False")
def test_in_the_sandbox_nothing_is_done_unasked(world: CodexWorld, gate: bool) -> None:
    del world.environment["STENO_CODEX_SANDBOX"]
    if not gate:
        (world.codex_home / "rules" / "default.rules").unlink()
    for prompt in ("echo", "patch"):
        world.run(prompt)
    refused = world.messages(world.only_session(), "tool")
    assert [one["state"] for one in refused] == ["failed", "failed"]
    assert all(one["text"].startswith("not run: it needs approval") for one in refused)
    assert list(world.work.iterdir()) == []


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.suite("True")
def test_a_plugin_is_asked_once_about_a_command_and_may_deny_it(
    world: CodexWorld, gate: bool
) -> None:
    if not gate:
        (world.codex_home / "rules" / "default.rules").unlink()
    install(world, "nosy", NOSY)
    world.run("touch", "--yes")
    assert not made(world)
    [refused] = world.messages(world.only_session(), "tool")
    assert refused["text"] == "not run: the plugin nosy denies it: not on a full moon"
    world.run("echo", "--yes")
    heard = [json.loads(line) for line in (world.home / "nosy.jsonl").read_text().splitlines()]
    assert [one["hook"] for one in heard].count("before_tool") == 2, "once for each command"


@pytest.mark.parametrize("broken", ["nobody listens", "no python"])
def test_a_hook_that_cannot_ask_says_no(broken: str) -> None:
    gate = CallGate()
    with asyncio.Runner() as runner:
        _, setting, *_ = runner.run(gate.open())
        [hook] = (Path(path) for path in re.findall(r'command="sh ([^"]+)"', setting))
        if broken == "no python":
            hook.write_text(hook.read_text().replace(sys.executable, "/none/python"))
        else:
            hook.with_name("socket").unlink()
        said = subprocess.run(
            ["sh", str(hook)], input=b"{}", capture_output=True, check=False, timeout=30
        )
        runner.run(closed(gate))
    assert (said.returncode, b"not run: steno" in said.stderr) == (2, True), (
        "2 is how a hook of codex says no"
    )
    assert not hook.parent.exists()


async def heard_of_two_alike() -> list[int | str]:
    gate = CallGate()
    _, setting, *_ = await gate.open()
    [hook] = (Path(path) for path in re.findall(r'command="sh ([^"]+)"', setting))
    heard: asyncio.Queue[ServerRequest] = asyncio.Queue()
    gate.listen(heard.put_nowait)
    asks = {
        "tool_use_id": "c",
        "turn_id": "t",
        "tool_name": "Bash",
        "tool_input": {"command": "ls"},
    }
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        for waiting in (first, second):
            waiting.connect(str(hook.with_name("socket")))
            waiting.sendall(json.dumps(asks).encode() + b"\n")
        try:
            async with asyncio.timeout(10):
                return [(await heard.get()).id for _ in range(2)]
        finally:
            gate.close()


def test_two_calls_with_one_id_are_both_asked_about() -> None:
    """Whoever is not heard waits for ever."""
    assert asyncio.run(heard_of_two_alike()) == ["gate/1", "gate/2"]


def test_a_gate_of_a_dead_process_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gates = _, first, second = CallGate(), CallGate(), CallGate()
    tmp_path.joinpath("steno-gate-else").symlink_to(tmp_path)
    left = tmp_path / "steno-gate-dead"
    left.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left / "socket"))
    old = tmp_path / "steno-gate-old"
    old.mkdir()
    os.utime(old, (0, 0))
    before = set(tmp_path.iterdir())
    with asyncio.Runner() as runner:
        runner.run(first.open())
        runner.run(second.open())
        assert before - set(tmp_path.iterdir()) == {left, old}
        for gate in gates:
            runner.run(closed(gate))


def test_a_gate_is_made_where_its_address_is_not_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = tmp_path / ("far" * 40)
    far.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(far))
    with asyncio.Runner() as runner:
        gate = CallGate()
        runner.run(gate.open())
        runner.run(closed(gate))
    assert list(far.iterdir()) == []


async def closed(gate: CallGate) -> None:
    gate.close()
