"""What else the real codex does: tools of its own MCP servers, searches, typing into a command. All
of it is stored, and what can be asked about is asked about."""

import base64
import json
import sqlite3
from functools import partial
from typing import Any

import pytest

from tests.codex.doings import COUNTED, PLANNED, SEARCHED, TYPED, WITH_PLANS, own_server, told
from tests.codex.responses_server import message, thought
from tests.codex.test_sharing import holding
from tests.codex.world import CodexWorld
from tests.program.test_attach import png
from tests.program.world import wait_until

SCRIPTING = "gpt-6.1-sol"
"""A model that codex knows, and that calls tools from scripts. Nobody asks it: a provider of ours
answers."""


def calls(world: CodexWorld) -> list[tuple[str, dict[str, Any]]]:
    messages = world.messages(world.only_session())
    return [
        (one["name"], json.loads(one["arguments"]))
        for message in messages
        for one in message["tool_calls"]
    ]


def ran(world: CodexWorld) -> bool:
    return (world.work / "count.txt").exists()


@pytest.mark.promise(4)
def test_a_tool_of_a_server_that_codex_has_meets_our_rules(world: CodexWorld) -> None:
    with told(world, *COUNTED, more=own_server()):
        world.run("go", "--yes")
        assert calls(world) == [("odd__count", {})]
        [counted] = world.messages(world.only_session(), "tool")
        assert (counted["text"], counted["state"]) == ("count 1", "complete")
    (world.work / "count.txt").unlink()
    world.steno("rules", world.only_session(), "--deny", "odd__count")
    with told(world, *COUNTED, more=own_server()) as provider:
        world.run("go", "--yes")
        assert "the rule 'odd__count' denies it" in json.dumps(provider.requests[-1]["input"])
    assert (
        "the rule 'odd__count' denies it"
        in world.messages(world.only_session(), "tool")[-1]["text"]
    )
    assert not ran(world)


@pytest.mark.promise(37)
def test_a_tool_of_a_server_that_codex_has_waits_for_a_person(world: CodexWorld) -> None:
    world.steno("sessions")
    with (
        told(world, *COUNTED, more=own_server()),
        world.start("run", "go", "--key", "k", "--ask", "wait") as program,
    ):
        wait_until(
            lambda: "approval.asked" in [fact["type"] for fact in world.facts()], "a question"
        )
        assert not ran(world)
        world.steno("approve", world.only_session())
        assert program.end() == 0
    assert ran(world)
    stored = [fact["type"] for fact in world.facts()]
    order = ("approval.asked", "approval.decided", "tool.started", "tool.settled")
    assert [stored.count(kind) for kind in order] == [1, 1, 1, 1]
    assert sorted(order, key=stored.index) == list(order)


def test_a_search_of_the_web_is_a_call(world: CodexWorld) -> None:
    with told(world, *SEARCHED):
        assert world.run("go") == "I look.Found.\n"
    assert calls(world) == [("web_search", {"query": "sheep"})]
    [found] = world.messages(world.only_session(), "tool")
    assert ("sheep" in found["text"], found["state"]) == (True, "complete")


def test_what_codex_types_into_a_command_is_stored(world: CodexWorld) -> None:
    with told(world, *TYPED):
        assert world.run("go", "--yes") == "Done.\n"
    assert calls(world) == [
        ("shell", {"command": "cat; echo over"}),
        ("write_stdin", {"call": "c1", "text": "hi\x04\x04"}),
    ]
    outputs = {
        one["tool_call_id"]: one["text"] for one in world.messages(world.only_session(), "tool")
    }
    assert "over" in outputs["c1"]


@pytest.mark.parametrize("model", ["fake-model", SCRIPTING])
@pytest.mark.suite("gpt-6.1-sol")
def test_codex_has_no_agents_whose_work_nobody_would_see(world: CodexWorld, model: str) -> None:
    with told(world, [message("Done.")], model=model) as provider:
        world.run("go")
        [request] = provider.requests
    offered = json.dumps(
        [request.get("tools"), *(one for one in request["input"] if one["type"] != "message")]
    )
    assert "exec_command" in offered
    assert "spawn_agent" not in offered


@pytest.mark.promise(4, 37)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.suite("True")
def test_a_model_that_writes_scripts_is_asked_about_each_call_of_them(
    world: CodexWorld, gated: bool
) -> None:
    """Codex's newer models call their tools from a script."""
    patch = "*** Begin Patch\\n*** Add File: new.txt\\n+made\\n*** End Patch"
    run = 'await tools.exec_command({cmd: "touch made"})'
    both = f'{run}; await tools.apply_patch("{patch}"); text("over")'
    script = {
        "type": "custom_tool_call",
        "call_id": "x",
        "name": "exec",
        "namespace": "functions",
        "input": both,
    }
    if gated:
        (world.codex_home / "rules").mkdir()
        (world.codex_home / "rules" / "a.rules").write_text(
            'prefix_rule(pattern=["touch"], decision="allow")\n'
        )
    world.steno("sessions")
    answers = ([message("I look."), script], [message("Done.")])
    with (
        told(world, *answers, model=SCRIPTING),
        world.start("run", "go", "--key", "k", "--ask", "wait") as program,
    ):
        for asked, changed in (("shell", "made"), ("apply_patch", "new.txt")):
            wait_until(partial(waits_for, world, asked), f"a question about {asked}")
            assert not (world.work / changed).exists()
            world.steno("approve", world.only_session())
        assert program.end() == 0
        assert program.shown() == "I look.Done.\n"
    assert [name for name, _ in calls(world)] == ["shell", "apply_patch"]
    assert [one["state"] for one in world.messages(world.only_session(), "tool")] == [
        "complete",
        "complete",
    ]
    assert (world.work / "new.txt").read_text() == "made\n"


def waits_for(world: CodexWorld, tool: str) -> bool:
    return [one["tool"] for one in json.loads(world.steno("approvals", "--json"))] == [tool]


def test_what_a_turn_cost_is_stored(world: CodexWorld) -> None:
    with told(world, [message("Done.")]):
        world.run("go")
    [listed] = world.sessions()
    assert (listed["usage"]["input"], listed["usage"]["output"]) == (5, 2)


@pytest.mark.promise(8, 46)
def test_codex_begins_no_turn_that_nobody_asked_for(world: CodexWorld) -> None:
    """A thread that has a goal of codex's own goes on by itself wherever codex opens it."""
    with told(world, *([message(text)] for text in ("One.", "Two.", "Three."))) as provider:
        assert world.run("first") == "One.\n"
        [thread] = world.threads()
        goal = {"threadId": thread, "objective": "count sheep", "status": "active"}
        with holding(world, thread, ("thread/goal/set", goal)):
            pass
        provider.requests.clear()
        assert world.run("second") == "One.\n"
        assert len(provider.requests) == 1
        assert "create_goal" not in str(provider.requests[0]["tools"])
    assert [text for _, text, _ in world.said()] == ["first", "One.", "second", "One."]


@pytest.mark.promise(32)
def test_a_compaction_that_codex_makes_by_itself_is_recorded_as_its_own(world: CodexWorld) -> None:
    one, summary, two = ([message(text)] for text in ("One.", "A summary.", "Two."))
    with told(world, one, summary, two, first="model_auto_compact_token_limit = 3\n") as provider:
        assert world.run("first") == "One.\n"
        assert world.run("second") == "Two.\n"
        assert len(provider.requests) == 3
    assert [fact["type"] for fact in world.facts()].count("thread.compacted") == 1
    assert [text for _, text, _ in world.said()] == ["first", "One.", "second", "Two."], (
        "its summary is not speech"
    )
    assert len(world.threads()) == 1


def test_an_image_that_was_attached_reaches_the_model_and_a_new_thread(world: CodexWorld) -> None:
    (world.work / "dot.png").write_bytes(png())
    with told(world, [message("Done.")]) as provider:
        world.run("what is this?", "--attach", "dot.png")
        world.run("again", "--new-thread")
        fork = world.steno(
            "fork",
            world.only_session(),
            "--at",
            str(world.messages(world.only_session())[1]["seq"]),
        )
        world.steno("run", "and now?", "--session", fork.split()[0])
    for request in provider.requests:
        sent = [
            part["image_url"]
            for one in request["input"]
            for part in one.get("content", ())
            if "image_url" in part
        ]
        assert [base64.b64decode(image.partition(";base64,")[2]) for image in sent] == [png()]


@pytest.mark.torture
def test_many_large_images_do_not_keep_a_session_from_going_on(world: CodexWorld) -> None:
    """Codex says an input back, and lists several when a thread is resumed: images and all, in one
    line."""
    attached = []
    for n in range(4):
        (world.work / f"{n}.png").write_bytes(png(1_900 + n))
        attached += ["--attach", f"{n}.png"]
    with told(world, [message("Done.")]) as provider:
        assert world.run("what are these?", *attached) == "Done.\n"
        assert world.run("again") == "Done.\n"
        assert (
            len([one for one in provider.requests[-1]["input"] if "image_url" in json.dumps(one)])
            == 1
        )
    assert len(world.threads()) == 1


@pytest.mark.promise(5, 34)
def test_what_it_thought_aloud_is_kept_when_all_are_killed(world: CodexWorld) -> None:
    world.steno("sessions")  # makes the store
    with (
        told(world, [thought("Let me ", "think.")]),
        world.start("run", "go", "--key", "k") as program,
    ):
        wait_until(lambda: drafted(world) == "Let me think.", "its thoughts to be stored")
        program.kill()
        world.wait_codex_gone()
    with told(world, [message("Done.")]):
        assert world.run("and") == "Done.\n"
    sealed, _ = [fact for fact in world.facts() if fact["type"] == "step.sealed"]
    assert (sealed["parts"], sealed["ended"]) == (
        [{"type": "reasoning", "text": "Let me think."}],
        "interrupted",
    )


def drafted(world: CodexWorld) -> str:
    """What of its thoughts is stored, while it thinks."""
    with sqlite3.connect(f"file:{world.home / 'store.db'}?mode=ro", uri=True) as store:
        rows = store.execute(
            "select text from drafts where kind = 'reasoning' order by start"
        ).fetchall()
    return "".join(text for (text,) in rows)


@pytest.mark.promise(46)
def test_a_plan_is_stored_and_told_by_every_view(world: CodexWorld) -> None:
    steps = [{"step": "look", "status": "inProgress"}, {"step": "tell", "status": "pending"}]
    with told(world, *PLANNED, more=WITH_PLANS), world.start("run", "go", "--key", "k") as program:
        assert program.end() == 0
        assert program.shown() == "I plan.Done.\n"
        assert "[plan: ▸ look; · tell]" in program.errors()
    with told(world, *PLANNED, more=WITH_PLANS):
        lines = [json.loads(line) for line in world.run("again", "--output", "ndjson").splitlines()]
    [plan] = [line for line in lines if line["type"] == "plan"]
    assert (plan["explanation"], plan["steps"]) == ("two things", steps)
    session = world.only_session()
    assert [fact["steps"] for fact in world.facts() if fact["type"] == "plan.updated"] == [
        steps,
        steps,
    ]
    assert world.show(session)["plan"] == {"explanation": "two things", "steps": steps}
    assert "plan: two things\n  ▸ look\n  · tell\n" in world.steno("show", session)
