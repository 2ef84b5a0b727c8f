"""A disk that is full, and a store that cannot be written: the submit fails with the reason and no request goes out."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.program.model_server import ModelServer, Reply
from tests.program.world import World


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "home"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", str(folder)]
    if os.name != "posix" or os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs root and tmpfs to make a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], capture_output=True)


@pytest.mark.promise(3)
def test_a_full_disk_refuses_the_prompt_with_the_reason_and_sends_nothing(
    tmp_path: Path, small_disk: Path, server: ModelServer
) -> None:
    world = World(tmp_path, server.url)
    world.steno("run", "kept", "--key", "k")
    sent = len(server.requests)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    with world.start("run", "x" * 20_000, "--key", "k") as program:
        assert program.end() == 1
        assert "full" in program.errors()
    assert len(server.requests) == sent
    filler.unlink()
    server.replies = [Reply(("room again",))]
    assert world.steno("run", "later", "--key", "k") == "room again\n"
    assert [message["text"] for message in world.messages(world.only_session(), "user")] == ["kept", "later"]


@pytest.mark.promise(3)
def test_a_home_that_is_not_a_folder_is_named(world: World, server: ModelServer) -> None:
    world.home.write_text("in the way")
    with world.start("run", "hi") as program:
        assert program.end() == 2
        assert str(world.home) in program.errors()
    assert server.requests == []


@pytest.mark.promise(50)
def test_a_store_that_is_not_a_database_is_named_and_left_alone(world: World, server: ModelServer) -> None:
    world.home.mkdir()
    (world.home / "store.db").write_bytes(b"not a database, but somebody's file" * 100)
    with world.start("run", "hi") as program:
        assert program.end() == 1
        assert "not a database" in program.errors()
    assert server.requests == []
    assert (world.home / "store.db").read_bytes().startswith(b"not a database")
