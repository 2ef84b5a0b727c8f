"""What a person gets wrong, and what is wrong with the setup: named in words, with what was kept
and what to do."""

import os
import sqlite3
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.test_cli_views import complaint
from tests.program.world import World


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (("run", ""), "prompt"),
        (("run", "  \n"), "prompt"),
        (("run", "-"), "prompt"),
        (("run", "hi", "--key", ""), "name"),
        (("run", "hi", "--input-id", ""), "id of an input"),
        (("run", "hi", "--session", ""), "no session"),
        (("run", "hi", "--steer"), "--steer"),
    ],
)
def test_what_is_empty_is_refused_and_nothing_is_stored(
    world: World, server: ModelServer, words: tuple[str, ...], about: str
) -> None:
    assert about in complaint(world, *words, expect=2)
    assert world.sessions() == []
    assert server.requests == []


@pytest.mark.parametrize(
    ("runtime", "model", "advice"),
    [
        ("codex", "openai-chat:one", "--model codex:one"),
        ("codex", "one", "--model codex:one"),
        ("native", "codex:one", "leave one out"),
    ],
)
def test_a_model_that_the_runtime_does_not_ask_is_refused_and_nothing_is_stored(
    world: World, server: ModelServer, runtime: str, model: str, advice: str
) -> None:
    """Whoever names a model is not answered by another one."""
    assert advice in complaint(world, "run", "hi", "--runtime", runtime, "--model", model, expect=2)
    assert world.sessions() == []
    assert server.requests == []


def test_an_empty_title_is_refused_and_the_old_one_stays(world: World) -> None:
    world.steno("run", "the title")
    id = world.only_session()
    assert "title" in complaint(world, "rename", id, " ", expect=2)
    assert world.show(id)["title"] == "the title"
    world.steno("rename", id, "another\nline")
    assert "another line" in world.steno("sessions")


def test_the_version_is_told(world: World) -> None:
    assert world.steno("--version") == f"steno {version('steno-agent')}\n"


@pytest.mark.parametrize(
    ("variable", "value", "names"),
    [
        ("STENO_STORE_LOCK_WAIT_MS", "soon", "[store] lock_wait_ms"),
        ("STENO_STORE_LOCK_WAIT_MS", "-1", "[store] lock_wait_ms"),
        ("STENO_LIMITS_IDLE_S", "nan", "[limits] idle_s"),
        ("STENO_TOOLS_ENABLE", "1", "[tools]"),
        ("STENO_STORE_DURABILITY", "none", "[store] durability"),
    ],
)
def test_a_variable_that_is_wrong_is_named(
    world: World, variable: str, value: str, names: str
) -> None:
    world.environment[variable] = value
    errors = complaint(world, "sessions", expect=2)
    assert variable in errors
    assert names in errors
    assert "config.toml" not in errors


@pytest.mark.parametrize(
    "text", ["[store]\nlock_wait_ms = 'x'", "model = 'x'", "[nonsense]\na = 1", "not toml", "\xff"]
)
def test_a_file_that_is_wrong_is_named(world: World, text: str) -> None:
    world.home.mkdir()
    (world.home / "config.toml").write_bytes(text.encode("latin-1"))
    errors = complaint(world, "sessions", expect=2)
    assert str(world.home / "config.toml") in errors
    assert "variable" not in errors


def test_an_address_that_is_none_is_named_with_its_variable(world: World) -> None:
    world.environment["OPENAI_BASE_URL"] = "nowhere"
    errors = complaint(world, "run", "hi", expect=2)
    assert "'nowhere'" in errors
    assert "OPENAI_BASE_URL" in errors
    assert world.sessions() == []


def test_a_system_prompt_that_is_not_text_is_named(world: World) -> None:
    world.home.mkdir()
    (world.home / "system.md").write_bytes(b"\xff\xfe")
    assert str(world.home / "system.md") in complaint(world, "run", "hi", expect=2)


def test_an_unreachable_model_is_named_with_its_address_and_the_prompt_is_kept(
    world: World,
) -> None:
    world.environment |= {
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "STENO_LIMITS_ATTEMPTS_MAX": "1",
    }
    errors = complaint(world, "run", "hi", expect=1)
    id = world.only_session()
    assert "the turn failed: http://127.0.0.1:9/v1 cannot be reached" in errors
    assert "OPENAI_BASE_URL" in errors
    assert f"kept in session {id}" in errors
    assert f"steno retry {id}" in errors
    assert "was failed" not in errors


def test_a_model_that_the_server_does_not_know_is_named_with_the_address(
    world: World, server: ModelServer
) -> None:
    server.replies = [Reply(status=404)]
    errors = complaint(world, "run", "hi", expect=1)
    assert server.url in errors
    assert "openai-chat:test" in errors
    assert "told to fail" in errors


@pytest.mark.parametrize(
    ("model", "variable", "section"),
    [
        ("openai-chat:x", "OPENAI_API_KEY", "[openai]"),
        ("openai-responses:x", "OPENAI_API_KEY", "[openai]"),
        ("anthropic:x", "ANTHROPIC_API_KEY", "[anthropic]"),
    ],
)
def test_a_missing_key_is_named_by_its_variable_and_its_place_in_the_file(
    world: World, model: str, variable: str, section: str
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        del world.environment[name]
    errors = complaint(world, "run", "hi", "--model", model, expect=1)
    assert variable in errors
    assert f"key under {section} in {world.home / 'config.toml'}" in errors
    assert world.messages(world.only_session(), "user")[0]["state"] == "failed"


def test_a_backup_that_cannot_be_made_is_no_fault_of_the_store(
    world: World, tmp_path: Path
) -> None:
    with world.start("backup", str(tmp_path / "missing" / "copy.db")) as program:
        assert program.end() == 1
        said = program.errors()
    assert (
        "copy.db.partial: No such file or directory; nothing was changed; mend that and try again"
        in said
    )


def test_a_backup_that_cannot_be_read_is_named(world: World, tmp_path: Path) -> None:
    assert "nowhere.db" in complaint(world, "restore", str(tmp_path / "nowhere.db"), expect=1)
    assert str(tmp_path) in complaint(world, "restore", str(tmp_path), expect=1)


@pytest.mark.promise(50)
def test_a_store_that_another_program_wrote_to_is_said_to_be_so_and_can_be_adopted(
    world: World,
) -> None:
    world.steno("run", "hello", "--input-id", "one")
    with closing(sqlite3.connect(world.home / "store.db")) as other:
        other.execute("create table note (text)")
        other.execute("drop table note")
        other.commit()
    assert world.steno("sessions", expect=1) == ""
    assert "written anew" in world.steno("verify", "--adopt")
    assert "nothing to do" in world.steno("verify", "--adopt")
    assert world.messages(world.only_session(), "user")[0]["text"] == "hello"


def test_every_file_of_the_home_is_its_owners_alone(world: World, server: ModelServer) -> None:
    before = os.umask(0)
    try:
        with world.start("run", "hi") as program:
            assert program.end() == 0
        with world.start("run", "hi", "--detach") as program:
            assert program.end() == 0
    finally:
        os.umask(before)
    open_to_others = [
        file.name for file in (world.home, *world.home.rglob("*")) if file.stat().st_mode & 0o077
    ]
    assert open_to_others == []
