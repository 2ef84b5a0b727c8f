"""Another program as a child process: lines on its standard input and output.

What must be true:

- It leads a process group of its own, and everything it starts carries our mark, so that recovery
  can end it.
- It does not outlive us. A watcher in its group holds the end of a pipe that only we hold the other
  end of: when we die, however we die, the watcher reads the end of file and ends the group.
- No line is longer than a bound. A program that sends more is cut off.
"""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from steno.tools import groups

LINE_BYTES_MAX = 16 * 1024 * 1024
UNREAD_BYTES_MAX = 16 * 1024 * 1024
_COMPLAINT_BYTES_MAX = 2_000
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_EXIT_WAIT_S = 0.5
_LOOK_S = 0.5
_TERM_WAIT_S = 1.0
_KILL_WAIT_S = 2.0

_WATCHED = f"""\
life=$1 {groups.MARK}="$$$2"
export {groups.MARK}
shift 2
(
  read -r end < "/dev/fd/$life"; trap '' TERM; kill -TERM 0; sleep 1; kill -KILL 0
) </dev/null >/dev/null 2>&1 &
exec "$@"
"""


class Unread(ConnectionError):
    """It runs, and takes nothing in."""


class Command(Struct, frozen=True):
    """What to run. `environment` is all that it gets. `line_bytes_max`: the longest line that it
    may send, if not the usual one."""

    words: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    line_bytes_max: int | None = None


class Child:
    """A process under way. `complaint` is the end of what it wrote to its standard error."""

    def __init__(
        self, process: asyncio.subprocess.Process, life: int, line_bytes_max: int
    ) -> None:
        self.group = process.pid
        self._line_bytes_max = line_bytes_max
        groups.began(self.group)
        self.ended = asyncio.Event()
        self._process = process
        self._life = life
        self._complaint = bytearray()
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def spawn(cls, command: Command) -> "Child":
        """Raises OSError if the command cannot be started."""
        line_bytes_max = command.line_bytes_max or LINE_BYTES_MAX
        watched, life = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(
                    "/bin/sh",
                    "-c",
                    _WATCHED,
                    "sh",
                    str(watched),
                    groups.mark(None),
                    *command.words,
                ),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=line_bytes_max,
                env=dict(command.environment),
                cwd=command.folder,
                start_new_session=True,
                pass_fds=(watched,),
            )
        except BaseException:
            os.close(life)
            raise
        finally:
            os.close(watched)
        return cls(process, life, line_bytes_max)

    def complaint(self) -> str:
        """What it said last, without colours and without the calls that led there."""
        said = _COLOURS.sub("", self._complaint.decode("utf-8", "replace")).partition(
            "Stack backtrace:"
        )[0]
        lines = said.strip().splitlines()
        return " / ".join(line.strip() for line in lines[-5:] if line.strip())

    def forget(self) -> None:
        """What it complained about so far is not why it will end."""
        self._complaint.clear()

    async def lines(self) -> AsyncIterator[bytes]:
        """What it says, line by line, to its end or to a line that is too long."""
        output = self._process.stdout
        if output is None:
            raise AssertionError("it was asked for as a pipe")
        while True:
            try:
                line = await output.readuntil(b"\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            except asyncio.LimitOverrunError:
                self._complaint[:] = (
                    f"it sent a message of more than {self._line_bytes_max} bytes".encode()
                )
                return
            yield line

    async def send(self, line: bytes) -> None:
        """Raises ConnectionError if it does not read."""
        if self._process.stdin is None:
            raise AssertionError("it was asked for as a pipe")
        self._process.stdin.write(line)
        await self._process.stdin.drain()

    def put(self, line: bytes) -> None:
        """The same, without waiting until it is read. Raises `Unread` if too much waits already."""
        if self._process.stdin is None:
            raise AssertionError("it was asked for as a pipe")
        if self._process.stdin.is_closing():
            raise ConnectionResetError("its input is closed")
        if self._process.stdin.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self._complaint[:] = b"it does not read what it is told"
            raise Unread("it does not read")
        self._process.stdin.write(line)

    async def exited(self) -> None:
        """Returns when it has ended, also if a process that it started holds its output open."""
        while self._process.returncode is None:  # noqa: ASYNC110 - asyncio tells of it with the end of the pipes
            await asyncio.sleep(_LOOK_S)

    async def end(self) -> None:
        """Its input is closed, then it is asked, then it is made to end; and all of its group with
        it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if not await self._exits(_EXIT_WAIT_S):
            groups.signal_group(self.group, signal.SIGTERM)
            await self._exits(_TERM_WAIT_S)
        groups.signal_group(self.group, signal.SIGKILL)
        await self._exits(_KILL_WAIT_S)
        os.close(self._life)
        self._listener.cancel()
        await asyncio.gather(self._listener, return_exceptions=True)
        groups.over(self.group)
        self._let_go()
        await asyncio.sleep(0)  # The loop closes pipes one round later.
        self.ended.set()

    def _let_go(self) -> None:
        """Close our ends of the pipes. asyncio does so at the end of file, which a process that
        left the group can keep from coming; and it has no public way to do it earlier."""
        transport = getattr(self._process, "_transport", None)
        if isinstance(transport, asyncio.BaseTransport):
            transport.close()

    async def _exits(self, limit_s: float) -> bool:
        """Looks at the return code: waiting would also wait for others that hold the pipes."""
        return await groups.until(
            lambda: self._process.returncode is not None, limit_s
        )

    async def _listen(self) -> None:
        errors = self._process.stderr
        while errors is not None and (chunk := await errors.read(4096)):
            self._complaint += chunk
            del self._complaint[:-_COMPLAINT_BYTES_MAX]
