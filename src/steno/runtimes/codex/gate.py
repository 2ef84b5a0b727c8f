"""Stands before what codex would do unasked: what its sandbox allows, commands that its own rules
files allow, tools of its own MCP servers.

No setting of a thread makes codex ask about all of that, but codex runs hooks: before each call a
program of ours tells us of it and waits for our word. So where there is a sandbox, or such files or
servers, our question comes first.

    codex                                      the gate                  the turn
    runs our hook before c1: gate_hook         a connection, the call c1
    hook/started …:c1, among its messages      gives c1 to the turn      step.sealed, approval.asked
                                                                         a person says yes
    the hook ends with 0 (2: must not run)     "yes", hangs up           tool.started, then answers
    item/started c1, output …
    runs our second hook after c1              a file with what c1 said
    hook/completed                             gives that to the turn

- Without our word a call does not run: a hook that cannot ask says no.
- Codex runs only hooks that are trusted. Ours is named to it by its hash, for our threads alone.
- A hook of codex's own that answers codex's questions does not answer ours: it is off for our
  threads.
- A question is taken up when codex has announced its hook: then all that came before it was heard.
- Codex does not tell of a command that its sandbox stopped at once. The second hook says what came
  of each.
- A killed process leaves its gate behind. The next gate that is opened removes those that do not
  listen.
"""

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import socket
import stat
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from steno.runtimes.codex import gate_hook
from steno.runtimes.codex import protocol as p

SYSTEM = Path("/etc/codex")
WAIT_S = 365 * 24 * 60 * 60
"""A question waits for as long as it takes; a hook must have a limit."""
_ANNOUNCED_S = 2.0
_PREFIX = "steno-gate-"
_PLACE_BYTES_MAX = 76
_VISIT_S = 0.2
_OPENED_S = 60.0
_QUESTION_BYTES_MAX = 16 * 1024 * 1024

_SCRIPT = """\
{ask} && exit 0
[ $? = 2 ] || echo "not run: steno could not be asked" >&2
exit 2
"""
_OVER = """\
cat > "$0.$$" || rm -f "$0.$$"
"""


def codex_home(environment: Mapping[str, str]) -> Path:
    """Where codex keeps what is its own."""
    return Path(
        environment.get("CODEX_HOME")
        or Path(environment.get("HOME") or "~").expanduser() / ".codex"
    )


Need = Literal["none", "some", "all"]
"""How much depends on the gate. "some": a login can bring tools, but without the gate codex does
little with them unasked."""


def needed(home: Path, folder: Path) -> Need:
    """How much depends on the gate for a thread in this folder: codex may have rules or servers of
    its own. Whether it trusts a project does not matter."""
    here = folder.resolve()
    places = (SYSTEM, home, *(above / ".codex" for above in (here, *here.parents)))
    if any(
        any((place / "rules").glob("*.rules")) or _has_servers(place / "config.toml")
        for place in places
    ):
        return "all"
    return "some" if (home / "auth.json").exists() else "none"


def _has_servers(config: Path) -> bool:
    """Plugins can bring servers. What cannot be read may have some."""
    try:
        settings = tomllib.loads(config.read_text())
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
    return bool(settings.get("mcp_servers") or settings.get("plugins"))


def silenced(listed: p.HooksListed) -> dict[str, Any]:
    """The settings that turn off, for our threads, hooks that answer codex's questions before we
    are asked."""
    return {
        hook.key: {"enabled": False}
        for hook in listed.hooks()
        if hook.event_name == "permissionRequest"
    }


def sweep() -> None:
    """Remove the gates of dead processes."""
    for folder in _place().glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if _abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _place() -> Path:
    """Where gates are made: no system takes a long address of a socket."""
    usual = tempfile.gettempdir()
    return Path(usual if len(os.fsencode(usual)) <= _PLACE_BYTES_MAX else "/tmp")  # noqa: S108 - mkdtemp makes it ours


def _abandoned(folder: Path) -> bool:
    """True if it is ours and does not listen. One that was just made is not open yet."""
    made = folder.lstat()
    if not stat.S_ISDIR(made.st_mode) or made.st_uid != os.getuid():
        return False
    with socket.socket(socket.AF_UNIX) as visitor:
        visitor.settimeout(_VISIT_S)
        try:
            visitor.connect(str(folder / "socket"))
        except ConnectionRefusedError:
            return True
        except FileNotFoundError:
            return time.time() - made.st_mtime > _OPENED_S
    return False


class CallGate:
    """Questions are handed on as requests of codex, once `listen` has said where to."""

    def __init__(self) -> None:
        self._put: Callable[[p.ServerRequest], None] = _unheard
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_place()))
        self._server: asyncio.Server | None = None
        self._writers: dict[str, asyncio.StreamWriter] = {}
        self._early: dict[str, tuple[str, p.ServerRequest]] = {}
        self._runs: set[str] = set()
        self._asked = 0
        self._command = f"sh {shlex.quote(str(self._folder / 'hook'))}"
        self._after = f"sh {shlex.quote(str(self._folder / 'over'))}"

    async def open(self) -> tuple[str, ...]:
        """Words to start codex with. A string of JSON is one of TOML."""
        sweep()
        address = self._folder / "socket"
        words = (sys.executable, "-I", "-S", gate_hook.__file__, str(address))
        (self._folder / "hook").write_text(_SCRIPT.format(ask=shlex.join(words)))
        (self._folder / "over").write_text(_OVER)
        self._server = await asyncio.start_unix_server(
            self._hear, address, limit=_QUESTION_BYTES_MAX
        )
        before = _hook("PreToolUse", "^(Bash|apply_patch|mcp__.*)$", self._command)
        return "-c", before, "-c", _hook("PostToolUse", "^Bash$", self._after)

    def trust(self, listed: p.HooksListed) -> dict[str, Any] | None:
        """The settings with which codex runs our hooks; None if it does not know of them."""
        commands = (self._command, self._after)
        ours = [
            hook
            for hook in listed.hooks()
            if hook.command in commands and hook.enabled
        ]
        trusted = {hook.key: {"trusted_hash": hook.current_hash} for hook in ours}
        return trusted if len(ours) == 2 else None

    def listen(self, put: Callable[[p.ServerRequest], None]) -> None:
        self._put = put

    def announced(self, run: str) -> None:
        self._runs.add(run)
        self._take_up()

    def over(self) -> list[p.CommandOver]:
        """The commands that are over, once each."""
        found: list[p.CommandOver] = []
        for file in sorted(self._folder.glob("over.*")):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                found.append(p.command_over(file.read_bytes()))
                file.unlink()
        return found

    def answer(self, request: int | str, refusal: str) -> bool:
        """True if this was a question of ours. `refusal` is "" for yes."""
        writer = self._writers.pop(str(request), None)
        if writer is not None:
            writer.write(
                b"no " + refusal.encode("utf-8", "replace") if refusal else b"yes"
            )
            writer.close()
        return writer is not None

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        if self._server is not None:
            self._server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _hear(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            asked = p.waiting_call(await reader.readline())
        except (msgspec.DecodeError, ValueError, ConnectionError):
            writer.close()
            return
        self._asked += 1
        id = f"gate/{self._asked}"
        self._writers[id] = writer
        self._early[id] = asked.call, p.ServerRequest(id, asked)
        self._take_up()
        asyncio.get_running_loop().call_later(_ANNOUNCED_S, self._give, id)

    def _take_up(self) -> None:
        for id, (call, _) in list(self._early.items()):
            run = next((run for run in self._runs if run.endswith(f":{call}")), None)
            if run is not None:
                self._runs.discard(run)
                self._give(id)

    def _give(self, id: str) -> None:
        if (early := self._early.pop(id, None)) is not None:
            self._put(early[1])


def _hook(event: str, tools: str, command: str) -> str:
    hook = f'{{type="command",command={json.dumps(command)},timeout={WAIT_S}}}'
    return f'hooks.{event}=[{{matcher="{tools}",hooks=[{hook}]}}]'


def _unheard(request: p.ServerRequest) -> None:
    raise AssertionError(f"{request.id} was asked before the server listened")
