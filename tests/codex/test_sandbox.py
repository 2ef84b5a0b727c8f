"""In codex's sandbox: what was approved runs at most once and inside; to leave it is another
question."""

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.codex.doings import COUNTED, own_server, told
from tests.codex.responses_server import Answer, Item, call, message
from tests.codex.test_items import SCRIPTING, calls
from tests.codex.test_kills import POINTS, check, run_dying
from tests.codex.world import PATCH, CodexWorld
from tests.program.test_cli_terminal import terminal
from tests.program.world import Program, wait_until

KNOWN = "gpt-5.5"
"""A model that codex knows, and offers its own tool for changes to."""
PLAIN = "*** Begin Patch\n*** Add File: new.txt\n+made by a patch\n*** End Patch"


@pytest.fixture
def world(world: CodexWorld) -> CodexWorld:
    """Codex makes no programs of its own in a home among temporary files, and with a bwrap of the
    system that is older than 0.9 its sandbox needs them."""
    temporary = world.home.parent / "tmp"
    temporary.mkdir()
    world.environment |= {"STENO_CODEX_SANDBOX": "workspace-write", "TMPDIR": str(temporary)}
    world.steno("sessions")  # makes the store
    return world


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that the sandbox does not let commands write to: those for temporary files it
    does."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


def leaving(outside: Path) -> str:
    return f"echo ran >> ran; echo x > {outside}/made"


def escalated(command: str, reason: str = "") -> Item:
    why = {"justification": reason} if reason else {}
    return call("exec_command", "c1", cmd=command, sandbox_permissions="require_escalated", **why)


def terminal_outside(*typed: str) -> tuple[Answer, ...]:
    """A shell that runs outside the sandbox, and what is typed into it."""

    def types(text: str, id: str) -> Answer:
        def answer(returned: str) -> list[Item]:
            session = int(re.findall(r"session ID (\d+)", returned)[0])
            return [call("write_stdin", id, session_id=session, chars=text, yield_time_ms=500)]

        return answer

    why = {"sandbox_permissions": "require_escalated", "justification": "to look"}
    shell = call("exec_command", "c1", cmd="sh", tty=True, yield_time_ms=300, **why)
    return [shell], *(types(text, f"t{n}") for n, text in enumerate(typed)), [message("Done.")]


def script(body: str) -> Item:
    return {
        "type": "custom_tool_call",
        "call_id": "x",
        "name": "exec",
        "namespace": "functions",
        "input": body,
    }


def kinds(world: CodexWorld) -> list[str]:
    return [str(fact["type"]) for fact in world.facts()]


def ran(world: CodexWorld) -> int:
    return (world.work / "ran").read_text().count("ran") if (world.work / "ran").exists() else 0


def waiting(world: CodexWorld) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(world.steno("approvals", "--json"))
    return found


def waiting_at(world: CodexWorld) -> int:
    """The seq of the last question. The facts of the only session, in order, begin with 1."""
    return max(at for at, kind in enumerate(kinds(world), start=1) if kind == "approval.asked")


def asked(world: CodexWorld, n: int = 1) -> None:
    wait_until(lambda: kinds(world).count("approval.asked") == n, f"{n} questions")


def outcomes(world: CodexWorld) -> list[tuple[str, str]]:
    return [(one["state"], one["text"]) for one in world.messages(world.only_session(), "tool")]


def start(world: CodexWorld) -> Program:
    return world.start("run", "go", "--key", "k", "--ask", "wait")


@pytest.mark.promise(4)
@pytest.mark.parametrize("how", ["called", "scripted", "read-only"])
@pytest.mark.suite("called")
def test_a_command_that_the_sandbox_stops_runs_once(
    world: CodexWorld, outside: Path, how: str
) -> None:
    if how == "read-only":
        world.environment["STENO_CODEX_SANDBOX"] = "read-only"
    command = leaving(outside)
    doing = call("exec_command", "c1", cmd=command)
    if how == "scripted":
        doing = script(f"text((await tools.exec_command({{cmd: {json.dumps(command)}}})).output)")
    model = SCRIPTING if how == "scripted" else "fake-model"
    with told(world, [doing], [message("Done.")], model=model):
        assert world.run("go", "--yes") == "Done.\n"
    assert ran(world) == (how != "read-only")
    assert list(outside.iterdir()) == []
    assert calls(world) == [("shell", {"command": command})]
    [(state, text)] = outcomes(world)
    assert (state, "Read-only file system" in text) == ("failed", True)
    stored = kinds(world)
    assert (stored.count("tool.started"), stored.count("tool.settled")) == (1, 1)


@pytest.mark.torture
@pytest.mark.promise(37)
def test_who_approves_a_command_that_the_sandbox_stops_sees_it_fail_before_the_turn_ends(
    world: CodexWorld, outside: Path
) -> None:
    stopped = call("exec_command", "c1", cmd=leaving(outside))
    again = call("exec_command", "c2", cmd="echo ran >> ran")
    with told(world, [stopped], [again], [message("Done.")]), start(world) as program:
        asked(world)
        assert ran(world) == 0
        world.steno("approve", world.only_session())
        asked(world, 2)
        assert [state for state, _ in outcomes(world)] == ["failed"]
        assert ran(world) == 1
        world.steno("approve", world.only_session())
        assert program.end() == 0
    assert ran(world) == 2
    assert [state for state, _ in outcomes(world)] == ["failed", "complete"]
    assert list(outside.iterdir()) == []


@pytest.mark.promise(4, 37)
@pytest.mark.parametrize("how", ["called", "scripted", "commanded"])
@pytest.mark.parametrize("decision", ["approve", "deny", "rule"])
@pytest.mark.suite("approve-called", "deny-scripted")
def test_a_patch_in_the_folder_is_asked_about_once(
    world: CodexWorld, how: str, decision: str
) -> None:
    doing, model = {
        "called": (
            {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": PLAIN},
            KNOWN,
        ),
        "scripted": (script(f"await tools.apply_patch({json.dumps(PLAIN)})"), SCRIPTING),
        "commanded": (call("exec_command", "c1", cmd=PATCH), "fake-model"),
    }[how]
    new = world.work / "new.txt"
    if decision == "rule":
        world.home.joinpath("config.toml").write_text(f'[approvals]\n"edit_file:{new}" = "deny"\n')
    with told(world, [doing], [message("Done.")], model=model), start(world) as program:
        if decision != "rule":
            asked(world)
            [one] = waiting(world)
            change = {"path": str(new), "kind": "add", "diff": "made by a patch\n"}
            assert (one["tool"], json.loads(one["arguments"])) == (
                "apply_patch",
                {"changes": [change]},
            )
            assert not new.exists()
            world.steno(decision, world.only_session())
        assert program.end() == 0
    assert new.exists() == (decision == "approve")
    assert [name for name, _ in calls(world)] == ["apply_patch"]
    [(state, text)] = outcomes(world)
    assert state == ("complete" if decision == "approve" else "failed")
    assert ("denies it" in text) == (decision == "rule")
    stored = kinds(world)
    assert stored.count("approval.asked") == (decision != "rule")
    assert stored.count("tool.started") == (decision == "approve")
    if decision == "approve":
        assert (
            stored.index("approval.decided")
            < stored.index("tool.started")
            < stored.index("tool.settled")
        )


@pytest.mark.torture
@pytest.mark.promise(4)
def test_a_patch_meets_the_rules_for_the_folder_that_its_command_runs_in(world: CodexWorld) -> None:
    (world.work / "kept").mkdir()
    world.home.joinpath("config.toml").write_text(
        f'[approvals]\n"edit_file:{world.work}/kept/*" = "deny"\n'
    )
    within = call("exec_command", "c1", cmd=PATCH, workdir="kept")
    with told(world, [within], [message("Done.")]):
        world.run("go", "--yes")
    assert list((world.work / "kept").iterdir()) == []
    [(state, text)] = outcomes(world)
    assert (state, "denies it" in text) == ("failed", True)


@pytest.mark.torture
@pytest.mark.promise(4)
def test_a_patch_that_moves_a_file_meets_the_rules_for_where_it_goes(world: CodexWorld) -> None:
    (world.work / "old").write_text("a\n")
    world.home.joinpath("config.toml").write_text(
        f'[approvals]\n"edit_file:{world.work}/kept" = "deny"\n'
    )
    moves = "*** Begin Patch\n*** Update File: old\n*** Move to: kept\n@@\n-a\n+b\n*** End Patch"
    doing = {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": moves}
    for sandbox in ("workspace-write", "danger-full-access"):
        world.environment["STENO_CODEX_SANDBOX"] = sandbox
        with told(world, [doing], [message("Done.")], model=KNOWN):
            world.run("go", "--yes")
        assert [one.name for one in world.work.iterdir()] == ["old"]
        assert "denies it" in outcomes(world)[-1][1]


def test_a_patch_that_cannot_be_made_is_stored_as_failed(world: CodexWorld) -> None:
    wrong = PLAIN.replace("Add File", "Update File").replace("+", "@@\n-")
    doing = {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": wrong}
    with told(world, [doing], [message("Done.")], model=KNOWN):
        world.run("go", "--yes")
    assert outcomes(world) == [
        ("failed", "codex said nothing of it: it was not run, or it failed at once")
    ]


def test_a_patch_that_steno_cannot_read_is_not_made(world: CodexWorld) -> None:
    odd = f"<<EOF\n{PLAIN}\nEOF"
    doing = {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": odd}
    with told(world, [doing], [message("Done.")], model=KNOWN) as provider:
        world.run("go", "--yes")
        assert "cannot read this patch" in json.dumps(provider.requests[-1]["input"][-1])
    assert list(world.work.iterdir()) == []
    [(state, text)] = outcomes(world)
    assert (state, "cannot read this patch" in text) == ("failed", True)


def test_always_for_a_patch_is_for_its_files_and_no_others(world: CodexWorld) -> None:
    def patch(n: int, body: str) -> Item:
        text = f"*** Begin Patch\n{body}\n*** End Patch"
        return {
            "type": "custom_tool_call",
            "call_id": f"c{n}",
            "name": "apply_patch",
            "input": text,
        }

    both = patch(1, "*** Add File: one\n+a\n*** Add File: two\n+a")
    again = patch(2, "*** Update File: two\n@@\n-a\n+b")
    other = patch(3, "*** Add File: three\n+a")
    with (
        told(world, [both], [again], [other], [message("Done.")], model=KNOWN),
        start(world) as program,
    ):
        asked(world)
        session = world.only_session()
        world.steno("approve", session, "--always")
        asked(world, 2)
        assert (world.work / "two").read_text() == "b\n"
        assert not (world.work / "three").exists()
        rules = {one["rule"]: one["verdict"] for one in world.show(session)["rules"]}
        assert rules == {f"edit_file:{world.work / name}": "allow" for name in ("one", "two")}
        world.steno("deny", session, "--always")
        assert program.end() == 0
    assert world.show(session)["rules"][-1] == {
        "rule": f"edit_file:{world.work / 'three'}",
        "verdict": "deny",
        "until_ms": None,
    }


@pytest.mark.promise(4)
@pytest.mark.parametrize("how", ["another mark", "an assignment", "scripted"])
@pytest.mark.suite("another mark")
def test_a_command_that_codex_takes_for_a_patch_does_not_get_round_a_rule_for_files(
    world: CodexWorld, how: str
) -> None:
    world.home.joinpath("config.toml").write_text(
        f'[approvals]\n"edit_file:{world.work}/*" = "deny"\n'
    )
    command = {"another mark": PATCH.replace("END", "END-IT"), "an assignment": f"X=1 {PATCH}"}.get(
        how, PATCH
    )
    doing, model = call("exec_command", "c1", cmd=command), "fake-model"
    if how == "scripted":
        doing, model = (
            script(f"text((await tools.exec_command({{cmd: {json.dumps(command)}}})).output)"),
            SCRIPTING,
        )
    with told(world, [doing], [message("Done.")], model=model):
        world.run("go", "--yes")
    assert list(world.work.iterdir()) == []
    [(state, text)] = outcomes(world)
    assert (state, "cannot read this patch" in text) == ("failed", True)


@pytest.mark.promise(4)
def test_who_approves_a_patch_does_not_approve_a_command_in_it(world: CodexWorld) -> None:
    """Codex takes the end of the patch where a line begins like its mark, and what follows for a
    command."""
    (world.work / "old").write_text("a\n")
    changes = "*** Begin Patch\n*** Update File: old\n@@\n END\n-$(touch made)\n+b\n*** End Patch"
    doing = call("exec_command", "c1", cmd=f"apply_patch <<END\n{changes}\nEND\n")
    with told(world, [doing], [message("Done.")]):
        world.run("go", "--allow", "edit_file:*", "--allow", "apply_patch")
    assert [one.name for one in world.work.iterdir()] == ["old"]
    assert [state for state, _ in outcomes(world)] == ["failed"]


@pytest.mark.promise(37)
def test_a_patch_outside_the_folder_is_another_question(world: CodexWorld, outside: Path) -> None:
    made = outside / "made"
    doing = {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch"}
    with (
        told(
            world,
            [doing | {"input": PLAIN.replace("new.txt", str(made))}],
            [message("Done.")],
            model=KNOWN,
        ),
        start(world) as program,
    ):
        for n in (1, 2):
            asked(world, n)
            assert not made.exists()
            world.steno("approve", world.only_session())
        assert program.end() == 0
    assert made.read_text() == "made by a patch\n"
    assert outcomes(world) == [
        ("failed", "not run: codex asks for more rights first"),
        ("complete", f"add {made}"),
    ]


@pytest.mark.promise(4, 37)
@pytest.mark.parametrize("reason", ["to look", ""])
@pytest.mark.parametrize("decision", ["approve", "deny"])
@pytest.mark.suite("approve-to look")
def test_to_leave_the_sandbox_is_another_question(
    world: CodexWorld, outside: Path, reason: str, decision: str
) -> None:
    with (
        told(world, [escalated(leaving(outside), reason)], [message("Done.")]),
        start(world) as program,
    ):
        asked(world)
        [first] = waiting(world)
        assert not first.get("reason")
        world.steno("approve", world.only_session())
        asked(world, 2)
        [second] = waiting(world)
        assert second["reason"] == f"{reason}; it is to run outside the sandbox".removeprefix("; ")
        assert (ran(world), list(outside.iterdir())) == (0, [])
        world.steno(decision, world.only_session())
        assert program.end() == 0
    left = decision == "approve"
    assert (ran(world), (outside / "made").exists()) == (left, left)
    (_, unrun), (state, _) = outcomes(world)
    assert (unrun, state) == (
        "not run: codex asks for more rights first",
        "complete" if left else "failed",
    )


@pytest.mark.promise(4, 37)
@pytest.mark.parametrize("decision", ["approve", "deny"])
@pytest.mark.suite("approve")
def test_what_is_typed_into_a_command_outside_the_sandbox_is_another_question(
    world: CodexWorld, decision: str
) -> None:
    """It is asked about as what it is; the command that it is typed into runs on."""
    text = """echo "ran" '$0' >> ran; echo it\\'s\n"""
    with told(world, *terminal_outside(text)), start(world) as program:
        for n in (1, 2):
            asked(world, n)
            world.steno("approve", world.only_session())
        asked(world, 3)
        [one] = waiting(world)
        assert (one["tool"], json.loads(one["arguments"])) == (
            "write_stdin",
            {"call": "c1/again", "text": text},
        )
        assert "This terminal was launched outside the sandbox" in one["reason"]
        assert ran(world) == 0
        assert [state for state, _ in outcomes(world)] == ["failed"], (
            "the shell that was first to stay inside, alone"
        )
        world.steno(decision, world.only_session())
        assert program.end() == 0
    assert ran(world) == (decision == "approve")
    assert [name for name, _ in calls(world)] == ["shell", "shell", "write_stdin"]
    shell, typed = sorted(outcomes(world)[1:], key=lambda one: one[0] != "interrupted")
    assert shell[0] == "interrupted", "it ran until the turn ended"
    assert typed == (
        ("complete", "") if decision == "approve" else ("failed", "not run: the user denied it")
    )


@pytest.mark.torture
def test_a_rule_that_allows_a_shell_does_not_allow_what_is_typed_into_it_outside_the_sandbox(
    world: CodexWorld,
) -> None:
    with told(world, *terminal_outside("echo ran >> ran\n")):
        world.run("go", "--allow", "shell")
    assert ran(world) == 0
    assert any(text.startswith("not run: it needs approval") for _, text in outcomes(world))
    with told(world, *terminal_outside("echo ran >> ran\n", "echo ran >> ran\n")):
        world.run("go", "--allow", "shell", "--allow", "write_stdin")
    assert ran(world) == 2


@pytest.mark.promise(4, 37)
@pytest.mark.parametrize("second", ["echo ran >> ran", "echo ran too >> ran"])
@pytest.mark.suite("echo ran too >> ran")
def test_of_two_calls_with_one_id_at_once_one_yes_runs_one(world: CodexWorld, second: str) -> None:
    """There are servers that give each call of an answer the same id."""
    both = [call("exec_command", "c1", cmd=command) for command in ("echo ran >> ran", second)]
    with told(world, both, [message("Done.")], model=KNOWN), start(world) as program:
        asked(world)
        wait_until(lambda: len(outcomes(world)) == 1, "the other one to be refused")
        world.steno("approve", world.only_session())
        assert program.end() == 0
    assert ran(world) == 1
    assert len(calls(world)) == 2
    told_of = [text for _, text in outcomes(world)]
    assert sum(text.startswith("not run: another call with the same id") for text in told_of) == 1
    assert kinds(world).count("tool.started") == 1


@pytest.mark.torture
@pytest.mark.promise(4, 37)
def test_a_second_call_with_its_id_does_not_hide_that_a_command_is_to_leave(
    world: CodexWorld, outside: Path
) -> None:
    """Whichever of them comes to the gate first: the other one is refused."""
    both = [escalated(f"echo x > {outside}/made"), call("exec_command", "c1", cmd="true")]
    with told(world, both, [message("Done.")], model=KNOWN), start(world) as program:
        asked(world)
        wait_until(lambda: len(outcomes(world)) == 1, "the other one to be refused")
        leaves = "made" in waiting(world)[0]["arguments"]
        world.steno("approve", world.only_session())
        if leaves:
            asked(world, 2)
            assert waiting(world)[0]["reason"] == "it is to run outside the sandbox"
            assert list(outside.iterdir()) == []
            world.steno("deny", world.only_session())
        assert program.end() == 0
    assert list(outside.iterdir()) == []


@pytest.mark.torture
@pytest.mark.promise(37)
def test_a_tool_of_a_server_that_codex_has_is_asked_about_once(world: CodexWorld) -> None:
    with told(world, *COUNTED, more=own_server()), start(world) as program:
        asked(world)
        assert not (world.work / "count.txt").exists()
        world.steno("approve", world.only_session())
        assert program.end() == 0
    assert calls(world) == [("odd__count", {})]
    assert outcomes(world) == [("complete", "count 1")]


def test_a_link_does_not_lead_a_patch_out_of_the_folder(world: CodexWorld, outside: Path) -> None:
    (outside / "kept").write_text("a\n")
    (world.work / "link").symlink_to(outside / "kept")
    changes = "*** Begin Patch\n*** Update File: link\n@@\n-a\n+b\n*** End Patch"
    doing = {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": changes}
    with told(world, [doing], [message("Done.")], model=KNOWN), start(world) as program:
        for n, decision in ((1, "approve"), (2, "deny")):
            asked(world, n)
            assert (outside / "kept").read_text() == "a\n"
            world.steno(decision, world.only_session())
        assert program.end() == 0
    assert (outside / "kept").read_text() == "a\n"
    (_, first), _ = outcomes(world)
    assert first == "stopped by the sandbox: codex asks to do it outside", (
        "it may have changed other files"
    )


@pytest.mark.torture
@pytest.mark.promise(4, 37)
@pytest.mark.parametrize("how", ["called", "scripted"])
def test_a_command_that_codex_takes_for_dangerous_is_run_once_and_inside(
    world: CodexWorld, outside: Path, how: str
) -> None:
    """Who said yes to it is not asked again, unless nobody can tell whether it is to leave the
    sandbox."""
    command = f"rm -rf none; {leaving(outside)}"
    doing, model = call("exec_command", "c1", cmd=command), "fake-model"
    if how == "scripted":
        doing, model = (
            script(f"text((await tools.exec_command({{cmd: {json.dumps(command)}}})).output)"),
            SCRIPTING,
        )
    with told(world, [doing], [message("Done.")], model=model), start(world) as program:
        for n in range(1, 2 + (how == "scripted")):
            asked(world, n)
            assert ran(world) == 0
            world.steno("approve", world.only_session())
        assert program.end() == 0
    assert (ran(world), list(outside.iterdir())) == (1, [])
    *unrun, (state, text) = outcomes(world)
    assert unrun == [("failed", "not run: codex asks once more first")] * (how == "scripted")
    assert (state, "Read-only file system" in text) == ("failed", True)


@pytest.mark.torture
@pytest.mark.promise(4, 37)
@pytest.mark.parametrize("leaves", [False, True])
def test_why_a_rules_file_of_codex_wants_to_be_asked_is_told_with_where_it_runs(
    world: CodexWorld, outside: Path, leaves: bool
) -> None:
    prompting(world)
    command = f"touch {outside}/made"
    doing = escalated(command, "to look") if leaves else call("exec_command", "c1", cmd=command)
    with told(world, [doing], [message("Done.")]), start(world) as program:
        asked(world)
        world.steno("approve", world.only_session())
        asked(world, 2)
        [second] = waiting(world)
        where = "it is to run outside the sandbox" if leaves else "it stays in the sandbox"
        assert second["reason"].endswith(f"requires approval: mind the dust; {where}")
        world.steno("approve", world.only_session())
        assert program.end() == 0
    assert (outside / "made").exists() == leaves
    first, _ = outcomes(world)
    assert first == (
        "failed",
        f"not run: codex asks {'for more rights' if leaves else 'once more'} first",
    )


def prompting(world: CodexWorld) -> None:
    """A rules file of codex wants `touch` to be asked about."""
    (world.codex_home / "rules").mkdir()
    rule = 'prefix_rule(pattern=["touch"], decision="prompt", justification="mind the dust")\n'
    (world.codex_home / "rules" / "default.rules").write_text(rule)


@pytest.mark.promise(4, 37)
@pytest.mark.parametrize(
    ("leaves", "redacted"), [(False, False), (True, False), (False, True), (True, True)]
)
@pytest.mark.suite("True-True")
def test_an_approval_to_stay_inside_does_not_cover_leaving_after_a_kill(
    world: CodexWorld, leaves: bool, redacted: bool
) -> None:
    """The reason that was told then was that of a rules file. What the approval covers does not
    depend on the text of that reason."""
    prompting(world)
    inside = call("exec_command", "c1", cmd="touch made")
    with told(world, [inside]), start(world) as program:
        asked(world)
        world.steno("approve", world.only_session())
        asked(world, 2)
        program.kill()
        world.wait_codex_gone()
    session = world.only_session()
    world.steno("approve", session)
    if redacted:
        world.steno("redact", session, "--seq", str(waiting_at(world)), "--yes")
        assert "stays in the sandbox" not in json.dumps(world.facts())
    again = escalated("touch made", "to look") if leaves else inside
    with told(world, [again | {"call_id": "c2"}], [message("Done.")]):
        world.steno("continue", session)
    assert (world.work / "made").exists() == (not leaves)


def test_a_person_on_the_terminal_is_told_why_a_command_is_to_leave(
    world: CodexWorld, outside: Path
) -> None:
    doing = escalated(leaving(outside), "to look")
    with (
        told(world, [doing], [message("Done.")]),
        terminal(world, "run", "go", "--key", "k") as asked_here,
    ):
        asked_here.wait_seen("? [y/n/a]")
        asked_here.type("y\n")
        asked_here.wait_seen('because "to look; it is to run outside the sandbox"? [y/n/a]')
        asked_here.type("n\n")
        assert asked_here.end() == 0
    assert (ran(world), list(outside.iterdir())) == (0, [])


@pytest.mark.promise(37)
@pytest.mark.parametrize("what", ["command", "patch"])
@pytest.mark.suite("command")
def test_a_question_is_pending_across_a_kill(world: CodexWorld, what: str) -> None:
    def doing(id: str) -> Item:
        return call("exec_command", id, cmd=PATCH if what == "patch" else "echo ran >> ran")

    with told(world, [doing("c1")]), start(world) as program:
        asked(world)
        program.kill()
        world.wait_codex_gone()
    session = world.only_session()
    assert list(world.work.iterdir()) == []
    world.steno("approve", session)
    with told(world, [doing("c2")], [message("Done.")]):
        assert world.steno("continue", session) == "Done.\n"
    assert [one.name for one in world.work.iterdir()] == ["new.txt" if what == "patch" else "ran"]
    assert [state for state, _ in outcomes(world)] == ["complete"]
    assert (ran(world), kinds(world).count("approval.asked")) == (what == "command", 1)


@pytest.mark.promise(4, 37)
@pytest.mark.parametrize("approved", ["to run", "to leave"])
@pytest.mark.suite("to leave")
def test_what_was_approved_before_a_kill_covers_what_was_asked(
    world: CodexWorld, outside: Path, approved: str
) -> None:
    """Who approved a command has not said that it may leave; who said that is not asked again."""
    command = leaving(outside)
    first = (
        call("exec_command", "c1", cmd=command)
        if approved == "to run"
        else escalated(command, "to look")
    )
    with told(world, [first]), start(world) as program:
        asked(world)
        if approved == "to leave":
            world.steno("approve", world.only_session())
            asked(world, 2)
        program.kill()
        world.wait_codex_gone()
    session = world.only_session()
    world.steno("approve", session)
    leaves = escalated(command, "to look") | {"call_id": "c2"}
    with told(world, [leaves], [message("Done.")]):
        world.steno("continue", session)
    assert (outside / "made").exists() == (approved == "to leave")
    assert ran(world) == (approved == "to leave")


@pytest.mark.promise(4, 5, 6, 19, 34)
@pytest.mark.parametrize(("victim", "when", "n"), POINTS)
@pytest.mark.suite("codex-after-16")
def test_killed_at_a_message(world: CodexWorld, victim: str, when: str, n: int) -> None:
    world.run("hello")
    check(world, run_dying(world, victim, when, n))
