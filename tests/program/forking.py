"""Commands as processes of their own, without the cost of loading: a helper that has steno loaded forks for each.

A test runs hundreds of commands to their end, and loading takes longer than most of them do. What is started, killed
and signalled (`World.start`) is loaded as a person's steno is.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_idle: list["subprocess.Popen[bytes]"] = []
_lock = threading.Lock()


def run(words: tuple[str, ...], environment: dict[str, str], folder: Path, wait_s: float) -> tuple[int, bytes, bytes]:
    """Run a command to its end: its status, what it wrote, what it complained of."""
    helper = _taken()
    order = {"words": words, "environment": environment, "folder": str(folder)}
    assert helper.stdin is not None
    assert helper.stdout is not None
    timer = threading.Timer(wait_s, helper.kill)
    timer.start()
    try:
        helper.stdin.write(json.dumps(order).encode() + b"\n")
        helper.stdin.flush()
        line = helper.stdout.readline()
    finally:
        timer.cancel()
    if not line:
        raise subprocess.TimeoutExpired(list(words), wait_s)
    answer: dict[str, Any] = json.loads(line)
    with _lock:
        _idle.append(helper)
    return answer["status"], bytes.fromhex(answer["out"]), bytes.fromhex(answer["err"])


def _taken() -> "subprocess.Popen[bytes]":
    with _lock:
        if _idle:
            return _idle.pop()
    return subprocess.Popen(
        [sys.executable, "-m", "tests.program.forking"], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


# --- in the helper ------------------------------------------------------------------------------------------------


def serve() -> None:
    import steno.cli.commands
    import steno.models.http  # noqa: F401

    while line := sys.stdin.buffer.readline():
        order = json.loads(line)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = os.fork()
            if child == 0:
                _command(order, out.fileno(), err.fileno())
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            answer = {"status": status, "out": _all(out.fileno()).hex(), "err": _all(err.fileno()).hex()}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _command(order: dict[str, Any], out: int, err: int) -> None:
    status = 70
    try:
        os.setsid()
        os.chdir(order["folder"])
        os.environ.clear()
        os.environ.update(order["environment"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.argv = ["steno", *order["words"]]
        from steno.cli import main

        try:
            status = main(order["words"])
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - as an uncaught error of a program: told, and status 1
        import traceback

        traceback.print_exc()
        status = 1
    finally:
        os._exit(status)


def _all(handle: int) -> bytes:
    return os.pread(handle, os.fstat(handle).st_size, 0)


if __name__ == "__main__":
    serve()
