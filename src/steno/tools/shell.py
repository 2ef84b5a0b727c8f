"""The tool `shell`: one command, in a process group of its own.

What must be true:

- The command does not begin before `run`. Until then a gate stands in its place: a shell that waits
  for one line on its standard input. We alone hold the other end, so if we die the gate reads the
  end of file and just exits.
- The outcome's text begins with exactly what went through `output`; lines in brackets at its end
  are ours.
- Nothing is read ahead: while `output` waits, the pipe fills up and the command waits too.
- Nothing in the group outlives the call. What must go on says so, with setsid.
- The first process is not reaped before the last signal is sent: until then its number cannot be
  given away.
"""

import asyncio
import codecs
import contextlib
import os
import signal
import subprocess
from typing import IO, Annotated, Literal

from msgspec import Meta, Struct

from steno.journal.facts import ToolSpec
from steno.journal.parts import Content, Failed, Interrupted, Outcome, Returned, Text
from steno.tools import groups
from steno.tools.builtin import SHELL_SPEC
from steno.tools.protocol import BadArguments, Output, Workspace, decode_arguments

_GATE = f'IFS= read -r {groups.MARK} && export {groups.MARK} && exec /bin/sh -c -- "$1" </dev/null'

_COMMAND_BYTES_MAX = 128 * 1024 - 1
"""Linux takes no longer argument."""

_CHUNK_BYTES = 64 * 1024
_LAST_BYTES_MAX = 1024 * 1024
"""What a pipe may hold at most when its group has been ended."""

_LINGER_S = 0.5
"""How long processes in the background may keep the output open after the shell has exited."""

_REAP_WAIT_S = 2.0


class ShellArguments(Struct, frozen=True, forbid_unknown_fields=True):
    command: str
    timeout_s: Annotated[float, Meta(gt=0)] | None = None


class Shell:
    spec: ToolSpec = SHELL_SPEC
    approval: Literal["none", "ask"] = "ask"

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def check(self, arguments: str) -> None:
        self._asked(arguments)

    async def prepare(self, arguments: str) -> "ShellCall":
        asked = self._asked(arguments)
        limit_s = asked.timeout_s or self._workspace.time_limit_s
        return ShellCall(
            spawn_gate(asked.command, self._workspace), limit_s, self._workspace
        )

    def _asked(self, arguments: str) -> ShellArguments:
        asked = decode_arguments(arguments, ShellArguments)
        limit_s = self._workspace.time_limit_s
        if asked.timeout_s is not None and asked.timeout_s > limit_s:
            raise BadArguments(f"`timeout_s` can be at most {limit_s:g}")
        if "\0" in asked.command:
            raise BadArguments(
                "`command` contains a NUL character, which no shell can take"
            )
        if len(asked.command.encode()) > _COMMAND_BYTES_MAX:
            raise BadArguments(
                f"`command` is longer than {_COMMAND_BYTES_MAX} bytes; write a script to a file "
                "and run that"
            )
        return asked


class StartGate(Struct, frozen=True):
    """A process that waits to become the command. `go` is our end of its input, `said` of its
    output."""

    process: subprocess.Popen[bytes]
    go: IO[bytes]
    said: IO[bytes]


def spawn_gate(command: str, workspace: Workspace) -> StartGate:
    """In a group of its own. Our ends of the pipes are close-on-exec: no other child of ours holds
    them."""
    gate = ["/bin/sh", "-c", workspace.bounds.as_shell() + _GATE, "sh", command]
    try:
        process = subprocess.Popen(  # noqa: S603 running what the model asks for is the tool; a person approves it
            workspace.sandbox.around(gate, workspace.folder),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=workspace.folder,
            env=workspace.scrub.clean(os.environ)
            | {"TERM": "dumb", groups.MARK: groups.mark(None)},
            start_new_session=True,
        )
    except OSError as error:
        raise BadArguments(f"the shell cannot be started: {error}") from error
    groups.began(process.pid)
    if process.stdin is None or process.stdout is None:
        raise AssertionError("both were asked for as pipes")
    return StartGate(process, process.stdin, process.stdout)


class ShellCall:
    """One command, from its gate to its outcome."""

    def __init__(
        self, gate: StartGate, time_limit_s: float, workspace: Workspace
    ) -> None:
        self.group: int | None = gate.process.pid
        self._gate = gate
        self._process = gate.process
        self._time_limit_s = time_limit_s
        self._workspace = workspace
        self._exit = ""
        self._begun = False
        self._stopped = False
        self._over = False

    async def run(self, output: Output) -> Outcome:
        if self._over:
            return Interrupted()
        self._begun = True
        shown_max, kept_max = (
            self._workspace.output_chars_max,
            self._workspace.kept_chars_max,
        )
        pump = Pump(self._gate.said.fileno(), output, shown_max, kept_max)
        pumping = asyncio.create_task(pump.drain())
        try:
            self._open_gate()
            in_time = await groups.until(
                lambda: self._has_exited() or _broke_off(pumping), self._time_limit_s
            )
            if _broke_off(pumping):
                pumping.result()
            left = await self._end_rest(pumping, in_time)
            pump.finish()
            await pumping
        finally:
            groups.signal_group(self._process.pid, signal.SIGKILL)
            await _cancel(pumping)
            await self._reap()
        return self._outcome(pump, in_time, left)

    async def stop(self) -> None:
        if self._over:
            return
        self._stopped = True
        groups.signal_group(self._process.pid, signal.SIGKILL)
        if not self._begun:
            await self._reap()

    def _open_gate(self) -> None:
        with contextlib.suppress(
            BrokenPipeError
        ):  # The gate was ended; its exit says how.
            self._gate.go.write(groups.mark(self._process.pid).encode() + b"\n")
        self._gate.go.close()

    async def _end_rest(self, pumping: "asyncio.Task[None]", in_time: bool) -> int:
        """End what still runs in the group; how many processes that were."""
        if in_time:
            await asyncio.wait({pumping}, timeout=_LINGER_S)
            if self._workspace.sandbox.kind != "none":
                # The processes of a sandbox end a moment after the command.
                await groups.until(
                    lambda: not groups.members(self._process.pid), _LINGER_S
                )
        left = len(groups.members(self._process.pid))
        if left or not pumping.done():
            await groups.terminate(self._process.pid)
        return left

    def _has_exited(self) -> bool:
        """Looks without reaping, where the system can."""
        if self._exit:
            return True
        if not hasattr(os, "waitid"):
            if self._process.poll() is not None:
                self._exit = _exit_line(self._process.returncode)
            return bool(self._exit)
        try:
            found = os.waitid(
                os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT
            )
        except ChildProcessError:
            self._exit = "[exit status unknown: another process waited for it]"
        else:
            if found is not None:
                status = (
                    found.si_status
                    if found.si_code == os.CLD_EXITED
                    else -found.si_status
                )
                self._exit = _exit_line(status)
        return bool(self._exit)

    async def _reap(self) -> None:
        """Let go of a process that has been sent KILL."""
        self._over = True
        self._gate.go.close()
        self._gate.said.close()
        await groups.until(self._has_exited, _REAP_WAIT_S)
        groups.over(self._process.pid)
        self._process.poll()

    def _outcome(self, pump: "Pump", in_time: bool, left: int) -> Outcome:
        lines = []
        if pump.dropped:
            lines.append(f"[{pump.dropped} more characters of output were dropped]")
        if self._stopped:
            return Interrupted(self._parts(pump.said, lines))
        if in_time and left:
            lines.append(f"[processes left in the background were ended: {left}]")
        if not pump.at_end:
            lines.append(
                "[the output ends here, though a process that left the group still has it open]"
            )
        if not in_time:
            lines.append(
                f"[ended: the time limit of {self._time_limit_s:g} s was reached]"
            )
            return Failed(self._parts(pump.said, lines))
        if self._exit == _exit_line(0):
            return Returned(self._parts(pump.said, lines))
        lines.append(self._exit or f"[process {self._process.pid} does not end]")
        return Failed(self._parts(pump.said, lines))

    def _parts(self, said: str, lines: list[str]) -> tuple[Content, ...]:
        """What it said, with our lines after it: in one text, unless it is too long to be told
        whole. No part stands for no text: providers refuse empty ones."""
        between = "\n" if lines and said and not said.endswith("\n") else ""
        after = between + "\n".join(lines)
        if len(said) > self._workspace.output_chars_max:
            return (Text(said), Text(after)) if after else (Text(said),)
        return (Text(said + after),) if said + after else ()


class Pump:
    """Carries the text of a pipe to `output`, up to a bound, and keeps it up to another; the rest
    is counted and dropped."""

    def __init__(
        self, pipe: int, output: Output, shown_max: int, kept_max: int
    ) -> None:
        os.set_blocking(pipe, False)
        self.dropped = 0
        self.at_end = False
        self._pipe = pipe
        self._output = output
        self._pieces: list[str] = []
        self._room = shown_max
        self._kept_room = max(shown_max, kept_max)
        self._last_bytes: int | None = None
        self._ready: asyncio.Future[None] | None = None

    @property
    def said(self) -> str:
        """What was shown and what was kept after it."""
        return "".join(self._pieces)

    async def drain(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while chunk := await self._read():
            await self._pass_on(decoder.decode(chunk))
        await self._pass_on(decoder.decode(b"", final=True))

    def finish(self) -> None:
        """Take what is there already, and do not wait for more."""
        self._last_bytes = _LAST_BYTES_MAX
        _resolve(self._ready)

    async def _pass_on(self, text: str) -> None:
        kept = text[: self._kept_room]
        piece = kept[: self._room]
        self._kept_room -= len(kept)
        self._room -= len(piece)
        self.dropped += len(text) - len(kept)
        if kept:
            # Kept first: a piece that `output` was given counts as shown, whatever becomes of the
            # wait.
            self._pieces.append(kept)
        if piece:
            await self._output(piece)

    async def _read(self) -> bytes:
        while self._last_bytes is None or self._last_bytes > 0:
            await self._readable()
            try:
                chunk = os.read(self._pipe, _CHUNK_BYTES)
            except BlockingIOError:
                if self._last_bytes is not None:
                    return b""
                continue
            self.at_end = not chunk
            if self._last_bytes is not None:
                self._last_bytes -= len(chunk)
            return chunk
        return b""

    async def _readable(self) -> None:
        """Until there is something to read, or `finish`. Always lets others run."""
        if self._last_bytes is not None:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        loop.add_reader(self._pipe, _resolve, self._ready)
        try:
            await self._ready
        finally:
            loop.remove_reader(self._pipe)


def _resolve(future: "asyncio.Future[None] | None") -> None:
    if future is not None and not future.done():
        future.set_result(None)


def _broke_off(pumping: "asyncio.Task[None]") -> bool:
    """Whether `output` raised: then the outcome has no reader."""
    return (
        pumping.done() and not pumping.cancelled() and pumping.exception() is not None
    )


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # raised already, or of no use to a caller that is being cancelled


def _exit_line(status: int) -> str:
    if status >= 0:
        return f"[exit status {status}]"
    try:
        return f"[ended by signal {-status} ({signal.Signals(-status).name})]"
    except ValueError:
        return f"[ended by signal {-status}]"
