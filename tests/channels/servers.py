"""Real servers for a whole test run: the first test that needs one has it started, and a process of
its own, `python -m tests.channels.servers NAME FOLDER PID`, holds it and stops it when the run is
over, however that ended.

    synapse    Matrix, from PyPI, in a virtual environment inside ours
    dovecot    IMAP, Debian's
    prosody    XMPP, Debian's

Each lies in a temporary folder and listens on loopback alone. Debian's do not run as root.
"""

import base64
import fcntl
import grp
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

from tests.debian_parts import PACKAGES, SYSTEM_PATH, there

ROOT = Path(__file__).resolve().parent.parent.parent
START_S = 100.0
SYNAPSE = "1.163.2"
SYNAPSE_FOLDER = Path(sys.prefix) / f"synapse-{SYNAPSE}"
NOBODY = "nobody"


class Real(ABC):
    """A server in a folder. `port` is chosen when it is made."""

    program = ""
    """What must be installed, as `tests.debian_parts` names it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def start(self, port: int) -> "subprocess.Popen[bytes]": ...

    def launch(self, command: list[str], as_nobody: bool) -> "subprocess.Popen[bytes]":
        if as_nobody and os.geteuid() == 0:
            for path in (self.folder, *self.folder.rglob("*")):
                shutil.chown(path, NOBODY, "nogroup")
            user = ["setpriv", f"--reuid={NOBODY}", "--regid=nogroup", "--clear-groups"]
            command = [*user, *command]
        with (self.folder.parent / f"{self.folder.name}.log").open("wb") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )


class Synapse(Real):
    def start(self, port: int) -> "subprocess.Popen[bytes]":
        python = synapse_installed()
        seed = base64.b64encode(sha256(str(self.folder).encode()).digest()).decode().rstrip("=")
        (self.folder / "signing.key").write_text(f"ed25519 a_1 {seed}\n")
        (self.folder / "media").mkdir()
        fast = {"per_second": 10_000, "burst_count": 10_000}
        config = {
            "server_name": "test",
            "listeners": [
                {
                    "port": port,
                    "type": "http",
                    "bind_addresses": ["127.0.0.1"],
                    "resources": [{"names": ["client"]}],
                }
            ],
            "database": {"name": "sqlite3", "args": {"database": str(self.folder / "db")}},
            "signing_key_path": str(self.folder / "signing.key"),
            "media_store_path": str(self.folder / "media"),
            "trusted_key_servers": [],
            "report_stats": False,
            "enable_registration": True,
            "enable_registration_without_verification": True,
            "bcrypt_rounds": 4,
            "macaroon_secret_key": "test",
            "form_secret": "test",
            "pid_file": str(self.folder / "pid"),
            "presence": {"enabled": False},
            "rc_message": fast,
            "rc_registration": fast,
            "rc_joins": {"local": fast, "remote": fast},
            "rc_room_creation": fast,
            "rc_invites": {"per_room": fast, "per_user": fast, "per_issuer": fast},
            "rc_login": {"address": fast, "account": fast, "failed_attempts": fast},
        }
        (self.folder / "homeserver.json").write_text(json.dumps(config))
        command = [str(python), "-m", "synapse.app.homeserver"]
        # Whoever else there is may not be able to read the environment that it lies in.
        return self.launch([*command, "-c", str(self.folder / "homeserver.json")], as_nobody=False)


class Dovecot(Real):
    """Anybody may log in with the password "test", and has a mailbox."""

    program = "dovecot"

    def start(self, port: int) -> "subprocess.Popen[bytes]":
        who = NOBODY if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        group = "nogroup" if os.geteuid() == 0 else grp.getgrgid(os.getegid()).gr_name
        (self.folder / "mail").mkdir()
        (self.folder / "dovecot.conf").write_text(f"""
            base_dir = {self.folder}/run
            state_dir = {self.folder}/run
            log_path = /dev/stderr
            protocols = imap
            listen = 127.0.0.1
            ssl = no
            disable_plaintext_auth = no
            first_valid_uid = 0
            default_internal_user = {who}
            default_internal_group = {group}
            default_login_user = {who}
            mail_location = maildir:{self.folder}/mail/%u
            mail_max_userip_connections = 100
            passdb {{
              driver = static
              args = password=test
            }}
            userdb {{
              driver = static
              args = uid={who} gid={group} home={self.folder}/mail/%u
            }}
            service imap-login {{
              chroot =
              inet_listener imap {{
                port = {port}
              }}
              inet_listener imaps {{
                port = 0
              }}
            }}
            service anvil {{
              chroot =
            }}
            service stats {{
              chroot =
            }}
            """)
        program = shutil.which("dovecot", path=SYSTEM_PATH) or "dovecot"
        command = [program, "-F", "-c", str(self.folder / "dovecot.conf")]
        return self.launch(command, as_nobody=True)


class Prosody(Real):
    """Anybody may log in with any password, as a user of localhost."""

    program = "prosody"

    def start(self, port: int) -> "subprocess.Popen[bytes]":
        (self.folder / "data").mkdir()
        (self.folder / "prosody.cfg.lua").write_text(f"""
            pidfile = "{self.folder}/pid"
            data_path = "{self.folder}/data"
            interfaces = {{ "127.0.0.1" }}
            c2s_ports = {{ {port} }}
            s2s_ports = {{ }}
            http_ports = {{ }}
            https_ports = {{ }}
            modules_enabled = {{
                "saslauth"; "roster"; "disco"; "ping"; "mam"; "offline";
            }}
            modules_disabled = {{ "s2s"; "tls"; "http" }}
            limits = {{ c2s = {{ rate = "10mb/s" }} }}
            c2s_require_encryption = false
            allow_unencrypted_plain_auth = true
            authentication = "insecure"
            insecure_open_authentication = "Yes please, I know what I'm doing!"
            storage = "internal"
            default_archive_policy = true
            log = {{ {{ levels = {{ min = "warn" }}, to = "console" }} }}
            VirtualHost "localhost"
            """)
        program = shutil.which("prosody", path=SYSTEM_PATH) or "prosody"
        command = [program, "-F", "--config", str(self.folder / "prosody.cfg.lua")]
        return self.launch(command, as_nobody=True)


KINDS: dict[str, type[Real]] = {"synapse": Synapse, "dovecot": Dovecot, "prosody": Prosody}


def synapse_installed() -> Path:
    """The Python that has Synapse. It is installed once; a lock makes everybody share that."""
    SYNAPSE_FOLDER.mkdir(exist_ok=True)
    python = SYNAPSE_FOLDER / "bin" / "python"
    with (SYNAPSE_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (SYNAPSE_FOLDER / "made").exists():
            if shutil.which("uv"):
                make = ["uv", "venv", "--allow-existing", "--python", sys.executable]
                _do([*make, str(SYNAPSE_FOLDER)])
                install = ["uv", "pip", "install", "--python", str(python)]
            else:
                _do([sys.executable, "-m", "venv", str(SYNAPSE_FOLDER)])
                install = [str(python), "-m", "pip", "install", "--quiet"]
            _do([*install, f"matrix-synapse=={SYNAPSE}"])
            (SYNAPSE_FOLDER / "made").touch()
    return python


def _do(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-1_000:]}")


# --- for tests ------------------------------------------------------------------------------------


@cache
def port_of(name: str) -> int:
    """Where the server of this run listens. It is started if it was not."""
    program = KINDS[name].program
    if program and not there(program):
        pytest.skip(f"no {PACKAGES[program]}")
    folder, controller = _run_folder(name)
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not Path(f"{folder}.port").exists():
            holder = subprocess.Popen(
                [sys.executable, "-m", __name__, name, str(folder), str(controller)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            holder.returncode = 0  # it is not waited for: it outlives us
            _wait_for(Path(f"{folder}.port"), Path(f"{folder}.failed"))
    return int(Path(f"{folder}.port").read_text())


def folder_of(name: str) -> Path:
    port_of(name)
    return _run_folder(name)[0]


def _run_folder(name: str) -> tuple[Path, int]:
    """Where a server of this run lies, and the process that the run is over with."""
    worker = "PYTEST_XDIST_WORKER" in os.environ
    controller = os.getppid() if worker else os.getpid()
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")[:12] or str(controller)
    return Path(tempfile.gettempdir()) / f"steno-{name}-{run}", controller


def _wait_for(ready: Path, failed: Path) -> None:
    until = time.monotonic() + START_S
    while not ready.exists():
        if failed.exists():
            raise RuntimeError(failed.read_text())
        if time.monotonic() > until:
            raise RuntimeError("the server did not start")
        time.sleep(0.05)


# --- holding one ----------------------------------------------------------------------------------


def hold(name: str, folder: Path, controller: int) -> None:
    folder.mkdir(mode=0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    log = folder.parent / f"{folder.name}.log"
    try:
        server = KINDS[name](folder).start(port)
    except (OSError, RuntimeError) as error:
        Path(f"{folder}.failed").write_text(str(error))
        return
    try:
        if not _listens(port, server):
            Path(f"{folder}.failed").write_text(f"{name}: {log.read_text()[-2_000:]}")
            return
        beside = Path(f"{folder}.port.new")
        beside.write_text(str(port))
        beside.replace(f"{folder}.port")
        while Path(f"/proc/{controller}").exists() and server.poll() is None:
            time.sleep(0.2)
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)
        for left in ("lock", "port", "log"):
            Path(f"{folder}.{left}").unlink(missing_ok=True)


def _listens(port: int, server: "subprocess.Popen[bytes]") -> bool:
    until = time.monotonic() + START_S
    while time.monotonic() < until and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False


if __name__ == "__main__":
    if sys.argv[1:] == ["install"]:
        synapse_installed()
    else:
        hold(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
