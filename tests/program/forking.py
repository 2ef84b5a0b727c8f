"""Processes of steno without the cost of loading it: a helper that has it loaded forks for each.

The suite starts steno thousands of times, and loading takes longer than most commands do. What
comes of a fork is a process like any other: it has its own session, its own handles, and is
signalled and killed as it would be. One that is to be hit while it loads, whose memory is measured
or that reads whom to trust is started anew (`World.start_anew`). Where the first word is a script,
that is run in its place: it changes steno, and then starts it.
"""

import atexit
import contextlib
import fcntl
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

_ROOT = Path(__file__).resolve().parents[2]
_ORDER_BYTES = 65536
_idle: dict[str, list["_Helper"]] = defaultdict(list)
_lock = threading.Lock()


def run(
    words: Sequence[str], environment: dict[str, str], folder: Path, wait_s: float
) -> tuple[int, bytes, bytes]:
    """Run a command to its end: its status, what it wrote, what it complained of."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = Process(_order(words, environment, folder), out.fileno(), err.fileno())
        try:
            status = process.wait(wait_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        return status, _all(out.fileno()), _all(err.fileno())


def start(words: Sequence[str], environment: dict[str, str], folder: Path) -> "Process":
    """Start a command, with pipes to read what it writes."""
    (out, its_out), (err, its_err) = os.pipe(), os.pipe()
    process = Process(_order(words, environment, folder), its_out, its_err)
    os.close(its_out)
    os.close(its_err)
    process.stdout, process.stderr = os.fdopen(out, "rb"), os.fdopen(err, "rb")
    return process


def start_fed(words: Sequence[str], environment: dict[str, str], folder: Path) -> "Process":
    """Start a command, with a pipe to feed it and one to read all that it writes."""
    (out, its_out), (its_in, feed) = os.pipe(), os.pipe()
    process = Process(_order(words, environment, folder), its_out, its_out, its_in)
    os.close(its_out)
    os.close(its_in)
    process.stdout, process.stdin = os.fdopen(out, "rb"), os.fdopen(feed, "wb")
    return process


def start_on(
    terminal: int, words: Sequence[str], environment: dict[str, str], folder: Path
) -> "Process":
    """Start a command on a terminal of its own."""
    return Process(_order(words, environment, folder, "screen"), terminal, terminal)


def _order(
    words: Sequence[str], environment: dict[str, str], folder: Path, loaded: str = ""
) -> dict[str, Any]:
    """`loaded`: what its helper has loaded besides, because that alone takes longer than several
    commands do. The configuration that a home begins with names servers as examples, in
    comments."""
    with contextlib.suppress(OSError, KeyError):
        lines = (
            Path(environment["STENO_HOME"], "config.toml").read_text(errors="replace").splitlines()
        )
        loaded += "mcp" if any(line.startswith("[mcp.") for line in lines) else ""
    if "gateway" in words[:5]:  # behind a script and what that is told, too
        matrix = '"kind": "matrix"' in environment.get("STENO_CHANNELS", "")
        loaded += "gateway, matrix" if matrix else "gateway"
    return {"words": words, "environment": environment, "folder": str(folder), "loaded": loaded}


class Process:
    """As much of `subprocess.Popen` as the tests use."""

    stdin: Any = None
    stdout: Any = None
    stderr: Any = None

    def __init__(self, order: dict[str, Any], *handles: int) -> None:
        """The handles are those of its output, of its errors, and of its input if it has one."""
        self.args: Sequence[str] = order["words"]
        self.returncode: int | None = None
        self._loaded = order["loaded"]
        self._helper = _taken(self._loaded)
        self.pid = self._helper.begin(order, handles)

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            try:
                self.returncode = int(self._helper.line(timeout))
            except TimeoutError:
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0) from None
            with _lock:
                _idle[self._loaded].append(self._helper)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Helper:
    """Forks one process at a time. It says the id of each, and how it ended. Itself it is forked by
    the first one."""

    def __init__(self) -> None:
        self._socket, its = socket.socketpair()
        with its:
            socket.send_fds(_first()[0], [b"\n"], [its.fileno()])
        self._said = b""

    def begin(self, order: dict[str, Any], handles: Sequence[int]) -> int:
        text = json.dumps(order).encode() + b"\n"
        self._socket.settimeout(None)
        socket.send_fds(self._socket, [text[:_ORDER_BYTES]], handles)
        self._socket.sendall(text[_ORDER_BYTES:])
        return int(self.line(None))

    def line(self, wait_s: float | None) -> bytes:
        self._socket.settimeout(wait_s)
        while b"\n" not in self._said:
            try:
                self._said += self._socket.recv(100) or self._gone()
            except BlockingIOError:
                raise TimeoutError from None
        line, _, self._said = self._said.partition(b"\n")
        return line

    def _gone(self) -> bytes:
        raise RuntimeError("the process that forks is gone")

    def close(self) -> None:
        self._socket.close()


@cache
def _first() -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
    """Ends when we do."""
    ours, its = socket.socketpair()
    with its:
        words = [sys.executable, "-m", "tests.program.forking"]
        first = subprocess.Popen(words, cwd=_ROOT, stdin=its.fileno())
    atexit.register(_end)
    return ours, first


def _end() -> None:
    for helpers in _idle.values():
        for helper in helpers:
            helper.close()
    asks, first = _first()
    asks.close()
    first.wait()


def _taken(loaded: str) -> _Helper:
    with _lock:
        return _idle[loaded].pop() if _idle[loaded] else _Helper()


def _all(handle: int) -> bytes:
    return os.pread(handle, os.fstat(handle).st_size, 0)


# --- in the helper --------------------------------------------------------------------------------


def serve_all() -> None:
    _load()
    asks = socket.socket(fileno=os.dup(0))
    while handles := socket.recv_fds(asks, 1, 1)[1]:
        orders = socket.socket(fileno=handles[0])
        if os.fork() == 0:
            asks.close()
            serve(orders)
            return
        orders.close()


def serve(orders: socket.socket) -> None:
    loaded = False
    while order := _next(orders):
        asked, handles = order
        if not loaded:
            _load_besides(asked["loaded"])
            loaded = True
        child = os.fork()
        if child == 0:
            orders.close()
            _command(asked, *handles)
        for handle in handles:
            os.close(handle)
        orders.sendall(b"%d\n" % child)
        orders.sendall(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _load() -> None:
    """What most commands need, and what is long to load. `tests/program/test_start.py` fails when a
    turn loads more."""
    import concurrent.futures.thread  # noqa: F401
    import importlib.metadata  # noqa: F401

    import steno.agents
    import steno.cli.commands
    import steno.cli.editing
    import steno.cli.memory
    import steno.cli.transfer
    import steno.cli.turns
    import steno.delivery.channels
    import steno.delivery.webhook
    import steno.frontend.worker
    import steno.models.anthropic
    import steno.models.http
    import steno.models.openai_chat
    import steno.plugins.hosts
    import steno.runtimes.codex.driver
    import steno.runtimes.dispatch
    import steno.runtimes.distil
    import steno.search
    import steno.service.approvals
    import steno.service.deliveries
    import steno.service.edits
    import steno.service.memory
    import steno.service.redaction_traces
    import steno.service.visits
    import steno.store.follow
    import steno.tools.delegate
    import steno.tools.files
    import steno.tools.shell
    import steno.workspace.surroundings  # noqa: F401

    _settle()


def _load_besides(what: str) -> None:
    if "mcp" in what:
        import mcp.client  # noqa: F401
    if "screen" in what:
        import steno.cli.chat
        import steno.tui.launch
    if "gateway" in what:
        import steno.cli.gateway
        import steno.gateway.platforms.telegram
        import steno.gateway.serve  # noqa: F401
    if "matrix" in what:
        import nio  # noqa: F401
    _settle()


def _settle() -> None:
    """What is loaded is not looked through again, in none of the processes that come of this."""
    gc.collect()
    gc.freeze()


def _next(orders: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    text, handles, *_ = socket.recv_fds(orders, _ORDER_BYTES, 3)
    if not text:
        return None
    parts = [text]
    while not parts[-1].endswith(b"\n"):
        parts.append(orders.recv(1 << 20))
    return json.loads(b"".join(parts)), handles


def _command(order: dict[str, Any], out: int, err: int, feed: int | None = None) -> NoReturn:
    """Become the command. At its end threads are waited for, as ever; only the interpreter is not
    taken apart."""
    status = 70
    try:
        os.setsid()
        os.chdir(order["folder"])
        os.environ.clear()
        os.environ.update(order["environment"])
        if os.isatty(out):
            fcntl.ioctl(out, termios.TIOCSCTTY, 0)
        if feed is None:
            feed = out if os.isatty(out) else os.open(os.devnull, os.O_RDONLY)
        os.dup2(feed, 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.closerange(3, max(out, err, feed, 16) + 1)
        signal.signal(
            signal.SIGINT, signal.default_int_handler
        )  # who runs the tests in the background ignores it
        sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)  # type: ignore[misc]
        sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)  # type: ignore[misc]
        errors = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
        sys.stderr = sys.__stderr__ = errors  # type: ignore[misc]
        try:
            status = _main(order["words"])
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - as an uncaught error of a program: told, and status 1
        import traceback

        traceback.print_exc()
        status = 1
    finally:
        os._exit(status)


def _main(words: list[str]) -> int:
    if words and words[0].endswith(".py"):
        import runpy

        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
        return 0
    from steno.cli import main

    sys.argv = ["steno", *words]
    return main(words)


if __name__ == "__main__":
    serve_all()
