"""What codex had and lost is said to it again, once; what it took too late is answered."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import steno
from steno.journal.facts import InputAdmitted
from steno.journal.parts import Text
from steno.models.conversation import FILE_CHARS_MAX
from steno.runtimes.codex.thread import NEXT
from steno.store.protocol import Admission
from tests.codex.doings import told
from tests.codex.record import between
from tests.codex.responses_server import call, message
from tests.codex.test_stops import steers_taken, turn_under_way
from tests.codex.world import CodexWorld
from tests.program.test_cli_views import complaint
from tests.program.world import wait_until


@contextmanager
def wired(world: CodexWorld, victim: str = "both", at: str = "0", **more: str) -> Iterator[Path]:
    """What is said between steno and codex is written down, and both are killed at a message."""
    wire = world.work.parent / "wire.jsonl"
    wire.write_text("")
    between(world, victim, "after", at)
    added = {"STENO_TEST_WIRE": str(wire), **more}
    world.environment |= added
    try:
        yield wire
    finally:
        for name in (*added, "STENO_CODEX_PATH"):
            del world.environment[name]


def steered_and_killed(world: CodexWorld, *inputs: str, words: Sequence[str] = ()) -> None:
    """A turn that takes these inputs, says something to the last one, and is killed."""
    world.run("hello")
    with (
        wired(world) as wire,
        world.start("run", "hold", "--key", "k", "--yes", "--output", "ndjson") as program,
    ):
        program.wait_shown("held")
        session = world.only_session()
        for said in inputs:
            world.steno("run", said, "--session", session, "--steer", "--detach", *words)
        wait_until(lambda: steers_taken(wire) == len(inputs), "codex to say that it has them")
        (world.work / "go").touch()
        program.wait_shown("word3")
        program.kill()
        world.kill_codex()
    world.wait_codex_gone()


def lose(world: CodexWorld, text: str, kept: int = 0) -> None:
    """Codex's files end before what says this: it was not written yet when codex was killed. Codex
    writes it twice, for its model and as an item; `kept` of the two are there."""
    [rollout] = world.codex_home.rglob("rollout-*.jsonl")
    lines = rollout.read_text().splitlines(keepends=True)
    first = next(at for at, line in enumerate(lines) if text in line)
    assert text in lines[first + 1]
    rollout.write_text("".join(lines[: first + kept]))
    _forget_lists(world)


def lose_all(world: CodexWorld) -> None:
    """Codex's file of the thread has nothing but its first line, which says whose it is."""
    [rollout] = world.codex_home.rglob("rollout-*.jsonl")
    rollout.write_text(rollout.read_text().partition("\n")[0] + "\n")
    _forget_lists(world)


def _forget_lists(world: CodexWorld) -> None:
    for made_from_it in world.codex_home.glob("thread_history*"):
        made_from_it.unlink()


def users(world: CodexWorld) -> list[str]:
    """What the last request says that the user said, from the first turn on."""
    messages: list[dict[str, Any]] = world.server.requests()[-1]["body"]["messages"]
    said = [str(one["content"]) for one in messages if one["role"] == "user"]
    return said[said.index("hello") :]


def injected(wire: Path) -> list[str]:
    """What a new thread was told that users had said, attached files and all."""
    messages = [json.loads(line)["msg"] for line in wire.read_text().splitlines()]
    told = [
        one["params"]["items"] for one in messages if one.get("method") == "thread/inject_items"
    ]
    said = [item["content"] for items in told for item in items if item.get("role") == "user"]
    return [block["text"] for content in said for block in content]


@pytest.mark.promise(9, 21, 22)
def test_inputs_that_codex_lost_are_said_again_together_with_the_next_one(
    world: CodexWorld,
) -> None:
    """However quickly codex answers: what is said while its turn runs may come too late."""
    steered_and_killed(world, "slow one", "slow two")
    lose(world, "slow one")
    with wired(world, STENO_TEST_STEER_AFTER="turn/completed"):
        world.run("and")
    together = NEXT.join(("slow one", "slow two", "and"))
    assert users(world) == ["hello", "hold", together]
    assert world.run("hello") == "Hello there.\n"
    assert users(world) == ["hello", "hold", together, "hello"], (
        "from then on they are in the thread"
    )
    stored = [text for role, text, _ in world.said() if role == "user"]
    assert stored == ["hello", "hold", "slow one", "slow two", "and", "hello"], (
        "each is a message of its own"
    )
    assert len(world.threads()) == 1


@pytest.mark.torture
@pytest.mark.promise(21, 22)
def test_an_input_that_the_model_is_told_and_codex_does_not_list_is_not_said_again(
    world: CodexWorld,
) -> None:
    """It was killed between the two."""
    steered_and_killed(world, "slow one", "slow two")
    lose(world, "slow one", kept=1)
    world.run("and")
    assert users(world) == ["hello", "hold", "slow one", NEXT.join(("slow two", "and"))]
    assert world.run("hello") == "Hello there.\n"
    assert users(world) == ["hello", "hold", "slow one", NEXT.join(("slow two", "and")), "hello"]


@pytest.mark.torture
@pytest.mark.promise(21, 22)
def test_what_was_said_again_is_not_said_a_third_time(world: CodexWorld) -> None:
    """Killed once more, when codex has it."""
    steered_and_killed(world, "slow one", "slow two")
    lose(world, "slow one")
    with wired(world, "both", "word1"):
        world.run("and", expect=None)
    world.wait_codex_gone()
    assert world.run("hello") == "Hello there.\n"
    assert users(world) == ["hello", "hold", NEXT.join(("slow one", "slow two", "and")), "hello"]
    assert len(world.threads()) == 1


@pytest.mark.promise(32)
@pytest.mark.parametrize(("said", "left"), [(2, "hello"), (2, ""), (1, "")])
@pytest.mark.suite("2-hello")
def test_a_thread_that_lost_what_was_answered_is_said_so_and_not_gone_on_with(
    world: CodexWorld, said: int, left: str
) -> None:
    """The power went, or codex's folder is an older copy."""
    for prompt in ("hello", "and one")[:said]:
        world.run(prompt)
    if left:
        lose(world, "and one")
    else:
        lose_all(world)
    assert "codex has lost the end of thread" in complaint(
        world, "run", "and two", "--key", "k", expect=1
    )
    session = world.only_session()
    assert world.show(session)["turns"][-1]["cause"] == "thread_lost"
    assert world.steno("retry", session, "--new-thread") == "And so on.\n"
    assert users(world) == [*("hello", "and one")[:said], "and two"]
    assert world.run("hello") == "Hello there.\n"
    assert len(world.threads()) == 2


@pytest.mark.torture
@pytest.mark.promise(32)
def test_an_input_that_codex_does_not_list_and_answered_later_is_not_taken_for_lost(
    world: CodexWorld,
) -> None:
    world.run("hello")
    with world.start("run", "slow", "--key", "k") as program:
        program.wait_shown("word3")
        program.kill()
    world.wait_codex_gone()
    lose(world, '"slow"', kept=1)
    world.steno("continue", world.only_session())
    assert world.said()[-1][1:] == ("Taken up.", "complete")
    assert world.run("and") == "And so on.\n"
    assert len(world.threads()) == 1


@pytest.mark.torture
@pytest.mark.promise(21, 22)
def test_more_than_codex_takes_in_one_message_is_told_in_a_new_thread(world: CodexWorld) -> None:
    attached: list[str] = []
    for name in ("one", "two", "three"):
        (world.work / f"{name}.txt").write_text(name * (FILE_CHARS_MAX // len(name)))
        attached += ["--attach", f"{name}.txt"]
    steered_and_killed(world, "slow one", "slow two", words=attached)
    lose(world, "slow one")
    with wired(world) as wire:
        assert world.run("and") == "And so on.\n"
        told = injected(wire)
    assert [text for text in told if text.startswith(("hello", "hold", "slow"))] == [
        "hello",
        "hold",
        "slow one",
        "slow two",
    ]
    assert len(world.threads()) == 2
    assert world.run("hello") == "Hello there.\n"
    assert len(world.threads()) == 2


@pytest.mark.promise(9, 21)
@pytest.mark.parametrize("time", range(9))
@pytest.mark.suite("4")
def test_an_input_that_codex_takes_when_it_has_said_its_last_word_is_answered(
    world: CodexWorld, time: int
) -> None:
    """Codex may take it into its thread and end the turn all the same, answer to it, or say that it
    came too late."""
    with wired(world, STENO_TEST_STEER_AFTER="thread/tokenUsage/updated") as wire:
        with world.start("run", "slow", "--key", "k") as program:
            program.wait_shown("word3")
            steer(world, "and")
            program.end()
        if world.said()[-1][2] == "pending":
            world.steno("continue", world.only_session())
        assert wire.read_text().count("turn/steer") == 1
    assert [text for role, text, _ in world.said() if role == "user"] == ["slow", "and"]
    assert world.said()[-1] in [
        ("assistant", text, "complete") for text in ("And so on.", "Taken up.")
    ], "an answer"
    assert {one["outcome"] for one in world.show(world.only_session())["turns"]} == {"done"}
    assert len(world.threads()) == 1


STEERED_MESSAGES = 60
"""More than codex sends in a turn with a command and two inputs that steer."""
POINTS = [
    (victim, when, n)
    for n in range(12, STEERED_MESSAGES)
    for victim in ("steno", "codex", "both")
    for when in ("before", "after")
]


@pytest.mark.promise(4, 6, 19, 21, 22, 34, 35)
@pytest.mark.parametrize(("victim", "when", "n"), POINTS)
@pytest.mark.suite("steno-after-20")
def test_killed_at_a_message_of_a_turn_that_was_steered(
    world: CodexWorld, victim: str, when: str, n: int
) -> None:
    world.run("hello")
    between(world, victim, when, n)
    with world.start("run", "hold", "--key", "k", "--yes", "--output", "ndjson") as program:
        wait_until(
            lambda: "held" in program.shown() or program.process.poll() is not None,
            "the command or a kill",
        )
        steer(world, "and one", "and two")
        (world.work / "go").touch()
        program.end()
    del world.environment["STENO_CODEX_PATH"]
    world.wait_codex_gone()
    assert world.run("hello") == "Hello there.\n"
    stored = [text for role, text, _ in world.said() if role == "user"]
    assert stored == ["hello", "hold", "and one", "and two", "hello"]
    assert "pending" not in [state for _, _, state in world.said()]
    told = "\n".join(users(world))
    assert [told.count(text) for text in ("and one", "and two")] == [1, 1], "said to codex once"
    assert told.count("hold") <= 1
    assert len(world.threads()) == 1
    assert world.run("and") == "And so on.\n"


@pytest.mark.promise(12)
def test_what_was_shown_of_an_answer_is_told_with_the_input_that_cuts_it_off(
    world: CodexWorld,
) -> None:
    """Codex keeps nothing of it, and a person speaks of what they read."""
    with turn_under_way(world) as program:
        steer(world, "and one")
        assert program.end() == 0
    shown = next(text for _, text, state in world.said() if state == "interrupted")
    for prompt in ("and one", "hello"):
        if prompt == "hello":
            world.run(prompt)
        told = [str(one["content"]) for one in world.requests(prompt)[-1]]
        [note] = [one for one in told if "so much of your answer was shown" in one]
        said = note.partition(":\n")[2].removesuffix("</steno>")
        assert said.startswith("word0 word1 ")
        assert shown.startswith(said)
        assert told.index(note) < told.index("and one")


@pytest.mark.torture
def test_a_command_that_codex_left_running_is_told_to_have_ended_with_its_process(
    world: CodexWorld,
) -> None:
    """Else it would look after it for ever: in the thread it runs."""
    leaves = call("exec_command", "c1", cmd="sleep 60", yield_time_ms=300)
    with told(
        world, [leaves], [message("It runs.")], [message("Ended.")], [message("Fine.")]
    ) as provider:
        world.run("go", "--yes")
        world.wait_codex_gone()
        world.run("and then?")
        world.run("and then again?")
    notes = [
        "Call c1: [Stopped while it ran." in json.dumps(request["input"][-2])
        for request in provider.requests
    ]
    assert notes == [False, False, True, False]


def steer(world: CodexWorld, *inputs: str) -> None:
    """Store inputs that steer, at once. Whoever gives them runs nothing, whatever became of who
    does."""
    with steno.open(world.home / "store.db") as chats:
        chat = chats.session("k")
        for text in inputs:
            said = InputAdmitted((Text(text),), "test", mode="steer")
            chat.store.admit(Admission(input=said, session=chat.id))
