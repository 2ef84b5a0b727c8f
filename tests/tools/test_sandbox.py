"""What a command may use and see."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from steno.journal.parts import Failed, Interrupted, Outcome, Returned
from steno.tools.groups import until
from steno.tools.protocol import Workspace
from steno.tools.sandbox import Bounds, Sandbox, Scrub
from steno.tools.shell import Shell
from tests.tools.calls import (
    Pieces,
    alive,
    call,
    comes_true,
    needs_proc,
    numbers_in,
    run_and_kill,
    said,
)


def _works() -> str:
    """Why bubblewrap cannot be used here; empty if it can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    tried = [
        "bwrap",
        "--ro-bind",
        "/",
        "/",
        "--unshare-pid",
        "--unshare-net",
        "--proc",
        "/proc",
        "true",
    ]
    done = subprocess.run(tried, capture_output=True, text=True, check=False)
    return f"bubblewrap does not work here: {done.stderr.strip()}" if done.returncode else ""


WHY_NOT = _works()
needs_bwrap = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it works")


@pytest.mark.parametrize(
    ("bounds", "command"),
    [
        (Bounds(cpu_s=1), "while :; do :; done"),
        (Bounds(file_mb=1), "head -c 3000000 /dev/zero > big"),
        (
            Bounds(open_files=64),
            f"{sys.executable} -c 'files = [open(\"/dev/null\") for _ in range(100)]'",
        ),
        (
            Bounds(memory_mb=300),
            "head -c 600000000 /dev/zero | tail -c 500000000 | wc -c | grep 500000000",
        ),
    ],
)
def test_a_command_beyond_its_bounds_fails_and_one_within_them_does_not(
    workspace: Workspace, bounds: Bounds, command: str
) -> None:
    bounded = replace(workspace, bounds=bounds, time_limit_s=20.0)
    assert isinstance(call(bounded, "shell", command=command), Failed)
    assert isinstance(call(bounded, "shell", command="true"), Returned)
    if bounds.file_mb:
        assert (workspace.folder / "big").stat().st_size <= 1024 * 1024


def test_a_command_cannot_lift_its_bounds(workspace: Workspace) -> None:
    bounded = replace(workspace, bounds=Bounds(file_mb=1))
    outcome = call(bounded, "shell", command="ulimit -f unlimited; head -c 3000000 /dev/zero > big")
    assert isinstance(outcome, Failed)
    if os.geteuid():
        assert (workspace.folder / "big").stat().st_size <= 1024 * 1024


def test_the_names_of_secrets_can_be_added_to_and_taken_from(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MY_TOKEN", "OTHER_TOKEN", "INNOCENT"):
        monkeypatch.setenv(name, "value")
    scrubbed = replace(workspace, scrub=Scrub(frozenset(["INNOCENT"]), frozenset(["OTHER_TOKEN"])))
    found = said(call(scrubbed, "shell", command="env"))
    assert "OTHER_TOKEN=value" in found
    assert "INNOCENT" not in found
    assert "MY_TOKEN" not in found


def test_a_sandbox_that_is_not_installed_is_missed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt install bubblewrap" in Sandbox("bwrap").missing()
    assert Sandbox("none").missing() == ""


# --- bubblewrap -----------------------------------------------------------------------------------


@pytest.fixture
def confined(workspace: Workspace, tmp_path: Path) -> Workspace:
    home = tmp_path / "steno-home"
    home.mkdir()
    (home / "store.db").write_text("facts")
    return replace(workspace, sandbox=Sandbox("bwrap", hidden=(home,)))


@needs_bwrap
def test_inside_only_the_workspace_can_be_written(confined: Workspace, tmp_path: Path) -> None:
    """In /tmp a command can write, but to a folder of its own."""
    assert (
        said(call(confined, "shell", command="echo in > inside; cat inside; pwd"))
        == f"in\n{confined.folder}\n"
    )
    assert (confined.folder / "inside").read_text() == "in\n"
    call(confined, "shell", command=f"mkdir -p {tmp_path}; echo out > {tmp_path}/outside")
    assert not (tmp_path / "outside").exists()
    assert isinstance(call(confined, "shell", command="echo out > /etc/steno-test"), Failed)
    assert not Path("/etc/steno-test").exists()


@needs_bwrap
def test_inside_the_store_is_not_there(confined: Workspace, tmp_path: Path) -> None:
    outcome = call(confined, "shell", command=f"cat {tmp_path}/steno-home/store.db")
    assert isinstance(outcome, Failed)
    assert "facts" not in said(outcome)


@needs_bwrap
def test_inside_there_is_no_network_unless_it_is_allowed(confined: Workspace) -> None:
    command = "grep -c : /proc/net/dev"
    alone = int(said(call(confined, "shell", command=command)))
    allowed = replace(confined, sandbox=Sandbox("bwrap", network=True))
    assert alone == 1
    assert int(said(call(allowed, "shell", command=command))) == len(
        [*Path("/sys/class/net").iterdir()]
    )


@needs_bwrap
@needs_proc
def test_a_stop_ends_what_runs_inside(confined: Workspace) -> None:
    async def run() -> Outcome:
        prepared = await Shell(confined).prepare(json.dumps({"command": "echo up; sleep 60"}))
        pieces = Pieces()
        task = asyncio.create_task(prepared.run(pieces))
        assert await until(lambda: bool(pieces), 5)
        await prepared.stop()
        assert prepared.group is not None
        outcome = await task
        assert comes_true(lambda: not alive(prepared.group or 0))
        return outcome

    assert isinstance(asyncio.run(run()), Interrupted)


@needs_bwrap
@needs_proc
def test_what_runs_inside_does_not_outlive_a_kill_of_ours(confined: Workspace) -> None:
    script = """
from msgspec.structs import replace
from steno.tools.sandbox import Sandbox
from steno.tools.shell import Shell

async def main():
    confined = replace(Workspace(folder), sandbox=Sandbox("bwrap"))
    call = await Shell(confined).prepare(json.dumps({"command": "echo up > up; sleep 60"}))
    (folder / "group").write_text(str(call.group))
    await call.run(ignore)

asyncio.run(main())
"""
    run_and_kill(script, confined.folder, lambda: (confined.folder / "up").exists())
    (group,) = numbers_in(confined.folder / "group", 1)
    assert comes_true(lambda: not alive(group))
