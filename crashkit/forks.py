"""Processes that are ready at once: a process loads what a store imports, and forks one for each
job. The store itself is opened in the forked one only.

    with Forks("my_module:MyStore") as forks:
        process = forks.start(folder, "append", {"writer": "a", ...})

It finds out what the store imports by forking a process that uses it once.
"""

import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from crashkit.child import LEAVES_NOTHING, find, perform

WORDS_MAX = 1 << 16


class Process:
    """One job. Its number is its own until `wait` returns."""

    def __init__(self, forks: "Forks", pid: int, out: int) -> None:
        self._forks = forks
        self.pid = pid
        self.stdout = os.fdopen(out, encoding="utf-8", errors="replace")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def rest(self, heard: Callable[[], object] = lambda: None) -> list[str]:
        """What it says to its end. `heard` is called then, while its number is still its own."""
        rest = self.stdout.read().splitlines()
        self.stdout.close()
        heard()
        self._forks.ask("wait", self.pid)
        return rest


class Forks:
    def __init__(self, target: str) -> None:
        self.target = target

    def __enter__(self) -> Self:
        self._socket, theirs = socket.socketpair()
        here = str(Path(__file__).resolve().parent.parent)
        paths = [here, str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
        self._server = subprocess.Popen(
            [sys.executable, "-m", "crashkit.forks", self.target, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
        theirs.close()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._server.wait()

    def start(self, folder: Path, job: str, arguments: dict[str, Any]) -> Process:
        out, into = os.pipe()
        try:
            pid = self.ask("start", str(folder), job, arguments, into=[into])
        finally:
            os.close(into)
        return Process(self, pid, out)

    def ask(self, *words: object, into: list[int] | None = None) -> int:
        socket.send_fds(self._socket, [json.dumps(words).encode()], into or [])
        answer = self._socket.recv(64)
        if not answer:
            raise RuntimeError(f"the process that loads {self.target} has ended")
        return int(answer)


def _serve(target: str, asked: socket.socket) -> None:
    for name in _imported(target):
        with suppress(Exception):  # what cannot be imported alone is left to the jobs
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    while True:
        data, given, _, _ = socket.recv_fds(asked, WORDS_MAX, 1)
        if not data:
            return
        verb, *words = json.loads(data)
        if verb == "wait":
            os.waitpid(words[0], 0)
            asked.send(b"0")
            continue
        pid = os.fork()
        if pid == 0:
            asked.close()
            status = _job(given[0], target, words)
            if words[1] in LEAVES_NOTHING:
                os._exit(status)
            sys.exit(status)
        os.close(given[0])
        asked.send(str(pid).encode())


def _job(out: int, target: str, words: list[Any]) -> int:
    """In the forked process."""
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    return perform(target, *words)


def _imported(target: str) -> list[str]:
    """What a process imports that uses the store once, in that order."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        before = set(sys.modules)
        os.close(out)
        with tempfile.TemporaryDirectory() as folder, suppress(BaseException):
            store = find(target)(Path(folder))
            store.append(["<warm>"])
            store.read()
            if "stream" in getattr(store, "offers", ()):
                store.write("warm")
        os.write(into, json.dumps([name for name in sys.modules if name not in before]).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as file:
        names: list[str] = json.loads(file.read() or "[]")
    os.waitpid(pid, 0)
    return names


if __name__ == "__main__":
    _serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
