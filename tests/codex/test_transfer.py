"""A session that codex runs goes through a file like any other. Its thread stays where codex keeps
it."""

from pathlib import Path

import pytest

from tests.codex.test_history import spoken
from tests.codex.world import CodexWorld
from tests.program.test_cli_views import complaint
from tests.program.test_transfer import move


@pytest.fixture
def there(world: CodexWorld, tmp_path: Path) -> CodexWorld:
    """Another machine: another home of steno, and one of codex."""
    return CodexWorld(tmp_path / "there", world.server)


@pytest.mark.promise(46)
@pytest.mark.promise(59)
def test_a_turn_with_a_command_is_equal_in_another_home(
    world: CodexWorld, there: CodexWorld
) -> None:
    world.run("echo", "--yes")
    session = world.only_session()
    move(world, there, session)
    assert there.said() == world.said()
    assert there.threads() == world.threads()
    assert len(there.threads()) == 1
    assert there.steno("run", "seek").endswith("It ran.\n")
    found = next(one for one in there.messages(there.sessions()[0]["id"], "tool"))
    assert session in found["text"], "a search finds what was said elsewhere"


def test_codex_elsewhere_says_that_it_does_not_know_the_thread_and_begins_another_if_asked(
    world: CodexWorld, there: CodexWorld
) -> None:
    world.run("hello")
    move(world, there, world.only_session())
    said = complaint(there, "run", "and", "--key", "k", expect=1)
    assert "--new-thread" in said
    assert "runs the prompt again" not in said, "to ask for the same thread again would not help"
    assert there.run("and", "--new-thread") == "And so on.\n"
    assert len(set(there.threads())) == 2
    assert [text for role, text, _ in there.said() if role == "assistant" and text] == [
        "Hello there.",
        "And so on.",
    ]
    assert world.run("and") == "And so on.\n", "the thread is still where it was"
    assert len(world.threads()) == 1


def test_a_session_goes_on_with_its_thread_in_another_home_on_the_same_machine(
    world: CodexWorld, there: CodexWorld
) -> None:
    world.run("hello")
    move(world, there, world.only_session())
    there.environment["STENO_CODEX_HOME"] = str(world.codex_home)
    assert there.run("and") == "And so on.\n"
    assert there.threads() == world.threads()


@pytest.mark.torture
@pytest.mark.promise(1, 32)
def test_a_thread_that_a_copy_of_the_session_went_on_with_is_not_taken_for_ours(
    world: CodexWorld,
) -> None:
    """A store that was restored, or a session that was imported: two go on from the same facts,
    with the same seqs."""
    world.run("hello")
    copy = world.copied("restored")
    assert isinstance(copy, CodexWorld)
    world.run("and")
    assert "that only a copy of this session has" in complaint(
        copy, "run", "think", "--key", "k", expect=1
    )
    assert copy.steno("retry", copy.only_session(), "--new-thread") == "Done.\n"
    assert [text for _, text in spoken(copy, "think")] == ["hello", "Hello there.", "think"]
    assert world.run("and") == "And so on.\n"
    assert len(world.threads()) == 1
