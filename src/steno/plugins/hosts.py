"""Our side of plugins: starts a process for each, calls it, and waits for none longer than was
said.

A plugin that does not answer in time is not waited for again until it has answered. What went wrong
with it is written to the log once, under its name, beside what it prints itself.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steno.plugins.discovery import FoundPlugin
from steno.plugins.protocol import Told, Untold

BEFORE_S = 1.0
"""How long a request or a tool waits for what plugins have to say about it."""
DRAIN_S = 0.2
"""For what plugins were told last, when we leave."""
UNHEARD_MAX = 100
"""What a plugin may have been told and not heard yet. More is not told to it."""
LOG_BYTES_MAX = 1 << 20
OUTPUT_BYTES, OUTPUT_PAUSE_S = 1 << 16, 0.05
"""What a plugin prints is taken in so much at a time. One that prints without end waits for us, not
we for it."""
ANSWER_BYTES_MAX = 1 << 20
"""A line that a plugin answers with. Its host cuts each result long before."""


class Hosts:
    """The plugins of this process, each in its own. Belongs to the event loop it was started in."""

    def __init__(self, found: Sequence[FoundPlugin], log: Path) -> None:
        self._hosts = {one.name: Host(one, Log(log)) for one in found}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._hosts)

    def start(self) -> None:
        for host in self._hosts.values():
            host.start()

    def having(self, hook: str) -> tuple[str, ...]:
        return tuple(name for name, host in self._hosts.items() if host.has(hook))

    async def ready(self, name: str) -> bool:
        host = self._hosts.get(name)
        if host is None:
            return False
        await host.begun.wait()
        return host.hooks is not None

    async def call(
        self, name: str, hook: str, arguments: Mapping[str, object], limit_s: float
    ) -> Told | Untold:
        host = self._hosts.get(name)
        if host is None:
            return Untold("not installed here")
        answer = await host.ask(hook, arguments, limit_s)
        return answer if isinstance(answer, Untold) else Told(answer.get("error", ""))

    def tell(self, hook: str, arguments: Mapping[str, object]) -> None:
        for host in self._hosts.values():
            host.tell(hook, arguments)

    async def consult(
        self, hook: str, arguments: Mapping[str, object]
    ) -> list[tuple[str, str]]:
        """What plugins have to say before something happens, each with its name."""
        asked = [
            (name, host)
            for name, host in self._hosts.items()
            if host.has(hook) and not host.silent
        ]
        answers = await asyncio.gather(
            *(host.ask(hook, arguments, BEFORE_S) for _, host in asked)
        )
        said = [
            (name, str(result))
            for (name, _), answer in zip(asked, answers, strict=True)
            if not isinstance(answer, Untold)
            for result in answer.get("results", ())
        ]
        return [(name, result) for name, result in said if result]

    async def close(self) -> None:
        """Let them hear what they were told, for a moment, and end them."""
        heard = [host for host in self._hosts.values() if not host.silent]
        unheard = [waiting for host in heard for waiting in host.waiting.values()]
        if unheard:
            await asyncio.wait(unheard, timeout=DRAIN_S)
        for host in self._hosts.values():
            await host.end()


class Host:
    """One plugin. `hooks` are those that it has: None until it has started, and for ever if it
    could not."""

    def __init__(self, found: FoundPlugin, log: "Log") -> None:
        self.begun = asyncio.Event()
        self.hooks: frozenset[str] | None = None
        self.silent = False
        self.waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._found = found
        self._log = log
        self._why = ""
        self._count = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._output: asyncio.Task[None] | None = None
        self._early: list[bytes] = []

    def start(self) -> None:
        self._task = asyncio.create_task(self._live())

    def has(self, hook: str) -> bool:
        return not self.begun.is_set() or hook in (self.hooks or ())

    async def ask(
        self, hook: str, arguments: Mapping[str, object], limit_s: float
    ) -> "dict[str, Any] | Untold":
        """Its answer. One that has no such hook has heard it."""
        try:
            async with asyncio.timeout(limit_s):
                await self.begun.wait()
                if self.hooks is None:
                    return Untold(self._why)
                if hook not in self.hooks:
                    return {}
                answer = await self._send(hook, arguments)
        except TimeoutError:
            self.silent = True
            self._complain(
                f"did not answer {hook} in {limit_s:g} s; it is not waited for until it answers"
            )
            return Untold(f"no answer in {limit_s:g} s", asked=self.hooks is not None)
        return answer if "gone" not in answer else Untold(self._why, asked=True)

    def tell(self, hook: str, arguments: Mapping[str, object]) -> None:
        if not self.has(hook):
            return
        if len(self.waiting) >= UNHEARD_MAX:
            self._complain(
                f"has not heard {UNHEARD_MAX} things yet; {hook} is not told"
            )
            return
        self._send(hook, arguments)

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._output is not None:
            # Its end is there, but for children that left the group.
            await asyncio.wait({self._output}, timeout=OUTPUT_PAUSE_S)
            self._output.cancel()
        self._gone("ended")

    def _send(
        self, hook: str, arguments: Mapping[str, object]
    ) -> "asyncio.Future[dict[str, Any]]":
        self._count += 1
        answer = self.waiting[self._count] = (
            asyncio.get_running_loop().create_future()
        )
        line = (
            json.dumps(
                {"id": self._count, "hook": hook, "arguments": arguments}
            ).encode()
            + b"\n"
        )
        if self._writer is None:
            self._early.append(line)
        else:
            self._writer.write(line)
        return answer

    async def _live(self) -> None:
        """Start it, and take in what it says until it ends."""
        try:
            ours, theirs = socket.socketpair()
            printed, prints = os.pipe()
            self._output = asyncio.create_task(self._keep_output(printed))
            self._process = await asyncio.to_thread(self._spawn, theirs, prints)
            reader, self._writer = await asyncio.open_connection(
                sock=ours, limit=ANSWER_BYTES_MAX
            )
            self._writer.writelines(self._early)
            async for line in reader:
                self._hear(json.loads(line))
            self._why = self._why or "its process ended"
        except (OSError, ValueError) as error:
            what = "cannot be started" if self._process is None else "was cut off"
            self._why = self._why or f"{what}: {error}"
        self._complain(self._why)
        self._gone(self._why)

    async def _keep_output(self, printed: int) -> None:
        """What it prints goes into the log, which stays short whatever that is."""
        reader = asyncio.StreamReader(limit=OUTPUT_BYTES)
        pipe = os.fdopen(printed, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while chunk := await reader.read(OUTPUT_BYTES):
                self._log.write(chunk)
                if len(chunk) == OUTPUT_BYTES:
                    await asyncio.sleep(OUTPUT_PAUSE_S)
        finally:
            transport.close()

    def _spawn(self, theirs: socket.socket, prints: int) -> "subprocess.Popen[bytes]":
        """Without a terminal: in a session of its own, its handles to us."""
        with theirs, os.fdopen(prints, "wb") as log:
            words = [
                sys.executable,
                "-m",
                "steno.plugins.process",
                str(theirs.fileno()),
            ]
            return subprocess.Popen(  # noqa: S603 - our own program
                [*words, self._found.kind, self._found.name, self._found.target],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def _hear(self, said: dict[str, Any]) -> None:
        if "hooks" in said:
            self.hooks = frozenset(said["hooks"])
            self.begun.set()
            for name in said["unknown"]:
                self._complain(
                    f"has a hook that steno does not know, and that is never called: {name}"
                )
        elif "id" in said:
            self.silent = False
            if "error" in said:
                self._complain(f"{said['hook']} raised {said['error']}")
            answer = self.waiting.pop(said["id"], None)
            if answer is not None and not answer.done():
                answer.set_result(said)
        else:
            self._why = str(said.get("error", ""))

    def _gone(self, why: str) -> None:
        """End every wait for it."""
        self.hooks, self._why = None, self._why or why
        self.begun.set()
        for answer in self.waiting.values():
            if not answer.done():
                answer.set_result({"gone": True})
        self.waiting.clear()

    def _complain(self, what: str) -> None:
        self._log.write_once(self._found.name, what)


class Log:
    """What plugins print, and what is wrong with them. Each complaint about each of them once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: set[tuple[str, str]] = set()

    def write(self, text: bytes) -> None:
        with contextlib.suppress(OSError), self._open() as log:
            log.write(text)

    def _open(self) -> Any:
        with contextlib.suppress(OSError):
            if self._path.stat().st_size > LOG_BYTES_MAX - OUTPUT_BYTES:
                self._path.replace(self._path.with_name(self._path.name + ".1"))
        return os.fdopen(
            os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab"
        )

    def write_once(self, name: str, what: str) -> None:
        if (name, what) in self._written:
            return
        self._written.add((name, what))
        self.write(
            f"{time.strftime('%Y-%m-%d %H:%M:%S')} plugin {name}: {what}\n".encode(
                "utf-8", "replace"
            )
        )
