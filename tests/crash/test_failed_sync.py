"""The system call that syncs fails under a process: that is reported as unknown, and nothing
acknowledged is lost."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chance import chance_of
from tests.crash.check import check
from tests.crash.points import where
from tests.crash.processes import Child
from tests.crash.recording import NO_CHECKPOINTS, STORE, record
from tests.crash.script import script
from tests.crash.world import Delete

FAILURES = 20

Fail = Callable[[int, Path], None]


def why_not() -> str | None:
    """Why a system call cannot be made to fail here."""
    if shutil.which("strace") is None:
        return "failing a system call needs strace"
    tried = subprocess.run(
        ["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else f"strace may not trace here: {tried.stderr.strip()}"


@pytest.fixture(autouse=True)
def _needs_strace() -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)


def commits(folder: Path) -> list[int]:
    """Which calls of fdatasync, counted from 1, end a commit. From the first deletion on, the store
    has others, too."""
    (folder / "counted").mkdir()
    ran = record(script(), folder / "counted" / STORE)
    deletion = next(k for k, verb in enumerate(script().verbs) if isinstance(verb, Delete))
    calls, found = 0, []
    for n, op in enumerate(ran.ops[: ran.acknowledged[deletion - 1]]):
        if op.kind == "sync" and op.file:
            calls += 1
            found += [calls] if n in ran.commits() else []
            calls += op.folder  # SQLite syncs the folder in the same way, after the file
    return found


def run_failing(when: str, path: Path) -> tuple[bytes, str]:
    under = (
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        f"inject=fdatasync:error=EIO:when={when}",
    )
    return Child("run_script", str(path), str(NO_CHECKPOINTS), under=under).finish()


def acknowledged(said: bytes) -> int:
    return max((int(line) for line in said.splitlines() if line.isdigit()), default=0)


def fail_once(n: int, path: Path) -> None:
    said, complaints = run_failing(str(n), path)
    assert said.splitlines()[-1:] == [b"unknown 1 refused 0"], complaints
    check(path, script(), len(script().verbs))


def fail_from(n: int, path: Path) -> None:
    """The disk stays broken: the program gives up. Then the disk works again, and the store is
    opened by another."""
    said, complaints = run_failing(f"{n}+", path)
    assert "with one fault" in complaints
    assert acknowledged(said) < len(script().verbs)
    check(path, script(), acknowledged(said))


@pytest.mark.promise(2)
@pytest.mark.parametrize("fail", [fail_once, fail_from])
def test_a_failed_sync_loses_nothing_acknowledged(fail: Fail, folder: Path) -> None:
    n = chance_of("sync").choice(commits(folder))
    _explained(fail, n, folder)


@pytest.mark.torture
@pytest.mark.promise(2)
@pytest.mark.parametrize("fail", [fail_once, fail_from])
@pytest.mark.parametrize("i", range(FAILURES))
def test_no_failed_sync_loses_anything_acknowledged(fail: Fail, i: int, folder: Path) -> None:
    candidates = commits(folder)
    _explained(fail, candidates[len(candidates) * i // FAILURES], folder)


def _explained(fail: Fail, n: int, folder: Path) -> None:
    try:
        fail(n, folder / STORE)
    except BaseException as error:
        error.add_note(where("fdatasync failed", n))
        raise
