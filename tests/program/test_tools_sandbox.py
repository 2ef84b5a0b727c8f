"""What commands may use and see, as the configuration says."""

import json
from typing import Any

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.world import World
from tests.tools.test_sandbox import needs_bwrap


def results(request: dict[str, Any]) -> list[str]:
    return [message["content"] for message in request["messages"] if message["role"] == "tool"]


def shell(command: str) -> Reply:
    return Reply(tools=(("shell", json.dumps({"command": command})),))


def configure(world: World, table: str) -> None:
    world.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (world.home / "config.toml").write_text(f"[tools]\n{table}\n")


def test_a_sandbox_that_is_missing_is_told_before_anything_is_stored(
    world: World, server: ModelServer
) -> None:
    configure(world, 'sandbox = "bwrap"')
    empty = world.work / "empty"
    empty.mkdir()
    world.environment["PATH"] = str(empty)
    with world.start("run", "hi", "--yes") as program:
        assert program.end() == 2
        assert "apt install bubblewrap" in program.errors()
    assert server.requests == []
    assert world.sessions() == []
    assert "MISSING    sandbox" in world.steno("doctor")


@needs_bwrap
def test_in_the_sandbox_a_command_cannot_touch_the_store(world: World, server: ModelServer) -> None:
    configure(world, 'sandbox = "bwrap"')
    server.replies = [
        shell(f"echo in > inside; rm -rf {world.home}/*; ls {world.home}"),
        Reply(("done",)),
    ]
    assert world.steno("run", "hi", "--yes") == "done\n"
    assert results(server.requests[1]) == ["[no output]"]
    assert (world.work / "inside").read_text() == "in\n"
    assert len(world.messages(world.only_session())) == 4
    world.steno("verify")


@needs_bwrap
@pytest.mark.promise(60)
def test_the_home_is_out_of_reach_also_where_it_lies_in_the_workspace(
    world: World, server: ModelServer
) -> None:
    """As for somebody who works in their home folder."""
    world.home = world.work / ".steno"
    world.environment["STENO_HOME"] = str(world.home)
    configure(world, 'sandbox = "bwrap"\n[openai]\nkey = "sk-secret"')
    server.replies = [
        Reply(tools=(("read_file", '{"path": ".steno/config.toml"}'),)),
        shell("cat .steno/config.toml .steno/store.db; echo x > .steno/made; ls -A .steno"),
        Reply(("done",)),
    ]
    assert world.steno("run", "hi", "--yes") == "done\n"
    read, ran = results(server.requests[2])
    assert "the folder of steno itself" in read
    assert "sk-secret" not in read + ran
    assert ran.count("No such file") == 2
    assert not (world.home / "made").exists()
    assert (world.home / "store.db").exists()
    world.steno("verify")


def test_bounds_and_secrets_come_from_the_configuration(world: World, server: ModelServer) -> None:
    configure(world, 'file_mb = 1\nsecret_env = ["INNOCENT"]\nkept_env = ["SOME_TOKEN"]')
    world.environment |= {"INNOCENT": "1", "SOME_TOKEN": "2", "OTHER_TOKEN": "3"}
    server.replies = [
        shell("env | grep -E 'INNOCENT|TOKEN' | grep -v STENO"),
        shell("head -c 3000000 /dev/zero > big"),
        Reply(("done",)),
    ]
    world.steno("run", "hi", "--yes")
    env, big = results(server.requests[2])
    assert env == "SOME_TOKEN=2\n"
    assert "signal" in big or "exit status" in big
    assert (world.work / "big").stat().st_size <= 1024 * 1024
