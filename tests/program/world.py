"""The running program, as a person or a script meets it: commands, output, signals, a second
process that looks."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from tests.program import forking

MODEL = "openai-chat:test"
NOBODY = Path(__file__).with_name("nobody.pem")
"""An empty list of whom to trust: nothing on loopback needs one, and reading the machine's takes a
tenth of a start."""
WAIT_S = 30.0


class World:
    """One STENO_HOME, one folder to work in, one model server."""

    def __init__(self, folder: Path, url: str, model: str = MODEL) -> None:
        self.home = folder / "home"
        self.work = folder / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("STENO_", "OPENAI", "ANTH"))
        }
        self.environment = kept | {
            "PATH": os.pathsep.join((str(Path(sys.prefix, "bin")), os.environ["PATH"])),
            "SSL_CERT_FILE": str(NOBODY),
            "STENO_HOME": str(self.home),
            "STENO_MODEL": model,
            "STENO_MEMORY_DISTILL": "off",
            "STENO_MEMORY_TITLES": "false",
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "test-key",
            "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": "test-key",
        }

    def copied(self, name: str) -> "World":
        """The same home at this moment, to be gone on with in another way. The folder to work in is
        shared."""
        other = copy(self)
        other.home = self.home.with_name(f"home-{name}")
        shutil.copytree(self.home, other.home)
        other.environment = self.environment | {"STENO_HOME": str(other.home)}
        return other

    def start(self, *words: str) -> "Program":
        """Where modules are looked for elsewhere, what is loaded already is not what it would
        find."""
        if self.finds_other_modules():
            return self.start_anew(*words)
        return Program(self, words, forked=True)

    def finds_other_modules(self) -> bool:
        return self.environment.get("PYTHONPATH") != os.environ.get("PYTHONPATH")

    def start_anew(self, *words: str) -> "Program":
        """Loaded as a person's steno is."""
        return Program(self, (sys.executable, "-m", "steno", *words))

    def start_changed(self, script: str, *words: str) -> "Program":
        """The program, changed by a script beside this file."""
        path = str(Path(__file__).with_name(script))
        if self.finds_other_modules():
            return Program(self, (sys.executable, path, *words))
        return Program(self, (path, *words), forked=True)

    def start_dying(self, when: str, n: int, *words: str) -> "Program":
        """The program, killing itself before or after its n-th record in the journal."""
        return self.start_changed("dying.py", when, str(n), *words)

    def steno(self, *words: str, expect: int | None = 0) -> str:
        """Run a command to its end; its stdout."""
        status, out, err = forking.run(words, self.environment, self.work, WAIT_S)
        if expect is not None and status != expect:
            raise AssertionError(f"steno {words}: {status}\n{out.decode()}\n{err.decode()}")
        return out.decode()

    def show(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.steno("show", id, "--json"))
        return found

    def sessions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.steno("sessions", "--json", "--all"))
        return found

    def only_session(self) -> str:
        (one,) = self.sessions()
        return str(one["id"])

    def messages(self, id: str, role: str | None = None) -> list[dict[str, Any]]:
        return [message for message in self.show(id)["messages"] if role in (None, message["role"])]


class Program:
    """A steno process under way. What it has shown is collected as it comes."""

    def __init__(self, world: World, words: tuple[str, ...], forked: bool = False) -> None:
        self._shown = bytearray()
        self._store = world.home / "store.db"
        start = forking.start if forked else _start
        self.process = start(words, world.environment, world.work)
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)

    def shown(self) -> str:
        assert self.process.stdout is not None
        while chunk := self.process.stdout.read():
            self._shown += chunk
        return self._shown.decode()

    def wait_shown(self, text: str) -> None:
        """A program that has ended shows nothing more."""

        def is_shown() -> bool:
            over = self.process.poll() is not None
            shown = text in self.shown()
            assert shown or not over, (
                f"it ended without {text!r}: {self.shown()!r}, {self.errors()}"
            )
            return shown

        wait_until(is_shown, f"{text!r} to be shown; got {self.shown()!r}")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def put_to_sleep(self) -> None:
        """Stop it where it holds no lock: in the middle of a commit it would keep everybody else
        from writing."""
        while True:
            self.signal(signal.SIGSTOP)
            wait_until(lambda: _state(self.process.pid) == "T", "it to sleep")
            with contextlib.closing(
                sqlite3.connect(self._store, timeout=0, isolation_level=None)
            ) as store:
                try:
                    store.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError:
                    self.signal(signal.SIGCONT)
                    time.sleep(0.01)
                else:
                    store.execute("ROLLBACK")
                    return

    def kill(self) -> str:
        """Kill -9; everything it had shown."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(WAIT_S)
        return self.shown()

    def end(self) -> int:
        """Wait for its end; its exit status."""
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None and time.monotonic() < deadline:
            self.shown()
            time.sleep(0.005)
        return self.process.wait(1)

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT_S)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


def _start(
    words: Sequence[str], environment: dict[str, str], folder: Path
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        words,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def wait_until(true: Callable[[], bool], what: str, limit_s: float = WAIT_S) -> None:
    """Looks that take long are made less often: whoever waits leaves the machine to what is waited
    for."""
    began = time.monotonic()
    deadline = began + limit_s
    while not true():
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"waited {limit_s} s for {what}")
        time.sleep(max(0.005, 2 * (now - began)) if now - began < 0.1 else 0.2)
        began = time.monotonic()
