"""What codex asks is what we ask: the same facts, rules and commands, and a question outlives
everybody."""

import json
import signal

import pytest

from tests.codex.doings import told
from tests.codex.responses_server import call, message, thought
from tests.codex.test_items import drafted
from tests.codex.world import CodexWorld
from tests.program.test_cli_terminal import terminal
from tests.program.test_tools_mcp import stdio
from tests.program.world import Program, wait_until
from tests.tools.mcp_servers import odd

COMMAND = {"command": "echo ran >> ran; echo hi"}


def asked(world: CodexWorld) -> Program:
    """A turn that waits for a person to decide about a command."""
    world.steno("sessions")  # makes the store
    program = world.start("run", "echo", "--key", "k", "--ask", "wait")
    try:
        wait_until(lambda: "approval.asked" in kinds(world), "a question")
    except BaseException:
        program.kill()
        raise
    return program


def kinds(world: CodexWorld) -> list[str]:
    return [str(fact["type"]) for fact in world.facts()]


def ran(world: CodexWorld) -> int:
    """How often the command ran."""
    return (world.work / "ran").read_text().count("ran") if (world.work / "ran").exists() else 0


@pytest.mark.promise(37)
def test_an_approved_command_runs(world: CodexWorld) -> None:
    with asked(world) as program:
        session = world.only_session()
        [waiting] = json.loads(world.steno("approvals", "--json"))
        assert (waiting["tool"], json.loads(waiting["arguments"])) == ("shell", COMMAND)
        assert ran(world) == 0
        world.steno("approve", session)
        assert program.end() == 0
        assert program.shown() == "I look.It ran.\n"
    assert ran(world) == 1
    stored = kinds(world)
    order = ("approval.asked", "approval.decided", "tool.started", "tool.settled")
    assert [stored.count(kind) for kind in order] == [1, 1, 1, 1]
    assert sorted(order, key=stored.index) == list(order), "each before what follows from it"


@pytest.mark.promise(37)
def test_a_denied_command_does_not_run_and_says_why(world: CodexWorld) -> None:
    with asked(world) as program:
        world.steno("deny", world.only_session(), "--reason", "not today")
        assert program.end() == 0
    [refused] = world.messages(world.only_session(), "tool")
    assert (refused["text"], refused["state"]) == (
        "not run: the user denied it: not today",
        "failed",
    )
    assert ran(world) == 0
    assert "tool.started" not in kinds(world)


@pytest.mark.promise(37)
@pytest.mark.parametrize(
    ("ended", "decision"),
    [(e, d) for d in ("approve", "deny") for e in ("killed", "both killed", "terminated")],
)
@pytest.mark.suite("killed-approve")
def test_a_question_is_pending_across_a_restart(
    world: CodexWorld, ended: str, decision: str
) -> None:
    with asked(world) as program:
        session = world.only_session()
        if ended == "both killed":
            world.kill_codex()
        program.signal(signal.SIGTERM if ended == "terminated" else signal.SIGKILL)
        program.process.wait(30)
    world.wait_codex_gone()
    [waiting] = json.loads(world.steno("approvals", "--json"))
    assert json.loads(waiting["arguments"]) == COMMAND
    assert ran(world) == 0
    world.steno(decision, session)
    world.steno("continue", session)
    assert ran(world) == (1 if decision == "approve" else 0)
    [outcome] = world.messages(session, "tool")
    assert outcome["state"] == ("complete" if decision == "approve" else "failed")
    assert [one["outcome"] for one in world.show(session)["turns"]] == ["done"]
    assert world.run("and") == "And so on.\n"
    assert len(world.threads()) == 1


def test_rules_decide_without_asking(world: CodexWorld) -> None:
    world.run("echo", "--allow", "shell:echo ran >> ran; echo hi")
    assert ran(world) == 1
    world.home.joinpath("config.toml").write_text('[approvals]\n"shell:echo*" = "deny"\n')
    world.run("echo", "--yes")
    assert ran(world) == 1
    assert (
        "the rule 'shell:echo*' denies it"
        in world.messages(world.only_session(), "tool")[-1]["text"]
    )


@pytest.mark.torture
def test_rules_of_the_session_decide_also_about_what_only_reads(world: CodexWorld) -> None:
    """Codex asks about `ls` too, so a rule reaches every command."""
    world.run("look", "--allow", "shell:ls")
    session = world.only_session()
    [listed] = world.messages(session, "tool")
    assert (listed["text"], listed["state"]) == ("", "complete"), "an empty folder"
    world.steno("rules", session, "--deny", "shell:ls*", "--allow", f"shell:{COMMAND['command']}")
    world.run("look", "--yes")
    refused = world.messages(session, "tool")[-1]
    assert (refused["state"], "the rule 'shell:ls*' denies it" in refused["text"]) == (
        "failed",
        True,
    )
    world.run("echo")
    assert ran(world) == 1, "a rule of the session allows"


def test_a_rule_for_files_counts_for_a_patch(world: CodexWorld) -> None:
    world.steno("sessions")
    world.home.joinpath("config.toml").write_text(
        f'[approvals]\n"edit_file:{world.work}/new*" = "deny"\n'
    )
    world.run("patch", "--yes")
    assert not (world.work / "new.txt").exists()
    [refused] = world.messages(world.only_session(), "tool")
    assert "denies it" in refused["text"]


@pytest.mark.torture
def test_nobody_to_ask_means_no(world: CodexWorld) -> None:
    world.run("echo")
    [refused] = world.messages(world.only_session(), "tool")
    assert refused["text"].startswith("not run: it needs approval and there was nobody to ask")
    assert ran(world) == 0


def test_a_person_on_the_terminal_is_asked_the_same_way(world: CodexWorld) -> None:
    with terminal(world, "run", "echo", "--key", "k") as asked_here:
        asked_here.wait_seen("? [y/n/a]")
        assert "echo ran >> ran" in asked_here.seen()
        assert "I look.\r\nallow shell" in asked_here.seen(), "on a line of its own"
        assert ran(world) == 0
        asked_here.type("y\n")
        assert asked_here.end() == 0
    assert ran(world) == 1


BOTH = (
    call("exec_command", "c1", cmd="echo ran >> ran"),
    call("exec_command", "c2", cmd="echo ran too >> ran"),
)


@pytest.mark.promise(37, 46)
def test_a_person_is_asked_about_each_of_two_calls_that_codex_asks_about_at_once(
    world: CodexWorld,
) -> None:
    with (
        told(world, [*BOTH], [message("Done.")]),
        terminal(world, "run", "go", "--key", "k") as asked_here,
    ):
        for n in (1, 2):
            asked_here.wait_seen("? [y/n/a]", n)
            asked_here.type("y\n")
        assert asked_here.end() == 0
    assert ran(world) == 2


@pytest.mark.torture
@pytest.mark.promise(5, 37)
@pytest.mark.parametrize(
    ("ended", "decision"),
    [(e, d) for e in (signal.SIGKILL, signal.SIGTERM) for d in ("approve", "deny")],
)
@pytest.mark.suite("SIGKILL-deny")
def test_a_question_is_pending_also_while_codex_goes_on_speaking(
    world: CodexWorld, ended: signal.Signals, decision: str
) -> None:
    world.steno("sessions")
    speaking = [
        call("exec_command", "c1", cmd="echo ran >> ran"),
        thought("Let me think.", after_s=1.0),
    ]
    with told(world, speaking), world.start("run", "go", "--key", "k", "--ask", "wait") as program:
        wait_until(lambda: drafted(world) == "Let me think.", "its thoughts to be stored")
        session = world.only_session()
        assert len(json.loads(world.steno("approvals", "--json"))) == 1
        program.signal(ended)
        program.process.wait(30)
        world.wait_codex_gone()
    assert len(json.loads(world.steno("approvals", "--json"))) == 1, "neither granted nor refused"
    world.steno(decision, session)
    done = (
        [call("exec_command", "c2", cmd="echo ran >> ran")] if decision == "approve" else [],
        [message("Done.")],
    )
    with told(world, *filter(None, done)):
        assert world.steno("continue", session) == "Done.\n"
    assert ran(world) == (decision == "approve")
    assert [one["outcome"] for one in world.show(session)["turns"]] == ["done"]
    assert "Let me think." in json.dumps(
        [fact for fact in world.facts() if fact["type"] == "step.sealed"]
    )


@pytest.mark.promise(23, 37)
def test_a_stop_while_it_waits_ends_the_turn(world: CodexWorld) -> None:
    with asked(world) as program:
        world.steno("interrupt", world.only_session())
        assert program.end() == 130
    world.wait_codex_gone()
    assert ran(world) == 0
    [unrun] = world.messages(world.only_session(), "tool")
    assert unrun["text"] == "not run: the turn was stopped first", "nobody declined it"
    assert world.run("and") == "And so on.\n"


@pytest.mark.torture
def test_a_question_beside_a_command_that_died_with_codex_was_not_declined(
    world: CodexWorld,
) -> None:
    world.steno("sessions")
    waits = [call("exec_command", f"c{n}", cmd=f"echo ran >> ran; sleep {60 + n}") for n in (1, 2)]
    with told(world, waits), world.start("run", "go", "--key", "k", "--ask", "wait") as program:
        wait_until(lambda: kinds(world).count("approval.asked") == 2, "two questions")
        session = world.only_session()
        world.steno(
            "approve", session, str(json.loads(world.steno("approvals", "--json"))[0]["seq"])
        )
        wait_until(lambda: ran(world) == 1, "one of them to run")
        world.kill_codex()
        assert program.end() == 1
    texts = [one["text"] for one in world.messages(session, "tool")]
    assert sorted(texts) == ["", "not run: the turn failed first"]


@pytest.mark.promise(19, 37)
def test_a_command_that_was_killed_beside_a_question_is_told_with_the_answer(
    world: CodexWorld,
) -> None:
    world.steno("sessions")
    both = [call("exec_command", f"c{n}", cmd=f"echo ran >> ran; sleep {60 * n}") for n in (1, 0)]
    with told(world, both, [message("Done.")]) as provider:
        with world.start("run", "go", "--key", "k", "--ask", "wait") as program:
            wait_until(lambda: kinds(world).count("approval.asked") == 2, "two questions")
            session = world.only_session()
            first, second = json.loads(world.steno("approvals", "--json"))
            world.steno("approve", session, str(first["seq"]))
            wait_until(lambda: "tool.started" in kinds(world), "one of them to run")
            program.kill()
        world.wait_codex_gone()
        world.steno("deny", session, str(second["seq"]))
        assert world.steno("continue", session) == "Done.\n"
    assert f"Call {first['call']}: [The outcome of this call is unknown" in json.dumps(
        provider.requests[-1]["input"]
    )


@pytest.mark.promise(37)
def test_a_question_of_a_codex_that_died_stands_and_its_answer_is_told_to_another(
    world: CodexWorld,
) -> None:
    with asked(world) as program:
        world.kill_codex()
        world.wait_codex_gone()
        assert len(json.loads(world.steno("approvals", "--json"))) == 1
        assert ran(world) == 0
        world.steno("approve", world.only_session())
        assert program.end() == 0, program.errors()
    assert ran(world) == 1
    assert [one["outcome"] for one in world.show(world.only_session())["turns"]] == ["done"]
    assert world.run("and") == "And so on.\n"
    assert len(world.threads()) == 1


@pytest.mark.promise(4, 37)
def test_a_tool_of_ours_that_was_approved_while_nobody_ran_the_session_is_run(
    world: CodexWorld,
) -> None:
    world.steno("sessions")
    world.home.joinpath("config.toml").write_text(stdio("odd", odd()))
    with told(
        world, [call("odd__count", "m1")], [call("odd__count", "m2")], [message("Done.")]
    ) as provider:
        with world.start("run", "go", "--key", "k", "--ask", "wait") as program:
            wait_until(lambda: "approval.asked" in kinds(world), "a question")
            program.kill()
        world.wait_codex_gone()
        session = world.only_session()
        world.steno("approve", session)
        assert world.steno("continue", session) == "Done.\n"
        assert "count 1" in json.dumps(provider.requests[-1]["input"][-1])
    [counted] = world.messages(session, "tool")
    assert (counted["text"], counted["state"]) == ("count 1", "complete")
    assert (world.work / "count.txt").read_text() == "run\n"


@pytest.mark.torture
@pytest.mark.promise(37)
def test_two_calls_that_are_alike_and_were_approved_after_a_kill_are_both_run(
    world: CodexWorld,
) -> None:
    world.steno("sessions")
    alike = [call("exec_command", f"c{n}", cmd="echo ran >> ran") for n in range(4)]
    with told(world, alike[:2]), world.start("run", "go", "--key", "k", "--ask", "wait") as program:
        wait_until(lambda: kinds(world).count("approval.asked") == 2, "two questions")
        program.kill()
        world.wait_codex_gone()
    session = world.only_session()
    for waiting in json.loads(world.steno("approvals", "--json")):
        world.steno("approve", session, str(waiting["seq"]))
    with told(world, alike[2:], [message("Done.")]):
        assert world.steno("continue", session) == "Done.\n"
    assert ran(world) == 2
    assert [one["state"] for one in world.messages(session, "tool")] == ["complete", "complete"]


LEAVES = call(
    "exec_command",
    "c1",
    cmd=COMMAND["command"],
    sandbox_permissions="require_escalated",
    justification="out",
)


@pytest.mark.promise(37, 46)
@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.suite("True")
def test_the_reason_that_codex_gives_stands_with_the_question(
    world: CodexWorld, gate: bool
) -> None:
    """Who lets a command run has not said yet that it may leave the sandbox: that is asked with the
    reason."""
    if gate:
        (world.codex_home / "rules").mkdir()
        (world.codex_home / "rules" / "a.rules").write_text(
            'prefix_rule(pattern=["touch"], decision="allow")\n'
        )
    with (
        told(world, [LEAVES], [message("Done.")]),
        terminal(world, "run", "go", "--key", "k") as asked_here,
    ):
        if gate:
            asked_here.wait_seen("? [y/n/a]")
            asked_here.type("y\n")
        asked_here.wait_seen('because "out"? [y/n/a]')
        session = world.only_session()
        for seen in (world.steno("approvals"), world.steno("show", session)):
            assert 'hi"} because "out"' in seen
        [waiting] = json.loads(world.steno("approvals", "--json"))
        assert waiting["reason"] == "out"
        assert ran(world) == 0
        asked_here.type("y\n")
        assert asked_here.end() == 0
    assert ran(world) == 1
    questions = [fact for fact in world.facts() if fact["type"] == "approval.asked"]
    assert [fact["reason"] for fact in questions if "reason" in fact] == ["out"]
    texts = [one["text"] for one in world.messages(session, "tool")]
    assert texts == ["not run: codex asks for more rights first"] * gate + ["hi\n"]
