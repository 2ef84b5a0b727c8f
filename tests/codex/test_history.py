"""The history is the session's, not codex's: it goes with a change of runtime, a fork and every
edit."""

import re

import pytest

from tests.codex.world import CodexWorld
from tests.models.rules import check
from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_views import complaint


def spoken(world: CodexWorld, prompt: str) -> list[tuple[str, str]]:
    """What the last request with this prompt said, without what codex adds of its own."""
    return [
        (one["role"], one["content"])
        for one in world.requests(prompt)[-1]
        if one["role"] in ("user", "assistant") and not str(one["content"]).startswith("<")
    ]


@pytest.mark.promise(46)
def test_from_codex_to_native_and_back(world: CodexWorld) -> None:
    with ModelServer(Reply(("by our own loop",))) as native:
        world.environment |= {"OPENAI_BASE_URL": native.url, "STENO_MODEL": "openai-chat:test"}
        world.run("echo", "--yes")
        assert world.run("two", "--runtime", "native") == "by our own loop\n"
        told = [
            (one["role"], one["content"])
            for one in native.requests[-1]["messages"]
            if one["role"] != "system"
        ]
        assert [role for role, _ in told] == ["user", "assistant", "tool", "assistant", "user"]
        assert (told[2][1], told[3][1], told[4][1]) == ("hi\n", "It ran.", "two")
        assert world.run("three") == "by our own loop\n", "the session keeps its runtime"
    assert world.run("and", "--runtime", "codex") == "And so on.\n"
    assert [text for role, text in spoken(world, "and") if role == "user"] == [
        "echo",
        "two",
        "three",
        "and",
    ]
    assert [text for role, text in spoken(world, "and") if role == "assistant" and text][-2:] == [
        "by our own loop"
    ] * 2
    assert len(world.threads()) == 2
    assert world.run("hello") == "Hello there.\n"
    assert len(world.threads()) == 2, "from then on it is the same thread again"
    [listed] = world.sessions()
    assert listed["messages"] == len(world.said())


def test_a_fork_has_the_history_in_a_thread_of_its_own(world: CodexWorld) -> None:
    world.run("hello")
    world.run("and")
    session = world.only_session()
    [at] = [one["seq"] for one in world.messages(session) if one["text"] == "Hello there."]
    fork = world.steno("fork", session, "--at", str(at)).split()[0]
    assert world.steno("run", "think", "--session", fork) == "Done.\n"
    assert spoken(world, "think") == [
        ("user", "hello"),
        ("assistant", "Hello there."),
        ("user", "think"),
    ]
    assert world.run("think") == "Done.\n"
    assert [text for _, text in spoken(world, "think")] == [
        "hello",
        "Hello there.",
        "and",
        "And so on.",
        "think",
    ]
    assert len(set(world.threads())) == 2


@pytest.mark.promise(21, 58)
def test_a_fork_that_cuts_a_turn_off_says_its_prompt_once(world: CodexWorld) -> None:
    """A new thread is told the whole history, with what was cut off: nothing of it is lost, or said
    again."""
    world.run("hello")
    world.run("echo", "--yes")
    session = world.only_session()
    for text, calls in (("echo", 0), ("I look.", 1)):
        [at] = [one["seq"] for one in world.messages(session) if one["text"] == text]
        fork = world.steno("fork", session, "--at", str(at)).split()[0]
        assert world.steno("run", "think", "--session", fork) == "Done.\n"
        told = world.requests("think")[-1]
        assert [str(one["content"]) for one in told].count("echo") == 1
        assert str(told).count("[This turn was interrupted: forked.]") == 1
        assert sum("tool_calls" in one for one in told) == calls


@pytest.mark.parametrize("edit", ["undo", "hide", "redact"])
@pytest.mark.suite("redact")
def test_an_edit_reaches_codex(world: CodexWorld, edit: str) -> None:
    world.run("hello")
    world.run("and")
    session = world.only_session()
    [first] = [one["seq"] for one in world.messages(session) if one["text"] == "and"]
    words = {"undo": [], "hide": ["--seq", str(first)], "redact": ["--seq", str(first), "--yes"]}[
        edit
    ]
    world.steno(edit, session, *words)
    world.run("think")
    said = [text for _, text in spoken(world, "think")]
    assert said[:2] == ["hello", "Hello there."]
    assert "and" not in said
    assert len(world.threads()) == 2


@pytest.mark.promise(32)
def test_a_goal_is_told_and_so_is_its_end(world: CodexWorld) -> None:
    """One that was there when the thread began stands in its instructions; a change is told with
    the next turn."""
    world.run("hello")
    session = world.only_session()
    for goal in (["port the parser"], ["write the docs"], ["--none"]):
        world.steno("goal", session, *goal)
        world.run("and")
        told = "".join(str(one["content"]) for one in world.requests("and")[-1])
        wanted = (
            "This session has no goal any more." if goal == ["--none"] else f"is now: {goal[0]}"
        )
        assert told.count(wanted) == 1
    world.steno("goal", session, "sail home")
    world.run("think")
    world.steno("undo", session)
    world.run("hello")
    assert len(world.threads()) == 2, "after an edit it is another thread"
    begun = "".join(str(one["content"]) for one in world.requests("hello")[-1])
    assert begun.count("The goal of this session, set by the user:\nsail home") == 1
    assert "is now" not in begun


@pytest.mark.torture
def test_a_session_begun_by_our_own_loop_goes_on_with_codex(world: CodexWorld) -> None:
    with ModelServer(Reply(("ours",))) as native:
        world.environment |= {"OPENAI_BASE_URL": native.url, "STENO_MODEL": "openai-chat:test"}
        world.run("one", "--runtime", "native")
    world.run("and", "--runtime", "codex")
    assert spoken(world, "and") == [("user", "one"), ("assistant", "ours"), ("user", "and")]


@pytest.mark.promise(35)
@pytest.mark.parametrize("prompt", ["count", "both", "slow"])
@pytest.mark.suite("both")
def test_after_a_kill_the_history_is_valid_for_two_providers(
    world: CodexWorld, prompt: str
) -> None:
    shown = {"count": "line2", "both": "tool_started", "slow": "word2"}[prompt]
    with world.start("run", prompt, "--key", "k", "--yes", "--output", "ndjson") as program:
        program.wait_shown(shown)
        program.kill()
    world.wait_codex_gone()
    with ModelServer(Reply(("fine",))) as native:
        world.environment |= {
            "OPENAI_BASE_URL": native.url,
            "ANTHROPIC_BASE_URL": native.url.removesuffix("/v1"),
        }
        for kind in ("openai-chat", "anthropic"):
            assert world.run(f"next by {kind}", "--model", f"{kind}:test") == "fine\n"
            check(kind, native.requests[-1])
    assert world.run("and", "--runtime", "codex") == "And so on.\n"


@pytest.mark.promise(60)
def test_a_redaction_names_the_threads_that_codex_keeps_of_it(world: CodexWorld) -> None:
    """What is said in a thread, or told to it when it begins, is in codex's own files; steno does
    not reach those."""
    world.run("hello")
    session = world.only_session()
    world.run("and", "--model", "scripted:echo")
    world.run("think", "--runtime", "codex")
    world.steno("undo", session)
    world.run("hello again")
    first, second, third = world.threads()
    seqs = {one["text"]: one["seq"] for one in world.messages(session, "user")}

    def named(text: str) -> list[str]:
        said = complaint(world, "redact", session, "--seq", str(seqs[text]), "--yes", expect=0)
        return re.findall(r"codex delete (\S+) removes that thread", said)

    assert named("hello again") == [third]
    assert second in (told := named("think"))
    assert first not in told, "it was over before that was said"
    assert named("hello") == [first, second, third]
